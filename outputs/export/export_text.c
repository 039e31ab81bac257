/* Text forms of a DPE table: the YAML of the paper's code, written and read (through libyaml), and
 * CSV. */
#include "outputs/export/export.h"
#include "outputs/read/read.h"
#include "outputs/table/fields.h"

#include <stdio.h>
#include <string.h>

#include <float.h>
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

/* Numbers and names of fields have no quotes inside. */
static void put_cell(struct dpe_text *out, const char *text, bool first)
{
    dpe_text_put(out, "%s\"%s\"", first ? "" : ",", text);
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
    yaml_document_t document;
    struct dpe_error *err;
    dpe_status status;
};

static void bad(struct reader *reader, const yaml_node_t *node, const char *what,
                const char *expected)
{
    if (reader->status == DPE_OK) {
        size_t line = node != NULL ? node->start_mark.line + 1 : 1;
        reader->status = dpe_fail(reader->err, DPE_BAD_DATA, "%s: line %zu: %s: expected %s",
                                  reader->name, line, what, expected);
    }
}

static bool is_scalar(const yaml_node_t *node, const char *text)
{
    return node != NULL && node->type == YAML_SCALAR_NODE &&
           node->data.scalar.length == strlen(text) &&
           memcmp(node->data.scalar.value, text, node->data.scalar.length) == 0;
}

static yaml_node_t *member(struct reader *reader, const yaml_node_t *mapping, const char *key)
{
    if (mapping == NULL || mapping->type != YAML_MAPPING_NODE) {
        return NULL;
    }
    yaml_node_t *found = NULL;
    for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
         pair < mapping->data.mapping.pairs.top; pair++) {
        const yaml_node_t *name = yaml_document_get_node(&reader->document, pair->key);
        if (is_scalar(name, key)) {
            if (found != NULL) {
                bad(reader, name, key, "it once");
            }
            found = yaml_document_get_node(&reader->document, pair->value);
        }
    }
    return found;
}

static double number(struct reader *reader, const yaml_node_t *node, const char *what, bool whole)
{
    if (node == NULL || node->type != YAML_SCALAR_NODE) {
        bad(reader, node, what, "a number");
        return NAN;
    }
    const char *text = (const char *)node->data.scalar.value;
    double value = 0.0;
    int64_t count = 0;
    bool good = whole ? dpe_parse_int(text, INT64_MIN, INT64_MAX, &count)
                      : dpe_parse_real(text, -DBL_MAX, DBL_MAX, &value);
    if (!good) {
        bad(reader, node, what,
            whole ? "a whole number in decimal digits" : "a decimal number such as 8 or 2.5");
        return NAN;
    }
    return whole ? (double)count : value;
}

/* Elements of a list; −1: it is none. */
static int64_t items_of(const yaml_node_t *node)
{
    return node != NULL && node->type == YAML_SEQUENCE_NODE
               ? node->data.sequence.items.top - node->data.sequence.items.start
               : -1;
}

/* The numbers of a field, as many as its axes have. */
static void read_field(struct reader *reader, const yaml_node_t *block,
                       const struct dpe_table_field *field, struct dpe_table_values *values)
{
    const bool list = dpe_field_rank(field) > 0;
    const yaml_node_t *node = member(reader, block, field->yaml);
    const size_t n = dpe_field_count(field, values);
    void *data = (char *)values + field->at;
    char expected[64];
    snprintf(expected, sizeof expected, "a list of %zu numbers", n);
    if (list && items_of(node) != (int64_t)n) {
        bad(reader, node != NULL ? node : block, field->yaml, expected);
    }
    if (list && reader->status == DPE_OK) {
        data = *dpe_field_array(field, values) = dpe_alloc_zero(n, dpe_field_size(field));
        reader->status = DPE_MADE(data, reader->err, "out of memory");
    }
    snprintf(expected, sizeof expected, "%g to %g", field->low, field->high);
    for (size_t i = 0; i < n && reader->status == DPE_OK; i++) {
        const yaml_node_t *item =
            list ? yaml_document_get_node(&reader->document, node->data.sequence.items.start[i])
                 : node;
        double value = number(reader, item, field->yaml, field->type != DPE_FIELD_REAL);
        if (reader->status == DPE_OK && value >= field->low && value <= field->high) {
            dpe_field_set(field, data, i, value);
        } else {
            bad(reader, item, field->yaml, expected);
        }
    }
}

