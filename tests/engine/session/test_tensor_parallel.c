/* A model that several processes hold together against the same model in one: the peers are threads
 * here (peers_threads.h), so that everything but the transport is tested. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/plan/methods/methods.h"
#include "tests/lib/near.h"
#include "tests/lib/peers_threads.h"
#include "tests/lib/tiny.h"

/* Those whose key-value heads can be shared. */
static const char *const folders[] = {"llama",    "llama_bf16", "llama3",  "qwen2",       "linear",
                                      "longrope", "yarn",       "sharded", "families/nsa"};
enum { N_FOLDERS = sizeof folders / sizeof folders[0], MOST_TOKENS = 64, NEW = 6 };

struct tapped {
    float *q, *k; /* [layers][tokens][heads][head_dim] */
    int64_t q_row, k_row, tokens;
};

/* What one process does with its session, and what it saw. */
struct work {
    const struct tiny *tiny;
    const struct dpe_plan *plan;
    struct dpe_session_options options;
    int stop_at; /* > 0: this process's poll fails at its so manyeth call, once */
    bool taps;
    pthread_t thread;
    int polls;
    dpe_status status, stopped;
    struct dpe_error err, stop_err;
    float *prefill, *decode; /* [tokens][vocab] */
    double nll[MOST_TOKENS];
    struct dpe_tokens generated;
    struct tapped tapped;
};

static dpe_status keep_tap(void *user, int64_t layer, int64_t start, int64_t rows, const float *q,
                           const float *k, struct dpe_error *err)
{
    struct tapped *t = user;
    (void)err;
    memcpy(t->q + (layer * t->tokens + start) * t->q_row, q, (size_t)(rows * t->q_row) * sizeof *q);
    memcpy(t->k + (layer * t->tokens + start) * t->k_row, k, (size_t)(rows * t->k_row) * sizeof *k);
    return DPE_OK;
}

static dpe_status poll(void *user, struct dpe_error *err)
{
    struct work *work = user;
    work->polls++;
    return work->stop_at > 0 && work->polls == work->stop_at
               ? dpe_fail(err, DPE_INCOMPLETE, "process %d was asked to stop",
                          work->options.peers->index)
               : DPE_OK;
}

/* Token by token. */
static dpe_status decode(struct work *w, struct dpe_session *s)
{
    const struct tiny *tiny = w->tiny;
    int64_t vocab = tiny->config->vocab;
    dpe_status status = dpe_session_cut(s, 0, &w->err);
    for (int64_t i = 0; i < tiny->n && status == DPE_OK; i++) {
        status = dpe_session_feed(s, tiny->tokens + i, 1, w->decode + i * vocab, &w->err);
    }
    return status;
}

/* The same in a session beside this one, in steps of both: each has its logits of before. */
static dpe_status decode_beside(struct work *w, struct dpe_session *s)
{
    const struct tiny *tiny = w->tiny;
    const int64_t vocab = tiny->config->vocab;
    const int64_t first = 0;
    struct dpe_session_options options = w->options;
    struct dpe_session *other = NULL;
    float logits[2 * 64];
    options.beside = s;
    dpe_status status = dpe_session_create(tiny->model, w->plan, &options, &other, &w->err);
    if (status == DPE_OK) {
        status = dpe_session_cut(s, 0, &w->err);
    }
    const struct dpe_session_part parts[] = {{other, 1, &first}, {s, 1, &first}};
    for (int64_t i = 0; i < tiny->n && status == DPE_OK; i++) {
        const int32_t tokens[] = {tiny->tokens[i], tiny->tokens[i]};
        status = dpe_session_step_parts(parts, 2, tokens, logits, NULL, &w->err);
        for (int64_t k = 0; k < 2 * vocab && status == DPE_OK; k++) {
            const float want = w->decode[i * vocab + k % vocab];
            if (!(fabsf(logits[k] - want) <= 2e-5F * (1.0F + fabsf(want)))) {
                status =
                    dpe_fail(&w->err, DPE_INTERNAL, "together token %d has other logits", (int)i);
            }
        }
    }
    dpe_session_destroy(other);
    return status;
}

