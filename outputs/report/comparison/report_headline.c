/* What a comparison says at a glance: its best values, what a table is worth at its longest length
 * and how it is used, and the figure of the first screen. */
#include "outputs/datasets/uses.h"
#include "outputs/read/read.h"
#include "outputs/report/comparison/report_eval.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** What the first screen shows of a suite with a table: its methods, at the longest length. */
enum { LENGTHS = 32 };
struct headline {
    struct dpe_worth worth;
    size_t order[LENGTHS]; /**< tasks, by length */
    size_t n;              /**< of them */
};

/* ------------------------------------------------------------------------------------------- marks
 */

/* The longest length that the table of this name was made for, 0 when no input is that table. */
static double made_for(const struct report *report, const char *method)
{
    const char *file = strncmp(method, "table:", 6) == 0 ? method + 6 : method;
    const char *slash = strrchr(file, '/');
    file = slash != NULL ? slash + 1 : file;
    double longest = 0.0;
    for (size_t i = 0; i < report->n; i++) {
        struct table_part part = {0};
        if (strcmp(report->inputs[i].name, file) != 0 ||
            dpe_input_table(&report->inputs[i], "length evaluated_length", &part, NULL) != DPE_OK) {
            dpe_input_table_free(&part);
            continue;
        }
        longest = part.evaluated_length != NULL ? fmax(longest, *part.evaluated_length) : longest;
        for (int64_t k = 0; part.length != NULL && k < part.n[TABLE_ENTRY]; k++) {
            longest = fmax(longest, part.length[k]);
        }
        dpe_input_table_free(&part);
    }
    return longest;
}

static bool is_outside(const struct report *report, const struct suite *s, size_t method,
                       size_t task)
{
    double longest = made_for(report, s->r.method[method]);
    return longest > 0.0 && (double)s->r.task_length[task] > longest;
}

unsigned dpe_comparison_suite_marks(const struct report *report, const struct suite *s,
                                    size_t method, size_t task)
{
    const struct dpe_interval *all = s->r.mean;
    size_t at = method * s->n_tasks + task;
    size_t best = dpe_comparison_suite_ranked(s, 0, task) * s->n_tasks + task;
    size_t measured = 0;
    unsigned outside = is_outside(report, s, method, task) ? MARK_OUTSIDE : 0;
    for (size_t m = 0; m < s->n_methods; m++) {
        measured += isfinite(all[m * s->n_tasks + task].mean) ? 1 : 0;
    }
    if (!isfinite(all[at].mean) || measured < 2) {
        return outside;
    }
    if (all[at].mean == all[best].mean) {
        return outside | MARK_BEST;
    }
    return all[at].low <= all[best].high && all[best].low <= all[at].high ? outside | MARK_TIED : outside;
}

/* ---------------------------------------------------------------------------------------- headline
 */

/* Tasks by length, ascending; at most `size`. */
static size_t sort_tasks(const struct suite *s, size_t *order, size_t size)
{
    size_t n = 0;
    for (size_t t = 0; t < s->n_tasks && n < size; t++) {
        size_t k = n++;
        for (; k > 0 && (double)s->r.task_length[order[k - 1]] > (double)s->r.task_length[t]; k--) {
            order[k] = order[k - 1];
        }
        order[k] = t;
    }
    return n;
}

static void add_figure(struct report *report, const struct suite *s, const struct headline *shown)
{
    const int64_t *chosen = shown->worth.method;
    struct plot plot = dpe_comparison_suite_plot(s, shown->n > 1 ? PLOT_CURVES : PLOT_DOTS);
    char at[64] = ", by length", tokens[32];
    if (shown->n == 1) {
        snprintf(at, sizeof at, " at %s tokens",
                 dpe_length_text((double)s->r.task_length[shown->order[0]], tokens));
        plot.x_title = "needles found, %";
        plot.digits = 1;
    }
    plot.x = 1;
    plot.value = 2;
    plot.y_title = "needles found, %";
    struct sheet *sheet = dpe_report_sheet(report, "headline", "method:@|length:0|recall, %:i1",
                                           "Needles found%s", at);
    for (int c = 0; c < DPE_WORTHS; c++) {
        for (size_t i = 0; i < shown->n && chosen[c] >= 0; i++) {
            const size_t task = shown->order[i];
            dpe_draw_row(sheet, s->r.method[chosen[c]], s->r.task_length[task],
                         dpe_scaled_cell(&s->r.mean[(size_t)chosen[c] * s->n_tasks + task], 100.0));
            dpe_draw_row_mark(sheet, c == DPE_WORTH_TABLE ? ROW_STRONG : 0);
        }
    }
    dpe_report_figure(
        report, sheet, &plot, "%s%s%s, on samples of their own, with 95\u00a0%% intervals.",
        chosen[DPE_WORTH_ALONE] >= 0 ? "The model alone (rope) and the calibrated table ("
                                     : "The table (",
        s->r.method[chosen[DPE_WORTH_TABLE]],
        chosen[DPE_WORTH_RIVAL] >= 0 ? "), beside the best of the other methods" : ")");
}

/* ------------------------------------------------------------------------------------------- words
 */

/* The finished table among the inputs; `*factors`: runtimes need no adapter for it. */
static const struct input *find_table(const struct report *report, bool *factors)
{
    const struct input *found = NULL;
    for (size_t i = 0; i < report->n; i++) {
        const struct input *input = &report->inputs[i];
        if (dpe_input_has_table(input)) {
            char *adapter = dpe_input_read_words(input, "/table", "adapter_required");
            *factors = adapter != NULL && strcmp(adapter, "false") == 0;
            free(adapter);
            found = input;
        }
    }
    return found;
}

