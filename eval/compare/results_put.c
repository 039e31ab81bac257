/* The /eval/SUITE part of a table (outputs/SCHEMA.md, "Comparison"). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/compare/results.h"
#include "outputs/h5/h5.h"

enum { MAX_TASKS_LISTED = 64 };

/* A table that is written. After the first failure nothing more is written. */
struct sink {
    struct dpe_h5 *table;
    dpe_status status;
    struct dpe_error *err;
};

static bool failed(const struct sink *to)
{
    return to->status != DPE_OK;
}

static void out_of_memory(struct sink *to, const char *what)
{
    to->status =
        failed(to) ? to->status : dpe_fail(to->err, DPE_NO_MEMORY, "out of memory for %s", what);
}

/* Where things go, and the usual axes: of a suite method, task, sample; of a grid method, depth,
 * length, sample. */
struct place {
    struct sink *to;
    char group[32];
    char axis[4][64];
    int64_t extent[4];
    int rank; /* with samples */
};

static void put(const struct place *place, const char *name, enum dpe_column_type type, int rank,
                const void *data, const char *long_name, const char *units)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", place->group, name);
    struct dpe_column column = {.path = path,
                                .type = type,
                                .rank = rank,
                                .data = data,
                                .long_name = long_name,
                                .units = units};
    for (int i = 0; i < rank; i++) {
        column.dims[i] = place->extent[i];
        column.scales[i] = place->axis[i];
    }
    if (strcmp(name, "status") == 0) {
        column.flag_meanings = "ok nonfinite failed";
    }
    if (!failed(place->to)) {
        place->to->status = dpe_h5_put(place->to->table, &column, place->to->err);
    }
}

static void put_scale(const struct place *place, const char *name, enum dpe_column_type type,
                      int64_t n, const void *data, const char *long_name, const char *units)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", place->group, name);
    if (!failed(place->to)) {
        place->to->status = dpe_h5_put_scale(place->to->table, path, type, data, n, long_name,
                                             units, place->to->err);
    }
}

static void put_samples_scale(const struct place *place, int64_t n)
{
    char path[96];
    snprintf(path, sizeof path, "%s/sample", place->group);
    if (!failed(place->to)) {
        place->to->status =
            dpe_h5_put_count(place->to->table, path, n, "index of the sample", place->to->err);
    }
}

