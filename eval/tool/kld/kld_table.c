/* What dpe-eval kld found: its table, and what it prints. */
#include "eval/tool/kld/eval_kld.h"
#include "outputs/h5/h5.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void result_free(struct dpe_kld_result *result)
{
    free(result->position);
    free(result->plan);
    free(result->whole);
    free(result->at);
}

/* The tokens of a method's texts, borrowed from the run; NULL where a row is missing or not finite.
 */
static void find_texts(const struct dpe_kld *kld, int method, const struct dpe_kld_token **texts)
{
    for (int64_t s = 0; s < kld->n_texts; s++) {
        const struct dpe_row *row =
            dpe_run_find(kld->comparison.job.run, kld->texts.name, kld->comparison.keys[method], s);
        bool there = row != NULL && row->status == DPE_ROW_OK;
        texts[s] = there ? (const struct dpe_kld_token *)(const void *)row->buckets : NULL;
    }
}

static dpe_status fill_cells(const struct dpe_kld *kld, const struct dpe_kld_token **texts,
                             struct dpe_kld_result *result, struct dpe_error *err)
{
    const uint64_t seed = kld->comparison.args->job.seed;
    const int64_t n = kld->length - 1;
    const int64_t buckets = result->n[DPE_KLD_POSITION];
    for (int m = 0; m < kld->comparison.n_methods; m++) {
        find_texts(kld, m, texts);
        result->plan[m] = kld->comparison.keys[m];
        DPE_TRY(dpe_kld_summarize(texts, kld->n_texts, n, 1, n + 1, seed, &result->whole[m], err));
        for (int64_t b = 0; b < buckets; b++) {
            result->position[b] = INT64_C(1) << b;
            DPE_TRY(dpe_kld_summarize(texts, kld->n_texts, n, INT64_C(1) << b, INT64_C(2) << b,
                                      seed, &result->at[m * buckets + b], err));
        }
    }
    return DPE_OK;
}

/* The results of the rows so far; to be freed after failures too. */
static dpe_status result_of(const struct dpe_kld *kld, struct dpe_kld_result *result,
                            struct dpe_error *err)
{
    const size_t methods = (size_t)kld->comparison.n_methods;
    const int64_t buckets = dpe_kld_buckets(kld->length - 1);
    const struct dpe_kld_token **texts = dpe_alloc((size_t)kld->n_texts, sizeof *texts);
    *result =
        (struct dpe_kld_result){.n = {kld->comparison.n_methods, buckets},
                                .method = kld->comparison.labels,
                                .position = dpe_alloc((size_t)buckets, sizeof *result->position),
                                .plan = dpe_alloc(methods, sizeof *result->plan),
                                .whole = dpe_alloc(methods, sizeof *result->whole),
                                .at = dpe_alloc(methods, (size_t)buckets * sizeof *result->at)};
    dpe_status status = texts != NULL && result->position != NULL && result->plan != NULL &&
                                result->whole != NULL && result->at != NULL
                            ? fill_cells(kld, texts, result, err)
                            : dpe_fail(err, DPE_NO_MEMORY, "out of memory for results");
    free(texts);
    return status;
}

dpe_status dpe_kld_fill(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    const struct dpe_kld *kld = user;
    const struct dpe_eval_arguments *args = kld->comparison.args;
    struct dpe_kld_result result;
    dpe_status status = result_of(kld, &result, err);
    if (status == DPE_OK) {
        status = dpe_datasets_put(&dpe_kld_kind, &result, "/kld", table, err);
    }
    result_free(&result);
    const char *const texts[][2] = {
        {"base", args->base != NULL ? args->base : "rope"},
        {"base_plan", kld->key},
        {"base_model", args->base_model != NULL ? args->base_model : args->job.model},
        {"base_device", kld->device},
        {"base_kv_cache_dtype", dpe_kv_type_names[args->base_kv]},
    };
    DPE_TRY(status);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        DPE_TRY(dpe_h5_attr_text(table, "/kld", texts[i][0], texts[i][1], err));
    }
    struct dpe_kld_rounding rounding = {0};
    if (kld->saved != NULL) {
        DPE_TRY(dpe_kld_saved_rounding(kld->saved, kld->n_texts, &rounding, err));
    }
    DPE_TRY(dpe_h5_attr_f64(table, "/kld", "base_rounding_mean", rounding.mean, err));
    DPE_TRY(dpe_h5_attr_f64(table, "/kld", "base_rounding_max", rounding.most, err));
    DPE_TRY(dpe_h5_attr_i64(table, "/kld", "length", kld->length, err));
    DPE_TRY(
        dpe_h5_attr_i64(table, "/kld", "trained_length", kld->comparison.job.trained_length, err));
    return dpe_h5_attr_text(table, "/", "title", "Divergence of the next token from a base's", err);
}

