/* Expressions of templates, by descent, with the precedences of Jinja. */
#include "eval/template/template_parts.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 200 };

static bool is_operator(const struct parse *parse, const char *text)
{
    return dpe_template_is(parse, TOKEN_OPERATOR, text);
}

static bool take_operator(struct parse *parse, const char *text)
{
    return dpe_template_take(parse, TOKEN_OPERATOR, text);
}

static bool take_name(struct parse *parse, const char *text)
{
    return dpe_template_take(parse, TOKEN_NAME, text);
}

static bool deeper(struct parse *parse)
{
    if (++parse->depth > MAX_DEPTH) {
        dpe_template_refuse(parse, dpe_template_token(parse)->line,
                            "an expression is nested more than %d deep", MAX_DEPTH);
    }
    return parse->status == DPE_OK;
}

static struct node *binary(struct parse *parse, enum node_kind kind, enum op op, struct node *a,
                           struct node *b)
{
    struct node *node = dpe_template_node(parse, kind, a->line);
    node->op = op;
    node->a = a;
    node->b = b;
    return node;
}

/* ------------------------------------------------------------------------------------ primaries */

/* Items up to `close`, with commas between and perhaps after them. */
static void items(struct parse *parse, struct node *node, const char *close, bool pairs)
{
    struct node **end = &node->list;
    while (parse->status == DPE_OK && !is_operator(parse, close)) {
        for (int i = 0; i < 1 + pairs && parse->status == DPE_OK; i++) {
            *end = dpe_template_expression(parse);
            end = &(*end)->next;
            if (pairs && i == 0) {
                dpe_template_expect(parse, TOKEN_OPERATOR, ":");
            }
        }
        if (!take_operator(parse, ",")) {
            break;
        }
    }
    dpe_template_expect(parse, TOKEN_OPERATOR, close);
}

static void constant(struct parse *parse, struct node *node)
{
    const struct token *token = dpe_template_token(parse);
    char text[64];
    if (token->text.n >= sizeof text) {
        dpe_template_refuse(parse, token->line, "a number of %zu digits is not supported",
                            token->text.n);
        return;
    }
    memcpy(text, token->text.s, token->text.n);
    text[token->text.n] = '\0';
    int64_t integer = 0;
    if (token->kind == TOKEN_FLOAT) {
        node->value = dpe_template_float(strtod(text, NULL));
    } else if (dpe_parse_int(text, 0, INT64_MAX, &integer)) {
        node->value = dpe_template_int(integer);
    } else {
        node->value = (struct value){.kind = KIND_DIGITS, .text = token->text};
    }
    parse->at++;
}

/* Strings that stand next to each other are one. */
static void string(struct parse *parse, struct node *node)
{
    struct dpe_span all = {"", 0};
    while (dpe_template_token(parse)->kind == TOKEN_STRING && parse->status == DPE_OK) {
        struct dpe_span piece = dpe_template_token(parse)->text;
        char *joined = dpe_template_alloc(&parse->made->arena, all.n + piece.n + 1);
        if (joined == NULL) {
            dpe_template_refuse(parse, dpe_template_token(parse)->line, "out of memory");
            break;
        }
        memcpy(joined, all.s, all.n);
        memcpy(joined + all.n, piece.s, piece.n);
        all = (struct dpe_span){joined, all.n + piece.n};
        parse->at++;
    }
    node->value = dpe_template_string(all);
}

static void name(struct parse *parse, struct node *node)
{
    static const struct {
        const char *word;
        int truth; /* −1: none */
    } words[] = {{"true", 1}, {"True", 1}, {"false", 0}, {"False", 0}, {"none", -1}, {"None", -1}};
    static const char *const special[] = {"caller", "varargs", "kwargs"}; /* READS_… */
    node->name = dpe_template_token(parse)->text;
    for (unsigned i = 0; i < 3; i++) {
        parse->reads |= dpe_span_equal(node->name, dpe_span_of(special[i])) ? 1U << i : 0;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (take_name(parse, words[i].word)) {
            node->kind = NODE_CONST;
            node->value =
                words[i].truth < 0 ? dpe_template_none() : dpe_template_bool(words[i].truth == 1);
            return;
        }
    }
    node->kind = NODE_NAME;
    parse->at++;
}

