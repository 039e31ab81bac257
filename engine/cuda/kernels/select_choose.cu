/* Scores of the candidates, and the best of them. */
#include <string.h>

#include "engine/cuda/kernels/log_n.cuh"
#include "engine/cuda/kernels/select.cuh"

namespace
{

/* Candidates of a thread block, and thread blocks of a group and unit at most. */
const int64_t RANGE = 64;
const int64_t MOST_RANGES = 1 << 15;

/* ------------------------------------------------------------------------------------- scores */

/* A group's row, its chooser and the numbers of its candidates and distances. */
struct chooser {
    int64_t row, position, offset, candidates, distances;
};

__device__ struct chooser find_chooser(const struct dpe_select &a, int64_t g)
{
    struct chooser found;
    found.row = dpe_select_first_row(a, g);
    int64_t m = dpe_select_position(a, found.row);
    found.position = dpe_selection_chooser(&a.selection, m);
    found.offset = dpe_select_offset(a, found.row);
    found.candidates = dpe_selection_candidates(&a.selection, m);
    found.distances = dpe_selection_distances(&a.selection, m);
    return found;
}

/* A head's query at m as it is scored, to x [head_dim]; for extremes what is above 0 of it, and
 * after that what is below. One other than the chooser was kept. */
template <class T>
__device__ void load_query(const struct dpe_select &a, const struct chooser &who, int64_t m,
                           int64_t head, float *x)
{
    const int64_t n_pairs = a.head_dim / 2;
    const T *q = static_cast<const T *>(a.q) + (who.row * a.n_heads + head) * a.head_dim;
    if (a.queries != NULL) {
        q = dpe_select_at<T>(a.queries, a, head, dpe_select_row(a, who.offset, m));
    }
    const struct dpe_select_turn turn = dpe_select_scored(a, false, m);
    for (int64_t j = threadIdx.x; j < n_pairs; j += DPE_SELECT_THREADS) {
        float2 pair = dpe_select_pair(q, j, n_pairs, turn);
        x[j] = pair.x;
        x[j + n_pairs] = pair.y;
    }
    for (int64_t j = threadIdx.x;
         j < n_pairs && a.selection.representative == DPE_REPRESENT_EXTREMES;
         j += DPE_SELECT_THREADS) {
        for (int64_t c = j; c < a.head_dim; c += n_pairs) {
            x[c + a.head_dim] = fminf(x[c], 0.0f);
            x[c] = fmaxf(x[c], 0.0f);
        }
    }
}

/* Floats of a representative. */
__device__ int64_t width_of(const struct dpe_select &a)
{
    return a.head_dim * (a.selection.representative == DPE_REPRESENT_EXTREMES ? 2 : 1);
}

/* The representative of block i: of head `of` of those that have some. */
__device__ const float *mark_at(const struct dpe_select &a, const struct chooser &who, int64_t of,
                                int64_t i)
{
    int64_t slot = dpe_block_slot(&a.selection, a.prefix, a.room, who.offset, i);
    return a.marks + (of * a.slots + slot) * width_of(a);
}

/* x · the representative of block i, by a warp. */
__device__ float score_mark(const struct dpe_select &a, const struct chooser &who, int64_t head,
                            int64_t i, const float *x)
{
    int64_t of = dpe_selection_own_marks(&a.selection) ? head : head / (a.n_heads / a.n_kv_heads);
    return dpe_select_dot(x, mark_at(a, who, of, i), width_of(a) / 2, {NULL, NULL});
}

/* x · the key at n, by a warp. */
template <class T>
__device__ float score_key(const struct dpe_select &a, const struct chooser &who, int64_t head,
                           int64_t n, const float *x)
{
    const T *k = dpe_select_at<T>(a.k, a, head / (a.n_heads / a.n_kv_heads),
                                  dpe_select_row(a, who.offset, n));
    return dpe_select_dot(x, k, a.head_dim / 2, dpe_select_scored(a, true, n));
}

/* The largest product of x with a key of block i, by a warp. */
template <class T>
__device__ float score_keys(const struct dpe_select &a, const struct chooser &who, int64_t head,
                            int64_t i, const float *x)
{
    const struct dpe_selection &s = a.selection;
    int64_t first = s.sinks + i * s.block;
    float best = 0.0f;
    for (int64_t n = first; n < first + s.block; n++) {
        float product = score_key<T>(a, who, head, n, x);
        best = n == first || product > best ? product : best;
    }
    return best;
}

/* Grid: groups, units, ranges of candidates. A candidate is one warp's for all heads of the unit.
 */
template <class T>
__global__ void __launch_bounds__(DPE_SELECT_THREADS, 2)
    score(const __grid_constant__ struct dpe_select a)
{
    DPE_SHARED(float, x);
    const struct chooser who = find_chooser(a, blockIdx.x);
    const int64_t heads = a.n_heads / a.units;
    double *scores = a.scores + (blockIdx.x * a.units + blockIdx.y) * a.blocks;
    if (who.candidates <= a.selection.k) {
        return; /* all are chosen */
    }
    for (int64_t h = 0; h < heads; h++) {
        int64_t head = blockIdx.y * heads + h;
        __syncthreads();
        load_query<T>(a, who, who.position, head, x);
        __syncthreads();
        for (int64_t range = static_cast<int64_t>(blockIdx.z) * RANGE; range < who.candidates;
             range += static_cast<int64_t>(gridDim.z) * RANGE) {
            for (int64_t i = range + threadIdx.x / 32; i < range + RANGE && i < who.candidates;
                 i += DPE_SELECT_WARPS) {
                float by = a.selection.representative == DPE_REPRESENT_KEYS
                               ? score_keys<T>(a, who, head, i, x)
                               : score_mark(a, who, head, i, x);
                if (threadIdx.x % 32 == 0) {
                    scores[i] = (h == 0 ? 0.0 : scores[i]) + static_cast<double>(by);
                }
            }
        }
    }
}

/* ------------------------------------------------------------------- probabilities of the means */

/* What probabilities p make of the means of n blocks' values, to out [head_dim]. */
template <class T>
__device__ void weigh_marks(const struct dpe_select &a, const struct chooser &who, int64_t kv_head,
                            const float *p, int64_t n, T *out)
{
    for (int64_t c = threadIdx.x; c < a.head_dim; c += DPE_SELECT_THREADS) {
        float sum = 0.0f;
        for (int64_t i = 0; i < n; i++) {
            sum = fmaf(p[i], mark_at(a, who, a.n_kv_heads + kv_head, i)[c], sum);
        }
        out[c] = dpe_round<T>(sum);
    }
}

/* Grid: groups, query heads. Probabilities of the means of the keys of all blocks that are complete
 * at the query that chooses, and what they make of the means of the values. */
template <class T>
__global__ void __launch_bounds__(DPE_SELECT_THREADS, 2)
    compress(const __grid_constant__ struct dpe_select a)
{
    DPE_SHARED(float, x);
    __shared__ float factor;
    const struct chooser who = find_chooser(a, blockIdx.x);
    const int64_t head = blockIdx.y;
    const int64_t n = dpe_selection_complete(&a.selection, who.position);
    float *p = a.probabilities + (blockIdx.x * a.n_heads + head) * a.blocks;
    float most = -INFINITY;
    double sum = 0.0;
    if (a.compressed == NULL && who.candidates <= a.selection.k) {
        return; /* all are chosen */
    }
    if (threadIdx.x == 0) {
        factor = a.scale * dpe_log_n_factor(a.log_n, static_cast<float>(who.position) + 1.0f);
    }
    load_query<T>(a, who, who.position, head, x);
    __syncthreads();
    for (int64_t i = threadIdx.x / 32; i < n; i += DPE_SELECT_WARPS) {
        float logit = dpe_select_capped(a, factor * score_mark(a, who, head, i, x));
        most = fmaxf(most, logit);
        if (threadIdx.x % 32 == 0) {
            p[i] = logit;
        }
    }
    most = dpe_block_max(most);
    for (int64_t i = threadIdx.x; i < n; i += DPE_SELECT_THREADS) {
        p[i] = expf(p[i] - most);
        sum += static_cast<double>(p[i]);
    }
    sum = dpe_block_sum(sum);
    for (int64_t i = threadIdx.x; i < n; i += DPE_SELECT_THREADS) {
        p[i] = static_cast<float>(static_cast<double>(p[i]) / sum);
    }
    __syncthreads();
    if (a.compressed != NULL) {
        weigh_marks(a, who, head / (a.n_heads / a.n_kv_heads), p, n,
                    static_cast<T *>(a.compressed) + (who.row * a.n_heads + head) * a.head_dim);
    }
}

/* Grid: groups, units, ranges of candidates. Scores are the probabilities of a unit's heads. */
__global__ void __launch_bounds__(DPE_SELECT_THREADS)
    add_heads(const __grid_constant__ struct dpe_select a)
{
    const int64_t candidates = find_chooser(a, blockIdx.x).candidates;
    const int64_t heads = a.n_heads / a.units;
    const int64_t first = blockIdx.x * a.n_heads + blockIdx.y * heads;
    double *scores = a.scores + (blockIdx.x * a.units + blockIdx.y) * a.blocks;
    if (candidates <= a.selection.k) {
        return; /* all are chosen */
    }
    for (int64_t i = static_cast<int64_t>(blockIdx.z) * DPE_SELECT_THREADS + threadIdx.x;
         i < candidates; i += static_cast<int64_t>(gridDim.z) * DPE_SELECT_THREADS) {
        double sum = 0.0;
        for (int64_t h = 0; h < heads; h++) {
            sum += static_cast<double>(a.probabilities[(first + h) * a.blocks + i]);
        }
        scores[i] = sum;
    }
}

/* ----------------------------------------------------------------------- probabilities of keys */

/* Where the numbers of the j-th of the last queries of a head are, from the chooser back. */
__device__ float *sums_at(const struct dpe_select &a, int64_t head, int64_t j)
{
    return a.sums + ((blockIdx.x * a.n_heads + head) * a.last + j) * 3;
}

/* Grid: groups, query heads, the last queries. The numbers that make their logits probabilities. */
template <class T>
__global__ void __launch_bounds__(DPE_SELECT_THREADS, 2)
    sum_keys(const __grid_constant__ struct dpe_select a)
{
    DPE_SHARED(float, x);
    __shared__ float factor;
    const struct chooser who = find_chooser(a, blockIdx.x);
    const int64_t head = blockIdx.y;
    if (who.candidates <= a.selection.k) {
        return; /* all are seen */
    }
    for (int64_t j = blockIdx.z; j < a.last && j <= who.position; j += gridDim.z) {
        const int64_t m = who.position - j;
        float largest = -INFINITY; /* of the warp's keys */
        double sum = 0.0;
        if (threadIdx.x == 0) {
            factor = a.scale * dpe_log_n_factor(a.log_n, static_cast<float>(m) + 1.0f);
        }
        load_query<T>(a, who, m, head, x);
        __syncthreads();
        for (int64_t n = threadIdx.x / 32; n <= m; n += DPE_SELECT_WARPS) {
            float logit = dpe_select_capped(a, factor * score_key<T>(a, who, head, n, x));
            float before = largest;
            largest = fmaxf(before, logit);
            sum = sum * static_cast<double>(expf(before - largest)) +
                  static_cast<double>(expf(logit - largest));
        }
        float most = dpe_block_max(largest);
        bool own = threadIdx.x % 32 == 0; /* all lanes have the warp's */
        sum = dpe_block_sum(own ? sum * static_cast<double>(expf(largest - most)) : 0.0);
        if (threadIdx.x == 0) {
            float *to = sums_at(a, head, j);
            to[0] = factor;
            to[1] = most;
            to[2] = static_cast<float>(1.0 / sum);
        }
    }
}

/* The probabilities that the query at m, x, gives the keys first … end − 1 up to its own, by a
 * warp.
 */
template <class T>
__device__ double sum_probabilities(const struct dpe_select &a, const struct chooser &who,
                                    int64_t head, int64_t m, int64_t first, int64_t end,
                                    const float *x, const float *sums)
{
    double total = 0.0;
    for (int64_t n = first; n < end && n <= m; n++) {
        float logit = dpe_select_capped(a, sums[0] * score_key<T>(a, who, head, n, x));
        total += static_cast<double>(expf(logit - sums[1]) * sums[2]);
    }
    return total;
}

/* Grid: groups, units, ranges of candidates and then distances, each of which is one warp's for the
 * last queries of all heads of the unit. */
template <class T>
__global__ void __launch_bounds__(DPE_SELECT_THREADS, 2)
    add_keys(const __grid_constant__ struct dpe_select a)
{
    DPE_SHARED(float, x);
    const struct dpe_selection &s = a.selection;
    const struct chooser who = find_chooser(a, blockIdx.x);
    const int64_t heads = a.n_heads / a.units;
    const int64_t unit = blockIdx.x * a.units + blockIdx.y;
    const int64_t all = who.candidates + who.distances;
    const int64_t last = a.last <= who.position ? a.last : who.position + 1;
    if (who.candidates <= s.k) {
        return; /* all are seen */
    }
    for (int64_t q = 0; q < heads * last; q++) {
        const int64_t head = blockIdx.y * heads + q / last;
        const int64_t m = who.position - q % last;
        const float *sums = sums_at(a, head, q % last);
        __syncthreads();
        load_query<T>(a, who, m, head, x);
        __syncthreads();
        for (int64_t range = static_cast<int64_t>(blockIdx.z) * RANGE; range < all;
             range += static_cast<int64_t>(gridDim.z) * RANGE) {
            for (int64_t i = range + threadIdx.x / 32; i < range + RANGE && i < all;
                 i += DPE_SELECT_WARPS) {
                const int64_t far = i - who.candidates;
                const int64_t key = m - s.local - far; /* may be before the first */
                const int64_t first = far < 0 ? s.sinks + i * s.block : key < 0 ? m + 1 : key;
                double by = sum_probabilities<T>(a, who, head, m, first,
                                                 first + (far < 0 ? s.block : 1), x, sums);
                double *score =
                    far < 0 ? a.scores + unit * a.blocks + i : a.far + unit * a.distances + far;
                if (threadIdx.x % 32 == 0) {
                    *score = (q == 0 ? 0.0 : *score) + by;
                }
            }
        }
    }
}

/* ------------------------------------------------------------------------------------- choice */

/* What is chosen from: the k best of n scores; the first ones whatever they have. */
struct scored {
    const double *scores;
    int32_t *list;
    int64_t n, k, first;
};

__device__ struct scored find_scored(const struct dpe_select &a, bool far)
{
    const int64_t at = blockIdx.x * a.units + blockIdx.y;
    const struct chooser who = find_chooser(a, blockIdx.x);
    if (far) {
        return {a.far + at * a.distances, a.far_lists + at * a.slashes,
                who.candidates > a.selection.k ? who.distances : 0, a.slashes, 0};
    }
    return {a.scores + at * a.blocks, a.lists + at * a.chosen, who.candidates, a.selection.k,
            a.selection.first};
}

/* The i-th score as a whole number in the order of scores: NaN as −∞, −0 as 0; of what is chosen
 * whatever it has, ∞. */
__device__ uint64_t ordered(const struct scored &of, int64_t i)
{
    uint64_t bits = 0;
    double score = i < of.first ? INFINITY : of.scores[i];
    score = score != score ? -INFINITY : score + 0.0;
    memcpy(&bits, &score, sizeof bits);
    return bits >> 63 != 0 ? ~bits : bits | UINT64_C(1) << 63;
}

/* The k-th largest score, as `ordered`, and in *equal how many of those that equal it belong to the
 * k. Byte after byte from the highest: how many have each value of it? */
__device__ uint64_t find_threshold(const struct scored &of, int64_t *equal)
{
    __shared__ unsigned counts[256];
    __shared__ uint64_t found;
    __shared__ int64_t left;
    if (threadIdx.x == 0) {
        found = 0;
        left = of.k;
    }
    for (int shift = 56; shift >= 0; shift -= 8) {
        for (int value = static_cast<int>(threadIdx.x); value < 256; value += DPE_SELECT_THREADS) {
            counts[value] = 0;
        }
        __syncthreads();
        for (int64_t i = threadIdx.x; i < of.n; i += DPE_SELECT_THREADS) {
            uint64_t bits = ordered(of, i) >> shift;
            if (shift == 56 || bits >> 8 == found) {
                atomicAdd(&counts[bits & 255U], 1U);
            }
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int value = 255;
            for (; counts[value] < left; value--) {
                left -= counts[value];
            }
            found = found << 8 | static_cast<unsigned>(value);
        }
        __syncthreads();
    }
    *equal = left;
    return found;
}

/* Grid: groups, units; blocks, and then distances where some are chosen. */
__global__ void __launch_bounds__(DPE_SELECT_THREADS)
    choose(const __grid_constant__ struct dpe_select a)
{
    const struct scored of = find_scored(a, blockIdx.z == 1);
    if (of.n <= of.k) {
        for (int64_t i = threadIdx.x; i < of.n; i += DPE_SELECT_THREADS) {
            of.list[i] = static_cast<int32_t>(i);
        }
        return;
    }
    if (of.k == 0) {
        return;
    }
    int64_t equal = 0;
    const uint64_t threshold = find_threshold(of, &equal);
    int64_t written = 0;
    for (int64_t first = 0; first < of.n; first += DPE_SELECT_THREADS) {
        int64_t i = first + threadIdx.x;
        uint64_t bits = i < of.n ? ordered(of, i) : 0;
        int all = 0;
        bool same = i < of.n && bits == threshold;
        bool taken = (dpe_rank_among(same, &all) < equal && same) || (i < of.n && bits > threshold);
        equal -= all;
        int rank = dpe_rank_among(taken, &all);
        if (taken) {
            of.list[written + rank] = static_cast<int32_t>(i);
        }
        written += all;
    }
}

} // namespace

