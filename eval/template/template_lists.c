/* Filters of lists: "x | NAME". What jinja2 makes a generator is one here. */
#include "eval/template/template_parts.h"

#include <string.h>

/* A generator over a list that was made. */
static struct value generator(struct render *render, struct value list)
{
    return dpe_template_iterator(render, *list.items, NULL);
}

static bool is_generator(struct value value)
{
    return value.kind == KIND_ITERATOR && value.iterator->name == NULL;
}

static struct value do_length(struct render *render, struct args *args)
{
    struct value of = args->of;
    if (is_generator(of)) {
        dpe_template_fail(render, "a generator has no length: make it a list");
    }
    size_t n = of.kind == KIND_STRING ? dpe_template_characters(render, of.text)
               : of.kind == KIND_DICT ? of.pairs->n
                                      : dpe_template_items(render, of).n;
    return dpe_template_int((int64_t)n);
}

static struct value join(struct render *render, struct items items, struct dpe_span between,
                         const struct value *path)
{
    struct builder built = {0};
    for (size_t i = 0; i < items.n; i++) {
        struct value item = items.at[i];
        dpe_template_put(render, &built, between.s, i > 0 ? between.n : 0);
        dpe_template_write(render, &built,
                           path != NULL ? dpe_template_attribute(render, item, *path) : item);
    }
    return dpe_template_built(&built);
}

static struct value do_join(struct render *render, struct args *args)
{
    struct items items = dpe_template_items(render, args->of);
    return join(render, items, dpe_template_str(render, args->at[0]), dpe_template_arg(args, 1));
}

static struct value do_first(struct render *render, struct args *args)
{
    if (is_generator(args->of)) {
        struct items *left = &args->of.iterator->items;
        if (left->n > 0) {
            left->n--;
            return *left->at++;
        }
    }
    struct items items = dpe_template_items(render, args->of);
    return items.n > 0 ? items.at[0] : dpe_template_undefined("the first of no items");
}

static struct value do_last(struct render *render, struct args *args)
{
    if (is_generator(args->of)) {
        dpe_template_fail(render, "a generator has no last item: make it a list");
    }
    struct items items = dpe_template_items(render, args->of);
    return items.n > 0 ? items.at[items.n - 1] : dpe_template_undefined("the last of no items");
}

static struct value do_list(struct render *render, struct args *args)
{
    struct value list = dpe_template_list(render, KIND_LIST, 0);
    *list.items = dpe_template_items(render, args->of);
    return list;
}

static struct value do_reverse(struct render *render, struct args *args)
{
    struct items items = dpe_template_items(render, args->of);
    struct value list = dpe_template_list(render, KIND_LIST, items.n);
    for (size_t i = items.n; i-- > 0;) {
        dpe_template_add(render, list, items.at[i]);
    }
    if (is_generator(args->of)) {
        return list; /* what has no reverse is made a list */
    }
    return args->of.kind == KIND_STRING ? join(render, *list.items, dpe_span_of(""), NULL)
                                        : generator(render, list);
}

/* What an item is compared by: itself, or one of its members; texts without regard to case. */
static struct value key_of(struct render *render, struct value item, const struct value *path,
                           bool folded)
{
    struct value key = path != NULL ? dpe_template_attribute(render, item, *path) : item;
    return folded && key.kind == KIND_STRING ? dpe_template_case(render, key.text, DPE_PY_LOWER)
                                             : key;
}

static struct value do_unique(struct render *render, struct args *args)
{
    struct items items = dpe_template_items(render, args->of);
    bool exact = dpe_template_truth(args->at[0]);
    struct value list = dpe_template_list(render, KIND_LIST, items.n);
    struct value seen = dpe_template_list(render, KIND_LIST, items.n);
    for (size_t i = 0; i < items.n; i++) {
        struct value key = key_of(render, items.at[i], dpe_template_arg(args, 1), !exact);
        if (key.kind == KIND_LIST || key.kind == KIND_DICT) {
            dpe_template_fail(render, "unique: %s cannot be compared with a set of values",
                              dpe_template_kind_name(key));
        }
        if (!dpe_template_contains(render, seen, key)) {
            dpe_template_add(render, seen, key);
            dpe_template_add(render, list, items.at[i]);
        }
    }
    return generator(render, list);
}

