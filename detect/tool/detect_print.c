/* The result of dpe-detect: in words, as a suggestion of what to do next, and for scripts. */
#include <ctype.h>
#include <math.h>

#include "detect/tool/detect_table.h"
#include "detect/tool/detect_tool.h"
#include "engine/system/folder.h"
#include "outputs/datasets/kinds.h"
#include "outputs/page/page.h"
#include "outputs/words/words.h"

static void warn_uninformative(const struct dpe_detect_report *report)
{
    const struct dpe_detect_result *result = dpe_detect_deciding(report);
    struct dpe_page page = {.printed = true};
    for (int g = 0; g < result->ranking.n_groups; g++) {
        if (result->ranking.effective[g] < 1) {
            dpe_log_warning("group %d has no valid sample and so no rank; it keeps the scale it "
                            "had during detection",
                            g);
        }
    }
    dpe_words_noise(&page, &result->ranks);
    for (size_t i = 0; i < page.n; i++) {
        dpe_log_warning("%s", page.blocks[i].text);
    }
    dpe_page_free(&page);
}

/* "samples", "samples (4 in a row share a context and count as one)", "books" */
static const char *name_samples(const struct dpe_detect_result *result, char *words, size_t size)
{
    if (result->criterion == DPE_DETECT_RECALL && result->together > 1) {
        snprintf(words, size, "samples (%lld in a row share a context and count as one)",
                 (long long)result->together);
    } else {
        snprintf(words, size, "%s", result->criterion == DPE_DETECT_RECALL ? "samples" : "books");
    }
    return words;
}

static void add_ranks(struct dpe_page *page, const struct dpe_detect_grid *grid,
                      const struct dpe_detect_ranking *ranking)
{
    struct dpe_sheet *sheet =
        dpe_page_sheet(page, "ranks", "group:0|pairs:t|p:t",
                       "\nRanks (p: that the best and worst length do not differ; ?: p >= 0.05)");
    const int ranks = (int)dpe_least(4, ranking->n_lengths);
    for (int r = 1; r <= ranks; r++) {
        char name[16];
        snprintf(name, sizeof name, "rank %d", r);
        dpe_draw_sheet_column(sheet, name, "t");
    }
    for (int g = 0; g < ranking->n_groups; g++) {
        char text[128];
        snprintf(text, sizeof text, "%d-%d", grid->edges[g], grid->edges[g + 1] - 1);
        dpe_draw_cells(sheet, DPE_ROW(g, text), 2);
        snprintf(text, sizeof text, isfinite(ranking->p_value[g]) ? "%.3f%s" : "-",
                 ranking->p_value[g], ranking->informative[g] ? "" : "?");
        dpe_draw_cell(sheet, dpe_text_cell(text));
        for (int r = 1; r <= ranks; r++) {
            char value[64];
            const int t = dpe_detect_ranked(ranking, g, r);
            const int c = g * ranking->n_lengths + t;
            snprintf(text, sizeof text, "-");
            if (t >= 0) {
                const struct dpe_interval mean = {
                    .mean = ranking->mean[c], .low = ranking->low[c], .high = ranking->high[c]};
                dpe_words_interval(ranking->criterion == DPE_DETECT_RECALL, &mean, value);
                snprintf(text, sizeof text, "%s %s",
                         DPE_LENGTH_TEXT((double)grid->params.lengths[t]), value);
            }
            dpe_draw_cell(sheet, dpe_text_cell(text));
        }
    }
    dpe_page_add(page, sheet);
}

static void print_result(const struct detect_inputs *inputs, const struct dpe_detect_report *report,
                         const struct dpe_detect_result *result, bool decides)
{
    struct dpe_page page = {.printed = true};
    char samples[96];
    const char *measure = result->criterion == DPE_DETECT_RECALL
                              ? dpe_identity_measure(report->of->needles.spec)
                              : "perplexity";
    dpe_print("\n%c%s%s, %lld %s, 95 %% intervals%s\n\n", toupper((unsigned char)measure[0]),
              measure + 1, result->criterion == DPE_DETECT_RECALL ? " of needles" : "",
              (long long)result->swept.n, name_samples(result, samples, sizeof samples),
              decides ? "" : " (does not decide)");
    dpe_words_cells(&page, &result->cells, &result->ranks, false, "");
    add_ranks(&page, &inputs->grid, &result->ranking);
    dpe_page_print(&page, false);
}