/* The command with the table's name in place of TABLE; owned. */
static char *command_text(const char *command, const char *table)
{
    struct dpe_text out = {0};
    for (const char *at = command; *at != '\0';) {
        const char *next = strstr(at, "TABLE");
        bool word = next != NULL && next[5] != '='; /* DPE_TABLE= stays */
        size_t n = next == NULL ? strlen(at) : (size_t)(next - at) + (word ? 0 : 5);
        dpe_text_put_bytes(&out, at, n);
        if (next != NULL && word) {
            dpe_text_put(&out, "%s", table);
        }
        at += n + (next != NULL && word ? 5 : 0);
    }
    return out.failed ? NULL : out.bytes;
}

static void add_uses(struct report *report, const char *table, bool factors)
{
    dpe_report_say(report, BLOCK_TEXT,
                   "To see it on a text: dpe-run -m MODEL --table %s --show --corpus TEXTS", table);
    struct sheet *sheet =
        dpe_report_sheet(report, "uses", "runtime:t|command:t", "Which file for which runtime");
    for (int i = 0; i < DPE_USES; i++) {
        if (dpe_uses[i].factors && !factors) {
            continue;
        }
        char *command = command_text(dpe_uses[i].command, table);
        dpe_draw_row(sheet, dpe_uses[i].runtime, command);
        free(command);
    }
    dpe_report_add(report, sheet);
}

/* What the table of a comparison keeps itself, where it is among the inputs. */
static struct dpe_table *keep(const struct report *report, struct dpe_worth *worth)
{
    struct dpe_table *table = NULL;
    for (size_t i = 0; i < report->n && table == NULL; i++) {
        const struct input *input = &report->inputs[i];
        if (strcmp(input->name, worth->table) == 0 &&
            dpe_table_load(input->path, &table, NULL) == DPE_OK) {
            dpe_worth_keep(table, dpe_identity_get(&input->identity, "evidence") != NULL, worth);
        }
    }
    return table;
}

struct short_lines {
    struct report *report;
    struct sheet *sheet;
};

static void add_line(void *user, const char *label, const char *words)
{
    struct short_lines *lines = user;
    if (label == NULL) {
        lines->sheet = dpe_report_sheet(lines->report, "short", "what:t|result:t", "%s", words);
    } else {
        dpe_draw_row(lines->sheet, label, words);
    }
}

static void add_words(struct report *report, const struct suite *s, struct dpe_worth *worth)
{
    const char *name = s->r.method[worth->method[DPE_WORTH_TABLE]];
    worth->table = strncmp(name, "table:", 6) == 0 ? name + 6 : name;
    worth->trained = dpe_input_read_whole(s->input, "/eval", "trained_length", 0);
    struct dpe_table *kept = keep(report, worth);
    const struct input *table = find_table(report, &worth->factors);
    for (size_t i = 0; i < report->n; i++) {
        dpe_worth_texts(report->inputs[i].table, worth);
    }
    struct short_lines lines = {.report = report};
    dpe_report_section(report, "In short");
    dpe_worth_words(worth, add_line, &lines);
    dpe_report_add(report, lines.sheet);
    if (table != NULL) {
        add_uses(report, table->name, worth->factors);
    }
    dpe_table_close(kept);
}

/* What an input shows of a table, at how many lengths: n 0, nothing. `s` is to be freed. */
static dpe_status read_shown(const struct input *input, const char *name, struct suite *s,
                             struct headline *shown, struct dpe_error *err)
{
    char path[64];
    snprintf(path, sizeof path, "/eval/%s/task_label", name);
    *s = (struct suite){0};
    shown->n = 0;
    if (!dpe_h5_has(input->table, path) || dpe_h5_has(input->table, "/ablate")) {
        return DPE_OK;
    }
    dpe_status status = dpe_comparison_suite_read(input, name, s, err);
    if (status != DPE_OK || s->n_methods == 0 || s->n_tasks == 0) {
        return status;
    }
    const int64_t task =
        dpe_comparison_suite_task(s, s->r.task_label[0], dpe_comparison_suite_longest(s));
    shown->n = task >= 0 ? sort_tasks(s, shown->order, LENGTHS) : 0;
    if (task >= 0) {
        dpe_worth_of(&s->r, task, s->low_is_better, (int64_t)s->against, &shown->worth);
        /* An unfinished run may have nothing of the table yet. */
        shown->n = isfinite(shown->worth.value[DPE_WORTH_TABLE].mean) ? shown->n : 0;
    }
    return status;
}

dpe_status dpe_comparison_headline(struct report *report, struct dpe_error *err)
{
    static const char *const names[] = {"niah", "ppl"};
    dpe_status status = DPE_OK;
    const struct input *widest = NULL;
    const char *name = NULL;
    size_t most = 0;
    struct suite s;
    struct headline shown;
    for (size_t k = 0; k < 2 && most == 0; k++) {
        for (size_t i = 0; i < report->n && status == DPE_OK; i++) {
            status = read_shown(&report->inputs[i], names[k], &s, &shown, err);
            dpe_comparison_suite_free(&s);
            if (shown.n > most) {
                widest = &report->inputs[i];
                name = names[k];
                most = shown.n;
            }
        }
    }
    if (status == DPE_OK && widest != NULL) {
        status = read_shown(widest, name, &s, &shown, err);
        if (status == DPE_OK && shown.n > 0) {
            add_words(report, &s, &shown.worth);
            if (!s.low_is_better) {
                add_figure(report, &s, &shown);
            }
        }
        dpe_comparison_suite_free(&s);
    }
    return status;
}
