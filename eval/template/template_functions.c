/* Functions that every template has. */
#include "eval/template/template_parts.h"

#include <stdio.h>
#include <string.h>

enum { MAX_RANGE = 100000 };

static struct value nothing(void)
{
    return dpe_template_undefined(dpe_span_of(""));
}

static struct value call_range(struct render *render, const struct args *args)
{
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
    for (uint64_t i = 0; i < n && list.kind == KIND_LIST; i++) {
        list.items->at[list.items->n++] = dpe_template_int(numbers[0] + (int64_t)i * step);
    }
    dpe_template_step(render, n);
    return list;
}

/* Pairs of a mapping, then of the named arguments. */
static struct value make_pairs(struct render *render, const struct args *args, enum kind kind,
                               const char *name)
{
    struct value made = dpe_template_dict(render, kind);
    bool pairs = args->n == 1 && args->at[0].kind != KIND_DICT;
    if (pairs && args->at[0].kind != KIND_NAMESPACE) {
        struct items items = dpe_template_items(render, args->at[0]);
        for (size_t i = 0; i < items.n && render->status == DPE_OK; i++) {
            struct items two = dpe_template_items(render, items.at[i]);
            if (two.n == 2 && two.at[0].kind <= KIND_STRING) {
                dpe_template_dict_set(render, made.pairs, two.at[0], two.at[1]);
                continue;
            }
            return dpe_template_fail(render, "%s() takes one mapping at most, or pairs", name);
        }
    }
    if (args->n > 1 || (pairs && args->at[0].kind == KIND_NAMESPACE)) {
        return dpe_template_fail(render, "%s() takes one mapping at most, and named arguments",
                                 name);
    }
    const struct pairs *given = args->n == 1 && !pairs ? args->at[0].pairs : NULL;
    for (size_t i = 0; given != NULL && i < given->n && render->status == DPE_OK; i++) {
        dpe_template_dict_set(render, made.pairs, given->at[i].key, given->at[i].value);
    }
    for (size_t i = 0; i < args->n_named && render->status == DPE_OK; i++) {
        dpe_template_dict_set(render, made.pairs, args->named[i].key, args->named[i].value);
    }
    for (size_t i = 0; kind == KIND_NAMESPACE && render->status == DPE_OK && i < made.pairs->n;
         i++) {
        struct value key = made.pairs->at[i].key;
        if (key.kind == KIND_STRING && key.text.n > 0 && key.text.s[0] == '_') {
            return dpe_template_fail(render,
                                     "a namespace has no member whose name begins with '_'");
        }
    }
    return made;
}

static struct value call_namespace(struct render *render, const struct args *args)
{
    return make_pairs(render, args, KIND_NAMESPACE, "namespace");
}

static struct value call_dict(struct render *render, const struct args *args)
{
    return make_pairs(render, args, KIND_DICT, "dict");
}

static struct value call_raise(struct render *render, const struct args *args)
{
    struct dpe_span text = dpe_template_str(render, args->at[0]);
    char plain[512];
    char shown[600];
    snprintf(plain, sizeof plain, "%.*s", text.n < 500 ? (int)text.n : 500, text.s);
    return dpe_template_fail(render, "the template refuses the messages: %s",
                             dpe_printable(plain, shown, sizeof shown));
}

static struct value call_now(struct render *render, const struct args *args)
{
    struct dpe_span format = dpe_template_arg_text(render, args, 0, "format", NULL);
    char pattern[128];
    char text[512];
    if (format.n >= sizeof pattern || memchr(format.s, '\0', format.n) != NULL) {
        return dpe_template_fail(render, "strftime_now(): the format is too long");
    }
    memcpy(pattern, format.s, format.n);
    pattern[format.n] = '\0';
    /* -Wformat-nonliteral: the format is the template's; strftime writes no more than `text`. */
    size_t n = pattern[0] != '\0' ? strftime(text, sizeof text, pattern, render->now) : 0;
    char *kept = dpe_template_get(render, n + 1);
    if (kept == NULL) {
        return nothing();
    }
    memcpy(kept, text, n);
    return dpe_template_string((struct dpe_span){kept, n});
}

static const struct function functions[] = {
    {"range", "/start /stop= /step=", call_range},
    {"namespace", NULL, call_namespace},
    {"dict", NULL, call_dict},
    {"raise_exception", "message", call_raise},
    {"strftime_now", "format", call_now},
};

const struct function *dpe_template_find_function(struct dpe_span name)
{
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (dpe_span_equal(name, dpe_span_of(functions[i].name))) {
            return &functions[i];
        }
    }
    return NULL;
}
