/* What a calibration reads from its finished tables, and says. --top-k auto: the number of key
 * pairs, from the table that dpe-eval made of each. Its end: what the model finds without and with
 * the table, whether a plain method does as well, and how to see it. Everything is read from
 * check.h5 and the longest sweep.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "detect/calibrate/calibrate_tool.h"
#include "eval/task/stats.h"
#include "outputs/datasets/kinds.h"
#include "outputs/datasets/worth.h"
#include "outputs/h5/h5.h"
#include "outputs/h5/rows.h"
#include "outputs/words/words.h"

/* The table, as far as it is read: a step is a method of the suite's only task. */
struct ablation {
    struct dpe_ablate_result steps;
    struct dpe_suite_result suite;
};

static void ablation_free(struct ablation *ablation)
{
    dpe_datasets_free(&dpe_ablate_kind, &ablation->steps);
    dpe_datasets_free(&dpe_suite_kinds[0], &ablation->suite);
}

static dpe_status read_steps(struct dpe_h5 *table, const char *suite, struct ablation *ablation,
                             struct dpe_error *err)
{
    int64_t complete = 0;
    DPE_TRY(dpe_h5_get_attr_i64(table, "/", "complete", &complete, err));
    if (complete != 1) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "expected a finished table, found samples missing; run the same command "
                        "to finish it");
    }
    DPE_TRY(dpe_datasets_get(&dpe_ablate_kind, &ablation->steps, "/ablate", "axis k", table, err));
    DPE_TRY(dpe_datasets_get(&dpe_suite_kinds[0], &ablation->suite, suite, "score", table, err));
    return ablation->suite.score != NULL && ablation->suite.n[DPE_SUITE_TASK] == 1
               ? DPE_OK
               : dpe_fail(err, DPE_BAD_DATA, "expected scores of one task of an ablation");
}

/* The step that moves the k pairs that contribute most; NULL: there is none. */
static const double *scores_of(const struct ablation *ablation, int64_t k)
{
    for (int64_t i = 0; i < ablation->steps.n[0]; i++) {
        if (ablation->steps.k[i] == k && strcmp(ablation->steps.axis[i], "top-k") == 0) {
            return ablation->suite.score + i * ablation->suite.n[DPE_SUITE_SAMPLE];
        }
    }
    return NULL;
}

static dpe_status choose(struct batch *batch, const struct ablation *ablation,
                         struct dpe_error *err)
{
    int64_t k[DPE_DETECT_CANDIDATES];
    int n = dpe_detect_top_k_candidates(batch->n_pairs, k);
    int64_t n_samples = ablation->suite.n[DPE_SUITE_SAMPLE];
    DPE_OWNED double *values = NULL;
    DPE_TRY(DPE_NEW(&values, (size_t)(n * n_samples), err, "out of memory for %lld samples",
                    (long long)n_samples));
    for (int i = 0; i < n; i++) {
        const double *scores = scores_of(ablation, k[i]);
        if (scores == NULL) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "expected a step top-k %lld, found none; remove the file and run the "
                            "same command to measure it again",
                            (long long)k[i]);
        }
        memcpy(values + i * n_samples, scores, (size_t)n_samples * sizeof *values);
    }
    return dpe_detect_choose_top_k(k, values, n, n_samples, dpe_calibrate_together(batch),
                                   batch->needles ? DPE_DETECT_RECALL : DPE_DETECT_PERPLEXITY,
                                   &batch->entry->pairs, err);
}

dpe_status dpe_calibrate_choose_pairs(struct batch *batch, struct dpe_error *err)
{
    const char *path = dpe_calibrate_path(batch, batch->entry, "ablate.h5");
    DPE_SCOPED(ablation_free) struct ablation ablation = {0};
    DPE_SCOPED(dpe_h5_close_scoped) struct dpe_h5 *table = NULL;
    DPE_TRY(dpe_h5_open(path, &table, err));
    if (read_steps(table, batch->needles ? "/eval/niah" : "/eval/ppl", &ablation, err) != DPE_OK ||
        choose(batch, &ablation, err) != DPE_OK) {
        return dpe_fail_prefix(err, "%s", path);
    }
    const struct dpe_detect_top_k *pairs = &batch->entry->pairs;
    snprintf(batch->entry->k, sizeof batch->entry->k, "%lld",
             (long long)pairs->candidates[pairs->chosen].k);
    return DPE_OK;
}

