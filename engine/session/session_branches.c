/* Branches that begin like another one: where the backend can, they read its rows instead of
 * copying them.
 *
 * Branch b lends its rows to every branch whose `lent` has its offset. Who lends reads from nobody,
 * and keeps at least the tokens that it lends: before it gives them up, the branch that reads most
 * of them gets copies and lends them to the others. */
#include <inttypes.h>
#include <string.h>

#include "engine/session/session_internal.h"

static bool can_lend(const struct dpe_session *s)
{
    return s->ops->lends && s->prefix == 0 && !dpe_selects(&s->plan.selection);
}

/* Keys and values of positions first … end−1: from one cache row on to another. */
static void copy_rows(struct dpe_session *s, int64_t from, int64_t to, int64_t first, int64_t end)
{
    for (int64_t layer = 0; layer < s->config->n_layers && first < end; layer++) {
        const struct dpe_store store = dpe_session_store(s, layer);
        s->ops->copy_kv(s->own.backend, &store, from + first, to + first, end - first);
    }
}

/* Branch b has rows of its own for the positions first … end−1 of another, or of itself. */
static void take_rows(struct dpe_session *s, int64_t from, int64_t b, int64_t first, int64_t end)
{
    const struct dpe_lent *lent = &s->lent[from];
    int64_t border = lent->positions < end ? lent->positions : end;
    border = border > first ? border : first;
    copy_rows(s, lent->offset, b * s->room, first, border);
    if (from != b) {
        copy_rows(s, from * s->room, b * s->room, border, end);
    }
}

/* Branch b is about to lose what is after its first `keep` tokens: who reads it
 * does so no longer. */
static void settle(struct dpe_session *s, int64_t b, int64_t keep)
{
    int64_t heir = -1;
    for (int64_t i = 0; i < s->n_branches; i++) {
        const struct dpe_lent *lent = &s->lent[i];
        if (lent->positions > keep && lent->offset == b * s->room &&
            (heir < 0 || lent->positions > s->lent[heir].positions)) {
            heir = i;
        }
    }
    if (heir < 0) {
        return;
    }
    take_rows(s, heir, heir, 0, s->lent[heir].positions);
    s->lent[heir].positions = 0;
    for (int64_t i = 0; i < s->n_branches; i++) {
        struct dpe_lent *lent = &s->lent[i];
        if (lent->positions > keep && lent->offset == b * s->room) {
            lent->offset = heir * s->room;
        }
    }
}

dpe_status dpe_session_branch_cut(struct dpe_session *s, int64_t branch, int64_t keep,
                                  struct dpe_error *err)
{
    if (branch < 0 || branch >= s->n_branches || keep < s->prefix || keep > s->length[branch]) {
        return dpe_fail(err, DPE_USAGE,
                        "session: cannot keep %" PRId64 " tokens of branch %" PRId64, keep, branch);
    }
    settle(s, branch, keep);
    if (s->lent[branch].positions > keep) {
        int64_t whole = keep / DPE_LENT_UNIT * DPE_LENT_UNIT;
        take_rows(s, branch, branch, whole, keep);
        s->lent[branch].positions = whole;
    }
    s->length[branch] = keep;
    return dpe_kv_status(s->kv, err);
}

/* The first n tokens of `from`, which may read some from a third branch, become those of `to`. */
static void lend(struct dpe_session *s, int64_t from, int64_t to, int64_t n)
{
    int64_t whole = n / DPE_LENT_UNIT * DPE_LENT_UNIT;
    struct dpe_lent lent = s->lent[from];
    if (lent.positions < whole / 2) {
        /* A third branch has too little of it: `from` comes to lend. */
        take_rows(s, from, from, 0, lent.positions);
        s->lent[from].positions = 0;
        lent = (struct dpe_lent){whole, from * s->room};
    }
    lent.positions = lent.positions < whole ? lent.positions : whole;
    s->lent[to] = lent;
    take_rows(s, from, to, lent.positions, n);
}

dpe_status dpe_session_branch_copy(struct dpe_session *s, int64_t from, int64_t to, int64_t n,
                                   struct dpe_error *err)
{
    if (from < 0 || from >= s->n_branches || to < 0 || to >= s->n_branches || from == to ||
        n < s->prefix || n > s->length[from]) {
        return dpe_fail(err, DPE_USAGE,
                        "session: cannot copy %" PRId64 " tokens of branch %" PRId64
                        " to branch %" PRId64,
                        n, from, to);
    }
    settle(s, to, 0);
    s->lent[to].positions = 0;
    if (can_lend(s)) {
        lend(s, from, to, n);
    } else {
        copy_rows(s, from * s->room, to * s->room, s->prefix, n);
        for (int64_t layer = 0; layer < s->config->n_layers && n > s->prefix; layer++) {
            dpe_forward_represent(s, layer, to, n);
        }
    }
    memcpy(s->tokens + s->prefix + to * s->room, s->tokens + s->prefix + from * s->room,
           (size_t)(n - s->prefix) * sizeof *s->tokens);
    s->length[to] = n;
    return dpe_kv_status(s->kv, err);
}
