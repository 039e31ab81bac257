/* The plan as data: making room, copying, checking, hashing. */
#include "engine/plan/plan.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/bytes.h"

enum { MAX_PLAN_SIDE = 1 << 20 };

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
    memset(plan, 0, sizeof *plan);
    if (n_pairs < 1 || n_layers < 1 || n_heads < 1 || n_pairs > MAX_PLAN_SIDE ||
        n_layers > MAX_PLAN_SIDE || n_heads > MAX_PLAN_SIDE) {
        return dpe_fail(err, DPE_USAGE,
                        "plan: expected 1 to %d pairs, layers and heads, found %" PRId64
                        ", %" PRId64 ", %" PRId64,
                        MAX_PLAN_SIDE, n_pairs, n_layers, n_heads);
    }
    double *block = NULL;
    DPE_TRY(DPE_NEW(&block, block_size(n_pairs), err, "plan: out of memory for %" PRId64 " pairs",
                    n_pairs));
    plan->n_pairs = n_pairs;
    plan->n_layers = n_layers;
    plan->n_heads = n_heads;
    plan->temperature = dpe_temperature_none;
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
    plan->query_growth = config->query_growth;
    plan->query_length = config->query_length;
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
    if (plan != NULL) {
        free(plan->inv_freq);
        free(plan->mask);
        memset(plan, 0, sizeof *plan);
    }
}

static dpe_status check_map(const struct dpe_plan *plan, int band, const char *side,
                            const struct dpe_position_map *map, struct dpe_error *err)
{
    bool whole =
        isinf(map->period) || (map->period == floor(map->period) && map->period <= MAX_OFFSET);
    if (!(map->period >= 1.0) || !whole) {
        return dpe_fail(err, DPE_USAGE,
                        "plan: band %d, %s: expected a period that is a whole number of tokens or "
                        "infinite, found %g",
                        band, side, map->period);
    }
    if (isnan(map->cap) || map->cap < -MAX_OFFSET ||
        (isfinite(map->cap) && map->cap > MAX_OFFSET)) {
        return dpe_fail(
            err, DPE_USAGE,
            "plan: band %d, %s: expected a cap of at most %g tokens or infinite, found %g", band,
            side, MAX_OFFSET, map->cap);
    }
    bool groups = map->group_most >= 2.0 && map->group_most <= 0x1p20 && map->group_rate > 0.0 &&
                  map->group_rate <= 1e6 && map->group_most == floor(map->group_most) &&
                  map->group_from >= 0.0 && map->group_from <= MAX_OFFSET &&
                  map->group_from == floor(map->group_from);
    if (map->group_most != 0.0 && !groups) {
        return dpe_fail(err, DPE_USAGE,
                        "plan: band %d, %s: expected groups that grow at a rate above 0 to a whole "
                        "number from 2 "
                        "on, from a token on, found %g, %g and %g",
                        band, side, map->group_rate, map->group_most, map->group_from);
    }
    for (int64_t j = 0; j < plan->n_pairs; j++) {
        if (!(map->scale[j] >= 1.0)) {
            return dpe_fail(err, DPE_USAGE,
                            "plan: band %d, %s, pair %" PRId64
                            ": expected a scale of at least 1, found %g",
                            band, side, j, map->scale[j]);
        }
        if (!(fabs(map->offset[j]) <= MAX_OFFSET)) {
            return dpe_fail(err, DPE_USAGE,
                            "plan: band %d, %s, pair %" PRId64
                            ": expected an offset of at most %g tokens, found %g",
                            band, side, j, MAX_OFFSET, map->offset[j]);
        }
    }
    return DPE_OK;
}

