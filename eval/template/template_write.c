/* Values of templates as Python writes them. */
#include "eval/template/template_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WRITE_DEPTH = 100 };

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
        dpe_template_put_span(render, to, dpe_span_of(value.truth ? "True" : "False"));
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
    case KIND_NAMESPACE:
    case KIND_LOOP:
    case KIND_MACRO:
    case KIND_FUNCTION:
    case KIND_METHOD:
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
