/* Calls: arguments, macros, functions, and the tables of what has a name. */
#include "eval/template/template_parts.h"

#include <stdio.h>
#include <string.h>

enum { MAX_RANGE = 100000 };

static bool add(struct render *render, struct args *args, struct value value)
{
    bool room = dpe_template_room(render, &args->at, args->n, &args->capacity, 1, sizeof *args->at);
    if (room) {
        args->at[args->n++] = value;
    }
    return room;
}

bool dpe_template_add_named(struct render *render, struct args *args, struct dpe_span name,
                            struct value value)
{
    struct value key = dpe_template_string(name);
    if (dpe_template_dict_get(render, &args->named, key) != NULL) {
        dpe_template_fail(render, "the argument '%.*s' is given twice", SHOWN(name));
    }
    dpe_template_dict_set(render, &args->named, key, value);
    return render->status == DPE_OK;
}

/* The items of *value, or the members of **value. */
static bool add_all(struct render *render, struct args *args, const struct node *node,
                    struct value value)
{
    bool good = true;
    if (node->kind == NODE_STAR) {
        struct items items = dpe_template_items(render, value);
        for (size_t i = 0; i < items.n && good; i++) {
            good = dpe_template_step(render, 1) && add(render, args, items.at[i]);
        }
        return good && render->status == DPE_OK;
    }
    if (value.kind != KIND_DICT) {
        dpe_template_fail(render, "expected a mapping after **, found %s",
                          dpe_template_kind_name(value));
        return false;
    }
    for (size_t i = 0; i < value.pairs->n && good; i++) {
        struct value key = value.pairs->at[i].key;
        if (key.kind != KIND_STRING) {
            dpe_template_fail(render, "expected names of arguments after **, found %s",
                              dpe_template_kind_name(key));
            return false;
        }
        good = dpe_template_add_named(render, args, key.text, value.pairs->at[i].value);
    }
    return good;
}

static struct args *take_args(struct render *render)
{
    struct args *args = render->spare_args;
    if (args == NULL) {
        return dpe_template_get(render, sizeof *args);
    }
    render->spare_args = args->next;
    return args;
}

void dpe_template_drop_args(struct render *render, struct args *args)
{
    *args = (struct args){.at = args->at,
                          .capacity = args->capacity,
                          .named = {.at = args->named.at, .capacity = args->named.capacity},
                          .next = render->spare_args};
    render->spare_args = args;
}

struct args *dpe_template_args(struct render *render, const struct node *list)
{
    struct args *args = take_args(render);
    for (const struct node *node = list; node != NULL && args != NULL; node = node->next) {
        bool all = node->kind == NODE_STAR || node->kind == NODE_STARS;
        struct value value = dpe_template_eval(render, all ? node->a : node);
        bool good = render->status == DPE_OK;
        if (good && all) {
            good = add_all(render, args, node, value);
        } else if (good && node->keyword.s != NULL) {
            good = dpe_template_add_named(render, args, node->keyword, value);
        } else if (good) {
            good = add(render, args, value);
        }
        if (!good) {
            return NULL;
        }
    }
    return args;
}

/* The argument of that name, and marks it in `used`, which has a place for each named one. */
static const struct value *named_argument(const struct args *args, struct dpe_span name, bool *used)
{
    for (size_t i = 0; i < args->named.n; i++) {
        if (dpe_span_equal(args->named.at[i].key.text, name)) {
            used[i] = true;
            return &args->named.at[i].value;
        }
    }
    return NULL;
}

/* The first named argument that is not marked in `used`, or NULL. */
static const struct pair *unused(const struct args *args, const bool *used)
{
    size_t i = 0;
    while (i < args->named.n && used[i]) {
        i++;
    }
    return i < args->named.n ? &args->named.at[i] : NULL;
}

