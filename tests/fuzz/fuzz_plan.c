/* Method specifications from a command line: refused, or a plan that passes its own check. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "eval/niah/niah.h"
#include "tests/fuzz/fuzz.h"

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