/* Scores in two launches: what a query makes of its keys together, then what it gives each block
 * and distance. */
template <class T> static int launch_keys(const struct dpe_select *call, dim3 grid, size_t shared)
{
    const unsigned most = static_cast<unsigned>(MOST_RANGES);
    const dim3 last(grid.x, static_cast<unsigned>(call->n_heads),
                    call->last < MOST_RANGES ? static_cast<unsigned>(call->last) : most);
    int code = dpe_launch((sum_keys<T>), last, DPE_SELECT_THREADS, shared, *call);
    return code != 0 ? code : dpe_launch((add_keys<T>), grid, DPE_SELECT_THREADS, shared, *call);
}

template <class T> static int launch(const struct dpe_select *call)
{
    int64_t ranges = (call->blocks + call->distances + RANGE - 1) / RANGE;
    ranges = ranges < 1 ? 1 : ranges > MOST_RANGES ? MOST_RANGES : ranges;
    dim3 grid(static_cast<unsigned>(call->groups), static_cast<unsigned>(call->units),
              static_cast<unsigned>(ranges));
    size_t shared = 2 * static_cast<size_t>(call->head_dim) * sizeof(float);
    int code = 0;
    if (call->selection.representative == DPE_REPRESENT_COMPRESSED) {
        const dim3 heads(grid.x, static_cast<unsigned>(call->n_heads));
        code = dpe_launch((compress<T>), heads, DPE_SELECT_THREADS, shared, *call);
        code = code != 0 ? code : dpe_launch(add_heads, grid, DPE_SELECT_THREADS, 0, *call);
    } else if (call->selection.representative == DPE_REPRESENT_PROBABILITY) {
        code = launch_keys<T>(call, grid, shared);
    } else {
        code = dpe_launch((score<T>), grid, DPE_SELECT_THREADS, shared, *call);
    }
    grid.z = call->slashes > 0 ? 2 : 1;
    return code != 0 ? code : dpe_launch(choose, grid, DPE_SELECT_THREADS, 0, *call);
}

int dpe_select_choose(const struct dpe_select *call)
{
    DPE_FOR_DTYPE(call->dtype, launch<T>(call));
}
