/* What the CPU attention drivers share. */
#include "engine/cpu/attention/attention_cpu_plan.h"

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
    float base2 = (float)(plan->attention_cap * 1.4426950408889634);
    kernels->cap(logits, n, factor / base2, base2 / factor);
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
