/* The engine with files as input and output, for the tests of the Python adapter (adapter_core.py
 * and golden/adapter_transformers.py). Numbers are raw, as on the machine.
 * - check TABLE: exit 0, or the reason and 65.
 * - attention TABLE LAYER IN OUT: reference attention of one layer. IN: q
 *   [tokens][heads][dim], then k and v [kv heads][tokens][dim]; OUT: [tokens][heads][dim].
 * - method MODEL SPEC LENGTH LAYER IN OUT: the same under a method by name, for the shape of a
 * model.
 * - logits MODEL TABLE IN OUT: IN: int32 tokens; OUT: logits [tokens][vocab] of tokens fed one by
 *   one, then those of the last token when all are fed at once.
 * - rotation MODEL LENGTH: the model's fingerprint; of the layers that a plan moves the attention
 * scaling, then the frequency of each pair, one a line.
 * - niah MODEL TABLE CORPUS LENGTH N: four lines for each needle sample: recall and max_new; then
 *   "prompt", "generated" and their ids, "reference" and the values sought. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/ops/ops.h"
#include "engine/ops/options.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"
#include "engine/session/session.h"
#include "engine/tokenizer/tokenizer.h"
#include "eval/niah/niah.h"
#include "eval/task/task.h"
#include "outputs/read/read.h"
#include "outputs/table/dpe_table.h"

/* The plan of a table for a model; frequencies and logit factor are the table's own. */
static dpe_status make_plan(const struct dpe_table_values *values, const struct dpe_config *config,
                            struct dpe_plan *plan, struct dpe_error *err)
{
    const struct dpe_plan_context context = {
        .config = config, .trained_length = values->trained_length, .length = values->length};
    const struct dpe_temperature temperature = dpe_table_temperature(values);
    const struct dpe_dpe_params params = {
        .window = values->window,
        .n_groups = (int)values->n_groups,
        .edges = values->group_edge,
        .scale = values->scale_factor,
        .mask = values->mask,
        .unrounded = values->unrounded != 0,
        .inv_freq = values->applied_inv_freq,
        .temperature = &temperature,
    };
    if (values->n_bands > 0) {
        struct dpe_table_values banded = *values;
        banded.logit_scale *= values->attention_scaling * values->attention_scaling;
        banded.attention_scaling = 1.0; /* the model's */
        return dpe_plan_of_table(&banded, &context, plan, err);
    }
    const double *inv_freq =
        values->applied_inv_freq != NULL ? values->applied_inv_freq : values->inv_freq;
    dpe_status status = dpe_plan_make_dpe(&params, &context, plan, err);
    if (status == DPE_OK) {
        memcpy(plan->inv_freq, inv_freq, (size_t)values->n_pairs * sizeof(double));
        plan->temperature.logit_scale =
            temperature.logit_scale * values->attention_scaling * values->attention_scaling;
    }
    return status;
}

static dpe_status write_file(const char *path, const void *data, size_t size, struct dpe_error *err)
{
    FILE *file = fopen(path, "wb");
    bool good = file != NULL && fwrite(data, 1, size, file) == size;
    good = file != NULL && fclose(file) == 0 && good;
    return good ? DPE_OK : dpe_fail(err, DPE_IO, "%s: cannot be written", path);
}

/* One call of the reference under a plan, inputs read. */
static dpe_status attend(const struct dpe_plan *plan, const struct dpe_config *config,
                         const struct dpe_attention *args, const char *out, struct dpe_error *err)
{
    struct dpe_attention call = *args;
    const struct dpe_ops *ops = dpe_ops_reference();
    size_t bytes = (size_t)(call.rows * call.n_heads * call.head_dim) * sizeof(float);
    struct dpe_rotation rotation = {0};
    dpe_status status = dpe_rotation_make(plan, call.capacity, 1, &rotation, err);
    call.plan = plan;
    call.rotation = &rotation;
    call.out = dpe_alloc_zero(bytes, 1);
    call.workspace =
        dpe_alloc(ops->attention_workspace(config, plan, call.capacity, call.rows, 1), 1);
    if (status == DPE_OK && (call.out == NULL || call.workspace == NULL)) {
        status = dpe_fail(err, DPE_NO_MEMORY, "out of memory");
    }
    if (status == DPE_OK) {
        ops->attention(NULL, &call, 1);
        status = write_file(out, call.out, bytes, err);
    }
    free(call.out);
    free(call.workspace);
    dpe_rotation_free(&rotation);
    return status;
}

