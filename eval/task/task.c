/* What all tasks share: rows, retries, time, recall. */
#include "eval/task/task.h"
#include "engine/base/base.h"
#include "outputs/h5/rows.h"
#include "outputs/job/job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dpe_sample_free(struct dpe_sample *sample)
{
    dpe_tokens_free(&sample->prompt);
    for (size_t i = 0; i < sample->n_references; i++) {
        free(sample->references[i]);
        free(sample->answers != NULL ? sample->answers[i] : NULL);
    }
    free(sample->references);
    free(sample->answers);
    free(sample->skip);
    *sample = (struct dpe_sample){0};
}

void dpe_draw_order(struct dpe_rng *rng, size_t *order, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t j = dpe_rng_below(rng, (uint32_t)i + 1);
        order[i] = order[j];
        order[j] = i;
    }
}

double dpe_recall(const char *text, char *const *references, size_t n)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        found += strstr(text, references[i]) != NULL;
    }
    return n == 0 ? (double)NAN : (double)found / (double)n;
}

void dpe_task_close(struct dpe_task *task)
{
    if (task->close != NULL) {
        task->close(task->state);
    }
    *task = (struct dpe_task){0};
}

static void free_rows(const struct dpe_job_rows *parts, int64_t n)
{
    for (int64_t p = 0; p < n; p++) {
        for (int64_t i = 0; i < parts[p].n; i++) {
            dpe_row_free(&parts[p].rows[i]);
        }
    }
}

/* The rows are to be freed after failures too. */
static dpe_status run(const struct dpe_task *task, const struct dpe_job_rows *parts, int64_t n,
                      int64_t rows, struct dpe_error *err)
{
    for (int64_t p = 0; p < n; p++) {
        for (int64_t i = 0; i < parts[p].n; i++) {
            struct dpe_row *row = &parts[p].rows[i];
            dpe_row_init(row);
            snprintf(row->plan, sizeof row->plan, "%s", parts[p].key);
            snprintf(row->task, sizeof row->task, "%s", task->name);
            row->sample = parts[p].items[i].sample;
        }
    }
    double start = dpe_clock();
    const dpe_status status = task->run(task->state, parts, n, err);
    double seconds = (dpe_clock() - start) / (double)rows;
    for (int64_t p = 0; p < n; p++) {
        for (int64_t i = 0; i < parts[p].n; i++) {
            parts[p].rows[i].seconds = seconds;
        }
    }
    return status;
}

/* One by one, for the second time. */
static dpe_status run_again(const struct dpe_task *task, const struct dpe_job_rows *part,
                            struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (int64_t i = 0; i < part->n && status == DPE_OK; i++) {
        struct dpe_row *row = &part->rows[i];
        const struct dpe_job_rows one = {part->session, part->key, part->items + i, 1, row};
        dpe_row_free(row);
        status = run(task, &one, 1, 1, err);
        if (status == DPE_NONFINITE) {
            row->status = DPE_ROW_NONFINITE;
            row->layer = err->layer;
            row->position = err->position;
            status = DPE_OK;
        }
    }
    return status;
}

dpe_status dpe_task_rows(const struct dpe_task *task, const struct dpe_job_rows *parts, int64_t n,
                         struct dpe_error *err)
{
    struct dpe_error own = {0};
    int64_t rows = 0;
    err = err == NULL ? &own : err;
    for (int64_t p = 0; p < n; p++) {
        rows += parts[p].n;
        for (int64_t i = 0; i < parts[p].n; i++) {
            if (parts[p].items[i].sample < 0 || parts[p].items[i].sample >= task->n_samples) {
                return dpe_fail(err, DPE_USAGE, "task %s has no sample %lld", task->name,
                                (long long)parts[p].items[i].sample);
            }
        }
    }
    dpe_status status = run(task, parts, n, rows, err);
    if (status == DPE_NONFINITE) {
        status = DPE_OK;
        for (int64_t p = 0; p < n && status == DPE_OK; p++) {
            status = run_again(task, &parts[p], err);
        }
    }
    if (status != DPE_OK) {
        free_rows(parts, n);
    }
    return status;
}
