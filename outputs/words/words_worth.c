/* What a table is worth. */
#include <math.h>

#include "outputs/words/words.h"

/* A method whose texts have this much more perplexity is not called as good. */
static const double most_more = 0.05;

/* "44 % (30 to 59)", "perplexity 2.31 (2.12 to 2.50)"; one context has no interval. */
static void put_value(bool perplexity, const struct dpe_interval *value, struct dpe_text *out)
{
    const int digits = perplexity ? 2 : 0;
    const double unit = perplexity ? 1.0 : 100.0;
    if (!isfinite(value->mean)) {
        dpe_text_put(out, "no valid sample");
        return;
    }
    dpe_text_put(out, perplexity ? "perplexity %.*f" : "%.*f %%", digits, unit * value->mean);
    if (isfinite(value->low) && isfinite(value->high)) {
        dpe_text_put(out, " (%.*f to %.*f)", digits, unit * value->low, digits, unit * value->high);
    }
}

static void put_heading(const struct dpe_worth *w, struct dpe_text *out)
{
    dpe_text_put(out, "%lld tokens", (long long)w->length);
    if (w->trained > 0) {
        dpe_text_put(out, ", %.3g times the trained length",
                     (double)w->length / (double)w->trained);
    }
    dpe_text_put(out, "; %lld %s%s%s%s", (long long)w->samples, w->perplexity ? "book" : "sample",
                 w->samples == 1 ? "" : "s", w->task[0] != '\0' ? " of " : "", w->task);
    if (w->validated > 0) {
        dpe_text_put(out, ", %lld of them of the validation", (long long)w->validated);
    }
    dpe_text_put(out, ":");
}

/* Whether texts are predicted worse under a method than with the table. */
static bool costs_texts(const struct dpe_worth *w, int method)
{
    return w->texts[method] > (1.0 + most_more) * w->texts[DPE_WORTH_TABLE];
}

/* Whether the model as it is has no less than with the table. */
static bool has_no_less(const struct dpe_worth *w)
{
    const double gain = (w->value[DPE_WORTH_TABLE].mean - w->value[DPE_WORTH_ALONE].mean) *
                        (w->perplexity ? -1.0 : 1.0);
    return w->method[DPE_WORTH_ALONE] >= 0 && isfinite(w->p) && w->p >= 0.05 && gain <= 0.0;
}

/* Whether that is enough: a model that finds little with and without the table
 * needs another one. */
static bool is_unneeded(const struct dpe_worth *w)
{
    const double found = w->value[DPE_WORTH_ALONE].mean;
    return has_no_less(w) && !costs_texts(w, DPE_WORTH_ALONE) &&
           (w->perplexity || (found > 0.0 && found >= DPE_WORTH_MOST * w->possible));
}

static bool is_better(const struct dpe_worth *w, double table_minus)
{
    return w->perplexity ? table_minus < 0.0 : table_minus > 0.0;
}

static void put_unchanged(const struct dpe_worth *w, struct dpe_text *out)
{
    put_value(w->perplexity, &w->value[DPE_WORTH_ALONE], out);
    if (isfinite(w->possible) && !w->perplexity) {
        dpe_text_put(out, "; %.0f %% at its trained length", 100.0 * w->possible);
    }
}

static void put_table(const struct dpe_worth *w, struct dpe_text *out)
{
    const double gain = w->value[DPE_WORTH_TABLE].mean - w->value[DPE_WORTH_ALONE].mean;
    char p[DPE_P_TEXT];
    put_value(w->perplexity, &w->value[DPE_WORTH_TABLE], out);
    if (isfinite(w->p)) {
        dpe_text_put(out, ": %s (%s)%s",
                     w->p >= 0.05         ? "not shown to differ"
                     : is_better(w, gain) ? "better"
                                          : "worse",
                     dpe_p_text(w->p, p),
                     is_unneeded(w) ? "; the model needs no table at this length" : "");
    }
    if (has_no_less(w) && costs_texts(w, DPE_WORTH_ALONE)) {
        dpe_text_put(out, ", but texts have perplexity %.2f without it, %.2f with it",
                     w->texts[DPE_WORTH_ALONE], w->texts[DPE_WORTH_TABLE]);
    }
}

/* Whether a plain method does as well, on fresh samples alone: by the others one of the two was
 * chosen. */
