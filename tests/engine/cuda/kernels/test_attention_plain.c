/* The plain attention kernel and the one of decoding, called directly, their source run by the
 * emulator: what is not a number stays so. (Every plan through them: test_cuda.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/emulate/emulate_control.h"
#include "tests/engine/plan/plan_cases.h"
#include "tests/lib/near.h"

#include "tests/engine/cuda/flash_case.h"
#include "tests/engine/cuda/flash_properties.h"

#include "engine/cuda/kernels/attention.h"

static void launch(struct flash_case *c)
{
    if (dpe_attention_plain(&c->call) != 0) {
        fail_msg("launch: %s", emulate_error());
    }
}

static struct flash_case make_case_of(int64_t head_dim, int plan_case, int64_t start, int64_t rows,
                                      double cap)
{
    const struct flash_shape shape = {.dtype = DPE_BF16,
                                      .n_heads = 2,
                                      .n_kv_heads = 1,
                                      .head_dim = head_dim,
                                      .start = start,
                                      .rows = rows,
                                      .seed = 5,
                                      .cap = cap};
    return flash_case_make(&shape, plan_case, 20, dpe_attention_plain_shape(shape.head_dim));
}

static struct flash_case make_case(int plan_case, int64_t start, int64_t rows)
{
    return make_case_of(64, plan_case, start, rows, 0.0);
}

/* Heads beyond 256 take fewer keys at a time, within the shared memory of every card. */
static void large_heads(void **state)
{
    (void)state;
    struct flash_case c = make_case_of(512, 1, 7, 35, 0.0);
    launch(&c);
    flash_case_check(&c, "heads of 512");
    flash_nan_stays(&c, launch);
    assert_true(dpe_attention_plain_shape(848).rows > 0);
    assert_int_equal(dpe_attention_plain_shape(850).rows, 0);
}

static void plain(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct flash_case c = make_case(i, 7, 50);
        launch(&c);
        flash_case_check(&c, "plain");
        flash_nan_stays(&c, launch);
    }
}

/* Rows of one branch over their keys in units of 24, eight rows a unit. */
struct decoding {
    struct dpe_decode call;
    struct dpe_decode_unit units[16];
    struct dpe_decode_parts parts[9];
};

static void decode_make(const struct flash_case *c, struct decoding *d)
{
    const int64_t rows = c->shape.rows;
    const int64_t dim = c->shape.head_dim;
    *d = (struct decoding){.call = {.dealing = dpe_decode_deal(1, dim, 163 << 10),
                                    .dtype = DPE_BF16,
                                    .n_heads = 2,
                                    .n_kv_heads = 1,
                                    .head_dim = dim,
                                    .rows = rows,
                                    .q_head_stride = c->call.q_head_stride,
                                    .k = c->call.k[0],
                                    .v = c->call.v,
                                    .head_stride = c->call.v_head_stride,
                                    .n_bands = 1,
                                    .chunk = 1,
                                    .units = d->units,
                                    .parts = d->parts,
                                    .out = c->call.out,
                                    .lse = c->call.lse,
                                    .scale = c->call.scale,
                                    .cap = c->call.cap}};
    d->call.q[0] = c->call.q[0];
    d->call.bands[0] = (struct dpe_decode_band){.kind = DPE_BAND_DISTANCE, .hi = 1 << 30};
    for (int64_t first = 0; first < rows; first += 8) {
        int32_t n = (int32_t)(rows - first < 8 ? rows - first : 8);
        int64_t keys = c->shape.start + first + n;
        int32_t a_first = (int32_t)d->call.n_units;
        for (int64_t at = 0; at < keys; at += 24) {
            d->units[d->call.n_units++] = (struct dpe_decode_unit){
                .first = at,
                .end = at + 24 < keys ? at + 24 : keys,
                .row_first = (int32_t)first,
                .n_rows = n,
            };
        }
        for (int32_t r = 0; r < n; r++) {
            d->parts[first + r] = (struct dpe_decode_parts){
                .a_first = a_first,
                .a_end = (int32_t)d->call.n_units,
                .a_row = r,
                .position = c->shape.start + first + r,
            };
        }
    }
}

static void decode(void **state)
{
    (void)state;
    struct flash_case c = make_case(0, 149, 2);
    struct decoding d;
    decode_make(&c, &d);
    d.call.partial = flash_memory((int64_t)dpe_decode_partial_bytes(1, 64, d.call.n_units), 1);
    assert_int_equal(dpe_attention_decode_calls(&d.call, 1), 0);
    flash_case_check(&c, "decoding");
    /* Row 1 of head 0: none of its logits is a number, in no part. */
    c.q_rotated[0][64 + 5] = FLASH_POISON;
    assert_int_equal(dpe_attention_decode_calls(&d.call, 1), 0);
    flash_case_read(&c);
    for (int64_t i = 0; i < 2 * 2 * 64; i++) {
        bool spoilt = i / 64 == 2;
        assert_true(isnan(c.got[i]) == spoilt);
        c.got[i] = spoilt ? (float)c.want[i] : c.got[i];
    }
    assert_true(isnan(c.lse[FLASH_GUARD + 2]) && !isnan(c.lse[FLASH_GUARD]));
    assert_int_equal(near_oracle("beside a NaN", c.got, c.plain, c.want, 2 * 2 * 64), 0);
    free(d.call.partial);
    flash_case_free(&c);
}

static void caps(void **state)
{
    static const int64_t dims[] = {64, 96, 128, 256};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct flash_case c = make_case_of(dims[i], 0, 100 + 13 * i, 3, i % 2 == 0 ? 4.0 : 1.5);
        struct decoding d;
        launch(&c);
        flash_case_check(&c, "plain, capped");
        decode_make(&c, &d);
        d.call.partial =
            flash_memory((int64_t)dpe_decode_partial_bytes(1, dims[i], d.call.n_units), 1);
        assert_int_equal(dpe_attention_decode_calls(&d.call, 1), 0);
        flash_case_check(&c, "decoding, capped");
        free(d.call.partial);
        flash_case_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain),
        cmocka_unit_test(large_heads),
        cmocka_unit_test(decode),
        cmocka_unit_test(caps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