static void put_attributes(const struct dpe_results *results, const struct place *place,
                           bool differences)
{
    const struct dpe_suite *suite = results->suite;
    struct dpe_text parameters = {0};
    struct dpe_h5 *table = place->to->table;
    struct dpe_error *err = place->to->err;
    if (failed(place->to)) {
        return;
    }
    dpe_status status = dpe_text_append(&parameters, "", 0, err);
    for (size_t i = 0; i < suite->parameters.n && status == DPE_OK; i++) {
        char field[512];
        int n = snprintf(field, sizeof field, "%s%s=%s", i == 0 ? "" : " ",
                         suite->parameters.fields[i].name, suite->parameters.fields[i].value);
        status = dpe_text_append(&parameters, field,
                                 n < (int)sizeof field ? (size_t)n : sizeof field - 1, err);
    }
    const struct {
        const char *name, *value;
    } texts[] = {
        {"title", suite->kind->title},
        {"unit", suite->kind->unit},
        {"explanation", suite->kind->explanation},
        {"parameters", parameters.bytes},
        {"score", suite->score},
        {"better", suite->perplexity ? "lower" : "higher"},
        {"interval_rule",
         suite->perplexity
             ? "95 %, Student's t over the delete-one-book jackknife of nats per token"
             : "95 %, percentiles of 2000 bootstrap means; samples of one context are drawn "
               "together; Wilson score where all samples agree"},
        {"difference_rule", "score - score of the first method over samples valid under both: 95 % "
                            "of 2000 bootstrap means; two-sided sign-flip test, exact up to 16 "
                            "differing contexts, else 2000 flips; not corrected for their number"},
    };
    size_t n = sizeof texts / sizeof texts[0] - (differences ? 0 : 1);
    for (size_t i = 0; i < n && status == DPE_OK; i++) {
        status = dpe_h5_attr_text(table, place->group, texts[i].name, texts[i].value, err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_attr_i64(table, place->group, "samples_together",
                                 suite->tasks[0].task.together, err);
    }
    dpe_text_free(&parameters);
    place->to->status = status;
}

static void put_tasks(const struct dpe_results *results, const struct place *place)
{
    const struct dpe_suite *suite = results->suite;
    size_t n = suite->n_tasks;
    const char **names = dpe_alloc(3 * n, sizeof *names);
    int64_t *lengths = dpe_alloc(n, sizeof *lengths);
    if (names == NULL || lengths == NULL) {
        out_of_memory(place->to, "an axis");
        goto done;
    }
    bool categories = false;
    for (size_t t = 0; t < n; t++) {
        names[t] = suite->tasks[t].task.name;
        names[n + t] = suite->tasks[t].label;
        names[2 * n + t] = suite->tasks[t].category;
        lengths[t] = suite->tasks[t].length;
        categories = categories || suite->tasks[t].category[0] != '\0';
    }
    struct place by_task = *place;
    memcpy(by_task.axis[0], place->axis[1], sizeof by_task.axis[0]);
    by_task.extent[0] = (int64_t)n;
    put_scale(place, "task", DPE_COL_STRING, (int64_t)n, names, "name of the task in /tasks/task",
              "1");
    put(&by_task, "task_label", DPE_COL_STRING, 1, names + n,
        "the benchmark, the same at every length", "1");
    put(&by_task, "task_length", DPE_COL_I64, 1, lengths, "length of the task", "tokens");
    if (categories) {
        put(&by_task, "task_category", DPE_COL_STRING, 1, names + 2 * n,
            "category that the task is averaged in", "1");
    }
done:
    free(names);
    free(lengths);
}

/* What every sample has; of a grid the arrays come in the grid's order. */
static void put_samples(const struct dpe_results *results, const struct place *place)
{
    const struct dpe_suite *suite = results->suite;
    const struct {
        const char *name;
        enum dpe_column_type type;
        const void *data;
        const char *long_name, *units;
        bool there;
    } columns[] = {
        {"score", DPE_COL_F64, results->score, suite->score, suite->perplexity ? "nats" : "1",
         true},
        {"status", DPE_COL_I32, results->status, "what became of the sample; -1 = not run", "1",
         true},
        {"at_least_half", DPE_COL_F64, results->half, "at least half of the values were found", "1",
         suite->half},
        {"nll_sum", DPE_COL_F64, results->nll_sum, "sum of -ln p of the scored tokens", "nats",
         suite->perplexity},
        {"n_tokens", DPE_COL_I64, results->n_tokens, "scored tokens", "tokens", suite->perplexity},
        {"n_words", DPE_COL_I64, results->n_words, "words of the scored text", "words",
         suite->perplexity},
    };
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        if (columns[i].there) {
            put(place, columns[i].name, columns[i].type, place->rank, columns[i].data,
                columns[i].long_name, columns[i].units);
        }
    }
}

enum part { PART_MEAN, PART_LOW, PART_HIGH, PART_N };

static void put_part(const struct dpe_results *results, const struct place *place, const char *name,
                     const struct dpe_interval *intervals, enum part part, const char *long_name,
                     const char *units)
{
    size_t n = (size_t)results->n_methods * (size_t)results->n_tasks;
    double *numbers = dpe_alloc(n, sizeof *numbers);
    int64_t *counts = dpe_alloc(n, sizeof *counts);
    if (numbers == NULL || counts == NULL) {
        out_of_memory(place->to, "intervals");
        goto done;
    }
    for (size_t i = 0; i < n; i++) {
        const struct dpe_interval *interval = &intervals[i];
        numbers[i] = part == PART_MEAN  ? interval->mean
                     : part == PART_LOW ? interval->low
                                        : interval->high;
        counts[i] = interval->n;
    }
    if (part == PART_N) {
        put(place, name, DPE_COL_I64, place->rank - 1, counts, long_name, units);
    } else {
        put(place, name, DPE_COL_F64, place->rank - 1, numbers, long_name, units);
    }
done:
    free(numbers);
    free(counts);
}

static void put_means(const struct dpe_results *results, const struct place *place)
{
    const struct {
        const char *name;
        const struct dpe_interval *intervals;
        enum part part;
        const char *long_name;
        bool there;
    } columns[] = {
        {"mean", results->mean, PART_MEAN,
         results->suite->perplexity ? "perplexity by token" : "mean score", true},
        {"ci_low", results->mean, PART_LOW, "lower end of its 95 % interval", true},
        {"ci_high", results->mean, PART_HIGH, "upper end of its 95 % interval", true},
        {"n_valid", results->mean, PART_N, "samples it was made from", true},
        {"word_mean", results->word, PART_MEAN, "perplexity by word", results->suite->perplexity},
        {"word_ci_low", results->word, PART_LOW, "lower end of its 95 % interval",
         results->suite->perplexity},
        {"word_ci_high", results->word, PART_HIGH, "upper end of its 95 % interval",
         results->suite->perplexity},
    };
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        if (columns[i].there) {
            put_part(results, place, columns[i].name, columns[i].intervals, columns[i].part,
                     columns[i].long_name, "1");
        }
    }
}

