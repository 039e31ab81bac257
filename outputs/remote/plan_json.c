/* A plan as JSON, number for number. */
#include "outputs/remote/remote.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "engine/text/json.h"

/* One plan has the numbers of n_pairs; a plan from a stranger has bounds. */
enum { MOST_PAIRS = 1 << 12, MOST_LAYERS = 1 << 12, MOST_HEADS = 1 << 12, MOST_MASK = 1 << 26 };

/* The numbers of a plan, of a map of positions and of a selection: where they stand, and the most
 * that a whole one may be. */
struct number {
    const char *key;
    enum { REAL, WHOLE, WORD } kind; /* double, int64_t, int */
    size_t at;
    int64_t most;
};
#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define REAL_OF(of, key, member)                                                                   \
    {                                                                                              \
        key, REAL, offsetof(struct of, member), 0                                                  \
    }
#define WHOLE_OF(of, member)                                                                       \
    {                                                                                              \
#member, WHOLE, offsetof(struct of, member), INT64_MAX                                     \
    }
#define WORD_OF(of, member, most)                                                                  \
    {                                                                                              \
#member, WORD, offsetof(struct of, member), most                                           \
    }
static const struct number plan_numbers[] = {
    REAL_OF(dpe_plan, "logit_factor", temperature.logit_scale),
    REAL_OF(dpe_plan, "logit_scale_first", temperature.depth[0]),
    REAL_OF(dpe_plan, "logit_scale_middle", temperature.depth[1]),
    REAL_OF(dpe_plan, "logit_scale_last", temperature.depth[2]),
    REAL_OF(dpe_plan, "log_n_length", temperature.log_n_length),
    REAL_OF(dpe_plan, "log_n_power", temperature.log_n_power),
    REAL_OF(dpe_plan, "log_n_decay", temperature.log_n_decay),
    REAL_OF(dpe_plan, "still_factor", still_factor),
    REAL_OF(dpe_plan, "attention_multiplier", attention_multiplier),
    REAL_OF(dpe_plan, "attention_cap", attention_cap),
    REAL_OF(dpe_plan, "query_growth", query_growth),
    REAL_OF(dpe_plan, "query_length", query_length),
    WHOLE_OF(dpe_plan, n_still),
    WHOLE_OF(dpe_plan, chunk),
};
static const struct number map_numbers[] = {
    REAL_OF(dpe_position_map, "period", period),
    REAL_OF(dpe_position_map, "cap", cap),
    REAL_OF(dpe_position_map, "group_most", group_most),
    REAL_OF(dpe_position_map, "group_rate", group_rate),
    REAL_OF(dpe_position_map, "group_from", group_from),
};
static const struct number selection_numbers[] = {
    WHOLE_OF(dpe_selection, block),
    WHOLE_OF(dpe_selection, sinks),
    WHOLE_OF(dpe_selection, local),
    WHOLE_OF(dpe_selection, k),
    WHOLE_OF(dpe_selection, refresh),
    WHOLE_OF(dpe_selection, attended),
    WHOLE_OF(dpe_selection, last),
    WHOLE_OF(dpe_selection, slashes),
    WHOLE_OF(dpe_selection, first),
    WORD_OF(dpe_selection, representative, DPE_REPRESENT_COMPRESSED),
    WORD_OF(dpe_selection, unit, DPE_CHOICE_LAYER),
    WORD_OF(dpe_selection, positions, DPE_PLACE_CONSTANT),
    WORD_OF(dpe_selection, scored, DPE_SCORE_CONSTANT),
};

/* ------------------------------------------------------------------------------------- writing */

/* JSON has no infinity. */
static json_t *write_real(double value)
{
    return isfinite(value) ? json_real(value) : json_string("inf");
}

static void write_numbers(json_t *object, const struct number *numbers, size_t n, const void *of)
{
    for (size_t i = 0; i < n; i++) {
        const void *at = (const char *)of + numbers[i].at;
        json_object_set_new(object, numbers[i].key,
                            numbers[i].kind == REAL    ? write_real(*(const double *)at)
                            : numbers[i].kind == WHOLE ? json_integer(*(const int64_t *)at)
                                                       : json_integer(*(const int *)at));
    }
}

static json_t *write_list(const double *values, int64_t n)
{
    json_t *list = json_array();
    for (int64_t j = 0; j < n; j++) {
        json_array_append_new(list, write_real(values[j]));
    }
    return list;
}

static json_t *write_map(const struct dpe_position_map *map, int64_t n_pairs)
{
    json_t *made = json_object();
    json_object_set_new(made, "floored", json_boolean(map->floored));
    write_numbers(made, map_numbers, COUNT(map_numbers), map);
    json_object_set_new(made, "scale", write_list(map->scale, n_pairs));
    json_object_set_new(made, "offset", write_list(map->offset, n_pairs));
    return made;
}

