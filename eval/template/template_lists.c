/* Filters of lists: "x | NAME". What jinja2 makes a generator is one here. */
#include "eval/template/template_parts.h"

#include <string.h>

static const struct args no_args;

static struct value nothing(const char *what)
{
    return dpe_template_undefined(dpe_span_of(what));
}

/* A generator over a list that was made. */
static struct value generator(struct render *render, struct value list)
{
    return render->status == DPE_OK ? dpe_template_iterator(render, *list.items, NULL) : list;
}

static bool is_generator(struct value value)
{
    return value.kind == KIND_ITERATOR && value.iterator->name == NULL;
}

static struct value do_length(struct render *render, struct value of, const struct args *args)
{
    (void)args;
    if (of.kind == KIND_STRING) {
        return dpe_template_int((int64_t)dpe_template_characters(render, of.text));
    }
    if (is_generator(of)) {
        return dpe_template_fail(render, "a generator has no length: make it a list");
    }
    return dpe_template_int(of.kind == KIND_DICT ? (int64_t)of.pairs->n
                                                 : (int64_t)dpe_template_items(render, of).n);
}

static struct value do_join(struct render *render, struct value of, const struct args *args)
{
    struct items items = dpe_template_items(render, of);
    const struct value *given = dpe_template_arg(args, 0);
    const struct value *path = dpe_template_arg(args, 1);
    struct dpe_span between = given != NULL ? dpe_template_str(render, *given) : dpe_span_of("");
    struct builder built = {0};
    for (size_t i = 0; i < items.n && render->status == DPE_OK; i++) {
        struct value item = items.at[i];
        dpe_template_put(render, &built, between.s, i > 0 ? between.n : 0);
        dpe_template_write(render, &built,
                           path != NULL ? dpe_template_attribute(render, item, *path) : item);
    }
    return dpe_template_built(&built);
}

static struct value do_first(struct render *render, struct value of, const struct args *args)
{
    (void)args;
    if (is_generator(of)) {
        struct items *left = &of.iterator->items;
        if (left->n > 0) {
            left->n--;
            return *left->at++;
        }
    }
    struct items items = dpe_template_items(render, of);
    return items.n > 0 ? items.at[0] : nothing("the first of no items");
}

static struct value do_last(struct render *render, struct value of, const struct args *args)
{
    (void)args;
    if (is_generator(of)) {
        return dpe_template_fail(render, "a generator has no last item: make it a list");
    }
    struct items items = dpe_template_items(render, of);
    return items.n > 0 ? items.at[items.n - 1] : nothing("the last of no items");
}

static struct value do_list(struct render *render, struct value of, const struct args *args)
{
    struct items items = dpe_template_items(render, of);
    struct value list = dpe_template_list(render, KIND_LIST, 0);
    (void)args;
    if (render->status == DPE_OK) {
        *list.items = items;
    }
    return list;
}

static struct value do_reverse(struct render *render, struct value of, const struct args *args)
{
    struct items items = dpe_template_items(render, of);
    struct value list = dpe_template_list(render, KIND_LIST, items.n);
    (void)args;
    for (size_t i = items.n; i-- > 0 && render->status == DPE_OK;) {
        dpe_template_add(render, list, items.at[i]);
    }
    if (render->status != DPE_OK || is_generator(of)) {
        return list; /* what has no reverse is made a list */
    }
    return of.kind == KIND_STRING ? do_join(render, list, &no_args) : generator(render, list);
}

/* What an item is compared by: itself, or one of its members; texts without regard to case. */
static struct value key_of(struct render *render, struct value item, const struct value *path,
                           bool folded)
{
    struct value key = path != NULL ? dpe_template_attribute(render, item, *path) : item;
    return folded && key.kind == KIND_STRING ? dpe_template_case(render, key.text, false) : key;
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
    while (render->status == DPE_OK) {
        const char *comma = rest.n > 0 ? memchr(rest.s, ',', rest.n) : NULL;
        size_t n = comma != NULL ? (size_t)(comma - rest.s) : rest.n;
        struct value one = dpe_template_string((struct dpe_span){rest.s, n});
        dpe_template_add(render, keys, key_of(render, item, &one, folded));
        if (comma == NULL) {
            break;
        }
        rest = (struct dpe_span){comma + 1, rest.n - n - 1};
    }
    return keys;
}

static struct value do_unique(struct render *render, struct value of, const struct args *args)
{
    struct items items = dpe_template_items(render, of);
    bool exact = dpe_template_arg_bool(args, 0);
    const struct value *path = dpe_template_arg(args, 1);
    struct value list = dpe_template_list(render, KIND_LIST, items.n);
    struct value seen = dpe_template_list(render, KIND_LIST, items.n);
    for (size_t i = 0; i < items.n && render->status == DPE_OK; i++) {
        struct value key = key_of(render, items.at[i], path, !exact);
        if (key.kind == KIND_LIST || key.kind == KIND_DICT) {
            return dpe_template_fail(render, "unique: %s cannot be compared with a set of values",
                                     dpe_template_kind_name(key));
        }
        if (!dpe_template_contains(render, seen, key)) {
            dpe_template_add(render, seen, key);
            dpe_template_add(render, list, items.at[i]);
        }
    }
    return generator(render, list);
}

