/* dpe-eval kld: the same texts under a base and under methods, token by token. */
#include "engine/session/device.h"
#include "eval/compare/kld.h"
#include "eval/tool/comparison.h"
#include "outputs/h5/h5.h"
#include "outputs/job/price.h"
#include "outputs/read/read.h"
#include "outputs/words/words.h"

#include <string.h>

static const char task_name[] = "kld";

/* Everything that is needed, in the order in which it is opened. */
struct kld {
    struct dpe_comparison comparison; /* first, for what takes one: job, methods and their plans, at
                                         one length; no suites */
    struct dpe_model *model;          /* --base-model, or NULL */
    const struct dpe_model *of;       /* of the base: that, or the job's */
    struct dpe_tokenizer *tokenizer;  /* of it */
    struct dpe_plan plan;             /* the base's */
    char key[33];
    const char *device; /* that the base runs on */
    struct dpe_task texts;
    int64_t n_texts, length;     /* texts of so many tokens */
    struct dpe_session *base;    /* NULL until it is needed */
    struct dpe_kld_saved *saved; /* of --save-base, or NULL */
};

static const char *base_path(const struct kld *kld)
{
    const struct dpe_eval_arguments *args = kld->comparison.args;
    return args->base_model != NULL ? args->base_model : args->job.model;
}

/* -------------------------------------------------------------------------------------- opening */

/* Another file must mean the same by a logit's place, and cut texts into the same tokens. */
static dpe_status check_base(const struct kld *kld, struct dpe_error *err)
{
    const struct dpe_eval_arguments *args = kld->comparison.args;
    const struct dpe_job *job = &kld->comparison.job;
    const int64_t vocab = dpe_model_config(job->model)->vocab;
    const int64_t base_vocab = dpe_model_config(kld->model)->vocab;
    DPE_SCOPED(dpe_task_close) struct dpe_task texts = {0};
    int64_t skipped = 0;
    if (vocab != base_vocab) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: expected a vocabulary of %lld tokens as --model has, found %lld",
                        args->base_model, (long long)vocab, (long long)base_vocab);
    }
    DPE_TRY(dpe_task_ppl(task_name, job->corpus, kld->tokenizer, kld->length, args->special, &texts,
                         &skipped, err));
    for (int64_t s = 0; s < kld->n_texts; s++) {
        const int32_t *ids = dpe_task_ppl_tokens(&kld->texts, s);
        const int32_t *base = s < texts.n_samples ? dpe_task_ppl_tokens(&texts, s) : NULL;
        int64_t at = 0;
        while (at < kld->length && base != NULL && base[at] == ids[at]) {
            at++;
        }
        if (at < kld->length) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "%s: its tokenizer is another than that of --model: text %lld differs "
                            "at token %lld; distributions can be compared for the same tokens only",
                            args->base_model, (long long)s, (long long)at);
        }
    }
    return DPE_OK;
}

static dpe_status open_base(struct kld *kld, struct dpe_error *err)
{
    const struct dpe_eval_arguments *args = kld->comparison.args;
    const struct dpe_job *job = &kld->comparison.job;
    kld->of = job->model;
    if (args->base_model != NULL) {
        const struct dpe_model_options options = {.trained_length = args->job.trained_length};
        DPE_TRY(dpe_model_open(args->base_model, &options, &kld->model, err));
        kld->of = kld->model;
        DPE_TRY(dpe_tokenizer_open(args->base_model, &kld->tokenizer, err));
        DPE_TRY(check_base(kld, err));
    }
    const bool same = args->base_dtype == EVAL_BASE_SAME || strncmp(job->device, "cpu", 3) != 0;
    kld->device = same ? job->device : args->base_dtype == EVAL_BASE_BF16 ? "cpu-bf16" : "cpu";
    if (args->base_dtype == EVAL_BASE_BF16 &&
        dpe_device_dtype(kld->device, dpe_model_config(kld->of)) != DPE_BF16) {
        return dpe_fail(err, DPE_USAGE,
                        "--base-dtype bf16: expected a device that multiplies the base in bf16, "
                        "as cpu does, found %s",
                        job->device);
    }
    struct dpe_plan_context context = dpe_job_context(job, kld->length);
    context.config = dpe_model_config(kld->of);
    context.official = args->official;
    const char *fingerprint = args->other_model ? NULL : dpe_model_fingerprint(kld->of);
    dpe_status status =
        dpe_plan_asked(NULL, args->base, &context, fingerprint, &kld->plan, NULL, err);
    return status == DPE_OK ? dpe_plan_key(&kld->plan, kld->key, err)
                            : dpe_fail_prefix(err, "--base");
}

