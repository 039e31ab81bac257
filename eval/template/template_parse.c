/* Statements of templates. */
#include "eval/template/template_parts.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SOURCE = 1 << 20, MAX_BLOCKS = 60, PARSE_MEMORY = 1 << 28 };

struct node *dpe_template_node(struct parse *parse, enum node_kind kind, int line)
{
    struct node *node = parse->status == DPE_OK
                            ? dpe_template_alloc(&parse->made->arena, sizeof *node)
                            : &parse->spare;
    if (node == NULL) {
        parse->status = dpe_fail(parse->err, DPE_NO_MEMORY, "%s: out of memory", parse->where);
        node = &parse->spare;
    }
    node->kind = kind;
    node->line = line;
    return node;
}

const struct token *dpe_template_token(const struct parse *parse)
{
    /* A parser that has failed may go on for a step. */
    size_t last = parse->n_tokens - 1;
    return parse->tokens + (parse->at < last ? parse->at : last);
}

bool dpe_template_is(const struct parse *parse, enum token_kind kind, const char *text)
{
    const struct token *token = dpe_template_token(parse);
    return token->kind == kind && (text == NULL || dpe_span_equal(token->text, dpe_span_of(text)));
}

bool dpe_template_take(struct parse *parse, enum token_kind kind, const char *text)
{
    bool is = parse->status == DPE_OK && dpe_template_is(parse, kind, text);
    parse->at += is;
    return is;
}

static const char *token_name(enum token_kind kind)
{
    static const char *const names[] = {
        [TOKEN_END] = "the end of the template",
        [TOKEN_DATA] = "text",
        [TOKEN_PRINT] = "text",
        [TOKEN_PRINT_END] = "}}",
        [TOKEN_BLOCK] = "text",
        [TOKEN_BLOCK_END] = "%}",
        [TOKEN_NAME] = "a name",
        [TOKEN_STRING] = "a string",
        [TOKEN_INT] = "a token",
        [TOKEN_FLOAT] = "a token",
        [TOKEN_OPERATOR] = "a token",
    };
    return names[kind];
}

void dpe_template_expect(struct parse *parse, enum token_kind kind, const char *text)
{
    if (parse->status != DPE_OK || dpe_template_take(parse, kind, text)) {
        return;
    }
    const struct token *token = dpe_template_token(parse);
    bool show = token->kind == TOKEN_NAME || token->kind == TOKEN_OPERATOR ||
                token->kind == TOKEN_INT || token->kind == TOKEN_FLOAT;
    struct dpe_span found = show ? token->text : dpe_span_of(token_name(token->kind));
    dpe_template_refuse(parse, token->line, "expected %s, found %.*s",
                        text != NULL ? text : token_name(kind), SHOWN(found));
}

struct dpe_span dpe_template_take_name(struct parse *parse)
{
    struct dpe_span name = dpe_template_token(parse)->text;
    dpe_template_expect(parse, TOKEN_NAME, NULL);
    return name;
}

/* --------------------------------------------------------------------------------------- bodies */

static struct node *statement(struct parse *parse);

/* Whether a tag with one of these words stands here. */
static bool at_word(const struct parse *parse, const char *const *words)
{
    if (dpe_template_token(parse)->kind != TOKEN_BLOCK) {
        return false;
    }
    const struct token *token = dpe_template_token(parse) + 1;
    for (; *words != NULL; words++) {
        if (token->kind == TOKEN_NAME && dpe_span_equal(token->text, dpe_span_of(*words))) {
            return true;
        }
    }
    return false;
}

/* Nodes up to a tag with one of these words, which is not taken; `line` is where the block began.
 */