/* What the forward pass does to queries before attention. */
static void scale_heads(const struct dpe_plan *plan, const struct dpe_config *config, int64_t layer,
                        int64_t tokens, float *q)
{
    for (int64_t i = 0; i < tokens * config->n_heads; i++) {
        const double factor = dpe_temperature_head(&plan->temperature, layer, i % config->n_heads);
        for (int64_t j = 0; j < config->head_dim; j++) {
            q[i * config->head_dim + j] *= (float)factor;
        }
    }
}

/* args: LAYER IN OUT. */
static dpe_status run_plan(const struct dpe_plan *plan, const struct dpe_config *config,
                           char **args, struct dpe_error *err)
{
    char *input = NULL;
    size_t n = 0;
    dpe_status status = dpe_read_file(args[1], UINT64_C(1) << 30, &input, &n, err);
    if (status != DPE_OK) {
        return status;
    }
    size_t heads = (size_t)(config->n_heads + 2 * config->n_kv_heads);
    size_t row = heads * (size_t)config->head_dim * sizeof(float);
    int64_t tokens = (int64_t)(n / row);
    float *data = dpe_alloc(n, 1);
    if (data == NULL || tokens < 1 || n % row != 0) {
        status = dpe_fail(err, DPE_BAD_DATA, "%s: expected a multiple of %zu bytes, found %zu",
                          args[1], row, n);
    } else {
        memcpy(data, input, n);
        scale_heads(plan, config, strtol(args[0], NULL, 10), tokens, data);
        const struct dpe_attention call = {
            .layer = strtol(args[0], NULL, 10),
            .rows = tokens,
            .n_heads = config->n_heads,
            .n_kv_heads = config->n_kv_heads,
            .head_dim = config->head_dim,
            .capacity = tokens,
            .q = data,
            .k = data + tokens * config->n_heads * config->head_dim,
            .v = data + tokens * (config->n_heads + config->n_kv_heads) * config->head_dim,
            .n_threads = 1,
        };
        status = attend(plan, config, &call, args[2], err);
    }
    free(data);
    free(input);
    return status;
}

static dpe_status run_attention(const struct dpe_table_values *values, char **args,
                                struct dpe_error *err)
{
    const struct dpe_config config = {
        .model_type = "llama",
        .n_layers = values->n_layers,
        .n_heads = values->n_heads,
        .n_kv_heads = values->n_kv_heads,
        .head_dim = values->head_dim,
        .max_position = values->trained_length,
        .rope = {.theta = 10000.0, .partial_rotary_factor = 1.0},
    };
    struct dpe_plan plan = {0};
    dpe_status status = make_plan(values, &config, &plan, err);
    status = status == DPE_OK ? run_plan(&plan, &config, args, err) : status;
    dpe_plan_free(&plan);
    return status;
}

/* args: SPEC LENGTH LAYER IN OUT. */
static dpe_status run_method(const struct dpe_model *model, char **args, struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(model);
    const struct dpe_plan_context context = {.config = config,
                                             .trained_length = config->max_position,
                                             .length = strtol(args[1], NULL, 10),
                                             .official = true};
    struct dpe_plan plan = {0};
    dpe_status status = dpe_plan_make(args[0], &context, &plan, err);
    status = status == DPE_OK ? run_plan(&plan, config, args + 2, err) : status;
    dpe_plan_free(&plan);
    return status;
}

