/* Templates into tokens, with the white space that trim_blocks and lstrip_blocks leave;
 * and the refusal of a template, with its line. */
#include "eval/template/template_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NESTING = 64 };

struct lexer {
    struct parse *parse;
    const char *s;
    size_t n, at;
    size_t counted; /* newlines before this byte are in `line` */
    int line;
    bool line_start; /* what ended here ended in a newline */
    char open[MAX_NESTING];
    int n_open;
};

struct node *dpe_template_refuse(struct parse *parse, int line, const char *format, ...)
{
    if (parse->status == DPE_OK) {
        char text[512];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        parse->status =
            dpe_fail(parse->err, DPE_BAD_DATA, "%s: line %d: %s", parse->where, line, text);
    }
    return &parse->spare;
}

static int line_at(struct lexer *lexer, size_t at)
{
    for (; lexer->counted < at; lexer->counted++) {
        lexer->line += lexer->s[lexer->counted] == '\n';
    }
    return lexer->line;
}

static void add(struct lexer *lexer, enum token_kind kind, struct dpe_span text)
{
    struct parse *parse = lexer->parse;
    if (parse->status == DPE_OK) {
        parse->status = DPE_ROOM(&parse->tokens, parse->n_tokens, parse->err, "%s: out of memory",
                                 parse->where);
    }
    if (parse->status == DPE_OK) {
        parse->tokens[parse->n_tokens++] = (struct token){kind, lexer->line, text};
    }
}

static const char *after_space(const char *at, const char *end)
{
    for (size_t n = 1; at < end && n > 0; at += n) {
        n = dpe_py_space(at, end);
    }
    return at;
}

static void skip_space(struct lexer *lexer)
{
    lexer->at = (size_t)(after_space(lexer->s + lexer->at, lexer->s + lexer->n) - lexer->s);
}

/* The text in front of a tag that begins at `end`: without the white space that its sign, or
 * lstrip_blocks, takes away. */
static void add_data(struct lexer *lexer, size_t end, char sign, bool block)
{
    size_t start = lexer->at;
    size_t stop = end;
    size_t line = end;
    while (line > start && lexer->s[line - 1] != '\n') {
        line--;
    }
    if (sign == '-') {
        struct dpe_span text = {lexer->s + start, end - start};
        const char *last = text.s + text.n;
        while (last > text.s) {
            const char *before = dpe_py_before(text.s, last);
            if (dpe_py_space(before, last) == 0) {
                break;
            }
            last = before;
        }
        stop = (size_t)(last - lexer->s);
    } else if (sign != '+' && block && (line > start || lexer->line_start)) {
        struct dpe_span rest = dpe_py_strip((struct dpe_span){lexer->s + line, end - line});
        stop = rest.n == 0 ? line : end;
    }
    line_at(lexer, start);
    if (stop > start) {
        add(lexer, TOKEN_DATA, (struct dpe_span){lexer->s + start, stop - start});
    }
    line_at(lexer, end);
}

/* After a closing tag: '-' takes the white space, a block's (unless '+') one newline. */
static void close_tag(struct lexer *lexer, char sign, bool block)
{
    size_t start = lexer->at;
    if (sign == '-') {
        skip_space(lexer);
    } else if (sign != '+' && block && lexer->at < lexer->n && lexer->s[lexer->at] == '\n') {
        lexer->at++;
    }
    lexer->line_start = lexer->at > start && lexer->s[lexer->at - 1] == '\n';
}

static void skip_comment(struct lexer *lexer)
{
    int line = line_at(lexer, lexer->at);
    size_t start = lexer->at;
    struct dpe_span rest = {lexer->s + start, lexer->n - start};
    size_t end = dpe_span_find(rest, dpe_span_of("#}"));
    if (end == SIZE_MAX) {
        dpe_template_refuse(lexer->parse, line, "the comment that begins here has no end");
        return;
    }
    char sign = end > 0 ? rest.s[end - 1] : '\0';
    lexer->at = start + end + 2;
    close_tag(lexer, sign == '-' || sign == '+' ? sign : '\0', true);
}

/* -------------------------------------------------------------------------------------- strings */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static size_t put_utf8(char *out, uint32_t point)
{
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    size_t n = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (point & 0x3f));
        point >>= 6;
    }
    out[0] = (char)((0xf00u >> n & 0xffu) | point);
    return n;
}

