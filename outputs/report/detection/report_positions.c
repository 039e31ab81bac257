/* A detection by position in the text: what its rows keep of each token's likelihood. */
#include "outputs/report/detection/report_detect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Of the rows of one task, by plan. */
struct buckets {
    struct bucket {
        char plan[33]; /**< key */
        struct dpe_positions of;
    } * plans;
    size_t n_plans;
    int n; /**< buckets of the row that has most */
};

static struct bucket *find(const struct buckets *buckets, const char *plan)
{
    for (size_t i = 0; i < buckets->n_plans; i++) {
        if (strcmp(buckets->plans[i].plan, plan) == 0) {
            return &buckets->plans[i];
        }
    }
    return NULL;
}

static bool add_row(struct buckets *buckets, const struct dpe_row *row)
{
    struct bucket *own = find(buckets, row->plan);
    if (own == NULL) {
        if (!dpe_make_room(&buckets->plans, buckets->n_plans, sizeof *buckets->plans)) {
            return false;
        }
        own = &buckets->plans[buckets->n_plans++];
        *own = (struct bucket){.of = {.n = 0}};
        memcpy(own->plan, row->plan, sizeof own->plan);
    }
    dpe_positions_add(&own->of, row);
    buckets->n = own->of.n > buckets->n ? own->of.n : buckets->n;
    return true;
}

/* n = 0 when the table has no such rows. */
static dpe_status read_buckets(const struct input *input, const char *task, struct buckets *buckets,
                               struct dpe_error *err)
{
    struct dpe_row *rows = NULL;
    size_t n = 0;
    *buckets = (struct buckets){0};
    if (!dpe_h5_has(input->table, "/rows/bucket_nll")) {
        return DPE_OK;
    }
    dpe_status status = dpe_h5_get_rows(input->table, &rows, &n, err);
    if (status != DPE_OK) {
        return dpe_fail_prefix(err, "%s", input->path);
    }
    for (size_t i = 0; i < n; i++) {
        const bool wanted = strcmp(rows[i].task, task) == 0 && rows[i].status == DPE_ROW_OK &&
                            rows[i].n_buckets > 0;
        if (status == DPE_OK && wanted && !add_row(buckets, &rows[i])) {
            status = dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory for buckets", input->path);
        }
        dpe_row_free(&rows[i]);
    }
    free(rows);
    return status;
}

static double perplexity_at(const struct buckets *buckets, const char *plan, int b)
{
    const struct bucket *own = plan != NULL ? find(buckets, plan) : NULL;
    return own != NULL ? dpe_positions_at(&own->of, b) : (double)NAN;
}

/* The first tokens have hardly any context: their perplexity of hundreds would flatten the rest. */
static int first_shown(int n)
{
    return n > 6 ? 3 : 0;
}

/* -------------------------------------------------------------------------- group by position */

/** Plans of the cells: [group][length], and that of "every group at half the trained length". */
struct cells {
    const struct detection *detection;
    struct names keys;
    const char *base; /**< its key; NULL: there is none */
    int64_t *best; /**< [group] index of the length of rank 1, −1 = none */
};

/* All cells, as numbers. */
static struct sheet *positions_sheet(const struct report *report, const struct cells *cells,
                                     const struct buckets *buckets)
{
    const struct detection *d = cells->detection;
    struct sheet *sheet = dpe_report_sheet(report, "detect-positions",
                                           "group:0|length:0|from position:0|perplexity:3",
                                           "Perplexity by position, group by group");
    for (int64_t i = 0; i < d->n_groups * d->n_lengths; i++) {
        for (int b = 0; b < buckets->n; b++) {
            dpe_draw_row(sheet, i / d->n_lengths, d->ranking.length[i % d->n_lengths],
                         ldexp(1.0, b), perplexity_at(buckets, cells->keys.names[i], b));
        }
    }
    dpe_draw_shown(sheet, 80, false);
    return sheet;
}

/* What is drawn: groups at their best lengths ("3 at 256"). Against the base a change of a few
 * percent shows; without one there are the values themselves. */
static struct sheet *best_sheet(const struct report *report, const struct cells *cells,
                                const struct buckets *buckets)
{
    const struct detection *d = cells->detection;
    struct sheet *sheet = dpe_report_sheet(report, "", "group:0|from position:0|value:0", "%s", "");
    for (int64_t g = 0; g < d->n_groups; g++) {
        const int64_t best = cells->best[g];
        const char *plan = best < 0 ? NULL : cells->keys.names[g * d->n_lengths + best];
        struct sheet_cell group = dpe_number_cell((double)g);
        char name[64], tokens[32] = "–";
        if (best >= 0) {
            dpe_length_text((double)d->ranking.length[best], tokens);
        }
        snprintf(name, sizeof name, "%lld at %s", (long long)g, tokens);
        group.text = name;
        for (int b = first_shown(buckets->n); b < buckets->n; b++) {
            const double value = perplexity_at(buckets, plan, b);
            dpe_draw_row(sheet, group, ldexp(1.0, b),
                         cells->base == NULL
                             ? value
                             : 100.0 * (value / perplexity_at(buckets, cells->base, b) - 1.0));
        }
    }
    return sheet;
}

