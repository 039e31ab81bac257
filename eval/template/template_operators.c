/* What operators do. */
#include "eval/template/template_parts.h"

#include <math.h>
#include <string.h>

const struct between dpe_template_betweens[N_OPS] = {
    [OP_OR] = {"or", LEVEL_OR},          [OP_AND] = {"and", LEVEL_AND},
    [OP_EQUAL] = {"==", LEVEL_COMPARE},  [OP_UNEQUAL] = {"!=", LEVEL_COMPARE},
    [OP_LESS] = {"<", LEVEL_COMPARE},    [OP_LESS_EQUAL] = {"<=", LEVEL_COMPARE},
    [OP_GREATER] = {">", LEVEL_COMPARE}, [OP_GREATER_EQUAL] = {">=", LEVEL_COMPARE},
    [OP_IN] = {"in", LEVEL_COMPARE},     [OP_NOT_IN] = {"not in", LEVEL_COMPARE}, /* two tokens */
    [OP_ADD] = {"+", LEVEL_SUM},         [OP_SUBTRACT] = {"-", LEVEL_SUM},
    [OP_CONCAT] = {"~", LEVEL_CONCAT},   [OP_MULTIPLY] = {"*", LEVEL_PRODUCT},
    [OP_DIVIDE] = {"/", LEVEL_PRODUCT},  [OP_FLOOR] = {"//", LEVEL_PRODUCT},
    [OP_MODULO] = {"%", LEVEL_PRODUCT},  [OP_POWER] = {"**", LEVEL_POWER},
};

/* ----------------------------------------------------------------------------------- arithmetic */

static struct value joined(struct render *render, struct value a, struct value b)
{
    if (a.kind == KIND_STRING) {
        struct builder built = {0};
        bool markup = a.markup || b.markup;
        a = markup ? dpe_template_escape(render, a) : a;
        b = markup ? dpe_template_escape(render, b) : b;
        dpe_template_put_span(render, &built, a.text);
        dpe_template_put_span(render, &built, b.text);
        struct value sum = dpe_template_built(&built);
        sum.markup = markup;
        return sum;
    }
    struct value list = dpe_template_list(render, a.kind, a.items->n + b.items->n);
    dpe_template_add_all(render, list, *a.items);
    dpe_template_add_all(render, list, *b.items);
    return list;
}

static struct value repeated(struct render *render, struct value whole, int64_t times)
{
    if (whole.kind == KIND_STRING) {
        struct builder built = {0};
        dpe_template_put_often(render, &built, whole.text, whole.text.n > 0 ? times : 0);
        return dpe_template_built(&built);
    }
    size_t n = whole.items->n;
    if (times <= 0 || n == 0) {
        return dpe_template_list(render, whole.kind, 0);
    }
    if ((uint64_t)times > render->most_steps / n) {
        dpe_template_fail(render, "a list of more than %llu items",
                          (unsigned long long)render->most_steps);
    }
    struct value result = dpe_template_list(render, whole.kind, (size_t)times * n);
    for (int64_t i = 0; i < times; i++) {
        dpe_template_add_all(render, result, *whole.items);
    }
    return result;
}

static struct value overflow(struct render *render)
{
    return dpe_template_fail(render, "a result does not fit 64 bits");
}

static int64_t floor_divide(int64_t x, int64_t y)
{
    return x / y - (x % y != 0 && (x < 0) != (y < 0));
}

static struct value power(struct render *render, int64_t x, int64_t y)
{
    int64_t result = 1;
    if (y < 0) {
        return dpe_template_float(pow((double)x, (double)y));
    }
    for (int64_t i = 0; i < y; i++) {
        dpe_template_step(render, 1);
        if (__builtin_mul_overflow(result, x, &result)) {
            return overflow(render);
        }
        if (result == 0 || (result == 1 && x == 1)) {
            break;
        }
    }
    return dpe_template_int(result);
}

