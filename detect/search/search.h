/**
 * @file search.h
 * The search for the best plan: temperature, lengths, near window and groups, one after another,
 * each change only where a paired test shows that it helps.
 */
#ifndef DPE_DETECT_SEARCH_H
#define DPE_DETECT_SEARCH_H

#include "detect/sweep/grid.h"
#include "detect/sweep/ranking.h"
#include "engine/base/base.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"

enum {
    DPE_DETECT_MOST_GROUPS = DPE_MOST_PAIRS,
    DPE_DETECT_MOST_CANDIDATES = 64, /**< of a step, the plan it starts from included */
    DPE_DETECT_MOST_CUTS = 4,        /**< where a step splits the groups */
    DPE_DETECT_SEARCH_ROUNDS = 1,    /**< by default */
};

/** Methods that a search tries beside plans of DPE: first those that change frequencies and a
 * factor on the logits alone, which runtimes read without an adapter. As released, but without
 * temperatures that official code carries silently: the search has its own. */
enum {
    DPE_DETECT_FAMILIES = 9,
    DPE_DETECT_PLAIN_FAMILIES = 4,
    DPE_DETECT_RAMP = 2, /**< index of mrrope:form=uni, also tried as a ramp whose ends move */
    DPE_DETECT_PLAIN_ROUNDS = 3
};
extern const char *const dpe_detect_families[DPE_DETECT_FAMILIES];

/** Level of the test that a change has to pass, one-sided. */
#define DPE_DETECT_SEARCH_LEVEL 0.05

/** The factor on the logits that YaRN has for the length: a² with a = 0.1 ln(L/L0) + 1. */
double dpe_detect_yarn_factor(const struct dpe_detect_params *params);

/** A plan of the search, as what it varies. */
struct dpe_detect_point {
    struct dpe_temperature temperature;
    int64_t window;                     /**< tokens */
    int16_t at[DPE_DETECT_MOST_GROUPS]; /**< [n_groups] index of a length; −1: as in the base */
    int16_t family;  /**< 0: a plan of DPE; i: method i − 1 of dpe_detect_families, with this
                        temperature and, where it is above 0, this window */
    int16_t fewer;   /**< pairs that move: 0: those of the sweep; i: number i − 1 of `fewer` */
    double turns[2]; /**< ends of a ramp, in turns in L0: pairs that turn more often than turns[0]
                        stay as they are, those that turn less often than turns[1] are divided by
                        all of L/L0, those between by less; 0: the family's own ends */
};
/** The base (dpe_detect_base_at), with the window and the temperature of `params`. */
void dpe_detect_point_base(const struct dpe_detect_params *params, struct dpe_detect_point *point);
/** What searches end with or near to, without one: log-n from L0 with the exponent 0.7, the fastest
 * eighth of the groups where they are, the others at L0, a near window of 3/16 L0 (half as wide
 * again as `window`; beyond 16·L0 `window` itself); of fewer groups than eight all at L0 and a
 * window of L0/4; up to 2·L0 all as in the base and a window of L0/2 (eval/RESULTS.md). False: L0
 * is no detecting length where it is one of them, or frequencies move. */
bool dpe_detect_point_usual(const struct dpe_detect_params *params, struct dpe_detect_point *point);
/** Its scales [n_groups]: the base's where it is as in the base, else dpe_detect_joint_scale. */
void dpe_detect_point_scales(const struct dpe_detect_params *params,
                             const struct dpe_detect_point *point, double *scale);
/** The length of a group in tokens; −1 where it is as in the base and that is not a detecting
 *  length. */
int64_t dpe_detect_point_length(const struct dpe_detect_params *params,
                                const struct dpe_detect_point *point, int group);
/** The pairs that move in it: mask NULL and k −1: those of a sweep that moves all. */
struct dpe_detect_key_pairs dpe_detect_point_pairs(const struct dpe_detect_params *params,
                                                   const struct dpe_detect_point *point);
/** Whether all groups have one length; of frequencies, all after the first ones that are kept. */
bool dpe_detect_point_is_single(const struct dpe_detect_params *params,
                                const struct dpe_detect_point *point);
/** A plan of DPE as the spec of --method; "" where it does not fit or only some pairs move. */
void dpe_detect_point_dpe_spec(const struct dpe_detect_grid *grid,
                               const struct dpe_detect_point *point, char *spec, size_t size);
