/* Text to ids: added tokens, normalisers, pre-tokenizer steps, BPE, post-processor. Pieces stream
 * depth first through the steps; no list of them is ever kept. */
#include "engine/text/json.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/tokenizer_parts.h"

#include <string.h>

struct encoder {
    const struct dpe_tokenizer *tokenizer;
    enum dpe_special_policy special;
    const char *advice;
    struct dpe_encode_work work;
    struct dpe_bpe bpe;
    struct dpe_matcher matcher;
    struct dpe_text normal[2];
    struct dpe_text step[DPE_MAX_STEPS]; /* steps that rewrite their piece do it here */
    struct dpe_tokens *out;
    const char *text;  /* the whole input, repaired if need be, */
    size_t n_held;     /* and what the caller and the repaired form of it hold, in bytes */
    size_t special_at; /* offset of the special text that was refused, SIZE_MAX: none was */
    struct dpe_error *err;
};

/* A piece of text on its way through the steps. `inserted` ≥ 0: it begins where the input begins,
 * and its first `inserted` bytes were put before it; −1: it begins later. */
struct piece {
    const char *text;
    size_t n;
    int64_t inserted;
};

static struct piece part(const struct piece *piece, size_t start, size_t end)
{
    bool first = piece->inserted >= 0 && (uint64_t)piece->inserted >= start;
    return (struct piece){piece->text + start, end - start,
                          first ? piece->inserted - (int64_t)start : -1};
}

/* --------------------------------------------------------------------------------------- limits */

void dpe_tokenizer_set_limits(struct dpe_tokenizer *tokenizer,
                              const struct dpe_tokenizer_limits *limits)
{
    tokenizer->limits = *limits;
}

dpe_status dpe_encode_look(struct dpe_encode_work *work, uint64_t more, struct dpe_error *err)
{
    const struct dpe_tokenizer_limits *limits = work->limits;
    work->since = 0;
    if (limits->max_memory > 0) {
        uint64_t held = work->held(work->user) + more;
        if (held > limits->max_memory) {
            return dpe_fail(err, DPE_NO_MEMORY,
                            "tokenizing needs %.3g MiB, %.3g MiB are allowed; use a shorter text, "
                            "or allow more with --max-memory",
                            (double)held / 0x1p20, (double)limits->max_memory / 0x1p20);
        }
    }
    return limits->poll != NULL ? limits->poll(limits->user, err) : DPE_OK;
}

static uint64_t bytes_held(const void *user)
{
    const struct encoder *e = user;
    uint64_t held = e->n_held + e->normal[0].capacity + e->normal[1].capacity;
    for (size_t i = 0; i < e->tokenizer->n_steps; i++) {
        held += e->step[i].capacity;
    }
    held += sizeof *e->out->ids * (e->out->capacity + e->bpe.symbols.capacity);
    return held + (2 * sizeof *e->bpe.links + 3 * sizeof *e->bpe.heap) * e->bpe.link_capacity;
}

/* ---------------------------------------------------------------------------------- normalisers */

dpe_status dpe_replace_all(const struct dpe_text *pattern, const struct dpe_text *content,
                           const char *text, size_t n, struct dpe_text *out,
                           struct dpe_encode_work *work, struct dpe_error *err)
{
    size_t done = 0;
    for (size_t at = 0; at + pattern->n <= n;) {
        const char *hit = memchr(text + at, pattern->bytes[0], n - pattern->n + 1 - at);
        if (hit == NULL) {
            break;
        }
        DPE_TRY(dpe_encode_did(work, (size_t)(hit - text) - at + 1, err));
        at = (size_t)(hit - text);
        if (memcmp(hit, pattern->bytes, pattern->n) != 0) {
            at++;
            continue;
        }
        DPE_TRY(dpe_text_append(out, text + done, at - done, err));
        DPE_TRY(dpe_text_append(out, content->bytes, content->n, err));
        DPE_TRY(dpe_encode_did(work, content->n, err));
        at += pattern->n;
        done = at;
    }
    return dpe_text_append(out, text + done, n - done, err);
}

dpe_status dpe_normalize(const struct dpe_tokenizer *tokenizer, const char *text, size_t n,
                         struct dpe_text buffers[2], const char **result, size_t *n_result,
                         size_t *inserted, struct dpe_encode_work *work, struct dpe_error *err)
{
    *inserted = 0;
    for (size_t i = 0; i < tokenizer->n_normalizers; i++) {
        const struct dpe_normalizer *normalizer = tokenizer->normalizers + i;
        if (n == 0) {
            break;
        }
        struct dpe_text *out = text == buffers[0].bytes ? buffers + 1 : buffers;
        out->n = 0;
        switch (normalizer->kind) {
        case DPE_NORMALIZE_FORM:
            DPE_TRY(dpe_form(normalizer->form, text, n, out, work, err));
            break;
        case DPE_NORMALIZE_PREPEND:
            *inserted += normalizer->content.n;
            DPE_TRY(dpe_text_append(out, normalizer->content.bytes, normalizer->content.n, err));
            DPE_TRY(dpe_text_append(out, text, n, err));
            break;
        case DPE_NORMALIZE_REPLACE:
            DPE_TRY(dpe_replace_all(&normalizer->pattern, &normalizer->content, text, n, out, work,
                                    err));
            break;
        }
        text = out->bytes;
        n = out->n;
    }
    *result = text;
    *n_result = n;
    return DPE_OK;
}

