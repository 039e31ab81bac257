/* Needles in a haystack with the reference tokenizer and the sample corpus: sizes, places, draws,
 * templates, scores. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/data.h"
#include "engine/base/base.h"
#include "engine/tokenizer/tokenizer.h"
#include "eval/niah/niah.h"
#include "eval/task/task.h"
#include "tests/eval/niah_case.h"
#include "tests/lib/sample_inputs.h"
#include "tests/lib/text_folder.h"

static struct dpe_niah *opened(const char *spec, int64_t length, uint64_t seed)
{
    struct dpe_niah_params params = params_of(spec);
    struct dpe_niah *niah = NULL;
    struct dpe_error err = {0};
    if (dpe_niah_open(&params, length, corpus, tokenizer, NULL, seed, &niah, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    return niah;
}

static struct dpe_sample sample_of(const struct dpe_niah *niah, int64_t index)
{
    struct dpe_sample sample = {0};
    struct dpe_error err = {0};
    if (dpe_niah_sample(niah, index, &sample, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    return sample;
}

static int32_t special_id(const struct dpe_tokenizer *of, const char *text)
{
    const struct dpe_encode_options options = {.special = DPE_SPECIAL_PARSE};
    struct dpe_tokens tokens = {0};
    assert_int_equal(dpe_tokenizer_encode(of, text, strlen(text), &options, &tokens, NULL), DPE_OK);
    assert_int_equal(tokens.n, 1);
    int32_t id = tokens.ids[0];
    dpe_tokens_free(&tokens);
    return id;
}

static void every_length_is_filled(void **state)
{
    (void)state;
    const int64_t lengths[] = {150, 200, 256, 257, 300, 384, 511, 512, 777, 1024, 2048, 4095, 4096};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct dpe_niah *niah = opened("", lengths[i], 3);
        for (int64_t index = 0; index < (lengths[i] <= 512 ? 40 : 4); index++) {
            struct dpe_sample sample = sample_of(niah, index);
            int64_t used = (int64_t)sample.prompt.n + sample.max_new;
            assert_in_range(used, lengths[i] - 16, lengths[i]);
            assert_in_range(sample.max_new, lengths[i] >= 4096 ? 128 : 30,
                            lengths[i] >= 4096 ? 128 : 80);
            /* Begins with what the tokenizer puts in front, once. */
            assert_int_equal(dpe_tokenizer_prefix_size(tokenizer), 1);
            assert_int_not_equal(sample.prompt.ids[0], sample.prompt.ids[1]);
            dpe_sample_free(&sample);
        }
        dpe_niah_close(niah);
    }
}

static void needles_are_there_once(void **state)
{
    (void)state;
    struct dpe_niah *niah = opened("keys=3,values=2,queries=2", 2048, 9);
    for (int64_t index = 0; index < 10; index++) {
        struct dpe_sample sample = sample_of(niah, index);
        char *text = text_of(&sample);
        assert_int_equal(count(text, " The number of "), 6 + 1); /* and the answer's beginning */
        assert_int_equal(sample.n_references, 4);
        for (size_t i = 0; i < sample.n_references; i++) {
            assert_int_equal(strlen(sample.references[i]), 7);
            assert_int_not_equal(sample.references[i][0], '0');
            assert_int_equal(count(text, sample.references[i]), 1);
            for (size_t j = 0; j < i; j++) {
                assert_string_not_equal(sample.references[i], sample.references[j]);
            }
        }
        /* "What are the numbers of A, B?\nAnswer: The number of A:" */
        const char *asked = strstr(text, "What are the numbers of ");
        assert_non_null(asked);
        asked += strlen("What are the numbers of ");
        char first[64];
        char second[64];
        assert_int_equal(sscanf(asked, "%63[a-z-], %63[a-z-]?\nAnswer:", first, second), 2);
        char tail[128];
        snprintf(tail, sizeof tail, "?\nAnswer: The number of %s:", first);
        assert_string_equal(text + strlen(text) - strlen(tail), tail);
        for (size_t i = 0; i < 4; i++) {
            char needle[128];
            snprintf(needle, sizeof needle, " The number of %s: %s.", i < 2 ? first : second,
                     sample.references[i]);
            const char *at = strstr(text, needle);
            assert_non_null(at);
            assert_true(strchr(".!?\"')", at[-1]) != NULL || at[-1] == '\n' || at[-1] == '.');
        }
        free(text);
        dpe_sample_free(&sample);
    }
    dpe_niah_close(niah);
}

