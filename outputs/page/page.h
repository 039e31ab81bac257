/**
 * @file page.h
 * A page: text, sheets of numbers, figures. It does not depend on tables. Where memory is out while
 * one is written, the process ends with 71 (DPE_NO_MEMORY): what a page tells is measured and
 * safe by then.
 */
#ifndef DPE_PAGE_H
#define DPE_PAGE_H

#include "engine/base/base.h"

/** Text for HTML content and attributes in double quotes: & < > " ' escaped, control characters
 *  and invalid UTF-8 become U+FFFD, line breaks become spaces. */
void dpe_draw_put_html(struct dpe_text *out, const char *text);
/** The bytes, which are there: else the process ends, as above. */
void *dpe_draw_need(void *bytes);
/** What was put into a text, "" for nothing; the process ends where there was no room for it. */
const char *dpe_draw_text(const struct dpe_text *text);
/** dpe_make_room in the same way. */
void dpe_draw_room(void *list, size_t n, size_t size);
/** One line of valid UTF-8 without control characters, owned by the caller. */
char *dpe_draw_clean_text(const char *text, size_t columns);
/** printf into an owned string. */
char *dpe_draw_format_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** One method has one colour and mark on the whole page, found by its name. From now on `name` is
 * the method `other`; one pair, the last that was given. */
void dpe_draw_same_method(const char *name, const char *other);

/** A number of tokens in words, until the end of the block. */
#define DPE_LENGTH_TEXT(tokens) dpe_length_text(tokens, (char[32]){""})

enum dpe_column_kind {
    COLUMN_TEXT,
    COLUMN_METHOD,   /**< a text: the name of a method, in HTML with its colour beside it */
    COLUMN_NUMBER,   /**< one number a cell */
    COLUMN_P,        /**< a number that is a p-value: in HTML as everywhere, "0.012" or "< 0.001" */
    COLUMN_INTERVAL, /**< three: value, low, high; CSV has NAME, NAME_low, NAME_high */
};

/** Numbers of a figure, or a table of its own: shown in HTML, written as CSV. */
struct dpe_sheet {
    char *id, *title; /**< id: file name and anchor, [a-z0-9-]+ */
    struct dpe_sheet_column {
        char *name;
        enum dpe_column_kind kind;
        int digits; /**< decimals in HTML; CSV always has %.17g */
    } * columns;
    size_t n_columns;
    struct dpe_sheet_cell {
        char *text; /**< of a number: what figures call it, NULL: as a length */
        double number[3];
        unsigned mark; /**< a set of enum dpe_sheet_mark */
    } * cells;         /**< [n_cells], row-major */
    size_t n_cells;
    struct dpe_sheet *drawn; /**< what a figure draws in its place; or NULL */
    size_t shown;            /**< rows in HTML at most, 0 = all; CSV has all */
    bool folded;             /**< in HTML only its title is shown until it is opened */
};
/** Of a cell in HTML, and (ROW) of the row of which it is the first in a figure. */
enum dpe_sheet_mark {
    MARK_BEST = 1,    /**< bold */
    MARK_TIED = 2,    /**< ≈: its interval overlaps that of the best */
    MARK_OUTSIDE = 4, /**< grey: not what it was made for */
    ROW_UNDRAWN = 8,  /**< among the numbers only */
    ROW_STRONG = 16,  /**< what the report is about: thicker, larger */
    ROW_PLAIN =
        32, /**< something to compare with: a thin dashed line; without x from side to side */
};
/** Columns are "NAME:KIND|NAME:KIND…". KIND is t (text), @ (method), p, decimals of a number ("0"),
 * or i and decimals of an interval ("i1"). Takes id and title over. */
struct dpe_sheet *dpe_draw_sheet_new(char *id, char *title, const char *columns);
/** A sheet whose rows a figure draws in place of the sheet's own. */
struct dpe_sheet *dpe_draw_instead(struct dpe_sheet *sheet, const char *columns);
/** One more column, whose name is not known before. */
void dpe_draw_sheet_column(struct dpe_sheet *sheet, const char *name, const char *kind);
void dpe_draw_sheet_free(struct dpe_sheet *sheet);

/** Cells, to be put in the order of the columns; texts are copied, NULL is an empty one. */
static inline struct dpe_sheet_cell dpe_text_cell(const char *text)
{
    return (struct dpe_sheet_cell){.text = (char *)(uintptr_t)(text != NULL ? text : "")};
}
static inline struct dpe_sheet_cell dpe_interval_cell(double value, double low, double high)
{
    return (struct dpe_sheet_cell){.number = {value, low, high}};
}
static inline struct dpe_sheet_cell dpe_number_cell(double value)
{
    return dpe_interval_cell(value, (double)__builtin_nan(""), (double)__builtin_nan(""));
}
static inline struct dpe_sheet_cell dpe_whole_cell(int64_t value)
{
    return dpe_number_cell((double)value);
}
static inline struct dpe_sheet_cell dpe_size_cell(size_t value)
{
    return dpe_number_cell((double)value);
}
static inline struct dpe_sheet_cell dpe_same_cell(struct dpe_sheet_cell cell)
{
    return cell;
}
/** Of a text, a number, or what is a cell. */
#define dpe_cell(x)                                                                                \
    _Generic((x),                                                                                  \
        char *: dpe_text_cell,                                                                     \
        const char *: dpe_text_cell,                                                               \
        double: dpe_number_cell,                                                                   \
        int: dpe_whole_cell,                                                                       \
        long: dpe_whole_cell,                                                                      \
        long long: dpe_whole_cell,                                                                 \
        size_t: dpe_size_cell,                                                                     \
        struct dpe_sheet_cell: dpe_same_cell)(x)
