/**
 * @file search.h
 * The search for the best plan: candidates, a budget, and one rule that chooses among them.
 *
 * A candidate is a plan as --method takes it. Candidates come in heats. Those of a heat read the
 * same contexts; the worse ones read no further. What a heat ends with is what the next one begins
 * with, and gives it its candidates. What is read next never depends on the budget, which only says
 * where the search ends: a larger one has read everything that a smaller one has.
 */
#ifndef DPE_DETECT_SEARCH_H
#define DPE_DETECT_SEARCH_H

#include "detect/search/grid.h"
#include "detect/search/ranking.h"
#include "engine/base/base.h"
#include "engine/plan/plan.h"

enum {
    DPE_DETECT_SPEC = 512,       /**< bytes of a spec, with its NUL */
    DPE_DETECT_MOST_TRIED = 256, /**< candidates of a search */
    DPE_DETECT_MOST_HEATS = 5,
};

/** What a plan is, from what needs least to be believed. */
enum dpe_detect_kind {
    DPE_DETECT_UNCHANGED, /**< the model as it is */
    DPE_DETECT_FORMULA,   /**< dpe without keys: nothing was measured for it */
    DPE_DETECT_METHOD,    /**< a published method, as released */
    DPE_DETECT_SEARCHED,  /**< any other */
};
/** "unchanged", "formula", "method", "searched". */
extern const char *const dpe_detect_kind_names[];

/** What neighbours of a candidate vary. */
struct dpe_detect_point {
    struct dpe_temperature temperature;
    int64_t window;                 /**< tokens; of a method 0: its own */
    int64_t length[DPE_MOST_PAIRS]; /**< [n_groups] tokens, of a plan of DPE */
    int family;      /**< 0: a plan of DPE; i: method i − 1 of a list; −1: cannot be varied */
    double turns[2]; /**< ends of a ramp of mrrope:form=uni, in turns in L0; 0: its own */
};

/** The tasks that a search reads. */
enum dpe_detect_stream {
    DPE_DETECT_NEEDLES, /**< what candidates are compared by: needles, or texts */
    DPE_DETECT_USERS,   /**< needles as the user named them, where those are others */
    DPE_DETECT_TEXTS,   /**< of the guard */
    DPE_DETECT_STREAMS,
};

struct dpe_detect_tried {
    char spec[DPE_DETECT_SPEC]; /**< as --method takes it */
    char key[33];               /**< row key */
    struct dpe_detect_point point;
    enum dpe_detect_kind kind;
    bool table;                           /**< a table can hold it */
    bool plain;                           /**< runtimes read it without an adapter */
    int heat;                             /**< it came in */
    int64_t contexts[DPE_DETECT_STREAMS]; /**< read of each task */
    struct dpe_interval found; /**< recall, or perplexity, of the first task's contexts */
    double nll;                /**< nats per token of the guard's texts; NaN: not read */
};

/** What a search is of. */
struct dpe_detect_search_options {
    const struct dpe_detect_params *params; /**< window: of the sweep, and the least */
    bool temperature;                       /**< searched; else that of the parameters */
    bool window;                            /**< searched; else that of the parameters */
    bool methods;                           /**< other methods are candidates too */
    const char *const *against;             /**< [n_against] further candidates */
    int n_against;
    char (*settings)[DPE_DETECT_SPEC]; /**< [n_settings] these alone are candidates: of one method,
                                            which is the first at its defaults */
    int n_settings;
    const struct dpe_detect_ranking *ranking; /**< of a sweep, whose first ranks are candidates from
                                                   the second heat on; NULL: none */
    enum dpe_detect_criterion criterion;
    int64_t most[DPE_DETECT_STREAMS]; /**< contexts that there are; 0: the task is not read */
    int64_t questions;                /**< of a context of the first task */
    double guard;   /**< share of perplexity that the chosen plan may lose to the best */
    int64_t budget; /**< contexts that candidates may read in all */
};
/** Where a search gets what it needs. */
struct dpe_detect_source {
    void *user;
    /** Set key, table and plain of tried->spec; *fits false where the model cannot have the plan,
     * or the device cannot run it. */
    dpe_status (*admit)(void *user, struct dpe_detect_tried *tried, bool *fits,
                        struct dpe_error *err);
    /** *scores ([n] cells × contexts · together; freed by the caller) of these plans, as far as
     * they are there. */
    dpe_status (*scores)(void *user, enum dpe_detect_stream stream, const char *const *keys, int n,
                         int64_t contexts, struct dpe_detect_scores *scores, struct dpe_error *err);
};