/* Binds arguments to parameters, which are not NULL; false after failing. */
static bool bind(struct render *render, const char *what, const struct known *known,
                 const struct args *given, struct args *bound)
{
    enum { FEW = 16 };
    const char *name = known->name;
    bool few[FEW] = {false};
    bool *used = given->named.n < FEW ? few : dpe_template_get(render, given->named.n + 1);
    bound->how = known->how;
    for (const char *at = known->params; *at != '\0' && used != NULL;) {
        size_t n = strcspn(at, " ");
        bool optional = at[n - 1] == '=';
        bool unnamed = at[0] == '/';
        struct dpe_span key = {at + unnamed, n - optional - unnamed};
        const struct value *value = unnamed ? NULL : named_argument(given, key, used);
        if (value != NULL && bound->n < given->n) {
            dpe_template_fail(render, "%s '%s': the argument '%.*s' is given twice", what, name,
                              SHOWN(key));
        }
        value = bound->n < given->n ? &given->at[bound->n] : value;
        if (value == NULL && !optional) {
            dpe_template_fail(render, "%s '%s' needs its argument '%.*s'", what, name, SHOWN(key));
        }
        bound->absent |= (uint64_t)(value == NULL) << bound->n;
        if (!add(render, bound, value != NULL ? *value : dpe_template_nothing())) {
            return false;
        }
        at += n + (at[n] == ' ');
    }
    const struct pair *left = used != NULL ? unused(given, used) : NULL;
    if (given->n > bound->n) {
        dpe_template_fail(render, "%s '%s' takes at most %zu arguments, found %zu", what, name,
                          bound->n, given->n + given->named.n);
    } else if (left != NULL) {
        dpe_template_fail(render, "%s '%s' has no argument '%.*s'", what, name,
                          SHOWN(left->key.text));
    }
    return render->status == DPE_OK;
}

const struct value *dpe_template_arg(const struct args *args, size_t i)
{
    return i < args->n && (args->absent >> i & 1) == 0 ? &args->at[i] : NULL;
}

struct value dpe_template_apply(struct render *render, const char *what, const struct known *known,
                                struct value of, const struct args *args)
{
    struct value result = dpe_template_nothing();
    if (known->params == NULL) {
        struct args own = *args;
        own.how = known->how;
        return known->call(render, of, &own);
    }
    struct args *bound = take_args(render);
    if (bound != NULL && bind(render, what, known, args, bound)) {
        result = known->call(render, of, bound);
    }
    if (bound != NULL) {
        dpe_template_drop_args(render, bound);
    }
    return result;
}

const struct value *dpe_template_given(const struct args *args, size_t i)
{
    const struct value *value = dpe_template_arg(args, i);
    return value != NULL && value->kind != KIND_NONE ? value : NULL;
}

int64_t dpe_template_arg_int(struct render *render, const struct args *args, size_t i,
                             const char *name, int64_t fallback)
{
    const struct value *value = dpe_template_arg(args, i);
    if (value == NULL) {
        return fallback;
    }
    if (value->kind != KIND_INT && value->kind != KIND_BOOL) {
        dpe_template_fail(render, "expected an integer as argument '%s', found %s", name,
                          dpe_template_kind_name(*value));
        return fallback;
    }
    return value->integer;
}

struct dpe_span dpe_template_arg_text(struct render *render, const struct args *args, size_t i,
                                      const char *name, const char *fallback)
{
    const struct value *value = dpe_template_arg(args, i);
    if (value != NULL && value->kind == KIND_STRING) {
        return value->text;
    }
    if (value != NULL || fallback == NULL) {
        dpe_template_fail(render, "expected a string as argument '%s', found %s", name,
                          value != NULL ? dpe_template_kind_name(*value) : "nothing");
    }
    return dpe_span_of(fallback != NULL ? fallback : "");
}

bool dpe_template_arg_bool(const struct args *args, size_t i)
{
    const struct value *value = dpe_template_arg(args, i);
    return value != NULL && dpe_template_truth(*value);
}

struct value dpe_template_apply_node(struct render *render, const struct node *node,
                                     struct value of, const struct args *args)
{
    bool test = node->kind == NODE_TEST;
    return node->known == NULL ? dpe_template_fail(render, "the %s '%.*s' is not supported",
                                                   test ? "test" : "filter", SHOWN(node->name))
                               : dpe_template_apply(render, test ? "the test" : "the filter",
                                                    node->known, of, args);
}

