/**
 * @file detect_tool.h
 * A detection at work: what its files share.
 */
#ifndef DPE_DETECT_TOOL_H
#define DPE_DETECT_TOOL_H

#include "detect/report/view.h"
#include "detect/search/search.h"
#include "detect/tool/detection.h"
#include "engine/plan/methods/methods.h"
#include "eval/niah/niah.h"
#include "eval/task/task.h"
#include "outputs/job/price.h"

enum {
    DETECT_PILOT_CONTEXTS = 3,
    DETECT_READY_ASKED =
        8, /**< questions on a context of ready methods, where the task has so many keys */
    DETECT_READY_SAMPLES = 2 * DETECT_READY_ASKED,
    DETECT_BRIEF_SAMPLES = 8 * DETECT_READY_ASKED,
    DETECT_CEILING_SAMPLES = 32,
    DETECT_GUARD_BOOKS = 4,  /**< of the texts, at most */
    DETECT_SEARCH_TEXTS = 2, /**< of them that the search reads */
};

/** Replace the tables of dpe-eval tune among `against` by the settings that they chose for the
 *  length. DPE_BAD_DATA for another table, DPE_USAGE for one without this length and for too many
 *  methods; errors of opening it. Free also after a failure. */
dpe_status dpe_detect_against_read(struct dpe_detect_arguments *args, struct dpe_error *err);
void dpe_detect_against_free(struct dpe_detect_arguments *args);

/** What is measured beside the validation. */
enum detect_holding {
    DETECT_USERS,   /**< the validated plans on the task that --niah names, where the search has
                       another */
    DETECT_CEILING, /**< the unchanged model on the search's task, in L0 tokens */
    DETECT_USERS_CEILING, /**< and on the user's */
    DETECT_GUARD,         /**< the validated plans on texts */
    DETECT_N_HELD,
};

/** What is needed to run a sweep, in the order in which it is opened. */
struct detect_inputs {
    const struct dpe_detect_arguments *args;
    struct dpe_job job;
    struct dpe_plan_context context;
    struct dpe_detect_grid grid;
    int skipped_lengths;
    bool searches_temperature;
    uint32_t families; /**< that the model and the device can have (dpe_detect_search_options) */
    struct dpe_temperature near; /**< of --temperature auto:K=V,…; logit_scale 0: none */
    uint8_t *mask; /**< key pairs that move, of each number of them; NULL = all pairs */
    int n_fewer;   /**< numbers of pairs in it that the search tries; 0: the only one moves */
    int64_t fewer[DPE_DETECT_CANDIDATES];
    char key_pairs[160]; /**< what decides the mask, for the identity */
    struct dpe_niah_params niah;
    char niah_spec[256], niah_template[65]; /**< the hash covers the chat template */
    struct dpe_niah_params users_niah; /**< what --niah names; with --task auto `niah` differs */
    char users_spec[256];
    bool held_ready;    /**< a table can hold one of --against */
    bool says_little;   /**< the unchanged model finds few of the easiest needles: few samples do */
    int64_t samples;    /**< of a configuration: --samples, with --task auto whole contexts */
    char pilot[512];    /**< of --task auto: what it tried and found, as text */
    const char **books; /**< [ppl samples] ids, borrowed from the corpus */
    int64_t n_books;    /**< that the sweep or the search uses */
    int64_t short_books; /**< books with fewer than L tokens */
    /** Tasks of the sweep and of the validation, in the same order; n_tasks is 1 or 2. */
    int n_tasks;
    struct dpe_task tasks[2], validate_tasks[2];
    int64_t n_samples[2], first_validated[2], n_validated[2];
    /** Beside the validation: the task that the user named, what the unchanged model finds of both
     * tasks at its trained length, and texts. */
    struct detect_held {
        struct dpe_task task;
        int64_t n; /**< samples; 0: it is not open */
    } held[DETECT_N_HELD];
    char ceiling_name[32]; /**< of the samples of DETECT_CEILING */
    uint64_t validation_seed;
};
/** Open the job and its tasks and make the grid. A dry run leaves the weights alone. What was
 *  opened is closed by dpe_detect_inputs_close, also after an error; it returns what dpe_job_close
 * does. */
dpe_status dpe_detect_inputs_open(struct detect_inputs *inputs,
                                  const struct dpe_detect_arguments *args, struct dpe_error *err);
