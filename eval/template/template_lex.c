/* Templates into tokens, with the white space that trim_blocks and lstrip_blocks leave; what reads
 * them. */
#include "eval/template/template_parts.h"

#include <string.h>

#define DIGITS "0123456789"

struct lexer {
    struct parse *parse;
    const char *at, *end; /* a NUL ends the text */
    const char *counted;  /* newlines before it are in `line` */
    int line;
    bool line_start; /* what ended here ended in a newline */
    int open;        /* brackets */
};

static int line_at(struct lexer *lexer, const char *at)
{
    for (; lexer->counted < at; lexer->counted++) {
        lexer->line += *lexer->counted == '\n';
    }
    return lexer->line;
}

static void add(struct lexer *lexer, enum token_kind kind, struct dpe_span text)
{
    struct parse *parse = lexer->parse;
    if (!dpe_make_room(&parse->tokens, parse->n_tokens, sizeof *parse->tokens)) {
        dpe_template_no_memory(&parse->render);
    }
    parse->tokens[parse->n_tokens++] = (struct token){kind, lexer->line, text};
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
    lexer->at = after_space(lexer->at, lexer->end);
}

/* A tag's sign at a place, or '\0'. */
static char sign_at(const char *at)
{
    return *at == '-' || *at == '+' ? *at : '\0';
}

/* The text in front of a tag that begins at `end`: without the white space that its sign, or
 * lstrip_blocks, takes away. */
static void add_data(struct lexer *lexer, const char *end, char sign, bool block)
{
    const char *start = lexer->at;
    const char *stop = end;
    const char *line = end;
    while (line > start && line[-1] != '\n') {
        line--;
    }
    if (sign == '-') {
        struct dpe_span kept = dpe_py_strip((struct dpe_span){start, (size_t)(end - start)});
        stop = kept.n > 0 ? kept.s + kept.n : start;
    } else if (sign != '+' && block && (line > start || lexer->line_start)) {
        stop = after_space(line, end) == end ? line : end;
    }
    line_at(lexer, start);
    if (stop > start) {
        add(lexer, TOKEN_DATA, (struct dpe_span){start, (size_t)(stop - start)});
    }
    line_at(lexer, end);
}

/* After a closing tag: '-' takes the white space, a block's (unless '+') one newline. */
static void close_tag(struct lexer *lexer, char sign, bool block)
{
    const char *start = lexer->at;
    if (sign == '-') {
        skip_space(lexer);
    } else if (sign != '+' && block) {
        lexer->at += *lexer->at == '\n';
    }
    lexer->line_start = lexer->at > start && lexer->at[-1] == '\n';
}

static void skip_comment(struct lexer *lexer)
{
    int line = line_at(lexer, lexer->at);
    const char *end = strstr(lexer->at, "#}");
    if (end == NULL) {
        dpe_template_refuse(lexer->parse, line, "the comment that begins here has no end");
    }
    char sign = end > lexer->at ? sign_at(end - 1) : '\0';
    lexer->at = end + 2;
    close_tag(lexer, sign, true);
}

/* -------------------------------------------------------------------------------------- strings */

/* A character written as `digits` hexadecimal ones behind *s, which moves to the last of them; none
 * can be longer than it is. The bytes written, 0: it is broken. */
static size_t unescape_hex(const char **s, size_t digits, char *out)
{
    uint32_t point = 0;
    for (size_t k = 1; k <= digits; k++) {
        int digit = dpe_hex_digit((*s)[k]);
        if (digit < 0 || point > 0x10ffff) {
            return 0;
        }
        point = point * 16 + (uint32_t)digit;
    }
    if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) {
        return 0;
    }
    *s += digits;
    return dpe_utf8_put(point, out);
}

