/* Layers with a state: which tokens go in pieces and which one by one; states and gates. */
#include "engine/cuda/host/backend.h"
#include "engine/cuda/kernels/cuda_recur.h"

/* At once; more are taken in turns. Tests take few. */
#ifndef DPE_CUDA_PIECES
#define DPE_CUDA_PIECES 32
#endif

uint64_t dpe_cuda_recur_workspace(const struct dpe_config *config, int64_t rows, int n_threads)
{
    /* A run may begin and end within a piece. */
    const int64_t pieces = dpe_least(rows / DPE_RECUR_PIECE + 2, DPE_CUDA_PIECES);
    (void)n_threads;
    return dpe_bytes_of(dpe_recur_floats(&config->recurrent, pieces), 1, 1, sizeof(float));
}

uint64_t dpe_cuda_recur_bytes(const struct dpe_config *config, int64_t branches)
{
    return dpe_bytes_plus(
        dpe_bytes_of(branches, config->recurrent.key_heads, 1, sizeof(int32_t)),
        dpe_bytes_of(config->recurrent.value_heads > 0 ? branches : 0, 1, 1, sizeof(int64_t)));
}

void dpe_cuda_copy_state(struct dpe_backend *b, dpe_mem to, dpe_mem from, uint64_t bytes)
{
    if (from == NULL) {
        DPE_CUDA_TRY(b, dpe_rt_fill(to, 0, bytes));
    } else {
        DPE_CUDA_TRY(b, dpe_rt_copy(to, from, bytes));
    }
}

void dpe_cuda_output_gate(struct dpe_backend *b, dpe_mem out, dpe_mem gate, int64_t n, int64_t each)
{
    DPE_CUDA_LAUNCH(b, dpe_kernel_output_gate(b->dtype, out, gate, n, each));
}

static const void *row_of(const struct dpe_backend *b, const void *x, int64_t row, int64_t width)
{
    return (const char *)x + row * width * (int64_t)b->element;
}

/* Rows first … first + rows − 1 of a call. */
static struct dpe_recur some(const struct dpe_backend *b, const struct dpe_recurrence *args,
                             int64_t first, int64_t rows)
{
    const struct dpe_recurrent *r = &b->config->recurrent;
    const struct dpe_cuda_layer *layer = &b->layers[args->layer];
    const int64_t keys = dpe_recurrent_keys(r);
    const int64_t values = dpe_recurrent_values(r);
    return (struct dpe_recur){
        .dtype = b->dtype,
        .width = (int32_t)r->width,
        .key_heads = (int32_t)r->key_heads,
        .value_heads = (int32_t)r->value_heads,
        .key_dim = (int32_t)r->key_dim,
        .value_dim = (int32_t)r->value_dim,
        .tiled = r->tiled ? 1 : 0,
        .eps = (float)r->eps,
        .reach = r->doubled ? 2.0F : 1.0F,
        .convolution = {layer->weight[DPE_WEIGHT_CONVOLUTION_Q],
                        layer->weight[DPE_WEIGHT_CONVOLUTION_K],
                        layer->weight[DPE_WEIGHT_CONVOLUTION_V]},
        .rate = layer->weight[DPE_WEIGHT_RATE],
        .step = layer->weight[DPE_WEIGHT_STEP],
        .norm = layer->weight[DPE_WEIGHT_OUTPUT_NORM],
        .x = {row_of(b, args->q, first, keys), row_of(b, args->k, first, keys),
              row_of(b, args->v, first, values)},
        .gate = row_of(b, args->gate, first, values),
        .beta = row_of(b, args->beta, first, r->value_heads),
        .decay = row_of(b, args->decay, first, r->value_heads),
        .out = (char *)args->out + first * values * (int64_t)b->element,
        .states = args->states,
        .which = args->which != NULL ? b->which + (args->which - b->batch_branches) : NULL,
        .state = args->which != NULL ? 0 : args->state,
        .rows = rows,
    };
}

static void by_tokens(struct dpe_backend *b, const struct dpe_recurrence *args, int64_t first,
                      int64_t rows)
{
    const struct dpe_recur call = some(b, args, first, rows);
    if (rows > 0) {
        DPE_CUDA_LAUNCH(b, dpe_kernel_recur_tokens(&call, b->arrived));
    }
}

/* What a piece is made by depends on the tokens of the call in it alone, so calls that end at its
 * lines give the same bits as one. */
void dpe_cuda_recur(struct dpe_backend *b, const struct dpe_recurrence *args)
{
    const int64_t to_line = (DPE_RECUR_PIECE - args->start % DPE_RECUR_PIECE) % DPE_RECUR_PIECE;
    const int64_t beyond = (args->start + args->rows) % DPE_RECUR_PIECE;
    if (args->which != NULL || args->rows <= DPE_RECUR_TOKENS) {
        by_tokens(b, args, 0, args->rows);
        return;
    }
    const int64_t begin = to_line <= DPE_RECUR_TOKENS ? to_line : 0;
    const int64_t end = args->rows - (beyond <= DPE_RECUR_TOKENS ? beyond : 0);
    by_tokens(b, args, 0, begin);
    for (int64_t at = begin; at < end;) {
        const int64_t lead = (args->start + at) % DPE_RECUR_PIECE;
        const int64_t rows = dpe_least(end - at, (int64_t)DPE_CUDA_PIECES * DPE_RECUR_PIECE - lead);
        struct dpe_recur call = some(b, args, at, rows);
        call.lead = (int32_t)lead;
        DPE_CUDA_LAUNCH(b, dpe_kernel_recur_pieces(&call, args->workspace));
        at += rows;
    }
    by_tokens(b, args, end, args->rows - end);
}
