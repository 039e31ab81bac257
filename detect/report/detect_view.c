/* What people see of a sweep at work: the live line, and what its noise means. */
#include "detect/report/view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Means of dropped lengths are of other samples than their neighbours'. */
void dpe_detect_noise_words(const struct dpe_detect_report *report, struct dpe_text *out)
{
    const struct dpe_detect_ranking *ranking = &dpe_detect_deciding(report)->ranking;
    int n = 0;
    int told = 0;
    for (int g = 0; g < ranking->n_groups; g++) {
        n += ranking->effective[g] > 0 && !ranking->informative[g];
    }
    if (n == 0) {
        return;
    }
    dpe_text_put(out, n > 1 ? "groups" : "group");
    for (int g = 0; g < ranking->n_groups; g++) {
        if (ranking->effective[g] > 0 && !ranking->informative[g]) {
            dpe_text_put(out, "%s%d", told++ > 0 ? ", " : " ", g);
        }
    }
    dpe_text_put(out, ": the lengths do not differ beyond noise, so rank 1 is a matter of chance "
                      "there; more --samples may help");
}

/* ------------------------------------------------------------------------------------ live line */

static void time_text(double seconds, char text[24])
{
    if (!(seconds >= 0.0) || seconds > 1e9) {
        snprintf(text, 24, "?");
        return;
    }
    long long whole = (long long)(seconds + 0.5);
    if (whole >= 360000) {
        snprintf(text, 24, "%lldd %lldh", whole / 86400, whole % 86400 / 3600);
    } else if (whole >= 3600) {
        snprintf(text, 24, "%lld:%02lld:%02lld", whole / 3600, whole % 3600 / 60, whole % 60);
    } else {
        snprintf(text, 24, "%lld:%02lld", whole / 60, whole % 60);
    }
}

/* Level 0 is the full text; each further level is shorter. */
static void line_at(const struct dpe_detect_progress *p, int detail, char *text, size_t size)
{
    char left[24];
    time_text(p->seconds_left, left);
    text[0] = '\0';
    if (detail <= 3) {
        dpe_append(text, size, "%s ", p->stage);
    }
    if (detail == 0) {
        dpe_append(text, size, "round %lld/%lld, ", (long long)p->round, (long long)p->rounds);
        dpe_append(text, size, "%lld/%lld configurations, %lld/%lld samples",
                   (long long)p->plans_done, (long long)p->plans, (long long)p->rows_done,
                   (long long)p->rows);
    } else if (detail <= 4) {
        if (detail <= 2) {
            dpe_append(text, size, "%lld/%lld ", (long long)p->round, (long long)p->rounds);
        }
        dpe_append(text, size, "%lld/%lld cfg %lld/%lld", (long long)p->plans_done,
                   (long long)p->plans, (long long)p->rows_done, (long long)p->rows);
    } else {
        dpe_append(text, size, "%lld/%lld", (long long)p->rows_done, (long long)p->rows);
    }
    if (detail <= 2 && p->rate > 0.0) {
        dpe_append(text, size, p->rate < 100.0 ? "%s%.3g%s" : "%s%.0f%s", detail == 0 ? ", " : " ",
                   p->rate, detail == 0 ? " samples/s" : "/s");
    }
    dpe_append(text, size, detail == 0 ? ", %s left" : detail <= 4 ? " %s left" : " %s", left);
    if (p->best == NULL || detail >= 3) {
        return;
    }
    dpe_append(text, size, detail == 0 ? ", best" : " best");
    for (int g = 0; g < p->n_best; g++) {
        char length[32] = "-";
        if (p->best[g] > 0) {
            dpe_length_text((double)p->best[g], length);
        }
        dpe_append(text, size, "%c%s", detail <= 1 || g == 0 ? ' ' : '/', length);
    }
}

void dpe_detect_live_line(const struct dpe_detect_progress *progress, int width, char *text,
                          size_t size)
{
    for (int detail = 0; detail <= 5; detail++) {
        line_at(progress, detail, text, size);
        if ((int)strlen(text) <= width) {
            return;
        }
    }
    if (width >= 0 && (size_t)width < size) {
        text[width] = '\0';
    }
}
