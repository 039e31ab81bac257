/* How fast this machine is, from reading a text a few times; and what rows cost. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/tool/tool.h"
#include "outputs/job/price.h"

/* --------------------------------------------------------------------- how fast this machine is */

enum {
    MOST_PASSES = 5,
    MOST_CHUNKS = 256,
    STEPS = 8, /* that are timed */
    ROOM = STEPS + 4
};
static const double enough = 10.0; /* seconds of reading after which no further pass begins */
/* An operation of attention takes between these times one of a matrix product: products run near
 * the peak of a processor, attention reads its keys again for every chunk. */
static const double least_cost = 0.25;
static const double most_cost = 32.0;

/* Ids 1, 2, 3, … repeated: every vocabulary has them, and their meaning does not change the speed.
 */
static void fill_tokens(int32_t *tokens, int64_t n, int64_t vocab)
{
    int64_t period = vocab > 256 ? 255 : vocab - 1;
    for (int64_t i = 0; i < n; i++) {
        tokens[i] = period > 0 ? (int32_t)(1 + i % period) : 0;
    }
}

/* The clock, or the time of the processors where the variable asks for it: of one thread that is
 * what a machine with nothing else to do would take, so a busy one can check the prediction
 * (tests/bench/estimates.py). */
static double measured_clock(void)
{
    struct timespec time;
    return getenv("DPE_ESTIMATE_CPU") != NULL && clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0
               ? (double)time.tv_sec + 1e-9 * (double)time.tv_nsec
               : dpe_clock();
}

static double median(const double *values, int n)
{
    double sorted[MOST_PASSES];
    memcpy(sorted, values, (size_t)n * sizeof *values);
    dpe_sort(sorted, (size_t)n);
    return dpe_quantile(sorted, (size_t)n, 0.5);
}

/* n², or what a selection leaves of it. */
static double squares(const struct dpe_selection *selection, int64_t n)
{
    return dpe_selects(selection) ? 2.0 * dpe_selection_work(selection, n) : (double)n * (double)n;
}

void dpe_job_fit(const struct dpe_selection *selection, const int64_t *begin, const int64_t *end,
                 const double *seconds, int n, double least_ratio, double most_ratio, double *a,
                 double *b)
{
    double xx = 0.0, xy = 0.0, yy = 0.0, xt = 0.0, yt = 0.0;
    for (int i = 0; i < n; i++) {
        double x = (double)(end[i] - begin[i]) / seconds[i];
        double y = (squares(selection, end[i]) - squares(selection, begin[i])) / seconds[i];
        xx += x * x;
        xy += x * y;
        yy += y * y;
        xt += x;
        yt += y;
    }
    double determinant = xx * yy - xy * xy;
    *a = determinant > 0.0 ? (xt * yy - yt * xy) / determinant : 0.0;
    *b = determinant > 0.0 ? (xx * yt - xy * xt) / determinant : -1.0;
    double ratio = *a > 0.0 ? *b / *a : (double)INFINITY;
    if (ratio < least_ratio || ratio > most_ratio) {
        /* One unknown is left: a (x + r y) = 1. */
        ratio = ratio < least_ratio ? least_ratio : most_ratio;
        *a = (xt + ratio * yt) / (xx + 2.0 * ratio * xy + ratio * ratio * yy);
        *b = ratio * *a;
    }
}

struct chunks {
    int n;
    int64_t begin[MOST_CHUNKS], end[MOST_CHUNKS];
    double seconds[MOST_CHUNKS][MOST_PASSES];
    double total[MOST_PASSES];
};

/* At the session's own lines, or four parts of a text that has only one chunk. */
static void divide(const struct dpe_session *session, int64_t most, struct chunks *chunks)
{
    int64_t size = dpe_session_chunk(session);
    size = 2 * size > most ? (most + 3) / 4 : size;
    chunks->n = 0;
    for (int64_t at = 0; at < most && chunks->n < MOST_CHUNKS; at += size, chunks->n++) {
        chunks->begin[chunks->n] = at;
        chunks->end[chunks->n] = at + size < most ? at + size : most;
    }
}

static dpe_status time_pass(struct dpe_session *session, const int32_t *tokens,
                            struct chunks *chunks, int pass, struct dpe_error *err)
{
    DPE_TRY(dpe_session_cut(session, 0, err));
    chunks->total[pass] = 0.0;
    for (int i = 0; i < chunks->n; i++) {
        double begin = measured_clock();
        DPE_TRY(dpe_session_feed(session, tokens + chunks->begin[i],
                                 chunks->end[i] - chunks->begin[i], NULL, err));
        chunks->seconds[i][pass] = fmax(measured_clock() - begin, 1e-9);
        chunks->total[pass] += chunks->seconds[i][pass];
    }
    return DPE_OK;
}

