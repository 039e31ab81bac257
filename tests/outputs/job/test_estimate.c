/* The fit of a dry run's times, how ranges are written and summed, and what step times choose. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "outputs/job/job_internal.h"
#include "outputs/job/price.h"

enum { CHUNKS = 8, SIZE = 256 };

/* Chunks of a reading that takes a·n + b·n², with relative noise that alternates. */
static void make_chunks(double a, double b, double noise, int64_t *begin, int64_t *end,
                        double *seconds)
{
    for (int i = 0; i < CHUNKS; i++) {
        begin[i] = (int64_t)i * SIZE;
        end[i] = begin[i] + SIZE;
        double n = (double)end[i];
        double m = (double)begin[i];
        seconds[i] = (a * (n - m) + b * (n * n - m * m)) * (1.0 + (i % 2 == 0 ? noise : -noise));
    }
}

static const struct dpe_selection none = {0};

static void the_fit_finds_both_terms(void **state)
{
    int64_t begin[CHUNKS], end[CHUNKS];
    double seconds[CHUNKS], a = 0.0, b = 0.0;
    (void)state;
    make_chunks(2e-4, 3e-8, 0.0, begin, end, seconds);
    dpe_job_fit(&none, begin, end, seconds, CHUNKS, 1e-6, 1e-2, &a, &b);
    assert_true(fabs(a / 2e-4 - 1.0) < 1e-9 && fabs(b / 3e-8 - 1.0) < 1e-9);
    /* Eight times beyond what was measured, 10 % of noise stay below a factor of 1.3. */
    make_chunks(2e-4, 3e-8, 0.1, begin, end, seconds);
    dpe_job_fit(&none, begin, end, seconds, CHUNKS, 1e-6, 1e-2, &a, &b);
    double n = 8.0 * CHUNKS * SIZE;
    double ratio = (a * n + b * n * n) / (2e-4 * n + 3e-8 * n * n);
    assert_true(ratio > 1.0 / 1.3 && ratio < 1.3);
}

/* Under a selection the second term counts what its queries meet and score. */
static void the_fit_knows_selections(void **state)
{
    const struct dpe_selection selection = {
        .block = 16, .sinks = 16, .local = 64, .k = 4, .refresh = 1};
    int64_t begin[CHUNKS], end[CHUNKS];
    double seconds[CHUNKS], a = 0.0, b = 0.0;
    (void)state;
    make_chunks(2e-4, 0.0, 0.0, begin, end, seconds);
    for (int i = 0; i < CHUNKS; i++) {
        seconds[i] += 6e-7 * (dpe_selection_work(&selection, end[i]) -
                              dpe_selection_work(&selection, begin[i]));
    }
    dpe_job_fit(&selection, begin, end, seconds, CHUNKS, 1e-6, 1e-2, &a, &b);
    assert_true(fabs(a / 2e-4 - 1.0) < 1e-6 && fabs(b / 3e-7 - 1.0) < 1e-6);
}

static void terms_stay_physical(void **state)
{
    int64_t begin[CHUNKS], end[CHUNKS];
    double seconds[CHUNKS], a = 0.0, b = 0.0;
    (void)state;
    /* Chunks that become faster, as when another program ends: b would be negative. */
    make_chunks(2e-4, 0.0, 0.0, begin, end, seconds);
    for (int i = 0; i < CHUNKS; i++) {
        seconds[i] *= 2.0 - 0.2 * i;
    }
    dpe_job_fit(&none, begin, end, seconds, CHUNKS, 1e-5, 1e-2, &a, &b);
    assert_true(a > 0.0 && fabs(b / a - 1e-5) < 1e-12);
    /* Chunks that take over quadratically: a would be negative. */
    for (int i = 0; i < CHUNKS; i++) {
        seconds[i] = 1e-3 * (i + 1) * (i + 1) * (i + 1);
    }
    dpe_job_fit(&none, begin, end, seconds, CHUNKS, 1e-6, 1e-5, &a, &b);
    assert_true(a > 0.0 && fabs(b / a - 1e-5) < 1e-12);
}

static void expect_text(double low, double high, const char *expected)
{
    char text[64];
    const struct dpe_job_range range = {low, high};
    assert_string_equal(dpe_job_range_text(&range, text), expected);
}

static void ranges_have_two_digits(void **state)
{
    (void)state;
    expect_text(6.1 * 86400.0, 7.8 * 86400.0, "6.1 to 7.8 days");
    expect_text(11.4 * 3600.0, 17.2 * 3600.0, "11 to 18 h");
    expect_text(100.0, 130.0, "1.6 to 2.2 min");
    expect_text(42.0, 42.0, "about 42 s");
    expect_text(234.0 * 86400.0, 380.0 * 86400.0, "230 to 380 days");
    expect_text(0.0, 0.0, "unknown");
    expect_text(0.0, NAN, "unknown");
}