void dpe_draw_cell(struct dpe_sheet *sheet, struct dpe_sheet_cell cell);
void dpe_draw_cells(struct dpe_sheet *sheet, const struct dpe_sheet_cell *cells, size_t n);
#define DPE_CELLS_1(a)       dpe_cell(a)
#define DPE_CELLS_2(a, ...)  dpe_cell(a), DPE_CELLS_1(__VA_ARGS__)
#define DPE_CELLS_3(a, ...)  dpe_cell(a), DPE_CELLS_2(__VA_ARGS__)
#define DPE_CELLS_4(a, ...)  dpe_cell(a), DPE_CELLS_3(__VA_ARGS__)
#define DPE_CELLS_5(a, ...)  dpe_cell(a), DPE_CELLS_4(__VA_ARGS__)
#define DPE_CELLS_6(a, ...)  dpe_cell(a), DPE_CELLS_5(__VA_ARGS__)
#define DPE_CELLS_7(a, ...)  dpe_cell(a), DPE_CELLS_6(__VA_ARGS__)
#define DPE_CELLS_8(a, ...)  dpe_cell(a), DPE_CELLS_7(__VA_ARGS__)
#define DPE_CELLS_9(a, ...)  dpe_cell(a), DPE_CELLS_8(__VA_ARGS__)
#define DPE_CELLS_10(a, ...) dpe_cell(a), DPE_CELLS_9(__VA_ARGS__)
#define DPE_CELLS_11(a, ...) dpe_cell(a), DPE_CELLS_10(__VA_ARGS__)

#define DPE_CELLS(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, which, ...) DPE_CELLS_##which
#define DPE_ROW(...)                                                                               \
    (const struct dpe_sheet_cell[])                                                                \
    {                                                                                              \
        DPE_CELLS(__VA_ARGS__, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, )(__VA_ARGS__)                   \
    }
/** A row of at most eleven cells: dpe_draw_row(sheet, "rope", 1024, dpe_scaled_cell(&mean, 100.0)).
 */
#define dpe_draw_row(sheet, ...)                                                                   \
    dpe_draw_cells(sheet, DPE_ROW(__VA_ARGS__),                                                    \
                   sizeof DPE_ROW(__VA_ARGS__) / sizeof(struct dpe_sheet_cell))
/** How many rows HTML shows at most (0: all), and whether it is folded. */
static inline void dpe_draw_shown(struct dpe_sheet *sheet, size_t rows, bool folded)
{
    sheet->shown = rows;
    sheet->folded = folded;
}
/** Marks ROW_… of the last row. */
void dpe_draw_row_mark(struct dpe_sheet *sheet, unsigned marks);
/** RFC 4180 through libcsv. NaN is written as NaN. */
void dpe_draw_sheet_csv(const struct dpe_sheet *sheet, struct dpe_text *out);
/** <table>…</table>. */
void dpe_draw_sheet_html(const struct dpe_sheet *sheet, struct dpe_text *out);

/** Logical pixels: one text line is 12 of them. A phone shows a figure at 0.85 of its size. */
enum { FIGURE_WIDTH = 420 };

/** What is painted: SVG elements (page_svg.h). */
struct dpe_figure {
    int width, height;
    struct dpe_text body;
};

/** How a figure is drawn from the rows of a sheet, those marked ROW_UNDRAWN left out. */
struct dpe_plot {
    enum dpe_plot_kind {
        PLOT_CURVES, /**< lines with bands or bars over a common x axis, with a legend above */
        PLOT_HEAT,   /**< cells of equal size, coloured by value and labelled with it */
    } kind;
    int name, x, value; /**< columns: the name of a line (which has one point at an x: another
                           begins a line) (of cells: of their row), x (of cells: of their
                           column), value. Cells with numbers for names are in their order, else as
                           they come. Without a value they are 0, 1 and 2 */
    int framed;         /**< a column: cells where it is 1 have a frame; 0 = none */
    bool log_x, log;    /**< log: of values */
    bool low_is_good;   /**< of cells: low is bright */
    bool bare;          /**< lines without their intervals */
    bool sorted; /**< points of a line in the order of x, not of the rows; several may then have one
                    x */
    int digits;  /**< decimals in cells */
    double low,
        high;     /**< ends of values; NaN, and both when they are equal: as the values have them */
    bool told;    /**< on a terminal the map is shown, too */
    double least; /**< of a line: smaller values are not drawn; 0 = all are */
    const char *x_title, *y_title, *bar_title; /**< bar: of the colour scale */
    double x_line;                             /**< a vertical line, unless outside */
    const char *x_line_title;                  /**< NULL = no line */
};
/** Parts of a plot, for its initialiser. */
#define DPE_COLUMNS(of_name, of_x, of_value) .name = (of_name), .x = (of_x), .value = (of_value)
#define DPE_ENDS(from, to)                   .low = (from), .high = (to)
#define DPE_TITLES(along, up, bar)           .x_title = (along), .y_title = (up), .bar_title = (bar)
#define DPE_LINE(at, title)                  .x_line = (at), .x_line_title = (title)
/** Draws nothing where there is nothing to draw. */
void dpe_draw_plot(struct dpe_figure *figure, const struct dpe_sheet *data,
                   const struct dpe_plot *plot);