static dpe_status run(struct work *w, struct dpe_session *s)
{
    const struct tiny *tiny = w->tiny;
    int64_t vocab = tiny->config->vocab;
    dpe_status status = DPE_OK;
    dpe_session_set_poll(s, poll, w);
    if (w->stop_at > 0 || w->options.peers != NULL) {
        /* Stops everywhere or nowhere. */
        w->stopped = dpe_session_feed(s, tiny->tokens, tiny->n, w->prefill, &w->stop_err);
        status = dpe_session_cut(s, 0, &w->err);
    }
    for (int64_t i = 0; i < tiny->n && status == DPE_OK; i++) {
        status = dpe_session_cut(s, 0, &w->err);
        if (status == DPE_OK) {
            status = dpe_session_feed(s, tiny->tokens, i + 1, w->prefill + i * vocab, &w->err);
        }
    }
    if (status == DPE_OK) {
        status = decode(w, s);
    }
    if (status == DPE_OK && tiny->config->vocab == 64) {
        status = decode_beside(w, s);
    }
    if (status == DPE_OK) {
        status = dpe_session_cut(s, 0, &w->err);
    }
    if (w->taps) {
        dpe_session_set_tap(s, keep_tap, &w->tapped);
    }
    if (status == DPE_OK) {
        status = dpe_session_nll(s, tiny->tokens, tiny->n, w->nll, &w->err);
    }
    dpe_session_set_tap(s, NULL, NULL);
    if (status == DPE_OK) {
        status = dpe_session_cut(s, 0, &w->err);
    }
    const struct dpe_generate_options options = {.max_new = NEW, .ignore_eos = true};
    return status == DPE_OK ? dpe_session_generate(s, tiny->tokens, tiny->n - NEW, &options,
                                                   &w->generated, &w->err)
                            : status;
}

static void *live(void *user)
{
    struct work *w = user;
    struct dpe_session *session = NULL;
    w->status = dpe_session_create(w->tiny->model, w->plan, &w->options, &session, &w->err);
    if (w->status == DPE_OK) {
        w->status = run(w, session);
    }
    dpe_session_destroy(session);
    return NULL;
}

static struct work work_for(const struct tiny *tiny, const struct dpe_plan *plan,
                            const struct dpe_session_options *options)
{
    const struct dpe_config *c = tiny->config;
    size_t n = (size_t)(tiny->n * c->vocab);
    struct work w = {.tiny = tiny, .plan = plan, .options = *options, .taps = true};
    w.prefill = calloc(n, sizeof *w.prefill);
    w.decode = calloc(n, sizeof *w.decode);
    w.tapped = (struct tapped){
        .q_row = c->n_heads * c->head_dim, .k_row = c->n_kv_heads * c->head_dim, .tokens = tiny->n};
    w.tapped.q = calloc((size_t)(c->n_layers * tiny->n * w.tapped.q_row), sizeof(float));
    w.tapped.k = calloc((size_t)(c->n_layers * tiny->n * w.tapped.k_row), sizeof(float));
    assert_true(w.prefill != NULL && w.decode != NULL && w.tapped.q != NULL && w.tapped.k != NULL);
    return w;
}

static void work_free(struct work *w)
{
    free(w->prefill);
    free(w->decode);
    free(w->tapped.q);
    free(w->tapped.k);
    dpe_tokens_free(&w->generated);
}

/* Processes that hold one model together. */
struct group {
    int size;
    struct peers_room room;
    struct peers_member members[PEERS_MOST];
    struct work works[PEERS_MOST];
};

static void group_open(struct group *group, int size, const struct tiny *tiny,
                       const struct dpe_plan *plan, const struct dpe_session_options *options)
{
    group->size = size;
    peers_open(&group->room, group->members, size);
    for (int i = 0; i < size; i++) {
        group->works[i] = work_for(tiny, plan, options);
        group->works[i].options.peers = &group->members[i].peers;
    }
}

