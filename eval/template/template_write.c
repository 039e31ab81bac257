/* Values of templates as Python writes them and as JSON; JSON into values. */
#include "engine/text/json.h"
#include "eval/template/template_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WRITE_DEPTH = 400, MAX_JSON_DEPTH = 100 };

void dpe_template_write_float(struct render *render, struct builder *to, double real)
{
    char text[DPE_PY_REAL];
    dpe_template_put_text(render, to, dpe_py_real(real, text));
}

/* ------------------------------------------------------------------------------------- writing */

/* As {{ }} writes, or repr(), or as JSON. */
enum form { FORM_TEXT, FORM_REPR, FORM_JSON };
struct writer {
    struct render *render;
    struct builder *out;
    enum form form;
    struct dpe_span item, key; /* separators */
    struct dpe_span margin;    /* `indent` times for each level */
    int64_t indent;            /* −1: on one line */
    bool ascii, sort;
    int depth;
};

static void put(struct writer *writer, const char *text)
{
    dpe_template_put_text(writer->render, writer->out, text);
}

static void new_line(struct writer *writer)
{
    if (writer->indent >= 0) {
        put(writer, "\n");
        dpe_template_put_often(writer->render, writer->out, writer->margin,
                               writer->indent * writer->depth);
    }
}

/* A character within quotation marks: the escape of one that needs it, in `out`; else "". */
static void escape_repr(uint32_t point, char quote, char out[16])
{
    out[0] = '\0';
    if (point == '\\' || point == (unsigned char)quote) {
        snprintf(out, 16, "\\%c", (char)point);
    } else if (point == '\n' || point == '\r' || point == '\t') {
        snprintf(out, 16, "\\%c", point == '\n' ? 'n' : point == '\r' ? 'r' : 't');
    } else if (!dpe_py_printable(point)) {
        snprintf(out, 16,
                 point < 0x100     ? "\\x%02x"
                 : point < 0x10000 ? "\\u%04x"
                                   : "\\U%08x",
                 (unsigned)point);
    }
}

static void escape_json(uint32_t point, bool ascii, char out[16])
{
    static const char from[] = "\"\\\n\r\t\f\b";
    static const char to[] = "\"\\nrtfb";
    const char *known = point != 0 && point < 0x80 ? strchr(from, (int)point) : NULL;
    out[0] = '\0';
    if (known != NULL) {
        snprintf(out, 16, "\\%c", to[known - from]);
    } else if (ascii && point > 0xffff) {
        snprintf(out, 16, "\\u%04x\\u%04x", (unsigned)(0xd800 + ((point - 0x10000) >> 10)),
                 (unsigned)(0xdc00 + ((point - 0x10000) & 0x3ff)));
    } else if (point < 0x20 || (ascii && point > 0x7e)) {
        snprintf(out, 16, "\\u%04x", (unsigned)point);
    }
}

static void put_string(struct writer *writer, struct dpe_span text)
{
    bool json = writer->form == FORM_JSON;
    bool single = memchr(text.s, '\'', text.n) != NULL && memchr(text.s, '"', text.n) == NULL;
    char quote = json || single ? '"' : '\'';
    dpe_template_put(writer->render, writer->out, &quote, 1);
    for (size_t i = 0, n = 0; i < text.n; i += n) {
        uint32_t point = dpe_py_next(text.s + i, text.s + text.n, &n);
        char out[16];
        if (json) {
            escape_json(point, writer->ascii, out);
        } else {
            escape_repr(point, quote, out);
        }
        dpe_template_put(writer->render, writer->out, out[0] != '\0' ? out : text.s + i,
                         out[0] != '\0' ? strlen(out) : n);
    }
    dpe_template_put(writer->render, writer->out, &quote, 1);
}

static void put_value(struct writer *writer, struct value value);

