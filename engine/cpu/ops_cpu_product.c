/* Matrix products of the CPU backend. Many rows: activations are packed once, weights are widened
 * to fp32 and packed by the thread that multiplies them, a few columns at a time, so that no fp32
 * copy of a layer is ever needed. Few rows: weights are read once in their own type; with kernels
 * for bfloat16 those of that type are multiplied in it. */
#include <cblas.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <omp.h>

#include "engine/cpu/kernels/cpu_kernels.h"
#include "engine/cpu/product.h"
#include "engine/model/config/layer_weights.h"

typedef __typeof__(cblas_sgemm) sgemm_function;

enum {
    FEW_ROWS = 8,       /* up to so many rows, packing costs more than it saves */
    SOME_ROWS = 16,     /* the same in float, of weights that are widened once */
    SOME_COLUMNS = 4,   /* of an item then: they stay in the first cache level */
    DOT_COLUMNS = 16,   /* weight rows of one item of few rows, which several threads share */
    ALONE_COLUMNS = 64, /* the same of one thread, which a call costs 3 % with 16 */
    ROWS = 768,         /* rows of x packed at a time: a multiple of every mr */
    COLUMNS = 64,       /* weight rows of an item: a multiple of every panel */
    DEPTH = 256,    /* of a packed panel, multiplied at a time: stays in the first cache level */
    PAIRS = 512,    /* the same in bfloat16: every tile that is written costs twice as much of it */
    PART_ROWS = 96, /* least rows of an item: a multiple of every mr */
    BLAS_ROWS = 192, /* rows of a call of OpenBLAS, fixed, so that bits do not depend on threads */
    SMALL_WORK = 1 << 18 /* multiplications for which no second thread is woken */
};

/* Floats of a thread: a packed column block, a tile of C (or BLAS' C), a piece of W widened. */
static int64_t thread_floats(const struct dpe_cpu_kernels *kernels, int64_t k)
{
    return COLUMNS * k + BLAS_ROWS * COLUMNS + kernels->panel * DEPTH;
}

static void sizes(const struct dpe_cpu_kernels *kernels, const struct dpe_config *config,
                  int n_threads, struct dpe_cpu_products *products)
{
    int64_t heads = dpe_config_most_queries(config);
    products->kernels = kernels;
    products->n_threads = n_threads;
    const int64_t state = dpe_recurrent_values(&config->recurrent); /* that O reads */
    heads = dpe_most(heads, state);
    products->most_columns = dpe_most(dpe_most(config->hidden, heads), dpe_config_widest(config));
    /* Those of q, k and v, and of gate and up, are widened together. */
    int64_t qkv = heads + 2 * dpe_config_most_keys(config);
    products->most_rows =
        dpe_most(dpe_most(products->most_columns, qkv), 2 * dpe_config_widest(config));
    products->most_rows = dpe_most(products->most_rows, dpe_most(config->vocab, config->n_experts));
    const int64_t together = dpe_most(2 * config->expert_width, config->hidden);
    products->most_rows = dpe_most(products->most_rows, DPE_CPU_MAX_PRODUCTS / 2 * together);
    products->blas = kernels == dpe_cpu_kernels_portable();
}

static uint64_t floats_x(const struct dpe_cpu_products *p)
{
    /* Of any kernels: at least 4 rows share the floats beyond their columns. */
    return dpe_bytes_times(ROWS, (uint64_t)p->most_columns + 16);
}

static uint64_t floats_threads(const struct dpe_cpu_products *p)
{
    return dpe_bytes_times((uint64_t)p->n_threads,
                           (uint64_t)thread_floats(p->kernels, p->most_columns));
}

uint64_t dpe_cpu_products_bytes(const struct dpe_cpu_kernels *kernels,
                                const struct dpe_config *config, int n_threads)
{
    struct dpe_cpu_products p = {0};
    sizes(kernels, config, n_threads, &p);
    uint64_t total = dpe_bytes_times(floats_x(&p), sizeof(float));
    uint64_t threads = dpe_bytes_times(floats_threads(&p), sizeof(float));
    return dpe_bytes_plus(dpe_bytes_plus(total, threads), (uint64_t)p.most_rows * sizeof(float));
}

