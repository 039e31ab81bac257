/* Statements of templates: each as it is read, and what it does. */
#include "eval/template/template_parts.h"

#include <string.h>

enum { MAX_BLOCKS = 60 };

/* --------------------------------------------------------------------------------------- scopes */

struct scope *dpe_template_scope(struct render *render, struct scope *outer)
{
    struct scope *scope = dpe_template_get(render, sizeof *scope);
    scope->outer = outer;
    return scope;
}

/* An empty scope for the next round of a loop: that of the last one, unless a macro that was made
 * since then may look at it. */
static struct scope *next_scope(struct render *render, struct scope *last, struct scope *outer,
                                int64_t *macros)
{
    if (last == NULL || *macros != render->macros) {
        *macros = render->macros;
        return dpe_template_scope(render, outer);
    }
    last->variables.n = 0;
    return last;
}

const struct value *dpe_template_lookup(struct render *render, struct dpe_span name)
{
    const struct value *value = NULL;
    for (const struct scope *at = render->scope; at != NULL && value == NULL; at = at->outer) {
        value = dpe_template_dict_get(render, &at->variables, dpe_template_string(name));
    }
    return value;
}

/* -------------------------------------------------------------------------------------- targets */

/* A name, or targets in brackets. */
static struct node *target(struct parse *parse)
{
    struct node *node = dpe_template_node(parse, NULL);
    if (!dpe_template_take(parse, "(")) {
        node->name = dpe_template_take_name(parse);
        return node;
    }
    dpe_template_deeper(parse, node->line, MAX_BLOCKS, "targets are");
    node = dpe_template_tuple(parse, target);
    parse->depth--;
    dpe_template_expect(parse, ")");
    return node;
}

/* A target, or the member of a namespace. */
static struct node *set_target(struct parse *parse)
{
    struct node *node = target(parse);
    if (node->list == NULL && dpe_template_take(parse, ".")) {
        node->member = dpe_template_take_name(parse);
    }
    return node;
}

/* A value to a target. */
static void assign(struct render *render, const struct node *target, struct value value)
{
    if (target->list != NULL) {
        struct items items = dpe_template_items(render, value);
        size_t n = 0;
        for (const struct node *each = target->list; each != NULL; each = each->next, n++) {
            if (n < items.n) {
                assign(render, each, items.at[n]);
            }
        }
        if (n != items.n) {
            dpe_template_fail(render, "expected %zu values for as many names, found %zu", n,
                              items.n);
        }
        return;
    }
    if (target->member.n == 0) {
        dpe_template_dict_set(render, &render->scope->variables, dpe_template_string(target->name),
                              value);
        return;
    }
    const struct value *space = dpe_template_lookup(render, target->name);
    if (space == NULL || space->kind != KIND_NAMESPACE) {
        dpe_template_fail(render, "'%.*s' is no namespace, so that its members cannot be set",
                          SHOWN(target->name));
    }
    if (target->member.s[0] == '_') {
        dpe_template_fail(render, "a namespace has no member whose name begins with '_'");
    }
    dpe_template_dict_set(render, space->pairs, dpe_template_string(target->member), value);
}

/* --------------------------------------------------------------------------------------- bodies */

static void run(struct render *render, const struct node *body)
{
    render->depth++;
    for (const struct node *node = body; node != NULL && render->flow == FLOW_ON;
         node = node->next) {
        render->line = node->line;
        dpe_template_step(render, 1);
        node->run(render, node);
    }
    render->depth--;
}

struct value dpe_template_capture(struct render *render, const struct node *body)
{
    struct builder built = {0};
    struct builder *out = render->out;
    struct scope *outer = render->scope;
    render->out = &built;
    render->scope = dpe_template_scope(render, outer);
    run(render, body);
    render->scope = outer;
    render->out = out;
    return dpe_template_built(&built);
}

/* name: the text */
static struct value run_data(struct render *render, const struct node *node)
{
    dpe_template_put_span(render, render->out, node->name);
    return dpe_template_nothing();
}

/* a: the expression */
static struct value run_print(struct render *render, const struct node *node)
{
    dpe_template_write(render, render->out, dpe_template_eval(render, node->a));
    return dpe_template_nothing();
}

/* Whether a tag with one of these words stands here. */
static bool at_word(const struct parse *parse, const char *const *words)
{
    if (!dpe_template_is(parse, "{%")) {
        return false;
    }
    const struct token *token = dpe_template_token(parse) + 1;
    while (*words != NULL && !dpe_template_token_is(token, *words)) {
        words++;
    }
    return *words != NULL;
}

