/* States: what layers have that keep no keys and values (engine/model/config/recurrent.h).
 *
 * A branch has one state in each such layer, of its first `at` tokens. A state cannot be cut back,
 * so it may be of more tokens than the branch has left, or of fewer: before the branch goes on, the
 * nearest state that was kept is copied, and the tokens after it run again, which are known
 * (session->tokens). So every cut, copy and branch works as with keys and values alone; what it
 * costs is time. DPE_KEPT_STATES states of the session are copies, made where prefill and decoding
 * pass a line of the grid of chunks, and where a prefix becomes common to branches. Tokens that run
 * again from such a line give the same bits as before. */
#include "engine/session/session_internal.h"

static uint64_t state_bytes(const struct dpe_session *s)
{
    return (uint64_t)dpe_recurrent_floats(&s->config->recurrent) * sizeof(float);
}

static bool has_states(const struct dpe_session *s)
{
    return s->states.at != NULL;
}

uint64_t dpe_session_state_bytes(const struct dpe_config *c, int64_t branches)
{
    const int64_t layers = c->n_layers - dpe_config_attending(c, c->n_layers);
    return layers > 0 ? dpe_bytes_of(branches + DPE_KEPT_STATES,
                                     dpe_recurrent_floats(&c->recurrent), 1, sizeof(float))
                      : 0;
}

/* State `from` of every layer becomes state `to`; −1: zeros. */
static void copy(struct dpe_session *s, int64_t from, int64_t to)
{
    const uint64_t bytes = state_bytes(s);
    for (int64_t layer = 0; layer < s->config->n_layers; layer++) {
        char *states = s->kept[layer].states;
        if (states != NULL) {
            s->ops->copy_state(s->own.backend, states + (uint64_t)to * bytes,
                               from < 0 ? NULL : states + (uint64_t)from * bytes, bytes);
        }
    }
}

/* Whether a kept state is of the first tokens of a branch. */
static bool is_of(const struct dpe_session *s, const struct dpe_kept_state *kept, int64_t branch)
{
    return kept->tokens > 0 &&
           (kept->branch == branch || (kept->tokens <= s->prefix && kept->branch == 0));
}

/* The kept state of a branch with the most tokens up to `most`; −1: none. */
static int find(const struct dpe_session *s, int64_t branch, int64_t most)
{
    int best = -1;
    for (int i = 0; i < DPE_KEPT_STATES; i++) {
        const struct dpe_kept_state *kept = &s->states.kept[i];
        if (is_of(s, kept, branch) && kept->tokens <= most &&
            (best < 0 || kept->tokens > s->states.kept[best].tokens)) {
            best = i;
        }
    }
    return best;
}

/* Which kept state goes: one that is free, else the one without which a cut would run the fewest
 * tokens again for its distance to the end, so that those that stay lie closer together towards
 * it. The one of the common prefix stays. */
static int choose(const struct dpe_session *s)
{
    int best = -1;
    double least = 0.0;
    for (int i = 0; i < DPE_KEPT_STATES; i++) {
        const struct dpe_kept_state *kept = &s->states.kept[i];
        if (kept->tokens == 0) {
            return i;
        }
        const int before = find(s, kept->branch, kept->tokens - 1);
        const int64_t from = before < 0 ? 0 : s->states.kept[before].tokens;
        const double gain =
            (double)(kept->tokens - from) / (double)(s->length[kept->branch] - from + 1);
        if ((best < 0 || gain < least) && !(s->prefix > 0 && kept->tokens == s->prefix)) {
            best = i;
            least = gain;
        }
    }
    return best;
}

static void keep(struct dpe_session *s, int64_t branch)
{
    const int64_t tokens = s->states.at[branch];
    const int same = find(s, branch, tokens);
    if (tokens == 0 || (same >= 0 && s->states.kept[same].tokens == tokens)) {
        return;
    }
    const int i = choose(s);
    copy(s, branch, s->options.branches + i);
    s->states.kept[i] = (struct dpe_kept_state){branch, tokens};
}

