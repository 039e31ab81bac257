/* Official data of RULER and InfiniteBench as suites: prompts, references, what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "eval/suite/suite_parts.h"
#include "tests/lib/test_folder.h"

static struct dpe_tokenizer *tokenizer;

static int open_inputs(void **state)
{
    return make_folder(state) != 0 ||
           dpe_tokenizer_open(DPE_SOURCE_DIR "/data/reference", &tokenizer, NULL) != DPE_OK;
}

static int close_inputs(void **state)
{
    dpe_tokenizer_close(tokenizer);
    return remove_folder(state);
}

static const int64_t lengths[] = {256};

static struct dpe_suite_options usual(const char *tasks)
{
    struct dpe_suite_options options = {.tokenizer = tokenizer,
                                        .lengths = lengths,
                                        .n_lengths = 1,
                                        .given.samples = 100,
                                        .given.tasks = tasks,
                                        .given.data = folder};
    dpe_niah_defaults(&options.niah);
    return options;
}

/* A source of one task, without the suite around it. */
static struct dpe_source open_source(const char *suite, const char *name, int64_t length,
                                     struct dpe_official *shared)
{
    struct dpe_error err = {0};
    struct dpe_source source = {0};
    struct dpe_official_file file = {0};
    struct dpe_official_task task = {.length = length, .room = 32};
    for (size_t i = 0; strcmp(suite, "ruler") == 0 && dpe_ruler_kind(i) != NULL; i++) {
        if (strcmp(dpe_ruler_kind(i)->name, name) == 0) {
            task.kind = dpe_ruler_kind(i);
        }
    }
    for (size_t i = 0; dpe_score_task(suite, i) != NULL; i++) {
        if (strcmp(dpe_score_task(suite, i)->name, name) == 0) {
            task.task = dpe_score_task(suite, i);
        }
    }
    if (dpe_official_source(shared, &task, &source, &file, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(strlen(file.hash), 64);
    return source;
}

static struct dpe_official *share(const char *chat, const struct dpe_phrase_field *fields, size_t n)
{
    struct dpe_official *shared = NULL;
    struct dpe_error err = {0};
    struct dpe_suite_options options = usual(NULL);
    options.given.chat_template = chat;
    options.given.template_file = fields == NULL ? NULL : in_folder("t.json");
    if (dpe_official_open(&options, fields, n, &shared, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    return shared;
}

static void check_prompt(const struct dpe_sample *sample, const char *text)
{
    const struct dpe_encode_options options = {.add_special = true};
    struct dpe_tokens tokens = {0};
    assert_int_equal(dpe_tokenizer_encode(tokenizer, text, strlen(text), &options, &tokens, NULL),
                     DPE_OK);
    assert_int_equal(sample->prompt.n, tokens.n);
    assert_memory_equal(sample->prompt.ids, tokens.ids, tokens.n * sizeof *tokens.ids);
    dpe_tokens_free(&tokens);
}

static void ruler_lines_are_prompts(void **state)
{
    (void)state;
    file_with("vt.jsonl", "{\"index\": 0, \"input\": \"Say it.\", \"outputs\": [\"a\", 7], "
                          "\"length\": 9}\n"
                          "{\"index\": 1, \"input\": \"Say it.\", \"answer_prefix\": \" It is\", "
                          "\"outputs\": [\"b\"], \"others\": {}}\n");
    struct dpe_official *shared = share(NULL, NULL, 0);
    struct dpe_source source = open_source("ruler", "vt", 256, shared);
    struct dpe_sample sample = {0};
    assert_int_equal(source.n_samples, 2);
    assert_int_equal(source.sample(source.state, 0, &sample, NULL), DPE_OK);
    check_prompt(&sample, "Say it.");
    assert_int_equal(sample.n_references, 2);
    assert_string_equal(sample.references[1], "7");
    assert_in_range(sample.max_new, 8 + 2 + 2 * 2, 8 + 4 + 2 * 2); /* two short answers */
    dpe_sample_free(&sample);
    assert_int_equal(source.sample(source.state, 1, &sample, NULL), DPE_OK);
    check_prompt(&sample, "Say it. It is");
    dpe_sample_free(&sample);
    dpe_source_close(&source);
    /* Too long: never cut. */
    source = open_source("ruler", "vt", 15, shared);
    struct dpe_error err = {0};
    assert_int_equal(source.sample(source.state, 1, &sample, &err), DPE_USAGE);
    assert_non_null(strstr(err.text, "vt.jsonl: line 2: a prompt of"));
    dpe_source_close(&source);
    dpe_official_close(shared);
    /* A chat template goes around the question, not around how the answer begins. */
    file_with("chat.txt", "[{prompt}]");
    shared = share(in_folder("chat.txt"), NULL, 0);
    source = open_source("ruler", "vt", 256, shared);
    assert_int_equal(source.sample(source.state, 1, &sample, NULL), DPE_OK);
    check_prompt(&sample, "[Say it.] It is");
    dpe_sample_free(&sample);
    dpe_source_close(&source);
    dpe_official_close(shared);
}

static void ruler2_questions_are_prompts(void **state)
{
    (void)state;
    file_with(
        "qa_hard.jsonl",
        "{\"index\": 0, \"question\": \"Say it.\", \"expected_answer\": [\"a b c d\", \"x\"], "
        "\"length\": 9}\n");
    struct dpe_suite_options options = usual("qa_hard");
    struct dpe_suite suite;
    struct dpe_sample sample = {0};
    struct dpe_error err = {0};
    assert_int_equal(dpe_suite_open("ruler2", &options, &suite, &err), DPE_OK);
    assert_int_equal(suite.n_tasks, 1);
    assert_string_equal(suite.tasks[0].category, "qa");
    assert_int_equal(dpe_task_sample(&suite.tasks[0].task, 0, &sample, NULL, &err), DPE_OK);
    check_prompt(&sample, "Say it.");
    assert_true(sample.n_references == 2 && sample.max_new == 128);
    dpe_sample_free(&sample);
    dpe_suite_close(&suite);
    char words[] = "a b c d";
    char *const wanted[] = {words};
    assert_true(fabs(dpe_score_task("ruler2", 11)->rule("a X c e", wanted, 1) - 0.5) < 1e-12);
    file_with("qa_hard.jsonl", "{\"question\": \"Say it.\", \"outputs\": [\"a\"]}\n");
    assert_int_equal(dpe_suite_open("ruler2", &options, &suite, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "expected_answer"));
    dpe_suite_close(&suite);
    options.given.data = NULL;
    assert_int_equal(dpe_suite_open("ruler2", &options, &suite, &err), DPE_USAGE);
    dpe_suite_close(&suite);
}

#define ALL "input option_a option_b option_c option_d"
static const struct dpe_phrase_field passkey_fields[] = {{"passkey", "context", ALL},
                                                         {"passkey_answer", "", "", ""}};
static const struct dpe_phrase_field debug_fields[] = {{"code_debug", "context", ALL},
                                                       {"code_debug_answer", "", "", ""}};

static void long_prompts_keep_both_ends(void **state)
{
    (void)state;
    char line[4096];
    size_t at = (size_t)snprintf(line, sizeof line, "{\"id\": 0, \"context\": \"");
    for (int i = 0; i < 300; i++) {
        at += (size_t)snprintf(line + at, sizeof line - at, " %03d", i);
    }
    snprintf(line + at, sizeof line - at, "\", \"input\": \"?\", \"answer\": [\"71432\"]}");
    file_with("passkey.jsonl", line);
    file_with("t.json", "{\"passkey\": \"{context}{input}\"}");
    struct dpe_official *shared = share(NULL, passkey_fields, 2);
    struct dpe_source whole = open_source("infinitebench", "passkey", 100000, shared);
    struct dpe_source cut = open_source("infinitebench", "passkey", 133, shared); /* 101 to keep */
    struct dpe_sample all = {0}, halves = {0};
    assert_int_equal(whole.sample(whole.state, 0, &all, NULL), DPE_OK);
    assert_int_equal(cut.sample(cut.state, 0, &halves, NULL), DPE_OK);
    assert_int_equal(halves.prompt.n, 100);
    assert_memory_equal(halves.prompt.ids, all.prompt.ids, 50 * sizeof(int32_t));
    assert_memory_equal(halves.prompt.ids + 50, all.prompt.ids + all.prompt.n - 50,
                        50 * sizeof(int32_t));
    assert_string_equal(all.references[0], "71432");
    dpe_sample_free(&all);
    dpe_sample_free(&halves);
    dpe_source_close(&whole);
    dpe_source_close(&cut);
    dpe_official_close(shared);
}

static void options_get_their_letter(void **state)
{
    (void)state;
    file_with("code_debug.jsonl",
              "{\"context\": \"c\", \"input\": \"\", \"answer\": [\"f2\"], \"options\": [\"f0\", "
              "\"f1\", \"f2\", \"f3\"]}\n"
              "{\"content\": \"c\", \"input\": \"\", \"answer\": [\"x\", \"D\"], \"options\": "
              "[\"f0\", \"f1\", \"f2\", \"f3\"]}\n"
              "{\"context\": \"c\", \"input\": \"\", \"answer\": \"f0\", \"options\": [\"f0\", "
              "\"f1\", \"f2\", \"f3\"]}\n");
    file_with("t.json", "{\"code_debug\": \"{context} A {option_a} D {option_d}\", "
                        "\"code_debug_answer\": \":\"}");
    struct dpe_official *shared = share(NULL, debug_fields, 2);
    struct dpe_source source = open_source("infinitebench", "code_debug", 256, shared);
    static const char *const letters[] = {"C", "D", "A"};
    for (int64_t i = 0; i < 3; i++) {
        struct dpe_sample sample = {0};
        assert_int_equal(source.sample(source.state, i, &sample, NULL), DPE_OK);
        check_prompt(&sample, "c A f0 D f3:");
        assert_int_equal(sample.n_references, 2);
        assert_string_equal(sample.references[1], letters[i]);
        dpe_sample_free(&sample);
    }
    dpe_source_close(&source);
    dpe_official_close(shared);
}

/* The built-in template and the suite around the sources. */
static void suites_open(void **state)
{
    (void)state;
    file_with("math_find.jsonl",
              "{\"context\": \"[1, 2]\", \"input\": \"The largest?\", \"answer\": [2]}\n");
    file_with("longbook_choice_eng.jsonl",
              "{\"context\": \"x\", \"input\": \"q\", \"answer\": [\"b\"], \"options\": [\"a\", "
              "\"b\", \"c\", \"d\"]}\n\nnot json\n");
    struct dpe_suite suite;
    struct dpe_error err = {0};
    struct dpe_suite_options options = usual("math_find,longbook_choice_eng");
    assert_int_equal(dpe_suite_open("infinitebench", &options, &suite, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "longbook_choice_eng.jsonl: line 3: expected JSON"));
    assert_non_null(strstr(err.text, "--skip-bad"));
    /* A line is counted once, whatever the number of lengths. */
    const int64_t two[] = {128, 256};
    options.lengths = two;
    options.n_lengths = 2;
    options.skip_bad = true;
    options.given.scorer = "string";
    if (dpe_suite_open("infinitebench", &options, &suite, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(suite.n_tasks, 4);
    assert_int_equal(suite.skipped, 1);
    assert_non_null(
        strstr(suite.first_skipped, "longbook_choice_eng.jsonl: line 3: expected JSON"));
    assert_string_equal(suite.tasks[0].task.name, "longbook_choice_eng-128");
    assert_int_equal(suite.tasks[0].n_samples, 1);
    dpe_suite_close(&suite);
    mkdir(in_folder("qa_1"), 0777);
    file_with("qa_1/test.jsonl", "{\"index\": 0, \"input\": \"x\", \"outputs\": [\"y\"]}\n");
    options = usual("QA");
    assert_int_equal(dpe_suite_open("ruler", &options, &suite, &err), DPE_NO_INPUT);
    assert_non_null(strstr(err.text, "no file for the task qa_2: expected qa_2.jsonl"));
    options.given.tasks = "qa_1";
    assert_int_equal(dpe_suite_open("ruler", &options, &suite, &err), DPE_OK);
    assert_string_equal(suite.tasks[0].category, "QA");
    dpe_suite_close(&suite);
}

static void refused(const char *suite, struct dpe_suite_options options, dpe_status status,
                    const char *words)
{
    struct dpe_suite opened;
    struct dpe_error err = {0};
    dpe_status found = dpe_suite_open(suite, &options, &opened, &err);
    if (found != status || strstr(err.text, words) == NULL) {
        fail_msg("%s: expected %d and '%s', found %d and '%s'", suite, status, words, found,
                 err.text);
    }
}

static void wrong_lines_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *task, *line, *words;
    } cases[] = {
        {"vt", "{\"input\": \"x\"}",
         "line 1: \"outputs\": expected strings or numbers, found nothing"},
        {"vt", "{\"outputs\": [\"x\"]}", "line 1: \"input\": expected a string, found nothing"},
        {"vt", "{\"input\": \"\", \"outputs\": [\"x\"]}",
         "line 1: \"input\": expected a prompt, found \"\""},
        {"vt", "{\"input\": \"x\", \"outputs\": []}", "expected 1 entries or more, found 0"},
        {"vt", "{\"input\": \"x\", \"outputs\": [[1]]}", "found a list"},
        {"vt", "{\"input\": \"x\", \"outputs\": [\"x\"], \"answer_prefix\": 3}",
         "\"answer_prefix\""},
        {"passkey", "{\"input\": \"x\", \"answer\": [\"x\"]}", "\"context\": expected a string"},
        {"math_find", "{\"input\": \"x\", \"context\": \"x\", \"answer\": [\"x\"]}",
         "expected a number, found a string"},
        {"math_find", "{\"input\": \"x\", \"context\": \"x\", \"answer\": [1e400]}",
         "expected a finite number"},
        {"passkey", "{\"input\": 1e400, \"context\": \"x\", \"answer\": [\"x\"]}",
         "\"input\": expected a string, found a number"},
        {"code_debug", "{\"input\": \"x\", \"context\": \"x\", \"answer\": [\"x\"]}",
         "\"options\": expected a list, found nothing"},
        {"code_debug",
         "{\"input\": \"x\", \"context\": \"x\", \"answer\": [\"x\"], \"options\": [\"a\"]}",
         "expected 4 entries or more, found 1"},
        {"code_debug",
         "{\"input\": \"x\", \"context\": \"x\", \"answer\": [\"x\"], \"options\": [\"a\", \"b\", "
         "\"c\", \"d\"]}",
         "expected one of the \"options\""},
        {"vt", "", "expected samples, found none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.jsonl", cases[i].task);
        file_with(name, cases[i].line);
        refused(strcmp(cases[i].task, "vt") == 0 ? "ruler" : "infinitebench", usual(cases[i].task),
                DPE_BAD_DATA, cases[i].words);
    }
}

static void suites_refuse(void **state)
{
    (void)state;
    struct dpe_suite_options options = usual("passkey,vt");
    refused("infinitebench", options, DPE_USAGE, "infinitebench has no task \"vt\"");
    options = usual(NULL);
    options.given.scorer = "part";
    refused("infinitebench", options, DPE_USAGE,
            "infinitebench has official, official-2024-08 and string");
    options.given.data = NULL;
    refused("infinitebench", options, DPE_USAGE, "give their folder with --data DIR");
    options = usual("vt");
    options.given.data = "/nonexistent";
    refused("ruler", options, DPE_NO_INPUT, "/nonexistent: no file for the task vt");
    options = usual("vt");
    options.skip_bad = true;
    file_with("vt.jsonl", "{\"input\": \"x\"}");
    refused("ruler", options, DPE_BAD_DATA, "expected samples, found none; first: ");
    struct dpe_tokenizer *letters = NULL;
    file_with("letters.json",
              "{\"model\": {\"type\": \"BPE\", \"unk_token\": \"?\", \"merges\": [], "
              "\"vocab\": {\"?\": 0, \"x\": 1}}}");
    assert_int_equal(dpe_tokenizer_open(in_folder("letters.json"), &letters, NULL), DPE_OK);
    options = usual("passkey");
    options.tokenizer = letters;
    refused("infinitebench", options, DPE_BAD_DATA,
            "letters.json: expected a vocabulary that can write digits");
    dpe_tokenizer_close(letters);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ruler_lines_are_prompts),
        cmocka_unit_test(ruler2_questions_are_prompts),
        cmocka_unit_test(long_prompts_keep_both_ends),
        cmocka_unit_test(options_get_their_letter),
        cmocka_unit_test(suites_open),
        cmocka_unit_test(wrong_lines_are_named),
        cmocka_unit_test(suites_refuse),
    };
    return cmocka_run_group_tests(tests, open_inputs, close_inputs);
}
