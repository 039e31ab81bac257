/* The text forms of a DPE table (JSON, safetensors, YAML): refused, or a table that
 * dpe_table_check passes. */
#include <stdlib.h>
#include <string.h>

#include "outputs/export/export.h"
#include "outputs/table/dpe_table.h"
#include "outputs/table/fields.h"
#include "tests/fuzz/fuzz.h"

static void check(struct dpe_table *table)
{
    char why[DPE_TABLE_MESSAGE] = "";
    fuzz_expect(dpe_table_check(dpe_table_values(table), why) == DPE_TABLE_OK, why);
    const struct dpe_table_values *values = dpe_table_values(table);
    float *row = malloc((size_t)values->n_pairs * 2 * sizeof *row);
    fuzz_expect(row != NULL, "memory");
    dpe_table_cos_sin(table, values->n_layers - 1, values->n_heads - 1, DPE_TABLE_FAR,
                      DPE_TABLE_QUERY, values->length, 1, row, row + values->n_pairs);
    free(row);
    dpe_table_close(table);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    /* Files that begin like HDF5 belong to fuzz_hdf5: libhdf5 itself has known faults with bytes
     * that no checksum guards. */
    static const char magic[4] = {'\x89', 'H', 'D', 'F'};
    struct dpe_table *table = NULL;
    char why[DPE_TABLE_MESSAGE] = "";
    if (memmem(bytes, n, magic, sizeof magic) == NULL) {
        if (dpe_table_open(fuzz_file("table", bytes, n), &table, why) == DPE_TABLE_OK) {
            check(table);
        } else {
            fuzz_expect(why[0] != '\0', "an error has a text");
        }
    }
    struct dpe_error err = {0};
    const char *text = (const char *)bytes;
    if (dpe_import_safetensors("fuzz", text, n, &table, &err) == DPE_OK) {
        check(table);
    }
    struct dpe_table_values settings;
    char *selected = NULL;
    if (dpe_import_yaml("fuzz", text, n, NULL, &settings, &selected, &err) == DPE_OK) {
        for (int64_t g = 0; g < settings.n_groups; g++) {
            fuzz_expect(settings.scale_factor[g] >= 1.0 &&
                            settings.group_edge[g] < settings.group_edge[g + 1],
                        "settings are in range");
        }
        dpe_table_values_free(&settings);
        free(selected);
    }
    return 0;
}
