/* Texts stripped, replaced, padded and in another case, as Python does it. */
#include "eval/template/template_parts.h"

#include <string.h>

static bool one_of(struct dpe_span character, const struct dpe_span *set)
{
    size_t n = 0;
    for (size_t i = 0; i < set->n; i += n) {
        dpe_py_next(set->s + i, set->s + set->n, &n);
        if (n == character.n && memcmp(set->s + i, character.s, n) == 0) {
            return true;
        }
    }
    return false;
}

static bool stripped(struct dpe_span character, const struct dpe_span *set)
{
    return set != NULL ? one_of(character, set)
                       : dpe_py_space(character.s, character.s + character.n) > 0;
}

struct value dpe_template_strip(struct render *render, struct dpe_span text,
                                const struct dpe_span *characters, bool left, bool right)
{
    size_t cost = characters != NULL ? characters->n / 16 + 1 : 0;
    dpe_template_step(render, text.n / 64);
    while (left && text.n > 0 && dpe_template_step(render, cost)) {
        size_t n = 0;
        dpe_py_next(text.s, text.s + text.n, &n);
        if (!stripped((struct dpe_span){text.s, n}, characters)) {
            break;
        }
        text.s += n;
        text.n -= n;
    }
    while (right && text.n > 0 && dpe_template_step(render, cost)) {
        const char *last = dpe_py_before(text.s, text.s + text.n);
        size_t n = (size_t)(text.s + text.n - last);
        if (!stripped((struct dpe_span){last, n}, characters)) {
            break;
        }
        text.n -= n;
    }
    return dpe_template_string(text);
}

/* text.replace("", to): before each character and at the end. */
static struct value spread(struct render *render, struct dpe_span text, struct dpe_span to,
                           int64_t most)
{
    struct builder built = {0};
    size_t n = 0;
    for (int64_t i = 0; (most < 0 || i < most) && dpe_template_step(render, 1); i++) {
        dpe_template_put_span(render, &built, to);
        if (text.n == 0) {
            break;
        }
        dpe_py_next(text.s, text.s + text.n, &n);
        dpe_template_put(render, &built, text.s, n);
        text.s += n;
        text.n -= n;
    }
    dpe_template_put_span(render, &built, text);
    return dpe_template_built(&built);
}

struct value dpe_template_replace(struct render *render, struct dpe_span text, struct dpe_span from,
                                  struct dpe_span to, int64_t most)
{
    struct builder built = {0};
    dpe_template_step(render, text.n / 16);
    if (from.n == 0) {
        return spread(render, text, to, most);
    }
    for (int64_t i = 0; (most < 0 || i < most) && dpe_template_step(render, 1); i++) {
        size_t at = dpe_span_find(text, from);
        if (at == SIZE_MAX) {
            break;
        }
        dpe_template_put(render, &built, text.s, at);
        dpe_template_put_span(render, &built, to);
        text.s += at + from.n;
        text.n -= at + from.n;
    }
    dpe_template_put_span(render, &built, text);
    return dpe_template_built(&built);
}

/* A text made outside, kept within the rendering's memory. */
static struct value keep(struct render *render, dpe_status status, struct dpe_text *text)
{
    struct builder built = {0};
    if (status != DPE_OK) {
        dpe_text_free(text);
        return dpe_template_fail(render, "out of memory");
    }
    dpe_template_put(render, &built, text->bytes, text->n);
    dpe_text_free(text);
    return dpe_template_built(&built);
}

struct value dpe_template_case(struct render *render, struct dpe_span text, bool upper)
{
    struct dpe_text out = {0};
    dpe_template_step(render, text.n / 16);
    return keep(render, upper ? dpe_py_upper(text, &out) : dpe_py_lower(text, &out), &out);
}

struct value dpe_template_title(struct render *render, struct dpe_span text, bool once)
{
    struct dpe_text out = {0};
    dpe_template_step(render, text.n / 16);
    return keep(render, dpe_py_title(text, once, &out), &out);
}

struct value dpe_template_pad(struct render *render, struct dpe_span text, int64_t width,
                              struct dpe_span fill, char side)
{
    int64_t n = (int64_t)dpe_template_characters(render, text);
    int64_t lacking = width > n ? width - n : 0;
    /* str.center gives the odd one to the left where the width is odd. */
    int64_t left = side == '<'   ? 0
                   : side == '>' ? lacking
                   : side == '^' ? lacking / 2
                                 : lacking / 2 + (lacking & width & 1);
    struct builder built = {0};
    for (int64_t i = 0; i < left && dpe_template_step(render, 1); i++) {
        dpe_template_put_span(render, &built, fill);
    }
    dpe_template_put_span(render, &built, text);
    for (int64_t i = left; i < lacking && dpe_template_step(render, 1); i++) {
        dpe_template_put_span(render, &built, fill);
    }
    return dpe_template_built(&built);
}

struct value dpe_template_swapcase(struct render *render, struct dpe_span text)
{
    struct dpe_text out = {0};
    dpe_template_step(render, text.n / 16);
    return keep(render, dpe_py_swapcase(text, &out), &out);
}
