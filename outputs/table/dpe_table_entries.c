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
    return table->entries != NULL ? table->entries[i] : table;
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

static int check_entries(struct dpe_table *const *entries, int64_t n, char *message)
{
    for (int64_t i = 0; i < n; i++) {
        const struct dpe_table_values *values = &entries[i]->values;
        int error = i > 0 ? check_pair(&entries[i - 1]->values, values, message) : DPE_TABLE_OK;
        if (error != DPE_TABLE_OK) {
            return error;
        }
        if (i > 0 && values->length == entries[i - 1]->values.length) {
            return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                                  "there are two entries for %lld tokens",
                                  (long long)values->length);
        }
        if (n > 1 && values->length <= values->trained_length) {
            return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                                  "the entry for %lld tokens would never be used: up to the "
                                  "trained length, %lld tokens, the model is run unchanged",
                                  (long long)values->length, (long long)values->trained_length);
        }
    }
    return DPE_TABLE_OK;
}

static int by_length(const void *a, const void *b)
{
    int64_t left = (*(struct dpe_table *const *)a)->values.length;
    int64_t right = (*(struct dpe_table *const *)b)->values.length;
    return (left > right) - (left < right);
}

static void close_entries(struct dpe_table **entries, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        dpe_table_close(entries[i]);
    }
    free(entries);
}

/* Takes over n tables of one entry each, also on failure. */
static int link_entries(struct dpe_table **entries, int64_t n, struct dpe_table **table,
                        char *message)
{
    struct dpe_table *made = NULL;
    qsort(entries, (size_t)n, sizeof(struct dpe_table *), by_length);
    int error = check_entries(entries, n, message);
    if (error == DPE_TABLE_OK && n > 1) {
        made = calloc(1, sizeof *made);
        error = made != NULL ? DPE_TABLE_OK
                             : dpe_table_fail(message, DPE_TABLE_MEMORY, "out of memory");
    }
    if (error != DPE_TABLE_OK) {
        close_entries(entries, n);
        return error;
    }
    if (n == 1) {
        *table = entries[0];
        free(entries);
        return DPE_TABLE_OK;
    }
    *made = (struct dpe_table){.values = entries[n - 1]->values,
                               .group = entries[n - 1]->group,
                               .entries = entries,
                               .n_entries = n};
    *table = made;
    return DPE_TABLE_OK;
}

/* ---------------------------------------------------------------------------------------- lists */

int dpe_table_list_make(struct dpe_table_list *list, int64_t n, const char *path, char *message)
{
    if (n < 1 || n > DPE_TABLE_ENTRIES) {
        return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                              "%s: expected 1 to %d entries, found %lld", path, DPE_TABLE_ENTRIES,
                              (long long)n);
    }
    list->values = calloc((size_t)n, sizeof *list->values);
    if (list->values == NULL) {
        return dpe_table_fail(message, DPE_TABLE_MEMORY, "out of memory");
    }
    list->n = n;
    return DPE_TABLE_OK;
}

void dpe_table_list_free(struct dpe_table_list *list)
{
    for (int64_t i = 0; i < list->n; i++) {
        dpe_table_values_free(&list->values[i]);
    }
    free(list->values);
    *list = (struct dpe_table_list){0};
}

int dpe_table_adopt_list(struct dpe_table_list *list, struct dpe_table **table, char *message)
{
    int64_t n = list->n;
    struct dpe_table **entries = calloc((size_t)(n > 0 ? n : 1), sizeof(struct dpe_table *));
    int error =
        entries != NULL ? DPE_TABLE_OK : dpe_table_fail(message, DPE_TABLE_MEMORY, "out of memory");
    for (int64_t i = 0; i < n && error == DPE_TABLE_OK; i++) {
        long long length = (long long)list->values[i].length;
        char why[DPE_TABLE_MESSAGE];
        error = dpe_table_adopt(&list->values[i], &entries[i], n > 1 ? why : message);
        if (error != DPE_TABLE_OK && n > 1) {
            dpe_table_fail(message, (enum dpe_table_error)error,
                           "the entry for %lld tokens: %.400s", length, why);
        }
    }
    if (error == DPE_TABLE_OK) {
        error = link_entries(entries, n, table, message);
    } else if (entries != NULL) {
        close_entries(entries, n);
    }
    dpe_table_list_free(list);
    return error;
}

int dpe_table_join(const struct dpe_table *const *tables, int64_t n, struct dpe_table **joined,
                   char *message)
{
    int64_t total = 0;
    for (int64_t t = 0; t < n; t++) {
        total += dpe_table_count(tables[t]);
    }
    if (total < 1 || total > DPE_TABLE_ENTRIES) {
        return dpe_table_fail(message, DPE_TABLE_BAD_FILE, "expected 1 to %d entries, found %lld",
                              DPE_TABLE_ENTRIES, (long long)total);
    }
    for (int64_t t = 0; t < n && total > 1; t++) {
        if (tables[t]->values.frequencies != 0) {
            return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                                  "the table for %lld tokens is one of frequencies, which has one "
                                  "entry: runtimes read a factor for each pair for one length",
                                  (long long)tables[t]->values.length);
        }
    }
    struct dpe_table_list list = {0};
    bool copied = (list.values = calloc((size_t)total, sizeof *list.values)) != NULL;
    for (int64_t t = 0; t < n; t++) {
        for (int64_t i = 0; i < dpe_table_count(tables[t]) && copied; i++) {
            const struct dpe_table_values *values = &dpe_table_entry(tables[t], i)->values;
            copied = dpe_table_values_copy(values, &list.values[list.n]);
            list.n += copied;
        }
    }
    if (!copied) {
        dpe_table_list_free(&list);
        return dpe_table_fail(message, DPE_TABLE_MEMORY, "out of memory");
    }
    return dpe_table_adopt_list(&list, joined, message);
}