static struct node *primary(struct parse *parse)
{
    const struct token *token = dpe_template_token(parse);
    struct node *node = dpe_template_node(parse, NODE_CONST, token->line);
    if (token->kind == TOKEN_NAME) {
        name(parse, node);
    } else if (token->kind == TOKEN_STRING) {
        string(parse, node);
    } else if (token->kind == TOKEN_INT || token->kind == TOKEN_FLOAT) {
        constant(parse, node);
    } else if (take_operator(parse, "(")) {
        if (take_operator(parse, ")")) {
            node->kind = NODE_TUPLE;
            return node;
        }
        node = dpe_template_tuple(parse, true);
        dpe_template_expect(parse, TOKEN_OPERATOR, ")");
    } else if (take_operator(parse, "[")) {
        node->kind = NODE_LIST;
        items(parse, node, "]", false);
    } else if (take_operator(parse, "{")) {
        node->kind = NODE_DICT;
        items(parse, node, "}", true);
    } else {
        dpe_template_refuse(parse, token->line, "expected an expression, found %s%.*s%s",
                            token->text.n > 0 ? "'" : "", SHOWN(token->text),
                            token->text.n > 0 ? "'" : "the end of the tag");
    }
    return node;
}

/* ------------------------------------------------------------------- members, calls and filters */

/* Arguments after "(", up to ")", as node->list. */
static void arguments(struct parse *parse, struct node *node)
{
    struct node **end = &node->list;
    bool named = false;
    while (parse->status == DPE_OK && !is_operator(parse, ")")) {
        const struct token *token = dpe_template_token(parse);
        bool stars = take_operator(parse, "**");
        bool star = !stars && take_operator(parse, "*");
        bool keyword = token->kind == TOKEN_NAME && token[1].kind == TOKEN_OPERATOR &&
                       dpe_span_equal(token[1].text, dpe_span_of("="));
        parse->at += keyword ? 2 : 0;
        if (named && !keyword && !star && !stars) {
            dpe_template_refuse(parse, token->line,
                                "an argument without a name follows named ones");
            return;
        }
        named = named || keyword || stars;
        *end = dpe_template_expression(parse);
        if (keyword) {
            (*end)->keyword = token->text;
        } else if (star || stars) {
            *end = binary(parse, stars ? NODE_STARS : NODE_STAR, 0, *end, NULL);
        }
        end = &(*end)->next;
        if (!take_operator(parse, ",")) {
            break;
        }
    }
    dpe_template_expect(parse, TOKEN_OPERATOR, ")");
}

static struct node *call(struct parse *parse, struct node *callee)
{
    struct node *node = binary(parse, NODE_CALL, 0, callee, NULL);
    parse->at++;
    if (deeper(parse)) {
        arguments(parse, node);
        parse->depth--;
    }
    return node;
}

/* What stands between [ and ]: an index, or start:stop:step. */
static struct node *subscript(struct parse *parse)
{
    struct node *node = dpe_template_node(parse, NODE_SLICE, dpe_template_token(parse)->line);
    struct node **parts[] = {&node->a, &node->b, &node->c};
    int i = 0;
    for (; i < 3 && parse->status == DPE_OK; i++) {
        if (!is_operator(parse, ":") && !is_operator(parse, "]")) {
            *parts[i] = dpe_template_expression(parse);
        }
        if (i == 2 || !take_operator(parse, ":")) {
            break;
        }
    }
    if (i == 0 && node->a == NULL) {
        dpe_template_refuse(parse, node->line, "expected an index between [ and ]");
    }
    if (is_operator(parse, ",")) {
        dpe_template_refuse(parse, node->line, "an index of several values is not supported");
    }
    return i == 0 ? node->a : node;
}

static struct node *postfix(struct parse *parse, struct node *node)
{
    while (parse->status == DPE_OK) {
        if (take_operator(parse, ".")) {
            const struct token *token = dpe_template_token(parse);
            if (token->kind == TOKEN_INT) {
                struct node *key = dpe_template_node(parse, NODE_CONST, token->line);
                constant(parse, key);
                node = binary(parse, NODE_ITEM, 0, node, key);
            } else {
                node = binary(parse, NODE_MEMBER, 0, node, NULL);
                node->name = dpe_template_take_name(parse);
            }
        } else if (is_operator(parse, "[") && deeper(parse)) {
            parse->at++;
            node = binary(parse, NODE_ITEM, 0, node, subscript(parse));
            dpe_template_expect(parse, TOKEN_OPERATOR, "]");
            parse->depth--;
        } else if (is_operator(parse, "(")) {
            node = call(parse, node);
        } else {
            break;
        }
    }
    return node;
}

/* The filter or test whose name stands here. "map", "select" and their like name another one; a
 * wrong one is found when they run. */
static struct node *applied(struct parse *parse, enum node_kind kind, struct node *to)
{
    bool filter = kind == NODE_FILTER;
    struct node *node = dpe_template_node(parse, kind, dpe_template_token(parse)->line);
    node->a = to;
    node->name = dpe_template_take_name(parse);
    node->known = filter ? dpe_template_find_filter(node->name)
                         : dpe_template_find(dpe_template_tests, node->name);
    return (node->known == NULL && parse->soft == 0) || is_operator(parse, ".")
               ? dpe_template_refuse(parse, node->line, "the %s '%.*s' is not supported",
                                     filter ? "filter" : "test", SHOWN(node->name))
               : node;
}

