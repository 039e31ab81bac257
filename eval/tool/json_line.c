/* JSON lines, written. */
#include "eval/tool/json_line.h"

#include <stdio.h>
#include <string.h>

dpe_status json_line_append(struct dpe_text *out, const char *text, struct dpe_error *err)
{
    return dpe_text_append(out, text, strlen(text), err);
}

dpe_status json_line_string(struct dpe_text *out, const char *text, size_t n, struct dpe_error *err)
{
    dpe_status status = json_line_append(out, "\"", err);
    size_t done = 0;
    for (size_t i = 0; i <= n && status == DPE_OK; i++) {
        bool special =
            i < n && ((unsigned char)text[i] < 0x20 || text[i] == '"' || text[i] == '\\');
        if (i == n || special) {
            status = dpe_text_append(out, text + done, i - done, err);
            done = i + 1;
        }
        if (special && status == DPE_OK) {
            char escape[8];
            snprintf(escape, sizeof escape,
                     text[i] == '\n'                     ? "\\n"
                     : text[i] == '"' || text[i] == '\\' ? "\\%c"
                                                         : "\\u%04x",
                     (unsigned)(unsigned char)text[i]);
            status = json_line_append(out, escape, err);
        }
    }
    return status == DPE_OK ? json_line_append(out, "\"", err) : status;
}
