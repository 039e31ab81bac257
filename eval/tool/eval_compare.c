/* A comparison from its inputs to its last row. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/chat/chat.h"
#include "eval/tool/comparison.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"
#include "outputs/read/read.h"
#include "outputs/table/dpe_table.h"
#include "outputs/words/words.h"

/* Of a check: the trained length, and that of the table, which is the last method. */
static dpe_status check_lengths(struct dpe_comparison *comparison, struct dpe_error *err)
{
    const char *path = comparison->args->methods[comparison->args->n_methods - 1];
    DPE_SCOPED(dpe_table_close_scoped) struct dpe_table *table = NULL;
    DPE_TRY(dpe_table_load(path, &table, err));
    const struct dpe_table_values *values = dpe_table_values(table);
    if (dpe_table_check_model(values, dpe_model_config(comparison->job.model), err) != DPE_OK) {
        return dpe_fail_prefix(err, path);
    }
    comparison->n_lengths = 2;
    comparison->lengths[0] = comparison->job.trained_length;
    comparison->lengths[1] = values->length;
    const bool same = strcmp(values->model_fingerprint, dpe_job_fingerprint(&comparison->job)) == 0;
    dpe_log_info("%s: made for %lld tokens, of %s", path, (long long)values->length,
                 same ? "this very model" : "a model of other weights");
    char evidence[DPE_TABLE_EVIDENCE];
    if (dpe_table_evidence(values, evidence)[0] != '\0') {
        dpe_log_info("%s: there it %s", path, evidence);
    }
    return values->length <= comparison->job.trained_length
               ? dpe_fail(err, DPE_BAD_DATA,
                          "%s: made for %lld tokens; the model was trained at %lld and needs no "
                          "table for them",
                          path, (long long)values->length,
                          (long long)comparison->job.trained_length)
               : DPE_OK;
}

/* The default length of an ablation is that of its detection. */
static dpe_status choose_lengths(struct dpe_comparison *comparison, struct dpe_error *err)
{
    const struct dpe_eval_arguments *args = comparison->args;
    comparison->n_lengths = args->n_lengths;
    memcpy(comparison->lengths, args->lengths, sizeof comparison->lengths);
    if (args->check) {
        return check_lengths(comparison, err);
    }
    if (comparison->n_lengths == 0) {
        comparison->lengths[comparison->n_lengths++] = comparison->ablation.source.values->length;
    }
    return DPE_OK;
}

/* Official files of RULER hold whole prompts, perhaps with the turn markers of a model: they are
 * wrapped only if the command line says so. */
static const char *chat_template_of(const struct dpe_eval_arguments *args, int i)
{
    const struct dpe_suite_given overrides = dpe_eval_overrides_of(args, i);
    const struct dpe_suite_kind *kind = dpe_eval_kind_of(&args->suites[i]);
    bool takes = (kind->takes & DPE_SUITE_CHAT_TEMPLATE) != 0;
    bool whole = kind->generates && overrides.data != NULL;
    return overrides.chat_template != NULL ? overrides.chat_template
           : takes && !whole               ? "auto"
                                           : NULL;
}

static dpe_status open_suite(struct dpe_comparison *comparison, int i, struct dpe_error *err)
{
    const struct dpe_eval_arguments *args = comparison->args;
    struct dpe_suite_options options = {
        .given = dpe_eval_overrides_of(args, i),
        .tokenizer = comparison->job.tokenizer,
        .corpus = comparison->job.corpus,
        .lengths = comparison->lengths,
        .n_lengths = (size_t)comparison->n_lengths,
        .seed = args->job.seed,
        .depths = args->depths,
        .n_depths = (size_t)args->n_depths,
        .skip_bad = args->skip_bad,
    };
    options.given.chat_template = chat_template_of(args, i);
    if (options.given.samples == 0) {
        options.given.samples = args->job.samples;
    }
    /* For needles: a book's or a question's special tokens are --special-in-text's business. */
    bool needles = (dpe_eval_kind_of(&args->suites[i])->takes & DPE_SUITE_NEEDLES) != 0;
    const char *niah[] = {needles ? args->general.niah : NULL, args->suites[i].own.niah};
    dpe_niah_defaults(&options.niah);
    options.niah.special = args->special;
    for (int k = 0; k < 2; k++) {
        DPE_TRY(niah[k] != NULL ? dpe_niah_parse(niah[k], &options.niah, err) : DPE_OK);
    }
    return dpe_suite_open(args->suites[i].name, &options, &comparison->suites[i], err);
}

