/* Tables of several entries: what they must agree on, and which one a text is run with. */
#include "outputs/table/dpe_table_internal.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t dpe_table_count(const struct dpe_table *table)
{
    return table->entries != NULL ? table->n_entries : 1;
}

const struct dpe_table *dpe_table_entry(const struct dpe_table *table, int64_t i)
{
    return table->entries != NULL ? &table->entries[i] : table;
}

struct dpe_table_values *dpe_table_entry_values(struct dpe_table *table, int64_t i)
{
    return table->entries != NULL ? &table->entries[i].values : &table->values;
}

const struct dpe_table *dpe_table_choose(const struct dpe_table *table, int64_t tokens)
{
    if (tokens <= table->values.trained_length) {
        return NULL;
    }
    int64_t i = 0;
    int64_t last = dpe_table_count(table) - 1;
    while (i < last && dpe_table_entry(table, i)->values.length < tokens) {
        i++;
    }
    return dpe_table_entry(table, i);
}

/* ------------------------------------------------------------------------------------ agreement */

static int disagree(const struct dpe_table_values *a, const struct dpe_table_values *b,
                    const char *what, char *message)
{
    return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                          "the entries for %lld and %lld tokens disagree on %s; all entries of a "
                          "table are for one model and have the same groups",
                          (long long)a->length, (long long)b->length, what);
}

/* Of one model the first pair always rotates alike, and pairs do not rotate faster in a longer
 * text: where its scaling depends on the length (dynamic NTK), they rotate slower. `b` is the
 * longer one. */
static bool same_rotations(const struct dpe_table_values *a, const struct dpe_table_values *b)
{
    const double nearly = 1e-9;
    bool same = b->inv_freq[0] >= a->inv_freq[0] * (1.0 - nearly);
    for (int64_t j = 0; j < a->n_pairs; j++) {
        same = same && b->inv_freq[j] <= a->inv_freq[j] * (1.0 + nearly) &&
               (a->inv_freq[j] == 0.0) == (b->inv_freq[j] == 0.0);
    }
    return same;
}

static int check_pair(const struct dpe_table_values *a, const struct dpe_table_values *b,
                      char *message)
{
    const struct {
        const char *name;
        int64_t a, b;
    } sizes[] = {
        {"n_layers", a->n_layers, b->n_layers},
        {"n_heads", a->n_heads, b->n_heads},
        {"n_kv_heads", a->n_kv_heads, b->n_kv_heads},
        {"head_dim", a->head_dim, b->head_dim},
        {"the trained length", a->trained_length, b->trained_length},
        {"the number of groups", a->n_groups, b->n_groups},
    };
    if (strcmp(a->model_type, b->model_type) != 0) {
        return disagree(a, b, "model_type", message);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i].a != sizes[i].b) {
            char what[96];
            snprintf(what, sizeof what, "%s (%lld and %lld)", sizes[i].name, (long long)sizes[i].a,
                     (long long)sizes[i].b);
            return disagree(a, b, what, message);
        }
    }
    if (strcmp(a->model_fingerprint, b->model_fingerprint) != 0) {
        return disagree(a, b, "the model's fingerprint (other weights or configuration)", message);
    }
    size_t edges = (size_t)(a->n_groups + 1) * sizeof *a->group_edge;
    return memcmp(a->group_edge, b->group_edge, edges) != 0 ? disagree(a, b, "group_edge", message)
           : !same_rotations(a, b)                          ? disagree(a, b, "inv_freq", message)
                                                            : DPE_TABLE_OK;
}

static int by_length(const void *a, const void *b)
{
    int64_t left = ((const struct dpe_table *)a)->values.length;
    int64_t right = ((const struct dpe_table *)b)->values.length;
    return (left > right) - (left < right);
}

/* Several in their order. */
static int check_entries(const struct dpe_table *entries, int64_t n, char *message)
{
    for (int64_t i = 0; i < n; i++) {
        const struct dpe_table_values *values = &entries[i].values;
        int error = i > 0 ? check_pair(&entries[i - 1].values, values, message) : DPE_TABLE_OK;
        if (error != DPE_TABLE_OK) {
            return error;
        }
        if (i > 0 && values->length == entries[i - 1].values.length) {
            return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                                  "there are two entries for %lld tokens",
                                  (long long)values->length);
        }
        if (values->length <= values->trained_length) {
            return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                                  "the entry for %lld tokens would never be used: up to the "
                                  "trained length, %lld tokens, the model is run unchanged",
                                  (long long)values->length, (long long)values->trained_length);
        }
    }
    return DPE_TABLE_OK;
}

