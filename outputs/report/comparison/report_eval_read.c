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
    struct numbers *const all[] = {&s->lengths,         &s->values.mean,     &s->values.low,
                                   &s->values.high,     &s->difference.mean, &s->difference.low,
                                   &s->difference.high, &s->words.mean,      &s->words.low,
                                   &s->words.high,      &s->p_value,         &s->n_pairs,
                                   &s->n_valid,         &s->position,        &s->position_mean,
                                   &s->category_length, &s->category_mean,   &s->memory};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        dpe_input_numbers_free(all[i]);
    }
    dpe_input_names_free(&s->methods);
    dpe_input_names_free(&s->labels);
    dpe_input_names_free(&s->categories);
    free(s->name);
    free(s->title);
    free(s->unit);
    free(s->explanation);
    *s = (struct suite){0};
}

/** A dataset below /eval/SUITE. */
struct part {
    const char *name;
    int rank;
    int64_t dims[3];
    bool required;
    struct numbers *into;
};

static dpe_status read_parts(const struct suite *s, const struct part *parts, size_t n,
                             struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < n && status == DPE_OK; i++) {
        char *path = dpe_draw_format_text("/eval/%s/%s", s->name, parts[i].name);
        if (path == NULL) {
            return dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", s->input->path);
        }
        struct wanted wanted = {path, parts[i].rank, {0}, parts[i].required, parts[i].into};
        memcpy(wanted.dims, parts[i].dims, sizeof parts[i].dims);
        status = dpe_input_read_wanted(s->input, &wanted, 1, err);
        free(path);
    }
    return status;
}

static dpe_status read_axes(struct suite *s, struct dpe_error *err)
{
    char *labels = dpe_draw_format_text("/eval/%s/task_label", s->name);
    char *categories = dpe_draw_format_text("/eval/%s/category", s->name);
    char *folder = dpe_draw_format_text("/eval/%s", s->name);
    dpe_status status = labels == NULL || categories == NULL || folder == NULL
                            ? dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", s->input->path)
                            : dpe_input_read_names(s->input, "/method", -1, &s->methods, err);
    s->together = 1;
    if (status != DPE_OK ||
        (status = dpe_input_read_names(s->input, labels, -1, &s->labels, err)) != DPE_OK ||
        (status = dpe_input_read_names(s->input, categories, -1, &s->categories, err)) != DPE_OK) {
        goto done;
    }
    char *better = dpe_input_read_words(s->input, folder, "better");
    s->low_is_better = better != NULL && strcmp(better, "lower") == 0;
    free(better);
    /* Older tables of dpe-eval do not have these attributes. */
    s->title = dpe_input_read_words(s->input, folder, "title");
    s->unit = dpe_input_read_words(s->input, folder, "unit");
    s->explanation = dpe_input_read_words(s->input, folder, "explanation");
    s->together = dpe_input_read_whole(s->input, folder, "samples_together", 1);
done:
    free(labels);
    free(categories);
    free(folder);
    return status;
}

dpe_status dpe_comparison_suite_read(const struct input *input, const char *name, struct suite *s,
                                     struct dpe_error *err)
{
    *s = (struct suite){.input = input, .name = dpe_draw_clean_text(name, 0)};
    dpe_status status = s->name != NULL
                            ? read_axes(s, err)
                            : dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", input->path);
    int64_t m = (int64_t)s->methods.n;
    int64_t t = (int64_t)s->labels.n;
    int64_t c = s->categories.n > 0 ? (int64_t)s->categories.n : -1;
    const struct part parts[] = {
        {"task_length", 1, {t}, true, &s->lengths},
        {"mean", 2, {m, t}, true, &s->values.mean},
        {"ci_low", 2, {m, t}, true, &s->values.low},
        {"ci_high", 2, {m, t}, true, &s->values.high},
        {"n_valid", 2, {m, t}, true, &s->n_valid},
        {"difference", 2, {m, t}, false, &s->difference.mean},
        {"difference_low", 2, {m, t}, false, &s->difference.low},
        {"difference_high", 2, {m, t}, false, &s->difference.high},
        {"p_value", 2, {m, t}, false, &s->p_value},
        {"n_pairs", 2, {m, t}, false, &s->n_pairs},
        {"memory", 2, {m, t}, false, &s->memory},
        {"word_mean", 2, {m, t}, false, &s->words.mean},
        {"word_ci_low", 2, {m, t}, false, &s->words.low},
        {"word_ci_high", 2, {m, t}, false, &s->words.high},
        {"position", 1, {-1}, false, &s->position},
        {"category_length", 1, {-1}, false, &s->category_length},
    };
    if (status != DPE_OK ||
        (status = read_parts(s, parts, sizeof parts / sizeof parts[0], err)) != DPE_OK) {
        return status;
    }
    const struct part dependent[] = {
        {"position_mean", 3, {m, t, (int64_t)s->position.n}, s->position.n > 0, &s->position_mean},
        {"category_mean",
         3,
         {m, c, (int64_t)s->category_length.n},
         s->category_length.n > 0,
         &s->category_mean},
    };
    return read_parts(s, dependent, 2, err);
}

/* ------------------------------------------------------------------------------------------ asking
 */

int64_t dpe_comparison_suite_task(const struct suite *s, const char *label, double length)
{
    for (size_t t = 0; t < s->labels.n; t++) {
        if (strcmp(s->labels.names[t], label) == 0 && s->lengths.values[t] == length) {
            return (int64_t)t;
        }
    }
    return -1;
}

bool dpe_comparison_suite_first_length(const struct suite *s, size_t task)
{
    for (size_t t = 0; t < task; t++) {
        if (s->lengths.values[t] == s->lengths.values[task]) {
            return false;
        }
    }
    return true;
}

bool dpe_comparison_suite_is_single(const struct suite *s)
{
    for (size_t t = 1; t < s->labels.n; t++) {
        if (strcmp(s->labels.names[t], s->labels.names[0]) != 0) {
            return false;
        }
    }
    return true;
}

static bool task_has_value(const struct suite *s, size_t task)
{
    for (size_t m = 0; m < s->methods.n; m++) {
        if (!isnan(s->values.mean.values[m * s->labels.n + task])) {
            return true;
        }
    }
    return false;
}

double dpe_comparison_suite_longest(const struct suite *s)
{
    double longest = 0.0;
    double any = 0.0;
    for (size_t t = 0; t < s->lengths.n; t++) {
        any = fmax(any, s->lengths.values[t]);
        if (task_has_value(s, t)) {
            longest = fmax(longest, s->lengths.values[t]);
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

char *dpe_comparison_suite_id(const struct report *report, const struct suite *s, const char *what)
{
    struct writer safe = {0};
    for (const char *c = s->name; *c != '\0'; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9');
        dpe_draw_put_bytes(&safe, plain ? c : "-", 1);
    }
    char *base = safe.failed ? NULL : dpe_draw_format_text("%s-%s", safe.text.bytes, what);
    char *has = dpe_draw_format_text("/eval/%s/mean", s->name);
    char *id =
        base == NULL || has == NULL ? NULL : dpe_input_report_id(report, s->input, has, base);
    free(has);
    free(base);
    dpe_text_free(&safe.text);
    return id;
}

bool dpe_comparison_method_is_dpe(const char *name)
{
    return strncmp(name, "table:", 6) == 0 || strcmp(name, "dpe") == 0 ||
           strncmp(name, "dpe:", 4) == 0;
}
