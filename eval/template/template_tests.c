/* Tests: "x is NAME", and the methods of strings that ask what characters they are of. */
#include "eval/template/template_parts.h"

#include <string.h>

/* Kinds of values, as bits of `how`. */
#define IS(kind) (1U << (kind))
enum {
    IS_NUMBER = IS(KIND_BOOL) | IS(KIND_INT) | IS(KIND_DIGITS) | IS(KIND_FLOAT),
    /* What has a length and items: Jinja counts mappings, strings and undefined values. */
    IS_SEQUENCE =
        IS(KIND_STRING) | IS(KIND_LIST) | IS(KIND_TUPLE) | IS(KIND_DICT) | IS(KIND_UNDEFINED),
    IS_ITERABLE = IS_SEQUENCE | IS(KIND_LOOP) | IS(KIND_ITERATOR),
    IS_CALLABLE = IS(KIND_MACRO) | IS(KIND_FUNCTION) | IS(KIND_METHOD),
};

static struct value is_kind(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    return dpe_template_bool((args->how >> of.kind & 1) != 0);
}

static struct value is_truth(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    return dpe_template_bool(of.kind == KIND_BOOL && of.truth == (args->how != 0));
}

/* Whether a division by 2 leaves `how`. */
static struct value is_odd(struct render *render, struct value of, const struct args *args)
{
    struct value rest = dpe_template_binary(render, OP_MODULO, of, dpe_template_int(2));
    return dpe_template_bool(rest.kind == KIND_INT && rest.integer == (int64_t)args->how);
}

static struct value is_divisible(struct render *render, struct value of, const struct args *args)
{
    struct value by = dpe_template_int(dpe_template_arg_int(render, args, 0, "num", 1));
    struct value rest = dpe_template_binary(render, OP_MODULO, of, by);
    return dpe_template_bool(rest.kind == KIND_INT && rest.integer == 0);
}

static struct value is_compared(struct render *render, struct value of, const struct args *args)
{
    return dpe_template_bool(dpe_template_holds(render, (enum op)args->how, of, args->at[0]));
}

/* "is" of Python, where it is not a matter of chance: the same object, or equal values of a kind
 * that has one object for each. */
static struct value is_same(struct render *render, struct value of, const struct args *args)
{
    struct value other = args->at[0];
    return dpe_template_bool(of.kind == other.kind &&
                             (of.kind == KIND_LIST || of.kind == KIND_TUPLE || of.kind == KIND_DICT
                                  ? of.object == other.object
                                  : dpe_template_equal(render, of, other)));
}

/* str.islower(), and str.isupper() with `how`, of the value as a text. */
static struct value is_case(struct render *render, struct value of, const struct args *args)
{
    struct dpe_span text = dpe_template_str(render, of);
    bool upper = args->how != 0;
    bool found = false;
    for (size_t i = 0, n = 0; i < text.n; i += n) {
        uint32_t point = dpe_py_next(text.s + i, text.s + text.n, &n);
        bool small = dpe_py_small(point);
        bool capital = dpe_py_capital(point);
        if ((upper ? small : capital) || dpe_unicode_has(&dpe_unicode_Lt, point)) {
            return dpe_template_bool(false);
        }
        found = found || (upper ? capital : small);
    }
    return dpe_template_bool(found && dpe_template_step(render, text.n / 16));
}

static struct value is_filter(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    (void)args;
    return dpe_template_bool(of.kind == KIND_STRING && dpe_template_find_filter(of.text) != NULL);
}

static struct value is_test(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    (void)args;
    return dpe_template_bool(of.kind == KIND_STRING &&
                             dpe_template_find(dpe_template_tests, of.text) != NULL);
}

static struct value is_escaped(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    (void)args;
    return dpe_template_bool(of.kind == KIND_STRING && of.markup);
}

