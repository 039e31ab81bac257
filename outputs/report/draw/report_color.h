/**
 * @file report_color.h
 * Colours of the figures. Each is drawn as it looks on paper; a style sheet replaces it where the
 * reader's screen is dark. Cells of heat maps keep theirs.
 */
#ifndef DPE_REPORT_COLOR_H
#define DPE_REPORT_COLOR_H

#include "outputs/report/draw/page.h"

/** By what it is for: light and dark. */
#define INK     "#1f2328"
#define QUIET   "#59636e"
#define AXIS    "#8c959f"
#define GRID    "#d8dee4"
#define MISSING "#e6eaef"

enum { SERIES_COLORS = 8 };
/** Colour of line `index`, counted around; differing in brightness as well, for who sees no hue. */
const char *series_color(size_t index);
/** gnuplot's number of a filled or open mark that differs from its neighbours'. */
int series_mark(size_t index);

/** Rules that turn light figures dark: `selector` stands before each. */
void put_dark_rules(struct writer *out, const char *selector);

#endif