static void put_differences(const struct dpe_results *results, const struct place *place)
{
    static const struct {
        const char *name;
        enum part part;
        const char *long_name;
    } columns[] = {
        {"difference", PART_MEAN, "mean paired difference to the first method"},
        {"difference_low", PART_LOW, "lower end of its 95 % interval"},
        {"difference_high", PART_HIGH, "upper end of its 95 % interval"},
        {"n_pairs", PART_N, "samples valid under both"},
    };
    const char *units = results->suite->perplexity ? "nats" : "1";
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        put_part(results, place, columns[i].name, results->difference, columns[i].part,
                 columns[i].long_name, columns[i].part == PART_N ? "1" : units);
    }
    put(place, "p_value", DPE_COL_F64, 2, results->p_value,
        "sign-flip test of no difference to the first method", "1");
}

static void put_positions(const struct dpe_results *results, struct place *place)
{
    int64_t first[64];
    for (int b = 0; b < results->n_positions; b++) {
        first[b] = INT64_C(1) << b;
    }
    snprintf(place->axis[2], sizeof place->axis[2], "%s/position", place->group);
    place->extent[2] = results->n_positions;
    put_scale(place, "position", DPE_COL_I64, results->n_positions, first,
              "first position of a bucket", "tokens");
    put(place, "position_mean", DPE_COL_F64, 3, results->position_mean,
        "perplexity of the tokens in a bucket of positions", "1");
}

static void put_categories(const struct dpe_results *results, struct place *place)
{
    const char *names[MAX_TASKS_LISTED];
    int64_t lengths[MAX_TASKS_LISTED];
    int n = dpe_results_categories(results->suite, names, MAX_TASKS_LISTED);
    int n_lengths = dpe_results_lengths(results->suite, lengths, MAX_TASKS_LISTED);
    if (n == 0) {
        return;
    }
    double *means =
        dpe_alloc((size_t)results->n_methods * (size_t)n, (size_t)n_lengths * sizeof *means);
    if (means == NULL) {
        out_of_memory(place->to, "categories");
        return;
    }
    double *at = means;
    for (int m = 0; m < results->n_methods; m++) {
        for (int c = 0; c < n; c++) {
            for (int l = 0; l < n_lengths; l++) {
                *at++ = dpe_results_category(results, m, names[c], lengths[l]);
            }
        }
    }
    snprintf(place->axis[1], sizeof place->axis[1], "%s/category", place->group);
    snprintf(place->axis[2], sizeof place->axis[2], "%s/category_length", place->group);
    place->extent[1] = n;
    place->extent[2] = n_lengths;
    put_scale(place, "category", DPE_COL_STRING, n, names, "category of tasks; the last is of all",
              "1");
    put_scale(place, "category_length", DPE_COL_I64, n_lengths, lengths, "length of the tasks",
              "tokens");
    put(place, "category_mean", DPE_COL_F64, 3, means, "mean of the means of the category's tasks",
        "1");
    free(means);
}

dpe_status dpe_results_put(const struct dpe_results *results, struct dpe_h5 *table,
                           struct dpe_error *err)
{
    struct sink to = {.table = table, .err = err};
    struct place place = {.to = &to,
                          .axis = {"/method"},
                          .extent = {results->n_methods, results->n_tasks, results->n_samples},
                          .rank = 3};
    snprintf(place.group, sizeof place.group, "/eval/%s", results->suite->name);
    snprintf(place.axis[1], sizeof place.axis[1], "%s/task", place.group);
    snprintf(place.axis[2], sizeof place.axis[2], "%s/sample", place.group);
    put_attributes(results, &place, true);
    put_tasks(results, &place);
    put_samples_scale(&place, results->n_samples);
    put(&place, "plan", DPE_COL_STRING, 2, results->keys, "key of the position plan in /plans/plan",
        "1");
    if (results->memory != NULL) {
        put(&place, "memory", DPE_COL_I64, 2, results->memory,
            "what a session for one text of the length needs", "bytes");
    }
    put_samples(results, &place);
    put_means(results, &place);
    if (results->suite->half) {
        put(&place, "half_mean", DPE_COL_F64, 2, results->half_mean,
            "share of samples with at least half of the values", "1");
    }
    put_differences(results, &place);
    if (results->n_positions > 0) {
        put_positions(results, &place);
    }
    put_categories(results, &place);
    return to.status;
}

