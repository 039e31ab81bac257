/* Branches that read the rows of another one give the bits that copies of these rows give, however
 * they are cut, fed and copied on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/kernels/cpu_kernels.h"
#include "engine/model/model.h"
#include "engine/session/session_internal.h"
#include "tests/lib/tiny.h"

enum { WORDS = 64, ROOM = 1200, BRANCHES = 5, CHUNK = 256 };

static const struct dpe_config shape = TINY_LLAMA(32, WORDS);

static struct dpe_session *open_session(const struct dpe_model *model, const char *device,
                                        const char *spec, enum dpe_kv_type type, int threads)
{
    struct dpe_error err = {0};
    struct dpe_session *session = NULL;
    struct dpe_plan plan;
    const struct dpe_plan_context context = {
        .config = dpe_model_config(model), .trained_length = 128, .length = ROOM};
    TINY_OK(dpe_plan_make(spec, &context, &plan, &err), err);
    if (strncmp(spec, "dpe", 3) == 0) {
        tiny_mask(&plan);
    }
    const struct dpe_session_options options = {.device = device,
                                                .n_threads = threads,
                                                .capacity = BRANCHES * ROOM,
                                                .positions = ROOM,
                                                .branches = BRANCHES,
                                                .prefill_chunk = CHUNK,
                                                .kv_type = type};
    TINY_OK(dpe_session_create(model, &plan, &options, &session, &err), err);
    dpe_plan_free(&plan);
    TINY_OK(dpe_session_branch(session, BRANCHES, ROOM, &err), err);
    return session;
}

/* Whoever lends reads from nobody and has what it lends; the branches that read from others. */
static int count_readers(const struct dpe_session *s)
{
    int readers = 0;
    for (int64_t b = 0; b < BRANCHES; b++) {
        struct dpe_lent lent = s->lent[b];
        assert_true(lent.positions >= 0 && lent.positions % DPE_LENT_UNIT == 0);
        assert_true(lent.positions <= s->length[b]);
        if (lent.positions > 0) {
            int64_t lender = lent.offset / ROOM;
            assert_true(lent.offset % ROOM == 0 && lender != b);
            assert_int_equal(s->lent[lender].positions, 0);
            assert_true(s->length[lender] >= lent.positions);
            readers++;
        }
    }
    return readers;
}

struct pair {
    struct dpe_session *lends, *copies;
};

static int64_t below(uint32_t *state, int64_t n)
{
    *state = *state * 1664525U + 1013904223U;
    return (int64_t)(*state >> 8) % n;
}

static void feed(const struct pair *pair, uint32_t *state, int64_t b)
{
    struct dpe_error err = {0};
    int32_t tokens[600];
    float got[WORDS];
    float want[WORDS];
    int64_t room = dpe_session_room(pair->lends, b);
    int64_t n = 1 + below(state, below(state, 3) == 0 ? 600 : 12);
    n = n < room ? n : room;
    if (n == 0) {
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)below(state, WORDS);
    }
    TINY_OK(dpe_session_branch_feed(pair->lends, b, tokens, n, got, &err), err);
    TINY_OK(dpe_session_branch_feed(pair->copies, b, tokens, n, want, &err), err);
    assert_memory_equal(got, want, sizeof want);
}

/* All branches in one step, against one step of each. */
static void step(const struct pair *pair, uint32_t *state)
{
    struct dpe_error err = {0};
    float got[BRANCHES * WORDS];
    float want[WORDS];
    int64_t branches[BRANCHES];
    int32_t tokens[BRANCHES];
    int64_t n = 0;
    for (int64_t b = 0; b < BRANCHES; b++) {
        if (dpe_session_room(pair->lends, b) > 0) {
            tokens[n] = (int32_t)below(state, WORDS);
            branches[n++] = b;
        }
    }
    if (n == 0) {
        return;
    }
    TINY_OK(dpe_session_step(pair->lends, n, branches, tokens, got, &err), err);
    for (int64_t i = 0; i < n; i++) {
        TINY_OK(dpe_session_step(pair->copies, 1, &branches[i], &tokens[i], want, &err), err);
        assert_memory_equal(got + i * WORDS, want, sizeof want);
    }
}

/* The bytes of a branch in memory: all of them once, from 0 on. */
struct kept {
    unsigned char *bytes;
    size_t n, seen;
    bool into; /* the cache */
};

static dpe_status move(void *user, uint64_t at, void *bytes, size_t n, struct dpe_error *err)
{
    struct kept *kept = user;
    (void)err;
    assert_true(at + n <= kept->n);
    memcpy(kept->into ? bytes : kept->bytes + at, kept->into ? kept->bytes + at : bytes, n);
    __atomic_fetch_add(&kept->seen, n, __ATOMIC_RELAXED); /* several threads */
    return DPE_OK;
}

