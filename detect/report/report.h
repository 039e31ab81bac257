/**
 * @file report.h
 * What a sweep found: everything that the table and the terminal show.
 */
#ifndef DPE_DETECT_REPORT_H
#define DPE_DETECT_REPORT_H

#include "data/data.h"
#include "detect/search/search.h"
#include "detect/search/select.h"
#include "detect/sweep/grid.h"
#include "detect/sweep/ranking.h"
#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"
#include "engine/session/session.h"
#include "engine/tokenizer/tokenizer.h"
#include "outputs/run/run.h"

/** One benchmark of a sweep: where its rows are and, once collected, what follows from them. */
struct dpe_detect_result {
    bool used;
    enum dpe_detect_criterion criterion;
    const char *task, *validate_task; /**< names of the sample streams */
    int64_t n_samples, first_validated, n_validated;
    int64_t together;         /**< samples in a row that share a context, ≥ 1 */
    bool fresh;               /**< the validated samples are not those of the sweep */
    const char *const *books; /**< perplexity: [n_samples] ids; NULL for NIAH */
    struct dpe_detect_scores scores;
    struct dpe_detect_ranking ranking;
    const char *ceiling_task; /**< samples of L0 tokens under the model as it is; NULL: none */
    int64_t n_ceiling;
    struct dpe_interval
        ceiling;    /**< what it finds of them: hardly more is possible at L; n 0: unknown */
    bool validated; /**< the two below are filled */
    struct dpe_detect_scores validate_scores;
    struct dpe_detect_validation validation;
    double *at, *validate_at; /**< [cells], [plans][dpe_detect_positions] perplexity of the tokens
                                 at positions 2^b to 2^(b+1) − 1; NaN: none; NULL: not of texts */
};

/** The plan that the table holds: the joint one, or one that validation shows to be better. */
struct dpe_detect_kept {
    int plan; /**< index of a validated plan */
    struct dpe_detect_entry entry;
};

/** Everything that the table and the terminal show. `grid`, `context` and names are borrowed; the
 *  rest is computed from rows by the functions below. */
struct dpe_detect_report {
    const struct dpe_detect_grid *grid;
    const struct dpe_plan_context *context;
    enum dpe_detect_rule rule;
    int rounds; /**< sequential */
    struct dpe_detect_selection selection;
    bool racing;
    struct dpe_race_options race_options; /**< filled by the caller when racing */
    struct dpe_race race;                 /**< arms: the grid's cells */
    struct dpe_detect_result results[2];  /**< NIAH, perplexity; the first used one decides */
    /** The task that the user named, where the search has another: only validated. */
    struct dpe_detect_result users;
    const char *users_spec;
    /** Perplexity of the validated plans on texts of L tokens; used: there is a guard, and texts.
     */
    struct dpe_detect_result texts;
    double guard_share;            /**< of perplexity that the kept plan may lose */
    struct dpe_detect_guard guard; /**< once `texts` is validated */
    double *scale;                 /**< [n_groups] of the joint plan */
    int64_t *selected; /**< [n_groups] its lengths, −1 = none (the scale of the detection) */
    /** With --temperature auto or --select joint (filled by the caller; n_samples 0: no search). */
    struct dpe_detect_search_options searching;
    bool swept; /**< the sweep under the searched temperature has its rows */
    struct dpe_detect_search search;
    int n_validated;                                             /**< plans */
    char names[DPE_DETECT_MOST_VALIDATED][DPE_DETECT_PLAN_NAME]; /**< of the validated plans */
    const char *keys[DPE_DETECT_MOST_VALIDATED]; /**< their row keys, borrowed, NULL = not known */
    bool tables[DPE_DETECT_MOST_VALIDATED];  /**< once validated: whether a table can hold them, */
    bool statics[DPE_DETECT_MOST_VALIDATED]; /**< and runtimes read them without an adapter */
    /** [n_validated], borrowed; NULL: those of --against are not kept. */
    const struct dpe_detect_config *plans;
    int own; /**< of the validated plans that of DPE in `ready` and `brief`; 0: there is none */
    struct dpe_detect_kept kept; /**< what the table holds */
    int plain; /**< validated plan that finds most of those that runtimes read without an adapter;
                  −1 */
    uint64_t seed, validation_seed;
    struct dpe_session_work work; /**< of this session's processes, for /run */
    int64_t read_tokens; /**< of the prompts of all rows, a shared context once; 0: not known */
    /* what the run was about, for /model, /tokenizer, /corpus and /detect */
    const struct dpe_model *model;
    const char *fingerprint; /**< of weights that another program has; NULL: the model's */
    const struct dpe_tokenizer *tokenizer;
    const struct dpe_corpus *corpus;
    const char *niah_spec, *niah_template; /**< spec, hash of the templates; NULL = none */
    const char *pilot;                     /**< what chose the spec, NULL = it was given */
};
/** Keys of the cells' configurations, owned by the caller; NULL: no memory. */
const char **dpe_detect_cell_keys(const struct dpe_detect_grid *grid);
/** Ranges of positions of the report's texts. */
int dpe_detect_positions(const struct dpe_detect_report *report);
/** The result that decides: NIAH when it is used. */
const struct dpe_detect_result *dpe_detect_deciding(const struct dpe_detect_report *report);
/** Collect the sweep's rows, rank them and select by the rule; fills scale as well. May be called
 *  again; with rows missing the selection follows from those that are there. */
