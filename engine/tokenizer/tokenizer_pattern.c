/* Regular expressions of tokenizer files: the reference compiles them with Oniguruma (Ruby's
 * syntax), we with PCRE2. A translation walks the pattern, lets through what both read alike,
 * writes out character classes from our tables and refuses the rest by name. */
#include "engine/text/json.h"
#include "engine/tokenizer/tokenizer_parts.h"

#include <stdio.h>
#include <string.h>

enum { MAX_GROUPS = 64, MAX_PATTERN = 1 << 16, MAX_TRANSLATED = 1 << 20 };

struct translation {
    const char *in;
    size_t n, at;
    struct dpe_text *out;
    bool in_class;
    bool caseless[MAX_GROUPS + 1]; /* of each open group */
    size_t depth;
    struct dpe_error *err;
};

static dpe_status put(struct translation *t, const char *bytes, size_t n)
{
    return dpe_text_append(t->out, bytes, n, t->err);
}

static dpe_status unsupported(const struct translation *t, const char *what)
{
    return dpe_fail(t->err, DPE_BAD_DATA,
                    "%s at byte %zu of the pattern is not supported (or does not mean the same to "
                    "every regular-expression library)",
                    what, t->at);
}

static void put_range(struct translation *t, uint32_t low, uint32_t high)
{
    dpe_text_put(t->out, low == high ? "\\x{%x}" : "\\x{%x}-\\x{%x}", low, high);
}

/* The ranges of a class or of its complement, without brackets. */
static void put_ranges(struct translation *t, const struct dpe_unicode_class *set, bool complement)
{
    uint32_t from = 0, range[2];
    for (size_t at = 0; dpe_unicode_range(set, &at, range); from = range[1] + 1) {
        if (!complement) {
            put_range(t, range[0], range[1]);
        } else if (range[0] > from) {
            put_range(t, from, range[0] - 1);
        }
    }
    if (complement) {
        put_range(t, from, 0x10ffff);
    }
}

static dpe_status put_class(struct translation *t, const struct dpe_unicode_class *set,
                            bool complement)
{
    if (t->caseless[t->depth]) {
        return unsupported(t, "a character class that ignores case");
    }
    dpe_text_put(t->out, t->in_class ? "" : complement ? "[^" : "[");
    put_ranges(t, set, t->in_class && complement);
    dpe_text_put(t->out, t->in_class ? "" : "]");
    return dpe_text_done(t->out, t->err);
}

/* \p{L}, \P{L}, \p{^L}; t->at stands after the p. */
static dpe_status translate_property(struct translation *t, bool complement)
{
    const char *open = t->in + t->at;
    const char *close = t->at < t->n && *open == '{' ? memchr(open, '}', t->n - t->at) : NULL;
    if (close == NULL) {
        return unsupported(t, "\\p without braces");
    }
    const char *name = open + 1;
    if (*name == '^') {
        complement = !complement;
        name++;
    }
    const struct dpe_unicode_class *set = dpe_unicode_category(name, (size_t)(close - name));
    if (set == NULL) {
        char quoted[96], what[128];
        snprintf(what, sizeof what, "property %s",
                 dpe_json_quote(quoted, open, (size_t)(close - open) + 1));
        return unsupported(t, what);
    }
    t->at += (size_t)(close - open) + 1;
    return put_class(t, set, complement);
}

/* \xHH; t->at stands after the x. From \x80 on it would be a byte to one library and a code point
 * to the other. */
static dpe_status translate_hex(struct translation *t)
{
    const char *digits = t->in + t->at;
    if (t->n - t->at < 2 || digits[0] < '0' || digits[0] > '7' || dpe_hex_digit(digits[1]) < 0) {
        return unsupported(t, "\\x with other than two digits up to 7F");
    }
    char text[4] = {'\\', 'x', digits[0], digits[1]};
    t->at += 2;
    return put(t, text, sizeof text);
}

/* Behind a backslash. */
static dpe_status translate_escape(struct translation *t)
{
    if (t->at >= t->n) {
        return unsupported(t, "a backslash at the end");
    }
    char c = t->in[t->at++];
    switch (c) {
    case 'p':
    case 'P':
        return translate_property(t, c == 'P');
    case 's':
    case 'S':
        return put_class(t, &dpe_unicode_space, c == 'S');
    case 'd':
    case 'D':
        return put_class(t, &dpe_unicode_Nd, c == 'D');
    case 'x':
        return translate_hex(t);
    case 'v': /* the one character to Oniguruma, a class to PCRE2 */
        return put(t, "\\x0b", 4);
    case 'r':
    case 'n':
    case 't':
    case 'f':
        break;
    default:
        if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
            (unsigned char)c >= 0x80) {
            char what[24];
            snprintf(what, sizeof what, (unsigned char)c < 0x80 ? "\\%c" : "an escaped \\x%02x",
                     (unsigned char)c);
            return unsupported(t, what);
        }
    }
    char text[2] = {'\\', c};
    return put(t, text, 2);
}