/* A character written as `digits` hexadecimal ones after s[*i]; none can be longer than it is. */
static bool unescape_hex(const char *s, size_t n, size_t digits, size_t *i, char *out, size_t *m)
{
    if (n - *i - 1 < digits) {
        return false;
    }
    uint32_t point = 0;
    for (size_t k = 1; k <= digits; k++) {
        int digit = hex_digit(s[*i + k]);
        if (digit < 0 || point > 0x10ffff) {
            return false;
        }
        point = point * 16 + (uint32_t)digit;
    }
    if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) {
        return false;
    }
    *i += digits;
    *m += put_utf8(out + *m, point);
    return true;
}

static struct dpe_span unescape(struct lexer *lexer, struct dpe_span in)
{
    static const char from[] = "\\'\"abfnrtv";
    static const char to[] = "\\'\"\a\b\f\n\r\t\v";
    char *out = dpe_template_alloc(&lexer->parse->made->arena, in.n + 1);
    size_t m = 0;
    for (size_t i = 0; i < in.n && out != NULL; i++) {
        if (in.s[i] != '\\' || i + 1 == in.n) {
            out[m++] = in.s[i];
            continue;
        }
        char c = in.s[++i];
        const char *known = c != '\0' ? strchr(from, c) : NULL;
        size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
        if (known != NULL) {
            out[m++] = to[known - from];
        } else if (digits > 0) {
            if (!unescape_hex(in.s, in.n, digits, &i, out, &m)) {
                dpe_template_refuse(lexer->parse, lexer->line, "a broken \\%c in a string", c);
                break;
            }
        } else if (c >= '0' && c <= '7') {
            uint32_t point = (uint32_t)(c - '0');
            for (int k = 0; k < 2 && i + 1 < in.n && in.s[i + 1] >= '0' && in.s[i + 1] <= '7';
                 k++) {
                point = point * 8 + (uint32_t)(in.s[++i] - '0');
            }
            m += put_utf8(out + m, point);
        } else if (c == 'N') {
            dpe_template_refuse(lexer->parse, lexer->line,
                                "\\N in a string is not supported; write \\x or \\u");
            break;
        } else if (c != '\n') {
            out[m++] = '\\';
            out[m++] = c;
        }
    }
    if (out == NULL) {
        dpe_template_refuse(lexer->parse, lexer->line, "out of memory");
        return (struct dpe_span){"", 0};
    }
    return (struct dpe_span){out, m};
}

static void string_token(struct lexer *lexer)
{
    char quote = lexer->s[lexer->at];
    size_t start = lexer->at + 1;
    size_t i = start;
    while (i < lexer->n && lexer->s[i] != quote) {
        i += lexer->s[i] == '\\' && i + 1 < lexer->n ? 2 : 1;
    }
    if (i >= lexer->n) {
        dpe_template_refuse(lexer->parse, lexer->line, "the string that begins here has no end");
        return;
    }
    add(lexer, TOKEN_STRING, unescape(lexer, (struct dpe_span){lexer->s + start, i - start}));
    lexer->at = i + 1;
}

/* ------------------------------------------------------------------------------------- the rest */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

/* 0x1f, 0o17 and 0b11, with '_' between digits, as decimal digits; false when none begins here. */
static bool based_token(struct lexer *lexer)
{
    const char *s = lexer->s + lexer->at;
    size_t n = lexer->n - lexer->at;
    char letter = n > 2 && s[0] == '0' ? (char)(s[1] | 0x20) : '0';
    int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    uint64_t value = 0;
    size_t i = 2;
    for (size_t at = i; base > 0 && at < n; i = ++at) {
        at += s[at] == '_' && at + 1 < n;
        int digit = hex_digit(s[at]);
        if (digit < 0 || digit >= base) {
            break;
        }
        if (__builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, digit, &value) || value > INT64_MAX) {
            dpe_template_refuse(lexer->parse, lexer->line, "a number is larger than 64 bits");
            return true;
        }
    }
    char *text = i > 2 && (i == n || !is_name(s[i]))
                     ? dpe_template_alloc(&lexer->parse->made->arena, 24)
                     : NULL;
    if (text == NULL) {
        return false;
    }
    int length = snprintf(text, 24, "%llu", (unsigned long long)value);
    add(lexer, TOKEN_INT, (struct dpe_span){text, (size_t)length});
    lexer->at += i;
    return true;
}