/* What stands between quotation marks. */
static struct dpe_span unescape(struct lexer *lexer, struct dpe_span in)
{
    static const char from[] = "\\'\"abfnrtv";
    static const char to[] = "\\'\"\a\b\f\n\r\t\v";
    char *out = dpe_template_get(&lexer->parse->render, in.n + 1);
    size_t m = 0;
    for (const char *s = in.s; s < in.s + in.n; s++) {
        if (*s != '\\') {
            out[m++] = *s;
            continue;
        }
        char c = *++s;
        const char *known = strchr(from, c);
        size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
        if (known != NULL) {
            out[m++] = to[known - from];
        } else if (digits > 0) {
            size_t n = unescape_hex(&s, digits, out + m);
            if (n == 0) {
                dpe_template_refuse(lexer->parse, lexer->line, "a broken \\%c in a string", c);
            }
            m += n;
        } else if (c >= '0' && c <= '7') {
            uint32_t point = (uint32_t)(c - '0');
            for (int k = 0; k < 2 && s[1] >= '0' && s[1] <= '7'; k++) {
                point = point * 8 + (uint32_t)(*++s - '0');
            }
            m += dpe_utf8_put(point, out + m);
        } else if (c == 'N') {
            dpe_template_refuse(lexer->parse, lexer->line,
                                "\\N in a string is not supported; write \\x or \\u");
        } else if (c != '\n') {
            out[m++] = '\\';
            out[m++] = c;
        }
    }
    return (struct dpe_span){out, m};
}