static struct value of_integers(struct render *render, enum op op, int64_t x, int64_t y)
{
    int64_t result = 0;
    bool too_large = false;
    switch (op) {
    case OP_ADD:
        too_large = __builtin_add_overflow(x, y, &result);
        break;
    case OP_SUBTRACT:
        too_large = __builtin_sub_overflow(x, y, &result);
        break;
    case OP_MULTIPLY:
        too_large = __builtin_mul_overflow(x, y, &result);
        break;
    case OP_POWER:
        return power(render, x, y);
    default:
        if (y == 0) {
            dpe_template_fail(render, "division by zero");
        }
        if (op == OP_DIVIDE) {
            return dpe_template_float((double)x / (double)y);
        }
        if (y == -1) {
            too_large = op == OP_FLOOR && __builtin_sub_overflow(0, x, &result);
        } else {
            result = op == OP_FLOOR ? floor_divide(x, y) : x - floor_divide(x, y) * y;
        }
    }
    return too_large ? overflow(render) : dpe_template_int(result);
}

static struct value of_reals(struct render *render, enum op op, double x, double y)
{
    if (y == 0.0 && (op == OP_DIVIDE || op == OP_FLOOR || op == OP_MODULO)) {
        dpe_template_fail(render, "division by zero");
    }
    double floored = op == OP_FLOOR || op == OP_MODULO ? floor(x / y) : 0.0;
    return dpe_template_float(op == OP_ADD        ? x + y
                              : op == OP_SUBTRACT ? x - y
                              : op == OP_MULTIPLY ? x * y
                              : op == OP_DIVIDE   ? x / y
                              : op == OP_FLOOR    ? floored
                              : op == OP_MODULO   ? x - floored * y
                                                  : pow(x, y));
}

struct value dpe_template_binary(struct render *render, enum op op, struct value a, struct value b)
{
    double x = 0.0;
    double y = 0.0;
    bool first = dpe_template_number(a, &x);
    bool second = dpe_template_number(b, &y);
    bool whole_a = a.kind == KIND_INT || a.kind == KIND_BOOL;
    bool whole_b = b.kind == KIND_INT || b.kind == KIND_BOOL;
    bool row_a = a.kind == KIND_STRING || a.kind == KIND_LIST || a.kind == KIND_TUPLE;
    bool row_b = b.kind == KIND_STRING || b.kind == KIND_LIST || b.kind == KIND_TUPLE;
    if (op == OP_CONCAT) {
        struct builder built = {0};
        dpe_template_write(render, &built, a);
        dpe_template_write(render, &built, b);
        return dpe_template_built(&built);
    }
    if (whole_a && whole_b) {
        return of_integers(render, op, a.integer, b.integer);
    }
    if (first && second) {
        return a.kind == KIND_FLOAT || b.kind == KIND_FLOAT ? of_reals(render, op, x, y)
                                                            : overflow(render);
    }
    if (op == OP_ADD && row_a && a.kind == b.kind) {
        return joined(render, a, b);
    }
    if (op == OP_MULTIPLY && ((row_a && whole_b) || (row_b && whole_a))) {
        return repeated(render, row_a ? a : b, row_a ? b.integer : a.integer);
    }
    if (op == OP_MODULO && a.kind == KIND_STRING) {
        return dpe_template_percent(render, a.text, b);
    }
    const char *sign = dpe_template_betweens[op].text;
    if (a.kind == KIND_UNDEFINED || b.kind == KIND_UNDEFINED) {
        struct dpe_span name = a.kind == KIND_UNDEFINED ? a.text : b.text;
        dpe_template_fail(render, "%s: '%.*s' is not defined", sign, SHOWN(name));
    }
    dpe_template_fail(render, "%s is not possible between %s and %s", sign,
                      dpe_template_kind_name(a), dpe_template_kind_name(b));
}

bool dpe_template_holds(struct render *render, enum op op, struct value a, struct value b)
{
    if (op == OP_EQUAL || op == OP_UNEQUAL) {
        return dpe_template_equal(render, a, b) == (op == OP_EQUAL);
    }
    if (op == OP_IN || op == OP_NOT_IN) {
        return dpe_template_contains(render, b, a) == (op == OP_IN);
    }
    const int order = dpe_template_compare(render, a, b);
    return op == OP_LESS         ? order < 0
           : op == OP_LESS_EQUAL ? order <= 0
           : op == OP_GREATER    ? order > 0
                                 : order >= 0;
}
