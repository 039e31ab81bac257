/* Filters: "x | NAME". */
#include "eval/template/template_parts.h"

#include <stdlib.h>
#include <string.h>

static const struct args no_args;

static struct value nothing(const char *what)
{
    return dpe_template_undefined(dpe_span_of(what));
}

/* ---------------------------------------------------------------------------------------- texts */

static struct value do_trim(struct render *render, struct value of, const struct args *args)
{
    struct dpe_span text = dpe_template_str(render, of);
    const struct value *given = dpe_template_arg(args, 0, "chars");
    if (given == NULL || given->kind == KIND_NONE) {
        return dpe_template_strip(render, text, NULL, true, true);
    }
    struct dpe_span set = dpe_template_arg_text(render, args, 0, "chars", NULL);
    return dpe_template_strip(render, text, &set, true, true);
}

static struct value do_upper(struct render *render, struct value of, const struct args *args)
{
    (void)args;
    return dpe_template_case(render, dpe_template_str(render, of), true);
}

static struct value do_lower(struct render *render, struct value of, const struct args *args)
{
    (void)args;
    return dpe_template_case(render, dpe_template_str(render, of), false);
}

static struct value do_capitalize(struct render *render, struct value of, const struct args *args)
{
    (void)args;
    return dpe_template_capitalize(render, dpe_template_str(render, of));
}

/* Words begin after white space and after - ( { [ <. */
static struct value do_title(struct render *render, struct value of, const struct args *args)
{
    struct dpe_span text = dpe_template_str(render, of);
    struct builder built = {0};
    size_t start = 0;
    (void)args;
    for (size_t i = 0, n = 0; i < text.n && render->status == DPE_OK; i += n) {
        uint32_t point = dpe_py_next(text.s + i, text.s + text.n, &n);
        bool ends = dpe_py_space(text.s + i, text.s + text.n) > 0 || point == '-' || point == '(' ||
                    point == '{' || point == '[' || point == '<';
        if (ends || i + n == text.n) {
            size_t end = ends ? i : i + n;
            struct dpe_span word = {text.s + start, end - start};
            dpe_template_put_span(render, &built, dpe_template_capitalize(render, word).text);
            dpe_template_put(render, &built, text.s + i, ends ? n : 0);
            start = i + n;
        }
    }
    return dpe_template_built(&built);
}

static struct value do_replace(struct render *render, struct value of, const struct args *args)
{
    const struct value *count = dpe_template_arg(args, 2, "count");
    return dpe_template_replace(render, dpe_template_str(render, of),
                                dpe_template_arg_text(render, args, 0, "old", NULL),
                                dpe_template_arg_text(render, args, 1, "new", NULL),
                                count == NULL || count->kind == KIND_NONE
                                    ? -1
                                    : dpe_template_arg_int(render, args, 2, "count", -1));
}

static struct value do_string(struct render *render, struct value of, const struct args *args)
{
    (void)args;
    return dpe_template_string(dpe_template_str(render, of));
}

/* Lines after the first begin with `width` spaces (or that text), empty ones only with `blank`. */
static struct value do_indent(struct render *render, struct value of, const struct args *args)
{
    const struct value *given = dpe_template_arg(args, 0, "width");
    bool first = dpe_template_arg_bool(args, 1, "first", false);
    bool blank = dpe_template_arg_bool(args, 2, "blank", false);
    struct dpe_span text = dpe_template_str(render, of);
    struct builder margin = {0};
    struct builder built = {0};
    if (given != NULL && given->kind == KIND_STRING) {
        dpe_template_put_span(render, &margin, given->text);
    } else {
        int64_t width = dpe_template_arg_int(render, args, 0, "width", 4);
        for (int64_t i = 0; i < width && dpe_template_step(render, 1); i++) {
            dpe_template_put(render, &margin, " ", 1);
        }
    }
    bool start = true;
    for (size_t i = 0; i <= text.n && render->status == DPE_OK;) {
        const char *end = i < text.n ? memchr(text.s + i, '\n', text.n - i) : NULL;
        size_t n = end != NULL ? (size_t)(end - text.s) - i : text.n - i;
        bool wanted = start ? first : blank || n > 0;
        /* The last newline begins no line of its own. */
        if (wanted && (start || blank || n > 0) && (i < text.n || start)) {
            dpe_template_put_span(render, &built, dpe_template_built(&margin).text);
        }
        dpe_template_put(render, &built, text.s + i, n + (end != NULL));
        start = false;
        if (end == NULL) {
            break;
        }
        i += n + 1;
    }
    return dpe_template_built(&built);
}

