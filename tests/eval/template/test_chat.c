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
#include "tests/lib/test_folder.h"

/* Write a file of the folder, or remove it; its path. */
static const char *put(const char *name, const char *text)
{
    if (text != NULL) {
        return file_with(name, text);
    }
    unlink(in_folder(name));
    return in_folder(name);
}

static void expect_wrap(const char *what, const char *before, const char *after)
{
    struct dpe_error err = {0};
    struct dpe_chat_frame frame;
    if (dpe_chat_wrap(what, folder, &frame, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    assert_string_equal(frame.before, before);
    assert_string_equal(frame.after, after);
    dpe_chat_frame_free(&frame);
}

static void expect_refusal(const char *what, dpe_status status, const char *message)
{
    struct dpe_error err = {0};
    struct dpe_chat_frame frame;
    assert_int_equal(dpe_chat_wrap(what, folder, &frame, &err), status);
    assert_null(frame.before);
    assert_null(frame.after);
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

/* Processors of pictures and texts keep the template in files of their own; of several templates
 * the default is meant. */
static void the_other_places(void **state)
{
    static const struct {
        const char *text, *says; /* NULL: A and B stand around the message */
    } rows[] = {
        {"{\"chat_template\": \"A{{ messages[-1].content }}B\"}", NULL},
        {"{\"chat_template\": {\"tool_use\": \"no\", \"default\": \"A{{ messages[-1].content "
         "}}B\"}}",
         NULL},
        {"{\"chat_template\": [{\"name\": \"rag\", \"template\": \"x\"}, {\"name\": \"tool_use\", "
         "\"template\": \"y\"}]}",
         "named \"default\" of several, found \"rag\" \"tool_use\"; write the one to use"},
        {"{\"chat_template\": {\"rag\": \"x\"}}", "found \"rag\""},
        {"{\"chat_template\": 7}", "chat_template: expected a template, or one named"},
        {"{\"chat_template\": [{\"name\": \"default\"}]}", "chat_template: expected a template"},
    };
    static const char *const files[] = {"chat_template.json", "tokenizer_config.json",
                                        "processor_config.json"};
    (void)state;
    put("chat_template.jinja", NULL);
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        for (size_t k = 0; k < sizeof files / sizeof files[0]; k++) {
            put(files[k], k < f ? "{\"chat_template\": null}" : NULL);
        }
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            put(files[f], rows[i].text);
            if (rows[i].says == NULL) {
                expect_wrap("auto", "A", "B");
            } else {
                expect_refusal("auto", DPE_BAD_DATA, files[f]);
                expect_refusal("auto", DPE_BAD_DATA, rows[i].says);
            }
        }
        put(files[f], "{\"chat_template\": []}");
        expect_wrap("auto", "", "");
    }
    put("chat_template.json", rows[0].text);
    put("tokenizer_config.json", "{\"chat_template\": \"no\"}");
    expect_wrap("auto", "A", "B");
    for (size_t k = 0; k < sizeof files / sizeof files[0]; k++) {
        put(files[k], NULL);
    }
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
    const struct dpe_chat_turn turn = {.messages = messages, .now = &now};
    assert_int_equal(dpe_chat_render(chat, &turn, &out, &err), DPE_OK);
    assert_string_equal(out.bytes, "u:Hi;a:Ho;2026False");
    dpe_chat_close(chat);
    snprintf(path, sizeof path, "%s", put("plain.txt", "<u>{prompt}<a>"));
    assert_int_equal(dpe_chat_open(path, folder, &chat, &err), DPE_OK);
    assert_int_equal(dpe_chat_render(chat, &turn, &out, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "room for one message"));
    dpe_chat_close(chat);
    dpe_text_free(&out);
    json_decref(messages);
}

/* What a template makes of a conversation in the form of OpenAI's interface. */
static dpe_status render(const char *template, const char *given, struct dpe_text *out,
                         struct dpe_error *err)
{
    char path[160];
    struct dpe_chat *chat = NULL;
    json_error_t wrong;
    json_t *messages = NULL;
    json_t *conversation = json_loads(given, JSON_DECODE_ANY, &wrong);
    snprintf(path, sizeof path, "%s", put("other.jinja", template));
    assert_int_equal(dpe_chat_open(path, folder, &chat, err), DPE_OK);
    dpe_status status = dpe_chat_messages(chat, conversation, &messages, err);
    if (status == DPE_OK) {
        const struct dpe_chat_turn turn = {.messages = messages};
        status = dpe_chat_render(chat, &turn, out, err);
    }
    json_decref(messages);
    json_decref(conversation);
    dpe_chat_close(chat);
    return status;
}

static const char told[] = "{% for m in messages %}[{{ m | tojson }}]{% endfor %}";
static const char turns[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";

/* The variables that the template gets. */
static void messages_mean(void **state)
{
    static const struct {
        const char *template, *given, *text;
    } cases[] = {
        {turns,
         "[{'role':'user','content':[{'type':'text','text':'one'},{'type':'input_text','text':''},"
         "{'type':'refusal','refusal':'no'}]}]",
         "<user>one\n\nno"},
        {turns, "[{'role':'user','content':[]},{'role':'assistant','content':null}]",
         "<user><assistant>"},
        {turns, "[{'role':'assistant','content':null,'refusal':'I cannot'}]",
         "<assistant>I cannot"},
        {turns,
         "[{'role':'developer','content':'x'},{'role':'tool','content':[{'type':'text','text':'4'}]"
         "}]",
         "<system>x<tool>4"},
        {"{% for m in messages %}{{ 'D' if m.role == 'developer' else 'S' }}{% endfor %}",
         "[{'role':'developer','content':'x'}]", "D"},
        /* What says nothing, and notes that are not for the model, are left out. */
        {told,
         "[{'role':'assistant','content':'a','tool_calls':[],'audio':null,'function_call':null,"
         "'refusal':null,'annotations':[1],'id':'msg_1'}]",
         "[{\"role\": \"assistant\", \"content\": \"a\"}]"},
        {told, "[{'role':'user','content':'a','name':'Ann'}]",
         "[{\"role\": \"user\", \"content\": \"a\", \"name\": \"Ann\"}]"},
        {"{% for m in messages %}{{ m.tool_plan }}{% endfor %}",
         "[{'role':'assistant','content':'a','tool_plan':'p'}]", "p"},
        {"{% for m in messages %}{{ m.reasoning_content }}{{ m.reasoning }}{% endfor %}",
         "[{'role':'assistant','content':'a','reasoning':'r'},{'role':'assistant','content':'a',"
         "'reasoning_content':'s'}]",
         "rrss"},
        /* Arguments: the text of an object, an object, none, and what a model wrote that is no
           object. */
        {"{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.name }}"
         "{{ c.function.arguments | tojson }};{% endfor %}{% endfor %}",
         "[{'role':'assistant','tool_calls':[{'function':{'name':'f','arguments':'{\\\"b\\\":[1],"
         "\\\"a\\\":{}}'}},"
         "{'type':'function','function':{'name':'g','arguments':{'x':2}}},"
         "{'function':{'name':'h','arguments':' '}},{'function':{'name':'i'}},"
         "{'function':{'name':'j','arguments':'{\\\"x\\\":'}},{'function':{'name':'k','arguments':'"
         "[1]'}}]}]",
         "f{\"b\": [1], \"a\": {}};g{\"x\": 2};h{};i{};j\"{\\\"x\\\":\";k\"[1]\";"},
        /* A template that reads parts alone gets parts; what a tool gave stays a text. */
        {"{% for m in messages %}<{{ m.role }}>{% if m.role == 'tool' %}{{ m.content }}{% else %}"
         "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% "
         "endif %}{% endfor %}",
         "[{'role':'user','content':'a'},{'role':'assistant','content':''},{'role':'tool','content'"
         ":'t'}]",
         "<user>a<assistant><tool>t"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dpe_error err = {0};
        struct dpe_text out = {0};
        char given[1024];
        snprintf(given, sizeof given, "%s", cases[i].given);
        for (char *at = given; (at = strchr(at, '\'')) != NULL;) {
            *at = '"';
        }
        if (render(cases[i].template, given, &out, &err) != DPE_OK) {
            fail_msg("%s: %s", given, err.text);
        }
        assert_string_equal(out.bytes, cases[i].text);
        dpe_text_free(&out);
    }
}

static void messages_are_refused(void **state)
{
    static const struct {
        const char *given, *text;
    } cases[] = {
        {"{}", "messages: expected a list"},
        {"[]", "messages: expected a list"},
        {"[5]", "messages[0]: expected an object with a role"},
        {"[{'content':'a'}]", "messages[0]: expected an object with a role"},
        {"[{'role':'user','content':'a'},{'role':'user'}]",
         "messages[1].content: expected a text, found nothing"},
        {"[{'role':'user','content':4}]", "messages[0].content: expected a text or"},
        {"[{'role':'user','content':{'type':'text','text':'a'}}]",
         "messages[0].content: expected a text or"},
        {"[{'role':'user','content':['a']}]", "messages[0].content: expected a text, or parts"},
        {"[{'role':'user','content':[{'text':'a'}]}]",
         "messages[0].content: expected a text, or parts"},
        {"[{'role':'user','content':[{'type':'text','text':null}]}]",
         "messages[0].content: expected a text, or parts"},
        {"[{'role':'user','content':[{'type':'input_audio','text':'a'}]}]",
         "messages[0].content: expected a text, or parts"},
        {"[{'role':'user','content':'a','prefix':true}]",
         "messages[0].prefix: the chat template does not read it"},
        {"[{'role':'assistant','content':'','function_call':{'name':'f'}}]",
         "messages[0].function_call: the chat"},
        {"[{'role':'assistant','tool_calls':{'a':1}}]", "messages[0].tool_calls: expected a list"},
        {"[{'role':'assistant','tool_calls':[{'type':'custom','function':{'name':'f'}}]}]",
         "messages[0].tool_calls: expected calls"},
        {"[{'role':'assistant','tool_calls':[{'function':{}}]}]",
         "messages[0].tool_calls: expected calls"},
        {"[{'role':'assistant','tool_calls':[{'function':{'name':'f','arguments':5}}]}]",
         "messages[0].tool_calls: expected arguments"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dpe_error err = {0};
        struct dpe_text out = {0};
        char given[256];
        snprintf(given, sizeof given, "%s", cases[i].given);
        for (char *at = given; (at = strchr(at, '\'')) != NULL;) {
            *at = '"';
        }
        assert_int_equal(render(turns, given, &out, &err), DPE_BAD_DATA);
        if (strstr(err.text, cases[i].text) != err.text) {
            fail_msg("%s: %s", given, err.text);
        }
    }
}

/* A message of a role that the template does not read is refused, not lost. */
static void roles_are_read_or_refused(void **state)
{
    static const char known[] = "{% for m in messages %}{% if m.role in ['system', 'user', "
                                "'assistant', 'tool'] %}<{{ m.role }}>{{ m.content }}{% endif %}"
                                "{% endfor %}";
    static const struct {
        const char *template, *given, *text, *wrong;
    } cases[] = {
        {known, "[{'role':'System','content':'a'},{'role':'user','content':'b'}]", NULL,
         "messages[0].role: the chat template leaves out messages of the role \"System\""},
        {known, "[{'role':'user','content':'b'},{'role':'ASSISTANT','content':'c'}]", NULL,
         "messages[1].role: the chat template leaves out messages of the role \"ASSISTANT\""},
        {known, "[{'role':'User','content':'a'}]", NULL, "\"User\""},
        {known, "[{'role':'user','content':'b'},{'role':'function','name':'f','content':'4'}]",
         NULL, "\"function\""},
        {known, "[{'role':'tool','content':'4'},{'role':'user','content':'b'}]", "<tool>4<user>b",
         NULL},
        {"{% for m in messages if m.role != 'tool' %}{{ m.content }}{% endfor %}",
         "[{'role':'user','content':'b'},{'role':'tool','content':'4'}]", NULL, "\"tool\""},
        {turns, "[{'role':'critic','content':'a'}]", "<critic>a", NULL},
        {"{{ messages[0].content }}", "[{'role':'judge','content':'a'}]", "a", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dpe_error err = {0};
        struct dpe_text out = {0};
        char given[256];
        snprintf(given, sizeof given, "%s", cases[i].given);
        for (char *at = given; (at = strchr(at, '\'')) != NULL;) {
            *at = '"';
        }
        dpe_status status = render(cases[i].template, given, &out, &err);
        if (cases[i].wrong != NULL) {
            assert_int_equal(status, DPE_BAD_DATA);
            assert_non_null(strstr(err.text, cases[i].wrong));
        } else {
            assert_string_equal(status == DPE_OK ? out.bytes : err.text, cases[i].text);
        }
        dpe_text_free(&out);
    }
}

/* --template-vars: variables of every template that is opened from then on. The last test: they
 * stay for the process. */
static void variables_are_given(void **state)
{
    static const char *const wrong[] = {"effort", "=low", "messages=[]", "tools=1", "a=1,b"};
    struct dpe_error err = {0};
    char path[160];
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(dpe_chat_set_variables(wrong[i], &err), DPE_USAGE);
        assert_non_null(strstr(err.text, "--template-vars: expected NAME=VALUE"));
    }
    assert_int_equal(dpe_chat_set_variables("effort=low,think=False,n=3", &err), DPE_OK);
    assert_int_equal(dpe_chat_set_variables(NULL, &err), DPE_OK);
    snprintf(path, sizeof path, "%s",
             put("other.jinja", "<{{ effort }} {{ n + 1 }}{% if not think %} still{% endif %}>"
                                "{{ messages[0].content }}"));
    expect_wrap(path, "<low 4 still>", "");
    snprintf(path, sizeof path, "%s",
             put("other.jinja", "<{{ effort }} {{ nn }} {{ think }}>{{ messages[0].content }}"));
    expect_refusal(path, DPE_USAGE, "other.jinja does not read it");
    expect_refusal("none", DPE_USAGE, "a prompt without a chat template does not read it");
    assert_int_equal(dpe_chat_set_variables("a=True,b=None,c=Truer", &err), DPE_OK);
    snprintf(
        path, sizeof path, "%s",
        put("other.jinja", "{{ a is true }} {{ b is none }} {{ c }}{{ messages[0].content }}"));
    expect_wrap(path, "True True Truer", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_folder_has_a_template),
        cmocka_unit_test(the_other_places),
        cmocka_unit_test(a_file_has_a_template),
        cmocka_unit_test(conversations_are_rendered),
        cmocka_unit_test(messages_mean),
        cmocka_unit_test(messages_are_refused),
        cmocka_unit_test(roles_are_read_or_refused),
        cmocka_unit_test(variables_are_given),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