static struct value do_items(struct render *render, struct value of, const struct args *args)
{
    struct items items = {0};
    (void)args;
    if (of.kind != KIND_UNDEFINED) {
        items = dpe_template_pairs(render, of);
    }
    return render->status == DPE_OK ? dpe_template_iterator(render, items, NULL) : nothing("");
}

/* Insertion into a sorted list; the lists of templates are short. Items that compare equal stay in
 * their order, in a reversed one too. */
static struct value sorted(struct render *render, struct items items, const struct value *path,
                           bool folded, bool reverse)
{
    struct value list = dpe_template_list(render, KIND_LIST, items.n);
    struct value keys = dpe_template_list(render, KIND_LIST, items.n);
    for (size_t i = 0; i < items.n && render->status == DPE_OK; i++) {
        struct value by = keys_of(render, items.at[i], path, folded);
        size_t at = i;
        while (at > 0 && dpe_template_step(render, 1)) {
            int order = dpe_template_compare(render, keys.items->at[at - 1], by);
            if (reverse ? order >= 0 : order <= 0) {
                break;
            }
            keys.items->at[at] = keys.items->at[at - 1];
            list.items->at[at] = list.items->at[at - 1];
            at--;
        }
        keys.items->at[at] = by;
        list.items->at[at] = items.at[i];
        list.items->n = i + 1;
    }
    return list;
}

static struct value do_sort(struct render *render, struct value of, const struct args *args)
{
    bool reverse = dpe_template_arg_bool(args, 0);
    bool exact = dpe_template_arg_bool(args, 1);
    return sorted(render, dpe_template_items(render, of), dpe_template_arg(args, 2), !exact,
                  reverse);
}

/* The item's member, or what stands for one that is not there. */
static struct value grouper_of(struct render *render, struct value item, const struct args *args)
{
    struct value key = dpe_template_attribute(render, item, args->at[0]);
    const struct value *missing = dpe_template_arg(args, 1);
    return key.kind == KIND_UNDEFINED && missing != NULL ? *missing : key;
}

static bool same_group(struct render *render, struct value a, struct value b, bool folded)
{
    bool texts = folded && a.kind == KIND_STRING && b.kind == KIND_STRING;
    return texts ? dpe_template_equal(render, dpe_template_case(render, a.text, false),
                                      dpe_template_case(render, b.text, false))
                 : dpe_template_equal(render, a, b);
}

/* (member, items that have it), sorted by it; texts that differ in case are one group, under the
 * first one's text. */
static struct value do_groupby(struct render *render, struct value of, const struct args *args)
{
    struct items items = dpe_template_items(render, of);
    bool folded = !dpe_template_arg_bool(args, 2);
    struct value keyed = dpe_template_list(render, KIND_LIST, items.n);
    struct value groups = dpe_template_list(render, KIND_LIST, items.n);
    for (size_t i = 0; i < items.n && render->status == DPE_OK; i++) {
        const struct value both[] = {grouper_of(render, items.at[i], args), items.at[i]};
        dpe_template_add(render, keyed, dpe_template_list_of(render, KIND_TUPLE, both, 2));
    }
    struct value first = dpe_template_int(0);
    struct value in_order =
        render->status == DPE_OK ? sorted(render, *keyed.items, &first, folded, false) : keyed;
    for (size_t i = 0; render->status == DPE_OK && i < in_order.items->n; i++) {
        const struct value *pair = in_order.items->at[i].items->at;
        struct items *last =
            groups.items->n > 0 ? groups.items->at[groups.items->n - 1].items : NULL;
        if (last == NULL || !same_group(render, last->at[0], pair[0], folded)) {
            const struct value both[] = {
                pair[0], dpe_template_list(render, KIND_LIST, in_order.items->n - i)};
            struct value group = dpe_template_list_of(render, KIND_TUPLE, both, 2);
            if (render->status != DPE_OK) {
                break;
            }
            group.items->grouped = true;
            dpe_template_add(render, groups, group);
            last = group.items;
        }
        struct items *list = last->at[1].items;
        list->at[list->n++] = pair[1];
    }
    return groups;
}