/* The exact form is ⌊(Δ − lo)/s⌋ + lo; a band whose separable maps mean something else has none. */
static bool has_exact_form(const struct dpe_plan *plan, const struct dpe_band *band)
{
    if (band->kind != DPE_BAND_DISTANCE || isfinite(band->q.period) || isfinite(band->k.period) ||
        isfinite(band->q.cap) || isfinite(band->k.cap) || band->q.group_most > 0.0 ||
        band->k.group_most > 0.0) {
        return false;
    }
    double lo = (double)band->lo;
    for (int64_t j = 0; j < plan->n_pairs; j++) {
        double s = band->q.scale[j];
        bool whole = s == 1.0 || isinf(s) || (band->q.floored && band->k.floored);
        if (!whole || band->k.scale[j] != s || band->k.offset[j] != 0.0 ||
            band->q.offset[j] != lo - floor(lo / s)) {
            return false;
        }
    }
    return true;
}

static dpe_status check_band(const struct dpe_plan *plan, int b, struct dpe_error *err)
{
    const struct dpe_band *band = &plan->bands[b];
    if (band->kind != DPE_BAND_DISTANCE && band->kind != DPE_BAND_CHUNK &&
        band->kind != DPE_BAND_KEY) {
        return dpe_fail(err, DPE_USAGE, "plan: band %d: unknown kind %d", b, (int)band->kind);
    }
    if (band->lo < 0 || band->lo >= band->hi) {
        return dpe_fail(err, DPE_USAGE,
                        "plan: band %d: expected 0 ≤ lo < hi, found lo %" PRId64 ", hi %" PRId64, b,
                        band->lo, band->hi);
    }
    if (band->kind == DPE_BAND_CHUNK && plan->chunk < 1) {
        return dpe_fail(err, DPE_USAGE,
                        "plan: band %d goes by chunks: expected a chunk of at least 1, found "
                        "%" PRId64,
                        b, plan->chunk);
    }
    if (b == 0 && band->per_head) {
        return dpe_fail(err, DPE_USAGE,
                        "plan: band 0 cannot be per head: pairs outside the mask use its maps");
    }
    if (plan->exact && !has_exact_form(plan, band)) {
        return dpe_fail(
            err, DPE_USAGE,
            "plan: band %d does not have an exact form: expected a band by distance with the "
            "maps ⌊m/s⌋ + w − ⌊w/s⌋ and ⌊n/s⌋",
            b);
    }
    DPE_TRY(check_map(plan, b, "queries", &band->q, err));
    return check_map(plan, b, "keys", &band->k, err);
}