static void bills_are_summed(void **state)
{
    const struct dpe_price price = {.prompt = 1000,
                                    .read = 500,
                                    .pairs = 1e6,
                                    .room = 20,
                                    .steps = 5,
                                    .branches = 4,
                                    .head = 1,
                                    .products = 7,
                                    .attention = 3};
    const struct dpe_job_speed speed = {
        .per_token = 1e-3, .per_step = 1e-2, .low = 1, .high = 1, .tokens = 64};
    const struct dpe_job_speed unknown = {.tokens = 0};
    struct dpe_bill bill = {.rows = 0};
    struct dpe_bill sum = {.rows = 0};
    (void)state;
    dpe_bill_add(&bill, &price, 4, 10, NULL, &speed);
    dpe_bill_sum(&sum, &bill);
    dpe_bill_sum(&sum, &bill);
    dpe_bill_sum(NULL, &bill);
    assert_true(sum.rows == 20 && sum.tokens == 20 * 520 && sum.products == 140 &&
                sum.attention == 60);
    /* 4 to 10 rows of half a second to read, and 50 ms to decode of which half may be left out. */
    assert_true(fabs(sum.time.low - 2 * 4 * 0.9 * 0.525) < 1e-9);
    assert_true(fabs(sum.time.high - 2 * 10 * 1.1 * 0.55) < 1e-9);
    assert_false(sum.untimed);
    bill = (struct dpe_bill){.rows = 0};
    dpe_bill_add(&bill, &price, 0, 0, NULL, &unknown);
    assert_false(bill.untimed); /* of no rows */
    dpe_bill_add(&bill, &price, 1, 1, NULL, &unknown);
    dpe_bill_sum(&sum, &bill);
    assert_true(sum.untimed);
}

static void prices_are_of_one_row(void **state)
{
    const struct dpe_config config = {.hidden = 64,
                                      .n_layers = 2,
                                      .n_heads = 4,
                                      .n_kv_heads = 2,
                                      .head_dim = 16,
                                      .intermediate = 128,
                                      .vocab = 100};
    /* 4 samples of 100 tokens that share all but 20 of each; 8 tokens each, in steps of 4. */
    const struct dpe_price_answers answers = {.samples = 4,
                                              .prompts = 400,
                                              .read = 160,
                                              .pairs = 8000,
                                              .decoded = 32,
                                              .steps = 8,
                                              .room = 8};
    struct dpe_price price;
    struct dpe_price alone;
    (void)state;
    dpe_price_of_answers(&config, &answers, &price);
    assert_true(price.prompt == 100 && price.read == 40 && price.pairs == 4000 && price.room == 8);
    assert_true(price.steps == 2 && price.branches == 4 && price.head == 1);
    dpe_price_text(&config, 100, 1.0, false, &alone);
    assert_true(price.products < alone.products && price.attention < alone.attention);
    dpe_price_text(&config, 100, 3.0, true, &price);
    assert_true(price.prompt == 300 && price.pairs == 30000 && price.head > 1.0);
    assert_true(price.products > 3 * alone.products);
}