static struct value do_items(struct render *render, struct args *args)
{
    bool none = args->of.kind == KIND_UNDEFINED;
    struct items items = none ? (struct items){0} : dpe_template_pairs(render, args->of);
    return dpe_template_iterator(render, items, NULL);
}

/* Insertion into a sorted list; the lists of templates are short. Items that compare equal stay in
 * their order, in a reversed one too. */
static struct value sorted(struct render *render, struct items items, const struct value *path,
                           bool folded, bool reverse)
{
    struct value list = dpe_template_list(render, KIND_LIST, items.n);
    struct value keys = dpe_template_list(render, KIND_LIST, items.n);
    for (size_t i = 0; i < items.n; i++) {
        struct value by = key_of(render, items.at[i], path, folded);
        size_t at = i;
        for (; at > 0; at--) {
            dpe_template_step(render, 1);
            int order = dpe_template_compare(render, keys.items->at[at - 1], by);
            if (reverse ? order >= 0 : order <= 0) {
                break;
            }
            keys.items->at[at] = keys.items->at[at - 1];
            list.items->at[at] = list.items->at[at - 1];
        }
        keys.items->at[at] = by;
        list.items->at[at] = items.at[i];
        list.items->n = i + 1;
    }
    return list;
}

static struct value do_sort(struct render *render, struct args *args)
{
    return sorted(render, dpe_template_items(render, args->of), dpe_template_arg(args, 2),
                  !dpe_template_truth(args->at[1]), dpe_template_truth(args->at[0]));
}

static struct value do_dictsort(struct render *render, struct args *args)
{
    bool value = dpe_span_equal(args->at[1].text, dpe_span_of("value"));
    if (!value && !dpe_span_equal(args->at[1].text, dpe_span_of("key"))) {
        dpe_template_fail(render, "dictsort: the argument 'by' is 'key' or 'value'");
    }
    struct value path = dpe_template_int(value);
    return sorted(render, dpe_template_pairs(render, args->of), &path,
                  !dpe_template_truth(args->at[0]), dpe_template_truth(args->at[2]));
}

/* min, and max with `how`. */
static struct value do_extreme(struct render *render, struct args *args)
{
    int wanted = args->how != 0 ? 1 : -1;
    struct items items = dpe_template_items(render, args->of);
    bool exact = dpe_template_truth(args->at[0]);
    struct value best = dpe_template_undefined("an item of no items");
    struct value key = best;
    for (size_t i = 0; i < items.n; i++) {
        dpe_template_step(render, 1);
        struct value other = key_of(render, items.at[i], dpe_template_arg(args, 1), !exact);
        if (i == 0 || dpe_template_compare(render, other, key) == wanted) {
            best = items.at[i];
            key = other;
        }
    }
    return best;
}

static struct value do_sum(struct render *render, struct args *args)
{
    struct items items = dpe_template_items(render, args->of);
    struct value sum = args->at[1];
    if (sum.kind == KIND_STRING) {
        dpe_template_fail(render, "sum: strings are joined by join");
    }
    for (size_t i = 0; i < items.n; i++) {
        struct value item = key_of(render, items.at[i], dpe_template_arg(args, 0), false);
        dpe_template_step(render, 1);
        sum = dpe_template_binary(render, OP_ADD, sum, item);
    }
    return sum;
}

/* The first of the arguments, which is taken away. */
static struct value take_first(struct args *args)
{
    struct value first = args->n > 0 ? args->at[0] : dpe_template_nothing();
    args->n -= args->n > 0;
    memmove(args->at, args->at + 1, args->n * sizeof *args->at);
    return first;
}

enum each { MAP = 1, REJECT = 2, BY_ATTRIBUTE = 4 };