static dpe_status check_mask(const struct dpe_plan *plan, struct dpe_error *err)
{
    size_t n = mask_bytes(plan);
    for (size_t i = 0; plan->mask != NULL && i < n; i++) {
        if (plan->mask[i] > 1) {
            return dpe_fail(err, DPE_USAGE, "plan: mask element %zu: expected 0 or 1, found %d", i,
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
                        "plan: expected 0 to %" PRId64 " pairs that do not rotate, found %" PRId64,
                        plan->n_pairs, plan->n_still);
    }
    for (int64_t j = 0; j < plan->n_pairs; j++) {
        bool rotates = j < plan->n_pairs - plan->n_still;
        bool good = rotates ? plan->inv_freq[j] >= 0.0 && isfinite(plan->inv_freq[j])
                            : plan->inv_freq[j] == 0.0;
        if (!good) {
            return dpe_fail(err, DPE_USAGE, "plan: pair %" PRId64 ": expected %s, found %g", j,
                            rotates ? "a frequency of at least 0" : "no frequency",
                            plan->inv_freq[j]);
        }
    }
    return DPE_OK;
}

dpe_status dpe_plan_check(const struct dpe_plan *plan, struct dpe_error *err)
{
    if (plan->inv_freq == NULL || plan->n_pairs < 1 || plan->n_pairs > MAX_PLAN_SIDE ||
        plan->n_layers < 1 || plan->n_layers > MAX_PLAN_SIDE || plan->n_heads < 1 ||
        plan->n_heads > MAX_PLAN_SIDE || plan->n_bands < 1 || plan->n_bands > DPE_MAX_BANDS) {
        return dpe_fail(
            err, DPE_USAGE,
            "plan: expected pairs, layers and heads (up to %d) and 1 to %d bands, found "
            "%" PRId64 ", %" PRId64 ", %" PRId64 " and %d",
            MAX_PLAN_SIDE, DPE_MAX_BANDS, plan->n_pairs, plan->n_layers, plan->n_heads,
            plan->n_bands);
    }
    DPE_TRY(check_frequencies(plan, err));
    if (!(plan->temperature.logit_scale > 0.0) || isinf(plan->temperature.logit_scale)) {
        return dpe_fail(err, DPE_USAGE, "plan: expected a positive logit factor, found %g",
                        plan->temperature.logit_scale);
    }
    struct dpe_temperature temperature = plan->temperature;
    temperature.logit_scale = 1.0; /* a method's own factor has no bound */
    dpe_status status = dpe_temperature_check(&temperature, err);
    if (status != DPE_OK) {
        dpe_fail_prefix(err, "plan");
        return status;
    }
    for (int i = 0; i < plan->temperature.n_heads; i++) {
        const struct dpe_head_factor *at = &plan->temperature.heads[i];
        if (at->layer >= plan->n_layers || at->head >= plan->n_heads) {
            return dpe_fail(err, DPE_USAGE,
                            "logit-scale-heads: expected a layer below %" PRId64
                            " and a head below %" PRId64 ", found %d.%d",
                            plan->n_layers, plan->n_heads, at->layer, at->head);
        }
    }
    if (plan->angle != DPE_ANGLE_F32 && plan->angle != DPE_ANGLE_F64) {
        return dpe_fail(err, DPE_USAGE, "plan: unknown angle precision %d", (int)plan->angle);
    }
    for (int b = 0; b < plan->n_bands; b++) {
        DPE_TRY(check_band(plan, b, err));
    }
    if (plan->exact && dpe_selects(&plan->selection)) {
        return dpe_fail(err, DPE_USAGE,
                        "plan: the exact form does not go with a selection; remove "
                        "exact=1");
    }
    DPE_TRY(dpe_selection_check(&plan->selection, err));
    return check_mask(plan, err);
}

static void hash_u64(struct dpe_sha256 *hash, uint64_t value)
{
    uint8_t bytes[8];
    dpe_store_u64(bytes, value, sizeof bytes);
    dpe_sha256_add(hash, bytes, sizeof bytes);
}

static void hash_f64(struct dpe_sha256 *hash, double value)
{
    uint64_t bits = 0;
    value = value == 0.0 ? 0.0 : value; /* −0 means what 0 means */
    memcpy(&bits, &value, sizeof bits);
    hash_u64(hash, bits);
}

static void hash_map(struct dpe_sha256 *hash, const struct dpe_position_map *map, int64_t n_pairs)
{
    hash_u64(hash, map->floored);
    hash_f64(hash, map->period);
    hash_f64(hash, map->cap);
    for (int64_t j = 0; j < n_pairs; j++) {
        hash_f64(hash, map->scale[j]);
        hash_f64(hash, map->offset[j]);
    }
    /* Maps without groups have the digest that they had before there were any. */
    if (map->group_most > 0.0) {
        dpe_sha256_add(hash, "groups", sizeof "groups");
        hash_f64(hash, map->group_most);
        hash_f64(hash, map->group_rate);
        hash_f64(hash, map->group_from);
    }
}

/* A mask that no band uses, or that holds only ones, has the same meaning as no mask. */
static bool mask_matters(const struct dpe_plan *plan)
{
    bool asked = false;
    for (int b = 0; b < plan->n_bands; b++) {
        asked = asked || plan->bands[b].per_head;
    }
    if (!asked || plan->mask == NULL) {
        return false;
    }
    return memchr(plan->mask, 0, mask_bytes(plan)) != NULL;
}

/* What the model adds; plans of models that add nothing have the digest that they always had. */
static void hash_model(struct dpe_sha256 *hash, const struct dpe_plan *plan)
{
    const double fields[] = {(double)plan->n_still, plan->still_factor, plan->attention_multiplier,
                             plan->attention_cap,   plan->query_growth, plan->query_length};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (fields[i] != 0.0) {
            hash_u64(hash, i);
            hash_f64(hash, fields[i]);
        }
    }
}

