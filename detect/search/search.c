/* The search: heat after heat, replayed on the rows that are there. */
#include "detect/search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FORMULA = 1, LEAST_LEFT = 2, MOST_RUNGS = 62 };

struct walk {
    const struct dpe_detect_search_options *options;
    const struct dpe_detect_source *source;
    struct dpe_detect_search *search;
    int n;                              /* candidates of the heat that still read */
    int live[DPE_DETECT_MOST_TRIED];    /* [n] indices */
    int64_t contexts;                   /* that all of them have read */
    double mean[DPE_DETECT_MOST_TRIED]; /* [n] of these contexts, larger = better */
    struct dpe_error *err;
};

void dpe_detect_search_free(struct dpe_detect_search *search)
{
    free(search->tried);
    *search = (struct dpe_detect_search){0};
}

/* ------------------------------------------------------------------------------------ candidates
 */

static bool is_known(const struct dpe_detect_search *search, const char *key)
{
    for (int i = 0; i < search->n; i++) {
        if (strcmp(search->tried[i].key, key) == 0) {
            return true;
        }
    }
    return false;
}

/* The heat's candidates that are plans of this model and not there yet; those that read begin with
 * what the search has. */
static dpe_status admit(struct walk *walk, int heat)
{
    struct dpe_detect_search *search = walk->search;
    const int made = dpe_detect_candidates(walk->options, heat, search->tried, search->n,
                                           search->best, search->plain);
    walk->n = 0;
    const int kept[] = {search->best, FORMULA, search->plain};
    for (int i = 0; i < 3 && heat > 0; i++) {
        bool there = kept[i] < 0 || kept[i] >= search->n ||
                     (i == 1 && search->tried[FORMULA].kind != DPE_DETECT_FORMULA);
        for (int k = 0; k < walk->n; k++) {
            there = there || walk->live[k] == kept[i];
        }
        if (!there) {
            walk->live[walk->n++] = kept[i];
        }
    }
    for (int i = search->n; i < made; i++) {
        struct dpe_detect_tried tried = search->tried[i];
        bool fits = false;
        tried.nll = (double)NAN;
        DPE_TRY(walk->source->admit(walk->source->user, &tried, &fits, walk->err));
        if (fits && !is_known(search, tried.key)) {
            walk->live[walk->n++] = search->n;
            search->tried[search->n++] = tried;
        }
    }
    return DPE_OK;
}

/* ----------------------------------------------------------------------------------------- rows */

/* Scores of the live plans on the first contexts of a task; *there: no row is missing, else the
 * search says what is. */
static dpe_status collect(struct walk *walk, enum dpe_detect_stream stream, int64_t contexts,
                          struct dpe_detect_scores *scores, bool *there)
{
    struct dpe_detect_search *search = walk->search;
    const char *keys[DPE_DETECT_MOST_TRIED];
    for (int k = 0; k < walk->n; k++) {
        keys[k] = search->tried[walk->live[k]].key;
    }
    DPE_TRY(walk->source->scores(walk->source->user, stream, keys, walk->n, contexts, scores,
                                 walk->err));
    *there = true;
    memset(search->wanted, 0, sizeof search->wanted);
    for (int k = 0; k < walk->n; k++) {
        for (int64_t s = 0; s < scores->n_samples; s++) {
            if (scores->status[k * scores->n_samples + s] < 0) {
                search->wanted[walk->live[k]] = 1;
                *there = false;
            }
        }
    }
    search->stream = stream;
    search->contexts = contexts;
    return DPE_OK;
}

/* Contexts that the live plans lack of so many. */
static int64_t lacking(const struct walk *walk, enum dpe_detect_stream stream, int64_t contexts)
{
    int64_t n = 0;
    for (int k = 0; k < walk->n; k++) {
        n += dpe_most(0, contexts - walk->search->tried[walk->live[k]].contexts[stream]);
    }
    return n;
}

/* Let the live plans read so many contexts. *go: they have; else rows are missing, or the budget
 * does not hold it (search->complete). Settings of a method end where a run ends that never had
 * more. */
static dpe_status read(struct walk *walk, enum dpe_detect_stream stream, int64_t contexts,
                       struct dpe_detect_scores *scores, bool *go)
{
    struct dpe_detect_search *search = walk->search;
    const int64_t needs = lacking(walk, stream, contexts);
    const bool pays = search->spent + needs <= walk->options->budget || search->spent == 0;
    search->least = search->spent == 0 ? needs : search->least;
    *go = pays;
    if (pays || walk->options->n_settings == 0) { /* what a larger budget has read costs nothing */
        DPE_TRY(collect(walk, stream, contexts, scores, go));
    }
    if (!*go && !pays) {
        search->complete = true;
        return DPE_OK;
    }
    for (int k = 0; k < walk->n && *go; k++) {
        int64_t *had = &search->tried[walk->live[k]].contexts[stream];
        *had = dpe_most(*had, contexts);
    }
    search->spent += *go ? needs : 0;
    return DPE_OK;
}

/* -------------------------------------------------------------------------------------- heats */