static struct value do_dictsort(struct render *render, struct value of, const struct args *args)
{
    bool exact = dpe_template_arg_bool(args, 0);
    struct dpe_span by = dpe_template_arg_text(render, args, 1, "by", "key");
    bool value = dpe_span_equal(by, dpe_span_of("value"));
    if (!value && !dpe_span_equal(by, dpe_span_of("key"))) {
        return dpe_template_fail(render, "dictsort: the argument 'by' is 'key' or 'value'");
    }
    struct value path = dpe_template_int(value);
    return sorted(render, dpe_template_pairs(render, of), &path, !exact,
                  dpe_template_arg_bool(args, 2));
}

/* min, and max with `how`. */
static struct value do_extreme(struct render *render, struct value of, const struct args *args)
{
    int wanted = args->how != 0 ? 1 : -1;
    struct items items = dpe_template_items(render, of);
    bool exact = dpe_template_arg_bool(args, 0);
    const struct value *path = dpe_template_arg(args, 1);
    if (items.n == 0) {
        return nothing("an item of no items");
    }
    size_t best = 0;
    struct value key = key_of(render, items.at[0], path, !exact);
    for (size_t i = 1; i < items.n && dpe_template_step(render, 1); i++) {
        struct value other = key_of(render, items.at[i], path, !exact);
        if (dpe_template_compare(render, other, key) == wanted) {
            best = i;
            key = other;
        }
    }
    return items.at[best];
}

static struct value do_sum(struct render *render, struct value of, const struct args *args)
{
    struct items items = dpe_template_items(render, of);
    const struct value *path = dpe_template_arg(args, 0);
    const struct value *start = dpe_template_arg(args, 1);
    struct value sum = start != NULL ? *start : dpe_template_int(0);
    if (sum.kind == KIND_STRING) {
        return dpe_template_fail(render, "sum: strings are joined by join");
    }
    for (size_t i = 0; i < items.n && dpe_template_step(render, 1); i++) {
        sum = dpe_template_binary(render, OP_ADD, sum, key_of(render, items.at[i], path, false));
    }
    return sum;
}

/* Rows of `size` items; the last is filled up with `fill`. */
static struct value do_batch(struct render *render, struct value of, const struct args *args)
{
    struct items items = dpe_template_items(render, of);
    int64_t size = dpe_template_arg_int(render, args, 0, "linecount", 0);
    const struct value *fill = dpe_template_given(args, 1);
    struct value rows = dpe_template_list(render, KIND_LIST, items.n);
    if (size < 1 || size > INT32_MAX) {
        return dpe_template_fail(render, "batch: expected a number of items from 1");
    }
    size_t width = (size_t)size;
    for (size_t i = 0; i < items.n && render->status == DPE_OK; i += width) {
        size_t n = items.n - i < width ? items.n - i : width;
        size_t most = fill != NULL ? width : n;
        struct value row = dpe_template_list(render, KIND_LIST, most);
        for (size_t k = 0; k < most && dpe_template_step(render, 1); k++) {
            dpe_template_add(render, row, k < n ? items.at[i + k] : *fill);
        }
        dpe_template_add(render, rows, row);
    }
    return generator(render, rows);
}

/* So many columns, as long as each other within one. */
static struct value do_slice(struct render *render, struct value of, const struct args *args)
{
    struct items items = dpe_template_items(render, of);
    int64_t slices = dpe_template_arg_int(render, args, 0, "slices", 0);
    const struct value *fill = dpe_template_given(args, 1);
    if (slices < 1 || slices > INT32_MAX) {
        return dpe_template_fail(render, "slice: expected a number of slices from 1");
    }
    size_t n = (size_t)slices;
    size_t each = items.n / n;
    size_t longer = items.n % n;
    struct value columns = dpe_template_list(render, KIND_LIST, n);
    size_t at = 0;
    for (size_t i = 0; i < n && dpe_template_step(render, 1); i++) {
        struct value column = dpe_template_list(render, KIND_LIST, each + 1);
        for (size_t k = 0; k < each + (i < longer) && dpe_template_step(render, 1); k++) {
            dpe_template_add(render, column, items.at[at++]);
        }
        if (fill != NULL && i >= longer) {
            dpe_template_add(render, column, *fill);
        }
        dpe_template_add(render, columns, column);
    }
    return generator(render, columns);
}