static void needles_keep_their_quarters(void **state)
{
    (void)state;
    struct dpe_niah *niah = opened("", 4096, 21);
    double sum[4] = {0.0, 0.0, 0.0, 0.0};
    enum { SAMPLES = 60 };
    for (int64_t index = 0; index < SAMPLES; index++) {
        struct dpe_sample sample = sample_of(niah, index);
        char *text = text_of(&sample);
        const char *start = strchr(text, '\n') + 1;
        double size = (double)(strstr(text, "\nQuestion:") - start);
        const char *at = start - 1;
        for (int i = 0; i < 4; i++) {
            at = strstr(at + 1, "The number of ");
            double depth = (double)(at - start) / size;
            /* The needles themselves take some 190 of 10,000 bytes. */
            assert_true(depth >= 0.25 * i - 0.02 && depth <= 0.25 * (i + 1) + 0.02);
            sum[i] += depth - 0.25 * i;
        }
        free(text);
        dpe_sample_free(&sample);
    }
    /* Uniform in a quarter: mean 1/8, standard deviation of the mean 0.0093: five of them. */
    for (int i = 0; i < 4; i++) {
        assert_true(fabs(sum[i] / SAMPLES - 0.125) < 0.047);
    }
    dpe_niah_close(niah);
}

static void fixed_depth(void **state)
{
    (void)state;
    const double depths[] = {0.0, 0.25, 0.5, 1.0};
    for (int i = 0; i < 4; i++) {
        char spec[64];
        snprintf(spec, sizeof spec, "values=1,depth=%.2f", depths[i]);
        struct dpe_niah *niah = opened(spec, 3000, 4);
        struct dpe_sample sample = sample_of(niah, 1);
        char *text = text_of(&sample);
        const char *start = strchr(text, '\n') + 1;
        double size = (double)(strstr(text, "\nQuestion:") - start);
        double depth = (double)(strstr(start, "The number of ") - start) / size;
        assert_true(fabs(depth - depths[i]) < 0.02);
        free(text);
        dpe_sample_free(&sample);
        dpe_niah_close(niah);
    }
}

/* spare= takes room from answers of long texts, and gives none to those of short ones. */
static void spare_is_a_limit(void **state)
{
    (void)state;
    const struct {
        const char *spec;
        int64_t length, more;
    } cases[] = {
        {"spare=32", 4096, 24}, {"spare=40", 512, 0}, {"spare=3", 512, -5}, {"spare=3", 4096, -5}};
    struct dpe_niah *short_one = opened("", 512, 2);
    struct dpe_sample expected = sample_of(short_one, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dpe_niah *niah = opened(cases[i].spec, cases[i].length, 2);
        struct dpe_sample sample = sample_of(niah, 0);
        assert_in_range(sample.max_new, expected.max_new + cases[i].more - 3,
                        expected.max_new + cases[i].more + 3); /* another key, other digits */
        dpe_sample_free(&sample);
        dpe_niah_close(niah);
    }
    dpe_sample_free(&expected);
    dpe_niah_close(short_one);
}

