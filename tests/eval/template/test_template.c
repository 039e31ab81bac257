/* Chat templates: what Jinja makes of them (tests/golden/templates.json), refusals by name, limits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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

static void test_golden(void **state)
{
    const struct dpe_template_options options = {.now = &NOW};
    json_error_t where;
    json_t *cases = json_load_file(DPE_SOURCE_DIR "/tests/golden/templates.json", 0, &where);
    size_t wrong = 0;
    (void)state;
    assert_non_null(cases);
    assert_true(json_array_size(cases) > 100);
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
    json_decref(cases);
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
        {"{% raw %}{{ x }}{% endraw %}", "{% raw %}"},
        {"{% call f() %}x{% endcall %}", "{% call %}"},
        {"{% filter upper %}x{% endfilter %}", "{% filter %}"},
        {"{% with a=1 %}x{% endwith %}", "{% with %}"},
        {"{% if 0 %}\n{{ x | xmlattr }}{% endif %}",
         "line 2: the filter 'xmlattr' is not supported"},
        {"{{ x | groupby('a') }}", "the filter 'groupby' is not supported"},
        {"{% if 0 %}{{ x is sameas y }}{% endif %}", "the test 'sameas' is not supported"},
        {"{{ x.append(1) }}", "the method 'append' is not supported"},
        {"{{ x.format(1) }}", "the method 'format' is not supported"},
        {"{{ f(*x) }}", "arguments with * are not supported"},
        {"{% for x in y recursive %}{% endfor %}", "for … recursive is not supported"},
        {"{{ '%s' % 1 }}", "formatting a string with %"},
        {"{{ x[1, 2] }}", "an index of several values"},
        {"{{ 0x10 }}", "a number that begins with 0"},
        {"{{ 99999999999999999999 }}", "does not fit 64 bits"},
        {"\n\n{{ 'abc }}", "line 3: the string that begins here has no end"},
        {"{% for x in y %}\n{% if x %}", "line 2: the block that begins here has no {% endif %}"},
        {"{{ cycler('a') }}", "'cycler' is called and not defined"},
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
        "{{ -9223372036854775807 - 2 }}",
        "{{ 'a' | indent(100000000000) }}",
    };
    json_t *variables = json_object();
    (void)state;
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        struct dpe_text out = {0};
        struct dpe_error err = {0};
        if (render(sources[i], variables, NULL, &out, &err) != DPE_BAD_DATA) {
            fail_msg("%s: expected a refusal", sources[i]);
        }
        assert_int_equal(out.n, 0);
    }
    json_decref(variables);
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
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
