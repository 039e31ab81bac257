/* Members, items and slices of values; what "loop" is within {% for %}. */
#include "eval/template/template_parts.h"

#include <string.h>

static struct value loop_member(struct render *render, const struct loop *loop,
                                struct dpe_span name)
{
    int64_t index = (int64_t)loop->index;
    int64_t n = (int64_t)loop->over.n;
    const struct {
        const char *name;
        int64_t number;
    } numbers[] = {{"index", index + 1},       {"index0", index},
                   {"revindex", n - index},    {"length", n},
                   {"depth", loop->depth},     {"revindex0", n - index - 1},
                   {"depth0", loop->depth - 1}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (dpe_span_equal(name, dpe_span_of(numbers[i].name))) {
            return dpe_template_int(numbers[i].number);
        }
    }
    if (dpe_span_equal(name, dpe_span_of("first")) || dpe_span_equal(name, dpe_span_of("last"))) {
        return dpe_template_bool(name.s[0] == 'f' ? index == 0 : index == n - 1);
    }
    if (dpe_span_equal(name, dpe_span_of("previtem"))) {
        return index > 0 ? loop->over.at[index - 1] : dpe_template_undefined(name);
    }
    if (dpe_span_equal(name, dpe_span_of("nextitem"))) {
        return index + 1 < n ? loop->over.at[index + 1] : dpe_template_undefined(name);
    }
    return dpe_template_fail(render, "loop.%.*s is not supported", SHOWN(name));
}

static struct value do_cycle(struct render *render, struct value self, const struct args *args)
{
    return args->n > 0 ? args->at[self.loop->index % args->n]
                       : dpe_template_fail(render, "loop.cycle needs an argument");
}

/* Whether the values are others than at the last call in this loop. */
static struct value do_changed(struct render *render, struct value self, const struct args *args)
{
    struct value now = dpe_template_list_of(render, KIND_TUPLE, args->at, args->n);
    bool same = dpe_template_equal(render, self.loop->last, now);
    self.loop->last = now;
    return dpe_template_bool(!same);
}

const struct known dpe_template_loop_methods[] = {
    {"cycle", NULL, do_cycle},
    {"changed", NULL, do_changed},
    {NULL},
};

/* next, and reset with `how`. */
static struct value do_turn(struct render *render, struct value self, const struct args *args)
{
    (void)render;
    struct items *all = self.items;
    struct value now = all->at[all->turn];
    all->turn = args->how != 0 ? 0 : (all->turn + 1) % all->n;
    return args->how != 0 ? dpe_template_none() : now;
}

const struct known dpe_template_cycler_methods[] = {
    {"next", "", do_turn, false},
    {"reset", "", do_turn, true},
    {NULL},
};

/* Macros have a name, what their parameters are called, and what else they take. */
static struct value macro_member(struct render *render, const struct node *node,
                                 struct dpe_span name)
{
    static const struct {
        const char *name;
        unsigned reads;
    } catches[] = {
        {"catch_varargs", READS_VARARGS}, {"catch_kwargs", READS_KWARGS}, {"caller", READS_CALLER}};
    if (dpe_span_equal(name, dpe_span_of("name"))) {
        return node->name.n > 0 ? dpe_template_string(node->name) : dpe_template_none();
    }
    if (dpe_span_equal(name, dpe_span_of("arguments"))) {
        struct value list = dpe_template_list(render, KIND_TUPLE, 0);
        for (const struct node *each = node->list; each != NULL; each = each->next) {
            dpe_template_add(render, list, dpe_template_string(each->name));
        }
        return list;
    }
    for (size_t i = 0; i < sizeof catches / sizeof catches[0]; i++) {
        if (dpe_span_equal(name, dpe_span_of(catches[i].name))) {
            return dpe_template_bool((node->reads & catches[i].reads) != 0);
        }
    }
    return dpe_template_undefined(name);
}

static struct value bind(struct render *render, struct value self, const struct known *method)
{
    struct bound *bound = dpe_template_get(render, sizeof *bound);
    if (bound == NULL) {
        return dpe_template_nothing();
    }
    *bound = (struct bound){self, method};
    return (struct value){.kind = KIND_METHOD, .bound = bound};
}