/* A trained length of 256 has room for haystack beside the four needles. */
static void shipped_template_is_short(void **state)
{
    (void)state;
    struct dpe_niah *niah = opened("", 256, 1);
    for (int64_t index = 0; index < 20; index++) {
        struct dpe_sample sample = sample_of(niah, index);
        char *text = text_of(&sample);
        struct dpe_text kept = {0};
        const char *at = text;
        for (int i = 0; i < 4; i++) {
            const char *needle = strstr(at, "The number of ");
            const char *end = strchr(needle, '.') + 1;
            assert_int_equal(dpe_text_append(&kept, " ", 1, NULL), DPE_OK);
            assert_int_equal(dpe_text_append(&kept, needle, (size_t)(end - needle), NULL), DPE_OK);
            at = end;
        }
        const char *question = strstr(at, "\nQuestion:");
        assert_int_equal(dpe_text_append(&kept, question, strlen(question), NULL), DPE_OK);
        struct dpe_tokens tokens = {0};
        assert_int_equal(dpe_tokenizer_encode(tokenizer, kept.bytes, kept.n, NULL, &tokens, NULL),
                         DPE_OK);
        assert_in_range(tokens.n, 50, 120);
        dpe_tokens_free(&tokens);
        dpe_text_free(&kept);
        free(text);
        dpe_sample_free(&sample);
    }
    dpe_niah_close(niah);
}

/* Below 4096 the room is what the template's answers need and 8 tokens more. */
static void room_is_for_the_answers(void **state)
{
    (void)state;
    struct dpe_niah *niah = opened("", 512, 2);
    struct dpe_sample sample = sample_of(niah, 0);
    char *text = text_of(&sample);
    const char *key = strrchr(text, '\n') + strlen("\nAnswer: The number of ");
    struct dpe_text answer = {0};
    for (int i = 0; i < 4; i++) {
        char part[128];
        int n = snprintf(part, sizeof part, "%s%s %s.", i == 0 ? "" : " The number of ",
                         i == 0 ? "" : key, sample.references[i]);
        assert_int_equal(dpe_text_append(&answer, part, (size_t)n, NULL), DPE_OK);
    }
    struct dpe_tokens tokens = {0};
    assert_int_equal(dpe_tokenizer_encode(tokenizer, answer.bytes, answer.n, NULL, &tokens, NULL),
                     DPE_OK);
    assert_int_equal(sample.max_new, tokens.n + 8);
    dpe_tokens_free(&tokens);
    dpe_text_free(&answer);
    free(text);
    dpe_sample_free(&sample);
    dpe_niah_close(niah);
}

static bool equal_prompts(const struct dpe_sample *a, const struct dpe_sample *b)
{
    return a->prompt.n == b->prompt.n &&
           memcmp(a->prompt.ids, b->prompt.ids, a->prompt.n * sizeof *a->prompt.ids) == 0;
}

static void samples_follow_seed_and_index(void **state)
{
    (void)state;
    struct dpe_niah *niah = opened("", 512, 5);
    struct dpe_niah *again = opened("", 512, 5);
    struct dpe_niah *other = opened("", 512, 6);
    struct dpe_sample late = sample_of(niah, 7);
    struct dpe_sample first = sample_of(niah, 0);
    struct dpe_sample same = sample_of(again, 7);
    struct dpe_sample seeded = sample_of(other, 7);
    assert_true(equal_prompts(&late, &same));
    assert_string_equal(late.references[3], same.references[3]);
    assert_false(equal_prompts(&late, &first));
    assert_false(equal_prompts(&late, &seeded));
    assert_string_not_equal(late.references[0], seeded.references[0]);
    assert_int_equal(late.seed, 5);
    assert_int_equal(late.index, 7);
    assert_string_equal(dpe_niah_template_hash(niah), dpe_niah_template_hash(other));
    dpe_sample_free(&late);
    dpe_sample_free(&first);
    dpe_sample_free(&same);
    dpe_sample_free(&seeded);
    dpe_niah_close(niah);
    dpe_niah_close(again);
    dpe_niah_close(other);
}

/* ------------------------------------------------------------------------------------ bad input */

