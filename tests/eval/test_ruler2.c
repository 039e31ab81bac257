/* RULER v2's samples as Python draws them (tests/golden/ruler2.json), and words and sets that are
 * wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <sys/stat.h>

#include "eval/ruler/ruler.h"
#include "eval/ruler/ruler2_parts.h"
#include "tests/lib/text_folder.h"

static json_t *golden;
static struct dpe_tokenizer *tokenizer;

static int open_all(void **state)
{
    char path[128];
    golden = json_load_file(DPE_SOURCE_DIR "/tests/golden/ruler2.json", 0, NULL);
    if (golden == NULL || make_folder(state) != 0 ||
        dpe_tokenizer_open(DPE_SOURCE_DIR "/data/reference", &tokenizer, NULL) != DPE_OK) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/mmlu", folder);
    int failed = mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/hotpotqa", folder);
    return failed != 0 || mkdir(path, 0700) != 0;
}

static int close_all(void **state)
{
    json_decref(golden);
    dpe_tokenizer_close(tokenizer);
    return remove_folder(state);
}

static void write_words(const char *name, const json_t *list)
{
    char text[1024] = "";
    for (size_t i = 0; i < json_array_size(list); i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s \n",
                 json_string_value(json_array_get(list, i)));
    }
    file_with(name, text);
}

/* Set i: its files with one object a line. */
static void write_set(size_t i)
{
    const char *name = NULL;
    json_t *lines = NULL;
    json_object_foreach(json_array_get(json_object_get(golden, "sets"), i), name, lines)
    {
        struct dpe_text text = {0};
        for (size_t k = 0; k < json_array_size(lines); k++) {
            char *line = json_dumps(json_array_get(lines, k), 0);
            assert_int_equal(dpe_text_append(&text, line, strlen(line), NULL), DPE_OK);
            assert_int_equal(dpe_text_append(&text, "\n", 1, NULL), DPE_OK);
            free(line);
        }
        file_with(name, text.bytes);
        dpe_text_free(&text);
    }
}

static void numbers_of_python(void **state)
{
    (void)state;
    static const uint64_t below[] = {1, 2, 1000, 9000000000};
    const json_t *drawn = json_object_get(golden, "drawn");
    const json_t *samples = json_object_get(golden, "samples");
    struct dpe_python_random random;
    dpe_python_seed(&random, 42);
    for (size_t i = 0; i < 7; i++) {
        uint64_t want = (uint64_t)json_integer_value(json_array_get(drawn, i));
        assert_int_equal(i < 3 ? dpe_python_bits(&random) : dpe_python_below(&random, below[i - 3]),
                         want);
    }
    for (size_t i = 0; i < json_array_size(samples); i++) {
        const json_t *sample = json_array_get(samples, i);
        const json_t *want = json_object_get(sample, "chosen");
        size_t chosen[16];
        assert_true(dpe_python_sample(&random,
                                      (size_t)json_integer_value(json_object_get(sample, "n")),
                                      chosen, json_array_size(want)));
        for (size_t k = 0; k < json_array_size(want); k++) {
            assert_int_equal(chosen[k], json_integer_value(json_array_get(want, k)));
        }
    }
}

/* The samples that are wanted of a case, and how many of them there were. */
struct taken {
    const json_t *samples;
    size_t n;
};

static dpe_status compare(void *user, const struct dpe_ruler2_sample *sample, struct dpe_error *err)
{
    (void)err;
    struct taken *taken = user;
    const json_t *want = json_array_get(taken->samples, taken->n++);
    const json_t *answers = json_object_get(want, "expected_answer");
    const char *answer = sample->answers.bytes;
    struct dpe_sha256 *hash = dpe_sha256_new();
    char hex[65];
    dpe_sha256_add(hash, sample->prompt.bytes, sample->prompt.n);
    assert_int_equal(dpe_sha256_finish(hash, hex, NULL), DPE_OK);
    assert_int_equal(sample->tokens, json_integer_value(json_object_get(want, "length")));
    assert_int_equal(sample->index, json_integer_value(json_object_get(want, "index")));
    assert_string_equal(hex, json_string_value(json_object_get(want, "question")));
    assert_int_equal(sample->one, json_is_string(answers));
    if (sample->one) {
        assert_string_equal(answer, json_string_value(answers));
        return DPE_OK;
    }
    assert_int_equal(sample->n_answers, json_array_size(answers));
    for (size_t v = 0; v < sample->n_answers; v++) {
        assert_string_equal(answer, json_string_value(json_array_get(answers, v)));
        answer += strlen(answer) + 1;
    }
    return DPE_OK;
}

/* A task drawn from the folder. */
static dpe_status draw(const char *task, int64_t length, uint32_t seed, int64_t n,
                       struct taken *taken, struct dpe_error *err)
{
    const struct dpe_ruler2_options options = {
        .folder = folder, .tokenizer = tokenizer, .length = length, .seed = seed};
    struct dpe_ruler2 *ruler2 = NULL;
    int64_t drawn = 0;
    assert_int_equal(dpe_ruler2_open(&options, &ruler2, err), DPE_OK);
    dpe_status status = dpe_ruler2_draw(ruler2, task, n, compare, taken, &drawn, err);
    assert_int_equal(drawn, taken->n);
    dpe_ruler2_close(ruler2);
    return status;
}