/* In JSON a key that is no string is written as one. */
static void put_key(struct writer *writer, struct value key)
{
    struct builder built = {0};
    struct writer own = {.render = writer->render, .out = &built, .form = writer->form};
    if (writer->form != FORM_JSON || key.kind == KIND_STRING) {
        put_value(writer, key);
        return;
    }
    put_value(&own, key);
    put_string(writer, dpe_template_built(&built).text);
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
    if (!writer->sort || pairs->n == 0) {
        return pairs->at;
    }
    struct pair *sorted = dpe_template_get(writer->render, pairs->n * sizeof *sorted);
    for (size_t i = 0; i < pairs->n; i++) {
        sorted[i] = pairs->at[i];
        if (sorted[i].key.kind != KIND_STRING) {
            dpe_template_fail(writer->render, "tojson: only keys that are strings can be sorted");
        }
    }
    qsort(sorted, pairs->n, sizeof *sorted, by_key);
    return sorted;
}

/* A list, a tuple or a mapping. */
static void put_row(struct writer *writer, struct value row)
{
    bool dict = row.kind == KIND_DICT;
    bool tuple = row.kind == KIND_TUPLE && writer->form != FORM_JSON;
    const struct pair *pairs = dict ? in_order(writer, row.pairs) : NULL;
    size_t n = dict ? row.pairs->n : row.items->n;
    put(writer, dict ? "{" : tuple ? "(" : "[");
    writer->depth++;
    for (size_t i = 0; i < n; i++) {
        dpe_template_put(writer->render, writer->out, writer->item.s, i > 0 ? writer->item.n : 0);
        new_line(writer);
        if (dict) {
            put_key(writer, pairs[i].key);
            dpe_template_put_span(writer->render, writer->out, writer->key);
        }
        put_value(writer, dict ? pairs[i].value : row.items->at[i]);
    }
    writer->depth--;
    if (n > 0) {
        new_line(writer);
    }
    put(writer, dict ? "}" : tuple && n == 1 ? ",)" : tuple ? ")" : "]");
}

static void put_float(struct writer *writer, double real)
{
    if (writer->form == FORM_JSON && !isfinite(real)) {
        put(writer, isnan(real) ? "NaN" : real > 0 ? "Infinity" : "-Infinity");
    } else {
        dpe_template_write_float(writer->render, writer->out, real);
    }
}

/* What JSON has no form of. */
static void put_other(struct writer *writer, struct value value, bool quoted)
{
    if (writer->form == FORM_JSON) {
        dpe_template_fail(writer->render, "tojson: %s has no form in JSON",
                          dpe_template_kind_name(value));
    }
    if (value.kind == KIND_UNDEFINED) {
        put(writer, quoted ? "Undefined" : "");
        return;
    }
    if (value.kind != KIND_ITERATOR) {
        dpe_template_fail(writer->render, "%s cannot be written", dpe_template_kind_name(value));
    }
    if (value.iterator->name == NULL) {
        dpe_template_fail(writer->render, "a generator cannot be written: make it a list");
    }
    put(writer, value.iterator->name);
    put(writer, "(");
    put_row(writer, (struct value){.kind = KIND_LIST, .items = &value.iterator->items});
    put(writer, ")");
}

static void put_value(struct writer *writer, struct value value)
{
    bool json = writer->form == FORM_JSON;
    bool quoted = writer->form != FORM_TEXT || writer->depth > 0;
    char text[32];
    dpe_template_step(writer->render, 1);
    if (json && writer->depth > MAX_JSON_DEPTH) {
        dpe_template_fail(writer->render, "tojson: nested more than %d deep", MAX_JSON_DEPTH);
    }
    if (writer->depth > MAX_WRITE_DEPTH) {
        dpe_template_fail(writer->render, "a value is nested too deep to be written");
    }
    switch (value.kind) {
    case KIND_NONE:
        put(writer, json ? "null" : "None");
        break;
    case KIND_BOOL:
        put(writer, value.integer != 0 ? (json ? "true" : "True") : json ? "false" : "False");
        break;
    case KIND_INT:
        snprintf(text, sizeof text, "%lld", (long long)value.integer);
        put(writer, text);
        break;
    case KIND_FLOAT:
        put_float(writer, value.real);
        break;
    case KIND_STRING:
        if (quoted) {
            put_string(writer, value.text);
            break;
        } /* fall through */
    case KIND_DIGITS:
        dpe_template_put_span(writer->render, writer->out, value.text);
        break;
    case KIND_LIST:
    case KIND_TUPLE:
    case KIND_DICT:
        put_row(writer, value);
        break;
    default:
        put_other(writer, value, quoted);
        break;
    }
}