static struct node *body(struct parse *parse, const char *const *words, int line)
{
    struct node *first = NULL;
    struct node **end = &first;
    if (parse->status == DPE_OK && ++parse->depth > MAX_BLOCKS) {
        return dpe_template_refuse(parse, line, "blocks are nested more than %d deep", MAX_BLOCKS);
    }
    while (parse->status == DPE_OK && !at_word(parse, words)) {
        const struct token *token = dpe_template_token(parse);
        struct node *node = NULL;
        if (token->kind == TOKEN_END) {
            if (words[0] == NULL) {
                break;
            }
            return dpe_template_refuse(parse, line, "the block that begins here has no {%% %s %%}",
                                       words[0]);
        }
        if (token->kind == TOKEN_DATA) {
            node = dpe_template_node(parse, NODE_DATA, token->line);
            node->name = token->text;
            parse->at++;
        } else if (dpe_template_take(parse, TOKEN_PRINT, NULL)) {
            node = dpe_template_node(parse, NODE_PRINT, token->line);
            node->a = dpe_template_tuple(parse, true);
            dpe_template_expect(parse, TOKEN_PRINT_END, NULL);
        } else {
            dpe_template_expect(parse, TOKEN_BLOCK, NULL);
            node = statement(parse);
        }
        *end = node;
        end = &node->next;
    }
    parse->depth--;
    return first;
}

static bool take_word(struct parse *parse, const char *word)
{
    return dpe_template_take(parse, TOKEN_NAME, word);
}

static void end_tag(struct parse *parse)
{
    dpe_template_expect(parse, TOKEN_BLOCK_END, NULL);
}

/* The end of a block's tag, its body, and the tag {% word %} that ends it. */
static void block(struct parse *parse, struct node *node, const char *word)
{
    const char *const words[] = {word, NULL};
    end_tag(parse);
    node->body = body(parse, words, node->line);
    dpe_template_expect(parse, TOKEN_BLOCK, NULL);
    dpe_template_expect(parse, TOKEN_NAME, word);
    end_tag(parse);
}

/* ----------------------------------------------------------------------------------- statements */

static void parse_if(struct parse *parse, struct node *node)
{
    static const char *const words[] = {"endif", "elif", "else", NULL};
    static const char *const after_else[] = {"endif", NULL};
    struct node **end = &node->list;
    bool last = false;
    parse->soft++;
    while (parse->status == DPE_OK) {
        struct node *branch = dpe_template_node(parse, NODE_BRANCH, node->line);
        branch->a = last ? NULL : dpe_template_tuple(parse, false);
        end_tag(parse);
        branch->body = body(parse, last ? after_else : words, node->line);
        *end = branch;
        end = &branch->next;
        dpe_template_expect(parse, TOKEN_BLOCK, NULL);
        if (take_word(parse, "endif")) {
            break;
        }
        last = dpe_template_is(parse, TOKEN_NAME, "else");
        parse->at++;
    }
    parse->soft--;
    end_tag(parse);
}

static struct node *targets(struct parse *parse, bool members);

/* A name, a namespace's member where `members`, or targets in brackets. */
static struct node *target(struct parse *parse, bool members)
{
    const struct token *token = dpe_template_token(parse);
    if (dpe_template_take(parse, TOKEN_OPERATOR, "(")) {
        if (++parse->depth > MAX_BLOCKS) {
            return dpe_template_refuse(parse, token->line, "targets are nested too deep");
        }
        struct node *inner = targets(parse, false);
        parse->depth--;
        dpe_template_expect(parse, TOKEN_OPERATOR, ")");
        return inner;
    }
    struct node *node = dpe_template_node(parse, NODE_NAME, token->line);
    node->name = dpe_template_take_name(parse);
    if (members && dpe_template_take(parse, TOKEN_OPERATOR, ".")) {
        node->member = dpe_template_take_name(parse);
    }
    return node;
}

/* One target, or a tuple of several with commas between them. */
static struct node *targets(struct parse *parse, bool members)
{
    struct node *first = target(parse, members);
    if (!dpe_template_is(parse, TOKEN_OPERATOR, ",")) {
        return first;
    }
    struct node *tuple = dpe_template_node(parse, NODE_TUPLE, first->line);
    tuple->list = first;
    struct node **end = &first->next;
    while (dpe_template_take(parse, TOKEN_OPERATOR, ",")) {
        const struct token *token = dpe_template_token(parse);
        if (token->kind != TOKEN_NAME && !dpe_template_is(parse, TOKEN_OPERATOR, "(")) {
            break;
        }
        *end = target(parse, members);
        end = &(*end)->next;
    }
    return tuple;
}