static dpe_status open_saved(struct kld *kld, struct dpe_error *err)
{
    const struct dpe_eval_arguments *args = kld->comparison.args;
    const struct dpe_kld_saved_name name = {
        .vocab = dpe_model_config(kld->of)->vocab,
        .length = kld->length,
        .plan = kld->key,
        .model = dpe_model_fingerprint(kld->of),
        .device = kld->device,
        .kv_type = dpe_kv_type_names[args->base_kv],
    };
    return args->save_base == NULL || args->job.dry_run
               ? DPE_OK
               : dpe_kld_saved_open(args->save_base, &name, &kld->saved, err);
}

static dpe_status check_arguments(const struct kld *kld, struct dpe_error *err)
{
    enum { MOST_LENGTH = (1 << 20) / DPE_KLD_NUMBERS };
    const struct dpe_eval_arguments *args = kld->comparison.args;
    if (args->job.engine != NULL || args->job.tensor_parallel > 1) {
        return dpe_fail(err, DPE_USAGE, "kld compares logits, which %s does not hand over",
                        args->job.engine != NULL ? "--engine" : "--tensor-parallel");
    }
    if (args->n_lengths != 1 || args->lengths[0] < 2 || args->lengths[0] > MOST_LENGTH) {
        return dpe_fail(
            err, DPE_USAGE,
            "--length: expected one length of 2 to %d tokens, found %d lengths%s; results "
            "are told by position",
            (int)MOST_LENGTH, args->n_lengths, args->n_lengths == 1 ? " outside of it" : "");
    }
    return DPE_OK;
}

static dpe_status kld_open(void *state, const void *asked, struct dpe_error *err)
{
    struct kld *kld = state;
    struct dpe_comparison *comparison = &kld->comparison;
    const struct dpe_eval_arguments *args = asked;
    int64_t skipped = 0;
    comparison->args = args;
    DPE_TRY(check_arguments(kld, err));
    DPE_TRY(dpe_job_open(&comparison->job, &args->job, false, err));
    kld->length = comparison->lengths[0] = args->lengths[0];
    comparison->n_lengths = 1;
    DPE_TRY(dpe_eval_comparison_methods(comparison, err));
    DPE_TRY(dpe_eval_comparison_plans(comparison, err));
    DPE_TRY(dpe_task_ppl(task_name, comparison->job.corpus, comparison->job.tokenizer, kld->length,
                         args->special, &kld->texts, &skipped, err));
    kld->n_texts = dpe_least(args->job.samples, kld->texts.n_samples);
    DPE_TRY(open_base(kld, err));
    return open_saved(kld, err);
}

static dpe_status kld_close(void *state, dpe_status status, struct dpe_error *err)
{
    struct kld *kld = state;
    dpe_kld_saved_close(kld->saved);
    dpe_session_destroy(kld->base);
    dpe_plan_free(&kld->plan);
    dpe_task_close(&kld->texts);
    dpe_tokenizer_close(kld->tokenizer);
    dpe_model_close(kld->model);
    return dpe_eval_comparison_close(&kld->comparison, status, err);
}

/* ------------------------------------------------------------------------------------- results */

/* The tokens of a method's texts, borrowed from the run; NULL where a row is missing or not finite.
 */
static void find_texts(const struct kld *kld, int method, const struct dpe_kld_token **texts)
{
    for (int64_t s = 0; s < kld->n_texts; s++) {
        const struct dpe_row *row =
            dpe_run_find(kld->comparison.job.run, kld->texts.name, kld->comparison.keys[method], s);
        bool there = row != NULL && row->status == DPE_ROW_OK;
        texts[s] = there ? (const struct dpe_kld_token *)(const void *)row->buckets : NULL;
    }
}

