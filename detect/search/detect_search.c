/* The search for the best plan: its steps, replayed on the rows that are there. */
#include "detect/search/search.h"
#include "engine/plan/methods/methods.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void dpe_detect_search_free(struct dpe_detect_search *search)
{
    for (int i = 0; i < search->n_steps; i++) {
        free(search->steps[i].tried);
    }
    free(search->steps);
    *search = (struct dpe_detect_search){0};
}

/* Whether a plan of an earlier step, or of this one before it, has this key. */
static bool is_repeated(const struct dpe_detect_search *search, int step, int at)
{
    const char *key = search->steps[step].tried[at].key;
    for (int s = 0; s <= step; s++) {
        const int n = s < step ? search->steps[s].n : at;
        for (int i = 0; i < n; i++) {
            if (strcmp(search->steps[s].tried[i].key, key) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* The most samples that any step has asked for under the plan with this key; *read: whether one has
 * asked for its texts. */
static int64_t most_asked(const struct dpe_detect_search *search, const char *key, bool *read)
{
    int64_t most = 0;
    *read = false;
    for (int s = 0; s < search->n_steps; s++) {
        for (int i = 0; i < search->steps[s].n; i++) {
            const struct dpe_detect_tried *tried = &search->steps[s].tried[i];
            if (strcmp(tried->key, key) == 0) {
                most = dpe_most(most, tried->asked);
                *read = *read || tried->read;
            }
        }
    }
    return most;
}

int dpe_detect_search_finalists(const struct dpe_detect_search *search,
                                struct dpe_detect_point *points, double *value, bool *read,
                                int most)
{
    const bool recall = search->options.criterion == DPE_DETECT_RECALL;
    int n = 0;
    for (int s = 0; s < search->n_steps; s++) {
        for (int i = 0; i < search->steps[s].n && n < most; i++) {
            const struct dpe_detect_tried *tried = &search->steps[s].tried[i];
            if (tried->samples >= search->options.n_samples && isfinite(tried->value.mean) &&
                !is_repeated(search, s, i)) {
                points[n] = tried->point;
                (void)most_asked(search, tried->key, &read[n]);
                value[n++] = recall ? tried->value.mean : -tried->value.mean;
            }
        }
    }
    return n;
}

static bool is_swept(const struct dpe_detect_grid *grid, const char *key)
{
    for (int c = 0; grid != NULL && c < grid->n_configs; c++) {
        if (strcmp(grid->configs[c].key, key) == 0) {
            return true;
        }
    }
    return false;
}

int64_t dpe_detect_search_asked(const struct dpe_detect_search *search,
                                const struct dpe_detect_grid *swept, int64_t samples)
{
    int64_t rows = 0;
    for (int s = 0; s < search->n_steps; s++) {
        for (int i = 0; i < search->steps[s].n; i++) {
            const char *key = search->steps[s].tried[i].key;
            if (!is_repeated(search, s, i)) {
                bool read = false;
                int64_t there = is_swept(swept, key) ? samples : 0;
                rows += dpe_most(0, most_asked(search, key, &read) - there);
                rows += read ? search->options.texts : 0;
            }
        }
    }
    return rows;
}

/* --------------------------------------------------------------------------------------- search */

/* A search at work. */
struct walk {
    const struct dpe_detect_grid *grid;
    const struct dpe_plan_context *context;
    const struct dpe_detect_ranking *ranking;
    const struct dpe_detect_source *source;
    struct dpe_detect_search *search;
    int64_t single_samples; /* that the plan with one length was run on */
    double single_value;    /* and what they show */
    struct dpe_error *err;
};

/* The step's plans by their keys; what is there already is dropped. */
static dpe_status fill_keys(const struct walk *walk, struct dpe_detect_step *step)
{
    int kept = 0;
    for (int i = 0; i < step->n; i++) {
        DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
        struct dpe_detect_tried *tried = &step->tried[kept];
        *tried = step->tried[i];
        tried->nll = NAN;
        dpe_status status =
            dpe_detect_point_plan(walk->grid, walk->context, &tried->point, &plan, walk->err);
        if (status == DPE_USAGE && tried->point.family > 0 && i > 0) {
            continue; /* a setting that the method does not have */
        }
        DPE_TRY(status);
        DPE_TRY(dpe_plan_key(&plan, tried->key, walk->err));
        bool known = false;
        for (int k = 0; k < kept; k++) {
            known = known || strcmp(step->tried[k].key, tried->key) == 0;
        }
        kept += !known;
    }
    step->n = kept;
    return DPE_OK;
}

/* The plan with one length for all groups that the rows show to be best, this step's among them: of
 * those run on the most samples, the one with the best mean. */
static void find_single(struct walk *walk, const struct dpe_detect_step *step)
{
    const bool recall = walk->search->options.criterion == DPE_DETECT_RECALL;
    for (int i = 0; i < step->n; i++) {
        const struct dpe_detect_tried *tried = &step->tried[i];
        const double value = recall ? tried->value.mean : -tried->value.mean;
        if (!dpe_detect_point_is_single(&walk->grid->params, &tried->point) || !isfinite(value)) {
            continue;
        }
        if (tried->samples > walk->single_samples ||
            (tried->samples == walk->single_samples &&
             value > walk->single_value + DPE_DETECT_TIE)) {
            walk->search->single = tried->point;
            walk->single_samples = tried->samples;
            walk->single_value = value;
        }
    }
}

/* Groups are held against the best that one length can do, with the temperature and the window that
 * rows have shown to suit it; the pairs that move are the search's. */
static void align_single(const struct walk *walk)
{
    struct dpe_detect_search *search = walk->search;
    if (dpe_detect_point_is_single(&walk->grid->params, &search->point)) {
        search->single = search->point;
    }
    search->single.fewer = search->point.fewer;
}

/* From *at on, which becomes the plan that the step ends with. */
static dpe_status take_step(struct walk *walk, enum dpe_detect_move move, int round,
                            struct dpe_detect_point *at)
{
    struct dpe_detect_search *search = walk->search;
    struct dpe_detect_step *step = &search->steps[search->n_steps];
    *step = (struct dpe_detect_step){.move = move, .round = round, .best = -1, .p = NAN};
    DPE_TRY(DPE_NEW(&step->tried, DPE_DETECT_MOST_CANDIDATES, walk->err,
                    "out of memory for a step of the search"));
    search->n_steps++;
    step->tried[0].point = *at;
    /* The whole grid of temperatures is for the first step with them alone. */
    bool again = false;
    for (int s = 0; s < search->n_steps - 1 && move == DPE_DETECT_MOVE_TEMPERATURE; s++) {
        again = again || search->steps[s].move == move;
    }
    const int nth = again ? round + 1 : round;
    step->n = dpe_detect_candidates(&walk->grid->params, walk->context->config->head_dim,
                                    walk->ranking, &search->options, move, nth, step->tried);
    DPE_TRY(fill_keys(walk, step));
    DPE_TRY(dpe_detect_step_run(walk->source, search, step, walk->err));
    if (search->complete) {
        *at = step->tried[step->chosen].point;
    }
    return DPE_OK;
}

/* Methods that need no adapter, from yarn on, and then the others, from what the joint search found
 * on. */
static dpe_status families(struct walk *walk)
{
    enum { TWICE = 2 };
    struct dpe_detect_search *search = walk->search;
    const uint32_t wanted = search->options.families;
    const uint32_t plain = (1U << DPE_DETECT_PLAIN_FAMILIES) - 1U;
    struct dpe_detect_point best = search->point;
    struct dpe_detect_point yarn = {.family = 1, .temperature = dpe_temperature_none};
    memcpy(yarn.at, search->start.at, sizeof yarn.at);
    bool changed = true;
    for (int round = 0; round < DPE_DETECT_PLAIN_ROUNDS && (wanted & 1U) != 0 && changed; round++) {
        DPE_TRY(take_step(walk, DPE_DETECT_MOVE_PLAIN, round, &yarn));
        if (!search->complete) {
            return DPE_OK;
        }
        changed = round == 0 || search->steps[search->n_steps - 1].chosen > 0;
        search->plain = yarn;
    }
    for (int round = 0; round < TWICE && (wanted & ~plain) != 0 && (round == 0 || best.family > 0);
         round++) {
        DPE_TRY(take_step(walk, DPE_DETECT_MOVE_FAMILY, round, &best));
        if (!search->complete) {
            return DPE_OK;
        }
    }
    search->family = best.family > 0 ? best : search->family;
    return DPE_OK;
}

/* The window first: it costs least, and after a gain less is left to show for the others. */
static dpe_status joint_rounds(struct walk *walk)
{
    static const enum dpe_detect_move moves[] = {
        DPE_DETECT_MOVE_WINDOW, DPE_DETECT_MOVE_LENGTHS, DPE_DETECT_MOVE_SPLIT,
        DPE_DETECT_MOVE_GROUP,  DPE_DETECT_MOVE_PAIRS,   DPE_DETECT_MOVE_TEMPERATURE};
    struct dpe_detect_search *search = walk->search;
    bool changed = true;
    for (int round = 0; round < search->options.rounds && changed; round++) {
        changed = false;
        for (size_t i = 0; i < sizeof moves / sizeof moves[0]; i++) {
            if ((moves[i] == DPE_DETECT_MOVE_TEMPERATURE && !search->options.temperature) ||
                (moves[i] == DPE_DETECT_MOVE_WINDOW && walk->grid->params.frequencies) ||
                (moves[i] == DPE_DETECT_MOVE_PAIRS && walk->grid->params.n_fewer == 0)) {
                continue;
            }
            DPE_TRY(take_step(walk, moves[i], round, &search->point));
            if (!search->complete) {
                return DPE_OK;
            }
            const struct dpe_detect_step *step = &search->steps[search->n_steps - 1];
            changed = changed || step->chosen > 0;
            /* Later rounds change one length with the groups. */
            if (moves[i] == DPE_DETECT_MOVE_LENGTHS && round == 0) {
                find_single(walk, step);
            }
        }
    }
    return DPE_OK;
}

static dpe_status search_init(struct dpe_detect_search *search,
                              const struct dpe_detect_search_options *options,
                              const struct dpe_detect_params *params, struct dpe_error *err)
{
    *search = (struct dpe_detect_search){.options = *options, .complete = true};
    if (options->rounds < 1 || options->rounds > 1000 || options->n_samples < 1 ||
        options->per_round < 1 || options->together < 1) {
        return dpe_fail(err, DPE_INTERNAL, "a search of %lld samples in %d rounds",
                        (long long)options->n_samples, options->rounds);
    }
    const int most = 1 + options->rounds * DPE_DETECT_N_MOVES + DPE_DETECT_PLAIN_ROUNDS + 2;
    DPE_TRY(
        DPE_NEW(&search->steps, (size_t)most, err, "out of memory for a search of %d steps", most));
    dpe_detect_point_base(params, &search->start);
    if (options->temperature) {
        search->start.temperature = dpe_temperature_none;
    }
    search->point = search->start;
    return DPE_OK;
}

dpe_status dpe_detect_search_replay(const struct dpe_detect_search_options *options,
                                    const struct dpe_detect_grid *grid,
                                    const struct dpe_plan_context *context,
                                    const struct dpe_detect_ranking *ranking,
                                    const struct dpe_detect_source *source,
                                    struct dpe_detect_search *search, struct dpe_error *err)
{
    *search = (struct dpe_detect_search){0};
    DPE_SCOPED(dpe_detect_search_free) struct dpe_detect_search made = {0};
    struct walk walk = {.grid = grid,
                        .context = context,
                        .ranking = ranking,
                        .source = source,
                        .search = &made,
                        .err = err};
    DPE_TRY(search_init(&made, options, &grid->params, err));
    made.single = made.point;
    if (dpe_detect_is_coarse(options, &grid->params)) {
        DPE_TRY(take_step(&walk, DPE_DETECT_MOVE_COARSE, 0, &made.point));
        if (made.complete) {
            find_single(&walk, &made.steps[0]);
        }
    } else if (options->temperature) {
        DPE_TRY(take_step(&walk, DPE_DETECT_MOVE_TEMPERATURE, 0, &made.point));
        made.single = made.point;
    }
    if (made.complete && options->joint) {
        made.wants_sweep = ranking == NULL;
        made.complete = ranking != NULL;
        DPE_TRY(ranking != NULL ? joint_rounds(&walk) : DPE_OK);
    }
    if (made.complete && options->joint && options->families != 0) {
        DPE_TRY(families(&walk));
    }
    align_single(&walk);
    for (int i = 0; i < made.n_steps && made.complete; i++) {
        DPE_TRY(dpe_detect_step_intervals(source, &made, &made.steps[i], err));
    }
    *search = made;
    made = (struct dpe_detect_search){0};
    return DPE_OK;
}
