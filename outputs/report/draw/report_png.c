/* Figures as PNG: librsvg's program reads the SVG and writes it. */
#include "engine/base/base.h"
#include "engine/tool/tool.h"
#include "outputs/report/draw/page.h"

#include <string.h>

#include "engine/system/child.h"

static dpe_status poll_signals(void *user, struct dpe_error *err)
{
    (void)user;
    return dpe_signals_asked() == DPE_STOP_NONE
               ? DPE_OK
               : dpe_fail(err, DPE_INCOMPLETE, "stopped by a signal; the report is not written");
}

dpe_status dpe_draw_figure_png(const struct dpe_block *figure, struct dpe_text *png,
                               struct dpe_error *err)
{
    static const unsigned char magic[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    char program[] = "rsvg-convert";
    char format[] = "--format=png";
    char zoom[] = "--zoom=2";
    char background[] = "--background-color=#ffffff";
    char *const argv[] = {program, format, zoom, background, NULL};
    /* An end to a hang; a figure takes a tenth of a second. */
    const struct dpe_child_limits limits = {.seconds = 120.0, .poll = poll_signals};
    struct dpe_text svg = {0};
    dpe_draw_put_svg(&svg, figure, true);
    dpe_status status = svg.failed ? dpe_fail(err, DPE_NO_MEMORY, "out of memory")
                                   : dpe_child_filter(argv, svg.bytes, svg.n, &limits, png, err);
    if (status == DPE_OK &&
        (png->n < sizeof magic || memcmp(png->bytes, magic, sizeof magic) != 0)) {
        status = dpe_fail(err, DPE_IO, "expected a PNG from rsvg-convert, found %zu other bytes",
                          png->n);
    }
    dpe_text_free(&svg);
    if (status != DPE_OK && status != DPE_INCOMPLETE) {
        dpe_fail_prefix(err, "figure %s as PNG", figure->sheet->id);
    }
    return status;
}