/* ----------------------------------------------------------------------- OpenBLAS at run time */

/* Address space of one thread's buffer in OpenBLAS on x86-64, the largest; and of what else it
 * takes while it is loaded. */
static const size_t buffer_bytes = (size_t)128 << 20;
static const size_t loaded_bytes = (size_t)64 << 20;

/* Whether so much more can be mapped: asked for, and given back. Where a limit (ulimit -v) leaves
 * OpenBLAS less than it wants, it tries again without end. */
static bool has_address_space(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at != MAP_FAILED && munmap(at, bytes) == 0;
}

/* The library that was found when dpe was built, or another one that the loader knows. It maps a
 * buffer for each thread of OMP_NUM_THREADS, or of the machine: it is told one. */
static void *load(void)
{
    const char *before = getenv("OMP_NUM_THREADS");
    DPE_OWNED char *kept = before != NULL ? strdup(before) : NULL;
    bool told = (before == NULL || kept != NULL) && setenv("OMP_NUM_THREADS", "1", 1) == 0;
    void *library = told ? dlopen(DPE_OPENBLAS, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL && told) {
        library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    }
    if (kept != NULL) {
        setenv("OMP_NUM_THREADS", kept, 1);
    } else if (before == NULL) {
        unsetenv("OMP_NUM_THREADS");
    }
    return library;
}

/* cblas_sgemm, for calls of n_threads threads at a time; it starts none itself. DPE_NO_MEMORY when
 * the address space is too small, DPE_NO_DEVICE when OpenBLAS is not there. Stays loaded. */
static dpe_status open_blas(int n_threads, void (**sgemm)(void), struct dpe_error *err)
{
    static void *library;
    size_t bytes = ((size_t)n_threads + 1) * buffer_bytes + loaded_bytes;
    if (!has_address_space(bytes)) {
        return dpe_fail(err, DPE_NO_MEMORY,
                        "cpu backend: OpenBLAS needs %zu MiB of address space for %d threads; "
                        "raise the limit (ulimit -v), or use fewer --threads",
                        bytes >> 20, n_threads);
    }
    if (library == NULL) {
        library = load();
    }
    if (library == NULL) {
        const char *why = dlerror();
        return dpe_fail(err, DPE_NO_DEVICE,
                        "cpu backend: OpenBLAS cannot be loaded: %s; install it (Debian: "
                        "libopenblas0-openmp)",
                        why != NULL ? why : strerror(ENOMEM));
    }
    void (*one_thread)(int) = NULL;
    *(void **)&one_thread = dlsym(library, "openblas_set_num_threads");
    *(void **)sgemm = dlsym(library, "cblas_sgemm");
    if (one_thread == NULL || *sgemm == NULL) {
        return dpe_fail(err, DPE_NO_DEVICE, "cpu backend: OpenBLAS lacks a function: %s",
                        dlerror());
    }
    one_thread(1); /* we call it from our threads; its own would change sums with their number */
    return DPE_OK;
}

/* ------------------------------------------------------------------------------------ products */

dpe_status dpe_cpu_products_make(const struct dpe_cpu_kernels *kernels,
                                 const struct dpe_cpu_bf16 *bf16, const struct dpe_config *config,
                                 int n_threads, struct dpe_cpu_products *products,
                                 struct dpe_error *err)
{
    sizes(kernels, config, n_threads, products);
    products->bf16 = bf16;
    products->bias = dpe_alloc((size_t)products->most_rows, sizeof(float));
    products->packed_x = dpe_alloc(floats_x(products), sizeof(float));
    products->threads = dpe_alloc(floats_threads(products), sizeof(float));
    DPE_TRY(
        DPE_MADE(products->bias != NULL && products->packed_x != NULL ? products->threads : NULL,
                 err, "cpu backend: out of memory for matrix products"));
    return products->blas ? open_blas(n_threads, &products->sgemm, err) : DPE_OK;
}

