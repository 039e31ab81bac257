/* Sums of products in registers: tiles, and probabilities times values. Included by a source of
 * kernels after cpu_simd.h, its PANEL and its v_product, whose factors are numbers or pairs of them
 * (struct dpe_cpu_bf16). */

/* The first n rows of a tile, n a constant after inlining. */
static ALWAYS_INLINE void tile_rows(int n, const float *rows, const float *panel, int64_t k,
                                    float *c, int64_t ldc)
{
    vec sum[MR][2];
#pragma GCC unroll 16
    for (int r = 0; r < n; r++) {
        sum[r][0] = sum[r][1] = v_set1(0.0F);
    }
    for (int64_t p = 0; p < k; p++) {
        vec b0 = v_load(panel);
        vec b1 = v_load(panel + VL);
#pragma GCC unroll 16
        for (int r = 0; r < n; r++) {
            vec a = v_set1(rows[r]);
            sum[r][0] = v_product(a, b0, sum[r][0]);
            sum[r][1] = v_product(a, b1, sum[r][1]);
        }
        panel += PANEL;
        rows += MR;
    }
#pragma GCC unroll 16
    for (int r = 0; r < n; r++) {
        v_store(c + r * ldc, sum[r][0]);
        v_store(c + r * ldc + VL, sum[r][1]);
    }
}

/* `vectors` (1 or 2, constant after inlining) vectors of the width of kernel_accumulate; v and o
 * point at the first column. */
static ALWAYS_INLINE void accumulate_columns(int vectors, const float *p,
                                             const struct dpe_cpu_spans *spans, const float *v,
                                             const float *alpha, float *o, int64_t width)
{
    vec sum[MR][2];
#pragma GCC unroll 16
    for (int r = 0; r < MR; r++) {
        vec scale = v_set1(alpha[r]);
        sum[r][0] = v_mul(scale, v_load(o + r * width));
        sum[r][1] = vectors == 2 ? v_mul(scale, v_load(o + r * width + VL)) : scale;
    }
    for (int64_t span = 0; span < spans->n; span++) {
        const float *key = v + spans->spans[span].row * width;
        const float *weight = p + spans->spans[span].column;
        for (int64_t i = 0; i < spans->spans[span].count; i++) {
            vec b0 = v_load(key);
            vec b1 = vectors == 2 ? v_load(key + VL) : b0;
#pragma GCC unroll 16
            for (int r = 0; r < MR; r++) {
                vec a = v_set1(weight[r * DPE_CPU_BLOCK]);
                sum[r][0] = v_product(a, b0, sum[r][0]);
                if (vectors == 2) {
                    sum[r][1] = v_product(a, b1, sum[r][1]);
                }
            }
            key += width;
            weight++;
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < MR; r++) {
        v_store(o + r * width, sum[r][0]);
        if (vectors == 2) {
            v_store(o + r * width + VL, sum[r][1]);
        }
    }
}

static void kernel_accumulate(const float *p, const struct dpe_cpu_spans *spans, const float *v,
                              const float *alpha, float *o, int64_t width)
{
    int64_t column = 0;
    for (; column + 2 * VL <= width; column += 2 * VL) {
        accumulate_columns(2, p, spans, v + column, alpha, o + column, width);
    }
    if (column < width) {
        accumulate_columns(1, p, spans, v + column, alpha, o + column, width);
    }
}