/** The spec of a point of a family, as --method takes it; "" for a plan of DPE. */
enum { DPE_DETECT_SPEC = 256 };
void dpe_detect_point_spec(const struct dpe_detect_point *point, char spec[DPE_DETECT_SPEC]);
/** Its plan, freed by the caller. DPE_USAGE: a family that this model cannot have. */
dpe_status dpe_detect_point_plan(const struct dpe_detect_grid *grid,
                                 const struct dpe_plan_context *context,
                                 const struct dpe_detect_point *point, struct dpe_plan *plan,
                                 struct dpe_error *err);

/** What a step varies. */
enum dpe_detect_move {
    DPE_DETECT_MOVE_TEMPERATURE,
    DPE_DETECT_MOVE_LENGTHS, /**< one length for all groups, or the lengths that the sweep ranks
                                  first */
    DPE_DETECT_MOVE_WINDOW,  /**< not of frequencies */
    DPE_DETECT_MOVE_SPLIT,  /**< the fastest groups at the longest length, the others at a short one
                             */
    DPE_DETECT_MOVE_GROUP,  /**< the length of one group */
    DPE_DETECT_MOVE_PAIRS,  /**< how many key pairs move, where the parameters have smaller numbers
                             */
    DPE_DETECT_MOVE_PLAIN,  /**< methods that need no adapter, of which it keeps the best */
    DPE_DETECT_MOVE_FAMILY, /**< the other methods, against the plan that the search has */
    DPE_DETECT_MOVE_COARSE, /**< temperature, near window, and lengths, at once */
    DPE_DETECT_N_MOVES,
};
/** "temperature", "lengths", "window", "split", "group", "pairs", "plain", "family", "coarse". */
extern const char *const dpe_detect_move_names[DPE_DETECT_N_MOVES];

/** One plan of a step. */
struct dpe_detect_tried {
    struct dpe_detect_point point;
    char key[33];              /**< row key */
    struct dpe_interval value; /**< recall, or nats per token, of the samples it was run on; with an
                                  interval of 95 % once the search is complete */
    int64_t samples;           /**< it was run on */
    double gain;   /**< mean paired improvement over the step's first plan, > 0 = better; NaN */
    int64_t asked; /**< samples that the search has asked for, those of `wanted` included */
    bool wanted;   /**< rows are missing: samples below dpe_detect_search.wanted */
    bool read;     /**< the guard's texts were asked for */
    double nll;    /**< nats per token of the guard's texts; NaN: not read; ∞: not predicted */
};
/** One step: its first plan is the one that the search has, the others are changes of it. */
struct dpe_detect_step {
    enum dpe_detect_move move;
    int round; /**< from 0 */
    int n;
    struct dpe_detect_tried *tried; /**< [n] */
    bool tested; /**< false: the first plan loses something in so few contexts that no test of these
                      samples can show an improvement, so the others were not run */
    int best;    /**< the change that was tested; −1: none is better, or none was tested */
    double p;    /**< of: it is not better than the first; NaN */
    int chosen;  /**< best, or 0 */
    bool guarded; /**< best takes the place of the first plan without a test: it finds more, and the
                     first loses more perplexity to it than the guard allows */
};

/** Whether the best of a step is kept without a test: validation holds it on fresh samples beside
 * the joint plan. */
static inline bool dpe_detect_step_picks(const struct dpe_detect_step *step)
{
    return step->move == DPE_DETECT_MOVE_FAMILY ||
           (step->move == DPE_DETECT_MOVE_PLAIN && step->round == 0);
}

/** How a search is made. */
struct dpe_detect_search_options {
    bool temperature;            /**< search it; else every plan has that of the parameters */
    struct dpe_temperature near; /**< what suits a shorter length: the search begins around it, and
                                      not with the whole grid; logit_scale 0: none */
    bool joint;                  /**< search the rest, after the sweep */
    bool brief;                  /**< the coarse step alone, without a sweep */
    uint32_t families; /**< bit i: dpe_detect_families[i] is tried after the joint search */
    int rounds;        /**< of the joint search, ≥ 1 */
    int64_t n_samples; /**< of the deciding task */
    int64_t per_round; /**< the first samples of a step are a multiple of it, ≥ 1 */
    int64_t together;  /**< samples in a row that share a context, ≥ 1 */
    enum dpe_detect_criterion criterion;
    double guard;  /**< share of perplexity that a plan may lose to one that finds more */
    int64_t texts; /**< that the guard reads; 0: none, and every plan is within it */
};
/** Where a search gets rows: *scores ([n] cells × n_samples; freed by the caller) of these plans,
 *  as far as they are there. */
