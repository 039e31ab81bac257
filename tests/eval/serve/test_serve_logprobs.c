/* Log-probabilities in pieces, as a stream sends them: the same as all at once, and every token is
 * looked at as often as then. What is counted are the tokenizer's answers and the bytes whose
 * characters are counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "eval/serve/serve_tool.h"

enum { PROMPT = 5, NEW = 3000, TOP = 2, VOCABULARY = 6 };

/* A character in two tokens and one in three, each of one byte, and a word. */
static const char *const vocabulary[VOCABULARY] = {"\xc3", "\xa9", "\xe6", "\x97", "\xa5", "word "};

static int64_t asked, looked; /* tokens, bytes */

dpe_status __wrap_dpe_tokenizer_bytes(const struct dpe_tokenizer *tokenizer, int32_t id,
                                      bool skip_special, struct dpe_text *out,
                                      struct dpe_error *err);
dpe_status __wrap_dpe_tokenizer_bytes(const struct dpe_tokenizer *tokenizer, int32_t id,
                                      bool skip_special, struct dpe_text *out,
                                      struct dpe_error *err)
{
    (void)tokenizer, (void)skip_special;
    asked++;
    return dpe_text_append(out, vocabulary[id], strlen(vocabulary[id]), err);
}

dpe_status __wrap_dpe_tokenizer_decode(const struct dpe_tokenizer *tokenizer, const int32_t *ids,
                                       size_t n, bool skip_special, struct dpe_text *out,
                                       struct dpe_error *err);
dpe_status __wrap_dpe_tokenizer_decode(const struct dpe_tokenizer *tokenizer, const int32_t *ids,
                                       size_t n, bool skip_special, struct dpe_text *out,
                                       struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < n && status == DPE_OK; i++) {
        status = __wrap_dpe_tokenizer_bytes(tokenizer, ids[i], skip_special, out, err);
    }
    return status;
}

int __wrap_dpe_tokenizer_prefix_size(const struct dpe_tokenizer *tokenizer);
int __wrap_dpe_tokenizer_prefix_size(const struct dpe_tokenizer *tokenizer)
{
    (void)tokenizer;
    return 0;
}

size_t __real_dpe_utf8_check(const char *text, size_t n);
size_t __wrap_dpe_utf8_check(const char *text, size_t n);
size_t __wrap_dpe_utf8_check(const char *text, size_t n)
{
    looked += (int64_t)n;
    return __real_dpe_utf8_check(text, n);
}

static struct dpe_serve_request request;
static struct dpe_serve_sequence sequence;
static struct dpe_serve_score scores[PROMPT + NEW], tops[(PROMPT + NEW) * TOP];
static int32_t ids[PROMPT + NEW];
static char answer[(NEW + 1) * 5];

static void make_answer(enum dpe_serve_kind kind, bool echo)
{
    static struct dpe_tokens prompt;
    static struct dpe_text texts[1];
    prompt = (struct dpe_tokens){.ids = ids, .n = PROMPT};
    request = (struct dpe_serve_request){
        .kind = kind, .prompts = &prompt, .texts = texts, .echo = echo, .scored = true, .top = TOP};
    sequence = (struct dpe_serve_sequence){
        .request = &request, .prompt = &prompt, .scores = scores, .tops = tops, .n_out = NEW};
    sequence.n_scores = (echo ? PROMPT : 0) + NEW;
    sequence.text = (struct dpe_text){.bytes = answer};
    for (int64_t i = 0; i < PROMPT + NEW; i++) {
        ids[i] = (int32_t)(i % VOCABULARY);
        if (i >= (echo ? PROMPT : 0) && i < sequence.n_scores) {
            size_t n = strlen(vocabulary[ids[i]]);
            memcpy(answer + sequence.text.n, vocabulary[ids[i]], n);
            sequence.text.n += n;
        }
        scores[i] = (struct dpe_serve_score){.id = ids[i], .logprob = -0.25};
        tops[i * TOP] = (struct dpe_serve_score){.id = 5, .logprob = -0.5};
        tops[i * TOP + 1] = (struct dpe_serve_score){.id = i % 3 == 0 ? -1 : 2, .logprob = -1.0};
    }
}

/* The members of all pieces joined; pieces of `step` tokens. */
static json_t *joined(int64_t step)
{
    struct dpe_serve_world world = {0};
    struct dpe_serve_places places = {0};
    json_t *all = json_object();
    asked = looked = 0;
    for (int64_t end = 0; end < sequence.n_scores;) {
        end = end + step < sequence.n_scores ? end + step : sequence.n_scores;
        sequence.finish = end == sequence.n_scores ? "length" : NULL;
        json_t *piece = dpe_serve_logprobs(&world, &sequence, &places, end);
        const char *name = NULL;
        json_t *list = NULL;
        json_object_foreach(piece, name, list)
        {
            json_t *before = json_object_get(all, name);
            if (before == NULL) {
                json_object_set_new(all, name, before = json_array());
            }
            json_array_extend(before, list);
        }
        json_decref(piece);
    }
    dpe_serve_places_free(&places);
    return all;
}

static void pieces_are_the_whole_at_its_price(void **state)
{
    static const int64_t steps[] = {1, 2, 7, 500};
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        make_answer(kind < 2 ? SERVE_COMPLETION : SERVE_CHAT, kind == 1);
        json_t *whole = joined(PROMPT + NEW);
        int64_t once = asked;
        int64_t bytes = looked;
        assert_true(once >= sequence.n_scores && once < 8 * sequence.n_scores);
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            json_t *pieces = joined(steps[i]);
            assert_true(json_equal(pieces, whole));
            assert_int_equal(asked, once);
            assert_true(looked <= bytes + 4 * sequence.n_scores);
            json_decref(pieces);
        }
        json_decref(whole);
    }
}

/* text_offset by hand: "é日word " has characters at 0, 1, 2 and ends at 7. */
static void places_count_characters(void **state)
{
    static const int64_t begins[VOCABULARY] = {0, 0, 1, 1, 1, 2};
    (void)state;
    make_answer(SERVE_COMPLETION, false);
    json_t *all = joined(3);
    const json_t *offsets = json_object_get(all, "text_offset");
    assert_int_equal(json_array_size(offsets), NEW);
    for (size_t i = 0; i < NEW; i++) {
        int64_t expected = (int64_t)(i / VOCABULARY) * 7 + begins[i % VOCABULARY];
        assert_int_equal(json_integer_value(json_array_get(offsets, i)), expected);
    }
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_are_the_whole_at_its_price),
                                       cmocka_unit_test(places_count_characters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
