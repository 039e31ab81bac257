/* Texts stripped, replaced, padded and in another case, as Python does it; filters of texts and
 * numbers: "x | NAME". */
#include "eval/template/template_parts.h"

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

/* jinja2's own way to a title, not that of str.title(): words begin after white space and after
 * - ( { [ <. */
static struct value do_title(struct render *render, struct args *args)
{
    struct dpe_span text = dpe_template_str(render, args->of);
    struct builder built = {0};
    struct dpe_span first = {NULL, 0}; /* of a word */
    for (size_t i = 0, n = 0; i < text.n; i += n) {
        uint32_t point = dpe_py_next(text.s + i, text.s + text.n, &n);
        first = first.s == NULL ? (struct dpe_span){text.s + i, n} : first;
        if (i + n == text.n || dpe_py_space(text.s + i, text.s + text.n) > 0 ||
            (point < 0x80 && strchr("-({[<", (int)point) != NULL)) {
            const char *behind = first.s + first.n;
            struct dpe_span rest = {behind, (size_t)(text.s + i + n - behind)};
            dpe_template_put_span(render, &built,
                                  dpe_template_case(render, first, DPE_PY_UPPER).text);
            dpe_template_put_span(render, &built,
                                  dpe_template_case(render, rest, DPE_PY_LOWER).text);
            first.s = NULL;
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

/* -------------------------------------------------------------------------------------- numbers */

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

/* A number's text, as int() and float() take it, for strtod: without white space around it and '_'
 * between digits, the digits of any script in ASCII. The bytes in `out` [most]; 0: it is no number,
 * or too long. */
static size_t plain_number(struct dpe_span text, char *out, size_t most)
{
    size_t n = 0;
    bool digit = false; /* the last character was one */
    bool between = false;
    text = dpe_py_strip(text);
    for (size_t i = 0, length = 0; i < text.n; i += length) {
        uint32_t point = dpe_py_next(text.s + i, text.s + text.n, &length);
        int value = dpe_py_digit(point);
        if (n + 1 >= most || (between && value < 0) || (value < 0 && point > 0x7f)) {
            return 0;
        }
        between = digit && point == '_';
        digit = value >= 0;
        if (!between) {
            out[n++] = digit ? (char)('0' + value) : (char)point;
        }
    }
    out[n] = '\0';
    return between || strpbrk(out, "xXpP") != NULL ? 0 : n;
}

static bool read_real(const char *plain, size_t n, double *real)
{
    char *end = NULL;
    if (n == 0) {
        return false; /* there is no text then */
    }
    *real = strtod(plain, &end);
    return end == plain + n;
}

enum { MOST_DIGITS = 4300 }; /* int() reads no more */

static struct value do_int(struct render *render, struct args *args)
{
    struct value of = dpe_template_whole(args->of);
    struct value fallback = args->at[0];
    char plain[MOST_DIGITS + 3];
    double real = 0.0;
    if (of.kind == KIND_FLOAT) {
        return of_real(render, of.real, fallback);
    }
    if (of.kind != KIND_STRING) {
        return of.kind == KIND_INT || of.kind == KIND_DIGITS ? of : fallback;
    }
    dpe_template_step(render, of.text.n / 16);
    size_t n = plain_number(of.text, plain, sizeof plain);
    size_t plus = n > 0 && plain[0] == '+';
    size_t sign = n > 0 && (plus || plain[0] == '-');
    return n > sign && strspn(plain + sign, "0123456789") == n - sign
               ? dpe_template_digits(render, plain + plus, n - plus)
           : read_real(plain, n, &real) ? of_real(render, real, fallback)
                                        : fallback;
}

static struct value do_float(struct render *render, struct args *args)
{
    const struct value *given = dpe_template_arg(args, 0);
    char plain[MOST_DIGITS + 3];
    double real = 0.0;
    bool text = args->of.kind == KIND_STRING;
    dpe_template_step(render, text ? args->of.text.n / 16 : 0);
    if (dpe_template_number(args->of, &real) ||
        (text && read_real(plain, plain_number(args->of.text, plain, sizeof plain), &real))) {
        return dpe_template_float(real);
    }
    return given != NULL ? *given : dpe_template_float(0.0);
}

static struct value do_abs(struct render *render, struct args *args)
{
    struct value of = args->of;
    struct value zero = dpe_template_int(0);
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

const struct known dpe_template_text_filters[] = {
    {"trim", "~$chars=", dpe_template_do_strip, STRIP_LEFT | STRIP_RIGHT | STRIP_MARKED},
    {"upper", "", dpe_template_do_case, DPE_PY_UPPER},
    {"lower", "", dpe_template_do_case, DPE_PY_LOWER},
    {"capitalize", "", dpe_template_do_case, DPE_PY_CAPITAL},
    {"title", "", do_title},
    {"replace", "$old,$new,~#count=-1", dpe_template_do_replace},
    {"string", "", do_string},
    {"indent", "width=4,first=,blank=", do_indent},
    {"safe", "", do_safe},
    {"int", "default=0", do_int},
    {"float", "default=", do_float},
    {"abs", "", do_abs},
    {"round", "#precision=0,$method='common'", do_round},
    {"default", "default_value='',boolean=", do_default},
    {"d", "default_value='',boolean=", do_default},
    {"tojson", "ensure_ascii=,~indent=,~separators=,sort_keys=", dpe_template_tojson},
    {NULL},
};
