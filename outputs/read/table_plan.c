/* A DPE table, and from there to the engine's position plan. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/base.h"
#include "engine/plan/fields.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"
#include "engine/tool/tool.h"
#include "outputs/h5/h5.h"
#include "outputs/read/read.h"
#include "outputs/table/dpe_table.h"
#include "outputs/table/fields.h"
#include "outputs/table/trailer.h"

dpe_status dpe_table_load(const char *path, struct dpe_table **table, struct dpe_error *err)
{
    char why[DPE_TABLE_MESSAGE];
    dpe_inside_limit(dpe_memory_available());
    int error = dpe_h5_is_unchecked() ? dpe_table_open_unchecked(path, table, why)
                                      : dpe_table_open(path, table, why);
    if (error == DPE_TABLE_NO_FILE) {
        /* The engine tells a file that is not there from one that may not be read. */
        int fd = -1;
        uint64_t size = 0;
        DPE_TRY(dpe_open_regular(path, &fd, &size, err));
        close(fd);
        return dpe_fail(err, DPE_NO_INPUT, "%s", why);
    }
    return error == DPE_TABLE_OK ? DPE_OK : dpe_fail(err, dpe_table_status(error), "%s", why);
}

int64_t dpe_table_trained(const char *path, int64_t given)
{
    DPE_SCOPED(dpe_table_close_scoped) struct dpe_table *table = NULL;
    const bool has = given == 0 && path != NULL && dpe_table_load(path, &table, NULL) == DPE_OK;
    return has ? dpe_table_values(table)->trained_length : given;
}

void dpe_model_put(struct dpe_h5 *file, const struct dpe_config *config, const char *fingerprint)
{
    const struct dpe_table_values model = {
        .model_type = (char *)(uintptr_t)config->model_type,
        .model_fingerprint = (char *)(uintptr_t)fingerprint,
        .n_layers = config->n_layers,
        .n_heads = config->n_heads,
        .n_kv_heads = config->n_kv_heads,
        .head_dim = config->head_dim,
    };
    dpe_h5_put_model(file, &model);
}

struct dpe_temperature dpe_table_temperature(const struct dpe_table_values *values)
{
    struct dpe_temperature temperature = {0};
    for (size_t i = 0; i < dpe_temperature_numbers.n; i++) {
        const struct dpe_number *number = &dpe_temperature_numbers.of[i];
        const struct dpe_table_field *field = dpe_table_field_named(number->name);
        *dpe_number_real(number, &temperature) =
            dpe_field_get(field, dpe_field_data(field, values), 0);
    }
    for (int64_t i = 0; values->head_scale != NULL && i < values->n_layers * values->n_heads; i++) {
        dpe_temperature_set_head(&temperature, i / values->n_heads, i % values->n_heads,
                                 values->head_scale[i]);
    }
    return temperature;
}

void dpe_table_put_temperature(const struct dpe_temperature *temperature, double *room,
                               struct dpe_table_values *values)
{
    for (size_t i = 0; i < dpe_temperature_numbers.n; i++) {
        const struct dpe_number *number = &dpe_temperature_numbers.of[i];
        const struct dpe_table_field *field = dpe_table_field_named(number->name);
        const bool says = dpe_number_says(number, temperature);
        dpe_field_set(field, (char *)values + field->at, 0,
                      says ? dpe_number_get(number, temperature) : number->usual);
    }
    values->head_scale = temperature->n_heads > 0 ? room : NULL;
    for (int64_t i = 0; values->head_scale != NULL && i < values->n_layers * values->n_heads; i++) {
        room[i] = dpe_temperature_head(temperature, i / values->n_heads, i % values->n_heads);
    }
}

