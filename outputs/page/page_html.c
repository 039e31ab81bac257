/* Sheets of numbers, for the eye in HTML, for programs in CSV; and the page: blocks in their order,
 * figures side by side where there is room. */
#include <csv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/base.h"
#include "outputs/page/page.h"
#include "outputs/page/page_svg.h"

/* --------------------------------------------------------------------------------------- sheets */

/* The column of name and kind as page.h spells them. */
static void add_column(struct dpe_sheet *sheet, const char *name, size_t length, const char *kind)
{
    dpe_draw_room(&sheet->columns, sheet->n_columns, sizeof *sheet->columns);
    struct dpe_sheet_column *column = &sheet->columns[sheet->n_columns++];
    *column = (struct dpe_sheet_column){.name = dpe_draw_format_text("%.*s", (int)length, name),
                                        .kind = *kind == 't'   ? COLUMN_TEXT
                                                : *kind == '@' ? COLUMN_METHOD
                                                : *kind == 'p' ? COLUMN_P
                                                : *kind == 'i' ? COLUMN_INTERVAL
                                                               : COLUMN_NUMBER};
    const char *digit = *kind == 'i' ? kind + 1 : kind;
    column->digits = *digit >= '0' && *digit <= '9' ? *digit - '0' : 0;
}

void dpe_draw_sheet_column(struct dpe_sheet *sheet, const char *name, const char *kind)
{
    add_column(sheet, name, strlen(name), kind);
}

struct dpe_sheet *dpe_draw_sheet_new(char *id, char *title, const char *columns)
{
    struct dpe_sheet *sheet = dpe_draw_need(malloc(sizeof *sheet));
    *sheet = (struct dpe_sheet){.id = id, .title = title};
    for (const char *at = columns; *at != '\0';) {
        size_t name = strcspn(at, ":");
        add_column(sheet, at, name, at + name + 1);
        at += strcspn(at, "|");
        at += *at == '|';
    }
    return sheet;
}

struct dpe_sheet *dpe_draw_instead(struct dpe_sheet *sheet, const char *columns)
{
    sheet->drawn = dpe_draw_sheet_new(NULL, NULL, columns);
    return sheet->drawn;
}

void dpe_draw_sheet_free(struct dpe_sheet *sheet)
{
    if (sheet == NULL) {
        return;
    }
    dpe_draw_sheet_free(sheet->drawn);
    for (size_t i = 0; i < sheet->n_columns; i++) {
        free(sheet->columns[i].name);
    }
    for (size_t i = 0; i < sheet->n_cells; i++) {
        free(sheet->cells[i].text);
    }
    free(sheet->columns);
    free(sheet->cells);
    free(sheet->id);
    free(sheet->title);
    free(sheet);
}

void dpe_draw_cell(struct dpe_sheet *sheet, struct dpe_sheet_cell cell)
{
    dpe_draw_room(&sheet->cells, sheet->n_cells, sizeof *sheet->cells);
    cell.text = cell.text != NULL ? dpe_draw_clean_text(cell.text, 0) : NULL;
    sheet->cells[sheet->n_cells++] = cell;
}

void dpe_draw_cells(struct dpe_sheet *sheet, const struct dpe_sheet_cell *cells, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dpe_draw_cell(sheet, cells[i]);
    }
}

void dpe_draw_row_mark(struct dpe_sheet *sheet, unsigned marks)
{
    sheet->cells[sheet->n_cells - sheet->n_columns].mark |= marks;
}

/* ------------------------------------------------------------------------------------------ CSV */

/* Spreadsheets run a cell that begins so as a formula, unless it is a number; some also where the
 * sign is as wide as a Chinese one (U+FF1D, FF0B, FF0D, FF20). */
static bool is_formula(const char *text)
{
    char *end = NULL;
    (void)strtod(text, &end);
    const bool wide = strncmp(text, "\xef\xbc", 2) == 0;
    return *end != '\0' &&
           strchr(wide ? "\x9d\x8b\x8d\xa0" : "=+-@\t\r", text[wide ? 2 : 0]) != NULL;
}