static void parse_for(struct parse *parse, struct node *node)
{
    static const char *const words[] = {"endfor", "else", NULL};
    static const char *const after_else[] = {"endfor", NULL};
    node->c = targets(parse, false);
    dpe_template_expect(parse, TOKEN_NAME, "in");
    node->a = dpe_template_tuple(parse, false);
    if (take_word(parse, "if")) {
        node->b = dpe_template_expression(parse);
    }
    node->recursive = take_word(parse, "recursive");
    end_tag(parse);
    parse->in_loop++;
    node->body = body(parse, words, node->line);
    parse->in_loop--;
    dpe_template_expect(parse, TOKEN_BLOCK, NULL);
    if (take_word(parse, "else")) {
        end_tag(parse);
        node->other = body(parse, after_else, node->line);
        dpe_template_expect(parse, TOKEN_BLOCK, NULL);
    }
    dpe_template_expect(parse, TOKEN_NAME, "endfor");
    end_tag(parse);
}

static void parse_set(struct parse *parse, struct node *node)
{
    node->c = targets(parse, true);
    if (dpe_template_take(parse, TOKEN_OPERATOR, "=")) {
        node->a = dpe_template_tuple(parse, true);
        end_tag(parse);
        return;
    }
    if (parse->status == DPE_OK && node->c->kind == NODE_TUPLE) {
        dpe_template_refuse(parse, node->line, "a set block for several names is not supported");
    }
    node->b = dpe_template_filters(parse, NULL);
    block(parse, node, "endset");
}

/* The parameters of a macro behind "(", up to ")". */
static void parameters(struct parse *parse, struct node *node)
{
    struct node **end = &node->list;
    while (parse->status == DPE_OK && !dpe_template_is(parse, TOKEN_OPERATOR, ")")) {
        struct node *parameter =
            dpe_template_node(parse, NODE_NAME, dpe_template_token(parse)->line);
        parameter->name = dpe_template_take_name(parse);
        if (dpe_template_take(parse, TOKEN_OPERATOR, "=")) {
            parameter->a = dpe_template_expression(parse);
        }
        *end = parameter;
        end = &parameter->next;
        if (!dpe_template_take(parse, TOKEN_OPERATOR, ",")) {
            break;
        }
    }
    dpe_template_expect(parse, TOKEN_OPERATOR, ")");
}

/* What a macro does, up to its {% word %}: no loop around it is its own. */
static void macro_body(struct parse *parse, struct node *node, const char *word)
{
    int in_loop = parse->in_loop;
    unsigned reads = parse->reads;
    parse->in_loop = 0;
    parse->reads = 0;
    block(parse, node, word);
    node->reads = parse->reads;
    parse->reads |= reads;
    parse->in_loop = in_loop;
}

static void parse_macro(struct parse *parse, struct node *node)
{
    node->name = dpe_template_take_name(parse);
    dpe_template_expect(parse, TOKEN_OPERATOR, "(");
    parameters(parse, node);
    macro_body(parse, node, "endmacro");
}

/* {% call(parameters) f(arguments) %} */
static void parse_call(struct parse *parse, struct node *node)
{
    node->name = dpe_span_of("caller");
    if (dpe_template_take(parse, TOKEN_OPERATOR, "(")) {
        parameters(parse, node);
    }
    node->a = dpe_template_unary(parse, true);
    if (parse->status == DPE_OK && node->a->kind != NODE_CALL) {
        dpe_template_refuse(parse, node->line, "expected a call after {%% call %%}");
    }
    macro_body(parse, node, "endcall");
}

static void parse_with(struct parse *parse, struct node *node)
{
    struct node **end = &node->list;
    while (parse->status == DPE_OK && dpe_template_token(parse)->kind != TOKEN_BLOCK_END) {
        if (end != &node->list) {
            dpe_template_expect(parse, TOKEN_OPERATOR, ",");
        }
        struct node *holder = dpe_template_node(parse, NODE_SET, node->line);
        holder->c = target(parse, false);
        dpe_template_expect(parse, TOKEN_OPERATOR, "=");
        holder->a = dpe_template_expression(parse);
        *end = holder;
        end = &holder->next;
    }
    block(parse, node, "endwith");
}

static void parse_filter(struct parse *parse, struct node *node)
{
    node->b = dpe_template_filter_block(parse);
    block(parse, node, "endfilter");
}

static void parse_generation(struct parse *parse, struct node *node)
{
    block(parse, node, "endgeneration");
}