/** A search as far as its rows go. Owned; free with dpe_detect_search_free. */
struct dpe_detect_search {
    int n;
    struct dpe_detect_tried *tried; /**< [n] the first is the model as it is */
    int heats;                      /**< that ended, or were ended by the budget */
    int64_t spent;                  /**< contexts read by candidates */
    int64_t least;                  /**< those of the first list, which is always read */
    int best;                       /**< chosen */
    int plain;                      /**< the best that needs no adapter; −1: none was read */
    bool complete;                  /**< nothing is missing */
    bool exhausted;                 /**< it ended because nothing was left to try */
    enum dpe_detect_stream stream;  /**< what is missing, unless complete: of this task, */
    int64_t contexts;               /**< of its first contexts, */
    unsigned char wanted[DPE_DETECT_MOST_TRIED]; /**< [n] the rows of these */
};
/** Replay a search on the rows that are there. Deterministic: the same rows, the same search.
 *
 *  In the first heat the model as it is, the formula (dpe without keys), plans of DPE near it and a
 * few methods read one context. The better two, the formula and the best without an adapter read on
 * up to DPE_DETECT_QUESTIONS, unless the formula leads by DPE_DETECT_CLEAR. Heat h > 0 tries the
 * grid of temperatures, windows and lengths and more methods, and from h = 2 on neighbours of what
 * was best. All read 2^h contexts, the better third 2^(h+1), two 2^(h+2); those also read the
 * guard's texts and the user's task. After each heat dpe_detect_choose chooses.
 *
 *  The settings of a method are one heat: all read one context, the better third two, and so on to
 *  the two that read until the budget is spent. DPE_NO_MEMORY, errors of the source. */
dpe_status dpe_detect_search_replay(const struct dpe_detect_search_options *options,
                                    const struct dpe_detect_source *source,
                                    struct dpe_detect_search *search, struct dpe_error *err);
void dpe_detect_search_free(struct dpe_detect_search *search);
/** Questions that the last plans of the first heat answer, in contexts of half as many or fewer:
 * what plans differ by varies from question to question, hardly from context to context. */
enum { DPE_DETECT_QUESTIONS = 16 };
/** A clear difference, of recall or of nats: what the formula leads by where a first context
 * decides; what a plan that fresh samples do not show to help has to find more, to be kept. */
#define DPE_DETECT_CLEAR 0.1

/** Plans that a choice is among, and what they found. */
struct dpe_detect_choice {
    int n;
    enum dpe_detect_criterion criterion;
    const struct dpe_detect_scores *tasks[2]; /**< each counts the same; the second may be NULL */
    const double *nll;                        /**< [n] of texts; NaN: not read */
    const enum dpe_detect_kind *kinds;        /**< [n] */
    const bool *able;                         /**< [n] may be chosen */
    int held;                                 /**< what an earlier heat chose; −1: none */
    double guard;                             /**< share of perplexity */
};
/** The rule. Of the plans within the guard, which lose at most that share of perplexity to the best
 * one, the one that finds most, as the mean of the tasks; of those whose difference from it is
 * within its standard error the one that needs least to be believed: the model as it is, what an
 * earlier heat chose, the formula, a published method, any other. −1: none is able. */
int dpe_detect_choose(const struct dpe_detect_choice *choice);

/** Append the candidates of a heat to list[n], of which `best` and `plain` are what the search has;
 * returns how many there are then. Kinds, specs and points are set; some may repeat others. */
int dpe_detect_candidates(const struct dpe_detect_search_options *options, int heat,
                          struct dpe_detect_tried *list, int n, int best, int plain);

#endif
