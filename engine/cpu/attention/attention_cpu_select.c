/* Attention under a selection. Rows are taken a slab at a time: first every (group of queries,
 * unit) scores the blocks and chooses, then every (query, KV head) walks the runs of keys that it
 * sees, as decoding walks all keys, or rows that share a choice meet them as tiles. Representatives
 * of blocks are made when a block is complete and kept beside the cache, so that a choice reads one
 * row for a block. */
#include <omp.h>

#include "engine/cpu/attention/attention_cpu_internal.h"

enum {
    SMALL_WORK = 1 << 21, /* multiplications for which no second thread is woken */
    LEAST = 8,            /* rows of a strip, and groups of a slab, that are taken as tiles */
    LOTS = 4,             /* of groups that choose together, for each thread */
    RUN_FLOATS = sizeof(struct dpe_key_run) / sizeof(float),
};

struct dpe_cpu_select_layout dpe_cpu_select_lay_out(const struct dpe_attention *args, int n_copies,
                                                    int64_t keys)
{
    const struct dpe_selection *s = &args->plan->selection;
    struct dpe_cpu_select_layout layout = {
        .group = args->n_heads / args->n_kv_heads, .keys = keys, .copies = n_copies};
    layout.units = s->unit == DPE_CHOICE_HEAD      ? args->n_heads
                   : s->unit == DPE_CHOICE_KV_HEAD ? args->n_kv_heads
                                                   : 1;
    layout.blocks = keys / s->block + 1;
    layout.chosen = s->k < layout.blocks ? s->k : layout.blocks;
    layout.slashes = s->slashes < keys ? s->slashes : keys;
    bool weighted = s->representative == DPE_REPRESENT_WEIGHTED;
    bool probability = s->representative == DPE_REPRESENT_PROBABILITY;
    bool compressed = s->representative == DPE_REPRESENT_COMPRESSED;
    bool tiles = !probability && !compressed && args->rows >= LEAST &&
                 s->refresh <= DPE_CPU_SELECT_SLAB / LEAST;
    layout.queries = tiles ? DPE_CPU_SELECT_QUERIES : 1;
    uint64_t d = (uint64_t)args->head_dim;
    uint64_t width =
        s->representative == DPE_REPRESENT_EXTREMES ? 2 * d : d; /* of a scored query */
    uint64_t group = (uint64_t)layout.group;
    uint64_t slab = args->rows < DPE_CPU_SELECT_SLAB ? (uint64_t)args->rows : DPE_CPU_SELECT_SLAB;
    uint64_t most = (uint64_t)(layout.chosen + layout.slashes);
    uint64_t lists = dpe_bytes_times(slab * (uint64_t)layout.units, most + 2);
    layout.lists_at = dpe_place(&layout.total, lists);
    uint64_t thread = 0;
    /* Scores of all blocks; or sums of the keys of a block and a row. No call has a block longer
     * than its keys. */
    uint64_t block = (uint64_t)(s->block < keys ? s->block : keys);
    uint64_t scores = dpe_bytes_times((uint64_t)layout.queries, (uint64_t)layout.blocks);
    scores = scores < block + 2 * d ? block + 2 * d : scores;
    dpe_place(&thread, dpe_bytes_times(2, scores));
    layout.far_at = dpe_place(&thread, layout.slashes > 0 ? dpe_bytes_times(2, (uint64_t)keys) : 0);
    layout.p_at = dpe_place(&thread, DPE_CPU_SELECT_HEADS * (probability  ? (uint64_t)keys
                                                             : compressed ? (uint64_t)layout.blocks
                                                                          : 0));
    layout.dots_at = dpe_place(&thread, (uint64_t)DPE_CPU_SELECT_HEADS * DPE_CPU_BLOCK);
    uint64_t scored = (uint64_t)layout.queries * DPE_CPU_SELECT_HEADS;
    bool packs = layout.queries > 1;
    layout.x_at = dpe_place(&thread, scored * 2 * d);
    layout.packs_at =
        dpe_place(&thread, packs ? (scored + DPE_CPU_MAX_MR) * width + DPE_CPU_MAX_LANES : 0);
    layout.panel_at = dpe_place(&thread, packs ? DPE_CPU_ROTATED * width : 0);
    layout.best_at = dpe_place(&thread, scored);
    layout.o_at = dpe_place(&thread, DPE_CPU_SELECT_HEADS * d);
    layout.keys_at = dpe_place(&thread, weighted ? dpe_bytes_times(block, d) : 0);
    layout.rotated_at = dpe_place(&thread, DPE_CPU_ROTATED * d);
    layout.select_at = dpe_place(&thread, d / 2);
    layout.s_at = dpe_place(&thread, group * DPE_CPU_BLOCK);
    layout.q_at = dpe_place(&thread, group * (uint64_t)n_copies * d);
    layout.state_at = dpe_place(&thread, group * (2 + d));
    layout.runs_at = dpe_place(&thread, RUN_FLOATS * (most + 3));
    layout.tile_at = dpe_place(&thread, DPE_CPU_ROTATED * d);
    layout.strip_at = dpe_place(
        &thread, s->refresh >= LEAST ? dpe_cpu_select_tile_floats(args->head_dim, n_copies) : 0);
    layout.thread_floats = thread;
    layout.thread_at = dpe_place(&layout.total, dpe_bytes_times(thread, (uint64_t)args->n_threads));
    return layout;
}