static void print_joint(const struct dpe_detect_report *report)
{
    const int n = report->of->grid.params.n_groups;
    const int64_t *lengths = dpe_detect_deciding(report)->ranking.effective;
    dpe_print("\neffective lengths");
    for (int g = 0; g < n; g++) {
        dpe_print(lengths[g] > 0 ? " %lld" : " -", (long long)lengths[g]);
    }
    dpe_print("\nscales           ");
    for (int g = 0; g < n; g++) {
        dpe_print(" %.10g", report->scale[g]);
    }
    dpe_print("\n");
}

/* For runtimes as they are. */
static void suggest_plain(const struct detect_inputs *inputs,
                          const struct dpe_detect_report *report, const char *model)
{
    char method[DPE_DETECT_PLAN_NAME + 64];
    const int64_t trained = inputs->args->job.trained_length;
    const int plain = report->plain;
    if (plain > DPE_DETECT_ROPE && plain != report->kept) {
        dpe_tool_quote(report->validated[plain].name, method, sizeof method);
        if (trained > 0) {
            dpe_append(method, sizeof method, " --trained-length %lld", (long long)trained);
        }
        dpe_tool_next("dpe-export --method %s -m %s --length %lld --format longrope -o config.json",
                      method, model, (long long)inputs->args->job.length);
    }
}

void dpe_detect_suggest(const void *state)
{
    const struct sweep *sweep = state;
    const struct detect_inputs *inputs = &sweep->inputs;
    char model[1024], table[1024], corpus[1024];
    const char *dtype = inputs->args->job.tool.dtype == DPE_TOOL_BF16 ? " --dtype bf16" : "";
    dpe_tool_quote(inputs->args->job.corpus, corpus, sizeof corpus);
    dpe_tool_quote(inputs->args->job.model, model, sizeof model);
    dpe_tool_quote(inputs->args->job.output, table, sizeof table);
    if (inputs->args->selection != NULL) {
        /* The table does not apply the selection that it was found under. */
        char spec[1536], method[1536];
        const char *keys = inputs->args->selection;
        snprintf(spec, sizeof spec, "select:%.400s%sover=table:%.1023s", keys,
                 keys[0] != '\0' ? "," : "", inputs->args->job.output);
        dpe_tool_next("dpe-run -m %s --method %s --length %lld --show --corpus %s%s", model,
                      dpe_tool_quote(spec, method, sizeof method),
                      (long long)inputs->args->job.length, corpus, dtype);
    } else if (sweep->report.kept != DPE_DETECT_ROPE) {
        dpe_tool_next("dpe-run -m %s --table %s --show --corpus %s%s", model, table, corpus, dtype);
    }
    suggest_plain(inputs, &sweep->report, model);
    dpe_tool_next("dpe-report %s -o report.html", table);
}

/* The sweep: its maps, and what it comes to. */
static void print_sweep(const struct detect_inputs *inputs, const struct dpe_detect_report *report)
{
    const struct dpe_detect_result *deciding = dpe_detect_deciding(report);
    const struct dpe_detect_params *params = &inputs->grid.params;
    int n = 0;
    const char *name = dpe_folder_name(inputs->args->job.model, &n);
    dpe_print("\nEffective lengths of %.*s at %lld tokens (trained length %lld)\n", n, name,
              (long long)params->length, (long long)params->trained_length);
    for (int i = 0; i < 2; i++) {
        const struct dpe_detect_result *result = &report->results[i];
        if (result->used) {
            print_result(inputs, report, result, result == deciding);
        }
    }
    print_joint(report);
}

static void print_answer(const struct detect_inputs *inputs, const struct dpe_detect_report *report,
                         const struct dpe_detect_words *words)
{
    const bool sweeps = dpe_detect_sweeps(report->of->args->rule);
    struct dpe_page page = {.printed = true};
    dpe_words_detect(&page, words);
    dpe_page_print(&page, true);
    if (sweeps) {
        print_sweep(inputs, report);
    }
    dpe_print("\ntable: %s\n", inputs->args->job.output);
    if (sweeps) {
        warn_uninformative(report);
    }
}

/* ---------------------------------------------------------------------------------- for scripts */

/* A task's cells. */
static void add_cells(struct dpe_result *out, const struct dpe_detect_result *result)
{
    static const char axes[] = "/group /length";
    const bool recall = result->criterion == DPE_DETECT_RECALL;
    for (int64_t i = 0; i < result->ranks.n[DPE_CELLS_GROUP] * result->ranks.n[DPE_CELLS_LENGTH];
         i++) {
        dpe_result_row(out, "cells");
        dpe_result_text(out, "task", result->swept.task);
        dpe_datasets_fields(recall ? &dpe_needle_cells_kind : &dpe_book_cells_kind, &result->cells,
                            axes, i, out);
        dpe_datasets_fields(&dpe_ranking_kind, &result->ranks, axes, i, out);
    }
}

