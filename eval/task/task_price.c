/* What the samples of a task cost. */
#include "eval/task/task.h"
#include "outputs/job/price.h"

dpe_status dpe_task_price(const struct dpe_task *task, int64_t n, int64_t length, int64_t batch,
                          const struct dpe_config *config, struct dpe_price *price,
                          struct dpe_answering *counted, struct dpe_error *err)
{
    enum { MOST = 64 };
    struct dpe_sample samples[MOST] = {{0}};
    struct dpe_answering own = {0};
    struct dpe_answering *answering = counted != NULL ? counted : &own;
    int64_t most = n < task->n_samples ? n : task->n_samples;
    int64_t together = batch > 1 ? batch : 1;
    const struct dpe_session_limits limits = {
        .capacity = length * together, .positions = length, .branches = together};
    dpe_status status = DPE_OK;
    most = most < MOST ? most : MOST;
    *answering = (struct dpe_answering){0};
    for (int64_t i = 0; i < most && status == DPE_OK; i++) {
        status = dpe_task_sample(task, i, &samples[i], NULL, err);
    }
    if (status == DPE_OK) {
        status = dpe_answering_cost(samples, most, together, &limits, answering, err);
    }
    if (status == DPE_OK) {
        const struct dpe_price_answers answers = {.samples = most,
                                                  .prompts = answering->prompts,
                                                  .read = answering->read,
                                                  .pairs = answering->pairs,
                                                  .decoded = answering->decoded,
                                                  .steps = answering->steps,
                                                  .room = samples[0].max_new};
        dpe_price_of_answers(config, &answers, price);
    }
    for (int64_t i = 0; i < most; i++) {
        dpe_sample_free(&samples[i]);
    }
    return status;
}