/* All members at once. */
static void group_run(struct group *group)
{
    for (int i = 0; i < group->size; i++) {
        struct work *work = &group->works[i];
        assert_int_equal(pthread_create(&work->thread, NULL, live, work), 0);
    }
    for (int i = 0; i < group->size; i++) {
        pthread_join(group->works[i].thread, NULL);
    }
}

static void group_close(struct group *group)
{
    for (int i = 0; i < group->size; i++) {
        work_free(&group->works[i]);
    }
    peers_close(&group->room);
}

static int near_logits(const char *what, const float *got, const float *want, size_t n)
{
    double least = INFINITY;
    double most = -INFINITY;
    double *exact = malloc(n * sizeof *exact);
    assert_non_null(exact);
    for (size_t i = 0; i < n; i++) {
        exact[i] = (double)want[i];
        least = fmin(least, exact[i]);
        most = fmax(most, exact[i]);
    }
    int bad = near_f32(what, got, exact, n, 1e-5 * (most - least));
    free(exact);
    return bad;
}

static void same_as_whole(const char *what, const struct work *w, const struct work *whole)
{
    const struct tiny *tiny = w->tiny;
    const struct dpe_config *c = tiny->config;
    size_t n = (size_t)(tiny->n * c->vocab);
    if (w->status != DPE_OK) {
        fail_msg("%s: %s", what, w->err.text);
    }
    assert_int_equal(near_logits(what, w->prefill, whole->prefill, n), 0);
    assert_int_equal(near_logits(what, w->decode, whole->decode, n), 0);
    for (int64_t i = 0; i + 1 < tiny->n; i++) {
        assert_true(fabs(w->nll[i] - whole->nll[i]) <= 1e-5);
    }
    assert_int_equal(w->generated.n, NEW);
    assert_memory_equal(w->generated.ids, whole->generated.ids, NEW * sizeof *w->generated.ids);
    n = (size_t)(c->n_layers * tiny->n);
    assert_int_equal(near_logits(what, w->tapped.q, whole->tapped.q, n * (size_t)w->tapped.q_row),
                     0);
    assert_int_equal(near_logits(what, w->tapped.k, whole->tapped.k, n * (size_t)w->tapped.k_row),
                     0);
}

static void check_shared(const struct tiny *tiny, const struct dpe_plan *plan, const char *device,
                         int64_t chunk, int size)
{
    char what[192];
    const struct dpe_session_options options = {
        .device = device, .n_threads = 1, .capacity = tiny->n, .prefill_chunk = chunk};
    struct work whole = work_for(tiny, plan, &options);
    live(&whole);
    assert_int_equal(whole.status, DPE_OK);
    struct group group;
    group_open(&group, size, tiny, plan, &options);
    group_run(&group);
    const struct work *first = &group.works[0];
    for (int i = 0; i < size; i++) {
        const struct work *work = &group.works[i];
        snprintf(what, sizeof what, "%s, %.60s on %s, chunk %d, %d of %d",
                 dpe_model_folder(tiny->model), plan->name, device, (int)chunk, i, size);
        same_as_whole(what, work, &whole);
        size_t bytes = (size_t)(tiny->n * tiny->config->vocab) * sizeof(float);
        assert_memory_equal(work->prefill, first->prefill, bytes);
        assert_memory_equal(work->decode, first->decode, bytes);
        assert_int_equal(work->stopped, DPE_OK);
    }
    assert_false(group.room.lost);
    assert_true(group.room.sums > 0);
    group_close(&group);
    work_free(&whole);
}

/* A mask that differs from head to head. */
static void mask_plan(struct dpe_plan *plan)
{
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 3, 4);
    assert_non_null(plan->mask);
    for (int64_t i = 0; i < plan->n_layers * plan->n_heads * plan->n_pairs; i++) {
        plan->mask[i] = dpe_rng_below(&rng, 2) != 0;
    }
}

