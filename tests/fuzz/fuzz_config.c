/* config.json and generation_config.json: whatever they hold, a reason or a configuration whose
 * numbers the rest of the engine can rely on. */
#include "engine/base/base.h"
#include "engine/model/config/config_parse.h"
#include "engine/model/model.h"
#include "tests/fuzz/fuzz.h"

static const char good[] =
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":128,\"num_hidden_layers\":"
    "2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":64,"
    "\"max_position_embeddings\":128,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0}";

static void try(const char *json, size_t n, const char *generation, size_t n_generation)
{
    struct dpe_config config = {0};
    struct dpe_error err = {0};
    dpe_status status = dpe_config_parse("config.json", json, n, "generation_config.json",
                                         generation, n_generation, &config, &err);
    if (status != DPE_OK) {
        fuzz_expect(err.text[0] != '\0', "an error has a text");
    } else {
        fuzz_expect(config.n_layers > 0 && config.n_kv_heads > 0 && config.vocab > 0, "counts");
        fuzz_expect(config.n_heads % config.n_kv_heads == 0, "heads divide");
        fuzz_expect(config.head_dim > 0 && config.head_dim % 2 == 0 &&
                        config.head_dim <= DPE_CONFIG_MAX_HEAD_DIM,
                    "head_dim");
        fuzz_expect(dpe_config_parameters(&config) > 0, "the number of weights is positive");
    }
    dpe_config_release(&config);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    try((const char *)bytes, n, NULL, 0);
    try(good, sizeof good - 1, (const char *)bytes, n);
    return 0;
}
