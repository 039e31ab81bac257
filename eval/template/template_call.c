/* Calls: arguments, functions, macros, methods. */
#include "eval/template/template_parts.h"

#include <string.h>

/* Room for one more argument; a list of them is a block twice as long each time. */
static bool add(struct render *render, struct args *args, const struct dpe_span *keyword,
                struct value value)
{
    size_t n = keyword != NULL ? args->n_named : args->n;
    size_t size = keyword != NULL ? sizeof *args->named : sizeof *args->at;
    if ((n & (n - 1)) == 0) {
        void *grown = dpe_template_get(render, (n == 0 ? 1 : 2 * n) * size);
        if (grown == NULL) {
            return false;
        }
        if (n > 0) {
            memcpy(grown, keyword != NULL ? (void *)args->named : (void *)args->at, n * size);
        }
        args->named = keyword != NULL ? grown : args->named;
        args->at = keyword != NULL ? args->at : grown;
    }
    if (keyword == NULL) {
        args->at[args->n++] = value;
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        if (dpe_span_equal(args->named[i].key.text, *keyword)) {
            dpe_template_fail(render, "the argument '%.*s' is given twice",
                              dpe_template_shown(keyword->n), keyword->s);
            return false;
        }
    }
    args->named[args->n_named++] = (struct pair){dpe_template_string(*keyword), value};
    return true;
}

/* The items of *value, or the members of **value. */
static bool add_all(struct render *render, struct args *args, const struct node *node,
                    struct value value)
{
    bool good = true;
    if (node->kind == NODE_STAR) {
        struct items items = dpe_template_items(render, value);
        for (size_t i = 0; i < items.n && good; i++) {
            good = dpe_template_step(render, 1) && add(render, args, NULL, items.at[i]);
        }
        return good && render->status == DPE_OK;
    }
    if (value.kind != KIND_DICT) {
        dpe_template_fail(render, "expected a mapping after **, found %s",
                          dpe_template_kind_name(value));
        return false;
    }
    for (size_t i = 0; i < value.pairs->n && good; i++) {
        struct value key = value.pairs->at[i].key;
        if (key.kind != KIND_STRING) {
            dpe_template_fail(render, "expected names of arguments after **, found %s",
                              dpe_template_kind_name(key));
            return false;
        }
        good =
            dpe_template_step(render, 1) && add(render, args, &key.text, value.pairs->at[i].value);
    }
    return good;
}

struct args *dpe_template_args(struct render *render, const struct node *list)
{
    struct args *args = dpe_template_get(render, sizeof *args);
    for (const struct node *node = list; node != NULL && args != NULL; node = node->next) {
        bool all = node->kind == NODE_STAR || node->kind == NODE_STARS;
        struct value value = dpe_template_eval(render, all ? node->a : node);
        const struct dpe_span *keyword = node->keyword.s != NULL ? &node->keyword : NULL;
        if (render->status != DPE_OK ||
            !(all ? add_all(render, args, node, value) : add(render, args, keyword, value))) {
            return NULL;
        }
    }
    return args;
}

/* What was given for a parameter, by position or by name; counts those by name. */
static const struct value *given_for(struct render *render, const char *what, const char *name,
                                     struct dpe_span key, const struct args *given, size_t i,
                                     size_t *named)
{
    const struct value *value = i < given->n ? &given->at[i] : NULL;
    for (size_t k = 0; k < given->n_named; k++) {
        if (key.s[0] != '/' && dpe_span_equal(given->named[k].key.text, key)) {
            if (value != NULL) {
                dpe_template_fail(render, "%s '%s': the argument '%.*s' is given twice", what, name,
                                  dpe_template_shown(key.n), key.s);
            }
            value = &given->named[k].value;
            ++*named;
        }
    }
    return value;
}

/* Fails with the first named argument that no parameter has. */
static bool refuse_unknown(struct render *render, const char *what, const char *name,
                           const char *params, const struct args *given)
{
    for (size_t k = 0; k < given->n_named; k++) {
        struct dpe_span key = given->named[k].key.text;
        bool known = false;
        for (const char *at = params; *at != '\0' && !known;) {
            size_t n = strcspn(at, " ");
            known = n - (at[n - 1] == '=') == key.n && memcmp(at, key.s, key.n) == 0;
            at += n + (at[n] == ' ');
        }
        if (!known) {
            dpe_template_fail(render, "%s '%s' has no argument '%.*s'", what, name,
                              dpe_template_shown(key.n), key.s);
        }
    }
    return false;
}