dpe_status dpe_eval_open_suites(struct dpe_comparison *comparison, struct dpe_error *err)
{
    for (int i = 0; i < comparison->args->n_suites; i++) {
        const struct dpe_suite *suite = &comparison->suites[i];
        char told[1200];
        DPE_TRY(open_suite(comparison, i, err));
        comparison->n_suites++;
        if (comparison->args->job.silent) {
            continue; /* what is only priced */
        }
        if (dpe_chat_told(chat_template_of(comparison->args, i), comparison->args->job.model, told,
                          sizeof told)) {
            dpe_log_info("%s: %s", suite->name, told);
        }
        if (suite->lacks[0] != '\0') {
            dpe_log_warning("%s: left out: %s", suite->name, suite->lacks);
        }
        if (suite->skipped > 0 && !suite->kind->perplexity) {
            dpe_log_warning("%s: left out %lld line%s of data that %s; first: %s", suite->name,
                            (long long)suite->skipped, suite->skipped == 1 ? "" : "s",
                            suite->skipped == 1 ? "is not a sample" : "are not samples",
                            suite->first_skipped);
        } else if (suite->skipped > 0) {
            dpe_log_info("left out %lld book%s of fewer than %lld tokens",
                         (long long)suite->skipped, suite->skipped == 1 ? "" : "s",
                         (long long)comparison->lengths[comparison->n_lengths - 1]);
        }
    }
    return DPE_OK;
}

static int length_index(const struct dpe_comparison *comparison, int64_t length)
{
    int l = 0;
    while (l + 1 < comparison->n_lengths && comparison->lengths[l] != length) {
        l++;
    }
    return l;
}

/* The keys of each suite's cells, for reading rows. */
static dpe_status place_keys(struct dpe_comparison *comparison, struct dpe_error *err)
{
    for (int i = 0; i < comparison->n_suites; i++) {
        const struct dpe_suite *suite = &comparison->suites[i];
        DPE_TRY(DPE_NEW(&comparison->cells[i], (size_t)comparison->n_methods * suite->n_tasks, err,
                        "out of memory for keys"));
        const char **cells = comparison->cells[i];
        for (int m = 0; m < comparison->n_methods; m++) {
            for (size_t t = 0; t < suite->n_tasks; t++) {
                int plan =
                    m * comparison->n_lengths + length_index(comparison, suite->tasks[t].length);
                *cells++ = comparison->keys[plan];
            }
        }
    }
    return DPE_OK;
}

static dpe_status comparison_open(void *state, const void *asked, struct dpe_error *err)
{
    struct dpe_comparison *comparison = state;
    const struct dpe_eval_arguments *args = asked;
    comparison->args = args;
    DPE_TRY(dpe_chat_set_variables(args->job.template_vars, err));
    DPE_TRY(dpe_job_open(&comparison->job, &args->job, false, err));
    DPE_TRY(dpe_eval_comparison_methods(comparison, err));
    DPE_TRY(choose_lengths(comparison, err));
    DPE_TRY(dpe_eval_comparison_plans(comparison, err));
    DPE_TRY(dpe_eval_open_suites(comparison, err));
    if (args->predictions != NULL) {
        DPE_TRY(dpe_eval_check_predictions(comparison, err));
    }
    return place_keys(comparison, err);
}

