/* Expressions of templates, by descent, with the precedences of Jinja. */
#include "eval/template/template_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 200 };

static struct node *condition(struct parse *parse);
static struct node *either(struct parse *parse);
static struct node *unary(struct parse *parse, bool filters);

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
            *end = condition(parse);
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
                            token->text.n > 0 ? "'" : "", dpe_template_shown(token->text.n),
                            token->text.s, token->text.n > 0 ? "'" : "the end of the tag");
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
        struct dpe_span keyword = {NULL, 0};
        bool stars = is_operator(parse, "**");
        if (stars || take_operator(parse, "*")) {
            parse->at += stars;
            struct node *all =
                dpe_template_node(parse, stars ? NODE_STARS : NODE_STAR, token->line);
            all->a = condition(parse);
            *end = all;
            end = &all->next;
            named = named || stars;
            if (!take_operator(parse, ",")) {
                break;
            }
            continue;
        }
        if (token->kind == TOKEN_NAME && token[1].kind == TOKEN_OPERATOR &&
            dpe_span_equal(token[1].text, dpe_span_of("="))) {
            keyword = token->text;
            named = true;
            parse->at += 2;
        } else if (named) {
            dpe_template_refuse(parse, token->line,
                                "an argument without a name follows named ones");
            return;
        }
        *end = condition(parse);
        (*end)->keyword = keyword;
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
            *parts[i] = condition(parse);
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
                node->name = token->text;
                dpe_template_expect(parse, TOKEN_NAME, NULL);
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

/* "map", "select" and their like name another filter or test; a wrong one is found when they run.
 */
static struct node *filter(struct parse *parse, struct node *inner)
{
    const struct token *token = dpe_template_token(parse);
    struct node *node = dpe_template_node(parse, NODE_FILTER, token->line);
    dpe_template_expect(parse, TOKEN_NAME, NULL);
    if (parse->status != DPE_OK) {
        return node;
    }
    node->a = inner;
    node->name = token->text;
    node->known = dpe_template_find_filter(token->text);
    if ((node->known == NULL && parse->soft == 0) || is_operator(parse, ".")) {
        return dpe_template_refuse(parse, token->line, "the filter '%.*s' is not supported",
                                   dpe_template_shown(token->text.n), token->text.s);
    }
    if (take_operator(parse, "(") && deeper(parse)) {
        arguments(parse, node);
        parse->depth--;
    }
    return node;
}

