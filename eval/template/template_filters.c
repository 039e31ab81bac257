/* Texts stripped, replaced, padded and in another case, as Python does it; filters of texts and
 * numbers: "x | NAME". */
#include "eval/template/template_parts.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------- texts */

/* Whether a character is one of the set; NULL: white space. */
static bool stripped(struct dpe_span character, const struct dpe_span *set)
{
    return set != NULL ? dpe_span_find(*set, character) != SIZE_MAX
                       : dpe_py_space(character.s, character.s + character.n) > 0;
}

struct value dpe_template_do_strip(struct render *render, struct args *args)
{
    struct dpe_span text = dpe_template_str(render, args->of);
    const struct value *given = dpe_template_arg(args, 0);
    const struct dpe_span *set = given != NULL ? &given->text : NULL;
    size_t cost = set != NULL ? set->n / 16 + 1 : 0;
    dpe_template_step(render, text.n / 64);
    while ((args->how & STRIP_LEFT) != 0 && text.n > 0) {
        size_t n = 0;
        dpe_template_step(render, cost);
        dpe_py_next(text.s, text.s + text.n, &n);
        if (!stripped((struct dpe_span){text.s, n}, set)) {
            break;
        }
        text.s += n;
        text.n -= n;
    }
    while ((args->how & STRIP_RIGHT) != 0 && text.n > 0) {
        const char *last = dpe_py_before(text.s, text.s + text.n);
        size_t n = (size_t)(text.s + text.n - last);
        dpe_template_step(render, cost);
        if (!stripped((struct dpe_span){last, n}, set)) {
            break;
        }
        text.n -= n;
    }
    struct value kept = dpe_template_string(text);
    kept.markup =
        (args->how & STRIP_MARKED) != 0 && args->of.kind == KIND_STRING && args->of.markup;
    return kept;
}

struct value dpe_template_do_replace(struct render *render, struct args *args)
{
    struct dpe_span from = args->at[0].text;
    struct dpe_span to = args->at[1].text;
    int64_t most = args->at[2].integer;
    struct dpe_span text = dpe_template_str(render, args->of);
    struct builder built = {0};
    dpe_template_step(render, text.n / 16);
    for (int64_t i = 0; most < 0 || i < most; i++) {
        size_t at = dpe_span_find(text, from);
        if (at == SIZE_MAX) {
            break;
        }
        dpe_template_step(render, 1);
        dpe_template_put(render, &built, text.s, at);
        dpe_template_put_span(render, &built, to);
        size_t n = from.n;
        if (n == 0 && text.n > 0) { /* "" stands before each character, and at the end */
            dpe_py_next(text.s, text.s + text.n, &n);
            dpe_template_put(render, &built, text.s, n);
        } else if (n == 0) {
            break;
        }
        text.s += at + n;
        text.n -= at + n;
    }
    dpe_template_put_span(render, &built, text);
    return dpe_template_built(&built);
}

struct value dpe_template_case(struct render *render, struct dpe_span text,
                               enum dpe_py_letters letters)
{
    struct builder built = {0};
    struct dpe_text *out = &render->cased;
    dpe_template_step(render, text.n / 16);
    out->n = 0;
    if (dpe_py_case(text, letters, out) != DPE_OK) {
        dpe_template_no_memory(render);
    }
    dpe_template_put(render, &built, out->bytes, out->n);
    return dpe_template_built(&built);
}

struct value dpe_template_do_case(struct render *render, struct args *args)
{
    return dpe_template_case(render, dpe_template_str(render, args->of),
                             (enum dpe_py_letters)args->how);
}

void dpe_template_put_often(struct render *render, struct builder *to, struct dpe_span text,
                            int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        dpe_template_step(render, 1);
        dpe_template_put_span(render, to, text);
    }
}

struct value dpe_template_pad(struct render *render, struct dpe_span text, int64_t width,
                              struct dpe_span fill, char side)
{
    int64_t n = (int64_t)dpe_template_characters(render, text);
    int64_t lacking = width > n ? width - n : 0;
    /* str.center gives the odd one to the left where the width is odd. */
    int64_t left = side == '<'   ? 0
                   : side == '>' ? lacking
                   : side == '^' ? lacking / 2
                                 : lacking / 2 + (lacking & width & 1);
    struct builder built = {0};
    dpe_template_put_often(render, &built, fill, left);
    dpe_template_put_span(render, &built, text);
    dpe_template_put_often(render, &built, fill, lacking - left);
    return dpe_template_built(&built);
}

