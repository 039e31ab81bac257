/* Expressions of templates: each as it is read, by descent with the precedences of Jinja, and its
 * value. */
#include "eval/template/template_parts.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 200 };

static void deeper(struct parse *parse)
{
    dpe_template_deeper(parse, dpe_template_token(parse)->line, MAX_DEPTH, "an expression is");
}

static struct node *of(struct parse *parse, runs *run, struct node *a, struct node *b)
{
    struct node *node = dpe_template_node(parse, run);
    node->line = a->line;
    node->a = a;
    node->b = b;
    return node;
}

struct node *dpe_template_several(struct parse *parse, const char *close, parses *one)
{
    struct node *first = NULL;
    struct node **end = &first;
    while (!dpe_template_is(parse, close)) {
        *end = one(parse);
        end = &(*end)->next;
        if (!dpe_template_take(parse, ",")) {
            break;
        }
    }
    dpe_template_expect(parse, close);
    return first;
}

struct value dpe_template_eval(struct render *render, const struct node *node)
{
    render->line = node->line;
    dpe_template_step(render, 1);
    render->depth++;
    struct value value = node->run(render, node);
    render->depth--;
    return value;
}

/* ------------------------------------------------------------------------------------ primaries */

static struct value run_const(struct render *render, const struct node *node)
{
    (void)render;
    return node->value;
}

static struct value run_name(struct render *render, const struct node *node)
{
    const struct value *value = dpe_template_lookup(render, node->name);
    if (value != NULL) {
        return *value;
    }
    const struct known *function = dpe_template_find(dpe_template_functions, node->name);
    bool clock = dpe_span_equal(node->name, dpe_span_of("strftime_now"));
    return function != NULL && (!clock || render->now != NULL)
               ? (struct value){.kind = KIND_FUNCTION, .function = function}
               : (struct value){.kind = KIND_UNDEFINED, .text = node->name};
}

/* varargs or kwargs in a macro, which takes no arguments beside its own. */
static struct value run_rest(struct render *render, const struct node *node)
{
    if (dpe_template_lookup(render, node->name) == NULL) {
        dpe_template_fail(render, "'%.*s' of a macro is not supported", SHOWN(node->name));
    }
    return run_name(render, node);
}

/* list: the items; value: of the kind that they make, a list or a tuple */
static struct value run_row(struct render *render, const struct node *node)
{
    struct value row = dpe_template_list(render, node->value.kind, 0);
    for (const struct node *item = node->list; item != NULL; item = item->next) {
        dpe_template_add(render, row, dpe_template_eval(render, item));
    }
    return row;
}

/* list: nodes of a key a and a value b */
static struct value run_dict(struct render *render, const struct node *node)
{
    struct value made = dpe_template_dict(render, KIND_DICT, NULL);
    for (const struct node *pair = node->list; pair != NULL; pair = pair->next) {
        struct value key = dpe_template_eval(render, pair->a);
        struct value value = dpe_template_eval(render, pair->b);
        if (key.kind > KIND_STRING) {
            dpe_template_fail(render, "%s cannot be a key", dpe_template_kind_name(key));
        }
        dpe_template_dict_set(render, made.pairs, key, value);
    }
    return made;
}

static struct node *pair(struct parse *parse)
{
    struct node *key = dpe_template_expression(parse);
    dpe_template_expect(parse, ":");
    return of(parse, NULL, key, dpe_template_expression(parse));
}

static struct value number(struct parse *parse)
{
    const struct token *token = dpe_template_token(parse);
    parse->at++;
    /* A NUL ends the source, and no letter follows a number there. */
    return token->kind == TOKEN_FLOAT
               ? dpe_template_float(strtod(token->text.s, NULL))
               : dpe_template_digits(&parse->render, token->text.s, token->text.n);
}

/* Strings that stand next to each other are one. */
static struct value string(struct parse *parse)
{
    struct builder all = {0};
    while (dpe_template_token(parse)->kind == TOKEN_STRING) {
        dpe_template_put_span(&parse->render, &all, dpe_template_token(parse)->text);
        parse->at++;
    }
    return dpe_template_built(&all);
}

static void name(struct parse *parse, struct node *node)
{
    static const struct {
        const char *word;
        struct value value;
    } words[] = {{"true", {.kind = KIND_BOOL, .integer = 1}},
                 {"True", {.kind = KIND_BOOL, .integer = 1}},
                 {"false", {.kind = KIND_BOOL}},
                 {"False", {.kind = KIND_BOOL}},
                 {"none", {.kind = KIND_NONE}},
                 {"None", {.kind = KIND_NONE}}};
    node->name = dpe_template_take_name(parse);
    bool rest = dpe_span_equal(node->name, dpe_span_of("varargs")) ||
                dpe_span_equal(node->name, dpe_span_of("kwargs"));
    node->run = parse->in_macro > 0 && rest ? run_rest : run_name;
    parse->calls = parse->calls || dpe_span_equal(node->name, dpe_span_of("caller"));
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (dpe_span_equal(node->name, dpe_span_of(words[i].word))) {
            node->run = run_const;
            node->value = words[i].value;
        }
    }
}

