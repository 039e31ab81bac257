/* Normaliser, pre-tokenizer, post-processor and decoder of a tokenizer file, each a component or a
 * sequence of them. What is not known is refused by name: a component that is skipped would give
 * other tokens without a word. */
#include "tokenizer_json.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 8 };

/* The expression that ByteLevel brings along, GPT-2's. */
static const char GPT2_PATTERN[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static dpe_status unknown_type(const char *where, const char *type, struct dpe_error *err)
{
    char quoted[80];
    return dpe_fail(err, DPE_BAD_DATA, "%s: type \"%s\" is not supported", where,
                    dpe_quote(quoted, type, strlen(type)));
}

typedef dpe_status (*load_component)(struct dpe_tokenizer *, const json_t *, int,
                                     struct dpe_error *);

static dpe_status load_sequence(struct dpe_tokenizer *t, const json_t *component, const char *where,
                                const char *key, load_component load, int depth,
                                struct dpe_error *err)
{
    const json_t *list = NULL;
    dpe_status status = dpe_member_list(component, where, key, &list, err);
    if (status == DPE_OK && depth >= MAX_DEPTH) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: sequences nested deeper than %d", where, MAX_DEPTH);
    }
    for (size_t i = 0; status == DPE_OK && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        status = json_is_object(item) ? load(t, item, depth + 1, err)
                                      : dpe_fail(err, DPE_BAD_DATA,
                                                 "%s.%s: expected objects with a type", where, key);
    }
    return status;
}

static dpe_status too_many(const char *where, struct dpe_error *err)
{
    return dpe_fail(err, DPE_BAD_DATA, "%s: more than %d components", where, DPE_MAX_STEPS);
}

/* A string member as text of our own. */
static dpe_status copy_string(const json_t *object, const char *where, const char *key,
                              struct dpe_text *text, struct dpe_error *err)
{
    const char *bytes = "";
    size_t n = 0;
    dpe_status status = dpe_member_string(object, where, key, true, &bytes, &n, err);
    return status == DPE_OK ? dpe_text_append(text, bytes, n, err) : status;
}

/* A string member that must be one character. */
static dpe_status copy_character(const json_t *object, const char *where, const char *key,
                                 struct dpe_text *text, struct dpe_error *err)
{
    dpe_status status = copy_string(object, where, key, text, err);
    size_t length = 0;
    if (status == DPE_OK && text->n > 0) {
        dpe_utf8_next(text->bytes, &length);
    }
    if (status == DPE_OK && (text->n == 0 || length != text->n)) {
        return dpe_fail(err, DPE_BAD_DATA, "%s.%s: expected one character", where, key);
    }
    return status;
}

/* "pattern": {"String": …}, what Replace components have. */
static dpe_status copy_literal_pattern(const json_t *component, const char *where,
                                       struct dpe_text *text, struct dpe_error *err)
{
    const json_t *pattern = NULL;
    dpe_status status = dpe_member_object(component, where, "pattern", &pattern, err);
    if (status != DPE_OK) {
        return status;
    }
    if (json_object_get(pattern, "Regex") != NULL) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: Replace with a Regex is not supported", where);
    }
    status = copy_string(pattern, where, "String", text, err);
    if (status == DPE_OK && text->n == 0) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: Replace of an empty String", where);
    }
    return status;
}

/* ------------------------------------------------------------------------------------- normaliser
 */

