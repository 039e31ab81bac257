/* JSON into values, and values as JSON. */
#include "engine/json/json_strict.h"
#include "eval/template/template_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_JSON_DEPTH = 100 };

/* A string, or a number that the reader of the JSON could not hold (dpe_json_parse_exact). */
static struct value of_text(struct render *render, struct dpe_span text)
{
    size_t mark = sizeof DPE_JSON_EXACT_MARK - 1;
    if (!dpe_span_starts(text, dpe_span_of(DPE_JSON_EXACT_MARK)) || text.n == mark) {
        return dpe_template_string(text);
    }
    const char *s = text.s + mark;
    size_t n = text.n - mark;
    char first = s[s[0] == '-'];
    if (first == 'N' || first == 'I' || memchr(s, 'e', n) != NULL || memchr(s, 'E', n) != NULL ||
        memchr(s, '.', n) != NULL) {
        return dpe_template_float(first == 'N' ? (double)NAN : s[0] == '-' ? -HUGE_VAL : HUGE_VAL);
    }
    return dpe_template_digits(render, s, n);
}

struct value dpe_template_of_json(struct render *render, const json_t *json, int depth)
{
    if (depth > MAX_JSON_DEPTH) {
        return dpe_template_fail(render, "a variable is nested more than %d deep", MAX_JSON_DEPTH);
    }
    switch (json_typeof(json)) {
    case JSON_OBJECT: {
        struct value dict = dpe_template_dict(render, KIND_DICT);
        const char *key = NULL;
        json_t *member = NULL;
        if (dict.kind != KIND_DICT) {
            return dict;
        }
        json_object_foreach((json_t *)(uintptr_t)json, key, member)
        {
            dpe_template_dict_set(render, dict.pairs, dpe_template_text(key),
                                  dpe_template_of_json(render, member, depth + 1));
        }
        return dict;
    }
    case JSON_ARRAY: {
        struct value list = dpe_template_list(render, KIND_LIST, json_array_size(json));
        for (size_t i = 0; list.kind == KIND_LIST && i < json_array_size(json); i++) {
            list.items->at[list.items->n++] =
                dpe_template_of_json(render, json_array_get(json, i), depth + 1);
        }
        return list;
    }
    case JSON_STRING:
        return of_text(render,
                       (struct dpe_span){json_string_value(json), json_string_length(json)});
    case JSON_INTEGER:
        return dpe_template_int(json_integer_value(json));
    case JSON_REAL:
        return dpe_template_float(json_real_value(json));
    case JSON_TRUE:
    case JSON_FALSE:
        return dpe_template_bool(json_is_true(json));
    case JSON_NULL:
        break;
    }
    return dpe_template_none();
}

struct writer {
    struct render *render;
    struct builder out;
    struct dpe_span item, key; /* separators */
    struct dpe_span margin;    /* `indent` times for each level */
    int64_t indent;            /* −1: on one line */
    bool ascii, sort;
    int depth;
};

static void put(struct writer *writer, const char *text)
{
    dpe_template_put_span(writer->render, &writer->out, dpe_span_of(text));
}

static void new_line(struct writer *writer)
{
    if (writer->indent < 0) {
        return;
    }
    put(writer, "\n");
    for (int64_t i = 0; i < writer->indent * writer->depth && writer->render->status == DPE_OK;
         i++) {
        dpe_template_put_span(writer->render, &writer->out, writer->margin);
    }
}

static void put_string(struct writer *writer, struct dpe_span text)
{
    static const char from[] = "\"\\\n\r\t\f\b";
    static const char to[] = "\"\\nrtfb";
    put(writer, "\"");
    for (size_t i = 0, n = 0; i < text.n && writer->render->status == DPE_OK; i += n) {
        uint32_t point = dpe_py_next(text.s + i, text.s + text.n, &n);
        const char *known = point != 0 && point < 0x80 ? strchr(from, (int)point) : NULL;
        char out[16] = "";
        if (known != NULL) {
            snprintf(out, sizeof out, "\\%c", to[known - from]);
        } else if (writer->ascii && point > 0xffff) {
            snprintf(out, sizeof out, "\\u%04x\\u%04x",
                     (unsigned)(0xd800 + ((point - 0x10000) >> 10)),
                     (unsigned)(0xdc00 + ((point - 0x10000) & 0x3ff)));
        } else if (point < 0x20 || (writer->ascii && point > 0x7e)) {
            snprintf(out, sizeof out, "\\u%04x", (unsigned)point);
        }
        dpe_template_put(writer->render, &writer->out, out[0] != '\0' ? out : text.s + i,
                         out[0] != '\0' ? strlen(out) : n);
    }
    put(writer, "\"");
}

static void put_value(struct writer *writer, struct value value);

static void put_list(struct writer *writer, const struct items *items)
{
    put(writer, "[");
    writer->depth++;
    for (size_t i = 0; i < items->n; i++) {
        dpe_template_put(writer->render, &writer->out, writer->item.s, i > 0 ? writer->item.n : 0);
        new_line(writer);
        put_value(writer, items->at[i]);
    }
    writer->depth--;
    if (items->n > 0) {
        new_line(writer);
    }
    put(writer, "]");
}

