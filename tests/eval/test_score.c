/* Scoring: rules against plain Python implementations, prediction files good and bad. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "eval/score/score.h"
#include "tests/lib/text_folder.h"

static const char *golden = DPE_SOURCE_DIR "/tests/golden/scores.jsonl";

static const struct dpe_score_task *find(const char *suite, const char *name)
{
    for (size_t i = 0; dpe_score_task(suite, i) != NULL; i++) {
        if (strcmp(dpe_score_task(suite, i)->name, name) == 0) {
            return dpe_score_task(suite, i);
        }
    }
    return NULL;
}

/* ---------------------------------------------------------------------------------------- rules */

static const char *member(const json_t *line, const char *name)
{
    static char number[DPE_JSONL_NUMBER];
    return dpe_jsonl_text(json_object_get(line, name), number);
}

static bool check_case(const json_t *line, int64_t number)
{
    const struct dpe_score_task *task = find(member(line, "suite"), member(line, "task"));
    assert_non_null(task);
    bool own = strcmp(member(line, "scorer"), task->scorer) == 0;
    assert_true(own || strcmp(member(line, "scorer"), task->other) == 0);
    char *references[16], numbers[16][DPE_JSONL_NUMBER];
    const json_t *outputs = json_object_get(line, "outputs");
    size_t n = dpe_jsonl_entries(outputs);
    assert_in_range(n, 1, 16);
    for (size_t i = 0; i < n; i++) {
        references[i] = (char *)(uintptr_t)dpe_jsonl_text(dpe_jsonl_entry(outputs, i), numbers[i]);
    }
    double expected = strtod(member(line, "score"), NULL);
    double found = (own ? task->rule : task->other_rule)(member(line, "pred"), references, n);
    if (found != expected) {
        print_error("%s: line %lld: %s %s: expected %.17g, found %.17g\n", golden,
                    (long long)number, task->name, member(line, "scorer"), expected, found);
    }
    return found == expected;
}

static void rules_are_pythons(void **state)
{
    (void)state;
    struct dpe_error err = {0};
    struct dpe_jsonl *jsonl = NULL;
    assert_int_equal(dpe_jsonl_open(golden, &jsonl, &err), DPE_OK);
    int64_t n = dpe_jsonl_size(jsonl), wrong = 0, hits = 0;
    assert_true(n >= 400);
    for (int64_t i = 0; i < n; i++) {
        json_t *line = NULL;
        assert_int_equal(dpe_jsonl_read(jsonl, i, &line, &err), DPE_OK);
        wrong += !check_case(line, i + 1);
        hits += strtod(member(line, "score"), NULL) > 0.0;
        json_decref(line);
    }
    dpe_jsonl_close(jsonl);
    assert_int_equal(wrong, 0);
    /* Cases that all score nothing would test nothing. */
    assert_true(hits > n / 5 && hits < n - n / 5);
}

/* ---------------------------------------------------------------------------------------- files */

static dpe_status score(const char *suite, const char *task, const char *content, bool skip_bad,
                        struct dpe_score_sums *sums, struct dpe_error *err)
{
    const struct dpe_score_task *found = find(suite, task);
    assert_non_null(found);
    const struct dpe_score_options options = {
        .task = found, .rule = found->rule, .skip_bad = skip_bad, .threads = 2};
    *sums = (struct dpe_score_sums){0};
    *err = (struct dpe_error){0};
    return dpe_score_file(file_with("p.jsonl", content), &options, sums, err);
}