static struct node *filter(struct parse *parse, struct node *inner)
{
    struct node *node = applied(parse, NODE_FILTER, inner);
    if (take_operator(parse, "(") && deeper(parse)) {
        arguments(parse, node);
        parse->depth--;
    }
    return node;
}

struct node *dpe_template_filters(struct parse *parse, struct node *inner)
{
    while (take_operator(parse, "|")) {
        inner = filter(parse, inner);
    }
    return inner;
}

struct node *dpe_template_filter_block(struct parse *parse)
{
    return dpe_template_filters(parse, filter(parse, NULL));
}

/* "x is test argument": an argument without brackets is one primary. */
static void test_argument(struct parse *parse, struct node *node)
{
    static const char *const ends[] = {"else", "or", "and", "is", NULL};
    const struct token *token = dpe_template_token(parse);
    bool begins = token->kind == TOKEN_NAME || token->kind == TOKEN_STRING ||
                  token->kind == TOKEN_INT || token->kind == TOKEN_FLOAT ||
                  is_operator(parse, "[") || is_operator(parse, "{");
    for (int i = 0; ends[i] != NULL; i++) {
        begins = begins && !dpe_template_is(parse, TOKEN_NAME, ends[i]);
    }
    if (take_operator(parse, "(")) {
        arguments(parse, node);
    } else if (begins) {
        node->list = postfix(parse, primary(parse));
    }
}

static struct node *test(struct parse *parse, struct node *of)
{
    bool negated = take_name(parse, "not");
    struct node *node = applied(parse, NODE_TEST, of);
    test_argument(parse, node);
    return negated ? binary(parse, NODE_NOT, 0, node, NULL) : node;
}

static struct node *filters(struct parse *parse, struct node *node)
{
    while (parse->status == DPE_OK) {
        if (is_operator(parse, "|")) {
            node = dpe_template_filters(parse, node);
        } else if (take_name(parse, "is")) {
            node = test(parse, node);
        } else if (is_operator(parse, "(")) {
            node = call(parse, node);
        } else {
            break;
        }
    }
    return node;
}

/* ------------------------------------------------------------------------------------ operators */

struct node *dpe_template_unary(struct parse *parse, bool with_filters)
{
    struct node *node = &parse->spare;
    if (!deeper(parse)) {
        return node;
    }
    bool minus = is_operator(parse, "-");
    if (minus || is_operator(parse, "+")) {
        int line = dpe_template_token(parse)->line;
        parse->at++;
        node = binary(parse, minus ? NODE_MINUS : NODE_PLUS, 0, dpe_template_unary(parse, false),
                      NULL);
        node->line = line;
    } else {
        node = primary(parse);
    }
    node = postfix(parse, node);
    if (with_filters) {
        node = filters(parse, node);
    }
    parse->depth--;
    return node;
}

/* What binds tighter comes later. */
enum level {
    LEVEL_OR,
    LEVEL_AND,
    LEVEL_NOT,
    LEVEL_COMPARE,
    LEVEL_SUM,
    LEVEL_CONCAT,
    LEVEL_PRODUCT,
    LEVEL_POWER,
    LEVEL_UNARY,
};

/* What stands between two operands. */
static const struct between {
    const char *text;
    enum level level;
    enum node_kind kind;
    enum op op;
} betweens[] = {
    {"or", LEVEL_OR, NODE_OR, 0},
    {"and", LEVEL_AND, NODE_AND, 0},
    {"==", LEVEL_COMPARE, NODE_COMPARE, OP_EQUAL},
    {"!=", LEVEL_COMPARE, NODE_COMPARE, OP_UNEQUAL},
    {"<", LEVEL_COMPARE, NODE_COMPARE, OP_LESS},
    {"<=", LEVEL_COMPARE, NODE_COMPARE, OP_LESS_EQUAL},
    {">", LEVEL_COMPARE, NODE_COMPARE, OP_GREATER},
    {">=", LEVEL_COMPARE, NODE_COMPARE, OP_GREATER_EQUAL},
    {"in", LEVEL_COMPARE, NODE_COMPARE, OP_IN},
    {"+", LEVEL_SUM, NODE_BINARY, OP_ADD},
    {"-", LEVEL_SUM, NODE_BINARY, OP_SUBTRACT},
    {"*", LEVEL_PRODUCT, NODE_BINARY, OP_MULTIPLY},
    {"/", LEVEL_PRODUCT, NODE_BINARY, OP_DIVIDE},
    {"//", LEVEL_PRODUCT, NODE_BINARY, OP_FLOOR},
    {"%", LEVEL_PRODUCT, NODE_BINARY, OP_MODULO},
    {"**", LEVEL_POWER, NODE_BINARY, OP_POWER},
};