static struct node *statement(struct parse *parse);

struct node *dpe_template_body(struct parse *parse, const char *const *words, int line)
{
    struct node *first = NULL;
    struct node **end = &first;
    dpe_template_deeper(parse, line, MAX_BLOCKS, "blocks are");
    while (!at_word(parse, words)) {
        const struct token *token = dpe_template_token(parse);
        struct node *node = dpe_template_node(parse, run_data);
        if (token->kind == TOKEN_END && words[0] == NULL) {
            break;
        }
        if (token->kind == TOKEN_END) {
            dpe_template_refuse(parse, line, "the block that begins here has no {%% %s %%}",
                                words[0]);
        }
        parse->at++;
        if (token->kind == TOKEN_DATA) {
            node->name = token->text;
        } else if (dpe_template_token_is(token, "{{")) {
            node->run = run_print;
            node->a = dpe_template_tuple(parse, dpe_template_expression);
            dpe_template_expect(parse, "}}");
        } else {
            node = statement(parse);
        }
        *end = node;
        end = &node->next;
    }
    parse->at += words[0] != NULL;
    parse->depth--;
    return first;
}

static void end_tag(struct parse *parse)
{
    dpe_template_expect(parse, "%}");
}

/* The end of a block's tag, its body, and the tag {% word %} that ends it. */
static void block(struct parse *parse, struct node *node, const char *word)
{
    const char *const words[] = {word, NULL};
    end_tag(parse);
    node->body = dpe_template_body(parse, words, node->line);
    dpe_template_expect(parse, word);
    end_tag(parse);
}

/* The text of a body as an expression. */
static struct value run_text(struct render *render, const struct node *node)
{
    return dpe_template_capture(render, node->body);
}

/* ------------------------------------------------------------------------------------------- if */

/* list: nodes of a condition a (NULL: else) and a body */
static struct value run_if(struct render *render, const struct node *node)
{
    const struct node *branch = node->list;
    while (branch != NULL && branch->a != NULL &&
           !dpe_template_truth(dpe_template_eval(render, branch->a))) {
        branch = branch->next;
    }
    if (branch != NULL) {
        run(render, branch->body);
    }
    return dpe_template_nothing();
}

static void parse_if(struct parse *parse, struct node *node)
{
    static const char *const words[] = {"endif", "elif", "else", NULL};
    static const char *const after_else[] = {"endif", NULL};
    struct node **end = &node->list;
    bool last = false;
    bool more = true;
    parse->soft++;
    while (more) {
        struct node *branch = dpe_template_node(parse, NULL);
        branch->a = last ? NULL : dpe_template_tuple(parse, dpe_template_plain);
        end_tag(parse);
        branch->body = dpe_template_body(parse, last ? after_else : words, node->line);
        *end = branch;
        end = &branch->next;
        last = dpe_template_is(parse, "else");
        more = !dpe_template_is(parse, "endif");
        parse->at++;
    }
    parse->soft--;
    end_tag(parse);
}

/* ---------------------------------------------------------------------------------------- loops */

/* The items that pass a loop's condition. */
static struct items loop_items(struct render *render, const struct node *node, struct value over)
{
    struct items all = dpe_template_items(render, over);
    if (node->b == NULL) {
        return all;
    }
    struct value kept = dpe_template_list(render, KIND_LIST, all.n);
    struct scope *outer = render->scope;
    struct scope *own = NULL;
    int64_t macros = 0;
    for (size_t i = 0; i < all.n; i++) {
        own = render->scope = next_scope(render, own, outer, &macros);
        assign(render, node->c, all.at[i]);
        if (dpe_template_truth(dpe_template_eval(render, node->b))) {
            dpe_template_add(render, kept, all.at[i]);
        }
    }
    render->scope = outer;
    return *kept.items;
}

