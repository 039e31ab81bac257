/* Members, items and slices of values; what "loop" is within {% for %}. */
#include "eval/template/template_parts.h"

#include <string.h>

#define FAR (INT64_C(1) << 40) /* of a bound: beyond any text */

static struct value loop_member(struct render *render, const struct loop *loop,
                                struct dpe_span name)
{
    int64_t index = (int64_t)loop->index;
    int64_t n = (int64_t)loop->over.n;
    const struct {
        const char *name;
        struct value value;
    } members[] = {
        {"index", dpe_template_int(index + 1)},
        {"index0", dpe_template_int(index)},
        {"revindex", dpe_template_int(n - index)},
        {"revindex0", dpe_template_int(n - index - 1)},
        {"length", dpe_template_int(n)},
        {"depth", dpe_template_int(loop->depth)},
        {"depth0", dpe_template_int(loop->depth - 1)},
        {"first", dpe_template_bool(index == 0)},
        {"last", dpe_template_bool(index == n - 1)},
        {"previtem", index > 0 ? loop->over.at[index - 1] : dpe_template_undefined("previtem")},
        {"nextitem", index + 1 < n ? loop->over.at[index + 1] : dpe_template_undefined("nextitem")},
    };
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        if (dpe_span_equal(name, dpe_span_of(members[i].name))) {
            return members[i].value;
        }
    }
    return dpe_template_fail(render, "loop.%.*s is not supported", SHOWN(name));
}

static struct value do_cycle(struct render *render, struct args *args)
{
    return args->n > 0 ? args->at[args->of.loop->index % args->n]
                       : dpe_template_fail(render, "loop.cycle needs an argument");
}

const struct known dpe_template_loop_methods[] = {
    {"cycle", NULL, do_cycle},
    {NULL},
};

struct value dpe_template_member(struct render *render, struct value of, struct dpe_span name)
{
    const struct value missing = {.kind = KIND_UNDEFINED, .text = name};
    if (of.kind == KIND_UNDEFINED) {
        dpe_template_fail(render, "'%.*s' is not defined, so that it has no '%.*s'", SHOWN(of.text),
                          SHOWN(name));
    }
    const struct known *method = dpe_template_find_method(of.kind, name);
    if (method != NULL) {
        struct bound *bound = dpe_template_get(render, sizeof *bound);
        *bound = (struct bound){of, method};
        return (struct value){.kind = KIND_METHOD, .bound = bound};
    }
    if (of.kind == KIND_LOOP) {
        return loop_member(render, of.loop, name);
    }
    if (of.kind == KIND_DICT || of.kind == KIND_NAMESPACE) {
        const struct value *value =
            dpe_template_dict_get(render, of.pairs, dpe_template_string(name));
        return value != NULL ? *value : missing;
    }
    if (of.kind == KIND_MACRO || of.kind == KIND_JOINER) {
        dpe_template_fail(render, "the member '%.*s' of %s is not supported", SHOWN(name),
                          dpe_template_kind_name(of));
    }
    return missing;
}

/* Items, or characters. */
static int64_t length(struct render *render, struct value of)
{
    return (int64_t)(of.kind == KIND_STRING ? dpe_template_characters(render, of.text)
                                            : of.items->n);
}

/* Characters from `start` to before `stop`. */
static struct value part(struct render *render, struct dpe_span text, int64_t start, int64_t stop)
{
    size_t to = dpe_template_offset(render, text, (size_t)stop);
    size_t from = dpe_template_offset(render, text, (size_t)start);
    return dpe_template_string((struct dpe_span){text.s + from, to - from});
}

/* A part of a path: an integer where it is digits, or a string. */
static struct value key_of_part(struct render *render, struct dpe_span name)
{
    size_t digits = 0;
    dpe_template_step(render, 1 + name.n / 16);
    while (digits < name.n && name.s[digits] >= '0' && name.s[digits] <= '9') {
        digits++;
    }
    return digits > 0 && digits == name.n ? dpe_template_digits(render, name.s, name.n)
                                          : dpe_template_string(name);
}

