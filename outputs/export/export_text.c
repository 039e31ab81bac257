/* Text forms of a DPE table: the YAML of the paper's code, written and read (through libyaml), and
 * CSV through libcsv. */
#include "outputs/export/export_tool.h"
#include "outputs/read/read.h"
#include "outputs/table/fields.h"

#include <stdio.h>
#include <string.h>

#include <csv.h>
#include <jansson.h>
#include <math.h>
#include <yaml.h>

static bool windows_divide(const struct dpe_table_values *values)
{
    for (int64_t g = 0; g < values->n_groups; g++) {
        double share = (double)values->window / values->scale_factor[g];
        if (share != floor(share)) {
            return false;
        }
    }
    return true;
}

/* A text of the user's in double quotes, escaped as in JSON, which YAML takes. */
static void put_quoted(struct dpe_text *out, const char *text)
{
    json_auto_t *value = json_string(text);
    DPE_OWNED char *quoted = json_dumps(value, JSON_ENCODE_ANY);
    dpe_text_put(out, "%s", quoted != NULL ? quoted : "");
    out->failed = out->failed || quoted == NULL;
}

/* A field as the paper's code calls it: a number, or a list on one line. */
static void put_field(struct dpe_text *out, const struct dpe_table_field *field,
                      const struct dpe_table_values *values)
{
    const bool list = dpe_field_rank(field) > 0;
    const void *data = dpe_field_data(field, values);
    dpe_text_put(out, "  %s: %s", field->yaml, list ? "[" : "");
    for (size_t i = 0; i < dpe_field_count(field, values); i++) {
        dpe_text_put(out, "%s%.17g", i > 0 ? ", " : "", dpe_field_get(field, data, i));
    }
    dpe_text_put(out, "%s\n", list ? "]" : "");
}

dpe_status dpe_export_yaml(const struct dpe_table_values *values, const char *model,
                           const char *selected_dim_path, struct dpe_text *out,
                           struct dpe_error *err)
{
    char evidence[DPE_TABLE_EVIDENCE];
    dpe_text_put(out,
                 "# DPE settings for the paper's released code. adapter_required: true\n"
                 "# schema_version: %.32s, model fingerprint: %.64s\n"
                 "# trained length %lld, evaluated length %lld, top-k %lld of %lld pairs\n",
                 values->schema_version, values->model_fingerprint,
                 (long long)values->trained_length, (long long)values->length,
                 (long long)values->top_k, (long long)values->n_pairs);
    if (dpe_table_evidence(values, evidence)[0] != '\0') {
        dpe_text_put(out, "# Measured with the key pairs and temperature of the table: %s\n",
                     evidence);
    }
    if (!windows_divide(values)) {
        dpe_text_put(out, "# A scale does not divide the window: that code's prefill and "
                          "decode differ by up to one position there.\n");
    }
    if (dpe_table_has_temperature(values)) {
        const struct dpe_temperature left_out = dpe_table_temperature(values);
        char temperature[DPE_TEMPERATURE_TEXT];
        dpe_temperature_text(&left_out, temperature);
        dpe_text_put(out,
                     "# Left out, because that code has none: the attention temperature\n# %s.\n",
                     temperature);
    }
    const char *const texts[] = {model, selected_dim_path};
    for (int i = 0; i < 2; i++) {
        if (!dpe_is_utf8(texts[i])) {
            return dpe_fail(err, DPE_USAGE, "YAML: expected names in UTF-8, found '%s'", texts[i]);
        }
    }
    /* The settings as the paper's code reads them. */
    put_quoted(out, model);
    dpe_text_put(out, ":\n");
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        if (dpe_table_fields[i].yaml != NULL) {
            put_field(out, &dpe_table_fields[i], values);
        }
    }
    dpe_text_put(out, "  selected_dim_path: ");
    put_quoted(out, selected_dim_path);
    dpe_text_put(out, "\n");
    return dpe_text_done(out, err);
}

/* None of these needs quotes inside; libcsv adds those around. */
static void put_cell(struct dpe_text *out, const char *text, bool first)
{
    char field[128];
    size_t n = csv_write(field, sizeof field, text, strlen(text));
    dpe_text_put(out, "%s", first ? "" : ",");
    dpe_text_put_bytes(out, field, n < sizeof field ? n : sizeof field);
}

/* Index of a field's element for a layer, head and pair; -1: it is one number,
 * or has another axis. */
static int64_t element_at(const struct dpe_table_field *field,
                          const struct dpe_table_values *values, const int64_t at[DPE_AXES])
{
    const int rank = dpe_field_rank(field);
    int64_t element = 0;
    for (int a = 0; a < rank && element >= 0; a++) {
        const int64_t place = at[field->axes[a]];
        element = place < 0 ? -1 : element * dpe_field_extent(field->axes[a], values) + place;
    }
    return rank > 0 ? element : -1;
}