struct dpe_detect_source {
    void *user;
    dpe_status (*scores)(void *user, const char *const *keys, int n,
                         struct dpe_detect_scores *scores, struct dpe_error *err);
    /** The same of the guard's texts, × texts; not called without any. */
    dpe_status (*texts)(void *user, const char *const *keys, int n,
                        struct dpe_detect_scores *scores, struct dpe_error *err);
};
/** A search as far as its rows go. Owned; free with dpe_detect_search_free. */
struct dpe_detect_search {
    struct dpe_detect_search_options options;
    int n_steps;
    struct dpe_detect_step *steps;
    struct dpe_detect_point start, point; /**< every group at L0/2 without a searched temperature;
                                               what the search has at its end */
    struct dpe_detect_point single;       /**< the best plan with one length for all groups
                                               (dpe_detect_point_is_single), under the temperature
                                               that suits it best */
    /** Family 0: none. The best of the methods that need no adapter, and the best other method,
     * where it did better than `point` on the search's samples. Validation decides what they are
     * worth. */
    struct dpe_detect_point plain, family;
    bool complete;    /**< nothing is missing */
    bool wants_sweep; /**< the joint part waits for the ranks of the sweep */
    int64_t wanted;   /**< the last step lacks rows of its `wanted` plans below this sample */
    bool wants_texts; /**< these are rows of the guard's texts */
};
/** Replay a search on the rows that are there. Deterministic: the same rows, the same search.
 *
 *  Steps: coarse, a few temperatures (if searched), near windows and lengths together; of
 * frequencies, and without a joint search, temperature (if searched; around `near` where that is
 * given) of every group at L0/2. Then, once `ranking` (of the sweep under that temperature; NULL:
 * not yet) is there, in each round window, lengths, split, group, pairs and temperature (around the
 * one it has); a round that changes nothing is the last. Last come the families: those that need no
 * adapter, from yarn on, and the others, from the plan that was found on. Each is tried once with
 * usual temperatures; then changes of the best follow: of methods without an adapter its
 * temperature and the ends of its ramp, in at most two steps, the second only if the first changed
 * something; of the others temperatures and windows, in one step. Of a brief search, of the first
 * step of methods without an adapter and of both steps of the others the best is kept without a
 * test.
 *
 *  A step runs its first plan on all samples. Where a test could show an improvement, the changes
 * are run by sequential halving (Karnin, Koren and Somekh, ICML 2013): all on an eighth of the
 * samples (of at least four contexts, or two of four questions or more), the better third of these
 * on a quarter, and so on until one or a few are left on all. The best of these is taken when its
 * paired sign-flip test shows, with p < DPE_DETECT_SEARCH_LEVEL, that it is better than the first
 * plan (samples of a context change their sign together). That it was picked among several is not
 * corrected for: validation on fresh samples decides what is kept.
 *
 *  With a guard, the third that is left first reads its texts (not of methods without an adapter).
 * What loses more than `guard` of perplexity to the best of the changes that find more than the
 * first plan goes no further, and a first plan that does gives way without a test. DPE_NO_MEMORY,
 * DPE_INTERNAL for options outside their ranges.
 */
dpe_status dpe_detect_search_replay(const struct dpe_detect_search_options *options,
                                    const struct dpe_detect_grid *grid,
                                    const struct dpe_plan_context *context,
                                    const struct dpe_detect_ranking *ranking,
                                    const struct dpe_detect_source *source,
                                    struct dpe_detect_search *search, struct dpe_error *err);
void dpe_detect_search_free(struct dpe_detect_search *search);
/** The plans that steps ran on all samples, each once: *points [n ≤ most], their mean recall, or
 * nats per token (negative, so that larger is better), and whether the search has asked for their
 * texts. Returns n. */
int dpe_detect_search_finalists(const struct dpe_detect_search *search,
                                struct dpe_detect_point *points, double *value, bool *read,
                                int most);
/** Samples under any plan that a search of this grid reads at most, beside those of the sweep. */
int64_t dpe_detect_search_most_rows(const struct dpe_detect_search_options *options,
                                    const struct dpe_detect_params *params);
/** Samples that it has asked for so far, of each plan once, and the guard's texts; of the plans of
 *  `swept` (NULL: none) those beside the first `samples`. The same for the same rows, so a search
 * that was interrupted counts what an undisturbed one does. */
int64_t dpe_detect_search_asked(const struct dpe_detect_search *search,
                                const struct dpe_detect_grid *swept, int64_t samples);
/** Samples of each of n changes that are run at most, when a step of a search halves. */
int64_t dpe_detect_halving_rows(const struct dpe_detect_search_options *options, int n);

