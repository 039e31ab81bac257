/* Calls: arguments, macros, functions, and the tables of what has a name. */
#include "eval/template/template_parts.h"

#include <stdio.h>
#include <string.h>

enum { MAX_RANGE = 100000 };

/* ----------------------------------------------------------------------------------- arguments */

static void add(struct render *render, struct args *args, struct value value)
{
    if (args->n == MOST_ARGS) {
        dpe_template_fail(render, "more than %d arguments are not supported", MOST_ARGS);
    }
    args->at[args->n++] = value;
}

static void add_named(struct render *render, struct args *args, struct dpe_span name,
                      struct value value)
{
    const size_t before = args->named.n;
    dpe_template_dict_set(render, &args->named, dpe_template_string(name), value);
    if (args->named.n == before) {
        dpe_template_fail(render, "the argument '%.*s' is given twice", SHOWN(name));
    }
}

/* Takes the argument of that name out; false: there is none. */
static bool take_named(struct args *args, struct dpe_span name, struct value *value)
{
    struct pairs *named = &args->named;
    size_t i = 0;
    while (i < named->n && !dpe_span_equal(named->at[i].key.text, name)) {
        i++;
    }
    if (i == named->n) {
        return false;
    }
    *value = named->at[i].value;
    named->n--;
    memmove(named->at + i, named->at + i + 1, (named->n - i) * sizeof *named->at);
    return true;
}

void dpe_template_args(struct render *render, const struct node *list, struct args *args)
{
    *args = (struct args){0};
    for (const struct node *node = list; node != NULL; node = node->next) {
        struct value value = dpe_template_eval(render, node);
        if (node->stars == 1) {
            struct items items = dpe_template_items(render, value);
            dpe_template_step(render, items.n);
            for (size_t i = 0; i < items.n; i++) {
                add(render, args, items.at[i]);
            }
        } else if (node->stars == 2 && value.kind != KIND_DICT) {
            dpe_template_fail(render, "expected a mapping after **, found %s",
                              dpe_template_kind_name(value));
        } else if (node->stars == 2) {
            for (size_t i = 0; i < value.pairs->n; i++) {
                struct value key = value.pairs->at[i].key;
                if (key.kind != KIND_STRING) {
                    dpe_template_fail(render, "expected names of arguments after **, found %s",
                                      dpe_template_kind_name(key));
                }
                add_named(render, args, key.text, value.pairs->at[i].value);
            }
        } else if (node->keyword.s != NULL) {
            add_named(render, args, node->keyword, value);
        } else {
            add(render, args, value);
        }
    }
}

int64_t dpe_template_integer(struct render *render, struct value value, struct dpe_span name)
{
    if (value.kind != KIND_INT && value.kind != KIND_BOOL) {
        dpe_template_fail(render, "expected an integer as argument '%.*s', found %s", SHOWN(name),
                          dpe_template_kind_name(value));
    }
    return value.integer;
}

struct dpe_span dpe_template_letters(struct render *render, struct value value,
                                     struct dpe_span name)
{
    if (value.kind != KIND_STRING) {
        dpe_template_fail(render, "expected a string as argument '%.*s', found %s", SHOWN(name),
                          dpe_template_kind_name(value));
    }
    return value.text;
}

/* What a parameter is that was left out. */
static struct value fallback(const char *text)
{
    int64_t integer = 0;
    if (text[0] == '\'') {
        return dpe_template_string((struct dpe_span){text + 1, strcspn(text + 1, "'")});
    }
    return dpe_scan_int(&text, INT64_MIN, INT64_MAX, &integer) ? dpe_template_int(integer)
                                                               : dpe_template_nothing();
}

/* The given arguments as those of the parameters, which are not NULL. */
static void bind(struct render *render, const char *what, const struct known *known,
                 const struct args *given, struct args *bound)
{
    dpe_template_dict_set_all(render, &bound->named, &given->named);
    for (const char *at = known->params; *at != '\0'; at += *at == ',') {
        bool unnamed = *at == '/';
        at += unnamed;
        bool nullable = *at == '~';
        at += nullable;
        char type = *at;
        at += type == '#' || type == '$';
        struct dpe_span name = {at, strcspn(at, "=,")};
        at += name.n;
        size_t i = bound->n;
        struct value value = dpe_template_nothing();
        bool named = !unnamed && take_named(bound, name, &value);
        bool given_here = named || i < given->n;
        if (named && i < given->n) {
            dpe_template_fail(render, "the %s '%s': the argument '%.*s' is given twice", what,
                              known->name, SHOWN(name));
        }
        if (!given_here && *at != '=') {
            dpe_template_fail(render, "the %s '%s' needs its argument '%.*s'", what, known->name,
                              SHOWN(name));
        }
        value = i < given->n ? given->at[i] : value;
        if (!given_here || (nullable && value.kind == KIND_NONE)) {
            value = fallback(at + (*at == '='));
            bound->absent |= UINT64_C(1) << i;
        } else if (type == '#') {
            value = dpe_template_int(dpe_template_integer(render, value, name));
        } else if (type == '$') {
            dpe_template_letters(render, value, name);
        }
        add(render, bound, value);
        at += strcspn(at, ",");
    }
    if (given->n > bound->n) {
        dpe_template_fail(render, "the %s '%s' takes at most %zu arguments, found %zu", what,
                          known->name, bound->n, given->n + given->named.n);
    }
    if (bound->named.n > 0) {
        dpe_template_fail(render, "the %s '%s' has no argument '%.*s'", what, known->name,
                          SHOWN(bound->named.at[0].key.text));
    }
}

