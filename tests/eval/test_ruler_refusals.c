/* RULER, generated: what is refused, and in which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/eval/ruler_case.h"

static void refused(const struct dpe_ruler_options *options, dpe_status status, const char *words)
{
    struct dpe_ruler *ruler = NULL;
    struct dpe_error err = {0};
    dpe_status found = dpe_ruler_open(options, &ruler, &err);
    if (found != status || strstr(err.text, words) == NULL) {
        fail_msg("expected %d and '%s', found %d and '%s'", status, words, found, err.text);
    }
}

static void refused_sample(const struct dpe_ruler_options *options, const char *task,
                           int64_t length, dpe_status status, const char *words)
{
    struct dpe_ruler *ruler = open_ruler(options);
    struct dpe_sample sample = {0};
    struct dpe_error err = {0};
    dpe_status found = dpe_ruler_sample(ruler, kind(task), length, 0, &sample, NULL, &err);
    if (found != status || strstr(err.text, words) == NULL) {
        fail_msg("expected %d and '%s', found %d and '%s'", status, words, found, err.text);
    }
    dpe_ruler_close(ruler);
}

static void templates_are_checked(void **state)
{
    (void)state;
    struct dpe_ruler_options options = usual(1024);
    options.template_file = file_with("x", "{\"niah_needle\": 3}");
    refused(&options, DPE_BAD_DATA, "x: \"number_one\": expected a string, found nothing");
    options.template_file = file_with("x", "{\"needle\": \"\"}");
    refused(&options, DPE_BAD_DATA, "x: unknown field \"needle\"");
    options.template_file = file_with("x", "[1]");
    refused(&options, DPE_BAD_DATA, "x:");
    /* The shipped one with a placeholder taken out, and with one that means nothing. */
    char *bytes = NULL;
    size_t n = 0;
    assert_int_equal(
        dpe_read_file(DPE_SOURCE_DIR "/eval/templates/ruler.json", 1 << 20, &bytes, &n, NULL),
        DPE_OK);
    char *value = strstr(bytes, "{value}");
    memcpy(value, "7654321", 7);
    options.template_file = file_with("x", bytes);
    refused(&options, DPE_BAD_DATA, "x: \"niah_needle\": placeholder {value} is missing");
    memcpy(value, "{valeu}", 7);
    options.template_file = file_with("x", bytes);
    refused(&options, DPE_BAD_DATA, "unknown placeholder {valeu}");
    free(bytes);
    options.template_file = NULL;
    options.chat_template = file_with("x", "no place for it");
    refused(&options, DPE_BAD_DATA, "x: expected {prompt} once");
}

static void lengths_and_files_are_checked(void **state)
{
    (void)state;
    struct dpe_ruler_options options = usual(1024);
    options.max_length = (int64_t)1 << 30;
    refused(&options, DPE_USAGE, "expected a length in");
    options = usual(1024);
    refused_sample(&options, "niah_single_1", 40, DPE_USAGE, "too short for niah_single_1");
    refused_sample(&options, "cwe", 200, DPE_USAGE, "its smallest sample needs");
    options.squad = options.hotpotqa = NULL;
    refused_sample(&options, "qa_1", 1024, DPE_USAGE, "--squad FILE");
    options.corpus = NULL;
    refused_sample(&options, "niah_single_2", 1024, DPE_USAGE, "give --corpus");
    options = usual(65536);
    refused_sample(&options, "qa_1", 65536, DPE_BAD_DATA, "too few documents for length 65536");
}