const struct known dpe_template_tests[] = {
    {"defined", "", is_kind, ~IS(KIND_UNDEFINED)},
    {"undefined", "", is_kind, IS(KIND_UNDEFINED)},
    {"none", "", is_kind, IS(KIND_NONE)},
    {"string", "", is_kind, IS(KIND_STRING)},
    {"boolean", "", is_kind, IS(KIND_BOOL)},
    {"true", "", is_truth, true},
    {"false", "", is_truth, false},
    {"integer", "", is_kind, IS(KIND_INT) | IS(KIND_DIGITS)},
    {"float", "", is_kind, IS(KIND_FLOAT)},
    {"number", "", is_kind, IS_NUMBER},
    {"mapping", "", is_kind, IS(KIND_DICT)},
    {"sequence", "", is_kind, IS_SEQUENCE},
    {"iterable", "", is_kind, IS_ITERABLE},
    {"callable", "", is_kind, IS_CALLABLE},
    {"odd", "", is_odd, 1},
    {"even", "", is_odd, 0},
    {"divisibleby", "num", is_divisible},
    {"equalto", "/other", is_compared, OP_EQUAL},
    {"eq", "/other", is_compared, OP_EQUAL},
    {"==", "/other", is_compared, OP_EQUAL},
    {"ne", "/other", is_compared, OP_UNEQUAL},
    {"!=", "/other", is_compared, OP_UNEQUAL},
    {"gt", "/other", is_compared, OP_GREATER},
    {"greaterthan", "/other", is_compared, OP_GREATER},
    {">", "/other", is_compared, OP_GREATER},
    {"ge", "/other", is_compared, OP_GREATER_EQUAL},
    {">=", "/other", is_compared, OP_GREATER_EQUAL},
    {"lt", "/other", is_compared, OP_LESS},
    {"lessthan", "/other", is_compared, OP_LESS},
    {"<", "/other", is_compared, OP_LESS},
    {"le", "/other", is_compared, OP_LESS_EQUAL},
    {"<=", "/other", is_compared, OP_LESS_EQUAL},
    {"in", "seq", is_compared, OP_IN},
    {"sameas", "other", is_same},
    {"lower", "", is_case, false},
    {"upper", "", is_case, true},
    {"filter", "", is_filter},
    {"test", "", is_test},
    {"escaped", "", is_escaped},
    {NULL},
};

/* ----------------------------------------------------------------------- classes of characters */

enum class { SPACE, DECIMAL, DIGIT, NUMERIC, ALPHA, ALNUM, ASCII, PRINTABLE };

static bool is_of(enum class class, uint32_t point, struct dpe_span character)
{
    bool decimal = dpe_py_digit(point) >= 0;
    switch (class) {
    case SPACE:
        return dpe_py_space(character.s, character.s + character.n) > 0;
    case DECIMAL:
        return decimal;
    case DIGIT:
        return decimal || dpe_unicode_has(&dpe_case_other_digits, point);
    case NUMERIC:
        return dpe_py_is(&dpe_unicode_N, point) || dpe_unicode_has(&dpe_case_other_numbers, point);
    case ALPHA:
        return dpe_unicode_has(&dpe_unicode_L, point);
    case ALNUM:
        return point != '_' && dpe_py_word(point);
    case ASCII:
        return point < 0x80;
    case PRINTABLE:
        return dpe_py_printable(point);
    }
    return false;
}

/* Whether all characters are of the class, and there are some where it asks for that. */
static struct value do_is(struct render *render, struct value self, const struct args *args)
{
    struct dpe_span text = self.text;
    bool all = text.n > 0 || args->how == ASCII || args->how == PRINTABLE;
    dpe_template_step(render, text.n / 16);
    for (size_t i = 0, n = 0; i < text.n && all; i += n) {
        uint32_t point = dpe_py_next(text.s + i, text.s + text.n, &n);
        all = is_of((enum class)args->how, point, (struct dpe_span){text.s + i, n});
    }
    return dpe_template_bool(all);
}

const struct known dpe_template_class_methods[] = {
    {"isspace", "", do_is, SPACE},
    {"isdigit", "", do_is, DIGIT},
    {"isdecimal", "", do_is, DECIMAL},
    {"isnumeric", "", do_is, NUMERIC},
    {"isalpha", "", do_is, ALPHA},
    {"isalnum", "", do_is, ALNUM},
    {"isascii", "", do_is, ASCII},
    {"isprintable", "", do_is, PRINTABLE},
    {"islower", "", is_case, false},
    {"isupper", "", is_case, true},
    {NULL},
};