static void number_token(struct lexer *lexer)
{
    if (based_token(lexer)) {
        return;
    }
    const char *s = lexer->s;
    size_t i = lexer->at;
    bool real = false;
    while (i < lexer->n && is_digit(s[i])) {
        i++;
    }
    if (i + 1 < lexer->n && s[i] == '.' && is_digit(s[i + 1])) {
        real = true;
        for (i++; i < lexer->n && is_digit(s[i]); i++) {
        }
    }
    size_t e = i + 1;
    if (i < lexer->n && (s[i] == 'e' || s[i] == 'E')) {
        e += e < lexer->n && (s[e] == '+' || s[e] == '-');
        if (e < lexer->n && is_digit(s[e])) {
            real = true;
            for (i = e; i < lexer->n && is_digit(s[i]); i++) {
            }
        }
    }
    struct dpe_span text = {s + lexer->at, i - lexer->at};
    if ((i < lexer->n && is_name(s[i])) || (!real && text.n > 1 && text.s[0] == '0')) {
        dpe_template_refuse(lexer->parse, lexer->line,
                            "a number that begins with %.*s is not supported",
                            dpe_template_shown(text.n), text.s);
        return;
    }
    add(lexer, real ? TOKEN_FLOAT : TOKEN_INT, text);
    lexer->at = i;
}

/* Keeps what is open; false when a bracket closes nothing. */
static bool nest(struct lexer *lexer, char c)
{
    static const char opening[] = "([{";
    static const char closing[] = ")]}";
    const char *close = strchr(closing, c);
    if (strchr(opening, c) != NULL) {
        if (lexer->n_open == MAX_NESTING) {
            dpe_template_refuse(lexer->parse, lexer->line, "more than %d brackets are open",
                                MAX_NESTING);
            return false;
        }
        lexer->open[lexer->n_open++] = c;
    } else if (close != NULL) {
        if (lexer->n_open == 0 || lexer->open[lexer->n_open - 1] != opening[close - closing]) {
            dpe_template_refuse(lexer->parse, lexer->line, "unexpected '%c'", c);
            return false;
        }
        lexer->n_open--;
    }
    return true;
}

