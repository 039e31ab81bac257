/* Every way of a device, and every item of its test, in a text for people who do not have the
 * device. */
#include "engine/model/config/family.h"
#include "engine/model/model.h"
#include "engine/plan/methods/methods.h"
#include "engine/session/device.h"
#include "engine/session/device_check.h"
#include "engine/session/ladder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct report {
    const struct dpe_ops *ops;
    struct dpe_session_options options;
    int64_t tokens;
    struct dpe_text *text;
    int n_tests, n_bad;
};

/* ---------------------------------------------------------------------------------- the kinds */

/* What models have, as families do; the first three are tested in all ways. */
static const struct kind {
    const char *family;
    enum dpe_dtype dtype;
    int64_t head_dim, window;
    double cap;
    int64_t rotary, experts, block;
    uint32_t weights; /* types of blocks */
    double growth;    /* of queries */
    int rope;         /* of the second kind of layers */
    enum dpe_activation activation;
    enum dpe_qk_norm norm;
    const char *select;
    struct dpe_router router;
    int64_t state;  /* numbers of a key and of a value */
    int64_t beside; /* head dimension of the second kind of layers; 0: the same */
} kinds[] = {
    {"llama", DPE_BF16, 128},
    {"llama", DPE_F16, 64},
    {"llama", DPE_F32, 128},
    {"phi3", DPE_BF16, 96},
    {"gemma2", DPE_BF16, 256, 4096, .cap = 50.0, .activation = DPE_GEGLU_TANH},
    {"gemma3_text", DPE_BF16, 256, 1024, .rope = 1, .activation = DPE_GEGLU_TANH,
     .norm = DPE_QK_NORM_HEAD},
    {"gemma4_text", DPE_BF16, 512, 1024, .rope = 1, .activation = DPE_GEGLU_TANH,
     .norm = DPE_QK_NORM_HEAD, .beside = 256},
    {"gpt_oss", DPE_BF16, 64, 128, .experts = 32, .activation = DPE_SWIGLU_CLAMPED},
    {"qwen3_moe", DPE_BF16, 128, .experts = 128, .norm = DPE_QK_NORM_HEAD},
    {"glm4", DPE_BF16, 128, .rotary = 64},
    {"glm4_moe", DPE_BF16, 128, .rotary = 64, .experts = 128,
     .router = {.sigmoid = true, .shifted = true, .groups = 8, .of_these = 4, .scale = 2.5}},
    {"qwen3_5_text", DPE_BF16, 256, .rotary = 64, .norm = DPE_QK_NORM_HEAD, .state = 128},
    {"olmo2", DPE_BF16, 128, .norm = DPE_QK_NORM_WHOLE},
    {"smollm3", DPE_BF16, 128, .rope = -1},
    {"llama", DPE_F32, 128, .weights = 1U << DPE_Q4_0 | 1U << DPE_Q4_K | 1U << DPE_Q6_K},
    {"mistral3", DPE_BF16, 128, .growth = 0.1},
    {"nsa", DPE_BF16, 128, 512, .block = 64},
    {"llama", DPE_BF16, 128, .select = "moba:block=512,k=3"},
    {"llama", DPE_BF16, 128, .select = "infllm"},
    {"llama", DPE_BF16, 128, .select = "longheads"},
    {"llama", DPE_BF16, 128, .select = "vertical-slash"},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0], IN_ALL_WAYS = 3 };