void dpe_session_states_cut(struct dpe_session *s, int64_t branch, int64_t most)
{
    if (!has_states(s)) {
        return;
    }
    if (s->states.at[branch] > most) {
        s->states.at[branch] = -1;
    }
    for (int i = 0; i < DPE_KEPT_STATES; i++) {
        struct dpe_kept_state *kept = &s->states.kept[i];
        kept->tokens = kept->branch == branch && kept->tokens > most ? 0 : kept->tokens;
    }
}

void dpe_session_states_join(struct dpe_session *s, int64_t most)
{
    for (int64_t b = s->n_branches - 1; b >= 0 && has_states(s); b--) {
        dpe_session_states_cut(s, b, b > 0 ? 0 : most);
    }
}

void dpe_session_states_lost(struct dpe_session *s, int64_t branch)
{
    if (has_states(s)) {
        s->states.at[branch] = -1;
    }
}

void dpe_session_states_passed(struct dpe_session *s, int64_t branch)
{
    if (has_states(s)) {
        s->states.at[branch] = s->length[branch];
        if (s->length[branch] % s->options.prefill_chunk == 0) {
            keep(s, branch);
        }
    }
}

/* The tokens of a branch from its state on, up to the next line of the grid or its end. */
static dpe_status run_again(struct dpe_session *s, int64_t branch, struct dpe_error *err)
{
    int64_t *at = &s->states.at[branch];
    const int64_t chunk = s->options.prefill_chunk;
    const int64_t left = s->length[branch] - *at;
    const int64_t to_line = chunk - *at % chunk;
    const int64_t offset = *at < s->prefix ? 0 : branch * s->room;
    const struct dpe_batch batch = {.tokens = s->tokens + *at + offset,
                                    .rows = left < to_line ? left : to_line,
                                    .start = *at,
                                    .offset = branch * s->room,
                                    .lent = s->lent[branch],
                                    .branch = branch};
    const dpe_status status = dpe_forward(&s->own, &batch, err);
    if (status != DPE_OK) {
        *at = -1;
        return status;
    }
    s->work.fed += batch.rows;
    *at += batch.rows;
    if (*at % chunk == 0) {
        keep(s, branch);
    }
    return DPE_OK;
}

dpe_status dpe_session_states_ready(struct dpe_session *s, int64_t branch, struct dpe_error *err)
{
    if (!has_states(s)) {
        return DPE_OK;
    }
    int64_t *at = &s->states.at[branch];
    const int nearest = find(s, branch, s->length[branch]);
    const int64_t tokens = nearest < 0 ? 0 : s->states.kept[nearest].tokens;
    if (*at < 0 || *at < tokens) {
        copy(s, nearest < 0 ? -1 : s->options.branches + nearest, branch);
        *at = tokens;
    }
    while (*at < s->length[branch]) {
        DPE_TRY(run_again(s, branch, err));
    }
    return DPE_OK;
}

dpe_status dpe_session_states_branch(struct dpe_session *s, struct dpe_error *err)
{
    if (!has_states(s)) {
        return DPE_OK;
    }
    DPE_TRY(dpe_session_states_ready(s, 0, err));
    keep(s, 0);
    for (int64_t b = 1; b < s->options.branches; b++) {
        s->states.at[b] = -1;
    }
    return DPE_OK;
}

void dpe_session_states_copy(struct dpe_session *s, int64_t from, int64_t to, int64_t n)
{
    if (!has_states(s)) {
        return;
    }
    dpe_session_states_cut(s, to, s->prefix);
    s->states.at[to] = -1;
    const int nearest = find(s, from, n);
    const int64_t tokens = nearest < 0 ? 0 : s->states.kept[nearest].tokens;
    const int64_t own = s->states.at[from];
    if (own <= n && own > tokens) {
        copy(s, from, to);
        s->states.at[to] = own;
    } else if (tokens > 0) {
        copy(s, s->options.branches + nearest, to);
        s->states.at[to] = tokens;
    }
}
