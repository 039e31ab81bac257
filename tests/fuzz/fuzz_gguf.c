/* One GGUF file: refused with a reason, or every tensor lies inside it, the model's tensors can be
 * read, and its tokenizer gives ids of its vocabulary. */
#include <stdlib.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "engine/model/config/layer_weights.h"
#include "engine/model/model.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

static void read_header(const char *path, size_t n)
{
    struct dpe_gguf *gguf = NULL;
    struct dpe_error err = {0};
    dpe_status status = dpe_gguf_open(path, &gguf, &err);
    fuzz_expect(status == DPE_OK || err.text[0] != '\0', "an error has a text");
    for (size_t i = 0; status == DPE_OK && i < gguf->n_tensors; i++) {
        const struct dpe_gguf_tensor *tensor = &gguf->tensors[i];
        fuzz_expect(tensor->begin <= tensor->end && tensor->end <= n, "tensors lie inside");
        fuzz_expect(tensor->rank >= 1 && tensor->rank <= DPE_GGUF_RANK, "rank");
    }
    dpe_gguf_close(gguf);
}

/* The last row is read: it lies inside, or the sanitizer says so. */
static void read_last(const struct dpe_tensor *tensor)
{
    float value = 0.0F;
    if (tensor->data != NULL) {
        dpe_dtype_read(tensor->dtype, tensor->data, tensor->rows * tensor->cols - 1, 1, &value);
    }
}

static void open_model(const char *path)
{
    struct dpe_model *model = NULL;
    struct dpe_error err = {0};
    if (dpe_model_open(path, NULL, &model, &err) != DPE_OK) {
        fuzz_expect(err.text[0] != '\0', "an error has a text");
        return;
    }
    const struct dpe_weights *weights = dpe_model_weights(model);
    read_last(&weights->embedding);
    for (int64_t i = 0; i < dpe_model_config(model)->n_layers; i++) {
        for (int which = 0; which < DPE_WEIGHTS_PER_LAYER; which++) {
            read_last(&weights->layers[i].weight[which]);
        }
    }
    dpe_model_close(model);
}

static void open_tokenizer(const char *path)
{
    static const char text[] = "a b ab<|end|> \xe2\x96\x81 1";
    const struct dpe_encode_options options = {.add_special = true, .special = DPE_SPECIAL_PARSE};
    struct dpe_tokenizer *tokenizer = NULL;
    struct dpe_tokens ids = {0};
    struct dpe_error err = {0};
    if (dpe_tokenizer_open(path, &tokenizer, &err) != DPE_OK) {
        fuzz_expect(err.text[0] != '\0', "an error has a text");
        return;
    }
    if (dpe_tokenizer_encode(tokenizer, text, sizeof text - 1, &options, &ids, &err) == DPE_OK) {
        for (size_t i = 0; i < ids.n; i++) {
            fuzz_expect(ids.ids[i] >= 0 && ids.ids[i] < dpe_tokenizer_size(tokenizer), "ids");
        }
    }
    dpe_tokens_free(&ids);
    dpe_tokenizer_close(tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    char *path = strdup(fuzz_file("model.gguf", bytes, n));
    read_header(path, n);
    open_model(path);
    open_tokenizer(path);
    free(path);
    return 0;
}
