/* The attention temperature: what makes one valid, its factor, and its one canonical text. */
#include "engine/plan/fields.h"
#include "engine/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool dpe_temperature_is_none(const struct dpe_temperature *temperature)
{
    bool none = temperature->n_heads == 0;
    for (size_t i = 0; i < dpe_temperature_numbers.n; i++) {
        none = none && !dpe_number_says(&dpe_temperature_numbers.of[i], temperature);
    }
    return none;
}

dpe_status dpe_temperature_check(const struct dpe_temperature *temperature, struct dpe_error *err)
{
    DPE_TRY(dpe_numbers_check(&dpe_temperature_numbers, temperature, err));
    for (int i = 0; i < temperature->n_heads; i++) {
        const struct dpe_head_factor *at = &temperature->heads[i];
        if (!(at->factor > 0.0 && at->factor <= DPE_MOST_LOGIT_SCALE)) {
            return dpe_fail(
                err, DPE_USAGE,
                "logit-scale-heads: expected a number above 0, at most %g, found %g for head %d of "
                "layer %d",
                DPE_MOST_LOGIT_SCALE, at->factor, at->head, at->layer);
        }
    }
    return DPE_OK;
}

/* ln x, or with a decay the 1 - x^-B that takes its place. */
static double grown(double decay, double x)
{
    return decay > 0.0 ? -expm1(-decay * log(x)) : log(x);
}

double dpe_temperature_factor(const struct dpe_temperature *temperature, int64_t m)
{
    double length = temperature->log_n_length;
    if (!(length > 0.0)) {
        return 1.0;
    }
    double decay = temperature->log_n_decay;
    double ratio = grown(decay, (double)m + 1.0) / grown(decay, length);
    return pow(fmax(1.0, ratio), temperature->log_n_power);
}

double dpe_temperature_depth(const struct dpe_temperature *temperature, int64_t layer,
                             int64_t n_layers)
{
    const double *d = temperature->depth;
    double t = n_layers > 1 ? (double)layer / (double)(n_layers - 1) : 0.0;
    return dpe_temperature_is_level(temperature)
               ? 1.0
               : (1.0 - t) * (1.0 - t) * d[0] + 2.0 * t * (1.0 - t) * d[1] + t * t * d[2];
}

static int place(const struct dpe_temperature *temperature, int64_t layer, int64_t head)
{
    int at = 0;
    while (at < temperature->n_heads &&
           (temperature->heads[at].layer < layer ||
            (temperature->heads[at].layer == layer && temperature->heads[at].head < head))) {
        at++;
    }
    return at;
}

static bool is_named(const struct dpe_temperature *temperature, int at, int64_t layer, int64_t head)
{
    return at < temperature->n_heads && temperature->heads[at].layer == layer &&
           temperature->heads[at].head == head;
}

double dpe_temperature_head(const struct dpe_temperature *temperature, int64_t layer, int64_t head)
{
    const int at = place(temperature, layer, head);
    return is_named(temperature, at, layer, head) ? temperature->heads[at].factor : 1.0;
}

bool dpe_temperature_set_head(struct dpe_temperature *temperature, int64_t layer, int64_t head,
                              double factor)
{
    const int at = place(temperature, layer, head);
    const bool named = is_named(temperature, at, layer, head);
    struct dpe_head_factor *const here = temperature->heads + at;
    const size_t after = (size_t)(temperature->n_heads - at);
    if (factor == 1.0 && named) {
        memmove(here, here + 1, (after - 1) * sizeof *here);
        temperature->heads[--temperature->n_heads] = (struct dpe_head_factor){0};
    } else if (factor != 1.0 && !named) {
        if (temperature->n_heads == DPE_HEAD_FACTORS) {
            return false;
        }
        memmove(here + 1, here, after * sizeof *here);
        temperature->n_heads++;
    }
    if (factor != 1.0) {
        *here = (struct dpe_head_factor){(int32_t)layer, (int32_t)head, factor};
    }
    return true;
}

static void put(char text[DPE_TEMPERATURE_TEXT], const char *key, double value)
{
    char number[32];
    dpe_append(text, DPE_TEMPERATURE_TEXT, "%s%s=%s", text[0] != '\0' ? "," : "", key,
               dpe_number_exact(value, number));
}

void dpe_temperature_text(const struct dpe_temperature *temperature,
                          char text[DPE_TEMPERATURE_TEXT])
{
    text[0] = '\0';
    const struct dpe_numbers *numbers = &dpe_temperature_numbers;
    for (const struct dpe_number *at = numbers->of; at < numbers->of + numbers->n; at++) {
        if (dpe_number_says(at, temperature)) {
            put(text, at->key, dpe_number_get(at, temperature));
        }
    }
    for (int i = 0; i < temperature->n_heads; i++) {
        const struct dpe_head_factor *at = &temperature->heads[i];
        char number[32];
        dpe_append(text, DPE_TEMPERATURE_TEXT, "%s%d.%d:%s",
                   i > 0             ? "/"
                   : text[0] != '\0' ? ",logit-scale-heads="
                                     : "logit-scale-heads=",
                   at->layer, at->head, dpe_number_exact(at->factor, number));
    }
    dpe_append(text, DPE_TEMPERATURE_TEXT, "%s", text[0] == '\0' ? "off" : "");
}

dpe_status dpe_plan_set_temperature(struct dpe_plan *plan,
                                    const struct dpe_temperature *temperature,
                                    struct dpe_error *err)
{
    DPE_TRY(dpe_temperature_check(temperature, err));
    const struct dpe_numbers *numbers = &dpe_temperature_numbers;
    struct dpe_temperature had = plan->temperature;
    plan->temperature = *temperature;
    for (const struct dpe_number *at = numbers->of; at < numbers->of + numbers->n; at++) {
        if ((at->is & DPE_NUMBER_TIMES) != 0) {
            *dpe_number_real(at, &plan->temperature) *= *dpe_number_real(at, &had);
        }
    }
    return DPE_OK;
}
