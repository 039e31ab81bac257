/* Chat templates of folders: found, with special tokens, rendered, cut around a prompt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "eval/chat/chat.h"

static char folder[64];

static const char *put(const char *name, const char *text)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (text == NULL) {
        unlink(path);
        return path;
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_chat_XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"chat_template.jinja", "tokenizer_config.json",
                                        "special_tokens_map.json", "plain.txt", "other.jinja"};
    (void)state;
    for (int i = 0; i < 5; i++) {
        put(names[i], NULL);
    }
    return rmdir(folder);
}

static void expect_wrap(const char *what, const char *before, const char *after)
{
    struct dpe_error err = {0};
    char *a = NULL;
    char *b = NULL;
    if (dpe_chat_wrap(what, folder, &a, &b, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    assert_string_equal(a, before);
    assert_string_equal(b, after);
    free(a);
    free(b);
}

static void expect_refusal(const char *what, dpe_status status, const char *message)
{
    struct dpe_error err = {0};
    char *a = NULL;
    char *b = NULL;
    assert_int_equal(dpe_chat_wrap(what, folder, &a, &b, &err), status);
    assert_null(a);
    assert_null(b);
    if (strstr(err.text, message) == NULL) {
        fail_msg("expected \"%s\", found \"%s\"", message, err.text);
    }
}

/* chat_template.jinja comes before tokenizer_config.json; tokens may be objects or lie in
 * special_tokens_map.json. */
static void the_folder_has_a_template(void **state)
{
    (void)state;
    expect_wrap("auto", "", "");
    expect_wrap("none", "", "");
    expect_wrap(NULL, "", "");
    put("tokenizer_config.json", "{\"bos_token\": null, \"model_max_length\": "
                                 "1000000000000000019884624838656}");
    expect_wrap("auto", "", "");
    put("tokenizer_config.json",
        "{\"bos_token\": {\"content\": \"<s>\", \"lstrip\": false}, \"chat_template\": "
        "\"{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}"
        "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}[bot]{% endif %}\"}");
    expect_wrap("auto", "<s>[user]", "[bot]");
    put("special_tokens_map.json", "{\"eos_token\": \"</s>\", \"bos_token\": \"<other>\"}");
    expect_wrap("auto", "<s>[user]", "</s>[bot]");
    put("tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"no\"}, {\"name\": "
        "\"default\", \"template\": \"A{{ messages[-1].content }}B\"}]}");
    expect_wrap("auto", "A", "B");
    const char *path = put("chat_template.jinja", "J{{ messages[0]['content'] }}{{ tools is none }}"
                                                  "{{ strftime_now('%d %b %Y') }}\n");
    expect_wrap("auto", "J", "True01 Jan 2025");
    expect_wrap(path, "J", "True01 Jan 2025");
}

static void a_file_has_a_template(void **state)
{
    char path[160];
    (void)state;
    snprintf(path, sizeof path, "%s", put("plain.txt", "<u>{prompt}\n<a>"));
    expect_wrap(path, "<u>", "\n<a>");
    put("plain.txt", "<u>\n<a>");
    expect_refusal(path, DPE_BAD_DATA, "plain.txt: expected {prompt} once in a chat template");
    put("plain.txt", "{prompt}{prompt}");
    expect_refusal(path, DPE_BAD_DATA, "expected {prompt} once");
    snprintf(path, sizeof path, "%s", put("other.jinja", "{{ messages | length }}"));
    expect_refusal(path, DPE_BAD_DATA,
                   "other.jinja: expected a chat template that writes a user's");
    put("other.jinja", "{{ messages[0].content }}{{ messages[0].content }}");
    expect_refusal(path, DPE_BAD_DATA, "writes a user's message once");
    put("other.jinja", "\n{% include 'x' %}");
    expect_refusal(path, DPE_BAD_DATA, "other.jinja: line 2: {% include %} is not supported");
    put("other.jinja", "{{ raise_exception('a system message comes first') }}");
    expect_refusal(path, DPE_BAD_DATA, "a system message comes first");
    snprintf(path, sizeof path, "%s/none.jinja", folder);
    expect_refusal(path, DPE_NO_INPUT, "none.jinja");
    put("chat_template.jinja", NULL);
    put("tokenizer_config.json", "{\"chat_template\": ");
    expect_refusal("auto", DPE_BAD_DATA, "tokenizer_config.json");
}

static void conversations_are_rendered(void **state)
{
    const struct tm now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 22};
    struct dpe_chat *chat = NULL;
    struct dpe_error err = {0};
    struct dpe_text out = {0};
    json_t *messages = json_pack("[{ssss},{ssss}]", "role", "user", "content", "Hi", "role",
                                 "assistant", "content", "Ho");
    (void)state;
    char path[160];
    snprintf(path, sizeof path, "%s",
             put("other.jinja", "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};"
                                "{% endfor %}{{ strftime_now('%Y') }}"
                                "{{ add_generation_prompt }}"));
    assert_int_equal(dpe_chat_open(path, folder, &chat, &err), DPE_BAD_DATA);
    put("tokenizer_config.json", NULL);
    assert_int_equal(dpe_chat_open(path, folder, &chat, &err), DPE_OK);
    assert_string_equal(dpe_chat_source(chat), path);
    assert_string_equal(dpe_chat_end(chat), "</s>");
    assert_int_equal(dpe_chat_render(chat, messages, false, NULL, &now, &out, &err), DPE_OK);
    assert_string_equal(out.bytes, "u:Hi;a:Ho;2026False");
    dpe_chat_close(chat);
    snprintf(path, sizeof path, "%s", put("plain.txt", "<u>{prompt}<a>"));
    assert_int_equal(dpe_chat_open(path, folder, &chat, &err), DPE_OK);
    assert_int_equal(dpe_chat_render(chat, messages, true, NULL, NULL, &out, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "room for one message"));
    dpe_chat_close(chat);
    dpe_text_free(&out);
    json_decref(messages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_folder_has_a_template),
        cmocka_unit_test(a_file_has_a_template),
        cmocka_unit_test(conversations_are_rendered),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
