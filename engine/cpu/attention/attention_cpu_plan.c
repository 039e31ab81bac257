/* What the CPU attention drivers share. */
#include "engine/cpu/attention/attention_cpu_plan.h"

#include <math.h>

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
                                          const struct dpe_rotated *copy, int base_table,
                                          int64_t first, const uint32_t *select)
{
    const struct dpe_rotation *tables = args->rotation;
    int64_t n_pairs = tables->n_pairs;
    struct dpe_cpu_rotation rotation = {
        .n_pairs = n_pairs,
        .cos = tables->cos[copy->table] + first * n_pairs,
        .sin = tables->sin[copy->table] + first * n_pairs,
    };
    if (copy->per_head) {
        rotation.base_cos = tables->cos[base_table] + first * n_pairs;
        rotation.base_sin = tables->sin[base_table] + first * n_pairs;
        rotation.select = select;
    }
    return rotation;
}

void dpe_cap_logits(const struct dpe_cpu_kernels *kernels, const struct dpe_plan *plan,
                    float factor, int64_t n, float *logits)
{
    /* factor · s is in base 2: the cap there is cap · log2 e. */
    float base2 = (float)(plan->attention_cap * LOG2_E);
    kernels->cap(logits, n, factor / base2, base2 / factor);
}

uint64_t dpe_place(uint64_t *total, uint64_t floats)
{
    enum { ALIGN = 16 };
    uint64_t at = *total;
    uint64_t padded = dpe_bytes_plus(floats, ALIGN - 1) / ALIGN * ALIGN;
    *total = dpe_bytes_plus(at, padded);
    return at;
}

unsigned dpe_cpu_touching_bands(const struct dpe_reach *reach, int n_bands, int64_t n0, int64_t n1,
                                int *whole)
{
    unsigned touching = 0;
    *whole = -1;
    for (int b = 0; b < n_bands; b++, reach++) {
        if (n0 >= reach->any_hi || n1 <= reach->any_lo || reach->any_lo >= reach->any_hi) {
            continue;
        }
        bool all = n0 >= reach->all_lo && n1 <= reach->all_hi;
        *whole = all && touching == 0 ? b : *whole;
        touching |= 1U << b;
        if (all) {
            break;
        }
    }
    return touching;
}

void dpe_cpu_add_span(struct dpe_cpu_spans *spans, int64_t column, int64_t row, int64_t count)
{
    struct dpe_cpu_span *last = spans->n > 0 ? &spans->spans[spans->n - 1] : NULL;
    if (last != NULL && last->row + last->count == row && last->column + last->count == column) {
        last->count += count;
    } else {
        spans->spans[spans->n++] = (struct dpe_cpu_span){column, row, count};
    }
}

void dpe_cpu_write_head(const struct dpe_attention *args, int64_t row, int64_t head, const float *o,
                        float reference, float sum)
{
    int64_t at = row * args->n_heads + head;
    float inverse = sum == 0.0F ? 0.0F : 1.0F / sum;
    for (int64_t i = 0; i < args->head_dim; i++) {
        args->out[at * args->head_dim + i] = o[i] * inverse;
    }
    if (args->lse != NULL) {
        args->lse[at] =
            sum == 0.0F ? -INFINITY : (float)((double)reference / LOG2_E + log((double)sum));
    }
}
