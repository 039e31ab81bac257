/* Rows without a model. The tools' own main runs, with its options, lists, journals, tables and
 * words, but what a sample scores under a plan is said here: dpe_task_rows is replaced
 * (dpe_test_wrap), and dpe_job_session says under which plan. */
#include "tests/lib/made_rows.h"

#include <math.h>
#include <string.h>

#include "eval/task/task.h"
#include "outputs/job/job.h"

dpe_status __real_dpe_job_session(struct dpe_job *job, int side, const struct dpe_plan *plan,
                                  int64_t capacity, struct dpe_error *err);
dpe_status __wrap_dpe_job_session(struct dpe_job *job, int side, const struct dpe_plan *plan,
                                  int64_t capacity, struct dpe_error *err);
dpe_status __wrap_dpe_task_rows(const struct dpe_task *task, const struct dpe_job_rows *parts,
                                int64_t n, struct dpe_error *err);

struct made_world made_world = {.best = {64, 64}, .noise = 0.1};

static const struct dpe_plan *current[DPE_JOB_SIDES];
static int64_t length;

dpe_status __wrap_dpe_job_session(struct dpe_job *job, int side, const struct dpe_plan *plan,
                                  int64_t capacity, struct dpe_error *err)
{
    current[side] = plan;
    length = capacity;
    return __real_dpe_job_session(job, side, plan, capacity, err);
}

/* 0 … 1, other for each sample, the same in every run. */
static double draw(uint64_t x)
{
    x = (x + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return (double)((x ^ x >> 27) >> 11) * 0x1p-53;
}

double made_quality(const struct dpe_plan *plan, int64_t tokens)
{
    const int64_t n = plan->n_pairs - plan->n_still;
    double far = 0.0;
    for (int64_t j = 0; j < n; j++) {
        const double native =
            pow(10000.0, -(double)j / (double)plan->n_pairs); /* rope_theta of data/reference */
        const double seen =
            dpe_plan_position(plan, 0, 0, j, tokens - 1, 0).rel * plan->inv_freq[j] / native;
        const double best = made_world.best[j >= n / 2];
        far += fmin(fabs(log2(fmax(seen, 1.0) / best)) / 4.0, 1.0) / (double)n;
    }
    const double factor =
        plan->temperature.logit_scale * dpe_temperature_factor(&plan->temperature, tokens - 1);
    const double off = made_world.factor > 0.0 ? fabs(log(factor / made_world.factor)) : 0.0;
    return 0.95 * (1.0 - far) * (1.0 - fmin(off, 1.0));
}

static dpe_status make_part(const struct dpe_task *task, const struct dpe_plan *under,
                            const struct dpe_job_rows *part, struct dpe_error *err)
{
    const double quality = made_quality(under, length);
    const bool blind = made_world.blind && strncmp(task->name, "unchanged", 9) != 0;
    if (made_world.fails_after > 0 && --made_world.fails_after == 0) {
        return dpe_fail(err, DPE_INCOMPLETE, "stopped by the test");
    }
    for (int64_t i = 0; i < part->n; i++) {
        struct dpe_row *row = &part->rows[i];
        const double noise = made_world.noise * (draw((uint64_t)part->items[i].sample) - 0.5);
        dpe_row_init(row);
        snprintf(row->plan, sizeof row->plan, "%s", part->key);
        snprintf(row->task, sizeof row->task, "%s", task->name);
        row->sample = part->items[i].sample;
        row->status = DPE_ROW_OK;
        row->score = fmin(fmax((blind ? 0.0 : quality) + noise, 0.0), 1.0);
        row->at_least_half = row->score >= 0.5;
        row->n_tokens = 100;
        row->n_words = 70;
        row->nll_sum = 100.0 * (4.0 - 2.0 * quality + noise);
        row->prompt_tokens = length - 16;
        row->new_tokens = 8;
        row->seed = 7 + (uint64_t)part->items[i].sample;
        row->margin = row->score;
        row->seconds = 1e-3;
        row->text = strdup("made up");
    }
    return DPE_OK;
}

dpe_status __wrap_dpe_task_rows(const struct dpe_task *task, const struct dpe_job_rows *parts,
                                int64_t n, struct dpe_error *err)
{
    for (int64_t p = 0; p < n; p++) {
        DPE_TRY(make_part(task, current[p], &parts[p], err));
    }
    return DPE_OK;
}