dpe_status dpe_detect_inputs_close(struct detect_inputs *inputs, dpe_status status,
                                   struct dpe_error *err);
/** Open or continue the run: everything that decides a result is its identity. */
dpe_status dpe_detect_inputs_start(struct detect_inputs *inputs, struct dpe_error *err);
/** Samples that share something: those of a context, or of the contexts with one first half. */
int64_t dpe_detect_inputs_together(const struct detect_inputs *inputs);
/** The context of plans that are no part of the sweep: without --selection. */
struct dpe_plan_context dpe_detect_inputs_context(const struct detect_inputs *inputs);
/** How many methods the result may be held against: those of --against, then the families; and the
 * plan of method i, as released, which is also dpe-eval's default. */
int dpe_detect_inputs_rivals(const struct detect_inputs *inputs);
dpe_status dpe_detect_inputs_rival(const struct detect_inputs *inputs, int i, struct dpe_plan *plan,
                                   struct dpe_error *err);
/** Tokens that a sample of a task reads, on average and about: samples of a context share one
 * reading, those with the same first half share that. */
int64_t dpe_detect_inputs_read(const struct detect_inputs *inputs, int task);
/** Set the job's batch to the samples that are decoded together, as far as they fit into memory;
 * logs why it is less than --batch. */
dpe_status dpe_detect_inputs_fit_batch(struct detect_inputs *inputs, struct dpe_error *err);
/** Samples of a plan before the next plan. What a race decides depends on them, so those of
 * a race do not depend on the batch. */
int64_t dpe_detect_inputs_per_round(const struct detect_inputs *inputs);
/** Open needles, of so many tokens, as a stream of this name and seed. */
dpe_status dpe_detect_inputs_niah(struct detect_inputs *inputs,
                                  const struct dpe_niah_params *params, int64_t length,
                                  const char *name, uint64_t seed, struct dpe_task *task,
                                  struct dpe_error *err);
/** Open the needles of the search and of the validation, in place of those that are open. */
dpe_status dpe_detect_inputs_reopen(struct detect_inputs *inputs, struct dpe_error *err);
/** Let the search measure with the task that --niah names. */
void dpe_detect_inputs_set_users(struct detect_inputs *inputs);
/** Open what is held beside the validation; a ceiling that has no room for its needles stays
 * closed. */
dpe_status dpe_detect_inputs_hold(struct detect_inputs *inputs, struct dpe_error *err);
/** Whether there is to be a guard on perplexity. */
bool dpe_detect_inputs_guards(const struct detect_inputs *inputs);
/** Rows of it at most. */
struct detect_held_rows {
    int64_t users, ceilings, texts; /**< of --length, of L0, and of --length tokens */
};
struct detect_held_rows dpe_detect_inputs_held(const struct detect_inputs *inputs);
/** With --task auto: set the task that its pilot begins with. */
dpe_status dpe_detect_pilot_begin(struct detect_inputs *inputs, struct dpe_error *err);
/** Of so many samples, those that each configuration of the sweep gets. */
int64_t dpe_detect_inputs_sweep_samples(const struct detect_inputs *inputs, int64_t samples);
/** Set what follows from inputs->niah: its spec, and how many samples a configuration gets. */
void dpe_detect_inputs_set_niah(struct detect_inputs *inputs);
/** Questions on each context of a pilot's task, by its name; 1: it is none. */
int64_t dpe_detect_pilot_together(const struct detect_inputs *inputs, const char *task);
/** Rows of the pilot at most: of --length tokens, of L0, and of a quarter of that. */
struct detect_pilot_rows {
    int64_t longs, shorts, quarters;
};
struct detect_pilot_rows dpe_detect_pilot_most_rows(const struct detect_inputs *inputs);
/** Questions of the ceiling: of ready methods half as many as of these. */
int64_t dpe_detect_inputs_ceiling(const struct detect_inputs *inputs, int64_t asked);
/** Plans of the validation; and its rows of a task at most: ready methods are raced. */
int64_t dpe_detect_inputs_validated(const struct detect_inputs *inputs);
/** Whether a plan of DPE is raced beside the methods that are ready. */
bool dpe_detect_inputs_has_own(const struct detect_inputs *inputs);
int64_t dpe_detect_inputs_validated_rows(const struct detect_inputs *inputs, int task);
/** The fewest samples of a round, as a race of ready methods has them: a context, or as many as
 * have four questions. */
