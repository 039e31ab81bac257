/* /search: every step of the search for temperature and joint plan, and every plan it tried. */
#include <stdlib.h>
#include <string.h>

#include "detect/table/detect_table_internal.h"
#include "outputs/datasets/kinds.h"

static const char rule[] =
    "each step runs the plan that the search has on all samples, and its changes by sequential "
    "halving: all on an eighth (at least four contexts), the better third on a quarter, and so on; "
    "the best one is taken "
    "when its one-sided paired sign-flip test has p < 0.05 (samples of one context change their "
    "sign together), not corrected for the number of changes: validation decides what is kept";

/* The plans' temperatures are texts, each in a place of its own. */
struct searched {
    struct dpe_search_result r;
    char (*texts)[DPE_TEMPERATURE_TEXT];
    char (*specs)[DPE_DETECT_SPEC];
};

static bool allocate(const struct dpe_detect_report *report, size_t plans, struct searched *s)
{
    const size_t steps = (size_t)report->search.n_steps;
    const size_t groups = (size_t)report->grid->params.n_groups;
    const bool varies = report->grid->params.n_fewer > 0;
    s->r = (struct dpe_search_result){
        .n = {(int64_t)steps, (int64_t)plans, (int64_t)groups},
        .steps = dpe_alloc_zero(steps, sizeof *s->r.steps),
        .tried = dpe_alloc_zero(plans, sizeof *s->r.tried),
        .length = dpe_alloc(plans * groups, sizeof *s->r.length),
        .top_k = varies ? dpe_alloc(plans, sizeof *s->r.top_k) : NULL,
    };
    s->texts = dpe_alloc(plans, sizeof *s->texts);
    s->specs = dpe_alloc(plans, sizeof *s->specs);
    return s->r.steps != NULL && s->r.tried != NULL && s->r.length != NULL && s->texts != NULL &&
           s->specs != NULL && (s->r.top_k != NULL) == varies;
}

static void fill_plan(const struct dpe_detect_params *params, const struct dpe_detect_tried *tried,
                      int step, size_t at, struct searched *s)
{
    s->r.tried[at] = (struct dpe_searched_plan){.temperature = s->texts[at],
                                                .plan = tried->key,
                                                .method = s->specs[at],
                                                .step = step,
                                                .window = tried->point.window,
                                                .samples = tried->samples,
                                                .value = tried->value,
                                                .gain = tried->gain};
    if (s->r.top_k != NULL) {
        s->r.top_k[at] = dpe_detect_point_pairs(params, &tried->point).k;
    }
    dpe_temperature_text(&tried->point.temperature, s->texts[at]);
    dpe_detect_point_spec(&tried->point, s->specs[at]);
    dpe_detect_point_lengths(params, &tried->point, s->r.length + at * (size_t)params->n_groups);
}

static void fill(const struct dpe_detect_report *report, struct searched *s)
{
    const struct dpe_detect_search *search = &report->search;
    size_t at = 0;
    for (int i = 0; i < search->n_steps; i++) {
        const struct dpe_detect_step *step = &search->steps[i];
        s->r.steps[i] = (struct dpe_searched_step){.move = dpe_detect_move_names[step->move],
                                                   .round = step->round,
                                                   .chosen = (int32_t)at + step->chosen,
                                                   .tested = step->tested,
                                                   .p = step->p};
        for (int k = 0; k < step->n; k++) {
            fill_plan(&report->grid->params, &step->tried[k], i, at++, s);
        }
    }
}

static void put(struct dpe_h5 *table, const struct dpe_detect_report *report,
                const struct searched *s)
{
    const struct dpe_detect_search *search = &report->search;
    const bool recall = search->options.criterion == DPE_DETECT_RECALL;
    dpe_datasets_put(&dpe_search_kinds[!recall], &s->r, "/search", table, NULL);
    dpe_h5_attr_text(table, "/search", "rule", rule, NULL);
    dpe_h5_attr_i64(table, "/search", "samples", search->options.n_samples, NULL);
    dpe_h5_attr_i64(table, "/search", "rounds", search->options.rounds, NULL);
    if (search->options.near.logit_scale > 0.0) {
        char near[DPE_TEMPERATURE_TEXT];
        dpe_temperature_text(&search->options.near, near);
        dpe_h5_attr_text(table, "/search", "near", near, NULL);
    }
}

void dpe_detect_put_search(struct dpe_h5 *table, const struct dpe_detect_report *report)
{
    const struct dpe_detect_search *search = &report->search;
    struct searched searched = {0};
    size_t plans = 0;
    for (int i = 0; i < search->n_steps; i++) {
        plans += (size_t)search->steps[i].n;
    }
    if (search->n_steps == 0) {
        return;
    }
    if (allocate(report, plans, &searched)) {
        fill(report, &searched);
        put(table, report, &searched);
    } else {
        dpe_h5_stop(table, DPE_NO_MEMORY, "out of memory for %zu plans of a search", plans);
    }
    free(searched.r.steps);
    free(searched.r.tried);
    free(searched.r.length);
    free(searched.r.top_k);
    free(searched.texts);
    free(searched.specs);
}
