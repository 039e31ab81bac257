/* Values of templates: made, compared, looped over. */
#include "eval/template/template_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct value dpe_template_built(const struct builder *built)
{
    return dpe_template_string((struct dpe_span){built->n > 0 ? built->bytes : "", built->n});
}

struct value dpe_template_digits(struct render *render, const char *digits, size_t n)
{
    bool minus = n > 0 && digits[0] == '-';
    int64_t integer = 0;
    bool fits = true;
    for (size_t i = minus; i < n && fits; i++) {
        int digit = minus ? '0' - digits[i] : digits[i] - '0';
        fits = !__builtin_mul_overflow(integer, 10, &integer) &&
               !__builtin_add_overflow(integer, digit, &integer);
    }
    if (fits) {
        return dpe_template_int(integer);
    }
    size_t zeros = strspn(digits + minus, "0");
    struct builder built = {0};
    dpe_template_put(render, &built, "-", minus);
    dpe_template_put(render, &built, digits + minus + zeros, n - minus - zeros);
    return (struct value){.kind = KIND_DIGITS, .text = dpe_template_built(&built).text};
}

struct value dpe_template_iterator(struct render *render, struct items items, const char *name)
{
    struct iterator *iterator = dpe_template_get(render, sizeof *iterator);
    *iterator = (struct iterator){items, name};
    return (struct value){.kind = KIND_ITERATOR, .iterator = iterator};
}

struct value dpe_template_list(struct render *render, enum kind kind, size_t n)
{
    struct items *items = dpe_template_get(render, sizeof *items);
    dpe_template_room(render, &items->at, 0, &items->capacity, n, sizeof *items->at);
    return (struct value){.kind = kind, .items = items};
}

struct value dpe_template_list_of(struct render *render, enum kind kind, const struct value *at,
                                  size_t n)
{
    struct value list = dpe_template_list(render, kind, n);
    for (size_t i = 0; i < n; i++) {
        dpe_template_add(render, list, at[i]);
    }
    return list;
}

void dpe_template_add(struct render *render, struct value list, struct value item)
{
    struct items *items = list.items;
    dpe_template_room(render, &items->at, items->n, &items->capacity, 1, sizeof *items->at);
    items->at[items->n++] = item;
}

void dpe_template_add_all(struct render *render, struct value list, struct items from)
{
    dpe_template_step(render, from.n);
    for (size_t i = 0; i < from.n; i++) {
        dpe_template_add(render, list, from.at[i]);
    }
}

struct value dpe_template_dict(struct render *render, enum kind kind, const struct pairs *pairs)
{
    struct pairs *made = dpe_template_get(render, sizeof *made);
    if (pairs != NULL) {
        dpe_template_dict_set_all(render, made, pairs);
    }
    return (struct value){.kind = kind, .pairs = made};
}

struct value *dpe_template_dict_get(struct render *render, const struct pairs *pairs,
                                    struct value key)
{
    bool text = key.kind == KIND_STRING;
    dpe_template_step(render, pairs->n / 16);
    for (size_t i = 0; i < pairs->n; i++) {
        struct value other = pairs->at[i].key;
        if (text && other.kind == KIND_STRING && other.text.n == key.text.n) {
            dpe_template_step(render, key.text.n / 64);
        }
        if (text ? other.kind == KIND_STRING && dpe_span_equal(other.text, key.text)
                 : dpe_template_equal(render, other, key)) {
            return &pairs->at[i].value;
        }
    }
    return NULL;
}

void dpe_template_dict_set(struct render *render, struct pairs *pairs, struct value key,
                           struct value value)
{
    struct value *there = dpe_template_dict_get(render, pairs, key);
    if (there != NULL) {
        *there = value;
        return;
    }
    dpe_template_room(render, &pairs->at, pairs->n, &pairs->capacity, 1, sizeof *pairs->at);
    pairs->at[pairs->n++] = (struct pair){key, value};
}

void dpe_template_dict_set_all(struct render *render, struct pairs *pairs, const struct pairs *from)
{
    for (size_t i = 0; i < from->n; i++) {
        dpe_template_dict_set(render, pairs, from->at[i].key, from->at[i].value);
    }
}

/* ---------------------------------------------------------------------------------- comparisons */

const char *dpe_template_kind_name(struct value value)
{
    static const char *const names[] = {
        [KIND_UNDEFINED] = "an undefined value",
        [KIND_NONE] = "none",
        [KIND_BOOL] = "a truth value",
        [KIND_INT] = "an integer",
        [KIND_DIGITS] = "an integer beyond 64 bits",
        [KIND_FLOAT] = "a number",
        [KIND_STRING] = "a string",
        [KIND_LIST] = "a list",
        [KIND_TUPLE] = "a tuple",
        [KIND_DICT] = "a mapping",
        [KIND_ITERATOR] = "an iterator",
        [KIND_NAMESPACE] = "a namespace",
        [KIND_JOINER] = "a joiner",
        [KIND_LOOP] = "a loop",
        [KIND_MACRO] = "a macro",
        [KIND_FUNCTION] = "a function",
        [KIND_METHOD] = "a method",
    };
    return names[value.kind];
}

