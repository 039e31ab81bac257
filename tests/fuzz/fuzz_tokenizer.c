/* tokenizer.json: refused, or a tokenizer whose ids are its own. */
#include <string.h>

#include "engine/base/base.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

static const char text[] =
    "It's 1234 \xc3\xa9t\xc3\xa9s,\n\n  \xe2\x96\x81tabs\t\xf0\x9f\x98\x80 <s> end";

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct dpe_tokenizer *tokenizer = NULL;
    struct dpe_error err = {0};
    if (dpe_tokenizer_open(fuzz_file("tokenizer.json", bytes, n), &tokenizer, &err) != DPE_OK) {
        fuzz_expect(err.text[0] != '\0', "an error has a text");
        return 0;
    }
    struct dpe_tokens tokens = {0};
    const struct dpe_encode_options options = {.add_special = true, .special = DPE_SPECIAL_PARSE};
    if (dpe_tokenizer_encode(tokenizer, text, sizeof text - 1, &options, &tokens, &err) == DPE_OK) {
        for (size_t i = 0; i < tokens.n; i++) {
            fuzz_expect(tokens.ids[i] >= 0 && tokens.ids[i] < dpe_tokenizer_size(tokenizer), "ids");
        }
        struct dpe_text decoded = {0};
        dpe_tokenizer_decode(tokenizer, tokens.ids, tokens.n, false, &decoded, &err);
        dpe_text_free(&decoded);
    }
    dpe_tokens_free(&tokens);
    dpe_tokenizer_close(tokenizer);
    return 0;
}