void dpe_cpu_products_free(struct dpe_cpu_products *products)
{
    free(products->bias);
    free(products->packed_x);
    free(products->threads);
    *products = (struct dpe_cpu_products){0};
}

/* A product with its bias widened. */
struct job {
    const struct dpe_cpu_products *all;
    const struct dpe_cpu_product *product;
    int64_t n, k, ldw;  /* weight rows and columns, elements from a row to the next */
    const float *bias;  /* [n] or NULL */
    const float *pairs; /* few rows in bfloat16: x [rows][units of k]; else NULL */
    int64_t columns;    /* weight rows of an item, ≤ ALONE_COLUMNS where rows are few */
    int64_t rows;       /* of x from `base` on, which are multiplied now */
    int64_t base, part; /* and so many of them by one item, where they are many */
    float *packed;      /* where these rows are packed */
    bool shares;        /* with the job before */
};

/* What stands for a float of k in packs, panels and pairs: itself, or two in bfloat16. */
static int64_t units(const struct job *job, int64_t k)
{
    return job->all->bf16 != NULL ? (k + 1) / 2 : k;
}

static const char *weight_at(const struct job *job, int64_t row, int64_t column)
{
    const struct dpe_tensor *w = job->product->weight;
    return dpe_tensor_at(w, row * job->ldw + column);
}

/* n sums, of columns from c on, to a row of out: with the bias, to what is there already. */
static void add_sums(const struct job *job, int64_t c, int64_t n, const float *sums, float *out)
{
    bool accumulate = job->product->accumulate;
    if (job->bias == NULL) {
        for (int64_t j = 0; j < n; j++) {
            out[j] += sums[j];
        }
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        float sum = sums[j] + job->bias[c + j];
        out[j] = accumulate ? sum + out[j] : sum;
    }
}

/* A buffer of this thread. */
static float *thread_room(const struct dpe_cpu_products *all)
{
    const int thread = all->n_threads > 1 ? omp_get_thread_num() : 0;
    return all->threads + thread * thread_floats(all->kernels, all->most_columns);
}

/* Weight rows c … c+columns−1 of a product of few rows. */
static void few_columns(const struct job *job, int64_t c)
{
    const struct dpe_cpu_product *p = job->product;
    int64_t n = dpe_least(job->columns, job->n - c);
    const float *x = job->pairs != NULL ? job->pairs : p->x;
    int64_t ldx = job->pairs != NULL ? units(job, job->k) : job->k;
    bool direct = job->bias == NULL && !p->accumulate;
    const bool widens = p->rows > FEW_ROWS && p->weight->dtype != DPE_F32;
    float *wide = thread_room(job->all);
    for (int64_t i = 0; i < n && widens; i++) {
        job->all->kernels->widen(weight_at(job, c + i, 0), p->weight->dtype, job->k,
                                 wide + i * job->k);
    }
    for (int64_t r = 0; r < p->rows; r += 4) {
        float sums[4 * ALONE_COLUMNS];
        float *out = p->out + r * job->n + c;
        int64_t rows = dpe_least(4, p->rows - r);
        struct dpe_cpu_dots dots = {
            .w = widens ? (const char *)wide : weight_at(job, c, 0),
            .ldw = widens ? job->k : job->ldw,
            .dtype = widens ? DPE_F32 : p->weight->dtype,
            .n = n,
            .k = job->k,
            .rows = rows,
            .x = x + r * ldx,
            .ldx = ldx,
            .out = direct ? out : sums,
            .ldo = direct ? job->n : ALONE_COLUMNS,
        };
        (job->pairs != NULL ? job->all->bf16->dots : job->all->kernels->dots)(&dots);
        for (int64_t row = 0; row < rows && !direct; row++) {
            add_sums(job, c, n, sums + row * ALONE_COLUMNS, out + row * job->n);
        }
    }
}