static void put_field(struct dpe_text *out, const char *text, bool last)
{
    DPE_OWNED char *quoted = is_formula(text) ? dpe_draw_format_text("'%s", text) : NULL;
    text = quoted != NULL ? quoted : text;
    size_t n = strlen(text);
    size_t need = csv_write(NULL, 0, text, n);
    DPE_OWNED char *field = dpe_draw_need(malloc(need + 1));
    csv_write(field, need, text, n);
    dpe_text_put_bytes(out, field, need);
    dpe_text_put(out, "%s", last ? "\r\n" : ",");
}

static void put_number(struct dpe_text *out, double value, bool last)
{
    char text[40];
    if (isnan(value)) {
        snprintf(text, sizeof text, "NaN");
    } else {
        snprintf(text, sizeof text, "%.17g", value);
    }
    put_field(out, text, last);
}

void dpe_draw_sheet_csv(const struct dpe_sheet *sheet, struct dpe_text *out)
{
    static const char *const ends[] = {"", "_low", "_high"};
    for (size_t c = 0; c < sheet->n_columns; c++) {
        int parts = sheet->columns[c].kind == COLUMN_INTERVAL ? 3 : 1;
        for (int p = 0; p < parts; p++) {
            const char *shown = sheet->columns[c].name;
            const char *percent = strstr(shown, ", %");
            DPE_OWNED char *name =
                percent != NULL ? dpe_draw_format_text("%.*s_percent%s%s", (int)(percent - shown),
                                                       shown, percent + 3, ends[p])
                                : dpe_draw_format_text("%s%s", shown, ends[p]);
            put_field(out, name, c + 1 == sheet->n_columns && p + 1 == parts);
        }
    }
    for (size_t i = 0; i < sheet->n_cells; i++) {
        size_t c = i % sheet->n_columns;
        const struct dpe_sheet_cell *cell = &sheet->cells[i];
        bool last = c + 1 == sheet->n_columns;
        if (sheet->columns[c].kind <= COLUMN_METHOD) {
            put_field(out, cell->text, last);
            continue;
        }
        int parts = sheet->columns[c].kind == COLUMN_INTERVAL ? 3 : 1;
        for (int p = 0; p < parts; p++) {
            put_number(out, cell->number[p], last && p + 1 == parts);
        }
    }
}

/* ------------------------------------------------------------------------------ sheets as HTML */

/* A minus sign as wide as a plus, and a dash for what was not measured. */
static void put_shown(struct dpe_text *out, double value, int digits)
{
    if (!isfinite(value)) {
        dpe_text_put(out, "%s", isnan(value) ? "–" : value > 0.0 ? "∞" : "−∞");
        return;
    }
    double zero = 0.5 * pow(10.0, -digits);
    dpe_text_put(out, "%s%.*f", value <= -zero ? "−" : "", digits, fabs(value));
}

/* An option is not broken after its hyphens. */
static void put_words(struct dpe_text *out, const char *text)
{
    while (*text != '\0') {
        const size_t spaces = strspn(text, " ");
        const size_t n = spaces > 0 ? spaces : strcspn(text, " ");
        const bool option = text[0] == '-' && n > 1;
        DPE_OWNED char *word = dpe_draw_format_text("%.*s", (int)n, text);
        dpe_text_put(out, option ? "<span class=\"o\">" : "");
        dpe_draw_put_html(out, word);
        dpe_text_put(out, option ? "</span>" : "");
        text += n;
    }
}

