/* The part of cpu_kernels.c that decoding lives on: dot products of few rows with weights and with
 * keys. Included by it, after load_few and turn. */

/* Weight rows first … first+together−1 (those beyond the last repeat it) times `rows` rows of x, in
 * whole vectors. Rows side by side request those that follow them. dtype, together and rows must be
 * constants after inlining, so that the sums stay in registers. */
static ALWAYS_INLINE void dots_together(enum dpe_dtype dtype, int together, int rows,
                                        const struct dpe_cpu_dots *dots, int64_t first,
                                        vec (*out)[4])
{
    int64_t size = dtype_size(dtype);
    int64_t stride = dots->ldw * size;
    int64_t ahead = (together < 4 ? 4 : together) * stride;
    const char *row[SIDE];
    vec sum[SIDE][4];
#pragma GCC unroll 8
    for (int i = 0; i < together; i++) {
        row[i] = (const char *)dots->w + least(first + i, dots->n - 1) * stride;
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            sum[i][r] = v_set1(0.0F);
        }
    }
    for (int64_t p = 0; p + VL <= dots->k; p += VL) {
        vec weight[SIDE];
#pragma GCC unroll 8
        for (int i = 0; i < together; i++) {
            weight[i] = load_as(row[i] + p * size, dtype);
            if (together > 1) {
                prefetch_bytes(row[i], p * size + ahead);
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            vec x = v_load(dots->x + r * dots->ldx + p);
#pragma GCC unroll 8
            for (int i = 0; i < together; i++) {
                sum[i][r] = v_fma(weight[i], x, sum[i][r]);
            }
        }
    }
#pragma GCC unroll 8
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
    int step = together > 4 ? together : 4;
    for (int64_t first = 0; first < dots->n; first += step) {
        vec sums[SIDE][4];
        for (int i = 0; i < step; i += together) {
            dots_together(dtype, together, rows, dots, first + i, sums + i);
        }
        for (int i = 0; i < step && first + i < dots->n; i += 4) {
            if (dots->k % VL != 0) {
                dots_rest(dtype, rows, dots, first + i, sums + i);
            }
            dots_end(rows, dots, first + i, sums + i);
        }
    }
}

/* One row of x waits for memory. While x stays in the first cache level, weight rows one after another
 * are a stream that the processor reads at 0.9 of its full rate (Zen 4). Beside a longer x that falls to
 * 0.4 to 0.6, and several rows side by side, which request those that come next, reach 0.7 to 0.9. More
 * rows of x take a piece of x through several weight rows. */
