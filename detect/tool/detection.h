/**
 * @file detection.h
 * The study of dpe-detect: a model goes in, a table with the plan for it comes out.
 */
#ifndef DPE_DETECT_DETECTION_H
#define DPE_DETECT_DETECTION_H

#include "detect/tool/report.h"
#include "outputs/job/job.h"

enum {
    DETECT_MOST_AGAINST = 8,
    DETECT_BUDGET = 9, /**< contexts of L tokens that a search reads by default: the first heat; */
    DETECT_BUDGET_SWEPT = 160, /**< and with a sweep */
};

/** How much a search may read: at most one of them; 0: not given. */
struct dpe_detect_budget {
    double seconds, tokens;
};
static inline bool dpe_detect_budgeted(const struct dpe_detect_budget *budget)
{
    return budget->seconds > 0.0 || budget->tokens > 0.0;
}
/** "20m" or "500ktok"; 0: expected a time such as 20m or 2h, or tokens such as 500ktok or 5Mtok. */
struct dpe_detect_budget dpe_detect_parse_budget(struct dpe_command_line *state, const char *text);

/** What is asked for. Zero means "not given" where a default is computed. */
struct dpe_detect_arguments {
    struct dpe_job_options job;
    const char *niah, *lengths;
    const char *temperature; /**< "auto", "off", or one as dpe_temperature_parse */
    const char *selection;   /**< keys of the method select, or NULL */
    int task;                /**< --task, an index of its names; the three below follow from it */
    bool task_given, use_niah, use_ppl;
    bool auto_task; /**< the needles are the hardest that the model can do */
    int64_t window, groups;
    enum dpe_detect_rule rule;
    struct dpe_detect_budget budget;
    int n_against; /**< further candidates */
    const char *against[DETECT_MOST_AGAINST];
    bool no_against; /**< --against none: no method is a candidate */
    double guard;    /**< perplexity that the table's plan may lose, as a share; 0: no guard */
};

/** What stands where nothing is given. */
void dpe_detect_defaults(struct dpe_detect_arguments *args);
/** The options that dpe-detect and dpe-calibrate have; input struct dpe_detect_arguments with its
 * defaults. */
extern const struct dpe_option_set dpe_detect_option_set;
/** At DPE_LINE_END, once `job` has what the caller parses: end with a usage error where options do
 * not go together, and set what follows from others. */
void dpe_detect_complete(struct dpe_command_line *state, struct dpe_detect_arguments *args);
/** Only the latter. */
void dpe_detect_settle(struct dpe_detect_arguments *args);

/** Its args: struct dpe_detect_arguments. */
extern const struct dpe_study dpe_detect_study;

#endif
