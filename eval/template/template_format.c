/* Formatted texts: %, str.format(), and the filters that lay texts out. */
#include "eval/template/template_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_WIDTH = 1 << 16, MOST_PRECISION = 300 };

/* How a value is written: of %-10.3f, and of {:*^10,.3f}. */
struct form {
    struct dpe_span fill;
    char align; /* '<', '>', '^', '=' or 0: that of the type */
    char sign;  /* '+', ' ' or 0 */
    bool alternate, zeros;
    char group;               /* between three digits each, or 0 */
    int64_t width, precision; /* −1: none */
    char type;                /* 0: none */
};

static const struct form plain_form = {.fill = {" ", 1}, .width = -1, .precision = -1};

/* A text among fill characters, at least `width` of all: at the left '<', the right '>', or
 * between. */
static struct dpe_span pad(struct render *render, struct dpe_span text, int64_t width,
                           struct dpe_span fill, char side)
{
    int64_t n = (int64_t)dpe_template_characters(render, text);
    int64_t lacking = width > n ? width - n : 0;
    int64_t left = side == '<' ? 0 : side == '>' ? lacking : lacking / 2;
    struct builder built = {0};
    dpe_template_put_often(render, &built, fill, left);
    dpe_template_put_span(render, &built, text);
    dpe_template_put_often(render, &built, fill, lacking - left);
    return dpe_template_built(&built).text;
}

/* The digits before the point in groups of three. */
static void put_grouped(struct render *render, struct builder *to, const char *digits, char comma)
{
    size_t whole = strspn(digits, "0123456789");
    for (size_t i = 0; i < whole; i++) {
        dpe_template_put(render, to, &comma, i > 0 && (whole - i) % 3 == 0);
        dpe_template_put(render, to, digits + i, 1);
    }
    dpe_template_put_span(render, to, dpe_span_of(digits + whole));
}

/* A number, whose digits stand apart from its sign, within the width. */
static void put_number(struct render *render, struct builder *to, const struct form *form,
                       bool minus, const char *prefix, const char *digits)
{
    struct builder body = {0};
    const char *sign = minus ? "-" : form->sign == '+' ? "+" : form->sign == ' ' ? " " : "";
    char align = form->align != 0 ? form->align : form->zeros ? '=' : '>';
    struct dpe_span fill = form->zeros && form->align == 0 ? dpe_span_of("0") : form->fill;
    if (form->group != 0) {
        put_grouped(render, &body, digits, form->group);
    } else {
        dpe_template_put_text(render, &body, digits);
    }
    struct dpe_span text = dpe_template_built(&body).text;
    if (align == '=') {
        int64_t rest = form->width - (int64_t)strlen(sign) - (int64_t)strlen(prefix);
        text = pad(render, text, rest, fill, '>');
    }
    struct builder whole = {0};
    dpe_template_put_text(render, &whole, sign);
    dpe_template_put_text(render, &whole, prefix);
    dpe_template_put_span(render, &whole, text);
    text = dpe_template_built(&whole).text;
    if (align != '=') {
        text = pad(render, text, form->width, fill, align);
    }
    dpe_template_put_span(render, to, text);
}

/* d, x, X, o of an integer. */
static void put_integer(struct render *render, struct builder *to, const struct form *form,
                        struct value value)
{
    char type = form->type == 0 || form->type == 'd' ? 'u' : form->type;
    if (value.kind == KIND_DIGITS) {
        dpe_template_fail(render, "an integer beyond 64 bits cannot be formatted");
    }
    char digits[32];
    const char pattern[] = {'%', 'l', 'l', type, '\0'};
    const char prefix[] = {'0', type, '\0'};
    bool minus = value.integer < 0;
    uint64_t size = minus ? 0 - (uint64_t)value.integer : (uint64_t)value.integer;
    /* -Wformat-nonliteral: made above of one letter. */
    snprintf(digits, sizeof digits, pattern, (unsigned long long)size);
    put_number(render, to, form, minus, form->alternate && type != 'u' ? prefix : "", digits);
}

/* e, f, g, % of a number. */
static void put_real(struct render *render, struct builder *to, const struct form *form,
                     double real)
{
    char pattern[16];
    char digits[700];
    char type = form->type == '%' ? 'f' : form->type;
    int places = form->precision >= 0 ? (int)form->precision : 6;
    bool minus = signbit(real) != 0 && !isnan(real);
    double size = fabs(real) * (form->type == '%' ? 100.0 : 1.0);
    snprintf(pattern, sizeof pattern, "%%%s.*%c", form->alternate ? "#" : "", type);
    /* -Wformat-nonliteral: made above of one letter and perhaps '#'. */
    snprintf(digits, sizeof digits, pattern, places, size);
    dpe_append(digits, sizeof digits, "%s", form->type == '%' ? "%" : "");
    put_number(render, to, form, minus, "", digits);
}

