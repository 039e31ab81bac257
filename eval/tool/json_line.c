/* JSON lines, written. */
#include "eval/tool/json_line.h"

#include <stdlib.h>
#include <string.h>

dpe_status dpe_json_line(struct dpe_text *out, json_t *line, struct dpe_error *err)
{
    if (line == NULL) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "a JSON line: expected texts in UTF-8 and numbers, found something else "
                        "(or memory ran out)");
    }
    char *dumped = json_dumps(line, 0);
    json_decref(line);
    if (dumped == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for a JSON line");
    }
    dpe_status status = dpe_text_append(out, dumped, strlen(dumped), err);
    free(dumped);
    return status == DPE_OK ? dpe_text_append(out, "\n", 1, err) : status;
}
