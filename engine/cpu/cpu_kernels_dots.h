/* The part of cpu_kernels.c that decoding lives on: dot products of few rows with weights and with
 * keys. Included by it, after load_few and rotate_pairs. */

/* Weight rows first … first+together−1 (those beyond the last repeat it) times `rows` rows of x, in
 * whole vectors. dtype, together and rows must be constants after inlining, so that the sums stay in
 * registers. */
static ALWAYS_INLINE void dots_together(enum dpe_dtype dtype, int together, int rows,
                                        const struct dpe_cpu_dots *dots, int64_t first,
                                        vec (*out)[4])
{
    int64_t size = dtype_size(dtype);
    int64_t stride = dots->ldw * size;
    const char *row[4];
    vec sum[4][4];
#pragma GCC unroll 4
    for (int i = 0; i < together; i++) {
        row[i] = (const char *)dots->w + least(first + i, dots->n - 1) * stride;
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            sum[i][r] = v_set1(0.0F);
        }
    }
    for (int64_t p = 0; p + VL <= dots->k; p += VL) {
        vec weight[4];
#pragma GCC unroll 4
        for (int i = 0; i < together; i++) {
            weight[i] = load_as(row[i] + p * size, dtype);
            if (together > 1) {
                prefetch_bytes(row[i], p * size + 4 * stride);
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            vec x = v_load(dots->x + r * dots->ldx + p);
#pragma GCC unroll 4
            for (int i = 0; i < together; i++) {
                sum[i][r] = v_fma(weight[i], x, sum[i][r]);
            }
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < together; i++) {
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            out[i][r] = sum[i][r];
        }
    }
}

/* The columns that fill no vector. */
static ALWAYS_INLINE void dots_rest(enum dpe_dtype dtype, int rows, const struct dpe_cpu_dots *dots,
                                    int64_t first, vec (*sums)[4])
{
    int64_t p = dots->k / VL * VL;
    for (int i = 0; i < 4 && first + i < dots->n; i++) {
        const char *w = (const char *)dots->w + ((first + i) * dots->ldw + p) * dtype_size(dtype);
        vec weight = load_few(w, dtype, dots->k - p);
        for (int r = 0; r < rows; r++) {
            const char *x = (const char *)(dots->x + r * dots->ldx + p);
            sums[i][r] = v_fma(weight, load_few(x, DPE_F32, dots->k - p), sums[i][r]);
        }
    }
}

/* The results of weight rows first … first+3. */
static ALWAYS_INLINE void dots_end(int rows, const struct dpe_cpu_dots *dots, int64_t first,
                                   vec (*sums)[4])
{
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        float four[4];
        vec sum[4] = {sums[0][r], sums[1][r], sums[2][r], sums[3][r]};
        float *out = dots->out + r * dots->ldo + first;
        if (first + 4 <= dots->n) {
            v_sum4(sum, out);
        } else {
            v_sum4(sum, four);
            memcpy(out, four, (size_t)(dots->n - first) * sizeof *four);
        }
    }
}

static ALWAYS_INLINE void dots_rows(enum dpe_dtype dtype, int together, int rows,
                                    const struct dpe_cpu_dots *dots)
{
    for (int64_t first = 0; first < dots->n; first += 4) {
        vec sums[4][4];
        for (int i = 0; i < 4; i += together) {
            dots_together(dtype, together, rows, dots, first + i, sums + i);
        }
        if (dots->k % VL != 0) {
            dots_rest(dtype, rows, dots, first, sums);
        }
        dots_end(rows, dots, first, sums);
    }
}

/* One row of x waits for memory, and weight rows one after another are a stream that the processor
 * reads at its full rate: 33 GB/s where four side by side reach 12 (Zen 4). That holds while x
 * stays in the first cache level. More rows, or longer ones, take a piece of x through several
 * weight rows, and those that come next are requested meanwhile. */