dpe_status dpe_load_normalizer(struct dpe_tokenizer *t, const json_t *component, int depth,
                               struct dpe_error *err)
{
    static const char where[] = "normalizer";
    const char *type = NULL;
    if (component == NULL || json_is_null(component)) {
        return DPE_OK;
    }
    dpe_status status = dpe_member_type(component, where, &type, err);
    if (status != DPE_OK) {
        return status;
    }
    if (strcmp(type, "Sequence") == 0) {
        return load_sequence(t, component, where, "normalizers", dpe_load_normalizer, depth, err);
    }
    if (t->n_normalizers == DPE_MAX_STEPS) {
        return too_many(where, err);
    }
    struct dpe_normalizer *normalizer = t->normalizers + t->n_normalizers++;
    if (strcmp(type, "NFC") == 0) {
        normalizer->kind = DPE_NORMALIZE_NFC;
        return DPE_OK;
    }
    if (strcmp(type, "Prepend") == 0) {
        normalizer->kind = DPE_NORMALIZE_PREPEND;
        return copy_string(component, where, "prepend", &normalizer->content, err);
    }
    if (strcmp(type, "Replace") == 0) {
        normalizer->kind = DPE_NORMALIZE_REPLACE;
        status = copy_literal_pattern(component, where, &normalizer->pattern, err);
        return status == DPE_OK
                   ? copy_string(component, where, "content", &normalizer->content, err)
                   : status;
    }
    return unknown_type(where, type, err);
}

/* ---------------------------------------------------------------------------------- pre-tokenizer
 */

static const char PRE_TOKENIZER[] = "pre_tokenizer";

static dpe_status next_step(struct dpe_tokenizer *t, enum dpe_step_kind kind,
                            struct dpe_step **step, struct dpe_error *err)
{
    if (t->n_steps == DPE_MAX_STEPS) {
        return too_many(PRE_TOKENIZER, err);
    }
    *step = t->steps + t->n_steps++;
    (*step)->kind = kind;
    return DPE_OK;
}

static dpe_status load_split(struct dpe_tokenizer *t, const json_t *component,
                             struct dpe_error *err)
{
    static const char *const behaviors[] = {"Isolated", "Removed", "MergedWithPrevious",
                                            "MergedWithNext", "Contiguous"};
    struct dpe_step *step = NULL;
    const json_t *pattern = NULL;
    const char *behavior = "", *text = NULL;
    size_t n_behavior = 0, n = 0;
    dpe_status status = next_step(t, DPE_STEP_PATTERN, &step, err);
    if (status != DPE_OK ||
        (status = dpe_member_object(component, PRE_TOKENIZER, "pattern", &pattern, err)) !=
            DPE_OK ||
        (status = dpe_member_string(component, PRE_TOKENIZER, "behavior", true, &behavior,
                                    &n_behavior, err)) != DPE_OK ||
        (status = dpe_member_bool(component, PRE_TOKENIZER, "invert", true, &step->invert, err)) !=
            DPE_OK) {
        return status;
    }
    bool known = false;
    for (size_t i = 0; i < sizeof behaviors / sizeof behaviors[0] && !known; i++) {
        known = strcmp(behavior, behaviors[i]) == 0;
        step->behavior = known ? (enum dpe_split_behavior)i : step->behavior;
    }
    if (!known) {
        char quoted[80];
        return dpe_fail(err, DPE_BAD_DATA, "%s: Split behavior \"%s\" is not supported",
                        PRE_TOKENIZER, dpe_quote(quoted, behavior, n_behavior));
    }
    bool literal = json_object_get(pattern, "String") != NULL;
    status = dpe_member_string(pattern, PRE_TOKENIZER, literal ? "String" : "Regex", true, &text,
                               &n, err);
    if (status == DPE_OK) {
        status = literal ? dpe_pattern_literal(&step->pattern, text, n, err)
                         : dpe_pattern_compile(&step->pattern, text, n, err);
        if (status != DPE_OK) {
            dpe_fail_prefix(err, "%s: Split", PRE_TOKENIZER);
        }
    }
    return status;
}

static dpe_status load_digits(struct dpe_tokenizer *t, const json_t *component,
                              struct dpe_error *err)
{
    struct dpe_step *step = NULL;
    bool individual = false;
    dpe_status status = next_step(t, DPE_STEP_DIGITS, &step, err);
    if (status == DPE_OK) {
        status =
            dpe_member_bool(component, PRE_TOKENIZER, "individual_digits", true, &individual, err);
        step->behavior = individual ? DPE_SPLIT_ISOLATED : DPE_SPLIT_CONTIGUOUS;
    }
    return status;
}