/* ---------------------------------------------------------------------------------------- words */

static bool finds_nothing(const struct dpe_detect_top_k *pairs)
{
    bool nothing = pairs->criterion == DPE_DETECT_RECALL;
    for (int i = 0; i < pairs->n && nothing; i++) {
        nothing = !(pairs->candidates[i].mean > 0.0);
    }
    return nothing;
}

/* Why the chosen number and no smaller one. */
static void print_reason(const struct batch *batch)
{
    const struct dpe_detect_top_k *pairs = &batch->entry->pairs;
    long long chosen = (long long)pairs->candidates[pairs->chosen].k;
    long long against = (long long)pairs->candidates[pairs->against].k;
    bool recall = pairs->criterion == DPE_DETECT_RECALL;
    char kept[64];
    if (recall) {
        snprintf(kept, sizeof kept, "%g %% of what %lld find", 100.0 * DPE_DETECT_KEPT, against);
    } else {
        snprintf(kept, sizeof kept, "%g nats a token of what %lld have", DPE_DETECT_NATS, against);
    }
    dpe_print("%lld of %lld move: ", chosen, (long long)batch->n_pairs);
    if (finds_nothing(pairs)) {
        dpe_print("no number of pairs finds anything, so recall cannot choose one\n");
    } else if (pairs->chosen < pairs->against) {
        dpe_print("the fewest that are shown, with 95 %% confidence, to %s %s\n",
                  recall ? "find" : "stay within", kept);
    } else if (pairs->chosen == 0) {
        dpe_print("no smaller number was tried\n");
    } else {
        dpe_print("%lld pairs are not shown, with 95 %% confidence, to %s %s\n",
                  (long long)pairs->candidates[pairs->chosen - 1].k,
                  recall ? "find" : "stay within", kept);
    }
}

void dpe_calibrate_print_pairs(const struct batch *batch)
{
    const struct dpe_detect_top_k *pairs = &batch->entry->pairs;
    bool recall = pairs->criterion == DPE_DETECT_RECALL;
    const double scale = recall ? 100.0 : 1.0;
    int64_t together = dpe_calibrate_together(batch);
    struct dpe_page page = {.printed = true};
    char of[64] = "";
    if (together > 1) {
        snprintf(of, sizeof of, " of %lld samples", (long long)together);
    }
    struct dpe_sheet *sheet =
        dpe_page_sheet(&page, "pairs",
                       recall ? ":t|pairs:0|recall, %:1|less, by:1|at most:1|:t"
                              : ":t|pairs:0|nats/token:4|more, by:4|at most:4|:t",
                       "Key pairs of each head (%sablate.h5), measured on %s (%lld %s%s%s, paired)",
                       batch->entry->folder,
                       recall ? "needles that neither the sweep nor the check uses"
                              : "the corpus's books, some of which the sweep used",
                       (long long)pairs->n_contexts,
                       !recall        ? "book"
                       : together > 1 ? "context"
                                      : "sample",
                       pairs->n_contexts == 1 ? "" : "s", of);
    for (int i = 0; i < pairs->n; i++) {
        const struct dpe_detect_candidate *candidate = &pairs->candidates[i];
        dpe_draw_row(sheet, i == pairs->chosen ? "*" : "", candidate->k, scale * candidate->mean,
                     scale * candidate->loss, scale * candidate->at_most,
                     !candidate->compared  ? "too few samples without NaN or infinity"
                     : i == pairs->against ? "what the others are compared with"
                                           : "");
    }
    dpe_page_add(&page, sheet);
    dpe_print("\n");
    dpe_page_print(&page, false);
    print_reason(batch);
}

enum { FLIPS = 4999, SEED = 1 };

