/* One suite of a comparison: read, and what can be asked of it. */
#include "engine/base/base.h"
#include "outputs/h5/h5.h"
#include "outputs/report/comparison/report_eval.h"
#include "outputs/report/draw/page.h"
#include "outputs/report/input/input.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------- reading
 */

void dpe_comparison_suite_free(struct suite *s)
{
    dpe_datasets_free(&dpe_suite_kinds[0], &s->r);
    free(s->name);
    free(s->has);
    free(s->title);
    free(s->unit);
    free(s->explanation);
    *s = (struct suite){0};
}

/* Means and their axes are there together, or they are not shown. */
static void take_axes(struct suite *s)
{
    const int64_t *n = s->r.n;
    const bool positions = s->r.position != NULL && s->r.position_mean != NULL;
    const bool categories =
        s->r.category != NULL && s->r.category_length != NULL && s->r.category_mean != NULL;
    s->n_methods = (size_t)n[DPE_SUITE_METHOD];
    s->n_tasks = (size_t)n[DPE_SUITE_TASK];
    s->n_positions = positions ? (size_t)n[DPE_SUITE_POSITION] : 0;
    s->n_categories = categories ? (size_t)n[DPE_SUITE_CATEGORY] : 0;
    s->n_category_lengths = categories ? (size_t)n[DPE_SUITE_CATEGORY_LENGTH] : 0;
}

/* Tables of other programs may not say it: the first. */
static size_t find_against(const struct suite *s)
{
    char *against = dpe_input_read_words(s->input, "/eval", "against");
    size_t found = 0;
    for (size_t m = 0; against != NULL && m < s->n_methods; m++) {
        found = strcmp(s->r.method[m], against) == 0 ? m : found;
    }
    free(against);
    return found;
}

dpe_status dpe_comparison_suite_read(const struct input *input, const char *name, struct suite *s,
                                     struct dpe_error *err)
{
    *s = (struct suite){.input = input,
                        .name = dpe_draw_clean_text(name, 0),
                        .has = dpe_draw_format_text("/eval/%s/mean", name)};
    char *folder = dpe_draw_format_text("/eval/%s", name);
    dpe_status status = s->name != NULL && s->has != NULL && folder != NULL
                            ? dpe_input_get(input, &dpe_suite_kinds[0], &s->r, folder, NULL, err)
                            : dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", input->path);
    if (status == DPE_OK) {
        take_axes(s);
        char *better = dpe_input_read_words(input, folder, "better");
        s->low_is_better = better != NULL && strcmp(better, "lower") == 0;
        s->scale = s->low_is_better ? 1.0 : 100.0;
        free(better);
        s->title = dpe_input_read_words(input, folder, "title");
        s->unit = dpe_input_read_words(input, folder, "unit");
        s->explanation = dpe_input_read_words(input, folder, "explanation");
        s->against = find_against(s);
        s->together = dpe_input_read_whole(input, folder, "samples_together", 1);
    }
    free(folder);
    return status;
}

/* ------------------------------------------------------------------------------------------ asking
 */

int64_t dpe_comparison_suite_task(const struct suite *s, const char *label, double length)
{
    for (size_t t = 0; t < s->n_tasks; t++) {
        if (strcmp(s->r.task_label[t], label) == 0 && (double)s->r.task_length[t] == length) {
            return (int64_t)t;
        }
    }
    return -1;
}

size_t dpe_comparison_suite_rank(const struct suite *s, size_t method, size_t task)
{
    const double own = s->r.mean[method * s->n_tasks + task].mean;
    size_t n = 0;
    for (size_t m = 0; m < s->n_methods; m++) {
        const double other = s->r.mean[m * s->n_tasks + task].mean;
        const bool above = s->low_is_better ? other < own : other > own;
        n += above || isnan(own) || (other == own && m < method);
    }
    return n;
}