/** The changes of a step, appended to tried[0], which is filled; returns how many there are with
 * it, ≤ DPE_DETECT_MOST_CANDIDATES. Changes may repeat each other. `ranking` is needed for
 * lengths, split and group. */
int dpe_detect_candidates(const struct dpe_detect_params *params, int64_t head_dim,
                          const struct dpe_detect_ranking *ranking,
                          const struct dpe_detect_search_options *options,
                          enum dpe_detect_move move, int round, struct dpe_detect_tried *tried);

/** Gains that differ by less are equal. */
#define DPE_DETECT_TIE 1e-9

/** Whether a search begins with the coarse step. */
static inline bool dpe_detect_is_coarse(const struct dpe_detect_search_options *options,
                                        const struct dpe_detect_params *params)
{
    return (options->joint || options->brief) && !params->frequencies;
}
/** Run a step whose plans and keys are there, on the rows of the source, and set what it shows and
 * chooses. Where rows are missing, search->complete is false, and `wanted` of the search and of the
 * plans say which. Errors of the source, DPE_NO_MEMORY. */
dpe_status dpe_detect_step_run(const struct dpe_detect_source *source,
                               struct dpe_detect_search *search, struct dpe_detect_step *step,
                               struct dpe_error *err);
/** Set the intervals of what its plans find, which no choice needs and which take time. */
dpe_status dpe_detect_step_intervals(const struct dpe_detect_source *source,
                                     const struct dpe_detect_search *search,
                                     struct dpe_detect_step *step, struct dpe_error *err);

/* How well a task tells good plans apart for the tokens that it costs: what a pilot goes by. */

/** What some contexts of a task show of plans. */
struct dpe_detect_reading {
    double mean;        /**< recall of the plans that count */
    double sensitivity; /**< what it changes by when their skill does, in logits: p (1 − p) */
    double noise;       /**< variance of a context's recall that plans do not share */
    double within; /**< variance of a question's recall beside the others of its context, that plans
                      do not share; 0: one question each */
    int64_t decoded;    /**< tokens that a question decodes on average */
    int64_t tokens;     /**< a context costs: those read, and those decoded weighed */
    double reliability; /**< share of the variance of plans' means that is not noise, 0 … 1 */
    double per_million; /**< sensitivity² / noise for a million of these tokens */
};
/** The difference of two plans' recall that so many contexts show in four of five sets, by a
 *  two-sided test of 5 %. */
double dpe_detect_reading_shows(const struct dpe_detect_reading *reading, double contexts);

/** Below this good plans find too little: what is better and what is worse
 * both end near nothing. */
#define DPE_DETECT_FAINT 0.35

/** Whether a search measures better with the task of `tried` than with that of `now`: it says more
 * for its tokens, or it is `easier`, with as many questions on a context, and good plans find less
 * than DPE_DETECT_FAINT of `now`, whatever the noise of a few contexts says. */
bool dpe_detect_reading_better(const struct dpe_detect_reading *tried,
                               const struct dpe_detect_reading *now, bool easier);

/** How many questions on each context, a power of two of at most `most`, say most for the tokens
 * they cost, when the reading is of contexts with `asked` of them. A context's mean has the
 * variance b + w/m of m questions, b between contexts and w within them, and costs P + m·D tokens
 * read and decoded, so m = √(P·w/(D·b)); b is what the noise is more than w/asked. `asked` where
 * nothing was seen within contexts. */
int dpe_detect_questions(const struct dpe_detect_reading *reading, int asked, int most);

/** Of the plans with live[i], those with the `n` best means, ties to the earlier: live[i] becomes 0
 * for the others. False, and nothing changes, when no plan finds anything. */
bool dpe_detect_reading_best(const struct dpe_detect_scores *scores, int n, unsigned char *live);

/** Read the scores (recall) of plans [n_cells], of which those with live[i] count, on contexts of
 *  scores->together questions with so many values each.
 *
 *  A plan's skill moves the logit of finding a value, so the mean recall p moves by p (1 − p): at
 *  both ends of the scale plans do not differ. p is taken as (found + 1) / (values + 2), so that
 * few values are never certain. The noise is the residual variance of contexts after means of plans
 * and contexts, and at least that of independent values, because of a few contexts its estimate may
 * be anything. Decoding a token costs as much as reading DPE_DETECT_DECODED (detect/README.md,
 *  "Savings"). Rows that are not valid do not count. */
void dpe_detect_read(const struct dpe_detect_scores *scores, const unsigned char *live, int values,
                     struct dpe_detect_reading *reading);
#define DPE_DETECT_DECODED 5.0

#endif