static void put_cell(struct dpe_text *out, const struct dpe_sheet_column *column,
                     const struct dpe_sheet_cell *cell)
{
    if (column->kind <= COLUMN_METHOD) {
        /* Short texts do not wrap, long ones do: a phone then scrolls the table sideways. */
        const char *text = cell->text;
        dpe_text_put(out, strlen(text) <= 32 ? "<td class=\"s\">" : "<td>");
        if (column->kind == COLUMN_METHOD) {
            dpe_text_put(out, "<span class=\"plot key\"><i class=\"%s\"></i></span>",
                         dpe_svg_series(dpe_svg_series_of(text)));
        }
        put_words(out, text);
    } else {
        dpe_text_put(out, "<td class=\"n%s%s\">%s", (cell->mark & MARK_BEST) != 0 ? " best" : "",
                     (cell->mark & MARK_OUTSIDE) != 0 ? " outside" : "",
                     (cell->mark & MARK_TIED) != 0 ? "≈\u00a0" : "");
        if (column->kind == COLUMN_P && cell->number[0] >= 0.0) {
            char p[DPE_P_TEXT];
            dpe_p_text(cell->number[0], p);
            dpe_draw_put_html(out, p + (p[2] == '=' ? 4 : 2)); /* the column says p */
        } else {
            put_shown(out, cell->number[0], column->digits);
        }
    }
    if (column->kind == COLUMN_INTERVAL && !isnan(cell->number[1])) {
        dpe_text_put(out, " <small>");
        put_shown(out, cell->number[1], column->digits);
        dpe_text_put(out, " to ");
        put_shown(out, cell->number[2], column->digits);
        dpe_text_put(out, "</small>");
    }
    dpe_text_put(out, "</td>");
}

void dpe_draw_sheet_html(const struct dpe_sheet *sheet, struct dpe_text *out)
{
    size_t rows = sheet->n_columns == 0 ? 0 : sheet->n_cells / sheet->n_columns;
    size_t shown = sheet->shown > 0 && sheet->shown < rows ? sheet->shown : rows;
    dpe_text_put(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"");
    dpe_draw_put_html(out, sheet->title);
    dpe_text_put(out, "\"><table>\n<thead><tr>");
    for (size_t c = 0; c < sheet->n_columns; c++) {
        dpe_text_put(out, "<th scope=\"col\"%s>",
                     sheet->columns[c].kind <= COLUMN_METHOD ? "" : " class=\"n\"");
        dpe_draw_put_html(out, sheet->columns[c].name);
        dpe_text_put(out, "</th>");
    }
    dpe_text_put(out, "</tr></thead>\n<tbody>\n");
    for (size_t r = 0; r < shown; r++) {
        dpe_text_put(out, "<tr>");
        for (size_t c = 0; c < sheet->n_columns; c++) {
            put_cell(out, &sheet->columns[c], &sheet->cells[r * sheet->n_columns + c]);
        }
        dpe_text_put(out, "</tr>\n");
    }
    dpe_text_put(out, "</tbody>\n</table></div>\n");
    if (shown < rows) {
        dpe_text_put(out, "<p class=\"quiet\">%zu of %zu rows; the CSV file has all.</p>\n", shown,
                     rows);
    }
}

/* ----------------------------------------------------------------------------------------- HTML */

/* Figures that are not drawn leave their numbers. */
static void put_figure(struct dpe_text *out, const struct dpe_block *figure)
{
    bool drawn = figure->figure.body.n > 0;
    dpe_text_put(out, "<figure id=\"%s\">\n<h3>", figure->sheet->id);
    dpe_draw_put_html(out, figure->sheet->title);
    dpe_text_put(out, "</h3>\n");
    if (drawn) {
        dpe_draw_put_svg(out, figure, false);
    }
    dpe_text_put(out, "<figcaption><p>");
    put_words(out, figure->text);
    dpe_text_put(out, "</p></figcaption>\n");
    dpe_text_put(out, "%s", drawn ? "<details><summary>Numbers</summary>\n" : "");
    dpe_draw_sheet_html(figure->sheet, out);
    dpe_text_put(out, "%s</figure>\n", drawn ? "</details>\n" : "");
}

static void put_sheet(struct dpe_text *out, const struct dpe_sheet *sheet)
{
    enum { LONG = 12 }; /* rows: such a table may be cut by the end of a page */
    bool folded = sheet->folded;
    const char *kind = sheet->n_cells > LONG * sheet->n_columns ? "sheet long" : "sheet";
    dpe_text_put(out,
                 folded ? "<details class=\"%s\" id=\"%s\">\n<summary>"
                        : "<div class=\"%s\" id=\"%s\">\n<h3>",
                 kind, sheet->id);
    dpe_draw_put_html(out, sheet->title);
    dpe_text_put(out, "%s", folded ? "</summary>\n" : "</h3>\n");
    dpe_draw_sheet_html(sheet, out);
    dpe_text_put(out, "%s", folded ? "</details>\n" : "</div>\n");
}

