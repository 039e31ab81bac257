/* The evaluator of selections: who may be chosen, who sees what and where it stands. */
#include "engine/model/config/selection.h"

#include <inttypes.h>
#include <math.h>

static const int64_t MOST = INT64_C(1) << 31;

static dpe_status check_number(const char *name, int64_t value, int64_t least, int64_t most,
                               struct dpe_error *err)
{
    if (value < least || value > most) {
        return dpe_fail(err, DPE_USAGE,
                        "selection: %s: expected a whole number from %" PRId64 " to %" PRId64
                        ", found %" PRId64,
                        name, least, most, value);
    }
    return DPE_OK;
}

dpe_status dpe_selection_check(const struct dpe_selection *s, struct dpe_error *err)
{
    if (!dpe_selects(s)) {
        return check_number("block", s->block, 0, MOST, err);
    }
    bool attended = s->representative == DPE_REPRESENT_ATTENDED;
    bool probability = s->representative == DPE_REPRESENT_PROBABILITY;
    const struct {
        const char *name;
        int64_t value, least, most;
    } fields[] = {
        {"block", s->block, 1, MOST},
        {"sinks", s->sinks, 0, MOST},
        {"local", s->local, 1, MOST},
        {"k", s->k, 0, MOST},
        {"refresh", s->refresh, 1, MOST},
        {"attended", s->attended, attended ? 1 : 0, attended ? s->block : MOST},
        {"last", s->last, probability ? 1 : 0, MOST},
        {"slashes", s->slashes, 0, probability ? MOST : 0},
        {"first", s->first, 0, s->k},
        {"representative", (int64_t)s->representative, 0, DPE_REPRESENT_COMPRESSED},
        {"unit", (int64_t)s->unit, 0, DPE_CHOICE_LAYER},
        {"positions", (int64_t)s->positions, 0, DPE_PLACE_CONSTANT},
        {"scored", (int64_t)s->scored, 0, DPE_SCORE_CONSTANT},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        DPE_TRY(
            check_number(fields[i].name, fields[i].value, fields[i].least, fields[i].most, err));
    }
    return DPE_OK;
}

struct dpe_selection dpe_selection_compressed(int64_t block, int64_t count)
{
    return (struct dpe_selection){
        .block = block,
        .local = block + 1, /* so candidates end before the block that is before the query's own */
        .k = count - 2,
        .first = 1,
        .refresh = 1,
        .representative = DPE_REPRESENT_COMPRESSED,
        .unit = DPE_CHOICE_KV_HEAD,
        .scored = DPE_SCORE_TRUE,
    };
}

/* ------------------------------------------------------------------------------------ choosing */

/* Not a number is as −∞, −0 as 0. */
static double as_number(double score)
{
    return isnan(score) ? -(double)INFINITY : score + 0.0;
}

void dpe_selection_favour(const struct dpe_selection *s, double *scores, int64_t n)
{
    for (int64_t i = 0; i < s->first && i < n; i++) {
        scores[i] = (double)INFINITY;
    }
}

/* The score as bits that grow with it. */
static uint64_t ordered(double score)
{
    union {
        double number;
        uint64_t bits;
    } same = {.number = as_number(score)};
    const uint64_t sign = UINT64_C(1) << 63;
    return (same.bits & sign) != 0 ? ~same.bits : same.bits | sign;
}

/* The first digits of the k-th best score, from the highest on until as many scores begin with them
 * as are still to be taken, or the score is known. */
struct least {
    uint64_t digits, known; /* and which bits of a score they are */
    int64_t taken;          /* of the scores that begin so */
};

static struct least find_least(const double *scores, int64_t n, int64_t k)
{
    enum { BITS = 8, VALUES = 1 << BITS };
    struct least least = {.taken = k};
    for (int shift = 64 - BITS; shift >= 0; shift -= BITS) {
        int32_t counts[VALUES] = {0};
        for (int64_t i = 0; i < n; i++) {
            uint64_t score = ordered(scores[i]);
            counts[score >> shift & (VALUES - 1)] += (score & least.known) == least.digits;
        }
        uint64_t digit = VALUES - 1;
        for (; counts[digit] < least.taken; digit--) {
            least.taken -= counts[digit];
        }
        least.digits |= digit << shift;
        least.known |= (uint64_t)(VALUES - 1) << shift;
        if (counts[digit] == least.taken) {
            break;
        }
    }
    return least;
}

/* By digits, so in time that does not depend on the order of the scores. */
int64_t dpe_selection_choose(const double *scores, int64_t n, int64_t k, int32_t *chosen)
{
    const int64_t most = dpe_least(n, k);
    struct least least = find_least(scores, n, most);
    int64_t kept = 0;
    for (int64_t i = 0; kept < most; i++) {
        uint64_t digits = ordered(scores[i]) & least.known;
        bool equal = digits == least.digits && least.taken > 0;
        least.taken -= equal;
        if (equal || digits > least.digits) {
            chosen[kept++] = (int32_t)i;
        }
    }
    return kept;
}

/* ---------------------------------------------------------------------------------------- runs */

/* Those of keys first … end−1 that are not among those before; a run goes on where the last one
 * ends. */
static int64_t add_run(struct dpe_key_run *runs, int64_t n, int64_t first, int64_t end)
{
    first = n > 0 && runs[n - 1].end > first ? runs[n - 1].end : first;
    if (first >= end) {
        return n;
    }
    if (n > 0 && runs[n - 1].end == first) {
        runs[n - 1].end = end;
        return n;
    }
    runs[n] = (struct dpe_key_run){.first = first, .end = end};
    return n + 1;
}

