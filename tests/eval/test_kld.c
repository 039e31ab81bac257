/* Divergences of two sessions' next tokens: by hand, of a model from itself, and from itself under
 * another plan, against logits that are held whole. */
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

#include "eval/compare/kld.h"
#include "tests/lib/reference_session.h"

enum { LENGTH = 90 };
static struct dpe_session *other;

static int open_both(void **state)
{
    struct dpe_error err = {0};
    struct dpe_plan plan = {0};
    const struct dpe_session_options options = {.capacity = LENGTH};
    if (open_reference(state, LENGTH) != 0) {
        return -1;
    }
    const struct dpe_plan_context context = {
        .config = dpe_model_config(model), .trained_length = 32, .length = LENGTH};
    dpe_status status = dpe_plan_make("yarn:always=1", &context, &plan, &err);
    status = status == DPE_OK ? dpe_session_create(model, &plan, &options, &other, &err) : status;
    dpe_plan_free(&plan);
    if (status != DPE_OK) {
        print_error("%s\n", err.text);
    }
    return status == DPE_OK ? 0 : -1;
}

static int close_both(void **state)
{
    dpe_session_destroy(other);
    return close_reference(state);
}

/* p = (1/2, 1/4, 1/4), q = (1/4, 1/2, 1/4): KL = 1/2 ln 2 − 1/4 ln 2. */
static void three_words_by_hand(void **state)
{
    (void)state;
    const float p[] = {(float)log(2.0), 0.0F, 0.0F};
    const float q[] = {7.0F, 7.0F + (float)log(2.0), 7.0F};
    const struct dpe_kld_token token = dpe_kld_compare(p, q, 3, 1);
    assert_true(fabs(token.kl - 0.25 * log(2.0)) < 1e-6);
    assert_true(fabs(token.change - 0.25) < 1e-6);
    assert_true(fabs(token.base_nll - log(4.0)) < 1e-6);
    assert_true(fabs(token.nll - log(2.0)) < 1e-6);
    assert_true(token.same == 0.0);
    const struct dpe_kld_token itself = dpe_kld_compare(q, q, 3, 0);
    assert_true(itself.kl == 0.0 && itself.change == 0.0 && itself.same == 1.0);
    const float broken[] = {1.0F, (float)NAN, 0.0F};
    assert_true(isnan(dpe_kld_compare(p, broken, 3, 0).kl));
    assert_true(isnan(dpe_kld_compare(broken, p, 3, 0).kl));
}

static void text_ids(int32_t *ids)
{
    for (int i = 0; i < LENGTH; i++) {
        ids[i] = 40 + (i * 37 + i / 7) % 200;
    }
}

struct whole {
    float *logits;
    int64_t vocab;
};
static void take(void *user, int64_t first, int64_t n, const float *logits)
{
    const struct whole *whole = user;
    memcpy(whole->logits + first * whole->vocab, logits,
           (size_t)(n * whole->vocab) * sizeof *logits);
}

static void pieces_are_the_whole(void **state)
{
    (void)state;
    const int64_t vocab = dpe_model_config(model)->vocab;
    int32_t ids[LENGTH];
    struct dpe_kld_token tokens[LENGTH - 1];
    struct dpe_error err = {0};
    struct whole both[2];
    text_ids(ids);
    assert_int_equal(dpe_kld_read(&(struct dpe_kld_base){.session = session}, other, vocab, ids,
                                  LENGTH, tokens, &err),
                     DPE_OK);
    for (int i = 0; i < 2; i++) {
        struct dpe_session *reader = i == 0 ? session : other;
        both[i] = (struct whole){malloc((size_t)(LENGTH * vocab) * sizeof(float)), vocab};
        assert_non_null(both[i].logits);
        assert_int_equal(dpe_session_cut(reader, 0, &err), DPE_OK);
        assert_int_equal(dpe_session_branch_rows(reader, 0, ids, LENGTH - 1, take, &both[i], &err),
                         DPE_OK);
    }
    double sum = 0.0;
    for (int i = 0; i < LENGTH - 1; i++) {
        const struct dpe_kld_token token = dpe_kld_compare(
            both[0].logits + i * vocab, both[1].logits + i * vocab, vocab, ids[i + 1]);
        assert_true(fabs(token.kl - tokens[i].kl) < 1e-5 * (1.0 + token.kl));
        assert_true(fabs(token.nll - tokens[i].nll) < 1e-4);
        sum += token.kl;
    }
    assert_true(sum > 0.1); /* another plan expects something else */
    free(both[0].logits);
    free(both[1].logits);
    assert_int_equal(dpe_kld_read(&(struct dpe_kld_base){.session = session}, session, vocab, ids,
                                  2, tokens, &err),
                     DPE_OK);
}