/* Item i of all jobs, whose items end before ends[job]. */
static void few_item(const struct job *jobs, const int64_t *ends, int64_t i)
{
    int j = 0;
    while (i >= ends[j]) {
        j++;
    }
    few_columns(&jobs[j], (i - (j > 0 ? ends[j - 1] : 0)) * jobs[j].columns);
}

/* Rounds x of the jobs that are multiplied in bfloat16, once where it is the same. */
static void halve_few(const struct dpe_cpu_products *all, struct job *jobs, int n_jobs)
{
    float *pairs = all->packed_x;
    for (int i = 0; i < n_jobs; i++) {
        const struct dpe_cpu_product *p = jobs[i].product;
        if (p->weight->dtype != DPE_BF16) {
            continue;
        }
        if (i > 0 && jobs[i - 1].pairs != NULL && p->x == jobs[i - 1].product->x) {
            jobs[i].pairs = jobs[i - 1].pairs;
            continue;
        }
        jobs[i].pairs = pairs;
        for (int64_t r = 0; r < p->rows; r++) {
            all->bf16->halve(p->x + r * jobs[i].k, jobs[i].k, pairs);
            pairs += units(&jobs[i], jobs[i].k);
        }
    }
}

/* All jobs as one list of items. Each thread has a run of them, so that it reads weights in the
 * order in which they lie. Small ones in no parallel region: libgomp allocates a team and makes a
 * system call for one of a single thread too, about 0.5 µs. */
static void few_rows(const struct dpe_cpu_products *all, struct job *jobs, int n_jobs)
{
    int64_t ends[DPE_CPU_MAX_PRODUCTS];
    int64_t items = 0;
    int64_t work = 0;
    for (int i = 0; i < n_jobs; i++) {
        /* Weights that more rows of x need twice come from the first cache level then. */
        bool alone = all->n_threads == 1 && jobs[i].product->rows <= 4;
        jobs[i].columns = jobs[i].product->rows > FEW_ROWS ? SOME_COLUMNS
                          : alone                          ? ALONE_COLUMNS
                                                           : DOT_COLUMNS;
        items += (jobs[i].n + jobs[i].columns - 1) / jobs[i].columns;
        ends[i] = items;
        work += jobs[i].product->rows * jobs[i].n * jobs[i].k;
    }
    if (work <= SMALL_WORK || all->n_threads == 1) {
        for (int64_t i = 0; i < items; i++) {
            few_item(jobs, ends, i);
        }
        return;
    }
#pragma omp parallel for num_threads(all->n_threads) schedule(static)
    for (int64_t i = 0; i < items; i++) {
        few_item(jobs, ends, i);
    }
}

/* Rows first … first+n−1 of x as a row pack; `halved` has room for mr rows. */
static void pack_x(const struct job *job, int64_t first, int64_t n, float *halved, float *packed)
{
    const struct dpe_cpu_kernels *kernels = job->all->kernels;
    const float *x = job->product->x + first * job->k;
    if (job->all->bf16 == NULL) {
        kernels->pack_rows(x, job->k, n, job->k, packed);
        return;
    }
    int64_t k = units(job, job->k);
    for (int64_t r = 0; r < n; r++) {
        job->all->bf16->halve(x + r * job->k, job->k, halved + r * k);
    }
    dpe_cpu_pack_rows(kernels, job->all->bf16, halved, n, k, packed);
}

/* Columns (weight rows) c … c+n−1, widened and packed into panels of the whole depth. */
static void pack_weights(const struct job *job, int64_t c, int64_t n, float *widened, float *packed)
{
    const struct dpe_cpu_kernels *kernels = job->all->kernels;
    enum dpe_dtype dtype = job->product->weight->dtype;
    for (int64_t j = 0; j < n; j += kernels->panel) {
        int64_t columns = dpe_least(kernels->panel, n - j);
        for (int64_t d = 0; d < job->k; d += DEPTH) {
            int64_t depth = dpe_least(DEPTH, job->k - d);
            for (int64_t i = 0; i < columns; i++) {
                float *row = widened + i * DEPTH;
                kernels->widen(weight_at(job, c + j + i, d), dtype, depth, row);
                if (job->all->bf16 != NULL) {
                    job->all->bf16->halve(row, depth, row);
                }
            }
            kernels->pack_panel(widened, DEPTH, columns, units(job, depth),
                                packed + j * units(job, job->k) + units(job, d) * kernels->panel);
        }
    }
}