/** Rows × columns without labels (thousands of cells), as an image. */
struct dpe_field {
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
void dpe_draw_field(struct dpe_figure *figure, const struct dpe_field *field);

/** Points of the colour scale: 0 … 1 → 0xRRGGBB, dark to bright; NaN is a neutral grey. */
unsigned dpe_draw_color_at(double share);
/** Whether dark text is readable on that colour. */
bool dpe_draw_color_is_bright(unsigned rgb);

enum dpe_block_kind {
    BLOCK_SECTION, /**< a heading */
    BLOCK_LEAD,    /**< a paragraph with the main result */
    BLOCK_TEXT,
    BLOCK_NOTE, /**< a warning */
    BLOCK_FIGURE,
    BLOCK_SHEET,
};

struct dpe_block {
    enum dpe_block_kind kind;
    char *text; /**< plain text; a section's title; of a figure: what it shows, for readers who do
                   not know the paper */
    struct dpe_sheet *sheet; /**< the numbers of a figure as well; it has a figure's id and title */
    struct dpe_figure figure; /**< empty: the page has the numbers only */
    struct dpe_plot plot;     /**< that it was painted by; 0 of a field */
};

/** The figure as PNG, two pixels to a logical one, through rsvg-convert. DPE_NO_INPUT (that is not
 *  installed), DPE_IO (it failed or took too long; the message has its reason), DPE_INCOMPLETE (a
 *  signal), DPE_NO_MEMORY. */
dpe_status dpe_draw_figure_png(const struct dpe_block *figure, struct dpe_text *png,
                               struct dpe_error *err);
/** The figure for use inside a page (`standalone` false: the page has the style sheet) or as a file
 *  with a style sheet of its own. Both have the title as their text alternative. */
void dpe_draw_put_svg(struct dpe_text *out, const struct dpe_block *figure, bool standalone);

/** The page's style sheet (page.css). */
extern const unsigned char dpe_draw_style[];
extern const size_t dpe_draw_style_size;

/** A page while it is written. Whoever tells a result (outputs/words) writes to one of these,
 * whether it is printed or becomes HTML. */
struct dpe_page {
    char *title, *subtitle; /**< of HTML */
    struct dpe_block *blocks;
    size_t n;
    /** Ids of sheets are PREFIX-ID-SUFFIX (without what is ""), with place + 1 after it where that
     * is not 0; titles of sections say `apart` ("seed 1000") unless it is NULL. */
    char prefix[96], suffix[32];
    size_t place;
    const char *apart;
    const char *unfinished; /**< a run that is; the next section says so. NULL: none */
    bool printed;           /**< for a terminal: builders leave out what only HTML shows */
    void **kept;            /**< freed with the page */
    size_t n_kept;
};
/** From now on `bytes` are the page's, to be freed; there have to be some. */
void *dpe_page_keep(struct dpe_page *page, void *bytes);
/** Memory, zeros at first, and texts that live as long as the page. */
void *dpe_page_alloc(struct dpe_page *page, size_t n, size_t size);
char *dpe_page_text(struct dpe_page *page, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** dpe_draw_clean_text; of NULL it is NULL. */
char *dpe_page_clean(struct dpe_page *page, const char *text, size_t columns);
void dpe_page_free(struct dpe_page *page);
/** A section's title. */
void dpe_page_section(struct dpe_page *page, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** A paragraph. */
void dpe_page_say(struct dpe_page *page, enum dpe_block_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** A sheet, to be filled and then added alone or as a figure, and the page's from then on. */
struct dpe_sheet *dpe_page_sheet(const struct dpe_page *page, const char *id, const char *columns,
                                 const char *title, ...) __attribute__((format(printf, 4, 5)));
void dpe_page_add(struct dpe_page *page, struct dpe_sheet *sheet);
/** A figure of a sheet's rows, with its caption. Returns what is painted, for what no plot paints
 * (NULL), until the next block is added. */
struct dpe_figure *dpe_page_figure(struct dpe_page *page, struct dpe_sheet *sheet,
                                   const struct dpe_plot *plot, const char *caption, ...)
    __attribute__((format(printf, 4, 5)));
/** The whole page. */
void dpe_page_html(const struct dpe_page *page, struct dpe_text *out);
/** Print it on a terminal, and free it: titles, main results and warnings, sheets that are not
 * folded, and what is told; with `details` all of it, figures as their numbers. */
void dpe_page_print(struct dpe_page *page, bool details);

#endif
