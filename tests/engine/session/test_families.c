/* The families beyond Llama's under position plans: every backend agrees with the reference, and a
 * plan moves the layers that it holds for and no other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/ops/ops_host.h"
#include "engine/plan/methods/methods.h"
#include "engine/session/device.h"
#include "tests/lib/near.h"
#include "tests/lib/tiny.h"

static const char *const folders[] = {
    "qwen3",        "qwen3_windows", "phi3",
    "phi3_short",   "olmo2",         "granite",
    "smollm3",      "glm4",          "ministral3",
    "mistral3",     "gemma2",        "gemma3",
    "olmo3",        "qwen3_moe",     "gpt_oss",
    "nsa",          "glm4_moe",      "glm4_moe_one_group",
    "minimax_m2",   "seed_oss",      "ernie4_5",
    "exaone4",      "hunyuan",       "hunyuan_tied",
    "llama4_moves", "gemma4_alike",  "gemma4_experts",
};
enum { N_FOLDERS = sizeof folders / sizeof folders[0] };

static struct tiny open_family(const char *name)
{
    char path[96];
    snprintf(path, sizeof path, "families/%s", name);
    return tiny_open(path);
}

/* ---------------------------------------------------------------------------- backends agree */

static struct dpe_session *session_of(const struct tiny *tiny, const struct dpe_plan *plan,
                                      const char *device)
{
    const struct dpe_session_options options = {.device = device,
                                                .n_threads = 2,
                                                .capacity = 2 * tiny->n,
                                                .positions = tiny->n,
                                                .branches = 3,
                                                .prefill_chunk = 16};
    struct dpe_session *session = NULL;
    struct dpe_error err = {0};
    TINY_OK(dpe_session_create(tiny->model, plan, &options, &session, &err), err);
    return session;
}

/* Likelihoods of all tokens, then logits after a prefix and a few tokens of three branches. */
static void compute(struct dpe_session *session, const struct tiny *tiny, double *nll,
                    float *logits)
{
    struct dpe_error err = {0};
    const int64_t branches[3] = {0, 1, 2};
    TINY_OK(dpe_session_nll(session, tiny->tokens, tiny->n, nll, &err), err);
    TINY_OK(dpe_session_cut(session, 0, &err), err);
    TINY_OK(dpe_session_feed(session, tiny->tokens, 20, NULL, &err), err);
    TINY_OK(dpe_session_branch(session, 3, 8, &err), err);
    for (int step = 0; step < 6; step++) {
        TINY_OK(dpe_session_step(session, 3, branches, tiny->tokens + 20 + step, logits, &err),
                err);
    }
}

static void check_plan(const struct tiny *tiny, const char *name, const char *spec, bool masked)
{
    enum { VOCAB = 64 };
    double nll[2][64] = {{0}};
    float logits[2][3 * VOCAB];
    double want[3 * VOCAB];
    struct dpe_plan plan = tiny_plan(tiny, spec, tiny->n);
    if (masked) {
        tiny_mask(&plan);
    }
    assert_int_equal(tiny->config->vocab, VOCAB);
    const char *const devices[] = {"reference", "cpu"};
    for (int d = 0; d < 2; d++) {
        struct dpe_session *session = session_of(tiny, &plan, devices[d]);
        compute(session, tiny, nll[d], logits[d]);
        dpe_session_destroy(session);
    }
    for (int64_t i = 0; i < tiny->n - 1; i++) {
        if (!(fabs(nll[0][i] - nll[1][i]) < 2e-4)) {
            fail_msg("%s under %s: token %lld: %g and %g", name, spec, (long long)i, nll[0][i],
                     nll[1][i]);
        }
    }
    for (int i = 0; i < 3 * VOCAB; i++) {
        want[i] = (double)logits[0][i];
    }
    assert_int_equal(near_f32(name, logits[1], want, 3 * VOCAB, 1e-3), 0);
    dpe_plan_free(&plan);
}

static void backends_agree_under_plans(void **state)
{
    (void)state;
    for (int i = 0; i < N_FOLDERS; i++) {
        struct tiny tiny = open_family(folders[i]);
        check_plan(&tiny, folders[i], "rope", false);
        check_plan(&tiny, folders[i], "dpe:window=6,scales=2/5,log-n=16", true);
        check_plan(&tiny, folders[i], "dca:chunk=11,local=3", false);
        check_plan(&tiny, folders[i], "yarn:scale=3", false);
        tiny_close(&tiny);
    }
}

/* --------------------------------------------------------------------- which layers are moved */

enum { MOST_LAYERS = 8, WIDTH = 64 };

struct seen {
    const struct dpe_config *config;
    float q[MOST_LAYERS][64][WIDTH];
};