/* Rows base + first … base + end − 1 of x, which are packed from first … on; columns (weight rows)
 * c … c+n−1, which are packed too. */
struct part {
    int64_t base, first, end, c, n;
};

static void multiply(const struct job *job, const struct part *part, const float *packed,
                     float *sums)
{
    const struct dpe_cpu_kernels *kernels = job->all->kernels;
    const struct dpe_cpu_bf16 *bf16 = job->all->bf16;
    int64_t k = units(job, job->k);
    int64_t mr = dpe_cpu_mr(kernels, bf16);
    int64_t stride = dpe_cpu_pack_floats(kernels, bf16, k);
    int64_t most_depth = bf16 != NULL ? PAIRS : DEPTH;
    for (int64_t d = 0; d < k; d += most_depth) {
        int64_t depth = dpe_least(most_depth, k - d);
        for (int64_t j = 0; j < part->n; j += kernels->panel) {
            const float *panel = packed + j * k + d * kernels->panel;
            int64_t c = part->c + j;
            struct dpe_cpu_tile tile = {
                .sums = sums,
                .columns = dpe_least(kernels->panel, part->n - j),
                .bias = d == 0 && job->bias != NULL ? job->bias + c : NULL,
                .keep = d > 0 || job->product->accumulate,
            };
            for (int64_t r = part->first; r < part->end; r += mr) {
                const float *rows = job->packed + r / mr * stride + d * mr;
                tile.rows = dpe_least(mr, part->end - r);
                if (bf16 != NULL) {
                    bf16->tile(rows, panel, depth, sums, kernels->panel);
                } else {
                    kernels->tile_part(tile.rows, rows, panel, depth, sums, kernels->panel);
                }
                kernels->write_tile(&tile, job->product->out + (part->base + r) * job->n + c,
                                    job->n);
            }
        }
    }
}

static bool is_few(const struct job *job)
{
    return job->product->rows <= (job->all->bf16 != NULL ? FEW_ROWS : SOME_ROWS);
}

static int64_t packs_of(const struct job *job)
{
    const int64_t mr = dpe_cpu_mr(job->all->kernels, job->all->bf16);
    return (job->rows + mr - 1) / mr;
}

/* Where x of each job is packed, and what its items are; their number. */
static int64_t lay_out(const struct dpe_cpu_products *all, struct job *jobs, int n, int64_t *packs,
                       int64_t *ends)
{
    float *next = all->packed_x;
    int64_t columns = 0;
    int64_t items = 0;
    *packs = 0;
    for (int i = 0; i < n; i++) {
        struct job *job = &jobs[i];
        job->packed = job->shares ? job[-1].packed : next;
        if (!job->shares) {
            next +=
                packs_of(job) * dpe_cpu_pack_floats(all->kernels, all->bf16, units(job, job->k));
            *packs += packs_of(job);
        }
        columns += (job->n + COLUMNS - 1) / COLUMNS;
    }
    for (int i = 0; i < n; i++) {
        struct job *job = &jobs[i];
        int64_t parts =
            dpe_least((2 * all->n_threads + columns - 1) / columns, job->rows / PART_ROWS + 1);
        job->columns = COLUMNS;
        job->part = (job->rows + parts * PART_ROWS - 1) / (parts * PART_ROWS) * PART_ROWS;
        parts = is_few(job) ? 1 : (job->rows + job->part - 1) / job->part;
        items += (job->n + COLUMNS - 1) / COLUMNS * parts;
        ends[i] = items;
    }
    return items;
}