/* Plans without a selection have the digest that they had before there were any. */
static void hash_selection(struct dpe_sha256 *hash, const struct dpe_selection *s)
{
    static const char tag[] = "selection 1";
    if (!dpe_selects(s)) {
        return;
    }
    bool attended = s->representative == DPE_REPRESENT_ATTENDED;
    const int64_t fields[] = {s->block,
                              s->sinks,
                              s->local,
                              s->k,
                              s->refresh,
                              attended ? s->attended : 0,
                              (int64_t)s->representative,
                              (int64_t)s->unit,
                              (int64_t)s->positions,
                              (int64_t)s->scored};
    dpe_sha256_add(hash, tag, sizeof tag);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        hash_u64(hash, (uint64_t)fields[i]);
    }
    if (s->representative == DPE_REPRESENT_PROBABILITY) {
        hash_u64(hash, (uint64_t)s->last);
        hash_u64(hash, (uint64_t)s->slashes);
    }
    if (s->first > 0) {
        dpe_sha256_add(hash, "first", sizeof "first");
        hash_u64(hash, (uint64_t)s->first);
    }
}

dpe_status dpe_plan_digest(const struct dpe_plan *plan, char digest[65], struct dpe_error *err)
{
    static const char version[] = "dpe plan 1";
    struct dpe_sha256 *hash = dpe_sha256_new();
    dpe_sha256_add(hash, version, sizeof version);
    hash_u64(hash, (uint64_t)plan->n_pairs);
    hash_u64(hash, (uint64_t)plan->n_layers);
    hash_u64(hash, (uint64_t)plan->n_heads);
    bool masked = mask_matters(plan);
    bool chunked = false;
    for (int64_t j = 0; j < plan->n_pairs; j++) {
        hash_f64(hash, plan->inv_freq[j]);
    }
    const struct dpe_temperature *t = &plan->temperature;
    hash_f64(hash, t->logit_scale);
    hash_f64(hash, t->log_n_length);
    /* Plans without these have the digest that they had before there were any. */
    if (t->log_n_length > 0.0 && (t->log_n_power != 1.0 || t->log_n_decay != 0.0)) {
        dpe_sha256_add(hash, "log-n form", sizeof "log-n form");
        hash_f64(hash, t->log_n_power);
        hash_f64(hash, t->log_n_decay);
    }
    if (!dpe_temperature_is_level(t)) {
        dpe_sha256_add(hash, "depth", sizeof "depth");
        for (int i = 0; i < 3; i++) {
            hash_f64(hash, t->depth[i]);
        }
    }
    for (int i = 0; i < t->n_heads; i++) {
        dpe_sha256_add(hash, "head", sizeof "head");
        hash_u64(hash, (uint64_t)t->heads[i].layer);
        hash_u64(hash, (uint64_t)t->heads[i].head);
        hash_f64(hash, t->heads[i].factor);
    }
    hash_model(hash, plan);
    hash_u64(hash, plan->exact);
    hash_u64(hash, (uint64_t)plan->angle);
    hash_u64(hash, (uint64_t)plan->n_bands);
    for (int b = 0; b < plan->n_bands; b++) {
        const struct dpe_band *band = &plan->bands[b];
        chunked = chunked || band->kind == DPE_BAND_CHUNK;
        hash_u64(hash, (uint64_t)band->kind);
        hash_u64(hash, (uint64_t)band->lo);
        hash_u64(hash, (uint64_t)band->hi);
        hash_u64(hash, masked && band->per_head);
        hash_map(hash, &band->q, plan->n_pairs);
        hash_map(hash, &band->k, plan->n_pairs);
    }
    hash_u64(hash, chunked ? (uint64_t)plan->chunk : 0);
    if (masked) {
        dpe_sha256_add(hash, plan->mask, mask_bytes(plan));
    }
    hash_selection(hash, &plan->selection);
    return dpe_sha256_finish(hash, digest, err);
}

dpe_status dpe_plan_key(const struct dpe_plan *plan, char key[33], struct dpe_error *err)
{
    char digest[65];
    DPE_TRY(dpe_plan_digest(plan, digest, err));
    snprintf(key, 33, "%.32s", digest);
    return DPE_OK;
}
