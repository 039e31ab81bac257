/* Steps of decoding as CUDA graphs. The launches of a step are kept while the slots run, and
 * compared with those of steps before: what changes from token to token lies in memory that is
 * uploaded before, so the arguments stay the same until there are more units of keys. A graph runs
 * only in the place of launches that equal it byte by byte. */
#include "engine/cuda/host/backend.h"

#include <stdio.h>

void dpe_cuda_begin_step(struct dpe_backend *b, const struct dpe_batch *batch)
{
    struct dpe_cuda_steps *steps = &b->steps;
    steps->keeping = steps->on && b->ways.decodes && batch->positions != NULL &&
                     batch->rows <= DPE_CUDA_STEP_ROWS && b->peers->size == 1 && !b->each_call;
    steps->list.used = 0;
}

void dpe_cuda_make_kept(struct dpe_backend *b)
{
    b->steps.keeping = false;
    DPE_CUDA_TRY(b, dpe_launches_each(&b->steps.list, dpe_rt_launch));
}

/* What was kept of launches that equal these; NULL: nothing. */
static struct dpe_cuda_step *find(struct dpe_cuda_steps *steps)
{
    for (int i = 0; i < DPE_CUDA_STEPS; i++) {
        if (steps->steps[i].launches.used > 0 &&
            dpe_launches_equal(&steps->steps[i].launches, &steps->list)) {
            return &steps->steps[i];
        }
    }
    return NULL;
}

/* Keep these launches in the place of those that were not needed for the longest time. They are not
 * made a graph yet: a kernel's first launch loads it, which a capture may refuse. */
static void keep(struct dpe_cuda_steps *steps)
{
    struct dpe_cuda_step *oldest = &steps->steps[0];
    for (int i = 1; i < DPE_CUDA_STEPS; i++) {
        oldest = steps->steps[i].used < oldest->used ? &steps->steps[i] : oldest;
    }
    dpe_rt_graph_free(oldest->graph);
    oldest->graph = NULL;
    oldest->used = steps->n_steps;
    if (dpe_launches_copy(&oldest->launches, &steps->list) != 0) {
        dpe_launches_free(&oldest->launches); /* out of memory: this step stays as it is */
    }
}

void dpe_cuda_end_step(struct dpe_backend *b)
{
    struct dpe_cuda_steps *steps = &b->steps;
    if (!steps->keeping || b->failed) {
        return;
    }
    steps->n_steps++;
    struct dpe_cuda_step *step = find(steps);
    if (step == NULL) {
        keep(steps);
        dpe_cuda_make_kept(b);
        return;
    }
    step->used = steps->n_steps;
    if (step->graph == NULL) {
        int code = dpe_rt_graph_make(&step->launches, &step->graph);
        steps->n_made++;
        if (code != 0) {
            fprintf(stderr,
                    "cuda: a step of decoding cannot become a graph (%s): from here on "
                    "kernels are launched one by one\n",
                    dpe_rt_text(code));
        }
        /* Making a graph takes as long as several steps: not where launches differ too often. */
        bool wasted = steps->n_made >= 16 && steps->n_run < 4 * steps->n_made;
        steps->on = code == 0 && !wasted;
    }
    if (step->graph == NULL) {
        dpe_cuda_make_kept(b);
        return;
    }
    steps->keeping = false;
    steps->n_run++;
    DPE_CUDA_TRY(b, dpe_rt_graph_run(step->graph));
}

void dpe_cuda_free_steps(struct dpe_backend *b)
{
    struct dpe_cuda_steps *steps = &b->steps;
    for (int i = 0; i < DPE_CUDA_STEPS; i++) {
        dpe_rt_graph_free(steps->steps[i].graph);
        dpe_launches_free(&steps->steps[i].launches);
    }
    dpe_launches_free(&steps->list);
}
