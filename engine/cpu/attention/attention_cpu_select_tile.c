/* Attention under a selection for consecutive rows that share a choice: their keys are gathered
 * into panels a block at a time, and tiles of rows meet them as in attention_cpu.c. Columns stand
 * in the order of their places, which decide bands and what a row may see. */
#include <math.h>
#include <string.h>

#include "engine/cpu/attention/attention_cpu_internal.h"

enum {
    MAX_TILES = DPE_CPU_SELECT_ROWS / 4,
    MOST_BREAKS = 48, /* of gathered keys, so that they fit into spans */
};

/* One tile row: queries that stand at first … last. */
struct tile_row {
    int64_t index, first, last;
    struct dpe_reach reach[DPE_MAX_BANDS];
};

struct item {
    const struct dpe_cpu_select_call *call;
    int64_t head, row, n_rows, place; /* place: of the first query */
    int64_t n_tiles;
    struct tile_row tiles[MAX_TILES];
    float *q, *panels, *o, *reference, *sum, *factor, *s, *mixed, *rotated, *tile, *values;
    uint32_t *select;
    /* Gathered so far. */
    int64_t columns, breaks;
    int64_t places[DPE_CPU_BLOCK], rows[DPE_CPU_BLOCK]; /* of each column: of its value */
};

/* Floats of a row pack, for any kernels. */
static int64_t pack_floats(int64_t d)
{
    return (d * DPE_CPU_MAX_MR + 2 * DPE_CPU_MAX_LANES - 1) / DPE_CPU_MAX_LANES * DPE_CPU_MAX_LANES;
}

/* Where the parts of an item lie; the floats of all, aligned. */
static uint64_t lay_out(int64_t d, int n_copies, float *base, struct item *item)
{
    uint64_t n = (uint64_t)n_copies;
    uint64_t width = (uint64_t)d;
    const struct {
        float **part;
        uint64_t floats;
    } parts[] = {
        {&item->q, n * MAX_TILES * (uint64_t)pack_floats(d)},
        {&item->panels, n * DPE_CPU_BLOCK * width},
        {&item->o, (DPE_CPU_SELECT_ROWS + DPE_CPU_MAX_MR) * width},
        {&item->reference, DPE_CPU_SELECT_ROWS + DPE_CPU_MAX_MR},
        {&item->sum, DPE_CPU_SELECT_ROWS + DPE_CPU_MAX_MR},
        {&item->factor, DPE_CPU_SELECT_ROWS + DPE_CPU_MAX_MR},
        {&item->s, DPE_CPU_MAX_MR * DPE_CPU_BLOCK},
        {&item->mixed, DPE_CPU_MAX_MR * 2 * DPE_CPU_MAX_LANES},
        {&item->rotated, n * 2 * DPE_CPU_MAX_LANES * width},
        {&item->tile, DPE_CPU_ROTATED * width},
        {&item->values, DPE_CPU_BLOCK * width}, /* where a dpe_kv unpacks them */
    };
    uint64_t at = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        uint64_t from = dpe_place(&at, parts[i].floats);
        *parts[i].part = base == NULL ? NULL : base + from;
    }
    return at;
}

uint64_t dpe_cpu_select_tile_floats(int64_t head_dim, int n_copies)
{
    struct item item;
    return lay_out(head_dim, n_copies, NULL, &item);
}

/* ---------------------------------------------------------------------------------- queries */

static void pack_queries(struct item *item)
{
    const struct dpe_cpu_select_call *call = item->call;
    const struct dpe_attention *args = call->args;
    const struct dpe_cpu_kernels *kernels = call->kernels;
    int64_t d = args->head_dim;
    int64_t ld = args->n_heads * d;
    dpe_copy_select(args, item->head, item->select);
    for (int c = 0; c < call->q_copies.n; c++) {
        for (int64_t t = 0; t < item->n_tiles; t++) {
            const struct tile_row *tile = &item->tiles[t];
            int64_t row = item->row + t * kernels->mr;
            int64_t n = tile->last - tile->first + 1;
            struct dpe_cpu_rotation rotation =
                dpe_copy_rotation(args, &call->q_copies.copies[c], args->rotation->q_table[0],
                                  tile->first, item->select);
            kernels->rotate(&rotation, args->q + row * ld + item->head * d, ld, n, item->rotated);
            kernels->pack_rows(item->rotated, d, n, d,
                               item->q + (c * MAX_TILES + t) * pack_floats(d));
        }
    }
}