bool dpe_template_truth(struct value value)
{
    switch (value.kind) {
    case KIND_UNDEFINED:
    case KIND_NONE:
        return false;
    case KIND_BOOL:
    case KIND_INT:
        return value.integer != 0;
    case KIND_FLOAT:
        return value.real != 0.0;
    case KIND_STRING:
        return value.text.n > 0;
    case KIND_LIST:
    case KIND_TUPLE:
        return value.items->n > 0;
    case KIND_DICT:
        return value.pairs->n > 0;
    case KIND_ITERATOR:
        return value.iterator->name == NULL || value.iterator->items.n > 0;
    default:
        return true;
    }
}

bool dpe_template_number(struct value value, double *number)
{
    char text[400];
    value = dpe_template_whole(value);
    *number = value.kind == KIND_INT     ? (double)value.integer
              : value.kind == KIND_FLOAT ? value.real
                                         : 0.0;
    if (value.kind == KIND_DIGITS) {
        int n = value.text.n < sizeof text ? (int)value.text.n : (int)sizeof text - 1;
        snprintf(text, sizeof text, "%.*s", n, value.text.s);
        *number = strtod(text, NULL);
        return true;
    }
    return value.kind == KIND_INT || value.kind == KIND_FLOAT;
}

static bool equal_items(struct render *render, const struct items *a, const struct items *b)
{
    bool equal = a->n == b->n;
    for (size_t i = 0; i < a->n && equal; i++) {
        equal = dpe_template_equal(render, a->at[i], b->at[i]);
    }
    return equal;
}

static bool equal_pairs(struct render *render, const struct pairs *a, const struct pairs *b)
{
    bool equal = a->n == b->n;
    for (size_t i = 0; i < a->n && equal; i++) {
        const struct value *other = dpe_template_dict_get(render, b, a->at[i].key);
        equal = other != NULL && dpe_template_equal(render, a->at[i].value, *other);
    }
    return equal;
}

bool dpe_template_equal(struct render *render, struct value a, struct value b)
{
    double x = 0.0;
    double y = 0.0;
    dpe_template_step(render, 1);
    if (a.kind == KIND_DIGITS || b.kind == KIND_DIGITS) {
        return a.kind == b.kind
                   ? dpe_span_equal(a.text, b.text)
                   : a.kind != KIND_INT && b.kind != KIND_INT && dpe_template_number(a, &x) &&
                         dpe_template_number(b, &y) && x == y;
    }
    if (dpe_template_number(a, &x) && dpe_template_number(b, &y)) {
        return a.kind == KIND_INT && b.kind == KIND_INT ? a.integer == b.integer : x == y;
    }
    if (a.kind != b.kind) {
        return false;
    }
    bool equal = true;
    render->depth++;
    if (a.kind == KIND_STRING) {
        dpe_template_step(render, a.text.n / 64);
        equal = dpe_span_equal(a.text, b.text);
    } else if (a.kind == KIND_LIST || a.kind == KIND_TUPLE) {
        equal = equal_items(render, a.items, b.items);
    } else if (a.kind == KIND_DICT) {
        equal = equal_pairs(render, a.pairs, b.pairs);
    } else if (a.kind > KIND_DICT) {
        equal = a.object == b.object;
    }
    render->depth--;
    return equal;
}

/* Lists or tuples: by the first items that differ, else by their number. */
static int compare_items(struct render *render, const struct items *a, const struct items *b)
{
    int order = (a->n > b->n) - (a->n < b->n);
    render->depth++;
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        dpe_template_step(render, 1);
        if (!dpe_template_equal(render, a->at[i], b->at[i])) {
            order = dpe_template_compare(render, a->at[i], b->at[i]);
            break;
        }
    }
    render->depth--;
    return order;
}

int dpe_template_order(struct dpe_span a, struct dpe_span b)
{
    /* The order of UTF-8 bytes is the order of the characters. */
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n > 0 ? memcmp(a.s, b.s, n) : 0;
    return order != 0 ? (order > 0) - (order < 0) : (a.n > b.n) - (a.n < b.n);
}

/* Whole numbers that are the same as doubles, which are beside 0 on the side of `sign`. */
static int compare_whole(struct value a, struct value b, double sign)
{
    int order = (a.kind == KIND_DIGITS) - (b.kind == KIND_DIGITS);
    if (a.kind != KIND_DIGITS && b.kind != KIND_DIGITS) {
        return (a.integer > b.integer) - (a.integer < b.integer);
    }
    if (order == 0) {
        order = (a.text.n > b.text.n) - (a.text.n < b.text.n);
        order = order != 0 ? order : dpe_template_order(a.text, b.text);
    }
    return sign < 0.0 ? -order : order;
}