/* One run of a loop over `values`; `outer`: the scope around it. */
static void run_loop(struct render *render, const struct node *node, struct value values,
                     struct scope *outer, int64_t depth)
{
    struct loop *loop = dpe_template_get(render, sizeof *loop);
    *loop = (struct loop){
        .over = loop_items(render, node, values), .depth = depth, .node = node, .outer = outer};
    struct scope *own = NULL;
    int64_t macros = 0;
    bool stop = false;
    for (size_t i = 0; i < loop->over.n && !stop; i++) {
        dpe_template_step(render, 1);
        loop->index = i;
        own = render->scope = next_scope(render, own, outer, &macros);
        dpe_template_dict_set(render, &own->variables, dpe_template_text("loop"),
                              (struct value){.kind = KIND_LOOP, .loop = loop});
        assign(render, node->c, loop->over.at[i]);
        run(render, node->body);
        stop = render->flow == FLOW_BREAK;
        render->flow = FLOW_ON;
    }
    render->scope = dpe_template_scope(render, outer);
    if (loop->over.n == 0) {
        run(render, node->other);
    }
    render->scope = outer;
}

/* loop(values) of a recursive loop: what its body writes for them, one level deeper. */
struct value dpe_template_call_loop(struct render *render, const struct loop *loop,
                                    const struct args *args)
{
    if (!loop->node->recursive || args->n != 1 || args->named.n > 0) {
        dpe_template_fail(render, "loop() takes one value, in a loop with 'recursive'");
    }
    struct builder built = {0};
    struct builder *out = render->out;
    struct scope *scope = render->scope;
    enum flow flow = render->flow;
    render->out = &built;
    render->scope = loop->outer;
    render->flow = FLOW_ON;
    run_loop(render, loop->node, args->at[0], loop->outer, loop->depth + 1);
    render->flow = flow;
    render->scope = scope;
    render->out = out;
    return dpe_template_built(&built);
}

/* c: target; a: over what; b: condition, or NULL; body, other: else */
static struct value run_for(struct render *render, const struct node *node)
{
    run_loop(render, node, dpe_template_eval(render, node->a), render->scope, 1);
    return dpe_template_nothing();
}

static void parse_for(struct parse *parse, struct node *node)
{
    static const char *const words[] = {"endfor", "else", NULL};
    static const char *const after_else[] = {"endfor", NULL};
    node->c = dpe_template_tuple(parse, target);
    dpe_template_expect(parse, "in");
    node->a = dpe_template_tuple(parse, dpe_template_plain);
    if (dpe_template_take(parse, "if")) {
        node->b = dpe_template_expression(parse);
    }
    node->recursive = dpe_template_take(parse, "recursive");
    end_tag(parse);
    parse->in_loop++;
    node->body = dpe_template_body(parse, words, node->line);
    parse->in_loop--;
    if (dpe_template_take(parse, "else")) {
        end_tag(parse);
        node->other = dpe_template_body(parse, after_else, node->line);
    }
    dpe_template_expect(parse, "endfor");
    end_tag(parse);
}

/* name: break or continue */
static struct value run_jump(struct render *render, const struct node *node)
{
    render->flow = node->name.s[0] == 'b' ? FLOW_BREAK : FLOW_CONTINUE;
    return dpe_template_nothing();
}

static void parse_jump(struct parse *parse, struct node *node)
{
    if (parse->in_loop == 0) {
        dpe_template_refuse(parse, node->line, "{%% %.*s %%} stands outside of a loop",
                            SHOWN(node->name));
    }
    end_tag(parse);
}

/* ------------------------------------------------------------------------------ names and blocks
 */

/* c: target; a: the value */
static struct value run_set(struct render *render, const struct node *node)
{
    assign(render, node->c, dpe_template_eval(render, node->a));
    return dpe_template_nothing();
}

static void parse_set(struct parse *parse, struct node *node)
{
    node->c = dpe_template_tuple(parse, set_target);
    if (dpe_template_take(parse, "=")) {
        node->a = dpe_template_tuple(parse, dpe_template_expression);
        end_tag(parse);
        return;
    }
    if (node->c->list != NULL) {
        dpe_template_refuse(parse, node->line, "a set block for several names is not supported");
    }
    struct node *text = dpe_template_node(parse, run_text);
    text->line = node->line;
    node->a = dpe_template_filters(parse, text);
    block(parse, text, "endset");
}

/* list: of run_set, whose values are those of the scope around, and whose names are the body's */
static struct value run_with(struct render *render, const struct node *node)
{
    struct scope *outer = render->scope;
    struct scope *inner = dpe_template_scope(render, outer);
    for (const struct node *each = node->list; each != NULL; each = each->next) {
        struct value value = dpe_template_eval(render, each->a);
        render->scope = inner;
        assign(render, each->c, value);
        render->scope = outer;
    }
    render->scope = inner;
    run(render, node->body);
    render->scope = outer;
    return dpe_template_nothing();
}