static void begin(struct item *item)
{
    const struct dpe_attention *args = item->call->args;
    int64_t mr = item->call->kernels->mr;
    item->n_tiles = (item->n_rows + mr - 1) / mr;
    item->columns = item->breaks = 0;
    for (int64_t t = 0; t < item->n_tiles; t++) {
        struct tile_row *tile = &item->tiles[t];
        int64_t end = (t + 1) * mr < item->n_rows ? (t + 1) * mr : item->n_rows;
        tile->index = t;
        tile->first = item->place + t * mr;
        tile->last = item->place + end - 1;
        for (int b = 0; b < args->plan->n_bands; b++) {
            tile->reach[b] = dpe_band_reach(args->plan, b, tile->first, tile->last);
        }
    }
    memset(item->o, 0, (size_t)(item->n_tiles * mr * args->head_dim) * sizeof *item->o);
    for (int64_t r = 0; r < item->n_tiles * mr; r++) {
        int64_t row = item->row + (r < item->n_rows ? r : item->n_rows - 1);
        int64_t m = dpe_attention_position(args, row);
        item->factor[r] = (float)(dpe_plan_query_scale(args->plan, args->layer, m) * LOG2_E);
        item->reference[r] = -INFINITY;
        item->sum[r] = 0.0F;
    }
    pack_queries(item);
}

/* ------------------------------------------------------------------------------------- tiles */

static float *panel_of(const struct item *item, int c, int64_t column)
{
    return item->panels + (c * DPE_CPU_BLOCK + column) * item->call->args->head_dim;
}

static void product(const struct item *item, const struct tile_row *tile, int b, int64_t column,
                    float *s, int64_t lds)
{
    const struct dpe_cpu_select_call *call = item->call;
    int64_t d = call->args->head_dim;
    const float *rows =
        item->q + (call->q_copies.of_band[b] * MAX_TILES + tile->index) * pack_floats(d);
    call->kernels->tile(rows, panel_of(item, call->k_copies.of_band[b], column), d, s, lds);
}

/* A tile on a border: what no band holds stays −∞; earlier bands win. */
static void product_mixed(const struct item *item, const struct tile_row *tile, unsigned touching,
                          int64_t column, int64_t count, float *s)
{
    const struct dpe_plan *plan = item->call->args->plan;
    int64_t panel = item->call->kernels->panel;
    for (int64_t i = 0; i < item->call->kernels->mr * panel; i++) {
        s[i / panel * DPE_CPU_BLOCK + i % panel] = -INFINITY;
    }
    for (int b = plan->n_bands - 1; b >= 0; b--) {
        if ((touching >> b & 1U) == 0) {
            continue;
        }
        product(item, tile, b, column, item->mixed, panel);
        for (int64_t m = tile->first; m <= tile->last; m++) {
            struct dpe_reach reach = dpe_band_reach(plan, b, m, m);
            int64_t r = m - tile->first;
            for (int64_t c = 0; c < count; c++) {
                int64_t n = item->places[column + c];
                if (n >= reach.any_lo && n < reach.any_hi) {
                    s[r * DPE_CPU_BLOCK + c] = item->mixed[r * panel + c];
                }
            }
        }
    }
}

/* Keys of a step that all rows may see, and those after the tile's first query, which rows before
 * them must not touch (their values may not be finite). */