static void put_text(struct render *render, struct builder *to, const struct form *form,
                     struct dpe_span text)
{
    if (form->precision >= 0 && (uint64_t)form->precision < dpe_template_characters(render, text)) {
        text.n = dpe_template_offset(render, text, (size_t)form->precision);
    }
    char align = form->align != 0 ? form->align : '<';
    dpe_template_put_span(render, to, pad(render, text, form->width, form->fill, align));
}

/* ------------------------------------------------------------------------------------------ % */

/* What the conversions of a text read: a tuple's items by turns, a mapping's
 * members, or one value. */
struct source {
    struct value value;
    size_t used;
    bool named;
};

static struct value next_of(struct render *render, struct source *from, const struct dpe_span *name)
{
    if (name != NULL) {
        const struct value *found =
            from->value.kind == KIND_DICT
                ? dpe_template_dict_get(render, from->value.pairs, dpe_template_string(*name))
                : NULL;
        from->named = true;
        return found != NULL
                   ? *found
                   : dpe_template_fail(render, "%%: there is no value for '%.*s'", SHOWN(*name));
    }
    bool several = from->value.kind == KIND_TUPLE;
    size_t at = from->used++;
    if (at >= (several ? from->value.items->n : 1)) {
        dpe_template_fail(render, "%%: there are not enough values for the text");
    }
    return several ? from->value.items->at[at] : from->value;
}

static void convert(struct render *render, struct builder *to, struct form *form,
                    struct value value)
{
    char type = form->type;
    double real = 0.0;
    form->zeros = form->zeros && form->align != '<';
    if (strchr("sra", type) != NULL) {
        form->align = form->align == '<' ? '<' : '>';
        form->zeros = false;
        put_text(render, to, form,
                 type == 's' ? dpe_template_str(render, value) : dpe_template_repr(render, value));
        return;
    }
    bool whole = strchr("diu", type) != NULL;
    bool integer = value.kind != KIND_FLOAT;
    if (!dpe_template_number(value, &real)) {
        dpe_template_fail(render, "%%%c: expected a number, found %s", type,
                          dpe_template_kind_name(value));
    }
    if (strchr("eEfFgG", type) != NULL) {
        put_real(render, to, form, real);
        return;
    }
    if (!integer && (!whole || !isfinite(real))) {
        dpe_template_fail(render, "%%%c: expected an integer, found %s", type,
                          dpe_template_kind_name(value));
    }
    char text[400];
    int n = snprintf(text, sizeof text, "%.0f", trunc(real));
    form->type = whole ? 'd' : type;
    put_integer(render, to, form,
                integer ? dpe_template_whole(value) : dpe_template_digits(render, text, (size_t)n));
}

static int64_t read_width(struct render *render, const char **at, const char *end)
{
    int64_t width = 0;
    for (; *at < end && **at >= '0' && **at <= '9'; ++*at) {
        width = width * 10 + (**at - '0');
        if (width > MOST_WIDTH) {
            dpe_template_fail(render, "a width of more than %d is not supported", MOST_WIDTH);
        }
    }
    return width;
}

/* .PRECISION, or −1 where there is none. */
static int64_t read_precision(struct render *render, const char **at, const char *end)
{
    if (*at == end || **at != '.') {
        return -1;
    }
    ++*at;
    return dpe_least(read_width(render, at, end), MOST_PRECISION);
}

/* The conversion at *at, behind its %; a failure where it is none. */
static void one_conversion(struct render *render, struct builder *to, const char **at,
                           const char *end, struct source *from)
{
    struct form form = plain_form;
    struct dpe_span name = {NULL, 0};
    const char *s = *at;
    if (s < end && *s == '(') {
        const char *close = memchr(s, ')', (size_t)(end - s));
        name = (struct dpe_span){s + 1, close != NULL ? (size_t)(close - s - 1) : 0};
        s = close != NULL ? close + 1 : end;
    }
    for (; s < end && *s != '\0' && strchr("-+ #0", *s) != NULL; s++) {
        form.align = *s == '-' ? '<' : form.align;
        form.sign = *s == '+' || (*s == ' ' && form.sign == 0) ? *s : form.sign;
        form.alternate = form.alternate || *s == '#';
        form.zeros = form.zeros || *s == '0';
    }
    form.width = read_width(render, &s, end);
    form.precision = read_precision(render, &s, end);
    s += s < end && (*s == 'l' || *s == 'h' || *s == 'L');
    form.type = s < end ? *s : '\0';
    if (form.type == '\0' || strchr("sradiuxXoeEfFgG%", form.type) == NULL) {
        dpe_template_fail(render, "%%: a conversion that is not supported");
    }
    *at = s + 1;
    if (form.type == '%') {
        dpe_template_put(render, to, "%", 1);
    } else {
        convert(render, to, &form, next_of(render, from, name.s != NULL ? &name : NULL));
    }
}