static json_t *write_bands(const struct dpe_plan *plan)
{
    json_t *bands = json_array();
    for (int b = 0; b < plan->n_bands; b++) {
        const struct dpe_band *band = &plan->bands[b];
        json_array_append_new(bands, json_pack("{s:i,s:I,s:I,s:b,s:o,s:o}", "kind", (int)band->kind,
                                               "lo", (json_int_t)band->lo, "hi",
                                               (json_int_t)band->hi, "per_head", band->per_head,
                                               "q", write_map(&band->q, plan->n_pairs), "k",
                                               write_map(&band->k, plan->n_pairs)));
    }
    return bands;
}

static json_t *write_heads(const struct dpe_temperature *temperature)
{
    json_t *list = json_array();
    for (int i = 0; i < temperature->n_heads; i++) {
        const struct dpe_head_factor *at = &temperature->heads[i];
        json_array_append_new(list, json_pack("[i,i,f]", at->layer, at->head, at->factor));
    }
    return list;
}

static json_t *write_mask(const struct dpe_plan *plan)
{
    size_t n = (size_t)plan->n_layers * (size_t)plan->n_heads * (size_t)plan->n_pairs;
    DPE_OWNED char *digits = plan->mask != NULL ? dpe_alloc(n, 1) : NULL;
    for (size_t i = 0; i < n && digits != NULL; i++) {
        digits[i] = (char)('0' + (plan->mask[i] != 0));
    }
    return digits != NULL ? json_stringn(digits, n) : json_null();
}

json_t *dpe_plan_to_json(const struct dpe_plan *plan)
{
    json_t *made = json_pack("{s:s,s:I,s:I,s:I,s:b,s:b,s:i}", "name", plan->name, "n_pairs",
                             (json_int_t)plan->n_pairs, "n_layers", (json_int_t)plan->n_layers,
                             "n_heads", (json_int_t)plan->n_heads, "always", plan->always, "exact",
                             plan->exact, "angle", (int)plan->angle);
    write_numbers(made, plan_numbers, COUNT(plan_numbers), plan);
    json_object_set_new(made, "inv_freq", write_list(plan->inv_freq, plan->n_pairs));
    json_object_set_new(made, "bands", write_bands(plan));
    json_object_set_new(made, "heads", write_heads(&plan->temperature));
    json_object_set_new(made, "mask", write_mask(plan));
    json_t *selection = json_object();
    write_numbers(selection, selection_numbers, COUNT(selection_numbers), &plan->selection);
    json_object_set_new(made, "selection", selection);
    return made;
}

/* ------------------------------------------------------------------------------------- reading */

/* A number, or "inf". */
static bool read_real(const json_t *value, double *to)
{
    const char *word = json_string_value(value);
    if (word != NULL && strcmp(word, "inf") == 0) {
        *to = (double)INFINITY;
        return true;
    }
    *to = json_number_value(value);
    return json_is_number(value) && isfinite(*to);
}

static void read_list(struct dpe_json_reader *reader, const char *key, double *values, int64_t n)
{
    const json_t *list = dpe_json_member(reader, key);
    bool good = json_is_array(list) && (int64_t)json_array_size(list) == n;
    for (int64_t j = 0; j < n && good; j++) {
        good = read_real(json_array_get(list, (size_t)j), &values[j]);
    }
    if (!good) {
        dpe_json_expected(reader, key, "a number for each pair, or \"inf\"");
    }
}

static void read_numbers(struct dpe_json_reader *reader, const struct number *numbers, size_t n,
                         void *of)
{
    for (size_t i = 0; i < n; i++) {
        const struct number *number = &numbers[i];
        void *at = (char *)of + number->at;
        if (number->kind == REAL) {
            if (!read_real(dpe_json_member(reader, number->key), at)) {
                dpe_json_expected(reader, number->key, "a number or \"inf\"");
            }
            continue;
        }
        const int64_t value = dpe_json_integer(reader, number->key, 0, number->most, -1);
        if (number->kind == WHOLE) {
            *(int64_t *)at = value;
        } else {
            *(int *)at = (int)value;
        }
    }
}

static void read_map(struct dpe_json_reader *parent, const char *key, int64_t n_pairs,
                     struct dpe_position_map *map)
{
    struct dpe_json_reader reader = {parent->file, "bands.", dpe_json_object(parent, key),
                                     parent->err, parent->status};
    map->floored = dpe_json_bool(&reader, "floored", false);
    read_numbers(&reader, map_numbers, COUNT(map_numbers), map);
    read_list(&reader, "scale", map->scale, n_pairs);
    read_list(&reader, "offset", map->offset, n_pairs);
    parent->status = reader.status;
}