static void place_packed(struct dpe_key_run *runs, int64_t n, int64_t *query)
{
    int64_t before = 0;
    for (int64_t i = 0; i < n; i++) {
        runs[i].place = before;
        before += runs[i].end - runs[i].first;
    }
    *query = before - 1;
}

/* Keys before `near` stand there; the run that holds it is cut in two. */
static int64_t place_constant(struct dpe_key_run *runs, int64_t n, int64_t near)
{
    for (int64_t i = 0; i < n; i++) {
        runs[i].constant = runs[i].first < near;
        runs[i].place = runs[i].constant ? near : runs[i].first;
        if (runs[i].constant && runs[i].end > near) {
            for (int64_t j = n; j > i + 1; j--) {
                runs[j] = runs[j - 1];
            }
            runs[i + 1] = (struct dpe_key_run){.first = near, .end = runs[i].end};
            runs[i].end = near;
            n++;
        }
    }
    return n;
}

int64_t dpe_selection_runs(const struct dpe_selection *s, int64_t m,
                           const struct dpe_choice *choice, struct dpe_key_run *runs,
                           int64_t *query)
{
    int64_t found = add_run(runs, 0, 0, s->sinks < m + 1 ? s->sinks : m + 1);
    int64_t far = choice->n_slashes; /* the far ones first: their keys ascend */
    for (int64_t i = 0; i <= choice->n_blocks; i++) {
        bool rest = i == choice->n_blocks;
        int64_t first =
            s->sinks + s->block * (rest ? dpe_selection_candidates(s, m) : choice->blocks[i]);
        for (; far > 0 && m - s->local - choice->slashes[far - 1] < first; far--) {
            int64_t key = m - s->local - choice->slashes[far - 1];
            found = add_run(runs, found, key, key + 1);
        }
        found = add_run(runs, found, first, rest ? m + 1 : first + s->block);
    }
    *query = m;
    switch (s->positions) {
    case DPE_PLACE_TRUE:
        for (int64_t i = 0; i < found; i++) {
            runs[i].place = runs[i].first;
        }
        return found;
    case DPE_PLACE_PACKED:
        place_packed(runs, found, query);
        return found;
    case DPE_PLACE_CONSTANT:
        return place_constant(runs, found, m - s->local + 1);
    }
    return found;
}

int64_t dpe_selection_places(const struct dpe_selection *s, int64_t positions)
{
    bool packed = dpe_selects(s) && s->positions == DPE_PLACE_PACKED && s->scored == DPE_SCORE_BARE;
    int64_t most = 0;
    /* Beyond the last candidate: less than a block, the window, and a group's positions. */
    if (!packed || __builtin_mul_overflow(s->k + 1, s->block, &most) ||
        __builtin_add_overflow(most, s->sinks + s->local + s->slashes, &most) ||
        __builtin_add_overflow(most, s->refresh, &most)) {
        return positions;
    }
    return most < positions ? most : positions;
}

int64_t dpe_selection_keys(const struct dpe_selection *s, int64_t m)
{
    int64_t candidates = dpe_selects(s) ? dpe_selection_candidates(s, m) : 0;
    int64_t left_out = candidates > s->k ? candidates - s->k : 0;
    int64_t distances = dpe_selects(s) ? dpe_selection_distances(s, m) : 0;
    int64_t again = distances < s->slashes ? distances : s->slashes;
    left_out = left_out * s->block - again;
    return m + 1 - (left_out > 0 ? left_out : 0);
}

double dpe_selection_pairs(const struct dpe_selection *s, int64_t n)
{
    double pairs = 0.5 * (double)n * ((double)n + 1.0);
    for (int64_t m = 0; m < n && dpe_selects(s); m++) {
        pairs -= (double)(m + 1 - dpe_selection_keys(s, m));
    }
    return pairs;
}

double dpe_selection_work(const struct dpe_selection *s, int64_t n)
{
    double work = dpe_selection_pairs(s, n);
    double rows = s->representative == DPE_REPRESENT_KEYS         ? (double)s->block
                  : s->representative == DPE_REPRESENT_EXTREMES   ? 2.0
                  : s->representative == DPE_REPRESENT_COMPRESSED ? 2.0
                                                                  : 1.0;
    bool probability = s->representative == DPE_REPRESENT_PROBABILITY;
    for (int64_t m = 0; dpe_selects(s) && m < n; m += s->refresh) {
        int64_t candidates = dpe_selection_candidates(s, m);
        double choosing =
            probability ? (double)s->last * (double)(m + 1) : rows * (double)candidates;
        work += candidates > s->k ? choosing : 0.0;
    }
    return work;
}

/* ----------------------------------------------------------------------------- representatives */

int64_t dpe_selection_width(const struct dpe_selection *s, int64_t head_dim)
{
    const bool none =
        s->representative == DPE_REPRESENT_KEYS || s->representative == DPE_REPRESENT_PROBABILITY;
    return none ? 0 : s->representative == DPE_REPRESENT_EXTREMES ? 2 * head_dim : head_dim;
}

uint64_t dpe_selection_mark_bytes(const struct dpe_selection *s, int64_t head_dim, int64_t n_heads,
                                  int64_t n_kv_heads, int64_t capacity, int64_t branches)
{
    return dpe_bytes_of(dpe_selection_slots(s, capacity, branches),
                        dpe_selection_width(s, head_dim),
                        dpe_selection_heads(s, n_heads, n_kv_heads), sizeof(float));
}