static void take_means(struct walk *walk, const struct dpe_detect_scores *scores)
{
    const struct dpe_detect_search_options *options = walk->options;
    for (int k = 0; k < walk->n; k++) {
        struct dpe_detect_tried *tried = &walk->search->tried[walk->live[k]];
        const struct dpe_interval found = dpe_detect_interval(scores, k, options->criterion);
        walk->mean[k] = found.n == 0                              ? -(double)INFINITY
                        : options->criterion == DPE_DETECT_RECALL ? found.mean
                                                                  : -log(found.mean);
        if (walk->contexts >= tried->contexts[DPE_DETECT_NEEDLES]) {
            tried->found = found;
        }
    }
}

/* The plan that ranks so-and-so among the live ones, −1: none; ties to the earlier. */
static int ranked(const struct walk *walk, int rank, bool plain)
{
    for (int k = 0; k < walk->n; k++) {
        int before = 0;
        for (int i = 0; i < walk->n; i++) {
            const bool counts = !plain || walk->search->tried[walk->live[i]].plain;
            before += counts &&
                      (walk->mean[i] > walk->mean[k] || (walk->mean[i] == walk->mean[k] && i < k));
        }
        if (before == rank && (!plain || walk->search->tried[walk->live[k]].plain)) {
            return k;
        }
    }
    return -1;
}

/* Whether nothing may be needed: the model as it is finds nearly as much as the best. */
static bool is_as_good(const struct walk *walk, int k)
{
    return walk->search->tried[walk->live[k]].kind == DPE_DETECT_UNCHANGED &&
           walk->mean[ranked(walk, 0, false)] - walk->mean[k] <= DPE_DETECT_CLEAR;
}

/* Those that read on: the best `left`, what the search has, the formula, the best that needs no
 * adapter, and the model as it is where nothing may be needed. */
static void drop(struct walk *walk, int left)
{
    const struct dpe_detect_search *search = walk->search;
    bool stays[DPE_DETECT_MOST_TRIED] = {false};
    for (int rank = 0; rank < left && rank < walk->n; rank++) {
        stays[ranked(walk, rank, false)] = true;
    }
    for (int k = 0; k < walk->n; k++) {
        stays[k] = stays[k] || is_as_good(walk, k);
    }
    const int plain = ranked(walk, 0, true);
    int n = 0;
    for (int k = 0; k < walk->n; k++) {
        const struct dpe_detect_tried *tried = &search->tried[walk->live[k]];
        if (stays[k] || k == plain || (search->heats > 0 && walk->live[k] == search->best) ||
            tried->kind == DPE_DETECT_FORMULA) {
            walk->mean[n] = walk->mean[k];
            walk->live[n++] = walk->live[k];
        }
    }
    walk->n = n;
}

/* Whether the formula leads every other by so much that a second context would not change it. */
static bool is_clear(const struct walk *walk)
{
    const int first = ranked(walk, 0, false), second = ranked(walk, 1, false);
    return walk->options->criterion == DPE_DETECT_RECALL && first >= 0 && second >= 0 &&
           walk->search->tried[walk->live[first]].kind == DPE_DETECT_FORMULA &&
           walk->mean[first] - walk->mean[second] >= DPE_DETECT_CLEAR;
}

/* Of the contexts that all live plans have read. */
static dpe_status settle(struct walk *walk)
{
    struct dpe_detect_search *search = walk->search;
    DPE_SCOPED(dpe_detect_scores_free) struct dpe_detect_scores needles = {0};
    DPE_SCOPED(dpe_detect_scores_free) struct dpe_detect_scores users = {0};
    double nll[DPE_DETECT_MOST_TRIED];
    enum dpe_detect_kind kinds[DPE_DETECT_MOST_TRIED];
    bool able[DPE_DETECT_MOST_TRIED];
    bool there = false;
    int64_t asked = INT64_MAX;
    struct dpe_detect_choice choice = {.n = walk->n,
                                       .criterion = walk->options->criterion,
                                       .tasks = {&needles},
                                       .nll = nll,
                                       .kinds = kinds,
                                       .able = able,
                                       .held = -1,
                                       .guard = walk->options->guard};
    DPE_TRY(collect(walk, DPE_DETECT_NEEDLES, walk->contexts, &needles, &there));
    for (int k = 0; k < walk->n; k++) {
        const struct dpe_detect_tried *tried = &search->tried[walk->live[k]];
        nll[k] = tried->nll;
        kinds[k] = tried->kind;
        able[k] = tried->table;
        choice.held = search->heats > 0 && walk->live[k] == search->best ? k : choice.held;
        asked = dpe_least(asked, tried->contexts[DPE_DETECT_USERS]);
    }
    if (asked > 0) {
        DPE_TRY(collect(walk, DPE_DETECT_USERS, asked, &users, &there));
        choice.tasks[1] = &users;
    }
    take_means(walk, &needles);
    const int chosen = dpe_detect_choose(&choice);
    const int plain = ranked(walk, 0, true);
    search->best = chosen >= 0 ? walk->live[chosen] : 0;
    search->plain = plain >= 0 ? walk->live[plain] : search->plain;
    return DPE_OK;
}

