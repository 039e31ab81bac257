/* RULER v2's needles as Python draws them (tests/golden/ruler2_niah.json), and words that are
 * wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>

#include "eval/ruler/python_random.h"
#include "eval/ruler/ruler2_niah.h"
#include "tests/lib/text_folder.h"

static json_t *golden;
static struct dpe_tokenizer *tokenizer;

static int open_all(void **state)
{
    golden = json_load_file(DPE_SOURCE_DIR "/tests/golden/ruler2_niah.json", 0, NULL);
    return golden == NULL || make_folder(state) != 0 ||
           dpe_tokenizer_open(DPE_SOURCE_DIR "/data/reference", &tokenizer, NULL) != DPE_OK;
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

static void numbers_of_python(void **state)
{
    (void)state;
    static const uint64_t below[] = {1, 2, 1000, 9000000000};
    const json_t *drawn = json_object_get(golden, "drawn");
    struct dpe_python_random random;
    dpe_python_seed(&random, 42);
    for (size_t i = 0; i < 7; i++) {
        uint64_t want = (uint64_t)json_integer_value(json_array_get(drawn, i));
        assert_int_equal(i < 3 ? dpe_python_bits(&random) : dpe_python_below(&random, below[i - 3]),
                         want);
    }
}

static dpe_status compare(void *user, int64_t index, const struct dpe_ruler2_sample *sample,
                          struct dpe_error *err)
{
    (void)err;
    const json_t *want = json_array_get(user, (size_t)index);
    const json_t *answers = json_object_get(want, "expected_answer");
    assert_int_equal(sample->tokens, json_integer_value(json_object_get(want, "length")));
    assert_string_equal(sample->prompt.bytes, json_string_value(json_object_get(want, "question")));
    for (size_t v = 0; v < json_array_size(answers); v++) {
        assert_string_equal(sample->values[v], json_string_value(json_array_get(answers, v)));
    }
    return DPE_OK;
}

static void samples_of_python(void **state)
{
    (void)state;
    struct dpe_ruler2_words words;
    struct dpe_phrases phrases;
    struct dpe_error err = {0};
    write_words("nounlist.txt", json_object_get(golden, "nouns"));
    write_words("adjectivelist.txt", json_object_get(golden, "adjectives"));
    assert_int_equal(dpe_ruler2_words_open(folder, &words, &err), DPE_OK);
    assert_int_equal(words.n, json_integer_value(json_object_get(golden, "words")));
    assert_int_equal(dpe_ruler2_phrases(NULL, &phrases, &err), DPE_OK);
    struct dpe_ruler2_niah niah = {.phrases = &phrases, .words = &words, .tokenizer = tokenizer};
    const json_t *cases = json_object_get(golden, "cases");
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i);
        json_t *samples = json_object_get(one, "samples");
        niah.values = (int)json_integer_value(json_object_get(one, "values"));
        niah.length = json_integer_value(json_object_get(one, "length"));
        niah.seed = (uint32_t)json_integer_value(json_object_get(one, "seed"));
        assert_int_equal(
            dpe_ruler2_niah_draw(&niah, (int64_t)json_array_size(samples), compare, samples, &err),
            DPE_OK);
    }
    niah.length = 50;
    assert_int_equal(dpe_ruler2_niah_draw(&niah, 1, compare, NULL, &err), DPE_USAGE);
    assert_non_null(strstr(err.text, "length 50 is too short"));
    dpe_phrases_free(&phrases);
    dpe_ruler2_words_free(&words);
    file_with("nounlist.txt", "");
    assert_int_equal(dpe_ruler2_words_open(folder, &words, &err), DPE_BAD_DATA);
    dpe_ruler2_words_free(&words);
    assert_int_equal(dpe_ruler2_words_open("/nowhere", &words, &err), DPE_NO_INPUT);
    dpe_ruler2_words_free(&words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_python),
        cmocka_unit_test(samples_of_python),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
