/* Running tokens through a session: feed, likelihood, norms, steps of branches; branches that begin
 * like another one. */
#include "engine/ops/ops_head.h"
#include "engine/session/session_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { SMALL_WORK = 1 << 14 /* logits for which no second thread is woken */ };

/* What to do with a piece whose rows are in the cache and whose wanted hidden states are in
 * `normed`: tokens[done … done+rows−1] of the call. */
struct run {
    int64_t branch;
    const int32_t *tokens;
    int64_t n;
    float *logits; /* feed: of the last token, or NULL */
    double *nll;   /* nll: [n − 1], or NULL */
    dpe_rows rows; /* rows: logits of every token, or NULL */
    void *user;
};

dpe_status dpe_session_cut(struct dpe_session *s, int64_t keep, struct dpe_error *err)
{
    int64_t most = s->n_branches == 1 ? s->length[0] : s->prefix;
    if (keep < 0 || keep > most) {
        return dpe_fail(err, DPE_USAGE,
                        "session: cannot keep %" PRId64 " tokens of a cache of %" PRId64 "%s", keep,
                        most, s->n_branches == 1 ? "" : " that its branches share");
    }
    dpe_session_join(s, keep);
    return DPE_OK;
}

dpe_status dpe_session_branch(struct dpe_session *s, int64_t n, int64_t room, struct dpe_error *err)
{
    int64_t prefix = s->length[0];
    int64_t all = 0;
    if (s->n_branches != 1 || n < 1 || n > s->options.branches || room < 1 ||
        room > s->options.positions - prefix || __builtin_mul_overflow(n, room, &all) ||
        all > s->options.capacity - prefix) {
        return dpe_fail(err, DPE_USAGE,
                        "session: %" PRId64 " branches of %" PRId64 " tokens after %" PRId64
                        " do not fit: the session has %" PRId64 " now, and at most %" PRId64
                        " of %" PRId64 " positions in a cache of %" PRId64,
                        n, room, prefix, s->n_branches, s->options.branches, s->options.positions,
                        s->options.capacity);
    }
    DPE_TRY(dpe_session_states_branch(s, err));
    s->prefix = prefix;
    s->room = room;
    s->n_branches = n;
    for (int64_t b = 0; b < n; b++) {
        s->length[b] = prefix;
    }
    return DPE_OK;
}

int64_t dpe_session_common(const struct dpe_session *s, const int32_t *tokens, int64_t n)
{
    int64_t most = s->n_branches == 1 ? s->length[0] : s->prefix;
    most = n < most ? n : most;
    int64_t common = 0;
    while (common < most && s->tokens[common] == tokens[common]) {
        common++;
    }
    return common;
}

struct dpe_session_limits dpe_session_limits(const struct dpe_session *s)
{
    return (struct dpe_session_limits){.capacity = s->options.capacity,
                                       .positions = s->options.positions,
                                       .branches = s->options.branches,
                                       .chunk = s->options.prefill_chunk,
                                       .threads = s->options.n_threads,
                                       .full_chunk = s->full_chunk,
                                       .vocab = s->config->vocab};
}

struct dpe_session_work dpe_session_work(const struct dpe_session *session)
{
    return session->work;
}

int64_t dpe_session_room(const struct dpe_session *s, int64_t branch)
{
    int64_t end =
        s->room < s->options.positions - s->prefix ? s->prefix + s->room : s->options.positions;
    return end - s->length[branch];
}

static dpe_status check_branch(const struct dpe_session *s, int64_t branch, int64_t n,
                               struct dpe_error *err)
{
    if (!s->has_plan || (s->remote == NULL && s->base->own.workspace == NULL)) {
        return dpe_fail(
            err, DPE_USAGE,
            "session: it does not have a plan, because dpe_session_set_plan failed; set "
            "another plan first");
    }
    if (branch < 0 || branch >= s->n_branches) {
        return dpe_fail(err, DPE_USAGE,
                        "session: expected a branch from 0 to %" PRId64 ", found %" PRId64,
                        s->n_branches - 1, branch);
    }
    if (n < 0 || n > dpe_session_room(s, branch)) {
        return dpe_fail(err, DPE_USAGE,
                        "session: %" PRId64 " tokens do not fit after %" PRId64
                        " in a cache of %" PRId64,
                        n, s->length[branch], s->length[branch] + dpe_session_room(s, branch));
    }
    return DPE_OK;
}