int dpe_template_compare(struct render *render, struct value a, struct value b)
{
    double x = 0.0;
    double y = 0.0;
    if ((a.kind == KIND_LIST || a.kind == KIND_TUPLE) && a.kind == b.kind) {
        return compare_items(render, a.items, b.items);
    }
    if (dpe_template_number(a, &x) && dpe_template_number(b, &y)) {
        bool whole = a.kind != KIND_FLOAT && b.kind != KIND_FLOAT;
        return whole && x == y ? compare_whole(a, b, x) : (x > y) - (x < y);
    }
    if (a.kind == KIND_STRING && b.kind == KIND_STRING) {
        dpe_template_step(render, (a.text.n < b.text.n ? a.text.n : b.text.n) / 64);
        return dpe_template_order(a.text, b.text);
    }
    dpe_template_fail(render, "%s and %s have no order", dpe_template_kind_name(a),
                      dpe_template_kind_name(b));
}

/* Reads a generator until the value was there. */
static bool taken(struct render *render, struct iterator *from, struct value part)
{
    bool found = false;
    while (from->items.n > 0 && !found) {
        found = dpe_template_equal(render, from->items.at[0], part);
        from->items.at++;
        from->items.n--;
    }
    return found;
}

bool dpe_template_contains(struct render *render, struct value whole, struct value part)
{
    if (whole.kind == KIND_STRING) {
        if (part.kind != KIND_STRING) {
            dpe_template_fail(render, "%s cannot be in a string", dpe_template_kind_name(part));
        }
        dpe_template_step(render, whole.text.n / 16);
        return dpe_span_find(whole.text, part.text) != SIZE_MAX;
    }
    if (whole.kind == KIND_ITERATOR && whole.iterator->name == NULL) {
        return taken(render, whole.iterator, part);
    }
    if (whole.kind == KIND_DICT) {
        return dpe_template_dict_get(render, whole.pairs, part) != NULL;
    }
    struct items items = dpe_template_items(render, whole);
    for (size_t i = 0; i < items.n; i++) {
        if (dpe_template_equal(render, items.at[i], part)) {
            return true;
        }
    }
    return false;
}

static bool begins(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

size_t dpe_template_characters(struct render *render, struct dpe_span text)
{
    size_t count = 0;
    if (text.s == render->walked.s && text.n == render->walked.n && text.n > 0) {
        return render->walked_characters;
    }
    for (size_t i = 0; i < text.n; i++) {
        count += begins(text.s[i]);
    }
    dpe_template_step(render, text.n / 16);
    render->walked = text;
    render->walked_characters = count;
    render->walked_index = render->walked_byte = 0;
    return count;
}

size_t dpe_template_offset(struct render *render, struct dpe_span text, size_t index)
{
    size_t n = dpe_template_characters(render, text);
    if (index >= n) {
        return text.n;
    }
    if (n == text.n) {
        return index;
    }
    size_t at = render->walked_index;
    size_t byte = render->walked_byte;
    if (index < at / 2) {
        at = byte = 0;
    }
    dpe_template_step(render, (index > at ? index - at : at - index) / 16);
    for (; at < index; at++) {
        for (byte++; byte < text.n && !begins(text.s[byte]);) {
            byte++;
        }
    }
    for (; at > index; at--) {
        for (byte--; byte > 0 && !begins(text.s[byte]);) {
            byte--;
        }
    }
    render->walked_index = at;
    render->walked_byte = byte;
    return byte;
}

static struct items characters(struct render *render, struct dpe_span text)
{
    struct value list = dpe_template_list(render, KIND_LIST, dpe_template_characters(render, text));
    for (size_t i = 0, n = 0; i < text.n; i += n) {
        n = 1;
        while (i + n < text.n && !begins(text.s[i + n])) {
            n++;
        }
        dpe_template_add(render, list, dpe_template_string((struct dpe_span){text.s + i, n}));
    }
    dpe_template_step(render, list.items->n);
    return *list.items;
}

struct items dpe_template_items(struct render *render, struct value value)
{
    switch (value.kind) {
    case KIND_LIST:
    case KIND_TUPLE:
        return *value.items;
    case KIND_STRING:
        return characters(render, value.text);
    case KIND_DICT: {
        struct value keys = dpe_template_list(render, KIND_LIST, value.pairs->n);
        for (size_t i = 0; i < value.pairs->n; i++) {
            dpe_template_add(render, keys, value.pairs->at[i].key);
        }
        return *keys.items;
    }
    case KIND_ITERATOR: {
        struct items items = value.iterator->items;
        if (value.iterator->name == NULL) {
            value.iterator->items.n = 0; /* read once */
        }
        return items;
    }
    case KIND_UNDEFINED:
        return (struct items){0};
    default:
        dpe_template_fail(render, "%s has no items", dpe_template_kind_name(value));
    }
}