/* jinja2's own way to a title: not that of str.title(). */
static void put_word(struct render *render, struct builder *to, struct dpe_span word)
{
    size_t n = 0;
    if (word.n > 0) {
        dpe_py_next(word.s, word.s + word.n, &n);
        struct dpe_span rest = {word.s + n, word.n - n};
        struct dpe_span first = {word.s, n};
        dpe_template_put_span(render, to, dpe_template_case(render, first, DPE_PY_UPPER).text);
        dpe_template_put_span(render, to, dpe_template_case(render, rest, DPE_PY_LOWER).text);
    }
}

/* Words begin after white space and after - ( { [ <. */
static struct value do_title(struct render *render, struct args *args)
{
    struct dpe_span text = dpe_template_str(render, args->of);
    struct builder built = {0};
    size_t start = 0;
    for (size_t i = 0, n = 0; i < text.n; i += n) {
        uint32_t point = dpe_py_next(text.s + i, text.s + text.n, &n);
        bool ends = dpe_py_space(text.s + i, text.s + text.n) > 0 || point == '-' || point == '(' ||
                    point == '{' || point == '[' || point == '<';
        if (ends || i + n == text.n) {
            size_t end = ends ? i : i + n;
            struct dpe_span word = {text.s + start, end - start};
            put_word(render, &built, word);
            dpe_template_put(render, &built, text.s + i, ends ? n : 0);
            start = i + n;
        }
    }
    return dpe_template_built(&built);
}

static struct value do_string(struct render *render, struct args *args)
{
    return args->of.kind == KIND_STRING ? args->of
                                        : dpe_template_string(dpe_template_str(render, args->of));
}

/* Lines after the first begin with `width` spaces (or that text), empty ones only with `blank`. As
 * jinja2 does it: the lines are those of splitlines() of the text and a newline. */
static struct value do_indent(struct render *render, struct args *args)
{
    struct value width = args->at[0];
    bool first = dpe_template_truth(args->at[1]);
    bool blank = dpe_template_truth(args->at[2]);
    struct builder margin = {0};
    struct builder text = {0};
    struct builder built = {0};
    if (width.kind == KIND_STRING) {
        dpe_template_put_span(render, &margin, width.text);
    } else {
        int64_t n = dpe_template_integer(render, width, dpe_span_of("width"));
        dpe_template_put_often(render, &margin, dpe_span_of(" "), n);
    }
    dpe_template_put_span(render, &text, dpe_template_str(render, args->of));
    dpe_template_put(render, &text, "\n", 1);
    struct items lines = *dpe_template_lines(render, dpe_template_built(&text).text, false).items;
    for (size_t i = 0; i < lines.n; i++) {
        dpe_template_put(render, &built, "\n", i > 0);
        if (i == 0 ? first : blank || lines.at[i].text.n > 0) {
            dpe_template_put_span(render, &built, dpe_template_built(&margin).text);
        }
        dpe_template_put_span(render, &built, lines.at[i].text);
    }
    return dpe_template_built(&built);
}

static struct value do_safe(struct render *render, struct args *args)
{
    struct value text = dpe_template_string(dpe_template_str(render, args->of));
    text.markup = true;
    return text;
}

static struct value do_center(struct render *render, struct args *args)
{
    return dpe_template_pad(render, dpe_template_str(render, args->of), args->at[0].integer,
                            dpe_span_of(" "), 'c');
}

/* -------------------------------------------------------------------------------------- numbers */

/* The digits of an integer as int() reads them, in ASCII and without what may stand between; 0: it
 * is none. Room for `most`. */
static size_t plain_digits(struct dpe_span text, char *out, size_t most)
{
    size_t n = 0;
    bool digit = false; /* the last character was one */
    for (size_t i = 0, length = 0; i < text.n; i += length) {
        uint32_t point = dpe_py_next(text.s + i, text.s + text.n, &length);
        int value = dpe_py_digit(point);
        bool sign = i == 0 && (point == '-' || point == '+');
        if ((value < 0 && !sign && !(point == '_' && digit)) || n + 1 >= most) {
            return 0;
        }
        digit = value >= 0;
        if (value >= 0 || (sign && point == '-')) {
            out[n++] = value >= 0 ? (char)('0' + value) : '-';
        }
    }
    return digit ? n : 0;
}