/* A row: the place, and every field that has an element there; `names`: what they are called. */
static void put_row(struct dpe_text *out, const struct dpe_table_values *values,
                    const int64_t at[DPE_AXES], bool names)
{
    static const struct {
        enum dpe_field_axis axis;
        const char *name;
    } places[] = {{DPE_AXIS_LAYER, "layer"},
                  {DPE_AXIS_HEAD, "head"},
                  {DPE_AXIS_PAIR, "pair"},
                  {DPE_AXIS_GROUP, "group"}};
    const unsigned parts = dpe_table_parts(values, false);
    char text[32];
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(text, sizeof text, "%lld", (long long)at[places[i].axis]);
        put_cell(out, names ? places[i].name : text, i == 0);
    }
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        const int64_t element = element_at(field, values, at);
        if (element >= 0 && dpe_field_written(field, values, parts)) {
            snprintf(text, sizeof text, "%.17g",
                     dpe_field_get(field, dpe_field_data(field, values), (size_t)element));
            put_cell(out, names ? field->name : text, false);
        }
    }
    dpe_text_put(out, "\r\n");
}

dpe_status dpe_export_csv(const struct dpe_table_values *values, struct dpe_text *out,
                          struct dpe_error *err)
{
    int64_t at[DPE_AXES] = {[DPE_AXIS_EDGE] = -1, [DPE_AXIS_BAND_NUMBER] = -1};
    put_row(out, values, at, true);
    for (int64_t row = 0; row < values->n_layers * values->n_heads; row++) {
        at[DPE_AXIS_LAYER] = row / values->n_heads;
        at[DPE_AXIS_HEAD] = row % values->n_heads;
        at[DPE_AXIS_GROUP] = 0;
        for (int64_t pair = 0; pair < values->n_pairs; pair++) {
            at[DPE_AXIS_GROUP] += pair == values->group_edge[at[DPE_AXIS_GROUP] + 1];
            at[DPE_AXIS_PAIR] = pair;
            put_row(out, values, at, false);
        }
    }
    return dpe_text_done(out, err);
}

/* ---------------------------------------------------------------- YAML, read */

struct reader {
    const char *name;
    yaml_parser_t parser;
    json_t *anchors; /* nodes that others may refer to */
    struct dpe_error *err;
    dpe_status status;
};

/* The first failure, at the line that the parser has come to; of a key, or "". */
static json_t *bad(struct reader *reader, const char *key, const char *what)
{
    if (reader->status == DPE_OK) {
        reader->status =
            dpe_fail(reader->err, DPE_BAD_DATA, "%s: line %zu: %s%s%s", reader->name,
                     reader->parser.mark.line + 1, key, key[0] != '\0' ? ": " : "", what);
    }
    return NULL;
}

static json_t *keep(struct reader *reader, const yaml_char_t *anchor, json_t *node)
{
    if (anchor != NULL) {
        json_object_set(reader->anchors, (const char *)anchor, node);
    }
    return node;
}

/* The next list, map or scalar, which is a text, as JSON; NULL at the end of a list or map, and
 * after a failure. Settings are four levels deep. libyaml takes time with the square of the depth,
 * so a file that is deeper is refused at the level that is too much. */
static json_t *read_node(struct reader *reader, int depth)
{
    enum { MAX_DEPTH = 64 };
    DPE_SCOPED(yaml_event_delete) yaml_event_t event = {0};
    json_t *items = NULL; /* of a map every key and its value */
    if (reader->status != DPE_OK || !yaml_parser_parse(&reader->parser, &event)) {
        return bad(reader, "",
                   reader->parser.problem != NULL ? reader->parser.problem : "not YAML");
    }
    switch (event.type) {
    case YAML_STREAM_START_EVENT:
    case YAML_DOCUMENT_START_EVENT:
        return read_node(reader, depth);
    case YAML_SCALAR_EVENT:
        return keep(reader, event.data.scalar.anchor,
                    json_stringn((const char *)event.data.scalar.value, event.data.scalar.length));
    case YAML_ALIAS_EVENT:
        items = json_object_get(reader->anchors, (const char *)event.data.alias.anchor);
        return items != NULL ? json_incref(items) : bad(reader, "", "undefined alias");
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        break;
    default:
        return NULL;
    }
    if (depth == MAX_DEPTH) {
        return bad(reader, "",
                   "expected settings four levels deep, found lists or maps nested deeper than 64");
    }
    items = json_array();
    for (json_t *item; (item = read_node(reader, depth + 1)) != NULL;) {
        json_array_append_new(items, item);
    }
    if (event.type == YAML_SEQUENCE_START_EVENT) {
        return keep(reader, event.data.sequence_start.anchor, items);
    }
    json_t *map = json_object();
    for (size_t i = 0; i + 1 < json_array_size(items); i += 2) {
        const char *key = json_string_value(json_array_get(items, i));
        if (key != NULL && json_object_get(map, key) != NULL) {
            bad(reader, key, "expected it once");
        }
        json_object_set(map, key, json_array_get(items, i + 1)); /* nothing of a key of lists */
    }
    json_decref(items);
    return keep(reader, event.data.mapping_start.anchor, map);
}

