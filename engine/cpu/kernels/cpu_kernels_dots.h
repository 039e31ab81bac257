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
        row[i] = (const char *)dots->w + dpe_least(first + i, dots->n - 1) * stride;
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

/* One row of x waits for memory. While x stays in the first cache level, weight rows one after
 * another are a stream that the processor reads at 0.9 of its full rate (Zen 4). Beside a longer x
 * that falls to 0.4 to 0.6, and several rows side by side, which request those that come next,
 * reach 0.7 to 0.9. More rows of x take a piece of x through several weight rows. */
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

/* Requests, for pairs pair … pair+VL−1 of key n, as much of what is read later: the same of what
 * comes after these keys, and again of the key AHEAD rows on, of its cosines and sines. The
 * processor drops requests while it waits for many, so that one alone, however early, leaves gaps;
 * and requests in bursts are dropped more often. */
static ALWAYS_INLINE void request_key(bool masked, int64_t n_pairs,
                                      const struct dpe_cpu_key_dots *dots, int64_t n, int64_t pair)
{
    const struct dpe_cpu_rotation *rotation = dots->rotation;
    int64_t angle = n * n_pairs + pair;
    prefetch(rotation->cos + angle, AHEAD * n_pairs);
    prefetch(rotation->sin + angle, AHEAD * n_pairs);
    if (masked) {
        prefetch(rotation->base_cos + angle, AHEAD * n_pairs);
        prefetch(rotation->base_sin + angle, AHEAD * n_pairs);
    }
#pragma GCC unroll 2
    for (int64_t i = 0; i < 2 * VL; i += LINE) {
        prefetch(dots->keys + 2 * angle + i, AHEAD * 2 * n_pairs);
        if (dots->after != NULL) {
            prefetch(dots->after + 2 * angle + i, 0);
        }
    }
}

/* Keys n … n+keys−1 of kernel_dots_rotated, a row being 2 · n_pairs in whole vectors; masked, keys,
 * rows and n_pairs are constants after inlining. A key is rotated once (masked: by both tables), in
 * registers; a head takes its pairs from either. */
static ALWAYS_INLINE void dots_of_keys(bool masked, int keys, int rows, int64_t n_pairs,
                                       const struct dpe_cpu_key_dots *dots, int64_t n)
{
    const float *key = dots->keys + n * 2 * n_pairs;
    const struct dpe_cpu_rotation *rotation = dots->rotation;
    const float *c = rotation->cos + n * n_pairs;
    const float *s = rotation->sin + n * n_pairs;
    const float *base_c = masked ? rotation->base_cos + n * n_pairs : NULL;
    const float *base_s = masked ? rotation->base_sin + n * n_pairs : NULL;
    vec sum[4][4];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            sum[r][i] = v_set1(0.0F);
        }
    }
#pragma GCC unroll 1
    for (int64_t pair = 0; pair < n_pairs; pair += VL) {
        vmask mask[4];
#pragma GCC unroll 4
        for (int r = 0; masked && r < rows; r++) {
            mask[r] = v_mask(dots->mask + r * n_pairs + pair);
        }
#pragma GCC unroll 4
        for (int i = 0; i < keys; i++) {
            int64_t angle = i * n_pairs + pair;
            vec a = v_load(key + i * 2 * n_pairs + pair);
            vec b = v_load(key + i * 2 * n_pairs + n_pairs + pair);
            request_key(masked, n_pairs, dots, n + i, pair);
            vec first;
            vec second;
            vec base[2];
            turn(a, b, v_load(c + angle), v_load(s + angle), &first, &second);
            if (masked) {
                turn(a, b, v_load(base_c + angle), v_load(base_s + angle), &base[0], &base[1]);
            }
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                const float *q = dots->q + r * dots->ldq + pair;
                vec x = masked ? v_blend(mask[r], first, base[0]) : first;
                vec y = masked ? v_blend(mask[r], second, base[1]) : second;
                sum[r][i] = v_fma(x, v_load(q), sum[r][i]);
                sum[r][i] = v_fma(y, v_load(q + n_pairs), sum[r][i]);
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        float sums[4];
        v_sum4(sum[r], sums);
        memcpy(dots->out + r * dots->ldo + n, sums, (size_t)keys * sizeof *sums);
    }
}

static ALWAYS_INLINE void dots_in_registers(bool masked, int rows, int64_t n_pairs,
                                            const struct dpe_cpu_key_dots *dots)
{
    int64_t n = 0;
    for (; n + 4 <= dots->n; n += 4) {
        dots_of_keys(masked, 4, rows, n_pairs, dots, n);
    }
    for (; n < dots->n; n++) {
        dots_of_keys(masked, 1, rows, n_pairs, dots, n);
    }
}