dpe_status dpe_eval_comparison_close(void *state, dpe_status status, struct dpe_error *err)
{
    struct dpe_comparison *comparison = state;
    for (int i = 0; i < comparison->n_plans; i++) {
        dpe_plan_free(&comparison->plans[i]);
    }
    for (int i = 0; i < comparison->n_suites; i++) {
        dpe_suite_close(&comparison->suites[i]);
        free(comparison->cells[i]);
    }
    free(comparison->plans);
    free(comparison->keys);
    dpe_ablation_free(&comparison->ablation);
    return dpe_job_close(&comparison->job, status, err);
}

/* ---------------------------------------------------------------------------------------- table */

static void put_methods(const struct dpe_comparison *comparison, struct dpe_h5 *table)
{
    const struct dpe_eval_arguments *args = comparison->args;
    dpe_h5_put_scale(table, "/method", DPE_COL_STRING, comparison->labels, comparison->n_methods,
                     "method, as it was given", "1");
    dpe_h5_attr_i64(table, "/eval", "seed", (int64_t)args->job.seed);
    dpe_h5_attr_i64(table, "/eval", "trained_length", comparison->job.trained_length);
    dpe_h5_attr_i64(table, "/eval", "official", args->official);
    dpe_h5_attr_text(table, "/eval", "against", comparison->labels[comparison->against]);
}

static void put_ablation(const struct dpe_comparison *comparison, struct dpe_h5 *table)
{
    const char *axis[EVAL_MAX_METHODS];
    double value[EVAL_MAX_METHODS];
    int64_t k[EVAL_MAX_METHODS];
    for (int m = 0; m < comparison->n_methods; m++) {
        axis[m] = comparison->methods[m].step->axis;
        value[m] = comparison->methods[m].step->value;
        k[m] = comparison->methods[m].step->k;
    }
    const struct dpe_ablate_result out = {
        .n = {comparison->n_methods}, .axis = axis, .value = value, .k = k};
    dpe_datasets_put(&dpe_ablate_kind, &out, "/ablate", table);
    dpe_h5_attr_text(table, "/ablate", "what", comparison->args->what);
    const char *slash = strrchr(comparison->args->methods[0], '/');
    dpe_h5_attr_text(table, "/ablate", "table",
                     slash != NULL ? slash + 1 : comparison->args->methods[0]);
}

/* What a session for one text of a task's length needs under a method, without weights: with one
 * thread and nothing in a file, so that no machine and no --max-memory decides it. −1: the estimate
 * failed, as where a method cannot run here. */
static int64_t sample_bytes(const struct dpe_comparison *comparison, int method, int64_t length)
{
    const int plan = method * comparison->n_lengths + length_index(comparison, length);
    struct dpe_session_options options = dpe_job_session_options(&comparison->job, length);
    struct dpe_session_needs needs = {0};
    options.capacity = options.positions = length;
    options.branches = options.n_threads = 1;
    options.max_memory = UINT64_MAX; /* or a device's free memory would decide the chunk */
    options.kv_dir = NULL;
    const dpe_status status = dpe_session_estimate(
        dpe_model_config(comparison->job.model), &comparison->plans[plan], &options, &needs, NULL);
    bool on_device = strcmp(comparison->job.device_info.kind, "cuda") == 0; /* with the weights */
    return status == DPE_OK ? (int64_t)(needs.memory - (on_device ? needs.weights : 0)) : -1;
}

static dpe_status count_memory(const struct dpe_comparison *comparison, struct dpe_results *results,
                               struct dpe_error *err)
{
    const int n = results->n_methods * results->n_tasks;
    DPE_TRY(DPE_NEW(&results->r.memory, (size_t)n, err, "out of memory for results"));
    for (int i = 0; i < n; i++) {
        results->r.memory[i] = sample_bytes(comparison, i / results->n_tasks,
                                            results->suite->tasks[i % results->n_tasks].length);
    }
    return DPE_OK;
}