static struct dpe_config config_of(const struct kind *kind, uint8_t layers[])
{
    const struct dpe_family *family = dpe_family_find(kind->family);
    struct dpe_config c;
    (void)dpe_known_shape("llama3-8b", &c);
    c.family = family;
    c.dtype = kind->dtype;
    c.head_dim = kind->head_dim;
    c.rotary_dim = kind->rotary;
    c.blocks = kind->weights;
    c.query_growth = kind->growth;
    c.query_length = 8192.0;
    c.activation = kind->activation;
    c.qk_norm = kind->norm;
    c.attention_cap = c.logit_cap = kind->cap;
    c.sinks = family->sinks;
    c.qkv_bias = c.o_bias = family->sinks;
    c.n_experts = kind->experts;
    c.experts_per_token = kind->experts > 0 ? 4 : 0;
    c.expert_width = c.intermediate;
    c.router = kind->router;
    if (family->shared) {
        c.shared_width = c.intermediate;
        c.dense_layers = 1;
    }
    c.experts_normalised = true;
    c.local_rope = c.rope;
    c.branches = kind->block > 0;
    c.selection = dpe_selection_compressed(kind->block, 16);
    if (kind->window > 0 || kind->rope != 0) {
        c.n_kinds = 2;
        c.kinds[1] = (struct dpe_layer_kind){kind->window, kind->rope};
        c.layer_kinds = c.branches ? NULL : layers;
    }
    if (kind->beside > 0) { /* as Gemma 4 has them */
        c.kinds[1].head_dim = kind->beside;
        c.kinds[1].kv_heads = 2 * c.n_kv_heads;
        c.value_norms = true;
    }
    if (kind->state > 0) {
        c.n_kinds = 2;
        c.kinds[1] = (struct dpe_layer_kind){.recurrent = true};
        c.layer_kinds = layers;
        c.output_gate = true;
        c.recurrent = (struct dpe_recurrent){.key_heads = 16,
                                             .value_heads = 32,
                                             .key_dim = kind->state,
                                             .value_dim = kind->state,
                                             .width = 4,
                                             .eps = 1e-6};
    }
    return c;
}

/* ---------------------------------------------------------------------------------- the tests */

static void say_ways(struct report *r, const struct dpe_ladder *l, const struct dpe_ways *ways)
{
    for (int part = 0; part < DPE_WAY_PARTS; part++) {
        const char *name = l->names[part][ways->way[part]];
        dpe_text_put(r->text, "%s%s", part > 0 ? " " : "  ", name != NULL ? name : "-");
    }
}

static void say_result(struct report *r, const struct dpe_device_request *request,
                       const struct dpe_device_result *result)
{
    static const char *const words[] = {"right", "WRONG", "FAILS", "HANGS", "untested"};
    double worst = 0.0;
    r->n_tests++;
    r->n_bad += result->outcome != DPE_DEVICE_RIGHT;
    for (int i = 0; i < DPE_DEVICE_PLANS * DPE_QUESTIONS; i++) {
        const double rms = result->rms[i / DPE_QUESTIONS][i % DPE_QUESTIONS];
        worst = rms > worst ? rms : worst;
    }
    dpe_text_put(r->text, ": %s", words[result->outcome]);
    if (result->outcome == DPE_DEVICE_RIGHT) {
        dpe_text_put(r->text, ", differences up to %.2g of %.2g%s%s\n", worst, result->most,
                     result->code[0] != '\0' ? ", " : "", result->code);
        return;
    }
    dpe_text_put(r->text, "%s\n    %s\n", result->needs_reset ? " (the card needs a reset)" : "",
                 result->text);
    dpe_text_put(
        r->text,
        "    shapes: %lld tokens in chunks of %lld, hidden %lld, %lld heads of %lld on %lld; %s\n",
        (long long)request->tokens, (long long)(request->tokens * 3 / 4),
        (long long)request->config.hidden, (long long)request->config.n_heads,
        (long long)request->config.head_dim, (long long)request->config.n_kv_heads,
        result->code[0] != '\0' ? result->code : "code not known");
    for (int plan = 0; plan < DPE_DEVICE_PLANS && result->outcome == DPE_DEVICE_WRONG; plan++) {
        for (int q = 0; q < DPE_QUESTIONS; q++) {
            if (!isnan(result->rms[plan][q])) {
                dpe_text_put(r->text, "    %s under %.40s: %.2g\n", dpe_device_questions[q],
                             result->plans[plan], result->rms[plan][q]);
            }
        }
    }
}

/* Each way of each part beside those that the ladder found. */
static void report_all_ways(struct report *r, struct dpe_device_request *request,
                            const struct dpe_ladder *l)
{
    for (int part = 0; part < DPE_WAY_PARTS && !l->last.needs_reset; part++) {
        for (int way = 0; l->names[part][way] != NULL; way++) {
            struct dpe_device_result result;
            if (way == l->ways.way[part]) {
                continue;
            }
            request->ways = l->ways;
            request->ways.way[part] = (uint8_t)way;
            request->plan = DPE_DEVICE_ALL;
            dpe_device_test_apart(request, &result);
            say_ways(r, l, &request->ways);
            say_result(r, request, &result);
        }
    }
}