/* The check, of which the longest length counts. */
struct check {
    struct dpe_h5 *file, *sweep; /* of the longest length; NULL: cannot be read */
    const char *suite;           /* "/eval/niah" or "/eval/ppl" */
    struct dpe_suite_result result;
    size_t n;                  /* methods */
    int64_t samples, together; /* of a task */
    /* With those of the validation, where that had the same task and plans: [methods][all]. */
    double *pooled;
    int64_t all, validated;
    double ceiling; /* NaN: unknown */
    char words[DPE_TASK_WORDS];
};

static dpe_status open_check(struct batch *batch, struct check *check, struct dpe_error *err)
{
    struct dpe_suite_result *result = &check->result;
    DPE_TRY(dpe_h5_open(dpe_calibrate_path(batch, NULL, "check.h5"), &check->file, err));
    check->suite = dpe_h5_has(check->file, "/eval/niah") ? "/eval/niah" : "/eval/ppl";
    if (dpe_datasets_get(&dpe_suite_kinds[0], result, check->suite, NULL, check->file, err) !=
        DPE_OK) {
        return dpe_fail_prefix(err, "check.h5");
    }
    if (result->score == NULL || result->plan == NULL || result->n[DPE_SUITE_TASK] < 1) {
        return dpe_fail(err, DPE_BAD_DATA, "check.h5: %s: expected plans and scores", check->suite);
    }
    check->n = (size_t)result->n[DPE_SUITE_METHOD];
    check->samples = result->n[DPE_SUITE_SAMPLE];
    return dpe_h5_get_attr_i64(check->file, check->suite, "samples_together", &check->together,
                               err) == DPE_OK
               ? DPE_OK
               : dpe_fail_prefix(err, "check.h5");
}

static void close_check(struct check *check)
{
    dpe_datasets_free(&dpe_suite_kinds[0], &check->result);
    free(check->pooled);
    dpe_h5_close(check->file);
    dpe_h5_close(check->sweep);
}

/* Of a method at the longest length. */
static size_t cell(const struct check *check, size_t method)
{
    return (method + 1) * (size_t)check->result.n[DPE_SUITE_TASK] - 1;
}

/* Whether the longest sweep validated on the check's own task there. */
static bool is_same_task(const struct check *check, const char *folder)
{
    const bool users = strcmp(folder, "/validate/user") == 0;
    DPE_OWNED char *spec = NULL;
    DPE_OWNED char *parameters = NULL;
    bool same =
        dpe_h5_has(check->sweep, folder) &&
        dpe_h5_get_attr_text(check->sweep, users ? folder : "/detect",
                             users ? "task" : "niah_parameters", &spec, NULL) == DPE_OK &&
        dpe_h5_get_attr_text(check->file, check->suite, "parameters", &parameters, NULL) == DPE_OK;
    const char *found = same ? strstr(parameters, spec) : NULL;
    return found != NULL && strchr(" ", found[strlen(spec)]) != NULL;
}

/* The samples of the validation before those of the check, under the same plans. */
static void put_pooled(const struct dpe_scores_result *validated, char *const *keys,
                       struct check *check)
{
    const size_t n = (size_t)check->samples;
    const size_t before = (size_t)validated->n[DPE_VALIDATED_SAMPLE];
    check->all = check->samples + validated->n[DPE_VALIDATED_SAMPLE];
    check->pooled = dpe_alloc(check->n * (before + n), sizeof(double));
    for (size_t m = 0; m < check->n && check->pooled != NULL; m++) {
        const size_t at = cell(check, m);
        double *to = check->pooled + m * (before + n);
        for (size_t s = 0; s < before; s++) {
            to[s] = (double)NAN;
            for (size_t p = 0; p < (size_t)validated->n[DPE_VALIDATED_PLAN]; p++) {
                if (strcmp(keys[p], check->result.plan[at]) == 0) {
                    to[s] = validated->recall[p * before + s];
                }
            }
            check->validated += m == check->n - 1 && isfinite(to[s]);
        }
        memcpy(to + before, check->result.score + at * n, n * sizeof *to);
    }
}

/* Pool the check with the validation of the longest sweep; not where its plan was another one, or
 * other numbers of samples share a context. */