/* -------------------------------------------------------------------------- pre-tokenizer steps */

static dpe_status run_steps(struct encoder *e, size_t i, struct piece piece);

/* Parts of a piece in order, matches of a pattern and what lies between; the behavior decides which
 * are joined before they go on to the next step. */
struct cutter {
    struct encoder *encoder;
    size_t next; /* step that the parts go to */
    const struct piece *piece;
    enum dpe_split_behavior behavior;
    bool invert;
    bool holding, held_is_match; /* a part that the next one may join */
    size_t start, end;
};

static dpe_status emit(struct cutter *c, size_t start, size_t end)
{
    return start == end ? DPE_OK : run_steps(c->encoder, c->next, part(c->piece, start, end));
}

static dpe_status flush(struct cutter *c)
{
    bool held = c->holding;
    c->holding = false;
    return held ? emit(c, c->start, c->end) : DPE_OK;
}

static dpe_status cut(struct cutter *c, size_t start, size_t end, bool is_match)
{
    is_match = is_match != c->invert;
    bool joins = false;
    switch (c->behavior) {
    case DPE_SPLIT_ISOLATED:
        return emit(c, start, end);
    case DPE_SPLIT_REMOVED:
        return is_match ? DPE_OK : emit(c, start, end);
    case DPE_SPLIT_MERGED_WITH_PREVIOUS:
        joins = is_match && !c->held_is_match;
        break;
    case DPE_SPLIT_MERGED_WITH_NEXT:
        joins = !is_match && c->held_is_match;
        break;
    case DPE_SPLIT_CONTIGUOUS:
        joins = is_match == c->held_is_match;
        break;
    }
    dpe_status status = DPE_OK;
    if (!c->holding || !joins) {
        status = flush(c);
        c->start = start;
    }
    c->holding = true;
    c->held_is_match = is_match;
    c->end = end;
    return status;
}

static dpe_status split_by_pattern(struct cutter *c, const struct dpe_pattern *pattern)
{
    const struct piece *piece = c->piece;
    struct encoder *e = c->encoder;
    size_t at = 0, done = 0, match_end = SIZE_MAX;
    while (at <= piece->n) {
        bool found = false;
        size_t start = 0, end = 0;
        DPE_TRY(dpe_pattern_find(pattern, &e->matcher, piece->text, piece->n, at, &found, &start,
                                 &end, e->err));
        if (!found) {
            break;
        }
        DPE_TRY(dpe_encode_did(&e->work, end - at, e->err));
        if (start == end && match_end == end) {
            size_t step = 1;
            if (at < piece->n) {
                dpe_utf8_next(piece->text + at, &step);
            }
            at += step;
            continue;
        }
        at = end;
        match_end = end;
        if (done != start) {
            DPE_TRY(cut(c, done, start, false));
        }
        DPE_TRY(cut(c, start, end, true));
        done = end;
    }
    if (done != piece->n) {
        DPE_TRY(cut(c, done, piece->n, false));
    }
    return flush(c);
}

static dpe_status prefix_space(struct encoder *e, size_t i, struct piece piece)
{
    if (piece.text[0] == ' ') {
        return run_steps(e, i + 1, piece);
    }
    struct dpe_text *out = e->step + i;
    out->n = 0;
    DPE_TRY(dpe_text_append(out, " ", 1, e->err));
    DPE_TRY(dpe_text_append(out, piece.text, piece.n, e->err));
    struct piece prefixed = {out->bytes, out->n, piece.inserted < 0 ? -1 : piece.inserted + 1};
    return run_steps(e, i + 1, prefixed);
}

static dpe_status metaspace(struct encoder *e, size_t i, struct piece piece)
{
    const struct dpe_step *step = e->tokenizer->steps + i;
    const struct dpe_text *mark = &step->spaces.content;
    bool marked = piece.text[0] == ' ' ||
                  (piece.n >= mark->n && memcmp(piece.text, mark->bytes, mark->n) == 0);
    bool prepend = !marked && (step->prepend == DPE_PREPEND_ALWAYS ||
                               (step->prepend == DPE_PREPEND_FIRST && piece.inserted >= 0));
    struct dpe_text *out = e->step + i;
    out->n = 0;
    if (prepend) {
        DPE_TRY(dpe_text_append(out, mark->bytes, mark->n, e->err));
        piece.inserted += piece.inserted < 0 ? 0 : (int64_t)mark->n;
    }
    DPE_TRY(
        dpe_replace_all(&step->spaces.pattern, mark, piece.text, piece.n, out, &e->work, e->err));
    struct piece rewritten = {out->bytes, out->n, piece.inserted};
    return run_steps(e, i + 1, rewritten);
}

