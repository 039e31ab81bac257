/* The selection of keys that a table was found under, which its /identity has. */
#include <stdio.h>
#include <string.h>

#include "outputs/read/read.h"

/* "selection", and in a table of several entries "table N selection". */
static bool is_selection(const char *name)
{
    static const char wanted[] = "selection";
    size_t n = strlen(name);
    return n >= sizeof wanted - 1 && strcmp(name + n - (sizeof wanted - 1), wanted) == 0;
}

const char *dpe_table_selection(struct dpe_h5 *file, char text[DPE_TABLE_SELECTION])
{
    struct dpe_identity identity = {0};
    text[0] = '\0';
    dpe_h5_get_identity(file, &identity, NULL);
    for (size_t i = 0; i < identity.n && text[0] == '\0'; i++) {
        if (is_selection(identity.fields[i].name)) {
            dpe_printable(identity.fields[i].value, text, DPE_TABLE_SELECTION);
        }
    }
    dpe_identity_free(&identity);
    return text;
}

const char *dpe_table_selection_of(const char *path, char text[DPE_TABLE_SELECTION])
{
    struct dpe_h5 *file = NULL;
    text[0] = '\0';
    if (dpe_h5_open(path, &file, NULL) == DPE_OK) {
        dpe_table_selection(file, text);
    }
    dpe_h5_close(file);
    return text;
}