static struct node *primary(struct parse *parse)
{
    const struct token *token = dpe_template_token(parse);
    struct node *node = dpe_template_node(parse, run_const);
    if (token->kind == TOKEN_NAME) {
        name(parse, node);
    } else if (token->kind == TOKEN_STRING) {
        node->value = string(parse);
    } else if (token->kind == TOKEN_INT || token->kind == TOKEN_FLOAT) {
        node->value = number(parse);
    } else if (dpe_template_take(parse, "(")) {
        if (dpe_template_take(parse, ")")) {
            node->run = run_row;
            node->value.kind = KIND_TUPLE;
            return node;
        }
        node = dpe_template_tuple(parse, dpe_template_expression);
        dpe_template_expect(parse, ")");
    } else if (dpe_template_take(parse, "[")) {
        node->run = run_row;
        node->value.kind = KIND_LIST;
        node->list = dpe_template_several(parse, "]", dpe_template_expression);
    } else if (dpe_template_take(parse, "{")) {
        node->run = run_dict;
        node->list = dpe_template_several(parse, "}", pair);
    } else {
        dpe_template_expected(parse, "an expression");
    }
    return node;
}

/* ------------------------------------------------------------------- members, calls and filters */

/* a.name */
static struct value run_member(struct render *render, const struct node *node)
{
    return dpe_template_member(render, dpe_template_eval(render, node->a), node->name);
}

/* a[b] */
static struct value run_item(struct render *render, const struct node *node)
{
    struct value whole = dpe_template_eval(render, node->a);
    return dpe_template_item(render, whole, dpe_template_eval(render, node->b));
}

/* a[list], of three bounds */
static struct value run_slice(struct render *render, const struct node *node)
{
    struct value whole = dpe_template_eval(render, node->a);
    struct value bounds[3];
    int i = 0;
    for (const struct node *each = node->list; each != NULL; each = each->next) {
        bounds[i++] = dpe_template_eval(render, each);
    }
    return dpe_template_slice(render, whole, bounds);
}

/* a(list) */
static struct value run_call(struct render *render, const struct node *node)
{
    struct value callee = dpe_template_eval(render, node->a);
    struct args args;
    dpe_template_args(render, node->list, &args);
    render->line = node->line;
    if (callee.kind == KIND_UNDEFINED && node->a->run == run_member) {
        dpe_template_fail(render, "the method '%.*s' is not supported", SHOWN(node->a->name));
    }
    return dpe_template_call(render, callee, &args);
}

bool dpe_template_is_call(const struct node *node)
{
    return node->run == run_call;
}

/* a | known(list), a is known(list); member: which of the two, "filter" or "test" */
static struct value run_known(struct render *render, const struct node *node)
{
    struct value value = dpe_template_eval(render, node->a);
    const char *what = node->member.s;
    struct args args;
    dpe_template_args(render, node->list, &args);
    render->line = node->line;
    if (node->known == NULL) {
        dpe_template_fail(render, "the %s '%.*s' is not supported", what, SHOWN(node->name));
    }
    return dpe_template_apply(render, what, node->known, value, &args);
}

/* a: what is negated */
static struct value run_not(struct render *render, const struct node *node)
{
    return dpe_template_bool(!dpe_template_truth(dpe_template_eval(render, node->a)));
}

static struct node *argument(struct parse *parse)
{
    const struct token *token = dpe_template_token(parse);
    int stars = dpe_template_take(parse, "**") ? 2 : dpe_template_take(parse, "*") ? 1 : 0;
    bool keyword = token->kind == TOKEN_NAME && dpe_template_token_is(&token[1], "=");
    parse->at += keyword ? 2 : 0;
    struct node *node = dpe_template_expression(parse);
    node->stars = stars;
    node->keyword = keyword ? token->text : (struct dpe_span){0};
    return node;
}

/* Arguments after "(", which is taken, up to ")". */
static struct node *arguments(struct parse *parse)
{
    bool named = false;
    deeper(parse);
    struct node *list = dpe_template_several(parse, ")", argument);
    parse->depth--;
    for (const struct node *each = list; each != NULL; each = each->next) {
        if (named && each->keyword.s == NULL && each->stars == 0) {
            dpe_template_refuse(parse, each->line, "an argument without a name follows named ones");
        }
        named = named || each->keyword.s != NULL || each->stars == 2;
    }
    return list;
}