static dpe_status put_results(const struct dpe_comparison *comparison, struct dpe_results *results,
                              bool grid, struct dpe_h5 *table, struct dpe_error *err)
{
    const struct dpe_eval_arguments *args = comparison->args;
    DPE_TRY(count_memory(comparison, results, err));
    return grid ? dpe_results_put_grid(results, args->depths, args->n_depths, table, err)
                : dpe_results_put(results, table, err);
}

/* ----------------------------------------------------------------------------------------- text */

/* Samples without a number do not count as 0: report how many are missing. */
static void say_gaps(const struct dpe_results *results, struct dpe_page *page)
{
    int64_t nonfinite = 0;
    size_t n = (size_t)results->n_methods * (size_t)results->n_tasks * (size_t)results->n_samples;
    for (size_t i = 0; i < n; i++) {
        nonfinite += results->r.status[i] == DPE_ROW_NONFINITE;
    }
    if (nonfinite > 0) {
        dpe_page_say(page, BLOCK_NOTE,
                     "%lld samples with NaN or infinity in their logits are left out.",
                     (long long)nonfinite);
    }
}

/* What a suite says of the methods, and of a check what the table is worth. */
static void print_suite(const struct dpe_comparison *comparison, const struct dpe_results *results)
{
    const struct dpe_suite *suite = results->suite;
    const struct dpe_eval_arguments *args = comparison->args;
    struct dpe_page page = {.printed = true};
    struct dpe_suite_words words = {.r = &results->r,
                                    .name = suite->name,
                                    .title = suite->kind->title,
                                    .unit = suite->unit,
                                    .explanation = suite->kind->explanation,
                                    .against = (size_t)results->against,
                                    .together = suite->tasks[0].task.together,
                                    .trained = comparison->job.trained_length,
                                    .low_is_better = suite->kind->perplexity};
    dpe_words_derive(&page, &words);
    dpe_words_suite(&page, &words);
    say_gaps(results, &page);
    if (args->check) {
        dpe_words_check(&page, &results->r, results->against);
    }
    dpe_page_print(&page, args->details);
}

static dpe_status print_grid(const struct dpe_results *results, const double *depths, int n_depths,
                             struct dpe_error *err)
{
    struct dpe_page page = {.printed = true};
    struct dpe_grid_result grid = {0};
    dpe_status status = dpe_results_grid(results, depths, n_depths, &grid, err);
    if (status == DPE_OK) {
        dpe_words_grid(&page, &grid);
        say_gaps(results, &page);
        dpe_page_print(&page, false);
    }
    dpe_results_grid_free(&grid);
    return status;
}

/* For scripts. */
static struct dpe_result *begin_document(const struct dpe_comparison *comparison)
{
    const struct dpe_eval_arguments *args = comparison->args;
    struct dpe_result *out = dpe_result_begin("dpe-eval");
    dpe_result_text(out, "model", args->job.model);
    dpe_result_text(out, "fingerprint", dpe_job_fingerprint(&comparison->job));
    dpe_result_text(out, "table", args->job.output);
    dpe_result_whole(out, "trained_length", comparison->job.trained_length);
    dpe_result_whole(out, "seed", (int64_t)args->job.seed);
    dpe_result_text(out, "against", comparison->labels[comparison->against]);
    dpe_result_text(out, "ablation", args->what);
    return out;
}

/* The method that the others are compared with differs in nothing from itself. */
static void add_results(struct dpe_result *out, const struct dpe_results *results)
{
    for (int64_t i = 0; i < (int64_t)results->n_tasks * results->n_methods; i++) {
        const int64_t m = i % results->n_methods;
        const int64_t at = m * results->n_tasks + i / results->n_methods;
        struct dpe_suite_result r = results->r;
        r.difference = m == results->against ? NULL : r.difference;
        dpe_result_row(out, "results");
        dpe_result_text(out, "suite", results->suite->name);
        dpe_result_text(out, "measure",
                        results->suite->kind->perplexity ? "perplexity" : results->suite->score);
        dpe_datasets_fields(&dpe_suite_kinds[0], &r, "/method task", at, out);
    }
}