static void a_model_is_not_far_from_itself(void **state)
{
    (void)state;
    const int64_t vocab = dpe_model_config(model)->vocab;
    const struct dpe_session_options options = {.capacity = LENGTH};
    const struct dpe_plan_context context = {
        .config = dpe_model_config(model), .trained_length = 256, .length = LENGTH};
    struct dpe_plan plan = {0};
    struct dpe_session *twin = NULL;
    int32_t ids[LENGTH];
    struct dpe_kld_token tokens[LENGTH - 1];
    struct dpe_error err = {0};
    text_ids(ids);
    assert_int_equal(dpe_plan_make("rope", &context, &plan, &err), DPE_OK);
    assert_int_equal(dpe_session_create(model, &plan, &options, &twin, &err), DPE_OK);
    assert_int_equal(dpe_kld_read(&(struct dpe_kld_base){.session = session}, twin, vocab, ids,
                                  LENGTH, tokens, &err),
                     DPE_OK);
    for (int i = 0; i < LENGTH - 1; i++) {
        assert_true(tokens[i].kl == 0.0 && tokens[i].change == 0.0 && tokens[i].same == 1.0);
    }
    /* A session that is its own base reads the text once, and says the same of it. */
    struct dpe_kld_token own[LENGTH - 1];
    const int64_t before = dpe_session_work(twin).fed;
    assert_int_equal(
        dpe_kld_read(&(struct dpe_kld_base){.session = twin}, twin, vocab, ids, LENGTH, own, &err),
        DPE_OK);
    assert_int_equal(dpe_session_work(twin).fed - before, LENGTH - 1);
    assert_memory_equal(own, tokens, sizeof own);
    dpe_session_destroy(twin);
    dpe_plan_free(&plan);
}

/* With logits of the size that models have: the sum as it is defined, term by term. */
static void divergence_as_defined(void **state)
{
    (void)state;
    enum { VOCAB = 5000 };
    static float p[VOCAB], q[VOCAB];
    uint32_t x = 12345;
    for (int v = 0; v < VOCAB; v++) {
        x = x * 1664525U + 1013904223U;
        p[v] = (float)(x >> 8) / (float)(1 << 20) - 40.0F;
        q[v] = p[v] + (v % 7 == 0 ? 0.125F : 0.0F);
    }
    double sums[2] = {0.0, 0.0};
    double kl = 0.0;
    for (int v = 0; v < VOCAB; v++) {
        sums[0] += exp((double)p[v]);
        sums[1] += exp((double)q[v]);
    }
    for (int v = 0; v < VOCAB; v++) {
        const double share = exp((double)p[v]) / sums[0];
        kl += share * log(share / (exp((double)q[v]) / sums[1]));
    }
    const struct dpe_kld_token token = dpe_kld_compare(p, q, VOCAB, 77);
    assert_true(kl > 1e-4 && fabs(token.kl - kl) < 1e-12);
    assert_true(fabs(token.nll - (log(sums[1]) - (double)q[77])) < 1e-12);
    assert_true(fabs(token.base_nll - (log(sums[0]) - (double)p[77])) < 1e-12);
}