static dpe_status keep_q(void *user, int64_t layer, int64_t start, int64_t rows, const float *q,
                         const float *k, struct dpe_error *err)
{
    (void)k, (void)err;
    struct seen *seen = user;
    const int64_t width = seen->config->n_heads * dpe_config_head_dim(seen->config, layer);
    for (int64_t r = 0; r < rows; r++) {
        memcpy(seen->q[layer][start + r], q + r * width, (size_t)width * sizeof *q);
    }
    return DPE_OK;
}

static void run_seen(const struct tiny *tiny, const char *spec, const char *device,
                     struct seen *seen)
{
    struct dpe_error err = {0};
    struct dpe_plan plan = tiny_plan(tiny, spec, tiny->n);
    struct dpe_session *session = session_of(tiny, &plan, device);
    memset(seen, 0, sizeof *seen);
    seen->config = tiny->config;
    assert_true(dpe_config_most_queries(tiny->config) <= WIDTH &&
                tiny->config->n_layers <= MOST_LAYERS);
    dpe_session_set_tap(session, keep_q, seen);
    TINY_OK(dpe_session_feed(session, tiny->tokens, tiny->n, NULL, &err), err);
    dpe_session_destroy(session);
    dpe_plan_free(&plan);
}

/* The queries of a layer depend on the layers before it: they are the same bits under two plans up
 * to the first layer that a plan moves, itself included, and others after it. */
static void check_moved(const char *name, int64_t first_moved, const char *device)
{
    static struct seen plain;
    static struct seen moved;
    struct tiny tiny = open_family(name);
    run_seen(&tiny, "rope", device, &plain);
    run_seen(&tiny, "rerope:window=5,official=0", device, &moved);
    for (int64_t layer = 0; layer < tiny.config->n_layers; layer++) {
        bool same = memcmp(plain.q[layer], moved.q[layer], sizeof plain.q[layer]) == 0;
        if (same != (layer <= first_moved)) {
            fail_msg("%s on %s: the queries of layer %lld are %s", name, device, (long long)layer,
                     same ? "the same" : "not the same");
        }
        if (layer < first_moved) {
            assert_false(dpe_config_moves(tiny.config, layer));
        }
    }
    assert_true(dpe_config_moves(tiny.config, first_moved));
    tiny_close(&tiny);
}

static void a_plan_moves_its_layers_alone(void **state)
{
    (void)state;
    const char *const devices[] = {"reference", "cpu"};
    for (int d = 0; d < 2; d++) {
        check_moved("qwen3", 0, devices[d]);
        check_moved("smollm3", 0, devices[d]);
        check_moved("gemma2", 1, devices[d]);
        check_moved("gpt_oss", 1, devices[d]);
        check_moved("gemma3", 2, devices[d]);
        check_moved("olmo3", 3, devices[d]);
    }
}

/* -------------------------------------------------------------- pairs that do not rotate */

static void groups_are_made_of_the_pairs_that_rotate(void **state)
{
    (void)state;
    struct tiny tiny = open_family("phi3");
    struct dpe_error err = {0};
    int32_t edges[4];
    assert_int_equal(tiny.config->head_dim, 16);
    assert_int_equal(dpe_config_pairs(tiny.config), 6);
    TINY_OK(dpe_plan_model_edges(tiny.config, 3, edges, &err), err);
    const int32_t want[4] = {0, 2, 4, 8};
    assert_memory_equal(edges, want, sizeof want);
    assert_int_equal(dpe_plan_model_edges(tiny.config, 7, edges, &err), DPE_USAGE);
    struct dpe_plan plan = tiny_plan(&tiny, "dpe:window=6,groups=3,scales=2", tiny.n);
    assert_int_equal(plan.n_still, 2);
    for (int64_t j = 0; j < plan.n_pairs; j++) {
        assert_true((plan.inv_freq[j] > 0.0) == (j < 6));
    }
    char before[65];
    char after[65];
    TINY_OK(dpe_plan_digest(&plan, before, &err), err);
    plan.inv_freq[7] = 0.5;
    assert_int_equal(dpe_plan_check(&plan, &err), DPE_USAGE);
    assert_non_null(strstr(err.text, "pair 7: expected no frequency"));
    plan.inv_freq[7] = 0.0;
    plan.attention_cap = 5.0;
    TINY_OK(dpe_plan_digest(&plan, after, &err), err);
    assert_string_not_equal(before, after);
    dpe_plan_free(&plan);
    tiny_close(&tiny);
}