/* --------------------------------------------------------------------------------------- making */

int dpe_table_new(int64_t n, struct dpe_table **table, char *message)
{
    *table = NULL;
    if (n < 1 || n > DPE_TABLE_ENTRIES) {
        return dpe_table_fail(message, DPE_TABLE_BAD_FILE, "expected 1 to %d entries, found %lld",
                              DPE_TABLE_ENTRIES, (long long)n);
    }
    struct dpe_table *made = calloc(1, sizeof *made);
    struct dpe_table *entries = n > 1 ? calloc((size_t)n, sizeof *entries) : NULL;
    if (made == NULL || (n > 1 && entries == NULL)) {
        free(made);
        free(entries);
        return dpe_table_fail(message, DPE_TABLE_MEMORY, "out of memory");
    }
    *made = (struct dpe_table){.entries = entries, .n_entries = n > 1 ? n : 0};
    *table = made;
    return DPE_TABLE_OK;
}

int dpe_table_finish(struct dpe_table *table, char *message)
{
    for (int64_t i = 0; i < dpe_table_count(table); i++) {
        struct dpe_table_values *values = dpe_table_entry_values(table, i);
        char why[DPE_TABLE_MESSAGE];
        const int error = dpe_table_check(values, table->entries != NULL ? why : message);
        if (error != DPE_TABLE_OK) {
            return table->entries == NULL ? error
                                          : dpe_table_fail(message, (enum dpe_table_error)error,
                                                           "the entry for %lld tokens: %.400s",
                                                           (long long)values->length, why);
        }
        if (values->applied_inv_freq != NULL &&
            memcmp(values->applied_inv_freq, values->inv_freq,
                   (size_t)values->n_pairs * sizeof *values->inv_freq) == 0) {
            free(values->applied_inv_freq);
            values->applied_inv_freq = NULL;
        }
    }
    if (table->entries == NULL) {
        return DPE_TABLE_OK;
    }
    qsort(table->entries, (size_t)table->n_entries, sizeof *table->entries, by_length);
    table->values = table->entries[table->n_entries - 1].values;
    return check_entries(table->entries, table->n_entries, message);
}

void dpe_table_close(struct dpe_table *table)
{
    if (table == NULL) {
        return;
    }
    for (int64_t i = 0; i < dpe_table_count(table); i++) {
        dpe_table_values_free(dpe_table_entry_values(table, i));
    }
    free(table->entries);
    free(table);
}

/* Finish what has copies of all values, or has no memory for them. */
static int finish_copy(bool copied, struct dpe_table *made, struct dpe_table **table, char *message)
{
    const int error = copied ? dpe_table_finish(made, message)
                             : dpe_table_fail(message, DPE_TABLE_MEMORY, "out of memory");
    if (error != DPE_TABLE_OK) {
        dpe_table_close(made);
    } else {
        *table = made;
    }
    return error;
}

int dpe_table_make(const struct dpe_table_values *values, struct dpe_table **table, char *message)
{
    struct dpe_table *made = NULL;
    int error = dpe_table_check(values, message); /* what is copied is as long as it says */
    error = error == DPE_TABLE_OK ? dpe_table_new(1, &made, message) : error;
    return error != DPE_TABLE_OK
               ? error
               : finish_copy(dpe_table_values_copy(values, &made->values), made, table, message);
}

int dpe_table_join(const struct dpe_table *const *tables, int64_t n, struct dpe_table **joined,
                   char *message)
{
    struct dpe_table *made = NULL;
    int64_t total = 0;
    for (int64_t t = 0; t < n; t++) {
        total += dpe_table_count(tables[t]);
    }
    for (int64_t t = 0; t < n && total > 1; t++) {
        if (tables[t]->values.frequencies != 0) {
            return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                                  "the table for %lld tokens is one of frequencies, which has one "
                                  "entry: runtimes read a factor for each pair for one length",
                                  (long long)tables[t]->values.length);
        }
    }
    const int error = dpe_table_new(total, &made, message);
    if (error != DPE_TABLE_OK) {
        return error;
    }
    bool copied = true;
    int64_t at = 0;
    for (int64_t t = 0; t < n; t++) {
        for (int64_t i = 0; i < dpe_table_count(tables[t]) && copied; i++) {
            copied = dpe_table_values_copy(&dpe_table_entry(tables[t], i)->values,
                                           dpe_table_entry_values(made, at++));
        }
    }
    return finish_copy(copied, made, joined, message);
}