/* int(text, base) for a base other than 10. */
static bool of_base(struct dpe_span text, int64_t base, int64_t *integer)
{
    char plain[80];
    char *end = NULL;
    if (text.n == 0 || text.n >= sizeof plain || base < 2 || base > 36) {
        return false;
    }
    memcpy(plain, text.s, text.n);
    plain[text.n] = '\0';
    char *digits = plain + (plain[0] == '-' || plain[0] == '+');
    char mark = digits[0] == '0' ? (char)(digits[1] | 0x20) : '\0';
    if ((mark == 'x' && base == 16) || (mark == 'o' && base == 8) || (mark == 'b' && base == 2)) {
        memmove(digits, digits + 2, strlen(digits + 2) + 1);
    }
    errno = 0;
    *integer = strtoll(plain, &end, (int)base);
    return errno == 0 && *end == '\0' && end > digits && digits[0] != '-' && digits[0] != '+';
}

/* int(real), exact. */
static struct value of_real(struct render *render, double real, struct value fallback)
{
    char text[400];
    if (!isfinite(real)) {
        return fallback;
    }
    int n = snprintf(text, sizeof text, "%.0f", trunc(real));
    return dpe_template_digits(render, text, (size_t)n);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool read_real(struct dpe_span text, double *real)
{
    char plain[400];
    char *end = NULL;
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++) {
        bool inner = i > 0 && i + 1 < text.n && text.s[i] == '_' && is_digit(text.s[i - 1]) &&
                     is_digit(text.s[i + 1]);
        if (n + 1 >= sizeof plain || strchr("xXpP", text.s[i]) != NULL || text.s[i] == '\0') {
            return false;
        }
        if (!inner) {
            plain[n++] = text.s[i];
        }
    }
    plain[n] = '\0';
    *real = strtod(plain, &end);
    return n > 0 && *end == '\0';
}

static struct value do_int(struct render *render, struct args *args)
{
    enum { MOST_DIGITS = 4300 }; /* int() reads no more */
    struct value of = dpe_template_whole(args->of);
    struct value fallback = args->at[0];
    int64_t base = args->at[1].integer;
    int64_t integer = 0;
    double real = 0.0;
    if (of.kind == KIND_FLOAT) {
        return of_real(render, of.real, fallback);
    }
    if (of.kind != KIND_STRING) {
        return of.kind == KIND_INT || of.kind == KIND_DIGITS ? of : fallback;
    }
    dpe_template_step(render, of.text.n / 16);
    struct dpe_span trimmed = dpe_py_strip(of.text);
    if (base != 10 && of_base(trimmed, base, &integer)) {
        return dpe_template_int(integer);
    }
    char *digits = dpe_template_get(render, MOST_DIGITS + 3);
    size_t n = base == 10 ? plain_digits(trimmed, digits, MOST_DIGITS + 3) : 0;
    return n > 0                       ? dpe_template_digits(render, digits, n)
           : read_real(trimmed, &real) ? of_real(render, real, fallback)
                                       : fallback;
}

static struct value do_float(struct render *render, struct args *args)
{
    const struct value *given = dpe_template_arg(args, 0);
    double real = 0.0;
    dpe_template_step(render, args->of.kind == KIND_STRING ? args->of.text.n / 16 : 0);
    if (dpe_template_number(args->of, &real) ||
        (args->of.kind == KIND_STRING && read_real(dpe_py_strip(args->of.text), &real))) {
        return dpe_template_float(real);
    }
    return given != NULL ? *given : dpe_template_float(0.0);
}

static struct value do_abs(struct render *render, struct args *args)
{
    struct value of = args->of;
    struct value zero = dpe_template_int(0);
    if (of.kind == KIND_DIGITS) {
        size_t minus = of.text.s[0] == '-';
        return dpe_template_digits(render, of.text.s + minus, of.text.n - minus);
    }
    return dpe_template_compare(render, of, zero) < 0
               ? dpe_template_binary(render, OP_SUBTRACT, zero, of)
               : dpe_template_whole(of);
}

