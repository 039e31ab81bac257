/* Text that grows in memory, and how numbers look in it. */
#include "detect/report/page.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

void dpe_detect_put(struct dpe_detect_page *page, const char *format, ...)
{
    if (page->status != DPE_OK) {
        return;
    }
    char text[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0) {
        page->status = dpe_fail(page->err, DPE_INTERNAL, "a line could not be rendered");
        return;
    }
    size_t most = sizeof text - 1;
    page->status = dpe_text_append(page->out, text, (size_t)n < most ? (size_t)n : most, page->err);
}

void dpe_detect_interval_text(enum dpe_detect_criterion criterion, double mean, double low,
                              double high, bool with_bounds, char *text, size_t size)
{
    if (!isfinite(mean)) {
        snprintf(text, size, "-");
        return;
    }
    int after = criterion == DPE_DETECT_RECALL ? 3 : mean < 99.95 ? 2 : 1;
    if (with_bounds && isfinite(low) && isfinite(high)) {
        snprintf(text, size, "%.*f [%.*f, %.*f]", after, mean, after, low, after, high);
    } else {
        snprintf(text, size, "%.*f", after, mean);
    }
}

void dpe_detect_difference_text(const struct dpe_interval *difference, double p, char *text,
                                size_t size)
{
    char bounds[48] = "";
    char value[24];
    snprintf(value, sizeof value, p < 0.001 ? "p < 0.001" : "p = %.3f", p);
    if (isfinite(difference->low) && isfinite(difference->high)) {
        snprintf(bounds, sizeof bounds, " [%+.3f, %+.3f]", difference->low, difference->high);
    }
    snprintf(text, size, "%+.3f%s, %s", difference->mean, bounds, value);
}