/* Two texts of four tokens, the second of which is missing in another cell. */
static void cells_over_texts(void **state)
{
    (void)state;
    const struct dpe_kld_token a[] = {{.kl = 1.0, .change = 0.5, .same = 1.0},
                                      {.kl = 3.0, .change = -0.5, .nll = log(2.0)},
                                      {.kl = 5.0},
                                      {.kl = 7.0, .same = 1.0}};
    const struct dpe_kld_token b[] = {{.kl = 0.0}, {.kl = 2.0}, {.kl = 4.0}, {.kl = 10.0}};
    const struct dpe_kld_token *texts[] = {a, b};
    struct dpe_kld_cell cell;
    struct dpe_error err = {0};
    assert_int_equal(dpe_kld_buckets(1), 1);
    assert_int_equal(dpe_kld_buckets(4), 3);
    assert_int_equal(dpe_kld_buckets(7), 3);
    assert_int_equal(dpe_kld_summarize(texts, 2, 4, 1, 5, &cell, &err), DPE_OK);
    assert_true(cell.n == 8 && cell.mean.n == 2 && fabs(cell.mean.mean - 4.0) < 1e-12);
    /* Texts of 4 and 4 have no spread; of 1 and 0, below, Student's t of one degree. */
    assert_true(cell.mean.low == 4.0 && cell.mean.high == 4.0);
    assert_true(fabs(cell.median - 3.5) < 1e-12 && cell.most == 10.0);
    assert_true(fabs(cell.same_top - 0.25) < 1e-12);
    assert_true(fabs(cell.change_mean) < 1e-12 && fabs(cell.change_rms - 0.25) < 1e-12);
    assert_true(fabs(cell.ratio.mean - exp(log(2.0) / 8.0)) < 1e-12);
    /* The last bucket, 4 … 7, ends with the text. */
    assert_int_equal(dpe_kld_summarize(texts, 2, 4, 4, 8, &cell, &err), DPE_OK);
    assert_true(cell.n == 2 && fabs(cell.mean.mean - 8.5) < 1e-12);
    const double reach = 12.706204736;
    assert_int_equal(dpe_kld_summarize(texts, 2, 4, 1, 2, &cell, &err), DPE_OK);
    assert_true(fabs(cell.mean.mean - 0.5) < 1e-12 && cell.mean.low == 0.0);
    assert_true(fabs(cell.mean.high - (0.5 + 0.5 * reach)) < 1e-6);
    texts[1] = NULL;
    assert_int_equal(dpe_kld_summarize(texts, 2, 4, 2, 4, &cell, &err), DPE_OK);
    assert_true(cell.n == 2 && cell.mean.n == 1 && fabs(cell.mean.mean - 4.0) < 1e-12);
    texts[0] = NULL;
    assert_int_equal(dpe_kld_summarize(texts, 2, 4, 1, 5, &cell, &err), DPE_OK);
    assert_true(cell.n == 0 && isnan(cell.mean.mean) && isnan(cell.median));
}

/* ------------------------------------------------------------------------------ a base in a file
 */