static dpe_status load_byte_level(struct dpe_tokenizer *t, const json_t *component,
                                  struct dpe_error *err)
{
    bool prefix = false, regex = true, trim = false;
    struct dpe_step *step = NULL;
    dpe_status status = DPE_OK;
    if ((status = dpe_member_bool(component, PRE_TOKENIZER, "add_prefix_space", true, &prefix,
                                  err)) != DPE_OK ||
        (status = dpe_member_bool(component, PRE_TOKENIZER, "trim_offsets", false, &trim, err)) !=
            DPE_OK ||
        (status = dpe_member_bool(component, PRE_TOKENIZER, "use_regex", false, &regex, err)) !=
            DPE_OK) {
        return status;
    }
    if (prefix) {
        status = next_step(t, DPE_STEP_PREFIX_SPACE, &step, err);
    }
    if (status == DPE_OK && regex) {
        status = next_step(t, DPE_STEP_PATTERN, &step, err);
        if (status == DPE_OK) {
            status =
                dpe_pattern_compile(&step->pattern, GPT2_PATTERN, sizeof GPT2_PATTERN - 1, err);
        }
    }
    t->vocab.byte_level = true;
    return status;
}

/* Older files say add_prefix_space instead of prepend_scheme; false means never. */
static dpe_status read_prepend(const json_t *component, const char *where,
                               enum dpe_prepend *prepend, struct dpe_error *err)
{
    const char *scheme = "always";
    size_t n = 0;
    bool prefix = true;
    dpe_status status =
        dpe_member_string(component, where, "prepend_scheme", false, &scheme, &n, err);
    if (status == DPE_OK) {
        status = dpe_member_bool(component, where, "add_prefix_space", false, &prefix, err);
    }
    if (status != DPE_OK) {
        return status;
    }
    bool named = json_object_get(component, "prepend_scheme") != NULL;
    if (!prefix && named && strcmp(scheme, "never") != 0) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: Metaspace: add_prefix_space contradicts prepend_scheme", where);
    }
    if (!prefix || strcmp(scheme, "never") == 0) {
        *prepend = DPE_PREPEND_NEVER;
    } else if (strcmp(scheme, "first") == 0) {
        *prepend = DPE_PREPEND_FIRST;
    } else if (strcmp(scheme, "always") == 0) {
        *prepend = DPE_PREPEND_ALWAYS;
    } else {
        char quoted[80];
        return dpe_fail(err, DPE_BAD_DATA, "%s: prepend_scheme \"%s\" is not supported", where,
                        dpe_quote(quoted, scheme, n));
    }
    return DPE_OK;
}

static dpe_status load_metaspace(struct dpe_tokenizer *t, const json_t *component,
                                 struct dpe_error *err)
{
    struct dpe_step *step = NULL;
    struct dpe_text replacement = {0};
    bool split = true;
    dpe_status status = next_step(t, DPE_STEP_METASPACE, &step, err);
    if (status == DPE_OK) {
        status = copy_character(component, PRE_TOKENIZER, "replacement", &replacement, err);
    }
    if (status == DPE_OK) {
        memcpy(step->replacement, replacement.bytes, replacement.n);
        step->n_replacement = replacement.n;
        status = read_prepend(component, PRE_TOKENIZER, &step->prepend, err);
    }
    if (status == DPE_OK) {
        status = dpe_member_bool(component, PRE_TOKENIZER, "split", false, &split, err);
    }
    if (status == DPE_OK && split) {
        status = next_step(t, DPE_STEP_PATTERN, &step, err);
        if (status == DPE_OK) {
            step->behavior = DPE_SPLIT_MERGED_WITH_NEXT;
            status = dpe_pattern_literal(&step->pattern, replacement.bytes, replacement.n, err);
        }
    }
    dpe_text_free(&replacement);
    return status;
}