/* -------------------------------------------------------------------------------------- macros */

/* The parameters of a macro as variables of its scope; the number of those given by position. */
static size_t bind_parameters(struct render *render, const struct node *node,
                              const struct args *args, bool *used)
{
    size_t n = 0;
    for (const struct node *parameter = node->list; parameter != NULL && render->status == DPE_OK;
         parameter = parameter->next, n++) {
        const struct value *named = named_argument(args, parameter->name, used);
        const struct value *given = n < args->n ? &args->at[n] : named;
        if (n < args->n && named != NULL) {
            dpe_template_fail(render, "the argument '%.*s' is given twice", SHOWN(parameter->name));
        }
        dpe_template_assign(render, parameter->name,
                            given != NULL          ? *given
                            : parameter->a != NULL ? dpe_template_eval(render, parameter->a)
                                                   : dpe_template_undefined(parameter->name));
    }
    return n < args->n ? n : args->n;
}

/* What no parameter took: caller, varargs and kwargs, where the macro reads them. */
static void bind_rest(struct render *render, const struct node *node, const struct args *args,
                      size_t taken, bool *used)
{
    const struct value *caller =
        node->reads & READS_CALLER ? named_argument(args, dpe_span_of("caller"), used) : NULL;
    if (node->reads & READS_CALLER) {
        dpe_template_assign(render, dpe_span_of("caller"),
                            caller != NULL ? *caller
                                           : dpe_template_undefined(dpe_span_of("caller")));
    }
    if (node->reads & READS_VARARGS) {
        dpe_template_assign(
            render, dpe_span_of("varargs"),
            dpe_template_list_of(render, KIND_TUPLE, args->at + taken, args->n - taken));
        taken = args->n;
    }
    if (node->reads & READS_KWARGS) {
        struct value rest = dpe_template_dict(render, KIND_DICT);
        for (size_t i = 0; i < args->named.n && render->status == DPE_OK; i++) {
            if (!used[i]) {
                const struct pair *left = &args->named.at[i];
                dpe_template_dict_set(render, rest.pairs, left->key, left->value);
                used[i] = true;
            }
        }
        dpe_template_assign(render, dpe_span_of("kwargs"), rest);
    }
    if (taken < args->n || unused(args, used) != NULL) {
        dpe_template_fail(render, "the macro '%.*s' does not have all of these arguments",
                          SHOWN(node->name));
    }
}

static struct value call_macro(struct render *render, const struct macro *macro,
                               const struct args *args)
{
    const struct node *node = macro->node;
    struct scope *outer = render->scope;
    enum flow flow = render->flow;
    bool *used = dpe_template_get(render, args->named.n + 1);
    if (used == NULL) {
        return dpe_template_nothing();
    }
    render->scope = dpe_template_scope(render, macro->scope);
    size_t taken = bind_parameters(render, node, args, used);
    if (render->status == DPE_OK) {
        bind_rest(render, node, args, taken, used);
    }
    render->flow = FLOW_ON;
    struct value text = dpe_template_capture(render, node->body);
    render->flow = flow;
    render->scope = outer;
    return text;
}

struct value dpe_template_call(struct render *render, struct value callee, const struct args *args)
{
    struct value result = dpe_template_nothing();
    if (!dpe_template_step(render, 1)) {
        return result;
    }
    render->depth++;
    if (callee.kind == KIND_FUNCTION) {
        result = dpe_template_apply(render, "the function", callee.function, result, args);
    } else if (callee.kind == KIND_MACRO) {
        result = call_macro(render, callee.macro, args);
    } else if (callee.kind == KIND_LOOP) {
        result = dpe_template_call_loop(render, callee.loop, args);
    } else if (callee.kind == KIND_JOINER) {
        result = callee.items->turn++ > 0 ? callee.items->at[0] : dpe_template_text("");
    } else if (callee.kind == KIND_METHOD) {
        result = dpe_template_apply(render, "the method", callee.bound->method, callee.bound->self,
                                    args);
    } else if (callee.kind == KIND_UNDEFINED && callee.text.n > 0) {
        dpe_template_fail(render, "'%.*s' is called and not defined", SHOWN(callee.text));
    } else {
        dpe_template_fail(render, "%s cannot be called", dpe_template_kind_name(callee));
    }
    render->depth--;
    return result;
}