/* round(…) of jinja2: "common" rounds as Python does, to the even one of two that are as near. */
static struct value do_round(struct render *render, struct args *args)
{
    struct value of = args->of;
    int64_t places = args->at[0].integer;
    struct dpe_span method = args->at[1].text;
    bool common = dpe_span_equal(method, dpe_span_of("common"));
    bool up = dpe_span_equal(method, dpe_span_of("ceil"));
    double real = 0.0;
    if (!common && !up && !dpe_span_equal(method, dpe_span_of("floor"))) {
        dpe_template_fail(render, "round: the method is common, ceil or floor");
    }
    if (!dpe_template_number(of, &real) || places > 300 || places < -300) {
        dpe_template_fail(render, "round: expected a number, found %s", dpe_template_kind_name(of));
    }
    if (common && of.kind != KIND_FLOAT && places >= 0) {
        return dpe_template_whole(of);
    }
    double scale = pow(10.0, (double)(common ? -places : places));
    if (common && places >= 0 && isfinite(real)) {
        char text[700];
        snprintf(text, sizeof text, "%.*f", (int)places, real);
        return dpe_template_float(strtod(text, NULL));
    }
    real = !common ? (up ? ceil(real * scale) : floor(real * scale)) / scale
                   : nearbyint(real / scale) * scale;
    return of.kind != KIND_FLOAT && common ? of_real(render, real, dpe_template_int(0))
                                           : dpe_template_float(real);
}

static struct value do_default(struct render *render, struct args *args)
{
    bool falsy = dpe_template_truth(args->at[1]);
    (void)render;
    return args->of.kind != KIND_UNDEFINED && !(falsy && !dpe_template_truth(args->of))
               ? args->of
               : args->at[0];
}

/* Bytes that a URL takes as they are, or as %XX; a blank in a query is '+'. */
static void put_quoted(struct render *render, struct builder *to, struct dpe_span text, bool query)
{
    static const char plain[] =
        "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    dpe_template_step(render, text.n);
    for (size_t i = 0; i < text.n; i++) {
        char code[4];
        bool kept =
            memchr(plain, text.s[i], sizeof plain - 1) != NULL || (!query && text.s[i] == '/');
        snprintf(code, sizeof code, "%%%02X", (unsigned)(unsigned char)text.s[i]);
        bool blank = query && text.s[i] == ' ';
        dpe_template_put(render, to, blank ? "+" : kept ? text.s + i : code, blank || kept ? 1 : 3);
    }
}

/* A text, or the query of a mapping or of pairs. */
static struct value do_urlencode(struct render *render, struct args *args)
{
    struct value of = args->of;
    struct builder built = {0};
    bool pairs = of.kind == KIND_DICT || of.kind == KIND_LIST || of.kind == KIND_TUPLE ||
                 of.kind == KIND_ITERATOR;
    if (!pairs) {
        put_quoted(render, &built, dpe_template_str(render, of), false);
        return dpe_template_built(&built);
    }
    struct items items =
        of.kind == KIND_DICT ? dpe_template_pairs(render, of) : dpe_template_items(render, of);
    for (size_t i = 0; i < items.n; i++) {
        struct items two = dpe_template_items(render, items.at[i]);
        if (two.n != 2) {
            dpe_template_fail(render, "urlencode: expected a text, a mapping or pairs");
        }
        dpe_template_put(render, &built, "&", i > 0);
        put_quoted(render, &built, dpe_template_str(render, two.at[0]), true);
        dpe_template_put(render, &built, "=", 1);
        put_quoted(render, &built, dpe_template_str(render, two.at[1]), true);
    }
    return dpe_template_built(&built);
}

const struct known dpe_template_text_filters[] = {
    {"urlencode", "", do_urlencode},
    {"trim", "~$chars=", dpe_template_do_strip, STRIP_LEFT | STRIP_RIGHT | STRIP_MARKED},
    {"upper", "", dpe_template_do_case, DPE_PY_UPPER},
    {"lower", "", dpe_template_do_case, DPE_PY_LOWER},
    {"capitalize", "", dpe_template_do_case, DPE_PY_CAPITAL},
    {"title", "", do_title},
    {"replace", "$old,$new,~#count=-1", dpe_template_do_replace},
    {"string", "", do_string},
    {"indent", "width=4,first=,blank=", do_indent},
    {"safe", "", do_safe},
    {"center", "#width=80", do_center},
    {"int", "default=0,#base=10", do_int},
    {"float", "default=", do_float},
    {"abs", "", do_abs},
    {"round", "#precision=0,$method='common'", do_round},
    {"default", "default_value='',boolean=", do_default},
    {"d", "default_value='',boolean=", do_default},
    {"tojson", "ensure_ascii=,~indent=,~separators=,sort_keys=", dpe_template_tojson},
    {NULL},
};