struct step {
    int64_t columns, n_late;
    struct dpe_cpu_spans seen;
    int64_t late_place[DPE_CPU_MAX_MR], late_row[DPE_CPU_MAX_MR], late_column[DPE_CPU_MAX_MR];
};

static void step_add(const struct item *item, struct step *step, const struct tile_row *tile,
                     int64_t column, int64_t count)
{
    for (int64_t c = 0; c < count; c++) {
        int64_t place = item->places[column + c];
        int64_t row = item->rows[column + c];
        if (place <= tile->first) {
            dpe_cpu_add_span(&step->seen, step->columns + c, row, 1);
        } else if (place <= tile->last) {
            step->late_place[step->n_late] = place;
            step->late_row[step->n_late] = row;
            step->late_column[step->n_late++] = step->columns + c;
        }
    }
    step->columns += item->call->kernels->panel;
}

/* The softmax of a step and what it adds to the rows' sums. */
static void add_step(const struct item *item, const struct tile_row *tile, const struct step *step)
{
    const struct dpe_attention *args = item->call->args;
    const struct dpe_cpu_kernels *kernels = item->call->kernels;
    int64_t d = args->head_dim;
    int64_t r = tile->index * kernels->mr;
    float alpha[DPE_CPU_MAX_MR];
    const struct dpe_cpu_softmax state = {item->factor + r, item->reference + r, item->sum + r,
                                          alpha};
    for (int64_t i = 0; i < kernels->mr && args->plan->attention_cap > 0.0; i++) {
        dpe_cap_logits(kernels, args->plan, state.factor[i], step->columns,
                       item->s + i * DPE_CPU_BLOCK);
    }
    kernels->softmax(&state, kernels->mr, step->columns, item->s);
    const float *v = args->kv != NULL
                         ? item->values
                         : args->v + item->head / item->call->layout.group * args->capacity * d;
    float *o = item->o + r * d;
    kernels->accumulate(item->s, &step->seen, v, alpha, o, d);
    for (int64_t i = 0; i < step->n_late; i++) {
        kernels->accumulate_row(item->s + step->late_column[i], step->late_place[i] - tile->first,
                                v + step->late_row[i] * d, o, d);
    }
}

/* A tile row against all that is gathered. */
static void attend(const struct item *item, const struct tile_row *tile)
{
    int64_t panel = item->call->kernels->panel;
    struct step step;
    step.columns = step.seen.n = step.n_late = 0;
    for (int64_t column = 0; column < item->columns; column += panel) {
        int64_t count = item->columns - column < panel ? item->columns - column : panel;
        int whole = -1;
        unsigned touching = dpe_cpu_touching_bands(tile->reach, item->call->args->plan->n_bands,
                                                   item->places[column],
                                                   item->places[column + count - 1] + 1, &whole);
        float *s = item->s + step.columns;
        if (touching == 0) {
            continue;
        }
        if (whole >= 0 && count == panel) {
            product(item, tile, whole, column, s, DPE_CPU_BLOCK);
        } else {
            product_mixed(item, tile, touching, column, count, s);
        }
        step_add(item, &step, tile, column, count);
    }
    if (step.columns > 0) {
        add_step(item, tile, &step);
    }
}

/* ------------------------------------------------------------------------------------ gathering */

/* The panel that ends before item->columns, of all copies. */
static void pack_panel(const struct item *item)
{
    const struct dpe_cpu_kernels *kernels = item->call->kernels;
    int64_t d = item->call->args->head_dim;
    int64_t first = (item->columns - 1) / kernels->panel * kernels->panel;
    for (int c = 0; c < item->call->k_copies.n; c++) {
        kernels->pack_panel(item->rotated + c * kernels->panel * d, d, item->columns - first, d,
                            panel_of(item, c, first));
    }
}

/* All tiles meet what is gathered. */
static void meet_gathered(struct item *item)
{
    if (item->columns % item->call->kernels->panel != 0) {
        pack_panel(item);
    }
    for (int64_t t = 0; t < item->n_tiles && item->columns > 0; t++) {
        attend(item, &item->tiles[t]);
    }
    item->columns = item->breaks = 0;
}

