/* Decoding: what rows have in common is cut into units that fill the card, once a batch. */
#include "engine/cuda/host/backend.h"

#include <string.h>

/* A range of keys that rows have in common. */
struct piece {
    int64_t first, end, shift;
    int32_t row_first, n_rows;
    int32_t call;
    bool own; /* of a row's second list of units */
};

static int64_t target_units(const struct dpe_backend *b, const struct dpe_cuda_plan *p)
{
    int64_t blocks = p->n_kv_heads / p->dealing.heads;
    int64_t most = DPE_CUDA_MOST_UNITS;
    int64_t target = (b->info.processors < most ? b->info.processors : most) / blocks;
    return target < 1 ? 1 : target;
}

static int64_t units_of(const struct piece *pieces, int64_t n, int64_t length)
{
    int64_t units = 0;
    for (int64_t i = 0; i < n; i++) {
        units += (pieces[i].end - pieces[i].first + length - 1) / length;
    }
    return units;
}

/* Keys of a unit: as few as make no more units than fill the card once, if that can be. */
static int64_t unit_length(const struct piece *pieces, int64_t n, int64_t target, int64_t step)
{
    int64_t total = 0;
    int64_t longest = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t length = pieces[i].end - pieces[i].first;
        total += length;
        longest = length > longest ? length : longest;
    }
    int64_t length = (total / target + step) / step * step;
    length = length < 4 * step ? 4 * step : length;
    while (length < longest && units_of(pieces, n, length) > target) {
        length += (length / 16 + step) / step * step;
    }
    return length;
}

/* Pieces of rows of a call, of which `before` rows of others come first, and rows and positions of
 * `parts`; the number of pieces. */
static int64_t find_pieces(const struct dpe_cuda_rows *rows, int32_t call, int64_t before,
                           struct piece *pieces, struct dpe_decode_parts *parts)
{
    const struct dpe_attention *args = rows->args;
    const int64_t r0 = rows->first - before;
    const int64_t end = before + rows->rows;
    int64_t most = dpe_decode_rows(args->n_heads, args->n_kv_heads);
    bool steps = args->positions != NULL;
    int64_t n = 0;
    for (int64_t first = before; first < end; first += most) {
        int32_t in_group = (int32_t)(end - first < most ? end - first : most);
        int64_t last = dpe_attention_position(args, r0 + first + in_group - 1);
        bool apart = steps || (args->offset != 0 && last >= args->prefix);
        int64_t common = apart ? args->prefix : last + 1;
        if (common > 0) {
            pieces[n++] = (struct piece){0, common, 0, (int32_t)first, in_group, call, false};
        }
        if (apart && !steps) {
            pieces[n++] = (struct piece){args->prefix, last + 1, args->offset, (int32_t)first,
                                         in_group,     call,     true};
        }
        for (int32_t i = 0; i < in_group; i++) {
            int64_t r = first + i;
            int64_t m = dpe_attention_position(args, r0 + r);
            parts[r] = (struct dpe_decode_parts){.a_row = i, .b_row = steps ? 0 : i, .position = m};
            if (steps) {
                pieces[n++] = (struct piece){
                    args->prefix, m + 1, args->offsets[r0 + r], (int32_t)r, 1, call, true};
            }
        }
    }
    return n;
}

/* Units of all pieces, and which are whose. */
static void cut_pieces(const struct piece *pieces, int64_t n, int64_t length,
                       struct dpe_decode_unit *units, struct dpe_decode_parts *parts)
{
    int64_t made = 0;
    for (int64_t i = 0; i < n; i++) {
        const struct piece *p = &pieces[i];
        int64_t first = made;
        for (int64_t at = p->first; at < p->end; at += length) {
            int64_t end = p->end - at < length ? p->end : at + length;
            units[made++] = (struct dpe_decode_unit){at,           end,       (int32_t)p->shift,
                                                     p->row_first, p->n_rows, p->call};
        }
        for (int32_t r = p->row_first; r < p->row_first + p->n_rows; r++) {
            *(p->own ? &parts[r].b_first : &parts[r].a_first) = (int32_t)first;
            *(p->own ? &parts[r].b_end : &parts[r].a_end) = (int32_t)made;
        }
    }
}

/* How many units a step that may become a graph has: one that stays for many tokens. The last ones
 * are empty. */