static void operator_token(struct lexer *lexer)
{
    static const char *const operators[] = {"//", "**", "==", "!=", "<=", ">=", "+", "-", "/",
                                            "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                            "<",  ">",  "=",  ".",  ":",  "|",  ",", NULL};
    struct dpe_span rest = {lexer->s + lexer->at, lexer->n - lexer->at};
    for (int i = 0; operators[i] != NULL; i++) {
        struct dpe_span operator= dpe_span_of(operators[i]);
        if (dpe_span_starts(rest, operator)) {
            if (operator.n> 1 || nest(lexer, operator.s[0])) {
                add(lexer, TOKEN_OPERATOR, operator);
            }
            lexer->at += operator.n;
            return;
        }
    }
    size_t n = 0;
    dpe_py_next(rest.s, rest.s + rest.n, &n);
    char shown[40];
    char piece[8] = "";
    memcpy(piece, rest.s, n < sizeof piece ? n : 1);
    dpe_template_refuse(lexer->parse, lexer->line, "unexpected '%s'",
                        dpe_printable(piece, shown, sizeof shown));
}

/* Whether the tag ends here: its sign, or 0, is in *sign. */
static bool at_end(struct lexer *lexer, bool block, char *sign, size_t *n)
{
    const char *s = lexer->s + lexer->at;
    size_t left = lexer->n - lexer->at;
    bool signs = left > 0 && (s[0] == '-' || (block && s[0] == '+'));
    *sign = signs ? s[0] : '\0';
    *n = signs ? 3 : 2;
    s += signs;
    left -= signs;
    return lexer->n_open == 0 && left >= 2 && s[0] == (block ? '%' : '}') && s[1] == '}';
}

/* The tokens of a tag up to its end. */
static void lex_tag(struct lexer *lexer, bool block)
{
    int begun = lexer->line;
    lexer->n_open = 0;
    while (lexer->parse->status == DPE_OK) {
        skip_space(lexer);
        line_at(lexer, lexer->at);
        char sign = '\0';
        size_t n = 0;
        if (lexer->at >= lexer->n) {
            dpe_template_refuse(lexer->parse, begun, "the tag that begins here has no end");
        } else if (at_end(lexer, block, &sign, &n)) {
            add(lexer, block ? TOKEN_BLOCK_END : TOKEN_PRINT_END, (struct dpe_span){"", 0});
            lexer->at += n;
            close_tag(lexer, sign, block);
            return;
        } else if (lexer->s[lexer->at] == '\'' || lexer->s[lexer->at] == '"') {
            string_token(lexer);
        } else if (is_digit(lexer->s[lexer->at])) {
            number_token(lexer);
        } else if (is_name(lexer->s[lexer->at])) {
            size_t start = lexer->at;
            while (lexer->at < lexer->n && is_name(lexer->s[lexer->at])) {
                lexer->at++;
            }
            add(lexer, TOKEN_NAME, (struct dpe_span){lexer->s + start, lexer->at - start});
        } else {
            operator_token(lexer);
        }
    }
}

/* A tag "{% word %}" at s; its signs and its length, 0 when it is another. */
static size_t word_tag(const char *s, const char *end, const char *word, char *before, char *behind)
{
    const char *at = s + 2;
    size_t n = strlen(word);
    *before = at < end && (*at == '-' || *at == '+') ? *at : '\0';
    at = after_space(at + (*before != '\0'), end);
    if ((size_t)(end - at) < n || memcmp(at, word, n) != 0) {
        return 0;
    }
    at = after_space(at + n, end);
    *behind = at < end && (*at == '-' || *at == '+') ? *at : '\0';
    at += *behind != '\0';
    return end - at >= 2 && at[0] == '%' && at[1] == '}' ? (size_t)(at + 2 - s) : 0;
}

/* {% raw %} … {% endraw %} at `at`: what stands between is text. False: no such tag. */
static bool lex_raw(struct lexer *lexer, size_t at)
{
    const char *end = lexer->s + lexer->n;
    char before = '\0';
    char behind = '\0';
    size_t n = word_tag(lexer->s + at, end, "raw", &before, &behind);
    if (n == 0 || behind == '+') {
        return false;
    }
    int line = line_at(lexer, at);
    lexer->at = at + n;
    lexer->line_start = false;
    if (behind == '-') {
        skip_space(lexer);
    }
    for (size_t i = lexer->at; i + 1 < lexer->n; i++) {
        bool tag = lexer->s[i] == '{' && lexer->s[i + 1] == '%';
        n = tag ? word_tag(lexer->s + i, end, "endraw", &before, &behind) : 0;
        if (n > 0) {
            add_data(lexer, i, before, true);
            lexer->at = i + n;
            close_tag(lexer, behind, true);
            return true;
        }
    }
    dpe_template_refuse(lexer->parse, line, "the raw block that begins here has no {%% endraw %%}");
    return true;
}

void dpe_template_lex(struct parse *parse, struct dpe_span source)
{
    struct lexer lexer = {
        .parse = parse, .s = source.s, .n = source.n, .line = 1, .line_start = true};
    while (parse->status == DPE_OK && lexer.at < lexer.n) {
        size_t i = lexer.at;
        while (i + 1 < lexer.n && !(lexer.s[i] == '{' && strchr("{%#", lexer.s[i + 1]) != NULL &&
                                    lexer.s[i + 1] != '\0')) {
            i++;
        }
        if (i + 1 >= lexer.n) {
            add(&lexer, TOKEN_DATA, (struct dpe_span){lexer.s + lexer.at, lexer.n - lexer.at});
            break;
        }
        char tag = lexer.s[i + 1];
        char sign = i + 2 < lexer.n ? lexer.s[i + 2] : '\0';
        bool signs = sign == '-' || sign == '+';
        add_data(&lexer, i, sign, tag != '{');
        lexer.at = i + 2 + signs;
        lexer.line_start = false;
        if (tag == '#') {
            skip_comment(&lexer);
        } else if (tag == '%' && lex_raw(&lexer, i)) {
            continue;
        } else {
            add(&lexer, tag == '%' ? TOKEN_BLOCK : TOKEN_PRINT, (struct dpe_span){"", 0});
            lex_tag(&lexer, tag == '%');
        }
    }
    line_at(&lexer, lexer.n);
    add(&lexer, TOKEN_END, (struct dpe_span){"", 0});
}