static struct value do_safe(struct render *render, struct value of, const struct args *args)
{
    (void)args;
    return dpe_template_string(dpe_template_str(render, of));
}

/* -------------------------------------------------------------------------------------- numbers */

static struct value do_int(struct render *render, struct value of, const struct args *args)
{
    int64_t fallback = dpe_template_arg_int(render, args, 0, "default", 0);
    char text[64];
    int64_t integer = 0;
    double real = 0.0;
    if (of.kind == KIND_INT || of.kind == KIND_BOOL) {
        return dpe_template_int(of.kind == KIND_INT ? of.integer : of.truth);
    }
    if (of.kind == KIND_STRING) {
        struct dpe_span trimmed = dpe_py_strip(of.text);
        if (trimmed.n == 0 || trimmed.n >= sizeof text) {
            return dpe_template_int(fallback);
        }
        memcpy(text, trimmed.s, trimmed.n);
        text[trimmed.n] = '\0';
        if (dpe_parse_int(text, INT64_MIN, INT64_MAX, &integer)) {
            return dpe_template_int(integer);
        }
        if (!dpe_parse_real(text, -9e18, 9e18, &real)) {
            return dpe_template_int(fallback);
        }
    } else if (of.kind == KIND_FLOAT) {
        real = of.real;
    } else {
        return dpe_template_int(fallback);
    }
    return real > -9e18 && real < 9e18 ? dpe_template_int((int64_t)real)
                                       : dpe_template_int(fallback);
}

static struct value do_float(struct render *render, struct value of, const struct args *args)
{
    const struct value *given = dpe_template_arg(args, 0, "default");
    struct value fallback = given != NULL ? *given : dpe_template_float(0.0);
    double real = 0.0;
    char text[64];
    (void)render;
    if (dpe_template_number(of, &real)) {
        return dpe_template_float(real);
    }
    struct dpe_span trimmed = of.kind == KIND_STRING ? dpe_py_strip(of.text) : dpe_span_of("");
    if (trimmed.n == 0 || trimmed.n >= sizeof text) {
        return fallback;
    }
    memcpy(text, trimmed.s, trimmed.n);
    text[trimmed.n] = '\0';
    return dpe_parse_real(text, -1e308, 1e308, &real) ? dpe_template_float(real) : fallback;
}

static struct value do_abs(struct render *render, struct value of, const struct args *args)
{
    (void)args;
    struct value zero = dpe_template_int(0);
    return dpe_template_compare(render, of, zero) < 0
               ? dpe_template_binary(render, OP_SUBTRACT, zero, of)
               : of;
}

/* ---------------------------------------------------------------------------------------- lists */

static struct value do_length(struct render *render, struct value of, const struct args *args)
{
    (void)args;
    if (of.kind == KIND_STRING) {
        return dpe_template_int((int64_t)dpe_template_characters(of.text));
    }
    return dpe_template_int(of.kind == KIND_DICT ? (int64_t)of.pairs->n
                                                 : (int64_t)dpe_template_items(render, of).n);
}

static struct value do_default(struct render *render, struct value of, const struct args *args)
{
    const struct value *given = dpe_template_arg(args, 0, "default_value");
    bool falsy = dpe_template_arg_bool(args, 1, "boolean", false);
    (void)render;
    if (of.kind != KIND_UNDEFINED && !(falsy && !dpe_template_truth(of))) {
        return of;
    }
    return given != NULL ? *given : dpe_template_text("");
}

/* A member or item of a value, by a name with dots between ("function.name"). */
static struct value attribute(struct render *render, struct value of, struct dpe_span path)
{
    while (path.n > 0 && render->status == DPE_OK) {
        const char *dot = memchr(path.s, '.', path.n);
        struct dpe_span name = {path.s, dot != NULL ? (size_t)(dot - path.s) : path.n};
        of = dpe_template_item(render, of, dpe_template_string(name));
        size_t used = name.n + (dot != NULL);
        path.s += used;
        path.n -= used;
    }
    return of;
}