size_t dpe_comparison_suite_ranked(const struct suite *s, size_t rank, size_t task)
{
    size_t m = 0;
    while (m + 1 < s->n_methods && dpe_comparison_suite_rank(s, m, task) != rank) {
        m++;
    }
    return m;
}

bool dpe_comparison_suite_is_single(const struct suite *s)
{
    for (size_t t = 1; t < s->n_tasks; t++) {
        if (strcmp(s->r.task_label[t], s->r.task_label[0]) != 0) {
            return false;
        }
    }
    return true;
}

static bool task_has_value(const struct suite *s, size_t task)
{
    for (size_t m = 0; m < s->n_methods; m++) {
        if (!isnan(s->r.mean[m * s->n_tasks + task].mean)) {
            return true;
        }
    }
    return false;
}

double dpe_comparison_suite_longest(const struct suite *s)
{
    double longest = 0.0;
    double any = 0.0;
    for (size_t t = 0; t < s->n_tasks; t++) {
        any = fmax(any, (double)s->r.task_length[t]);
        if (task_has_value(s, t)) {
            longest = fmax(longest, (double)s->r.task_length[t]);
        }
    }
    return longest > 0.0 ? longest : any;
}

const char *dpe_comparison_suite_title(const struct suite *s)
{
    return s->title != NULL ? s->title : s->name;
}

const char *dpe_comparison_suite_unit(const struct suite *s)
{
    return s->unit != NULL    ? s->unit
           : s->low_is_better ? "perplexity per token"
                              : "score (1 = all right)";
}

void dpe_comparison_suite_measure(const struct suite *s, char *text, size_t size)
{
    const char *unit = dpe_comparison_suite_unit(s);
    const char *bracket = strstr(unit, " (");
    snprintf(text, size, "%.*s", bracket != NULL ? (int)(bracket - unit) : (int)strlen(unit), unit);
}

void dpe_comparison_suite_about(struct report *report, const struct suite *s)
{
    struct subject *about = &report->about;
    *about = (struct subject){.input = s->input, .has = s->has};
    snprintf(about->prefix, sizeof about->prefix, "%s", s->name);
    for (char *c = about->prefix; *c != '\0'; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9');
        *c = (char)(plain ? *c : '-');
    }
}

struct plot dpe_comparison_suite_plot(const struct suite *s, enum plot_kind kind)
{
    const bool lines = kind == PLOT_CURVES;
    return (struct plot){.kind = kind,
                         .value = 3,
                         .log_x = true,
                         .log = s->low_is_better,
                         .low_is_good = s->low_is_better,
                         .low = s->low_is_better ? (double)NAN
                                : lines          ? -2.0
                                                 : 0.0,
                         .high = s->low_is_better ? (double)NAN
                                 : lines          ? 104.0
                                                  : 100.0,
                         .x_title = "length, tokens",
                         .y_title = !lines             ? "method"
                                    : s->low_is_better ? "perplexity per token"
                                                       : "recall, %",
                         .bar_title = s->low_is_better ? "perplexity" : "percent",
                         .x_line =
                             (double)dpe_input_read_whole(s->input, "/eval", "trained_length", -1),
                         .x_line_title = "trained length"};
}

dpe_status dpe_comparison_suites(const struct input *input, dpe_suite_writer write, void *user,
                                 struct dpe_error *err)
{
    char **names = NULL;
    size_t n = 0;
    dpe_status status = dpe_h5_list(input->table, "/eval", &names, &n, err);
    for (size_t i = 0; i < n && status == DPE_OK; i++) {
        struct suite suite = {0};
        char *path = dpe_draw_format_text("/eval/%s/task_label", names[i]);
        if (path != NULL && dpe_h5_has(input->table, path)) {
            status = dpe_comparison_suite_read(input, names[i], &suite, err);
            status = status == DPE_OK ? write(user, &suite, err) : status;
            dpe_comparison_suite_free(&suite);
        }
        free(path);
    }
    dpe_strings_free(names, n);
    return status;
}