struct node *dpe_template_filters(struct parse *parse, struct node *inner)
{
    while (parse->status == DPE_OK && take_operator(parse, "|")) {
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
    const struct token *token = dpe_template_token(parse);
    struct node *node = dpe_template_node(parse, NODE_TEST, token->line);
    dpe_template_expect(parse, TOKEN_NAME, NULL);
    if (parse->status != DPE_OK) {
        return node;
    }
    node->a = of;
    node->name = token->text;
    node->known = dpe_template_find(dpe_template_tests, token->text);
    if ((node->known == NULL && parse->soft == 0) || is_operator(parse, ".")) {
        return dpe_template_refuse(parse, token->line, "the test '%.*s' is not supported",
                                   dpe_template_shown(token->text.n), token->text.s);
    }
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

static struct node *unary(struct parse *parse, bool with_filters)
{
    struct node *node = &parse->spare;
    if (!deeper(parse)) {
        return node;
    }
    bool minus = is_operator(parse, "-");
    if (minus || is_operator(parse, "+")) {
        int line = dpe_template_token(parse)->line;
        parse->at++;
        node = binary(parse, minus ? NODE_MINUS : NODE_PLUS, 0, unary(parse, false), NULL);
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

struct level {
    const char *text;
    enum op op;
};

static struct node *power(struct parse *parse)
{
    struct node *node = unary(parse, true);
    while (parse->status == DPE_OK && take_operator(parse, "**")) {
        node = binary(parse, NODE_BINARY, OP_POWER, node, unary(parse, true));
    }
    return node;
}

static struct node *product(struct parse *parse)
{
    static const struct level levels[] = {
        {"*", OP_MULTIPLY}, {"/", OP_DIVIDE}, {"//", OP_FLOOR}, {"%", OP_MODULO}};
    struct node *node = power(parse);
    for (size_t i = 0; i < 4 && parse->status == DPE_OK; i++) {
        if (take_operator(parse, levels[i].text)) {
            node = binary(parse, NODE_BINARY, levels[i].op, node, power(parse));
            i = SIZE_MAX; /* from the first level again */
        }
    }
    return node;
}

static struct node *concat(struct parse *parse)
{
    struct node *first = product(parse);
    if (parse->status != DPE_OK || !is_operator(parse, "~")) {
        return first;
    }
    struct node *node = dpe_template_node(parse, NODE_CONCAT, first->line);
    node->list = first;
    struct node **end = &first->next;
    while (parse->status == DPE_OK && take_operator(parse, "~")) {
        *end = product(parse);
        end = &(*end)->next;
    }
    return node;
}

static struct node *sum(struct parse *parse)
{
    struct node *node = concat(parse);
    while (parse->status == DPE_OK) {
        if (take_operator(parse, "+")) {
            node = binary(parse, NODE_BINARY, OP_ADD, node, concat(parse));
        } else if (take_operator(parse, "-")) {
            node = binary(parse, NODE_BINARY, OP_SUBTRACT, node, concat(parse));
        } else {
            break;
        }
    }
    return node;
}

static bool comparison(struct parse *parse, enum op *op)
{
    static const struct level levels[] = {{"==", OP_EQUAL},  {"!=", OP_UNEQUAL},
                                          {"<", OP_LESS},    {"<=", OP_LESS_EQUAL},
                                          {">", OP_GREATER}, {">=", OP_GREATER_EQUAL}};
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (take_operator(parse, levels[i].text)) {
            *op = levels[i].op;
            return true;
        }
    }
    const struct token *token = dpe_template_token(parse);
    if (dpe_template_is(parse, TOKEN_NAME, "not") && token[1].kind == TOKEN_NAME &&
        dpe_span_equal(token[1].text, dpe_span_of("in"))) {
        parse->at += 2;
        *op = OP_NOT_IN;
        return true;
    }
    *op = OP_IN;
    return take_name(parse, "in");
}

static struct node *compare(struct parse *parse)
{
    struct node *first = sum(parse);
    struct node *node = NULL;
    struct node **end = NULL;
    enum op op;
    while (parse->status == DPE_OK && comparison(parse, &op)) {
        if (node == NULL) {
            node = binary(parse, NODE_COMPARE, 0, first, NULL);
            end = &node->list;
        }
        struct node *operand = sum(parse);
        /* A node of its own: the operand may be any expression, which has its own operator. */
        struct node *holder = binary(parse, NODE_COMPARE, op, operand, NULL);
        *end = holder;
        end = &holder->next;
    }
    return node != NULL ? node : first;
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

static struct node *both(struct parse *parse)
{
    struct node *node = negation(parse);
    while (parse->status == DPE_OK && take_name(parse, "and")) {
        node = binary(parse, NODE_AND, 0, node, negation(parse));
    }
    return node;
}

static struct node *either(struct parse *parse)
{
    struct node *node = both(parse);
    while (parse->status == DPE_OK && take_name(parse, "or")) {
        node = binary(parse, NODE_OR, 0, node, both(parse));
    }
    return node;
}

static struct node *condition(struct parse *parse)
{
    if (!deeper(parse)) {
        return &parse->spare;
    }
    struct node *node = either(parse);
    while (parse->status == DPE_OK && take_name(parse, "if")) {
        struct node *truth = either(parse);
        node = binary(parse, NODE_COND, 0, truth, node);
        if (take_name(parse, "else")) {
            node->c = condition(parse);
        }
    }
    parse->depth--;
    return node;
}

struct node *dpe_template_expression(struct parse *parse)
{
    return condition(parse);
}

struct node *dpe_template_unary(struct parse *parse)
{
    return unary(parse, true);
}

struct node *dpe_template_tuple(struct parse *parse, bool conditional)
{
    struct node *first = conditional ? condition(parse) : either(parse);
    if (parse->status != DPE_OK || !is_operator(parse, ",")) {
        return first;
    }
    struct node *node = dpe_template_node(parse, NODE_TUPLE, first->line);
    node->list = first;
    struct node **end = &first->next;
    while (parse->status == DPE_OK && take_operator(parse, ",")) {
        const struct token *token = dpe_template_token(parse);
        if (token->kind == TOKEN_BLOCK_END || token->kind == TOKEN_PRINT_END ||
            is_operator(parse, ")")) {
            break;
        }
        *end = conditional ? condition(parse) : either(parse);
        end = &(*end)->next;
    }
    return node;
}