static ALWAYS_INLINE void dots_as(enum dpe_dtype dtype, const struct dpe_cpu_dots *dots)
{
    switch (dots->rows) {
    case 1:
        if (dots->k <= STREAM && (VL == 16 || dtype == DPE_F32)) {
            dots_rows(dtype, 1, 1, dots);
        } else {
            dots_rows(dtype, 2, 1, dots);
        }
        break;
    case 2:
        dots_rows(dtype, 2, 2, dots);
        break;
    case 3:
        dots_rows(dtype, TOGETHER, 3, dots);
        break;
    default:
        dots_rows(dtype, TOGETHER, 4, dots);
        break;
    }
}

static void kernel_dots(const struct dpe_cpu_dots *dots)
{
    switch (dots->dtype) {
    case DPE_F32:
        dots_as(DPE_F32, dots);
        break;
    case DPE_F16:
        dots_as(DPE_F16, dots);
        break;
    case DPE_BF16:
        dots_as(DPE_BF16, dots);
        break;
    default:
        dpe_blocks_dots(dots);
        break;
    }
}

/* kernel_dots_rotated where a row is 2 · halves vectors; all arguments but the pointers are constants
 * after inlining. A rotated key stays in registers: the order of every sum is that of `dots`. */
static ALWAYS_INLINE void dots_in_registers(int halves, bool selected, int rows,
                                            const struct dpe_cpu_rotation *rotation,
                                            const float *keys, const struct dpe_cpu_dots *dots)
{
    for (int64_t n = 0; n < dots->n; n += 4) {
        vec all[4][4];
        float sums[4];
        int64_t count = least(4, dots->n - n);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            vec key[8];
            int64_t at = least(n + i, dots->n - 1);
#pragma GCC unroll 4
            for (int h = 0; h < halves; h++) {
                rotate_pairs(selected, rotation, at, h * VL, keys + at * dots->k, &key[h],
                             &key[halves + h]);
            }
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                vec sum = v_set1(0.0F);
#pragma GCC unroll 8
                for (int h = 0; h < 2 * halves; h++) {
                    sum = v_fma(key[h], v_load(dots->x + r * dots->ldx + h * VL), sum);
                }
                all[r][i] = sum;
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            v_sum4(all[r], sums);
            memcpy(dots->out + r * dots->ldo + n, sums, (size_t)count * sizeof *sums);
        }
    }
}

static ALWAYS_INLINE void dots_in_registers_rows(int halves, bool selected,
                                                 const struct dpe_cpu_rotation *rotation,
                                                 const float *keys,
                                                 const struct dpe_cpu_dots *dots)
{
    switch (dots->rows) {
    case 1:
        dots_in_registers(halves, selected, 1, rotation, keys, dots);
        break;
    case 2:
        dots_in_registers(halves, selected, 2, rotation, keys, dots);
        break;
    case 3:
        dots_in_registers(halves, selected, 3, rotation, keys, dots);
        break;
    default:
        dots_in_registers(halves, selected, 4, rotation, keys, dots);
        break;
    }
}

static void kernel_dots_rotated(const struct dpe_cpu_rotation *rotation, const float *keys,
                                const struct dpe_cpu_dots *dots, float *room)
{
    bool selected = rotation->select != NULL;
    if (rotation->n_pairs == 2 * VL && VL > 4) {
        if (selected) {
            dots_in_registers_rows(2, true, rotation, keys, dots);
        } else {
            dots_in_registers_rows(2, false, rotation, keys, dots);
        }
    } else if (rotation->n_pairs == 4 * VL && VL > 4) {
        if (selected) {
            dots_in_registers_rows(4, true, rotation, keys, dots);
        } else {
            dots_in_registers_rows(4, false, rotation, keys, dots);
        }
    } else {
        struct dpe_cpu_dots of_room = *dots;
        of_room.w = room;
        kernel_rotate(rotation, keys, dots->k, dots->n, room);
        kernel_dots(&of_room);
    }
}