static dpe_status fill_cells(const struct kld *kld, const struct dpe_kld_token **texts,
                             struct dpe_kld_result *result, struct dpe_error *err)
{
    const int64_t n = kld->length - 1;
    const int64_t buckets = result->n[DPE_KLD_POSITION];
    for (int m = 0; m < kld->comparison.n_methods; m++) {
        find_texts(kld, m, texts);
        result->plan[m] = kld->comparison.keys[m];
        DPE_TRY(dpe_kld_summarize(texts, kld->n_texts, n, 1, n + 1, &result->whole[m], err));
        for (int64_t b = 0; b < buckets; b++) {
            result->position[b] = INT64_C(1) << b;
            DPE_TRY(dpe_kld_summarize(texts, kld->n_texts, n, INT64_C(1) << b, INT64_C(2) << b,
                                      &result->at[m * buckets + b], err));
        }
    }
    return DPE_OK;
}

/* Arrays of the results. */
static const char made[] = "position plan n_tokens position_n_tokens";

static void drop_result(struct dpe_kld_result *result)
{
    dpe_datasets_drop(&dpe_kld_kind, result, made);
}

/* The results of the rows so far, which are to be dropped after failures too, and what keeping the
 * base changed. */
static dpe_status result_of(const struct kld *kld, struct dpe_kld_result *result,
                            struct dpe_kld_rounding *rounding, struct dpe_error *err)
{
    *result =
        (struct dpe_kld_result){.n = {kld->comparison.n_methods, dpe_kld_buckets(kld->length - 1)},
                                .method = kld->comparison.labels};
    DPE_OWNED const struct dpe_kld_token **texts = NULL;
    DPE_TRY(dpe_datasets_make(&dpe_kld_kind, result, made, err));
    DPE_TRY(DPE_NEW(&texts, (size_t)kld->n_texts, err, "out of memory for results"));
    DPE_TRY(dpe_kld_saved_rounding(kld->saved, kld->n_texts, rounding, err));
    return fill_cells(kld, texts, result, err);
}

/* dpe_run_fill */
static dpe_status kld_fill(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    const struct kld *kld = user;
    const struct dpe_eval_arguments *args = kld->comparison.args;
    const char *const texts[][2] = {
        {"base", args->base},
        {"base_plan", kld->key},
        {"base_model", base_path(kld)},
        {"base_device", kld->device},
        {"base_kv_cache_dtype", dpe_kv_type_names[args->base_kv]},
    };
    DPE_SCOPED(drop_result) struct dpe_kld_result result = {0};
    struct dpe_kld_rounding rounding;
    DPE_TRY(result_of(kld, &result, &rounding, err));
    dpe_datasets_put(&dpe_kld_kind, &result, "/kld", table);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        dpe_h5_attr_text(table, "/kld", texts[i][0], texts[i][1]);
    }
    dpe_h5_attr_f64(table, "/kld", "base_rounding_mean", rounding.mean);
    dpe_h5_attr_f64(table, "/kld", "base_rounding_max", rounding.most);
    dpe_h5_attr_i64(table, "/kld", "length", kld->length);
    dpe_h5_attr_i64(table, "/kld", "trained_length", kld->comparison.job.trained_length);
    dpe_h5_attr_text(table, "/", "title", "Divergence of the next token from a base's");
    return dpe_h5_failed(table, err);
}

/* ----------------------------------------------------------------------------------------- text */

static dpe_status print_result(const struct kld *kld, const struct dpe_kld_result *result,
                               struct dpe_error *err)
{
    const struct dpe_eval_arguments *args = kld->comparison.args;
    struct dpe_result *out = dpe_result_begin("dpe-eval kld");
    dpe_result_text(out, "model", args->job.model);
    dpe_result_text(out, "base", args->base);
    dpe_result_text(out, "base_model", base_path(kld));
    dpe_result_whole(out, "length", kld->length);
    dpe_result_text(out, "table", args->job.output);
    dpe_datasets_rows(&dpe_kld_kind, result, "method", "methods", out);
    dpe_datasets_rows(&dpe_kld_kind, result, "method position", "positions", out);
    return dpe_result_print(out, err);
}

static dpe_status kld_print(void *state, struct dpe_error *err)
{
    const struct kld *kld = state;
    DPE_SCOPED(drop_result) struct dpe_kld_result result = {0};
    struct dpe_kld_rounding rounding;
    DPE_TRY(result_of(kld, &result, &rounding, err));
    if (kld->comparison.args->job.json) {
        return print_result(kld, &result, err);
    }
    const struct dpe_kld_words of = {
        .base = kld->comparison.args->base,
        .length = kld->length,
        .trained = kld->model != NULL ? dpe_config_trained(dpe_model_config(kld->model))
                                      : kld->comparison.job.trained_length};
    struct dpe_page page = {.printed = true};
    dpe_words_kld(&page, &result, &of);
    if (kld->saved != NULL) {
        dpe_page_say(&page, BLOCK_NOTE,
                     "The base is kept in %s: a divergence of %.3g from what was computed, at most "
                     "%.3g.",
                     kld->comparison.args->save_base, rounding.mean, rounding.most);
    }
    dpe_page_print(&page, false);
    return DPE_OK;
}