static dpe_status check_tokens(const struct dpe_session *s, const int32_t *tokens, int64_t n,
                               struct dpe_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= s->config->vocab) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "token %" PRId64 ": expected an id from 0 to %" PRId64 ", found %d; "
                            "the tokenizer belongs to another model",
                            i, s->config->vocab - 1, tokens[i]);
        }
    }
    return s->remote != NULL ? DPE_OK : dpe_model_verify(s->model, err);
}

static dpe_status logits_nonfinite(const struct dpe_session *s, int64_t position,
                                   struct dpe_error *err)
{
    dpe_fail(err, DPE_NONFINITE,
             "NaN or infinity in the logits at position %" PRId64 " (after the last layer)",
             position);
    if (err != NULL) {
        err->layer = (int)s->config->n_layers;
        err->position = position;
    }
    return DPE_NONFINITE;
}

/* Host logits of rows first … first+rows−1 of `normed`. */
static dpe_status lm_head(struct dpe_lane *lane, int64_t first, int64_t rows, float *logits,
                          struct dpe_error *err)
{
    int64_t at = first * lane->config->hidden * (int64_t)lane->session->element;
    dpe_head_logits(lane->ops, lane->backend, lane->config, (char *)lane->normed + at, rows,
                    logits);
    return dpe_lane_wait(lane, err);
}

/* The session's own room for logits. */
static struct dpe_logit_room logit_room(const struct dpe_session *s)
{
    return (struct dpe_logit_room){s->logits, s->bytes.logit_rows, s->options.n_threads};
}

/* Likelihoods of the tokens that follow those of a piece. */
static dpe_status piece_nll(struct dpe_session *s, const struct run *run, int64_t done,
                            int64_t rows, struct dpe_error *err)
{
    /* The call's last token has no successor. */
    int64_t with_next = done + rows == run->n ? rows - 1 : rows;
    const struct dpe_logit_room room = logit_room(s);
    double *nll = run->nll + done;
    if (with_next == 0) {
        return DPE_OK;
    }
    s->ops->likelihood(s->own.backend, s->own.normed, with_next, &room, run->tokens + done + 1,
                       nll);
    DPE_TRY(dpe_lane_wait(&s->own, err));
    for (int64_t i = 0; i < with_next; i++) {
        if (!isfinite(nll[i])) {
            return logits_nonfinite(s, s->length[run->branch] + i, err);
        }
    }
    return DPE_OK;
}

/* Logits of all rows of a piece, a block of LM-head rows at a time. */
static dpe_status piece_rows(struct dpe_session *s, const struct run *run, int64_t done,
                             int64_t rows, struct dpe_error *err)
{
    int64_t vocab = s->config->vocab;
    for (int64_t r = 0; r < rows; r += s->bytes.logit_rows) {
        int64_t n = rows - r < s->bytes.logit_rows ? rows - r : s->bytes.logit_rows;
        DPE_TRY(lm_head(&s->own, r, n, s->logits, err));
        int64_t bad = dpe_first_nonfinite(s->logits, n * vocab);
        if (bad >= 0) {
            return logits_nonfinite(s, s->length[run->branch] + r + bad / vocab, err);
        }
        run->rows(run->user, done + r, n, s->logits);
    }
    return DPE_OK;
}

/* The first of the rows of logits with a number that is not finite, −1: none. */
static int64_t first_bad_row(const struct dpe_lane *lane, int64_t rows, const float *logits)
{
    int64_t vocab = lane->config->vocab;
    int64_t bad = rows;
    if (rows == 1 || rows * vocab <= SMALL_WORK) {
        bad = dpe_first_nonfinite(logits, rows * vocab);
        return bad < 0 ? bad : bad / vocab;
    }
#pragma omp parallel for num_threads(lane->n_threads) schedule(static) reduction(min : bad)
    for (int64_t i = 0; i < rows; i++) {
        int64_t row = dpe_first_nonfinite(logits + i * vocab, vocab) < 0 ? rows : i;
        bad = row < bad ? row : bad;
    }
    return bad == rows ? -1 : bad;
}