/* Tasks of a grid lie length by length; its table has the depth before the length. */
static void transpose(void *to, const void *from, size_t size, const struct dpe_results *results,
                      int n_depths, int64_t block)
{
    int n_lengths = results->n_tasks / n_depths;
    size_t bytes = (size_t)block * size;
    for (int m = 0; m < results->n_methods; m++) {
        for (int t = 0; t < results->n_tasks; t++) {
            int target = t % n_depths * n_lengths + t / n_depths;
            size_t row = (size_t)m * (size_t)results->n_tasks;
            memcpy((char *)to + (row + (size_t)target) * bytes,
                   (const char *)from + (row + (size_t)t) * bytes, bytes);
        }
    }
}

/* The arrays of a grid that are written, in the grid's order; owned. */
static dpe_status reorder(const struct dpe_results *results, int n_depths, struct dpe_results *grid,
                          struct dpe_error *err)
{
    size_t cells = (size_t)results->n_methods * (size_t)results->n_tasks;
    size_t n = cells * (size_t)results->n_samples;
    int64_t block = results->n_samples;
    *grid = (struct dpe_results){.suite = results->suite,
                                 .n_methods = results->n_methods,
                                 .n_tasks = results->n_tasks,
                                 .n_samples = block,
                                 .score = dpe_alloc(n, sizeof *grid->score),
                                 .half = dpe_alloc(n, sizeof *grid->half),
                                 .status = dpe_alloc(n, sizeof *grid->status),
                                 .mean = dpe_alloc(cells, sizeof *grid->mean)};
    if (grid->score == NULL || grid->half == NULL || grid->status == NULL || grid->mean == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for %zu results", n);
    }
    transpose(grid->score, results->score, sizeof *grid->score, results, n_depths, block);
    transpose(grid->half, results->half, sizeof *grid->half, results, n_depths, block);
    transpose(grid->status, results->status, sizeof *grid->status, results, n_depths, block);
    transpose(grid->mean, results->mean, sizeof *grid->mean, results, n_depths, 1);
    return DPE_OK;
}

static void put_grid_axes(const struct dpe_results *results, const double *depths,
                          struct place *place)
{
    int64_t lengths[MAX_TASKS_LISTED];
    int n_lengths = dpe_results_lengths(results->suite, lengths, MAX_TASKS_LISTED);
    const char **keys = dpe_alloc((size_t)results->n_methods, (size_t)n_lengths * sizeof *keys);
    if (keys == NULL) {
        out_of_memory(place->to, "keys");
        return;
    }
    put_scale(place, "depth", DPE_COL_F64, place->extent[1], depths,
              "place of the needle, 0 = start of the haystack", "1");
    put_scale(place, "length", DPE_COL_I64, n_lengths, lengths, "prompt and answer together",
              "tokens");
    put_samples_scale(place, results->n_samples);
    /* All depths of a length have one plan. */
    int n_depths = (int)place->extent[1];
    for (int i = 0; i < results->n_methods * n_lengths; i++) {
        keys[i] = results->keys[i * n_depths];
    }
    struct place by_length = *place;
    memcpy(by_length.axis[1], place->axis[2], sizeof by_length.axis[1]);
    by_length.extent[1] = n_lengths;
    put(&by_length, "plan", DPE_COL_STRING, 2, keys, "key of the position plan in /plans/plan",
        "1");
    free(keys);
}

dpe_status dpe_results_put_grid(const struct dpe_results *results, const double *depths,
                                int n_depths, struct dpe_h5 *table, struct dpe_error *err)
{
    struct sink to = {.table = table, .err = err};
    struct place place = {
        .to = &to,
        .axis = {"/method"},
        .extent = {results->n_methods, n_depths, results->n_tasks / n_depths, results->n_samples},
        .rank = 4};
    static const char *const axes[] = {"depth", "length", "sample"};
    snprintf(place.group, sizeof place.group, "/eval/%s", results->suite->name);
    for (int i = 0; i < 3; i++) {
        snprintf(place.axis[i + 1], sizeof place.axis[i + 1], "%s/%s", place.group, axes[i]);
    }
    struct dpe_results grid = {0};
    to.status = reorder(results, n_depths, &grid, err);
    if (!failed(&to)) {
        put_attributes(results, &place, false);
        put_grid_axes(results, depths, &place);
        put_samples(&grid, &place);
        put_means(&grid, &place);
    }
    dpe_results_free(&grid);
    return to.status;
}