static void read_block(struct reader *reader, const yaml_node_t *block,
                       struct dpe_table_values *values, char **selected)
{
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        if (field->yaml != NULL && field->axes[0] == DPE_AXIS_GROUP) {
            const yaml_node_t *list = member(reader, block, field->yaml);
            values->n_groups = items_of(list);
            if (values->n_groups < 1) {
                bad(reader, list != NULL ? list : block, field->yaml, "a list of numbers");
            }
        }
    }
    for (size_t i = 0; i < dpe_n_table_fields && reader->status == DPE_OK; i++) {
        if (dpe_table_fields[i].yaml != NULL) {
            read_field(reader, block, &dpe_table_fields[i], values);
        }
    }
    for (int64_t g = 0; g < values->n_groups && reader->status == DPE_OK; g++) {
        if (values->window < 1 || values->group_edge[0] != 0 ||
            values->group_edge[g + 1] <= values->group_edge[g]) {
            bad(reader, block, "settings",
                "a window of at least one token, and pair indices that increase from 0");
        }
    }
    const yaml_node_t *dims = member(reader, block, "selected_dim_path");
    if (reader->status == DPE_OK && dims != NULL && dims->type == YAML_SCALAR_NODE &&
        dims->data.scalar.length > 0) {
        *selected = strdup((const char *)dims->data.scalar.value);
        reader->status = DPE_MADE(*selected, reader->err, "out of memory");
    }
}

/* The block of the model asked for, or the only one. */
static const yaml_node_t *find_block(struct reader *reader, const char *model)
{
    const yaml_node_t *root = yaml_document_get_root_node(&reader->document);
    if (root == NULL || root->type != YAML_MAPPING_NODE ||
        root->data.mapping.pairs.top == root->data.mapping.pairs.start) {
        bad(reader, root, "the file", "model names with their settings");
        return NULL;
    }
    const yaml_node_pair_t *first = root->data.mapping.pairs.start;
    if (model == NULL && root->data.mapping.pairs.top - first == 1) {
        return yaml_document_get_node(&reader->document, first->value);
    }
    const yaml_node_t *block = model != NULL ? member(reader, root, model) : NULL;
    if (block == NULL) {
        char names[600] = "";
        for (const yaml_node_pair_t *pair = first; pair < root->data.mapping.pairs.top; pair++) {
            const yaml_node_t *key = yaml_document_get_node(&reader->document, pair->key);
            if (key->type == YAML_SCALAR_NODE) {
                dpe_append(names, sizeof names, "%s%s", names[0] != '\0' ? ", " : "",
                           (const char *)key->data.scalar.value);
            }
        }
        reader->status = dpe_fail(reader->err, DPE_USAGE, "%s: %s%s; it has: %s", reader->name,
                                  model != NULL ? "no settings of " : "several models: name one",
                                  model != NULL ? model : "", names);
    }
    return block;
}

static dpe_status begin_yaml(yaml_parser_t *parser, const char *bytes, size_t n,
                             struct dpe_error *err)
{
    if (!yaml_parser_initialize(parser)) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for YAML");
    }
    yaml_parser_set_input_string(parser, (const unsigned char *)bytes, n);
    return DPE_OK;
}

/* Settings are four levels deep. libyaml takes time with the square of the depth, so a file that is
 * deeper is refused at the level that is too much. */
static dpe_status check_depth(const char *name, const char *bytes, size_t n, struct dpe_error *err)
{
    enum { MAX_DEPTH = 64 };
    DPE_SCOPED(yaml_parser_delete) yaml_parser_t parser = {0};
    DPE_TRY(begin_yaml(&parser, bytes, n, err));
    int depth = 0;
    for (bool more = true; more;) {
        DPE_SCOPED(yaml_event_delete) yaml_event_t event = {0};
        /* Invalid YAML is reported when it is loaded. */
        if (!yaml_parser_parse(&parser, &event)) {
            break;
        }
        depth += event.type == YAML_SEQUENCE_START_EVENT || event.type == YAML_MAPPING_START_EVENT;
        depth -= event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT;
        more = event.type != YAML_STREAM_END_EVENT;
        if (depth > MAX_DEPTH) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "%s: line %zu: expected settings four levels deep, found lists or "
                            "maps nested deeper than %d",
                            name, event.start_mark.line + 1, MAX_DEPTH);
        }
    }
    return DPE_OK;
}

dpe_status dpe_import_yaml(const char *name, const char *bytes, size_t n, const char *model,
                           struct dpe_table_values *values, char **selected, struct dpe_error *err)
{
    *values = (struct dpe_table_values){0};
    *selected = NULL;
    struct reader reader = {.name = name, .err = err};
    DPE_TRY(check_depth(name, bytes, n, err));
    DPE_SCOPED(yaml_parser_delete) yaml_parser_t parser = {0};
    DPE_TRY(begin_yaml(&parser, bytes, n, err));
    if (!yaml_parser_load(&parser, &reader.document)) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: line %zu: %s", name, parser.problem_mark.line + 1,
                        parser.problem != NULL ? parser.problem : "not YAML");
    }
    const yaml_node_t *block = find_block(&reader, model);
    if (block != NULL) {
        read_block(&reader, block, values, selected);
    }
    yaml_document_delete(&reader.document);
    if (reader.status != DPE_OK) {
        dpe_table_values_free(values);
    }
    return reader.status;
}
