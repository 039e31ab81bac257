/* The best plan that runtimes read as they are, and what an adapter adds to it. */
#include "detect/report/render.h"
#include "detect/report/view.h"

#include <math.h>

static void put_worth(struct dpe_text *page, const struct dpe_detect_validation *v, int plain,
                      const char *words)
{
    char text[96];
    dpe_detect_difference_text(&v->kept_minus[plain], text, sizeof text);
    dpe_text_put(page, words, text);
}

static void put_perplexity(struct dpe_text *page, const struct dpe_detect_validation *v, int plain)
{
    const struct dpe_interval *d = &v->kept_minus[plain].minus;
    dpe_text_put(page, "\n  perplexity %.4g in place of %.4g (%+.1f %%", v->value[v->kept].mean,
                 v->value[plain].mean, 100.0 * expm1(d->mean));
    if (isfinite(d->low) && isfinite(d->high)) {
        dpe_text_put(page, " [%+.1f, %+.1f]", 100.0 * expm1(d->low), 100.0 * expm1(d->high));
    }
    dpe_text_put(page, ")");
}

void dpe_detect_plain_text(const struct dpe_detect_report *report, struct dpe_text *out)
{
    const struct dpe_detect_validation *v = &dpe_detect_deciding(report)->validation;
    const int plain = report->plain;
    char text[96];
    if (plain < 0 || v->criterion != DPE_DETECT_RECALL) {
        return;
    }
    if (plain == v->kept) {
        dpe_text_put(out,
                     "  It needs no adapter, and no plan that needs one is shown to be better\n");
        return;
    }
    dpe_detect_interval_text(v->criterion, v->value[plain].mean, v->value[plain].low,
                             v->value[plain].high, true, text, sizeof text);
    dpe_text_put(out, "Without an adapter take %s: recall %s\n",
                 plain == DPE_DETECT_ROPE ? "the model as it is" : report->names[plain], text);
    put_worth(out, v, plain, "  the adapter is worth %s of recall");
    if (report->users.validated) {
        put_worth(out, &report->users.validation, plain, "; on your task %s");
    }
    if (report->texts.validated) {
        put_perplexity(out, &report->texts.validation, plain);
    }
    dpe_text_put(
        out, "\n  The table is for the vLLM plugin, the transformers adapter and dpe-serve; this "
             "plan for runtimes as they are\n");
}