static ALWAYS_INLINE void dots_in_registers_rows(bool masked, int64_t n_pairs,
                                                 const struct dpe_cpu_key_dots *dots)
{
    switch (dots->rows) {
    case 1:
        dots_in_registers(masked, 1, n_pairs, dots);
        break;
    case 2:
        dots_in_registers(masked, 2, n_pairs, dots);
        break;
    case 3:
        dots_in_registers(masked, 3, n_pairs, dots);
        break;
    default:
        dots_in_registers(masked, 4, n_pairs, dots);
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

/* Widths that kernel_dots_rotated keeps in registers: pairs side by side, both halves in turn. */
static inline bool rotates_in_registers(int64_t n_pairs)
{
    return (n_pairs == 32 || n_pairs == 64) && VL > 4;
}

static void kernel_dots_rotated(const struct dpe_cpu_key_dots *dots)
{
    int64_t n_pairs = dots->rotation->n_pairs;
    if (!rotates_in_registers(n_pairs)) {
        dots_in_room(dots);
    } else if (n_pairs == 32) {
        if (dots->mask != NULL) {
            dots_in_registers_rows(true, 32, dots);
        } else {
            dots_in_registers_rows(false, 32, dots);
        }
    } else {
        if (dots->mask != NULL) {
            dots_in_registers_rows(true, 64, dots);
        } else {
            dots_in_registers_rows(false, 64, dots);
        }
    }
}

/* Keys first … first+together−1 (those beyond the last repeat it) times queries r … r+rows−1, in
 * whole vectors: in the order of dots_of_keys where `folded`, else as they lie. All but first and r
 * are constants after inlining, k where that is worth it. */
static ALWAYS_INLINE void shared_together(bool folded, int64_t k, int together, int rows,
                                          const struct dpe_cpu_shared_dots *dots, int64_t first,
                                          int64_t r, vec (*out)[4])
{
    const float *key[4];
    vec sum[4][4];
#pragma GCC unroll 4
    for (int i = 0; i < together; i++) {
        key[i] = dots->keys + dpe_least(first + i, dots->n - 1) * k;
#pragma GCC unroll 4
        for (int j = 0; j < rows; j++) {
            sum[i][j] = v_set1(0.0F);
        }
    }
#pragma GCC unroll 4
    for (int64_t v = 0; v < k / VL; v++) {
        int64_t p = folded ? v / 2 * VL + v % 2 * (k / 2) : v * VL;
        vec x[4];
#pragma GCC unroll 4
        for (int i = 0; i < together; i++) {
            x[i] = v_load(key[i] + p);
        }
#pragma GCC unroll 4
        for (int j = 0; j < rows; j++) {
            vec y = v_load(dots->q[r + j] + p);
#pragma GCC unroll 4
            for (int i = 0; i < together; i++) {
                sum[i][j] = v_fma(x[i], y, sum[i][j]);
            }
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < together; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < rows; j++) {
            out[i][j] = sum[i][j];
        }
    }
}

/* What these queries, which are among those that take four keys after each other, request. */
static inline void request_soon(const struct dpe_cpu_shared_dots *dots, int64_t first, int64_t r)
{
    int64_t step = (dots->rows + 3) / 4;
    int64_t end = dpe_least(first + 4, dots->n);
    for (int i = 0; i < 2 && dots->soon[i] != NULL; i++) {
        for (int64_t key = first + r / 4; key < end; key += step) {
            for (int64_t p = 0; p < dots->k; p += LINE) {
                prefetch(dots->soon[i] + key * dots->k + p, 0);
            }
        }
    }
}

static ALWAYS_INLINE void shared_rows(bool folded, int64_t k, int rows,
                                      const struct dpe_cpu_shared_dots *dots, int64_t r)
{
    const struct dpe_cpu_dots to = {
        .n = dots->n, .out = dots->out + r * dots->ldo, .ldo = dots->ldo};
    for (int64_t first = 0; first < dots->n; first += 4) {
        vec sums[4][4];
        for (int i = 0; i < 4; i += TOGETHER) {
            shared_together(folded, k, TOGETHER, rows, dots, first + i, r, sums + i);
        }
        request_soon(dots, first, r);
        dots_end(rows, &to, first, sums);
    }
}

static ALWAYS_INLINE void shared_as(bool folded, int64_t k, const struct dpe_cpu_shared_dots *dots)
{
    int64_t r = 0;
    for (; r + 4 <= dots->rows; r += 4) {
        shared_rows(folded, k, 4, dots, r);
    }
    for (; r < dots->rows; r++) {
        shared_rows(folded, k, 1, dots, r);
    }
}

static void kernel_dots_shared(const struct dpe_cpu_shared_dots *dots)
{
    if (dots->k % VL == 0) {
        if (!rotates_in_registers(dots->k / 2)) {
            shared_as(false, dots->k, dots);
        } else if (dots->k == 64) {
            shared_as(true, 64, dots);
        } else {
            shared_as(true, dots->k, dots);
        }
        return;
    }
    for (int64_t r = 0; r < dots->rows; r++) {
        const struct dpe_cpu_dots one = {.w = dots->keys,
                                         .ldw = dots->k,
                                         .dtype = DPE_F32,
                                         .n = dots->n,
                                         .k = dots->k,
                                         .rows = 1,
                                         .x = dots->q[r],
                                         .out = dots->out + r * dots->ldo};
        kernel_dots(&one);
    }
}
