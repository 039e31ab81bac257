/**
 * @file detect_tool.h
 * A detection at work: what its files share.
 */
#ifndef DPE_DETECT_TOOL_H
#define DPE_DETECT_TOOL_H

#include "detect/search/search.h"
#include "detect/tool/detection.h"
#include "detect/tool/report.h"
#include "engine/plan/methods/methods.h"
#include "eval/niah/niah.h"
#include "eval/task/task.h"
#include "outputs/job/price.h"

enum {
    DETECT_CEILING_CONTEXTS = 1, /**< of L0 tokens that the model as it is reads; with a sweep, */
    DETECT_CEILING_SAMPLES = 32, /**< at most so many samples */
    DETECT_GUARD_BOOKS = 4,      /**< texts that validated plans read, at most */
    DETECT_SEARCH_TEXTS = 2,     /**< of them that candidates read */
    DETECT_FRESH = 10,           /**< a context is validated for so many that a search read */
    DETECT_LEAST_FRESH = 8,      /**< fresh samples, at least */
    DETECT_MOST_CONTEXTS = 64,   /**< that a candidate reads at most */
};

/** The streams of samples. */
enum detect_stream {
    DETECT_SWEPT,       /**< needles of the sweep, */
    DETECT_SWEPT_BOOKS, /**< and its texts of L tokens */
    DETECT_SEARCHED,    /**< needles of the search */
    DETECT_SEARCHED_USERS,
    DETECT_FRESH_NEEDLES, /**< the same tasks, of another seed: what is told of the kept plan */
    DETECT_FRESH_USERS,
    DETECT_FRESH_BOOKS, /**< of a sweep without a search */
    DETECT_CEILING,     /**< the unchanged model on the search's task, in L0 tokens, */
    DETECT_QUARTER,     /**< and in a quarter of them */
    DETECT_GUARD,       /**< texts of L tokens, of a search */
    DETECT_STREAMS,
};

/** What is needed to run a detection, in the order in which it is opened. */
struct detect_inputs {
    const struct dpe_detect_arguments *args;
    struct dpe_job job;
    struct dpe_plan_context context;
    struct dpe_detect_grid grid;
    int skipped_lengths;
    struct detect_needles {
        struct dpe_niah_params niah, users; /**< of a search `niah` may differ from what --niah
                                                 names */
        char spec[256], users_spec[256];
        char template[65]; /**< hash of what is around them, with the chat template */
        char pilot[512];   /**< what the unchanged model found of the tasks that were tried */
        bool say_little;   /**< it finds few of the easiest: the search goes by texts */
    } needles;
    const char **books;  /**< [ppl samples] ids, borrowed from the corpus */
    int64_t short_books; /**< with fewer than L tokens */
    struct detect_opened {
        struct dpe_task task;
        int64_t first, n; /**< samples that are run; n 0: it is not open, or only a validation
                             knows how many */
    } streams[DETECT_STREAMS];
    int64_t budget; /**< contexts, with fresh ones where --budget is given */
    uint64_t validation_seed;
};
/** Open or continue the run: everything that decides a result is its identity. */
dpe_status dpe_detect_inputs_start(struct detect_inputs *inputs, struct dpe_error *err);
/** Samples that share something: those of a context, or of the contexts with one first half. */
int64_t dpe_detect_inputs_together(const struct detect_inputs *inputs);
/** The plan of a candidate's spec, freed by the caller. */
dpe_status dpe_detect_inputs_plan(const struct detect_inputs *inputs, const char *spec,
                                  struct dpe_plan *plan, struct dpe_error *err);