static dpe_status time_reading(struct dpe_session *session, const struct dpe_config *config,
                               const struct dpe_selection *selection, const int32_t *tokens,
                               int64_t most, struct dpe_job_speed *speed, struct dpe_error *err)
{
    DPE_OWNED struct chunks *chunks = NULL;
    DPE_TRY(DPE_NEW(&chunks, 1, err, "out of memory for an estimate"));
    divide(session, most, chunks);
    /* The first touch of weights and buffers takes longer than what follows. */
    DPE_TRY(dpe_session_cut(session, 0, err));
    DPE_TRY(dpe_session_feed(session, tokens, chunks->end[0], NULL, err));
    int passes = 0;
    double spent = 0.0;
    while (passes < MOST_PASSES && (passes == 0 || spent < enough)) {
        DPE_TRY(time_pass(session, tokens, chunks, passes, err));
        spent += chunks->total[passes++];
    }
    double products = 0.0, attention = 0.0;
    double seconds[MOST_CHUNKS] = {0.0};
    double n = (double)chunks->end[chunks->n - 1];
    dpe_config_flops(config, 0, (int64_t)n, 0, &products, &attention);
    double ratio = attention / (n * n) / (products / n);
    for (int i = 0; i < chunks->n; i++) {
        seconds[i] = median(chunks->seconds[i], passes);
    }
    dpe_job_fit(selection, chunks->begin, chunks->end, seconds, chunks->n, least_cost * ratio,
                most_cost * ratio, &speed->per_token, &speed->per_pair);
    speed->tokens = (int64_t)n;
    speed->seconds = median(chunks->total, passes);
    speed->low = speed->high = 1.0;
    for (int i = 0; i < passes; i++) {
        speed->low = fmin(speed->low, chunks->total[i] / speed->seconds);
        speed->high = fmax(speed->high, chunks->total[i] / speed->seconds);
    }
    return DPE_OK;
}

/* Seconds until `n` tokens are made in each of the branches after what is in the cache; it is cut
 * back. */
static dpe_status time_tokens(struct dpe_session *session, const int32_t *tokens, int64_t keep,
                              int64_t branches, int64_t n, double *seconds, struct dpe_error *err)
{
    DPE_OWNED struct dpe_tokens *out = NULL;
    DPE_OWNED struct dpe_continuation *items = NULL;
    DPE_TRY(DPE_NEW(&out, (size_t)branches, err, "out of memory for an estimate"));
    DPE_TRY(DPE_NEW(&items, (size_t)branches, err, "out of memory for an estimate"));
    dpe_status status = dpe_session_branch(session, branches, ROOM, err);
    if (status == DPE_OK) {
        for (int64_t b = 0; b < branches; b++) {
            items[b] = (struct dpe_continuation){.prompt = tokens,
                                                 .n = 1,
                                                 .options = {.max_new = n, .ignore_eos = true},
                                                 .out = &out[b]};
        }
        double begin = measured_clock();
        status = dpe_session_generate_branches(session, items, branches, err);
        *seconds = measured_clock() - begin;
    }
    for (int64_t b = 0; b < branches; b++) {
        dpe_tokens_free(&out[b]);
    }
    return status == DPE_OK ? dpe_session_cut(session, keep, err) : status;
}

/* A step of all branches after `keep` tokens of the cache: what further tokens take. */
static dpe_status time_step(struct dpe_session *session, const int32_t *tokens, int64_t keep,
                            int64_t branches, double *seconds, struct dpe_error *err)
{
    enum { REPEATS = 3 };
    double steps[REPEATS];
    DPE_TRY(dpe_session_cut(session, keep, err));
    for (int i = 0; i < REPEATS; i++) {
        double first = 0.0;
        double all = 0.0;
        DPE_TRY(time_tokens(session, tokens, keep, branches, 1, &first, err));
        DPE_TRY(time_tokens(session, tokens, keep, branches, 1 + STEPS, &all, err));
        /* Where the machine was busy only during the first, their difference says nothing. */
        steps[i] = fmax((all - first) / STEPS, 0.5 * all / (1 + STEPS));
    }
    *seconds = median(steps, REPEATS);
    return DPE_OK;
}

/* Of what a step of all branches takes after a long text that they share and a short one, what
 * their contexts add. */