/* A model that chooses its keys has no room for another choice, and no plan without its own. */
static void a_model_with_branches_chooses_itself(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "select:k=2", "select:over=yarn", "infllm",     "longheads",
        "moba",       "reattention",      "minference", "vertical-slash"};
    struct tiny tiny = open_family("nsa");
    struct dpe_error err = {0};
    struct dpe_plan plan;
    struct dpe_plan_context context = {.config = tiny.config, .trained_length = 16, .length = 64};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        assert_int_equal(dpe_plan_make(specs[i], &context, &plan, &err), DPE_USAGE);
        assert_non_null(strstr(err.text, "the model chooses the keys that a query meets itself"));
    }
    context.select = "k=2,block=4";
    assert_int_equal(dpe_plan_make("rope", &context, &plan, &err), DPE_USAGE);
    const int32_t edges[] = {0, 4};
    const double scale[] = {2.0};
    const struct dpe_dpe_params params = {
        .window = 4, .n_groups = 1, .edges = edges, .scale = scale};
    assert_int_equal(dpe_plan_make_dpe(&params, &context, &plan, &err), DPE_USAGE);
    context.select = NULL;
    TINY_OK(dpe_plan_make_dpe(&params, &context, &plan, &err), err);
    assert_int_equal(plan.selection.representative, DPE_REPRESENT_COMPRESSED);
    assert_int_equal(plan.selection.k, 6);
    plan.selection.block = 0;
    struct dpe_session *session = NULL;
    const struct dpe_session_options options = {.device = "cpu", .capacity = 64};
    assert_int_equal(dpe_session_create(tiny.model, &plan, &options, &session, &err), DPE_USAGE);
    assert_non_null(strstr(err.text, "chooses keys itself"));
    dpe_plan_free(&plan);
    tiny_close(&tiny);
}

/* What processes cannot share says so; what they can gives the same session sizes everywhere. */
static void what_processes_cannot_share_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *folder, *words;
    } rows[] = {{"qwen3_moe", "experts"},
                {"gpt_oss", "experts"},
                {"glm4_moe", "experts"},
                {"olmo2", "norms over all heads"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tiny tiny = open_family(rows[i].folder);
        struct dpe_error err = {0};
        struct dpe_session_needs needs = {0};
        const struct dpe_peers two = {.size = 2, .index = 0};
        const struct dpe_session_options options = {.capacity = 16, .peers = &two};
        struct dpe_plan plan = tiny_plan(&tiny, "rope", 16);
        assert_int_equal(dpe_session_estimate(tiny.config, &plan, &options, &needs, &err),
                         DPE_USAGE);
        assert_non_null(strstr(err.text, rows[i].words));
        assert_non_null(strstr(err.text, tiny.config->model_type));
        dpe_plan_free(&plan);
        tiny_close(&tiny);
    }
}

/* -------------------------------------------------------- no layer that sees all keys rotates */

static void a_temperature_is_what_is_left(void **state)
{
    (void)state;
    static const char *const still[] = {"cohere2", "exaone4_windows", "llama4", "llama4_wide",
                                        "gemma4"};
    static struct seen plain;
    static struct seen heated;
    for (size_t i = 0; i < sizeof still / sizeof still[0]; i++) {
        struct tiny tiny = open_family(still[i]);
        struct dpe_plan plan;
        struct dpe_error err = {0};
        const struct dpe_plan_context context = {
            .config = tiny.config, .trained_length = 16, .length = tiny.n, .official = true};
        assert_true(dpe_config_still(tiny.config));
        check_plan(&tiny, still[i], "rope", false);
        check_plan(&tiny, still[i], "rope:log-n=16,log-n-power=2", false);
        assert_int_equal(dpe_plan_make("dca:chunk=11,local=3", &context, &plan, &err), DPE_USAGE);
        assert_non_null(strstr(err.text, "rope:log-n=16"));
        assert_int_equal(dpe_plan_make("dpe:window=4", &context, &plan, &err), DPE_USAGE);
        static const char *const formulas[] = {"dpe", "rope:log-n=16,log-n-power=0.7",
                                               "dpe:logit-scale=1.2",
                                               "rope:log-n=16,log-n-power=0.7,logit-scale=1.2"};
        char keys[4][33];
        for (int f = 0; f < 4; f++) {
            TINY_OK(dpe_plan_make(formulas[f], &context, &plan, &err), err);
            TINY_OK(dpe_plan_key(&plan, keys[f], &err), err);
            dpe_plan_free(&plan);
        }
        assert_string_equal(keys[0], keys[1]);
        assert_string_equal(keys[2], keys[3]);
        assert_string_not_equal(keys[0], keys[2]);
        tiny_close(&tiny);
        tiny = open_family(still[i]);
        run_seen(&tiny, "rope", "cpu", &plain);
        run_seen(&tiny, "rope:log-n=16", "cpu", &heated);
        bool before = true;
        for (int64_t layer = 0; layer < tiny.config->n_layers; layer++) {
            const bool same = memcmp(plain.q[layer], heated.q[layer], sizeof plain.q[layer]) == 0;
            assert_true(same == before);
            before = before && !dpe_config_moves(tiny.config, layer);
        }
        tiny_close(&tiny);
    }
}