/** Set the job's batch to the samples that are decoded together, as far as they fit into memory. */
dpe_status dpe_detect_inputs_fit_batch(struct detect_inputs *inputs, struct dpe_error *err);
/** Samples of a plan of the sweep before the next plan. */
int64_t dpe_detect_inputs_per_round(const struct detect_inputs *inputs);
/** Open needles, of so many tokens, as a stream of this name and seed. */
dpe_status dpe_detect_inputs_niah(struct detect_inputs *inputs,
                                  const struct dpe_niah_params *params, int64_t length,
                                  const char *name, uint64_t seed, struct dpe_task *task,
                                  struct dpe_error *err);
/** Set what follows from needles.niah: its spec. */
void dpe_detect_inputs_set_niah(struct detect_inputs *inputs);
/** Open the sweep's needles, and the search's streams, in place of those that are open. A ceiling
 * that has no room for its needles stays closed. */
dpe_status dpe_detect_inputs_reopen(struct detect_inputs *inputs, struct dpe_error *err);
/** Whether needles decide, alone. */
bool dpe_detect_inputs_by_needles(const struct detect_inputs *inputs);
/** Set inputs->budget from --budget; a time needs the machine's speed. All ranks call it. */
dpe_status dpe_detect_inputs_budget(struct detect_inputs *inputs, struct dpe_error *err);
/** Contexts that the search may read: those of the budget that its fresh samples leave, or by
 * default what its first heat needs of contexts with fewer than eight questions. */
int64_t dpe_detect_inputs_contexts(const struct detect_inputs *inputs);
/** Contexts of fresh samples for a search that read so many. */
int64_t dpe_detect_inputs_fresh(const struct detect_inputs *inputs, int64_t spent);
/** Log the planned work before it begins. */
void dpe_detect_announce(const struct detect_inputs *inputs);

/** The easiest and the hardest needles of the pilot, for opening and pricing: the stream's name of
 * a length, "unchanged-LENGTH-KEYS-VALUES". */
struct dpe_niah_params dpe_detect_pilot_task(const struct detect_inputs *inputs, int rung);
int dpe_detect_pilot_rungs(void);
void dpe_detect_short_name(const struct dpe_niah_params *niah, int64_t length, char name[32]);

/* -------------------------------------------------------------------------------------- stages */

/** A detection at work: the state of dpe_detect_study, whose functions follow. */
struct sweep {
    struct detect_inputs inputs;
    struct dpe_detect_report report;
    const struct stage *stage; /* at work */
    bool complete;
};
/** Open the job and its tasks and make the grid. A dry run leaves the weights alone. */
dpe_status dpe_detect_open(void *state, const void *asked, struct dpe_error *err);
dpe_status dpe_detect_cost(void *state, struct dpe_bill *sum, struct dpe_error *err);
/** Print the result, with --json for scripts. */
dpe_status dpe_detect_print(void *state, struct dpe_error *err);
void dpe_detect_suggest(const void *state);
dpe_status dpe_detect_close(void *state, dpe_status status, struct dpe_error *err);

/** A list of rows: every plan on these samples. */
struct stage {
    const char *name;
    int n_tasks;
    struct detect_opened tasks[2]; /* borrowed */
    int64_t length;                /**< tokens of a text; 0: --length */
    int n_plans;
    const struct dpe_detect_config *configs; /**< [n_plans] their plans and keys */
};

/** Make the rows of a list that are missing, and append them to the run. Errors of dpe_wanted_run.
 */
dpe_status dpe_detect_stage_run(struct sweep *sweep, const struct stage *stage,
                                struct dpe_error *err);
/** Of a search whose task is not named: find it, and open it. */
dpe_status dpe_detect_stage_pilot(struct sweep *sweep, struct dpe_error *err);
/** Run the search to its end. */
dpe_status dpe_detect_stage_search(struct sweep *sweep, struct dpe_error *err);
/** Where fresh samples of a result come from; not open: nowhere. */
const struct detect_opened *dpe_detect_inputs_fresh_of(const struct detect_inputs *inputs,
                                                       int result);
/** What was found, on fresh samples. */
dpe_status dpe_detect_stage_validate(struct sweep *sweep, struct dpe_error *err);

#endif