static dpe_status time_decoding(struct dpe_session *session, const int32_t *tokens, int64_t most,
                                struct dpe_job_speed *speed, struct dpe_error *err)
{
    const int64_t branches = dpe_session_limits(session).branches;
    const int64_t few = most / 8;
    double far = 0.0, near = 0.0;
    DPE_TRY(time_step(session, tokens, most, branches, &far, err));
    DPE_TRY(time_step(session, tokens, few, branches, &near, err));
    speed->per_step_token = fmax(far - near, 0.0) / (double)((most - few) * branches);
    speed->per_step = fmax(near - speed->per_step_token * (double)(few * branches), 0.25 * near);
    return DPE_OK;
}

int64_t dpe_job_measured_length(int64_t length)
{
    enum { SHORT = 2048, LONG = 4096 };
    return length <= SHORT ? length : length < 2 * LONG ? SHORT : LONG;
}

dpe_status dpe_job_measure(struct dpe_session *session, const struct dpe_config *config,
                           const struct dpe_selection *selection, int64_t most,
                           struct dpe_job_speed *speed, struct dpe_error *err)
{
    *speed = (struct dpe_job_speed){0};
    const struct dpe_session_limits limits = dpe_session_limits(session);
    int64_t room = limits.capacity - limits.branches * ROOM;
    room = room < limits.positions - ROOM ? room : limits.positions - ROOM;
    most = most < room ? most : room;
    if (most < 16) {
        return dpe_fail(err, DPE_USAGE, "a text of %lld tokens is too short to measure",
                        (long long)most);
    }
    DPE_OWNED int32_t *tokens = NULL;
    DPE_TRY(DPE_NEW(&tokens, (size_t)most, err, "out of memory for %lld tokens", (long long)most));
    fill_tokens(tokens, most, config->vocab);
    DPE_TRY(time_reading(session, config, selection, tokens, most, speed, err));
    return time_decoding(session, tokens, most, speed, err);
}

/* -------------------------------------------------------------------------------------- ranges */

/* Beside what the measurements differ: other texts, other plans, a warmer machine. */
static const double margin = 0.1;

void dpe_job_range_add(struct dpe_job_range *range, const struct dpe_job_speed *speed, double times,
                       double read, double pairs, double steps, double context)
{
    double reading = speed->per_token * read + speed->per_pair * pairs;
    double writing = steps * (speed->per_step + speed->per_step_token * context);
    range->low += times * (1.0 - margin) * speed->low * (reading + 0.5 * writing);
    range->high += times * (1.0 + margin) * speed->high * (reading + writing);
}

/* Two digits, downwards or upwards. */
static double two_digits(double value, bool up)
{
    double unit = pow(10.0, floor(log10(fmax(value, 1e-3))) - 1.0);
    return (up ? ceil(value / unit - 1e-9) : floor(value / unit + 1e-9)) * unit;
}

const char *dpe_job_range_text(const struct dpe_job_range *range, char text[64])
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"s", 1.0}, {"min", 60.0}, {"h", 3600.0}, {"days", 86400.0}};
    size_t unit = 0;
    if (!(range->high > 0.0) || range->high > 1e10) {
        snprintf(text, 64, "unknown");
        return text;
    }
    while (unit + 1 < sizeof units / sizeof units[0] &&
           range->high >= 1.5 * units[unit + 1].seconds) {
        unit++;
    }
    char low[24];
    char high[24];
    snprintf(low, sizeof low, "%.10g", two_digits(range->low / units[unit].seconds, false));
    snprintf(high, sizeof high, "%.10g", two_digits(range->high / units[unit].seconds, true));
    if (strcmp(low, high) == 0) {
        snprintf(text, 64, "about %s %s", low, units[unit].name);
    } else {
        snprintf(text, 64, "%s to %s %s", low, high, units[unit].name);
    }
    return text;
}

/* -------------------------------------------------------------------------------------- prices */

void dpe_price_text(const struct dpe_config *config, int64_t length, double windows, bool scored,
                    struct dpe_price *price)
{
    double n = (double)length;
    double reading = 0.0;
    *price = (struct dpe_price){
        .prompt = n * windows, .read = n * windows, .pairs = n * n * windows, .head = 1.0};
    dpe_config_flops(config, 0, length, 0, &reading, &price->attention);
    price->products = reading;
    if (scored) {
        dpe_config_flops(config, 0, length, length, &price->products, &price->attention);
        price->head = price->products / reading;
    }
    price->products *= windows;
    price->attention *= windows;
}

