/* Values of templates as Python writes them and as JSON; JSON into values. */
#include "engine/text/json.h"
#include "eval/template/template_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WRITE_DEPTH = 100, MAX_JSON_DEPTH = 100 };

void dpe_template_write_float(struct render *render, struct builder *to, double real)
{
    char digits[40];
    int precision = 1;
    do {
        snprintf(digits, sizeof digits, "%.*e", precision - 1, real);
    } while (strtod(digits, NULL) != real && ++precision <= 17);
    if (!isfinite(real)) {
        dpe_template_put_span(render, to,
                              dpe_span_of(isnan(real) ? "nan"
                                          : real > 0  ? "inf"
                                                      : "-inf"));
        return;
    }
    int exponent = atoi(strchr(digits, 'e') + 1);
    char text[64];
    if (exponent >= -4 && exponent < 16) {
        int decimals = precision - 1 - exponent;
        snprintf(text, sizeof text, "%.*f", decimals > 1 ? decimals : 1, real);
    } else {
        char mantissa[40];
        snprintf(mantissa, sizeof mantissa, "%.*s", (int)(strchr(digits, 'e') - digits), digits);
        snprintf(text, sizeof text, "%se%c%02d", mantissa, exponent < 0 ? '-' : '+', abs(exponent));
    }
    dpe_template_put_span(render, to, dpe_span_of(text));
}

/* repr() of a string. */
static void write_quoted(struct render *render, struct builder *to, struct dpe_span text)
{
    bool single = memchr(text.s, '\'', text.n) != NULL;
    bool twice = memchr(text.s, '"', text.n) != NULL;
    char quote = single && !twice ? '"' : '\'';
    dpe_template_put(render, to, &quote, 1);
    for (size_t i = 0, n = 0; i < text.n; i += n) {
        uint32_t point = dpe_py_next(text.s + i, text.s + text.n, &n);
        char out[16] = "";
        if (point == '\\' || point == (unsigned char)quote) {
            snprintf(out, sizeof out, "\\%c", (char)point);
        } else if (point == '\n' || point == '\r' || point == '\t') {
            snprintf(out, sizeof out, "\\%c", point == '\n' ? 'n' : point == '\r' ? 'r' : 't');
        } else if (!dpe_py_printable(point)) {
            snprintf(out, sizeof out,
                     point < 0x100     ? "\\x%02x"
                     : point < 0x10000 ? "\\u%04x"
                                       : "\\U%08x",
                     (unsigned)point);
        }
        dpe_template_put(render, to, out[0] != '\0' ? out : text.s + i,
                         out[0] != '\0' ? strlen(out) : n);
    }
    dpe_template_put(render, to, &quote, 1);
}

static void write_value(struct render *render, struct builder *to, struct value value, bool repr);

static void write_items(struct render *render, struct builder *to, struct value value)
{
    bool list = value.kind == KIND_LIST;
    dpe_template_put(render, to, list ? "[" : "(", 1);
    for (size_t i = 0; i < value.items->n; i++) {
        dpe_template_put(render, to, ", ", i > 0 ? 2 : 0);
        write_value(render, to, value.items->at[i], true);
    }
    dpe_template_put(render, to, ",", !list && value.items->n == 1 ? 1 : 0);
    dpe_template_put(render, to, list ? "]" : ")", 1);
}

static void write_value(struct render *render, struct builder *to, struct value value, bool repr)
{
    char text[32];
    if (!dpe_template_step(render, 1)) {
        return;
    }
    if (render->depth > MAX_WRITE_DEPTH * 4) {
        dpe_template_fail(render, "a value is nested too deep to be written");
        return;
    }
    render->depth++;
    switch (value.kind) {
    case KIND_UNDEFINED:
        dpe_template_put_span(render, to, dpe_span_of(repr ? "Undefined" : ""));
        break;
    case KIND_NONE:
        dpe_template_put_span(render, to, dpe_span_of("None"));
        break;
    case KIND_BOOL:
        dpe_template_put_span(render, to, dpe_span_of(value.integer != 0 ? "True" : "False"));
        break;
    case KIND_INT:
        snprintf(text, sizeof text, "%lld", (long long)value.integer);
        dpe_template_put_span(render, to, dpe_span_of(text));
        break;
    case KIND_DIGITS:
        dpe_template_put_span(render, to, value.text);
        break;
    case KIND_FLOAT:
        dpe_template_write_float(render, to, value.real);
        break;
    case KIND_STRING:
        if (repr) {
            write_quoted(render, to, value.text);
        } else {
            dpe_template_put_span(render, to, value.text);
        }
        break;
    case KIND_LIST:
    case KIND_TUPLE:
        write_items(render, to, value);
        break;
    case KIND_DICT:
        dpe_template_put(render, to, "{", 1);
        for (size_t i = 0; i < value.pairs->n; i++) {
            dpe_template_put(render, to, ", ", i > 0 ? 2 : 0);
            write_value(render, to, value.pairs->at[i].key, true);
            dpe_template_put(render, to, ": ", 2);
            write_value(render, to, value.pairs->at[i].value, true);
        }
        dpe_template_put(render, to, "}", 1);
        break;
    case KIND_ITERATOR:
        if (value.iterator->name == NULL) {
            dpe_template_fail(render, "a generator cannot be written: make it a list");
            break;
        }
        dpe_template_put_span(render, to, dpe_span_of(value.iterator->name));
        dpe_template_put(render, to, "(", 1);
        write_items(render, to, (struct value){.kind = KIND_LIST, .items = &value.iterator->items});
        dpe_template_put(render, to, ")", 1);
        break;
    default:
        dpe_template_fail(render, "%s cannot be written", dpe_template_kind_name(value));
        break;
    }
    render->depth--;
}

