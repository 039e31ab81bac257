/* The evaluator of plans, the oracle of everything that computes positions; and the tables of
 * cosines and sines made from the same maps. */
#include "engine/base/groups.h"
#include "engine/plan/rotation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 16 /* floats */ };

int dpe_plan_band(const struct dpe_plan *plan, int64_t m, int64_t n)
{
    if (n > m || n < 0) {
        return -1;
    }
    for (int b = 0; b < plan->n_bands; b++) {
        const struct dpe_band *band = &plan->bands[b];
        int64_t x = m - n;
        if (band->kind == DPE_BAND_CHUNK) {
            x = m / plan->chunk - n / plan->chunk;
        } else if (band->kind == DPE_BAND_KEY) {
            x = n;
        }
        if (band->lo <= x && x < band->hi) {
            return b;
        }
    }
    return -1;
}

/* What a map does to token x for all pairs alike: its group, and that mod the period. */
static double map_coordinate(const struct dpe_position_map *map, int64_t x, struct dpe_groups *at)
{
    int64_t counted = map->group_most > 0.0
                          ? (int64_t)dpe_group_of(map->group_most, map->group_rate,
                                                  (double)x - map->group_from, at)
                          : x;
    return (double)(isinf(map->period) ? counted : counted % (int64_t)map->period);
}

/* Position of such a coordinate for one pair: min(f(coordinate/scale) + offset, cap). */
static double map_place(const struct dpe_position_map *map, int64_t pair, double coordinate)
{
    double scaled = coordinate / map->scale[pair];
    scaled = map->floored ? floor(scaled) : scaled;
    return fmin(scaled + map->offset[pair], map->cap);
}

static double map_position(const struct dpe_position_map *map, int64_t pair, int64_t x)
{
    struct dpe_groups at = {0};
    return map_place(map, pair, map_coordinate(map, x, &at));
}

/* What a band makes of rotated queries or keys. */
static double side_scale(const struct dpe_plan *plan, int band, bool query)
{
    return query && band > 0 ? plan->temperature.far_scale : 1.0;
}

struct dpe_rel dpe_plan_position(const struct dpe_plan *plan, int64_t layer, int64_t head,
                                 int64_t pair, int64_t m, int64_t n)
{
    struct dpe_rel rel = {.band = dpe_plan_band(plan, m, n)};
    if (rel.band < 0) {
        return rel;
    }
    const struct dpe_band *band = &plan->bands[rel.band];
    rel.scale = side_scale(plan, rel.band, true);
    if (band->per_head && plan->mask != NULL &&
        plan->mask[(layer * plan->n_heads + head) * plan->n_pairs + pair] == 0) {
        band = &plan->bands[0];
        rel.scale = 1.0;
    }
    rel.pq = map_position(&band->q, pair, m);
    rel.pk = map_position(&band->k, pair, n);
    rel.rel = rel.pq - rel.pk;
    return rel;
}

double dpe_plan_query_scale(const struct dpe_plan *plan, int64_t layer, int64_t m)
{
    const struct dpe_temperature *temperature = &plan->temperature;
    double factor = plan->attention_multiplier > 0.0
                        ? temperature->logit_scale * plan->attention_multiplier
                        : temperature->logit_scale / sqrt(2.0 * (double)plan->n_pairs);
    factor *= dpe_temperature_depth(temperature, layer, plan->n_layers);
    if (plan->query_growth > 0.0) {
        factor *= 1.0 + plan->query_growth *
                            log1p(floor((double)(m + plan->query_from) / plan->query_length));
    }
    return factor * dpe_temperature_factor(temperature, m);
}

static bool same_map(const struct dpe_position_map *a, const struct dpe_position_map *b,
                     int64_t n_pairs)
{
    if (a->period != b->period || a->cap != b->cap || a->group_most != b->group_most ||
        a->group_rate != b->group_rate || a->group_from != b->group_from) {
        return false;
    }
    for (int64_t j = 0; j < n_pairs; j++) {
        /* Rounding down changes nothing where whole numbers stay whole. */
        bool same_floor = a->floored == b->floored || a->scale[j] == 1.0 || isinf(a->scale[j]);
        if (a->scale[j] != b->scale[j] || a->offset[j] != b->offset[j] || !same_floor) {
            return false;
        }
    }
    return true;
}

struct scaled_map {
    const struct dpe_position_map *map;
    double scale;
};

/* The distinct maps of a plan in the order bands name them. */
static int distinct_maps(const struct dpe_plan *plan, struct scaled_map *maps, int *q_table,
                         int *k_table)
{
    int n = 0;
    for (int side = 0; side < 2 * plan->n_bands; side++) {
        const struct dpe_band *band = &plan->bands[side / 2];
        const struct dpe_position_map *map = side % 2 == 0 ? &band->q : &band->k;
        const double scale = side_scale(plan, side / 2, side % 2 == 0);
        int found = 0;
        while (found < n &&
               !(maps[found].scale == scale && same_map(maps[found].map, map, plan->n_pairs))) {
            found++;
        }
        if (found == n) {
            maps[n++] = (struct scaled_map){map, scale};
        }
        *(side % 2 == 0 ? &q_table[side / 2] : &k_table[side / 2]) = found;
    }
    return n;
}

