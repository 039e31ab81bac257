/* What all tasks share: rows, retries, time, recall. */
#include "eval/task/task.h"
#include "engine/base/base.h"
#include "outputs/h5/rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int lower(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

static bool contains(const char *text, const char *word)
{
    for (; *text != '\0'; text++) {
        size_t i = 0;
        while (word[i] != '\0' && lower(text[i]) == lower(word[i])) {
            i++;
        }
        if (word[i] == '\0') {
            return true;
        }
    }
    return word[0] == '\0';
}

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
        found += contains(text, references[i]);
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

static void row_begin(const struct dpe_task *task, const char *plan, int64_t index,
                      struct dpe_row *row)
{
    dpe_row_init(row);
    snprintf(row->plan, sizeof row->plan, "%s", plan);
    snprintf(row->task, sizeof row->task, "%s", task->name);
    row->sample = index;
}

static dpe_status run_once(const struct dpe_task *task, struct dpe_session *session,
                           const char *plan, int64_t index, struct dpe_row *row,
                           struct dpe_error *err)
{
    row_begin(task, plan, index, row);
    double start = dpe_clock();
    dpe_status status = task->run(task->state, session, index, row, err);
    row->seconds = dpe_clock() - start;
    return status;
}

dpe_status dpe_task_row(const struct dpe_task *task, struct dpe_session *session, const char *plan,
                        int64_t index, struct dpe_row *row, struct dpe_error *err)
{
    struct dpe_error own = {0};
    err = err == NULL ? &own : err;
    if (index < 0 || index >= task->n_samples) {
        return dpe_fail(err, DPE_USAGE, "task %s has no sample %lld", task->name, (long long)index);
    }
    DPE_SCOPED(dpe_row_free) struct dpe_row made = {0};
    dpe_status status = run_once(task, session, plan, index, &made, err);
    if (status == DPE_NONFINITE) {
        dpe_row_free(&made);
        status = run_once(task, session, plan, index, &made, err);
    }
    if (status == DPE_NONFINITE) {
        made.status = DPE_ROW_NONFINITE;
        made.layer = err->layer;
        made.position = err->position;
        status = DPE_OK;
    }
    DPE_TRY(status);
    *row = made;
    made = (struct dpe_row){0};
    return DPE_OK;
}

static void free_rows(struct dpe_row *rows, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        dpe_row_free(&rows[i]);
    }
}

static dpe_status run_many(const struct dpe_task *task, struct dpe_session *session,
                           const char *plan, const int64_t *indices, int64_t n,
                           struct dpe_row *rows, struct dpe_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        row_begin(task, plan, indices[i], &rows[i]);
    }
    double start = dpe_clock();
    dpe_status status = task->run_many(task->state, session, indices, n, rows, err);
    for (int64_t i = 0; i < n; i++) {
        rows[i].seconds = (dpe_clock() - start) / (double)n;
    }
    if (status != DPE_OK) {
        free_rows(rows, n);
    }
    return status;
}

dpe_status dpe_task_rows(const struct dpe_task *task, struct dpe_session *session, const char *plan,
                         const int64_t *indices, int64_t n, struct dpe_row *rows,
                         struct dpe_error *err)
{
    dpe_status status = DPE_NONFINITE;
    bool there = true;
    for (int64_t i = 0; i < n; i++) {
        there = there && indices[i] >= 0 && indices[i] < task->n_samples;
    }
    if (n > 1 && there && task->run_many != NULL) {
        status = run_many(task, session, plan, indices, n, rows, err);
    }
    if (status != DPE_NONFINITE) {
        return status;
    }
    for (int64_t i = 0; i < n; i++) {
        status = dpe_task_row(task, session, plan, indices[i], &rows[i], err);
        if (status != DPE_OK) {
            free_rows(rows, i);
            return status;
        }
    }
    return DPE_OK;
}

dpe_status dpe_task_rows_of_items(const struct dpe_task *task, struct dpe_session *session,
                                  const char *plan, const struct dpe_item *items, int64_t n,
                                  struct dpe_row *rows, struct dpe_error *err)
{
    DPE_OWNED int64_t *samples = NULL;
    DPE_TRY(DPE_NEW(&samples, (size_t)n, err, "out of memory for %lld samples", (long long)n));
    for (int64_t i = 0; i < n; i++) {
        samples[i] = items[i].sample;
    }
    return dpe_task_rows(task, session, plan, samples, n, rows, err);
}
