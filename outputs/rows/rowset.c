/* Rows by key: an array of rows and an open-addressing table of their indices. */
#include "engine/base/base.h"
#include "outputs/rows/rows.h"

#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *from = bytes;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ from[i]) * 0x100000001b3u;
    }
    return hash;
}

static size_t hash_key(const char *task, const char *plan, int64_t sample)
{
    uint64_t hash = mix(0xcbf29ce484222325u, task, strlen(task) + 1);
    hash = mix(hash, plan, strlen(plan) + 1);
    hash = mix(hash, &sample, sizeof sample);
    return (size_t)(hash ^ (hash >> 29));
}

/* The slot of a key: where it is, or the free one where it belongs. */
static size_t find_slot(const struct dpe_rowset *set, const char *task, const char *plan,
                        int64_t sample)
{
    size_t slot = hash_key(task, plan, sample) & (set->n_slots - 1);
    while (set->slots[slot] != 0) {
        const struct dpe_row *row = &set->rows[set->slots[slot] - 1];
        if (row->sample == sample && strcmp(row->plan, plan) == 0 && strcmp(row->task, task) == 0) {
            break;
        }
        slot = (slot + 1) & (set->n_slots - 1);
    }
    return slot;
}

static dpe_status grow_slots(struct dpe_rowset *set, struct dpe_error *err)
{
    size_t n_slots = set->n_slots == 0 ? 64 : set->n_slots * 2;
    size_t *slots = NULL;
    DPE_TRY(DPE_NEW(&slots, n_slots, err, "out of memory for the index of %zu rows", set->n));
    free(set->slots);
    set->slots = slots;
    set->n_slots = n_slots;
    for (size_t i = 0; i < set->n; i++) {
        const struct dpe_row *row = &set->rows[i];
        set->slots[find_slot(set, row->task, row->plan, row->sample)] = i + 1;
    }
    return DPE_OK;
}

dpe_status dpe_rowset_reserve(struct dpe_rowset *set, struct dpe_error *err)
{
    if (set->n + 1 > set->n_slots / 2) {
        dpe_status status = grow_slots(set, err);
        if (status != DPE_OK) {
            return status;
        }
    }
    return DPE_ROOM(&set->rows, set->n, err, "out of memory for %zu rows", set->n);
}

void dpe_rowset_take(struct dpe_rowset *set, struct dpe_row *row)
{
    set->slots[find_slot(set, row->task, row->plan, row->sample)] = set->n + 1;
    set->rows[set->n++] = *row;
    dpe_row_init(row);
}

const struct dpe_row *dpe_rowset_find(const struct dpe_rowset *set, const char *task,
                                      const char *plan, int64_t sample)
{
    if (set->n == 0) {
        return NULL;
    }
    size_t index = set->slots[find_slot(set, task, plan, sample)];
    return index == 0 ? NULL : &set->rows[index - 1];
}

void dpe_rowset_free(struct dpe_rowset *set)
{
    for (size_t i = 0; i < set->n; i++) {
        dpe_row_free(&set->rows[i]);
    }
    free(set->rows);
    free(set->slots);
    *set = (struct dpe_rowset){0};
}