static void write_as(struct render *render, struct builder *to, struct value value, enum form form)
{
    struct writer writer = {.render = render,
                            .out = to,
                            .form = form,
                            .item = dpe_span_of(", "),
                            .key = dpe_span_of(": "),
                            .indent = -1};
    put_value(&writer, value);
}

void dpe_template_write(struct render *render, struct builder *to, struct value value)
{
    write_as(render, to, value, FORM_TEXT);
}

struct dpe_span dpe_template_repr(struct render *render, struct value value)
{
    struct builder built = {0};
    write_as(render, &built, value, FORM_REPR);
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

struct value dpe_template_tojson(struct render *render, struct args *args)
{
    struct builder built = {0};
    const struct value *indent = dpe_template_arg(args, 1);
    const struct value *separators = dpe_template_arg(args, 2);
    struct writer writer = {.render = render,
                            .out = &built,
                            .form = FORM_JSON,
                            .key = dpe_span_of(": "),
                            .margin = dpe_span_of(" "),
                            .indent = -1,
                            .ascii = dpe_template_truth(args->at[0]),
                            .sort = dpe_template_truth(args->at[3])};
    if (indent != NULL && indent->kind == KIND_STRING) {
        writer.margin = indent->text;
        writer.indent = 1;
    } else if (indent != NULL) {
        writer.indent = dpe_most(dpe_template_integer(render, *indent, dpe_span_of("indent")), 0);
    }
    if (writer.indent > 64) {
        dpe_template_fail(render, "tojson: an indent of more than 64 is not supported");
    }
    writer.item = dpe_span_of(writer.indent < 0 ? ", " : ",");
    if (separators != NULL) {
        bool two = (separators->kind == KIND_LIST || separators->kind == KIND_TUPLE) &&
                   separators->items->n == 2;
        const struct value *at = two ? separators->items->at : NULL;
        if (at == NULL || at[0].kind != KIND_STRING || at[1].kind != KIND_STRING) {
            dpe_template_fail(render, "tojson: expected two strings as separators");
        }
        writer.item = at[0].text;
        writer.key = at[1].text;
    }
    put_value(&writer, args->of);
    return dpe_template_built(&built);
}

/* --------------------------------------------------------------------------------- JSON, read */

/* A string, or a number that the reader of the JSON could not hold (dpe_json_parse_exact). */
static struct value of_text(struct render *render, const json_t *json)
{
    const char *number = dpe_json_number_text(json);
    if (number == NULL) {
        return dpe_template_string(
            (struct dpe_span){json_string_value(json), json_string_length(json)});
    }
    return number[strspn(number, "-0123456789")] != '\0'
               ? dpe_template_float(strtod(number, NULL))
               : dpe_template_digits(render, number, strlen(number));
}

struct value dpe_template_of_json(struct render *render, const json_t *json, int depth)
{
    if (depth > MAX_JSON_DEPTH) {
        dpe_template_fail(render, "a variable is nested more than %d deep", MAX_JSON_DEPTH);
    }
    switch (json_typeof(json)) {
    case JSON_OBJECT: {
        struct value dict = dpe_template_dict(render, KIND_DICT, NULL);
        const char *key = NULL;
        json_t *member = NULL;
        json_object_foreach((json_t *)(uintptr_t)json, key, member)
        {
            dpe_template_dict_set(render, dict.pairs, dpe_template_text(key),
                                  dpe_template_of_json(render, member, depth + 1));
        }
        return dict;
    }
    case JSON_ARRAY: {
        struct value list = dpe_template_list(render, KIND_LIST, json_array_size(json));
        for (size_t i = 0; i < json_array_size(json); i++) {
            dpe_template_add(render, list,
                             dpe_template_of_json(render, json_array_get(json, i), depth + 1));
        }
        return list;
    }
    case JSON_STRING:
        return of_text(render, json);
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
