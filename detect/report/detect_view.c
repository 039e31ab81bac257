/* What people see: the heat map, the tables and the live line, rendered into memory. ASCII only, so
 * that every terminal shows them alike. */
#include "detect/report/view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum dpe_detect_colour dpe_detect_colour_of(bool terminal, const char *no_colour, const char *term,
                                            const char *colorterm)
{
    if (!terminal || (no_colour != NULL && no_colour[0] != '\0') || term == NULL ||
        strcmp(term, "dumb") == 0) {
        return DPE_DETECT_MONO;
    }
    if (colorterm != NULL &&
        (strcmp(colorterm, "truecolor") == 0 || strcmp(colorterm, "24bit") == 0)) {
        return DPE_DETECT_TRUECOLOUR;
    }
    if (strstr(term, "256color") != NULL || strstr(term, "direct") != NULL) {
        return DPE_DETECT_256;
    }
    return DPE_DETECT_MONO;
}

/* -------------------------------------------------------------------------------------- colours */

struct rgb {
    double r, g, b; /* 0 … 255 */
};

/* Brightness rises evenly along the ramp, so it reads without hue as well. */
static struct rgb ramp(double share)
{
    static const struct rgb stops[] = {{24, 32, 66},   {28, 84, 112},  {36, 138, 120},
                                       {128, 178, 84}, {226, 196, 72}, {255, 244, 190}};
    enum { LAST = sizeof stops / sizeof stops[0] - 1 };
    double at = fmin(fmax(share, 0.0), 1.0) * LAST;
    int i = (int)at;
    i = i < LAST ? i : LAST - 1;
    double t = at - i;
    return (struct rgb){stops[i].r + t * (stops[i + 1].r - stops[i].r),
                        stops[i].g + t * (stops[i + 1].g - stops[i].g),
                        stops[i].b + t * (stops[i + 1].b - stops[i].b)};
}

/* Relative luminance as WCAG defines it; black text reads better from 0.179 on. */
static bool wants_white(struct rgb back)
{
    const double parts[3] = {back.r / 255.0, back.g / 255.0, back.b / 255.0};
    static const double weights[3] = {0.2126, 0.7152, 0.0722};
    double luminance = 0.0;
    for (int i = 0; i < 3; i++) {
        double linear =
            parts[i] <= 0.04045 ? parts[i] / 12.92 : pow((parts[i] + 0.055) / 1.055, 2.4);
        luminance += weights[i] * linear;
    }
    return luminance < 0.179;
}

/* The nearest level of the 256 colours' 6 x 6 x 6 cube, and what it looks like. */
static int cube_level(double part, double *shown)
{
    static const double levels[6] = {0, 95, 135, 175, 215, 255};
    int best = 0;
    for (int i = 1; i < 6; i++) {
        best = fabs(levels[i] - part) < fabs(levels[best] - part) ? i : best;
    }
    *shown = levels[best];
    return best;
}

static void put_colour(struct dpe_text *page, enum dpe_detect_colour colour, double share,
                       bool best)
{
    struct rgb back = ramp(share);
    const char *bold = best ? "1;" : "";
    if (colour == DPE_DETECT_TRUECOLOUR) {
        int grey = wants_white(back) ? 255 : 0;
        dpe_text_put(page, "\033[%s38;2;%d;%d;%d;48;2;%d;%d;%dm", bold, grey, grey, grey,
                     (int)back.r, (int)back.g, (int)back.b);
        return;
    }
    struct rgb shown;
    int cube = 16 + 36 * cube_level(back.r, &shown.r) + 6 * cube_level(back.g, &shown.g) +
               cube_level(back.b, &shown.b);
    dpe_text_put(page, "\033[%s38;5;%d;48;5;%dm", bold, wants_white(shown) ? 231 : 16, cube);
}

/* ------------------------------------------------------------------------------------- heat map */

/* Perplexities span decades and small is good: the colour follows the logarithm, reversed. */
static void value_range(const struct dpe_detect_ranking *ranking, double *low, double *high)
{
    *low = 0.0;
    *high = 1.0;
    if (ranking->criterion == DPE_DETECT_RECALL) {
        return;
    }
    double least = INFINITY;
    double most = -INFINITY;
    for (int c = 0; c < ranking->n_groups * ranking->n_lengths; c++) {
        if (isfinite(ranking->mean[c]) && ranking->mean[c] > 0.0) {
            least = fmin(least, log(ranking->mean[c]));
            most = fmax(most, log(ranking->mean[c]));
        }
    }
    *low = least;
    *high = most;
}