/* The model's own frequencies against those the table was made with. */
static dpe_status check_frequencies(const struct dpe_table_values *values,
                                    const struct dpe_plan_context *made_for,
                                    const struct dpe_plan *plan, struct dpe_error *err)
{
    double factor = values->attention_scaling * values->attention_scaling;
    double found = plan->temperature.logit_scale / values->logit_scale;
    double a = 1.0;
    DPE_OWNED double *own = NULL;
    DPE_TRY(DPE_NEW(&own, (size_t)plan->n_pairs, err, "out of memory for frequencies"));
    DPE_TRY(dpe_rope_native(made_for->config, made_for->length, own, &a, err));
    for (int64_t j = 0; j < plan->n_pairs; j++) {
        if (!(fabs(values->inv_freq[j] - own[j]) <= 1e-5 * own[j])) {
            return dpe_fail(
                err, DPE_BAD_DATA,
                "made for a model that rotates pair %lld by %.8g rad per token; this model rotates "
                "it by %.8g: the RoPE base or RoPE scaling differs",
                (long long)j, values->inv_freq[j], own[j]);
        }
    }
    return fabs(factor - found) <= 1e-5 * found
               ? DPE_OK
               : dpe_fail(err, DPE_BAD_DATA,
                          "made for a model with attention scaling %.8g, this model has %.8g",
                          values->attention_scaling, sqrt(found));
}

static void fill_map(const double *row, int64_t n_pairs, struct dpe_position_map *map)
{
    map->floored = row[DPE_TABLE_MAP_FLOOR] != 0.0;
    map->period = row[DPE_TABLE_MAP_PERIOD] > 0.0 ? row[DPE_TABLE_MAP_PERIOD] : (double)INFINITY;
    map->cap = row[DPE_TABLE_MAP_CAP] > 0.0 ? row[DPE_TABLE_MAP_CAP] : (double)INFINITY;
    map->group_most = row[DPE_TABLE_MAP_GROUP_MOST];
    map->group_rate = row[DPE_TABLE_MAP_GROUP_RATE];
    map->group_from = row[DPE_TABLE_MAP_GROUP_FROM];
    for (int64_t j = 0; j < n_pairs; j++) {
        double scale = row[DPE_TABLE_BAND_NUMBERS + j];
        map->scale[j] = scale > 0.0 ? scale : (double)INFINITY;
        map->offset[j] = row[DPE_TABLE_BAND_NUMBERS + n_pairs + j];
    }
}

/* The plan of a table of bands, in place of the model's own, which `plan` is. */
static dpe_status fill_bands(const struct dpe_table_values *values,
                             const struct dpe_temperature *temperature, struct dpe_plan *plan,
                             struct dpe_error *err)
{
    static const enum dpe_band_kind kinds[] = {DPE_BAND_DISTANCE, DPE_BAND_CHUNK, DPE_BAND_KEY};
    const int64_t n = DPE_TABLE_BAND_NUMBERS + 2 * values->n_pairs;
    plan->n_bands = (int)values->n_bands;
    for (int64_t b = 0; b < values->n_bands; b++) {
        const double *row = values->bands + 2 * b * n;
        struct dpe_band *band = &plan->bands[b];
        band->per_head = row[DPE_TABLE_BAND_HEADS] != 0.0;
        band->kind = kinds[(int)row[DPE_TABLE_BAND_BY]];
        band->lo = (int64_t)row[DPE_TABLE_BAND_LOW];
        band->hi = row[DPE_TABLE_BAND_HIGH] > 0.0 ? (int64_t)row[DPE_TABLE_BAND_HIGH] : INT64_MAX;
        if (band->kind == DPE_BAND_CHUNK) {
            plan->chunk = (int64_t)row[DPE_TABLE_BAND_CHUNK];
        }
        fill_map(row, values->n_pairs, &band->q);
        fill_map(row + n, values->n_pairs, &band->k);
    }
    if (values->applied_inv_freq != NULL) {
        memcpy(plan->inv_freq, values->applied_inv_freq,
               (size_t)values->n_pairs * sizeof *plan->inv_freq);
    }
    if (dpe_table_masks(values)) {
        DPE_TRY(dpe_plan_set_mask(plan, values->mask, err));
    }
    char text[DPE_TEMPERATURE_TEXT];
    dpe_temperature_text(temperature, text);
    snprintf(plan->name, sizeof plan->name, "bands:n=%d%s%.230s", plan->n_bands,
             dpe_temperature_is_none(temperature) ? "" : ",",
             dpe_temperature_is_none(temperature) ? "" : text);
    DPE_TRY(dpe_plan_set_temperature(plan, temperature, err));
    return dpe_plan_check(plan, err);
}