dpe_status dpe_load_pre_tokenizer(struct dpe_tokenizer *t, const json_t *component, int depth,
                                  struct dpe_error *err)
{
    const char *type = NULL;
    if (component == NULL || json_is_null(component)) {
        return DPE_OK;
    }
    dpe_status status = dpe_member_type(component, PRE_TOKENIZER, &type, err);
    if (status != DPE_OK) {
        return status;
    }
    if (strcmp(type, "Sequence") == 0) {
        return load_sequence(t, component, PRE_TOKENIZER, "pretokenizers", dpe_load_pre_tokenizer,
                             depth, err);
    }
    if (t->vocab.byte_level) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: %s after ByteLevel is not supported", PRE_TOKENIZER,
                        type);
    }
    if (strcmp(type, "Split") == 0) {
        return load_split(t, component, err);
    }
    if (strcmp(type, "Digits") == 0) {
        return load_digits(t, component, err);
    }
    if (strcmp(type, "ByteLevel") == 0) {
        return load_byte_level(t, component, err);
    }
    if (strcmp(type, "Metaspace") == 0) {
        return load_metaspace(t, component, err);
    }
    return unknown_type(PRE_TOKENIZER, type, err);
}

/* ---------------------------------------------------------------------------------------- decoder
 */

static dpe_status load_strip(struct dpe_decoder *decoder, const json_t *component,
                             const char *where, struct dpe_error *err)
{
    int64_t start = 0, stop = 0;
    decoder->kind = DPE_DECODE_STRIP;
    dpe_status status = copy_character(component, where, "content", &decoder->content, err);
    if (status == DPE_OK) {
        status = dpe_member_count(json_object_get(component, "start"), where, "start", INT32_MAX,
                                  &start, err);
    }
    if (status == DPE_OK) {
        status = dpe_member_count(json_object_get(component, "stop"), where, "stop", INT32_MAX,
                                  &stop, err);
    }
    decoder->start = (size_t)start;
    decoder->stop = (size_t)stop;
    return status;
}

dpe_status dpe_load_decoder(struct dpe_tokenizer *t, const json_t *component, int depth,
                            struct dpe_error *err)
{
    static const char where[] = "decoder";
    const char *type = NULL;
    if (component == NULL || json_is_null(component)) {
        return DPE_OK;
    }
    t->has_decoder = true;
    dpe_status status = dpe_member_type(component, where, &type, err);
    if (status != DPE_OK) {
        return status;
    }
    if (strcmp(type, "Sequence") == 0) {
        return load_sequence(t, component, where, "decoders", dpe_load_decoder, depth, err);
    }
    if (t->n_decoders == DPE_MAX_STEPS) {
        return too_many(where, err);
    }
    struct dpe_decoder *decoder = t->decoders + t->n_decoders++;
    if (strcmp(type, "ByteLevel") == 0) {
        decoder->kind = DPE_DECODE_BYTE_LEVEL;
        return DPE_OK;
    }
    if (strcmp(type, "ByteFallback") == 0) {
        decoder->kind = DPE_DECODE_BYTE_FALLBACK;
        return DPE_OK;
    }
    if (strcmp(type, "Fuse") == 0) {
        decoder->kind = DPE_DECODE_FUSE;
        return DPE_OK;
    }
    if (strcmp(type, "Replace") == 0) {
        decoder->kind = DPE_DECODE_REPLACE;
        status = copy_literal_pattern(component, where, &decoder->pattern, err);
        return status == DPE_OK ? copy_string(component, where, "content", &decoder->content, err)
                                : status;
    }
    if (strcmp(type, "Strip") == 0) {
        return load_strip(decoder, component, where, err);
    }
    if (strcmp(type, "Metaspace") == 0) {
        enum dpe_prepend prepend = DPE_PREPEND_NEVER;
        decoder->kind = DPE_DECODE_METASPACE;
        status = copy_character(component, where, "replacement", &decoder->content, err);
        status = status == DPE_OK ? read_prepend(component, where, &prepend, err) : status;
        decoder->drop_first = prepend != DPE_PREPEND_NEVER;
        return status;
    }
    return unknown_type(where, type, err);
}