void dpe_price_of_answers(const struct dpe_config *config, const struct dpe_price_answers *answers,
                          struct dpe_price *price)
{
    double share = 1.0 / fmax((double)answers->samples, 1.0);
    double generated[2] = {0.0, 0.0};
    *price = (struct dpe_price){
        .prompt = (double)answers->prompts * share,
        .read = (double)answers->read * share,
        .pairs = 2.0 * answers->pairs * share,
        .room = (double)answers->room,
        .steps = (double)answers->steps * share,
        .branches = (double)answers->decoded / fmax((double)answers->steps, 1.0),
        .head = 1.0,
    };
    int64_t prompt = (int64_t)price->prompt;
    dpe_config_flops(config, 0, prompt, 1, &price->products, &price->attention);
    dpe_config_flops(config, prompt, answers->room, answers->room, &generated[0], &generated[1]);
    double whole = fmax(price->prompt * price->prompt, 1.0);
    price->products = price->products * price->read / fmax(price->prompt, 1.0) + generated[0];
    price->attention = price->attention * fmin(1.0, price->pairs / whole) + generated[1];
}

/* Of all pairs, those that a query meets under a selection. */
static double share_met(const struct dpe_price *price, const struct dpe_selection *selection)
{
    double n = fmax(price->prompt, 1.0);
    return selection != NULL && dpe_selects(selection)
               ? 2.0 * dpe_selection_work(selection, (int64_t)n) / (n * (n + 1.0))
               : 1.0;
}

void dpe_bill_add(struct dpe_bill *bill, const struct dpe_price *price, double least, double rows,
                  const struct dpe_selection *selection, const struct dpe_job_speed *speed)
{
    double met = share_met(price, selection);
    bill->rows += rows;
    bill->tokens += rows * (price->read + price->room);
    bill->products += rows * price->products;
    bill->attention += rows * price->attention * met;
    bill->untimed = bill->untimed || (rows > 0.0 && speed->tokens == 0);
    if (speed->tokens > 0) {
        struct dpe_job_range one = {0};
        dpe_job_range_add(&one, speed, 1.0, price->read * price->head, price->pairs * met,
                          price->steps, price->prompt * price->branches);
        bill->time.low += one.low * fmin(least, rows);
        bill->time.high += one.high * rows;
        bill->speed = *speed;
    }
}

void dpe_bill_sum(struct dpe_bill *bill, const struct dpe_bill *more)
{
    if (bill != NULL) {
        bill->rows += more->rows;
        bill->tokens += more->tokens;
        bill->products += more->products;
        bill->attention += more->attention;
        bill->time.low += more->time.low;
        bill->time.high += more->time.high;
        bill->untimed = bill->untimed || more->untimed;
        bill->speed = more->speed.tokens > 0 ? more->speed : bill->speed;
    }
}

void dpe_price_print(const char *name, double rows, bool most, const struct dpe_price *price)
{
    dpe_print("%-16s %s%.0f samples of %.0f tokens", name, most ? "at most " : "", rows,
              price->prompt);
    if (price->room > 0.0) {
        dpe_print(" and at most %.0f generated", price->room);
    }
    dpe_print("\n");
}

void dpe_bill_print(const struct dpe_bill *bill)
{
    dpe_print("tokens           %.4g\n", bill->tokens);
    dpe_print("operations       %.3g (matrix products %.3g, attention %.3g)\n",
              bill->products + bill->attention, bill->products, bill->attention);
}

void dpe_bill_print_time(const struct dpe_bill *bill)
{
    char text[64];
    char when[64] = "";
    if (bill->untimed || bill->speed.tokens == 0) {
        return;
    }
    if (bill->speed.when > 0) {
        const time_t seconds = (time_t)bill->speed.when;
        struct tm local;
        localtime_r(&seconds, &local);
        strftime(when, sizeof when, "; measured %Y-%m-%d %H:%M", &local);
    }
    char line[256];
    snprintf(line, sizeof line,
             "%s (%lld tokens were read in %.3g s, a decode step takes %.2g s%s)",
             dpe_job_range_text(&bill->time, text), (long long)bill->speed.tokens,
             bill->speed.seconds, bill->speed.per_step, when);
    dpe_print("time             %s\n", line);
}

dpe_status dpe_price_print_memory(const struct dpe_job *job, const struct dpe_plan *plan,
                                  int64_t capacity, const char *before, struct dpe_error *err)
{
    const struct dpe_session_options options = dpe_job_session_options(job, capacity);
    struct dpe_session_needs needs = {0};
    char text[DPE_JOB_MEMORY];
    DPE_TRY(dpe_session_estimate(dpe_model_config(job->model), plan, &options, &needs, err));
    dpe_print("memory           %s%s\n", before, dpe_job_memory_text(job, &needs, text));
    return DPE_OK;
}
