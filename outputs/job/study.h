/**
 * @file study.h
 * A study: something with rows, from its inputs to its table. A tool does one; dpe-calibrate does
 * several in one job (job.h, `within`), one after another. How a study is opened, priced, run and
 * closed is told once, here.
 */
#ifndef DPE_JOB_STUDY_H
#define DPE_JOB_STUDY_H

#include "outputs/job/job.h"

struct dpe_bill;

/** A kind of study. `state` has `size` bytes, zero at first; `args` is what a command line, or
 * dpe-calibrate, asked for, and outlives the state. */
struct dpe_study {
    const char *tool; /**< that does it alone: "dpe-norms" */
    size_t size;
    size_t job; /**< where the state has its struct dpe_job */
    /** Open the inputs and make every check that can be made before any work. */
    dpe_status (*open)(void *state, const void *args, struct dpe_error *err);
    /** Print what it would cost, unless it is silent, and add that to `bill` (NULL: not wanted).
     * Silent and without a bill it only finds out whether everything is there, fits together and
     * into memory. */
    dpe_status (*cost)(void *state, struct dpe_bill *bill, struct dpe_error *err);
    /** Say what begins, and open or continue the run (dpe_job_start). */
    dpe_status (*start)(void *state, struct dpe_error *err);
    /** Make the rows that are missing. */
    dpe_status (*rows)(void *state, struct dpe_error *err);
    /** The table of the rows so far; its user is the state. */
    dpe_run_fill fill;
    /** On rank 0, and not of a silent one: print the result. */
    dpe_status (*print)(void *state, struct dpe_error *err);
    /** Suggest what to type next; NULL: nothing. */
    void (*suggest)(const void *state);
    /** Also after a failed open; returns what dpe_job_close does. */
    dpe_status (*close)(void *state, dpe_status status, struct dpe_error *err);
};

/** Run a study. */
dpe_status dpe_study_run(const struct dpe_study *study, const void *args, struct dpe_error *err);
/** A dry run. */
dpe_status dpe_study_cost(const struct dpe_study *study, const void *args, struct dpe_bill *bill,
                          struct dpe_error *err);
/** What `main` of a tool does with it once the command line is read: a dry run, or run and suggest.
 *  Returns the exit code. */
int dpe_study_main(const struct dpe_study *study, const void *args,
                   const struct dpe_job_options *options);

#endif