struct value dpe_template_member(struct render *render, struct value of, struct dpe_span name)
{
    if (of.kind == KIND_UNDEFINED) {
        return dpe_template_fail(render, "'%.*s' is not defined, so that it has no '%.*s'",
                                 SHOWN(of.text), SHOWN(name));
    }
    const struct known *method = dpe_template_find_method(of.kind, name);
    if (method != NULL) {
        return bind(render, of, method);
    }
    if (of.kind == KIND_LOOP) {
        return loop_member(render, of.loop, name);
    }
    if (of.kind == KIND_DICT || of.kind == KIND_NAMESPACE) {
        const struct value *value =
            dpe_template_dict_get(render, of.pairs, dpe_template_string(name));
        return value != NULL ? *value : dpe_template_undefined(name);
    }
    if (of.kind == KIND_TUPLE && of.items->grouped) {
        bool key = dpe_span_equal(name, dpe_span_of("grouper"));
        return key || dpe_span_equal(name, dpe_span_of("list")) ? of.items->at[key ? 0 : 1]
                                                                : dpe_template_undefined(name);
    }
    if (of.kind == KIND_MACRO) {
        return macro_member(render, of.macro->node, name);
    }
    if (of.kind == KIND_CYCLER && dpe_span_equal(name, dpe_span_of("current"))) {
        return of.items->at[of.items->turn];
    }
    if (of.kind == KIND_CYCLER && dpe_span_equal(name, dpe_span_of("items"))) {
        return (struct value){.kind = KIND_TUPLE, .items = of.items};
    }
    if (of.kind == KIND_JOINER &&
        (dpe_span_equal(name, dpe_span_of("sep")) || dpe_span_equal(name, dpe_span_of("used")))) {
        return name.s[0] == 's' ? of.items->at[0] : dpe_template_bool(of.items->turn > 0);
    }
    return dpe_template_undefined(name);
}

/* A character or an item; undefined when there is none. */
static struct value by_index(struct render *render, struct value of, int64_t index)
{
    int64_t n = of.kind == KIND_STRING ? (int64_t)dpe_template_characters(render, of.text)
                                       : (int64_t)of.items->n;
    index += index < 0 ? n : 0;
    if (index < 0 || index >= n) {
        return dpe_template_undefined(dpe_span_of("an item that is not there"));
    }
    if (of.kind != KIND_STRING) {
        return of.items->at[index];
    }
    size_t end = dpe_template_offset(render, of.text, (size_t)index + 1);
    size_t start = dpe_template_offset(render, of.text, (size_t)index);
    return dpe_template_string((struct dpe_span){of.text.s + start, end - start});
}

struct value dpe_template_attribute(struct render *render, struct value of, struct value path)
{
    if (path.kind == KIND_INT) {
        return dpe_template_item(render, of, path);
    }
    struct dpe_span rest = path.text;
    if (path.kind != KIND_STRING) {
        return path.kind == KIND_NONE
                   ? of
                   : dpe_template_fail(render, "expected the name of an attribute");
    }
    while (rest.n > 0 && render->status == DPE_OK) {
        const char *dot = memchr(rest.s, '.', rest.n);
        struct dpe_span name = {rest.s, dot != NULL ? (size_t)(dot - rest.s) : rest.n};
        size_t digits = 0;
        while (digits < name.n && name.s[digits] >= '0' && name.s[digits] <= '9') {
            digits++;
        }
        of = dpe_template_item(render, of,
                               digits > 0 && digits == name.n
                                   ? dpe_template_digits(render, name.s, name.n)
                                   : dpe_template_string(name));
        size_t used = name.n + (dot != NULL);
        rest.s += used;
        rest.n -= used;
    }
    return of;
}

