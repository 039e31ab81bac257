/* How fast this machine is, from a short prefill. */
#include "outputs/job/estimate.h"

#include <stdlib.h>

/* Ids 1, 2, 3, … repeated: every vocabulary has them, and their meaning does not change the speed.
 */
static void fill_tokens(int32_t *tokens, int64_t n, int64_t vocab)
{
    int64_t period = vocab > 256 ? 255 : vocab - 1;
    for (int64_t i = 0; i < n; i++) {
        tokens[i] = period > 0 ? (int32_t)(1 + i % period) : 0;
    }
}

static dpe_status time_prefill(struct dpe_session *session, const int32_t *tokens, int64_t n,
                               double *seconds, struct dpe_error *err)
{
    dpe_status status = dpe_session_cut(session, 0, err);
    double begin = dpe_clock();
    if (status == DPE_OK) {
        status = dpe_session_feed(session, tokens, n, NULL, err);
    }
    *seconds = dpe_clock() - begin;
    return status;
}

/* Two prefills give two equations in the two rates; where noise makes one negative, all time is
 * shared out evenly over the operations. */
static void solve(const struct dpe_config *config, const int64_t n[2], const double seconds[2],
                  struct dpe_job_speed *speed)
{
    double products[2];
    double attention[2];
    for (int i = 0; i < 2; i++) {
        dpe_config_flops(config, 0, n[i], 0, &products[i], &attention[i]);
    }
    double determinant = products[0] * attention[1] - products[1] * attention[0];
    if (n[0] > 0 && n[0] < n[1] && determinant > 0.0) {
        speed->per_product = (seconds[0] * attention[1] - seconds[1] * attention[0]) / determinant;
        speed->per_attention = (products[0] * seconds[1] - products[1] * seconds[0]) / determinant;
    }
    if (!(speed->per_product > 0.0 && speed->per_attention > 0.0)) {
        speed->per_product = seconds[1] / (products[1] + attention[1]);
        speed->per_attention = speed->per_product;
    }
}

/* Tokens after those in the cache. */
static dpe_status time_generation(struct dpe_session *session, const int32_t *tokens,
                                  double *per_token, struct dpe_error *err)
{
    enum { NEW_TOKENS = 8 };
    struct dpe_tokens out = {0};
    const struct dpe_generate_options options = {.max_new = NEW_TOKENS, .ignore_eos = true};
    double begin = dpe_clock();
    dpe_status status = dpe_session_generate(session, tokens, 1, &options, &out, err);
    *per_token = (dpe_clock() - begin) / NEW_TOKENS;
    dpe_tokens_free(&out);
    return status;
}

dpe_status dpe_job_measure(struct dpe_session *session, const struct dpe_config *config,
                           int64_t most, double enough, struct dpe_job_speed *speed,
                           struct dpe_error *err)
{
    enum { SHORTEST = 64, ROOM = 16 };
    *speed = (struct dpe_job_speed){0};
    if (most <= ROOM) {
        return dpe_fail(err, DPE_USAGE, "a prefill of %lld tokens is too short to measure",
                        (long long)most);
    }
    most -= ROOM;
    int32_t *tokens = dpe_alloc((size_t)most, sizeof *tokens);
    if (tokens == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for %lld tokens", (long long)most);
    }
    fill_tokens(tokens, most, config->vocab);
    int64_t n[2] = {0, most < SHORTEST ? most : SHORTEST};
    double seconds[2] = {0.0, 0.0};
    /* The first touch of weights and buffers takes longer than what follows. */
    dpe_status status = time_prefill(session, tokens, n[1], &seconds[1], err);
    while (status == DPE_OK) {
        status = time_prefill(session, tokens, n[1], &seconds[1], err);
        if (status != DPE_OK || seconds[1] >= enough || n[1] >= most) {
            break;
        }
        n[0] = n[1];
        seconds[0] = seconds[1];
        n[1] = 2 * n[1] < most ? 2 * n[1] : most;
    }
    if (status == DPE_OK) {
        solve(config, n, seconds, speed);
        speed->tokens = n[1];
        speed->seconds = seconds[1];
        status = time_generation(session, tokens, &speed->per_new_token, err);
    }
    free(tokens);
    return status;
}