/* The arguments of map(attribute='name', default=…). */
static void take_named(struct render *render, const struct pairs *named, struct value *path,
                       struct value *fallback)
{
    for (size_t i = 0; i < named->n; i++) {
        struct dpe_span key = named->at[i].key.text;
        bool attribute = dpe_span_equal(key, dpe_span_of("attribute"));
        if (!attribute && !dpe_span_equal(key, dpe_span_of("default"))) {
            dpe_template_fail(render, "the filter 'map' has no argument '%.*s'", SHOWN(key));
        }
        *(attribute ? path : fallback) = named->at[i].value;
    }
}

/* Of each item what a filter makes of it, or its member; or the items for which a test (none:
 * truth), of themselves or of a member, holds or does not. */
static struct value do_each(struct render *render, struct args *args)
{
    bool map = (args->how & MAP) != 0;
    struct value list = dpe_template_list(render, KIND_LIST, 0);
    /* jinja2 looks at nothing else where the value is false: none, too, has no items then. */
    if (!dpe_template_truth(args->of)) {
        return generator(render, list);
    }
    struct args rest = *args;
    struct value path = dpe_template_none();
    struct value fallback = dpe_template_nothing();
    if ((args->how & BY_ATTRIBUTE) != 0) {
        path = take_first(&rest);
    } else if (map && rest.n == 0) {
        take_named(render, &rest.named, &path, &fallback);
    }
    const char *what = map ? "filter" : "test";
    const struct known *known = NULL;
    if (rest.n > 0 || (map && path.kind == KIND_NONE)) {
        struct dpe_span name = dpe_template_letters(render, take_first(&rest), dpe_span_of(what));
        known = map ? dpe_template_find_filter(name) : dpe_template_find_test(name);
        if (known == NULL) {
            dpe_template_fail(render, "the %s '%.*s' is not supported", what, SHOWN(name));
        }
    } else if (!map && rest.named.n > 0) {
        dpe_template_fail(render, "the test has no argument '%.*s'",
                          SHOWN(rest.named.at[0].key.text));
    }
    struct items items = dpe_template_items(render, args->of);
    for (size_t i = 0; i < items.n; i++) {
        dpe_template_step(render, 1);
        struct value value = dpe_template_attribute(render, items.at[i], path);
        value = known != NULL ? dpe_template_apply(render, what, known, value, &rest) : value;
        bool missing = known == NULL && value.kind == KIND_UNDEFINED;
        if (map) {
            dpe_template_add(render, list,
                             missing && fallback.kind != KIND_UNDEFINED ? fallback : value);
        } else if (dpe_template_truth(value) == ((args->how & REJECT) == 0)) {
            dpe_template_add(render, list, items.at[i]);
        }
    }
    return generator(render, list);
}

static struct value do_attr(struct render *render, struct args *args)
{
    struct dpe_span name = args->at[0].text;
    return args->of.kind == KIND_DICT && dpe_template_find_method(KIND_DICT, name) == NULL
               ? dpe_template_undefined("an attribute that is not there")
               : dpe_template_member(render, args->of, name);
}

const struct known dpe_template_list_filters[] = {
    {"length", "", do_length},
    {"count", "", do_length},
    {"join", "d=,attribute=", do_join},
    {"first", "", do_first},
    {"last", "", do_last},
    {"list", "", do_list},
    {"reverse", "", do_reverse},
    {"unique", "case_sensitive=,attribute=", do_unique},
    {"items", "", do_items},
    {"sort", "reverse=,case_sensitive=,attribute=", do_sort},
    {"dictsort", "case_sensitive=,$by='key',reverse=", do_dictsort},
    {"min", "case_sensitive=,attribute=", do_extreme, false},
    {"max", "case_sensitive=,attribute=", do_extreme, true},
    {"sum", "attribute=,start=0", do_sum},
    {"attr", "$name", do_attr},
    {"map", NULL, do_each, MAP},
    {"select", NULL, do_each},
    {"reject", NULL, do_each, REJECT},
    {"selectattr", NULL, do_each, BY_ATTRIBUTE},
    {"rejectattr", NULL, do_each, REJECT | BY_ATTRIBUTE},
    {NULL},
};