/* ----------------------------------------------------------------------------------- functions */

static struct value call_range(struct render *render, struct value of, const struct args *args)
{
    (void)of;
    int64_t numbers[3] = {0, 0, 1};
    bool one = dpe_template_arg(args, 1) == NULL;
    for (size_t i = 0; i < args->n; i++) {
        numbers[one ? 1 : i] = dpe_template_arg_int(render, args, one ? 0 : i, "range", numbers[i]);
    }
    int64_t step = numbers[2];
    const int64_t far = INT64_C(1) << 60;
    if (step == 0 || numbers[0] > far || numbers[0] < -far || numbers[1] > far ||
        numbers[1] < -far) {
        return dpe_template_fail(render, "range(): the bounds are too large, or the step is 0");
    }
    int64_t span = step > 0 ? numbers[1] - numbers[0] : numbers[0] - numbers[1];
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    uint64_t n = span > 0 ? ((uint64_t)span + (stride - 1)) / stride : 0;
    if (n > MAX_RANGE) {
        return dpe_template_fail(render, "range(): more than %d numbers", MAX_RANGE);
    }
    struct value list = dpe_template_list(render, KIND_LIST, (size_t)n);
    for (uint64_t i = 0; i < n; i++) {
        dpe_template_add(render, list, dpe_template_int(numbers[0] + (int64_t)i * step));
    }
    dpe_template_step(render, n);
    return list;
}

/* namespace(), dict(): pairs of a mapping, then of the named arguments. */
static struct value call_pairs(struct render *render, struct value of, const struct args *args)
{
    (void)of;
    bool space = args->how == KIND_NAMESPACE;
    const char *name = space ? "namespace" : "dict";
    struct value made = dpe_template_dict(render, (enum kind)args->how);
    struct value given = args->n > 0 ? args->at[0] : dpe_template_nothing();
    if (made.kind == KIND_UNDEFINED) {
        return made;
    }
    if (args->n == 1 && given.kind != KIND_DICT && given.kind != KIND_NAMESPACE) {
        struct items items = dpe_template_items(render, given);
        for (size_t i = 0; i < items.n && render->status == DPE_OK; i++) {
            struct items two = dpe_template_items(render, items.at[i]);
            if (two.n != 2 || two.at[0].kind > KIND_STRING) {
                return dpe_template_fail(render, "%s() takes one mapping at most, or pairs", name);
            }
            dpe_template_dict_set(render, made.pairs, two.at[0], two.at[1]);
        }
    } else if (args->n > 1 || given.kind == KIND_NAMESPACE) {
        return dpe_template_fail(render, "%s() takes one mapping at most, and named arguments",
                                 name);
    } else if (args->n == 1) {
        dpe_template_dict_set_all(render, made.pairs, given.pairs);
    }
    dpe_template_dict_set_all(render, made.pairs, &args->named);
    for (size_t i = 0; space && render->status == DPE_OK && i < made.pairs->n; i++) {
        struct value key = made.pairs->at[i].key;
        if (key.kind == KIND_STRING && key.text.n > 0 && key.text.s[0] == '_') {
            return dpe_template_fail(render,
                                     "a namespace has no member whose name begins with '_'");
        }
    }
    return made;
}

static struct value call_cycler(struct render *render, struct value of, const struct args *args)
{
    (void)of;
    return args->n == 0 || args->named.n > 0
               ? dpe_template_fail(render, "cycler() takes one value or more")
               : dpe_template_list_of(render, KIND_CYCLER, args->at, args->n);
}

static struct value call_joiner(struct render *render, struct value of, const struct args *args)
{
    (void)of;
    struct value between = dpe_template_text(", ");
    between = dpe_template_arg(args, 0) != NULL ? args->at[0] : between;
    return dpe_template_list_of(render, KIND_JOINER, &between, 1);
}