void dpe_template_write(struct render *render, struct builder *to, struct value value)
{
    write_value(render, to, value, false);
}

struct dpe_span dpe_template_repr(struct render *render, struct value value)
{
    struct builder built = {0};
    write_value(render, &built, value, true);
    return dpe_template_built(&built).text;
}

struct dpe_span dpe_template_str(struct render *render, struct value value)
{
    if (value.kind == KIND_STRING) {
        return value.text;
    }
    struct builder built = {0};
    dpe_template_write(render, &built, value);
    return dpe_template_built(&built).text;
}

/* ---------------------------------------------------------------------------------------- JSON */

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
        for (size_t i = 0; render->status == DPE_OK && i < json_array_size(json); i++) {
            dpe_template_add(render, list,
                             dpe_template_of_json(render, json_array_get(json, i), depth + 1));
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
    return dpe_template_order(x->key.text, y->key.text);
}

/* The pairs in the order in which they are written. */
static const struct pair *in_order(struct writer *writer, const struct pairs *pairs)
{
    struct pair *sorted =
        writer->sort ? dpe_template_get(writer->render, pairs->n * sizeof *sorted) : NULL;
    for (size_t i = 0; sorted != NULL && i < pairs->n; i++) {
        sorted[i] = pairs->at[i];
        if (sorted[i].key.kind != KIND_STRING) {
            dpe_template_fail(writer->render, "tojson: only keys that are strings can be sorted");
            return pairs->at;
        }
    }
    if (sorted == NULL || pairs->n == 0) {
        return pairs->at;
    }
    qsort(sorted, pairs->n, sizeof *sorted, by_key);
    return sorted;
}

/* A list, a tuple or a mapping. */
static void put_row(struct writer *writer, struct value row)
{
    bool dict = row.kind == KIND_DICT;
    const struct pair *pairs = dict ? in_order(writer, row.pairs) : NULL;
    size_t n = dict ? row.pairs->n : row.items->n;
    put(writer, dict ? "{" : "[");
    writer->depth++;
    for (size_t i = 0; i < n; i++) {
        dpe_template_put(writer->render, &writer->out, writer->item.s, i > 0 ? writer->item.n : 0);
        new_line(writer);
        if (dict) {
            put_key(writer, pairs[i].key);
            dpe_template_put_span(writer->render, &writer->out, writer->key);
        }
        put_value(writer, dict ? pairs[i].value : row.items->at[i]);
    }
    writer->depth--;
    if (n > 0) {
        new_line(writer);
    }
    put(writer, dict ? "}" : "]");
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
    } else if (value.kind == KIND_LIST || value.kind == KIND_TUPLE || value.kind == KIND_DICT) {
        put_row(writer, value);
    } else if (value.kind == KIND_NONE || value.kind == KIND_BOOL) {
        put(writer, value.kind == KIND_NONE ? "null" : value.integer != 0 ? "true" : "false");
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
    const struct value *given = dpe_template_given(args, 2);
    if (given == NULL) {
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
    const struct value *indent = dpe_template_given(args, 1);
    writer.ascii = dpe_template_arg_bool(args, 0);
    writer.sort = dpe_template_arg_bool(args, 3);
    if (indent != NULL && indent->kind == KIND_STRING) {
        writer.margin = indent->text;
        writer.indent = 1;
    } else if (indent != NULL) {
        writer.indent = dpe_most(dpe_template_arg_int(render, args, 1, "indent", 0), 0);
    }
    if (writer.indent > 64) {
        return dpe_template_fail(render, "tojson: an indent of more than 64 is not supported");
    }
    writer.item = dpe_span_of(writer.indent < 0 ? ", " : ",");
    read_separators(&writer, args);
    put_value(&writer, of);
    return dpe_template_built(&writer.out);
}