static dpe_status make_of_bands(const struct dpe_table_values *values,
                                const struct dpe_temperature *temperature,
                                const struct dpe_plan_context *made_for, struct dpe_plan *plan,
                                struct dpe_error *err)
{
    struct dpe_plan_context bare = *made_for;
    bare.select = NULL;
    bare.text = 0;
    DPE_TRY(dpe_plan_make("rope", &bare, plan, err));
    DPE_TRY(fill_bands(values, temperature, plan, err));
    return made_for->select != NULL ? dpe_plan_select(plan, made_for->select, made_for, err)
                                    : DPE_OK;
}

static dpe_status check_heads(const struct dpe_table_values *values, struct dpe_error *err)
{
    int64_t n = 0;
    for (int64_t i = 0; values->head_scale != NULL && i < values->n_layers * values->n_heads; i++) {
        n += values->head_scale[i] != 1.0;
    }
    return n <= DPE_HEAD_FACTORS ? DPE_OK
                                 : dpe_fail(err, DPE_BAD_DATA,
                                            "head_scale: expected at most %d heads with a factor "
                                            "other than 1, found %lld",
                                            DPE_HEAD_FACTORS, (long long)n);
}

dpe_status dpe_table_check_model(const struct dpe_table_values *values,
                                 const struct dpe_config *config, struct dpe_error *err)
{
    if (values->n_layers != config->n_layers || values->n_heads != config->n_heads ||
        values->n_kv_heads != config->n_kv_heads || values->head_dim != config->head_dim) {
        return dpe_fail(
            err, DPE_BAD_DATA,
            "made for a model with %lld layers, %lld heads, %lld KV heads and head dimension "
            "%lld; this model has %lld, %lld, %lld and %lld",
            (long long)values->n_layers, (long long)values->n_heads, (long long)values->n_kv_heads,
            (long long)values->head_dim, (long long)config->n_layers, (long long)config->n_heads,
            (long long)config->n_kv_heads, (long long)config->head_dim);
    }
    return DPE_OK;
}

dpe_status dpe_plan_of_table(const struct dpe_table_values *values,
                             const struct dpe_plan_context *context, struct dpe_plan *plan,
                             struct dpe_error *err)
{
    DPE_TRY(dpe_table_check_model(values, context->config, err));
    DPE_TRY(check_heads(values, err));
    const struct dpe_temperature temperature = dpe_table_temperature(values);
    const struct dpe_dpe_params params = {
        .frequencies = values->frequencies != 0,
        .window = values->window,
        .n_groups = (int)values->n_groups,
        .edges = values->group_edge,
        .scale = values->scale_factor,
        .mask = dpe_table_masks(values) ? values->mask : NULL,
        .temperature = &temperature,
        .unrounded = values->unrounded != 0,
        .inv_freq = values->applied_inv_freq,
    };
    struct dpe_plan_context made_for = *context;
    made_for.length = values->length;
    made_for.trained_length = values->trained_length;
    made_for.select = context->select != NULL ? context->select : values->selection;
    DPE_SCOPED(dpe_plan_free) struct dpe_plan made = {0};
    struct dpe_error why = {0};
    const dpe_status status = values->n_bands > 0
                                  ? make_of_bands(values, &temperature, &made_for, &made, &why)
                                  : dpe_plan_make_dpe(&params, &made_for, &made, &why);
    if (status != DPE_OK) {
        /* The value is in the file, not on the command line. */
        return dpe_fail(err, status == DPE_USAGE ? DPE_BAD_DATA : status, "%s", why.text);
    }
    DPE_TRY(check_frequencies(values, &made_for, &made, err));
    *plan = made;
    made = (struct dpe_plan){0};
    return DPE_OK;
}