static struct value do_join(struct render *render, struct value of, const struct args *args)
{
    struct items items = dpe_template_items(render, of);
    struct dpe_span between = dpe_template_arg_text(render, args, 0, "d", "");
    struct dpe_span path = dpe_template_arg_text(render, args, 1, "attribute", "");
    struct builder built = {0};
    for (size_t i = 0; i < items.n && render->status == DPE_OK; i++) {
        dpe_template_put(render, &built, between.s, i > 0 ? between.n : 0);
        dpe_template_write(render, &built, attribute(render, items.at[i], path));
    }
    return dpe_template_built(&built);
}

static struct value do_first(struct render *render, struct value of, const struct args *args)
{
    (void)args;
    struct items items = dpe_template_items(render, of);
    return items.n > 0 ? items.at[0] : nothing("the first of no items");
}

static struct value do_last(struct render *render, struct value of, const struct args *args)
{
    (void)args;
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
        list.items->at[list.items->n++] = items.at[i];
    }
    if (of.kind != KIND_STRING || render->status != DPE_OK) {
        return list;
    }
    return do_join(render, list, &no_args);
}

static struct value do_unique(struct render *render, struct value of, const struct args *args)
{
    struct items items = dpe_template_items(render, of);
    struct value list = dpe_template_list(render, KIND_LIST, items.n);
    (void)args;
    for (size_t i = 0; i < items.n && render->status == DPE_OK; i++) {
        if (!dpe_template_contains(render, list, items.at[i])) {
            list.items->at[list.items->n++] = items.at[i];
        }
    }
    return list;
}

static struct value do_items(struct render *render, struct value of, const struct args *args)
{
    if (of.kind == KIND_UNDEFINED) {
        return dpe_template_list(render, KIND_LIST, 0);
    }
    const struct method *method = dpe_template_find_method(of.kind, dpe_span_of("items"));
    (void)args;
    return method != NULL ? method->call(render, of, &no_args)
                          : dpe_template_fail(render, "items: expected a mapping, found %s",
                                              dpe_template_kind_name(of));
}

/* Insertion into a sorted list; the lists of templates are short. Strings without regard to case.
 */
