/* The needle task's parts: parameters, templates, haystacks, sentence ends, recall. */
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
#include "eval/niah/niah.h"
#include "eval/niah/niah_parts.h"
#include "eval/task/prompt.h"
#include "tests/eval/niah_case.h"
#include "tests/lib/text_folder.h"

static void parameters(void **state)
{
    (void)state;
    struct dpe_niah_params params =
        params_of("keys=2,values=3,queries=2,digits=5,template=/x/y.json,repeat=1,special=parse");
    assert_int_equal(params.keys, 2);
    assert_int_equal(params.values, 3);
    assert_int_equal(params.digits, 5);
    assert_string_equal(params.template_file, "/x/y.json");
    char text[160];
    dpe_niah_format(&params, text, sizeof text);
    assert_string_equal(text,
                        "keys=2,values=3,queries=2,digits=5,depth=drawn,repeat=1,special=parse");
    params = params_of("values=1,depth=0.5");
    dpe_niah_format(&params, text, sizeof text);
    assert_string_equal(text,
                        "keys=1,values=1,queries=1,digits=7,depth=0.5,repeat=0,special=error");
    params = params_of("spare=32");
    dpe_niah_format(&params, text, sizeof text);
    assert_string_equal(
        text, "keys=1,values=4,queries=1,digits=7,depth=drawn,repeat=0,special=error,spare=32");
    const char *const wrong[] = {
        "spare=129",
        "keys",
        "keys=",
        "keys=x",
        "keys=0",
        "keys=-1",
        "keys=2000",
        "queries=2",
        "digits=0",
        "digits=19",
        "depth=0.5",
        "depth=2",
        "color=1",
        "repeat=2",
        "special=x",
        "values=1,depth=nan",
        "keys=1.5",
        "digits=1,values=5",
        "keys=2,digits=7,keys=3",
        "values=1,keys=1,values=1",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct dpe_error err = {0};
        dpe_niah_defaults(&params);
        if (dpe_niah_parse(wrong[i], &params, &err) != DPE_USAGE) {
            fail_msg("\"%s\" was accepted", wrong[i]);
        }
        assert_int_equal(strncmp(err.text, "niah: ", 6), 0);
        assert_int_equal(params.values, 4);
    }
}

static void keys_are_found_in_the_text(void **state)
{
    (void)state;
    const char *spec = "template=a=b/keys=3,values=12,digits=";
    size_t n = 9;
    assert_null(dpe_niah_find(spec, "keys", &n));
    assert_null(dpe_niah_find(spec, "value", &n));
    assert_null(dpe_niah_find("", "keys", &n));
    assert_null(dpe_niah_find("keys", "keys", &n));
    assert_int_equal(n, 9);
    assert_ptr_equal(dpe_niah_find(spec, "template", &n), spec + 9);
    assert_int_equal(n, 10);
    assert_ptr_equal(dpe_niah_find(spec, "values", &n), spec + 27);
    assert_int_equal(n, 2);
    assert_non_null(dpe_niah_find(spec, "digits", &n));
    assert_int_equal(n, 0);
}

