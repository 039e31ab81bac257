/* What a comparison says at a glance: its best values, what a table is worth at its longest length
 * and how it is used, and the figure of the first screen. */
#include "outputs/datasets/worth.h"
#include "outputs/report/report_parts.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- headline */

static void add_figure(struct dpe_report *report, const struct dpe_suite_words *s,
                       const int64_t chosen[DPE_WORTHS])
{
    struct dpe_plot plot = dpe_words_plot(s, PLOT_CURVES);
    plot.x = 1;
    plot.value = 2;
    plot.sorted = true;
    plot.y_title = "needles found, %";
    struct dpe_sheet *sheet = dpe_page_sheet(
        &report->page, "headline", "method:@|length:0|recall, %:i1", "Needles found, by length");
    for (int c = 0; c < DPE_WORTHS; c++) {
        for (size_t task = 0; task < s->n_tasks && chosen[c] >= 0; task++) {
            dpe_draw_row(sheet, s->r->method[chosen[c]], s->r->task_length[task],
                         dpe_words_cell(s, (size_t)chosen[c], task));
            dpe_draw_row_mark(sheet, c == DPE_WORTH_TABLE ? ROW_STRONG : 0);
        }
    }
    dpe_page_figure(
        &report->page, sheet, &plot, "%s%s%s, on samples of their own, with 95\u00a0%% intervals.",
        chosen[DPE_WORTH_ALONE] >= 0 ? "The model alone (rope) and the calibrated table ("
                                     : "The table (",
        s->r->method[chosen[DPE_WORTH_TABLE]],
        chosen[DPE_WORTH_RIVAL] >= 0 ? "), beside the best of the other methods" : ")");
}

/* ---------------------------------------------------------------------------------------- words */

/* The last table among the inputs that needs an adapter, or (plain) none. */
static const struct dpe_report_input *find_table(const struct dpe_report *report, bool plain)
{
    const struct dpe_report_input *found = NULL;
    for (size_t i = 0; i < report->n; i++) {
        const struct dpe_report_input *input = &report->inputs[i];
        if (dpe_input_has_table(input) &&
            plain == dpe_input_says(input, "/table", "adapter_required", "false")) {
            found = input;
        }
    }
    return found;
}

/* The text with the name in place of a word; the word before "=" stays. */
static const char *fill_in(struct dpe_report *report, const char *text, const char *word,
                           const char *name)
{
    const size_t n = strlen(word);
    const char *filled = "";
    for (const char *next; (next = strstr(text, word)) != NULL; text = next + n) {
        filled = dpe_page_text(&report->page, "%s%.*s%s", filled, (int)(next - text), text,
                               next[n] == '=' ? word : name);
    }
    return dpe_page_text(&report->page, "%s%s", filled, text);
}

/* What needs no adapter takes the last table that needs none. */
static void add_uses(struct dpe_report *report, const struct dpe_report_input *table)
{
    const char *model = dpe_report_model(report, "MODEL");
    const struct dpe_report_input *plain = find_table(report, true);
    const char *end = strrchr(model, '.');
    const bool is_gguf = end != NULL && strcmp(end, ".gguf") == 0;
    dpe_page_say(&report->page, BLOCK_TEXT,
                 "To see it on a text: dpe-run -m %s --table %s --show --corpus TEXTS", model,
                 table->name);
    struct dpe_sheet *sheet = dpe_page_sheet(&report->page, "uses", "runtime:t|command:t",
                                             "Which file for which runtime");
    for (int i = 0; i < DPE_USES; i++) {
        const struct dpe_report_input *of = dpe_uses[i].factors ? plain : table;
        if (of != NULL) {
            const char *command = fill_in(report, dpe_uses[i].command, "MODEL", model);
            command = fill_in(report, command, "WEIGHTS", is_gguf ? model : "MODEL.gguf");
            dpe_draw_row(sheet, dpe_uses[i].runtime, fill_in(report, command, "TABLE", of->name));
        }
    }
    dpe_page_add(&report->page, sheet);
}

/* What the table of a comparison keeps itself, where it is among the inputs. */
static void keep(const struct dpe_report *report, struct dpe_worth *worth)
{
    for (size_t i = 0; i < report->n; i++) {
        const struct dpe_report_input *input = &report->inputs[i];
        if (strcmp(input->name, worth->table) == 0 && input->dpe != NULL) {
            dpe_worth_keep(input->dpe, dpe_identity_get(&input->identity, "evidence") != NULL,
                           worth);
            return;
        }
    }
}

static void add_words(struct dpe_report *report, const struct dpe_suite_words *s,
                      struct dpe_worth *worth)
{
    const char *name = s->r->method[worth->method[DPE_WORTH_TABLE]];
    worth->table = strncmp(name, "table:", 6) == 0 ? name + 6 : name;
    worth->trained = s->trained > 0 ? s->trained : 0;
    keep(report, worth);
    const struct dpe_report_input *table = find_table(report, false);
    worth->factors = table == NULL && find_table(report, true) != NULL;
    table = table != NULL ? table : find_table(report, true);
    for (size_t i = 0; i < report->n; i++) {
        dpe_worth_texts(report->inputs[i].table, worth);
    }
    dpe_page_section(&report->page, "In short");
    dpe_words_worth(&report->page, worth);
    if (table != NULL) {
        add_uses(report, table);
    }
}

/* Whether a suite says what a table is worth; an unfinished run may have nothing of it yet. */
static bool find_worth(const struct dpe_suite_words *s, struct dpe_worth *worth)
{
    const int64_t task = s->n_methods > 0 && s->n_tasks > 0 ? dpe_words_task(s, s->longest) : -1;
    if (task >= 0) {
        dpe_worth_of(s->r, task, s->low_is_better, (int64_t)s->against, worth);
    }
    return task >= 0 && isfinite(worth->value[DPE_WORTH_TABLE].mean);
}

void dpe_comparison_headline(struct dpe_report *report)
{
    static const char *const names[] = {"niah", "ppl"};
    const struct dpe_suite_words *widest = NULL;
    struct dpe_worth best, worth;
    for (size_t k = 0; k < 2 && widest == NULL; k++) {
        for (size_t i = 0; i < report->n; i++) {
            const struct dpe_report_input *input = &report->inputs[i];
            size_t n = 0;
            const struct dpe_report_suite *suites = dpe_h5_has(input->table, "/ablate")
                                                        ? NULL
                                                        : dpe_comparison_suites(report, input, &n);
            for (size_t s = 0; s < n; s++) {
                const struct dpe_suite_words *of = &suites[s].of;
                if (strcmp(of->name, names[k]) == 0 &&
                    (widest == NULL || of->n_tasks > widest->n_tasks) && find_worth(of, &worth)) {
                    best = worth;
                    widest = of;
                }
            }
        }
    }
    if (widest != NULL) {
        add_words(report, widest, &best);
        if (!widest->low_is_better && widest->n_tasks > 1) {
            add_figure(report, widest, best.method);
        }
    }
}
