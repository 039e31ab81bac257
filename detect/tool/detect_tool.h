/**
 * @file detect_tool.h
 * A detection at work: what its files share.
 */
#ifndef DPE_DETECT_TOOL_H
#define DPE_DETECT_TOOL_H

#include "detect/report/view.h"
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
    bool own_validate_task[2]; /**< it is not a copy of another task */
    int64_t n_samples[2], first_validated[2], n_validated[2];
    /** Beside the validation: the task that the user named, what the unchanged model finds of both
     * tasks at its trained length, and texts. */
    struct detect_held {
        bool opened;
        struct dpe_task task;
        int64_t n; /**< samples */
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
/** Read --scale-pairs: the mask of the top-k pairs of each head, or without --top-k those of the
 *  numbers that the search tries; DPE_BAD_DATA when the profile is of another model. Without that
 *  option all pairs move. */
dpe_status dpe_detect_inputs_key_pairs(struct detect_inputs *inputs, struct dpe_error *err);
/** What it read, into the parameters of the grid. */
void dpe_detect_inputs_put_pairs(const struct detect_inputs *inputs,
                                 struct dpe_detect_params *params);
/** Open or continue the run: everything that decides a result is its identity. */
dpe_status dpe_detect_inputs_start(struct detect_inputs *inputs, struct dpe_error *err);
/** Samples that share something: those of a context, or of the contexts with one first half. */
int64_t dpe_detect_inputs_together(const struct detect_inputs *inputs);
/** The context of plans that are no part of the sweep: without --selection. */
struct dpe_plan_context dpe_detect_inputs_context(const struct detect_inputs *inputs);
/** That of the methods of --against: as released, which is also dpe-eval's default. */
struct dpe_plan_context dpe_detect_inputs_rival(const struct detect_inputs *inputs);
/** Method i of those that the result is held against. */
const char *dpe_detect_inputs_rival_of(const struct detect_inputs *inputs, int i);
/** Samples decoded together: what was asked for, else 4, or as many as share something; never more
 *  than there are, nor than a race's round has. */
int64_t dpe_detect_inputs_batch(const struct detect_inputs *inputs);
/** Tokens that a sample of a task reads, on average and about: samples of a context share one
 * reading, those with the same first half share that. */
int64_t dpe_detect_inputs_read(const struct detect_inputs *inputs, int task);
/** Set the job's batch to that, or to what fits into memory; logs why it is less than --batch. */
dpe_status dpe_detect_inputs_fit_batch(struct detect_inputs *inputs, struct dpe_error *err);
/** Samples of a plan before the next plan. What a race decides depends on them, so those of
 * a race do not depend on the batch. */
int64_t dpe_detect_inputs_per_round(const struct detect_inputs *inputs);
/** Samples that a race must have seen before it can drop anything. */
int64_t dpe_detect_inputs_race_needs(const struct detect_inputs *inputs);
/** Open the needles of inputs->niah as a stream of this name and seed. */
dpe_status dpe_detect_inputs_niah(struct detect_inputs *inputs, const char *name, uint64_t seed,
                                  struct dpe_task *task, struct dpe_error *err);
/** Of another length. */
dpe_status dpe_detect_inputs_niah_of(struct detect_inputs *inputs, int64_t length, const char *name,
                                     uint64_t seed, struct dpe_task *task, struct dpe_error *err);
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
/** Set how many samples a configuration gets with inputs->niah. */
void dpe_detect_inputs_set_samples(struct detect_inputs *inputs);
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
/** Samples of a round of the race of ready methods: a context, or as many as have four questions.
 */
int64_t dpe_detect_inputs_ready_round(const struct detect_inputs *inputs);
/** Whether ready methods are raced; and whether against every group at L0/2 too: only where a table
 * can hold none of them. */
bool dpe_detect_inputs_races_ready(const struct detect_inputs *inputs);
bool dpe_detect_inputs_races_base(const struct detect_inputs *inputs);
/** How the search is made; n_samples 0: there is none. */
struct dpe_detect_search_options dpe_detect_inputs_searching(const struct detect_inputs *inputs);
/** Samples that the search reads at most, beside the sweep's. */
int64_t dpe_detect_inputs_searched(const struct detect_inputs *inputs);
/** Configurations that the sequential rule's steps add at most; 0 for other rules. */
int64_t dpe_detect_inputs_steps(const struct detect_inputs *inputs);
/** Empty report of these inputs. */
void dpe_detect_inputs_report(const struct detect_inputs *inputs, struct dpe_detect_report *report);

/** The fewest rows a race of that many samples can end with. */
double dpe_detect_least_rows(const struct detect_inputs *inputs, int64_t samples);
/** Print what each saving saves of the sweep. */
void dpe_detect_print_savings(const struct detect_inputs *inputs,
                              const struct dpe_answering *answering);
/** Print what a sweep would cost, unless it is silent, and add it to `sum` (NULL: not wanted). */
dpe_status dpe_detect_cost(struct detect_inputs *inputs, struct dpe_bill *sum,
                           struct dpe_error *err);
/** Of a dry run: the length, where it is not larger than the trained one; the
 * template of prompts. */
void dpe_detect_warn_of_length(const struct dpe_detect_params *params);
void dpe_detect_tell_template(const struct detect_inputs *inputs);
/** Lengths of the grid, "window W" or what moves, where the trained length is from, and what was
 * left out. */
void dpe_detect_list_lengths(const struct dpe_detect_params *params, char *text, size_t size);
void dpe_detect_window_text(const struct dpe_detect_params *params, char text[64]);
const char *dpe_detect_trained_source(const struct detect_inputs *inputs);
const char *dpe_detect_skipped_text(const struct detect_inputs *inputs);
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

#endif