static void shared_models_give_the_logits_of_whole_ones(void **state)
{
    (void)state;
    for (int i = 0; i < N_FOLDERS; i++) {
        struct tiny tiny = tiny_open(folders[i]);
        struct dpe_plan plan = tiny_plan(&tiny, "rope", tiny.n);
        int most = tiny.config->n_kv_heads % 4 == 0 ? 4 : 2;
        for (int size = 2; size <= most; size *= 2) {
            check_shared(&tiny, &plan, "reference", 16, size);
            check_shared(&tiny, &plan, "cpu", 64, size);
            check_shared(&tiny, &plan, "cpu", 5, size);
        }
        dpe_plan_free(&plan);
        tiny_close(&tiny);
    }
}

static void masks_and_factors_are_cut_by_heads(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama_bf16");
    const struct dpe_config *c = tiny.config;
    size_t n = (size_t)(c->n_layers * c->n_heads * c->head_dim / 2);
    uint8_t *all = malloc(n);
    assert_non_null(all);
    memset(all, 1, n);
    int32_t edges[3];
    const double scale[2] = {3.0, 5.0};
    struct dpe_error err = {0};
    TINY_OK(dpe_plan_group_edges(c->head_dim / 2, 2, edges, &err), err);
    const struct dpe_dpe_params params = {
        .window = 4, .n_groups = 2, .edges = edges, .scale = scale, .mask = all};
    const struct dpe_plan_context context = {.config = c, .trained_length = 16, .length = tiny.n};
    struct dpe_plan plan;
    TINY_OK(dpe_plan_make_dpe(&params, &context, &plan, &err), err);
    mask_plan(&plan);
    for (int64_t h = 0; h < c->n_heads; h++) {
        assert_true(
            dpe_temperature_set_head(&plan.temperature, h % c->n_layers, h, 0.5 + (double)h));
    }
    for (int size = 2; size <= 4; size *= 2) {
        check_shared(&tiny, &plan, "reference", 16, size);
        check_shared(&tiny, &plan, "cpu", 7, size);
    }
    dpe_plan_free(&plan);
    free(all);
    tiny_close(&tiny);
}

/* One process is asked to stop in some layer of some chunk: all do, and can go on afterwards. */
static void one_stops_all(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    struct dpe_plan plan = tiny_plan(&tiny, "rope", tiny.n);
    const struct dpe_session_options options = {
        .device = "cpu", .n_threads = 1, .capacity = tiny.n, .prefill_chunk = 8};
    struct work whole = work_for(&tiny, &plan, &options);
    live(&whole);
    for (int which = 0; which < 2; which++) {
        for (int at = 1; at <= 6; at++) {
            struct group pair;
            group_open(&pair, 2, &tiny, &plan, &options);
            pair.works[which].stop_at = at;
            group_run(&pair);
            for (int i = 0; i < 2; i++) {
                assert_int_equal(pair.works[i].stopped, DPE_INCOMPLETE);
                assert_string_equal(pair.works[i].stop_err.text,
                                    which == 0 ? "process 0 was asked to stop"
                                               : "process 1 was asked to stop");
                same_as_whole("after a stop", &pair.works[i], &whole);
            }
            assert_false(pair.room.lost);
            group_close(&pair);
        }
    }
    work_free(&whole);
    dpe_plan_free(&plan);
    tiny_close(&tiny);
}

/* A session is made by all or by none. */
static void one_without_memory_stops_all(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    struct dpe_plan plan = tiny_plan(&tiny, "rope", tiny.n);
    const struct dpe_session_options options = {.device = "cpu", .capacity = tiny.n};
    for (int which = 0; which < 2; which++) {
        struct group pair;
        group_open(&pair, 2, &tiny, &plan, &options);
        pair.works[which].options.max_memory = 1000;
        group_run(&pair);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(pair.works[i].status, DPE_NO_MEMORY);
            assert_non_null(strstr(pair.works[i].err.text, "allow more with max_memory"));
        }
        group_close(&pair);
    }
    dpe_plan_free(&plan);
    tiny_close(&tiny);
}