/* ---------------------------------------------------------------------------- experts together */

/* Likelihoods of a text whose rows fill several batches of experts, of many rows and of few. */
static void likelihoods(const struct dpe_model *model, const char *device, int threads, int64_t n,
                        double *nll)
{
    struct dpe_error err = {0};
    const struct dpe_config *config = dpe_model_config(model);
    const struct dpe_plan_context context = {
        .config = config, .trained_length = 128, .length = n, .official = true};
    const struct dpe_session_options options = {
        .device = device, .n_threads = threads, .capacity = n, .prefill_chunk = 256};
    struct dpe_plan plan;
    struct dpe_session *session = NULL;
    int32_t tokens[400];
    for (int64_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)((i * i + 7 * i) % config->vocab);
    }
    TINY_OK(dpe_plan_make("rope", &context, &plan, &err), err);
    TINY_OK(dpe_session_create(model, &plan, &options, &session, &err), err);
    TINY_OK(dpe_session_nll(session, tokens, n, nll, &err), err);
    dpe_session_destroy(session);
    dpe_plan_free(&plan);
}

static void experts_run_together(void **state)
{
    enum { N = 400 };
    (void)state;
    const struct dpe_router routers[] = {
        {0}, {.sigmoid = true, .shifted = true, .groups = 4, .of_these = 2, .scale = 1.5}};
    for (int i = 0; i < 2; i++) {
        struct dpe_config config = TINY_LLAMA(32, 64);
        struct dpe_model *model = NULL;
        struct dpe_error err = {0};
        double nll[4][N];
        config.n_experts = 40;
        config.experts_per_token = 5;
        config.expert_width = 24;
        config.shared_width = i * 40;
        config.dense_layers = i;
        config.n_layers = 3;
        config.experts_normalised = i == 0;
        config.router = routers[i];
        TINY_OK(dpe_random_model(&config, true, 3, &model, &err), err);
        likelihoods(model, "reference", 1, N, nll[3]);
        for (int threads = 1; threads <= 3; threads++) {
            likelihoods(model, "cpu", threads, N, nll[threads - 1]);
        }
        assert_memory_equal(nll[0], nll[1], (N - 1) * sizeof nll[0][0]);
        assert_memory_equal(nll[0], nll[2], (N - 1) * sizeof nll[0][0]);
        for (int64_t t = 0; t < N - 1; t++) {
            assert_true(fabs(nll[0][t] - nll[3][t]) < 1e-3);
        }
        dpe_model_close(model);
    }
}

static float *random_floats(int64_t n, struct dpe_rng *rng)
{
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)(2.0 * dpe_rng_unit(rng) - 1.0);
    }
    return x;
}

/* A gate a row is what one thread makes of it, whatever the threads and the rows. */
static void a_gate_a_row_has_the_same_bits_from_all_threads(void **state)
{
    (void)state;
    enum { ROWS = 601, EACH = 37 };
    struct tiny tiny = tiny_open("families/qwen3_5_moe");
    struct dpe_error err = {0};
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 9, 1);
    float *out = random_floats((int64_t)ROWS * EACH, &rng);
    float *gate = random_floats(ROWS, &rng);
    float *got = random_floats((int64_t)ROWS * EACH, &rng);
    const struct dpe_ops *ops = NULL;
    TINY_OK(dpe_ops_find("cpu", &ops, &err), err);
    for (int threads = 1; threads < 5; threads++) {
        const struct dpe_session_options options = {
            .device = "cpu", .n_threads = threads, .capacity = 16, .prefill_chunk = 16};
        struct dpe_backend *backend = NULL;
        TINY_OK(ops->open(tiny.model, &options, &backend, &err), err);
        for (int64_t rows = 1; rows <= ROWS; rows += 200) {
            memcpy(got, out, sizeof *out * ROWS * EACH);
            ops->output_gate(backend, got, gate, rows, EACH);
            for (int64_t i = 0; i < (int64_t)ROWS * EACH; i++) {
                const float by = 1.0F / (1.0F + expf(-gate[i / EACH]));
                assert_true(got[i] == (i < rows * EACH ? out[i] * by : out[i]));
            }
        }
        ops->close(backend);
    }
    free(got);
    free(gate);
    free(out);
    tiny_close(&tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backends_agree_under_plans),
        cmocka_unit_test(a_plan_moves_its_layers_alone),
        cmocka_unit_test(groups_are_made_of_the_pairs_that_rotate),
        cmocka_unit_test(a_model_with_branches_chooses_itself),
        cmocka_unit_test(what_processes_cannot_share_is_named),
        cmocka_unit_test(experts_run_together),
        cmocka_unit_test(a_temperature_is_what_is_left),
        cmocka_unit_test(a_gate_a_row_has_the_same_bits_from_all_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