static void string_token(struct lexer *lexer)
{
    const char *start = lexer->at + 1;
    const char *at = start;
    while (*at != '\0' && *at != *lexer->at) {
        at += *at == '\\' && at[1] != '\0' ? 2 : 1;
    }
    if (*at == '\0') {
        dpe_template_refuse(lexer->parse, lexer->line, "the string that begins here has no end");
    }
    add(lexer, TOKEN_STRING, unescape(lexer, (struct dpe_span){start, (size_t)(at - start)}));
    lexer->at = at + 1;
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

static void number_token(struct lexer *lexer)
{
    const char *s = lexer->at;
    size_t n = strspn(s, DIGITS);
    bool real = s[n] == '.' && is_digit(s[n + 1]);
    n += real ? 1 + strspn(s + n + 1, DIGITS) : 0;
    if (s[n] == 'e' || s[n] == 'E') {
        size_t e = n + 1 + (sign_at(s + n + 1) != '\0');
        real = real || is_digit(s[e]);
        n = is_digit(s[e]) ? e + strspn(s + e, DIGITS) : n;
    }
    struct dpe_span text = {s, n};
    if (is_name(s[n]) || (!real && n > 1 && s[0] == '0')) {
        dpe_template_refuse(lexer->parse, lexer->line,
                            "a number that begins with %.*s is not supported", SHOWN(text));
    }
    add(lexer, real ? TOKEN_FLOAT : TOKEN_INT, text);
    lexer->at += n;
}

static void operator_token(struct lexer *lexer)
{
    static const char *const operators[] = {"//", "**", "==", "!=", "<=", ">=", "+", "-", "/",
                                            "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                            "<",  ">",  "=",  ".",  ":",  "|",  ",", NULL};
    for (int i = 0; operators[i] != NULL; i++) {
        struct dpe_span text = dpe_span_of(operators[i]);
        if (strncmp(lexer->at, text.s, text.n) == 0) {
            lexer->open += text.n == 1 && strchr("([{", *text.s) != NULL;
            lexer->open -= text.n == 1 && strchr(")]}", *text.s) != NULL && lexer->open > 0;
            add(lexer, TOKEN_SIGN, text);
            lexer->at += text.n;
            return;
        }
    }
    size_t n = 0;
    dpe_py_next(lexer->at, lexer->end, &n);
    char shown[40];
    char piece[8] = "";
    memcpy(piece, lexer->at, n < sizeof piece ? n : 1);
    dpe_template_refuse(lexer->parse, lexer->line, "unexpected '%s'",
                        dpe_printable(piece, shown, sizeof shown));
}

/* Bytes of the end of the tag where it stands here, else 0; *sign is its sign. */
static size_t end_length(const struct lexer *lexer, bool block, char *sign)
{
    const char *s = lexer->at;
    *sign = *s == '-' || block ? sign_at(s) : '\0';
    s += *sign != '\0';
    bool ends = lexer->open == 0 && s[0] == (block ? '%' : '}') && s[1] == '}';
    return ends ? (size_t)(s + 2 - lexer->at) : 0;
}

/* The tokens of a tag up to its end. */
static void lex_tag(struct lexer *lexer, bool block)
{
    int begun = lexer->line;
    lexer->open = 0;
    for (;;) {
        skip_space(lexer);
        line_at(lexer, lexer->at);
        char sign = '\0';
        size_t n = end_length(lexer, block, &sign);
        if (n > 0) {
            add(lexer, TOKEN_SIGN, dpe_span_of(block ? "%}" : "}}"));
            lexer->at += n;
            close_tag(lexer, sign, block);
            return;
        }
        if (*lexer->at == '\0') {
            dpe_template_refuse(lexer->parse, begun, "the tag that begins here has no end");
        } else if (*lexer->at == '\'' || *lexer->at == '"') {
            string_token(lexer);
        } else if (is_digit(*lexer->at)) {
            number_token(lexer);
        } else if (is_name(*lexer->at)) {
            const char *start = lexer->at;
            while (is_name(*lexer->at)) {
                lexer->at++;
            }
            add(lexer, TOKEN_NAME, (struct dpe_span){start, (size_t)(lexer->at - start)});
        } else {
            operator_token(lexer);
        }
    }
}

/* Behind a tag "{% word %}" at s, and its signs; NULL when it is another. */
static const char *word_tag(const struct lexer *lexer, const char *s, const char *word,
                            char *before, char *behind)
{
    *before = sign_at(s + 2);
    s = after_space(s + 2 + (*before != '\0'), lexer->end);
    if (strncmp(s, word, strlen(word)) != 0) {
        return NULL;
    }
    s = after_space(s + strlen(word), lexer->end);
    *behind = sign_at(s);
    s += *behind != '\0';
    return s[0] == '%' && s[1] == '}' ? s + 2 : NULL;
}

/* {% raw %} … {% endraw %} at `at`: what stands between is text. False: no such tag. */
static bool lex_raw(struct lexer *lexer, const char *at)
{
    char before = '\0';
    char behind = '\0';
    const char *start = word_tag(lexer, at, "raw", &before, &behind);
    if (start == NULL || behind == '+') {
        return false;
    }
    int line = line_at(lexer, at);
    lexer->at = start;
    lexer->line_start = false;
    if (behind == '-') {
        skip_space(lexer);
    }
    for (at = lexer->at; (at = strstr(at, "{%")) != NULL; at++) {
        const char *end = word_tag(lexer, at, "endraw", &before, &behind);
        if (end != NULL) {
            add_data(lexer, at, before, true);
            lexer->at = end;
            close_tag(lexer, behind, true);
            return true;
        }
    }
    dpe_template_refuse(lexer->parse, line, "the raw block that begins here has no {%% endraw %%}");
}

/* Where the next tag begins, or the end of the text. */
static const char *next_tag(const struct lexer *lexer)
{
    const char *at = lexer->at;
    while ((at = strchr(at, '{')) != NULL && at[1] != '{' && at[1] != '%' && at[1] != '#') {
        at++;
    }
    return at != NULL ? at : lexer->end;
}

/* A copy, which a NUL ends, whose lines end in \n, without the last line's end, as Jinja reads it.
 */
static struct dpe_span normal_lines(struct render *render, const char *source, size_t n)
{
    char *out = dpe_template_get(render, n + 1);
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        out[m++] = source[i] == '\r' ? '\n' : source[i];
        i += source[i] == '\r' && i + 1 < n && source[i + 1] == '\n';
    }
    m -= m > 0 && out[m - 1] == '\n';
    out[m] = '\0';
    return (struct dpe_span){out, m};
}

struct dpe_span dpe_template_lex(struct parse *parse, const char *source, size_t n)
{
    struct dpe_span lines = normal_lines(&parse->render, source, n);
    struct lexer lexer = {.parse = parse,
                          .at = lines.s,
                          .end = lines.s + lines.n,
                          .counted = lines.s,
                          .line = 1,
                          .line_start = true};
    while (lexer.at < lexer.end) {
        const char *at = next_tag(&lexer);
        if (at == lexer.end) {
            add(&lexer, TOKEN_DATA, (struct dpe_span){lexer.at, (size_t)(at - lexer.at)});
            break;
        }
        char sign = sign_at(at + 2);
        add_data(&lexer, at, sign, at[1] != '{');
        lexer.at = at + 2 + (sign != '\0');
        lexer.line_start = false;
        if (at[1] == '#') {
            skip_comment(&lexer);
        } else if (at[1] == '{' || !lex_raw(&lexer, at)) {
            add(&lexer, TOKEN_SIGN, (struct dpe_span){at, 2});
            lex_tag(&lexer, at[1] == '%');
        }
    }
    line_at(&lexer, lexer.end);
    add(&lexer, TOKEN_END, (struct dpe_span){"", 0});
    return lines;
}

bool dpe_template_spells(const struct dpe_template *parsed, const char *letters)
{
    const char *source = parsed->source.s;
    const char *at = strstr(source, letters);
    while (at != NULL && ((at > source && is_name(at[-1])) || is_name(at[strlen(letters)]))) {
        at = strstr(at + 1, letters);
    }
    return at != NULL;
}

/* ------------------------------------------------------------------------------- reading tokens */

struct node *dpe_template_node(struct parse *parse, runs *run)
{
    struct node *node = dpe_template_get(&parse->render, sizeof *node);
    node->run = run;
    node->line = dpe_template_token(parse)->line;
    return node;
}

const struct token *dpe_template_token(const struct parse *parse)
{
    return &parse->tokens[parse->at];
}

bool dpe_template_token_is(const struct token *token, const char *text)
{
    return (token->kind == TOKEN_NAME || token->kind == TOKEN_SIGN) &&
           dpe_span_equal(token->text, dpe_span_of(text));
}

bool dpe_template_is(const struct parse *parse, const char *text)
{
    return dpe_template_token_is(dpe_template_token(parse), text);
}

bool dpe_template_take(struct parse *parse, const char *text)
{
    bool is = dpe_template_is(parse, text);
    parse->at += is;
    return is;
}

void dpe_template_expected(struct parse *parse, const char *what)
{
    const struct token *token = dpe_template_token(parse);
    struct dpe_span found = token->kind == TOKEN_END      ? dpe_span_of("the end of the template")
                            : token->kind == TOKEN_DATA   ? dpe_span_of("text")
                            : token->kind == TOKEN_STRING ? dpe_span_of("a string")
                                                          : token->text;
    dpe_template_refuse(parse, token->line, "expected %s, found %.*s", what, SHOWN(found));
}

void dpe_template_expect(struct parse *parse, const char *text)
{
    if (!dpe_template_take(parse, text)) {
        dpe_template_expected(parse, text);
    }
}

struct dpe_span dpe_template_take_name(struct parse *parse)
{
    const struct token *token = dpe_template_token(parse);
    if (token->kind != TOKEN_NAME) {
        dpe_template_expected(parse, "a name");
    }
    parse->at++;
    return token->text;
}

void dpe_template_deeper(struct parse *parse, int line, int most, const char *what)
{
    if (++parse->depth > most) {
        dpe_template_refuse(parse, line, "%s nested more than %d deep", what, most);
    }
}
