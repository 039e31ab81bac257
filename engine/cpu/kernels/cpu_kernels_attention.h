/* The part of cpu_kernels.c that only attention needs: online softmax, probabilities times values.
 * Included by it, after v_exp2. */

/* New reference and alpha of every row, given the largest raw logit of each. */
static void softmax_step(const struct dpe_cpu_softmax *state, int64_t rows, const float *largest,
                         float *negative)
{
    float change[VL] = {0};
    for (int64_t r = 0; r < rows; r++) {
        float before = state->reference[r];
        float here = largest[r] * state->factor[r];
        float after = here > before ? here : before;
        state->reference[r] = after;
        /* Nothing visible yet: any finite reference gives 2^−∞ = 0 for all. */
        negative[r] = after == -INFINITY ? 0.0F : -after;
        change[r] = before + negative[r];
    }
    v_store(change, v_exp2(v_load(change)));
    memcpy(state->alpha, change, (size_t)rows * sizeof *change);
}

static float softmax_largest(const float *row, int64_t columns)
{
    vec m0 = v_load(row);
    vec m1 = v_load(row + VL);
    for (int64_t i = PANEL; i < columns; i += PANEL) {
        m0 = v_max(m0, v_load(row + i));
        m1 = v_max(m1, v_load(row + i + VL));
    }
    return v_largest(v_max(m0, m1));
}

static void kernel_softmax(const struct dpe_cpu_softmax *state, int64_t rows, int64_t columns,
                           float *s)
{
    float largest[MR];
    float negative[MR];
    for (int64_t r = 0; r < rows; r++) {
        largest[r] = softmax_largest(s + r * DPE_CPU_BLOCK, columns);
    }
    softmax_step(state, rows, largest, negative);
    for (int64_t r = 0; r < rows; r++) {
        float *row = s + r * DPE_CPU_BLOCK;
        vec factor = v_set1(state->factor[r]);
        vec shift = v_set1(negative[r]);
        vec sum0 = v_set1(0.0F);
        vec sum1 = v_set1(0.0F);
        for (int64_t i = 0; i < columns; i += PANEL) {
            vec p0 = v_exp2(v_fma(v_load(row + i), factor, shift));
            vec p1 = v_exp2(v_fma(v_load(row + i + VL), factor, shift));
            v_store(row + i, p0);
            v_store(row + i + VL, p1);
            sum0 = v_add(sum0, p0);
            sum1 = v_add(sum1, p1);
        }
        state->sum[r] = state->sum[r] * state->alpha[r] + v_sum(v_add(sum0, sum1));
    }
}

static void kernel_accumulate_row(const float *p, int64_t first, const float *v, float *o,
                                  int64_t width)
{
    for (int64_t column = 0; column < width; column += VL) {
        vec b = v_load(v + column);
        for (int64_t r = first; r < MR; r++) {
            float *to = o + r * width + column;
            v_store(to, v_fma(v_set1(p[r * DPE_CPU_BLOCK]), b, v_load(to)));
        }
    }
}

/* Rows r … of kernel_accumulate_few, one to FEW_ROWS, and one or four vectors from column c on
 * (counts are constants after inlining). */
static ALWAYS_INLINE void few_columns(int rows, int vectors, const struct dpe_cpu_few *few,
                                      int64_t r, int64_t c, float *o)
{
    int64_t width = few->width;
    const float *p = few->p + r * DPE_CPU_BLOCK;
    const float *v = few->v + c;
    float *to = o + r * width + c;
    vec sum[FEW_ROWS][4];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            sum[i][j] = v_mul(v_set1(few->alpha[r + i]), v_load(to + i * width + j * VL));
        }
    }
    for (int64_t n = 0; n < few->count; n++) {
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            vec b = v_load(v + n * width + j * VL);
            if (r == 0) {
                prefetch(v + n * width + j * VL, AHEAD * width);
            }
            if (r == 0 && few->after != NULL) {
                prefetch(few->after + c + n * width + j * VL, 0);
            }
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++) {
                sum[i][j] = v_fma(v_set1(p[i * DPE_CPU_BLOCK + n]), b, sum[i][j]);
            }
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            v_store(to + i * width + j * VL, sum[i][j]);
        }
    }
}

static float few_one(const struct dpe_cpu_few *few, int64_t r, int64_t c, float before)
{
    float sum = few->alpha[r] * before;
    for (int64_t n = 0; n < few->count; n++) {
        sum += few->p[r * DPE_CPU_BLOCK + n] * few->v[n * few->width + c];
    }
    return sum;
}

static ALWAYS_INLINE void few_rows(int rows, const struct dpe_cpu_few *few, int64_t r, float *o)
{
    int64_t width = few->width;
    int64_t c = 0;
    for (; c + 4 * VL <= width; c += 4 * VL) {
        few_columns(rows, 4, few, r, c, o);
    }
    for (; c + VL <= width; c += VL) {
        few_columns(rows, 1, few, r, c, o);
    }
    for (; c < width; c++) {
        for (int64_t i = r; i < r + rows; i++) {
            o[i * width + c] = few_one(few, i, c, o[i * width + c]);
        }
    }
}

static void kernel_accumulate_few(const struct dpe_cpu_few *few, float *o)
{
    for (int64_t r = 0; r < few->rows; r += FEW_ROWS) {
        switch (dpe_least(FEW_ROWS, few->rows - r)) {
        case 1:
            few_rows(1, few, r, o);
            break;
        case 2:
            few_rows(2, few, r, o);
            break;
        case 3:
            few_rows(FEW_ROWS < 3 ? 1 : 3, few, r, o);
            break;
        default:
            few_rows(FEW_ROWS, few, r, o);
            break;
        }
    }
}