/* Under the entry for `capacity` tokens, or as the model is. */
static dpe_status open_session(const struct dpe_model *model, const struct dpe_table *table,
                               int64_t capacity, struct dpe_session **session,
                               struct dpe_error *err)
{
    struct dpe_plan plan = {0};
    const struct dpe_config *config = dpe_model_config(model);
    const struct dpe_table *entry = dpe_table_choose(table, capacity);
    const struct dpe_plan_context native = {
        .config = config, .trained_length = config->max_position, .length = capacity};
    dpe_status status = entry != NULL ? make_plan(dpe_table_values(entry), config, &plan, err)
                                      : dpe_plan_make("rope", &native, &plan, err);
    if (status != DPE_OK) {
        return status;
    }
    const struct dpe_session_options options = {.capacity = capacity, .n_threads = 1};
    status = dpe_session_create(model, &plan, &options, session, err);
    dpe_plan_free(&plan);
    return status;
}

static dpe_status run_logits(const struct dpe_table *table, const struct dpe_model *model,
                             char **args, struct dpe_error *err)
{
    char *input = NULL;
    size_t bytes = 0;
    dpe_status status = dpe_read_file(args[0], 1 << 20, &input, &bytes, err);
    if (status != DPE_OK) {
        return status;
    }
    int64_t n = (int64_t)(bytes / sizeof(int32_t));
    size_t vocab = (size_t)dpe_model_config(model)->vocab;
    int32_t *tokens = dpe_alloc(bytes, 1);
    float *logits = dpe_alloc((size_t)(n + 1) * vocab, sizeof *logits);
    struct dpe_session *session = NULL;
    if (tokens == NULL || logits == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "out of memory");
    } else {
        memcpy(tokens, input, bytes);
        status = open_session(model, table, n, &session, err);
    }
    for (int64_t i = 0; i < n && status == DPE_OK; i++) {
        status = dpe_session_feed(session, tokens + i, 1, logits + (size_t)i * vocab, err);
    }
    if (status == DPE_OK) {
        status = dpe_session_cut(session, 0, err);
    }
    if (status == DPE_OK) {
        status = dpe_session_feed(session, tokens, n, logits + (size_t)n * vocab, err);
    }
    if (status == DPE_OK) {
        status = write_file(args[1], logits, (size_t)(n + 1) * vocab * sizeof *logits, err);
    }
    dpe_session_destroy(session);
    free(logits);
    free(tokens);
    free(input);
    return status;
}

static dpe_status print_rotation(const struct dpe_model *model, int64_t length,
                                 struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(model);
    double scaling = 1.0;
    double *inv_freq = dpe_alloc((size_t)config->head_dim / 2, sizeof *inv_freq);
    dpe_status status = inv_freq != NULL ? dpe_rope_native(config, length, inv_freq, &scaling, err)
                                         : dpe_fail(err, DPE_NO_MEMORY, "out of memory");
    if (status == DPE_OK) {
        printf("%s\n%.17g\n", dpe_model_fingerprint(model), scaling);
        for (int64_t j = 0; j < config->head_dim / 2; j++) {
            printf("%.17g\n", inv_freq[j]);
        }
    }
    free(inv_freq);
    return status;
}

static void print_ids(const char *name, const struct dpe_tokens *tokens)
{
    printf("%s", name);
    for (size_t i = 0; i < tokens->n; i++) {
        printf(" %d", tokens->ids[i]);
    }
    printf("\n");
}

static dpe_status needle(struct dpe_session *session, const struct dpe_tokenizer *tokenizer,
                         const struct dpe_niah *niah, int64_t index, struct dpe_error *err)
{
    struct dpe_sample sample = {0};
    struct dpe_tokens generated = {0};
    struct dpe_text text = {0};
    dpe_status status = dpe_niah_sample(niah, index, &sample, err);
    const struct dpe_generate_options options = {.max_new = sample.max_new};
    if (status == DPE_OK) {
        status = dpe_session_cut(session, 0, err);
    }
    if (status == DPE_OK) {
        status = dpe_session_generate(session, sample.prompt.ids, (int64_t)sample.prompt.n,
                                      &options, &generated, err);
    }
    if (status == DPE_OK) {
        status = dpe_tokenizer_decode(tokenizer, generated.ids, generated.n, true, &text, err);
    }
    if (status == DPE_OK) {
        const char *bytes = text.bytes != NULL ? text.bytes : "";
        printf("%.6f %lld\n", dpe_recall(bytes, sample.references, sample.n_references),
               (long long)sample.max_new);
        print_ids("prompt", &sample.prompt);
        print_ids("generated", &generated);
        printf("reference");
        for (size_t i = 0; i < sample.n_references; i++) {
            printf(" %s", sample.references[i]);
        }
        printf("\n");
    }
    dpe_text_free(&text);
    dpe_tokens_free(&generated);
    dpe_sample_free(&sample);
    return status;
}

