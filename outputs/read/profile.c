/* The one reader of a dpe-norms profile. */
#include "outputs/read/read.h"

#include <stdlib.h>
#include <string.h>

#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"

static const char ranking_path[] = "/norms/top_k_index";

static dpe_status check_origin(struct dpe_h5 *table, const char *path,
                               const struct dpe_profile_model *model, struct dpe_error *err)
{
    DPE_OWNED char *fingerprint = NULL;
    int64_t complete = 0;
    bool profile = dpe_h5_has(table, ranking_path);
    DPE_TRY(dpe_h5_answered(table, err));
    if (!profile) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected a profile of dpe-norms, found none", path);
    }
    DPE_TRY(dpe_h5_get_attr_text(table, "/model", "fingerprint", &fingerprint, err));
    if (model->fingerprint != NULL && strcmp(fingerprint, model->fingerprint) != 0) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: expected a profile of the model %.16s…, found one of %.16s…; run "
                        "dpe-norms on that model",
                        path, model->fingerprint, fingerprint);
    }
    DPE_TRY(dpe_h5_get_attr_i64(table, "/", "complete", &complete, err));
    return complete == 1
               ? DPE_OK
               : dpe_fail(err, DPE_BAD_DATA,
                          "%s: the profile is not complete; run the same dpe-norms command again "
                          "to finish it",
                          path);
}

/* Every row is an order of its pairs. */
static dpe_status check_ranking(const uint16_t *ranking, const char *path,
                                const struct dpe_profile_model *model, struct dpe_error *err)
{
    size_t n_pairs = (size_t)model->n_pairs;
    DPE_OWNED unsigned char *seen = NULL;
    DPE_TRY(DPE_NEW(&seen, n_pairs, err, "%s: out of memory for key pairs", path));
    for (int64_t row = 0; row < model->n_layers * model->n_heads; row++) {
        memset(seen, 0, n_pairs);
        for (size_t i = 0; i < n_pairs; i++) {
            size_t pair = ranking[(size_t)row * n_pairs + i];
            if (pair >= n_pairs || seen[pair]++ != 0) {
                return dpe_fail(err, DPE_BAD_DATA,
                                "%s: %s: layer %lld, head %lld: expected each pair from 0 to %zu "
                                "once, found %zu%s",
                                path, ranking_path, (long long)(row / model->n_heads),
                                (long long)(row % model->n_heads), n_pairs - 1, pair,
                                pair < n_pairs ? " twice" : "");
            }
        }
    }
    return DPE_OK;
}

static void free_result(struct dpe_norms_result *result)
{
    dpe_datasets_free(&dpe_norms_kind, result);
}

static dpe_status read_pairs(struct dpe_h5 *table, const char *path,
                             const struct dpe_profile_model *model, bool scores,
                             struct dpe_profile *profile, struct dpe_error *err)
{
    DPE_SCOPED(free_result) struct dpe_norms_result r = {0};
    if (dpe_datasets_get(&dpe_norms_kind, &r, "/norms",
                         scores ? "contribution top_k_index" : "top_k_index", table,
                         err) != DPE_OK) {
        return dpe_fail_prefix(err, "%s", path);
    }
    if (r.n[DPE_NORMS_LAYER] != model->n_layers || r.n[DPE_NORMS_HEAD] != model->n_heads ||
        r.n[DPE_NORMS_K] != model->n_pairs || (scores && r.n[DPE_NORMS_PAIR] != model->n_pairs)) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: %s: expected %lld layers, %lld heads and %lld pairs, found another "
                        "shape",
                        path, ranking_path, (long long)model->n_layers, (long long)model->n_heads,
                        (long long)model->n_pairs);
    }
    profile->ranking = r.ranking;
    profile->scores = r.contribution;
    memcpy(profile->score_dims, r.n, sizeof profile->score_dims);
    r.ranking = NULL;
    r.contribution = NULL;
    return check_ranking(profile->ranking, path, model, err);
}

dpe_status dpe_profile_read(const char *path, const struct dpe_profile_model *model, bool scores,
                            struct dpe_profile *profile, struct dpe_error *err)
{
    DPE_SCOPED(dpe_h5_close_scoped) struct dpe_h5 *table = NULL;
    *profile = (struct dpe_profile){0};
    DPE_TRY(dpe_h5_open(path, &table, err));
    DPE_TRY(check_origin(table, path, model, err));
    DPE_TRY(dpe_h5_get_attr_text(table, "/", "identity", &profile->identity, err));
    return read_pairs(table, path, model, scores, profile, err);
}

void dpe_profile_free(struct dpe_profile *profile)
{
    free(profile->ranking);
    free(profile->identity);
    free(profile->scores);
    *profile = (struct dpe_profile){0};
}
