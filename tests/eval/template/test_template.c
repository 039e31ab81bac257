/* Chat templates: what Jinja makes of them (tests/golden/templates.json), refusals by name, limits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/text/json.h"
#include "eval/score/pytext.h"
#include "eval/template/template.h"

static const struct tm NOW = {.tm_year = 124,
                              .tm_mon = 1,
                              .tm_mday = 2,
                              .tm_wday = 5,
                              .tm_yday = 32,
                              .tm_hour = 15,
                              .tm_min = 4,
                              .tm_sec = 5};

static dpe_status render(const char *source, const json_t *variables,
                         const struct dpe_template_options *options, struct dpe_text *out,
                         struct dpe_error *err)
{
    struct dpe_template *parsed = NULL;
    dpe_status status = dpe_template_parse("t.jinja", source, strlen(source), &parsed, err);
    if (status == DPE_OK) {
        status = dpe_template_render(parsed, variables, options, out, err);
        dpe_template_free(parsed);
    }
    return status;
}

/* The list in templates.json as the member "cases" of an object, with numbers of any size. */
static json_t *read_cases(void)
{
    static const char path[] = DPE_SOURCE_DIR "/tests/golden/templates.json";
    struct dpe_error err = {0};
    struct dpe_text text = {0};
    char *bytes = NULL;
    size_t n = 0;
    json_t *root = NULL;
    assert_int_equal(dpe_read_file(path, 1 << 24, &bytes, &n, &err), DPE_OK);
    dpe_text_append(&text, "{\"cases\":", 9, NULL);
    dpe_text_append(&text, bytes, n, NULL);
    dpe_text_append(&text, "}", 1, NULL);
    if (dpe_json_parse_exact(path, text.bytes, text.n, &root, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    dpe_text_free(&text);
    free(bytes);
    return root;
}

static void test_golden(void **state)
{
    const struct dpe_template_options options = {.now = &NOW};
    json_t *root = read_cases();
    const json_t *cases = json_object_get(root, "cases");
    size_t wrong = 0;
    (void)state;
    assert_true(json_array_size(cases) > 350);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *each = json_array_get(cases, i);
        const char *source = json_string_value(json_object_get(each, "template"));
        const json_t *expected = json_object_get(each, "text");
        struct dpe_text out = {0};
        struct dpe_error err = {0};
        dpe_status status =
            render(source, json_object_get(each, "variables"), &options, &out, &err);
        const char *made = status != DPE_OK ? NULL : out.n > 0 ? out.bytes : "";
        const char *text = json_string_value(expected);
        if (status != DPE_OK && status != DPE_BAD_DATA) {
            fail_msg("status %d", (int)status);
        }
        if ((made == NULL) != (text == NULL) || (made != NULL && strcmp(made, text) != 0)) {
            print_message("%zu: %s\n  expected %s\n  found    %s%s\n", i, source,
                          text != NULL ? text : "(a refusal)", made != NULL ? made : "", err.text);
            wrong++;
        }
        dpe_text_free(&out);
    }
    json_decref(root);
    assert_int_equal(wrong, 0);
}

/* A refusal names the construct and its line, before anything is rendered. */
static void test_refusals(void **state)
{
    static const struct {
        const char *source, *message;
    } cases[] = {
        {"a\n{% include 'x' %}", "t.jinja: line 2: {% include %} is not supported here"},
        {"{% extends 'x' %}", "{% extends %}"},
        {"{% block x %}y{% endblock %}", "{% block %}"},
        {"a\n{% raw %}{{ x }}", "line 2: the raw block that begins here has no {% endraw %}"},
        {"{% call f %}x{% endcall %}", "expected a call after {% call %}"},
        {"{{ 1 | dictsort(foo=1) }}", "the filter 'dictsort' has no argument 'foo'"},
        {"{{ 'a' | replace('b') }}", "the filter 'replace' needs its argument 'new'"},
        {"{{ 'a'.strip(chars='a') }}", "the method 'strip' has no argument 'chars'"},
        {"{{ 'a'.startswith('a', **{'/prefix': 'a'}) }}",
         "the method 'startswith' has no argument '/prefix'"},
        {"{{ 4 is divisibleby }}", "the test 'divisibleby' needs its argument 'num'"},
        {"{{ [1] | map('string') | length }}", "a generator has no length: make it a list"},
        {"{{ [1] | map('string') }}", "a generator cannot be written: make it a list"},
        {"{{ y }}{% set y = none %}{{ y[:2] }}", "none has no slices"},
        {"\n{{ x | xmlattr }}", "line 2: the filter 'xmlattr' is not supported"},
        {"{% if 1 %}\n{{ x | xmlattr }}{% endif %}",
         "line 2: the filter 'xmlattr' is not supported"},
        {"{% if 1 is prime %}{% endif %}", "the test 'prime' is not supported"},
        {"{{ x | wordwrap(4) }}", "the filter 'wordwrap' is not supported"},
        {"{{ [1].append(1) }}", "the method 'append' is not supported"},
        {"{{ 1 if 1 else [].append(1) }}{{ 'x'.encode() }}",
         "the method 'encode' is not supported"},
        {"{{ '%s' % () }}", "there are not enough values for the text"},
        {"{% for x in [1] %}{{ loop([2]) }}{% endfor %}", "a loop with 'recursive'"},
        {"{% for x in [1] recursive %}{{ loop(1, 2) }}{% endfor %}", "loop() takes one value"},
        {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", ""},
        {"{{ x[1, 2] }}", "an index of several values"},
        {"{{ 0x1g }}", "a number that begins with 0"},
        {"{{ 99999999999999999999 + 1 }}", "does not fit 64 bits"},
        {"{{ '%d' % 99999999999999999999 }}", "beyond 64 bits cannot be formatted"},
        {"\n\n{{ 'abc }}", "line 3: the string that begins here has no end"},
        {"{% for x in y %}\n{% if x %}", "line 2: the block that begins here has no {% endif %}"},
        {"{% macro m(a) %}{{ varargs }}{% endmacro %}{{ m(1, 2) }}",
         "the macro 'm' does not have all of these arguments"},
        {"{% macro m() %}{{ varargs }}{% endmacro %}{{ m() }}", "'varargs' of a macro"},
        {"{% macro m() %}{% if kwargs %}{% endif %}{% endmacro %}{{ m() }}", "'kwargs' of a macro"},
        {"{% macro m(a) %}{% endmacro %}{{ m.arguments }}",
         "the member 'arguments' of a macro is not supported"},
        {"{{ 'a b'.rsplit(none, 1) }}", "rsplit(): a limit without a separator is not supported"},
        {"x\n{{ raise_exception('roles must alternate') }}",
         "line 2: the template refuses the messages: roles must alternate"},
        {"{{ message.content }}", "'message' is not defined, so that it has no 'content'"},
    };
    json_t *variables = json_object();
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dpe_text out = {0};
        struct dpe_error err = {0};
        assert_int_equal(render(cases[i].source, variables, NULL, &out, &err), DPE_BAD_DATA);
        if (strstr(err.text, cases[i].message) == NULL) {
            fail_msg("%s: expected \"%s\", found \"%s\"", cases[i].source, cases[i].message,
                     err.text);
        }
        assert_int_equal(out.n, 0);
    }
    json_decref(variables);
}

/* What would take forever, all memory, or the stack ends with a refusal. */
static void test_limits(void **state)
{
    static const char *const sources[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for a in range(99) %}"
        "{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ ['x'] | map(*(['map'] * 99999)) | list }}",
        "{{ 'x' * 1000000000000 }}",
        "{{ [0] * 1000000000000 }}",
        "{{ 2 ** 100000000000 }}",
        "{% for a in range(99999) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' * 999 }}"
        "{% endfor %}",
        "{% set ns = namespace(a=[]) %}{% for i in range(9999) %}{% set ns.a = [ns.a] %}{% endfor "
        "%}"
        "{{ ns.a | tojson }}",
        "{% set ns = namespace(a=[]) %}{% for i in range(9999) %}{% set ns.a = [ns.a] %}{% endfor "
        "%}"
        "{{ ns.a }}",
        "{% set ns = namespace(a=[], b=[]) %}{% for i in range(9999) %}{% set ns.a = [ns.a] %}"
        "{% set ns.b = [ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
        "{{ range(0, 1, 0) }}",
        "{{ ['x'] | map('€' * 50) | list }}",
        "{{ -9223372036854775807 - 2 }}",
        "{{ 'a' | indent(100000000000) }}",
        "{{ '{:99999999999}'.format(1) }}",
        "{{ '%99999999999d' % 1 }}",
        "{% set ns = namespace(a=[1]) %}{% for i in range(9999) %}{% set ns.a = [ns.a] %}{% endfor "
        "%}"
        "{{ [ns.a] | sort | min }}{{ ns.a < ns.a }}{{ (ns.a,) | max }}{{ ns.a in [ns.a] }}",
    };
    json_t *variables = json_object();
    (void)state;
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        struct dpe_text out = {0};
        struct dpe_error err = {0};
        if (render(sources[i], variables, NULL, &out, &err) != DPE_BAD_DATA) {
            fail_msg("%s: expected a refusal", sources[i]);
        }
        assert_true(dpe_is_utf8(err.text));
        assert_int_equal(out.n, 0);
    }
    json_decref(variables);
}

