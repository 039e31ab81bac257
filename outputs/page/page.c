/* What a page is made of: blocks, and what they point to. */
#include "outputs/page/page.h"

#include <stdio.h>
#include <stdlib.h>

char *dpe_draw_format_text(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = dpe_format_list(format, args);
    va_end(args);
    return text;
}

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

bool dpe_page_ok(struct dpe_page *page, dpe_status status)
{
    page->status = page->status == DPE_OK ? status : page->status;
    return page->status == DPE_OK;
}

void dpe_page_no_memory(struct dpe_page *page)
{
    dpe_page_ok(page, dpe_fail(page->err, DPE_NO_MEMORY, "out of memory for the report"));
}

void *dpe_page_keep(struct dpe_page *page, void *bytes)
{
    if (page->status == DPE_OK && bytes != NULL &&
        dpe_make_room(&page->kept, page->n_kept, sizeof *page->kept)) {
        page->kept[page->n_kept++] = bytes;
        return bytes;
    }
    free(bytes);
    if (page->status == DPE_OK) {
        dpe_page_no_memory(page);
    }
    return NULL;
}

void *dpe_page_alloc(struct dpe_page *page, size_t n, size_t size)
{
    return dpe_page_keep(page, dpe_alloc_zero(n, size));
}

char *dpe_page_text(struct dpe_page *page, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = dpe_format_list(format, args);
    va_end(args);
    return dpe_page_keep(page, text);
}

char *dpe_page_clean(struct dpe_page *page, const char *text, size_t columns)
{
    return text != NULL ? dpe_page_keep(page, dpe_draw_clean_text(text, columns)) : NULL;
}

void dpe_page_free(struct dpe_page *page)
{
    for (size_t i = 0; i < page->n_kept; i++) {
        free(page->kept[i]);
    }
    free(page->kept);
    dpe_draw_document_free(&page->document);
    *page = (struct dpe_page){0};
}

void dpe_page_section(struct dpe_page *page, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *title = dpe_format_list(format, args);
    va_end(args);
    if (page->apart != NULL && title != NULL) {
        char *longer = dpe_draw_format_text("%s (%s)", title, page->apart);
        free(title);
        title = longer;
    }
    dpe_draw_add(&page->document, BLOCK_SECTION, title, NULL);
    if (page->unfinished != NULL) {
        dpe_page_say(
            page, BLOCK_NOTE,
            "The run that wrote %s is unfinished. The values shown are correct, but not all "
            "samples are measured yet: a dash is a cell without samples, and intervals will "
            "become narrower. Run the same command to continue.",
            page->unfinished);
        page->unfinished = NULL;
    }
}

void dpe_page_say(struct dpe_page *page, enum dpe_block_kind kind, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    dpe_draw_add(&page->document, kind, dpe_format_list(format, args), NULL);
    va_end(args);
}

struct dpe_sheet *dpe_page_sheet(const struct dpe_page *page, const char *id, const char *columns,
                                 const char *title, ...)
{
    char number[24] = "";
    if (page->place > 0) {
        snprintf(number, sizeof number, "-%zu", page->place + 1);
    }
    va_list args;
    va_start(args, title);
    struct dpe_sheet *sheet = dpe_draw_sheet_new(
        dpe_draw_format_text("%s%s%s%s%s%s", page->prefix, page->prefix[0] != '\0' ? "-" : "", id,
                             page->suffix[0] != '\0' ? "-" : "", page->suffix, number),
        dpe_format_list(title, args), columns);
    va_end(args);
    return sheet;
}

void dpe_page_add(struct dpe_page *page, struct dpe_sheet *sheet)
{
    dpe_draw_add(&page->document, BLOCK_SHEET, NULL, sheet);
}

struct dpe_figure *dpe_page_figure(struct dpe_page *page, struct dpe_sheet *sheet,
                                   const struct dpe_plot *plot, const char *caption, ...)
{
    va_list args;
    va_start(args, caption);
    char *text = dpe_format_list(caption, args);
    va_end(args);
    struct dpe_block *block = dpe_draw_add(&page->document, BLOCK_FIGURE, text, sheet);
    if (block == NULL) {
        return NULL;
    }
    if (plot != NULL) {
        block->plot = *plot;
        dpe_draw_plot(&block->figure, sheet, plot);
    }
    return &block->figure;
}

dpe_status dpe_page_print(struct dpe_page *page, bool details)
{
    if (page->document.failed) {
        dpe_page_no_memory(page);
    }
    if (page->status == DPE_OK) {
        dpe_draw_document_print(&page->document, details);
    }
    const dpe_status status = page->status;
    dpe_page_free(page);
    return status;
}