/* Pack `at` of those of all jobs; few rows in bfloat16 are rounded with the first of theirs. */
static void pack_one(struct job *jobs, int64_t at, float *halved)
{
    struct job *job = jobs;
    while (job->shares || at >= packs_of(job)) {
        at -= job->shares ? 0 : packs_of(job);
        job++;
    }
    const struct dpe_cpu_kernels *kernels = job->all->kernels;
    const struct dpe_cpu_bf16 *bf16 = job->all->bf16;
    const int64_t mr = dpe_cpu_mr(kernels, bf16);
    if (!is_few(job)) {
        const int64_t stride = dpe_cpu_pack_floats(kernels, bf16, units(job, job->k));
        pack_x(job, job->base + at * mr, dpe_least(mr, job->rows - at * mr), halved,
               job->packed + at * stride);
        return;
    }
    for (int64_t r = 0; at == 0 && bf16 != NULL && r < job->rows; r++) {
        bf16->halve(job->product->x + r * job->k, job->k, job->packed + r * units(job, job->k));
    }
}

static void many_item(const struct job *jobs, const int64_t *ends, int64_t i, float *packed)
{
    const struct job *job = jobs;
    int64_t first = 0;
    while (i >= *ends) {
        first = *ends++;
        job++;
    }
    const int64_t parts = is_few(job) ? 1 : (job->rows + job->part - 1) / job->part;
    i -= first;
    struct part part = {
        .base = job->base, .first = i % parts * job->part, .c = i / parts * COLUMNS};
    if (is_few(job)) {
        few_columns(job, part.c);
        return;
    }
    float *sums = packed + COLUMNS * job->all->most_columns;
    part.end = dpe_least(part.first + job->part, job->rows);
    part.n = dpe_least(COLUMNS, job->n - part.c);
    pack_weights(job, part.c, part.n, sums + BLAS_ROWS * COLUMNS, packed);
    multiply(job, &part, packed, sums);
}

/* Jobs whose rows have room in packed_x together, with our own tiles. */
static void many_rows(const struct dpe_cpu_products *all, struct job *jobs, int n)
{
    int64_t ends[DPE_CPU_MAX_PRODUCTS];
    int64_t packs = 0;
    const int64_t items = lay_out(all, jobs, n, &packs, ends);
    for (int i = 0; i < n; i++) {
        const bool pairs =
            is_few(&jobs[i]) && all->bf16 != NULL && jobs[i].product->weight->dtype == DPE_BF16;
        jobs[i].pairs = pairs ? jobs[i].packed : NULL;
    }
#pragma omp parallel num_threads(all->n_threads)
    {
        float *packed = thread_room(all);
#pragma omp for schedule(static)
        for (int64_t p = 0; p < packs; p++) {
            pack_one(jobs, p, packed);
        }
        if (all->bf16 != NULL) {
            all->bf16->begin();
        }
#pragma omp for schedule(dynamic, 1) nowait
        for (int64_t i = 0; i < items; i++) {
            many_item(jobs, ends, i, packed);
        }
        if (all->bf16 != NULL) {
            all->bf16->end();
        }
    }
}

