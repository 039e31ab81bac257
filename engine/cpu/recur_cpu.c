/* Gated delta rules in pieces of up to 64 tokens, by products of small matrices.
 *
 * In a piece that begins with the state S, with a_i = e^(g_i) and D_ij = a_(j+1) … a_i, the rows
 * u_i that the tokens add to the state solve
 *
 *     u_i + β_i Σ_(j<i) D_ij (k_i · k_j) u_j = β_i (v_i − a_1 … a_i Sᵀ k_i)
 *
 * and with them o_i = a_1 … a_i Sᵀ q_i + Σ_(j≤i) D_ij (q_i · k_j) u_j, and the state after the
 * piece is a_1 … a_n S + Σ_j D_nj k_j u_jᵀ. D comes from products of numbers up to 1, so nothing
 * overflows. */
#include "engine/cpu/recur_cpu.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "engine/ops/ops_host.h"

enum {
    PIECE = 64,
    BLOCK = 16, /* rows that are solved one by one before a product takes them to the others */
};

/* What a thread works in. */
struct room {
    float *weights;           /* [width][2 key_dim + group values] of the convolution */
    float *raw;               /* [width − 1 + PIECE][the same], before it */
    float *kq;                /* [2 PIECE][key_dim]: k of all tokens, then q */
    float *v;                 /* [PIECE][group values] */
    float *kt;                /* [key_dim][PIECE] */
    float *dots;              /* [2 PIECE][PIECE]: k · k, q · k */
    float *uo;                /* [2 PIECE][value_dim]: u, then o */
    float *lower, *mixed;     /* [PIECE][PIECE] */
    float *faded;             /* [PIECE][key_dim]: D_nj k_j */
    float *ones, *norm, *row; /* [values of a group or key_dim], [value_dim], [the same as ones] */
};

static int64_t group_of(const struct dpe_recurrent *r)
{
    return r->value_heads / r->key_heads;
}

/* Channels of a key head: of its q and k, and of the v of its value heads. */
static int64_t channels_of(const struct dpe_recurrent *r)
{
    return 2 * r->key_dim + group_of(r) * r->value_dim;
}

static int64_t take(float **at, float **next, int64_t n)
{
    const int64_t padded = (n + 15) / 16 * 16;
    if (next != NULL) {
        *at = *next;
        *next += padded;
    }
    return padded;
}

/* Lays out a room; its floats. next NULL: the floats alone. */
static int64_t lay_out(const struct dpe_recurrent *r, struct room *room, float *next)
{
    const int64_t own = channels_of(r);
    const int64_t d = r->key_dim;
    float **at = next != NULL ? &next : NULL;
    int64_t n = take(&room->weights, at, r->width * own);
    n += take(&room->raw, at, (r->width - 1 + PIECE) * own);
    n += take(&room->kq, at, 2 * PIECE * d);
    n += take(&room->v, at, PIECE * group_of(r) * r->value_dim);
    n += take(&room->kt, at, d * PIECE);
    n += take(&room->dots, at, 2 * PIECE * PIECE);
    n += take(&room->uo, at, 2 * PIECE * r->value_dim);
    n += take(&room->lower, at, PIECE * PIECE);
    n += take(&room->mixed, at, PIECE * PIECE);
    n += take(&room->faded, at, PIECE * d);
    n += take(&room->ones, at, own);
    n += take(&room->norm, at, r->value_dim);
    n += take(&room->row, at, own);
    return n;
}

uint64_t dpe_cpu_recur_workspace(const struct dpe_config *config, int n_threads)
{
    struct room room;
    return dpe_bytes_of(lay_out(&config->recurrent, &room, NULL), n_threads, 1, sizeof(float));
}

/* A key head of a run. */
struct job {
    const struct dpe_cpu_kernels *kernels;
    const struct dpe_recurrent *r;
    const struct dpe_tensor *weight; /* of the layer */
    const struct dpe_recurrence *args;
    struct room room;
    float *state;
    int64_t head;        /* the key head */
    int64_t first, rows; /* of the call */
};

/* A part of a key head's channels, its q, its k, or the v of one of its value heads: where it is
 * among those of all heads, in a row of the state's tail, and in the room. */
