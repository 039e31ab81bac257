/**
 * @file report.h
 * What a sweep and a search found: everything that the table and the terminal show.
 */
#ifndef DPE_DETECT_REPORT_H
#define DPE_DETECT_REPORT_H

#include "data/data.h"
#include "detect/search/grid.h"
#include "detect/search/ranking.h"
#include "detect/search/search.h"
#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/plan/methods/methods.h"
#include "engine/session/session.h"
#include "engine/tokenizer/tokenizer.h"
#include "outputs/datasets/kinds.h"

/** What chooses the plan of the table. */
enum dpe_detect_rule {
    DPE_DETECT_SEARCH, /**< candidates and a budget */
    DPE_DETECT_PAPER,  /**< the paper's sweep: rank 1 of every group */
    DPE_DETECT_BOTH,   /**< the sweep, whose first ranks are candidates of the search */
};
/** "search", "paper", "both", NULL. */
extern const char *const dpe_detect_rule_names[];
static inline bool dpe_detect_sweeps(enum dpe_detect_rule rule)
{
    return rule != DPE_DETECT_SEARCH;
}
static inline bool dpe_detect_searches(enum dpe_detect_rule rule)
{
    return rule != DPE_DETECT_PAPER;
}

/** What the model as it is finds in fewer tokens, of the search's needles: of L0 hardly more is
 * possible at L. */
struct dpe_detect_short {
    const char *task;          /**< NULL: not read */
    int64_t length, n;         /**< tokens, samples */
    struct dpe_interval found; /**< n 0: unknown */
};

/** The benchmarks of a detection: those of its sweep and search, of which the first that is used
 * decides; the task that the user named, where the search has another; texts of L tokens, where
 * there is a guard. */
enum { DPE_DETECT_NIAH, DPE_DETECT_PPL, DPE_DETECT_OWN, DPE_DETECT_GUARD, DPE_DETECT_RESULTS };

/** Samples of a benchmark that cells or plans ran and, once collected, what they show. */
struct dpe_detect_read {
    const char *task; /**< name of the sample stream */
    int64_t first, n;
    struct dpe_detect_scores scores;
    double *at; /**< [cells or plans][dpe_detect_positions] perplexity of the tokens at positions
                     2^b to 2^(b+1) − 1; NaN: none; NULL: not of texts */
};

/** One benchmark: where its rows are and, once collected, what follows from them. */
struct dpe_detect_result {
    bool used;
    enum dpe_detect_criterion criterion;
    struct dpe_detect_read swept, checked; /**< by the sweep, and by the validation */
    int64_t together;                      /**< samples in a row that share a context, ≥ 1 */
    bool fresh;               /**< the validated samples are not those of the sweep or the search */
    const char *const *books; /**< perplexity: [swept.n] ids; NULL for NIAH */
    struct dpe_detect_ranking ranking;
    struct dpe_scores_result cells; /**< both of them as a sweep tells them; borrowed */
    struct dpe_ranking_result ranks;
    struct dpe_detect_short shorter[2]; /**< of a quarter of L0, and of L0 */
    bool validated;                     /**< what is below, and of checked, is filled */
    struct dpe_detect_validation validation;
};

/** A plan that was run on fresh samples. */
struct dpe_detect_validated_plan {
    char name[DPE_DETECT_PLAN_NAME]; /**< "rope", "base", "joint" of a sweep, or its spec */
    struct dpe_detect_config config; /**< its plan and key */
    bool table;                      /**< a table can hold it, */
    bool plain;                      /**< and runtimes read it without an adapter */
};

struct detect_inputs;
/** Everything that the table and the terminal show, computed from rows by the functions below. */
struct dpe_detect_report {
    const struct detect_inputs *of; /**< borrowed; set by the caller, as are the results' tasks */
    struct dpe_detect_result results[DPE_DETECT_RESULTS];
    double *scale;     /**< [n_groups] of the sweep's joint plan */
    int64_t *selected; /**< [n_groups] its lengths, −1 = none (the scale of the detection) */
    struct dpe_detect_search search;
    int n_validated;
    struct dpe_detect_validated_plan validated[DPE_DETECT_MOST_VALIDATED];
    int chosen; /**< of the validated plans, by the search or the sweep, */
    int kept;   /**< and what the table holds: that one, unless fresh samples show a better, */
    struct dpe_detect_entry entry; /**< as its entry */
    int plain; /**< that finds most of those that runtimes read without an adapter; −1 */
    struct dpe_session_work work; /**< of this session's processes, for /run */
    int64_t read_tokens; /**< of the prompts of all rows, a shared context once; 0: not known */
};
/** Keys of the cells' configurations, owned by the caller; NULL: no memory. */
const char **dpe_detect_cell_keys(const struct dpe_detect_grid *grid);
/** Ranges of positions of the report's texts. */
int dpe_detect_positions(const struct dpe_detect_report *report);
/** The result that decides: NIAH when it is used. */
const struct dpe_detect_result *dpe_detect_deciding(const struct dpe_detect_report *report);
/** Collect the sweep's rows and rank them; fills scale as well. May be called again. */
dpe_status dpe_detect_report_sweep(struct dpe_detect_report *report, struct dpe_error *err);
/** Collect the validated rows, compare, and make the entry of the table. May be called again. */
dpe_status dpe_detect_report_validation(struct dpe_detect_report *report, struct dpe_error *err);
/** Free what was computed. */
void dpe_detect_report_free(struct dpe_detect_report *report);

#endif