/* What stands between [ and ] after `whole`: an index, or start:stop:step. */
static struct node *subscript(struct parse *parse, struct node *whole)
{
    struct node *node = of(parse, run_slice, whole, NULL);
    struct node **end = &node->list;
    bool more = true;
    int colons = 0;
    deeper(parse);
    for (int i = 0; i < 3; i++) {
        bool given = more && !dpe_template_is(parse, ":") && !dpe_template_is(parse, "]");
        if (i == 0 && dpe_template_is(parse, "]")) {
            dpe_template_refuse(parse, node->line, "expected an index between [ and ]");
        }
        *end = given ? dpe_template_expression(parse) : dpe_template_node(parse, run_const);
        if (!given) {
            (*end)->value = dpe_template_none();
        }
        end = &(*end)->next;
        more = more && i < 2 && dpe_template_take(parse, ":");
        colons += more;
    }
    if (dpe_template_is(parse, ",")) {
        dpe_template_refuse(parse, node->line, "an index of several values is not supported");
    }
    dpe_template_expect(parse, "]");
    parse->depth--;
    return colons > 0 ? node : of(parse, run_item, whole, node->list);
}

static struct node *postfix(struct parse *parse, struct node *node)
{
    for (;;) {
        if (dpe_template_take(parse, ".")) {
            if (dpe_template_token(parse)->kind == TOKEN_INT) {
                node = of(parse, run_item, node, dpe_template_node(parse, run_const));
                node->b->value = number(parse);
            } else {
                node = of(parse, run_member, node, NULL);
                node->name = dpe_template_take_name(parse);
            }
        } else if (dpe_template_take(parse, "[")) {
            node = subscript(parse, node);
        } else if (dpe_template_take(parse, "(")) {
            node = of(parse, run_call, node, NULL);
            node->list = arguments(parse);
        } else {
            return node;
        }
    }
}

/* The filter or test whose name stands here. "map", "select" and their like name another one; a
 * wrong one is found when they run. */
static struct node *applied(struct parse *parse, const char *what,
                            const struct known *(*find)(struct dpe_span name), struct node *to)
{
    struct node *node = dpe_template_node(parse, run_known);
    node->a = to;
    node->name = dpe_template_take_name(parse);
    node->member = dpe_span_of(what);
    node->known = find(node->name);
    if ((node->known == NULL && parse->soft == 0) || dpe_template_is(parse, ".")) {
        dpe_template_refuse(parse, node->line, "the %s '%.*s' is not supported", what,
                            SHOWN(node->name));
    }
    return node;
}

struct node *dpe_template_filter(struct parse *parse, struct node *inner)
{
    struct node *node = applied(parse, "filter", dpe_template_find_filter, inner);
    node->list = dpe_template_take(parse, "(") ? arguments(parse) : NULL;
    return node;
}

struct node *dpe_template_filters(struct parse *parse, struct node *inner)
{
    while (dpe_template_take(parse, "|")) {
        inner = dpe_template_filter(parse, inner);
    }
    return inner;
}

/* "x is test argument": an argument without brackets is one primary. */
static struct node *test(struct parse *parse, struct node *value)
{
    static const char *const ends[] = {"else", "or", "and", "is"};
    bool negated = dpe_template_take(parse, "not");
    struct node *node = applied(parse, "test", dpe_template_find_test, value);
    const struct token *token = dpe_template_token(parse);
    bool begins = token->kind == TOKEN_NAME || token->kind == TOKEN_STRING ||
                  token->kind == TOKEN_INT || token->kind == TOKEN_FLOAT ||
                  dpe_template_is(parse, "[") || dpe_template_is(parse, "{");
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        begins = begins && !dpe_template_is(parse, ends[i]);
    }
    if (dpe_template_take(parse, "(")) {
        node->list = arguments(parse);
    } else if (begins) {
        node->list = postfix(parse, primary(parse));
    }
    return negated ? of(parse, run_not, node, NULL) : node;
}

/* ------------------------------------------------------------------------------------ operators */

/* −a and +a, by op */
static struct value run_sign(struct render *render, const struct node *node)
{
    struct value value = dpe_template_eval(render, node->a);
    bool minus = node->op == OP_SUBTRACT;
    if (value.kind == KIND_FLOAT) {
        return dpe_template_float(minus ? -value.real : value.real);
    }
    return dpe_template_binary(render, node->op, dpe_template_int(0), value);
}

static struct node *unary(struct parse *parse)
{
    deeper(parse);
    bool minus = dpe_template_is(parse, "-");
    struct node *node = NULL;
    if (minus || dpe_template_is(parse, "+")) {
        node = dpe_template_node(parse, run_sign);
        node->op = minus ? OP_SUBTRACT : OP_ADD;
        parse->at++;
        node->a = unary(parse);
    } else {
        node = primary(parse);
    }
    node = postfix(parse, node);
    parse->depth--;
    return node;
}