static const char key_of_one[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

static void speeds_are_kept_for_a_day(void **state)
{
    const int64_t now = 1000000;
    char folder[] = "/tmp/dpe-speeds-XXXXXX";
    char path[64];
    char other[65];
    struct dpe_job_speed speed = {.per_token = 1e-3,
                                  .per_pair = 2e-9,
                                  .per_step = 0.5,
                                  .per_step_token = 1e-7,
                                  .low = 0.9,
                                  .high = 1.1,
                                  .tokens = 4096,
                                  .seconds = 11.5};
    struct dpe_job_speed found;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/speeds", folder);
    assert_false(dpe_job_speed_find(path, key_of_one, now, &found));
    dpe_job_speed_keep(path, key_of_one, now, &speed);
    assert_true(dpe_job_speed_find(path, key_of_one, now + 86400 - 1, &found));
    assert_true(fabs(found.per_token - 1e-3) < 1e-12 && found.tokens == 4096 && found.when == now);
    assert_true(fabs(found.per_pair - 2e-9) < 1e-15 && fabs(found.seconds - 11.5) < 1e-9);
    assert_false(dpe_job_speed_find(path, key_of_one, now + 86400, &found));
    assert_false(dpe_job_speed_find(path, key_of_one, now - 1, &found)); /* of the future */
    /* Others stand beside it; the same is replaced; the oldest go. */
    for (int i = 0; i < 70; i++) {
        snprintf(other, sizeof other, "%064x", i);
        dpe_job_speed_keep(path, other, now, &speed);
    }
    assert_false(dpe_job_speed_find(path, key_of_one, now, &found));
    speed.per_token = 2e-3;
    dpe_job_speed_keep(path, other, now, &speed);
    assert_true(dpe_job_speed_find(path, other, now, &found) &&
                fabs(found.per_token - 2e-3) < 1e-12);
    /* A file that was cut has none; an entry that goes on, or has other things than numbers, or
     * numbers that none can have, is none. */
    static const char *const kept[] = {
        "[999999,4096,1,2,3,4,5,6,7]}",     "[999999,4096,1,2,3,4,5,6,7]",
        "[999999,4096,1,2,3,4,5,6,7,8]}",   "[999999,4096,1,2,3,4,5,6]}",
        "[999999,4096,1e308,2,3,4,5,6,7]}", "[999999,4096,1,2,3,4,5,6,1.1e9]}",
        "[999999,4096,1,2,3,4,5,6,-1]}",    "[999999,0,1,2,3,4,5,6,7]}",
        "[999999,4096,1,2,3,4,5,6,\"x\"]}", "{}}"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fprintf(file, "{\"%s\":%s", other, kept[i]);
        fclose(file);
        assert_int_equal(dpe_job_speed_find(path, other, now, &found), i == 0);
    }
    /* A pipe is not waited for, and the next measurement takes its place. */
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(60);
    assert_false(dpe_job_speed_find(path, other, now, &found));
    dpe_job_speed_keep(path, other, now, &speed);
    alarm(0);
    unlink(path);
    rmdir(folder);
}

static void a_range_holds_half_the_writing(void **state)
{
    const struct dpe_job_speed speed = {.per_token = 1e-3,
                                        .per_pair = 1e-6,
                                        .per_step = 1e-2,
                                        .per_step_token = 1e-6,
                                        .low = 0.9,
                                        .high = 1.2};
    struct dpe_job_range range = {0};
    (void)state;
    dpe_job_range_add(&range, &speed, 2.0, 1000.0, 1e6, 100.0, 1000.0);
    double reading = 1.0 + 1.0;
    double writing = 100.0 * (1e-2 + 1e-3);
    assert_true(fabs(range.low - 2.0 * 0.9 * 0.9 * (reading + 0.5 * writing)) < 1e-12);
    assert_true(fabs(range.high - 2.0 * 1.1 * 1.2 * (reading + writing)) < 1e-12);
    assert_int_equal(dpe_job_measured_length(512), 512);
    assert_int_equal(dpe_job_measured_length(4096), 2048);
    assert_int_equal(dpe_job_measured_length(16384), 4096);
}

/* How many sessions are beside each other after `groups` groups, where a token of steps of n takes
 * cost[n]. */
static int sides_after(const double *cost, int most, int groups)
{
    struct dpe_job_pace pace = {0};
    int n = dpe_job_sides(&pace, most);
    for (int i = 0; i < groups; i++) {
        pace.stepping[n] += cost[n] * (double)(i + 1);
        pace.decoded[n] += i + 1;
        n = dpe_job_sides(&pace, most);
    }
    return n;
}

static void steps_that_take_least_are_taken(void **state)
{
    /* Of one to sixteen: the weights are read once; attention alone; the least between. */
    double shared[DPE_JOB_SIDES + 1], alike[DPE_JOB_SIDES + 1], between[DPE_JOB_SIDES + 1];
    (void)state;
    for (int n = 1; n <= DPE_JOB_SIDES; n++) {
        shared[n] = 1.0 / n + 0.25;
        alike[n] = 2.0;
        between[n] = 8.0 / n + 0.5 * n;
    }
    assert_int_equal(sides_after(shared, 16, 0), 16);
    assert_int_equal(sides_after(shared, 16, 1), 8); /* is tried */
    assert_int_equal(sides_after(alike, 16, 9), 16);
    for (int groups = 2; groups < 9; groups++) {
        assert_int_equal(sides_after(shared, 16, groups), 16);
        assert_int_equal(sides_after(shared, 1, groups), 1);
    }
    assert_int_equal(sides_after(between, 16, 9), 4);
    assert_int_equal(sides_after(between, 12, 9), 6); /* three are a little better */
    assert_int_equal(sides_after(between, 2, 9), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_that_take_least_are_taken),
        cmocka_unit_test(the_fit_finds_both_terms),
        cmocka_unit_test(the_fit_knows_selections),
        cmocka_unit_test(terms_stay_physical),
        cmocka_unit_test(ranges_have_two_digits),
        cmocka_unit_test(bills_are_summed),
        cmocka_unit_test(prices_are_of_one_row),
        cmocka_unit_test(speeds_are_kept_for_a_day),
        cmocka_unit_test(a_range_holds_half_the_writing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