const struct value *dpe_template_arg(const struct args *args, size_t i)
{
    return (args->absent >> i & 1) == 0 ? &args->at[i] : NULL;
}

struct value dpe_template_apply(struct render *render, const char *what, const struct known *known,
                                struct value of, const struct args *args)
{
    struct args used = {0};
    if (known->params != NULL) {
        bind(render, what, known, args, &used);
    } else {
        used = *args;
    }
    used.of = of;
    used.how = known->how;
    render->depth++; /* "map" may be what "map" applies */
    struct value result = known->call(render, &used);
    render->depth--;
    return result;
}

/* -------------------------------------------------------------------------------------- macros */

static struct value call_macro(struct render *render, const struct macro *macro, struct args *args)
{
    const struct node *node = macro->node;
    struct scope *outer = render->scope;
    enum flow flow = render->flow;
    size_t n = 0;
    render->scope = dpe_template_scope(render, macro->scope);
    for (const struct node *each = node->list; each != NULL; each = each->next, n++) {
        struct value value = {.kind = KIND_UNDEFINED, .text = each->name};
        bool named = take_named(args, each->name, &value);
        if (named && n < args->n) {
            dpe_template_fail(render, "the argument '%.*s' is given twice", SHOWN(each->name));
        }
        if (n < args->n) {
            value = args->at[n];
        } else if (!named && each->a != NULL) {
            value = dpe_template_eval(render, each->a);
        }
        dpe_template_dict_set(render, &render->scope->variables, dpe_template_string(each->name),
                              value);
    }
    struct value caller = dpe_template_undefined("caller");
    if (node->calls) {
        take_named(args, caller.text, &caller);
        dpe_template_dict_set(render, &render->scope->variables, dpe_template_text("caller"),
                              caller);
    }
    if (n < args->n || args->named.n > 0) {
        dpe_template_fail(render, "the macro '%.*s' does not have all of these arguments",
                          SHOWN(node->name));
    }
    render->flow = FLOW_ON;
    struct value text = dpe_template_capture(render, node->body);
    render->flow = flow;
    render->scope = outer;
    return text;
}

struct value dpe_template_call(struct render *render, struct value callee, struct args *args)
{
    struct value result = dpe_template_nothing();
    dpe_template_step(render, 1);
    render->depth++;
    if (callee.kind == KIND_FUNCTION) {
        result = dpe_template_apply(render, "function", callee.function, result, args);
    } else if (callee.kind == KIND_MACRO) {
        result = call_macro(render, callee.macro, args);
    } else if (callee.kind == KIND_LOOP) {
        result = dpe_template_call_loop(render, callee.loop, args);
    } else if (callee.kind == KIND_JOINER) {
        result = callee.items->used ? callee.items->at[0] : dpe_template_text("");
        callee.items->used = true;
    } else if (callee.kind == KIND_METHOD) {
        result =
            dpe_template_apply(render, "method", callee.bound->method, callee.bound->self, args);
    } else if (callee.kind == KIND_UNDEFINED && callee.text.n > 0) {
        dpe_template_fail(render, "'%.*s' is called and not defined", SHOWN(callee.text));
    } else {
        dpe_template_fail(render, "%s cannot be called", dpe_template_kind_name(callee));
    }
    render->depth--;
    return result;
}

/* ----------------------------------------------------------------------------------- functions */