struct part {
    const struct dpe_tensor *weight;
    const float *x; /* row 0 of the call */
    int64_t stride, first, n, tail, room;
};

static int64_t count_parts(const struct job *job)
{
    return 2 + group_of(job->r);
}

static struct part part_of(const struct job *job, int64_t i)
{
    const struct dpe_recurrent *r = job->r;
    const int64_t keys = dpe_recurrent_keys(r);
    const struct dpe_tensor *w = job->weight;
    const int64_t d = r->key_dim;
    const int64_t at = job->head * d;
    if (i < 2) {
        return (struct part){&w[i == 0 ? DPE_WEIGHT_CONVOLUTION_Q : DPE_WEIGHT_CONVOLUTION_K],
                             i == 0 ? job->args->q : job->args->k,
                             keys,
                             at,
                             d,
                             i * keys + at,
                             i * d};
    }
    const int64_t v = dpe_recurrent_head(r, job->head, i - 2) * r->value_dim;
    return (struct part){&w[DPE_WEIGHT_CONVOLUTION_V],
                         job->args->v,
                         dpe_recurrent_values(r),
                         v,
                         r->value_dim,
                         2 * keys + v,
                         2 * d + (i - 2) * r->value_dim};
}

static void load_weights(const struct job *job, const struct part *part)
{
    const int64_t width = job->r->width;
    const int64_t own = channels_of(job->r);
    for (int64_t i = 0; i < part->n; i++) {
        float w[16];
        dpe_tensor_read(part->weight, (part->first + i) * width, width, w);
        for (int64_t t = 0; t < width; t++) {
            job->room.weights[t * own + part->room + i] = w[t];
        }
    }
}

/* The rows before the convolution that the state has, or those that it has from now on. */
static void move_tail(const struct job *job, const struct part *part, bool store)
{
    const int64_t own = channels_of(job->r);
    const int64_t stride = 2 * dpe_recurrent_keys(job->r) + dpe_recurrent_values(job->r);
    for (int64_t t = 0; t + 1 < job->r->width; t++) {
        float *here = job->room.raw + t * own + part->room;
        float *there = job->state + t * stride + part->tail;
        memcpy(store ? there : here, store ? here : there, (size_t)part->n * sizeof(float));
    }
}

/* x [n] = silu(Σ_t w_t raw_t), token i of the piece. */
static void convolve(const struct job *job, int64_t token, int64_t from, int64_t n, float *x)
{
    const int64_t own = channels_of(job->r);
    const float *raw = job->room.raw + token * own + from;
    const float *w = job->room.weights + from;
    for (int64_t i = 0; i < n; i++) {
        x[i] = raw[i] * w[i];
    }
    for (int64_t t = 1; t < job->r->width; t++) {
        for (int64_t i = 0; i < n; i++) {
            x[i] += raw[t * own + i] * w[t * own + i];
        }
    }
    job->kernels->activate(DPE_SWIGLU, x, job->room.ones, n);
}

/* x [n] · factor / ‖x‖, as a norm with equal weights. */
static void normalise(const struct job *job, float *x, int64_t n, float factor)
{
    const float root = sqrtf((float)n);
    for (int64_t i = 0; i < n; i++) {
        job->room.row[i] = factor / root;
    }
    job->kernels->rmsnorm(x, job->room.row, n, 1e-6F / (float)n, x);
}

