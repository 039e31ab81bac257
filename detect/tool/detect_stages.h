/**
 * @file detect_stages.h
 * The stages of a sweep: lists of rows, one after another. No library.
 */
#ifndef DPE_DETECT_STAGES_H
#define DPE_DETECT_STAGES_H

#include "detect/tool/detect_tool.h"

/** A sweep at work. */
struct sweep {
    struct detect_inputs *inputs;
    struct dpe_detect_report *report;
    struct dpe_plan validated[DPE_DETECT_MOST_VALIDATED];
    const int64_t *first;         /* samples of the list at work, per task */
    int64_t planned[2];           /* rows of the whole sweep, per task; of a search those so far */
    int64_t searched;             /* rows of the search in `planned` */
    double cost[2];               /* operations of a row */
    const struct dpe_task *tasks; /* of the list at work */
    double *sum, *weight;         /* [configs] of the deciding task: what the live line ranks */
    int64_t *best;                /* [groups] */
    int own; /* of the validated plans the one that a brief search ended with; -1: there is none */
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
    const struct dpe_plan *const *plans;
    const char *const *keys;
    const unsigned char *live; /* [n_plans] 0 = left out; NULL: none is */
    int64_t later[2];          /* rows after it, per task */
    bool last;                 /* there are none */
};
/** One of the first n samples of a task, with the validation after it; its plans are to be set. */
struct stage dpe_detect_stage_of(const struct sweep *sweep, const char *name,
                                 const struct dpe_task *task, int64_t n);

/** Make the rows of a list that are missing, and append them to the run. Errors of dpe_job_rows. */
dpe_status dpe_detect_stage_run(struct sweep *sweep, const struct stage *stage,
                                struct dpe_error *err);
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