static void add_groups(struct report *report, const struct cells *cells,
                       const struct buckets *buckets)
{
    const bool relative = cells->base != NULL;
    const struct plot plot = {.kind = PLOT_HEAT,
                              .log = !relative,
                              .low_is_good = true,
                              .digits = relative ? 1 : 3,
                              .x_title = "from position, tokens",
                              .y_title = "group, at its best length",
                              .bar_title = relative ? "change, percent" : "perplexity"};
    struct sheet *drawn = best_sheet(report, cells, buckets);
    struct figure *figure =
        dpe_report_figure(report, positions_sheet(report, cells, buckets), NULL,
                          "The %s of the tokens from each position to twice "
                          "that position when one group goes from %s to the length that perplexity "
                          "ranks first and the other groups keep theirs. Near positions "
                          "are inside the window, which no length changes. There are no "
                          "intervals by position: small changes may be chance. All "
                          "lengths are in the table of numbers.",
                          relative ? "change in perplexity (less is better)" : "perplexity",
                          DPE_LENGTH_TEXT(dpe_detection_trained(cells->detection) / 2.0));
    if (figure != NULL) {
        dpe_draw_plot(figure, drawn, &plot);
    }
    report->document.failed = report->document.failed || drawn == NULL || drawn->failed;
    dpe_draw_sheet_free(drawn);
}

static dpe_status write_groups(struct report *report, const struct detection *d,
                               struct dpe_error *err)
{
    struct buckets buckets = {0};
    struct cells cells = {.detection = d};
    const int32_t *rank = d->by_recall ? d->by_perplexity.rank : d->ranking.rank;
    dpe_status status = dpe_input_read_names(d->input, "/detect/plan", d->n_groups * d->n_lengths,
                                             &cells.keys, err);
    if (status == DPE_OK && cells.keys.n > 0 && rank != NULL) {
        status = read_buckets(d->input, "ppl", &buckets, err);
    }
    cells.best = dpe_alloc((size_t)d->n_groups, sizeof *cells.best);
    if (status == DPE_OK && cells.best == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", d->input->path);
    }
    if (status == DPE_OK && buckets.n > 0) {
        for (int64_t i = 0; i < d->n_groups * d->n_lengths; i++) {
            int64_t length = i % d->n_lengths;
            if (length == 0) {
                cells.best[i / d->n_lengths] = -1;
            }
            if (rank[i] == 1) {
                cells.best[i / d->n_lengths] = length;
            }
            if ((double)d->ranking.length[length] == dpe_detection_trained(d) / 2.0 &&
                find(&buckets, cells.keys.names[i]) != NULL) {
                cells.base = cells.keys.names[i];
            }
        }
        add_groups(report, &cells, &buckets);
    }
    free(cells.best);
    dpe_input_names_free(&cells.keys);
    free(buckets.plans);
    return status;
}

/* ------------------------------------------------------------------------------------ validation
 */

/* The model as it is, every group at half the trained length, and the detection. */
static void add_plans(struct report *report, const struct detection *d, const struct names *names,
                      const struct names *keys, const struct buckets *buckets)
{
    const struct plot plot = {.kind = PLOT_CURVES,
                              .log_x = true,
                              .log = true,
                              .x_title = "position in the text, tokens",
                              .y_title = "perplexity per token",
                              .x_line = dpe_detection_trained(d),
                              .x_line_title = "trained length"};
    struct sheet *sheet =
        dpe_report_sheet(report, "validate-positions", "plan:t|from position:0|perplexity:3",
                         "Perplexity by position, the chosen lengths together");
    for (size_t p = 0; p < names->n; p++) {
        for (int b = 0; b < buckets->n; b++) {
            dpe_draw_row(sheet, names->names[p], ldexp(1.0, b),
                         perplexity_at(buckets, keys->names[p], b));
            dpe_draw_row_mark(sheet, (strcmp(names->names[p], "joint") == 0 ? ROW_STRONG : 0) |
                                         (strcmp(names->names[p], "rope") == 0 ? ROW_PLAIN : 0) |
                                         (b < first_shown(buckets->n) ? ROW_UNDRAWN : 0));
        }
    }
    dpe_report_figure(
        report, sheet, &plot,
        "Books under three plans: rope, the unchanged model; base, %s; joint, the chosen "
        "lengths. Each point is the perplexity of the tokens from its position to twice that "
        "position. More context should lower it; a line that rises shows where a plan stops "
        "working.",
        dpe_detection_base(d));
}

static dpe_status write_plans(struct report *report, const struct detection *d,
                              struct dpe_error *err)
{
    struct buckets buckets = {0};
    struct names names = {0};
    struct names keys = {0};
    dpe_status status = dpe_input_read_names(d->input, "/validated_plan", -1, &names, err);
    if (status == DPE_OK) {
        status = dpe_input_read_names(d->input, "/validate/plan", (int64_t)names.n, &keys, err);
    }
    if (status == DPE_OK && keys.n > 0) {
        const char *task =
            dpe_h5_has(d->input->table, "/validate/guard") ? "guard-ppl" : "validate-ppl";
        status = read_buckets(d->input, task, &buckets, err);
    }
    if (status == DPE_OK && buckets.n > 0) {
        add_plans(report, d, &names, &keys, &buckets);
    }
    dpe_input_names_free(&names);
    dpe_input_names_free(&keys);
    free(buckets.plans);
    return status;
}

dpe_status dpe_detection_positions(struct report *report, const struct detection *detection,
                                   struct dpe_error *err)
{
    DPE_TRY(write_groups(report, detection, err));
    return write_plans(report, detection, err);
}
