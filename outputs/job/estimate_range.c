/* What something takes, as a range. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "outputs/job/estimate.h"

/* Beside what the measurements differ: other texts, other plans, a warmer machine. */
static const double margin = 0.1;

void dpe_job_range_add(struct dpe_job_range *range, const struct dpe_job_speed *speed, double times,
                       double read, double pairs, double steps, double context)
{
    double reading = speed->per_token * read + speed->per_pair * pairs;
    double writing = steps * (speed->per_step + speed->per_step_token * context);
    range->low += times * (1.0 - margin) * speed->low * (reading + 0.5 * writing);
    range->high += times * (1.0 + margin) * speed->high * (reading + writing);
}

/* Two digits, downwards or upwards. */
static double two_digits(double value, bool up)
{
    double unit = pow(10.0, floor(log10(fmax(value, 1e-3))) - 1.0);
    return (up ? ceil(value / unit - 1e-9) : floor(value / unit + 1e-9)) * unit;
}

const char *dpe_job_range_text(const struct dpe_job_range *range, char text[64])
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"s", 1.0}, {"min", 60.0}, {"h", 3600.0}, {"days", 86400.0}};
    size_t unit = 0;
    if (!(range->high > 0.0) || range->high > 1e10) {
        snprintf(text, 64, "unknown");
        return text;
    }
    while (unit + 1 < sizeof units / sizeof units[0] &&
           range->high >= 1.5 * units[unit + 1].seconds) {
        unit++;
    }
    char low[24];
    char high[24];
    snprintf(low, sizeof low, "%.10g", two_digits(range->low / units[unit].seconds, false));
    snprintf(high, sizeof high, "%.10g", two_digits(range->high / units[unit].seconds, true));
    if (strcmp(low, high) == 0) {
        snprintf(text, 64, "about %s %s", low, units[unit].name);
    } else {
        snprintf(text, 64, "%s to %s %s", low, high, units[unit].name);
    }
    return text;
}
