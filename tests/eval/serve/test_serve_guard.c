/* Whose requests dpe-serve reads, in which form, and what their bodies may cost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "eval/serve/guard.h"

/* A head from "Name: value" lines; a line that ends with '!' ended in another way than CR LF. */
static struct dpe_guard_head head_of(const char *method, const char *version, char *lines)
{
    struct dpe_guard_head head = {.method = method, .version = version};
    char *rest = NULL;
    for (char *line = strtok_r(lines, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        size_t n = strlen(line);
        bool ends = line[n - 1] != '!';
        line[n - 1] = ends ? line[n - 1] : '\0';
        char *colon = strchr(line, ':');
        *colon = '\0';
        dpe_guard_add(&head, line, colon + 1 + strspn(colon + 1, " "), ends);
    }
    return head;
}

static void heads_have_one_meaning(void **state)
{
    static const struct {
        const char *method, *version, *lines;
        unsigned status;
    } cases[] = {
        {"POST", "HTTP/1.1", "Host: a\nContent-Length: 3", 0},
        {"POST", "HTTP/1.1", "Host: a\ncontent-length: 0", 0},
        {"PUT", "HTTP/1.1", "Host: a\nTransfer-Encoding: Chunked", 0},
        {"GET", "HTTP/1.1", "host: a", 0},
        {"GET", "HTTP/1.0", "X: y", 0},
        {"POST", "HTTP/1.0", "Content-Length: 3", 0},
        {"GET", "HTTP/1.1", "X: y", 400},
        {"GET", "HTTP/1.1", "Host: a\nHOST: a", 400},
        {"GET", "HTTP/1.1", "Host: a\nX: y!", 400},
        {"GET", "HTTP/1.1", "Host: a\nX : y", 400},
        {"POST", "HTTP/1.1", "Host: a\nContent-Length : 34", 400},
        {"POST", "HTTP/1.1", "Host: a\nContent-Length\t: 34", 400},
        {"POST", "HTTP/1.1", "Host: a\nContent-Length: 3\nX\r: 34", 400},
        {"GET", "HTTP/1.1", "Host: a\n: y", 400},
        {"GET", "HTTP/1.1", "Host: a\nX: a\rb", 400},
        {"POST", "HTTP/1.1", "Host: a\nContent-Length: 3\nContent-Length: 3", 400},
        {"POST", "HTTP/1.1", "Host: a\nContent-Length: 3\ncontent-LENGTH: 4", 400},
        {"POST", "HTTP/1.1", "Host: a\nContent-Length: 3, 3", 400},
        {"POST", "HTTP/1.1", "Host: a\nContent-Length: +3", 400},
        {"POST", "HTTP/1.1", "Host: a\nContent-Length: 0x3", 400},
        {"POST", "HTTP/1.1", "Host: a\nContent-Length:", 400},
        {"POST", "HTTP/1.1", "Host: a\nContent-Length: 3\nTransfer-Encoding: chunked", 400},
        {"GET", "HTTP/1.1", "Host: a\nTransfer-Encoding: identity", 400},
        {"POST", "HTTP/1.1", "Host: a\nTransfer-Encoding: gzip, chunked", 400},
        {"POST", "HTTP/1.1", "Host: a\nTransfer-Encoding: xchunked", 400},
        {"POST", "HTTP/1.1", "Host: a\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked",
         400},
        {"POST", "HTTP/1.0", "Host: a\nTransfer-Encoding: chunked", 400},
        {"POST", "HTTP/1.1", "Host: a", 411},
        {"PUT", "HTTP/1.0", "Host: a", 411},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char lines[160];
        const char *why = NULL;
        strcpy(lines, cases[i].lines);
        struct dpe_guard_head head = head_of(cases[i].method, cases[i].version, lines);
        if (dpe_guard_form(&head, &why) != cases[i].status) {
            fail_msg("%s: expected %u", cases[i].lines, cases[i].status);
        }
        assert_true((why != NULL) == (cases[i].status != 0));
    }
}

static void pages_of_others_may_not_ask(void **state)
{
    static const bool local[] = {true, false, true, true};
    const struct dpe_serve_arguments rules[] = {
        {.host = "127.0.0.1"},
        {.host = "0.0.0.0"},
        {.host = "::1",
         .hosts = {"box.example"},
         .n_hosts = 1,
         .origins = {"https://app.example", "null"},
         .n_origins = 2},
        {.host = "127.0.0.1", .origins = {"*"}, .n_origins = 1},
    };
    static const struct {
        int rules;
        unsigned status;
        const char *method, *lines;
    } cases[] = {
        {0, 0, "GET", "Host: 127.0.0.1:8080"},
        {0, 0, "GET", "Host: 127.5.0.255"},
        {0, 0, "GET", "Host: LocalHost:9"},
        {0, 0, "GET", "Host: [::1]:8080"},
        {0, 0, "GET", "X: no host at all"},
        {0, 403, "GET", "Host: evil.example:8080"},
        {0, 403, "GET", "Host: 127.0.0.1.evil.example"},
        {0, 403, "GET", "Host: 128.0.0.1"},
        {0, 403, "GET", "Host: 127.0.0.256"},
        {0, 403, "GET", "Host: 127.1"},
        {0, 403, "GET", "Host: localhost.evil"},
        {0, 403, "GET", "Host: localhost:80@evil"},
        {0, 403, "GET", "Host: [::1"},
        {0, 403, "GET", "Host:"},
        {0, 403, "GET", "Host: box.example"},
        {0, 0, "POST", "Host: localhost\nContent-Type: text/plain"},
        {0, 0, "POST",
         "Host: localhost\nOrigin: http://localhost\nContent-Type: application/json; "
         "charset=utf-8"},
        {0, 415, "POST", "Host: localhost\nOrigin: http://localhost\nContent-Type: text/plain"},
        {0, 415, "POST",
         "Host: localhost\nOrigin: http://localhost\nContent-Type: application/jsonp"},
        {0, 415, "PUT", "Host: localhost\nSec-Fetch-Site: same-origin"},
        {0, 403, "POST", "Host: localhost\nOrigin: http://evil\nContent-Type: application/json"},
        {0, 403, "POST", "Host: localhost\nOrigin: null\nContent-Type: application/json"},
        {0, 403, "POST",
         "Host: localhost\nOrigin: http://localhost:80\nContent-Type: application/json"},
        {0, 403, "GET", "Host: localhost\nOrigin: http://evil"},
        {0, 403, "POST",
         "Host: localhost\nSec-Fetch-Site: cross-site\nContent-Type: application/json"},
        {0, 0, "GET", "Host: localhost\nSec-Fetch-Site: cross-site"}, /* a link to the page */
        {1, 0, "GET", "Host: any.example"},
        {1, 403, "GET", "Host: any.example\nOrigin: http://other.example"},
        {2, 0, "GET", "Host: Box.example:1"},
        {2, 403, "GET", "Host: b.ox.example"},
        {2, 0, "POST", "Host: [::1]\nOrigin: https://APP.example\nContent-Type: application/json"},
        {2, 415, "POST", "Host: [::1]\nOrigin: https://app.example\nContent-Type: text/plain"},
        {2, 0, "GET", "Host: [::1]\nOrigin: null"},
        {2, 403, "GET", "Host: [::1]\nOrigin: http://app.example"},
        {3, 0, "GET", "Host: localhost\nOrigin: http://evil"},
        {3, 403, "GET", "Host: evil\nOrigin: http://evil"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char lines[160];
        const char *why = NULL;
        strcpy(lines, cases[i].lines);
        struct dpe_guard_head head = head_of(cases[i].method, "HTTP/1.1", lines);
        unsigned status = dpe_guard_who(&rules[cases[i].rules], local[cases[i].rules], &head, &why);
        if (status != cases[i].status) {
            fail_msg("%d %s: expected %u, found %u", cases[i].rules, cases[i].lines,
                     cases[i].status, status);
        }
    }
    char lines[] = "Host: localhost\nOrigin: http://evil";
    struct dpe_guard_head head = head_of("GET", "HTTP/1.1", lines);
    assert_string_equal(dpe_guard_foreign(&rules[3], &head), "http://evil");
    assert_null(dpe_guard_foreign(&rules[0], &head));
    assert_true(dpe_guard_is_loopback("127.3.2.1") && dpe_guard_is_loopback("::1"));
    assert_false(dpe_guard_is_loopback("0.0.0.0") || dpe_guard_is_loopback("::"));
}

/* What jansson asks for. */
static size_t taken, most;

static void *count_malloc(size_t n)
{
    size_t *memory = malloc(n + 16);
    assert_non_null(memory);
    memory[0] = n + 16;
    taken += n + 16;
    most = taken > most ? taken : most;
    return memory + 2;
}

static void count_free(void *memory)
{
    if (memory != NULL) {
        taken -= ((size_t *)memory)[-2];
        free((size_t *)memory - 2);
    }
}

static void bodies_cost_no_more(void **state)
{
    static const struct {
        const char *before, *again, *after;
    } forms[] = {
        {"{\"a\":[{}", ",{}", "]}"},
        {"{\"a\":[[]", ",[]", "]}"},
        {"{\"a\":[\"\"", ",\"\"", "]}"},
        {"{\"a\":[\"abcdefghijklmnopqrstuvwxyz\"", ",\"\\u00e9\\u00e9\\u00e9\"", "]}"},
        {"{\"a\":[0", ",1", "]}"},
        {"{\"a\":[0", ",1.5", "]}"},
        {"{\"a\":[{\"a\":1}", ",{\"b\":{\"c\":[2]}}", "]}"},
        {"{\"a\":[[[[[[]]]]]", ",[[[[[]]]]]", "]}"},
        {"{\"a\":\"", "word ", "\"}"},
        {"{\"a\":[0", ",null", "]}"},
    };
    (void)state;
    json_set_alloc_funcs(count_malloc, count_free);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        enum { TIMES = 3000 };
        char *text = malloc(TIMES * 32 + 200);
        size_t n = (size_t)sprintf(text, "%s", forms[i].before);
        for (int k = 0; k < TIMES; k++) {
            n += (size_t)sprintf(text + n, "%s", forms[i].again);
        }
        n += (size_t)sprintf(text + n, "%s", forms[i].after);
        json_error_t error;
        taken = most = 0;
        json_t *value = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
        assert_non_null(value);
        uint64_t cost = dpe_guard_cost(text, n);
        if (cost < most || cost > 6 * most + 4096) {
            fail_msg("%s: costs %zu, %llu were expected", forms[i].again, most,
                     (unsigned long long)cost);
        }
        json_decref(value);
        free(text);
    }
    /* Members of one object. */
    char *text = malloc(3000 * 12 + 8);
    size_t n = (size_t)sprintf(text, "{\"x\":1");
    for (int k = 0; k < 3000; k++) {
        n += (size_t)sprintf(text + n, ",\"%d\":1", k);
    }
    text[n++] = '}';
    json_error_t error;
    taken = most = 0;
    json_t *value = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    assert_non_null(value);
    assert_true(dpe_guard_cost(text, n) >= most);
    json_decref(value);
    free(text);
    json_set_alloc_funcs(malloc, free);
    char deep[2 * DPE_GUARD_DEPTH + 2];
    memset(deep, '[', sizeof deep);
    assert_true(dpe_guard_cost(deep, DPE_GUARD_DEPTH) < UINT64_MAX);
    assert_true(dpe_guard_cost(deep, DPE_GUARD_DEPTH + 1) == UINT64_MAX);
    assert_true(dpe_guard_cost("\"[[[[\\\"[[", 10) < 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_have_one_meaning),
        cmocka_unit_test(pages_of_others_may_not_ask),
        cmocka_unit_test(bodies_cost_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