static void report_request(struct report *r, struct dpe_device_request *request, bool in_all_ways)
{
    char text[512];
    struct dpe_ladder l;
    dpe_device_kind(request, text);
    dpe_text_put(r->text, "\n%s\n", text);
    dpe_ladder_descend(&l, request, r->ops);
    for (int i = 0; i < l.n_steps; i++) {
        const struct dpe_device_step *step = &l.steps[i];
        dpe_text_put(r->text, "  %s is left out, %s is used: %s\n", l.names[step->part][step->from],
                     l.names[step->part][step->to], step->why.text);
    }
    say_ways(r, &l, &l.ways);
    say_result(r, request, &l.last);
    if (in_all_ways) {
        report_all_ways(r, request, &l);
    }
}

static void report_kind(struct report *r, const struct dpe_config *config,
                        const struct dpe_selection *selection, bool in_all_ways)
{
    struct dpe_device_request request;
    if (dpe_device_chooses(config, selection) && dpe_config_unpacked(config) != DPE_F32) {
        dpe_device_request_make(config, &r->options, selection, r->tokens, true, &request);
        report_request(r, &request, false);
    }
    dpe_device_request_make(config, &r->options, selection, r->tokens, false, &request);
    report_request(r, &request, in_all_ways);
}

/* ---------------------------------------------------------------------------------- the device */

static void say_device(struct report *r, const struct dpe_device_info *info)
{
    static const char *const variables[] = {"DPE_CUDA_ATTENTION", "DPE_CUDA_GRAPHS",
                                            "DPE_CUDA_MODULE", "CUDA_VISIBLE_DEVICES"};
    char line[256] = "";
    FILE *file = fopen("/proc/driver/nvidia/version", "re");
    if (file != NULL) {
        (void)!fgets(line, sizeof line, file);
        line[strcspn(line, "\n")] = '\0';
        fclose(file);
    }
    dpe_text_put(
        r->text,
        "%s: test of a device\n\ncard: %s (%s)\ndriver: for CUDA %s; %s\nmodule: SHA-256 %s\n",
        dpe_version(), info->name, info->id, info->driver,
        line[0] != '\0' ? line : "its own version is not known",
        info->module[0] != '\0' ? info->module : "not known");
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *value = getenv(variables[i]);
        if (value != NULL && value[0] != '\0') {
            dpe_text_put(r->text, "%s=%.200s\n", variables[i], value);
        }
    }
    dpe_text_put(r->text, "\nEach line has the ways of %s, then what came of them.\n",
                 "attention, parts, decoding, products of few rows, steps");
}

static dpe_status report_kinds(struct report *r, struct dpe_error *err)
{
    for (int i = 0; i < N_KINDS; i++) {
        uint8_t layers[128] = {0};
        const struct dpe_config config = config_of(&kinds[i], layers);
        const struct dpe_plan_context context = {
            .config = &config, .trained_length = 8192, .length = 131072};
        DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
        if (kinds[i].select != NULL) {
            DPE_TRY(dpe_plan_make(kinds[i].select, &context, &plan, err));
        }
        report_kind(r, &config, &plan.selection, i < IN_ALL_WAYS);
    }
    return DPE_OK;
}

dpe_status dpe_device_report(const struct dpe_config *config, const char *device, int n_threads,
                             struct dpe_text *text, int *n_bad, struct dpe_error *err)
{
    struct dpe_device_info info;
    struct report r = {.options = {.device = device, .n_threads = n_threads}, .text = text};
    DPE_TRY(dpe_device_describe(device, &info, err));
    DPE_TRY(dpe_ops_find(device, &r.ops, err));
    if (r.ops->self_test_tokens == 0) {
        return dpe_fail(err, DPE_USAGE, "device %s has no kernels to choose from: expected cuda",
                        device);
    }
    r.tokens = r.ops->self_test_tokens;
    DPE_TRY(dpe_device_tokens(&r.tokens, err));
    if (r.tokens == 0) {
        return dpe_fail(
            err, DPE_USAGE,
            "DPE_DEVICE_SELF_TEST: expected a number of tokens for a report, found off");
    }
    say_device(&r, &info);
    if (config != NULL) {
        dpe_text_put(text, "\nThe model at hand:\n");
        report_kind(&r, config, NULL, true);
    } else {
        DPE_TRY(report_kinds(&r, err));
    }
    dpe_text_put(text, "\n%d tests, %d of them not right\n", r.n_tests, r.n_bad);
    *n_bad = r.n_bad;
    return dpe_text_done(text, err);
}