static void a_kept_base_is_read_once(void **state)
{
    (void)state;
    const int64_t vocab = dpe_model_config(model)->vocab;
    char path[] = "/tmp/dpe_kld_XXXXXX";
    struct dpe_kld_saved_name name = {vocab, LENGTH, "a plan", "a model", "cpu", "f32"};
    struct dpe_kld_saved *saved = NULL;
    struct dpe_kld_rounding rounding;
    struct dpe_error err = {0};
    struct dpe_kld_token exact[LENGTH - 1];
    struct dpe_kld_token kept[2][LENGTH - 1];
    int32_t ids[LENGTH];
    bool there = true;
    close(mkstemp(path));
    text_ids(ids);
    assert_int_equal(dpe_kld_read(&(struct dpe_kld_base){.session = session}, other, vocab, ids,
                                  LENGTH, exact, &err),
                     DPE_OK);
    assert_int_equal(dpe_kld_saved_open(path, &name, &saved, &err), DPE_OK);
    assert_int_equal(dpe_kld_saved_has(saved, 3, ids, &there, &err), DPE_OK);
    assert_false(there);
    /* With the session, then from the file alone: the same. */
    for (int i = 0; i < 2; i++) {
        const struct dpe_kld_base base = {i == 0 ? session : NULL, saved, 3};
        assert_int_equal(dpe_kld_read(&base, other, vocab, ids, LENGTH, kept[i], &err), DPE_OK);
    }
    assert_memory_equal(kept[0], kept[1], sizeof kept[0]);
    assert_int_equal(dpe_kld_saved_rounding(saved, 4, &rounding, &err), DPE_OK);
    assert_true(rounding.tokens == LENGTH - 1 && rounding.mean > 0.0 && rounding.most < 1e-6);
    for (int i = 0; i < LENGTH - 1; i++) {
        assert_true(fabs(kept[0][i].kl - exact[i].kl) < 2e-4 * (1.0 + exact[i].kl));
        assert_true(kept[0][i].same == exact[i].same && kept[0][i].nll == exact[i].nll);
        assert_true(fabs(kept[0][i].base_nll - exact[i].base_nll) < 1e-9);
    }
    ids[5] ^= 1;
    assert_int_equal(dpe_kld_saved_has(saved, 3, ids, &there, &err), DPE_MISMATCH);
    dpe_kld_saved_close(saved);
    const struct {
        struct dpe_kld_saved_name name;
        const char *says;
    } wrong[] = {{{vocab + 1, LENGTH, "a plan", "a model", "cpu", "f32"}, "vocabulary"},
                 {{vocab, LENGTH - 1, "a plan", "a model", "cpu", "f32"}, "tokens"},
                 {{vocab, LENGTH, "a plan", "a mode", "cpu", "f32"}, "another model"},
                 {{vocab, LENGTH, "a plan2", "a model", "cpu", "f32"}, "another plan"},
                 {{vocab, LENGTH, "a plan", "a model", "cpu", "int8"}, "keys and values"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(dpe_kld_saved_open(path, &wrong[i].name, &saved, &err), DPE_MISMATCH);
        assert_non_null(strstr(err.text, wrong[i].says));
    }
    FILE *file = fopen(path, "w");
    fputs("something else", file);
    fclose(file);
    assert_int_equal(dpe_kld_saved_open(path, &name, &saved, &err), DPE_BAD_DATA);
    remove(path);
    assert_int_equal(dpe_kld_saved_open("/nowhere/file", &name, &saved, &err), DPE_CANNOT_CREATE);
}

/* Rows of strange numbers: flat, far apart, not finite. */
static void strange_rows_are_kept(void **state)
{
    (void)state;
    enum { VOCAB = 5, ROWS = 4 };
    char path[] = "/tmp/dpe_kld_XXXXXX";
    const struct dpe_kld_saved_name name = {VOCAB, ROWS + 1, "p", "m", "d", "k"};
    float logits[ROWS][VOCAB] = {{3, 3, 3, 3, 3},
                                 {0, -1000, 50, 49.9999F, -3e30F},
                                 {1, (float)NAN, 0, 0, 0},
                                 {-2, 7, 7, 0, 1}};
    float again[ROWS][VOCAB];
    double nll[2][ROWS];
    const int32_t next[ROWS] = {2, 3, 0, 4};
    const int32_t ids[ROWS + 1] = {0};
    struct dpe_kld_saved *saved = NULL;
    struct dpe_error err = {0};
    close(mkstemp(path));
    assert_int_equal(dpe_kld_saved_open(path, &name, &saved, &err), DPE_OK);
    assert_int_equal(dpe_kld_saved_put(saved, 0, 0, ROWS, next, &logits[0][0], nll[0], &err),
                     DPE_OK);
    assert_int_equal(dpe_kld_saved_end(saved, 0, ids, &err), DPE_OK);
    assert_int_equal(dpe_kld_saved_get(saved, 0, 0, ROWS, &again[0][0], nll[1], &err), DPE_OK);
    assert_memory_equal(logits, again, sizeof logits);
    assert_true(fabs((double)again[0][4] + log(5.0)) < 1e-6 && fabs(nll[0][0] - log(5.0)) < 1e-6);
    assert_true(again[1][2] > again[1][3] && again[1][1] < -31.0F && again[1][4] < -31.0F);
    assert_true(isnan(again[2][0]) && isnan(nll[1][2]));
    assert_true(again[3][1] > again[3][2] && fabsf(again[3][1] - again[3][2]) < 1e-5F);
    dpe_kld_saved_close(saved);
    remove(path);
}

enum { SMALL = 5, SMALL_ROWS = 3, TEXTS = 2 };

/* What a reader gets of the file: the first status that is not DPE_OK; what is kept of text t, and
 * whether it is there. */
static dpe_status read_small(const char *path, bool there[TEXTS],
                             float logits[TEXTS][SMALL_ROWS][SMALL], double nll[TEXTS][SMALL_ROWS],
                             struct dpe_error *err)
{
    const struct dpe_kld_saved_name name = {SMALL, SMALL_ROWS + 1, "p", "m", "d", "k"};
    const int32_t ids[SMALL_ROWS + 1] = {0, 1, 2, 3};
    struct dpe_kld_saved *saved = NULL;
    struct dpe_kld_rounding rounding;
    dpe_status status = dpe_kld_saved_open(path, &name, &saved, err);
    for (int t = 0; t < TEXTS && status == DPE_OK; t++) {
        status = dpe_kld_saved_has(saved, t, ids, &there[t], err);
        if (status == DPE_OK && there[t]) {
            status = dpe_kld_saved_get(saved, t, 0, SMALL_ROWS, &logits[t][0][0], nll[t], err);
        }
    }
    if (status == DPE_OK) {
        status = dpe_kld_saved_rounding(saved, TEXTS, &rounding, err);
        assert_true(status != DPE_OK || (rounding.mean >= 0.0 && rounding.most < 1e-6));
    }
    dpe_kld_saved_close(saved);
    return status;
}

/* Every byte of a base changed, and every length that it can be cut to: never other numbers. */
static void a_damaged_base_is_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/dpe_kld_XXXXXX";
    const struct dpe_kld_saved_name name = {SMALL, SMALL_ROWS + 1, "p", "m", "d", "k"};
    const int32_t ids[SMALL_ROWS + 1] = {0, 1, 2, 3};
    float good[TEXTS][SMALL_ROWS][SMALL] = {0}, found[TEXTS][SMALL_ROWS][SMALL];
    double good_nll[TEXTS][SMALL_ROWS], nll[TEXTS][SMALL_ROWS];
    bool there[TEXTS];
    struct dpe_kld_saved *saved = NULL;
    struct dpe_error err = {0};
    close(mkstemp(path));
    assert_int_equal(dpe_kld_saved_open(path, &name, &saved, &err), DPE_OK);
    for (int t = 0; t < TEXTS; t++) {
        for (int i = 0; i < SMALL_ROWS * SMALL; i++) {
            good[t][i / SMALL][i % SMALL] = (float)((i * 7 + t) % 11) - 3.5F;
        }
        assert_int_equal(
            dpe_kld_saved_put(saved, t, 0, SMALL_ROWS, ids + 1, &good[t][0][0], good_nll[t], &err),
            DPE_OK);
        assert_int_equal(dpe_kld_saved_end(saved, t, ids, &err), DPE_OK);
    }
    dpe_kld_saved_close(saved);
    static char whole[1 << 14], changed[1 << 14];
    FILE *file = fopen(path, "rb");
    const size_t n = fread(whole, 1, sizeof whole, file);
    fclose(file);
    assert_int_equal(n, 4096 + TEXTS * dpe_kld_saved_bytes(SMALL, SMALL_ROWS + 1));
    int refused = 0;
    int read = 0;
    for (size_t i = 0; i < 2 * n; i++) { /* a byte, then a length */
        if (i % n == 200) {
            i += 4096 - 200; /* nothing is in the hole behind the head */
        }
        memcpy(changed, whole, n);
        changed[i % n] = (char)(whole[i % n] ^ (i % 3 == 0 ? 0x80 : 1));
        file = fopen(path, "wb");
        fwrite(i < n ? changed : whole, 1, i < n ? n : i - n, file);
        fclose(file);
        memset(there, 0, sizeof there);
        dpe_status status = read_small(path, there, found, nll, &err);
        assert_true(status == DPE_OK || status == DPE_BAD_DATA || status == DPE_MISMATCH);
        assert_true(status == DPE_OK || strstr(err.text, path) != NULL);
        for (int t = 0; t < TEXTS && status == DPE_OK; t++) {
            if (there[t] && (memcmp(found[t], good[t], sizeof good[t]) != 0 ||
                             memcmp(nll[t], good_nll[t], sizeof nll[t]) != 0)) {
                fail_msg("%s %zu: text %d has other numbers", i < n ? "byte" : "length", i % n, t);
            }
            read += there[t];
        }
        refused += status != DPE_OK;
    }
    assert_true(refused > 500 && read > 0);
    remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_words_by_hand),   cmocka_unit_test(divergence_as_defined),
        cmocka_unit_test(pieces_are_the_whole),  cmocka_unit_test(a_model_is_not_far_from_itself),
        cmocka_unit_test(cells_over_texts),      cmocka_unit_test(a_kept_base_is_read_once),
        cmocka_unit_test(strange_rows_are_kept), cmocka_unit_test(a_damaged_base_is_refused),
    };
    return cmocka_run_group_tests(tests, open_both, close_both);
}
