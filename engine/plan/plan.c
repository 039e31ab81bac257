/* The plan as data: making room, copying, checking, hashing. */
#include "engine/plan/plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/bytes.h"
#include "engine/plan/fields.h"

/* Offsets and caps beyond this are not positions; it also keeps every sum exact in double. */
static const double MAX_OFFSET = 0x1p40;

static size_t block_size(int64_t n_pairs)
{
    return (size_t)n_pairs * (1 + 4 * DPE_MAX_BANDS);
}

/* A plan's arrays lie in one block: its frequencies, and of each band the scales and offsets of
 * both sides. */
static void place_arrays(struct dpe_plan *plan, double *block)
{
    plan->inv_freq = block;
    for (int b = 0; b < DPE_MAX_BANDS; b++) {
        double *of_band = block + (1 + 4 * b) * plan->n_pairs;
        plan->bands[b].q.scale = of_band;
        plan->bands[b].q.offset = of_band + plan->n_pairs;
        plan->bands[b].k.scale = of_band + 2 * plan->n_pairs;
        plan->bands[b].k.offset = of_band + 3 * plan->n_pairs;
    }
}

dpe_status dpe_plan_init(struct dpe_plan *plan, int64_t n_pairs, int64_t n_layers, int64_t n_heads,
                         struct dpe_error *err)
{
    *plan = (struct dpe_plan){
        .n_pairs = n_pairs, .n_layers = n_layers, .n_heads = n_heads, .n_bands = 1};
    DPE_TRY(dpe_numbers_check(&dpe_plan_numbers, plan, err));
    plan->n_bands = 0;
    plan->temperature = dpe_temperature_none;
    double *block = NULL;
    DPE_TRY(DPE_NEW(&block, block_size(n_pairs), err, "plan: out of memory for %" PRId64 " pairs",
                    n_pairs));
    place_arrays(plan, block);
    for (int b = 0; b < DPE_MAX_BANDS; b++) {
        struct dpe_position_map *sides[2] = {&plan->bands[b].q, &plan->bands[b].k};
        for (int side = 0; side < 2; side++) {
            sides[side]->period = sides[side]->cap = INFINITY;
            for (int64_t j = 0; j < n_pairs; j++) {
                sides[side]->scale[j] = 1.0;
            }
        }
    }
    return DPE_OK;
}

dpe_status dpe_plan_init_for(struct dpe_plan *plan, const struct dpe_config *config,
                             struct dpe_error *err)
{
    DPE_TRY(dpe_plan_init(plan, config->head_dim / 2, config->n_layers, config->n_heads, err));
    plan->n_still = plan->n_pairs - dpe_config_pairs(config);
    plan->attention_multiplier = config->attention_multiplier;
    plan->attention_cap = config->attention_cap;
    plan->query_growth =
        config->growth_still && !dpe_config_stands(config) ? 0.0 : config->query_growth;
    plan->query_length = config->query_length;
    plan->query_from = config->query_from;
    plan->selection = config->selection;
    return DPE_OK;
}

dpe_status dpe_plan_copy(struct dpe_plan *to, const struct dpe_plan *from, struct dpe_error *err)
{
    DPE_SCOPED(dpe_plan_free) struct dpe_plan copy = {0};
    DPE_TRY(dpe_plan_init(&copy, from->n_pairs, from->n_layers, from->n_heads, err));
    double *block = copy.inv_freq;
    memcpy(block, from->inv_freq, block_size(from->n_pairs) * sizeof *block);
    copy = *from;
    copy.mask = NULL;
    place_arrays(&copy, block);
    DPE_TRY(from->mask != NULL ? dpe_plan_set_mask(&copy, from->mask, err) : DPE_OK);
    *to = copy;
    copy = (struct dpe_plan){0};
    return DPE_OK;
}

