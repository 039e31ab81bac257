/**
 * @file job_internal.h
 * A job from inside: what the files of dpe_job share.
 */
#ifndef DPE_JOB_INTERNAL_H
#define DPE_JOB_INTERNAL_H

#include "outputs/job/job.h"
#include "outputs/job/ranks.h"

/** What the rows of one task took. */
struct dpe_job_pace {
    uint64_t name; /**< dpe_fnv of the task's */
    double seconds;
    int64_t rows;
    /** Of steps of so many sessions beside each other: seconds, and tokens that were decoded. */
    double stepping[DPE_JOB_SIDES + 1];
    int64_t decoded[DPE_JOB_SIDES + 1];
    bool warm; /**< the first steps, which find nothing ready, are over: they do not count */
};
/** How many sessions beside each other, at most `most`, make the next rows of the task: half as
 * many are tried, and stay where a token takes a tenth less time then, beyond what other work on
 * the machine does to it. */
int dpe_job_sides(const struct dpe_job_pace *pace, int most);

/** Rows that this process is making, for the progress line. */
struct dpe_job_inside {
    struct dpe_loop *loop;
    int64_t n;                      /**< rows */
    int task;                       /**< of all of them */
    double begin;                   /**< dpe_clock() */
    struct dpe_session_work before; /**< of the session */
    int64_t fed, polls;             /**< as last seen; calls since then */
};
/** Show how far the rows are that are being made, if they take long enough. Called often. */
void dpe_loop_show_inside(struct dpe_job *job);

/** Rows that a rank is making, for the progress line. */
struct dpe_job_part {
    int64_t n;    /**< rows, 0: none */
    int task;     /**< of all of them */
    double begin; /**< dpe_clock() */
    double read;  /**< tokens that it has read since then */
};

/** A list at work. */
struct dpe_loop {
    struct dpe_job *job;
    const struct dpe_work *work;
    const struct dpe_wanted *list;
    int64_t *rows, *missing; /**< [n_tasks] of the list */
    unsigned char *open;     /**< [n_items] 1 = its row is missing, 2 = it is being made */
    int64_t n_nonfinite;
    double unit_seconds; /**< of a row per unit of cost, guessed from a part of the first; 0:
                            unknown */
    int in_session[DPE_JOB_SIDES]; /**< plan that each session has, -1 = none of the list */
};

/** Items that are made together, and their rows. */
struct dpe_group {
    int64_t n, capacity;
    int64_t *at;            /**< [capacity] indices into the list */
    struct dpe_item *items; /**< [capacity] */
    struct dpe_row *rows;   /**< [capacity], filled by dpe_loop_make */
};
dpe_status dpe_group_init(struct dpe_group *group, const struct dpe_loop *loop,
                          struct dpe_error *err);
/** Free the rows that are left and the group. */
void dpe_group_free(struct dpe_group *group);
/** Free its rows and take its items out. */
void dpe_group_clear(struct dpe_group *group);
DPE_SCOPED_HANDLE(struct dpe_group *, dpe_group_clear)
/** Append an item; false when the group is full. */
bool dpe_group_add(struct dpe_group *group, const struct dpe_loop *loop, int64_t at);

/** Count the rows that exist and those that are missing, and name the plans of the former. */
dpe_status dpe_loop_stock(struct dpe_loop *loop, struct dpe_error *err);
/** DPE_NONFINITE when more rows than the limit allows are not finite. */
dpe_status dpe_loop_check(const struct dpe_loop *loop, struct dpe_error *err);
/** The progress line, if it is time for one. */
void dpe_loop_show(const struct dpe_loop *loop);
/** The same within the rows that n ranks are making, `rate` being the tokens that all of them read
 * in a second; nothing before one of them has taken a second. `words`: what to say of them in place
 * of how much is read, or NULL. */
void dpe_loop_show_parts(struct dpe_loop *loop, const struct dpe_job_part *parts, int n,
                         double rate, const char *words);
/** The row of an item, or NULL. */
const struct dpe_row *dpe_loop_find(const struct dpe_loop *loop, const struct dpe_item *item);
/** The item's row exists: count it, show progress. */
void dpe_loop_close(struct dpe_loop *loop, const struct dpe_item *item);
/** The same for a row that was made just now; DPE_NONFINITE beyond the limit. */
dpe_status dpe_loop_made(struct dpe_loop *loop, const struct dpe_item *item,
                         const struct dpe_row *row, struct dpe_error *err);
/** The next group of rows that are missing, from item *at on; *at becomes the item after its first.
 * An empty group: the list is at its end. The journal has its plans, and a table that was due is
 * written. DPE_INCOMPLETE: a signal, or no time is left. */
dpe_status dpe_loop_next(struct dpe_loop *loop, size_t *at, struct dpe_group *group,
                         struct dpe_error *err);
/** Make the rows of a group in the job's sessions. */
dpe_status dpe_loop_make(struct dpe_loop *loop, struct dpe_group *group, struct dpe_error *err);
/** All missing rows with several ranks; on every rank all rows of the list are known afterwards. */
dpe_status dpe_loop_ranks(struct dpe_loop *loop, struct dpe_error *err);

/** Every rank learns the rows that rank 0 has, except those it sent before. */
dpe_status dpe_job_share_rows(struct dpe_job *job, struct dpe_error *err);

#endif