uint64_t dpe_cpu_select_workspace(const struct dpe_config *config, const struct dpe_plan *plan,
                                  int64_t keys, int64_t rows, int n_threads)
{
    const struct dpe_attention most = dpe_cpu_attention_sized(config, plan, rows, n_threads);
    uint64_t floats = dpe_cpu_select_lay_out(&most, dpe_rotated_most(plan).n, keys).total;
    return dpe_bytes_times(floats, sizeof(float));
}

float *dpe_cpu_select_thread(const struct dpe_cpu_select_call *call)
{
    return call->threads + (uint64_t)omp_get_thread_num() * call->layout.thread_floats;
}

struct dpe_cpu_select_room dpe_cpu_select_thread_room(const struct dpe_cpu_select_call *call)
{
    float *thread = dpe_cpu_select_thread(call);
    return (struct dpe_cpu_select_room){
        .scores = (double *)(void *)thread,
        .far = (double *)(void *)(thread + call->layout.far_at),
        .p = thread + call->layout.p_at,
        .dots = thread + call->layout.dots_at,
        .x = thread + call->layout.x_at,
        .packs = thread + call->layout.packs_at,
        .panel = thread + call->layout.panel_at,
        .best = thread + call->layout.best_at,
        .o = thread + call->layout.o_at,
        .keys = thread + call->layout.keys_at,
        .rotated = thread + call->layout.rotated_at,
        .tile = thread + call->layout.tile_at,
    };
}

/* ------------------------------------------------------------------------------------- meeting */

static void meet_run(const struct dpe_cpu_query *query, int64_t offset,
                     const struct dpe_key_run *run)
{
    int64_t next = 0;
    for (int64_t n = run->first; n < run->end; n = next) {
        struct dpe_cpu_keys keys = {
            .place = run->place + (run->constant ? 0 : n - run->first),
            .constant = run->constant,
            .row = dpe_cache_row(query->args, offset, n, &next),
        };
        next = next - n < DPE_CPU_BLOCK ? next : n + DPE_CPU_BLOCK;
        next = next < run->end ? next : run->end;
        keys.count = next - n;
        dpe_cpu_query_meet(query, &keys);
    }
}

int64_t dpe_cpu_select_runs(const struct dpe_cpu_select_call *call, int64_t row, int64_t head,
                            struct dpe_key_run *runs, int64_t *query)
{
    const struct dpe_cpu_select_layout *layout = &call->layout;
    int64_t unit = head / (call->args->n_heads / layout->units);
    int64_t at = call->of_row[row - call->row] * layout->units + unit;
    const int32_t *list = call->lists + at * (layout->chosen + layout->slashes);
    const struct dpe_choice choice = {
        .blocks = list,
        .slashes = list + layout->chosen,
        .n_blocks = call->counts[2 * at],
        .n_slashes = call->counts[2 * at + 1],
    };
    return dpe_selection_runs(call->selection, dpe_attention_position(call->args, row), &choice,
                              runs, query);
}

/* Heads head … head+heads−1, of one KV head and one choice, of a row. */
static void meet(const struct dpe_cpu_select_call *call, int64_t row, int64_t head, int64_t heads)
{
    const struct dpe_attention *args = call->args;
    const struct dpe_cpu_select_layout *layout = &call->layout;
    float *thread = dpe_cpu_select_thread(call);
    float *state = thread + layout->state_at;
    float *q = thread + layout->q_at;
    struct dpe_key_run *runs = (struct dpe_key_run *)(void *)(thread + layout->runs_at);
    int64_t m = dpe_attention_position(args, row);
    struct dpe_cpu_query query = {
        .kernels = call->kernels,
        .args = args,
        .q_copies = &call->q_copies,
        .k_copies = &call->k_copies,
        .head = head,
        .heads = heads,
        .q = q,
        .factor = (float)(dpe_plan_query_scale(args->plan, args->layer, m) * LOG2_E),
        .reference = state,
        .sum = state + heads,
        .o = state + 2 * heads,
        .s = thread + layout->s_at,
        .rotated = thread + layout->rotated_at,
        .tile = thread + layout->tile_at,
        .select = (uint32_t *)(void *)(thread + layout->select_at),
    };
    int64_t n = dpe_cpu_select_runs(call, row, head, runs, &query.place);
    for (int64_t g = 0; g < heads; g++) {
        dpe_cpu_rotate_query(call->kernels, args, &call->q_copies, row, head + g, query.place,
                             query.select, q + g * call->q_copies.n * args->head_dim);
    }
    dpe_cpu_query_begin(&query);
    for (int64_t i = 0; i < n; i++) {
        meet_run(&query, dpe_attention_offset(args, row), &runs[i]);
    }
    for (int64_t g = 0; g < heads; g++) {
        dpe_cpu_write_head(args, row, head + g, query.o + g * args->head_dim, query.reference[g],
                           query.sum[g]);
    }
}