static void files_of_every_spelling(void **state)
{
    (void)state;
    struct dpe_score_sums sums;
    struct dpe_error err;
    /* Fields by their other names, numbers for strings, one value for a list, blank lines, CRLF, no
     * newline at the end, Python's NaN. */
    static const char content[] =
        "{\"pred\": \"say 17 and 4\", \"outputs\": [\"17\", 4, \"x\"]}\n"
        "\n  \r\n"
        "{\"prediction\": \"17\", \"needle\": 17, \"score\": NaN}\r\n"
        "{\"ground_truth\": \"Q\", \"pred\": \"q\"}\n"
        "{\"answer\": [\"no\"], \"pred\": \"yes\", \"x\": {\"y\": [1, {}]}}";
    assert_int_equal(score("ruler", "vt", content, false, &sums, &err), DPE_OK);
    assert_int_equal(sums.scored, 4);
    assert_true(sums.sum == 2.0 / 3.0 + 1.0 + 1.0 + 0.0);
    assert_int_equal(sums.at_least_half, 3);
    assert_int_equal(sums.bad + sums.no_object + sums.empty, 0);
    /* RULER prefers pred and outputs, InfiniteBench prediction and ground_truth. */
    static const char both[] = "{\"pred\": \"5\", \"prediction\": \"6\", \"outputs\": [\"5\"], "
                               "\"ground_truth\": [\"6\"]}\n";
    assert_int_equal(score("ruler", "vt", both, false, &sums, &err), DPE_OK);
    assert_true(sums.sum == 1.0);
    assert_int_equal(score("infinitebench", "passkey", both, false, &sums, &err), DPE_OK);
    assert_true(sums.sum == 1.0);
    /* Numbers as Python writes them, NUL and half of a surrogate pair in a text. */
    static const char odd[] =
        "{\"pred\": \"a\\u0000 is 1.5\", \"outputs\": 1.50, \"o\": {\"a\\u0000b\": 1}}\n"
        "{\"pred\": \"\\ud800 36893488147419103232\", \"outputs\": [36893488147419103232]}\n"
        "{\"pred\": \"\\ud83d\\ude00 \\\\ud800\", \"outputs\": \"\\\\ud800\"}\n"
        "{\"pred\": \"2.0\", \"outputs\": 2.0}\n"
        "{\"pred\": \"-inf, nan\", \"outputs\": [-1e400, NaN]}\n";
    assert_int_equal(score("ruler", "vt", odd, false, &sums, &err), DPE_OK);
    assert_true(sums.sum == 5.0);
    /* A label that is a float is compared as one. */
    static const char real[] = "{\"pred\": \"it is 2.0\", \"answer\": 2.0}\n"
                               "{\"pred\": \"2\", \"answer\": [2.0]}\n"
                               "{\"pred\": \"2.5\", \"answer\": 2.0}\n";
    assert_int_equal(score("infinitebench", "math_find", real, false, &sums, &err), DPE_OK);
    assert_true(sums.sum == 2.0);
}