static void put_block(struct dpe_text *out, const struct dpe_block *block, size_t index)
{
    static const char *const opening[] = {
        [BLOCK_LEAD] = "<p class=\"lead\">",
        [BLOCK_TEXT] = "<p>",
        [BLOCK_NOTE] = "<p class=\"note\">",
    };
    switch (block->kind) {
    case BLOCK_SECTION:
        dpe_text_put(out, "<section id=\"s%zu\">\n<h2>", index);
        dpe_draw_put_html(out, block->text);
        dpe_text_put(out, "</h2>\n");
        break;
    case BLOCK_LEAD:
    case BLOCK_TEXT:
    case BLOCK_NOTE:
        dpe_text_put(out, "%s", opening[block->kind]);
        put_words(out, block->text);
        dpe_text_put(out, "</p>\n");
        break;
    case BLOCK_FIGURE:
        put_figure(out, block);
        break;
    case BLOCK_SHEET:
        put_sheet(out, block->sheet);
        break;
    }
}

static void put_head(struct dpe_text *out, const char *title)
{
    /* Nothing is fetched, and nothing in the page could: names in tables come from strangers. */
    dpe_text_put(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                      "style-src 'unsafe-inline'; img-src data:\">\n"
                      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                      "<meta name=\"color-scheme\" content=\"light dark\">\n"
                      "<meta name=\"generator\" content=\"dpe-report\">\n"
                      "<link rel=\"icon\" href=\"data:,\">\n<title>");
    dpe_draw_put_html(out, title);
    dpe_text_put(out, "</title>\n<style>\n");
    dpe_text_put_bytes(out, (const char *)dpe_draw_style, dpe_draw_style_size);
    dpe_svg_rules(out, false);
    dpe_text_put(out, "@media screen and (prefers-color-scheme:dark){\n");
    dpe_svg_rules(out, true);
    dpe_text_put(out, "}\n</style>\n</head>\n<body>\n");
}

static void put_contents(struct dpe_text *out, const struct dpe_page *page)
{
    dpe_text_put(out, "<header>\n<h1>");
    dpe_draw_put_html(out, page->title);
    dpe_text_put(out, "</h1>\n<p class=\"subtitle\">");
    dpe_draw_put_html(out, page->subtitle);
    dpe_text_put(out, "</p>\n<nav aria-label=\"Contents\"><ul>\n");
    for (size_t i = 0; i < page->n; i++) {
        if (page->blocks[i].kind == BLOCK_SECTION) {
            dpe_text_put(out, "<li><a href=\"#s%zu\">", i);
            dpe_draw_put_html(out, page->blocks[i].text);
            dpe_text_put(out, "</a></li>\n");
        }
    }
    dpe_text_put(out, "</ul></nav>\n</header>\n<main>\n");
}

void dpe_page_html(const struct dpe_page *page, struct dpe_text *out)
{
    bool section = false;
    bool figures = false;
    put_head(out, page->title);
    put_contents(out, page);
    for (size_t i = 0; i < page->n; i++) {
        const struct dpe_block *block = &page->blocks[i];
        bool is_figure = block->kind == BLOCK_FIGURE;
        if (figures != is_figure) {
            dpe_text_put(out, "%s", is_figure ? "<div class=\"figures\">\n" : "</div>\n");
            figures = is_figure;
        }
        if (block->kind == BLOCK_SECTION) {
            dpe_text_put(out, "%s", section ? "</section>\n" : "");
            section = true;
        }
        put_block(out, block, i);
    }
    dpe_text_put(out, "%s%s</main>\n<footer><p>Written by ", figures ? "</div>\n" : "",
                 section ? "</section>\n" : "");
    dpe_draw_put_html(out, dpe_version());
    dpe_text_put(
        out, ". Everything shown is in this file; nothing is loaded from a network.</p></footer>\n"
             "</body>\n</html>\n");
}
