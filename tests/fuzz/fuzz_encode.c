/* Any bytes as text under a good byte-level tokenizer: what is valid UTF-8 comes back from its
 * tokens as it was. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/base.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static struct dpe_tokenizer *tokenizer = NULL;
    struct dpe_error err = {0};
    if (tokenizer == NULL) {
        dpe_status status =
            dpe_tokenizer_open(DPE_SOURCE_DIR "/data/reference/tokenizer.json", &tokenizer, &err);
        fuzz_expect(status == DPE_OK, err.text);
    }
    struct dpe_tokens tokens = {0};
    const struct dpe_encode_options options = {.special = DPE_SPECIAL_LITERAL};
    const char *text = (const char *)bytes;
    if (dpe_tokenizer_encode(tokenizer, text, n, &options, &tokens, &err) == DPE_OK) {
        struct dpe_text decoded = {0};
        dpe_status status =
            dpe_tokenizer_decode(tokenizer, tokens.ids, tokens.n, false, &decoded, &err);
        fuzz_expect(status == DPE_OK && decoded.n == n &&
                        (n == 0 || memcmp(decoded.bytes, text, n) == 0),
                    "decode(encode(text)) = text");
        dpe_text_free(&decoded);
    } else {
        fuzz_expect(strstr(err.text, "UTF-8") != NULL, "only invalid UTF-8 is refused");
    }
    dpe_tokens_free(&tokens);
    return 0;
}