/* One of a level, which is taken; NULL: none stands here. */
static const struct between *take_between(struct parse *parse, enum level level)
{
    for (size_t i = 0; i < sizeof betweens / sizeof betweens[0]; i++) {
        const struct between *one = &betweens[i];
        if (one->level == level &&
            (take_operator(parse, one->text) || take_name(parse, one->text))) {
            return one;
        }
    }
    return NULL;
}

static struct node *operand(struct parse *parse, enum level level);

static struct node *concat(struct parse *parse)
{
    struct node *first = operand(parse, LEVEL_PRODUCT);
    if (parse->status != DPE_OK || !is_operator(parse, "~")) {
        return first;
    }
    struct node *node = dpe_template_node(parse, NODE_CONCAT, first->line);
    node->list = first;
    struct node **end = &first->next;
    while (take_operator(parse, "~")) {
        *end = operand(parse, LEVEL_PRODUCT);
        end = &(*end)->next;
    }
    return node;
}

static struct node *compare(struct parse *parse)
{
    struct node *first = operand(parse, LEVEL_SUM);
    struct node *node = NULL;
    struct node **end = NULL;
    for (;;) {
        const struct token *token = dpe_template_token(parse);
        bool not_in = dpe_template_is(parse, TOKEN_NAME, "not") && token[1].kind == TOKEN_NAME &&
                      dpe_span_equal(token[1].text, dpe_span_of("in"));
        parse->at += not_in;
        const struct between *between = take_between(parse, LEVEL_COMPARE);
        if (between == NULL) {
            return node != NULL ? node : first;
        }
        if (node == NULL) {
            node = binary(parse, NODE_COMPARE, 0, first, NULL);
            end = &node->list;
        }
        /* A node of its own: the operand may be any expression, which has its own operator. */
        *end = binary(parse, NODE_COMPARE, not_in ? OP_NOT_IN : between->op,
                      operand(parse, LEVEL_SUM), NULL);
        end = &(*end)->next;
    }
}

static struct node *negation(struct parse *parse)
{
    if (!dpe_template_is(parse, TOKEN_NAME, "not")) {
        return compare(parse);
    }
    int line = dpe_template_token(parse)->line;
    parse->at++;
    struct node *node = dpe_template_node(parse, NODE_NOT, line);
    if (deeper(parse)) {
        node->a = negation(parse);
        parse->depth--;
    }
    return node;
}

/* What a level's operators stand between, and those: most levels take them from the left. */
static struct node *operand(struct parse *parse, enum level level)
{
    switch (level) {
    case LEVEL_NOT:
        return negation(parse);
    case LEVEL_COMPARE:
        return compare(parse);
    case LEVEL_CONCAT:
        return concat(parse);
    case LEVEL_UNARY:
        return dpe_template_unary(parse, true);
    default:
        break;
    }
    const enum level tighter = (enum level)(level + 1);
    struct node *node = operand(parse, tighter);
    const struct between *between = NULL;
    while ((between = take_between(parse, level)) != NULL) {
        node = binary(parse, between->kind, between->op, node, operand(parse, tighter));
    }
    return node;
}

struct node *dpe_template_expression(struct parse *parse)
{
    if (!deeper(parse)) {
        return &parse->spare;
    }
    struct node *node = operand(parse, LEVEL_OR);
    while (take_name(parse, "if")) {
        node = binary(parse, NODE_COND, 0, operand(parse, LEVEL_OR), node);
        if (take_name(parse, "else")) {
            node->c = dpe_template_expression(parse);
        }
    }
    parse->depth--;
    return node;
}

struct node *dpe_template_tuple(struct parse *parse, bool conditional)
{
    struct node *first = conditional ? dpe_template_expression(parse) : operand(parse, LEVEL_OR);
    if (parse->status != DPE_OK || !is_operator(parse, ",")) {
        return first;
    }
    struct node *node = dpe_template_node(parse, NODE_TUPLE, first->line);
    node->list = first;
    struct node **end = &first->next;
    while (take_operator(parse, ",")) {
        const struct token *token = dpe_template_token(parse);
        if (token->kind == TOKEN_BLOCK_END || token->kind == TOKEN_PRINT_END ||
            is_operator(parse, ")")) {
            break;
        }
        *end = conditional ? dpe_template_expression(parse) : operand(parse, LEVEL_OR);
        end = &(*end)->next;
    }
    return node;
}