/* ------------------------------------------------------------------------------------------- text
 */

static void print_cell(const struct dpe_kld_cell *cell)
{
    dpe_print("%10.3g%10.3g%10.3g%10.3g%8.2f %%%8.2f %%%10.4f\n", cell->mean.mean, cell->median,
              cell->p99, cell->most, 100.0 * cell->same_top, 100.0 * cell->change_rms,
              cell->ratio.mean);
}

/* Of one text there is none. */
static void print_interval(const struct dpe_interval *interval)
{
    if (isfinite(interval->low)) {
        dpe_print(" [%.4g, %.4g]", interval->low, interval->high);
    }
}

static void print_text(const struct dpe_kld *kld, const struct dpe_kld_result *result)
{
    const struct dpe_eval_arguments *args = kld->comparison.args;
    const int64_t buckets = result->n[DPE_KLD_POSITION];
    dpe_print("KL(base, method) of the next token in nats; base: %s of %s on %s\n",
              args->base != NULL ? args->base : "rope",
              args->base_model != NULL ? args->base_model : args->job.model, kld->device);
    for (int64_t m = 0; m < result->n[DPE_KLD_METHOD]; m++) {
        const struct dpe_kld_cell *whole = &result->whole[m];
        dpe_print("\n%s: mean %.4g", result->method[m], whole->mean.mean);
        print_interval(&whole->mean);
        dpe_print(" over %lld text%s, %lld tokens;\n  perplexity %.4f of the base's",
                  (long long)whole->mean.n, whole->mean.n == 1 ? "" : "s", (long long)whole->n,
                  whole->ratio.mean);
        print_interval(&whole->ratio);
        dpe_print("\n");
        dpe_print("%-8s%10s%10s%10s%10s%10s%10s%10s\n", "position", "mean", "median", "99 %", "max",
                  "same top", "RMS dp", "ppl");
        for (int64_t b = 0; b < buckets; b++) {
            dpe_print("%-8lld", (long long)result->position[b]);
            print_cell(&result->at[m * buckets + b]);
        }
        dpe_print("%-8s", "all");
        print_cell(whole);
    }
    const int64_t trained = kld->model != NULL ? dpe_config_trained(dpe_model_config(kld->model))
                                               : kld->comparison.job.trained_length;
    if (kld->length > trained && (args->base == NULL || strcmp(args->base, "rope") == 0)) {
        dpe_print(
            "\nBeyond position %lld, the trained length, the base is no yardstick:\n"
            "  unchanged, the model may fail there, and what differs from it may be better.\n",
            (long long)trained);
    }
}

static dpe_status print_result(const struct dpe_kld *kld, const struct dpe_kld_result *result,
                               struct dpe_error *err)
{
    const struct dpe_eval_arguments *args = kld->comparison.args;
    struct dpe_result *out = dpe_result_begin("dpe-eval kld");
    dpe_result_text(out, "model", args->job.model);
    dpe_result_text(out, "base", args->base != NULL ? args->base : "rope");
    dpe_result_text(out, "base_model",
                    args->base_model != NULL ? args->base_model : args->job.model);
    dpe_result_whole(out, "length", kld->length);
    dpe_result_text(out, "table", args->job.output);
    dpe_datasets_rows(&dpe_kld_kind, result, "method", "methods", out);
    dpe_datasets_rows(&dpe_kld_kind, result, "method position", "positions", out);
    return dpe_result_print(out, args->job.result, err);
}

dpe_status dpe_kld_print(void *state, struct dpe_error *err)
{
    const struct dpe_kld *kld = state;
    struct dpe_kld_result result;
    struct dpe_kld_rounding rounding = {0};
    dpe_status status = result_of(kld, &result, err);
    if (status == DPE_OK && kld->saved != NULL) {
        status = dpe_kld_saved_rounding(kld->saved, kld->n_texts, &rounding, err);
    }
    if (status == DPE_OK && kld->comparison.args->job.result != DPE_RESULT_TEXT) {
        status = print_result(kld, &result, err);
    } else if (status == DPE_OK) {
        print_text(kld, &result);
        if (kld->saved != NULL) {
            dpe_print(
                "\nthe base is kept in %s: a divergence of %.3g from what was computed, at most "
                "%.3g\n",
                kld->comparison.args->save_base, rounding.mean, rounding.most);
        }
    }
    result_free(&result);
    return status;
}