/* q, k, v of n tokens of a piece, from row `first` of the call on. */
static void read_piece(const struct job *job, int64_t first, int64_t n)
{
    const struct dpe_recurrent *r = job->r;
    const struct room *room = &job->room;
    const int64_t own = channels_of(r);
    const int64_t d = r->key_dim;
    for (int64_t p = 0; p < count_parts(job); p++) {
        const struct part part = part_of(job, p);
        for (int64_t i = 0; i < n; i++) {
            memcpy(room->raw + (r->width - 1 + i) * own + part.room,
                   part.x + (first + i) * part.stride + part.first, (size_t)part.n * sizeof(float));
        }
    }
    for (int64_t i = 0; i < n; i++) {
        float *k = room->kq + i * d;
        float *q = room->kq + (n + i) * d;
        convolve(job, i, 0, d, q);
        convolve(job, i, d, d, k);
        convolve(job, i, 2 * d, own - 2 * d, room->v + i * (own - 2 * d));
        normalise(job, q, d, 1.0F / sqrtf((float)d));
        normalise(job, k, d, 1.0F);
        for (int64_t j = 0; j < d; j++) {
            room->kt[j * PIECE + i] = k[j];
        }
    }
    memmove(room->raw, room->raw + n * own, (size_t)((r->width - 1) * own) * sizeof(float));
    const struct dpe_cpu_small dots = {.m = 2 * n,
                                       .n = n,
                                       .k = d,
                                       .a = room->kq,
                                       .a_row = d,
                                       .a_column = 1,
                                       .b = room->kt,
                                       .ldb = PIECE,
                                       .c = room->dots,
                                       .ldc = PIECE};
    job->kernels->small(&dots);
}

/* e^(g) and β of a token of a value head. */
static void read_gates(const struct job *job, int64_t row, int64_t head, float *kept, float *beta)
{
    float rate = 0.0F;
    float step = 0.0F;
    const int64_t at = row * job->r->value_heads + head;
    dpe_tensor_read(&job->weight[DPE_WEIGHT_RATE], head, 1, &rate);
    dpe_tensor_read(&job->weight[DPE_WEIGHT_STEP], head, 1, &step);
    const float x = ((const float *)job->args->decay)[at] + step;
    *kept = expf(rate * (x > 20.0F ? x : log1pf(expf(x))));
    *beta = (job->r->doubled ? 2.0F : 1.0F) / (1.0F + expf(-((const float *)job->args->beta)[at]));
}

/* The right sides of the equations, o of the state alone, and the matrices of both: −lower and
 * mixed. The last row of D and a_1 … a_n. */
static float prepare(const struct job *job, int64_t first, int64_t n, int64_t head, const float *v,
                     int64_t ldv, float faded[PIECE])
{
    const struct room *room = &job->room;
    const int64_t width = job->r->value_dim;
    float all = 1.0F;
    for (int64_t i = 0; i < n; i++) {
        float kept = 0.0F;
        float beta = 0.0F;
        read_gates(job, first + i, head, &kept, &beta);
        all *= kept;
        for (int64_t j = 0; j < i; j++) {
            faded[j] *= kept;
            room->lower[i * PIECE + j] = -beta * room->dots[i * PIECE + j] * faded[j];
        }
        faded[i] = 1.0F;
        for (int64_t j = 0; j < n; j++) {
            room->mixed[i * PIECE + j] = j <= i ? room->dots[(n + i) * PIECE + j] * faded[j] : 0.0F;
        }
        float *u = room->uo + i * width;
        float *o = room->uo + (n + i) * width;
        for (int64_t j = 0; j < width; j++) {
            u[j] = beta * (v[i * ldv + j] - all * u[j]);
            o[j] *= all;
        }
    }
    return all;
}

/* (1 + lower) u = right sides, which are in u. */
static void solve(const struct job *job, int64_t n)
{
    const struct room *room = &job->room;
    const int64_t width = job->r->value_dim;
    struct dpe_cpu_small product = {
        .n = width, .a_row = PIECE, .a_column = 1, .ldb = width, .ldc = width, .keep = 1.0F};
    for (int64_t b = 0; b < n; b += BLOCK) {
        product.m = n - b < BLOCK ? n - b : BLOCK;
        product.k = b;
        product.a = room->lower + b * PIECE;
        product.b = room->uo;
        product.c = room->uo + b * width;
        if (b > 0) {
            job->kernels->small(&product);
        }
        const int64_t end = b + product.m;
        product.m = 1;
        for (int64_t i = b + 1; i < end; i++) {
            product.k = i - b;
            product.a = room->lower + i * PIECE + b;
            product.b = room->uo + b * width;
            product.c = room->uo + i * width;
            job->kernels->small(&product);
        }
    }
}

