/* The fields of a DPE table (outputs/table/fields.c) as JSON, for table_fields.py. */
#include <stdio.h>

#include "outputs/table/fields.h"

int main(void)
{
    static const char *const types[] = {"whole", "real", "edge", "flag", "marks", "text"};
    static const char *const parts[] = {"core",  "keys",  "temperature", "method",
                                        "bands", "heads", "selection",   "evidence"};
    static const char *const axes[] = {"", "group", "edge", "pair", "layer", "head", "band_number"};
    printf("{\"schema\": \"%s\", \"fields\": [\n", DPE_TABLE_SCHEMA);
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        printf("{\"name\": \"%s\", \"type\": \"%s\", \"part\": \"%s\", \"axes\": \"", field->name,
               types[field->type], parts[field->part]);
        for (int axis = 0; axis < dpe_field_rank(field); axis++) {
            printf("%s%s", axis > 0 ? ", " : "", axes[field->axes[axis]]);
        }
        printf("\", \"low\": %.17g, \"high\": %.17g, \"above\": %s, \"besides\": %.17g, "
               "\"absent\": %.17g, \"whole_in_h5\": %s, \"units\": \"%s\", \"what\": \"%s\", "
               "\"fact\": %s}%s\n",
               field->low, field->high, field->above ? "true" : "false", field->or_else,
               field->absent, field->whole_in_h5 ? "true" : "false", field->units, field->what,
               field->fact != NULL ? "true" : "false", i + 1 < dpe_n_table_fields ? "," : "");
    }
    printf("], \"model\": [\n");
    for (size_t i = 0; i < dpe_n_model_fields; i++) {
        const struct dpe_model_field *field = &dpe_model_fields[i];
        printf("{\"name\": \"%s\", \"attribute\": \"%s\", \"text\": %s, \"what\": \"%s\"}%s\n",
               field->name, field->attribute, field->text ? "true" : "false", field->what,
               i + 1 < dpe_n_model_fields ? "," : "");
    }
    printf("], \"conventions\": [\n");
    for (size_t i = 0; i < dpe_n_table_conventions; i++) {
        const struct dpe_table_convention *convention = &dpe_table_conventions[i];
        printf("{\"name\": \"%s\", \"positions\": \"%s\", \"frequencies\": \"%s\"}%s\n",
               convention->name, convention->positions, convention->frequencies,
               i + 1 < dpe_n_table_conventions ? "," : "");
    }
    printf("]}\n");
    return ferror(stdout) != 0;
}
