/* /search: every step of the search for temperature and joint plan, and every plan it tried. */
#include <stdlib.h>
#include <string.h>

#include "detect/table/detect_table_internal.h"
#include "outputs/h5/h5_put.h"

static const char rule[] =
    "each step runs the plan that the search has on all samples, and its changes by sequential "
    "halving: all on an eighth (at least four contexts), the better third on a quarter, and so on; "
    "the best one is taken "
    "when its one-sided paired sign-flip test has p < 0.05 (samples of one context change their "
    "sign together), not corrected for the number of changes: validation decides what is kept";

/* The columns, one block each. */
struct columns {
    int32_t *round, *chosen, *step;
    uint8_t *tested;
    double *p, *mean, *low, *high, *gain;
    int64_t *window, *length, *samples, *top_k;
    const char **move, **keys;
    char (*texts)[160];
    const char **temperature;
};

static bool allocate(struct columns *c, size_t steps, size_t plans, size_t groups)
{
    *c = (struct columns){
        .round = dpe_alloc(steps, sizeof *c->round),
        .chosen = dpe_alloc(steps, sizeof *c->chosen),
        .tested = dpe_alloc(steps, 1),
        .p = dpe_alloc(steps, sizeof *c->p),
        .move = dpe_alloc(steps, sizeof *c->move),
        .step = dpe_alloc(plans, sizeof *c->step),
        .mean = dpe_alloc(plans, sizeof *c->mean),
        .low = dpe_alloc(plans, sizeof *c->low),
        .high = dpe_alloc(plans, sizeof *c->high),
        .gain = dpe_alloc(plans, sizeof *c->gain),
        .window = dpe_alloc(plans, sizeof *c->window),
        .length = dpe_alloc(plans * groups, sizeof *c->length),
        .samples = dpe_alloc(plans, sizeof *c->samples),
        .top_k = dpe_alloc(plans, sizeof *c->top_k),
        .keys = dpe_alloc(plans, sizeof *c->keys),
        .texts = dpe_alloc(plans, sizeof *c->texts),
        .temperature = dpe_alloc(plans, sizeof *c->temperature),
    };
    return c->round != NULL && c->chosen != NULL && c->tested != NULL && c->p != NULL &&
           c->move != NULL && c->step != NULL && c->mean != NULL && c->low != NULL &&
           c->high != NULL && c->gain != NULL && c->window != NULL && c->length != NULL &&
           c->samples != NULL && c->top_k != NULL && c->keys != NULL && c->texts != NULL &&
           c->temperature != NULL;
}