/* The numbers of a field, as many as its axes have. */
static dpe_status read_field(const char *name, const json_t *block,
                             const struct dpe_table_field *field, struct dpe_table_values *values,
                             struct dpe_error *err)
{
    const bool list = dpe_field_rank(field) > 0, real = field->type == DPE_FIELD_REAL;
    json_t *from = json_object_get(block, field->yaml);
    const size_t n = dpe_field_count(field, values);
    void *data = (char *)values + field->at;
    if (list && json_array_size(from) != n) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: %s: expected a list of %zu numbers", name,
                        field->yaml, n);
    }
    if (list) {
        data = *dpe_field_array(field, values) = dpe_alloc_zero(n, dpe_field_size(field));
        DPE_TRY(DPE_MADE(data, err, "out of memory"));
    }
    for (size_t i = 0; i < n; i++) {
        json_auto_t *value = dpe_export_value(real ? DPE_FIELD_REAL : DPE_FIELD_WHOLE,
                                              list ? json_array_get(from, i) : from);
        const double number = json_number_value(value);
        if (!json_is_number(value) || number < field->low || number > field->high) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "%s: %s: expected a %s number in decimal digits from %g to %g", name,
                            field->yaml, real ? "real" : "whole", field->low, field->high);
        }
        dpe_field_set(field, data, i, number);
    }
    return DPE_OK;
}

static dpe_status read_block(const char *name, const json_t *block, struct dpe_table_values *values,
                             char **selected, struct dpe_error *err)
{
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        if (field->yaml != NULL && field->axes[0] == DPE_AXIS_GROUP) {
            const json_t *list = json_object_get(block, field->yaml);
            values->n_groups = (int64_t)json_array_size(list);
            if (values->n_groups < 1) {
                return dpe_fail(err, DPE_BAD_DATA, "%s: %s: expected a list of numbers", name,
                                field->yaml);
            }
        }
    }
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        if (dpe_table_fields[i].yaml != NULL) {
            DPE_TRY(read_field(name, block, &dpe_table_fields[i], values, err));
        }
    }
    for (int64_t g = 0; g < values->n_groups; g++) {
        if (values->window < 1 || values->group_edge[0] != 0 ||
            values->group_edge[g + 1] <= values->group_edge[g]) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "%s: expected a window of at least one token, and pair indices that "
                            "increase from 0",
                            name);
        }
    }
    const char *dims = json_string_value(json_object_get(block, "selected_dim_path"));
    if (dims != NULL && dims[0] != '\0') {
        *selected = strdup(dims);
        return DPE_MADE(*selected, err, "out of memory");
    }
    return DPE_OK;
}

/* The block of the model asked for, or the only one. */
static dpe_status find_block(const char *name, json_t *root, const char *model,
                             const json_t **block, struct dpe_error *err)
{
    char names[600] = "";
    const char *key = NULL;
    json_t *value = NULL;
    if (json_object_size(root) == 0) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected model names with their settings", name);
    }
    json_object_foreach(root, key, value)
    {
        dpe_append(names, sizeof names, "%s%s", names[0] != '\0' ? ", " : "", key);
    }
    *block = model != NULL                 ? json_object_get(root, model)
             : json_object_size(root) == 1 ? value
                                           : NULL;
    return *block != NULL ? DPE_OK
                          : dpe_fail(err, DPE_USAGE, "%s: %s%s; it has: %s", name,
                                     model != NULL ? "no settings of " : "several models: name one",
                                     model != NULL ? model : "", names);
}

dpe_status dpe_import_yaml(const char *name, const char *bytes, size_t n, const char *model,
                           struct dpe_table_values *values, char **selected, struct dpe_error *err)
{
    *values = (struct dpe_table_values){0};
    *selected = NULL;
    json_auto_t *anchors = json_object();
    struct reader reader = {.name = name, .anchors = anchors, .err = err};
    const json_t *block = NULL;
    if (!yaml_parser_initialize(&reader.parser)) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for YAML");
    }
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)bytes, n);
    json_auto_t *root = read_node(&reader, 0);
    yaml_parser_delete(&reader.parser);
    DPE_TRY(reader.status);
    DPE_TRY(find_block(name, root, model, &block, err));
    const dpe_status status = read_block(name, block, values, selected, err);
    if (status != DPE_OK) {
        dpe_table_values_free(values);
    }
    return status;
}
