/* A page on a terminal: its sentences, and sheets with their columns in line, as many beside each
 * other as fit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tool/tool.h"
#include "outputs/page/page.h"

enum { MOST_NAME = 40 };

/* Columns on the screen: characters of UTF-8. */
static int width_of(const char *text)
{
    int n = 0;
    for (; *text != '\0'; text++) {
        n += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return n;
}

/* A number that its decimals would show as 0 has two digits. */
static void put_number(struct dpe_text *out, double value, int digits)
{
    const bool small = value != 0.0 && fabs(value) < 0.5 * pow(10.0, -digits);
    dpe_text_put(out, small ? "%.*g" : "%.*f", small ? 2 : digits, value);
}

static char *cell_text(const struct dpe_sheet_column *column, const struct dpe_sheet_cell *cell)
{
    if (column->kind <= COLUMN_METHOD) {
        return dpe_draw_clean_text(cell->text, column->kind == COLUMN_METHOD ? MOST_NAME : 0);
    }
    if (isnan(cell->number[0])) {
        return dpe_draw_format_text("n/a");
    }
    if (column->kind == COLUMN_P) {
        char p[DPE_P_TEXT];
        dpe_p_text(cell->number[0], p);
        return dpe_draw_format_text("%s", p + (p[2] == '=' ? 4 : 2)); /* the column says p */
    }
    struct dpe_text out = {0};
    const int digits = column->digits;
    dpe_text_put(&out, "%s",
                 (cell->mark & MARK_BEST) != 0   ? "*"
                 : (cell->mark & MARK_TIED) != 0 ? "~"
                                                 : "");
    put_number(&out, cell->number[0], digits);
    if (column->kind == COLUMN_INTERVAL && !isnan(cell->number[1])) {
        dpe_text_put(&out, " [");
        put_number(&out, cell->number[1], digits);
        dpe_text_put(&out, ", ");
        put_number(&out, cell->number[2], digits);
        dpe_text_put(&out, "]");
    }
    return dpe_draw_need(out.failed ? NULL : out.bytes);
}

/* The texts of a sheet's heads and its first rows. */
struct grid {
    char **text; /* [rows + 1][columns] */
    int *width;  /* [columns] */
    size_t rows, columns;
};

static void grid_free(struct grid *grid)
{
    for (size_t i = 0; i < (grid->rows + 1) * grid->columns; i++) {
        free(grid->text[i]);
    }
    free(grid->text);
    free(grid->width);
}

static void grid_take(const struct dpe_sheet *sheet, bool details, struct grid *grid)
{
    grid->columns = sheet->n_columns;
    grid->rows = sheet->n_cells / sheet->n_columns;
    grid->rows =
        !details && sheet->shown > 0 && sheet->shown < grid->rows ? sheet->shown : grid->rows;
    grid->text =
        dpe_draw_need(dpe_alloc_zero((grid->rows + 1) * grid->columns, sizeof *grid->text));
    grid->width = dpe_draw_need(dpe_alloc_zero(grid->columns, sizeof *grid->width));
    for (size_t i = 0; i < (grid->rows + 1) * grid->columns; i++) {
        const size_t c = i % grid->columns;
        const struct dpe_sheet_column *column = &sheet->columns[c];
        grid->text[i] = i < grid->columns ? dpe_draw_format_text("%s", column->name)
                                          : cell_text(column, &sheet->cells[i - grid->columns]);
        const int width = width_of(grid->text[i]);
        grid->width[c] = width > grid->width[c] ? width : grid->width[c];
    }
}

/* Texts stand left, numbers right. */
static void put_cell(struct dpe_text *line, const struct dpe_sheet *sheet, const struct grid *grid,
                     size_t row, size_t c)
{
    const char *text = grid->text[row * grid->columns + c];
    const int gap = grid->width[c] - width_of(text);
    const bool left = sheet->columns[c].kind <= COLUMN_METHOD;
    dpe_text_put(line, "%*s%s%*s  ", left ? 0 : gap, "", text, left ? gap : 0, "");
}

/* The first column begins every block of columns. */
static void print_sheet(const struct dpe_sheet *sheet, bool details)
{
    DPE_SCOPED(grid_free) struct grid grid = {0};
    grid_take(sheet, details, &grid);
    dpe_print("%s\n", sheet->title);
    for (size_t begin = 1, end; begin == 1 || begin < grid.columns; begin = end) {
        int used = grid.width[0];
        for (end = begin; end < grid.columns &&
                          (end == begin || used + 2 + grid.width[end] < dpe_terminal_width(stdout));
             end++) {
            used += 2 + grid.width[end];
        }
        for (size_t row = 0; row <= grid.rows; row++) {
            DPE_SCOPED(dpe_text_free) struct dpe_text line = {0};
            put_cell(&line, sheet, &grid, row, 0);
            for (size_t c = begin; c < end; c++) {
                put_cell(&line, sheet, &grid, row, c);
            }
            const char *text = dpe_draw_text(&line);
            size_t n = line.n;
            while (n > 0 && text[n - 1] == ' ') {
                n--;
            }
            dpe_print("%.*s\n", (int)n, text);
        }
        end += end == begin; /* of one column */
    }
    unsigned marks = 0;
    for (size_t i = 0; i < sheet->n_cells; i++) {
        marks |= sheet->cells[i].mark;
    }
    if ((marks & MARK_BEST) != 0) {
        dpe_print("* best%s\n",
                  (marks & MARK_TIED) != 0 ? "   ~ its interval overlaps that of the best" : "");
    }
    const size_t all = sheet->n_cells / sheet->n_columns;
    if (grid.rows < all) {
        dpe_print("(%zu of %zu rows)\n", grid.rows, all);
    }
}

/* --------------------------------------------------------------------------------- heat maps */

/* From red over yellow to green, of the 256 terminal colours. */
static int colour_of(double share)
{
    static const int ramp[] = {196, 202, 208, 214, 220, 226, 190, 154, 118, 82, 46};
    const int steps = (int)(sizeof ramp / sizeof ramp[0]) - 1;
    return ramp[(int)lround(fmin(fmax(share, 0.0), 1.0) * steps)];
}

static void print_colour(double value, const struct dpe_plot *plot)
{
    if (isnan(value)) {
        dpe_print("    n/a");
    } else if (dpe_terminal_color(stdout)) {
        dpe_print(" \033[30;48;5;%dm%5.*f \033[0m",
                  colour_of((value - plot->low) / (plot->high - plot->low)), plot->digits, value);
    } else {
        dpe_print(" %5.*f ", plot->digits, value);
    }
}

/* Cells in the order of their rows: each row has the same columns. */
static void print_map(const struct dpe_sheet *sheet, const struct dpe_plot *plot)
{
    const size_t n = sheet->n_cells / sheet->n_columns;
    size_t columns = 1;
    while (columns < n &&
           sheet->cells[columns * sheet->n_columns].number[0] == sheet->cells[0].number[0]) {
        columns++;
    }
    dpe_print("%s: %s\n%-8s", sheet->title, plot->bar_title, sheet->columns[0].name);
    for (size_t c = 0; c < columns && c < n; c++) {
        dpe_print(" %6.0f", sheet->cells[c * sheet->n_columns + 1].number[0]);
    }
    for (size_t i = 0; i < n; i++) {
        const struct dpe_sheet_cell *row = &sheet->cells[i * sheet->n_columns];
        if (i % columns == 0) {
            dpe_print("\n%-8s", row[0].text != NULL ? row[0].text : "");
        }
        print_colour(row[2].number[0], plot);
    }
    dpe_print("\n");
}

/* Spaces that do not break lines are for a page. */
static void print_sentence(const char *text)
{
    for (const char *at; (at = strstr(text, "\u00a0")) != NULL; text = at + strlen("\u00a0")) {
        dpe_print("%.*s ", (int)(at - text), text);
    }
    dpe_print("%s\n", text);
}

void dpe_page_print(struct dpe_page *page, bool details)
{
    for (size_t i = 0; i < page->n; i++) {
        const struct dpe_block *block = &page->blocks[i];
        switch (block->kind) {
        case BLOCK_SECTION:
            dpe_print("%s%s\n", i > 0 ? "\n" : "", block->text);
            break;
        case BLOCK_TEXT:
            if (details) {
                dpe_print("  ");
                print_sentence(block->text);
            }
            break;
        case BLOCK_LEAD:
        case BLOCK_NOTE:
            print_sentence(block->text);
            break;
        case BLOCK_FIGURE:
            if (block->plot.told && block->plot.kind == PLOT_HEAT && block->sheet->n_cells > 0) {
                print_map(block->sheet, &block->plot);
            } else if (details || block->plot.told) {
                print_sheet(block->sheet, false);
            }
            break;
        case BLOCK_SHEET:
            if (details || !block->sheet->folded) {
                print_sheet(block->sheet, details);
            }
            break;
        }
    }
    dpe_page_free(page);
}