/* All rows with OpenBLAS, on fixed blocks. */
static void many_rows_blas(const struct job *job)
{
    const struct dpe_cpu_products *all = job->all;
    const struct dpe_cpu_product *p = job->product;
    sgemm_function *sgemm = (sgemm_function *)all->sgemm;
    int64_t blocks = (job->n + COLUMNS - 1) / COLUMNS;
#pragma omp parallel for num_threads(all->n_threads) schedule(dynamic, 1)
    for (int64_t i = 0; i < blocks; i++) {
        float *w = thread_room(all);
        float *c = w + COLUMNS * all->most_columns;
        int64_t first = i * COLUMNS;
        int64_t n = dpe_least(COLUMNS, job->n - first);
        for (int64_t row = 0; row < n; row++) {
            all->kernels->widen(weight_at(job, first + row, 0), p->weight->dtype, job->k,
                                w + row * job->k);
        }
        for (int64_t r = 0; r < p->rows; r += BLAS_ROWS) {
            int64_t rows = dpe_least(BLAS_ROWS, p->rows - r);
            sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, (int)n, (int)job->k, 1.0F,
                  p->x + r * job->k, (int)job->k, w, (int)job->k, 0.0F, c, COLUMNS);
            for (int64_t j = 0; j < n; j += all->kernels->panel) {
                struct dpe_cpu_tile tile = {
                    .rows = 1,
                    .columns = dpe_least(all->kernels->panel, n - j),
                    .bias = job->bias != NULL ? job->bias + first + j : NULL,
                    .keep = p->accumulate,
                };
                for (int64_t row = 0; row < rows; row++) {
                    tile.sums = c + row * COLUMNS + j;
                    all->kernels->write_tile(&tile, p->out + (r + row) * job->n + first + j,
                                             job->n);
                }
            }
        }
    }
}

/* Of jobs from the first on, so many as have room in packed_x together: at least one, and those of
 * the same x. */
static int fit(const struct job *jobs, int n)
{
    const int64_t mr = dpe_cpu_mr(jobs->all->kernels, jobs->all->bf16);
    int64_t packs = packs_of(jobs);
    int i = 1;
    while (i < n && (jobs[i].shares || (packs + packs_of(&jobs[i])) * mr <= ROWS)) {
        packs += jobs[i].shares ? 0 : packs_of(&jobs[i]);
        i++;
    }
    return i;
}

/* Jobs of the same x, ROWS of it at a time, or of several that have room together. */
static void rows_in_turn(const struct dpe_cpu_products *all, struct job *jobs, int n)
{
    const int64_t rows = jobs->product->rows;
    int n_alike = 1;
    while (n_alike < n && jobs[n_alike].shares) {
        n_alike++;
    }
    if (rows <= ROWS) {
        many_rows(all, jobs, n);
        return;
    }
    for (int64_t base = 0; base < rows; base += ROWS) {
        for (int i = 0; i < n_alike; i++) {
            jobs[i].base = base;
            jobs[i].rows = dpe_least(ROWS, rows - base);
        }
        many_rows(all, jobs, n_alike);
    }
}

void dpe_cpu_product_several(const struct dpe_cpu_products *products,
                             const struct dpe_cpu_product *several, int n)
{
    struct job jobs[DPE_CPU_MAX_PRODUCTS];
    float *bias = products->bias;
    bool few = true;
    for (int i = 0; i < n; i++) {
        const struct dpe_cpu_product *product = &several[i];
        jobs[i] = (struct job){.all = products,
                               .product = product,
                               .n = product->weight->rows,
                               .k = product->weight->cols,
                               .ldw = dpe_tensor_stride(product->weight),
                               .rows = product->rows,
                               .shares = i > 0 && product->x == product[-1].x};
        few = few && is_few(&jobs[i]);
        if (product->bias != NULL && product->bias->data != NULL) {
            products->kernels->widen(product->bias->data, product->bias->dtype, jobs[i].n, bias);
            jobs[i].bias = bias;
            bias += jobs[i].n;
        }
    }
    if (few) {
        if (products->bf16 != NULL) {
            halve_few(products, jobs, n);
        }
        few_rows(products, jobs, n);
        return;
    }
    for (int i = 0; i < n;) {
        const int some = products->blas ? 1 : fit(jobs + i, n - i);
        if (!products->blas) {
            rows_in_turn(products, jobs + i, some);
        } else if (is_few(&jobs[i])) {
            few_rows(products, jobs + i, 1);
        } else {
            many_rows_blas(&jobs[i]);
        }
        i += some;
    }
}

void dpe_cpu_product(const struct dpe_cpu_products *products, const struct dpe_cpu_product *product)
{
    dpe_cpu_product_several(products, product, 1);
}