static void what_cannot_be_shared_is_refused(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("mistral");
    struct dpe_plan plan = tiny_plan(&tiny, "rope", tiny.n);
    const struct dpe_session_options options = {.device = "cpu", .capacity = tiny.n};
    struct group pair;
    group_open(&pair, 2, &tiny, &plan, &options);
    group_run(&pair);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pair.works[i].status, DPE_USAGE);
        assert_string_equal(
            pair.works[i].err.text,
            "tensor parallel: 2 processes cannot share the model evenly: expected a "
            "number that divides its 1 key-value heads and the 32 columns of its "
            "MLP; the next smaller one is 1");
    }
    group_close(&pair);
    dpe_plan_free(&plan);
    tiny_close(&tiny);
}

/* Heads choose for themselves wherever they are; a layer cannot. */
static void selections_are_shared_or_refused(void **state)
{
    (void)state;
    static const char *const specs[] = {"moba:block=4,k=2",
                                        "reattention:block=3,sinks=2,local=6,k=2",
                                        ("select:k=2,block=4,local=5,refresh=3,unit=head,"
                                         "representative=attended,attended=2")};
    struct tiny tiny = tiny_open("llama_bf16");
    for (int i = 0; i < 3; i++) {
        struct dpe_plan plan = tiny_plan(&tiny, specs[i], tiny.n);
        check_shared(&tiny, &plan, "reference", 16, 2);
        check_shared(&tiny, &plan, "cpu", 7, 2);
        dpe_plan_free(&plan);
    }
    struct dpe_plan plan = tiny_plan(&tiny, "infllm:block=3,local=6,k=2", tiny.n);
    const struct dpe_session_options options = {.device = "cpu", .capacity = tiny.n};
    struct group pair;
    group_open(&pair, 2, &tiny, &plan, &options);
    group_run(&pair);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pair.works[i].status, DPE_USAGE);
        assert_non_null(strstr(pair.works[i].err.text,
                               "a layer chooses blocks by the scores of all its heads, which 2 "
                               "processes share; use one process"));
    }
    group_close(&pair);
    dpe_plan_free(&plan);
    tiny_close(&tiny);
}

/* What a process uses: its share of the layers, all of embedding, norms and head. */
static void estimates_are_of_the_slice(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("sharded");
    const struct dpe_config *c = tiny.config;
    struct dpe_plan plan = tiny_plan(&tiny, "rope", tiny.n);
    struct dpe_session_options options = {.device = "cpu", .n_threads = 1, .capacity = tiny.n};
    struct dpe_error err = {0};
    struct dpe_session_needs needs[2];
    TINY_OK(dpe_session_estimate(c, &plan, &options, &needs[0], &err), err);
    const struct dpe_peers two = {.index = 1, .size = 2};
    options.peers = &two;
    TINY_OK(dpe_session_estimate(c, &plan, &options, &needs[1], &err), err);
    int64_t whole = 2 * c->vocab * c->hidden + c->hidden + 2 * c->n_layers * c->hidden;
    uint64_t size = c->dtype == DPE_F32 ? 4 : 2;
    assert_int_equal(2 * needs[1].weights - needs[0].weights, (uint64_t)whole * size);
    assert_true(needs[1].memory < needs[0].memory);
    /* Half the cache, for one. */
    uint64_t cache = (uint64_t)(c->n_layers * 2 * c->n_kv_heads * c->head_dim * tiny.n) * 4;
    assert_true(needs[0].memory - needs[1].memory >= cache / 2);
    dpe_plan_free(&plan);
    tiny_close(&tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_models_give_the_logits_of_whole_ones),
        cmocka_unit_test(masks_and_factors_are_cut_by_heads),
        cmocka_unit_test(one_stops_all),
        cmocka_unit_test(one_without_memory_stops_all),
        cmocka_unit_test(what_cannot_be_shared_is_refused),
        cmocka_unit_test(selections_are_shared_or_refused),
        cmocka_unit_test(estimates_are_of_the_slice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
