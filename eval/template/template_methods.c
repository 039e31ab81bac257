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
static struct value do_affix(struct render *render, struct value self, const struct args *args)
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
        found = (args->how == END ? ends : dpe_span_starts)(self.text, parts.at[i].text);
    }
    return dpe_template_bool(found);
}

static void push(struct render *render, struct value list, struct dpe_span text)
{
    if (dpe_template_step(render, 1)) {
        dpe_template_add(render, list, dpe_template_string(text));
    }
}

/* split() at white space, at most `most` times (negative: any). */
static struct value split_words(struct render *render, struct dpe_span text, int64_t most)
{
    struct value list = dpe_template_list(render, KIND_LIST, 0);
    struct dpe_span rest = text;
    struct dpe_span word;
    dpe_template_step(render, text.n / 64);
    while (render->status == DPE_OK) {
        if (most >= 0 && (int64_t)list.items->n >= most) {
            const char *first = dpe_py_strip(rest).s;
            rest.n -= (size_t)(first - rest.s);
            if (rest.n > 0) {
                push(render, list, (struct dpe_span){first, rest.n});
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

/* rsplit() at white space: the last `most` words, and before them the rest. */
static struct value split_last_words(struct render *render, struct dpe_span text, int64_t most)
{
    struct value all = split_words(render, text, -1);
    if (render->status != DPE_OK || (int64_t)all.items->n <= most) {
        return all;
    }
    struct value list = dpe_template_list(render, KIND_LIST, (size_t)most + 1);
    size_t first = all.items->n - (size_t)most;
    struct dpe_span last = all.items->at[first - 1].text;
    struct dpe_span start = {text.s, (size_t)(last.s - text.s) + last.n};
    push(render, list, start);
    for (size_t i = first; i < all.items->n && render->status == DPE_OK; i++) {
        push(render, list, all.items->at[i].text);
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

/* The bytes of a text from its end: searching them finds the last of a part in linear time, as
 * memmem does the first. Empty after a failure. */
static struct dpe_span turned(struct render *render, struct dpe_span text)
{
    char *bytes = dpe_template_get(render, text.n);
    for (size_t i = 0; i < text.n && bytes != NULL; i++) {
        bytes[i] = text.s[text.n - 1 - i];
    }
    return (struct dpe_span){bytes, bytes != NULL ? text.n : 0};
}

/* Offset of the first or last `part` in `text`; SIZE_MAX: it is not there, or a failure. */
static size_t find(struct render *render, bool last, struct dpe_span text, struct dpe_span part)
{
    if (!last) {
        return dpe_span_find(text, part);
    }
    size_t after = dpe_span_find(turned(render, text), turned(render, part));
    return after == SIZE_MAX || render->status != DPE_OK ? SIZE_MAX : text.n - part.n - after;
}

static struct value do_split(struct render *render, struct value self, const struct args *args)
{
    bool right = args->how == END;
    int64_t most = dpe_template_arg_int(render, args, 1, "maxsplit", -1);
    struct dpe_span rest = self.text;
    if (dpe_template_given(args, 0) == NULL) {
        return right && most >= 0 ? split_last_words(render, rest, most)
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
    rest = right ? turned(render, rest) : rest;
    part = right ? turned(render, part) : part;
    for (size_t i = 0; i <= cuts && dpe_template_step(render, 1); i++) {
        size_t n = i < cuts ? dpe_span_find(rest, part) : rest.n;
        list.items->at[right ? cuts - i : i] =
            dpe_template_string((struct dpe_span){right ? self.text.s + rest.n - n : rest.s, n});
        n += i < cuts ? part.n : 0;
        rest = (struct dpe_span){rest.s + n, rest.n - n};
    }
    return list;
}

static struct value do_splitlines(struct render *render, struct value self, const struct args *args)
{
    bool ends_kept = dpe_template_arg_bool(args, 0);
    const char *end = self.text.s + self.text.n;
    dpe_template_step(render, self.text.n / 16);
    struct value list = dpe_template_list(render, KIND_LIST, 0);
    const char *start = self.text.s;
    size_t n = 0;
    for (const char *s = start; s < end && render->status == DPE_OK; s += n > 0 ? n : 1) {
        n = dpe_py_line_end(s, end);
        if (n > 0) {
            push(render, list, (struct dpe_span){start, (size_t)(s - start) + (ends_kept ? n : 0)});
            start = s + n;
        }
    }
    if (start < end && render->status == DPE_OK) {
        push(render, list, (struct dpe_span){start, (size_t)(end - start)});
    }
    return list;
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

/* find(), rfind(), and index(), rindex(), which fail where those say −1. Bounds are characters. */
static struct value do_find(struct render *render, struct value self, const struct args *args)
{
    bool last = (args->how & END) != 0;
    struct dpe_span part = dpe_template_arg_text(render, args, 0, "sub", NULL);
    int64_t n = (int64_t)dpe_template_characters(render, self.text);
    int64_t bounds[2] = {0, n};
    for (size_t i = 0; i < 2; i++) {
        if (dpe_template_given(args, i + 1) != NULL) {
            bounds[i] = dpe_template_arg_int(render, args, i + 1, i == 0 ? "start" : "end", 0);
            bounds[i] += bounds[i] < 0 ? n : 0;
            bounds[i] = bounds[i] < 0 ? 0 : bounds[i];
        }
    }
    bounds[1] = bounds[1] > n ? n : bounds[1];
    size_t at = SIZE_MAX;
    size_t from = 0;
    dpe_template_step(render, (self.text.n + part.n) / 4);
    if (bounds[0] <= bounds[1] && render->status == DPE_OK) {
        from = dpe_template_offset(render, self.text, (size_t)bounds[0]);
        size_t to = dpe_template_offset(render, self.text, (size_t)bounds[1]);
        struct dpe_span within = {self.text.s + from, to - from};
        at = find(render, last, within, part);
    }
    if (at == SIZE_MAX) {
        return (args->how & MUST) != 0 ? dpe_template_fail(render, "index(): the text is not there")
                                       : dpe_template_int(-1);
    }
    struct dpe_span before = {self.text.s, from + at};
    return dpe_template_int((int64_t)dpe_template_characters(render, before));
}

/* partition(), rpartition(): what is before, the separator, what is behind. */
static struct value do_partition(struct render *render, struct value self, const struct args *args)
{
    bool last = args->how == END;
    struct dpe_span text = self.text;
    struct dpe_span part = dpe_template_arg_text(render, args, 0, "sep", NULL);
    struct value tuple = dpe_template_list(render, KIND_TUPLE, 3);
    dpe_template_step(render, (text.n + part.n) / 4);
    if (part.n == 0 || render->status != DPE_OK) {
        return dpe_template_fail(render, "partition(): the separator is empty");
    }
    size_t at = find(render, last, text, part);
    struct dpe_span pieces[3] = {{text.s, 0}, {text.s, 0}, {text.s, 0}};
    if (at == SIZE_MAX) {
        pieces[last ? 2 : 0] = text;
    } else {
        pieces[0].n = at;
        pieces[1] = part;
        pieces[2] = (struct dpe_span){text.s + at + part.n, text.n - at - part.n};
    }
    for (int i = 0; i < 3; i++) {
        push(render, tuple, pieces[i]);
    }
    return tuple;
}

/* ljust(), rjust(), center() */
static struct value do_pad(struct render *render, struct value self, const struct args *args)
{
    struct dpe_span fill = dpe_template_arg_text(render, args, 1, "fillchar", " ");
    size_t n = 0;
    if (fill.n > 0) {
        dpe_py_next(fill.s, fill.s + fill.n, &n);
    }
    if (n == 0 || n != fill.n) {
        return dpe_template_fail(render, "expected one character to fill with");
    }
    return dpe_template_pad(render, self.text, dpe_template_arg_int(render, args, 0, "width", 0),
                            fill, (char)args->how);
}

/* removeprefix(), removesuffix() */
static struct value do_remove(struct render *render, struct value self, const struct args *args)
{
    bool end = args->how == END;
    struct dpe_span part = dpe_template_arg_text(render, args, 0, end ? "suffix" : "prefix", NULL);
    size_t n = (end ? ends : dpe_span_starts)(self.text, part) ? part.n : 0;
    return dpe_template_string((struct dpe_span){self.text.s + (end ? 0 : n), self.text.n - n});
}

/* Zeros behind the sign. */
static struct value do_zfill(struct render *render, struct value self, const struct args *args)
{
    int64_t width = dpe_template_arg_int(render, args, 0, "width", 0);
    bool signs = self.text.n > 0 && (self.text.s[0] == '-' || self.text.s[0] == '+');
    struct dpe_span digits = {self.text.s + signs, self.text.n - signs};
    struct value filled = dpe_template_pad(render, digits, width - signs, dpe_span_of("0"), '>');
    struct value sign = dpe_template_string((struct dpe_span){self.text.s, signs});
    return dpe_template_binary(render, OP_ADD, sign, filled);
}

static struct value do_count(struct render *render, struct value self, const struct args *args)
{
    struct dpe_span part = dpe_template_arg_text(render, args, 0, "sub", NULL);
    dpe_template_step(render, self.text.n / 16);
    return dpe_template_int(part.n > 0 ? (int64_t)count_parts(self.text, part)
                                       : (int64_t)dpe_template_characters(render, self.text) + 1);
}

/* ---------------------------------------------------------------------------------------- lists */

static struct value do_item_index(struct render *render, struct value self, const struct args *args)
{
    for (size_t i = 0; i < self.items->n && render->status == DPE_OK; i++) {
        if (dpe_template_equal(render, self.items->at[i], args->at[0])) {
            return dpe_template_int((int64_t)i);
        }
    }
    return dpe_template_fail(render, "index(): the value is not in the list");
}

static struct value do_item_count(struct render *render, struct value self, const struct args *args)
{
    int64_t n = 0;
    for (size_t i = 0; i < self.items->n && render->status == DPE_OK; i++) {
        n += dpe_template_equal(render, self.items->at[i], args->at[0]);
    }
    return dpe_template_int(n);
}

/* ------------------------------------------------------------------------------------- mappings */

static struct value do_get(struct render *render, struct value self, const struct args *args)
{
    const struct value *value = dpe_template_dict_get(render, self.pairs, args->at[0]);
    const struct value *fallback = dpe_template_arg(args, 1);
    return value != NULL ? *value : fallback != NULL ? *fallback : dpe_template_none();
}

enum view { KEYS, VALUES, ITEMS };

static struct value do_view(struct render *render, struct value self, const struct args *args)
{
    static const char *const names[] = {"dict_keys", "dict_values", "dict_items"};
    struct value list = dpe_template_list(render, KIND_LIST, self.pairs->n);
    for (size_t i = 0; i < self.pairs->n && render->status == DPE_OK; i++) {
        const struct value both[] = {self.pairs->at[i].key, self.pairs->at[i].value};
        dpe_template_add(render, list,
                         args->how == ITEMS ? dpe_template_list_of(render, KIND_TUPLE, both, 2)
                                            : both[args->how]);
    }
    return render->status == DPE_OK ? dpe_template_iterator(render, *list.items, names[args->how])
                                    : list;
}

struct items dpe_template_pairs(struct render *render, struct value of)
{
    const struct args args = {.how = ITEMS};
    if (of.kind != KIND_DICT) {
        dpe_template_fail(render, "items: expected a mapping, found %s",
                          dpe_template_kind_name(of));
        return (struct items){0};
    }
    return dpe_template_items(render, do_view(render, of, &args));
}

static struct value do_copy(struct render *render, struct value self, const struct args *args)
{
    (void)args;
    if (self.kind == KIND_LIST) {
        return dpe_template_list_of(render, KIND_LIST, self.items->at, self.items->n);
    }
    struct value made = dpe_template_dict(render, KIND_DICT);
    if (made.kind == KIND_DICT) {
        dpe_template_dict_set_all(render, made.pairs, self.pairs);
    }
    return made;
}

/* Python's own parameters. */
const struct known dpe_template_string_methods[] = {
    {"strip", "/chars=", dpe_template_do_strip, STRIP_LEFT | STRIP_RIGHT},
    {"lstrip", "/chars=", dpe_template_do_strip, STRIP_LEFT},
    {"rstrip", "/chars=", dpe_template_do_strip, STRIP_RIGHT},
    {"startswith", "/prefix", do_affix, START},
    {"endswith", "/suffix", do_affix, END},
    {"split", "sep= maxsplit=", do_split, START},
    {"rsplit", "sep= maxsplit=", do_split, END},
    {"splitlines", "keepends=", do_splitlines},
    {"upper", "", dpe_template_do_case, LETTERS_UPPER},
    {"lower", "", dpe_template_do_case, LETTERS_LOWER},
    {"capitalize", "", dpe_template_do_case, LETTERS_CAPITAL},
    {"title", "", dpe_template_do_case, LETTERS_TITLE},
    {"swapcase", "", dpe_template_do_case, LETTERS_SWAPPED},
    {"replace", "/old /new /count=", dpe_template_do_replace},
    {"join", "/iterable", do_join},
    {"format", NULL, dpe_template_format},
    {"find", "/sub /start= /end=", do_find, START},
    {"rfind", "/sub /start= /end=", do_find, END},
    {"index", "/sub /start= /end=", do_find, START | MUST},
    {"rindex", "/sub /start= /end=", do_find, END | MUST},
    {"count", "/sub", do_count},
    {"partition", "/sep", do_partition, START},
    {"rpartition", "/sep", do_partition, END},
    {"ljust", "/width /fillchar=", do_pad, '<'},
    {"rjust", "/width /fillchar=", do_pad, '>'},
    {"center", "/width /fillchar=", do_pad, 'c'},
    {"zfill", "/width", do_zfill},
    {"removeprefix", "/prefix", do_remove, START},
    {"removesuffix", "/suffix", do_remove, END},
    {NULL},
};
/* Of lists and tuples. */
const struct known dpe_template_item_methods[] = {
    {"index", "/value", do_item_index},
    {"count", "/value", do_item_count},
    {NULL},
};
const struct known dpe_template_list_methods[] = {
    {"copy", "", do_copy},
    {NULL},
};
const struct known dpe_template_dict_methods[] = {
    {"get", "/key /default=", do_get}, {"keys", "", do_view, KEYS}, {"values", "", do_view, VALUES},
    {"items", "", do_view, ITEMS},     {"copy", "", do_copy},       {NULL},
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

static struct value is_kind(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    return dpe_template_bool((args->how >> of.kind & 1) != 0);
}

static struct value is_truth(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    return dpe_template_bool(of.kind == KIND_BOOL && of.integer == (int64_t)args->how);
}

/* Whether a division by 2 leaves `how`. */
static struct value is_odd(struct render *render, struct value of, const struct args *args)
{
    struct value rest = dpe_template_binary(render, OP_MODULO, of, dpe_template_int(2));
    return dpe_template_bool(rest.kind == KIND_INT && rest.integer == (int64_t)args->how);
}

static struct value is_divisible(struct render *render, struct value of, const struct args *args)
{
    struct value by = dpe_template_int(dpe_template_arg_int(render, args, 0, "num", 1));
    struct value rest = dpe_template_binary(render, OP_MODULO, of, by);
    return dpe_template_bool(rest.kind == KIND_INT && rest.integer == 0);
}

static struct value is_compared(struct render *render, struct value of, const struct args *args)
{
    return dpe_template_bool(dpe_template_holds(render, (enum op)args->how, of, args->at[0]));
}

/* "is" of Python, where it is not a matter of chance: the same object, or equal values of a kind
 * that has one object for each. */
static struct value is_same(struct render *render, struct value of, const struct args *args)
{
    struct value other = args->at[0];
    return dpe_template_bool(of.kind == other.kind &&
                             (of.kind == KIND_LIST || of.kind == KIND_TUPLE || of.kind == KIND_DICT
                                  ? of.object == other.object
                                  : dpe_template_equal(render, of, other)));
}

/* str.islower(), and str.isupper() with `how`, of the value as a text. */
static struct value is_case(struct render *render, struct value of, const struct args *args)
{
    struct dpe_span text = dpe_template_str(render, of);
    bool upper = args->how != 0;
    bool found = false;
    for (size_t i = 0, n = 0; i < text.n; i += n) {
        uint32_t point = dpe_py_next(text.s + i, text.s + text.n, &n);
        bool small = dpe_py_small(point);
        bool capital = dpe_py_capital(point);
        if ((upper ? small : capital) || dpe_unicode_has(&dpe_unicode_Lt, point)) {
            return dpe_template_bool(false);
        }
        found = found || (upper ? capital : small);
    }
    return dpe_template_bool(found && dpe_template_step(render, text.n / 16));
}

static struct value is_filter(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    (void)args;
    return dpe_template_bool(of.kind == KIND_STRING && dpe_template_find_filter(of.text) != NULL);
}

static struct value is_test(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    (void)args;
    return dpe_template_bool(of.kind == KIND_STRING &&
                             dpe_template_find(dpe_template_tests, of.text) != NULL);
}

static struct value is_escaped(struct render *render, struct value of, const struct args *args)
{
    (void)render;
    (void)args;
    return dpe_template_bool(of.kind == KIND_STRING && of.markup);
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
    {"odd", "", is_odd, 1},
    {"even", "", is_odd, 0},
    {"divisibleby", "num", is_divisible},
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
    {"lower", "", is_case, false},
    {"upper", "", is_case, true},
    {"filter", "", is_filter},
    {"test", "", is_test},
    {"escaped", "", is_escaped},
    {NULL},
};

/* ----------------------------------------------------------------------- classes of characters */

enum class { SPACE, DECIMAL, DIGIT, NUMERIC, ALPHA, ALNUM, ASCII, PRINTABLE };

static bool is_of(enum class class, uint32_t point, struct dpe_span character)
{
    bool decimal = dpe_py_digit(point) >= 0;
    switch (class) {
    case SPACE:
        return dpe_py_space(character.s, character.s + character.n) > 0;
    case DECIMAL:
        return decimal;
    case DIGIT:
        return decimal || dpe_unicode_has(&dpe_case_other_digits, point);
    case NUMERIC:
        return dpe_py_is(&dpe_unicode_N, point) || dpe_unicode_has(&dpe_case_other_numbers, point);
    case ALPHA:
        return dpe_unicode_has(&dpe_unicode_L, point);
    case ALNUM:
        return point != '_' && dpe_py_word(point);
    case ASCII:
        return point < 0x80;
    case PRINTABLE:
        return dpe_py_printable(point);
    }
    return false;
}

/* Whether all characters are of the class, and there are some where it asks for that. */
static struct value do_is(struct render *render, struct value self, const struct args *args)
{
    struct dpe_span text = self.text;
    bool all = text.n > 0 || args->how == ASCII || args->how == PRINTABLE;
    dpe_template_step(render, text.n / 16);
    for (size_t i = 0, n = 0; i < text.n && all; i += n) {
        uint32_t point = dpe_py_next(text.s + i, text.s + text.n, &n);
        all = is_of((enum class)args->how, point, (struct dpe_span){text.s + i, n});
    }
    return dpe_template_bool(all);
}

const struct known dpe_template_class_methods[] = {
    {"isspace", "", do_is, SPACE},
    {"isdigit", "", do_is, DIGIT},
    {"isdecimal", "", do_is, DECIMAL},
    {"isnumeric", "", do_is, NUMERIC},
    {"isalpha", "", do_is, ALPHA},
    {"isalnum", "", do_is, ALNUM},
    {"isascii", "", do_is, ASCII},
    {"isprintable", "", do_is, PRINTABLE},
    {"islower", "", is_case, false},
    {"isupper", "", is_case, true},
    {NULL},
};
