/* Where the sweep of a longer length begins. */
#include "detect/search/start.h"

#include <stdio.h>
#include <string.h>

/* L0 and L0/2 are always tried, because the search begins with them: where the shorter entry chose
 * L0/2 alone, leaving L0 out cost the reference model 15 points at 2048 tokens. Where a group's
 * lengths differ beyond noise its neighbours are tried too. A choice that may be chance is kept as
 * it is: leaving it out cost 9 points. */
static bool is_near(const struct dpe_detect_shorter *shorter, int64_t length, int64_t longest)
{
    bool near = length == longest || (length <= shorter->trained && 2 * length >= shorter->trained);
    for (int64_t g = 0; g < shorter->n_groups && !near; g++) {
        int64_t chosen = shorter->chosen[g];
        if (chosen > 0 && chosen < shorter->length) {
            /* The squares of the ratio: 4, or 2 for the nearest of lengths that double. */
            double ratio = (double)length / (double)chosen;
            double most = shorter->informs[g] != 0 ? 4.0 : 2.0;
            near = ratio * ratio <= most && most * ratio * ratio >= 1.0;
        }
    }
    return near;
}

void dpe_detect_start_lengths(const struct dpe_detect_shorter *shorter, int64_t length,
                              int64_t window, char *text, size_t size)
{
    enum { HALVES = 7 };
    int n = 0;
    text[0] = '\0';
    for (int halves = HALVES; halves >= 0; halves--) {
        int64_t tried = length >> halves;
        if (tried >= window && tried > 0 && is_near(shorter, tried, length)) {
            dpe_append(text, size, "%s%lld", n++ > 0 ? "," : "", (long long)tried);
        }
    }
    if (n < 2) {
        text[0] = '\0';
    }
}

void dpe_detect_start_temperature(const struct dpe_detect_shorter *shorter,
                                  char text[DPE_TEMPERATURE_TEXT + 8])
{
    char found[DPE_TEMPERATURE_TEXT];
    text[0] = '\0';
    if (!dpe_temperature_is_none(&shorter->temperature)) {
        dpe_temperature_text(&shorter->temperature, found);
        snprintf(text, DPE_TEMPERATURE_TEXT + 8, "auto:%s", found);
    }
}