/* ----------------------------------------------------------------------------------------- rows */

static dpe_status base_session(struct kld *kld, struct dpe_error *err)
{
    struct dpe_session_options options = dpe_job_session_options(&kld->comparison.job, kld->length);
    options.device = kld->device;
    options.kv_type = kld->comparison.args->base_kv;
    if (dpe_session_create(kld->of, &kld->plan, &options, &kld->base, err) != DPE_OK) {
        return dpe_fail_prefix(err, "the base's session");
    }
    dpe_session_set_poll(kld->base, dpe_signals_poll, NULL);
    return DPE_OK;
}

/* Whether the base is the method itself: by the same plan of the same model on the same device.
 * Such a text is read once, and nothing is kept of it. */
static bool is_base(const struct kld *kld, int plan)
{
    const struct dpe_job *job = &kld->comparison.job;
    return strcmp(kld->comparison.keys[plan], kld->key) == 0 && kld->model == NULL &&
           kld->saved == NULL && strcmp(kld->device, job->device) == 0 &&
           kld->comparison.args->base_kv == job->options->tool.kv_type;
}

/* The tokens of the item's text under its plan and under the base. */
static dpe_status read_text(struct kld *kld, const struct dpe_item *item,
                            struct dpe_session *session, struct dpe_kld_token *tokens,
                            struct dpe_error *err)
{
    const int32_t *ids = dpe_task_ppl_tokens(&kld->texts, item->sample);
    const bool once = is_base(kld, item->plan);
    bool there = once;
    if (kld->saved != NULL) {
        DPE_TRY(dpe_kld_saved_has(kld->saved, item->sample, ids, &there, err));
    }
    if (!there && kld->base == NULL) {
        DPE_TRY(base_session(kld, err));
    }
    const struct dpe_kld_base base = {once ? session : kld->base, kld->saved, item->sample};
    return dpe_kld_read(&base, session, dpe_model_config(kld->of)->vocab, ids, kld->length, tokens,
                        err);
}

/* A row of the item; the job makes one at a time. Values that are not finite are recorded in it. */
static dpe_status make_rows(void *user, const struct dpe_job_rows *part, int64_t one,
                            struct dpe_error *err)
{
    (void)one;
    struct kld *kld = user;
    const struct dpe_item *item = part->items;
    struct dpe_row *row = part->rows;
    const int64_t n = kld->length - 1;
    const double begin = dpe_clock();
    DPE_OWNED struct dpe_kld_token *tokens = NULL;
    memcpy(row->task, task_name, sizeof task_name);
    snprintf(row->plan, sizeof row->plan, "%s", part->key);
    row->sample = item->sample;
    row->seed = kld->comparison.args->job.seed;
    row->prompt_tokens = kld->length;
    DPE_TRY(
        DPE_NEW(&tokens, (size_t)n, err, "out of memory for a row of %lld tokens", (long long)n));
    dpe_status status = read_text(kld, item, part->session, tokens, err);
    if (status == DPE_OK) {
        row->n_tokens = n;
        row->nll_sum = 0.0;
        for (int64_t i = 0; i < n; i++) {
            row->nll_sum += tokens[i].nll;
        }
        row->buckets = (double *)tokens;
        row->n_buckets = (int32_t)(n * DPE_KLD_NUMBERS);
        tokens = NULL;
    } else if (status == DPE_NONFINITE) {
        row->status = DPE_ROW_NONFINITE;
        row->layer = err != NULL ? err->layer : -1;
        row->position = err != NULL ? err->position : -1;
        status = DPE_OK;
    }
    row->seconds = dpe_clock() - begin;
    return status;
}