static struct value sorted(struct render *render, struct items items, size_t key, bool folded)
{
    struct value list = dpe_template_list(render, KIND_LIST, items.n);
    struct value keys = dpe_template_list(render, KIND_LIST, items.n);
    for (size_t i = 0; i < items.n && render->status == DPE_OK; i++) {
        struct value by = key == SIZE_MAX ? items.at[i] : items.at[i].items->at[key];
        by = folded && by.kind == KIND_STRING ? dpe_template_case(render, by.text, false) : by;
        size_t at = i;
        while (at > 0 && dpe_template_compare(render, keys.items->at[at - 1], by) > 0 &&
               dpe_template_step(render, 1)) {
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
    bool reverse = dpe_template_arg_bool(args, 0, "reverse", false);
    bool exact = dpe_template_arg_bool(args, 1, "case_sensitive", false);
    struct value list = sorted(render, dpe_template_items(render, of), SIZE_MAX, !exact);
    return reverse && render->status == DPE_OK ? do_reverse(render, list, &no_args) : list;
}

static struct value do_dictsort(struct render *render, struct value of, const struct args *args)
{
    bool exact = dpe_template_arg_bool(args, 0, "case_sensitive", false);
    struct value pairs = do_items(render, of, &no_args);
    return render->status == DPE_OK ? sorted(render, *pairs.items, 0, !exact) : pairs;
}

/* map('filter', …) and map(attribute='name', default=…) */
static struct value do_map(struct render *render, struct value of, const struct args *args)
{
    const struct value *path = dpe_template_arg(args, SIZE_MAX, "attribute");
    const struct value *fallback = dpe_template_arg(args, SIZE_MAX, "default");
    struct items items = dpe_template_items(render, of);
    struct value list = dpe_template_list(render, KIND_LIST, items.n);
    const struct filter *filter = NULL;
    if (path == NULL) {
        struct dpe_span name = dpe_template_arg_text(render, args, 0, "name", NULL);
        filter = dpe_template_find_filter(name);
        if (filter == NULL) {
            return dpe_template_fail(render, "map: the filter '%.*s' is not supported",
                                     dpe_template_shown(name.n), name.s);
        }
    } else if (path->kind != KIND_STRING) {
        return dpe_template_fail(render, "map: expected a name as attribute");
    }
    struct args rest = *args;
    if (filter != NULL) {
        rest.at++;
        rest.n--;
    }
    for (size_t i = 0; i < items.n && dpe_template_step(render, 1); i++) {
        struct value value = filter != NULL ? filter->apply(render, items.at[i], &rest)
                                            : attribute(render, items.at[i], path->text);
        bool missing = value.kind == KIND_UNDEFINED && filter == NULL && fallback != NULL;
        list.items->at[list.items->n++] = missing ? *fallback : value;
    }
    return list;
}

/* The items for which the test (none: truth) holds or does not. */
static struct value choose(struct render *render, struct value of, const struct args *args,
                           bool by_attribute, bool wanted)
{
    struct items items = dpe_template_items(render, of);
    struct value list = dpe_template_list(render, KIND_LIST, items.n);
    struct dpe_span path =
        by_attribute ? dpe_template_arg_text(render, args, 0, "attribute", NULL) : dpe_span_of("");
    size_t used = by_attribute;
    const struct test *test = NULL;
    struct args rest = *args;
    if (args->n > used) {
        struct dpe_span name = dpe_template_arg_text(render, args, used, "test", NULL);
        test = dpe_template_find_test(name);
        used++;
        if (test == NULL || args->n - used + args->n_named != test->n) {
            return dpe_template_fail(render, "the test '%.*s' is not supported here",
                                     dpe_template_shown(name.n), name.s);
        }
    }
    rest.at += used < args->n ? used : args->n;
    rest.n -= used < args->n ? used : args->n;
    for (size_t i = 0; i < items.n && dpe_template_step(render, 1); i++) {
        struct value value = attribute(render, items.at[i], path);
        bool holds = test != NULL ? test->holds(render, value, &rest) : dpe_template_truth(value);
        if (holds == wanted) {
            list.items->at[list.items->n++] = items.at[i];
        }
    }
    return list;
}

static struct value do_select(struct render *render, struct value of, const struct args *args)
{
    return choose(render, of, args, false, true);
}

static struct value do_reject(struct render *render, struct value of, const struct args *args)
{
    return choose(render, of, args, false, false);
}

static struct value do_selectattr(struct render *render, struct value of, const struct args *args)
{
    return choose(render, of, args, true, true);
}

static struct value do_rejectattr(struct render *render, struct value of, const struct args *args)
{
    return choose(render, of, args, true, false);
}

static const struct filter filters[] = {
    {"trim", 1, do_trim},
    {"upper", 0, do_upper},
    {"lower", 0, do_lower},
    {"capitalize", 0, do_capitalize},
    {"title", 0, do_title},
    {"replace", 3, do_replace},
    {"string", 0, do_string},
    {"indent", 3, do_indent},
    {"safe", 0, do_safe},
    {"int", 1, do_int},
    {"float", 1, do_float},
    {"abs", 0, do_abs},
    {"length", 0, do_length},
    {"count", 0, do_length},
    {"default", 2, do_default},
    {"d", 2, do_default},
    {"join", 2, do_join},
    {"first", 0, do_first},
    {"last", 0, do_last},
    {"list", 0, do_list},
    {"reverse", 0, do_reverse},
    {"unique", 0, do_unique},
    {"items", 0, do_items},
    {"sort", 2, do_sort},
    {"dictsort", 1, do_dictsort},
    {"map", 8, do_map},
    {"select", 8, do_select},
    {"reject", 8, do_reject},
    {"selectattr", 8, do_selectattr},
    {"rejectattr", 8, do_rejectattr},
    {"tojson", 4, dpe_template_tojson},
};

const struct filter *dpe_template_find_filter(struct dpe_span name)
{
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        if (dpe_span_equal(name, dpe_span_of(filters[i].name))) {
            return &filters[i];
        }
    }
    return NULL;
}