struct value dpe_template_item(struct render *render, struct value of, struct value key)
{
    if (of.kind == KIND_DICT) {
        const struct value *value = dpe_template_dict_get(render, of.pairs, key);
        if (value != NULL) {
            return *value;
        }
    }
    bool ordered = of.kind == KIND_STRING || of.kind == KIND_LIST || of.kind == KIND_TUPLE;
    if (ordered && (key.kind == KIND_INT || key.kind == KIND_BOOL)) {
        return by_index(render, of, key.integer);
    }
    if (key.kind == KIND_STRING) {
        return dpe_template_member(render, of, key.text);
    }
    if (of.kind == KIND_UNDEFINED) {
        return dpe_template_fail(render, "'%.*s' is not defined, so that it has no items",
                                 SHOWN(of.text));
    }
    return dpe_template_undefined(dpe_span_of("an item that is not there"));
}

/* Where a slice's bound lies: from the end when it is negative, within low … high. */
static int64_t clamp(int64_t at, int64_t n, int64_t low, int64_t high)
{
    at += at < 0 ? n : 0;
    return at < low ? low : at > high ? high : at;
}

static bool slice_bound(struct render *render, const struct node *node, int64_t *at)
{
    if (node == NULL) {
        return false;
    }
    struct value value = dpe_template_whole(dpe_template_eval(render, node));
    if (value.kind == KIND_NONE || render->status != DPE_OK) {
        return false;
    }
    if (value.kind == KIND_DIGITS) {
        value = dpe_template_int(value.text.s[0] == '-' ? INT64_MIN : INT64_MAX);
    }
    if (value.kind != KIND_INT) {
        dpe_template_fail(render, "expected an integer in a slice, found %s",
                          dpe_template_kind_name(value));
        return false;
    }
    /* Far beyond any text; so that sums of bounds fit. */
    const int64_t far = INT64_C(1) << 40;
    *at = value.integer > far ? far : value.integer < -far ? -far : value.integer;
    return true;
}

struct value dpe_template_slice(struct render *render, struct value of, const struct node *node)
{
    bool text = of.kind == KIND_STRING;
    if (!text && of.kind != KIND_LIST && of.kind != KIND_TUPLE) {
        return of.kind == KIND_UNDEFINED
                   ? dpe_template_fail(render, "'%.*s' is not defined, so that it has no items",
                                       SHOWN(of.text))
                   : dpe_template_fail(render, "%s has no slices", dpe_template_kind_name(of));
    }
    int64_t n = text ? (int64_t)dpe_template_characters(render, of.text) : (int64_t)of.items->n;
    int64_t step = 1;
    int64_t start = 0;
    int64_t stop = 0;
    slice_bound(render, node->c, &step);
    if (step == 0) {
        return dpe_template_fail(render, "the step of a slice is 0");
    }
    bool has_start = slice_bound(render, node->a, &start);
    bool has_stop = slice_bound(render, node->b, &stop);
    if (step > 0) {
        start = has_start ? clamp(start, n, 0, n) : 0;
        stop = has_stop ? clamp(stop, n, 0, n) : n;
    } else {
        start = has_start ? clamp(start, n, -1, n - 1) : n - 1;
        stop = has_stop ? clamp(stop, n, -1, n - 1) : -1;
    }
    if (render->status != DPE_OK) {
        return dpe_template_nothing();
    }
    if (text && step == 1) {
        size_t from = dpe_template_offset(render, of.text, (size_t)start);
        size_t to = stop > start ? dpe_template_offset(render, of.text, (size_t)stop) : from;
        return dpe_template_string((struct dpe_span){of.text.s + from, to - from});
    }
    struct items all = dpe_template_items(render, of);
    struct value kept = dpe_template_list(render, text ? KIND_LIST : of.kind, all.n);
    struct builder built = {0};
    for (int64_t i = start; render->status == DPE_OK && (step > 0 ? i < stop : i > stop);
         i += step) {
        if (text) {
            dpe_template_put_span(render, &built, all.at[i].text);
        } else {
            dpe_template_add(render, kept, all.at[i]);
        }
    }
    return render->status != DPE_OK ? dpe_template_nothing()
           : text                   ? dpe_template_built(&built)
                                    : kept;
}
