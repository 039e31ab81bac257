/* What a page is made of: blocks, and what they point to. */
#include "outputs/page/page.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/tool/tool.h"

void *dpe_draw_need(void *bytes)
{
    if (bytes == NULL) {
        dpe_log_error("out of memory for the report");
        exit(DPE_NO_MEMORY);
    }
    return bytes;
}

const char *dpe_draw_text(const struct dpe_text *text)
{
    return text->failed || text->n > 0 ? dpe_draw_need(text->failed ? NULL : text->bytes) : "";
}

void dpe_draw_room(void *list, size_t n, size_t size)
{
    dpe_draw_need(dpe_make_room(list, n, size) ? list : NULL);
}

char *dpe_draw_format_text(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = dpe_format_list(format, args);
    va_end(args);
    return dpe_draw_need(text);
}

/* Text and sheet are the page's. */
static struct dpe_block *add_block(struct dpe_page *page, enum dpe_block_kind kind, char *text,
                                   struct dpe_sheet *sheet)
{
    dpe_draw_room(&page->blocks, page->n, sizeof *page->blocks);
    struct dpe_block *block = &page->blocks[page->n++];
    *block = (struct dpe_block){.kind = kind, .text = text, .sheet = sheet};
    return block;
}

void *dpe_page_keep(struct dpe_page *page, void *bytes)
{
    dpe_draw_room(&page->kept, page->n_kept, sizeof *page->kept);
    page->kept[page->n_kept++] = dpe_draw_need(bytes);
    return bytes;
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
    for (size_t i = 0; i < page->n; i++) {
        free(page->blocks[i].text);
        dpe_text_free(&page->blocks[i].figure.body);
        dpe_draw_sheet_free(page->blocks[i].sheet);
    }
    for (size_t i = 0; i < page->n_kept; i++) {
        free(page->kept[i]);
    }
    free(page->blocks);
    free(page->kept);
    free(page->title);
    free(page->subtitle);
    *page = (struct dpe_page){0};
}

void dpe_page_section(struct dpe_page *page, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    DPE_OWNED char *title = dpe_draw_need(dpe_format_list(format, args));
    va_end(args);
    if (page->apart != NULL) {
        dpe_page_say(page, BLOCK_SECTION, "%s (%s)", title, page->apart);
    } else {
        dpe_page_say(page, BLOCK_SECTION, "%s", title);
    }
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
    add_block(page, kind, dpe_draw_need(dpe_format_list(format, args)), NULL);
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
        dpe_draw_need(dpe_format_list(title, args)), columns);
    va_end(args);
    return sheet;
}

void dpe_page_add(struct dpe_page *page, struct dpe_sheet *sheet)
{
    add_block(page, BLOCK_SHEET, NULL, sheet);
}

struct dpe_figure *dpe_page_figure(struct dpe_page *page, struct dpe_sheet *sheet,
                                   const struct dpe_plot *plot, const char *caption, ...)
{
    va_list args;
    va_start(args, caption);
    char *text = dpe_draw_need(dpe_format_list(caption, args));
    va_end(args);
    struct dpe_block *block = add_block(page, BLOCK_FIGURE, text, sheet);
    if (plot != NULL) {
        block->plot = *plot;
        dpe_draw_plot(&block->figure, sheet, plot);
    }
    return &block->figure;
}
