/* Ids to text. As in the reference a decoder maps a list of strings, one per token at first, to
 * another such list; the last list is joined. */
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

/* Strings back to back; string i ends at ends[i]. */
struct strings {
    struct dpe_text bytes;
    size_t *ends;
    size_t n;
};

static void strings_free(struct strings *strings)
{
    dpe_text_free(&strings->bytes);
    free(strings->ends);
}

static const char *string_at(const struct strings *strings, size_t i, size_t *n)
{
    size_t start = i == 0 ? 0 : strings->ends[i - 1];
    *n = strings->ends[i] - start;
    return strings->bytes.bytes != NULL ? strings->bytes.bytes + start : "";
}

/* Ends the string that was being appended to strings->bytes. */
static dpe_status end_string(struct strings *strings, struct dpe_error *err)
{
    DPE_TRY(
        DPE_ROOM(&strings->ends, strings->n, err, "no memory for decoding %zu tokens", strings->n));
    strings->ends[strings->n++] = strings->bytes.n;
    return DPE_OK;
}

static dpe_status add_string(struct strings *strings, const char *bytes, size_t n,
                             struct dpe_error *err)
{
    DPE_TRY(dpe_text_append(&strings->bytes, bytes, n, err));
    return end_string(strings, err);
}

/* Each token whose characters are all of the alphabet gives bytes, others their own UTF-8.
 * `inside`: see decode_strings. */
static dpe_status decode_byte_level(const struct dpe_vocab *vocab, bool inside,
                                    const struct strings *in, struct strings *out,
                                    struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text bytes = {0};
    for (size_t i = 0; i < in->n; i++) {
        size_t n = 0;
        const char *token = string_at(in, i, &n);
        bool mapped = false;
        DPE_TRY(dpe_vocab_bytes(vocab, token, n, &bytes, &mapped, err));
        DPE_TRY(mapped ? DPE_OK : dpe_text_append(&bytes, token, n, err));
    }
    DPE_TRY(inside ? dpe_text_append(&out->bytes, bytes.n > 0 ? bytes.bytes : "", bytes.n, err)
                   : dpe_utf8_repair(bytes.bytes, bytes.n, &out->bytes, err));
    return end_string(out, err);
}

/* The byte that "<0x1F>" stands for, −1 for any other token. The reference reads the two digits as
 * Rust reads a number, which may have a plus sign. */
static int fallback_byte(const char *token, size_t n)
{
    if (n != 6 || memcmp(token, "<0x", 3) != 0 || token[5] != '>') {
        return -1;
    }
    int high = token[3] == '+' ? 0 : dpe_hex_digit(token[3]), low = dpe_hex_digit(token[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Bytes that are not UTF-8 together become as many U+FFFD. */
static dpe_status end_bytes(struct dpe_text *bytes, bool inside, struct strings *out,
                            struct dpe_error *err)
{
    if (bytes->n > 0 && (inside || dpe_utf8_check(bytes->bytes, bytes->n) == bytes->n)) {
        DPE_TRY(add_string(out, bytes->bytes, bytes->n, err));
    } else {
        for (size_t i = 0; i < bytes->n; i++) {
            DPE_TRY(add_string(out, "\xef\xbf\xbd", 3, err));
        }
    }
    bytes->n = 0;
    return DPE_OK;
}

static dpe_status decode_byte_fallback(bool inside, const struct strings *in, struct strings *out,
                                       struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text bytes = {0};
    for (size_t i = 0; i < in->n; i++) {
        size_t n = 0;
        const char *token = string_at(in, i, &n);
        int value = fallback_byte(token, n);
        if (value >= 0) {
            char byte = (char)value;
            DPE_TRY(dpe_text_append(&bytes, &byte, 1, err));
            continue;
        }
        DPE_TRY(end_bytes(&bytes, inside, out, err));
        DPE_TRY(add_string(out, token, n, err));
    }
    return end_bytes(&bytes, inside, out, err);
}

static bool has_character(const struct dpe_text *character, const char *at, size_t left)
{
    return left >= character->n && memcmp(at, character->bytes, character->n) == 0;
}

static dpe_status decode_strip(const struct dpe_decoder *decoder, const char *token, size_t n,
                               struct dpe_text *out, struct dpe_error *err)
{
    const size_t step = decoder->content.n;
    size_t start = 0, end = n;
    for (size_t i = 0; i < decoder->start; i++) {
        if (!has_character(&decoder->content, token + start, end - start)) {
            break;
        }
        start += step;
    }
    for (size_t i = 0; i < decoder->stop && end - start >= step; i++) {
        if (!has_character(&decoder->content, token + end - step, step)) {
            break;
        }
        end -= step;
    }
    return dpe_text_append(out, token + start, end - start, err);
}

static dpe_status decode_each(const struct dpe_decoder *decoder, bool inside,
                              const struct strings *in, struct strings *out, struct dpe_error *err)
{
    for (size_t i = 0; i < in->n; i++) {
        size_t n = 0;
        const char *token = string_at(in, i, &n);
        struct dpe_text content = decoder->content;
        content.n = decoder->drop_first && i == 0 && !inside ? 0 : content.n;
        DPE_TRY(
            decoder->kind == DPE_DECODE_STRIP
                ? decode_strip(decoder, token, n, &out->bytes, err)
                : dpe_replace_all(&decoder->pattern, &content, token, n, &out->bytes, NULL, err));
        DPE_TRY(end_string(out, err));
    }
    return DPE_OK;
}

static dpe_status run_decoder(const struct dpe_vocab *vocab, const struct dpe_decoder *decoder,
                              bool inside, const struct strings *in, struct strings *out,
                              struct dpe_error *err)
{
    switch (decoder->kind) {
    case DPE_DECODE_BYTE_LEVEL:
        return decode_byte_level(vocab, inside, in, out, err);
    case DPE_DECODE_BYTE_FALLBACK:
        return decode_byte_fallback(inside, in, out, err);
    case DPE_DECODE_FUSE:
        return add_string(out, in->bytes.bytes, in->bytes.n, err);
    default:
        return decode_each(decoder, inside, in, out, err);
    }
}

static dpe_status collect(const struct dpe_tokenizer *t, const int32_t *ids, size_t n,
                          bool skip_special, struct strings *out, struct dpe_error *err)
{
    const struct dpe_vocab *vocab = &t->vocab;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= vocab->n_ids || !vocab->known[ids[i]]) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "token %zu has id %d, which is not in the vocabulary", i, (int)ids[i]);
        }
        const struct dpe_added_token *added = t->added_by_id[ids[i]];
        if (added != NULL) {
            DPE_TRY(added->hide && skip_special
                        ? DPE_OK
                        : add_string(out, added->content.bytes, added->content.n, err));
            continue;
        }
        struct dpe_token_span span = vocab->text[ids[i]];
        DPE_TRY(add_string(out, vocab->arena.bytes + span.offset, span.n, err));
    }
    return DPE_OK;
}