/* What a branch holds, saved and restored as another one: the same bytes, wherever they lie. */
static void restore(const struct pair *pair, int64_t from, int64_t to)
{
    struct dpe_session *const both[] = {pair->lends, pair->copies};
    const int64_t n = pair->lends->length[from];
    struct dpe_saved_shape saved;
    struct dpe_error err = {0};
    unsigned char *bytes[2];
    for (int i = 0; i < 2 && n > 0 && both[i]->ops->reads_kv; i++) {
        TINY_OK(dpe_session_saved_shape(both[i], &saved, &err), err);
        struct kept kept = {.n = (size_t)(2 * saved.layers * saved.heads * n * saved.row_bytes)};
        bytes[i] = kept.bytes = calloc(kept.n, 1);
        assert_non_null(kept.bytes);
        struct dpe_saved_mover mover = {move, &kept, i == 0};
        TINY_OK(dpe_session_move_saved(both[i], from, n, &mover, &err), err);
        assert_int_equal(kept.seen, kept.n);
        kept.into = true;
        int32_t ids[ROOM];
        memcpy(ids, both[1]->tokens + from * ROOM, (size_t)n * sizeof *ids);
        TINY_OK(dpe_session_restore(both[i], to, ids, n, &mover, &err), err);
        assert_int_equal(both[i]->length[to], n);
        if (i == 1) {
            assert_memory_equal(bytes[0], bytes[1], kept.n);
            free(bytes[0]);
            free(bytes[1]);
        }
    }
}

/* The most branches that read from others at one time. */
static int go_through(const struct pair *pair, int turns, uint32_t state)
{
    struct dpe_error err = {0};
    int most = 0;
    while (pair->lends->length[0] < 800) {
        feed(pair, &state, 0);
    }
    for (int turn = 0; turn < turns; turn++) {
        int64_t a = below(&state, BRANCHES);
        int64_t b = (a + 1 + below(&state, BRANCHES - 1)) % BRANCHES;
        if (below(&state, 4) > 0 && pair->lends->length[a] < pair->lends->length[b]) {
            int64_t longer = b;
            b = a;
            a = longer;
        }
        int64_t length = pair->lends->length[a];
        int64_t keep =
            length - (below(&state, 3) == 0 ? below(&state, length + 1) : below(&state, 5));
        keep = keep > 0 ? keep : 0;
        switch (below(&state, pair->lends->ops->reads_kv ? 7 : 6)) {
        case 0:
            TINY_OK(dpe_session_branch_cut(pair->lends, a, keep, &err), err);
            TINY_OK(dpe_session_branch_cut(pair->copies, a, keep, &err), err);
            break;
        case 1:
        case 2:
        case 3:
            TINY_OK(dpe_session_branch_copy(pair->lends, a, b, keep, &err), err);
            TINY_OK(dpe_session_branch_copy(pair->copies, a, b, keep, &err), err);
            break;
        case 4:
            feed(pair, &state, a);
            break;
        case 6:
            restore(pair, a, b);
            break;
        default:
            step(pair, &state);
            break;
        }
        int readers = count_readers(pair->lends);
        most = readers > most ? readers : most;
        assert_int_equal(count_readers(pair->copies), 0);
    }
    return most;
}

static void same_bits(const char *device, const char *spec, enum dpe_kv_type type, int turns,
                      uint32_t seed)
{
    struct dpe_error err = {0};
    struct dpe_model *model = NULL;
    struct dpe_config config = shape;
    TINY_OK(dpe_random_model(&config, true, 5, &model, &err), err);
    struct pair pair = {open_session(model, device, spec, type, 2),
                        open_session(model, device, spec, type, 1)};
    struct dpe_ops copying = *pair.copies->ops;
    const struct dpe_ops *own = pair.copies->ops;
    assert_true(copying.lends);
    copying.lends = false;
    pair.copies->ops = &copying;
    int most = go_through(&pair, turns, seed);
    printf("%s, %s, %s: up to %d branches read another one\n", device, spec,
           dpe_kv_type_names[type], most);
    assert_true(most >= 2);
    pair.copies->ops = own;
    dpe_session_destroy(pair.lends);
    dpe_session_destroy(pair.copies);
    dpe_model_close(model);
}

static void cpu_lends(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 2; seed++) {
        same_bits("cpu", "rope", DPE_KV_F32, 60, seed);
        same_bits("cpu", "dpe:window=300,groups=3,scales=1/2.5/4", DPE_KV_F32, 60, 10 + seed);
        same_bits("cpu", "streaming-llm:window=400", DPE_KV_F32, 60, 20 + seed);
        same_bits("cpu", "self-extend", DPE_KV_INT8, 60, 30 + seed);
    }
}

/* Where this machine has the device. */
static void bf16_lends(void **state)
{
    (void)state;
    if (dpe_cpu_bf16_choose() == NULL) {
        skip();
    }
    same_bits("cpu-bf16", "dpe:window=300,groups=3,scales=1/2.5/4", DPE_KV_F32, 60, 50);
}

static void the_reference_lends(void **state)
{
    (void)state;
    same_bits("reference", "dpe:window=300,groups=3,scales=1/2.5/4", DPE_KV_F32, 30, 41);
}

/* A selection keeps representatives of each branch's own blocks: it copies. */
static void selections_copy(void **state)
{
    (void)state;
    struct dpe_error err = {0};
    struct dpe_model *model = NULL;
    struct dpe_config config = shape;
    TINY_OK(dpe_random_model(&config, true, 5, &model, &err), err);
    struct dpe_session *s = open_session(model, "cpu", "infllm:block=16", DPE_KV_F32, 2);
    int32_t tokens[700] = {0};
    TINY_OK(dpe_session_branch_feed(s, 1, tokens, 700, NULL, &err), err);
    TINY_OK(dpe_session_branch_copy(s, 1, 0, 600, &err), err);
    assert_int_equal(count_readers(s), 0);
    dpe_session_destroy(s);
    dpe_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_lends),
        cmocka_unit_test(bf16_lends),
        cmocka_unit_test(the_reference_lends),
        cmocka_unit_test(selections_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