static void sentence_ends(void **state)
{
    (void)state;
    const struct {
        const char *text;
        size_t at;
        bool want;
    } cases[] = {
        {"He came. She", 8, true},
        {"He came. She", 9, false},
        {"He came.", 8, true},
        {"3.14 is", 2, false},
        {"\"Go!\" he", 5, true},
        {"\"Go!\" he", 4, false},
        {"(So.)\nNext", 5, true},
        {"a, b", 2, false},
        {"\xe2\x80\x9cNo.\xe2\x80\x9d She", 9, true},
        {"\xe5\xa5\xbd\xe3\x80\x82\xe4\xbd\xa0", 6, true},
        {"\"' x", 2, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool got = dpe_haystack_sentence_end(cases[i].text, strlen(cases[i].text), cases[i].at);
        if (got != cases[i].want) {
            fail_msg("\"%s\" at %zu", cases[i].text, cases[i].at);
        }
    }
    const char *text = "One two. Three four. Five";
    size_t n = strlen(text);
    assert_int_equal(dpe_haystack_place(text, n, 0, n, 2), 0);
    assert_int_equal(dpe_haystack_place(text, n, 0, n, 6), 8);
    assert_int_equal(dpe_haystack_place(text, n, 10, n, 11), 20);
    assert_int_equal(dpe_haystack_place(text, n, 11, 13, 12), 8);
    assert_int_equal(dpe_haystack_word_end(text, n, 0, 18), 14);
    assert_int_equal(dpe_haystack_word_end(text, n, 0, 2), 0);
    assert_int_equal(dpe_haystack_word_end(text, n, 0, 99), n);
}

static void recall_is_the_share_of_references(void **state)
{
    (void)state;
    char one[] = "1234567";
    char two[] = "Yes";
    char three[] = "7654321";
    char four[] = "";
    char *references[] = {one, two, three, four};
    assert_true(dpe_recall("it is 1234567, Yes", references, 3) == 2.0 / 3.0);
    assert_true(dpe_recall("", references, 3) == 0.0);
    assert_true(dpe_recall("x1234567Yesx7654321x", references, 4) == 1.0);
    assert_true(isnan(dpe_recall("x", references, 0)));
}

/* Once around all books from a drawn sentence; nothing lost, nothing twice. */
static void haystacks_go_around_once(void **state)
{
    (void)state;
    struct dpe_corpus *corpus = NULL;
    assert_int_equal(dpe_corpus_open(DPE_SOURCE_DIR "/data/sample", &corpus, NULL), DPE_OK);
    struct dpe_rng rng;
    size_t total = 0;
    for (size_t i = 0; i < corpus->n; i++) {
        total += corpus->books[i].n;
    }
    char starts[8][40];
    for (uint64_t round = 0; round < 8; round++) {
        struct dpe_text hay = {0};
        bool whole = false;
        dpe_rng_seed(&rng, 3, round);
        assert_int_equal(dpe_haystack_make(corpus, &rng, false, total * 2, &hay, &whole, NULL),
                         DPE_OK);
        assert_true(whole);
        assert_int_equal(hay.n, total + 2 * corpus->n);
        assert_non_null(strchr(" \n", hay.bytes[0]));
        memcpy(starts[round], hay.bytes, 39);
        starts[round][39] = '\0';
        for (uint64_t other = 0; other < round; other++) {
            assert_string_not_equal(starts[round], starts[other]);
        }
        assert_int_equal(count(hay.bytes, "Chapter One\n"), corpus->n);
        struct dpe_text cut = {0};
        dpe_rng_seed(&rng, 3, round);
        assert_int_equal(dpe_haystack_make(corpus, &rng, false, 1000, &cut, &whole, NULL), DPE_OK);
        assert_false(whole);
        assert_int_equal(cut.n, 1000);
        assert_memory_equal(cut.bytes, hay.bytes, 1000);
        dpe_text_free(&cut);
        dpe_text_free(&hay);
    }
    dpe_corpus_close(corpus);
    /* A corpus of one sentence: every start but its own begins at the end of the book. */
    struct dpe_corpus *texts = corpus_with("One sentence only.");
    struct dpe_text hay = {0};
    bool whole = false;
    dpe_rng_seed(&rng, 1, 1);
    assert_int_equal(dpe_haystack_make(texts, &rng, false, 1000, &hay, &whole, NULL), DPE_OK);
    assert_string_equal(hay.bytes, "\n\nOne sentence only.");
    assert_true(whole);
    dpe_text_free(&hay);
    dpe_corpus_close(texts);
}

#define WORDS "\"adjectives\": [\"a\", \"b\"], \"nouns\": [\"c\", \"d\"]"
#define REST  "\"answer\": \"{value}\", " WORDS

static void hostile_templates(void **state)
{
    (void)state;
    const struct {
        const char *json, *words[2];
    } cases[] = {
        {"{\"needle\": \"{key} {value}\", \"question\": \"what?\", " REST "}",
         {"\"question\"", "{keys} is missing"}},
        {"{\"needle\": \"{key}\", \"question\": \"{keys}\", " REST "}",
         {"\"needle\"", "{value} is missing"}},
        {"{\"needle\": \"{value}\", \"question\": \"{keys}\", " REST "}",
         {"\"needle\"", "{key} is missing"}},
        {"{\"needle\": \"{key} {value} {depth}\", \"question\": \"{keys}\", " REST "}",
         {"\"needle\"", "unknown placeholder {depth}"}},
        {"{\"needle\": \"{key} {value} {Key}\", \"question\": \"{keys}\", " REST "}",
         {"\"needle\"", "unknown placeholder {Key}"}},
        {"{\"needle\": \"{key} {value}\", \"question\": \"{keys} {value}\", " REST "}",
         {"\"question\"", "unknown placeholder {value}"}},
        {"{\"needle\": \"{key} {value}\", \"question\": \"{keys}\", " WORDS "}",
         {"\"answer\"", "found nothing"}},
        {"{\"needle\": 7, \"question\": \"{keys}\", " REST "}", {"\"needle\"", "something else"}},
        {"{\"needle\": \"{key} {value}\", \"question\": \"{keys}\", \"answer\": \"{value}\", "
         "\"adjectives\": [], \"nouns\": [\"x\"]}",
         {"\"adjectives\"", "1 to"}},
        {"{\"needle\": \"{key} {value}\", \"question\": \"{keys}\", \"answer\": \"{value}\", "
         "\"adjectives\": [\"x\"], \"nouns\": [\"x\", \"\"]}",
         {"\"nouns\"", "entry 2"}},
        {"{\"needle\": \"{key} {value}\", \"question\": \"{keys}\", \"answer\": \"{value}\", "
         "\"adjectives\": [\"x\", \"x\"], \"nouns\": [\"x\"]}",
         {"\"adjectives\"", "twice"}},
        {"{\"needle\": \"{key} {value}\", \"question\": \"{keys}\", \"qestion\": \"\", " REST "}",
         {"\"qestion\"", "unknown field"}},
        {"{\"needle\": \"\", \"needle\": \"\"}", {"expected JSON", "line 1"}},
        {"{\"needle\":\n\"a\\u0000b\"}", {"\"needle\"", "expected a string"}},
        {"[1]", {"JSON object", "t.json"}},
        {"", {"expected JSON", "t.json"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = file_with("t.json", cases[i].json);
        struct dpe_phrases phrases = {0};
        struct dpe_error err = {0};
        assert_int_equal(dpe_niah_template_open(path, &phrases, &err), DPE_BAD_DATA);
        const char *const words[] = {path, cases[i].words[0], cases[i].words[1]};
        for (size_t w = 0; w < 3; w++) {
            if (strstr(err.text, words[w]) == NULL) {
                fail_msg("\"%s\" is not in \"%s\"", words[w], err.text);
            }
        }
    }
    struct dpe_phrases phrases = {0};
    assert_int_equal(dpe_niah_template_open("/nowhere.json", &phrases, NULL), DPE_NO_INPUT);
}

static void damaged_templates_never_crash(void **state)
{
    (void)state;
    char *good = NULL;
    size_t n = 0;
    assert_int_equal(
        dpe_read_file(DPE_SOURCE_DIR "/eval/templates/niah.json", 1 << 20, &good, &n, NULL),
        DPE_OK);
    static const char pool[] = "{}[]\",:\\0k\xff \n";
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 1, 1);
    int opened_ones = 0;
    for (int i = 0; i < 400; i++) {
        char *bytes = strdup(good);
        assert_non_null(bytes);
        bytes[dpe_rng_below(&rng, (uint32_t)n)] = pool[dpe_rng_below(&rng, sizeof pool - 1)];
        struct dpe_phrases phrases = {0};
        struct dpe_error err = {0};
        dpe_status status = dpe_niah_template_open(file_with("d.json", bytes), &phrases, &err);
        assert_true(status == DPE_OK || (status == DPE_BAD_DATA && err.text[0] != '\0'));
        opened_ones += status == DPE_OK;
        dpe_phrases_free(&phrases);
        free(bytes);
    }
    assert_in_range(opened_ones, 20, 380);
    free(good);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters),
        cmocka_unit_test(keys_are_found_in_the_text),
        cmocka_unit_test(sentence_ends),
        cmocka_unit_test(recall_is_the_share_of_references),
        IN_FOLDER(haystacks_go_around_once),
        IN_FOLDER(hostile_templates),
        IN_FOLDER(damaged_templates_never_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
