/* Rendering: memory, limits, scopes, statements. */
#include "eval/template/template.h"
#include "eval/template/template_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 10000000, MOST_DEPTH = 800, BLOCK = 1 << 14 };

/* --------------------------------------------------------------------------------------- memory */

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    max_align_t bytes[];
};

void *dpe_template_alloc(struct arena *arena, size_t n)
{
    if (n > SIZE_MAX / 4) {
        return NULL;
    }
    n = (n / sizeof(max_align_t) + 1) * sizeof(max_align_t);
    struct arena_block *block = arena->blocks;
    if (block == NULL || block->size - block->used < n) {
        size_t size = n > BLOCK ? n : BLOCK;
        if (size > arena->most - arena->used) {
            return NULL;
        }
        block = calloc(1, sizeof *block + size);
        if (block == NULL) {
            return NULL;
        }
        block->size = size;
        block->next = arena->blocks;
        arena->blocks = block;
        arena->used += size;
    }
    void *bytes = (char *)block->bytes + block->used;
    block->used += n;
    return bytes;
}

void dpe_template_release(struct arena *arena)
{
    while (arena->blocks != NULL) {
        struct arena_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
}

struct value dpe_template_fail(struct render *render, const char *format, ...)
{
    if (render->status == DPE_OK) {
        char text[800];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        render->status = dpe_fail(render->err, DPE_BAD_DATA, "%s: line %d: %s", render->where,
                                  render->line, text);
    }
    return (struct value){.kind = KIND_UNDEFINED, .text = {"", 0}};
}

void *dpe_template_get(struct render *render, size_t n)
{
    void *bytes = dpe_template_alloc(&render->arena, n);
    if (bytes == NULL) {
        dpe_template_fail(render, "rendering takes more than %llu MiB",
                          (unsigned long long)(render->arena.most >> 20));
    }
    return bytes;
}

bool dpe_template_step(struct render *render, uint64_t n)
{
    render->steps += n;
    if (render->status == DPE_OK && render->steps > render->most_steps) {
        dpe_template_fail(render, "rendering takes more than %llu steps",
                          (unsigned long long)render->most_steps);
    }
    if (render->status == DPE_OK && render->depth > MOST_DEPTH) {
        dpe_template_fail(render, "expressions, blocks and macros are nested too deep");
    }
    return render->status == DPE_OK;
}

bool dpe_template_room(struct render *render, void *list, size_t n, size_t *capacity, size_t more,
                       size_t size)
{
    enum { LEAST = 8 };
    if (*capacity - n >= more) {
        return true;
    }
    size_t wanted = n + more > 2 * *capacity ? n + more : 2 * *capacity;
    wanted = wanted < LEAST ? LEAST : wanted;
    void *old = NULL;
    void *grown = wanted < SIZE_MAX / size ? dpe_template_get(render, wanted * size) : NULL;
    if (grown == NULL) {
        dpe_template_fail(render, "out of memory");
        return false;
    }
    memcpy(&old, list, sizeof old);
    if (n > 0) {
        memcpy(grown, old, n * size);
    }
    memcpy(list, &grown, sizeof grown);
    *capacity = wanted;
    return true;
}

void dpe_template_put(struct render *render, struct builder *to, const char *bytes, size_t n)
{
    if (n == 0 || !dpe_template_step(render, n / 64)) {
        return;
    }
    if (dpe_template_room(render, &to->bytes, to->n, &to->capacity, n, 1)) {
        memcpy(to->bytes + to->n, bytes, n);
        to->n += n;
    }
}

void dpe_template_put_span(struct render *render, struct builder *to, struct dpe_span text)
{
    dpe_template_put(render, to, text.s, text.n);
}

/* --------------------------------------------------------------------------------------- scopes */

struct variable {
    struct dpe_span name;
    struct value value;
    struct variable *next;
};

struct scope *dpe_template_scope(struct render *render, struct scope *outer)
{
    struct scope *scope = dpe_template_get(render, sizeof *scope);
    if (scope == NULL) {
        return outer;
    }
    scope->outer = outer;
    return scope;
}

/* An empty scope for the next round of a loop: that of the last one, whose variables are used
 * again, unless a macro that was made since then may look at it. */
static struct scope *next_scope(struct render *render, struct scope *last, struct scope *outer,
                                int64_t *macros)
{
    if (last == NULL || *macros != render->macros) {
        *macros = render->macros;
        return dpe_template_scope(render, outer);
    }
    while (last->variables != NULL) {
        struct variable *variable = last->variables;
        last->variables = variable->next;
        variable->next = render->spare;
        render->spare = variable;
    }
    return last;
}

static struct variable *own_variable(const struct scope *scope, struct dpe_span name)
{
    struct variable *variable = scope->variables;
    while (variable != NULL && !dpe_span_equal(variable->name, name)) {
        variable = variable->next;
    }
    return variable;
}

const struct value *dpe_template_lookup(const struct scope *scope, struct dpe_span name)
{
    for (; scope != NULL; scope = scope->outer) {
        const struct variable *variable = own_variable(scope, name);
        if (variable != NULL) {
            return &variable->value;
        }
    }
    return NULL;
}

void dpe_template_assign(struct render *render, struct dpe_span name, struct value value)
{
    struct variable *variable = own_variable(render->scope, name);
    if (variable == NULL) {
        variable =
            render->spare != NULL ? render->spare : dpe_template_get(render, sizeof *variable);
        if (variable == NULL) {
            return;
        }
        render->spare = render->spare != NULL ? variable->next : NULL;
        variable->name = name;
        variable->next = render->scope->variables;
        render->scope->variables = variable;
    }
    variable->value = value;
}

/* ----------------------------------------------------------------------------------- statements */

static void assign_target(struct render *render, const struct node *target, struct value value)
{
    if (target->member.n == 0) {
        dpe_template_assign(render, target->name, value);
        return;
    }
    const struct value *space = dpe_template_lookup(render->scope, target->name);
    if (space == NULL || space->kind != KIND_NAMESPACE) {
        dpe_template_fail(render, "'%.*s' is no namespace, so that its members cannot be set",
                          SHOWN(target->name));
        return;
    }
    if (target->member.s[0] == '_') {
        dpe_template_fail(render, "a namespace has no member whose name begins with '_'");
        return;
    }
    dpe_template_dict_set(render, space->pairs, dpe_template_string(target->member), value);
}

/* A value to a target: a name, a member of a namespace, or several with commas between. */
static void assign_to(struct render *render, const struct node *target, struct value value)
{
    if (target->kind != NODE_TUPLE) {
        assign_target(render, target, value);
        return;
    }
    struct items items = dpe_template_items(render, value);
    size_t n = 0;
    for (const struct node *each = target->list; each != NULL; each = each->next, n++) {
        if (n < items.n && render->status == DPE_OK) {
            assign_to(render, each, items.at[n]);
        }
    }
    if (n != items.n) {
        dpe_template_fail(render, "expected %zu values for as many names, found %zu", n, items.n);
    }
}

static void run(struct render *render, const struct node *body);

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

/* The filters of a set block, the innermost of which has no operand. */
static struct value apply_filters(struct render *render, const struct node *node,
                                  struct value value)
{
    if (node == NULL) {
        return value;
    }
    struct value inner = apply_filters(render, node->a, value);
    const struct args *args = dpe_template_args(render, node->list);
    return args != NULL ? dpe_template_apply_node(render, node, inner, args) : inner;
}

/* The items that pass a loop's condition. */
static struct items loop_items(struct render *render, const struct node *node, struct value over)
{
    struct items all = dpe_template_items(render, over);
    if (node->b == NULL || render->status != DPE_OK) {
        return all;
    }
    struct value kept = dpe_template_list(render, KIND_LIST, all.n);
    struct scope *outer = render->scope;
    struct scope *own = NULL;
    int64_t macros = 0;
    for (size_t i = 0; i < all.n && render->status == DPE_OK; i++) {
        own = render->scope = next_scope(render, own, outer, &macros);
        assign_to(render, node->c, all.at[i]);
        if (dpe_template_truth(dpe_template_eval(render, node->b)) && render->status == DPE_OK) {
            dpe_template_add(render, kept, all.at[i]);
        }
    }
    render->scope = outer;
    return render->status == DPE_OK ? *kept.items : (struct items){0};
}

/* One run of a loop over `values`; `outer`: the scope around it. */
static void run_loop(struct render *render, const struct node *node, struct value values,
                     struct scope *outer, int64_t depth)
{
    struct loop *loop = dpe_template_get(render, sizeof *loop);
    if (loop == NULL) {
        return;
    }
    *loop = (struct loop){
        .over = loop_items(render, node, values), .depth = depth, .node = node, .outer = outer};
    struct scope *own = NULL;
    int64_t macros = 0;
    for (size_t i = 0; i < loop->over.n && dpe_template_step(render, 1); i++) {
        loop->index = i;
        own = render->scope = next_scope(render, own, outer, &macros);
        dpe_template_assign(render, dpe_span_of("loop"),
                            (struct value){.kind = KIND_LOOP, .loop = loop});
        assign_to(render, node->c, loop->over.at[i]);
        run(render, node->body);
        bool stop = render->flow == FLOW_BREAK;
        render->flow = FLOW_ON;
        if (stop) {
            break;
        }
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
        return dpe_template_fail(render, "loop() takes one value, in a loop with 'recursive'");
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

static void run_set(struct render *render, const struct node *node)
{
    struct value value =
        node->a != NULL ? dpe_template_eval(render, node->a)
                        : apply_filters(render, node->b, dpe_template_capture(render, node->body));
    assign_to(render, node->c, value);
}

static void run_if(struct render *render, const struct node *node)
{
    for (const struct node *branch = node->list; branch != NULL; branch = branch->next) {
        if (branch->a == NULL || dpe_template_truth(dpe_template_eval(render, branch->a))) {
            run(render, branch->body);
            return;
        }
    }
}

static void run_macro(struct render *render, const struct node *node)
{
    struct macro *macro = dpe_template_get(render, sizeof *macro);
    if (macro != NULL) {
        render->macros++;
        *macro = (struct macro){node, render->scope};
        dpe_template_assign(render, node->name, (struct value){.kind = KIND_MACRO, .macro = macro});
    }
}

/* Writes what a call gives that has the body as a macro in its argument `caller`. */
static void run_caller(struct render *render, const struct node *node)
{
    struct macro *macro = dpe_template_get(render, sizeof *macro);
    struct value callee = dpe_template_eval(render, node->a->a);
    struct args *args = render->status == DPE_OK ? dpe_template_args(render, node->a->list) : NULL;
    if (args == NULL || macro == NULL) {
        return;
    }
    render->macros++;
    *macro = (struct macro){node, render->scope};
    render->line = node->line;
    if (dpe_template_add_named(render, args, dpe_span_of("caller"),
                               (struct value){.kind = KIND_MACRO, .macro = macro})) {
        dpe_template_write(render, render->out, dpe_template_call(render, callee, args));
    }
}

/* The values are those of the scope around, the names those of the body. */
static void run_with(struct render *render, const struct node *node)
{
    struct scope *outer = render->scope;
    struct scope *inner = dpe_template_scope(render, outer);
    for (const struct node *each = node->list; each != NULL; each = each->next) {
        struct value value = dpe_template_eval(render, each->a);
        render->scope = inner;
        assign_to(render, each->c, value);
        render->scope = outer;
    }
    render->scope = inner;
    run(render, node->body);
    render->scope = outer;
}

static void run_statement(struct render *render, const struct node *node)
{
    switch (node->kind) {
    case NODE_DATA:
        dpe_template_put_span(render, render->out, node->name);
        break;
    case NODE_PRINT:
        dpe_template_write(render, render->out, dpe_template_eval(render, node->a));
        break;
    case NODE_IF:
        run_if(render, node);
        break;
    case NODE_FOR:
        run_loop(render, node, dpe_template_eval(render, node->a), render->scope, 1);
        break;
    case NODE_SET:
        run_set(render, node);
        break;
    case NODE_MACRO:
        run_macro(render, node);
        break;
    case NODE_CALLER:
        run_caller(render, node);
        break;
    case NODE_WITH:
        run_with(render, node);
        break;
    case NODE_SCOPE:
        dpe_template_write(
            render, render->out,
            apply_filters(render, node->b, dpe_template_capture(render, node->body)));
        break;
    case NODE_BREAK:
        render->flow = FLOW_BREAK;
        break;
    case NODE_CONTINUE:
        render->flow = FLOW_CONTINUE;
        break;
    default:
        dpe_template_fail(render, "an expression stands where a statement belongs");
        break;
    }
}

static void run(struct render *render, const struct node *body)
{
    render->depth++;
    for (const struct node *node = body; node != NULL && render->flow == FLOW_ON;
         node = node->next) {
        render->line = node->line;
        if (!dpe_template_step(render, 1)) {
            break;
        }
        run_statement(render, node);
    }
    render->depth--;
}

/* ------------------------------------------------------------------------------------ rendering */

static void run_template(struct render *render, const struct dpe_template *parsed,
                         const json_t *variables)
{
    struct value values = dpe_template_of_json(render, variables, 0);
    if (values.kind != KIND_DICT) {
        dpe_template_fail(render, "expected an object of variables");
        return;
    }
    render->scope = &render->given;
    for (size_t i = 0; i < values.pairs->n; i++) {
        dpe_template_assign(render, values.pairs->at[i].key.text, values.pairs->at[i].value);
    }
    render->scope = dpe_template_scope(render, &render->given);
    run(render, parsed->body);
}

/* About the bytes of a value as JSON: what limits grow with. */
static uint64_t bytes_of(const json_t *json, int depth)
{
    enum { DEEPEST = 100 };
    uint64_t n = 8;
    const char *key = NULL;
    json_t *member = NULL;
    if (depth > DEEPEST) {
        return n;
    }
    json_object_foreach((json_t *)(uintptr_t)json, key, member)
    {
        n += strlen(key) + bytes_of(member, depth + 1);
    }
    for (size_t i = 0; i < json_array_size(json); i++) {
        n += bytes_of(json_array_get(json, i), depth + 1);
    }
    return n + json_string_length(json);
}

dpe_status dpe_template_render(const struct dpe_template *parsed, const json_t *variables,
                               const struct dpe_template_options *options, struct dpe_text *out,
                               struct dpe_error *err)
{
    static const struct dpe_template_options none;
    struct dpe_error own = {0};
    struct builder built = {0};
    uint64_t given = bytes_of(variables, 0);
    options = options != NULL ? options : &none;
    struct render render = {
        .where = parsed->where,
        .arena = {.most = options->most_memory > 0 ? options->most_memory
                                                   : (UINT64_C(256) << 20) + 64 * given},
        .err = err != NULL ? err : &own,
        .most_steps = options->most_steps > 0 ? options->most_steps : MOST_STEPS + 64 * given,
        .out = &built,
        .line = 1,
        .now = options->now,
    };
    run_template(&render, parsed, variables);
    if (render.status == DPE_OK) {
        render.status = dpe_text_append(out, built.n > 0 ? built.bytes : "", built.n, render.err);
    }
    dpe_template_release(&render.arena);
    return render.status;
}