static struct value call_raise(struct render *render, struct value of, const struct args *args)
{
    (void)of;
    struct dpe_span text = dpe_template_str(render, args->at[0]);
    char plain[512];
    char shown[600];
    snprintf(plain, sizeof plain, "%.*s", text.n < 500 ? (int)text.n : 500, text.s);
    return dpe_template_fail(render, "the template refuses the messages: %s",
                             dpe_printable(plain, shown, sizeof shown));
}

static struct value call_now(struct render *render, struct value of, const struct args *args)
{
    (void)of;
    struct dpe_span format = dpe_template_arg_text(render, args, 0, "format", NULL);
    char pattern[512];
    char text[512];
    if (format.n >= sizeof pattern / 4 || memchr(format.s, '\0', format.n) != NULL) {
        return dpe_template_fail(render, "strftime_now(): the format is too long");
    }
    /* Python's time has no zone and more digits of a second. */
    size_t n_pattern = 0;
    for (size_t i = 0; i < format.n && n_pattern + 8 < sizeof pattern; i++) {
        size_t colon = i + 2 < format.n && format.s[i + 1] == ':';
        char kind = format.s[i] == '%' && i + 1 < format.n ? format.s[i + 1 + colon] : '\0';
        if (kind == 'z' || (colon == 0 && (kind == 'Z' || kind == 'f'))) {
            memcpy(pattern + n_pattern, "000000", 6);
            n_pattern += kind == 'f' ? 6 : 0;
            i += 1 + colon;
        } else {
            pattern[n_pattern++] = format.s[i];
            if (kind == '%' && colon == 0) {
                pattern[n_pattern++] = format.s[++i];
            }
        }
    }
    pattern[n_pattern] = '\0';
    /* -Wformat-nonliteral: the format is the template's; strftime writes no more than `text`. */
    size_t n = pattern[0] != '\0' ? strftime(text, sizeof text, pattern, render->now) : 0;
    struct builder built = {0};
    dpe_template_put(render, &built, text, n);
    return dpe_template_built(&built);
}

const struct known dpe_template_functions[] = {
    {"range", "/start /stop= /step=", call_range},
    {"namespace", NULL, call_pairs, KIND_NAMESPACE},
    {"dict", NULL, call_pairs, KIND_DICT},
    {"raise_exception", "message", call_raise},
    {"strftime_now", "format", call_now},
    {"cycler", NULL, call_cycler},
    {"joiner", "sep=", call_joiner},
    {NULL},
};

/* ---------------------------------------------------------------------------------- the tables */

const struct known *dpe_template_find(const struct known *table, struct dpe_span name)
{
    while (table->name != NULL && !dpe_span_equal(name, dpe_span_of(table->name))) {
        table++;
    }
    return table->name != NULL ? table : NULL;
}

/* In the first of some tables, the last of which is NULL, that has the name. */
static const struct known *find_in(const struct known *const *tables, struct dpe_span name)
{
    const struct known *found = NULL;
    for (; *tables != NULL && found == NULL; tables++) {
        found = dpe_template_find(*tables, name);
    }
    return found;
}

const struct known *dpe_template_find_filter(struct dpe_span name)
{
    static const struct known *const tables[] = {
        dpe_template_text_filters, dpe_template_list_filters, dpe_template_format_filters, NULL};
    return find_in(tables, name);
}

const struct known *dpe_template_find_method(enum kind kind, struct dpe_span name)
{
    static const struct known *const tables[KIND_METHOD + 1][3] = {
        [KIND_STRING] = {dpe_template_string_methods, dpe_template_class_methods},
        [KIND_LIST] = {dpe_template_item_methods, dpe_template_list_methods},
        [KIND_TUPLE] = {dpe_template_item_methods},
        [KIND_DICT] = {dpe_template_dict_methods},
        [KIND_LOOP] = {dpe_template_loop_methods},
        [KIND_CYCLER] = {dpe_template_cycler_methods},
    };
    return find_in(tables[kind], name);
}
