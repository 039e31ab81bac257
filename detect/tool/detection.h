/**
 * @file detection.h
 * The study of dpe-detect: a model goes in, a table of effective lengths comes out.
 */
#ifndef DPE_DETECT_DETECTION_H
#define DPE_DETECT_DETECTION_H

#include "detect/search/select.h"
#include "outputs/job/job.h"

enum { DETECT_MOST_AGAINST = 8 };

/** What is asked for. Zero means "not given" where a default is computed. */
struct dpe_detect_arguments {
    struct dpe_job_options job;
    const char *niah, *lengths;
    const char *temperature; /**< "auto", "auto:" and one as dpe_temperature_parse, or one alone */
    const char *selection;   /**< keys of the method select, or NULL */
    const char *scale_pairs; /**< NORMS.h5: only the key pairs move */
    double top_k;            /**< count, or a share below 1; 0 = not given */
    bool use_niah, use_ppl;
    enum dpe_detect_score {
        DETECT_SCORE_AUTO,   /**< recall, and steps where the pilot shows that they tell more */
        DETECT_SCORE_RECALL, /**< of the search's task; the user's is measured as --niah says */
        DETECT_SCORE_STEPS,
    } score;
    bool task_given;
    bool auto_task;   /**< --task auto: a pilot finds the task that the search measures with */
    bool frequencies; /**< --move frequencies */
    int64_t window, groups;
    enum dpe_detect_rule rule;
    bool groups_given, rule_given;
    int64_t rounds; /**< of the sequential rule or the joint search, 0 = not given */
    int n_against;  /**< methods that the result is held against */
    const char *against[DETECT_MOST_AGAINST];
    int n_tuned;
    char *tuned[DETECT_MOST_AGAINST]; /**< those of them that a table named; owned by the study */
    bool no_against;                  /**< --against none */
    bool usual;                       /**< dpe_detect_point_usual is held beside the others */
    bool against_tuned; /**< --against tuned, which only dpe-calibrate knows: it tunes them first */
    int64_t batch;      /**< samples decoded together, 0 = not given */
    int64_t shared, keys_per_context; /**< 0 = not given */
    bool race, race_settings;         /**< given; given level or indifference */
    double race_level, race_indifference;
    double guard; /**< perplexity that the table's plan may lose, as a share; 0: no guard */
    bool guard_given;
};

/** What stands where nothing is given. */
void dpe_detect_defaults(struct dpe_detect_arguments *args);
/** The options of a sweep that dpe-detect and dpe-calibrate have; input struct dpe_detect_arguments
 * with its defaults. */
extern const struct dpe_option_set dpe_detect_option_set;
/** At DPE_LINE_END, once `job` has what the caller parses: end with a usage error where options do
 * not go together, and set what follows from others. */
void dpe_detect_complete(struct dpe_command_line *state, struct dpe_detect_arguments *args);
/** Only the latter. */
void dpe_detect_settle(struct dpe_detect_arguments *args);

/** Its args: struct dpe_detect_arguments. */
extern const struct dpe_study dpe_detect_study;

#endif
