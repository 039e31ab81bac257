/* Expressions, computed. */
#include "eval/template/template_parts.h"

#include <math.h>
#include <string.h>

/* ----------------------------------------------------------------------------------- arithmetic */

static struct value wrong(struct render *render, const char *what, struct value a, struct value b)
{
    if (a.kind == KIND_UNDEFINED || b.kind == KIND_UNDEFINED) {
        struct dpe_span name = a.kind == KIND_UNDEFINED ? a.text : b.text;
        return dpe_template_fail(render, "%s: '%.*s' is not defined", what, SHOWN(name));
    }
    return dpe_template_fail(render, "%s is not possible between %s and %s", what,
                             dpe_template_kind_name(a), dpe_template_kind_name(b));
}

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
    for (size_t i = 0; i < a.items->n; i++) {
        dpe_template_add(render, list, a.items->at[i]);
    }
    for (size_t i = 0; i < b.items->n; i++) {
        dpe_template_add(render, list, b.items->at[i]);
    }
    dpe_template_step(render, a.items->n + b.items->n);
    return list;
}

static struct value repeated(struct render *render, struct value of, int64_t times)
{
    if (of.kind == KIND_STRING) {
        struct builder built = {0};
        for (int64_t i = 0; i < times && of.text.n > 0 && dpe_template_step(render, 1); i++) {
            dpe_template_put_span(render, &built, of.text);
        }
        return dpe_template_built(&built);
    }
    if (times <= 0 || of.items->n == 0) {
        return dpe_template_list(render, of.kind, 0);
    }
    if ((uint64_t)times > render->most_steps / of.items->n) {
        return dpe_template_fail(render, "a list of more than %llu items",
                                 (unsigned long long)render->most_steps);
    }
    struct value result = dpe_template_list(render, of.kind, (size_t)times * of.items->n);
    for (int64_t i = 0; i < times && render->status == DPE_OK; i++) {
        memcpy(result.items->at + result.items->n, of.items->at,
               of.items->n * sizeof *of.items->at);
        result.items->n += of.items->n;
        dpe_template_step(render, of.items->n);
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
    for (int64_t i = 0; i < y && dpe_template_step(render, 1); i++) {
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
            return dpe_template_fail(render, "division by zero");
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
        return dpe_template_fail(render, "division by zero");
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
    static const char *const names[] = {
        [OP_ADD] = "+",    [OP_SUBTRACT] = "-", [OP_MULTIPLY] = "*", [OP_DIVIDE] = "/",
        [OP_FLOOR] = "//", [OP_MODULO] = "%",   [OP_POWER] = "**"};
    double x = 0.0;
    double y = 0.0;
    bool first = dpe_template_number(a, &x);
    bool second = dpe_template_number(b, &y);
    bool whole_a = a.kind == KIND_INT || a.kind == KIND_BOOL;
    bool whole_b = b.kind == KIND_INT || b.kind == KIND_BOOL;
    if (whole_a && whole_b) {
        return of_integers(render, op, a.integer, b.integer);
    }
    if (first && second) {
        return a.kind == KIND_FLOAT || b.kind == KIND_FLOAT ? of_reals(render, op, x, y)
                                                            : overflow(render);
    }
    bool row_a = a.kind == KIND_STRING || a.kind == KIND_LIST || a.kind == KIND_TUPLE;
    bool row_b = b.kind == KIND_STRING || b.kind == KIND_LIST || b.kind == KIND_TUPLE;
    if (op == OP_ADD && row_a && a.kind == b.kind) {
        return joined(render, a, b);
    }
    if (op == OP_MULTIPLY && row_a && whole_b) {
        return repeated(render, a, b.integer);
    }
    if (op == OP_MULTIPLY && row_b && whole_a) {
        return repeated(render, b, a.integer);
    }
    return op == OP_MODULO && a.kind == KIND_STRING ? dpe_template_percent(render, a.text, b)
                                                    : wrong(render, names[op], a, b);
}

/* ---------------------------------------------------------------------------------- expressions */

bool dpe_template_holds(struct render *render, enum op op, struct value a, struct value b)
{
    switch (op) {
    case OP_EQUAL:
        return dpe_template_equal(render, a, b);
    case OP_UNEQUAL:
        return !dpe_template_equal(render, a, b);
    case OP_IN:
        return dpe_template_contains(render, b, a);
    case OP_NOT_IN:
        return !dpe_template_contains(render, b, a);
    case OP_LESS:
        return dpe_template_compare(render, a, b) < 0;
    case OP_LESS_EQUAL:
        return dpe_template_compare(render, a, b) <= 0;
    case OP_GREATER:
        return dpe_template_compare(render, a, b) > 0;
    default:
        return dpe_template_compare(render, a, b) >= 0;
    }
}

static struct value compare(struct render *render, const struct node *node)
{
    struct value left = dpe_template_eval(render, node->a);
    for (const struct node *each = node->list; each != NULL && render->status == DPE_OK;
         each = each->next) {
        struct value right = dpe_template_eval(render, each->a);
        if (render->status == DPE_OK && !dpe_template_holds(render, each->op, left, right)) {
            return dpe_template_bool(false);
        }
        left = right;
    }
    return dpe_template_bool(true);
}

static struct value collect(struct render *render, const struct node *node)
{
    struct value list =
        dpe_template_list(render, node->kind == NODE_LIST ? KIND_LIST : KIND_TUPLE, 0);
    for (const struct node *item = node->list; item != NULL && render->status == DPE_OK;
         item = item->next) {
        dpe_template_add(render, list, dpe_template_eval(render, item));
    }
    return list;
}

static struct value dict(struct render *render, const struct node *node)
{
    struct value made = dpe_template_dict(render, KIND_DICT);
    for (const struct node *key = node->list; key != NULL && render->status == DPE_OK;
         key = key->next->next) {
        struct value name = dpe_template_eval(render, key);
        struct value value = dpe_template_eval(render, key->next);
        if (name.kind > KIND_STRING) {
            return dpe_template_fail(render, "%s cannot be a key", dpe_template_kind_name(name));
        }
        dpe_template_dict_set(render, made.pairs, name, value);
    }
    return made;
}

static struct value concat(struct render *render, const struct node *node)
{
    struct builder built = {0};
    for (const struct node *part = node->list; part != NULL && render->status == DPE_OK;
         part = part->next) {
        dpe_template_write(render, &built, dpe_template_eval(render, part));
    }
    return dpe_template_built(&built);
}

static struct value negated(struct render *render, struct dpe_span digits)
{
    struct builder built = {0};
    bool minus = digits.s[0] == '-';
    dpe_template_put(render, &built, "-", !minus);
    dpe_template_put(render, &built, digits.s + minus, digits.n - minus);
    return dpe_template_digits(render, built.bytes, built.n);
}

static struct value sign(struct render *render, const struct node *node)
{
    struct value value = dpe_template_eval(render, node->a);
    struct value zero = dpe_template_int(0);
    if (value.kind == KIND_FLOAT) {
        return dpe_template_float(node->kind == NODE_MINUS ? -value.real : value.real);
    }
    if (value.kind == KIND_DIGITS && render->status == DPE_OK) {
        return node->kind == NODE_PLUS ? value : negated(render, value.text);
    }
    return dpe_template_binary(render, node->kind == NODE_MINUS ? OP_SUBTRACT : OP_ADD, zero,
                               value);
}

static struct value load(const struct render *render, const struct node *node)
{
    const struct value *value = dpe_template_lookup(render->scope, node->name);
    if (value != NULL) {
        return *value;
    }
    const struct known *function = dpe_template_find(dpe_template_functions, node->name);
    bool clock = dpe_span_equal(node->name, dpe_span_of("strftime_now"));
    return function != NULL && (!clock || render->now != NULL)
               ? (struct value){.kind = KIND_FUNCTION, .function = function}
               : dpe_template_undefined(node->name);
}

static struct value apply(struct render *render, const struct node *node)
{
    struct value of = dpe_template_eval(render, node->a);
    struct args *args = render->status == DPE_OK ? dpe_template_args(render, node->list) : NULL;
    render->line = node->line;
    if (args == NULL) {
        return dpe_template_nothing();
    }
    if (node->kind == NODE_CALL && of.kind == KIND_UNDEFINED && node->a->kind == NODE_MEMBER) {
        return dpe_template_fail(render, "the method '%.*s' is not supported",
                                 SHOWN(node->a->name));
    }
    struct value result = node->kind == NODE_CALL ? dpe_template_call(render, of, args)
                                                  : dpe_template_apply_node(render, node, of, args);
    dpe_template_drop_args(render, args);
    return result;
}

static struct value choose(struct render *render, const struct node *node)
{
    if (dpe_template_truth(dpe_template_eval(render, node->a))) {
        return dpe_template_eval(render, node->b);
    }
    return node->c != NULL ? dpe_template_eval(render, node->c)
                           : dpe_template_undefined(dpe_span_of("the other of an if"));
}

static struct value either(struct render *render, const struct node *node)
{
    struct value first = dpe_template_eval(render, node->a);
    return dpe_template_truth(first) == (node->kind == NODE_OR)
               ? first
               : dpe_template_eval(render, node->b);
}

static struct value item(struct render *render, const struct node *node)
{
    struct value of = dpe_template_eval(render, node->a);
    return node->b->kind == NODE_SLICE
               ? dpe_template_slice(render, of, node->b)
               : dpe_template_item(render, of, dpe_template_eval(render, node->b));
}

static struct value eval(struct render *render, const struct node *node)
{
    switch (node->kind) {
    case NODE_CONST:
        return node->value;
    case NODE_NAME:
        return load(render, node);
    case NODE_LIST:
    case NODE_TUPLE:
        return collect(render, node);
    case NODE_DICT:
        return dict(render, node);
    case NODE_COND:
        return choose(render, node);
    case NODE_OR:
    case NODE_AND:
        return either(render, node);
    case NODE_NOT:
        return dpe_template_bool(!dpe_template_truth(dpe_template_eval(render, node->a)));
    case NODE_COMPARE:
        return compare(render, node);
    case NODE_BINARY: {
        struct value a = dpe_template_eval(render, node->a);
        return dpe_template_binary(render, node->op, a, dpe_template_eval(render, node->b));
    }
    case NODE_CONCAT:
        return concat(render, node);
    case NODE_MINUS:
    case NODE_PLUS:
        return sign(render, node);
    case NODE_MEMBER:
        return dpe_template_member(render, dpe_template_eval(render, node->a), node->name);
    case NODE_ITEM:
        return item(render, node);
    case NODE_CALL:
    case NODE_FILTER:
    case NODE_TEST:
        return apply(render, node);
    default:
        return dpe_template_fail(render, "a statement stands where an expression belongs");
    }
}

struct value dpe_template_eval(struct render *render, const struct node *node)
{
    render->line = node->line;
    if (!dpe_template_step(render, 1)) {
        return dpe_template_nothing();
    }
    render->depth++;
    struct value value = eval(render, node);
    render->depth--;
    return render->status == DPE_OK ? value : dpe_template_nothing();
}