static void parse_with(struct parse *parse, struct node *node)
{
    struct node **end = &node->list;
    while (!dpe_template_is(parse, "%}")) {
        if (end != &node->list) {
            dpe_template_expect(parse, ",");
        }
        *end = dpe_template_node(parse, run_set);
        (*end)->c = target(parse);
        dpe_template_expect(parse, "=");
        (*end)->a = dpe_template_expression(parse);
        end = &(*end)->next;
    }
    block(parse, node, "endwith");
}

static void parse_filter(struct parse *parse, struct node *node)
{
    struct node *text = dpe_template_node(parse, run_text);
    text->line = node->line;
    node->a = dpe_template_filters(parse, dpe_template_filter(parse, text));
    block(parse, text, "endfilter");
}

static void parse_generation(struct parse *parse, struct node *node)
{
    node->a = dpe_template_node(parse, run_text);
    node->a->line = node->line;
    block(parse, node->a, "endgeneration");
}

/* --------------------------------------------------------------------------------------- macros */

/* A macro as a value. name; list: parameters with default a; body; calls */
static struct value run_macro(struct render *render, const struct node *node)
{
    struct macro *macro = dpe_template_get(render, sizeof *macro);
    *macro = (struct macro){node, render->scope};
    render->macros++;
    return (struct value){.kind = KIND_MACRO, .macro = macro};
}

static struct node *parameter(struct parse *parse)
{
    struct node *node = dpe_template_node(parse, NULL);
    node->name = dpe_template_take_name(parse);
    if (dpe_template_take(parse, "=")) {
        node->a = dpe_template_expression(parse);
    }
    return node;
}

/* What a macro does, up to its {% word %}: no loop around it is its own. */
static void macro_body(struct parse *parse, struct node *macro, const char *word)
{
    int in_loop = parse->in_loop;
    bool calls = parse->calls;
    parse->in_loop = 0;
    parse->calls = false;
    parse->in_macro++;
    block(parse, macro, word);
    parse->in_macro--;
    macro->calls = parse->calls;
    parse->calls = parse->calls || calls;
    parse->in_loop = in_loop;
}

/* A variable is set to the macro. */
static void parse_macro(struct parse *parse, struct node *node)
{
    struct node *macro = dpe_template_node(parse, run_macro);
    node->c = dpe_template_node(parse, NULL);
    macro->name = node->c->name = dpe_template_take_name(parse);
    macro->line = node->line;
    dpe_template_expect(parse, "(");
    macro->list = dpe_template_several(parse, ")", parameter);
    node->a = macro;
    macro_body(parse, macro, "endmacro");
}

/* {% call(parameters) f(arguments) %}: the body is a macro, and the argument `caller` of the call.
 */
static void parse_call(struct parse *parse, struct node *node)
{
    struct node *macro = dpe_template_node(parse, run_macro);
    macro->name = macro->keyword = dpe_span_of("caller");
    macro->line = node->line;
    if (dpe_template_take(parse, "(")) {
        macro->list = dpe_template_several(parse, ")", parameter);
    }
    node->a = dpe_template_unary(parse);
    if (!dpe_template_is_call(node->a)) {
        dpe_template_refuse(parse, node->line, "expected a call after {%% call %%}");
    }
    struct node **end = &node->a->list;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = macro;
    macro_body(parse, macro, "endcall");
}

static struct node *statement(struct parse *parse)
{
    static const struct {
        const char *word;
        runs *run;
        void (*parse)(struct parse *parse, struct node *node);
    } kinds[] = {
        {"if", run_if, parse_if},
        {"for", run_for, parse_for},
        {"set", run_set, parse_set},
        {"macro", run_set, parse_macro},
        {"call", run_print, parse_call},
        {"with", run_with, parse_with},
        {"filter", run_print, parse_filter},
        {"break", run_jump, parse_jump},
        {"continue", run_jump, parse_jump},
        {"generation", run_print, parse_generation},
    };
    struct node *node = dpe_template_node(parse, NULL);
    node->name = dpe_template_take_name(parse);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (dpe_span_equal(node->name, dpe_span_of(kinds[i].word))) {
            node->run = kinds[i].run;
            kinds[i].parse(parse, node);
            return node;
        }
    }
    dpe_template_refuse(parse, node->line, "{%% %.*s %%} is not supported here", SHOWN(node->name));
}