static double share_of(const struct dpe_detect_ranking *ranking, double value, double low,
                       double high)
{
    if (ranking->criterion == DPE_DETECT_RECALL) {
        return value;
    }
    return high > low ? (high - log(value)) / (high - low) : 1.0;
}

/* At least one column of the cell stays free before the number, one after it for the mark. */
static void cell_text(const struct dpe_detect_ranking *ranking, int cell, int width, double share,
                      char text[32])
{
    double value = ranking->mean[cell];
    bool best = ranking->rank[cell] == 1;
    char number[24];
    int digits = width - 2;
    if (!isfinite(value)) {
        snprintf(number, sizeof number, "-");
    } else if (ranking->criterion == DPE_DETECT_RECALL) {
        if (digits >= 4) {
            snprintf(number, sizeof number, "%.*f", digits >= 5 ? 3 : 2, value);
        } else if (digits >= 2) {
            snprintf(number, sizeof number, "%.0f", value * 100.0);
        } else {
            snprintf(number, sizeof number, "%.0f", fmin(floor(value * 10.0), 9.0));
        }
    } else if (digits >= 4) {
        int after = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
        if (value < 9999.5) {
            snprintf(number, sizeof number, "%.*f", after, value);
        } else {
            snprintf(number, sizeof number, "%.0e", value);
        }
    } else if (digits == 3 && value < 999.5) {
        snprintf(number, sizeof number, "%.0f", value);
    } else {
        /* No room for a perplexity: 9 is the best of the map, 0 the worst. */
        snprintf(number, sizeof number, "%.0f", floor(share * 9.0));
    }
    if (width <= 2) {
        snprintf(text, 32, "%s%c", number, best ? '*' : ' ');
    } else {
        snprintf(text, 32, "%*s%c", width - 1, number, best ? '*' : ' ');
    }
}

/* How the map is laid out in `width` columns. */
struct layout {
    int label, cell, columns;
};

static struct layout lay_out(const struct dpe_detect_grid *grid, int width)
{
    int n = grid->params.n_lengths;
    struct layout layout = {.label = snprintf(NULL, 0, "%d", grid->params.n_groups - 1) + 2,
                            .columns = n};
    if (width - layout.label - 8 >= 7 * n) {
        layout.label += 7; /* room for the word "group" */
    }
    int room = (width > layout.label + 2 ? width - layout.label : 2) / n;
    layout.cell = room >= 7 ? 7 : room >= 6 ? 6 : room >= 5 ? 5 : room >= 4 ? 4 : room;
    layout.cell = layout.cell < 2 ? 2 : layout.cell;
    if (layout.cell * n > width - layout.label) {
        layout.columns = (width - layout.label) / layout.cell;
        layout.columns = layout.columns < 1 ? 1 : layout.columns;
    }
    return layout;
}

static void put_header(struct dpe_text *page, const struct dpe_detect_grid *grid,
                       const struct layout *layout)
{
    dpe_text_put(page, "%-*s", layout->label, layout->label >= 8 ? "group" : "");
    for (int t = 0; t < layout->columns; t++) {
        char text[32];
        dpe_length_text((double)grid->params.lengths[t], text);
        if ((int)strlen(text) >= layout->cell) {
            /* Too narrow for lengths: number the columns, the rank table has the lengths. */
            snprintf(text, sizeof text, "%d", t % 10);
        }
        if (layout->cell <= 2) {
            dpe_text_put(page, "%s ", text);
        } else {
            dpe_text_put(page, "%*s ", layout->cell - 1, text);
        }
    }
    if (layout->columns < grid->params.n_lengths) {
        dpe_text_put(page, "+%d", grid->params.n_lengths - layout->columns);
    }
    dpe_text_put(page, "\n");
}