/* Behind "(": looks at what kind of group it is, and leaves t->at after its head. */
static dpe_status open_group(struct translation *t)
{
    static const struct {
        const char *head;
        int caseless; /* −1: as outside */
    } heads[] = {{"?:", -1},  {"?=", -1}, {"?!", -1}, {"?<=", -1},
                 {"?<!", -1}, {"?>", -1}, {"?i:", 1}, {"?-i:", 0}};
    const char *rest = t->in + t->at;
    size_t left = t->n - t->at, length = 0;
    bool caseless = t->caseless[t->depth];
    bool plain = left == 0 || (rest[0] != '?' && rest[0] != '*');
    for (size_t i = 0; i < sizeof heads / sizeof heads[0] && !plain && length == 0; i++) {
        size_t n = strlen(heads[i].head);
        if (left >= n && memcmp(rest, heads[i].head, n) == 0) {
            length = n;
            caseless = heads[i].caseless < 0 ? caseless : heads[i].caseless == 1;
        }
    }
    if (!plain && length == 0) {
        return unsupported(t, "this kind of group");
    }
    if (t->depth == MAX_GROUPS) {
        return unsupported(t, "a group this deep");
    }
    t->caseless[++t->depth] = caseless;
    DPE_TRY(put(t, "(", 1));
    t->at += length;
    return put(t, rest, length);
}

static dpe_status translate_in_class(struct translation *t, char c)
{
    if (c == '[' || (c == '&' && t->at < t->n && t->in[t->at] == '&')) {
        return unsupported(t, "a class within a class");
    }
    if (c == ']') {
        t->in_class = false;
    }
    return put(t, &c, 1);
}

static dpe_status open_class(struct translation *t)
{
    t->in_class = true;
    DPE_TRY(put(t, "[", 1));
    if (t->at < t->n && t->in[t->at] == '^') {
        t->at++;
        DPE_TRY(put(t, "^", 1));
    }
    return t->at < t->n && t->in[t->at] == ']' ? unsupported(t, "an empty class") : DPE_OK;
}

static dpe_status translate_one(struct translation *t)
{
    char c = t->in[t->at++];
    if (c == '\\') {
        return translate_escape(t);
    }
    if (t->in_class) {
        return translate_in_class(t, c);
    }
    char next = (char)(t->at < t->n ? t->in[t->at] : 0);
    switch (c) {
    case '[':
        return open_class(t);
    case '(':
        return open_group(t);
    case ')':
        t->depth -= t->depth > 0;
        break;
    case '^':
    case '$':
        return unsupported(t, "an anchor");
    case '{':
        if (next < '0' || next > '9') {
            return unsupported(t, "a brace that is not a count");
        }
        break;
    case '}':
        if (next == '+' || next == '?') {
            return unsupported(t, "a count followed by + or ?");
        }
        break;
    case '\0':
        return unsupported(t, "a NUL");
    default:
        break;
    }
    return put(t, &c, 1);
}

static dpe_status compile(struct dpe_pattern *pattern, const struct dpe_text *regex,
                          struct dpe_error *err)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    DPE_TRY(DPE_MADE(context, err, "no memory for a pattern"));
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, MAX_GROUPS);
    int code = 0;
    PCRE2_SIZE at = 0;
    uint32_t options = PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C;
    pattern->code = pcre2_compile((PCRE2_SPTR)regex->bytes, regex->n, options, &code, &at, context);
    pcre2_compile_context_free(context);
    if (pattern->code == NULL && code == PCRE2_ERROR_HEAP_FAILED) {
        return dpe_fail(err, DPE_NO_MEMORY, "no memory for a pattern");
    }
    if (pattern->code == NULL) {
        PCRE2_UCHAR message[120];
        pcre2_get_error_message(code, message, sizeof message);
        return dpe_fail(err, DPE_BAD_DATA, "the pattern does not compile: %s",
                        (const char *)message);
    }
    /* Without JIT matching works as well, five times slower. */
    pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE);
    return DPE_OK;
}

dpe_status dpe_pattern_compile(struct dpe_pattern *pattern, const char *regex, size_t n,
                               struct dpe_error *err)
{
    if (n == 0 || n > MAX_PATTERN) {
        return dpe_fail(err, DPE_BAD_DATA, "expected a pattern of 1 to %d bytes, found %zu",
                        MAX_PATTERN, n);
    }
    DPE_SCOPED(dpe_text_free) struct dpe_text out = {0};
    struct translation t = {.in = regex, .n = n, .out = &out, .err = err};
    while (t.at < n) {
        DPE_TRY(translate_one(&t));
        if (out.n > MAX_TRANSLATED) {
            return unsupported(&t, "this many character classes");
        }
    }
    return compile(pattern, &out, err);
}