static void read_bands(struct dpe_json_reader *parent, struct dpe_plan *plan)
{
    const json_t *bands = dpe_json_member(parent, "bands");
    size_t n = json_array_size(bands);
    if (!json_is_array(bands) || n < 1 || n > DPE_MAX_BANDS) {
        dpe_json_expected(parent, "bands", "a list of 1 to 4 bands");
        return;
    }
    plan->n_bands = (int)n;
    for (size_t b = 0; b < n && parent->status == DPE_OK; b++) {
        struct dpe_json_reader reader = {parent->file, "bands.", json_array_get(bands, b),
                                         parent->err, parent->status};
        struct dpe_band *band = &plan->bands[b];
        band->kind = (enum dpe_band_kind)dpe_json_integer(&reader, "kind", 0, DPE_BAND_KEY, -1);
        band->lo = dpe_json_integer(&reader, "lo", 0, INT64_MAX, -1);
        band->hi = dpe_json_integer(&reader, "hi", 0, INT64_MAX, -1);
        band->per_head = dpe_json_bool(&reader, "per_head", false);
        read_map(&reader, "q", plan->n_pairs, &band->q);
        read_map(&reader, "k", plan->n_pairs, &band->k);
        parent->status = reader.status;
    }
}

static void read_heads(struct dpe_json_reader *reader, struct dpe_temperature *temperature)
{
    const json_t *list = dpe_json_member(reader, "heads");
    bool good = json_is_array(list);
    for (size_t i = 0; i < json_array_size(list) && good; i++) {
        const json_t *item = json_array_get(list, i);
        const json_t *layer = json_array_get(item, 0), *head = json_array_get(item, 1);
        double factor = 0.0;
        good = json_array_size(item) == 3 && json_is_integer(layer) && json_is_integer(head) &&
               json_integer_value(layer) >= 0 && json_integer_value(layer) < MOST_LAYERS &&
               json_integer_value(head) >= 0 && json_integer_value(head) < MOST_HEADS &&
               read_real(json_array_get(item, 2), &factor) && factor > 0.0 &&
               dpe_temperature_set_head(temperature, json_integer_value(layer),
                                        json_integer_value(head), factor);
    }
    if (!good) {
        dpe_json_expected(reader, "heads",
                          "a list of [layer, head, factor above 0], of few enough heads");
    }
}

static void read_mask(struct dpe_json_reader *reader, struct dpe_plan *plan)
{
    const json_t *value = dpe_json_member(reader, "mask");
    size_t n = (size_t)plan->n_layers * (size_t)plan->n_heads * (size_t)plan->n_pairs;
    if (value == NULL || reader->status != DPE_OK) {
        return;
    }
    const char *digits = json_string_value(value);
    if (n > MOST_MASK || digits == NULL || json_string_length(value) != n ||
        strspn(digits, "01") != n) {
        dpe_json_expected(reader, "mask", "a 0 or 1 for each pair of each head of each layer");
        return;
    }
    DPE_OWNED uint8_t *mask = NULL;
    reader->status = DPE_NEW(&mask, n, reader->err, "%s: out of memory", reader->file);
    if (reader->status != DPE_OK) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        mask[i] = digits[i] == '1';
    }
    reader->status = dpe_plan_set_mask(plan, mask, reader->err);
}

static void read_selection(struct dpe_json_reader *parent, struct dpe_selection *selection)
{
    struct dpe_json_reader reader = {parent->file, "selection.",
                                     dpe_json_object(parent, "selection"), parent->err,
                                     parent->status};
    read_numbers(&reader, selection_numbers, COUNT(selection_numbers), selection);
    parent->status = reader.status;
}

dpe_status dpe_plan_from_json(const json_t *value, struct dpe_plan *plan, struct dpe_error *err)
{
    struct dpe_json_reader reader = {"the plan", "", (json_t *)(uintptr_t)value, err, DPE_OK};
    int64_t n_pairs = dpe_json_integer(&reader, "n_pairs", 1, MOST_PAIRS, 0);
    int64_t n_layers = dpe_json_integer(&reader, "n_layers", 1, MOST_LAYERS, 0);
    int64_t n_heads = dpe_json_integer(&reader, "n_heads", 1, MOST_HEADS, 0);
    const char *name = dpe_json_string(&reader, "name", "plan");
    DPE_TRY(reader.status);
    *plan = (struct dpe_plan){0};
    DPE_TRY(dpe_plan_init(plan, n_pairs, n_layers, n_heads, err));
    snprintf(plan->name, sizeof plan->name, "%s", name);
    plan->always = dpe_json_bool(&reader, "always", false);
    plan->exact = dpe_json_bool(&reader, "exact", false);
    plan->angle =
        (enum dpe_angle_precision)dpe_json_integer(&reader, "angle", 0, DPE_ANGLE_F64, -1);
    read_numbers(&reader, plan_numbers, COUNT(plan_numbers), plan);
    read_list(&reader, "inv_freq", plan->inv_freq, n_pairs);
    read_bands(&reader, plan);
    read_heads(&reader, &plan->temperature);
    read_mask(&reader, plan);
    read_selection(&reader, &plan->selection);
    dpe_status status = reader.status != DPE_OK ? reader.status : dpe_plan_check(plan, err);
    if (status != DPE_OK) {
        dpe_plan_free(plan);
    }
    return status == DPE_USAGE ? (err != NULL ? (err->status = DPE_BAD_DATA) : DPE_BAD_DATA)
                               : status;
}