static void pool(const char *folder, const struct dpe_scores_result *validated, struct check *check)
{
    char **keys = NULL;
    size_t n = 0;
    int64_t together = 0;
    if (validated->recall != NULL && validated->n[DPE_VALIDATED_SAMPLE] % check->together == 0 &&
        dpe_h5_get_attr_i64(check->sweep, folder, "samples_together", &together, NULL) == DPE_OK &&
        together == check->together &&
        dpe_h5_get_strings(check->sweep, "/validate/plan", &keys, &n, NULL) == DPE_OK &&
        (int64_t)n == validated->n[DPE_VALIDATED_PLAN]) {
        put_pooled(validated, keys, check);
    }
    dpe_strings_free(keys, n);
    const struct dpe_resampling how = {
        .together = check->together, .rounds = FLIPS, .seed = SEED, .level = 0.95};
    for (size_t m = 0; m < check->n && check->validated > 0; m++) {
        check->result.mean[cell(check, m)] =
            dpe_bootstrap_share(check->pooled + m * (size_t)check->all, (size_t)check->all, &how);
    }
}

/* What the longest sweep adds to the check. */
static void look_at_sweep(struct batch *batch, struct check *check)
{
    const struct entry *longest = &batch->state.entries[batch->state.n_entries - 1];
    struct dpe_scores_result validated = {.recall = NULL};
    check->ceiling = (double)NAN;
    if (dpe_h5_open(dpe_calibrate_path(batch, longest, "detect.h5"), &check->sweep, NULL) !=
        DPE_OK) {
        return;
    }
    dpe_worth_task(check->file, check->words);
    /* With a budget the check has the search's task, otherwise the user's. */
    const char *folder = is_same_task(check, "/validate/user")   ? "/validate/user"
                         : is_same_task(check, "/validate/niah") ? "/validate/niah"
                                                                 : NULL;
    if (folder != NULL) {
        dpe_calibrate_read_validated(check->sweep, folder, &validated);
        const struct dpe_interval *possible = dpe_validated_possible(&validated);
        check->ceiling = possible != NULL ? possible->mean : (double)NAN;
        pool(folder, &validated, check);
    }
    dpe_datasets_free(&dpe_validated_scores_kinds[0], &validated);
}

dpe_status dpe_calibrate_pool(struct batch *batch, struct dpe_error *err)
{
    DPE_SCOPED(close_check) struct check check = {0};
    DPE_TRY(open_check(batch, &check, err));
    look_at_sweep(batch, &check);
    if (check.validated == 0) {
        return DPE_OK;
    }
    struct dpe_interval *of = dpe_alloc(check.n, sizeof *of);
    for (size_t m = 0; m < check.n && of != NULL; m++) {
        of[m] = check.result.mean[cell(&check, m)];
    }
    free(batch->pooled.of);
    batch->pooled =
        (struct dpe_pooled){.length = batch->state.entries[batch->state.n_entries - 1].length,
                            .n_methods = of != NULL ? (int64_t)check.n : 0,
                            .possible = check.ceiling,
                            .of = of};
    return DPE_OK;
}

static void put_uses(bool factors, const char *before, struct dpe_text *words)
{
    for (int i = 0; i < DPE_USES; i++) {
        if (dpe_uses[i].factors == factors) {
            dpe_text_put(words, "%s %s", before, dpe_uses[i].runtime);
            before = ",";
        }
    }
}

/* Which file for which runtime; the commands are in report.html. */
static void put_files(const struct batch *batch, bool factors, struct dpe_text *words)
{
    const char *before = "; ";
    put_uses(false, "table.h5 for", words);
    if (factors) {
        put_uses(true, "; by dpe-export for", words);
    }
    for (int e = 0; e < batch->state.n_entries; e++) {
        const struct entry *entry = &batch->state.entries[e];
        if (entry->plain[0] != '\0') {
            dpe_text_put(words, "%s%sno-adapter.json", before, entry->folder);
            before = ", ";
        }
    }
    dpe_text_put(words, "%s; commands in report.html",
                 before[0] == ',' ? " for runtimes as they are" : "");
}

static void kld_free(struct dpe_kld_result *kld)
{
    dpe_datasets_free(&dpe_kld_kind, kld);
}