static dpe_status run_rows(void *state, struct dpe_error *err)
{
    struct kld *kld = state;
    struct dpe_wanted wanted = {0};
    const struct dpe_work how = {.name = task_name,
                                 .capacity = kld->length,
                                 .user = kld,
                                 .rows = make_rows,
                                 .fill = kld_fill};
    dpe_wanted_task(&wanted, task_name, kld->length, 1.0);
    dpe_eval_want_plans(&kld->comparison, &wanted);
    for (int64_t s = 0; s < kld->n_texts; s++) {
        for (int p = 0; p < kld->comparison.n_plans; p++) {
            dpe_wanted_rows(&wanted, 0, p, s, 1);
        }
    }
    return dpe_wanted_run(&wanted, &kld->comparison.job, &how, err);
}

static dpe_status start(void *state, struct dpe_error *err)
{
    struct kld *kld = state;
    struct dpe_job *job = &kld->comparison.job;
    const struct dpe_eval_arguments *args = kld->comparison.args;
    const char *const fields[][2] = {
        {"base_plan", kld->key},
        {"base_model", dpe_model_fingerprint(kld->of)},
        {"base_device", kld->device},
        {"base_kv_cache_dtype", dpe_kv_type_names[args->base_kv]},
        {"base_kept", args->save_base != NULL ? "16 bits" : "as computed"},
        {"special_in_text", dpe_special_names[args->special]},
    };
    const struct dpe_job_identity own = {.kind = task_name,
                                         .own = fields,
                                         .n_own = sizeof fields / sizeof fields[0],
                                         .length_name = "length",
                                         .length = kld->length};
    DPE_TRY(dpe_job_start(job, &own, dpe_eval_largest_plan(&kld->comparison), kld->length, err));
    for (int m = 0; m < kld->comparison.n_methods; m++) {
        DPE_TRY(
            dpe_run_plan(job->run, kld->comparison.keys[m], kld->comparison.plans[m].name, err));
    }
    DPE_TRY(dpe_run_plan(job->run, kld->key, kld->plan.name, err));
    if (!job->options->silent) {
        dpe_job_header(job);
    }
    return DPE_OK;
}

/* ---------------------------------------------------------------------------------------- price */

static dpe_status kld_cost(void *state, struct dpe_bill *sum, struct dpe_error *err)
{
    const struct kld *kld = state;
    const struct dpe_job *job = &kld->comparison.job;
    const struct dpe_plan *plan = dpe_eval_largest_plan(&kld->comparison);
    const struct dpe_config *config = dpe_model_config(job->model);
    const bool once = kld->comparison.args->save_base != NULL;
    const bool print = !job->options->silent;
    const double rows = (double)(kld->n_texts * kld->comparison.n_plans);
    double readings = once ? 1.0 : 0.0; /* of a text */
    struct dpe_job_speed speed = {0};
    struct dpe_price price;
    struct dpe_bill bill = {0};
    dpe_status status = dpe_job_check_plan(job, plan, kld->length, err);
    if (status != DPE_OK || (!print && sum == NULL)) {
        return status;
    }
    for (int p = 0; p < kld->comparison.n_plans; p++) {
        readings += once || is_base(kld, p) ? 1.0 : 2.0;
    }
    dpe_price_text(config, kld->length, readings / kld->comparison.n_plans, true, &price);
    if (print) {
        struct dpe_bill untimed = {0};
        dpe_print("kld              %lld texts of %lld tokens under %d methods and the base\n",
                  (long long)kld->n_texts, (long long)kld->length, kld->comparison.n_plans);
        dpe_bill_add(&untimed, &price, rows, rows, &plan->selection, &speed);
        dpe_bill_print(&untimed);
        status = dpe_price_print_memory(job, plan, kld->length, "twice ", err);
    }
    if (print && once) {
        char bytes[32];
        int64_t text = dpe_kld_saved_bytes(dpe_model_config(kld->of)->vocab, kld->length);
        dpe_print("--save-base      %s\n",
                  dpe_format_bytes((uint64_t)(text * kld->n_texts), bytes));
    }
    dpe_bill_measure(&bill, job, plan, kld->length, &speed);
    dpe_bill_add(&bill, &price, rows, rows, &plan->selection, &speed);
    if (print) {
        dpe_bill_print_time(&bill);
    }
    dpe_bill_sum(sum, &bill);
    return status;
}

const struct dpe_study dpe_eval_kld_study = {
    .size = sizeof(struct kld),
    .job = offsetof(struct kld, comparison.job),
    .open = kld_open,
    .cost = kld_cost,
    .start = start,
    .rows = run_rows,
    .fill = kld_fill,
    .print = kld_print,
    .suggest = dpe_eval_suggest,
    .close = kld_close,
};
