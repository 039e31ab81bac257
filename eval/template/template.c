/* Memory, limits and failures; templates parsed and rendered. */
#include "eval/template/template.h"
#include "eval/template/template_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_STEPS = 10000000,
    MOST_DEPTH = 800,
    BLOCK = 1 << 14,
    MAX_SOURCE = 1 << 20,
    PARSE_MEMORY = 1 << 28
};

/* ------------------------------------------------------------------------------------- failures */

struct value dpe_template_fail(struct render *render, const char *format, ...)
{
    char text[800];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    render->status =
        dpe_fail(render->err, DPE_BAD_DATA, "%s: line %d: %s", render->where, render->line, text);
    longjmp(render->failed, 1);
}

void dpe_template_no_memory(struct render *render)
{
    render->status = dpe_fail(render->err, DPE_NO_MEMORY, "%s: out of memory", render->where);
    longjmp(render->failed, 1);
}

void dpe_template_step(struct render *render, uint64_t n)
{
    render->steps += n;
    if (render->steps > render->most_steps) {
        dpe_template_fail(render, "rendering takes more than %llu steps",
                          (unsigned long long)render->most_steps);
    }
    if (render->depth > MOST_DEPTH) {
        dpe_template_fail(render, "expressions, blocks and macros are nested too deep");
    }
}

/* --------------------------------------------------------------------------------------- memory */

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    max_align_t bytes[];
};

static void too_much(struct render *render)
{
    dpe_template_fail(render, "rendering takes more than %llu MiB",
                      (unsigned long long)(render->arena.most >> 20));
}

void *dpe_template_get(struct render *render, size_t n)
{
    struct arena *arena = &render->arena;
    struct arena_block *block = arena->blocks;
    n = (n / sizeof(max_align_t) + 1) * sizeof(max_align_t);
    if (block == NULL || block->size - block->used < n) {
        size_t size = n > BLOCK ? n : BLOCK;
        if (size > arena->most - arena->used) {
            too_much(render);
        }
        block = calloc(1, sizeof *block + size);
        if (block == NULL) {
            dpe_template_no_memory(render);
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

static void release(struct arena *arena)
{
    while (arena->blocks != NULL) {
        struct arena_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
}

void dpe_template_room(struct render *render, void *list, size_t n, size_t *capacity, size_t more,
                       size_t size)
{
    enum { LEAST = 8 };
    if (*capacity - n >= more) {
        return;
    }
    size_t wanted = n + more > 2 * *capacity ? n + more : 2 * *capacity;
    wanted = wanted < LEAST ? LEAST : wanted;
    if (wanted > render->arena.most / size) {
        too_much(render);
    }
    void *old = NULL;
    void *grown = dpe_template_get(render, wanted * size);
    memcpy(&old, list, sizeof old);
    if (n > 0) {
        memcpy(grown, old, n * size);
    }
    memcpy(list, &grown, sizeof grown);
    *capacity = wanted;
}

void dpe_template_put(struct render *render, struct builder *to, const char *bytes, size_t n)
{
    if (n > 0) {
        dpe_template_step(render, n / 64);
        dpe_template_room(render, &to->bytes, to->n, &to->capacity, n, 1);
        memcpy(to->bytes + to->n, bytes, n);
        to->n += n;
    }
}

void dpe_template_put_span(struct render *render, struct builder *to, struct dpe_span text)
{
    dpe_template_put(render, to, text.s, text.n);
}

void dpe_template_put_text(struct render *render, struct builder *to, const char *text)
{
    dpe_template_put(render, to, text, strlen(text));
}

/* -------------------------------------------------------------------------------------- parsing */

static dpe_status parse_all(struct parse *parse, const char *source, size_t n,
                            struct dpe_template *made)
{
    static const char *const nothing[] = {NULL};
    struct render *render = &parse->render;
    if (setjmp(render->failed) == 0) {
        size_t length = strlen(render->where) + 1;
        made->where = memcpy(dpe_template_get(render, length), render->where, length);
        made->source = dpe_template_lex(parse, source, n);
        made->body = dpe_template_body(parse, nothing, 1);
    }
    made->arena = render->arena;
    return render->status;
}

dpe_status dpe_template_parse(const char *where, const char *source, size_t n,
                              struct dpe_template **parsed, struct dpe_error *err)
{
    struct dpe_error own = {0};
    struct parse parse = {.render = {.where = where,
                                     .err = err != NULL ? err : &own,
                                     .arena = {.most = PARSE_MEMORY},
                                     .most_steps = UINT64_MAX}};
    err = parse.render.err;
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
    dpe_status status = parse_all(&parse, source, n, made);
    free(parse.tokens);
    DPE_TRY(status);
    *parsed = made;
    made = NULL;
    return DPE_OK;
}

void dpe_template_free(struct dpe_template *parsed)
{
    if (parsed != NULL) {
        release(&parsed->arena);
        free(parsed);
    }
}

/* ------------------------------------------------------------------------------------ rendering */

/* About the bytes of a value as JSON: what limits grow with. */
static uint64_t bytes_of(json_t *json)
{
    uint64_t n = 8 + json_string_length(json);
    const char *key = NULL;
    json_t *member = NULL;
    json_object_foreach(json, key, member)
    {
        n += strlen(key) + bytes_of(member);
    }
    for (size_t i = 0; i < json_array_size(json); i++) {
        n += bytes_of(json_array_get(json, i));
    }
    return n;
}

static dpe_status render_all(struct render *render, const struct dpe_template *parsed,
                             const json_t *variables, struct dpe_text *out)
{
    if (setjmp(render->failed) == 0) {
        struct value given = dpe_template_of_json(render, variables, 0);
        if (given.kind != KIND_DICT) {
            dpe_template_fail(render, "expected an object of variables");
        }
        render->scope = dpe_template_scope(render, NULL);
        render->scope->variables = *given.pairs;
        struct dpe_span text = dpe_template_capture(render, parsed->body).text;
        render->status = dpe_text_append(out, text.s, text.n, render->err);
    }
    return render->status;
}

dpe_status dpe_template_render(const struct dpe_template *parsed, const json_t *variables,
                               const struct dpe_template_options *options, struct dpe_text *out,
                               struct dpe_error *err)
{
    static const struct dpe_template_options none;
    struct dpe_error own = {0};
    uint64_t given = bytes_of((json_t *)(uintptr_t)variables);
    options = options != NULL ? options : &none;
    struct render render = {
        .where = parsed->where,
        .arena = {.most = options->most_memory > 0 ? options->most_memory
                                                   : (UINT64_C(256) << 20) + 64 * given},
        .err = err != NULL ? err : &own,
        .most_steps = options->most_steps > 0 ? options->most_steps : MOST_STEPS + 64 * given,
        .line = 1,
        .now = options->now,
    };
    dpe_status status = render_all(&render, parsed, variables, out);
    dpe_text_free(&render.cased);
    release(&render.arena);
    return status;
}
