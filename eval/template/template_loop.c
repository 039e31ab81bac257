/* {% for %}, and what "loop" is within it. */
#include "eval/template/template_parts.h"

/* The items that pass a loop's condition. */
static struct items loop_items(struct render *render, const struct node *node, struct value over)
{
    struct items all = dpe_template_items(render, over);
    if (node->b == NULL || render->status != DPE_OK) {
        return all;
    }
    struct value kept = dpe_template_list(render, KIND_LIST, all.n);
    struct scope *outer = render->scope;
    for (size_t i = 0; i < all.n && render->status == DPE_OK; i++) {
        render->scope = dpe_template_scope(render, outer);
        if (render->scope == NULL) {
            break;
        }
        dpe_template_assign_to(render, node->c, all.at[i]);
        if (dpe_template_truth(dpe_template_eval(render, node->b)) && render->status == DPE_OK) {
            kept.items->at[kept.items->n++] = all.at[i];
        }
    }
    render->scope = outer;
    return render->status == DPE_OK ? *kept.items : (struct items){0};
}

/* One run of a loop over `values`; `outer`: the scope around it. */
static void run_loop(struct render *render, const struct node *node, struct value values,
                     struct scope *outer, int64_t depth)
{
    struct items *over = dpe_template_get(render, sizeof *over);
    struct loop *loop = dpe_template_get(render, sizeof *loop);
    if (over == NULL || loop == NULL) {
        return;
    }
    *over = loop_items(render, node, values);
    *loop = (struct loop){.over = over, .depth = depth, .node = node, .outer = outer};
    render->loops++;
    for (size_t i = 0; i < over->n && dpe_template_step(render, 1); i++) {
        loop->index = i;
        render->scope = dpe_template_scope(render, outer);
        if (render->scope == NULL) {
            break;
        }
        dpe_template_assign(render, dpe_span_of("loop"),
                            (struct value){.kind = KIND_LOOP, .loop = loop});
        dpe_template_assign_to(render, node->c, over->at[i]);
        dpe_template_run(render, node->body);
        bool stop = render->flow == FLOW_BREAK;
        render->flow = FLOW_ON;
        if (stop) {
            break;
        }
    }
    render->loops--;
    render->scope = dpe_template_scope(render, outer);
    if (over->n == 0 && render->scope != NULL) {
        dpe_template_run(render, node->other);
    }
    render->scope = outer;
}

void dpe_template_run_for(struct render *render, const struct node *node)
{
    run_loop(render, node, dpe_template_eval(render, node->a), render->scope, 1);
}

/* loop(values) of a recursive loop: what its body writes for them, one level deeper. */
struct value dpe_template_call_loop(struct render *render, const struct loop *loop,
                                    const struct args *args)
{
    if (!loop->node->recursive || args->n != 1 || args->n_named > 0) {
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

static struct value do_cycle(struct render *render, struct value self, const struct args *args)
{
    return args->n > 0 ? args->at[self.loop->index % args->n]
                       : dpe_template_fail(render, "loop.cycle needs an argument");
}

/* Whether the values are others than at the last call in this loop. */
static struct value do_changed(struct render *render, struct value self, const struct args *args)
{
    struct value now = dpe_template_list(render, KIND_TUPLE, args->n);
    for (size_t i = 0; i < args->n && render->status == DPE_OK; i++) {
        now.items->at[now.items->n++] = args->at[i];
    }
    bool same = self.loop->has_last && dpe_template_equal(render, self.loop->last, now);
    self.loop->last = now;
    self.loop->has_last = true;
    return dpe_template_bool(!same);
}

static const struct method methods[] = {
    {"cycle", KIND_LOOP, NULL, do_cycle},
    {"changed", KIND_LOOP, NULL, do_changed},
};

const struct method *dpe_template_loop_method(struct dpe_span name)
{
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (dpe_span_equal(name, dpe_span_of(methods[i].name))) {
            return &methods[i];
        }
    }
    return NULL;
}
