/* One safetensors file: refused, or every tensor lies inside it. */
#include <stdlib.h>

#include "engine/model/weights/safetensors.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    fuzz_file("model.safetensors", bytes, n);
    struct dpe_shard shard = {.fd = -1};
    struct dpe_shard_table table = {0};
    struct dpe_error err = {0};
    struct dpe_sha256 *hash = dpe_sha256_new();
    dpe_status status =
        dpe_shard_open(fuzz_folder(), "model.safetensors", 0, &shard, &table, hash, &err);
    char hex[65];
    (void)dpe_sha256_finish(hash, hex, NULL);
    if (status == DPE_OK) {
        status = dpe_shard_table_sort(&table, &shard, &err);
        for (size_t i = 0; i < table.n; i++) {
            const struct dpe_shard_tensor *tensor = &table.tensors[i];
            fuzz_expect(tensor->begin <= tensor->end && tensor->end <= n, "tensors lie inside");
            fuzz_expect(tensor->rank >= 0 && tensor->rank <= DPE_SAFETENSORS_RANK, "rank");
        }
    }
    fuzz_expect(status == DPE_OK || err.text[0] != '\0', "an error has a text");
    free(table.tensors);
    dpe_shard_close(&shard);
    return 0;
}