/* One value head of a piece. */
static void run_head(const struct job *job, int64_t first, int64_t n, int64_t in_group)
{
    const struct dpe_recurrent *r = job->r;
    const struct room *room = &job->room;
    const int64_t d = r->key_dim;
    const int64_t width = r->value_dim;
    const int64_t head = dpe_recurrent_head(r, job->head, in_group);
    float *state = job->state + dpe_recurrent_tail(r) + head * d * width;
    float faded[PIECE];
    struct dpe_cpu_small product = {.m = 2 * n,
                                    .n = width,
                                    .k = d,
                                    .a = room->kq,
                                    .a_row = d,
                                    .a_column = 1,
                                    .b = state,
                                    .ldb = width,
                                    .c = room->uo,
                                    .ldc = width};
    job->kernels->small(&product);
    const int64_t ldv = group_of(r) * width;
    const float all = prepare(job, first, n, head, room->v + in_group * width, ldv, faded);
    solve(job, n);
    product.m = product.k = n;
    product.a = room->mixed;
    product.a_row = PIECE;
    product.b = room->uo;
    product.c = room->uo + n * width;
    product.keep = 1.0F;
    job->kernels->small(&product);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < d; j++) {
            room->faded[i * d + j] = faded[i] * room->kq[i * d + j];
        }
    }
    product.m = d;
    product.a = room->faded;
    product.a_row = 1;
    product.a_column = d;
    product.c = state;
    product.keep = all;
    job->kernels->small(&product);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = (first + i) * dpe_recurrent_values(r) + head * width;
        float *gate = (float *)job->args->gate + at;
        job->kernels->rmsnorm(room->uo + (n + i) * width, room->norm, width, (float)r->eps,
                              room->row);
        job->kernels->activate(DPE_SWIGLU, gate, room->row, width);
        memcpy((float *)job->args->out + at, gate, (size_t)width * sizeof(float));
    }
}

static void run(const struct job *job)
{
    const struct dpe_recurrent *r = job->r;
    for (int64_t p = 0; p < count_parts(job); p++) {
        const struct part part = part_of(job, p);
        load_weights(job, &part);
        move_tail(job, &part, false);
    }
    for (int64_t i = 0; i < channels_of(r); i++) {
        job->room.ones[i] = 1.0F;
    }
    dpe_tensor_read(&job->weight[DPE_WEIGHT_OUTPUT_NORM], 0, r->value_dim, job->room.norm);
    for (int64_t done = 0; done < job->rows;) {
        const int64_t to_line = PIECE - (job->args->start + done) % PIECE;
        const int64_t n = dpe_least(job->rows - done, to_line);
        read_piece(job, job->first + done, n);
        for (int64_t g = 0; g < group_of(r); g++) {
            run_head(job, job->first + done, n, g);
        }
        done += n;
    }
    for (int64_t p = 0; p < count_parts(job); p++) {
        const struct part part = part_of(job, p);
        move_tail(job, &part, true);
    }
}

void dpe_cpu_recur(const struct dpe_cpu_kernels *kernels, const struct dpe_config *config,
                   const struct dpe_layer_weights *weights, const struct dpe_recurrence *args,
                   int n_threads)
{
    const struct dpe_recurrent *r = &config->recurrent;
    const int64_t runs = args->which != NULL ? args->rows : 1;
    const int64_t work = args->rows * r->value_heads * r->key_dim * r->value_dim;
    struct room room;
    const int64_t floats = lay_out(r, &room, NULL);
#pragma omp parallel for num_threads(dpe_threads_for(n_threads, work)) schedule(dynamic, 1)
    for (int64_t i = 0; i < runs * r->key_heads; i++) {
        const int64_t at = i / r->key_heads;
        const int64_t state = args->which != NULL ? args->which[at] : args->state;
        struct job job = {.kernels = kernels,
                          .r = r,
                          .weight = weights->weight,
                          .args = args,
                          .state = (float *)args->states + state * dpe_recurrent_floats(r),
                          .head = i % r->key_heads,
                          .first = at,
                          .rows = args->which != NULL ? 1 : args->rows};
        lay_out(r, &job.room, (float *)args->workspace + omp_get_thread_num() * floats);
        run(&job);
    }
}