static struct value call_range(struct render *render, struct args *args)
{
    bool one = dpe_template_arg(args, 1) == NULL;
    int64_t start = one ? 0 : args->at[0].integer;
    int64_t stop = one ? args->at[0].integer : args->at[1].integer;
    int64_t step = args->at[2].integer;
    const int64_t far = INT64_C(1) << 60;
    if (step == 0 || start > far || start < -far || stop > far || stop < -far) {
        dpe_template_fail(render, "range(): the bounds are too large, or the step is 0");
    }
    int64_t span = step > 0 ? stop - start : start - stop;
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    uint64_t n = span > 0 ? ((uint64_t)span + (stride - 1)) / stride : 0;
    if (n > MAX_RANGE) {
        dpe_template_fail(render, "range(): more than %d numbers", MAX_RANGE);
    }
    struct value list = dpe_template_list(render, KIND_LIST, (size_t)n);
    for (uint64_t i = 0; i < n; i++) {
        dpe_template_add(render, list, dpe_template_int(start + (int64_t)i * step));
    }
    dpe_template_step(render, n);
    return list;
}

/* namespace(), dict(): pairs of a mapping, then of the named arguments. */
static struct value call_pairs(struct render *render, struct args *args)
{
    bool space = args->how == KIND_NAMESPACE;
    const char *name = space ? "namespace" : "dict";
    struct value made = dpe_template_dict(render, (enum kind)args->how, NULL);
    struct value given = args->n > 0 ? args->at[0] : dpe_template_nothing();
    if (args->n > 1 || given.kind == KIND_NAMESPACE) {
        dpe_template_fail(render, "%s() takes one mapping at most, and named arguments", name);
    }
    if (given.kind == KIND_DICT) {
        dpe_template_dict_set_all(render, made.pairs, given.pairs);
    } else {
        struct items items = dpe_template_items(render, given);
        for (size_t i = 0; i < items.n; i++) {
            struct items two = dpe_template_items(render, items.at[i]);
            if (two.n != 2 || two.at[0].kind > KIND_STRING) {
                dpe_template_fail(render, "%s() takes one mapping at most, or pairs", name);
            }
            dpe_template_dict_set(render, made.pairs, two.at[0], two.at[1]);
        }
    }
    dpe_template_dict_set_all(render, made.pairs, &args->named);
    for (size_t i = 0; space && i < made.pairs->n; i++) {
        struct value key = made.pairs->at[i].key;
        if (key.kind == KIND_STRING && key.text.n > 0 && key.text.s[0] == '_') {
            dpe_template_fail(render, "a namespace has no member whose name begins with '_'");
        }
    }
    return made;
}

static struct value call_joiner(struct render *render, struct args *args)
{
    const struct value *given = dpe_template_arg(args, 0);
    struct value between = given != NULL ? *given : dpe_template_text(", ");
    return dpe_template_list_of(render, KIND_JOINER, &between, 1);
}

static struct value call_raise(struct render *render, struct args *args)
{
    struct dpe_span text = dpe_template_str(render, args->at[0]);
    char plain[512];
    char shown[600];
    snprintf(plain, sizeof plain, "%.*s", text.n < 500 ? (int)text.n : 500, text.s);
    return dpe_template_fail(render, "the template refuses the messages: %s",
                             dpe_printable(plain, shown, sizeof shown));
}

static struct value call_now(struct render *render, struct args *args)
{
    struct dpe_span format = args->at[0].text;
    char pattern[512];
    char text[512];
    if (format.n >= sizeof pattern / 4 || memchr(format.s, '\0', format.n) != NULL) {
        dpe_template_fail(render, "strftime_now(): the format is too long");
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
    {"range", "/#start,/#stop=,/#step=1", call_range},
    {"namespace", NULL, call_pairs, KIND_NAMESPACE},
    {"dict", NULL, call_pairs, KIND_DICT},
    {"raise_exception", "message", call_raise},
    {"strftime_now", "$format", call_now},
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

const struct known *dpe_template_find_filter(struct dpe_span name)
{
    static const struct known *const tables[] = {
        dpe_template_text_filters, dpe_template_list_filters, dpe_template_format_filters};
    const struct known *found = NULL;
    for (size_t i = 0; i < 3 && found == NULL; i++) {
        found = dpe_template_find(tables[i], name);
    }
    return found;
}

const struct known *dpe_template_find_test(struct dpe_span name)
{
    return dpe_template_find(dpe_template_tests, name);
}

const struct known *dpe_template_find_method(enum kind kind, struct dpe_span name)
{
    static const struct known *const tables[KIND_METHOD + 1] = {
        [KIND_STRING] = dpe_template_string_methods, [KIND_LIST] = dpe_template_item_methods,
        [KIND_TUPLE] = dpe_template_item_methods,    [KIND_DICT] = dpe_template_dict_methods,
        [KIND_LOOP] = dpe_template_loop_methods,
    };
    return tables[kind] != NULL ? dpe_template_find(tables[kind], name) : NULL;
}
