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
    return of.kind == KIND_INT;
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
    return is_sequence(render, of, args) || of.kind == KIND_LOOP;
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
    const struct value *other = dpe_template_arg(args, 0, "other");
    return other != NULL && dpe_template_equal(render, of, *other);
}

static bool is_unequal(struct render *render, struct value of, const struct args *args)
{
    return !is_equal(render, of, args);
}

static bool is_in(struct render *render, struct value of, const struct args *args)
{
    const struct value *whole = dpe_template_arg(args, 0, "seq");
    return whole != NULL && dpe_template_contains(render, *whole, of);
}

static const struct test tests[] = {
    {"defined", 0, is_defined},
    {"undefined", 0, is_undefined},
    {"none", 0, is_none},
    {"string", 0, is_string},
    {"boolean", 0, is_boolean},
    {"true", 0, is_true},
    {"false", 0, is_false},
    {"integer", 0, is_integer},
    {"float", 0, is_float},
    {"number", 0, is_number},
    {"mapping", 0, is_mapping},
    {"sequence", 0, is_sequence},
    {"iterable", 0, is_iterable},
    {"callable", 0, is_callable},
    {"odd", 0, is_odd},
    {"even", 0, is_even},
    {"divisibleby", 1, is_divisible},
    {"equalto", 1, is_equal},
    {"eq", 1, is_equal},
    {"==", 1, is_equal},
    {"ne", 1, is_unequal},
    {"!=", 1, is_unequal},
    {"in", 1, is_in},
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