static dpe_status run_niah(const struct dpe_table *table, const struct dpe_model *model,
                           char **args, struct dpe_error *err)
{
    int64_t length = strtol(args[1], NULL, 10);
    struct dpe_niah_params params;
    struct dpe_corpus *corpus = NULL;
    struct dpe_tokenizer *tokenizer = NULL;
    struct dpe_niah *niah = NULL;
    struct dpe_session *session = NULL;
    dpe_niah_defaults(&params);
    params.repeat_haystack = true;
    params.special = DPE_SPECIAL_LITERAL;
    dpe_status status = dpe_corpus_open(args[0], &corpus, err);
    if (status == DPE_OK) {
        status = dpe_tokenizer_open(dpe_model_folder(model), &tokenizer, err);
    }
    if (status == DPE_OK) {
        status = dpe_niah_open(&params, length, corpus, tokenizer, NULL, 1, &niah, err);
    }
    if (status == DPE_OK) {
        status = open_session(model, table, length, &session, err);
    }
    for (int64_t i = 0; i < strtol(args[2], NULL, 10) && status == DPE_OK; i++) {
        status = needle(session, tokenizer, niah, i, err);
    }
    dpe_session_destroy(session);
    dpe_niah_close(niah);
    dpe_tokenizer_close(tokenizer);
    dpe_corpus_close(corpus);
    return status;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 2 ? argv[1] : "";
    bool check = strcmp(mode, "check") == 0 && argc == 3;
    bool attention = strcmp(mode, "attention") == 0 && argc == 6;
    bool logits = strcmp(mode, "logits") == 0 && argc == 6;
    bool niah = strcmp(mode, "niah") == 0 && argc == 7;
    bool rotation = strcmp(mode, "rotation") == 0 && argc == 4;
    bool method = strcmp(mode, "method") == 0 && argc == 8;
    if (!check && !attention && !logits && !niah && !rotation && !method) {
        fprintf(stderr, "usage: see the top of adapter_probe.c\n");
        return DPE_USAGE;
    }
    char why[DPE_TABLE_MESSAGE] = "";
    struct dpe_error err = {0};
    struct dpe_table *table = NULL;
    struct dpe_model *model = NULL;
    dpe_status status = DPE_OK;
    if (!rotation && !method &&
        dpe_table_open(argv[logits || niah ? 3 : 2], &table, why) != DPE_TABLE_OK) {
        status = dpe_fail(&err, DPE_BAD_DATA, "%s", why);
    }
    if (status == DPE_OK && (logits || niah || rotation || method)) {
        status = dpe_model_open(argv[2], NULL, &model, &err);
    }
    const struct dpe_table_values *values = table != NULL ? dpe_table_values(table) : NULL;
    if (status == DPE_OK && attention) {
        status = run_attention(values, argv + 3, &err);
    } else if (status == DPE_OK && logits) {
        status = run_logits(table, model, argv + 4, &err);
    } else if (status == DPE_OK && niah) {
        status = run_niah(table, model, argv + 4, &err);
    } else if (status == DPE_OK && method) {
        status = run_method(model, argv + 3, &err);
    } else if (status == DPE_OK && rotation) {
        status = print_rotation(model, strtol(argv[3], NULL, 10), &err);
    }
    if (status != DPE_OK) {
        fprintf(stderr, "%s\n", err.text);
    }
    dpe_model_close(model);
    dpe_table_close(table);
    return dpe_exit_code(status);
}
