/* Small plots below each other, all with the same axes. */
#include "outputs/report/draw/report_svg.h"

#include <math.h>
#include <stdio.h>

enum { HEADING = 32, PLOT = 42, GAP = 12, AXES = 40, COLUMNS = 62 };

/* Where the panels' points lie. */
struct grid {
    const struct dpe_panels *panels;
    struct dpe_axis x, y; /* y.from is the lower edge of the panel being drawn */
    double least, most;   /* of the values: where lines are */
    double left, right;
};

static bool shows(const struct grid *grid, const double *y, int64_t i)
{
    return y != NULL && dpe_axis_shows(y[i], grid->panels->log_y);
}

static void find_range(struct grid *grid)
{
    const struct dpe_panels *all = grid->panels;
    struct dpe_axis *y = &grid->y;
    *y = dpe_axis_begin(all->log_y);
    for (size_t p = 0; p < all->n; p++) {
        for (int64_t i = 0; i < all->n_points && all->panels[p].y != NULL; i++) {
            dpe_axis_see(y, all->panels[p].y[i]);
        }
    }
    grid->least = y->low;
    grid->most = y->high;
    dpe_axis_widen(&y->low, &y->high, all->log_y, 0.12);
}

static void put_path(struct dpe_text *out, const struct grid *grid, const double *y,
                     const char *color, const char *more)
{
    bool gap = true;
    dpe_text_put(out, "<path class=\"%s\" stroke=\"currentColor\" stroke-width=\"1.75\" %s d=\"",
                 color, more);
    for (int64_t i = 0; i < grid->panels->n_points; i++) {
        bool here = shows(grid, y, i);
        if (here) {
            dpe_text_put(out, "%c%.5g %.5g", gap ? 'M' : 'L', dpe_axis_at(&grid->x, (double)i),
                         dpe_axis_at(&grid->y, y[i]));
        }
        gap = !here;
    }
    dpe_text_put(out, "\"/>\n");
}

/* The area between a curve and the one to compare with. */
static void put_difference(struct dpe_text *out, const struct grid *grid, const double *y,
                           const char *color)
{
    const double *first = grid->panels->reference;
    dpe_text_put(out, "<path class=\"%s\" fill=\"currentColor\" fill-opacity=\"0.25\" d=\"", color);
    for (int64_t i = 0; i + 1 < grid->panels->n_points; i++) {
        if (shows(grid, y, i) && shows(grid, y, i + 1) && shows(grid, first, i) &&
            shows(grid, first, i + 1)) {
            double x0 = dpe_axis_at(&grid->x, (double)i);
            double x1 = dpe_axis_at(&grid->x, (double)i + 1.0);
            dpe_text_put(out, "M%.5g %.5gL%.5g %.5gV%.5gL%.5g %.5gz", x0,
                         dpe_axis_at(&grid->y, y[i]), x1, dpe_axis_at(&grid->y, y[i + 1]),
                         dpe_axis_at(&grid->y, first[i + 1]), x0, dpe_axis_at(&grid->y, first[i]));
        }
    }
    dpe_text_put(out, "\"/>\n");
}

static void put_line(struct dpe_text *out, const struct grid *grid, double value)
{
    char text[32];
    double y = dpe_axis_at(&grid->y, value);
    snprintf(text, sizeof text, "%.3g", value);
    dpe_svg_line(out, grid->left, y, grid->right, y, DPE_GRID, 1.0, "");
    dpe_svg_label(out, grid->left - 6.0, y, DPE_SVG_END, DPE_INK, text, 0);
}

static void put_panel(struct dpe_text *out, struct grid *grid, const struct dpe_panel *panel,
                      double top)
{
    const char *color = dpe_svg_series(panel->marked ? 1 : 0);
    dpe_svg_text(out, 8.0, top + 8.0, 0.0, DPE_SVG_START, 12, panel->marked ? color : DPE_INK,
                 panel->name, COLUMNS);
    dpe_svg_label(out, 8.0, top + 23.0, DPE_SVG_START, DPE_QUIET, panel->facts, COLUMNS);
    if (panel->y == NULL) {
        return;
    }
    grid->y.to = top + HEADING;
    grid->y.from = grid->y.to + PLOT;
    put_line(out, grid, grid->most);
    if (grid->least < grid->most) {
        put_line(out, grid, grid->least);
    }
    if (panel->marked) {
        put_difference(out, grid, panel->y, color);
        put_path(out, grid, grid->panels->reference, DPE_QUIET, "stroke-dasharray=\"4 3\"");
    }
    put_path(out, grid, panel->y, color, "stroke-linejoin=\"round\"");
}

void dpe_draw_panels(struct dpe_figure *figure, const struct dpe_panels *all)
{
    struct dpe_text *out = &figure->body;
    struct grid grid = {.panels = all};
    struct dpe_ticks ticks;
    double top = 6.0;
    find_range(&grid);
    grid.left = 46.0;
    grid.right = FIGURE_WIDTH - 10.0;
    grid.x = (struct dpe_axis){.low = 0.0,
                               .high = fmax((double)all->n_points - 1.0, 1.0),
                               .from = grid.left,
                               .to = grid.right};
    for (size_t p = 0; p < all->n; p++) {
        put_panel(out, &grid, &all->panels[p], top);
        top += HEADING + GAP + (all->panels[p].y != NULL ? PLOT : 0);
    }
    dpe_axis_ticks(&grid.x, 30.0, &ticks);
    dpe_axis_put(out, &grid.x, &ticks, 0.0, top - GAP + 4.0, top - GAP + 34.0, all->x_title);
    figure->width = FIGURE_WIDTH;
    figure->height = (int)top - GAP + AXES + 4;
}