static void samples_of_python(void **state)
{
    (void)state;
    const json_t *cases = json_object_get(golden, "cases");
    size_t set = SIZE_MAX;
    write_words("nounlist.txt", json_object_get(golden, "nouns"));
    write_words("adjectivelist.txt", json_object_get(golden, "adjectives"));
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i);
        const char *task = json_string_value(json_object_get(one, "task"));
        struct taken taken = {json_object_get(one, "samples"), 0};
        struct dpe_error err = {0};
        size_t wanted = (size_t)json_integer_value(json_object_get(one, "set"));
        if (wanted != set) {
            write_set(set = wanted);
        }
        /* Where the set has fewer than are asked for, all of it. */
        bool all = json_array_size(taken.samples) > 2;
        dpe_status status =
            draw(task, json_integer_value(json_object_get(one, "length")),
                 (uint32_t)json_integer_value(json_object_get(one, "seed")),
                 all && set == 1 ? 99 : (int64_t)json_array_size(taken.samples), &taken, &err);
        if (status != DPE_OK) {
            fail_msg("%s: %s", task, err.text);
        }
        assert_int_equal(taken.n, json_array_size(taken.samples));
    }
}

static void refuse(const char *task, int64_t length, dpe_status want, const char *words)
{
    struct dpe_error err = {0};
    struct taken none = {NULL, 0};
    assert_int_equal(draw(task, length, 42, 1, &none, &err), want);
    if (strstr(err.text, words) == NULL) {
        fail_msg("expected \"%s\", found \"%s\"", words, err.text);
    }
}

static void wrong_files(void **state)
{
    (void)state;
    static const char *const questions[] = {
        "{\"question\": \"a\", \"choices\": [\"1\", \"2\", \"3\"], \"answer\": 0}",
        "{\"question\": \"a\", \"choices\": [\"1\", \"2\", \"3\", 4], \"answer\": 0}",
        "{\"question\": \"a\", \"choices\": [\"1\", \"2\", \"3\", \"4\"], \"answer\": 4}",
        "{\"question\": \"a\", \"choices\": [\"1\", \"2\", \"3\", \"4\"], \"answer\": \"A\"}",
        "{\"choices\": [\"1\", \"2\", \"3\", \"4\"], \"answer\": 1}",
    };
    static const char *const documents[] = {
        "{\"question\": \"a\", \"answer\": \"b\", \"context\": [], \"supporting_facts\": []}",
        "{\"question\": \"a\", \"answer\": \"b\", \"context\": {\"title\": [\"t\"]}}",
        "{\"question\": \"a\", \"answer\": \"b\", \"context\": [[\"t\", [7]]], "
        "\"supporting_facts\": [[\"t\", 0]]}",
        "{\"question\": \"a\", \"answer\": \"b\", \"context\": [[\"t\", [\"s\"]]], "
        "\"supporting_facts\": [[\"u\", 0]]}",
        "{\"question\": \"a\", \"context\": [[\"t\", [\"s\"]]], \"supporting_facts\": [[\"t\", "
        "0]]}",
    };
    refuse("mk_niah_basic", 50, DPE_USAGE, "length 50 is too short");
    refuse("mv_niah_hard", 50, DPE_USAGE, "mv_niah_hard: length 50 is too short");
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
        file_with("mmlu/test.jsonl", questions[i]);
        refuse("mk_niah_easy", 1000, DPE_BAD_DATA,
               "mmlu/test.jsonl: line 1: expected \"question\"");
    }
    file_with("mmlu/test.jsonl", "\n");
    refuse("mk_niah_easy", 1000, DPE_BAD_DATA, "found none");
    file_with("mmlu/test.jsonl", "{\n");
    refuse("mk_niah_easy", 1000, DPE_BAD_DATA, "mmlu/test.jsonl: line 1");
    for (size_t i = 0; i < sizeof documents / sizeof documents[0]; i++) {
        file_with("hotpotqa/validation.jsonl", documents[i]);
        refuse("qa_hard", 1000, DPE_BAD_DATA, "hotpotqa/validation.jsonl: line 1: expected");
    }
    /* What is around must be more than what is the question's own. */
    const char *line = "{\"question\": \"a\", \"answer\": \"b\", \"context\": [[\"t\", [\"s\"]]], "
                       "\"supporting_facts\": [[\"t\", 0]]}\n";
    file_with("hotpotqa/validation.jsonl", line);
    file_with("hotpotqa/train.jsonl", line);
    refuse("qa_easy", 1000, DPE_BAD_DATA, "expected more documents than the 1 of a question");
    file_with("nounlist.txt", "");
    refuse("mv_niah_basic", 1000, DPE_BAD_DATA, "expected a word on each line");
    assert_int_equal(unlink(file_with("nounlist.txt", "")), 0);
    refuse("mv_niah_basic", 1000, DPE_NO_INPUT, "nounlist.txt");
    assert_int_equal(unlink(file_with("mmlu/auxiliary_train.jsonl", "")), 0);
    const struct dpe_ruler2_options options = {
        .folder = folder, .tokenizer = tokenizer, .length = 1000, .seed = 42};
    struct dpe_ruler2 *ruler2 = NULL;
    assert_int_equal(dpe_ruler2_open(&options, &ruler2, NULL), DPE_OK);
    assert_string_equal(dpe_ruler2_lacks(ruler2, "mk_niah_hard"), "mmlu/auxiliary_train.jsonl");
    assert_null(dpe_ruler2_lacks(ruler2, "qa_easy"));
    dpe_ruler2_close(ruler2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_python),
        cmocka_unit_test(samples_of_python),
        cmocka_unit_test(wrong_files),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
