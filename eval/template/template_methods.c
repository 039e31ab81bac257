/* Methods of strings and mappings, as Python has them. */
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
    dpe_template_step(render, text.n / 64);
    while (left && text.n > 0) {
        size_t n = 0;
        dpe_py_next(text.s, text.s + text.n, &n);
        if (!stripped((struct dpe_span){text.s, n}, characters)) {
            break;
        }
        text.s += n;
        text.n -= n;
    }
    while (right && text.n > 0) {
        const char *last = dpe_py_before(text.s, text.s + text.n);
        size_t n = (size_t)(text.s + text.n - last);
        if (!stripped((struct dpe_span){last, n}, characters)) {
            break;
        }
        text.n -= n;
    }
    return dpe_template_string(text);
}

struct value dpe_template_replace(struct render *render, struct dpe_span text, struct dpe_span from,
                                  struct dpe_span to, int64_t most)
{
    struct builder built = {0};
    if (from.n == 0) {
        return dpe_template_fail(render, "replacing an empty text is not supported");
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

struct value dpe_template_capitalize(struct render *render, struct dpe_span text)
{
    size_t n = 0;
    if (text.n == 0) {
        return dpe_template_string(text);
    }
    dpe_py_next(text.s, text.s + text.n, &n);
    struct value first = dpe_template_case(render, (struct dpe_span){text.s, n}, true);
    struct value rest = dpe_template_case(render, (struct dpe_span){text.s + n, text.n - n}, false);
    return dpe_template_binary(render, OP_ADD, first, rest);
}

/* -------------------------------------------------------------------------------------- strings */

static struct value strip_sides(struct render *render, struct value self, const struct args *args,
                                bool left, bool right)
{
    const struct value *given = dpe_template_arg(args, 0, "chars");
    if (given == NULL || given->kind == KIND_NONE) {
        return dpe_template_strip(render, self.text, NULL, left, right);
    }
    struct dpe_span set = dpe_template_arg_text(render, args, 0, "chars", NULL);
    return dpe_template_strip(render, self.text, &set, left, right);
}

static struct value do_strip(struct render *render, struct value self, const struct args *args)
{
    return strip_sides(render, self, args, true, true);
}

static struct value do_lstrip(struct render *render, struct value self, const struct args *args)
{
    return strip_sides(render, self, args, true, false);
}

static struct value do_rstrip(struct render *render, struct value self, const struct args *args)
{
    return strip_sides(render, self, args, false, true);
}

static bool ends(struct dpe_span text, struct dpe_span with)
{
    return text.n >= with.n && memcmp(text.s + text.n - with.n, with.s, with.n) == 0;
}

/* With one text, or with any of a tuple. */
static struct value affix(struct render *render, struct value self, const struct args *args,
                          bool (*has)(struct dpe_span text, struct dpe_span part))
{
    struct value part = args->at[0];
    struct items parts = {&part, 1};
    bool found = false;
    if (part.kind == KIND_TUPLE) {
        parts = *part.items;
    }
    for (size_t i = 0; i < parts.n && !found; i++) {
        if (parts.at[i].kind != KIND_STRING) {
            return dpe_template_fail(render, "expected a string to look for, found %s",
                                     dpe_template_kind_name(parts.at[i]));
        }
        found = has(self.text, parts.at[i].text);
    }
    return dpe_template_bool(found);
}

static struct value do_startswith(struct render *render, struct value self, const struct args *args)
{
    return affix(render, self, args, dpe_span_starts);
}

static struct value do_endswith(struct render *render, struct value self, const struct args *args)
{
    return affix(render, self, args, ends);
}

static void push(struct render *render, struct value list, struct dpe_span text)
{
    if (dpe_template_step(render, 1)) {
        list.items->at[list.items->n++] = dpe_template_string(text);
    }
}

/* split() at white space, at most `most` times (negative: any). */
static struct value split_words(struct render *render, struct dpe_span text, int64_t most)
{
    struct value list = dpe_template_list(render, KIND_LIST, text.n / 2 + 2);
    struct dpe_span rest = text;
    struct dpe_span word;
    while (render->status == DPE_OK) {
        rest = dpe_template_strip(render, rest, NULL, true, false).text;
        if (most >= 0 && (int64_t)list.items->n >= most) {
            if (rest.n > 0) {
                push(render, list, rest);
            }
            break;
        }
        if (!dpe_py_split(&rest, &word)) {
            break;
        }
        push(render, list, word);
    }
    return list;
}

static size_t last_of(struct dpe_span text, struct dpe_span part)
{
    for (size_t i = text.n + 1 - (part.n < text.n + 1 ? part.n : text.n + 1); i-- > 0;) {
        if (memcmp(text.s + i, part.s, part.n) == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

static size_t count_parts(struct dpe_span text, struct dpe_span part)
{
    size_t n = 0;
    for (size_t at = 0; (at = dpe_span_find(text, part)) != SIZE_MAX; n++) {
        text.s += at + part.n;
        text.n -= at + part.n;
    }
    return n;
}

static struct value split(struct render *render, struct value self, const struct args *args,
                          bool right)
{
    const struct value *given = dpe_template_arg(args, 0, "sep");
    int64_t most = dpe_template_arg_int(render, args, 1, "maxsplit", -1);
    struct dpe_span rest = self.text;
    if (given == NULL || given->kind == KIND_NONE) {
        return right && most >= 0
                   ? dpe_template_fail(render, "rsplit() at white space is not supported")
                   : split_words(render, rest, most);
    }
    struct dpe_span part = dpe_template_arg_text(render, args, 0, "sep", NULL);
    if (part.n == 0) {
        return dpe_template_fail(render, "split(): the separator is empty");
    }
    dpe_template_step(render, rest.n / 16);
    size_t cuts = count_parts(rest, part);
    cuts = most >= 0 && (uint64_t)most < cuts ? (size_t)most : cuts;
    struct value list = dpe_template_list(render, KIND_LIST, cuts + 1);
    if (render->status != DPE_OK) {
        return list;
    }
    list.items->n = cuts + 1;
    for (size_t i = 0; i < cuts && dpe_template_step(render, 1); i++) {
        size_t at = right ? last_of(rest, part) : dpe_span_find(rest, part);
        struct dpe_span piece = {rest.s, at};
        struct dpe_span after = {rest.s + at + part.n, rest.n - at - part.n};
        list.items->at[right ? cuts - i : i] = dpe_template_string(right ? after : piece);
        rest = right ? piece : after;
    }
    list.items->at[right ? 0 : cuts] = dpe_template_string(rest);
    return list;
}

static struct value do_split(struct render *render, struct value self, const struct args *args)
{
    return split(render, self, args, false);
}

static struct value do_rsplit(struct render *render, struct value self, const struct args *args)
{
    return split(render, self, args, true);
}

/* At \n, \r and \r\n; other characters that Python also splits at are rare. */
static struct value do_splitlines(struct render *render, struct value self, const struct args *args)
{
    bool ends_kept = dpe_template_arg_bool(args, 0, "keepends", false);
    struct dpe_span text = self.text;
    size_t lines = 1;
    for (size_t i = 0; i < text.n; i++) {
        lines += text.s[i] == '\n' || text.s[i] == '\r';
    }
    struct value list = dpe_template_list(render, KIND_LIST, lines);
    size_t start = 0;
    for (size_t i = 0; i < text.n && render->status == DPE_OK; i++) {
        size_t n = text.s[i] == '\r' && i + 1 < text.n && text.s[i + 1] == '\n' ? 2 : 1;
        if (text.s[i] == '\n' || text.s[i] == '\r') {
            size_t end = ends_kept ? i + n : i;
            push(render, list, (struct dpe_span){text.s + start, end - start});
            start = i + n;
            i += n - 1;
        }
    }
    if (start < text.n && render->status == DPE_OK) {
        push(render, list, (struct dpe_span){text.s + start, text.n - start});
    }
    return list;
}

static struct value do_upper(struct render *render, struct value self, const struct args *args)
{
    (void)args;
    return dpe_template_case(render, self.text, true);
}

static struct value do_lower(struct render *render, struct value self, const struct args *args)
{
    (void)args;
    return dpe_template_case(render, self.text, false);
}

static struct value do_capitalize(struct render *render, struct value self, const struct args *args)
{
    (void)args;
    return dpe_template_capitalize(render, self.text);
}

static struct value do_replace(struct render *render, struct value self, const struct args *args)
{
    return dpe_template_replace(render, self.text,
                                dpe_template_arg_text(render, args, 0, "old", NULL),
                                dpe_template_arg_text(render, args, 1, "new", NULL),
                                dpe_template_arg_int(render, args, 2, "count", -1));
}

static struct value do_join(struct render *render, struct value self, const struct args *args)
{
    struct items items = dpe_template_items(render, args->at[0]);
    struct builder built = {0};
    for (size_t i = 0; i < items.n && render->status == DPE_OK; i++) {
        if (items.at[i].kind != KIND_STRING) {
            return dpe_template_fail(render, "join(): expected strings, found %s",
                                     dpe_template_kind_name(items.at[i]));
        }
        if (i > 0) {
            dpe_template_put_span(render, &built, self.text);
        }
        dpe_template_put_span(render, &built, items.at[i].text);
    }
    return dpe_template_built(&built);
}

static struct value position(struct dpe_span text, size_t at)
{
    return dpe_template_int(
        at == SIZE_MAX ? -1 : (int64_t)dpe_template_characters((struct dpe_span){text.s, at}));
}

static struct value do_find(struct render *render, struct value self, const struct args *args)
{
    struct dpe_span part = dpe_template_arg_text(render, args, 0, "sub", NULL);
    dpe_template_step(render, self.text.n / 16);
    return position(self.text, dpe_span_find(self.text, part));
}

static struct value do_rfind(struct render *render, struct value self, const struct args *args)
{
    struct dpe_span part = dpe_template_arg_text(render, args, 0, "sub", NULL);
    dpe_template_step(render, self.text.n / 16 + (self.text.n / 64 + 1) * (part.n / 64));
    return position(self.text, last_of(self.text, part));
}

static struct value do_count(struct render *render, struct value self, const struct args *args)
{
    struct dpe_span part = dpe_template_arg_text(render, args, 0, "sub", NULL);
    dpe_template_step(render, self.text.n / 16);
    return dpe_template_int(part.n > 0 ? (int64_t)count_parts(self.text, part)
                                       : (int64_t)dpe_template_characters(self.text) + 1);
}

static struct value do_removeprefix(struct render *render, struct value self,
                                    const struct args *args)
{
    struct dpe_span part = dpe_template_arg_text(render, args, 0, "prefix", NULL);
    size_t n = dpe_span_starts(self.text, part) ? part.n : 0;
    return dpe_template_string((struct dpe_span){self.text.s + n, self.text.n - n});
}

static struct value do_removesuffix(struct render *render, struct value self,
                                    const struct args *args)
{
    struct dpe_span part = dpe_template_arg_text(render, args, 0, "suffix", NULL);
    size_t n = ends(self.text, part) ? part.n : 0;
    return dpe_template_string((struct dpe_span){self.text.s, self.text.n - n});
}

static struct value do_isspace(struct render *render, struct value self, const struct args *args)
{
    (void)args;
    return dpe_template_bool(self.text.n > 0 &&
                             dpe_template_strip(render, self.text, NULL, true, true).text.n == 0);
}

static struct value do_isdigit(struct render *render, struct value self, const struct args *args)
{
    bool all = self.text.n > 0;
    (void)render;
    (void)args;
    for (size_t i = 0, n = 0; i < self.text.n && all; i += n) {
        all = dpe_py_digit(dpe_py_next(self.text.s + i, self.text.s + self.text.n, &n)) >= 0;
    }
    return dpe_template_bool(all);
}

/* ------------------------------------------------------------------------------------- mappings */

static struct value do_get(struct render *render, struct value self, const struct args *args)
{
    const struct value *value = dpe_template_dict_get(render, self.pairs, args->at[0]);
    const struct value *fallback = dpe_template_arg(args, 1, NULL);
    return value != NULL ? *value : fallback != NULL ? *fallback : dpe_template_none();
}

static struct value do_keys(struct render *render, struct value self, const struct args *args)
{
    (void)args;
    struct items keys = dpe_template_items(render, self);
    struct value list = dpe_template_list(render, KIND_LIST, 0);
    if (render->status == DPE_OK) {
        *list.items = keys;
    }
    return list;
}

static struct value do_values(struct render *render, struct value self, const struct args *args)
{
    (void)args;
    struct value list = dpe_template_list(render, KIND_LIST, self.pairs->n);
    for (size_t i = 0; i < self.pairs->n && list.kind == KIND_LIST; i++) {
        list.items->at[list.items->n++] = self.pairs->at[i].value;
    }
    return list;
}

static struct value do_items(struct render *render, struct value self, const struct args *args)
{
    (void)args;
    struct value list = dpe_template_list(render, KIND_LIST, self.pairs->n);
    for (size_t i = 0; i < self.pairs->n && render->status == DPE_OK; i++) {
        struct value pair = dpe_template_list(render, KIND_TUPLE, 2);
        if (render->status == DPE_OK) {
            pair.items->at[0] = self.pairs->at[i].key;
            pair.items->at[1] = self.pairs->at[i].value;
            pair.items->n = 2;
            list.items->at[list.items->n++] = pair;
        }
    }
    return list;
}

static const struct method methods[] = {
    {"strip", KIND_STRING, 0, 1, do_strip},
    {"lstrip", KIND_STRING, 0, 1, do_lstrip},
    {"rstrip", KIND_STRING, 0, 1, do_rstrip},
    {"startswith", KIND_STRING, 1, 1, do_startswith},
    {"endswith", KIND_STRING, 1, 1, do_endswith},
    {"split", KIND_STRING, 0, 2, do_split},
    {"rsplit", KIND_STRING, 0, 2, do_rsplit},
    {"splitlines", KIND_STRING, 0, 1, do_splitlines},
    {"upper", KIND_STRING, 0, 0, do_upper},
    {"lower", KIND_STRING, 0, 0, do_lower},
    {"capitalize", KIND_STRING, 0, 0, do_capitalize},
    {"replace", KIND_STRING, 2, 3, do_replace},
    {"join", KIND_STRING, 1, 1, do_join},
    {"find", KIND_STRING, 1, 1, do_find},
    {"rfind", KIND_STRING, 1, 1, do_rfind},
    {"count", KIND_STRING, 1, 1, do_count},
    {"removeprefix", KIND_STRING, 1, 1, do_removeprefix},
    {"removesuffix", KIND_STRING, 1, 1, do_removesuffix},
    {"isspace", KIND_STRING, 0, 0, do_isspace},
    {"isdigit", KIND_STRING, 0, 0, do_isdigit},
    {"get", KIND_DICT, 1, 2, do_get},
    {"keys", KIND_DICT, 0, 0, do_keys},
    {"values", KIND_DICT, 0, 0, do_values},
    {"items", KIND_DICT, 0, 0, do_items},
};

const struct method *dpe_template_find_method(enum kind kind, struct dpe_span name)
{
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (methods[i].of == kind && dpe_span_equal(name, dpe_span_of(methods[i].name))) {
            return &methods[i];
        }
    }
    return NULL;
}

bool dpe_template_knows_method(struct dpe_span name)
{
    return dpe_span_equal(name, dpe_span_of("cycle")) ||
           dpe_template_find_method(KIND_STRING, name) != NULL ||
           dpe_template_find_method(KIND_DICT, name) != NULL;
}