dpe_status dpe_plan_mask_ranked(const uint16_t *ranking, int64_t n_rows, int64_t n_pairs, int64_t k,
                                bool last, uint8_t *mask, struct dpe_error *err)
{
    int64_t begin = last ? n_pairs - k : 0;
    memset(mask, 0, (size_t)(n_rows * n_pairs));
    for (int64_t row = 0; row < n_rows; row++) {
        for (int64_t i = begin; i < begin + k; i++) {
            uint16_t pair = ranking[row * n_pairs + i];
            if (pair >= n_pairs) {
                return dpe_fail(err, DPE_BAD_DATA,
                                "a ranking of key pairs holds pair %d; expected 0 to %lld", pair,
                                (long long)n_pairs - 1);
            }
            mask[row * n_pairs + pair] = 1;
        }
    }
    return DPE_OK;
}

/* Three sides of at most 2^20 each: the product fits. */
static size_t mask_bytes(const struct dpe_plan *plan)
{
    return (size_t)plan->n_layers * (size_t)plan->n_heads * (size_t)plan->n_pairs;
}

dpe_status dpe_plan_set_mask(struct dpe_plan *plan, const uint8_t *mask, struct dpe_error *err)
{
    size_t n = mask_bytes(plan);
    uint8_t *own = NULL;
    DPE_TRY(DPE_NEW(&own, n, err, "plan: out of memory for a mask of %zu bytes", n));
    memcpy(own, mask, n);
    free(plan->mask);
    plan->mask = own;
    return DPE_OK;
}

dpe_status dpe_plan_slice(const struct dpe_plan *plan, int index, int size, struct dpe_plan *slice,
                          struct dpe_error *err)
{
    struct dpe_plan whole = *plan;
    whole.n_heads /= size;
    whole.mask = NULL;
    whole.temperature.n_heads = 0;
    for (int i = 0; i < plan->temperature.n_heads; i++) {
        const struct dpe_head_factor *at = &plan->temperature.heads[i];
        if (at->head / whole.n_heads == index) {
            dpe_temperature_set_head(&whole.temperature, at->layer, at->head % whole.n_heads,
                                     at->factor);
        }
    }
    DPE_TRY(dpe_plan_copy(slice, &whole, err));
    if (plan->mask == NULL) {
        return DPE_OK;
    }
    size_t from = (size_t)(plan->n_heads * plan->n_pairs);
    size_t to = (size_t)(slice->n_heads * plan->n_pairs);
    slice->mask = dpe_alloc((size_t)plan->n_layers, to);
    if (slice->mask == NULL) {
        dpe_plan_free(slice);
        return dpe_fail(err, DPE_NO_MEMORY, "plan: out of memory for a mask");
    }
    for (size_t layer = 0; layer < (size_t)plan->n_layers; layer++) {
        memcpy(slice->mask + layer * to, plan->mask + layer * from + (size_t)index * to, to);
    }
    return DPE_OK;
}

void dpe_plan_free(struct dpe_plan *plan)
{
    free(plan->inv_freq);
    free(plan->mask);
    memset(plan, 0, sizeof *plan);
}

static dpe_status check_map(const struct dpe_plan *plan, const struct dpe_position_map *map,
                            struct dpe_error *err)
{
    DPE_TRY(dpe_numbers_check(&dpe_map_numbers, map, err));
    for (int64_t j = 0; j < plan->n_pairs; j++) {
        if (!(map->scale[j] >= 1.0 && fabs(map->offset[j]) <= MAX_OFFSET)) {
            return dpe_fail(err, DPE_USAGE,
                            "pair %" PRId64 ": expected a scale of at least 1 and an offset of at "
                            "most %g tokens, found %g and %g",
                            j, MAX_OFFSET, map->scale[j], map->offset[j]);
        }
    }
    return DPE_OK;
}

static dpe_status check_band(const struct dpe_plan *plan, int b, struct dpe_error *err)
{
    const struct dpe_band *band = &plan->bands[b];
    DPE_TRY(dpe_numbers_check(&dpe_band_numbers, band, err));
    if (band->lo >= band->hi) {
        return dpe_fail(err, DPE_USAGE, "expected lo < hi, found lo %" PRId64 ", hi %" PRId64,
                        band->lo, band->hi);
    }
    if (band->kind == DPE_BAND_CHUNK && plan->chunk < 1) {
        return dpe_fail(err, DPE_USAGE,
                        "goes by chunks: expected a chunk of at least 1, found %" PRId64,
                        plan->chunk);
    }
    if (b == 0 && band->per_head) {
        return dpe_fail(err, DPE_USAGE,
                        "cannot be per head: pairs outside the mask use the maps of band 0");
    }
    const struct dpe_position_map *const maps[] = {&band->q, &band->k};
    for (int side = 0; side < 2; side++) {
        if (check_map(plan, maps[side], err) != DPE_OK) {
            return dpe_fail_prefix(err, side == 0 ? "queries" : "keys");
        }
    }
    return DPE_OK;
}