int64_t dpe_detect_inputs_least_round(const struct detect_inputs *inputs);
/** Whether ready methods are raced; and whether against every group at L0/2 too: only where a table
 * can hold none of them. */
bool dpe_detect_inputs_races_ready(const struct detect_inputs *inputs);
bool dpe_detect_inputs_races_base(const struct detect_inputs *inputs);
/** How the search is made; n_samples 0: there is none. */
struct dpe_detect_search_options dpe_detect_inputs_searching(const struct detect_inputs *inputs);
/** Configurations that the sequential rule's steps add at most; 0 for other rules. */
int64_t dpe_detect_inputs_steps(const struct detect_inputs *inputs);
/** Print what a sweep would cost, unless it is silent, and add it to `sum` (NULL: not wanted). */
dpe_status dpe_detect_cost(struct detect_inputs *inputs, struct dpe_bill *sum,
                           struct dpe_error *err);
/** Log the planned work before it begins. */
void dpe_detect_announce(const struct detect_inputs *inputs);
/** Suggest what to do with the table. */
void dpe_detect_suggest(const struct detect_inputs *inputs, const struct dpe_detect_report *report);
/** Print the result for scripts. */
dpe_status dpe_detect_print_result(const struct detect_inputs *inputs,
                                   const struct dpe_detect_report *report, struct dpe_error *err);
/** Print the result. */
dpe_status dpe_detect_print(const struct detect_inputs *inputs,
                            const struct dpe_detect_report *report, struct dpe_error *err);

/* -------------------------------------------------------------------------------------- stages */

/** A sweep at work. */
struct sweep {
    struct detect_inputs *inputs;
    struct dpe_detect_report *report;
    struct dpe_detect_config validated[DPE_DETECT_MOST_VALIDATED];
    const int64_t *first;         /* samples of the list at work, per task */
    int64_t planned[2];           /* rows of the whole sweep, per task; of a search those so far */
    int64_t searched;             /* rows of the search in `planned` */
    double cost[2];               /* operations of a row */
    const struct dpe_task *tasks; /* of the list at work */
    double *sum, *weight;         /* [configs] of the deciding task: what the live line ranks */
    int64_t *best;                /* [groups] */
    bool sweeping, complete;
    const struct dpe_work *work; /* at work */
};

/** A list of rows: every plan on these samples. */
struct stage {
    const char *name;
    int n_tasks;
    const struct dpe_task *tasks;
    int64_t first[2], n_samples[2]; /* per task */
    int n_plans;
    const struct dpe_detect_config *configs; /**< [n_plans] their plans and keys */
    const unsigned char *live;               /* [n_plans] 0 = left out; NULL: none is */
    int64_t later[2];                        /* rows after it, per task */
    bool last;                               /* there are none */
};
/** One of the first n samples of a task under these plans, with the validation after it. */
struct stage dpe_detect_stage_of(const struct sweep *sweep, const char *name,
                                 const struct dpe_task *task, int64_t n,
                                 const struct dpe_detect_config *configs, int n_plans);

/** Make the rows of a list that are missing, and append them to the run. Errors of dpe_job_rows. */
dpe_status dpe_detect_stage_run(struct sweep *sweep, const struct stage *stage,
                                struct dpe_error *err);
/** The same, and collect what its plans, at most DPE_DETECT_MOST_CANDIDATES, have of its first task
 * up to its last sample; the caller frees *scores, also after a failure. */
dpe_status dpe_detect_stage_scores(struct sweep *sweep, const struct stage *stage, int64_t together,
                                   struct dpe_detect_scores *scores, struct dpe_error *err);
/** Set how many rows the sweep and the validation have. */
void dpe_detect_stage_plan(struct sweep *sweep);
/** With --task auto: run the pilot and open the task that it chooses. */
dpe_status dpe_detect_stage_pilot(struct sweep *sweep, struct dpe_error *err);
/** Run the search until its rows are there, or until it waits for the sweep. */
dpe_status dpe_detect_stage_search(struct sweep *sweep, struct dpe_error *err);
/** Make the grid again, with the temperature that was found. */
dpe_status dpe_detect_stage_warm(struct sweep *sweep, struct dpe_error *err);
/** Rope, base and joint plan, and what else they are held against, on fresh samples. */
dpe_status dpe_detect_stage_validate(struct sweep *sweep, struct dpe_error *err);

#endif