static dpe_status print_results(const struct dpe_comparison *comparison,
                                const struct dpe_results *results, bool grid, struct dpe_error *err)
{
    const struct dpe_eval_arguments *args = comparison->args;
    if (comparison->out != NULL) {
        add_results(comparison->out, results);
    } else if (grid) {
        return print_grid(results, args->depths, args->n_depths, err);
    } else {
        print_suite(comparison, results);
    }
    return DPE_OK;
}

/* The results of every suite, into a table or (NULL) printed. */
static dpe_status each_suite(const struct dpe_comparison *comparison, struct dpe_h5 *table,
                             struct dpe_error *err)
{
    for (int i = 0; i < comparison->n_suites; i++) {
        const struct dpe_suite *suite = &comparison->suites[i];
        DPE_SCOPED(dpe_results_free)
        struct dpe_results results = {
            .suite = suite,
            .r = {.method = comparison->labels, .plan = comparison->cells[i]},
            .n_methods = comparison->n_methods,
            .against = comparison->against};
        const bool grid = (suite->kind->takes & DPE_SUITE_DEPTHS) != 0;
        DPE_TRY(
            dpe_results_collect(&results, comparison->args->job.seed, comparison->job.run, err));
        if (table != NULL) {
            DPE_TRY(put_results(comparison, &results, grid, table, err));
        } else {
            DPE_TRY(print_results(comparison, &results, grid, err));
        }
    }
    return DPE_OK;
}

/* dpe_run_fill; `user` is a struct dpe_comparison. */
static dpe_status fill(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    const struct dpe_comparison *comparison = user;
    const struct dpe_eval_arguments *args = comparison->args;
    put_methods(comparison, table);
    DPE_TRY(each_suite(comparison, table, err));
    if (args->what != NULL) {
        put_ablation(comparison, table);
    }
    dpe_h5_attr_text(table, "/", "title",
                     args->what != NULL ? "A detection, varied one thing at a time"
                                        : "Position methods on the same samples");
    return dpe_h5_failed(table, err);
}

/* ----------------------------------------------------------------------------------------- rows */

static void announce(const struct dpe_comparison *comparison)
{
    char lengths[EVAL_MAX_LENGTHS * 21] = "";
    for (int i = 0; i < comparison->n_lengths; i++) {
        dpe_append(lengths, sizeof lengths, " %lld", (long long)comparison->lengths[i]);
    }
    dpe_job_header(&comparison->job);
    dpe_log_info("trained length %lld; lengths%s; %d %s", (long long)comparison->job.trained_length,
                 lengths, comparison->n_methods,
                 comparison->args->what != NULL ? "steps" : "methods");
}

/* Methods, lengths and samples may grow; everything else decides a row. */
dpe_status dpe_eval_start(struct dpe_comparison *comparison, const char *kind,
                          const struct dpe_plan *plan, struct dpe_error *err)
{
    enum { MAX_FIELDS = 64 };
    const char *own[MAX_FIELDS][2];
    char names[MAX_FIELDS][48];
    char suites[EVAL_MAX_SUITES * sizeof comparison->suites[0].name] = "";
    size_t n = 0;
    for (int i = 0; i < comparison->n_suites; i++) {
        const struct dpe_suite *suite = &comparison->suites[i];
        dpe_append(suites, sizeof suites, "%s%s", i == 0 ? "" : ",", suite->name);
        if (suite->parameters.n > MAX_FIELDS - n) {
            return dpe_fail(err, DPE_INTERNAL, "suites have more than %d parameters", MAX_FIELDS);
        }
        for (size_t k = 0; k < suite->parameters.n; k++, n++) {
            snprintf(names[n], sizeof names[n], "%s_%s", suite->name,
                     suite->parameters.fields[k].name);
            own[n][0] = names[n];
            own[n][1] = suite->parameters.fields[k].value;
        }
    }
    const struct dpe_job_identity identity = {
        .kind = kind, .suite = suites, .own = (const char *const(*)[2])own, .n_own = n};
    int64_t capacity = comparison->lengths[comparison->n_lengths - 1];
    announce(comparison);
    DPE_TRY(dpe_eval_fit_batch(comparison, plan, err));
    return dpe_job_start(&comparison->job, &identity, plan, capacity, err);
}

