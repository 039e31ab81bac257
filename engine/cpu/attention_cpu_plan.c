/* Plans as the CPU attention drivers see them: key ranges of bands, rotated copies. */
#include "engine/cpu/attention_cpu_plan.h"

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

struct dpe_reach dpe_band_reach(const struct dpe_plan *plan, int b, int64_t first, int64_t last)
{
    const struct dpe_band *band = &plan->bands[b];
    struct dpe_reach reach = {band->lo, band->hi, band->lo, band->hi};
    if (band->kind != DPE_BAND_KEY) {
        /* A distance is a difference of chunks of one token. */
        int64_t unit = band->kind == DPE_BAND_CHUNK ? plan->chunk : 1;
        int64_t c0 = first / unit;
        int64_t c1 = last / unit;
        /* lo ≤ c − c(n) < hi; differences outside 0 … c1 + 1 do not occur and could overflow. */
        int64_t lo = smaller(larger(band->lo, 0), c1 + 2);
        int64_t hi = smaller(larger(band->hi, 0), c1 + 1);
        reach.any_lo = (c0 - hi + 1) * unit;
        reach.any_hi = (c1 - lo + 1) * unit;
        reach.all_lo = (c1 - hi + 1) * unit;
        reach.all_hi = (c0 - lo + 1) * unit;
    }
    reach.any_lo = larger(reach.any_lo, 0);
    reach.all_lo = larger(reach.all_lo, 0);
    reach.any_hi = larger(smaller(reach.any_hi, last + 1), reach.any_lo);
    reach.all_hi = larger(smaller(reach.all_hi, first + 1), reach.all_lo);
    return reach;
}

struct dpe_copies dpe_copies_find(const struct dpe_plan *plan, const int *table)
{
    struct dpe_copies found = {0};
    for (int b = 0; b < plan->n_bands; b++) {
        struct dpe_copy copy = {table[b], plan->bands[b].per_head && plan->mask != NULL &&
                                              table[b] != table[0]};
        int c = 0;
        while (c < found.n &&
               (found.copies[c].table != copy.table || found.copies[c].masked != copy.masked)) {
            c++;
        }
        if (c == found.n) {
            found.copies[found.n++] = copy;
            found.n_masked += copy.masked ? 1 : 0;
        }
        found.of_band[b] = c;
    }
    return found;
}

struct dpe_copies dpe_copies_most(const struct dpe_plan *plan)
{
    int table[DPE_MAX_BANDS];
    for (int b = 0; b < DPE_MAX_BANDS; b++) {
        table[b] = b;
    }
    return dpe_copies_find(plan, table);
}

void dpe_copy_select(const struct dpe_attention *args, int64_t head, uint32_t *select)
{
    const struct dpe_plan *plan = args->plan;
    if (plan->mask == NULL) {
        return;
    }
    const uint8_t *mask = plan->mask + (args->layer * plan->n_heads + head) * plan->n_pairs;
    for (int64_t j = 0; j < plan->n_pairs; j++) {
        select[j] = mask[j] != 0 ? UINT32_MAX : 0;
    }
}

struct dpe_cpu_rotation dpe_copy_rotation(const struct dpe_attention *args,
                                          const struct dpe_copy *copy, int base_table,
                                          int64_t first, const uint32_t *select)
{
    const struct dpe_rotation *tables = args->rotation;
    int64_t n_pairs = tables->n_pairs;
    struct dpe_cpu_rotation rotation = {
        .n_pairs = n_pairs,
        .cos = tables->cos[copy->table] + first * n_pairs,
        .sin = tables->sin[copy->table] + first * n_pairs,
    };
    if (copy->masked) {
        rotation.base_cos = tables->cos[base_table] + first * n_pairs;
        rotation.base_sin = tables->sin[base_table] + first * n_pairs;
        rotation.select = select;
    }
    return rotation;
}

uint64_t dpe_bytes_times(uint64_t a, uint64_t b)
{
    uint64_t product = 0;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

uint64_t dpe_bytes_plus(uint64_t a, uint64_t b)
{
    uint64_t sum = 0;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}