/* Keys from `row` of the cache on, at `place` and after it, into the panel that is being filled. */
static void gather(struct item *item, int64_t row, int64_t place, int64_t count)
{
    const struct dpe_cpu_select_call *call = item->call;
    const struct dpe_attention *args = call->args;
    int64_t d = args->head_dim;
    int64_t panel = call->kernels->panel;
    int64_t kv_head = item->head / call->layout.group;
    const float *keys = dpe_attention_rows(args, DPE_KV_KEYS, kv_head, row, count, item->tile);
    float *values = item->values + item->columns * d;
    bool unpacked = dpe_attention_rows(args, DPE_KV_VALUES, kv_head, row, count, values) == values;
    for (int c = 0; c < call->k_copies.n; c++) {
        struct dpe_cpu_rotation rotation = dpe_copy_rotation(
            args, &call->k_copies.copies[c], args->rotation->k_table[0], place, item->select);
        call->kernels->rotate(&rotation, keys, d, count,
                              item->rotated + (c * panel + item->columns % panel) * d);
    }
    for (int64_t i = 0; i < count; i++) {
        item->places[item->columns + i] = place + i;
        item->rows[item->columns + i] = (unpacked ? item->columns : row) + i;
    }
    item->columns += count;
    if (item->columns % panel == 0) {
        pack_panel(item);
    }
}

static void gather_run(struct item *item, int64_t offset, const struct dpe_key_run *run)
{
    int64_t panel = item->call->kernels->panel;
    for (int64_t n = run->first; n < run->end;) {
        int64_t row = 0;
        int64_t room = panel - item->columns % panel;
        int64_t count = dpe_cpu_select_next(item->call->args, offset, n, run->end, room, &row);
        item->breaks += item->columns == 0 || item->rows[item->columns - 1] + 1 != row;
        gather(item, row, run->place + n - run->first, count);
        if (item->columns == DPE_CPU_BLOCK || item->breaks == MOST_BREAKS) {
            meet_gathered(item);
        }
        n += count;
    }
}

static void write_rows(const struct item *item)
{
    const struct dpe_attention *args = item->call->args;
    for (int64_t r = 0; r < item->n_rows; r++) {
        dpe_cpu_write_head(args, item->row + r, item->head, item->o + r * args->head_dim,
                           item->reference[r], item->sum[r]);
    }
}

bool dpe_cpu_select_tiles(const struct dpe_cpu_select_call *call)
{
    const struct dpe_attention *args = call->args;
    const struct dpe_selection *s = call->selection;
    return args->positions == NULL && s->positions != DPE_PLACE_CONSTANT && s->slashes == 0 &&
           s->refresh > 1 && args->head_dim % call->kernels->lanes == 0;
}

void dpe_cpu_select_meet_tile(const struct dpe_cpu_select_call *call,
                              const struct dpe_cpu_select_rows *rows, int64_t head)
{
    const struct dpe_attention *args = call->args;
    float *thread = dpe_cpu_select_thread(call);
    struct item item;
    item.call = call;
    item.head = head;
    item.row = rows->row;
    item.n_rows = rows->n;
    item.select = (uint32_t *)(void *)(thread + call->layout.select_at);
    lay_out(args->head_dim, call->layout.copies, thread + call->layout.strip_at, &item);
    /* What the last row sees holds the keys of all. */
    struct dpe_key_run *runs = (struct dpe_key_run *)(void *)(thread + call->layout.runs_at);
    int64_t query = 0;
    int64_t n = dpe_cpu_select_runs(call, rows->row + rows->n - 1, head, runs, &query);
    item.place = query - (rows->n - 1);
    begin(&item);
    for (int64_t i = 0; i < n; i++) {
        gather_run(&item, dpe_attention_offset(args, rows->row), &runs[i]);
    }
    meet_gathered(&item);
    write_rows(&item);
}
