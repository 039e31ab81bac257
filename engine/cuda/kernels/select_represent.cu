/* Representatives of blocks: a thread block makes one, of a KV head or of a query head. */
#include "engine/cuda/kernels/select.cuh"

namespace
{

/* One representative: of head `head` and the block whose keys begin at `first`. */
struct subject {
    int64_t head, kv_head, offset, first;
    float *mark;
};

template <class T>
__device__ const T *key_at(const struct dpe_select &a, const struct subject &of, int64_t n)
{
    return dpe_select_at<T>(a.k, a, of.kv_head, dpe_select_row(a, of.offset, n));
}

template <class T>
__device__ const T *query_at(const struct dpe_select &a, const struct subject &of, int64_t m)
{
    return dpe_select_at<T>(a.queries, a, of.head, dpe_select_row(a, of.offset, m));
}

/* Of keys as they are scored, or of values as they are. */
template <class T>
__device__ void write_mean(const struct dpe_select &a, const struct subject &of, bool values)
{
    const int64_t n_pairs = a.head_dim / 2;
    const void *cache = values ? a.v : a.k;
    for (int64_t j = threadIdx.x; j < n_pairs; j += DPE_SELECT_THREADS) {
        double x = 0.0;
        double y = 0.0;
        for (int64_t n = of.first; n < of.first + a.selection.block; n++) {
            const T *row = dpe_select_at<T>(cache, a, of.kv_head, dpe_select_row(a, of.offset, n));
            struct dpe_select_turn turn = {NULL, NULL};
            if (!values) {
                turn = dpe_select_scored(a, true, n);
            }
            float2 pair = dpe_select_pair(row, j, n_pairs, turn);
            x += static_cast<double>(pair.x);
            y += static_cast<double>(pair.y);
        }
        of.mark[j] = static_cast<float>(x / static_cast<double>(a.selection.block));
        of.mark[j + n_pairs] = static_cast<float>(y / static_cast<double>(a.selection.block));
    }
}

/* The largest of each component, then the smallest. */
template <class T>
__device__ void write_extremes(const struct dpe_select &a, const struct subject &of)
{
    const int64_t n_pairs = a.head_dim / 2;
    for (int64_t j = threadIdx.x; j < n_pairs; j += DPE_SELECT_THREADS) {
        float2 high = {0.0f, 0.0f};
        float2 low = {0.0f, 0.0f};
        for (int64_t n = of.first; n < of.first + a.selection.block; n++) {
            float2 k =
                dpe_select_pair(key_at<T>(a, of, n), j, n_pairs, dpe_select_scored(a, true, n));
            bool none = n == of.first;
            high.x = none || k.x > high.x ? k.x : high.x;
            high.y = none || k.y > high.y ? k.y : high.y;
            low.x = none || k.x < low.x ? k.x : low.x;
            low.y = none || k.y < low.y ? k.y : low.y;
        }
        of.mark[j] = high.x;
        of.mark[j + n_pairs] = high.y;
        of.mark[j + a.head_dim] = low.x;
        of.mark[j + a.head_dim + n_pairs] = low.y;
    }
}

/* window [head_dim] ± the query at m. */
template <class T>
__device__ void add_query(const struct dpe_select &a, const struct subject &of, int64_t m,
                          double sign, double *window)
{
    const T *q = query_at<T>(a, of, m);
    for (int64_t c = threadIdx.x; c < a.head_dim; c += DPE_SELECT_THREADS) {
        window[c] += sign * static_cast<double>(dpe_float(q[c]));
    }
}

/* What the `local` queries after each key of the block give it, to sums [block]. A thread has the
 * same components of the window all along. */
template <class T>
__device__ void sum_attention(const struct dpe_select &a, const struct subject &of, double *window,
                              double *sums)
{
    const int64_t local = a.selection.local;
    for (int64_t c = threadIdx.x; c < a.head_dim; c += DPE_SELECT_THREADS) {
        window[c] = 0.0;
    }
    for (int64_t j = 1; j <= local; j++) {
        add_query<T>(a, of, of.first + j, 1.0, window);
    }
    for (int64_t i = 0; i < a.selection.block; i++) {
        const T *k = key_at<T>(a, of, of.first + i);
        double sum = 0.0;
        for (int64_t c = threadIdx.x; c < a.head_dim; c += DPE_SELECT_THREADS) {
            sum += window[c] * static_cast<double>(dpe_float(k[c]));
        }
        sum = dpe_block_sum(sum);
        if (threadIdx.x == 0) {
            sums[i] = sum;
        }
        if (i + 1 < a.selection.block) {
            add_query<T>(a, of, of.first + i + 1, -1.0, window);
            add_query<T>(a, of, of.first + i + 1 + local, 1.0, window);
        }
    }
    __syncthreads();
}

/* The mean of the keys with the largest sums, as they are scored. */
template <class T>
__device__ void write_attended(const struct dpe_select &a, const struct subject &of, double *room)
{
    __shared__ int64_t best;
    const int64_t n_pairs = a.head_dim / 2;
    const double share = static_cast<double>(a.selection.attended);
    double *total = room;
    double *sums = room + a.head_dim;
    sum_attention<T>(a, of, total, sums);
    for (int64_t c = threadIdx.x; c < a.head_dim; c += DPE_SELECT_THREADS) {
        total[c] = 0.0;
    }
    for (int64_t r = 0; r < a.selection.attended; r++) {
        if (threadIdx.x == 0) {
            best = 0;
            for (int64_t i = 1; i < a.selection.block; i++) {
                best = sums[i] > sums[best] ? i : best;
            }
            sums[best] = -INFINITY;
        }
        __syncthreads();
        int64_t n = of.first + best;
        for (int64_t j = threadIdx.x; j < n_pairs; j += DPE_SELECT_THREADS) {
            float2 k =
                dpe_select_pair(key_at<T>(a, of, n), j, n_pairs, dpe_select_scored(a, true, n));
            total[2 * j] += static_cast<double>(k.x);
            total[2 * j + 1] += static_cast<double>(k.y);
        }
        __syncthreads();
    }
    for (int64_t j = threadIdx.x; j < n_pairs; j += DPE_SELECT_THREADS) {
        of.mark[j] = static_cast<float>(total[2 * j] / share);
        of.mark[j + n_pairs] = static_cast<float>(total[2 * j + 1] / share);
    }
}

/* By what place i of a block rotates in band 0, for all pairs. */
__device__ struct dpe_select_turn turn_in_block(const struct dpe_select &a, bool keys, int64_t i)
{
    const struct dpe_select_band &band = a.bands[0];
    int64_t at = i * (a.head_dim / 2);
    return {(keys ? band.k_cos : band.q_cos) + at, (keys ? band.k_sin : band.q_sin) + at};
}

/* p [block] = the probabilities that x [head_dim] gives the block's keys at their places in it. */
template <class T>
__device__ void attend_block(const struct dpe_select &a, const struct subject &of, const float *x,
                             float *p)
{
    const int64_t n = a.selection.block;
    float most = -INFINITY;
    float sum = 0.0f;
    __syncthreads();
    for (int64_t i = threadIdx.x / 32; i < n; i += DPE_SELECT_WARPS) {
        float dot = dpe_select_dot(x, key_at<T>(a, of, of.first + i), a.head_dim / 2,
                                   turn_in_block(a, true, i));
        if (threadIdx.x % 32 == 0) {
            /* At query 0 the part of the scale that depends on the query is 1. */
            p[i] = a.scale * dot;
        }
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += DPE_SELECT_THREADS) {
        most = fmaxf(most, p[i]);
    }
    most = dpe_block_max(most);
    for (int64_t i = threadIdx.x; i < n; i += DPE_SELECT_THREADS) {
        p[i] = expf(p[i] - most);
        sum += p[i];
    }
    sum = dpe_block_sum(sum);
    for (int64_t i = threadIdx.x; i < n; i += DPE_SELECT_THREADS) {
        p[i] /= sum;
    }
    __syncthreads();
}

template <class T>
__device__ void write_weighted(const struct dpe_select &a, const struct subject &of, double *room)
{
    const int64_t n = a.selection.block;
    const int64_t n_pairs = a.head_dim / 2;
    double *total = room;
    float *x = reinterpret_cast<float *>(room + a.head_dim);
    float *p = x + a.head_dim;
    for (int64_t c = threadIdx.x; c < a.head_dim; c += DPE_SELECT_THREADS) {
        total[c] = 0.0;
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = threadIdx.x; j < n_pairs; j += DPE_SELECT_THREADS) {
            float2 q = dpe_select_pair(query_at<T>(a, of, of.first + i), j, n_pairs,
                                       turn_in_block(a, false, i));
            x[j] = q.x;
            x[j + n_pairs] = q.y;
        }
        attend_block<T>(a, of, x, p);
        for (int64_t c = threadIdx.x; c < a.head_dim; c += DPE_SELECT_THREADS) {
            float o = 0.0f;
            for (int64_t key = 0; key < n; key++) {
                int64_t row = dpe_select_row(a, of.offset, of.first + key);
                o = fmaf(p[key], dpe_float(dpe_select_at<T>(a.v, a, of.kv_head, row)[c]), o);
            }
            total[c] += static_cast<double>(o);
        }
    }
    for (int64_t c = threadIdx.x; c < a.head_dim; c += DPE_SELECT_THREADS) {
        x[c] = static_cast<float>(total[c] / static_cast<double>(n));
    }
    attend_block<T>(a, of, x, p);
    for (int64_t j = threadIdx.x; j < n_pairs; j += DPE_SELECT_THREADS) {
        float2 sum = {0.0f, 0.0f};
        for (int64_t i = 0; i < n; i++) {
            float2 k = dpe_select_pair(key_at<T>(a, of, of.first + i), j, n_pairs,
                                       turn_in_block(a, true, i));
            sum.x = fmaf(p[i], k.x, sum.x);
            sum.y = fmaf(p[i], k.y, sum.y);
        }
        of.mark[j] = sum.x;
        of.mark[j + n_pairs] = sum.y;
    }
}