struct node *dpe_template_unary(struct parse *parse)
{
    struct node *node = unary(parse);
    for (;;) {
        if (dpe_template_is(parse, "|")) {
            node = dpe_template_filters(parse, node);
        } else if (dpe_template_take(parse, "is")) {
            node = test(parse, node);
        } else if (dpe_template_take(parse, "(")) {
            node = of(parse, run_call, node, NULL);
            node->list = arguments(parse);
        } else {
            return node;
        }
    }
}

/* a or b, a and b */
static struct value run_either(struct render *render, const struct node *node)
{
    struct value first = dpe_template_eval(render, node->a);
    return dpe_template_truth(first) == (node->op == OP_OR) ? first
                                                            : dpe_template_eval(render, node->b);
}

/* a, then list: nodes of an operator and its operand a */
static struct value run_compare(struct render *render, const struct node *node)
{
    struct value left = dpe_template_eval(render, node->a);
    for (const struct node *each = node->list; each != NULL; each = each->next) {
        struct value right = dpe_template_eval(render, each->a);
        if (!dpe_template_holds(render, each->op, left, right)) {
            return dpe_template_bool(false);
        }
        left = right;
    }
    return dpe_template_bool(true);
}

/* a op b */
static struct value run_binary(struct render *render, const struct node *node)
{
    struct value a = dpe_template_eval(render, node->a);
    return dpe_template_binary(render, node->op, a, dpe_template_eval(render, node->b));
}

/* b if a else c (or NULL) */
static struct value run_choose(struct render *render, const struct node *node)
{
    if (dpe_template_truth(dpe_template_eval(render, node->a))) {
        return dpe_template_eval(render, node->b);
    }
    return node->c != NULL ? dpe_template_eval(render, node->c)
                           : dpe_template_undefined("the other of an if");
}

/* One of a level, which is taken; OP_NOTHING: none stands here. */
static enum op take_between(struct parse *parse, enum level level)
{
    if (level == LEVEL_COMPARE && dpe_template_is(parse, "not")) {
        parse->at++;
        if (dpe_template_take(parse, "in")) {
            return OP_NOT_IN;
        }
        parse->at--;
    }
    for (enum op op = OP_OR; op < N_OPS; op++) {
        const char *text = dpe_template_betweens[op].text;
        if (dpe_template_betweens[op].level == level && dpe_template_take(parse, text)) {
            return op;
        }
    }
    return OP_NOTHING;
}

/* What a level's operators stand between, and those: most levels take them from the left. */
static struct node *operand(struct parse *parse, enum level level)
{
    if (level == LEVEL_UNARY) {
        return dpe_template_unary(parse);
    }
    if (level == LEVEL_NOT && dpe_template_is(parse, "not")) {
        struct node *negated = dpe_template_node(parse, run_not);
        parse->at++;
        deeper(parse);
        negated->a = operand(parse, LEVEL_NOT);
        parse->depth--;
        return negated;
    }
    const enum level tighter = (enum level)(level + 1);
    struct node *node = operand(parse, tighter);
    struct node **end = NULL; /* of a chain of comparisons */
    for (enum op op = OP_NOTHING; (op = take_between(parse, level)) != OP_NOTHING;) {
        struct node *right = operand(parse, tighter);
        if (level != LEVEL_COMPARE) {
            node = of(parse, level <= LEVEL_AND ? run_either : run_binary, node, right);
            node->op = op;
            continue;
        }
        if (end == NULL) {
            node = of(parse, run_compare, node, NULL);
            end = &node->list;
        }
        *end = of(parse, NULL, right, NULL);
        (*end)->op = op;
        end = &(*end)->next;
    }
    return node;
}

struct node *dpe_template_plain(struct parse *parse)
{
    return operand(parse, LEVEL_OR);
}

struct node *dpe_template_expression(struct parse *parse)
{
    deeper(parse);
    struct node *node = dpe_template_plain(parse);
    while (dpe_template_take(parse, "if")) {
        node = of(parse, run_choose, dpe_template_plain(parse), node);
        if (dpe_template_take(parse, "else")) {
            node->c = dpe_template_expression(parse);
        }
    }
    parse->depth--;
    return node;
}

struct node *dpe_template_tuple(struct parse *parse, parses *one)
{
    struct node *first = one(parse);
    if (!dpe_template_is(parse, ",")) {
        return first;
    }
    struct node *node = of(parse, run_row, first, NULL);
    node->value.kind = KIND_TUPLE;
    struct node **end = &node->list;
    *end = first;
    while (dpe_template_take(parse, ",")) {
        end = &(*end)->next;
        if (dpe_template_is(parse, "%}") || dpe_template_is(parse, "}}") ||
            dpe_template_is(parse, ")") || dpe_template_is(parse, "=")) {
            break;
        }
        *end = one(parse);
    }
    return node;
}
