/* The page: blocks in their order, figures side by side where there is room. */
#include "outputs/report/draw/report_svg.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- document */

struct dpe_block *dpe_draw_add(struct dpe_document *document, enum dpe_block_kind kind, char *text,
                               struct dpe_sheet *sheet)
{
    bool whole = (text != NULL || kind == BLOCK_SHEET) && (sheet != NULL || kind < BLOCK_FIGURE);
    whole = whole && dpe_make_room(&document->blocks, document->n, sizeof *document->blocks);
    if (!whole) {
        document->failed = true;
        free(text);
        dpe_draw_sheet_free(sheet);
        return NULL;
    }
    struct dpe_block *block = &document->blocks[document->n++];
    *block = (struct dpe_block){.kind = kind, .text = text, .sheet = sheet};
    return block;
}

void dpe_draw_document_free(struct dpe_document *document)
{
    for (size_t i = 0; i < document->n; i++) {
        free(document->blocks[i].text);
        dpe_text_free(&document->blocks[i].figure.body);
        dpe_draw_sheet_free(document->blocks[i].sheet);
    }
    free(document->blocks);
    free(document->title);
    free(document->subtitle);
    *document = (struct dpe_document){0};
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
    dpe_draw_put_html(out, figure->text);
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
        dpe_draw_put_html(out, block->text);
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

static void put_head(struct dpe_text *out, const struct dpe_document *document)
{
    /* Nothing is fetched, and nothing in the page could: names in tables come from strangers. */
    dpe_text_put(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                      "style-src 'unsafe-inline'; img-src data:\">\n"
                      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                      "<meta name=\"color-scheme\" content=\"light dark\">\n"
                      "<meta name=\"generator\" content=\"dpe-report\">\n"
                      "<link rel=\"icon\" href=\"data:,\">\n<title>");
    dpe_draw_put_html(out, document->title);
    dpe_text_put(out, "</title>\n<style>\n");
    dpe_text_put_bytes(out, (const char *)dpe_draw_style, dpe_draw_style_size);
    dpe_svg_rules(out, ".plot", false);
    dpe_text_put(out, "@media screen and (prefers-color-scheme:dark){\n");
    dpe_svg_rules(out, ".plot", true);
    dpe_text_put(out, "}\n</style>\n</head>\n<body>\n");
}

static void put_contents(struct dpe_text *out, const struct dpe_document *document)
{
    dpe_text_put(out, "<header>\n<h1>");
    dpe_draw_put_html(out, document->title);
    dpe_text_put(out, "</h1>\n<p class=\"subtitle\">");
    dpe_draw_put_html(out, document->subtitle);
    dpe_text_put(out, "</p>\n<nav aria-label=\"Contents\"><ul>\n");
    for (size_t i = 0; i < document->n; i++) {
        if (document->blocks[i].kind == BLOCK_SECTION) {
            dpe_text_put(out, "<li><a href=\"#s%zu\">", i);
            dpe_draw_put_html(out, document->blocks[i].text);
            dpe_text_put(out, "</a></li>\n");
        }
    }
    dpe_text_put(out, "</ul></nav>\n</header>\n<main>\n");
}

void dpe_draw_document_html(const struct dpe_document *document, struct dpe_text *out)
{
    bool section = false;
    bool figures = false;
    put_head(out, document);
    put_contents(out, document);
    for (size_t i = 0; i < document->n; i++) {
        const struct dpe_block *block = &document->blocks[i];
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
    out->failed = out->failed || document->failed;
}
