/**
 * @file page.h
 * A page: text, sheets of numbers, figures. It does not depend on tables.
 */
#ifndef DPE_PAGE_H
#define DPE_PAGE_H

#include "engine/base/base.h"

/** A growable text that remembers that memory ran out. Zero-initialise, free text.bytes. */
struct writer {
    struct dpe_text text;
    bool failed;
};
void dpe_draw_put(struct writer *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void dpe_draw_put_bytes(struct writer *out, const char *bytes, size_t n);
/** Text for HTML content and attributes in double quotes: & < > " ' escaped, control characters
 *  and invalid UTF-8 become U+FFFD, line breaks become spaces. */
void dpe_draw_put_html(struct writer *out, const char *text);
/** One line of valid UTF-8 without control characters, owned by the caller; NULL without memory. */
char *dpe_draw_clean_text(const char *text, size_t columns);
/** Lengths are "512", "1000", "1k" (of 1024), "128k" in figures and titles. */
const char *dpe_draw_length_text(double tokens, char text[32]);
/** printf into an owned string; NULL without memory. */
char *dpe_draw_format_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** One method has one colour and mark on the whole page, found by its name. From now on `name` is the method
 *  `other`; one pair, the last that was given. */
void dpe_draw_same_method(const char *name, const char *other);

enum column_kind {
    COLUMN_TEXT,
    COLUMN_NUMBER,   /**< one number a cell */
    COLUMN_P,        /**< a number that is a p-value: in HTML as everywhere, "0.012" or "< 0.001" */
    COLUMN_INTERVAL, /**< three: value, low, high; CSV has NAME, NAME_low, NAME_high */
};

/** Numbers of a figure, or a table of its own: shown in HTML, written as CSV. */
struct sheet {
    char *id, *title; /**< id: file name and anchor, [a-z0-9-]+ */
    struct sheet_column {
        char *name;
        enum column_kind kind;
        int digits; /**< decimals in HTML; CSV always has %.17g */
    } * columns;
    size_t n_columns;
    struct sheet_cell {
        char *text;
        double number[3];
        unsigned mark; /**< in HTML, a set of enum sheet_mark */
    } * cells; /**< [n_cells], row-major */
    size_t n_cells;
    size_t capacity;
    size_t shown; /**< rows in HTML at most, 0 = all; CSV has all */
    bool folded;  /**< in HTML only its title is shown until it is opened */
    bool failed;
};
struct sheet *dpe_draw_sheet_new(const char *id, const char *title);
void dpe_draw_sheet_column(struct sheet *sheet, const char *name, enum column_kind kind,
                           int digits);
void dpe_draw_sheet_text(struct sheet *sheet, const char *text);
void dpe_draw_sheet_number(struct sheet *sheet, double value);
void dpe_draw_sheet_interval(struct sheet *sheet, double value, double low, double high);
/** How the last cell is shown in HTML. */
enum sheet_mark {
    MARK_BEST = 1,    /**< bold */
    MARK_TIED = 2,    /**< ≈: its interval overlaps that of the best */
    MARK_OUTSIDE = 4, /**< grey: not what it was made for */
    MARK_SERIES = 8,  /**< a text: the name of a method, with its colour beside it */
};
void dpe_draw_sheet_mark(struct sheet *sheet, unsigned marks);
void dpe_draw_sheet_free(struct sheet *sheet);
/** RFC 4180 through libcsv. NaN is written as NaN. */
void dpe_draw_sheet_csv(const struct sheet *sheet, struct writer *out);
/** <table>…</table>. */
void dpe_draw_sheet_html(const struct sheet *sheet, struct writer *out);

/** Logical pixels: one text line is 12 of them. A phone shows a figure at 0.85 of its size. */
enum { FIGURE_WIDTH = 420 };

/** One figure and the words around it. */
struct figure {
    char *id;      /**< file name and anchor, [a-z0-9-]+ */
    char *title;   /**< one line above it */
    char *caption; /**< what it shows, for readers who do not know the paper */
    int width, height;
    struct writer body; /**< SVG elements (report_svg.h); empty: the page has the numbers only */
    struct sheet *numbers;
};
/** Takes caption and numbers over; NULL without memory, also when one of them is NULL for that
 *  reason. */
struct figure *dpe_draw_figure_new(const char *id, const char *title, char *caption,
                                   struct sheet *numbers);
void dpe_draw_figure_free(struct figure *figure);

/** Cells of equal size, coloured by value and labelled with it. */
struct heat {
    int64_t n_rows, n_columns;
    const double *value; /**< [n_rows][n_columns], NaN = missing */
    double low, high;    /**< ends of the colour scale, NaN = those of the values */
    bool log, low_is_good;
    int digits; /**< decimals in the cells */
    const char *const *row_names, *const *column_names;
    const char *x_title, *y_title, *bar_title;
    const unsigned char *mark; /**< [n_rows][n_columns], outlined; NULL = none */
};
void dpe_draw_heat(struct figure *figure, const struct heat *heat);

/** Rows × columns without labels (thousands of cells), as an image. */
struct field {
    int64_t n_rows, n_columns;
    const double *value;
    double low, high;
    int64_t row_step; /**< a line every so many rows (a layer's heads), 0 = none */
    const char *x_title, *y_title, *bar_title;
    double cut;             /**< a vertical line before column `cut`, NaN = none */
    const char *cut_title;  /**< the label of the line */
    const int64_t *x_edges; /**< vertical ticks between columns, such as group edges */
    int64_t n_x_edges;
};
void dpe_draw_field(struct figure *figure, const struct field *field);

/** One line with its band. */
struct curve {
    const char *name;
    int64_t n;
    const double *x, *y;
    const double *low, *high; /**< NULL = no band; NaN = none at that point */
    bool plain;               /**< something to compare with: a thin dashed line */
    bool strong;              /**< what the report is about: a thicker line */
};
/** Curves over a common x axis, with a legend above. */
struct curves {
    const struct curve *curves;
    size_t n;
    bool log_x, log_y;
    double y_low, y_high; /**< NaN = by the values */
    const char *x_title, *y_title;
    double x_line; /**< a vertical line, NaN or outside = none */
    const char *x_line_title;
};
void dpe_draw_curves(struct figure *figure, const struct curves *curves);

/** One dot with its interval per line, names at the left. */
struct dots {
    size_t n;
    const char *const *names;
    const double *value, *low, *high;
    const unsigned char *strong; /**< drawn larger; NULL = all alike */
    bool methods;                /**< names of methods: each in its colour; else all in one */
    double x_low, x_high;        /**< NaN = by the values */
    bool log;
    int digits;
    const char *x_title;
};
void dpe_draw_dots(struct figure *figure, const struct dots *dots);

/** Points of the colour scale: 0 … 1 → 0xRRGGBB, dark to bright; NaN is a neutral grey. */
unsigned dpe_draw_color_at(double share);
/** Whether dark text is readable on that colour. */
bool dpe_draw_color_is_bright(unsigned rgb);

/** The figure as PNG, two pixels to a logical one, through rsvg-convert. DPE_NO_INPUT (that is not
 *  installed), DPE_IO (it failed or took too long; the message has its reason), DPE_INCOMPLETE (a
 *  signal), DPE_NO_MEMORY. */
dpe_status dpe_draw_figure_png(const struct figure *figure, struct dpe_text *png,
                               struct dpe_error *err);
/** The figure for use inside a page (`standalone` false: the page has the style sheet) or as a file
 *  with a style sheet of its own. Both have the title as their text alternative. */
void dpe_draw_put_svg(struct writer *out, const struct figure *figure, bool standalone);

enum block_kind {
    BLOCK_SECTION, /**< a heading */
    BLOCK_LEAD,    /**< a paragraph with the main result */
    BLOCK_TEXT,
    BLOCK_NOTE, /**< a warning */
    BLOCK_FIGURE,
    BLOCK_SHEET,
};

struct block {
    enum block_kind kind;
    char *text; /**< plain text; a section's title */
    struct figure *figure;
    struct sheet *sheet;
};

/** What is being written. */
struct document {
    char *title, *subtitle;
    struct block *blocks;
    size_t n, capacity;
    bool failed;
};
/** Append; `text` is owned by the document from then on, NULL means that memory ran out. */
void dpe_draw_add_text(struct document *document, enum block_kind kind, char *text);
/** Append and own; NULL likewise. */
void dpe_draw_add_figure(struct document *document, struct figure *figure);
void dpe_draw_add_sheet(struct document *document, struct sheet *sheet);
void dpe_draw_document_free(struct document *document);
/** The page's style sheet (report.css). */
extern const unsigned char dpe_draw_style[];
extern const size_t dpe_draw_style_size;
/** The whole page. */
void dpe_draw_document_html(const struct document *document, struct writer *out);

#endif