/* Grid: the blocks of a run, or rows of which each completes at most one; heads. */
template <class T>
__global__ void __launch_bounds__(DPE_SELECT_THREADS, 2)
    represent(const __grid_constant__ struct dpe_select a)
{
    DPE_SHARED(double, room);
    const struct dpe_selection &s = a.selection;
    int64_t i = a.first_block + blockIdx.x;
    struct subject of;
    of.offset = a.offset;
    if (a.positions != NULL) {
        int64_t m = a.positions[blockIdx.x];
        i = dpe_blocks_known_before(&s, m);
        of.offset = a.offsets[blockIdx.x];
        if (i == dpe_blocks_known_before(&s, m + 1)) {
            return;
        }
    }
    bool own = dpe_selection_own_marks(&s);
    bool two = s.representative == DPE_REPRESENT_EXTREMES;
    bool compressed = s.representative == DPE_REPRESENT_COMPRESSED;
    int64_t slot = dpe_block_slot(&s, a.prefix, a.room, of.offset, i);
    of.head = blockIdx.y;
    of.kv_head = own ? of.head / (a.n_heads / a.n_kv_heads) : of.head % a.n_kv_heads;
    of.first = s.sinks + i * s.block;
    of.mark = a.marks + (of.head * a.slots + slot) * a.head_dim * (two ? 2 : 1);
    if (s.representative == DPE_REPRESENT_MEAN || compressed) {
        write_mean<T>(a, of, compressed && of.head >= a.n_kv_heads);
    } else if (two) {
        write_extremes<T>(a, of);
    } else if (s.representative == DPE_REPRESENT_ATTENDED) {
        write_attended<T>(a, of, room);
    } else {
        write_weighted<T>(a, of, room);
    }
}

} // namespace

bool dpe_select_supports(const struct dpe_selection *selection, const char **what)
{
    *what = dpe_selection_own_marks(selection) && selection->block > DPE_SELECT_MOST_BLOCK
                ? "represent blocks of more than 4096 keys by what attends to them"
                : NULL;
    return *what == NULL;
}

template <class T> static int launch(const struct dpe_select *call)
{
    const struct dpe_selection *s = &call->selection;
    bool own = dpe_selection_own_marks(s);
    dim3 grid(static_cast<unsigned>(call->positions != NULL ? call->rows : call->n_blocks),
              static_cast<unsigned>(dpe_selection_heads(s, call->n_heads, call->n_kv_heads)));
    size_t shared = own ? static_cast<size_t>(2 * call->head_dim + s->block) * sizeof(double) : 0;
    return dpe_launch((represent<T>), grid, DPE_SELECT_THREADS, shared, *call);
}

int dpe_select_represent(const struct dpe_select *call)
{
    DPE_FOR_DTYPE(call->dtype, launch<T>(call));
}
