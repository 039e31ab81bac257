/* What something takes, as a range. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

void dpe_job_range_print(const struct dpe_job_range *range, const struct dpe_job_speed *speed)
{
    char text[64];
    printf("time             %s (%lld tokens were read in %.3g s, a decode step takes %.2g s)\n",
           dpe_job_range_text(range, text), (long long)speed->tokens, speed->seconds,
           speed->per_step);
    const char *path = getenv("DPE_PART_TIMES");
    FILE *file = path != NULL ? fopen(path, "a") : NULL;
    if (file != NULL) {
        fprintf(file, "%.6g %.6g\n", range->low, range->high);
        fclose(file);
    }
}

bool dpe_job_range_sum(const char *path, int parts, struct dpe_job_range *range)
{
    FILE *file = fopen(path, "r");
    struct dpe_job_range one;
    char line[128];
    int n = 0;
    *range = (struct dpe_job_range){0};
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *at = line;
        if (dpe_scan_real(&at, &one.low) && *at++ == ' ' && dpe_scan_real(&at, &one.high)) {
            range->low += one.low;
            range->high += one.high;
            n++;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return n == parts;
}