/* The key pairs, where the caller has room for them. */
static void put_mask(const struct dpe_plan *plan, struct dpe_table_values *values)
{
    const size_t n = (size_t)plan->n_pairs;
    bool by_head = false;
    for (int b = 0; b < plan->n_bands; b++) {
        by_head = by_head || plan->bands[b].per_head;
    }
    values->top_k = plan->n_pairs;
    if (plan->mask == NULL || values->mask == NULL || !by_head) {
        return;
    }
    memcpy(values->mask, plan->mask, (size_t)(plan->n_layers * plan->n_heads) * n);
    values->top_k = 0;
    for (int64_t row = 0; row < plan->n_layers * plan->n_heads; row++) {
        int64_t count = 0;
        for (size_t j = 0; j < n; j++) {
            count += plan->mask[(size_t)row * n + j];
        }
        values->top_k = count > values->top_k ? count : values->top_k;
    }
}

/* What a table would hold of the plan, if it can hold it. */
static dpe_status guess_values(const struct dpe_plan *plan, const struct dpe_plan_context *context,
                               double *heads, struct dpe_table_values *values,
                               struct dpe_error *err)
{
    const struct dpe_config *config = context->config;
    const struct dpe_band *far = plan->n_bands == 2 ? &plan->bands[1] : NULL;
    double a = 1.0;
    DPE_TRY(dpe_rope_native(config, context->length, values->inv_freq, &a, err));
    bool own = memcmp(values->inv_freq, plan->inv_freq,
                      (size_t)plan->n_pairs * sizeof *plan->inv_freq) == 0;
    values->n_layers = config->n_layers;
    values->n_heads = config->n_heads;
    values->n_kv_heads = config->n_kv_heads;
    values->head_dim = config->head_dim;
    values->n_pairs = plan->n_pairs;
    put_mask(plan, values);
    values->trained_length = context->trained_length;
    values->length = context->length;
    values->window = far != NULL ? far->lo : values->window;
    values->unrounded = far != NULL && !far->k.floored;
    values->applied_inv_freq = own ? NULL : plan->inv_freq;
    values->attention_scaling = a;
    dpe_table_put_temperature(&plan->temperature, heads, values);
    values->logit_scale /= a * a;
    if (values->selection != NULL && !dpe_selects(&config->selection)) {
        dpe_plan_selection_text(plan, values->selection);
    }
    if (values->selection != NULL && values->selection[0] == '\0') {
        values->selection = NULL;
    }
    for (int64_t g = 0; g < values->n_groups; g++) {
        values->scale_factor[g] = far != NULL ? far->k.scale[values->group_edge[g]] : 1.0;
    }
    return DPE_OK;
}

/* Numbers that a file can hold in place of no end and no scale. */
static double finite_or_zero(double x)
{
    return isfinite(x) ? x : 0.0;
}

static void store_map(const struct dpe_band *band, int64_t chunk,
                      const struct dpe_position_map *map, int64_t n_pairs, double *row)
{
    row[DPE_TABLE_BAND_BY] = band->kind == DPE_BAND_DISTANCE ? 0.0
                             : band->kind == DPE_BAND_CHUNK  ? 1.0
                                                             : 2.0;
    row[DPE_TABLE_BAND_LOW] = (double)band->lo;
    row[DPE_TABLE_BAND_HIGH] = band->hi == INT64_MAX ? 0.0 : (double)band->hi;
    row[DPE_TABLE_BAND_CHUNK] = band->kind == DPE_BAND_CHUNK ? (double)chunk : 0.0;
    row[DPE_TABLE_BAND_HEADS] = band->per_head ? 1.0 : 0.0;
    row[DPE_TABLE_MAP_FLOOR] = map->floored ? 1.0 : 0.0;
    row[DPE_TABLE_MAP_PERIOD] = finite_or_zero(map->period);
    row[DPE_TABLE_MAP_CAP] = finite_or_zero(map->cap);
    row[DPE_TABLE_MAP_GROUP_MOST] = map->group_most;
    row[DPE_TABLE_MAP_GROUP_RATE] = map->group_rate;
    row[DPE_TABLE_MAP_GROUP_FROM] = map->group_from;
    for (int64_t j = 0; j < n_pairs; j++) {
        row[DPE_TABLE_BAND_NUMBERS + j] = finite_or_zero(map->scale[j]);
        row[DPE_TABLE_BAND_NUMBERS + n_pairs + j] = map->offset[j];
    }
}