static void fill_table(const struct dpe_plan *plan, const struct scaled_map *of, int64_t first,
                       int64_t end, int n_threads, float *cosine, float *sine)
{
    int64_t n_pairs = plan->n_pairs;
    int64_t turning = n_pairs - plan->n_still;
    double side = plan->still_factor > 0.0 ? plan->still_factor : 1.0;
    float still = (float)(of->scale * side);
    struct dpe_groups at = {0}; /* each thread's tokens increase */
#pragma omp parallel for num_threads(n_threads) schedule(static)                                   \
    firstprivate(at) if ((end - first) * n_pairs > (1 << 14))
    for (int64_t x = first; x < end; x++) {
        for (int64_t j = turning; j < n_pairs; j++) {
            cosine[x * n_pairs + j] = still;
            sine[x * n_pairs + j] = 0.0F;
        }
        double coordinate = map_coordinate(of->map, x, &at);
        for (int64_t j = 0; j < turning; j++) {
            double position = map_place(of->map, j, coordinate);
            double angle = (double)((float)position * (float)plan->inv_freq[j]);
            cosine[x * n_pairs + j] = (float)(of->scale * cos(angle));
            sine[x * n_pairs + j] = (float)(of->scale * sin(angle));
        }
    }
}

uint64_t dpe_rotation_bytes(const struct dpe_plan *plan, int64_t capacity)
{
    capacity = dpe_selection_places(&plan->selection, capacity);
    struct scaled_map maps[2 * DPE_MAX_BANDS];
    int q_table[DPE_MAX_BANDS] = {0};
    int k_table[DPE_MAX_BANDS] = {0};
    uint64_t bytes = 2 * sizeof(float) * (uint64_t)distinct_maps(plan, maps, q_table, k_table);
    return dpe_bytes_of(capacity, plan->n_pairs, 1, bytes);
}

dpe_status dpe_rotation_room(const struct dpe_plan *plan, int64_t capacity,
                             struct dpe_rotation *rotation, struct dpe_error *err)
{
    memset(rotation, 0, sizeof *rotation);
    capacity = dpe_selection_places(&plan->selection, capacity);
    uint64_t bytes = dpe_rotation_bytes(plan, capacity);
    if (capacity < 1 || bytes > SIZE_MAX / 2) {
        return dpe_fail(err, DPE_NO_MEMORY, "rotation tables: %lld tokens are too many or too few",
                        (long long)capacity);
    }
    struct scaled_map maps[2 * DPE_MAX_BANDS];
    rotation->capacity = capacity;
    rotation->n_pairs = plan->n_pairs;
    rotation->n_tables = distinct_maps(plan, maps, rotation->q_table, rotation->k_table);
    /* One block, which takes huge pages (dpe_alloc) where each table for itself is too small. */
    size_t stride = ((size_t)(capacity * plan->n_pairs) + LINE - 1) / LINE * LINE;
    float *block = dpe_alloc(2 * stride * (size_t)rotation->n_tables, sizeof *block);
    DPE_TRY(DPE_MADE(block, err,
                     "rotation tables: out of memory for %llu bytes; a smaller capacity needs "
                     "less",
                     (unsigned long long)bytes));
    for (int t = 0; t < rotation->n_tables; t++) {
        rotation->cos[t] = block + 2 * (size_t)t * stride;
        rotation->sin[t] = rotation->cos[t] + stride;
    }
    return DPE_OK;
}

void dpe_rotation_fill(const struct dpe_plan *plan, int64_t first, int64_t end, int n_threads,
                       struct dpe_rotation *rotation)
{
    struct scaled_map maps[2 * DPE_MAX_BANDS];
    distinct_maps(plan, maps, rotation->q_table, rotation->k_table);
    for (int t = 0; t < rotation->n_tables; t++) {
        fill_table(plan, &maps[t], first, end, n_threads, rotation->cos[t], rotation->sin[t]);
    }
}

dpe_status dpe_rotation_make(const struct dpe_plan *plan, int64_t capacity, int n_threads,
                             struct dpe_rotation *rotation, struct dpe_error *err)
{
    DPE_TRY(dpe_rotation_room(plan, capacity, rotation, err));
    dpe_rotation_fill(plan, 0, rotation->capacity, n_threads, rotation);
    return DPE_OK;
}

void dpe_rotation_free(struct dpe_rotation *rotation)
{
    free(rotation->cos[0]);
    memset(rotation, 0, sizeof *rotation);
}
