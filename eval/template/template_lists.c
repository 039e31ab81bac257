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

/* The same where the path may be several with commas between: then a list. */
static struct value keys_of(struct render *render, struct value item, const struct value *path,
                            bool folded)
{
    if (path == NULL || path->kind != KIND_STRING ||
        memchr(path->text.s, ',', path->text.n) == NULL) {
        return key_of(render, item, path, folded);
    }
    struct dpe_span rest = path->text;
    struct value keys = dpe_template_list(render, KIND_LIST, 0);
    for (;;) {
        const char *comma = rest.n > 0 ? memchr(rest.s, ',', rest.n) : NULL;
        size_t n = comma != NULL ? (size_t)(comma - rest.s) : rest.n;
        struct value one = dpe_template_string((struct dpe_span){rest.s, n});
        dpe_template_add(render, keys, key_of(render, item, &one, folded));
        if (comma == NULL) {
            return keys;
        }
        rest = (struct dpe_span){comma + 1, rest.n - n - 1};
    }
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
        struct value by = keys_of(render, items.at[i], path, folded);
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

/* The item's member, or what stands for one that is not there. */
static struct value grouper_of(struct render *render, struct value item, const struct args *args)
{
    struct value key = dpe_template_attribute(render, item, args->at[0]);
    return key.kind == KIND_UNDEFINED && dpe_template_arg(args, 1) != NULL ? args->at[1] : key;
}

static bool same_group(struct render *render, struct value a, struct value b, bool folded)
{
    bool texts = folded && a.kind == KIND_STRING && b.kind == KIND_STRING;
    return texts ? dpe_template_equal(render, dpe_template_case(render, a.text, DPE_PY_LOWER),
                                      dpe_template_case(render, b.text, DPE_PY_LOWER))
                 : dpe_template_equal(render, a, b);
}

/* (member, items that have it), sorted by it; texts that differ in case are one group, under the
 * first one's text. */
static struct value do_groupby(struct render *render, struct args *args)
{
    struct items items = dpe_template_items(render, args->of);
    bool folded = !dpe_template_truth(args->at[2]);
    struct value keyed = dpe_template_list(render, KIND_LIST, items.n);
    struct value groups = dpe_template_list(render, KIND_LIST, 0);
    for (size_t i = 0; i < items.n; i++) {
        const struct value both[] = {grouper_of(render, items.at[i], args), items.at[i]};
        dpe_template_add(render, keyed, dpe_template_list_of(render, KIND_TUPLE, both, 2));
    }
    struct value first = dpe_template_int(0);
    struct items in_order = *sorted(render, *keyed.items, &first, folded, false).items;
    const struct items *last = NULL;
    for (size_t i = 0; i < in_order.n; i++) {
        const struct value *pair = in_order.at[i].items->at;
        if (last == NULL || !same_group(render, last->at[0], pair[0], folded)) {
            const struct value both[] = {pair[0], dpe_template_list(render, KIND_LIST, 0)};
            struct value group = dpe_template_list_of(render, KIND_TUPLE, both, 2);
            group.items->grouped = true;
            dpe_template_add(render, groups, group);
            last = group.items;
        }
        dpe_template_add(render, last->at[1], pair[1]);
    }
    return groups;
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

/* Rows of `size` items; the last is filled up. */
static struct value do_batch(struct render *render, struct args *args)
{
    struct items items = dpe_template_items(render, args->of);
    int64_t size = args->at[0].integer;
    const struct value *fill = dpe_template_arg(args, 1);
    struct value rows = dpe_template_list(render, KIND_LIST, items.n);
    if (size < 1 || size > INT32_MAX) {
        dpe_template_fail(render, "batch: expected a number of items from 1");
    }
    size_t width = (size_t)size;
    for (size_t i = 0; i < items.n; i += width) {
        size_t n = items.n - i < width ? items.n - i : width;
        struct value row = dpe_template_list_of(render, KIND_LIST, items.at + i, n);
        for (; fill != NULL && n < width; n++) {
            dpe_template_step(render, 1);
            dpe_template_add(render, row, *fill);
        }
        dpe_template_add(render, rows, row);
    }
    return generator(render, rows);
}

/* So many columns, as long as each other within one. */
static struct value do_slice(struct render *render, struct args *args)
{
    struct items items = dpe_template_items(render, args->of);
    int64_t slices = args->at[0].integer;
    const struct value *fill = dpe_template_arg(args, 1);
    if (slices < 1 || slices > INT32_MAX) {
        dpe_template_fail(render, "slice: expected a number of slices from 1");
    }
    size_t n = (size_t)slices;
    size_t longer = items.n % n;
    struct value columns = dpe_template_list(render, KIND_LIST, 0);
    for (size_t i = 0, at = 0; i < n; i++) {
        dpe_template_step(render, 1);
        size_t length = items.n / n + (i < longer);
        struct value column = dpe_template_list_of(render, KIND_LIST, items.at + at, length);
        at += length;
        if (fill != NULL && i >= longer) {
            dpe_template_add(render, column, *fill);
        }
        dpe_template_add(render, columns, column);
    }
    return generator(render, columns);
}

/* The first of the arguments, which is taken away. */
static struct value take_first(struct args *args)
{
    bool there = args->n > 0;
    args->n -= there;
    return there ? *args->at++ : dpe_template_nothing();
}

/* map('filter', …) and map(attribute='name', default=…) */
static struct value do_map(struct render *render, struct args *args)
{
    const struct value *path = NULL;
    const struct value *fallback = NULL;
    struct value list = dpe_template_list(render, KIND_LIST, 0);
    if (!dpe_template_truth(args->of)) {
        return generator(render, list);
    }
    for (size_t i = 0; i < args->named.n && args->n == 0; i++) {
        const struct pair *named = &args->named.at[i];
        struct dpe_span key = named->key.text;
        if (dpe_span_equal(key, dpe_span_of("attribute"))) {
            path = &named->value;
        } else if (dpe_span_equal(key, dpe_span_of("default"))) {
            fallback = &named->value;
        } else {
            dpe_template_fail(render, "the filter 'map' has no argument '%.*s'", SHOWN(key));
        }
    }
    const struct known *filter = NULL;
    struct args rest = *args;
    if (path == NULL) {
        struct dpe_span name = dpe_template_letters(render, take_first(&rest), dpe_span_of("name"));
        filter = dpe_template_find_filter(name);
        if (filter == NULL) {
            dpe_template_fail(render, "map: the filter '%.*s' is not supported", SHOWN(name));
        }
    }
    struct items items = dpe_template_items(render, args->of);
    for (size_t i = 0; i < items.n; i++) {
        dpe_template_step(render, 1);
        struct value value = filter != NULL
                                 ? dpe_template_apply(render, "filter", filter, items.at[i], &rest)
                                 : dpe_template_attribute(render, items.at[i], *path);
        bool missing = value.kind == KIND_UNDEFINED && filter == NULL && fallback != NULL;
        dpe_template_add(render, list, missing ? *fallback : value);
    }
    return generator(render, list);
}

enum choice { SELECT = 0, REJECT = 1, BY_ATTRIBUTE = 2 };

/* The items for which the test (none: truth) holds or does not. */
static struct value do_choose(struct render *render, struct args *args)
{
    bool by_attribute = (args->how & BY_ATTRIBUTE) != 0;
    bool wanted = (args->how & REJECT) == 0;
    struct value list = dpe_template_list(render, KIND_LIST, 0);
    /* jinja2 looks at nothing else where the value is false: none, too, has no items then. */
    if (!dpe_template_truth(args->of)) {
        return generator(render, list);
    }
    struct items items = dpe_template_items(render, args->of);
    const struct known *test = NULL;
    struct args rest = *args;
    if (by_attribute && rest.n == 0) {
        dpe_template_fail(render, "expected the name of an attribute");
    }
    struct value path = by_attribute ? take_first(&rest) : dpe_template_none();
    if (rest.n > 0) {
        struct dpe_span name = dpe_template_letters(render, take_first(&rest), dpe_span_of("test"));
        test = dpe_template_find(dpe_template_tests, name);
        if (test == NULL) {
            dpe_template_fail(render, "the test '%.*s' is not supported here", SHOWN(name));
        }
    } else if (rest.named.n > 0) {
        dpe_template_fail(render, "the test has no argument '%.*s'",
                          SHOWN(rest.named.at[0].key.text));
    }
    for (size_t i = 0; i < items.n; i++) {
        dpe_template_step(render, 1);
        struct value value = dpe_template_attribute(render, items.at[i], path);
        if (test != NULL) {
            value = dpe_template_apply(render, "test", test, value, &rest);
        }
        if (dpe_template_truth(value) == wanted) {
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
    {"groupby", "attribute,default=,case_sensitive=", do_groupby},
    {"dictsort", "case_sensitive=,$by='key',reverse=", do_dictsort},
    {"min", "case_sensitive=,attribute=", do_extreme, false},
    {"max", "case_sensitive=,attribute=", do_extreme, true},
    {"sum", "attribute=,start=0", do_sum},
    {"batch", "#linecount,~fill_with=", do_batch},
    {"slice", "#slices,~fill_with=", do_slice},
    {"attr", "$name", do_attr},
    {"map", NULL, do_map},
    {"select", NULL, do_choose, SELECT},
    {"reject", NULL, do_choose, REJECT},
    {"selectattr", NULL, do_choose, SELECT | BY_ATTRIBUTE},
    {"rejectattr", NULL, do_choose, REJECT | BY_ATTRIBUTE},
    {NULL},
};