static void refused(const struct dpe_corpus *texts, const char *spec, int64_t length,
                    const char *chat, dpe_status want, const char *const *words)
{
    struct dpe_niah_params params = params_of(spec);
    struct dpe_niah *niah = NULL;
    struct dpe_error err = {0};
    dpe_status status = dpe_niah_open(&params, length, texts, tokenizer, chat, 1, &niah, &err);
    if (status != want) {
        fail_msg("%s: status %d, expected %d: %s", spec, (int)status, (int)want, err.text);
    }
    assert_null(niah);
    for (; *words != NULL; words++) {
        if (strstr(err.text, *words) == NULL) {
            fail_msg("\"%s\" is not in \"%s\"", *words, err.text);
        }
    }
}

#define REFUSED(texts, spec, length, chat, want, ...)                                              \
    refused(texts, spec, length, chat, want, (const char *const[]){__VA_ARGS__, NULL})

/* Seven is not in this vocabulary, and nothing stands for it. */
static void digits_must_survive(void **state)
{
    (void)state;
    char path[] = "/tmp/dpe-digits-XXXXXX";
    size_t n = 0;
    char *json = NULL;
    struct dpe_tokenizer *reference = tokenizer;
    assert_int_equal(
        dpe_read_file(DPE_SOURCE_DIR "/data/reference/tokenizer.json", 1 << 24, &json, &n, NULL),
        DPE_OK);
    char *seven = strstr(json, "\"7\":");
    assert_non_null(seven);
    seven[1] = '\x7f'; /* a character of no text */
    int file = mkstemp(path);
    assert_true(file >= 0 && write(file, json, n) == (ssize_t)n);
    close(file);
    struct dpe_error err = {0};
    dpe_status status = dpe_tokenizer_open(path, &tokenizer, &err);
    unlink(path);
    free(json);
    if (status != DPE_OK) {
        fail_msg("%s", err.text);
    }
    REFUSED(corpus, "", 512, NULL, DPE_BAD_DATA, "can write digits", "\"0 1 2 3 4 5 6  8 9\"");
    dpe_tokenizer_close(tokenizer);
    tokenizer = reference;
}

static void short_texts(void **state)
{
    (void)state;
    REFUSED(corpus, "", 100, NULL, DPE_USAGE, "length 100 is too short");
    REFUSED(corpus, "", 0, NULL, DPE_USAGE, "length in 1");
    REFUSED(corpus, "repeat=1", INT64_MAX, NULL, DPE_USAGE, "length in 1");
    REFUSED(corpus, "", 1000000, NULL, DPE_BAD_DATA, "data/sample", "tokens are missing");
    struct dpe_corpus *texts = corpus_with("One short tale. It ends.");
    REFUSED(texts, "", 512, NULL, DPE_BAD_DATA, "tiny.txt", "too short for length 512",
            "tokens are missing");
    struct dpe_niah_params params = params_of("repeat=1");
    struct dpe_niah *niah = NULL;
    struct dpe_error err = {0};
    assert_int_equal(dpe_niah_open(&params, 512, texts, tokenizer, NULL, 1, &niah, &err), DPE_OK);
    struct dpe_sample sample = sample_of(niah, 0);
    assert_in_range((int64_t)sample.prompt.n + sample.max_new, 512 - 16, 512);
    dpe_sample_free(&sample);
    dpe_niah_close(niah);
    dpe_corpus_close(texts);
}

