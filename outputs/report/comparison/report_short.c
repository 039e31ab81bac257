/* The head of a report with a comparison of a DPE table: what the table is worth at its longest
 * length, in a few sentences, and how it is used. */
#include "outputs/datasets/uses.h"
#include "outputs/read/read.h"
#include "outputs/report/comparison/report_eval.h"

#include <stdlib.h>
#include <string.h>

/* The finished table among the inputs; `*factors`: runtimes need no adapter for it. */
static const struct input *find_table(const struct report *report, bool *factors)
{
    const struct input *found = NULL;
    for (size_t i = 0; i < report->n; i++) {
        const struct input *input = &report->inputs[i];
        if ((dpe_h5_has(input->table, "/table/mask") ||
             dpe_h5_has(input->table, "/table/length")) &&
            !dpe_h5_has(input->table, "/detect")) {
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
        dpe_draw_row(sheet, dpe_text_cell(dpe_uses[i].runtime), dpe_text_cell(command));
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
        lines->sheet = dpe_report_sheet(lines->report, "short", "what:t|result:t", words);
    } else {
        dpe_draw_row(lines->sheet, dpe_text_cell(label), dpe_text_cell(words));
    }
}

void dpe_comparison_short(struct report *report, const struct suite *s, struct dpe_worth *worth)
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