struct value dpe_template_percent(struct render *render, struct dpe_span text, struct value value)
{
    struct builder built = {0};
    struct source from = {.value = value};
    const char *end = text.s + text.n;
    for (const char *s = text.s; s < end;) {
        const char *mark = memchr(s, '%', (size_t)(end - s));
        dpe_template_step(render, 1);
        dpe_template_put(render, &built, s, (size_t)((mark != NULL ? mark : end) - s));
        if (mark == NULL) {
            break;
        }
        s = mark + 1;
        one_conversion(render, &built, &s, end, &from);
    }
    bool left = value.kind == KIND_TUPLE ? from.used < value.items->n
                                         : from.used == 0 && value.kind != KIND_DICT &&
                                               value.kind != KIND_LIST && !from.named;
    if (left) {
        dpe_template_fail(render, "%%: not all values have a place in the text");
    }
    return dpe_template_built(&built);
}

/* --------------------------------------------------------------------------------- str.format() */

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static struct form read_form(struct render *render, struct dpe_span text)
{
    static const char aligns[] = "<>^=";
    struct form form = plain_form;
    const char *s = text.s;
    const char *end = s + text.n;
    size_t n = 0;
    if (s < end) {
        dpe_py_next(s, end, &n);
    }
    if (s < end && s + n < end && s[n] != '\0' && strchr(aligns, s[n]) != NULL) {
        form.fill = (struct dpe_span){s, n};
        form.align = s[n];
        s += n + 1;
    } else if (s < end && *s != '\0' && strchr(aligns, *s) != NULL) {
        form.align = *s++;
    }
    if (s < end && (*s == '+' || *s == '-' || *s == ' ')) {
        form.sign = *s == '-' ? '\0' : *s;
        s++;
    }
    form.alternate = s < end && *s == '#';
    s += form.alternate;
    form.zeros = s < end && *s == '0';
    form.width = s < end && *s >= '0' && *s <= '9' ? read_width(render, &s, end) : -1;
    if (s < end && (*s == ',' || *s == '_')) {
        form.group = *s++;
    }
    form.precision = read_precision(render, &s, end);
    form.type = s < end ? *s++ : '\0';
    if (s < end) {
        dpe_template_fail(render, "format(): '%.*s' is no form that is supported", SHOWN(text));
    }
    return form;
}

static void put_formed(struct render *render, struct builder *to, struct value value,
                       struct dpe_span spec)
{
    struct form form = read_form(render, spec);
    double real = 0.0;
    bool number = dpe_template_number(value, &real) && (value.kind != KIND_BOOL || form.type != 0);
    bool plain = form.type == 0 || form.type == 's';
    if (!number && plain && spec.n > 0 && value.kind != KIND_STRING) {
        dpe_template_fail(render, "format(): %s takes no form", dpe_template_kind_name(value));
    }
    if (!number && plain) {
        put_text(render, to, &form, dpe_template_str(render, value));
    } else if (number && form.type != 0 && strchr("eEfFgG%", form.type) != NULL) {
        put_real(render, to, &form, real);
    } else if (value.kind == KIND_FLOAT && form.type == 0 && form.precision >= 0) {
        form.type = 'g';
        put_real(render, to, &form, real);
    } else if (value.kind == KIND_FLOAT && form.type == 0) {
        struct builder digits = {0};
        dpe_template_write_float(render, &digits, fabs(real));
        dpe_template_put(render, &digits, "", 1);
        put_number(render, to, &form, signbit(real) != 0, "", digits.bytes);
    } else if (number && value.kind != KIND_FLOAT &&
               (form.type == 0 || strchr("dxXo", form.type) != NULL)) {
        put_integer(render, to, &form, dpe_template_whole(value));
    } else {
        dpe_template_fail(render, "format(): '%c' is no form of %s", form.type,
                          dpe_template_kind_name(value));
    }
}