/* The plan's bands as those of the table, where guess_values was not it. */
static void store_bands(const struct dpe_plan *plan, double *bands, struct dpe_table_values *values)
{
    const int64_t n = DPE_TABLE_BAND_NUMBERS + 2 * plan->n_pairs;
    values->n_bands = plan->n_bands;
    values->bands = bands;
    values->unrounded = 0;
    values->window = 1; /* which says nothing beside bands */
    for (int64_t g = 0; g < values->n_groups; g++) {
        values->scale_factor[g] = 1.0;
    }
    for (int64_t b = 0; b < plan->n_bands; b++) {
        const struct dpe_band *band = &plan->bands[b];
        store_map(band, plan->chunk, &band->q, plan->n_pairs, bands + 2 * b * n);
        store_map(band, plan->chunk, &band->k, plan->n_pairs, bands + (2 * b + 1) * n);
    }
}

/* Whether dpe_plan_of_table makes the plan again. */
static dpe_status check_held(const struct dpe_plan *plan, const struct dpe_plan_context *context,
                             const struct dpe_table_values *values, bool *holds,
                             struct dpe_error *err)
{
    char wanted[33];
    char key[33];
    DPE_SCOPED(dpe_plan_free) struct dpe_plan held = {0};
    struct dpe_error why = {0};
    /* Values that no table can have belong to a plan of another kind. */
    if (dpe_plan_of_table(values, context, &held, &why) != DPE_OK) {
        return why.status == DPE_NO_MEMORY ? dpe_fail(err, DPE_NO_MEMORY, "%s", why.text) : DPE_OK;
    }
    /* The model's factor is divided out and multiplied in again, which may round. */
    if (fabs(held.temperature.logit_scale - plan->temperature.logit_scale) <=
        1e-14 * plan->temperature.logit_scale) {
        held.temperature.logit_scale = plan->temperature.logit_scale;
    }
    DPE_TRY(dpe_plan_key(plan, wanted, err));
    DPE_TRY(dpe_plan_key(&held, key, err));
    *holds = strcmp(wanted, key) == 0;
    return DPE_OK;
}

static size_t band_room(int64_t n_pairs)
{
    return 2 * DPE_TABLE_MOST_BANDS * (DPE_TABLE_BAND_NUMBERS + 2 * (size_t)n_pairs);
}

size_t dpe_table_room(const struct dpe_config *config)
{
    return band_room(config->head_dim / 2) + (size_t)(config->n_layers * config->n_heads);
}

dpe_status dpe_table_of_plan(const struct dpe_plan *plan, const struct dpe_plan_context *context,
                             double *room, struct dpe_table_values *values, bool *holds,
                             struct dpe_error *err)
{
    *holds = false;
    if (plan->n_bands < 1 ||
        (room == NULL && (plan->n_bands > 2 || plan->temperature.n_heads > 0))) {
        return DPE_OK;
    }
    double *const heads = room != NULL ? room + band_room(plan->n_pairs) : NULL;
    DPE_TRY(guess_values(plan, context, heads, values, err));
    if (plan->n_bands <= 2) {
        DPE_TRY(check_held(plan, context, values, holds, err));
    }
    if (!*holds && room != NULL) {
        store_bands(plan, room, values);
        DPE_TRY(check_held(plan, context, values, holds, err));
    }
    return DPE_OK;
}

/* Groups of the plan: pairs in a row that have one far scale. edges [n_pairs + 1]. */
static int64_t find_groups(const struct dpe_plan *plan, int32_t *edges)
{
    const double *scale = plan->n_bands == 2 ? plan->bands[1].k.scale : NULL;
    int64_t n = 0;
    edges[0] = 0;
    for (int64_t j = 1; scale != NULL && j < plan->n_pairs; j++) {
        if (scale[j] != scale[j - 1]) {
            edges[++n] = (int32_t)j;
        }
    }
    edges[++n] = (int32_t)plan->n_pairs;
    return n;
}