static dpe_status check_mask(const struct dpe_plan *plan, struct dpe_error *err)
{
    size_t n = mask_bytes(plan);
    for (size_t i = 0; plan->mask != NULL && i < n; i++) {
        if (plan->mask[i] > 1) {
            return dpe_fail(err, DPE_USAGE, "mask element %zu: expected 0 or 1, found %d", i,
                            plan->mask[i]);
        }
    }
    return DPE_OK;
}

/* Those of the pairs that do not rotate are 0; of the others too, where a method takes the position
 * from a pair (CoPE). */
static dpe_status check_frequencies(const struct dpe_plan *plan, struct dpe_error *err)
{
    if (plan->n_still < 0 || plan->n_still > plan->n_pairs) {
        return dpe_fail(err, DPE_USAGE,
                        "expected 0 to %" PRId64 " pairs that do not rotate, found %" PRId64,
                        plan->n_pairs, plan->n_still);
    }
    for (int64_t j = 0; j < plan->n_pairs; j++) {
        bool rotates = j < plan->n_pairs - plan->n_still;
        bool good = rotates ? plan->inv_freq[j] >= 0.0 && isfinite(plan->inv_freq[j])
                            : plan->inv_freq[j] == 0.0;
        if (!good) {
            return dpe_fail(err, DPE_USAGE, "pair %" PRId64 ": expected %s, found %g", j,
                            rotates ? "a frequency of at least 0" : "no frequency",
                            plan->inv_freq[j]);
        }
    }
    return DPE_OK;
}

/* A method's own factor has no bound, as a temperature's has. */
static dpe_status check_temperature(const struct dpe_plan *plan, struct dpe_error *err)
{
    struct dpe_temperature temperature = plan->temperature;
    if (temperature.logit_scale > 0.0 && isfinite(temperature.logit_scale)) {
        temperature.logit_scale = 1.0;
    }
    DPE_TRY(dpe_temperature_check(&temperature, err));
    if (plan->n_bands < 2 && temperature.far_scale != 1.0) {
        return dpe_fail(err, DPE_USAGE,
                        "far-scale: expected a plan that gives far keys positions of their own, as "
                        "dpe does, found one that rotates all keys alike");
    }
    for (int i = 0; i < temperature.n_heads; i++) {
        const struct dpe_head_factor *at = &temperature.heads[i];
        if (at->layer >= plan->n_layers || at->head >= plan->n_heads) {
            return dpe_fail(err, DPE_USAGE,
                            "logit-scale-heads: expected a layer below %" PRId64
                            " and a head below %" PRId64 ", found %d.%d",
                            plan->n_layers, plan->n_heads, at->layer, at->head);
        }
    }
    return DPE_OK;
}

static dpe_status check_parts(const struct dpe_plan *plan, struct dpe_error *err)
{
    DPE_TRY(dpe_numbers_check(&dpe_plan_numbers, plan, err));
    DPE_TRY(check_frequencies(plan, err));
    DPE_TRY(check_temperature(plan, err));
    for (int b = 0; b < plan->n_bands; b++) {
        if (check_band(plan, b, err) != DPE_OK) {
            return dpe_fail_prefix(err, "band %d", b);
        }
    }
    DPE_TRY(dpe_selection_check(&plan->selection, err));
    return check_mask(plan, err);
}

dpe_status dpe_plan_check(const struct dpe_plan *plan, struct dpe_error *err)
{
    const dpe_status status =
        plan->inv_freq != NULL ? check_parts(plan, err)
                               : dpe_fail(err, DPE_USAGE, "expected one that was made, found none");
    return status == DPE_OK ? DPE_OK : dpe_fail_prefix(err, "plan");
}

