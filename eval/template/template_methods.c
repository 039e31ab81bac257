/* Methods of strings and mappings, as Python has them; tests: "x is NAME". */
#include "eval/template/template_parts.h"

#include <string.h>

/* -------------------------------------------------------------------------------------- strings */

/* At which side, and whether what is looked for has to be there. */
enum side { START = 1, END = 2, MUST = 4 };

static bool ends(struct dpe_span text, struct dpe_span with)
{
    return text.n >= with.n && memcmp(text.s + text.n - with.n, with.s, with.n) == 0;
}

/* With one text, or with any of a tuple. */
static struct value do_affix(struct render *render, struct args *args)
{
    struct value part = args->at[0];
    struct items parts = part.kind == KIND_TUPLE ? *part.items : (struct items){&part, 1};
    bool found = false;
    for (size_t i = 0; i < parts.n && !found; i++) {
        if (parts.at[i].kind != KIND_STRING) {
            dpe_template_fail(render, "expected a string to look for, found %s",
                              dpe_template_kind_name(parts.at[i]));
        }
        dpe_template_step(render, 1 + parts.at[i].text.n / 64);
        found = (args->how == END ? ends : dpe_span_starts)(args->of.text, parts.at[i].text);
    }
    return dpe_template_bool(found);
}

static void push(struct render *render, struct value list, struct dpe_span text)
{
    dpe_template_step(render, 1);
    dpe_template_add(render, list, dpe_template_string(text));
}