dpe_status dpe_table_for_plan(const struct dpe_plan *plan, const struct dpe_plan_context *context,
                              const char *fingerprint, int n_groups, struct dpe_table **table,
                              struct dpe_error *err)
{
    const struct dpe_config *config = context->config;
    const size_t pairs = (size_t)(config->head_dim / 2);
    const size_t cells = (size_t)(config->n_layers * config->n_heads) * pairs;
    const size_t room = 3 * pairs + dpe_table_room(config);
    char why[DPE_TABLE_MESSAGE], selection[sizeof plan->name] = "";
    bool holds = false;
    DPE_OWNED int32_t *edges = NULL;
    DPE_OWNED double *numbers = NULL;
    DPE_OWNED uint8_t *mask = NULL;
    DPE_TRY(DPE_NEW(&edges, pairs + 1, err, "out of memory for a table"));
    DPE_TRY(DPE_NEW(&numbers, room, err, "out of memory for a table"));
    DPE_TRY(DPE_NEW(&mask, cells, err, "out of memory for a table"));
    memset(mask, 1, cells);
    DPE_TRY(n_groups > 0 ? dpe_plan_model_edges(config, n_groups, edges, err) : DPE_OK);
    struct dpe_table_values values = {
        .schema_version = (char *)(uintptr_t)DPE_TABLE_SCHEMA,
        .model_type = (char *)(uintptr_t)config->model_type,
        .model_fingerprint = (char *)(uintptr_t)fingerprint,
        .window = 1, /* of a plan that has none: any */
        .n_groups = n_groups > 0 ? n_groups : find_groups(plan, edges),
        .group_edge = edges,
        .scale_factor = numbers,
        .effective_length = numbers + plan->n_pairs,
        .inv_freq = numbers + 2 * plan->n_pairs,
        .mask = mask,
        .selection = selection,
    };
    DPE_TRY(dpe_table_of_plan(plan, context, numbers + 3 * plan->n_pairs, &values, &holds, err));
    if (!holds) {
        return dpe_fail(err, DPE_USAGE,
                        "a table has no factor for the pairs that rotate alone, of heads that "
                        "rotate in part; expected a=1, or logit-scale for all pairs");
    }
    if (values.n_bands > 0) {
        values.n_groups = 1; /* bands know no groups */
        edges[1] = (int32_t)plan->n_pairs;
    }
    values.length = values.window > values.length ? values.window : values.length;
    for (int64_t g = 0; g < values.n_groups; g++) {
        values.effective_length[g] = fmax(1.0, (double)values.length / values.scale_factor[g]);
    }
    const int error = dpe_table_make(&values, table, why);
    return error == DPE_TABLE_OK ? DPE_OK : dpe_fail(err, dpe_table_status(error), "%s", why);
}

static dpe_status check_fingerprint(const struct dpe_table_values *values, const char *fingerprint,
                                    struct dpe_error *err)
{
    if (fingerprint == NULL || strcmp(values->model_fingerprint, fingerprint) == 0) {
        return DPE_OK;
    }
    return dpe_fail(
        err, DPE_BAD_DATA,
        "measured on the model %.16s…, this model is %.16s…: same shape, other weights or "
        "configuration; --other-model applies the table anyway",
        values->model_fingerprint, fingerprint);
}

const char *dpe_table_lengths(const struct dpe_table *table, char text[DPE_TABLE_NOTE])
{
    text[0] = '\0';
    for (int64_t i = 0; i < dpe_table_count(table); i++) {
        if (strlen(text) > DPE_TABLE_NOTE - 128) {
            dpe_append(text, DPE_TABLE_NOTE, ", …");
            break;
        }
        dpe_append(text, DPE_TABLE_NOTE, "%s%lld", i > 0 ? ", " : "",
                   (long long)dpe_table_values(dpe_table_entry(table, i))->length);
    }
    return text;
}