static dpe_status join(const struct strings *strings, bool spaced, struct dpe_text *out,
                       struct dpe_error *err)
{
    /* The terminating NUL is there even when nothing was decoded. */
    DPE_TRY(dpe_text_append(out, "", 0, err));
    for (size_t i = 0; i < strings->n; i++) {
        size_t n = 0;
        const char *bytes = string_at(strings, i, &n);
        DPE_TRY(spaced && i > 0 ? dpe_text_append(out, " ", 1, err) : DPE_OK);
        DPE_TRY(dpe_text_append(out, bytes, n, err));
    }
    return DPE_OK;
}

/* `inside`: the ids stand inside a text, of whose other tokens nothing is known. A character may be
 * completed by its neighbours, and what follows a Fuse acts on the ends of the whole text. */
static dpe_status decode_strings(const struct dpe_tokenizer *tokenizer, const int32_t *ids,
                                 size_t n, bool skip_special, bool inside, struct dpe_text *out,
                                 struct dpe_error *err)
{
    DPE_SCOPED(strings_free) struct strings first = {0};
    DPE_SCOPED(strings_free) struct strings second = {0};
    struct strings *from = &first, *to = &second;
    DPE_TRY(collect(tokenizer, ids, n, skip_special, from, err));
    for (size_t i = 0; i < tokenizer->n_decoders; i++) {
        const struct dpe_decoder *decoder = tokenizer->decoders + i;
        if (inside && decoder->kind == DPE_DECODE_FUSE) {
            break;
        }
        to->n = 0;
        to->bytes.n = 0;
        DPE_TRY(run_decoder(&tokenizer->vocab, decoder, inside, from, to, err));
        struct strings *swap = from;
        from = to;
        to = swap;
    }
    size_t n_before = out->n;
    const dpe_status status = join(from, !tokenizer->has_decoder, out, err);
    if (status != DPE_OK && out->bytes != NULL) {
        out->n = n_before;
        out->bytes[n_before] = '\0';
    }
    return status;
}

dpe_status dpe_tokenizer_decode(const struct dpe_tokenizer *tokenizer, const int32_t *ids, size_t n,
                                bool skip_special, struct dpe_text *out, struct dpe_error *err)
{
    return decode_strings(tokenizer, ids, n, skip_special, false, out, err);
}

dpe_status dpe_tokenizer_bytes(const struct dpe_tokenizer *tokenizer, int32_t id, bool skip_special,
                               struct dpe_text *out, struct dpe_error *err)
{
    return decode_strings(tokenizer, &id, 1, skip_special, true, out, err);
}
