/* Calls: arguments, functions, macros, methods. */
#include "eval/template/template_parts.h"

#include <string.h>

struct args *dpe_template_args(struct render *render, const struct node *list)
{
    struct args *args = dpe_template_get(render, sizeof *args);
    size_t n = 0;
    for (const struct node *node = list; node != NULL; node = node->next) {
        n++;
    }
    if (args == NULL) {
        return NULL;
    }
    args->at = dpe_template_get(render, n * sizeof *args->at);
    args->named = dpe_template_get(render, n * sizeof *args->named);
    if (args->at == NULL || args->named == NULL) {
        return NULL;
    }
    for (const struct node *node = list; node != NULL; node = node->next) {
        struct value value = dpe_template_eval(render, node);
        if (render->status != DPE_OK) {
            return NULL;
        }
        if (node->keyword.s == NULL) {
            args->at[args->n++] = value;
            continue;
        }
        for (size_t i = 0; i < args->n_named; i++) {
            if (dpe_span_equal(args->named[i].key.text, node->keyword)) {
                dpe_template_fail(render, "the argument '%.*s' is given twice",
                                  dpe_template_shown(node->keyword.n), node->keyword.s);
                return NULL;
            }
        }
        args->named[args->n_named++] = (struct pair){dpe_template_string(node->keyword), value};
    }
    return args;
}

const struct value *dpe_template_arg(const struct args *args, size_t i, const char *name)
{
    if (i < args->n) {
        return &args->at[i];
    }
    for (size_t k = 0; k < args->n_named && name != NULL; k++) {
        if (dpe_span_equal(args->named[k].key.text, dpe_span_of(name))) {
            return &args->named[k].value;
        }
    }
    return NULL;
}

int64_t dpe_template_arg_int(struct render *render, const struct args *args, size_t i,
                             const char *name, int64_t fallback)
{
    const struct value *value = dpe_template_arg(args, i, name);
    if (value == NULL) {
        return fallback;
    }
    if (value->kind != KIND_INT && value->kind != KIND_BOOL) {
        dpe_template_fail(render, "expected an integer as argument '%s', found %s", name,
                          dpe_template_kind_name(*value));
        return fallback;
    }
    return value->kind == KIND_INT ? value->integer : value->truth;
}

struct dpe_span dpe_template_arg_text(struct render *render, const struct args *args, size_t i,
                                      const char *name, const char *fallback)
{
    const struct value *value = dpe_template_arg(args, i, name);
    if (value != NULL && value->kind == KIND_STRING) {
        return value->text;
    }
    if (value != NULL || fallback == NULL) {
        dpe_template_fail(render, "expected a string as argument '%s', found %s", name,
                          value != NULL ? dpe_template_kind_name(*value) : "nothing");
    }
    return dpe_span_of(fallback != NULL ? fallback : "");
}

bool dpe_template_arg_bool(const struct args *args, size_t i, const char *name, bool fallback)
{
    const struct value *value = dpe_template_arg(args, i, name);
    return value != NULL ? dpe_template_truth(*value) : fallback;
}

static struct value cycle(struct render *render, const struct loop *loop, const struct args *args)
{
    return args->n > 0 ? args->at[loop->index % args->n]
                       : dpe_template_fail(render, "loop.cycle needs an argument");
}

struct value dpe_template_call(struct render *render, struct value callee, const struct args *args)
{
    if (!dpe_template_step(render, 1)) {
        return dpe_template_undefined(dpe_span_of(""));
    }
    struct value result = dpe_template_undefined(dpe_span_of(""));
    render->depth++;
    if (callee.kind == KIND_FUNCTION) {
        result = callee.function->call(render, args);
    } else if (callee.kind == KIND_MACRO) {
        result = dpe_template_call_macro(render, callee.macro, args);
    } else if (callee.kind == KIND_METHOD && callee.bound->method == NULL) {
        result = cycle(render, callee.bound->self.loop, args);
    } else if (callee.kind == KIND_METHOD) {
        const struct method *method = callee.bound->method;
        if (args->n < method->least || args->n + args->n_named > method->most) {
            dpe_template_fail(render, "%s() takes %zu to %zu arguments, found %zu", method->name,
                              method->least, method->most, args->n + args->n_named);
        } else {
            result = method->call(render, callee.bound->self, args);
        }
    } else if (callee.kind == KIND_UNDEFINED && callee.text.n > 0) {
        dpe_template_fail(render, "'%.*s' is called and not defined",
                          dpe_template_shown(callee.text.n), callee.text.s);
    } else {
        dpe_template_fail(render, "%s cannot be called", dpe_template_kind_name(callee));
    }
    render->depth--;
    return result;
}