/* "selection", and in a table of several entries "table N selection": of its /identity. */
static bool is_selection(const char *name)
{
    static const char wanted[] = "selection";
    size_t n = strlen(name);
    return n >= sizeof wanted - 1 && strcmp(name + n - (sizeof wanted - 1), wanted) == 0;
}

const char *dpe_table_selection(struct dpe_h5 *file, char text[DPE_TABLE_SELECTION])
{
    DPE_SCOPED(dpe_identity_free) struct dpe_identity identity = {0};
    text[0] = '\0';
    dpe_h5_get_identity(file, &identity, NULL);
    for (size_t i = 0; i < identity.n && text[0] == '\0'; i++) {
        if (is_selection(identity.fields[i].name)) {
            dpe_printable(identity.fields[i].value, text, DPE_TABLE_SELECTION);
        }
    }
    return text;
}

/* The same of a file; "" also where it is not HDF5: only that form says. */
static const char *selection_of(const char *path, char text[DPE_TABLE_SELECTION])
{
    DPE_SCOPED(dpe_h5_close_scoped) struct dpe_h5 *file = NULL;
    text[0] = '\0';
    if (dpe_h5_open(path, &file, NULL) == DPE_OK) {
        dpe_table_selection(file, text);
    }
    return text;
}

static void describe_choice(const struct dpe_table *table, const struct dpe_table *entry,
                            int64_t tokens, char note[DPE_TABLE_NOTE])
{
    char lengths[DPE_TABLE_NOTE];
    if (entry == NULL) {
        snprintf(note, DPE_TABLE_NOTE,
                 "none: the model is run unchanged up to its trained length, %lld tokens",
                 (long long)dpe_table_values(table)->trained_length);
    } else if (dpe_table_count(table) == 1) {
        snprintf(note, DPE_TABLE_NOTE, "the only one, for %lld tokens",
                 (long long)dpe_table_values(entry)->length);
    } else {
        snprintf(note, DPE_TABLE_NOTE,
                 "for %lld tokens (of %.160s), because this run may reach %lld",
                 (long long)dpe_table_values(entry)->length, dpe_table_lengths(table, lengths),
                 (long long)tokens);
    }
    char evidence[DPE_TABLE_EVIDENCE];
    if (entry != NULL) {
        dpe_table_evidence(dpe_table_values(entry), evidence);
        dpe_append(note, DPE_TABLE_NOTE, "; %s%s",
                   evidence[0] == '\0'                  ? "nothing was measured of it"
                   : strncmp(evidence, "finds", 5) == 0 ? "it "
                                                        : "it has ",
                   evidence);
    }
    if (entry != NULL && dpe_table_facts(dpe_table_values(entry), evidence)[0] != '\0') {
        dpe_append(note, DPE_TABLE_NOTE, "; it was made from %s", evidence);
    }
}

/* The entry for the lengths of the context, NULL for a text that is run unchanged. */
static const struct dpe_table *choose(const struct dpe_table *table,
                                      const struct dpe_plan_context *context)
{
    struct dpe_plan_context of_table = *context;
    of_table.trained_length = dpe_table_values(table)->trained_length;
    return dpe_plan_text_is_short(&of_table) ? NULL : dpe_table_choose(table, context->length);
}

/* The plan of the entry that is chosen. A text that needs none is run as with --method rope, but
 * the table is checked as for any other. */
static dpe_status plan_of_choice(const struct dpe_table *table,
                                 const struct dpe_plan_context *context, const char *fingerprint,
                                 struct dpe_plan *plan, struct dpe_error *err)
{
    const struct dpe_table *entry = choose(table, context);
    const struct dpe_table *checked = entry != NULL ? entry : dpe_table_entry(table, 0);
    DPE_TRY(dpe_plan_of_table(dpe_table_values(checked), context, plan, err));
    dpe_status status = check_fingerprint(dpe_table_values(table), fingerprint, err);
    if (status != DPE_OK || entry == NULL) {
        dpe_plan_free(plan);
    }
    return status == DPE_OK && entry == NULL ? dpe_plan_make_unchanged(context, plan, err) : status;
}