dpe_status dpe_pattern_numeric(struct dpe_pattern *pattern, struct dpe_error *err)
{
    const struct dpe_unicode_class *numeric = &dpe_unicode_numeric;
    const struct dpe_unicode_class categories = {.categories = numeric->categories};
    const struct dpe_unicode_class ranges = {numeric->ranges, numeric->n, 0};
    DPE_SCOPED(dpe_text_free) struct dpe_text out = {0};
    struct translation t = {.out = &out, .err = err};
    dpe_text_put(&out, "[");
    put_ranges(&t, &categories, false);
    put_ranges(&t, &ranges, false);
    dpe_text_put(&out, "]");
    DPE_TRY(dpe_text_done(&out, err));
    return compile(pattern, &out, err);
}

dpe_status dpe_pattern_literal(struct dpe_pattern *pattern, const char *text, size_t n,
                               struct dpe_error *err)
{
    if (n == 0) {
        return dpe_fail(err, DPE_BAD_DATA, "an empty pattern");
    }
    DPE_SCOPED(dpe_text_free) struct dpe_text regex = {0};
    for (size_t at = 0, length = 0; at < n; at += length) {
        dpe_text_put(&regex, "\\x{%x}", dpe_utf8_next(text + at, &length));
    }
    DPE_TRY(dpe_text_done(&regex, err));
    return compile(pattern, &regex, err);
}

void dpe_pattern_free(struct dpe_pattern *pattern)
{
    pcre2_code_free(pattern->code);
    pattern->code = NULL;
}

dpe_status dpe_matcher_init(struct dpe_matcher *matcher, size_t n, struct dpe_error *err)
{
    matcher->data = pcre2_match_data_create(1, NULL);
    matcher->context = pcre2_match_context_create(NULL);
    matcher->stack = pcre2_jit_stack_create((size_t)32 << 10, (size_t)8 << 20, NULL);
    DPE_TRY(DPE_MADE(matcher->data != NULL && matcher->context != NULL ? matcher->stack : NULL, err,
                     "no memory for matching patterns"));
    /* Splitting n bytes of white space backs out of one alternative n times; what takes many times
     * more is a pattern that explodes. */
    const uint32_t least = 1000000;
    size_t limit = n > (UINT32_MAX - least) / 16 ? UINT32_MAX : least + 16 * n;
    pcre2_set_match_limit(matcher->context, (uint32_t)limit);
    pcre2_jit_stack_assign(matcher->context, NULL, matcher->stack);
    return DPE_OK;
}

void dpe_matcher_free(struct dpe_matcher *matcher)
{
    pcre2_match_data_free(matcher->data);
    pcre2_match_context_free(matcher->context);
    pcre2_jit_stack_free(matcher->stack);
    *matcher = (struct dpe_matcher){0};
}

dpe_status dpe_pattern_find(const struct dpe_pattern *pattern, struct dpe_matcher *matcher,
                            const char *text, size_t n, size_t from, bool *found, size_t *start,
                            size_t *end, struct dpe_error *err)
{
    int code = pcre2_match(pattern->code, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK,
                           matcher->data, matcher->context);
    *found = code >= 0;
    if (code >= 0) {
        const PCRE2_SIZE *offsets = pcre2_get_ovector_pointer(matcher->data);
        *start = offsets[0];
        *end = offsets[1];
        return DPE_OK;
    }
    switch (code) {
    case PCRE2_ERROR_NOMATCH:
        return DPE_OK;
    case PCRE2_ERROR_NOMEMORY:
        return dpe_fail(err, DPE_NO_MEMORY, "no memory for matching a pattern");
    case PCRE2_ERROR_MATCHLIMIT:
    case PCRE2_ERROR_DEPTHLIMIT:
    case PCRE2_ERROR_HEAPLIMIT:
    case PCRE2_ERROR_JIT_STACKLIMIT:
        return dpe_fail(err, DPE_BAD_DATA,
                        "the pattern of the pre-tokenizer takes too many steps on this text, "
                        "because it backtracks without bound; use a tokenizer.json with "
                        "another pattern");
    default: {
        PCRE2_UCHAR message[120];
        pcre2_get_error_message(code, message, sizeof message);
        return dpe_fail(err, DPE_INTERNAL, "matching a pattern failed: %s", (const char *)message);
    }
    }
}