static void parse_jump(struct parse *parse, struct node *node)
{
    if (parse->in_loop == 0) {
        dpe_template_refuse(parse, node->line, "{%% %s %%} stands outside of a loop",
                            node->kind == NODE_BREAK ? "break" : "continue");
    }
    end_tag(parse);
}

static struct node *statement(struct parse *parse)
{
    static const struct {
        const char *word;
        enum node_kind kind;
        void (*parse)(struct parse *parse, struct node *node);
    } kinds[] = {
        {"if", NODE_IF, parse_if},
        {"for", NODE_FOR, parse_for},
        {"set", NODE_SET, parse_set},
        {"macro", NODE_MACRO, parse_macro},
        {"call", NODE_CALLER, parse_call},
        {"with", NODE_WITH, parse_with},
        {"filter", NODE_SCOPE, parse_filter},
        {"break", NODE_BREAK, parse_jump},
        {"continue", NODE_CONTINUE, parse_jump},
        {"generation", NODE_SCOPE, parse_generation},
    };
    const struct token *token = dpe_template_token(parse);
    dpe_template_expect(parse, TOKEN_NAME, NULL);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && parse->status == DPE_OK; i++) {
        if (dpe_span_equal(token->text, dpe_span_of(kinds[i].word))) {
            struct node *node = dpe_template_node(parse, kinds[i].kind, token->line);
            kinds[i].parse(parse, node);
            return node;
        }
    }
    return dpe_template_refuse(parse, token->line, "{%% %.*s %%} is not supported here",
                               SHOWN(token->text));
}

/* ----------------------------------------------------------------------------------- the whole */

/* A copy, which a NUL ends, whose lines end in \n, without the last line's end, as Jinja reads it.
 * `s` NULL: no memory. */
static struct dpe_span normal_lines(struct arena *arena, const char *source, size_t n)
{
    char *out = dpe_template_alloc(arena, n + 1);
    size_t m = 0;
    for (size_t i = 0; i < n && out != NULL; i++) {
        out[m++] = source[i] == '\r' ? '\n' : source[i];
        i += source[i] == '\r' && i + 1 < n && source[i + 1] == '\n';
    }
    m -= m > 0 && out[m - 1] == '\n';
    if (out != NULL) {
        out[m] = '\0';
    }
    return (struct dpe_span){out, m};
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool dpe_template_spells(const struct dpe_template *parsed, const char *word)
{
    const char *source = parsed->source.s;
    const char *at = strstr(source, word);
    while (at != NULL && ((at > source && is_letter(at[-1])) || is_letter(at[strlen(word)]))) {
        at = strstr(at + 1, word);
    }
    return at != NULL;
}

dpe_status dpe_template_parse(const char *where, const char *source, size_t n,
                              struct dpe_template **parsed, struct dpe_error *err)
{
    static const char *const nothing[] = {NULL};
    struct dpe_error own = {0};
    err = err != NULL ? err : &own;
    if (n > MAX_SOURCE) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected a template of at most %d bytes, found %zu",
                        where, MAX_SOURCE, n);
    }
    size_t good = dpe_utf8_check(source, n);
    if (good != n || memchr(source, '\0', n) != NULL) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected UTF-8 without NUL, found other bytes",
                        where);
    }
    DPE_SCOPED(dpe_template_free_scoped) struct dpe_template *made = NULL;
    DPE_TRY(DPE_NEW(&made, 1, err, "%s: out of memory", where));
    made->arena.most = PARSE_MEMORY;
    char *name = dpe_template_alloc(&made->arena, strlen(where) + 1);
    made->source = normal_lines(&made->arena, source, n);
    DPE_TRY(DPE_MADE(name, err, "%s: out of memory", where));
    DPE_TRY(DPE_MADE(made->source.s, err, "%s: out of memory", where));
    made->where = memcpy(name, where, strlen(where) + 1);
    struct parse parse = {.made = made, .where = where, .err = err};
    dpe_template_lex(&parse, made->source);
    if (parse.status == DPE_OK) {
        made->body = body(&parse, nothing, 1);
    }
    free(parse.tokens);
    DPE_TRY(parse.status);
    *parsed = made;
    made = NULL;
    return DPE_OK;
}

void dpe_template_free(struct dpe_template *parsed)
{
    if (parsed != NULL) {
        dpe_template_release(&parsed->arena);
        free(parsed);
    }
}