static dpe_status plan_of_table_file(const char *path, const struct dpe_plan_context *context,
                                     const char *fingerprint, struct dpe_plan *plan,
                                     char note[DPE_TABLE_NOTE], struct dpe_error *err)
{
    DPE_SCOPED(dpe_table_close_scoped) struct dpe_table *table = NULL;
    DPE_TRY(dpe_table_load(path, &table, err));
    const int64_t made_for = dpe_table_values(table)->length;
    const struct dpe_table *entry = choose(table, context);
    if (entry != NULL && context->length > made_for) {
        dpe_log_warning(
            "%s was made for %lld tokens, this run may reach %lld: larger distances were "
            "not measured",
            path, (long long)made_for, (long long)context->length);
    }
    char keys[DPE_TABLE_SELECTION];
    if (context->select == NULL && entry != NULL && selection_of(path, keys)[0] != '\0') {
        dpe_log_warning(
            "%s was found under the selection %s, which the table alone does not apply; "
            "for what was measured: --method select:%s,over=table:%s",
            path, keys, keys, path);
    }
    if (plan_of_choice(table, context, fingerprint, plan, err) != DPE_OK) {
        return dpe_fail_prefix(err, "%s", path);
    }
    if (note != NULL) {
        describe_choice(table, entry, context->length, note);
    }
    return DPE_OK;
}

static const char over_table[] = "over=table:";

const char *dpe_plan_table_of_spec(const char *spec)
{
    const char *over = strncmp(spec, "select:", 7) == 0 ? strstr(spec, over_table) : NULL;
    return over != NULL && (over[-1] == ',' || over[-1] == ':') ? over + sizeof over_table - 1
                                                                : NULL;
}

static dpe_status plan_of_spec(const char *spec, const struct dpe_plan_context *context,
                               const char *fingerprint, struct dpe_plan *plan,
                               char note[DPE_TABLE_NOTE], struct dpe_error *err)
{
    const char *table = dpe_plan_table_of_spec(spec);
    if (table == NULL) {
        bool unchanged = false;
        DPE_TRY(dpe_plan_for_text(spec, context, plan, &unchanged, err));
        if (unchanged && note != NULL) {
            snprintf(note, DPE_TABLE_NOTE,
                     "the model is run unchanged up to its trained length, %lld tokens; always=1 "
                     "applies the method there too",
                     (long long)context->trained_length);
        } else if (note != NULL && dpe_plan_is_formula(spec)) {
            snprintf(note, DPE_TABLE_NOTE, "%s, a formula: nothing was measured", plan->name);
        }
        return DPE_OK;
    }
    char keys[sizeof plan->name];
    const char *first = strchr(spec, ':') + 1;
    int64_t n = table - first - (int64_t)(sizeof over_table - 1);
    if (n >= (int64_t)sizeof keys) {
        return dpe_fail(err, DPE_USAGE,
                        "--method %.40s…: more than %zu characters before the table", spec,
                        sizeof keys - 1);
    }
    snprintf(keys, sizeof keys, "%.*s", (int)(n > 0 ? n - 1 : 0), first);
    struct dpe_plan_context selecting = *context;
    selecting.select = keys;
    /* Keys that no table could make good are the command's fault. */
    DPE_TRY(dpe_plan_make("rope", &selecting, plan, err));
    dpe_plan_free(plan);
    return plan_of_table_file(table, &selecting, fingerprint, plan, note, err);
}

dpe_status dpe_plan_asked(const char *table, const char *spec,
                          const struct dpe_plan_context *context, const char *fingerprint,
                          struct dpe_plan *plan, char note[DPE_TABLE_NOTE], struct dpe_error *err)
{
    return table != NULL ? plan_of_table_file(table, context, fingerprint, plan, note, err)
                         : plan_of_spec(spec, context, fingerprint, plan, note, err);
}