/* So many texts of the guard, under what is left of a heat. */
static dpe_status read_texts(struct walk *walk, int64_t n, bool *go)
{
    DPE_SCOPED(dpe_detect_scores_free) struct dpe_detect_scores texts = {0};
    double nll[DPE_DETECT_MOST_TRIED];
    if (n == 0) {
        return DPE_OK;
    }
    DPE_TRY(read(walk, DPE_DETECT_TEXTS, n, &texts, go));
    if (*go) {
        dpe_detect_texts(&texts, nll);
        for (int k = 0; k < walk->n; k++) {
            walk->search->tried[walk->live[k]].nll = nll[k];
        }
    }
    return DPE_OK;
}

/* The texts, and the task of the user. */
static dpe_status read_others(struct walk *walk, bool *go)
{
    const int64_t *most = walk->options->most;
    DPE_SCOPED(dpe_detect_scores_free) struct dpe_detect_scores users = {0};
    DPE_TRY(read_texts(walk, most[DPE_DETECT_TEXTS], go));
    if (*go && most[DPE_DETECT_USERS] > 0) {
        DPE_TRY(read(walk, DPE_DETECT_USERS, dpe_least(2 * walk->contexts, most[DPE_DETECT_USERS]),
                     &users, go));
    }
    return DPE_OK;
}

/* The first heat reads a text, for the guard, only where it would choose neither the model as it is
 * nor the formula. */
static dpe_status settle_first(struct walk *walk, bool *go)
{
    const struct dpe_detect_search *search = walk->search;
    DPE_TRY(settle(walk));
    if (*go && walk->options->guard > 0.0 &&
        search->tried[search->best].kind > DPE_DETECT_FORMULA) {
        DPE_TRY(read_texts(walk, dpe_least(1, walk->options->most[DPE_DETECT_TEXTS]), go));
        DPE_TRY(*go ? settle(walk) : DPE_OK);
    }
    return DPE_OK;
}

static int rungs_of(const struct dpe_detect_search_options *options, int heat)
{
    int rungs = heat == 0 ? 2 : 3;
    if (options->n_settings > 0) {
        return MOST_RUNGS;
    }
    while (heat == 0 && options->questions << (rungs - 1) < DPE_DETECT_QUESTIONS) {
        rungs++;
    }
    return rungs;
}

/* *go: the heat ended with a choice, and another one may follow. */
static dpe_status run_heat(struct walk *walk, int heat, bool *go)
{
    struct dpe_detect_search *search = walk->search;
    const int64_t most = walk->options->most[DPE_DETECT_NEEDLES];
    const bool settings = walk->options->n_settings > 0;
    const int rungs = rungs_of(walk->options, heat);
    const int before = search->n;
    DPE_TRY(admit(walk, heat));
    search->exhausted = search->n == before || (heat > 0 && walk->contexts >= most);
    search->complete = search->exhausted;
    *go = !search->exhausted;
    walk->contexts = 0;
    for (int rung = 0; rung < rungs && *go && walk->contexts < most; rung++) {
        const int64_t contexts = dpe_least((INT64_C(1) << heat) << rung, most);
        DPE_SCOPED(dpe_detect_scores_free) struct dpe_detect_scores scores = {0};
        DPE_TRY(read(walk, DPE_DETECT_NEEDLES, contexts, &scores, go));
        if (!*go) {
            break;
        }
        walk->contexts = contexts;
        take_means(walk, &scores);
        if (heat == 0 && is_clear(walk)) {
            break;
        }
        if (rung < rungs - 1) {
            const int third = (walk->n + 2) / 3;
            const bool two = !settings && (heat == 0 || rung > 0);
            drop(walk, two || third < LEAST_LEFT ? LEAST_LEFT : third);
        }
    }
    if (*go && heat > 0) {
        DPE_TRY(read_others(walk, go));
    }
    if (search->complete && walk->contexts == 0) {
        search->n = before; /* none of its candidates was read */
    }
    /* A heat that the budget ends chooses by what all that are left have read. */
    if ((*go || search->complete) && walk->contexts > 0) {
        DPE_TRY(heat == 0 ? settle_first(walk, go) : settle(walk));
        search->heats += *go || search->complete;
    }
    return DPE_OK;
}

dpe_status dpe_detect_search_replay(const struct dpe_detect_search_options *options,
                                    const struct dpe_detect_source *source,
                                    struct dpe_detect_search *search, struct dpe_error *err)
{
    bool go = true;
    *search = (struct dpe_detect_search){.plain = -1};
    DPE_TRY(DPE_NEW(&search->tried, DPE_DETECT_MOST_TRIED, err, "out of memory for candidates"));
    DPE_OWNED struct walk *walk = NULL; /* too large for a small stack */
    DPE_TRY(DPE_NEW(&walk, 1, err, "out of memory for a search"));
    *walk = (struct walk){.options = options, .source = source, .search = search, .err = err};
    for (int heat = 0; heat < DPE_DETECT_MOST_HEATS && go; heat++) {
        DPE_TRY(run_heat(walk, heat, &go));
    }
    search->exhausted = search->exhausted || go;
    search->complete = search->complete || go;
    return DPE_OK;
}