dpe_status dpe_lane_logits(struct dpe_lane *lane, int64_t rows, const int64_t *positions,
                           int64_t position, float *logits, struct dpe_error *err)
{
    DPE_TRY(lm_head(lane, 0, rows, logits, err));
    int64_t bad = first_bad_row(lane, rows, logits);
    int64_t at = positions != NULL && bad >= 0 ? positions[bad] : position;
    return bad < 0 ? DPE_OK : logits_nonfinite(lane->session, at, err);
}

/* A piece through the layers, and what is wanted of it. */
static dpe_status run_piece(struct dpe_session *s, const struct run *run,
                            const struct dpe_batch *batch, int64_t done, struct dpe_error *err)
{
    DPE_TRY(dpe_forward(&s->own, batch, err));
    if (run->nll != NULL) {
        return piece_nll(s, run, done, batch->rows, err);
    }
    if (run->rows != NULL) {
        return piece_rows(s, run, done, batch->rows, err);
    }
    int64_t last = batch->start + batch->rows - 1;
    return batch->wanted == 1 ? dpe_lane_logits(&s->own, 1, NULL, last, run->logits, err) : DPE_OK;
}

/* Tokens go through in pieces that end at the lines of a grid from position 0, so that what a
 * position's key and value come from does not depend on how the calls were cut there. */
static dpe_status run_tokens(struct dpe_session *s, const struct run *run, struct dpe_error *err)
{
    dpe_status status = check_branch(s, run->branch, run->n, err);
    if (status == DPE_OK) {
        status = check_tokens(s, run->tokens, run->n, err);
    }
    if (status != DPE_OK) {
        return dpe_session_agree(s, status, err);
    }
    if (s->remote != NULL) {
        return run->logits != NULL || run->rows != NULL
                   ? dpe_fail(err, DPE_USAGE, "session: an engine gives no logits")
                   : dpe_session_remote_feed(s, run->branch, run->tokens, run->n, run->nll, err);
    }
    int64_t *length = &s->length[run->branch];
    int64_t before = *length;
    int64_t chunk = s->options.prefill_chunk;
    struct dpe_batch batch = {
        .offset = run->branch * s->room, .lent = s->lent[run->branch], .branch = run->branch};
    DPE_TRY(run->n > 0 ? dpe_session_states_ready(s, run->branch, err) : DPE_OK);
    if (run->n > 0) {
        memcpy(s->tokens + before + batch.offset, run->tokens, (size_t)run->n * sizeof *s->tokens);
    }
    for (int64_t done = 0; status == DPE_OK && done < run->n; done += batch.rows) {
        int64_t to_line = chunk - *length % chunk;
        batch.rows = run->n - done < to_line ? run->n - done : to_line;
        bool last = done + batch.rows == run->n;
        batch.tokens = run->tokens + done;
        batch.wanted = run->nll != NULL || run->rows != NULL
                           ? batch.rows
                           : (run->logits != NULL && last ? 1 : 0);
        batch.start = *length;
        status = run_piece(s, run, &batch, done, err);
        *length += batch.rows;
        s->work.fed += batch.rows;
        dpe_session_states_passed(s, run->branch);
    }
    if (status != DPE_OK) {
        *length = before;
        dpe_session_states_cut(s, run->branch, before);
        dpe_session_states_lost(s, run->branch);
    }
    return status;
}

dpe_status dpe_session_branch_feed(struct dpe_session *session, int64_t branch,
                                   const int32_t *tokens, int64_t n, float *logits,
                                   struct dpe_error *err)
{
    if (n == 0 && logits != NULL) {
        return dpe_fail(err, DPE_USAGE, "session: logits need at least 1 token, found 0");
    }
    const struct run run = {.branch = branch, .tokens = tokens, .n = n, .logits = logits};
    return run_tokens(session, &run, err);
}

dpe_status dpe_session_branch_rows(struct dpe_session *session, int64_t branch,
                                   const int32_t *tokens, int64_t n, dpe_rows rows, void *user,
                                   struct dpe_error *err)
{
    const struct run run = {.branch = branch, .tokens = tokens, .n = n, .rows = rows, .user = user};
    return run_tokens(session, &run, err);
}

dpe_status dpe_session_feed(struct dpe_session *session, const int32_t *tokens, int64_t n,
                            float *logits, struct dpe_error *err)
{
    return dpe_session_branch_feed(session, 0, tokens, n, logits, err);
}