/* Searching a text takes time of its length, and as many steps: the parts here fit it almost
 * everywhere. A text of any length may be walked over. */
static void test_work(void **state)
{
    enum { N = 1 << 18 };
    static const char *const few[] = {
        "{{ (t + 'b') in t }}",
        "{{ t.find(h + 'b') }}",
        "{{ t.rfind('b' + h) }}",
        "{{ t.count(h + 'b') }}",
        "{{ t.split(h + 'b') | length }}",
        "{{ t.rsplit('b' + h, 1) | length }}",
        "{{ t.replace(h + 'b', '') | length }}",
        "{{ t.partition(h + 'b') | length }}",
        "{{ t.strip('xyz' * 3) | length }}",
    };
    static const char *const many[] = {
        "{% for i in range(99999) %}{{ (h + 'b') in t }}{% endfor %}",
        "{% for i in range(99999) %}{{ t.rfind('b' + h) }}{% endfor %}",
        "{% for i in range(99999) %}{% set x = t.replace(h, '') %}{% endfor %}",
        "{% for i in range(99999) %}{{ u | length }}{{ v | length }}{% endfor %}",
        "{{ t.strip(t) }}{% for i in range(999) %}{{ t.strip('b' + t) }}{% endfor %}",
        "{% for i in range(9999) %}{{ t.startswith((1, t)[1:]) }}{% endfor %}",
        "{% for i in range(9999) %}{{ t.removesuffix(t) }}{% endfor %}",
        "{% set s = ' ' * 99999 %}{% for i in range(999) %}{{ s | int }}{% endfor %}",
        "{% set s = ' ' * 99999 %}{% for i in range(999) %}{{ s | float }}{% endfor %}",
        "{% set f = '{0}' * 9999 %}{% for i in range(999) %}{{ f.format('x') }}{% endfor %}",
        "{% set f = '0.' * 9999 ~ 0 %}{% for i in range(999) %}"
        "{{ ['x'] | map(attribute=f) | first }}{% endfor %}",
        "{% set j = joiner() %}{% for i in range(9999) %}{{ j(**d) }}{% endfor %}",
        "{% set k = 'a' * 6400 ~ 'x' %}{% for i in range(999) %}{{ long[k] }}{% endfor %}",
    };
    static const char walk[] =
        "{% for i in range(n) %}{{ u[i] }}{{ u[-i - 1] if i % 500 == 0 }}{% endfor %}";
    static const struct dpe_template_options few_steps = {.most_steps = 1000000};
    char *text = malloc(2 * N + 1);
    assert_non_null(text);
    memset(text, 'a', N);
    json_t *variables = json_pack("{s:s#, s:s#}", "t", text, N, "h", text, N / 2);
    for (int i = 0; i < N; i++) {
        memcpy(text + 2 * i, "\xc3\xa9", 2);
    }
    json_object_set_new(variables, "u", json_stringn(text, (size_t)2 * N));
    json_object_set_new(variables, "v", json_stringn(text, (size_t)2 * N - 2));
    json_object_set_new(variables, "n", json_integer(99999));
    json_t *many_names = json_object();
    for (int i = 0; i < 600; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        json_object_set_new(many_names, name, json_integer(i));
    }
    json_object_set_new(variables, "d", many_names);
    /* Keys of one length, which differ at their ends. */
    json_t *long_names = json_object();
    memset(text, 'a', 6400);
    text[6401] = '\0';
    for (int i = 0; i < 20; i++) {
        text[6400] = (char)('A' + i);
        json_object_set_new(long_names, text, json_integer(i));
    }
    json_object_set_new(variables, "long", long_names);
    (void)state;
    for (size_t i = 0; i < sizeof few / sizeof few[0]; i++) {
        struct dpe_text out = {0};
        struct dpe_error err = {0};
        if (render(few[i], variables, NULL, &out, &err) != DPE_OK) {
            fail_msg("%s: %s", few[i], err.text);
        }
        dpe_text_free(&out);
    }
    for (size_t i = 0; i < sizeof many / sizeof many[0]; i++) {
        struct dpe_text out = {0};
        struct dpe_error err = {0};
        assert_int_equal(render(many[i], variables, &few_steps, &out, &err), DPE_BAD_DATA);
        assert_non_null(strstr(err.text, "rendering takes more than"));
    }
    struct dpe_text out = {0};
    const struct dpe_template_options little = {.most_memory = 64 << 20};
    assert_int_equal(render(walk, variables, &little, &out, NULL), DPE_OK);
    assert_int_equal(out.n, 2 * (99999 + 200));
    dpe_text_free(&out);
    /* A round of a loop takes no memory that the one before it had. */
    static const char rounds[] = "{% for c in t if c != 'b' %}{% set d = c | trim(' ') %}"
                                 "{{ d if d.startswith('a') and loop.index % 2 == 0 }}{% endfor %}";
    const struct dpe_template_options half = {.most_memory = 32 << 20};
    assert_int_equal(render(rounds, variables, &half, &out, NULL), DPE_OK);
    assert_int_equal(out.n, N / 2);
    dpe_text_free(&out);
    free(text);
    json_decref(variables);
}