static void release(struct columns *c)
{
    void *const all[] = {c->round, c->chosen, c->tested,      c->p,       c->move,   c->step,
                         c->mean,  c->low,    c->high,        c->gain,    c->window, c->length,
                         c->keys,  c->texts,  c->temperature, c->samples, c->top_k};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

static void fill_plan(const struct dpe_detect_params *params, const struct dpe_detect_tried *tried,
                      int step, size_t at, struct columns *c)
{
    c->step[at] = step;
    c->mean[at] = tried->value.mean;
    c->low[at] = tried->value.low;
    c->high[at] = tried->value.high;
    c->gain[at] = tried->gain;
    c->window[at] = tried->point.window;
    c->samples[at] = tried->samples;
    c->top_k[at] = dpe_detect_point_pairs(params, &tried->point).k;
    c->keys[at] = tried->key;
    dpe_temperature_text(&tried->point.temperature, c->texts[at]);
    c->temperature[at] = c->texts[at];
    dpe_detect_point_lengths(params, &tried->point, c->length + at * (size_t)params->n_groups);
}

static void fill(const struct dpe_detect_report *report, struct columns *c)
{
    const struct dpe_detect_search *search = &report->search;
    size_t at = 0;
    for (int i = 0; i < search->n_steps; i++) {
        const struct dpe_detect_step *step = &search->steps[i];
        c->round[i] = step->round;
        c->tested[i] = step->tested;
        c->p[i] = step->p;
        c->move[i] = dpe_detect_move_names[step->move];
        c->chosen[i] = (int32_t)at + step->chosen;
        for (int k = 0; k < step->n; k++) {
            fill_plan(&report->grid->params, &step->tried[k], i, at++, c);
        }
    }
}

static void put(struct table_writer *w, const struct dpe_detect_report *report,
                const struct columns *c, int64_t plans)
{
    const struct dpe_detect_search *search = &report->search;
    const char *units = search->options.criterion == DPE_DETECT_RECALL ? "1" : "nats/token";
    const struct table_axis step = {"/search/step", search->n_steps};
    const struct table_axis axes[] = {{"/search/tried", plans},
                                      {"/group", report->grid->params.n_groups}};
    const struct table_entry steps[] = {
        {"/move", DPE_COL_STRING, c->move, "what the step varies", "1", NULL},
        {"/round", DPE_COL_I32, c->round, "round, from 0", "1", NULL},
        {"/tested", DPE_COL_U8, c->tested, "whether a test could show an improvement", "1",
         "no yes"},
        {"/chosen", DPE_COL_I32, c->chosen, "plan that the step ends with: index of tried", "1",
         NULL},
        {"/p_value", DPE_COL_F64, c->p, "of: the best change is not better than the first plan",
         "1", NULL},
    };
    const struct table_entry tried[] = {
        {"/tried_step", DPE_COL_I32, c->step, "step that tried the plan", "1", NULL},
        {"/temperature", DPE_COL_STRING, c->temperature, "its attention temperature", "1", NULL},
        {"/window", DPE_COL_I64, c->window, "its near window", "tokens", NULL},
        {"/samples", DPE_COL_I64, c->samples, "samples it was run on", "1", NULL},
        {"/mean", DPE_COL_F64, c->mean, "recall, or nats per token, of those", units, NULL},
        {"/ci_low", DPE_COL_F64, c->low, "lower end of its 95 % interval", units, NULL},
        {"/ci_high", DPE_COL_F64, c->high, "upper end of its 95 % interval", units, NULL},
        {"/gain", DPE_COL_F64, c->gain, "mean paired improvement over the step's first plan", units,
         NULL},
        {"/plan", DPE_COL_STRING, c->keys, "its key in /rows", "1", NULL},
    };
    const struct table_entry length = {"/length", DPE_COL_I64,
                                       c->length, "length of each group, -1 = as in the base",
                                       "tokens",  NULL};
    const struct table_entry top_k = {"/top_k", DPE_COL_I64,
                                      c->top_k, "key pairs of each head that move, -1 = all pairs",
                                      "1",      NULL};
    dpe_detect_put_count(w, "/search/step", search->n_steps, "step of the search");
    dpe_detect_put_count(w, "/search/tried", plans, "plan of a step, its first one first");
    dpe_detect_put_entries(w, "/search", steps, COUNT(steps), &step, 1);
    dpe_detect_put_entries(w, "/search", tried, COUNT(tried), axes, 1);
    dpe_detect_put_entry(w, "/search", &length, axes, 2);
    if (report->grid->params.n_fewer > 0) {
        dpe_detect_put_entry(w, "/search", &top_k, axes, 1);
    }
    dpe_detect_put_text(w, "/search", "rule", rule);
    dpe_detect_put_i64(w, "/search", "samples", search->options.n_samples);
    dpe_detect_put_i64(w, "/search", "rounds", search->options.rounds);
    if (search->options.near.logit_scale > 0.0) {
        char near[160];
        dpe_temperature_text(&search->options.near, near);
        dpe_detect_put_text(w, "/search", "near", near);
    }
}

void dpe_detect_put_search(struct table_writer *w, const struct dpe_detect_report *report)
{
    const struct dpe_detect_search *search = &report->search;
    size_t plans = 0;
    for (int i = 0; i < search->n_steps; i++) {
        plans += (size_t)search->steps[i].n;
    }
    if (search->n_steps == 0) {
        return;
    }
    struct columns columns;
    if (allocate(&columns, (size_t)search->n_steps, plans, (size_t)report->grid->params.n_groups)) {
        fill(report, &columns);
        put(w, report, &columns, (int64_t)plans);
    } else {
        dpe_detect_put_no_memory(w, "plans of a search", plans);
    }
    release(&columns);
}