/* The number of missing tokens is right: with as many more words of one token it suffices. */
static void missing_tokens_are_counted(void **state)
{
    (void)state;
    struct dpe_text text = {0};
    assert_int_equal(dpe_text_append(&text, "It was so.", 10, NULL), DPE_OK);
    int64_t missing = 1;
    for (int round = 0; round < 3 && missing > 0; round++) {
        struct dpe_corpus *texts = corpus_with(text.bytes);
        struct dpe_niah_params params = params_of("");
        struct dpe_niah *niah = NULL;
        struct dpe_error err = {0};
        dpe_status status = dpe_niah_open(&params, 600, texts, tokenizer, NULL, 1, &niah, &err);
        const char *at = strstr(err.text, "600: ");
        missing = status == DPE_OK ? 0 : strtol(at == NULL ? "-1" : at + 5, NULL, 10);
        assert_in_range(missing, round == 0 ? 300 : 0, round == 0 ? 600 : 1);
        for (int64_t i = 0; i < missing; i++) {
            assert_int_equal(dpe_text_append(&text, " so", 3, NULL), DPE_OK);
        }
        dpe_niah_close(niah);
        dpe_corpus_close(texts);
    }
    assert_int_equal(missing, 0);
    dpe_text_free(&text);
}

static void special_text_in_a_book(void **state)
{
    (void)state;
    struct dpe_corpus *texts = corpus_with("A tale of <|eos|> and others. It ends.");
    REFUSED(texts, "repeat=1", 512, NULL, DPE_BAD_DATA, "book tiny", "10");
    const char *const specs[] = {"repeat=1,special=literal", "repeat=1,special=parse"};
    int eos_count[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        struct dpe_niah_params params = params_of(specs[i]);
        struct dpe_niah *niah = NULL;
        assert_int_equal(dpe_niah_open(&params, 512, texts, tokenizer, NULL, 1, &niah, NULL),
                         DPE_OK);
        struct dpe_sample sample = sample_of(niah, 0);
        for (size_t t = 0; t < sample.prompt.n; t++) {
            eos_count[i] += sample.prompt.ids[t] == special_id(tokenizer, "<|eos|>");
        }
        dpe_sample_free(&sample);
        dpe_niah_close(niah);
    }
    assert_int_equal(eos_count[0], 0);
    assert_true(eos_count[1] > 5);
    dpe_corpus_close(texts);
}

/* A text without spaces is cut between characters; numbers of two digits meet a text full of
 * them. */