/* Where it stands in the book, though sentences are what is tokenized. */
static void special_tokens_in_texts_are_refused(void **state)
{
    (void)state;
    struct dpe_corpus *own = NULL;
    struct dpe_ruler_options options = usual(256);
    const char *path = file_with("x", "He came.  Then\n\nhe said <|eos|> and left.\n");
    assert_int_equal(dpe_corpus_open(path, &own, NULL), DPE_OK);
    options.corpus = own;
    refused(&options, DPE_BAD_DATA,
            "book x: byte 24: the text contains the special token \"<|eos|>\"; choose whether "
            "it is ordinary text (literal) or the token (parse) with --special-in-text");
    options.special = DPE_SPECIAL_LITERAL;
    dpe_ruler_close(open_ruler(&options));
    options.chat_template = DPE_SOURCE_DIR "/eval/templates/chat_llama3.txt";
    refused(&options, DPE_USAGE, "give only one of the two");
    dpe_corpus_close(own);
}

static void question_files_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *content, *words;
    } cases[] = {
        {"{\"data\": [{\"paragraphs\": [{\"context\": \"x\", \"qas\": [{\"question\": \"q\", "
         "\"answers\": []}]}]}]}",
         "an answerable question without \"answers\""},
        {"{\"data\": [{\"paragraphs\": [{\"qas\": []}]}]}", "a paragraph without \"context\""},
        {"{\"data\": [{\"paragraphs\": [{\"context\": \"x\", \"qas\": [{\"answers\": [{\"text\": "
         "\"a\"}]}]}]}]}",
         "a question without \"question\""},
        {"{\"data\": [{\"paragraphs\": [{\"context\": \"x\", \"qas\": [{\"question\": \"q\", "
         "\"answers\": [{\"txt\": \"a\"}]}]}]}]}",
         "an answer without \"text\""},
        {"{\"data\": [{\"paragraphs\": [{\"context\": 3", "byte 40"},
        {"{\"data\": [{\"paragraphs\": [{\"context\": 3}]}]}", "a paragraph without \"context\""},
        {"{\"context\": \"c\", \"question\": \"q\", \"answers\": 3}", "answers that are no list"},
        {"{\"context\": \"c\", \"question\": \"q\", \"answers\": {\"text\": [3]}}",
         "an answer that is not a string"},
        {"[{\"context\": \"c\", \"question\": \"q\", \"answers\": []}} ", "the list's end"},
        {"[{\"context\": \"c\", \"question\": \"q\", \"answers\": {\"text\": \"a\"}}",
         "byte 61: expected '{', or the list's end"},
        {"[{\"context\": \"c\", \"question\": \"q\", \"answers\": {\"text\": \"a\"}},",
         "byte 62: "},
        {"[{\"context\": \"c\", \"question\": \"q\", \"answers\": {\"text\": \"a\"}},]",
         "byte 63: "},
        {"[{\"context\": \"c\", \"question\": \"q\", \"answers\": {\"text\": \"a\"}} {}]",
         "byte 62: expected '{', or the list's end"},
        {"{\"data\": [{\"paragraphs\": [{\"context\": \"x\"}]}, {\"paragraphs\": [{}]}]}",
         "byte 1: paragraph 2: found a paragraph without \"context\""},
        {"{\"question\": \"q\"} {\"a\": ]", "byte 1: found a row"},
        {"{\"data\": []}", "expected questions with answers, found none"},
        {"{\"data\": [", "byte 11"},
        {"", "expected '['"},
        {"{\"question\": \"q\", \"answers\": {\"text\": [\"a\"]}}", "a row without \"context\""},
        {"[{\"context\": \"c\", \"answers\": {\"text\": [\"a\"]}}]", "a question without"},
        {"{\"context\": \"c\", \"question\": \"q\", \"answers\": {}}",
         "an answer without \"text\""},
        {"{\"context\": \"c\", \"question\": \"q\", \"answers\": {\"text\": []}}", "found none"},
        {"{\"data\": [\"\xff\"]}", "expected UTF-8"},
    };
    struct dpe_ruler_options options = usual(1024);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        options.squad = file_with("x", cases[i].content);
        refused(&options, DPE_BAD_DATA, cases[i].words);
    }
    options = usual(1024);
    static const struct {
        const char *content, *words;
    } others[] = {
        {"[{\"question\": \"q\", \"context\": [[\"t\", [\"s\"]]]}]", "without one \"answer\""},
        {"[{\"question\": \"q\", \"answer\": \"a\", \"context\": []}]", "without \"context\""},
        {"[{\"answer\": \"a\", \"context\": [[\"t\", [\"s\"]]]}]", "without \"question\""},
        {"[{\"question\": \"q\", \"answer\": \"a\", \"context\": [[\"t\"]]}]",
         "a paragraph without sentences"},
        {"[{\"question\": \"q\", \"answer\": \"a\", \"context\": [[]]}]",
         "a paragraph without a title"},
        {"[{\"question\": \"q\", \"answer\": \"a\", \"context\": [[\"t\", [\"s\"], 3]]}]",
         "a paragraph of more than two parts"},
        {"[]", "found none"},
        {"{\"data\": []}", "a question without \"question\""},
        {"{\"question\": \"q\", \"answer\": \"a\", \"context\": {\"title\": [\"t\"]}}",
         "a context without \"title\" and \"sentences\""},
        {"{\"question\": \"q\", \"answer\": \"a\", \"context\": {\"title\": [], \"sentences\": "
         "[[\"s\"]]}}",
         "more lists of sentences than titles"},
        {"{\"question\": \"q\", \"answer\": \"a\", \"context\": {\"sentences\": [], \"title\": "
         "[\"t\"]}}",
         "more titles than lists of sentences"},
        {"{\"question\": \"q\", \"answer\": \"a\", \"context\": {\"sentences\": 3, \"title\": []}}",
         "no list of titles or of sentences"},
        {"{\"question\":\"a\",\"answer\":\"b\",\"context\":{\"title\":]}}", "byte 50"},
        {"[{\"question\": \"q\", \"answer\": \"a\", \"context\": [[\"t\", [3]]]}]",
         "byte 2: paragraph 1: found a sentence that is not a string"},
        {" {\"question\": \"q\", \"answer\": \"a\", \"context\": [[\"t\", [\"s\"]], [5]]}",
         "byte 2: paragraph 2: found a title that is not a string"},
        {"{\"question\": \"q\", \"answer\": \"a\", \"context\": {\"title\": [5], \"sentences\": "
         "[[\"s\"]]}}",
         "a title that is not a string"},
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        options.hotpotqa = file_with("x", others[i].content);
        refused(&options, DPE_BAD_DATA, others[i].words);
    }
    options.hotpotqa = "/nonexistent/hotpot.json";
    refused(&options, DPE_NO_INPUT, "hotpot.json");
}