static void bad_lines_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *suite, *task, *line, *words;
        int64_t scored, empty, no_object, bad;
    } cases[] = {
        {"ruler", "vt", "step 0, ctx len 130808", "line 2: expected JSON", 2, 0, 1, 0},
        {"ruler", "vt", "{\"pred\": \"x\", \"outputs\": [\"x\"]", "line 2: expected JSON", 2, 0, 1,
         0},
        {"ruler", "vt", "[1]", "line 2: expected a JSON object", 2, 0, 1, 0},
        {"ruler", "vt", "{\"pred\": \"\xff\", \"outputs\": [\"x\"]}",
         "line 2: expected UTF-8, found an invalid byte at 10", 2, 0, 1, 0},
        {"ruler", "vt", "{\"outputs\": [\"x\"]}", "line 2: expected a prediction", 2, 0, 0, 1},
        {"ruler", "vt", "{\"pred\": \"x\"}", "line 2: expected a reference", 2, 0, 0, 1},
        {"ruler", "vt", "{\"pred\": 3, \"outputs\": [\"x\"]}",
         "line 2: \"pred\": expected a string, found a whole number", 2, 0, 0, 1},
        {"ruler", "vt", "{\"pred\": 98765432109876543210, \"outputs\": [\"x\"]}",
         "line 2: \"pred\": expected a string, found a number", 2, 0, 0, 1},
        {"ruler", "vt", "{\"pred\": \"x\", \"outputs\": []}", "found an empty list", 2, 0, 0, 1},
        {"ruler", "vt", "{\"pred\": \"x\", \"outputs\": [null]}", "found null", 2, 0, 0, 1},
        {"ruler", "vt", "{\"pred\": \"x\", \"outputs\": {\"a\": 1}}", "found an object", 2, 0, 0,
         1},
        {"ruler", "vt", "{\"pred\": \"x\", \"outputs\": [[\"x\"]]}", "found a list", 2, 0, 0, 1},
        {"ruler", "vt", "{\"pred\": \"x\", \"outputs\": true}", "found true or false", 2, 0, 0, 1},
        {"ruler", "vt", "{\"pred\": \"x\", \"pred\": \"y\", \"outputs\": [\"x\"]}",
         "duplicate object key", 2, 0, 1, 0},
        {"ruler", "vt", "{\"pred\": 01, \"outputs\": [\"x\"]}", "line 2: expected JSON", 2, 0, 1,
         0},
        {"ruler", "vt", "{1: 2, \"pred\": \"x\", \"outputs\": [\"x\"]}", "line 2: expected JSON", 2,
         0, 1, 0},
        {"ruler", "vt", "{\"pred\": \" \\n\", \"outputs\": [\"x\"]}", "the prediction is empty", 3,
         1, 0, 0},
        {"infinitebench", "code_debug", "{\"pred\": \"x\", \"outputs\": \"x\"}",
         "expected a list of the right option and its letter, found a string", 2, 0, 0, 1},
        {"infinitebench", "longbook_choice_eng", "{\"pred\": \"x\", \"outputs\": [\"x\"]}",
         "found one entry", 2, 0, 0, 1},
        {"infinitebench", "math_find", "{\"pred\": \"x\", \"outputs\": \"88\"}",
         "expected a number, found a string", 2, 0, 0, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *good = strcmp(cases[i].task, "math_find") == 0
                               ? "{\"pred\": \"7\", \"outputs\": 7}"
                               : "{\"pred\": \"B. x\", \"outputs\": [\"x\", \"B\"]}";
        char content[512];
        struct dpe_score_sums sums;
        struct dpe_error err;
        snprintf(content, sizeof content, "%s\n%s\n%s\n", good, cases[i].line, good);
        dpe_status status = score(cases[i].suite, cases[i].task, content, false, &sums, &err);
        if (status != DPE_BAD_DATA || strstr(err.text, cases[i].words) == NULL ||
            strstr(err.text, "p.jsonl: line 2") == NULL) {
            fail_msg("%s: status %d, '%s' lacks '%s'", cases[i].line, status, err.text,
                     cases[i].words);
        }
        assert_int_equal(score(cases[i].suite, cases[i].task, content, true, &sums, &err), DPE_OK);
        assert_int_equal(sums.scored, cases[i].scored);
        assert_int_equal(sums.empty, cases[i].empty);
        assert_int_equal(sums.no_object, cases[i].no_object);
        assert_int_equal(sums.bad, cases[i].bad);
        assert_true(sums.sum == 2.0);
        assert_non_null(strstr(sums.first, cases[i].words));
    }
}

static void nothing_to_score(void **state)
{
    (void)state;
    struct dpe_score_sums sums;
    struct dpe_error err;
    assert_int_equal(score("ruler", "vt", "", false, &sums, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "expected predictions, found none"));
    assert_int_equal(score("ruler", "vt", "avg:0.5\n", true, &sums, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "line 1"));
}