/* map('filter', …) and map(attribute='name', default=…) */
static struct value do_map(struct render *render, struct value of, const struct args *args)
{
    const struct value *path = NULL;
    const struct value *fallback = NULL;
    if (!dpe_template_truth(of)) {
        return dpe_template_iterator(render, (struct items){0}, NULL);
    }
    for (size_t i = 0; i < args->named.n && args->n == 0; i++) {
        const struct pair *named = &args->named.at[i];
        struct dpe_span key = named->key.text;
        bool attribute = dpe_span_equal(key, dpe_span_of("attribute"));
        if (!attribute && !dpe_span_equal(key, dpe_span_of("default"))) {
            return dpe_template_fail(render, "the filter 'map' has no argument '%.*s'", SHOWN(key));
        }
        path = attribute ? &named->value : path;
        fallback = attribute ? fallback : &named->value;
    }
    const struct known *filter = NULL;
    struct args rest = *args;
    if (path == NULL) {
        struct dpe_span name = dpe_template_arg_text(render, args, 0, "name", NULL);
        filter = dpe_template_find_filter(name);
        if (filter == NULL) {
            return dpe_template_fail(render, "map: the filter '%.*s' is not supported",
                                     SHOWN(name));
        }
        rest.at++;
        rest.n--;
    }
    struct items items = dpe_template_items(render, of);
    struct value list = dpe_template_list(render, KIND_LIST, items.n);
    for (size_t i = 0; i < items.n && dpe_template_step(render, 1); i++) {
        struct value value =
            filter != NULL ? dpe_template_apply(render, "the filter", filter, items.at[i], &rest)
                           : dpe_template_attribute(render, items.at[i], *path);
        bool missing = value.kind == KIND_UNDEFINED && filter == NULL && fallback != NULL;
        dpe_template_add(render, list, missing ? *fallback : value);
    }
    return generator(render, list);
}

enum choice { SELECT = 0, REJECT = 1, BY_ATTRIBUTE = 2 };

/* The items for which the test (none: truth) holds or does not. */
static struct value do_choose(struct render *render, struct value of, const struct args *args)
{
    bool by_attribute = (args->how & BY_ATTRIBUTE) != 0;
    bool wanted = (args->how & REJECT) == 0;
    /* jinja2 looks at nothing else where the value is false: none, too, has no items then. */
    if (!dpe_template_truth(of)) {
        return dpe_template_iterator(render, (struct items){0}, NULL);
    }
    struct items items = dpe_template_items(render, of);
    struct value list = dpe_template_list(render, KIND_LIST, items.n);
    size_t used = by_attribute;
    const struct value *path = by_attribute ? dpe_template_arg(args, 0) : NULL;
    const struct known *test = NULL;
    struct args rest = *args;
    if (by_attribute && path == NULL) {
        return dpe_template_fail(render, "expected the name of an attribute");
    }
    if (args->n > used) {
        struct dpe_span name = dpe_template_arg_text(render, args, used, "test", NULL);
        test = dpe_template_find(dpe_template_tests, name);
        used++;
        if (test == NULL) {
            return dpe_template_fail(render, "the test '%.*s' is not supported here", SHOWN(name));
        }
    } else if (args->named.n > 0) {
        struct dpe_span key = args->named.at[0].key.text;
        return dpe_template_fail(render, "the test has no argument '%.*s'", SHOWN(key));
    }
    rest.at += used;
    rest.n -= used;
    for (size_t i = 0; i < items.n && dpe_template_step(render, 1); i++) {
        struct value value =
            path != NULL ? dpe_template_attribute(render, items.at[i], *path) : items.at[i];
        if (test != NULL) {
            value = dpe_template_apply(render, "the test", test, value, &rest);
        }
        if (dpe_template_truth(value) == wanted) {
            dpe_template_add(render, list, items.at[i]);
        }
    }
    return generator(render, list);
}

static struct value do_attr(struct render *render, struct value of, const struct args *args)
{
    struct dpe_span name = dpe_template_arg_text(render, args, 0, "name", NULL);
    return of.kind == KIND_DICT && dpe_template_find_method(of.kind, name) == NULL
               ? nothing("an attribute that is not there")
               : dpe_template_member(render, of, name);
}

const struct known dpe_template_list_filters[] = {
    {"length", "", do_length},
    {"count", "", do_length},
    {"join", "d= attribute=", do_join},
    {"first", "", do_first},
    {"last", "", do_last},
    {"list", "", do_list},
    {"reverse", "", do_reverse},
    {"unique", "case_sensitive= attribute=", do_unique},
    {"items", "", do_items},
    {"sort", "reverse= case_sensitive= attribute=", do_sort},
    {"groupby", "attribute default= case_sensitive=", do_groupby},
    {"dictsort", "case_sensitive= by= reverse=", do_dictsort},
    {"min", "case_sensitive= attribute=", do_extreme, false},
    {"max", "case_sensitive= attribute=", do_extreme, true},
    {"sum", "attribute= start=", do_sum},
    {"batch", "linecount fill_with=", do_batch},
    {"slice", "slices fill_with=", do_slice},
    {"attr", "name", do_attr},
    {"map", NULL, do_map},
    {"select", NULL, do_choose, SELECT},
    {"reject", NULL, do_choose, REJECT},
    {"selectattr", NULL, do_choose, SELECT | BY_ATTRIBUTE},
    {"rejectattr", NULL, do_choose, REJECT | BY_ATTRIBUTE},
    {NULL},
};