/* Step i and all after it on a piece that is not empty. */
static dpe_status run_steps(struct encoder *e, size_t i, struct piece piece)
{
    if (i == e->tokenizer->n_steps) {
        return dpe_bpe_encode(&e->bpe, piece.text, piece.n, e->out, e->err);
    }
    const struct dpe_step *step = e->tokenizer->steps + i;
    struct cutter cutter = {.encoder = e,
                            .next = i + 1,
                            .piece = &piece,
                            .behavior = step->behavior,
                            .invert = step->invert};
    switch (step->kind) {
    case DPE_STEP_PATTERN:
        return split_by_pattern(&cutter, &step->pattern);
    case DPE_STEP_PREFIX_SPACE:
        return prefix_space(e, i, piece);
    case DPE_STEP_METASPACE:
        return metaspace(e, i, piece);
    }
    return dpe_fail(e->err, DPE_INTERNAL, "pre-tokenizer step %d", (int)step->kind);
}

/* --------------------------------------------------------------------------------- added tokens */

static bool stands_alone(const struct piece *piece, size_t start, size_t end)
{
    size_t length = 0;
    if (start > 0) {
        const char *before = dpe_utf8_before(piece->text + start);
        if (dpe_unicode_has(&dpe_unicode_word, dpe_utf8_next(before, &length))) {
            return false;
        }
    }
    return end == piece->n ||
           !dpe_unicode_has(&dpe_unicode_word, dpe_utf8_next(piece->text + end, &length));
}

/* Takes white space before [start, end) down to `least` and after it, if the token wants it. */
static void strip(const struct dpe_added_token *token, const struct piece *piece, size_t least,
                  size_t *start, size_t *end)
{
    size_t length = 0;
    while (token->lstrip && *start > least) {
        const char *before = dpe_utf8_before(piece->text + *start);
        if (!dpe_unicode_has(&dpe_unicode_space, dpe_utf8_next(before, &length))) {
            break;
        }
        *start = (size_t)(before - piece->text);
    }
    /* A match before may have taken more than its own white space. */
    *start = token->lstrip && *start < least ? least : *start;
    while (token->rstrip && *end < piece->n &&
           dpe_unicode_has(&dpe_unicode_space, dpe_utf8_next(piece->text + *end, &length))) {
        *end += length;
    }
}

typedef dpe_status (*piece_handler)(struct encoder *e, struct piece piece);

/* The ids of the added tokens in a piece; what lies between goes to `handle`. `offset`: where in
 * the input the piece is, for the message. */
static dpe_status split_added(struct encoder *e, const struct dpe_added_set *set,
                              const struct piece *piece, size_t offset, piece_handler handle)
{
    const size_t block = (size_t)1 << 20;
    size_t at = 0, done = 0, start = 0;
    while (at < piece->n && set->n > 0) {
        size_t until = piece->n - at < block ? piece->n : at + block;
        const struct dpe_added_token *token =
            dpe_added_find(set, piece->text, piece->n, at, until, &start);
        size_t end = token != NULL ? start + token->content.n : until;
        DPE_TRY(dpe_encode_did(&e->work, end - at, e->err));
        at = end;
        if (token == NULL || (token->special && e->special == DPE_SPECIAL_LITERAL) ||
            (token->single_word && !stands_alone(piece, start, end))) {
            continue;
        }
        if (token->special && e->special == DPE_SPECIAL_ERROR) {
            char quoted[96];
            e->special_at = offset + start;
            return dpe_fail(e->err, DPE_BAD_DATA, "the text contains the special token \"%s\"%s%s",
                            dpe_json_quote(quoted, token->content.bytes, token->content.n),
                            e->advice != NULL ? "; " : "", e->advice != NULL ? e->advice : "");
        }
        strip(token, piece, done, &start, &end);
        if (done < start) {
            DPE_TRY(handle(e, part(piece, done, start)));
        }
        DPE_TRY(dpe_tokens_append(e->out, &token->id, 1, e->err));
        done = end;
    }
    return done < piece->n ? handle(e, part(piece, done, piece->n)) : DPE_OK;
}

static dpe_status encode_normalized(struct encoder *e, struct piece piece)
{
    return run_steps(e, 0, piece);
}