/* --------------------------------------------------------------------------------- post-processor
 */

static const char POST_PROCESSOR[] = "post_processor";

static dpe_status append_special(struct dpe_tokenizer *t, const json_t *specials, const char *name,
                                 struct dpe_tokens *to, struct dpe_error *err)
{
    char quoted[80];
    const json_t *special = json_object_get(specials, name), *ids = NULL;
    if (special == NULL) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: \"%s\" is not among its special_tokens",
                        POST_PROCESSOR, dpe_quote(quoted, name, strlen(name)));
    }
    dpe_status status = dpe_member_list(special, POST_PROCESSOR, "ids", &ids, err);
    for (size_t i = 0; status == DPE_OK && i < json_array_size(ids); i++) {
        int64_t number = 0;
        status =
            dpe_member_count(json_array_get(ids, i), POST_PROCESSOR, name, INT32_MAX, &number, err);
        if (status == DPE_OK && (number >= t->vocab.n_ids || !t->vocab.known[number])) {
            return dpe_fail(err, DPE_BAD_DATA, "%s: \"%s\" has id %lld, which is no token",
                            POST_PROCESSOR, dpe_quote(quoted, name, strlen(name)),
                            (long long)number);
        }
        if (status == DPE_OK) {
            status = dpe_tokens_append(to, &(int32_t){(int32_t)number}, 1, err);
        }
    }
    return status;
}

/* "single": what stands before and after the one sequence. */
static dpe_status load_template(struct dpe_tokenizer *t, const json_t *component,
                                struct dpe_error *err)
{
    const json_t *single = NULL, *specials = NULL;
    dpe_status status = dpe_member_list(component, POST_PROCESSOR, "single", &single, err);
    if (status == DPE_OK) {
        status = dpe_member_object(component, POST_PROCESSOR, "special_tokens", &specials, err);
    }
    size_t n_sequences = 0;
    for (size_t i = 0; status == DPE_OK && i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i);
        const json_t *sequence = json_object_get(piece, "Sequence");
        const json_t *special = json_object_get(piece, "SpecialToken");
        const char *name = "";
        size_t n = 0;
        if (sequence != NULL) {
            status = dpe_member_string(sequence, POST_PROCESSOR, "id", true, &name, &n, err);
            n_sequences += strcmp(name, "A") == 0 ? 1 : 2;
            continue;
        }
        status = dpe_member_string(special, POST_PROCESSOR, "id", true, &name, &n, err);
        if (status == DPE_OK) {
            status =
                append_special(t, specials, name, n_sequences == 0 ? &t->prefix : &t->suffix, err);
        }
    }
    if (status == DPE_OK && n_sequences != 1) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected sequence A once in single",
                        POST_PROCESSOR);
    }
    return status;
}

dpe_status dpe_load_post_processor(struct dpe_tokenizer *t, const json_t *component, int depth,
                                   struct dpe_error *err)
{
    const char *type = NULL;
    if (component == NULL || json_is_null(component)) {
        return DPE_OK;
    }
    dpe_status status = dpe_member_type(component, POST_PROCESSOR, &type, err);
    if (status != DPE_OK) {
        return status;
    }
    if (strcmp(type, "Sequence") == 0) {
        return load_sequence(t, component, POST_PROCESSOR, "processors", dpe_load_post_processor,
                             depth, err);
    }
    if (strcmp(type, "ByteLevel") == 0) { /* moves offsets only */
        return DPE_OK;
    }
    if (strcmp(type, "TemplateProcessing") == 0) {
        if (t->prefix.n + t->suffix.n > 0) {
            return dpe_fail(err, DPE_BAD_DATA, "%s: a second TemplateProcessing is not supported",
                            POST_PROCESSOR);
        }
        return load_template(t, component, err);
    }
    return unknown_type(POST_PROCESSOR, type, err);
}
