/* The tokenizer at the end of a pipe, for tokenizer_diff.py: requests on stdin, answers on stdout,
 * all numbers little-endian 32-bit as on the machine.
 *     encode: 'e', flags (1 add_special, 2 literal, 4 parse, 8 replace_invalid), n, n bytes
 *             → status, number of ids, ids
 *     decode: 'd', flags (1 skip_special), n, n ids → status, number of bytes, bytes
 * A failure answers with its status and its message as bytes (encode: number of bytes). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/base.h"
#include "engine/tokenizer/tokenizer.h"

static bool read_all(void *to, size_t n)
{
    return n == 0 || fread(to, 1, n, stdin) == n;
}

static void answer(uint32_t status, const void *bytes, uint32_t count, size_t size)
{
    fwrite(&status, sizeof status, 1, stdout);
    fwrite(&count, sizeof count, 1, stdout);
    fwrite(bytes, size, count, stdout);
    fflush(stdout);
}

static void encode(const struct dpe_tokenizer *tokenizer, uint32_t flags, const char *text,
                   size_t n)
{
    struct dpe_tokens tokens = {0};
    struct dpe_error err = {0};
    struct dpe_encode_options options = {
        .add_special = (flags & 1) != 0,
        .special = (flags & 2) != 0   ? DPE_SPECIAL_LITERAL
                   : (flags & 4) != 0 ? DPE_SPECIAL_PARSE
                                      : DPE_SPECIAL_ERROR,
        .replace_invalid = (flags & 8) != 0,
    };
    dpe_status status = dpe_tokenizer_encode(tokenizer, text, n, &options, &tokens, &err);
    if (status != DPE_OK) {
        answer(status, err.text, (uint32_t)strlen(err.text), 1);
    } else {
        answer(0, tokens.ids, (uint32_t)tokens.n, sizeof *tokens.ids);
    }
    dpe_tokens_free(&tokens);
}

static void decode(const struct dpe_tokenizer *tokenizer, uint32_t flags, const void *ids, size_t n)
{
    struct dpe_text text = {0};
    struct dpe_error err = {0};
    dpe_status status = dpe_tokenizer_decode(tokenizer, ids, n, (flags & 1) != 0, &text, &err);
    if (status != DPE_OK) {
        answer(status, err.text, (uint32_t)strlen(err.text), 1);
    } else {
        answer(0, text.bytes, (uint32_t)text.n, 1);
    }
    dpe_text_free(&text);
}

int main(int argc, char **argv)
{
    struct dpe_tokenizer *tokenizer = NULL;
    struct dpe_error err = {0};
    if (argc != 2 || dpe_tokenizer_open(argv[1], &tokenizer, &err) != DPE_OK) {
        fprintf(stderr, "%s\n", argc == 2 ? err.text : "usage: tokenizer_probe FILE");
        return argc == 2 ? dpe_exit_code(err.status) : DPE_USAGE;
    }
    char what = 0;
    uint32_t flags = 0, n = 0;
    while (read_all(&what, 1) && read_all(&flags, 4) && read_all(&n, 4)) {
        size_t size = (size_t)n * (what == 'd' ? 4 : 1);
        void *payload = malloc(size + 1);
        if (payload == NULL || !read_all(payload, size)) {
            free(payload);
            break;
        }
        if (what == 'd') {
            decode(tokenizer, flags, payload, n);
        } else {
            encode(tokenizer, flags, payload, n);
        }
        free(payload);
    }
    dpe_tokenizer_close(tokenizer);
    return 0;
}