dpe_status dpe_detect_report_sweep(struct dpe_detect_report *report, const struct dpe_run *run,
                                   struct dpe_error *err);
/** Only the search of a report, as far as its rows go. May be called again. */
dpe_status dpe_detect_report_search(struct dpe_detect_report *report, const struct dpe_run *run,
                                    struct dpe_error *err);
/** Whether the kept plan, of another method, is one that runtimes read without an adapter: it
 * changes frequencies and the factor on the logits alone, in every layer. */
bool dpe_detect_report_static(const struct dpe_detect_report *report);
/** Whether the search chooses the plan. */
bool dpe_detect_report_chooses(const struct dpe_detect_report *report);
/** The point of a validated plan other than rope: base, joint or single. */
struct dpe_detect_point dpe_detect_report_point(const struct dpe_detect_report *report, int plan);
/** What lengths of groups of their own add to one length for all. */
enum dpe_detect_worth {
    DPE_DETECT_WORTH_UNKNOWN,   /**< not asked: another rule, one group, no validation */
    DPE_DETECT_WORTH_UNTRIED,   /**< the search compared no plan in which groups differ */
    DPE_DETECT_WORTH_NONE,      /**< it compared some and kept one length */
    DPE_DETECT_WORTH_NOT_SHOWN, /**< it found such a plan; validation does not show it to be
                                     better */
    DPE_DETECT_WORTH_SHOWN,     /**< validation shows it to be better */
};
/** "unknown", "not tried", "nothing", "not shown", "better". */
extern const char *const dpe_detect_worth_names[];
/** Of a validated report. */
enum dpe_detect_worth dpe_detect_report_worth(const struct dpe_detect_report *report);
/** Only the race of a report: collect its rows and replay it. May be called again. */
dpe_status dpe_detect_report_race(struct dpe_detect_report *report, const struct dpe_run *run,
                                  struct dpe_error *err);
/** Collect the validated rows (keys are filled) and compare. May be called again. */
dpe_status dpe_detect_report_validation(struct dpe_detect_report *report, const struct dpe_run *run,
                                        struct dpe_error *err);
/** Whether the user's task orders the validated plans otherwise than the search's, beyond noise. */
bool dpe_detect_report_disagrees(const struct dpe_detect_report *report);

/** Free what was computed. */
void dpe_detect_report_free(struct dpe_detect_report *report);

#endif