static void put_rival(const struct dpe_worth *w, struct dpe_text *out)
{
    const bool alike = w->same || w->rival_minus.p >= 0.05;
    const bool more = !alike && is_better(w, w->rival_minus.minus.mean);
    const bool idle = has_no_less(w) && !costs_texts(w, DPE_WORTH_ALONE);
    char p[DPE_P_TEXT];
    dpe_text_put(out, "%s, ", w->rival);
    put_value(w->perplexity, &w->value[DPE_WORTH_RIVAL], out);
    if (!isfinite(w->rival_minus.p)) {
        return;
    }
    dpe_p_text(w->rival_minus.p, p);
    if (!alike) {
        dpe_text_put(out, ": the table is %s (%s)", more ? "worse" : "better", p);
    } else if (w->same) {
        dpe_text_put(out, ": the same in every sample");
    } else {
        dpe_text_put(out, ": not shown to differ (%s)", p);
    }
    if ((alike || more) && costs_texts(w, DPE_WORTH_RIVAL)) {
        dpe_text_put(out, ", but texts have perplexity %.2f with it, %.2f with the table",
                     w->texts[DPE_WORTH_RIVAL], w->texts[DPE_WORTH_TABLE]);
    } else if ((alike && !idle) || (more && !is_unneeded(w))) {
        dpe_text_put(out, ", and needs no calibration");
    }
}

static void put_short(const struct dpe_worth *w, struct dpe_text *out)
{
    dpe_text_put(out, "up to %lld tokens, the trained length, they run unchanged with the table",
                 (long long)w->trained);
    if (w->factors) {
        dpe_text_put(out,
                     "; runtimes without an adapter change them, dpe-export measures how much");
    }
}

/* Beyond the trained length the unchanged model fails, so a distance from it says nothing. */
static void put_kld(const struct dpe_worth *w, struct dpe_text *out)
{
    dpe_text_put(out,
                 "%.3g nats from the unchanged model's, the likeliest the same in %.1f %%, in the "
                 "first %lld of %lld tokens",
                 w->kld.mean, 100.0 * w->kld.same, (long long)w->kld.tokens, (long long)w->length);
}

static void put_files(const struct dpe_worth *w, struct dpe_text *out)
{
    dpe_text_put(out, "%s", w->files);
}

/* What follows from recall with the table, without it, and at the trained length. */
static const char *verdict(const struct dpe_worth *w)
{
    const bool shown = w->p < 0.05;
    const double with = w->value[DPE_WORTH_TABLE].mean;
    const double without = w->value[DPE_WORTH_ALONE].mean;
    if (!isfinite(with) || !isfinite(without) || !isfinite(w->p)) {
        return "The table and the model as it is were not compared.";
    }
    if (w->possible < 0.5) {
        return "The model does not find these needles at its trained length either: ask for easier "
               "ones (--niah keys=1).";
    }
    if (shown && with < without) {
        return "The table harms this model: calibrate it (dpe-calibrate).";
    }
    if (shown) {
        return with < DPE_WORTH_MOST * w->possible
                   ? "The table helps this model; it finds more at its trained length."
                   : "The table holds on this model.";
    }
    return without >= DPE_WORTH_MOST * w->possible
               ? "The model needs no table at this length."
               : "The table is not shown to help this model: more --samples may show it.";
}

void dpe_words_worth(struct dpe_page *page, const struct dpe_worth *w)
{
    const struct {
        const char *label;
        bool there;
        void (*put)(const struct dpe_worth *w, struct dpe_text *out);
    } lines[] = {{NULL, true, put_heading},
                 {"unchanged", w->method[DPE_WORTH_ALONE] >= 0, put_unchanged},
                 {w->table, true, put_table},
                 {"best other", w->rival != NULL, put_rival},
                 {"short texts", w->trained > 0, put_short},
                 {"next token", w->kld.tokens > 0, put_kld},
                 {"files", w->files != NULL, put_files}};
    struct dpe_sheet *sheet = NULL;
    if (!w->perplexity && w->method[DPE_WORTH_ALONE] >= 0) {
        dpe_page_say(page, BLOCK_LEAD, "%s", verdict(w));
    }
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        DPE_SCOPED(dpe_text_free) struct dpe_text words = {0};
        if (!lines[i].there) {
            continue;
        }
        lines[i].put(w, &words);
        const char *text = dpe_draw_text(&words);
        if (lines[i].label == NULL) {
            sheet = dpe_page_sheet(page, "short", "what:t|result:t", "%s", text);
        } else {
            dpe_draw_row(sheet, lines[i].label, text);
        }
    }
    dpe_page_add(page, sheet);
}

void dpe_words_check(struct dpe_page *page, const struct dpe_suite_result *r, int64_t against)
{
    struct dpe_worth worth;
    dpe_worth_of(r, r->n[DPE_SUITE_TASK] - 1, false, against, &worth);
    worth.trained = r->task_length[0];
    worth.possible = r->mean[0].mean;
    dpe_page_section(page, "What the table is worth");
    dpe_words_worth(page, &worth);
}