static void a_vocabulary_must_have_digits(void **state)
{
    (void)state;
    /* Letters and the space, an unknown token for the rest. */
    char json[4096];
    size_t at =
        (size_t)snprintf(json, sizeof json,
                         "{\"model\": {\"type\": \"BPE\", \"unk_token\": \"?\", \"merges\": "
                         "[], \"vocab\": {\"?\": 0, \" \": 1");
    for (int i = 0; i < 10; i++) {
        if (i != 7) {
            at += (size_t)snprintf(json + at, sizeof json - at, ", \"%d\": %d", i, 2 + i);
        }
    }
    snprintf(json + at, sizeof json - at, "}}}");
    struct dpe_tokenizer *small = NULL;
    struct dpe_error err = {0};
    if (dpe_tokenizer_open(file_with("x", json), &small, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    struct dpe_ruler_options options = usual(1024);
    options.tokenizer = small;
    refused(&options, DPE_BAD_DATA, "expected a vocabulary that can write digits");
    dpe_tokenizer_close(small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_are_checked),
        cmocka_unit_test(lengths_and_files_are_checked),
        cmocka_unit_test(special_tokens_in_texts_are_refused),
        cmocka_unit_test(question_files_are_checked),
        cmocka_unit_test(a_vocabulary_must_have_digits),
    };
    return cmocka_run_group_tests(tests, open_ruler_inputs, close_ruler_inputs);
}