static void hash_f64(struct dpe_sha256 *hash, double value)
{
    uint64_t bits = 0;
    value = value == 0.0 ? 0.0 : value; /* −0 means what 0 means */
    uint8_t bytes[8];
    memcpy(&bits, &value, sizeof bits);
    dpe_store_u64(bytes, bits, sizeof bytes);
    dpe_sha256_add(hash, bytes, sizeof bytes);
}

/* What changes nothing is left out, so a number that a later version adds changes no digest of a
 * plan without it. */
static void hash_numbers(struct dpe_sha256 *hash, const char *what,
                         const struct dpe_numbers *numbers, const void *of)
{
    dpe_sha256_add(hash, what, strlen(what) + 1);
    for (const struct dpe_number *at = numbers->of; at < numbers->of + numbers->n; at++) {
        if (dpe_number_says(at, of)) {
            dpe_sha256_add(hash, at->name, strlen(at->name) + 1);
            hash_f64(hash, dpe_number_get(at, of));
        }
    }
}

static void hash_list(struct dpe_sha256 *hash, const double *values, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        hash_f64(hash, values[j]);
    }
}

static void hash_band(struct dpe_sha256 *hash, const struct dpe_plan *plan, int b, bool masked)
{
    struct dpe_band band = plan->bands[b];
    const struct dpe_position_map *const maps[] = {&band.q, &band.k};
    band.per_head = band.per_head && masked;
    hash_numbers(hash, "band", &dpe_band_numbers, &band);
    hash_f64(hash, band.kind == DPE_BAND_CHUNK ? (double)plan->chunk : 0.0);
    for (int side = 0; side < 2; side++) {
        hash_numbers(hash, "map", &dpe_map_numbers, maps[side]);
        hash_list(hash, maps[side]->scale, plan->n_pairs);
        hash_list(hash, maps[side]->offset, plan->n_pairs);
    }
}

/* A mask that no band uses, or that holds only ones, has the same meaning as no mask. */
static bool mask_matters(const struct dpe_plan *plan)
{
    bool asked = false;
    for (int b = 0; b < plan->n_bands; b++) {
        asked = asked || plan->bands[b].per_head;
    }
    return asked && plan->mask != NULL && memchr(plan->mask, 0, mask_bytes(plan)) != NULL;
}

static void hash_selection(struct dpe_sha256 *hash, const struct dpe_selection *s)
{
    const int64_t numbers[] = {s->block,    s->sinks,     s->local,   s->k,     s->refresh,
                               s->attended, s->last,      s->slashes, s->first, s->representative,
                               s->unit,     s->positions, s->scored};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        hash_f64(hash, (double)numbers[i]);
    }
}

dpe_status dpe_plan_digest(const struct dpe_plan *plan, char digest[65], struct dpe_error *err)
{
    const struct dpe_temperature *t = &plan->temperature;
    const bool masked = mask_matters(plan);
    struct dpe_sha256 *hash = dpe_sha256_new();
    hash_numbers(hash, "dpe plan 2", &dpe_plan_numbers, plan);
    hash_list(hash, plan->inv_freq, plan->n_pairs);
    hash_numbers(hash, "temperature", &dpe_temperature_numbers, t);
    for (int i = 0; i < t->n_heads; i++) {
        hash_f64(hash, t->heads[i].layer);
        hash_f64(hash, t->heads[i].head);
        hash_f64(hash, t->heads[i].factor);
    }
    for (int b = 0; b < plan->n_bands; b++) {
        hash_band(hash, plan, b, masked);
    }
    if (masked) {
        dpe_sha256_add(hash, plan->mask, mask_bytes(plan));
    }
    if (dpe_selects(&plan->selection)) {
        hash_selection(hash, &plan->selection);
    }
    return dpe_sha256_finish(hash, digest, err);
}

dpe_status dpe_plan_key(const struct dpe_plan *plan, char key[33], struct dpe_error *err)
{
    char digest[65];
    DPE_TRY(dpe_plan_digest(plan, digest, err));
    snprintf(key, 33, "%.32s", digest);
    return DPE_OK;
}
