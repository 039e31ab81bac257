/* Method specifications from a command line: refused, or a plan that passes its own check. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"
#include "eval/niah/niah.h"
#include "tests/fuzz/fuzz.h"

/* A query sees what its selection says: as many keys as are counted, each once and none after it,
 * its own one among them, at places from 0 to its own. */
static void expect_runs(const struct dpe_selection *s, int64_t m)
{
    enum { MOST = 4096 };
    static double scores[MOST];
    static int32_t blocks[MOST];
    static int32_t slashes[MOST];
    static struct dpe_key_run runs[2 * MOST + 3];
    int64_t candidates = dpe_selection_candidates(s, m);
    int64_t distances = dpe_selection_distances(s, m);
    fuzz_expect(candidates >= 0 && candidates < MOST, "no more candidates than keys");
    fuzz_expect(distances >= 0 && distances < MOST, "no more distances than keys");
    for (int64_t i = 0; i < MOST; i++) {
        scores[i] = (double)(i * 7919 % 31);
    }
    int64_t query = 0;
    int64_t keys = 0;
    int64_t before = 0;
    const struct dpe_choice choice = {
        .blocks = blocks,
        .slashes = slashes,
        .n_blocks = dpe_selection_choose(scores, candidates, s->k, blocks),
        .n_slashes = dpe_selection_choose(scores, distances, s->slashes, slashes),
    };
    int64_t n = dpe_selection_runs(s, m, &choice, runs, &query);
    fuzz_expect(n <= choice.n_blocks + choice.n_slashes + 3, "as many runs as there is room for");
    for (int64_t i = 0; i < n; i++) {
        int64_t last = runs[i].place + (runs[i].constant ? 0 : runs[i].end - runs[i].first - 1);
        fuzz_expect(before <= runs[i].first && runs[i].first < runs[i].end, "runs in order");
        fuzz_expect(runs[i].place >= 0 && last <= query, "places up to the query's");
        before = runs[i].end;
        keys += runs[i].end - runs[i].first;
    }
    fuzz_expect(before == m + 1 && query <= m, "the query's own key");
    int64_t most = dpe_selection_keys(s, m);
    fuzz_expect(s->slashes > 0 ? keys <= most : keys == most, "as many keys as are counted");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    char *spec = malloc(n + 1);
    fuzz_expect(spec != NULL, "memory");
    memcpy(spec, bytes, n);
    spec[n] = '\0';
    struct dpe_config config = {.n_layers = 2,
                                .n_heads = 4,
                                .n_kv_heads = 2,
                                .head_dim = 16,
                                .max_position = 256,
                                .rope = {.theta = 10000.0, .partial_rotary_factor = 1.0}};
    const struct dpe_plan_context context = {
        .config = &config, .trained_length = 256, .length = 4096};
    struct dpe_plan plan;
    struct dpe_error err = {0};
    if (dpe_plan_make(spec, &context, &plan, &err) == DPE_OK) {
        fuzz_expect(dpe_plan_check(&plan, &err) == DPE_OK, err.text);
        static const int64_t at[] = {0, 1, 31, 255, 256, 4095};
        for (int i = 0; i < 6; i++) {
            for (int j = 0; j <= i; j++) {
                dpe_plan_position(&plan, 1, 3, 7, at[i], at[j]);
            }
            if (dpe_selects(&plan.selection)) {
                expect_runs(&plan.selection, at[i]);
            }
        }
        dpe_plan_free(&plan);
    } else {
        fuzz_expect(err.text[0] != '\0', "an error has a text");
    }
    struct dpe_niah_params params;
    dpe_niah_defaults(&params);
    (void)dpe_niah_parse(spec, &params, &err);
    free(spec);
    return 0;
}