/* Rows that have one chooser, of one branch, are a group. */
static void group_rows(struct dpe_cpu_select_call *call)
{
    const struct dpe_attention *args = call->args;
    call->groups = 0;
    for (int64_t i = 0; i < call->rows; i++) {
        int64_t row = call->row + i;
        int64_t m = dpe_attention_position(args, row);
        if (i == 0 || args->positions != NULL || m == dpe_selection_chooser(call->selection, m)) {
            call->of_group[call->groups++] = row;
        }
        call->of_row[i] = call->groups - 1;
    }
    call->tiles = call->layout.queries > 1 && args->positions == NULL && call->groups >= LEAST;
}

/* The rows of a slab: those of a group as tiles where there are enough of them, else one by one. */
static void cut_strips(struct dpe_cpu_select_call *call)
{
    bool tiles = dpe_cpu_select_tiles(call);
    int64_t end = call->row + call->rows;
    call->n_strips = 0;
    for (int64_t g = 0; g < call->groups; g++) {
        int64_t last = g + 1 < call->groups ? call->of_group[g + 1] : end;
        for (int64_t row = call->of_group[g]; row < last;) {
            int64_t n = last - row < DPE_CPU_SELECT_ROWS ? last - row : DPE_CPU_SELECT_ROWS;
            n = tiles && n >= LEAST ? n : 1;
            call->strips[call->n_strips++] = (struct dpe_cpu_select_rows){row, n};
            row += n;
        }
    }
}

/* How many groups of the slab choose together: as many as leave every thread some lots. */
static int64_t choose_together(const struct dpe_cpu_select_call *call)
{
    int64_t share = call->groups * call->layout.units / (LOTS * (int64_t)call->args->n_threads);
    int64_t most = call->tiles ? call->layout.queries : 1;
    return share < 1 ? 1 : share < most ? share : most;
}

/* Some heads of one KV head for a strip. */
static void meet_strip(const struct dpe_cpu_select_call *call,
                       const struct dpe_cpu_select_rows *strip, int64_t head, int64_t heads)
{
    if (strip->n == 1) {
        meet(call, strip->row, head, heads);
        return;
    }
    for (int64_t h = head; h < head + heads; h++) {
        dpe_cpu_select_meet_tile(call, strip, h);
    }
}

void dpe_cpu_attention_select(const struct dpe_cpu_kernels *kernels,
                              const struct dpe_attention *args)
{
    struct dpe_cpu_select_call call = {
        .kernels = kernels,
        .args = args,
        .selection = &args->plan->selection,
        .q_copies = dpe_rotated_find(args->plan, args->rotation, false),
        .k_copies = dpe_rotated_find(args->plan, args->rotation, true),
    };
    int64_t keys = dpe_attention_keys(args);
    int n_copies = call.q_copies.n > call.k_copies.n ? call.q_copies.n : call.k_copies.n;
    call.layout = dpe_cpu_select_lay_out(args, n_copies, keys);
    const struct dpe_cpu_select_layout *layout = &call.layout;
    call.threads = (float *)args->workspace + layout->thread_at;
    int64_t heads = layout->units == args->n_heads ? 1 : layout->group;
    for (call.row = 0; call.row < args->rows; call.row += DPE_CPU_SELECT_SLAB) {
        call.rows = args->rows - call.row < DPE_CPU_SELECT_SLAB ? args->rows - call.row
                                                                : DPE_CPU_SELECT_SLAB;
        group_rows(&call);
        cut_strips(&call);
        call.counts = (int32_t *)(void *)((float *)args->workspace + layout->lists_at);
        call.lists = call.counts + 2 * call.groups * layout->units;
        int64_t walked =
            dpe_selection_keys(call.selection, keys - 1) + keys / call.selection->block;
        int64_t work = call.rows * args->n_heads * args->head_dim * walked;
        int64_t together = choose_together(&call);
        int64_t lots = (call.groups + together - 1) / together;
#pragma omp parallel num_threads(args->n_threads) if (work > SMALL_WORK)
        {
#pragma omp for schedule(dynamic, 1)
            for (int64_t i = 0; i < lots * layout->units; i++) {
                int64_t g = i / layout->units * together;
                int64_t left = call.groups - g;
                dpe_cpu_select_choose(&call, g, left < together ? left : together,
                                      i % layout->units);
            }
#pragma omp for schedule(dynamic, 1)
            for (int64_t i = 0; i < call.n_strips * args->n_heads / heads; i++) {
                meet_strip(&call, &call.strips[i * heads / args->n_heads],
                           i * heads % args->n_heads, heads);
            }
        }
    }
}