static ALWAYS_INLINE void dots_as(enum dpe_dtype dtype, const struct dpe_cpu_dots *dots)
{
    switch (dots->rows) {
    case 1:
        if (dots->k <= STREAM && (VL == 16 || dtype == DPE_F32)) {
            dots_rows(dtype, 1, 1, dots);
        } else {
            dots_rows(dtype, dtype == DPE_F32 ? SIDE : 2, 1, dots);
        }
        break;
    case 2:
        dots_rows(dtype, VL == 16 ? SIDE : 2, 2, dots);
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

/* Requests a vector of pairs of what dots_in_registers reads soon: the key AHEAD rows on, and row `at` of
 * what comes after the keys. */
static ALWAYS_INLINE void request_keys(const struct dpe_cpu_key_dots *dots, int64_t at, int64_t pair)
{
    int64_t n_pairs = dots->rotation->n_pairs;
    prefetch(dots->keys + at * dots->k + pair, AHEAD * dots->k);
    prefetch(dots->keys + at * dots->k + pair + n_pairs, AHEAD * dots->k);
    if (dots->after != NULL) {
        prefetch(dots->after + at * dots->k + pair, 0);
        prefetch(dots->after + at * dots->k + pair + n_pairs, 0);
    }
}

/* kernel_dots_rotated where a row is 2 · halves vectors; halves, masked and rows are constants after
 * inlining. A key is rotated once (masked: by both tables), in registers; a head takes its pairs from
 * either. */
static ALWAYS_INLINE void dots_in_registers(int halves, bool masked, int rows,
                                            const struct dpe_cpu_key_dots *dots)
{
    const struct dpe_cpu_rotation *rotation = dots->rotation;
    int64_t n_pairs = rotation->n_pairs;
    vmask mask[4][4];
    for (int r = 0; masked && r < rows; r++) {
        for (int h = 0; h < halves; h++) {
            mask[r][h] = v_mask(dots->mask + r * n_pairs + h * VL);
        }
    }
    for (int64_t n = 0; n < dots->n; n += 4) {
        vec sum[4][4];
        float sums[4];
        int64_t count = least(4, dots->n - n);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            int64_t at = least(n + i, dots->n - 1);
            const float *key = dots->keys + at * dots->k;
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                sum[r][i] = v_set1(0.0F);
            }
#pragma GCC unroll 4
            for (int h = 0; h < halves; h++) {
                int64_t pair = h * VL;
                int64_t angle = at * n_pairs + pair;
                vec a = v_load(key + pair);
                vec b = v_load(key + pair + n_pairs);
                vec first;
                vec second;
                vec base[2];
                turn(a, b, v_load(rotation->cos + angle), v_load(rotation->sin + angle), &first,
                     &second);
                if (masked) {
                    turn(a, b, v_load(rotation->base_cos + angle),
                         v_load(rotation->base_sin + angle), &base[0], &base[1]);
                }
                request_keys(dots, at, pair);
#pragma GCC unroll 4
                for (int r = 0; r < rows; r++) {
                    const float *q = dots->q + r * dots->ldq + pair;
                    vec x = masked ? v_blend(mask[r][h], first, base[0]) : first;
                    vec y = masked ? v_blend(mask[r][h], second, base[1]) : second;
                    sum[r][i] = v_fma(x, v_load(q), sum[r][i]);
                    sum[r][i] = v_fma(y, v_load(q + n_pairs), sum[r][i]);
                }
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            v_sum4(sum[r], sums);
            memcpy(dots->out + r * dots->ldo + n, sums, (size_t)count * sizeof *sums);
        }
    }
}

static ALWAYS_INLINE void dots_in_registers_rows(int halves, bool masked,
                                                 const struct dpe_cpu_key_dots *dots)
{
    switch (dots->rows) {
    case 1:
        dots_in_registers(halves, masked, 1, dots);
        break;
    case 2:
        dots_in_registers(halves, masked, 2, dots);
        break;
    case 3:
        dots_in_registers(halves, masked, 3, dots);
        break;
    default:
        dots_in_registers(halves, masked, 4, dots);
        break;
    }
}

/* The same for any width: rotates the keys to `room`, masked ones for each head. */
static void dots_in_room(const struct dpe_cpu_key_dots *dots)
{
    struct dpe_cpu_rotation rotation = *dots->rotation;
    int64_t n_pairs = rotation.n_pairs;
    int64_t together = dots->mask != NULL ? 1 : dots->rows;
    for (int64_t r = 0; r < dots->rows; r += together) {
        rotation.select = NULL;
        for (int64_t j = 0; j < n_pairs && dots->mask != NULL; j++) {
            dots->words[j] = dots->mask[r * n_pairs + j] != 0 ? UINT32_MAX : 0;
            rotation.select = dots->words;
        }
        const struct dpe_cpu_dots products = {
            .w = dots->room,
            .ldw = dots->k,
            .dtype = DPE_F32,
            .n = dots->n,
            .k = dots->k,
            .rows = together,
            .x = dots->q + r * dots->ldq,
            .ldx = dots->ldq,
            .out = dots->out + r * dots->ldo,
            .ldo = dots->ldo,
        };
        kernel_rotate(&rotation, dots->keys, dots->k, dots->n, dots->room);
        kernel_dots(&products);
    }
}

static void kernel_dots_rotated(const struct dpe_cpu_key_dots *dots)
{
    int64_t n_pairs = dots->rotation->n_pairs;
    if (n_pairs == 2 * VL && VL > 4) {
        if (dots->mask != NULL) {
            dots_in_registers_rows(2, true, dots);
        } else {
            dots_in_registers_rows(2, false, dots);
        }
    } else if (n_pairs == 4 * VL && VL > 4) {
        if (dots->mask != NULL) {
            dots_in_registers_rows(4, true, dots);
        } else {
            dots_in_registers_rows(4, false, dots);
        }
    } else {
        dots_in_room(dots);
    }
}
