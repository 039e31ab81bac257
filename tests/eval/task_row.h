/**
 * @file task_row.h
 * A row of a task alone. Include after cmocka.h.
 */
#ifndef DPE_TASK_ROW_H
#define DPE_TASK_ROW_H

#include "eval/task/task.h"
#include "outputs/job/job.h"

static inline dpe_status row_of(const struct dpe_task *task, struct dpe_session *session,
                                const char *key, int64_t index, struct dpe_row *row,
                                struct dpe_error *err)
{
    const struct dpe_item item = {.sample = index};
    const struct dpe_job_rows part = {session, key, &item, 1, row};
    return dpe_task_rows(task, &part, 1, err);
}

#endif