/* split() at white space, at most `most` times (negative: any). */
static struct value split_words(struct render *render, struct dpe_span text, int64_t most)
{
    struct value list = dpe_template_list(render, KIND_LIST, 0);
    struct dpe_span rest = text;
    struct dpe_span word;
    dpe_template_step(render, text.n / 64);
    while (most < 0 || (int64_t)list.items->n < most) {
        if (!dpe_py_split(&rest, &word)) {
            return list;
        }
        push(render, list, word);
    }
    const char *first = dpe_py_strip(rest).s;
    rest.n -= (size_t)(first - rest.s);
    if (rest.n > 0) {
        push(render, list, (struct dpe_span){first, rest.n});
    }
    return list;
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

/* Offset of the first or last `part` in `text`; SIZE_MAX: it is not there. */
static size_t find(struct render *render, bool last, struct dpe_span text, struct dpe_span part)
{
    if (!last) {
        return dpe_span_find(text, part);
    }
    size_t at = part.n <= text.n ? text.n - part.n + 1 : 0;
    for (; at > 0 && memcmp(text.s + at - 1, part.s, part.n) != 0; at--) {
        dpe_template_step(render, text.s[at - 1] == part.s[0] ? part.n / 64 : 0);
    }
    return at - 1;
}

static struct value do_split(struct render *render, struct args *args)
{
    bool right = args->how == END;
    int64_t most = args->at[1].integer;
    struct dpe_span text = args->of.text;
    if (dpe_template_arg(args, 0) == NULL && right && most >= 0) {
        dpe_template_fail(render, "rsplit(): a limit without a separator is not supported");
    }
    if (dpe_template_arg(args, 0) == NULL) {
        return split_words(render, text, most);
    }
    struct dpe_span part = args->at[0].text;
    if (part.n == 0) {
        dpe_template_fail(render, "split(): the separator is empty");
    }
    dpe_template_step(render, text.n / 16);
    size_t cuts = count_parts(text, part);
    cuts = most >= 0 && (uint64_t)most < cuts ? (size_t)most : cuts;
    struct value list = dpe_template_list(render, KIND_LIST, cuts + 1);
    list.items->n = cuts + 1;
    dpe_template_step(render, cuts);
    for (size_t i = 0; i < cuts; i++) {
        size_t n = find(render, right, text, part);
        struct dpe_span before = {text.s, n};
        struct dpe_span behind = {text.s + n + part.n, text.n - n - part.n};
        list.items->at[right ? cuts - i : i] = dpe_template_string(right ? behind : before);
        text = right ? before : behind;
    }
    list.items->at[right ? 0 : cuts] = dpe_template_string(text);
    return list;
}

struct value dpe_template_lines(struct render *render, struct dpe_span text, bool ends_kept)
{
    const char *end = text.s + text.n;
    dpe_template_step(render, text.n / 16);
    struct value list = dpe_template_list(render, KIND_LIST, 0);
    const char *start = text.s;
    size_t n = 0;
    for (const char *s = start; s<end; s += n> 0 ? n : 1) {
        n = dpe_py_line_end(s, end);
        if (n > 0) {
            push(render, list, (struct dpe_span){start, (size_t)(s - start) + (ends_kept ? n : 0)});
            start = s + n;
        }
    }
    if (start < end) {
        push(render, list, (struct dpe_span){start, (size_t)(end - start)});
    }
    return list;
}

static struct value do_splitlines(struct render *render, struct args *args)
{
    return dpe_template_lines(render, args->of.text, dpe_template_truth(args->at[0]));
}

static struct value do_join(struct render *render, struct args *args)
{
    struct items items = dpe_template_items(render, args->at[0]);
    struct builder built = {0};
    for (size_t i = 0; i < items.n; i++) {
        if (items.at[i].kind != KIND_STRING) {
            dpe_template_fail(render, "join(): expected strings, found %s",
                              dpe_template_kind_name(items.at[i]));
        }
        dpe_template_put(render, &built, args->of.text.s, i > 0 ? args->of.text.n : 0);
        dpe_template_put_span(render, &built, items.at[i].text);
    }
    return dpe_template_built(&built);
}

/* A bound of find(), within 0 … n characters; a start may lie after them. */
static int64_t bound(int64_t at, int64_t n)
{
    return dpe_most(at < 0 ? at + n : at, 0);
}

/* find(), rfind(), and index(), rindex(), which fail where those say −1. Bounds are characters. */
static struct value do_find(struct render *render, struct args *args)
{
    struct dpe_span text = args->of.text;
    struct dpe_span part = args->at[0].text;
    int64_t n = (int64_t)dpe_template_characters(render, text);
    int64_t start = bound(args->at[1].integer, n);
    int64_t stop = dpe_template_arg(args, 2) != NULL ? bound(args->at[2].integer, n) : n;
    size_t at = SIZE_MAX;
    size_t from = 0;
    dpe_template_step(render, (text.n + part.n) / 4);
    if (start <= dpe_least(stop, n)) {
        from = dpe_template_offset(render, text, (size_t)start);
        size_t to = dpe_template_offset(render, text, (size_t)dpe_least(stop, n));
        struct dpe_span within = {text.s + from, to - from};
        at = find(render, (args->how & END) != 0, within, part);
    }
    if (at == SIZE_MAX) {
        return (args->how & MUST) != 0 ? dpe_template_fail(render, "index(): the text is not there")
                                       : dpe_template_int(-1);
    }
    struct dpe_span before = {text.s, from + at};
    return dpe_template_int((int64_t)dpe_template_characters(render, before));
}

/* partition(), rpartition(): what is before, the separator, what is behind. */
static struct value do_partition(struct render *render, struct args *args)
{
    bool last = args->how == END;
    struct dpe_span text = args->of.text;
    struct dpe_span part = args->at[0].text;
    dpe_template_step(render, (text.n + part.n) / 4);
    if (part.n == 0) {
        dpe_template_fail(render, "partition(): the separator is empty");
    }
    size_t at = find(render, last, text, part);
    struct value pieces[3] = {dpe_template_text(""), dpe_template_text(""), dpe_template_text("")};
    if (at == SIZE_MAX) {
        pieces[last ? 2 : 0].text = text;
    } else {
        pieces[0].text = (struct dpe_span){text.s, at};
        pieces[1].text = part;
        pieces[2].text = (struct dpe_span){text.s + at + part.n, text.n - at - part.n};
    }
    return dpe_template_list_of(render, KIND_TUPLE, pieces, 3);
}

/* removeprefix(), removesuffix() */
static struct value do_remove(struct render *render, struct args *args)
{
    bool end = args->how == END;
    struct dpe_span text = args->of.text;
    struct dpe_span part = args->at[0].text;
    dpe_template_step(render, part.n / 64);
    size_t n = (end ? ends : dpe_span_starts)(text, part) ? part.n : 0;
    return dpe_template_string((struct dpe_span){text.s + (end ? 0 : n), text.n - n});
}

static struct value do_count(struct render *render, struct args *args)
{
    struct dpe_span text = args->of.text;
    struct dpe_span part = args->at[0].text;
    dpe_template_step(render, text.n / 16);
    return dpe_template_int(part.n > 0 ? (int64_t)count_parts(text, part)
                                       : (int64_t)dpe_template_characters(render, text) + 1);
}

/* ----------------------------------------------------------------------- classes of characters */

enum class { SPACE, DIGIT, ALPHA, ALNUM };

static bool is_of(enum class class, uint32_t point, struct dpe_span character)
{
    bool decimal = dpe_py_digit(point) >= 0;
    return class == SPACE   ? dpe_py_space(character.s, character.s + character.n) > 0
           : class == DIGIT ? decimal || dpe_unicode_has(&dpe_case_other_digits, point)
           : class == ALPHA ? dpe_unicode_has(&dpe_unicode_L, point)
                            : point != '_' && dpe_py_word(point);
}

/* Whether all characters are of the class, and there are some. */
static struct value do_is(struct render *render, struct args *args)
{
    struct dpe_span text = args->of.text;
    bool all = text.n > 0;
    dpe_template_step(render, text.n / 16);
    for (size_t i = 0, n = 0; i < text.n && all; i += n) {
        uint32_t point = dpe_py_next(text.s + i, text.s + text.n, &n);
        all = is_of((enum class)args->how, point, (struct dpe_span){text.s + i, n});
    }
    return dpe_template_bool(all);
}

/* ---------------------------------------------------------------------------------------- lists */

static struct value do_item_index(struct render *render, struct args *args)
{
    const struct items *items = args->of.items;
    for (size_t i = 0; i < items->n; i++) {
        if (dpe_template_equal(render, items->at[i], args->at[0])) {
            return dpe_template_int((int64_t)i);
        }
    }
    return dpe_template_fail(render, "index(): the value is not in the list");
}

static struct value do_item_count(struct render *render, struct args *args)
{
    int64_t n = 0;
    for (size_t i = 0; i < args->of.items->n; i++) {
        n += dpe_template_equal(render, args->of.items->at[i], args->at[0]);
    }
    return dpe_template_int(n);
}

/* ------------------------------------------------------------------------------------- mappings */

static struct value do_get(struct render *render, struct args *args)
{
    const struct value *value = dpe_template_dict_get(render, args->of.pairs, args->at[0]);
    const struct value *fallback = dpe_template_arg(args, 1);
    return value != NULL ? *value : fallback != NULL ? *fallback : dpe_template_none();
}

enum view { KEYS, VALUES, ITEMS };

static struct items view(struct render *render, const struct pairs *pairs, enum view view)
{
    struct value list = dpe_template_list(render, KIND_LIST, pairs->n);
    for (size_t i = 0; i < pairs->n; i++) {
        const struct value both[] = {pairs->at[i].key, pairs->at[i].value};
        dpe_template_add(render, list,
                         view == ITEMS ? dpe_template_list_of(render, KIND_TUPLE, both, 2)
                                       : both[view]);
    }
    return *list.items;
}

static struct value do_view(struct render *render, struct args *args)
{
    static const char *const names[] = {"dict_keys", "dict_values", "dict_items"};
    return dpe_template_iterator(render, view(render, args->of.pairs, (enum view)args->how),
                                 names[args->how]);
}

struct items dpe_template_pairs(struct render *render, struct value of)
{
    if (of.kind != KIND_DICT) {
        dpe_template_fail(render, "items: expected a mapping, found %s",
                          dpe_template_kind_name(of));
    }
    return view(render, of.pairs, ITEMS);
}

/* Python's own parameters. */
const struct known dpe_template_string_methods[] = {
    {"strip", "/~$chars=", dpe_template_do_strip, STRIP_LEFT | STRIP_RIGHT},
    {"lstrip", "/~$chars=", dpe_template_do_strip, STRIP_LEFT},
    {"rstrip", "/~$chars=", dpe_template_do_strip, STRIP_RIGHT},
    {"startswith", "/prefix", do_affix, START},
    {"endswith", "/suffix", do_affix, END},
    {"split", "~$sep=,#maxsplit=-1", do_split, START},
    {"rsplit", "~$sep=,#maxsplit=-1", do_split, END},
    {"splitlines", "keepends=", do_splitlines},
    {"upper", "", dpe_template_do_case, DPE_PY_UPPER},
    {"lower", "", dpe_template_do_case, DPE_PY_LOWER},
    {"capitalize", "", dpe_template_do_case, DPE_PY_CAPITAL},
    {"title", "", dpe_template_do_case, DPE_PY_TITLE},
    {"replace", "/$old,/$new,/#count=-1", dpe_template_do_replace},
    {"join", "/iterable", do_join},
    {"format", NULL, dpe_template_format},
    {"find", "/$sub,/~#start=0,/~#end=", do_find, START},
    {"rfind", "/$sub,/~#start=0,/~#end=", do_find, END},
    {"index", "/$sub,/~#start=0,/~#end=", do_find, START | MUST},
    {"rindex", "/$sub,/~#start=0,/~#end=", do_find, END | MUST},
    {"count", "/$sub", do_count},
    {"partition", "/$sep", do_partition, START},
    {"rpartition", "/$sep", do_partition, END},
    {"removeprefix", "/$prefix", do_remove, START},
    {"removesuffix", "/$suffix", do_remove, END},
    {"isspace", "", do_is, SPACE},
    {"isdigit", "", do_is, DIGIT},
    {"isalpha", "", do_is, ALPHA},
    {"isalnum", "", do_is, ALNUM},
    {NULL},
};
/* Of lists and tuples. */
const struct known dpe_template_item_methods[] = {
    {"index", "/value", do_item_index},
    {"count", "/value", do_item_count},
    {NULL},
};
const struct known dpe_template_dict_methods[] = {
    {"get", "/key,/default=", do_get},
    {"keys", "", do_view, KEYS},
    {"values", "", do_view, VALUES},
    {"items", "", do_view, ITEMS},
    {NULL},
};

/* ---------------------------------------------------------------------------------------- tests */

/* Kinds of values, as bits of `how`. */
#define IS(kind) (1U << (kind))
enum {
    IS_NUMBER = IS(KIND_BOOL) | IS(KIND_INT) | IS(KIND_DIGITS) | IS(KIND_FLOAT),
    /* What has a length and items: Jinja counts mappings, strings and undefined values. */
    IS_SEQUENCE =
        IS(KIND_STRING) | IS(KIND_LIST) | IS(KIND_TUPLE) | IS(KIND_DICT) | IS(KIND_UNDEFINED),
    IS_ITERABLE = IS_SEQUENCE | IS(KIND_LOOP) | IS(KIND_ITERATOR),
    IS_CALLABLE = IS(KIND_JOINER) | IS(KIND_MACRO) | IS(KIND_FUNCTION) | IS(KIND_METHOD),
};

static struct value is_kind(struct render *render, struct args *args)
{
    (void)render;
    return dpe_template_bool((args->how >> args->of.kind & 1) != 0);
}

static struct value is_truth(struct render *render, struct args *args)
{
    (void)render;
    return dpe_template_bool(args->of.kind == KIND_BOOL && args->of.integer == (int64_t)args->how);
}

/* Whether a division by the argument, or by 2, leaves `how`. */
static struct value is_rest(struct render *render, struct args *args)
{
    const struct value by = args->n > 0 ? args->at[0] : dpe_template_int(2);
    const struct value rest = dpe_template_binary(render, OP_MODULO, args->of, by);
    return dpe_template_bool(
        dpe_template_equal(render, rest, dpe_template_int((int64_t)args->how)));
}

static struct value is_compared(struct render *render, struct args *args)
{
    return dpe_template_bool(dpe_template_holds(render, (enum op)args->how, args->of, args->at[0]));
}

/* "is" of Python, where it is not a matter of chance: the same object, or equal values of a kind
 * that has one object for each. */
static struct value is_same(struct render *render, struct args *args)
{
    struct value of = args->of;
    struct value other = args->at[0];
    return dpe_template_bool(of.kind == other.kind &&
                             (of.kind == KIND_LIST || of.kind == KIND_TUPLE || of.kind == KIND_DICT
                                  ? of.object == other.object
                                  : dpe_template_equal(render, of, other)));
}

const struct known dpe_template_tests[] = {
    {"defined", "", is_kind, ~IS(KIND_UNDEFINED)},
    {"undefined", "", is_kind, IS(KIND_UNDEFINED)},
    {"none", "", is_kind, IS(KIND_NONE)},
    {"string", "", is_kind, IS(KIND_STRING)},
    {"boolean", "", is_kind, IS(KIND_BOOL)},
    {"true", "", is_truth, true},
    {"false", "", is_truth, false},
    {"integer", "", is_kind, IS(KIND_INT) | IS(KIND_DIGITS)},
    {"float", "", is_kind, IS(KIND_FLOAT)},
    {"number", "", is_kind, IS_NUMBER},
    {"mapping", "", is_kind, IS(KIND_DICT)},
    {"sequence", "", is_kind, IS_SEQUENCE},
    {"iterable", "", is_kind, IS_ITERABLE},
    {"callable", "", is_kind, IS_CALLABLE},
    {"odd", "", is_rest, 1},
    {"even", "", is_rest, 0},
    {"divisibleby", "#num", is_rest, 0},
    {"equalto", "/other", is_compared, OP_EQUAL},
    {"eq", "/other", is_compared, OP_EQUAL},
    {"==", "/other", is_compared, OP_EQUAL},
    {"ne", "/other", is_compared, OP_UNEQUAL},
    {"!=", "/other", is_compared, OP_UNEQUAL},
    {"gt", "/other", is_compared, OP_GREATER},
    {"greaterthan", "/other", is_compared, OP_GREATER},
    {">", "/other", is_compared, OP_GREATER},
    {"ge", "/other", is_compared, OP_GREATER_EQUAL},
    {">=", "/other", is_compared, OP_GREATER_EQUAL},
    {"lt", "/other", is_compared, OP_LESS},
    {"lessthan", "/other", is_compared, OP_LESS},
    {"<", "/other", is_compared, OP_LESS},
    {"le", "/other", is_compared, OP_LESS_EQUAL},
    {"<=", "/other", is_compared, OP_LESS_EQUAL},
    {"in", "seq", is_compared, OP_IN},
    {"sameas", "other", is_same},
    {NULL},
};
