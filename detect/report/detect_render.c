/* How numbers look in the texts of a report. */
#include "detect/report/render.h"
#include "engine/base/p_text.h"

#include <math.h>
#include <stdio.h>

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

bool dpe_detect_leaves_zero(const struct dpe_difference *difference)
{
    return difference->minus.low > 0.0 || difference->minus.high < 0.0;
}

void dpe_detect_difference_text(const struct dpe_difference *difference, char *text, size_t size)
{
    const struct dpe_interval *minus = &difference->minus;
    char bounds[48] = "";
    char value[DPE_P_TEXT];
    dpe_p_text(difference->p, value);
    if (isfinite(minus->low) && isfinite(minus->high)) {
        snprintf(bounds, sizeof bounds, " [%+.3f, %+.3f]", minus->low, minus->high);
    }
    snprintf(text, size, "%+.3f%s, %s", minus->mean, bounds, value);
}