/* A key that is no string is written as one. */
static void put_key(struct writer *writer, struct value key)
{
    struct writer own = {.render = writer->render, .indent = -1};
    if (key.kind == KIND_STRING) {
        put_string(writer, key.text);
        return;
    }
    put_value(&own, key);
    put_string(writer, dpe_template_built(&own.out).text);
}

static int by_key(const void *a, const void *b)
{
    const struct pair *x = a;
    const struct pair *y = b;
    size_t n = x->key.text.n < y->key.text.n ? x->key.text.n : y->key.text.n;
    int order = n > 0 ? memcmp(x->key.text.s, y->key.text.s, n) : 0;
    return order != 0 ? order : (x->key.text.n > y->key.text.n) - (x->key.text.n < y->key.text.n);
}

/* The pairs in the order in which they are written; NULL after a failure. */
static const struct pair *in_order(struct writer *writer, const struct pairs *pairs)
{
    struct pair *sorted = dpe_template_get(writer->render, pairs->n * sizeof *sorted);
    if (!writer->sort || sorted == NULL) {
        return sorted != NULL ? pairs->at : NULL;
    }
    for (size_t i = 0; i < pairs->n; i++) {
        sorted[i] = pairs->at[i];
        if (sorted[i].key.kind != KIND_STRING) {
            dpe_template_fail(writer->render, "tojson: only keys that are strings can be sorted");
            return NULL;
        }
    }
    if (pairs->n > 1) {
        qsort(sorted, pairs->n, sizeof *sorted, by_key);
    }
    return sorted;
}

static void put_dict(struct writer *writer, const struct pairs *pairs)
{
    const struct pair *at = in_order(writer, pairs);
    put(writer, "{");
    writer->depth++;
    for (size_t i = 0; at != NULL && i < pairs->n; i++) {
        dpe_template_put(writer->render, &writer->out, writer->item.s, i > 0 ? writer->item.n : 0);
        new_line(writer);
        put_key(writer, at[i].key);
        dpe_template_put_span(writer->render, &writer->out, writer->key);
        put_value(writer, at[i].value);
    }
    writer->depth--;
    if (pairs->n > 0) {
        new_line(writer);
    }
    put(writer, "}");
}

static void put_value(struct writer *writer, struct value value)
{
    if (!dpe_template_step(writer->render, 1)) {
        return;
    }
    if (writer->depth > MAX_JSON_DEPTH) {
        dpe_template_fail(writer->render, "tojson: nested more than %d deep", MAX_JSON_DEPTH);
    } else if (value.kind == KIND_STRING) {
        put_string(writer, value.text);
    } else if (value.kind == KIND_LIST || value.kind == KIND_TUPLE) {
        put_list(writer, value.items);
    } else if (value.kind == KIND_DICT) {
        put_dict(writer, value.pairs);
    } else if (value.kind == KIND_NONE || value.kind == KIND_BOOL) {
        put(writer, value.kind == KIND_NONE ? "null" : value.truth ? "true" : "false");
    } else if (value.kind == KIND_FLOAT && !isfinite(value.real)) {
        put(writer, isnan(value.real) ? "NaN" : value.real > 0 ? "Infinity" : "-Infinity");
    } else if (value.kind == KIND_INT || value.kind == KIND_DIGITS || value.kind == KIND_FLOAT) {
        dpe_template_write(writer->render, &writer->out, value);
    } else {
        dpe_template_fail(writer->render, "tojson: %s has no form in JSON",
                          dpe_template_kind_name(value));
    }
}

static void read_separators(struct writer *writer, const struct args *args)
{
    const struct value *given = dpe_template_arg(args, 2);
    if (given == NULL || given->kind == KIND_NONE) {
        return;
    }
    bool two = (given->kind == KIND_LIST || given->kind == KIND_TUPLE) && given->items->n == 2;
    const struct value *at = two ? given->items->at : NULL;
    if (at == NULL || at[0].kind != KIND_STRING || at[1].kind != KIND_STRING) {
        dpe_template_fail(writer->render, "tojson: expected two strings as separators");
        return;
    }
    writer->item = at[0].text;
    writer->key = at[1].text;
}

struct value dpe_template_tojson(struct render *render, struct value of, const struct args *args)
{
    struct writer writer = {
        .render = render, .indent = -1, .key = dpe_span_of(": "), .margin = dpe_span_of(" ")};
    const struct value *indent = dpe_template_arg(args, 1);
    writer.ascii = dpe_template_arg_bool(args, 0, false);
    writer.sort = dpe_template_arg_bool(args, 3, false);
    if (indent != NULL && indent->kind == KIND_STRING) {
        writer.margin = indent->text;
        writer.indent = 1;
    } else if (indent != NULL && indent->kind != KIND_NONE) {
        writer.indent = dpe_template_arg_int(render, args, 1, "indent", 0);
        writer.indent = writer.indent < 0 ? 0 : writer.indent;
    }
    if (writer.indent > 64) {
        return dpe_template_fail(render, "tojson: an indent of more than 64 is not supported");
    }
    writer.item = dpe_span_of(writer.indent < 0 ? ", " : ",");
    read_separators(&writer, args);
    put_value(&writer, of);
    return dpe_template_built(&writer.out);
}