void dpe_detect_heatmap(const struct dpe_detect_grid *grid,
                        const struct dpe_detect_ranking *ranking, int width,
                        enum dpe_detect_colour colour, struct dpe_text *out)
{
    struct layout layout = lay_out(grid, width);
    double low = 0.0;
    double high = 1.0;
    value_range(ranking, &low, &high);
    put_header(out, grid, &layout);
    for (int g = 0; g < ranking->n_groups; g++) {
        dpe_text_put(out, "%-*d", layout.label, g);
        for (int t = 0; t < layout.columns; t++) {
            int c = g * ranking->n_lengths + t;
            char text[32];
            double share = share_of(ranking, ranking->mean[c], low, high);
            cell_text(ranking, c, layout.cell, share, text);
            bool coloured = colour != DPE_DETECT_MONO && isfinite(ranking->mean[c]);
            if (coloured) {
                put_colour(out, colour, share, ranking->rank[c] == 1);
            }
            dpe_text_put(out, coloured ? "%s\033[0m" : "%s", text);
        }
        dpe_text_put(out, "\n");
    }
}

/* --------------------------------------------------------------------------------------- tables */

static void value_text(const struct dpe_detect_ranking *ranking, int cell, char text[64])
{
    const struct dpe_interval value = {
        .mean = ranking->mean[cell], .low = ranking->low[cell], .high = ranking->high[cell]};
    dpe_detect_interval_text(ranking->criterion, &value, true, text);
}

/* A rank's column: two spaces, the length, a space, the longest interval. */
static int rank_column(const struct dpe_detect_ranking *ranking)
{
    int most = 0;
    for (int c = 0; c < ranking->n_groups * ranking->n_lengths; c++) {
        char value[64];
        value_text(ranking, c, value);
        int n = (int)strlen(value);
        most = n > most ? n : most;
    }
    return most + 8;
}

static void put_ranks(struct dpe_text *page, const struct dpe_detect_grid *grid,
                      const struct dpe_detect_ranking *ranking, int g, int columns, int column)
{
    for (int r = 1; r <= columns; r++) {
        int t = dpe_detect_ranked(ranking, g, r);
        char length[32] = "-";
        char value[64] = "";
        if (t >= 0) {
            dpe_length_text((double)grid->params.lengths[t], length);
            value_text(ranking, g * ranking->n_lengths + t, value);
        }
        dpe_text_put(page, "  %5s %-*s", length, r == columns ? 0 : column - 8, value);
    }
}

/* Group, pairs and p-value, then the ranks; without room for these, the best length alone. */
static void put_group(struct dpe_text *page, const struct dpe_detect_grid *grid,
                      const struct dpe_detect_ranking *ranking, int g, int columns, int column)
{
    char p[16] = "-";
    if (isfinite(ranking->p_value[g])) {
        snprintf(p, sizeof p, ranking->p_value[g] < 0.001 ? "<.001" : "%.3f", ranking->p_value[g]);
    }
    const char *mark = ranking->informative[g] ? " " : "?";
    if (columns > 0) {
        char pairs[32];
        snprintf(pairs, sizeof pairs, "%d-%d", grid->edges[g], grid->edges[g + 1] - 1);
        dpe_text_put(page, "%-5d %-7s %5s%s", g, pairs, p, mark);
        put_ranks(page, grid, ranking, g, columns, column);
        dpe_text_put(page, "\n");
        return;
    }
    char length[32] = "-";
    if (ranking->effective[g] > 0) {
        dpe_length_text((double)ranking->effective[g], length);
    }
    dpe_text_put(page, "%-5d %-6s %5s%s\n", g, length, p, mark);
}

void dpe_detect_rank_table(const struct dpe_detect_grid *grid,
                           const struct dpe_detect_ranking *ranking, int width,
                           struct dpe_text *out)
{
    enum { FIXED = 20, MOST = 4 };
    int column = rank_column(ranking);
    int columns = width < FIXED ? 0 : (width - FIXED) / column;
    columns = columns > MOST ? MOST : columns;
    columns = columns < ranking->n_lengths ? columns : ranking->n_lengths;
    dpe_text_put(out, columns > 0 ? "group pairs       p " : "group best       p");
    for (int r = 1; r <= columns; r++) {
        dpe_text_put(out, "  rank %-*d", r == columns ? 0 : column - 7, r);
    }
    dpe_text_put(out, "\n");
    for (int g = 0; g < ranking->n_groups; g++) {
        put_group(out, grid, ranking, g, columns, column);
    }
}

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