/* The argument that a field names. */
static struct value field_value(struct render *render, struct dpe_span name,
                                const struct args *args, int64_t *next)
{
    const char *digits = name.s;
    bool numbered = name.n > 0 && strspn(digits, "0123456789") >= name.n;
    if (name.n == 0 || numbered) {
        if ((*next > 0 && numbered) || (*next < 0 && !numbered)) {
            dpe_template_fail(render, "format(): fields with and without numbers");
        }
        int64_t at = numbered ? read_width(render, &digits, name.s + name.n) : *next;
        *next = numbered ? -1 : *next + 1;
        if (at >= (int64_t)args->n) {
            dpe_template_fail(render, "format(): there is no argument %lld", (long long)at);
        }
        return args->at[at];
    }
    const struct value *named =
        dpe_template_dict_get(render, &args->named, dpe_template_string(name));
    if (named == NULL || named->kind == KIND_UNDEFINED) {
        dpe_template_fail(render, "format(): there is no argument '%.*s'", SHOWN(name));
    }
    return *named;
}

/* {name:spec}; *at stands behind its brace. */
static void one_field(struct render *render, struct builder *to, const char **at, const char *end,
                      const struct args *args, int64_t *next)
{
    const char *s = *at;
    const char *close = memchr(s, '}', (size_t)(end - s));
    if (close == NULL || memchr(s, '{', (size_t)(close - s)) != NULL) {
        dpe_template_fail(render, close == NULL
                                      ? "format(): a field has no end"
                                      : "format(): a field within a field is not supported");
    }
    const char *colon = memchr(s, ':', (size_t)(close - s));
    struct dpe_span name = {s, (size_t)((colon != NULL ? colon : close) - s)};
    struct dpe_span spec = {colon != NULL ? colon + 1 : close, 0};
    spec.n = (size_t)(close - spec.s);
    struct value value = field_value(render, name, args, next);
    *at = close + 1;
    put_formed(render, to, value, spec);
}

struct value dpe_template_format(struct render *render, struct args *args)
{
    struct builder built = {0};
    const char *end = args->of.text.s + args->of.text.n;
    int64_t next = 0;
    for (const char *s = args->of.text.s; s < end;) {
        dpe_template_step(render, 1);
        if (*s != '{' && *s != '}') {
            const char *from = s;
            while (s < end && *s != '{' && *s != '}') {
                s++;
            }
            dpe_template_put(render, &built, from, (size_t)(s - from));
        } else if (s + 1 < end && s[1] == *s) {
            dpe_template_put(render, &built, s, 1);
            s += 2;
        } else if (*s == '}') {
            dpe_template_fail(render, "format(): a single '}'");
        } else {
            s++;
            one_field(render, &built, &s, end, args, &next);
        }
    }
    return dpe_template_built(&built);
}

/* -------------------------------------------------------------------------------------- filters */

/* "text"|format(…): text % arguments. */
static struct value do_format(struct render *render, struct args *args)
{
    struct items items = {.at = args->at, .n = args->n};
    if (args->n > 0 && args->named.n > 0) {
        dpe_template_fail(render, "format: either arguments with names or without");
    }
    return dpe_template_percent(render, dpe_template_str(render, args->of),
                                args->named.n > 0
                                    ? (struct value){.kind = KIND_DICT, .pairs = &args->named}
                                    : (struct value){.kind = KIND_TUPLE, .items = &items});
}

struct value dpe_template_escape(struct render *render, struct value of)
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    if (of.kind == KIND_STRING && of.markup) {
        return of;
    }
    struct dpe_span text = dpe_template_str(render, of);
    struct builder built = {0};
    dpe_template_step(render, text.n);
    for (size_t i = 0; i < text.n; i++) {
        const char *known = text.s[i] != '\0' ? strchr(from, text.s[i]) : NULL;
        if (known != NULL) {
            dpe_template_put_text(render, &built, to[known - from]);
        } else {
            dpe_template_put(render, &built, text.s + i, 1);
        }
    }
    struct value escaped = dpe_template_built(&built);
    escaped.markup = true;
    return escaped;
}

static struct value do_escape(struct render *render, struct args *args)
{
    return dpe_template_escape(render, args->of);
}

const struct known dpe_template_format_filters[] = {
    {"format", NULL, do_format},
    {"e", "", do_escape},
    {"escape", "", do_escape},
    {NULL},
};