static dpe_status encode_raw(struct encoder *e, struct piece piece)
{
    const struct dpe_tokenizer *t = e->tokenizer;
    struct piece normal = {.inserted = -1};
    size_t inserted = 0;
    DPE_TRY(dpe_normalize(t, piece.text, piece.n, e->normal, &normal.text, &normal.n, &inserted,
                          &e->work, e->err));
    if (normal.n == 0) {
        return DPE_OK;
    }
    normal.inserted = piece.inserted < 0 ? -1 : (int64_t)inserted;
    size_t offset = (size_t)(piece.text - e->text);
    return split_added(e, &t->normalized, &normal, offset, encode_normalized);
}

/* ------------------------------------------------------------------------------------ the whole */

/* Offset in the input of what stands at `offset` in its repaired form. */
static size_t offset_before_repair(const char *text, size_t n, size_t offset)
{
    size_t at = 0, repaired = 0;
    while (at < n && repaired < offset) {
        size_t valid = dpe_utf8_check(text + at, n - at);
        if (repaired + valid >= offset || at + valid == n) {
            return at + (offset - repaired);
        }
        at += valid + dpe_utf8_part(text + at + valid, n - at - valid, NULL);
        repaired += valid + 3;
    }
    return at;
}

static void free_encoder(struct encoder *e)
{
    dpe_bpe_free(&e->bpe);
    dpe_matcher_free(&e->matcher);
    dpe_text_free(e->normal);
    dpe_text_free(e->normal + 1);
    for (size_t i = 0; i < e->tokenizer->n_steps; i++) {
        dpe_text_free(e->step + i);
    }
}

static dpe_status encode_valid(struct encoder *e, size_t n)
{
    struct piece all = {e->text, n, 0};
    DPE_TRY(dpe_matcher_init(&e->matcher, n, e->err));
    return split_added(e, &e->tokenizer->raw, &all, 0, encode_raw);
}

static dpe_status encode_text(const struct dpe_tokenizer *tokenizer, const char *text, size_t n,
                              const struct dpe_encode_options *options, struct dpe_tokens *out,
                              struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text repaired = {0};
    DPE_SCOPED(free_encoder)
    struct encoder e = {.tokenizer = tokenizer,
                        .special = options->special,
                        .advice = options->advice,
                        .work = {.limits = &tokenizer->limits, .held = bytes_held, .user = &e},
                        .bpe = {.vocab = &tokenizer->vocab, .work = &e.work},
                        .out = out,
                        .text = text,
                        .n_held = n,
                        .special_at = SIZE_MAX,
                        .err = err};
    DPE_TRY(dpe_encode_look(&e.work, 0, err));
    const size_t valid = dpe_utf8_check(text, n);
    DPE_TRY(dpe_encode_did(&e.work, valid, err));
    if (valid < n && !options->replace_invalid) {
        return dpe_fail(err, DPE_BAD_DATA, "the text is not valid UTF-8 at byte %zu (0x%02x)",
                        valid, (unsigned)(unsigned char)text[valid]);
    }
    if (valid < n) {
        DPE_TRY(dpe_utf8_repair(text, n, &repaired, err));
        e.text = repaired.bytes;
        e.n_held = n + repaired.capacity;
    }
    const dpe_status status = encode_valid(&e, valid < n ? repaired.n : n);
    if (e.special_at != SIZE_MAX) {
        size_t at = valid < n ? offset_before_repair(text, n, e.special_at) : e.special_at;
        dpe_fail_prefix(err, "byte %zu", at);
    }
    return status;
}

dpe_status dpe_tokenizer_encode(const struct dpe_tokenizer *tokenizer, const char *text, size_t n,
                                const struct dpe_encode_options *options, struct dpe_tokens *out,
                                struct dpe_error *err)
{
    const struct dpe_encode_options defaults = {0};
    options = options == NULL ? &defaults : options;
    size_t n_before = out->n;
    dpe_status status = DPE_OK;
    if (options->add_special) {
        status = dpe_tokens_append(out, tokenizer->prefix.ids, tokenizer->prefix.n, err);
    }
    if (status == DPE_OK && n > 0) {
        status = encode_text(tokenizer, text, n, options, out, err);
    }
    const size_t prefix = tokenizer->prefix.n;
    int32_t *ids = out->ids + n_before;
    if (status == DPE_OK && options->add_special && options->once && prefix > 0 &&
        out->n - n_before >= 2 * prefix && memcmp(ids, ids + prefix, prefix * sizeof *ids) == 0) {
        out->n -= prefix;
        memmove(ids, ids + prefix, (out->n - n_before) * sizeof *ids);
    }
    if (status == DPE_OK && options->add_special) {
        status = dpe_tokens_append(out, tokenizer->suffix.ids, tokenizer->suffix.n, err);
    }
    if (status != DPE_OK) {
        out->n = n_before;
    }
    return status;
}
