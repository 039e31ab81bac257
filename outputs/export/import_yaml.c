/* Settings in the YAML of the paper's released code, through libyaml. */
#include "outputs/export/export.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

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

/* Numbers of a list, owned; *n of them. */
static double *list(struct reader *reader, const yaml_node_t *block, const char *key, bool whole,
                    int64_t *n)
{
    const yaml_node_t *node = member(reader, block, key);
    if (node == NULL || node->type != YAML_SEQUENCE_NODE) {
        bad(reader, node != NULL ? node : block, key, "a list of numbers");
        return NULL;
    }
    const yaml_node_item_t *items = node->data.sequence.items.start;
    *n = node->data.sequence.items.top - items;
    double *values = malloc((size_t)(*n > 0 ? *n : 1) * sizeof *values);
    if (values == NULL) {
        reader->status = dpe_fail(reader->err, DPE_NO_MEMORY, "out of memory");
        return NULL;
    }
    for (int64_t i = 0; i < *n; i++) {
        values[i] = number(reader, yaml_document_get_node(&reader->document, items[i]), key, whole);
    }
    return values;
}

static void read_block(struct reader *reader, const yaml_node_t *block,
                       struct dpe_yaml_settings *settings)
{
    const yaml_node_t *window = member(reader, block, "local_window_size");
    double w = number(reader, window, "local_window_size", true);
    if (reader->status == DPE_OK && !(w >= 1.0 && w <= 0x1p40)) {
        bad(reader, window, "local_window_size", "a positive whole number");
    }
    settings->window = reader->status == DPE_OK ? (int64_t)w : 0;
    int64_t n_edges = 0;
    settings->scale = list(reader, block, "scale_factors", false, &settings->n_groups);
    double *edges = list(reader, block, "dimension_groups_range", true, &n_edges);
    if (reader->status == DPE_OK && (n_edges != settings->n_groups + 1 || n_edges < 2)) {
        bad(reader, block, "dimension_groups_range", "one number more than scale_factors");
    }
    if (reader->status == DPE_OK) {
        settings->edges = malloc((size_t)n_edges * sizeof *settings->edges);
        if (settings->edges == NULL) {
            reader->status = dpe_fail(reader->err, DPE_NO_MEMORY, "out of memory");
        }
    }
    for (int64_t i = 0; i < n_edges && reader->status == DPE_OK; i++) {
        if (!(edges[i] >= 0.0 && edges[i] <= 0x1p15)) {
            bad(reader, block, "dimension_groups_range", "pair indices");
        } else {
            settings->edges[i] = (int32_t)edges[i];
            if (i == 0 ? edges[0] != 0.0 : edges[i] <= edges[i - 1]) {
                bad(reader, block, "dimension_groups_range", "pair indices that increase from 0");
            }
        }
    }
    for (int64_t g = 0; g < settings->n_groups && reader->status == DPE_OK; g++) {
        if (!(settings->scale[g] >= 1.0)) {
            bad(reader, block, "scale_factors", "numbers of 1 or more");
        }
    }
    free(edges);
    const yaml_node_t *dims = member(reader, block, "selected_dim_path");
    if (reader->status == DPE_OK && dims != NULL && dims->type == YAML_SCALAR_NODE &&
        dims->data.scalar.length > 0) {
        settings->selected = strdup((const char *)dims->data.scalar.value);
        if (settings->selected == NULL) {
            reader->status = dpe_fail(reader->err, DPE_NO_MEMORY, "out of memory");
        }
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

/* Settings are four levels deep. libyaml takes time with the square of the depth, so a file that is
 * deeper is refused at the level that is too much. */
static dpe_status check_depth(const char *name, const char *bytes, size_t n, struct dpe_error *err)
{
    enum { MAX_DEPTH = 64 };
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser)) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for YAML");
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)bytes, n);
    dpe_status status = DPE_OK;
    int depth = 0;
    for (bool more = true; more && status == DPE_OK;) {
        yaml_event_t event;
        /* Invalid YAML is reported when it is loaded. */
        if (!yaml_parser_parse(&parser, &event)) {
            break;
        }
        depth += event.type == YAML_SEQUENCE_START_EVENT || event.type == YAML_MAPPING_START_EVENT;
        depth -= event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT;
        more = event.type != YAML_STREAM_END_EVENT;
        if (depth > MAX_DEPTH) {
            status = dpe_fail(err, DPE_BAD_DATA,
                              "%s: line %zu: expected settings four levels deep, found lists or "
                              "maps nested deeper than %d",
                              name, event.start_mark.line + 1, MAX_DEPTH);
        }
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return status;
}

dpe_status dpe_import_yaml(const char *name, const char *bytes, size_t n, const char *model,
                           struct dpe_yaml_settings *settings, struct dpe_error *err)
{
    *settings = (struct dpe_yaml_settings){0};
    struct reader reader = {.name = name, .err = err};
    yaml_parser_t parser;
    dpe_status depth = check_depth(name, bytes, n, err);
    if (depth != DPE_OK) {
        return depth;
    }
    if (!yaml_parser_initialize(&parser)) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for YAML");
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)bytes, n);
    if (!yaml_parser_load(&parser, &reader.document)) {
        dpe_status status =
            dpe_fail(err, DPE_BAD_DATA, "%s: line %zu: %s", name, parser.problem_mark.line + 1,
                     parser.problem != NULL ? parser.problem : "not YAML");
        yaml_parser_delete(&parser);
        return status;
    }
    const yaml_node_t *block = find_block(&reader, model);
    if (block != NULL) {
        read_block(&reader, block, settings);
    }
    yaml_document_delete(&reader.document);
    yaml_parser_delete(&parser);
    if (reader.status != DPE_OK) {
        dpe_yaml_settings_free(settings);
    }
    return reader.status;
}

void dpe_yaml_settings_free(struct dpe_yaml_settings *settings)
{
    free(settings->edges);
    free(settings->scale);
    free(settings->selected);
    *settings = (struct dpe_yaml_settings){0};
}