static void odd_texts(void **state)
{
    (void)state;
    struct dpe_text text = {0};
    for (int i = 0; i < 3000; i++) {
        assert_int_equal(dpe_text_append(&text, i % 3 == 0 ? "\xe4\xbd\xa0" : "\xc3\xa9x", 3, NULL),
                         DPE_OK);
    }
    struct dpe_corpus *texts = corpus_with(text.bytes);
    struct dpe_niah_params params = params_of("");
    struct dpe_niah *niah = NULL;
    struct dpe_error err = {0};
    if (dpe_niah_open(&params, 1000, texts, tokenizer, NULL, 1, &niah, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    for (int64_t index = 0; index < 10; index++) {
        struct dpe_sample sample = sample_of(niah, index);
        assert_in_range((int64_t)sample.prompt.n + sample.max_new, 1000 - 16, 1000);
        dpe_sample_free(&sample);
    }
    dpe_niah_close(niah);
    dpe_corpus_close(texts);
    text.n = 0;
    for (int i = 10; i < 100; i++) {
        char number[16];
        int n = snprintf(number, sizeof number, "%d. ", i);
        assert_int_equal(dpe_text_append(&text, number, (size_t)n, NULL), DPE_OK);
    }
    texts = corpus_with(text.bytes);
    REFUSED(texts, "digits=2,repeat=1", 512, NULL, DPE_BAD_DATA, "2 digits", "give more digits");
    dpe_corpus_close(texts);
    dpe_text_free(&text);
}

#define WORDS "\"adjectives\": [\"a\", \"b\"], \"nouns\": [\"c\", \"d\"]"
#define REST  "\"answer\": \"{value}\", " WORDS

static void own_template(void **state)
{
    (void)state;
    char spec[256];
    snprintf(spec, sizeof spec, "keys=4,values=1,queries=4,template=%s",
             file_with("own.json",
                       "{\"needle\": \" <{key}={value}>\", \"question\": \"\\n{keys}?\","
                       "\"keys_separator\": \"+\", " REST "}"));
    struct dpe_niah *niah = opened(spec, 400, 8);
    struct dpe_niah *builtin = opened("", 400, 8);
    assert_string_not_equal(dpe_niah_template_hash(niah), dpe_niah_template_hash(builtin));
    struct dpe_sample sample = sample_of(niah, 2);
    char *text = text_of(&sample);
    const char *question = strrchr(text, '\n') + 1;
    assert_int_equal(count(question, "+"), 3);
    const char *at = question;
    for (size_t i = 0; i < 4; i++) {
        char needle[64];
        snprintf(needle, sizeof needle, "<%.3s=%s>", at, sample.references[i]);
        assert_int_equal(count(text, needle), 1);
        at += 4;
    }
    free(text);
    dpe_sample_free(&sample);
    dpe_niah_close(builtin);
    dpe_niah_close(niah);
    snprintf(spec, sizeof spec, "keys=5,template=%s/own.json", folder);
    REFUSED(corpus, spec, 512, NULL, DPE_USAGE, "keys=5", "only 4 keys");
    REFUSED(corpus, "template=/nowhere.json", 512, NULL, DPE_NO_INPUT, "/nowhere.json");
}

static void chat_templates(void **state)
{
    (void)state;
    const char *path = file_with("chat.txt", "<|bos|>User: {prompt}<|eos|>Model:");
    struct dpe_niah_params params = params_of("");
    struct dpe_niah *niah = NULL;
    struct dpe_error err = {0};
    if (dpe_niah_open(&params, 512, corpus, tokenizer, path, 1, &niah, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    struct dpe_sample sample = sample_of(niah, 0);
    assert_in_range((int64_t)sample.prompt.n + sample.max_new, 512 - 16, 512);
    int n_bos = 0;
    int n_eos = 0;
    for (size_t t = 0; t < sample.prompt.n; t++) {
        n_bos += sample.prompt.ids[t] == special_id(tokenizer, "<|bos|>");
        n_eos += sample.prompt.ids[t] == special_id(tokenizer, "<|eos|>");
    }
    assert_int_equal(n_bos, 1);
    assert_int_equal(n_eos, 1);
    char *text = text_of(&sample);
    assert_int_equal(strncmp(text, "User: Remember", 14), 0);
    assert_non_null(strstr(text, "?\nAnswer:Model: The number of "));
    free(text);
    dpe_sample_free(&sample);
    dpe_niah_close(niah);
    REFUSED(corpus, "special=literal", 512, path, DPE_USAGE, "special=literal");
    path = file_with("chat.txt", "no place");
    REFUSED(corpus, "", 512, path, DPE_BAD_DATA, "chat.txt", "{prompt} once");
    path = file_with("chat.txt", "{prompt} and {prompt}");
    REFUSED(corpus, "", 512, path, DPE_BAD_DATA, "chat.txt", "{prompt} once");
    REFUSED(corpus, "", 512, "/nowhere.txt", DPE_NO_INPUT, "/nowhere.txt");
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_is_filled),
        cmocka_unit_test(needles_are_there_once),
        cmocka_unit_test(needles_keep_their_quarters),
        cmocka_unit_test(fixed_depth),
        cmocka_unit_test(shipped_template_is_short),
        cmocka_unit_test(room_is_for_the_answers),
        cmocka_unit_test(spare_is_a_limit),
        cmocka_unit_test(samples_follow_seed_and_index),
        cmocka_unit_test(digits_must_survive),
        IN_FOLDER(short_texts),
        IN_FOLDER(missing_tokens_are_counted),
        IN_FOLDER(special_text_in_a_book),
        IN_FOLDER(odd_texts),
        IN_FOLDER(own_template),
        IN_FOLDER(chat_templates),
    };
    return cmocka_run_group_tests(tests, open_inputs, close_inputs);
}