static int64_t padded_units(int64_t target, int64_t n)
{
    int64_t padded = 1;
    while (padded < n) {
        padded *= 2;
    }
    return n <= target && target < padded ? target : padded;
}

static void upload_units(struct dpe_backend *b, struct dpe_cuda_units *to,
                         const struct dpe_decode_unit *units, int64_t n,
                         const struct dpe_decode_parts *parts, int64_t rows)
{
    uint64_t unit_bytes = ((uint64_t)n * sizeof *units + 255) / 256 * 256;
    uint64_t bytes = unit_bytes + (uint64_t)rows * sizeof *parts;
    if (bytes > to->bytes) {
        DPE_CUDA_TRY(b, dpe_rt_release(to->memory));
        to->memory = NULL;
        DPE_CUDA_TRY(b, dpe_rt_allocate(&to->memory, bytes));
        to->bytes = b->failed ? 0 : bytes;
    }
    if (b->failed) {
        return;
    }
    to->units = to->memory;
    to->parts = (void *)((char *)to->memory + unit_bytes);
    to->n = n;
    DPE_CUDA_TRY(b, dpe_rt_up(to->units, units, (uint64_t)n * sizeof *units));
    DPE_CUDA_TRY(b, dpe_rt_up(to->parts, parts, (uint64_t)rows * sizeof *parts));
}

/* Those that were made for these rows of the batch and heads, else the next ones that are free, a
 * step's always the same; NULL: out of memory. */
static struct dpe_cuda_units *find_units(struct dpe_backend *b, const struct dpe_cuda_plan *p,
                                         int64_t first, int64_t rows, int64_t start)
{
    struct dpe_cuda_units **at = &b->units;
    while (*at != NULL && (*at)->rows > 0 &&
           ((*at)->first != first || (*at)->rows != rows || (*at)->start != start ||
            (*at)->head_dim != p->head_dim || (*at)->n_kv_heads != p->n_kv_heads)) {
        at = &(*at)->next;
    }
    if (*at == NULL) {
        *at = dpe_alloc_zero(1, sizeof **at);
    }
    return *at;
}

const struct dpe_cuda_units *dpe_cuda_use_units(struct dpe_backend *b,
                                                const struct dpe_cuda_rows *calls, int n)
{
    const struct dpe_attention *args = calls->args;
    const struct dpe_cuda_plan *p = dpe_cuda_plan_of(b, args->plan);
    const int64_t first =
        calls->first + (args->positions != NULL ? dpe_cuda_first_row(b, args->positions) : 0);
    int64_t rows = 0;
    for (int i = 0; i < n; i++) {
        rows += calls[i].rows;
    }
    struct dpe_cuda_units *to = find_units(b, p, first, rows, args->start);
    if (to != NULL && to->rows > 0) {
        return b->failed ? NULL : to;
    }
    DPE_OWNED struct piece *pieces = dpe_alloc((size_t)(2 * rows + 2 * n), sizeof *pieces);
    DPE_OWNED struct dpe_decode_parts *parts = dpe_alloc_zero((size_t)rows, sizeof *parts);
    DPE_OWNED struct dpe_decode_unit *units = NULL;
    if (to != NULL && pieces != NULL && parts != NULL) {
        int64_t n_pieces = 0;
        int64_t before = 0;
        for (int i = 0; i < n; before += calls[i++].rows) {
            n_pieces += find_pieces(&calls[i], i, before, pieces + n_pieces, parts);
        }
        const int64_t target = target_units(b, p);
        int64_t length = unit_length(pieces, n_pieces, target, dpe_decode_step(p->dealing));
        const bool keeping = b->steps.keeping;
        int64_t n_units = units_of(pieces, n_pieces, length);
        n_units = keeping ? padded_units(target, n_units) : n_units;
        units = dpe_alloc_zero((size_t)n_units, sizeof *units);
        if (units != NULL) {
            cut_pieces(pieces, n_pieces, length, units, parts);
            /* Nothing that the step has launched so far reads or writes units, so this does not
             * wait for it; nothing is pending (decode_runs). */
            b->steps.keeping = false;
            upload_units(b, to, units, n_units, parts, rows);
            b->steps.keeping = keeping;
        }
    }
    if (units == NULL && !b->failed) {
        b->failed = true;
        dpe_fail(&b->failure, DPE_NO_MEMORY, "cuda: out of host memory");
    }
    if (b->failed) {
        return NULL;
    }
    to->first = first;
    to->rows = rows;
    to->start = args->start;
    to->head_dim = p->head_dim;
    to->n_kv_heads = p->n_kv_heads;
    return to;
}