struct value dpe_template_attribute(struct render *render, struct value of, struct value path)
{
    if (path.kind == KIND_INT) {
        return dpe_template_item(render, of, path);
    }
    if (path.kind == KIND_NONE) {
        return of;
    }
    if (path.kind != KIND_STRING) {
        dpe_template_fail(render, "expected the name of an attribute");
    }
    struct dpe_span rest = path.text;
    while (rest.n > 0) {
        const char *dot = memchr(rest.s, '.', rest.n);
        struct dpe_span name = {rest.s, dot != NULL ? (size_t)(dot - rest.s) : rest.n};
        of = dpe_template_item(render, of, key_of_part(render, name));
        size_t used = name.n + (dot != NULL);
        rest.s += used;
        rest.n -= used;
    }
    return of;
}

struct value dpe_template_item(struct render *render, struct value of, struct value key)
{
    const struct value missing = dpe_template_undefined("an item that is not there");
    bool text = of.kind == KIND_STRING;
    if (of.kind == KIND_DICT) {
        const struct value *value = dpe_template_dict_get(render, of.pairs, key);
        if (value != NULL) {
            return *value;
        }
    }
    if ((text || of.kind == KIND_LIST || of.kind == KIND_TUPLE) &&
        (key.kind == KIND_INT || key.kind == KIND_BOOL)) {
        int64_t n = length(render, of);
        int64_t index = key.integer + (key.integer < 0 ? n : 0);
        if (index < 0 || index >= n) {
            return missing;
        }
        return text ? part(render, of.text, index, index + 1) : of.items->at[index];
    }
    if (key.kind == KIND_STRING) {
        return dpe_template_member(render, of, key.text);
    }
    if (of.kind == KIND_UNDEFINED) {
        dpe_template_fail(render, "'%.*s' is not defined, so that it has no items", SHOWN(of.text));
    }
    return missing;
}

/* Where a slice's bound lies: from the end when it is negative, within low … high. */
static int64_t clamp(int64_t at, int64_t n, int64_t low, int64_t high)
{
    return dpe_most(low, dpe_least(high, at + (at < 0 ? n : 0)));
}

/* A bound, or `fallback` for none. */
static int64_t bound(struct render *render, struct value value, int64_t fallback)
{
    value = dpe_template_whole(value);
    if (value.kind == KIND_NONE) {
        return fallback;
    }
    if (value.kind == KIND_DIGITS) {
        value = dpe_template_int(value.text.s[0] == '-' ? INT64_MIN : INT64_MAX);
    }
    if (value.kind != KIND_INT) {
        dpe_template_fail(render, "expected an integer in a slice, found %s",
                          dpe_template_kind_name(value));
    }
    return dpe_most(-FAR, dpe_least(FAR, value.integer));
}

struct value dpe_template_slice(struct render *render, struct value of,
                                const struct value bounds[3])
{
    bool text = of.kind == KIND_STRING;
    if (of.kind == KIND_UNDEFINED) {
        dpe_template_fail(render, "'%.*s' is not defined, so that it has no items", SHOWN(of.text));
    }
    if (!text && of.kind != KIND_LIST && of.kind != KIND_TUPLE) {
        dpe_template_fail(render, "%s has no slices", dpe_template_kind_name(of));
    }
    int64_t n = length(render, of);
    int64_t step = bound(render, bounds[2], 1);
    if (step == 0) {
        dpe_template_fail(render, "the step of a slice is 0");
    }
    /* Backwards from the last item to before the first. */
    int64_t low = step > 0 ? 0 : -1;
    int64_t high = step > 0 ? n : n - 1;
    int64_t start = clamp(bound(render, bounds[0], step > 0 ? 0 : FAR), n, low, high);
    int64_t stop = clamp(bound(render, bounds[1], step > 0 ? FAR : -FAR), n, low, high);
    if (text && step == 1) {
        return part(render, of.text, start, dpe_most(start, stop));
    }
    struct items all = dpe_template_items(render, of);
    struct value kept = dpe_template_list(render, text ? KIND_LIST : of.kind, all.n);
    struct builder built = {0};
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
        if (text) {
            dpe_template_put_span(render, &built, all.at[i].text);
        } else {
            dpe_template_add(render, kept, all.at[i]);
        }
    }
    return text ? dpe_template_built(&built) : kept;
}