/* The first bad line is named however many threads look; deep nesting and long lists are met. */
static void many_lines(void **state)
{
    (void)state;
    struct dpe_text content = {0};
    struct dpe_score_sums sums;
    struct dpe_error err;
    static const char good[] = "{\"pred\": \"a b\", \"outputs\": [\"a\", \"z\"]}\n";
    for (int i = 0; i < 5000; i++) {
        dpe_text_append(&content, good, sizeof good - 1, NULL);
    }
    for (int bad = 0; bad < 2; bad++) {
        dpe_text_append(&content, "x\n", 2, NULL);
        for (int i = 0; i < 100; i++) {
            dpe_text_append(&content, good, sizeof good - 1, NULL);
        }
    }
    dpe_text_append(&content, "{\"pred\": ", 9, NULL);
    for (int i = 0; i < 100000; i++) {
        dpe_text_append(&content, "[", 1, NULL);
    }
    assert_int_equal(score("ruler", "vt", content.bytes, false, &sums, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "line 5001:"));
    assert_int_equal(score("ruler", "vt", content.bytes, true, &sums, &err), DPE_OK);
    assert_int_equal(sums.no_object, 3);
    assert_int_equal(sums.scored, 5200);
    assert_true(sums.sum == 2600.0);
    dpe_text_free(&content);
}

static void tasks_by_file_name(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"ruler", "pred/niah_single_1.jsonl", "niah_single_1"},
        {"ruler", "pred/niah_single_1-3.jsonl", "niah_single_1"},
        {"ruler", "vt/qa_2.jsonl", "qa_2"},
        {"ruler", "pred/niah_single_12.jsonl", NULL},
        {"ruler", "pred/invt.jsonl", NULL},
        {"infinitebench", "preds_longbook_qa_eng.jsonl", "longbook_qa_eng"},
        {"infinitebench", "sample_number_string.jsonl", "number_string"},
        {"infinitebench", "preds_code_run.jsonl", NULL},
        {"nosuite", "preds_passkey.jsonl", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct dpe_score_task *task = dpe_score_task_of_file(cases[i][0], cases[i][1]);
        if (cases[i][2] == NULL) {
            assert_null(task);
        } else {
            assert_non_null(task);
            assert_string_equal(task->name, cases[i][2]);
        }
    }
}

/* InfiniteBench's script before and after 2024-08-08: only En.Dia differs. */
static void sets_of_rules_by_name(void **state)
{
    (void)state;
    const char *name = NULL;
    for (size_t i = 0; dpe_score_task("infinitebench", i) != NULL; i++) {
        const struct dpe_score_task *task = dpe_score_task("infinitebench", i);
        bool dialogue = strcmp(task->name, "longdialogue_qa_eng") == 0;
        dpe_rule later = dpe_score_rule(task, "official-2024-08", &name);
        assert_string_equal(name, "official-2024-08");
        assert_true((later == task->rule) == !dialogue);
        assert_true(dpe_score_rule(task, NULL, &name) == task->rule);
        assert_string_equal(name, "official");
        assert_true(dpe_score_rule(task, "string", &name) == task->other_rule);
        assert_null(dpe_score_rule(task, "all", &name));
        if (dialogue) {
            char *labels[] = {(char *)(uintptr_t) "KING LEAR", (char *)(uintptr_t) "LEAR"};
            assert_true(task->rule("It is King Lear.", labels, 2) == 0.0);
            assert_true(later("It is King Lear.", labels, 2) == 1.0);
            assert_true(task->rule("It is Learned.", labels + 1, 1) == 0.0);
            assert_true(later("It is Learned.", labels + 1, 1) == 1.0);
        }
    }
    assert_null(dpe_score_rule(dpe_score_task("ruler", 0), "official-2024-08", &name));
}

int main(int argc, char **argv)
{
    golden = argc > 1 ? argv[1] : golden;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_are_pythons),
        cmocka_unit_test(files_of_every_spelling),
        cmocka_unit_test(bad_lines_are_named),
        cmocka_unit_test(nothing_to_score),
        cmocka_unit_test(many_lines),
        cmocka_unit_test(tasks_by_file_name),
        cmocka_unit_test(sets_of_rules_by_name),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
