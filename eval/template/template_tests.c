/* Tests: "x is NAME". */
#include "eval/template/template_parts.h"

static bool is_defined(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    (void)args;
    return of.kind != KIND_UNDEFINED;
}

static bool is_undefined(struct render *render, struct value of, const struct args *args)
{
    return !is_defined(render, of, args);
}

static bool is_none(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    (void)args;
    return of.kind == KIND_NONE;
}

static bool is_string(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    (void)args;
    return of.kind == KIND_STRING;
}

static bool is_boolean(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    (void)args;
    return of.kind == KIND_BOOL;
}

static bool is_true(struct render *render, struct value of, const struct args *args)
{
    return is_boolean(render, of, args) && of.truth;
}

static bool is_false(struct render *render, struct value of, const struct args *args)
{
    return is_boolean(render, of, args) && !of.truth;
}

static bool is_integer(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    (void)args;
    return of.kind == KIND_INT || of.kind == KIND_DIGITS;
}

static bool is_float(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    (void)args;
    return of.kind == KIND_FLOAT;
}

static bool is_number(struct render *render, struct value of, const struct args *args)
{
    double number = 0.0;
    (void)render;
    (void)args;
    return dpe_template_number(of, &number);
}

static bool is_mapping(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    (void)args;
    return of.kind == KIND_DICT;
}

/* What has a length and items: Jinja counts mappings, strings and undefined values. */
static bool is_sequence(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    (void)args;
    return of.kind == KIND_STRING || of.kind == KIND_LIST || of.kind == KIND_TUPLE ||
           of.kind == KIND_DICT || of.kind == KIND_UNDEFINED;
}

static bool is_iterable(struct render *render, struct value of, const struct args *args)
{
    return is_sequence(render, of, args) || of.kind == KIND_LOOP || of.kind == KIND_ITERATOR;
}

static bool is_callable(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    (void)args;
    return of.kind == KIND_MACRO || of.kind == KIND_FUNCTION || of.kind == KIND_METHOD;
}

/* The remainder of a division by `by`; −1 after a failure. */
static int64_t remainder_by(struct render *render, struct value of, int64_t by)
{
    struct value result = dpe_template_binary(render, OP_MODULO, of, dpe_template_int(by));
    return render->status == DPE_OK && result.kind == KIND_INT ? result.integer : -1;
}

static bool is_odd(struct render *render, struct value of, const struct args *args)
{
    (void)args;
    return remainder_by(render, of, 2) == 1;
}

static bool is_even(struct render *render, struct value of, const struct args *args)
{
    (void)args;
    return remainder_by(render, of, 2) == 0;
}

static bool is_divisible(struct render *render, struct value of, const struct args *args)
{
    return remainder_by(render, of, dpe_template_arg_int(render, args, 0, "num", 1)) == 0;
}

static bool is_equal(struct render *render, struct value of, const struct args *args)
{
    const struct value *other = dpe_template_arg(args, 0);
    return other != NULL && dpe_template_equal(render, of, *other);
}

static bool is_unequal(struct render *render, struct value of, const struct args *args)
{
    return !is_equal(render, of, args);
}

static bool is_in(struct render *render, struct value of, const struct args *args)
{
    const struct value *whole = dpe_template_arg(args, 0);
    return whole != NULL && dpe_template_contains(render, *whole, of);
}

static int order(struct render *render, struct value of, const struct args *args)
{
    return dpe_template_compare(render, of, args->at[0]);
}

static bool is_greater(struct render *render, struct value of, const struct args *args)
{
    return order(render, of, args) > 0;
}

static bool is_at_least(struct render *render, struct value of, const struct args *args)
{
    return order(render, of, args) >= 0;
}

static bool is_less(struct render *render, struct value of, const struct args *args)
{
    return order(render, of, args) < 0;
}

static bool is_at_most(struct render *render, struct value of, const struct args *args)
{
    return order(render, of, args) <= 0;
}

/* "is" of Python, where it is not a matter of chance: the same object, or equal values of a kind
 * that has one object for each. */
static bool is_same(struct render *render, struct value of, const struct args *args)
{
    struct value other = args->at[0];
    if (of.kind != other.kind) {
        return false;
    }
    switch (of.kind) {
    case KIND_LIST:
    case KIND_TUPLE:
        return of.items == other.items;
    case KIND_DICT:
        return of.pairs == other.pairs;
    case KIND_ITERATOR:
        return of.iterator == other.iterator;
    default:
        return dpe_template_equal(render, of, other);
    }
}

/* str.islower(), str.isupper() of the value as a text. */
static bool in_case(struct render *render, struct value of, bool upper)
{
    struct dpe_span text = dpe_template_str(render, of);
    bool found = false;
    for (size_t i = 0, n = 0; i < text.n; i += n) {
        uint32_t point = dpe_py_next(text.s + i, text.s + text.n, &n);
        bool small = dpe_py_small(point);
        bool capital = dpe_py_capital(point);
        if ((upper ? small : capital) || dpe_unicode_has(&dpe_unicode_Lt, point)) {
            return false;
        }
        found = found || (upper ? capital : small);
    }
    return found && dpe_template_step(render, text.n / 16);
}

static bool is_lower(struct render *render, struct value of, const struct args *args)
{
    (void)args;
    return in_case(render, of, false);
}

static bool is_upper(struct render *render, struct value of, const struct args *args)
{
    (void)args;
    return in_case(render, of, true);
}

static bool is_filter(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    (void)args;
    return of.kind == KIND_STRING && dpe_template_find_filter(of.text) != NULL;
}

static bool is_test(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    (void)args;
    return of.kind == KIND_STRING && dpe_template_find_test(of.text) != NULL;
}

static bool is_escaped(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    (void)args;
    return of.kind == KIND_STRING && of.markup;
}

static const struct test tests[] = {
    {"defined", "", is_defined},
    {"undefined", "", is_undefined},
    {"none", "", is_none},
    {"string", "", is_string},
    {"boolean", "", is_boolean},
    {"true", "", is_true},
    {"false", "", is_false},
    {"integer", "", is_integer},
    {"float", "", is_float},
    {"number", "", is_number},
    {"mapping", "", is_mapping},
    {"sequence", "", is_sequence},
    {"iterable", "", is_iterable},
    {"callable", "", is_callable},
    {"odd", "", is_odd},
    {"even", "", is_even},
    {"divisibleby", "num", is_divisible},
    {"equalto", "/other", is_equal},
    {"eq", "/other", is_equal},
    {"==", "/other", is_equal},
    {"ne", "/other", is_unequal},
    {"!=", "/other", is_unequal},
    {"gt", "/other", is_greater},
    {"greaterthan", "/other", is_greater},
    {">", "/other", is_greater},
    {"ge", "/other", is_at_least},
    {">=", "/other", is_at_least},
    {"lt", "/other", is_less},
    {"lessthan", "/other", is_less},
    {"<", "/other", is_less},
    {"le", "/other", is_at_most},
    {"<=", "/other", is_at_most},
    {"in", "seq", is_in},
    {"sameas", "other", is_same},
    {"lower", "", is_lower},
    {"upper", "", is_upper},
    {"filter", "", is_filter},
    {"test", "", is_test},
    {"escaped", "", is_escaped},
};

const struct test *dpe_template_find_test(struct dpe_span name)
{
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if (dpe_span_equal(name, dpe_span_of(tests[i].name))) {
            return &tests[i];
        }
    }
    return NULL;
}
