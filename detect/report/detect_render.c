/* Text that grows in memory, and how numbers look in it. */
#include "detect/report/render.h"
#include "engine/base/p_text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void dpe_detect_put(struct dpe_detect_page *page, const char *format, ...)
{
    if (page->status != DPE_OK) {
        return;
    }
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = n >= 0 ? dpe_alloc((size_t)n + 1, 1) : NULL;
    if (text == NULL) {
        page->status = dpe_fail(page->err, DPE_NO_MEMORY, "out of memory for a line");
        return;
    }
    va_start(args, format);
    vsnprintf(text, (size_t)n + 1, format, args);
    va_end(args);
    page->status = dpe_text_append(page->out, text, (size_t)n, page->err);
    free(text);
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

bool dpe_detect_leaves_zero(const struct dpe_interval *difference)
{
    return difference->low > 0.0 || difference->high < 0.0;
}

void dpe_detect_difference_text(const struct dpe_interval *difference, double p, char *text,
                                size_t size)
{
    char bounds[48] = "";
    char value[DPE_P_TEXT];
    dpe_p_text(p, value);
    if (isfinite(difference->low) && isfinite(difference->high)) {
        snprintf(bounds, sizeof bounds, " [%+.3f, %+.3f]", difference->low, difference->high);
    }
    snprintf(text, size, "%+.3f%s, %s", difference->mean, bounds, value);
}
