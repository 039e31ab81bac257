/**
 * @file plan_cases.h
 * Plans for tests of attention: every method of the plan language and shapes that no method has,
 * all with their edges at a given window.
 *
 * Include after cmocka.h and what it needs.
 */
#ifndef DPE_PLAN_CASES_H
#define DPE_PLAN_CASES_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"

/* %d is the window (dca: its chunk less local). A leading '*' stands for a random mask. */
static const char *const plan_cases[] = {
    "rope",
    "*dpe:window=%d,scales=1/2/3.5/8",
    "dca:%d",
    "pi:scale=4",
    "yarn:scale=8",
    "rerope:window=%d",
    "leaky-rerope:window=%d,scale=3",
    "self-extend:window=%d,group=3",
    "string:shift=%d,window=3",
    "streaming-llm:sinks=4,window=%d",
    "lm-infinite:sinks=10,window=%d",
    "holes", /* a band that begins below the diagonal: first rows see nothing, others a stripe */
    "*four", /* four bands of three kinds, two of them per head */
    "*dpe:window=%d,scales=1/2/3.5/8,log-n=30,log-n-power=0.6,logit-scale=1.3,far-scale=0.9",
    "string:shift=%d,window=3,infoscale=24",
    "*chunks-around", /* chunks with a window cut out of them and a key range before it */
    "lampe:window=%d,tail=200,map=100,logit-scale=1.2",
    "adagrope:first=%d,reuse=1.75,log-n=30",
    "dope:heads=0,from=2",
    "self:window=%d,group=6,rate=0.2",
    "jetlong_freq:window=%d,scale=5,log-n=30",
    "self-extend:window=%d,group=3,log-n=30,logit-scale-last=0.75,logit-scale-heads=0.0:0.5/"
    "0.1:1.75",
};
enum { PLAN_CASES = sizeof plan_cases / sizeof plan_cases[0] };

static void plan_case_band(struct dpe_plan *plan, enum dpe_band_kind kind, int64_t lo, int64_t hi,
                           double scale, bool per_head)
{
    struct dpe_band *band = &plan->bands[plan->n_bands++];
    band->kind = kind;
    band->lo = lo;
    band->hi = hi;
    band->per_head = per_head;
    band->q.floored = band->k.floored = true;
    for (int64_t j = 0; j < plan->n_pairs; j++) {
        band->q.scale[j] = band->k.scale[j] = scale;
        band->q.offset[j] = (double)(j % 3);
    }
}

static void plan_case_mask(struct dpe_plan *plan)
{
    int64_t n = plan->n_layers * plan->n_heads * plan->n_pairs;
    free(plan->mask);
    plan->mask = malloc((size_t)n);
    assert_non_null(plan->mask);
    for (int64_t i = 0; i < n; i++) {
        plan->mask[i] = (uint8_t)((uint64_t)(i + 1) * 0x9e3779b97f4a7c15U >> 63);
    }
}

static void plan_case_by_hand(const char *name, int64_t w, const struct dpe_config *config,
                              struct dpe_plan *plan)
{
    struct dpe_error err = {0};
    assert_int_equal(
        dpe_plan_init(plan, config->head_dim / 2, config->n_layers, config->n_heads, &err), DPE_OK);
    for (int64_t j = 0; j < plan->n_pairs; j++) {
        plan->inv_freq[j] = pow(1000.0, -(double)j / (double)plan->n_pairs);
    }
    plan->temperature.logit_scale = 1.25;
    snprintf(plan->name, sizeof plan->name, "%s", name);
    if (name[0] == 'h') {
        plan_case_band(plan, DPE_BAND_DISTANCE, w, 3 * w, 1.0, false);
    } else if (name[0] == 'f') {
        plan->chunk = w;
        plan->temperature.far_scale = 0.8;
        plan_case_band(plan, DPE_BAND_DISTANCE, 0, w, 1.0, false);
        plan_case_band(plan, DPE_BAND_KEY, 3, 9, 2.0, false);
        plan_case_band(plan, DPE_BAND_CHUNK, 2, 4, 3.0, true);
        plan_case_band(plan, DPE_BAND_DISTANCE, 2 * w, INT64_MAX, 4.0, true);
    } else {
        plan->chunk = w;
        plan->temperature.log_n_length = 20.0;
        plan->temperature.depth[0] = 0.75;
        plan->temperature.depth[1] = 1.5;
        plan->temperature.far_scale = 1.3;
        plan_case_band(plan, DPE_BAND_KEY, w / 2, w + 3, 1.0, false);
        plan_case_band(plan, DPE_BAND_DISTANCE, w / 3 + 1, w / 2 + 2, 2.0, false);
        plan_case_band(plan, DPE_BAND_CHUNK, 0, 2, INFINITY, true);
    }
}

/** Case i (0 … PLAN_CASES−1) with window `w` ≥ 2 (chunk, shift …); freed with dpe_plan_free.
 *  `config` needs n_layers, n_heads, head_dim and rope. */
static void plan_case_make(int i, int64_t w, const struct dpe_config *config, struct dpe_plan *plan)
{
    const char *line = plan_cases[i];
    bool masked = line[0] == '*';
    line += masked ? 1 : 0;
    char spec[128];
    struct dpe_error err = {0};
    const char *at = strstr(line, "%d");
    snprintf(spec, sizeof spec, "%s", line);
    if (strncmp(line, "dca", 3) == 0) {
        snprintf(spec, sizeof spec, "dca:chunk=%d,local=%d", (int)(w + w / 3), (int)(w / 3));
    } else if (at != NULL) {
        snprintf(spec, sizeof spec, "%.*s%d%s", (int)(at - line), line, (int)w, at + 2);
    }
    const struct dpe_plan_context context = {
        .config = config, .trained_length = 64, .length = 512, .official = true};
    bool by_hand = strchr(spec, ':') == NULL && strcmp(spec, "rope") != 0;
    if (by_hand) {
        plan_case_by_hand(line, w, config, plan);
    } else if (dpe_plan_make(spec, &context, plan, &err) != DPE_OK) {
        fail_msg("%s: %s", spec, err.text);
    }
    for (int b = 1; b < plan->n_bands && masked && !by_hand; b++) {
        plan->bands[b].per_head = true;
    }
    if (masked) {
        plan_case_mask(plan);
    }
    if (dpe_plan_check(plan, &err) != DPE_OK) {
        fail_msg("%s: %s", spec, err.text);
    }
}

#endif