/* A task by its number among those of all suites. */
static const struct dpe_suite_task *task_at(const struct dpe_comparison *comparison, size_t at)
{
    const struct dpe_suite *suite = comparison->suites;
    for (; at >= suite->n_tasks; suite++) {
        at -= suite->n_tasks;
    }
    return &suite->tasks[at];
}

static dpe_status make_rows(void *user, const struct dpe_job_rows *parts, int64_t n,
                            struct dpe_error *err)
{
    const struct dpe_comparison *comparison = user;
    const struct dpe_suite_task *task = task_at(comparison, (size_t)parts->items->task);
    return dpe_task_rows(&task->task, parts, n, err);
}

/* Sample after sample under every method, so that a comparison that stops early is still one; those
 * that share a context stay in a row. */
static void want_task(const struct dpe_comparison *comparison, const struct dpe_suite_task *task,
                      struct dpe_wanted *wanted)
{
    const int at = (int)wanted->n_tasks;
    const int length = length_index(comparison, task->length);
    const int64_t together = task->task.together;
    dpe_wanted_task(wanted, task->task.name, task->length / together, (double)task->length);
    for (int64_t s = 0; s < task->n_samples; s += together) {
        int64_t n = dpe_least(together, task->n_samples - s);
        for (int m = 0; m < comparison->n_methods; m++) {
            dpe_wanted_rows(wanted, at, m * comparison->n_lengths + length, s, n);
        }
    }
}

static dpe_status run_rows(void *state, struct dpe_error *err)
{
    struct dpe_comparison *comparison = state;
    struct dpe_wanted wanted = {0};
    const struct dpe_work how = {.name = comparison->args->what != NULL ? "ablate" : "compare",
                                 .capacity = comparison->lengths[comparison->n_lengths - 1],
                                 .user = comparison,
                                 .rows = make_rows,
                                 .fill = fill};
    dpe_eval_want_plans(comparison, &wanted);
    for (int i = 0; i < comparison->n_suites; i++) {
        for (size_t t = 0; t < comparison->suites[i].n_tasks; t++) {
            want_task(comparison, &comparison->suites[i].tasks[t], &wanted);
        }
    }
    return dpe_wanted_run(&wanted, &comparison->job, &how, err);
}

/* And write what was answered, where that is wanted. */
static dpe_status print(void *state, struct dpe_error *err)
{
    struct dpe_comparison *comparison = state;
    const bool document = comparison->args->job.json;
    if (comparison->args->predictions != NULL) {
        DPE_TRY(dpe_eval_write_predictions(comparison, err));
    }
    if (document) {
        comparison->out = begin_document(comparison);
    }
    dpe_status status = each_suite(comparison, NULL, err);
    if (status == DPE_OK && document) {
        status = dpe_result_print(comparison->out, err);
    } else if (document) {
        dpe_result_free(comparison->out);
    }
    comparison->out = NULL;
    return status;
}

static dpe_status comparison_start(void *state, struct dpe_error *err)
{
    return dpe_eval_start(state, "eval", dpe_eval_largest_plan(state), err);
}

void dpe_eval_suggest(const void *state)
{
    const struct dpe_comparison *comparison = state;
    char table[1024];
    dpe_tool_next("dpe-report %s -o report.html",
                  dpe_tool_quote(comparison->args->job.output, table, sizeof table));
}

const struct dpe_study dpe_eval_comparison_study = {
    .size = sizeof(struct dpe_comparison),
    .job = offsetof(struct dpe_comparison, job),
    .open = comparison_open,
    .cost = dpe_eval_cost,
    .start = comparison_start,
    .rows = run_rows,
    .fill = fill,
    .print = print,
    .suggest = dpe_eval_suggest,
    .close = dpe_eval_comparison_close,
};