static void add_groups(struct dpe_result *out, const struct dpe_detect_report *report)
{
    const struct dpe_ranking_result *ranks = &dpe_detect_deciding(report)->ranks;
    const struct dpe_choices_result choices = {.n = {ranks->n[DPE_CELLS_GROUP]},
                                               .selected = report->selected};
    for (int64_t g = 0; g < ranks->n[DPE_CELLS_GROUP]; g++) {
        dpe_result_row(out, "groups");
        dpe_datasets_fields(&dpe_ranking_kind, ranks, "/group", g, out);
        dpe_datasets_fields(&dpe_choices_kind, &choices, "/group", g, out);
        dpe_result_number(out, "scale", report->scale[g]);
    }
}

/* The lines that a terminal gets. */
static void add_answer(struct dpe_result *out, const struct dpe_detect_words *words)
{
    struct dpe_page page = {.printed = true};
    dpe_words_detect(&page, words);
    for (size_t i = 0; i < page.n; i++) {
        dpe_result_row(out, "answer");
        dpe_result_text(out, "line", page.blocks[i].text);
    }
    dpe_page_free(&page);
}

static void add_found(struct dpe_result *out, const struct dpe_detect_report *report,
                      const struct dpe_detect_told *told)
{
    const struct dpe_detect_words *words = &told->words;
    if (words->decides != NULL) {
        dpe_result_text(out, "kept", words->kept);
        if (words->plain != NULL) {
            dpe_result_text(out, "without_adapter", words->plain);
        }
        for (int i = 0; i < 2; i++) { /* null: not known, of a search by perplexity for one */
            const char *name = i == 0 ? "usable_length" : "usable_length_unchanged";
            const int64_t usable = dpe_words_usable(words, i == 0 ? words->kept : "rope");
            if (usable > 0) {
                dpe_result_whole(out, name, usable);
            } else {
                dpe_result_text(out, name, NULL);
            }
        }
    }
    dpe_datasets_rows(&dpe_search_kind, &told->search, "tried", "tried", out);
    for (int i = 0; i < DPE_DETECT_RESULTS; i++) {
        const struct dpe_scores_result *scores = &told->validated[i].scores;
        for (int64_t plan = 0; plan < scores->n[DPE_VALIDATED_PLAN]; plan++) {
            dpe_result_row(out, "validation");
            dpe_result_text(out, "task", report->results[i].swept.task);
            dpe_datasets_fields(&dpe_validated_scores_kinds[0], scores, "/validated_plan", plan,
                                out);
        }
    }
    if (words->decides != NULL) {
        dpe_datasets_rows(&dpe_validated_scores_kinds[0], words->decides, "short_length", "shorter",
                          out);
    }
    add_answer(out, words);
}

static dpe_status print_document(const struct detect_inputs *inputs,
                                 const struct dpe_detect_report *report,
                                 const struct dpe_detect_told *told, struct dpe_error *err)
{
    const struct dpe_detect_params *params = &inputs->grid.params;
    struct dpe_result *out = dpe_result_begin("dpe-detect");
    dpe_result_text(out, "model", inputs->args->job.model);
    dpe_result_text(out, "fingerprint", dpe_job_fingerprint(&inputs->job));
    dpe_result_text(out, "table", inputs->args->job.output);
    dpe_result_whole(out, "trained_length", params->trained_length);
    dpe_result_whole(out, "length", params->length);
    dpe_result_text(out, "rule", dpe_detect_rule_names[report->of->args->rule]);
    if (dpe_detect_sweeps(report->of->args->rule)) {
        dpe_result_wholes(out, "lengths", params->lengths, (size_t)params->n_lengths);
        for (int i = 0; i < 2; i++) {
            if (report->results[i].used) {
                add_cells(out, &report->results[i]);
            }
        }
        add_groups(out, report);
    }
    dpe_result_row(out, NULL);
    add_found(out, report, told);
    return dpe_result_print(out, err);
}

dpe_status dpe_detect_print(void *state, struct dpe_error *err)
{
    const struct sweep *sweep = state;
    struct dpe_detect_told told;
    dpe_detect_tell(&sweep->report, &told);
    if (sweep->inputs.args->job.json) {
        return print_document(&sweep->inputs, &sweep->report, &told, err);
    }
    print_answer(&sweep->inputs, &sweep->report, &told.words);
    return DPE_OK;
}
