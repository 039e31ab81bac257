/* What rows cost. */
#include "outputs/job/price.h"

#include "engine/tool/tool.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

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

void dpe_bill_measure(struct dpe_bill *bill, const struct dpe_job *job, const struct dpe_plan *plan,
                      int64_t length, struct dpe_job_speed *speed)
{
    struct dpe_error why = {0};
    fflush(stdout);
    *speed = (struct dpe_job_speed){0};
    if (dpe_job_measure_here(job, plan, length, speed, &why) != DPE_OK) {
        if (!bill->untimed && !job->options->silent) {
            dpe_print("time             not measured: %s\n", why.text);
        }
        *speed = (struct dpe_job_speed){0};
        bill->untimed = true;
    }
}