/* The searches and rsplit against the obvious ones, on texts of few letters, which repeat. */
static void test_search(void **state)
{
    static const char source[] =
        "{{ t.find(p) }} {{ t.rfind(p) }} {{ t.rsplit(p or 'x') | join('|') }}";
    uint32_t random = 1;
    (void)state;
    for (int round = 0; round < 2000; round++) {
        char bytes[2][64];
        size_t n[2];
        for (int k = 0; k < 2; k++) {
            random = random * 1664525 + 1013904223;
            n[k] = random >> 8 & (k == 0 ? 63 : (unsigned)round % 32);
            for (size_t i = 0; i < n[k]; i++) {
                random = random * 1664525 + 1013904223;
                bytes[k][i] = (char)('a' + (random >> 20) % (1 + (unsigned)round % 3));
            }
        }
        const char *text = bytes[0], *part = bytes[1];
        int first = -1, last = -1;
        for (size_t at = 0; at + n[1] <= n[0]; at++) {
            if (memcmp(text + at, part, n[1]) == 0) {
                first = first < 0 ? (int)at : first;
                last = (int)at;
            }
        }
        /* From the end: each part that is found becomes '|'. */
        char split[64];
        size_t begin = sizeof split;
        for (size_t end = n[0]; end > 0;) {
            bool found = n[1] > 0 && n[1] <= end && memcmp(text + end - n[1], part, n[1]) == 0;
            split[--begin] = found ? '|' : text[end - 1];
            end -= found ? n[1] : 1;
        }
        char expected[160];
        snprintf(expected, sizeof expected, "%d %d %.*s", first, last, (int)(sizeof split - begin),
                 split + begin);
        json_t *variables = json_pack("{s:s%, s:s%}", "t", text, n[0], "p", part, n[1]);
        assert_non_null(variables);
        struct dpe_text out = {0};
        assert_int_equal(render(source, variables, NULL, &out, NULL), DPE_OK);
        assert_string_equal(out.bytes, expected);
        dpe_text_free(&out);
        json_decref(variables);
    }
}