dpe_status dpe_cuda_make_differences(struct dpe_backend *b, struct dpe_cuda_plan *p,
                                     int64_t capacity, struct dpe_error *err)
{
    const struct dpe_rotated_copies *copies = &p->k_copies;
    int64_t n = capacity * p->plan->n_pairs;
    int made = 0;
    for (int c = 0; c < copies->n; c++) {
        made += copies->copies[c].table != copies->base_table;
        p->difference[c] = NULL;
    }
    if (!p->decodes || made == 0 || dpe_selects(&p->plan->selection)) {
        return dpe_cuda_status(b, err);
    }
    void *memory = NULL;
    int code = b->failed ? 0 : dpe_rt_allocate(&memory, (uint64_t)made * (uint64_t)n * 4);
    if (code != 0 && dpe_rt_is_memory(code)) {
        return dpe_fail(err, DPE_NO_MEMORY,
                        "out of device memory: tables of plan %s for decoding need %.1f MiB; a "
                        "smaller length needs less",
                        p->plan->name, (double)made * (double)n * 4.0 / 0x1p20);
    }
    DPE_CUDA_NOTE(b, code, "dpe_rt_allocate");
    p->differences = memory;
    uint32_t *next = memory;
    for (int c = 0; c < copies->n && !b->failed; c++) {
        int table = copies->copies[c].table;
        if (table != copies->base_table) {
            p->difference[c] = next;
            next += n;
            DPE_CUDA_TRY(b,
                         dpe_decode_table(p->cos[table], p->sin[table], p->cos[copies->base_table],
                                          p->sin[copies->base_table], n, p->difference[c]));
        }
    }
    return dpe_cuda_status(b, err);
}

uint64_t dpe_cuda_partial_bytes(const struct dpe_config *config, int64_t rows)
{
    rows = rows < DPE_CUDA_DECODE_ROWS ? rows : DPE_CUDA_DECODE_ROWS;
    return dpe_decode_partial_bytes(config->n_kv_heads, config->head_dim,
                                    DPE_CUDA_MOST_UNITS + 2 * rows + 2);
}

/* Positions are below 2^30. */
static int32_t cut(int64_t value)
{
    return value < INT32_C(1) << 30 ? (int32_t)value : INT32_C(1) << 30;
}

void dpe_cuda_decode_call(struct dpe_backend *b, const struct dpe_attention *args,
                          const struct dpe_cuda_units *units, struct dpe_decode *call)
{
    const struct dpe_cuda_plan *p = dpe_cuda_plan_of(b, args->plan);
    const struct dpe_plan *plan = p->plan;
    call->dealing = p->dealing;
    call->dtype = b->dtype;
    call->n_heads = args->n_heads;
    call->n_kv_heads = args->n_kv_heads;
    call->head_dim = args->head_dim;
    call->k = args->k;
    call->v = args->v;
    call->head_stride = args->capacity * args->head_dim;
    call->n_bands = plan->n_bands;
    call->chunk = plan->chunk > 0 ? cut(plan->chunk) : 1;
    call->mask = p->mask == NULL ? NULL : p->mask + args->layer * plan->n_heads * plan->n_pairs;
    call->units = units->units;
    call->n_units = units->n;
    call->parts = units->parts;
    call->scale = (float)dpe_plan_query_scale(plan, args->layer, 0);
    call->cap = (float)plan->attention_cap;
    call->log_n = dpe_log_n_of(plan);
    for (int i = 0; i < plan->n_bands; i++) {
        int copy = p->k_copies.of_band[i];
        call->bands[i] = (struct dpe_decode_band){
            .kind = (int32_t)plan->bands[i].kind,
            .q_copy = p->q_copies.of_band[i],
            .lo = cut(plan->bands[i].lo),
            .hi = cut(plan->bands[i].hi),
            .table = p->difference[copy],
            .per_head =
                p->difference[copy] != NULL && p->k_copies.copies[copy].per_head && p->mask != NULL,
        };
    }
}