/* A part of a step: different branches with room for a token each. */
static dpe_status check_part(const struct dpe_session_part *part, const int32_t *tokens,
                             struct dpe_error *err)
{
    const struct dpe_session *s = part->session;
    const int64_t n = part->n;
    if (n < 1 || n > s->n_branches) {
        return dpe_fail(err, DPE_USAGE,
                        "session: expected a step of 1 to %" PRId64 " branches, found %" PRId64,
                        s->n_branches, n);
    }
    for (int64_t i = 0; i < n; i++) {
        DPE_TRY(check_branch(s, part->branches[i], 1, err));
        for (int64_t j = 0; j < i; j++) {
            if (part->branches[j] == part->branches[i]) {
                return dpe_fail(err, DPE_USAGE, "session: a step contains branch %" PRId64 " twice",
                                part->branches[i]);
            }
        }
    }
    return check_tokens(s, tokens, n, err);
}

/* *rows: of all parts, which are different sessions that share their buffers. */
static dpe_status check_step(const struct dpe_session_part *parts, int64_t n_parts,
                             const int32_t *tokens, int64_t *rows, struct dpe_error *err)
{
    struct dpe_session *base = parts->session->base;
    *rows = 0;
    if (base->remote != NULL) {
        return dpe_fail(err, DPE_USAGE, "session: an engine gives no logits");
    }
    for (int64_t p = 0; p < n_parts; p++) {
        bool good = parts[p].session->base == base;
        for (int64_t q = 0; q < p; q++) {
            good = good && parts[q].session != parts[p].session;
        }
        if (!good) {
            return dpe_fail(err, DPE_USAGE,
                            "session: a step is of sessions beside each other, of each once");
        }
        DPE_TRY(check_part(&parts[p], tokens + *rows, err));
        *rows += parts[p].n;
    }
    return *rows <= base->bytes.rows
               ? DPE_OK
               : dpe_fail(err, DPE_USAGE,
                          "session: a step has at most %" PRId64 " rows, found %" PRId64,
                          base->bytes.rows, *rows);
}

/* The likeliest tokens after a step, which the backend found itself. */
static dpe_status check_best(const struct dpe_session *s, int64_t n, const int32_t *best,
                             struct dpe_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        if (best[i] < 0) {
            return logits_nonfinite(s, s->positions[i], err);
        }
    }
    return DPE_OK;
}

static dpe_status run_step(struct dpe_session *s, const struct dpe_batch *batch, float *logits,
                           struct dpe_error *err)
{
    if (batch->n_parts == 0 && dpe_session_takes_lanes(s, batch)) {
        return dpe_session_run_lanes(s, batch, logits, err);
    }
    DPE_TRY(dpe_forward(&s->own, batch, err));
    return logits != NULL ? dpe_lane_logits(&s->own, batch->rows, batch->positions, 0, logits, err)
                          : DPE_OK;
}

/* Where the tokens of a part go: rows `at` and after of the step. */
static dpe_status place_part(const struct dpe_session_part *part, int64_t at, struct dpe_error *err)
{
    struct dpe_session *s = part->session;
    struct dpe_session *base = s->base;
    for (int64_t i = 0; i < part->n; i++) {
        const int64_t branch = part->branches[i];
        DPE_TRY(dpe_session_states_ready(s, branch, err));
        base->positions[at + i] = s->length[branch];
        base->offsets[at + i] = branch * s->room;
        base->lents[at + i] = s->lent[branch];
        base->which[at + i] = branch;
    }
    return DPE_OK;
}

/* After a step, whose rows `at` and after are the part's: its branches have their tokens, unless
 * that failed. */
static void end_part(const struct dpe_session_part *part, int64_t at, const int32_t *tokens,
                     bool good)
{
    struct dpe_session *s = part->session;
    const struct dpe_session *base = s->base;
    s->work.decoded += good ? part->n : 0;
    for (int64_t i = 0; i < part->n; i++) {
        const int64_t branch = part->branches[i];
        if (!good) {
            dpe_session_states_lost(s, branch);
            continue;
        }
        s->tokens[base->positions[at + i] + base->offsets[at + i]] = tokens[at + i];
        s->length[branch]++;
        dpe_session_states_passed(s, branch);
    }
}