static char *nested(const char *open, const char *inside, const char *close, size_t n)
{
    char *text = malloc(n * (strlen(open) + strlen(close)) + strlen(inside) + 1);
    assert_non_null(text);
    text[0] = '\0';
    char *end = text;
    for (size_t i = 0; i < n; i++) {
        end = stpcpy(end, open);
    }
    end = stpcpy(end, inside);
    for (size_t i = 0; i < n; i++) {
        end = stpcpy(end, close);
    }
    return text;
}

static void test_deep_sources(void **state)
{
    char *sources[] = {
        nested("{% if 1 %}", "x", "{% endif %}", 3000),
        nested("{{ ", "(", "", 1),
        nested("{{", "", "}}", 3000),
        nested("{{ 1", "", " + 1", 9000),
    };
    char *brackets = nested("[", "1", "]", 3000);
    char *negations = nested("not ", "1", "", 9000);
    json_t *variables = json_object();
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        char *source = i < 4 ? sources[i] : NULL;
        struct dpe_text out = {0};
        struct dpe_error err = {0};
        if (source == NULL) {
            const char *inside = i == 4 ? brackets : negations;
            source = malloc(strlen(inside) + 16);
            assert_non_null(source);
            stpcpy(stpcpy(stpcpy(source, "{{ "), inside), " }}");
        }
        assert_int_equal(render(source, variables, NULL, &out, &err), DPE_BAD_DATA);
        free(source);
        dpe_text_free(&out);
    }
    free(brackets);
    free(negations);
    json_decref(variables);
}

static void test_bytes(void **state)
{
    struct dpe_template *parsed = NULL;
    struct dpe_error err = {0};
    (void)state;
    assert_int_equal(dpe_template_parse("t", "a\xff", 2, &parsed, &err), DPE_BAD_DATA);
    assert_int_equal(dpe_template_parse("t", "a\0b", 3, &parsed, &err), DPE_BAD_DATA);
    char *large = malloc((1 << 20) + 1);
    assert_non_null(large);
    memset(large, 'x', (1 << 20) + 1);
    assert_int_equal(dpe_template_parse("t", large, (1 << 20) + 1, &parsed, &err), DPE_BAD_DATA);
    free(large);
    assert_null(parsed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_limits), cmocka_unit_test(test_deep_sources),
        cmocka_unit_test(test_bytes),  cmocka_unit_test(test_work),
        cmocka_unit_test(test_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