bool dpe_template_bind(struct render *render, const char *what, const char *name,
                       const char *params, const struct args *given, struct args *bound)
{
    size_t parameters = 1;
    *bound = *given;
    if (params == NULL) {
        return true;
    }
    for (const char *at = params; *at != '\0'; at++) {
        parameters += *at == ' ';
    }
    *bound = (struct args){.at = dpe_template_get(render, parameters * sizeof *bound->at)};
    size_t named = 0;
    for (const char *at = params; *at != '\0' && bound->at != NULL; bound->n++) {
        size_t n = strcspn(at, " ");
        bool optional = at[n - 1] == '=';
        struct dpe_span key = {at, n - optional};
        const struct value *value = given_for(render, what, name, key, given, bound->n, &named);
        if (value != NULL) {
            bound->at[bound->n] = *value;
        } else if (optional) {
            bound->absent |= UINT64_C(1) << bound->n;
        } else {
            dpe_template_fail(render, "%s '%s' needs its argument '%.*s'", what, name,
                              dpe_template_shown(key.n - (key.s[0] == '/')),
                              key.s + (key.s[0] == '/'));
        }
        at += n + (at[n] == ' ');
    }
    if (given->n > bound->n) {
        dpe_template_fail(render, "%s '%s' takes at most %zu arguments, found %zu", what, name,
                          bound->n, given->n + given->n_named);
    } else if (named < given->n_named) {
        return refuse_unknown(render, what, name, params, given);
    }
    return render->status == DPE_OK;
}

const struct value *dpe_template_arg(const struct args *args, size_t i)
{
    return i < args->n && (args->absent >> i & 1) == 0 ? &args->at[i] : NULL;
}

struct value dpe_template_apply(struct render *render, const struct filter *filter, struct value of,
                                const struct args *args)
{
    struct args bound;
    return dpe_template_bind(render, "the filter", filter->name, filter->params, args, &bound)
               ? filter->apply(render, of, &bound)
               : dpe_template_undefined(dpe_span_of(""));
}

bool dpe_template_holds(struct render *render, const struct test *test, struct value of,
                        const struct args *args)
{
    struct args bound;
    return dpe_template_bind(render, "the test", test->name, test->params, args, &bound) &&
           test->holds(render, of, &bound);
}

int64_t dpe_template_arg_int(struct render *render, const struct args *args, size_t i,
                             const char *name, int64_t fallback)
{
    const struct value *value = dpe_template_arg(args, i);
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
    const struct value *value = dpe_template_arg(args, i);
    if (value != NULL && value->kind == KIND_STRING) {
        return value->text;
    }
    if (value != NULL || fallback == NULL) {
        dpe_template_fail(render, "expected a string as argument '%s', found %s", name,
                          value != NULL ? dpe_template_kind_name(*value) : "nothing");
    }
    return dpe_span_of(fallback != NULL ? fallback : "");
}

bool dpe_template_arg_bool(const struct args *args, size_t i, bool fallback)
{
    const struct value *value = dpe_template_arg(args, i);
    return value != NULL ? dpe_template_truth(*value) : fallback;
}

struct value dpe_template_apply_node(struct render *render, const struct node *node,
                                     struct value of, const struct args *args)
{
    bool test = node->kind == NODE_TEST;
    if (test ? node->test == NULL : node->filter == NULL) {
        return dpe_template_fail(render, "the %s '%.*s' is not supported", test ? "test" : "filter",
                                 dpe_template_shown(node->name.n), node->name.s);
    }
    return test ? dpe_template_bool(dpe_template_holds(render, node->test, of, args))
                : dpe_template_apply(render, node->filter, of, args);
}

struct value dpe_template_call(struct render *render, struct value callee, const struct args *args)
{
    if (!dpe_template_step(render, 1)) {
        return dpe_template_undefined(dpe_span_of(""));
    }
    struct value result = dpe_template_undefined(dpe_span_of(""));
    render->depth++;
    struct args bound;
    if (callee.kind == KIND_FUNCTION) {
        const struct function *function = callee.function;
        if (dpe_template_bind(render, "the function", function->name, function->params, args,
                              &bound)) {
            result = function->call(render, &bound);
        }
    } else if (callee.kind == KIND_MACRO) {
        result = dpe_template_call_macro(render, callee.macro, args);
    } else if (callee.kind == KIND_LOOP) {
        result = dpe_template_call_loop(render, callee.loop, args);
    } else if (callee.kind == KIND_METHOD) {
        const struct method *method = callee.bound->method;
        if (dpe_template_bind(render, "the method", method->name, method->params, args, &bound)) {
            result = method->call(render, callee.bound->self, &bound);
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