dpe_status dpe_session_step_parts(const struct dpe_session_part *parts, int64_t n_parts,
                                  const int32_t *tokens, float *logits, int32_t *best,
                                  struct dpe_error *err)
{
    struct dpe_session *s = parts->session;
    const struct dpe_session *base = s->base;
    int64_t n = 0;
    dpe_status status = check_step(parts, n_parts, tokens, &n, err);
    if (status != DPE_OK) {
        return dpe_session_agree(s, status, err);
    }
    for (int64_t p = 0, at = 0; p < n_parts; at += parts[p++].n) {
        DPE_TRY(place_part(&parts[p], at, err));
    }
    const struct dpe_batch batch = {
        .tokens = tokens,
        .rows = n,
        .wanted = logits != NULL || best != NULL ? n : 0,
        .positions = base->positions,
        .offsets = base->offsets,
        .lents = base->lents,
        .branches = base->which,
        .parts = parts,
        .n_parts = n_parts > 1 ? n_parts : 0,
        .best = best,
        .room = logit_room(s),
    };
    const double begin = dpe_clock();
    status = run_step(s, &batch, logits, err);
    s->work.seconds += dpe_clock() - begin;
    s->work.steps += status == DPE_OK;
    const bool good = status == DPE_OK;
    if (good && best != NULL) {
        status = check_best(base, n, best, err);
    }
    for (int64_t p = 0, at = 0; p < n_parts; at += parts[p++].n) {
        end_part(&parts[p], at, tokens, status == DPE_OK);
    }
    return status;
}

dpe_status dpe_session_step(struct dpe_session *s, int64_t n, const int64_t *branches,
                            const int32_t *tokens, float *logits, struct dpe_error *err)
{
    const struct dpe_session_part part = {s, n, branches};
    return dpe_session_step_parts(&part, 1, tokens, logits, NULL, err);
}

dpe_status dpe_session_step_best(struct dpe_session *s, int64_t n, const int64_t *branches,
                                 const int32_t *tokens, int32_t *best, struct dpe_error *err)
{
    const struct dpe_session_part part = {s, n, branches};
    return dpe_session_step_parts(&part, 1, tokens, NULL, best, err);
}

dpe_status dpe_session_nll(struct dpe_session *session, const int32_t *tokens, int64_t n,
                           double *nll, struct dpe_error *err)
{
    if (n < 2) {
        return dpe_fail(err, DPE_USAGE,
                        "session: a likelihood needs at least 2 tokens, found %" PRId64, n);
    }
    const struct run run = {.tokens = tokens, .n = n, .nll = nll};
    return run_tokens(session, &run, err);
}

/* Adds the norms of one text, which the backend sums. */
static dpe_status run_text(struct dpe_session *s, const struct dpe_norm_text *text,
                           struct dpe_error *err)
{
    s->sums = text->sums;
    dpe_status status = dpe_session_cut(s, 0, err);
    if (status == DPE_OK) {
        status = dpe_session_feed(s, text->ids, text->n, NULL, err);
    }
    s->sums = (struct dpe_norm_sums){0};
    return status;
}

dpe_status dpe_session_norms(struct dpe_session *session, const struct dpe_norm_text *texts,
                             int64_t n, struct dpe_error *err)
{
    if (session->remote != NULL) {
        return session->remote->norms(session->remote->user, session->config, texts, n, err);
    }
    for (int64_t i = 0; i < n; i++) {
        DPE_TRY(run_text(session, &texts[i], err));
    }
    return DPE_OK;
}

/* ------------------------------------------------------- branches that begin like another one */

/* Where the backend can, they read its rows instead of copying them.
 *
 * Branch b lends its rows to every branch whose `lent` has its offset. A branch that lends
 * reads from none, and keeps at least the tokens that it lends: before it gives them up, the branch
 * that reads most of them gets copies and lends them to the others. */

static bool can_lend(const struct dpe_session *s)
{
    return s->ops->lends && s->prefix == 0 && !dpe_selects(&s->plans[0].selection);
}

/* Keys and values of positions first … end−1: from one cache row on to another. */
static void copy_rows(struct dpe_session *s, int64_t from, int64_t to, int64_t first, int64_t end)
{
    for (int64_t layer = 0; layer < s->config->n_layers && first < end; layer++) {
        if (dpe_config_kept(s->config, layer) == 0) {
            continue;
        }
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
    dpe_session_states_cut(s, branch, keep);
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
    dpe_session_states_copy(s, from, to, n);
    return dpe_kv_status(s->kv, err);
}
