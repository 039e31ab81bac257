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
    char **names = NULL;
    char **values = NULL;
    size_t n_names = 0;
    size_t n_values = 0;
    text[0] = '\0';
    if (dpe_h5_get_strings(file, "/identity/field", &names, &n_names, NULL) == DPE_OK &&
        dpe_h5_get_strings(file, "/identity/value", &values, &n_values, NULL) == DPE_OK &&
        n_names == n_values) {
        for (size_t i = 0; i < n_names && text[0] == '\0'; i++) {
            if (is_selection(names[i])) {
                dpe_printable(values[i], text, DPE_TABLE_SELECTION);
            }
        }
    }
    dpe_strings_free(names, n_names);
    dpe_strings_free(values, n_values);
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