/* Of DIR/NAME: the positions up to the last power of two within `end`, and the largest of all. */
static dpe_status read_kld(struct batch *batch, const char *name, int64_t end,
                           struct dpe_worth_kld *to, double *most, struct dpe_error *err)
{
    DPE_SCOPED(kld_free) struct dpe_kld_result kld = {0};
    DPE_SCOPED(dpe_h5_close_scoped) struct dpe_h5 *file = NULL;
    int64_t n = 0;
    *to = (struct dpe_worth_kld){0};
    DPE_TRY(dpe_h5_open(dpe_calibrate_path(batch, NULL, name), &file, err));
    DPE_TRY(dpe_datasets_get(&dpe_kld_kind, &kld, "/kld", NULL, file, err));
    if (kld.n[DPE_KLD_METHOD] != 1) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected one method, found %lld", name,
                        (long long)kld.n[DPE_KLD_METHOD]);
    }
    for (int64_t b = 0; b < kld.n[DPE_KLD_POSITION]; b++) {
        const struct dpe_kld_cell *cell = &kld.at[b];
        if (2 * kld.position[b] <= end) {
            to->tokens = 2 * kld.position[b];
            to->mean += (double)cell->n * cell->mean.mean;
            to->same += (double)cell->n * cell->same_top;
            n += cell->n;
        }
    }
    to->mean /= (double)n;
    to->same /= (double)n;
    *most = kld.whole[0].most;
    return DPE_OK;
}

/* What the table does to the beginning of the texts that it is for. */
static dpe_status look_at_kld(struct batch *batch, struct dpe_worth *worth, struct dpe_error *err)
{
    const int64_t end = batch->job.trained_length;
    double most = 0.0;
    DPE_TRY(read_kld(batch, "kld-trained.h5", end, &worth->kld, &most, err));
    if (most != 0.0) {
        dpe_log_warning("kld-trained.h5: the table changes texts up to the trained length, which "
                        "should run unchanged; please report it");
    }
    return read_kld(batch, "kld.h5", end, &worth->kld, &most, err);
}

/* How sure the difference of the table to the model as it is is, on all samples. */
static double pooled_p(const struct check *check, const struct dpe_worth *worth)
{
    const size_t n = (size_t)check->all;
    const struct dpe_resampling how = {
        .together = check->together, .rounds = FLIPS, .seed = SEED, .level = 0.95};
    return dpe_compare(check->pooled + (size_t)worth->method[DPE_WORTH_TABLE] * n,
                       check->pooled + (size_t)worth->method[DPE_WORTH_ALONE] * n, n, true, &how)
        .p;
}

static void worth_of(struct batch *batch, const struct check *check, struct dpe_worth *worth)
{
    dpe_worth_of(&check->result, check->result.n[DPE_SUITE_TASK] - 1,
                 strcmp(check->suite, "/eval/ppl") == 0, (int64_t)check->n - 1, worth);
    if (check->sweep != NULL) {
        dpe_worth_texts(check->sweep, worth);
    }
    worth->trained = batch->job.trained_length;
    worth->possible = check->ceiling;
    worth->task = check->words;
    worth->factors = dpe_calibrate_factors(batch);
    if (check->validated > 0) {
        worth->validated = check->validated;
        worth->samples = check->all;
        worth->p = pooled_p(check, worth);
    }
}

dpe_status dpe_calibrate_print_answer(struct batch *batch, struct dpe_error *err)
{
    DPE_SCOPED(close_check) struct check check = {0};
    DPE_SCOPED(dpe_text_free) struct dpe_text files = {0};
    struct dpe_page page = {.printed = true};
    struct dpe_worth worth;
    batch->entry = &batch->state.entries[batch->state.n_entries - 1];
    DPE_TRY(open_check(batch, &check, err));
    look_at_sweep(batch, &check);
    worth_of(batch, &check, &worth);
    DPE_TRY(batch->diverges ? look_at_kld(batch, &worth, err) : DPE_OK);
    put_files(batch, worth.factors, &files);
    worth.files = dpe_draw_text(&files);
    dpe_words_worth(&page, &worth);
    dpe_print("\n");
    dpe_page_print(&page, true);
    return DPE_OK;
}
