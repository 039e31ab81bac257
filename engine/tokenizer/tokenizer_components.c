/* Normaliser, pre-tokenizer, post-processor and decoder of a tokenizer file, each a component or a
 * sequence of them. What is not known is refused by name: a component that is skipped would give
 * other tokens without a word. */
#include "engine/tokenizer/tokenizer_parts.h"

#include <math.h>
#include <string.h>

enum { MAX_DEPTH = 8 };

/* The expression that ByteLevel brings along, GPT-2's. */
static const char GPT2_PATTERN[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static dpe_status unknown(const struct dpe_json_reader *r, const char *what, const char *name)
{
    char quoted[96];
    return dpe_fail(r->err, DPE_BAD_DATA, "%s: %s \"%s\" is not supported", r->file, what,
                    dpe_json_quote(quoted, name, strlen(name)));
}

/* Loads a component of some kind, whose type is not Sequence. */
typedef dpe_status (*load_one)(struct dpe_tokenizer *t, struct dpe_json_reader *r,
                               const char *type);

/* A component of a file, or a sequence of them under `key`; NULL and JSON null: there is none. */
static dpe_status load(struct dpe_tokenizer *t, const char *file, const char *key, load_one one,
                       json_t *component, int depth, struct dpe_error *err)
{
    struct dpe_json_reader r = {file, "", component, err, DPE_OK};
    if (component == NULL || json_is_null(component)) {
        return DPE_OK;
    }
    const char *type = dpe_tokenizer_need_string(&r, "type");
    DPE_TRY(r.status);
    if (strcmp(type, "Sequence") != 0) {
        return one(t, &r, type);
    }
    const json_t *list = dpe_tokenizer_need_list(&r, key);
    if (r.status == DPE_OK && depth >= MAX_DEPTH) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: sequences nested deeper than %d", file, MAX_DEPTH);
    }
    for (size_t i = 0; r.status == DPE_OK && i < json_array_size(list); i++) {
        json_t *item = json_array_get(list, i);
        if (!json_is_object(item)) {
            dpe_json_expected(&r, key, "a list of objects");
        } else {
            r.status = load(t, file, key, one, item, depth + 1, err);
        }
    }
    return r.status;
}

static dpe_status too_many(const struct dpe_json_reader *r)
{
    return dpe_fail(r->err, DPE_BAD_DATA, "%s: more than %d components", r->file, DPE_MAX_STEPS);
}

/* How much longer the rules of a file can make a text, in the worst case. Three chained rules of a
 * thousand characters would make a gigabyte of every byte; files in use reach 36. */
static dpe_status grow(struct dpe_tokenizer *t, const struct dpe_json_reader *r, size_t rule,
                       const char *type, double by)
{
    const double most = 128.0;
    t->growth *= by;
    return t->growth <= most
               ? DPE_OK
               : dpe_fail(r->err, DPE_BAD_DATA,
                          "%s: rule %zu (%s): with the rules before it a text can become %g times "
                          "as long, expected at most %g times",
                          r->file, rule, type, t->growth, most);
}

/* A string member as text of our own. */
static dpe_status copy_string(struct dpe_json_reader *r, const char *key, struct dpe_text *text)
{
    const char *bytes = dpe_tokenizer_need_string(r, key);
    if (r->status == DPE_OK) {
        r->status = dpe_text_append(text, bytes, strlen(bytes), r->err);
    }
    return r->status;
}

/* A string member that must be one character. */
static dpe_status copy_character(struct dpe_json_reader *r, const char *key, struct dpe_text *text)
{
    size_t length = 0;
    if (copy_string(r, key, text) == DPE_OK) {
        dpe_utf8_next(text->bytes, &length);
        if (text->n == 0 || length != text->n) {
            dpe_json_expected(r, key, "one character");
        }
    }
    return r->status;
}

/* What Replace components have: {"pattern": {"String": what}, "content": by what}. `rule` as in
 * grow. */
static dpe_status load_replace(struct dpe_tokenizer *t, struct dpe_json_reader *r, size_t rule,
                               struct dpe_text *pattern, struct dpe_text *content)
{
    struct dpe_json_reader inner = *r;
    inner.from = dpe_tokenizer_need_object(r, "pattern");
    inner.object = "pattern.";
    if (r->status == DPE_OK && dpe_json_member(&inner, "Regex") != NULL) {
        return dpe_fail(r->err, DPE_BAD_DATA, "%s: Replace with a Regex is not supported", r->file);
    }
    if (r->status == DPE_OK) {
        r->status = copy_string(&inner, "String", pattern);
    }
    if (r->status == DPE_OK && pattern->n == 0) {
        return dpe_fail(r->err, DPE_BAD_DATA, "%s: Replace of an empty String", r->file);
    }
    DPE_TRY(r->status);
    DPE_TRY(copy_string(r, "content", content));
    return grow(t, r, rule, "Replace", fmax(1.0, (double)content->n / (double)pattern->n));
}

/* ----------------------------------------------------------------------------------- normaliser */

static dpe_status load_normalizer(struct dpe_tokenizer *t, struct dpe_json_reader *r,
                                  const char *type)
{
    if (t->n_normalizers == DPE_MAX_STEPS) {
        return too_many(r);
    }
    struct dpe_normalizer *normalizer = t->normalizers + t->n_normalizers++;
    if (strcmp(type, "NFC") == 0 || strcmp(type, "NFKC") == 0) {
        normalizer->kind = DPE_NORMALIZE_FORM;
        normalizer->form = strcmp(type, "NFC") == 0 ? DPE_NFC : DPE_NFKC;
        /* U+0390: 2 bytes to 6; U+FDFA: 3 bytes to 33 */
        return grow(t, r, t->n_normalizers, type, normalizer->form == DPE_NFC ? 3.0 : 11.0);
    }
    if (strcmp(type, "Prepend") == 0) {
        normalizer->kind = DPE_NORMALIZE_PREPEND;
        DPE_TRY(copy_string(r, "prepend", &normalizer->content));
        /* before each piece between added tokens, of a byte perhaps */
        return grow(t, r, t->n_normalizers, type, 1.0 + (double)normalizer->content.n);
    }
    if (strcmp(type, "Replace") == 0) {
        normalizer->kind = DPE_NORMALIZE_REPLACE;
        return load_replace(t, r, t->n_normalizers, &normalizer->pattern, &normalizer->content);
    }
    return unknown(r, "type", type);
}

/* -------------------------------------------------------------------------------- pre-tokenizer */

static struct dpe_step *next_step(struct dpe_tokenizer *t, struct dpe_json_reader *r,
                                  enum dpe_step_kind kind)
{
    if (t->n_steps == DPE_MAX_STEPS) {
        r->status = too_many(r);
        return NULL;
    }
    struct dpe_step *step = t->steps + t->n_steps++;
    step->kind = kind;
    return step;
}

static dpe_status load_split(struct dpe_tokenizer *t, struct dpe_json_reader *r)
{
    static const char *const behaviors[] = {"Isolated", "Removed", "MergedWithPrevious",
                                            "MergedWithNext", "Contiguous"};
    struct dpe_step *step = next_step(t, r, DPE_STEP_PATTERN);
    struct dpe_json_reader pattern = *r;
    pattern.from = dpe_tokenizer_need_object(r, "pattern");
    pattern.object = "pattern.";
    const char *behavior = dpe_tokenizer_need_string(r, "behavior");
    bool invert = dpe_tokenizer_need_bool(r, "invert");
    if (r->status != DPE_OK) {
        return r->status;
    }
    const char *const *found = DPE_NAMED(behaviors, behavior);
    if (found == NULL) {
        return unknown(r, "Split behavior", behavior);
    }
    step->behavior = (enum dpe_split_behavior)(found - behaviors);
    step->invert = invert;
    bool literal = dpe_json_member(&pattern, "String") != NULL;
    const char *text = dpe_tokenizer_need_string(&pattern, literal ? "String" : "Regex");
    if (pattern.status != DPE_OK) {
        return pattern.status;
    }
    r->status = literal ? dpe_pattern_literal(&step->pattern, text, strlen(text), r->err)
                        : dpe_pattern_compile(&step->pattern, text, strlen(text), r->err);
    if (r->status != DPE_OK) {
        dpe_fail_prefix(r->err, "%s: Split", r->file);
    }
    return r->status;
}

/* Words between white space, which is dropped. */
static dpe_status load_whitespace(struct dpe_tokenizer *t, struct dpe_json_reader *r)
{
    struct dpe_step *step = next_step(t, r, DPE_STEP_PATTERN);
    if (step == NULL) {
        return r->status;
    }
    step->behavior = DPE_SPLIT_REMOVED;
    return dpe_pattern_compile(&step->pattern, "\\s+", 3, r->err);
}

static dpe_status load_digits(struct dpe_tokenizer *t, struct dpe_json_reader *r)
{
    struct dpe_step *step = next_step(t, r, DPE_STEP_PATTERN);
    bool individual = dpe_tokenizer_need_bool(r, "individual_digits");
    if (r->status != DPE_OK) {
        return r->status;
    }
    step->behavior = individual ? DPE_SPLIT_ISOLATED : DPE_SPLIT_CONTIGUOUS;
    return dpe_pattern_numeric(&step->pattern, r->err);
}

static dpe_status load_byte_level(struct dpe_tokenizer *t, struct dpe_json_reader *r)
{
    bool prefix = dpe_tokenizer_need_bool(r, "add_prefix_space");
    bool regex = dpe_json_bool(r, "use_regex", true);
    t->vocab.byte_level = true;
    if (r->status == DPE_OK && prefix && next_step(t, r, DPE_STEP_PREFIX_SPACE) != NULL) {
        DPE_TRY(grow(t, r, t->n_steps, "ByteLevel", 2.0));
    }
    if (r->status == DPE_OK && regex) {
        struct dpe_step *step = next_step(t, r, DPE_STEP_PATTERN);
        return step == NULL ? r->status
                            : dpe_pattern_compile(&step->pattern, GPT2_PATTERN,
                                                  sizeof GPT2_PATTERN - 1, r->err);
    }
    return r->status;
}

/* Older files have add_prefix_space instead of prepend_scheme; false means never. */
static dpe_status read_prepend(struct dpe_json_reader *r, enum dpe_prepend *prepend)
{
    const char *scheme = dpe_json_string(r, "prepend_scheme", NULL);
    bool prefix = dpe_json_bool(r, "add_prefix_space", true);
    if (r->status != DPE_OK) {
        return r->status;
    }
    if (!prefix && scheme != NULL && strcmp(scheme, "never") != 0) {
        return dpe_fail(r->err, DPE_BAD_DATA,
                        "%s: Metaspace: add_prefix_space contradicts prepend_scheme", r->file);
    }
    if (!prefix || (scheme != NULL && strcmp(scheme, "never") == 0)) {
        *prepend = DPE_PREPEND_NEVER;
    } else if (scheme == NULL || strcmp(scheme, "always") == 0) {
        *prepend = DPE_PREPEND_ALWAYS;
    } else if (strcmp(scheme, "first") == 0) {
        *prepend = DPE_PREPEND_FIRST;
    } else {
        return unknown(r, "prepend_scheme", scheme);
    }
    return DPE_OK;
}

static dpe_status load_metaspace(struct dpe_tokenizer *t, struct dpe_json_reader *r)
{
    struct dpe_step *step = next_step(t, r, DPE_STEP_METASPACE);
    bool split = dpe_json_bool(r, "split", true);
    DPE_TRY(r->status);
    const struct dpe_text *mark = &step->spaces.content;
    DPE_TRY(copy_character(r, "replacement", &step->spaces.content));
    DPE_TRY(dpe_text_append(&step->spaces.pattern, " ", 1, r->err));
    DPE_TRY(read_prepend(r, &step->prepend));
    DPE_TRY(grow(t, r, t->n_steps, "Metaspace", 2.0 * (double)mark->n));
    step = split ? next_step(t, r, DPE_STEP_PATTERN) : NULL;
    if (step == NULL) {
        return r->status;
    }
    step->behavior = DPE_SPLIT_MERGED_WITH_NEXT;
    return dpe_pattern_literal(&step->pattern, mark->bytes, mark->n, r->err);
}

static dpe_status load_pre_tokenizer(struct dpe_tokenizer *t, struct dpe_json_reader *r,
                                     const char *type)
{
    static const struct kind {
        const char *type;
        dpe_status (*load)(struct dpe_tokenizer *t, struct dpe_json_reader *r);
    } kinds[] = {{"Split", load_split},
                 {"WhitespaceSplit", load_whitespace},
                 {"Digits", load_digits},
                 {"ByteLevel", load_byte_level},
                 {"Metaspace", load_metaspace}};
    if (t->vocab.byte_level) {
        return dpe_fail(r->err, DPE_BAD_DATA,
                        "pre_tokenizer: a component after ByteLevel is not "
                        "supported");
    }
    const struct kind *kind = DPE_NAMED(kinds, type);
    return kind != NULL ? kind->load(t, r) : unknown(r, "type", type);
}

/* -------------------------------------------------------------------------------------- decoder */

static dpe_status load_decoder(struct dpe_tokenizer *t, struct dpe_json_reader *r, const char *type)
{
    static const char *const kinds[] = {[DPE_DECODE_BYTE_LEVEL] = "ByteLevel",
                                        [DPE_DECODE_REPLACE] = "Replace",
                                        [DPE_DECODE_BYTE_FALLBACK] = "ByteFallback",
                                        [DPE_DECODE_FUSE] = "Fuse",
                                        [DPE_DECODE_STRIP] = "Strip",
                                        [DPE_DECODE_METASPACE] = "Metaspace"};
    enum dpe_prepend prepend = DPE_PREPEND_NEVER;
    const char *const *kind = DPE_NAMED(kinds, type);
    if (kind == NULL) {
        return unknown(r, "type", type);
    }
    if (t->n_decoders == DPE_MAX_STEPS) {
        return too_many(r);
    }
    struct dpe_decoder *decoder = t->decoders + t->n_decoders++;
    decoder->kind = (enum dpe_decoder_kind)(kind - kinds);
    switch (decoder->kind) {
    case DPE_DECODE_REPLACE:
        return load_replace(t, r, t->n_decoders, &decoder->pattern, &decoder->content);
    case DPE_DECODE_STRIP:
        decoder->start = (size_t)dpe_json_integer(r, "start", 0, INT32_MAX, -1);
        decoder->stop = (size_t)dpe_json_integer(r, "stop", 0, INT32_MAX, -1);
        return copy_character(r, "content", &decoder->content);
    case DPE_DECODE_METASPACE:
        decoder->kind = DPE_DECODE_REPLACE;
        DPE_TRY(copy_character(r, "replacement", &decoder->pattern));
        DPE_TRY(dpe_text_append(&decoder->content, " ", 1, r->err));
        DPE_TRY(read_prepend(r, &prepend));
        decoder->drop_first = prepend != DPE_PREPEND_NEVER;
        return DPE_OK;
    default:
        return DPE_OK;
    }
}

/* ------------------------------------------------------------------------------- post-processor */

static dpe_status append_special(struct dpe_tokenizer *t, struct dpe_json_reader *specials,
                                 const char *name, struct dpe_tokens *to)
{
    struct dpe_json_reader special = *specials;
    special.from = dpe_tokenizer_need_object(specials, name);
    special.object = "special token ";
    DPE_TRY(specials->status);
    const json_t *ids = dpe_tokenizer_need_list(&special, "ids");
    DPE_TRY(special.status);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        int32_t id = -1;
        DPE_TRY(
            dpe_tokenizer_read_id(json_array_get(ids, i), special.file, name, &id, special.err));
        if (id >= t->vocab.n_ids || !t->vocab.known[id]) {
            char quoted[96];
            return dpe_fail(special.err, DPE_BAD_DATA, "%s: \"%s\" has id %d, which is not a token",
                            special.file, dpe_json_quote(quoted, name, strlen(name)), (int)id);
        }
        DPE_TRY(dpe_tokens_append(to, &id, 1, special.err));
    }
    return DPE_OK;
}

/* "single": what stands before and after the one sequence. */
static dpe_status load_template(struct dpe_tokenizer *t, struct dpe_json_reader *r)
{
    const json_t *single = dpe_tokenizer_need_list(r, "single");
    struct dpe_json_reader specials = *r;
    specials.from = dpe_tokenizer_need_object(r, "special_tokens");
    specials.object = "special_tokens.";
    int n_sequences = 0;
    for (size_t i = 0; r->status == DPE_OK && i < json_array_size(single); i++) {
        json_t *piece = json_array_get(single, i);
        json_t *sequence = json_object_get(piece, "Sequence");
        struct dpe_json_reader inner = *r;
        inner.from = sequence != NULL ? sequence : json_object_get(piece, "SpecialToken");
        inner.object = "single.";
        const char *id = dpe_tokenizer_need_string(&inner, "id");
        r->status = inner.status;
        if (sequence != NULL) {
            n_sequences += strcmp(id, "A") == 0 ? 1 : 2;
        } else if (r->status == DPE_OK) {
            r->status =
                append_special(t, &specials, id, n_sequences == 0 ? &t->prefix : &t->suffix);
        }
    }
    if (r->status == DPE_OK && n_sequences != 1) {
        dpe_json_expected(r, "single", "sequence A once");
    }
    return r->status;
}

static dpe_status load_post_processor(struct dpe_tokenizer *t, struct dpe_json_reader *r,
                                      const char *type)
{
    if (strcmp(type, "ByteLevel") == 0) { /* moves offsets only */
        return DPE_OK;
    }
    if (strcmp(type, "TemplateProcessing") != 0) {
        return unknown(r, "type", type);
    }
    /* Two would put BOS twice; the reference takes the first one's output for a pair of texts. */
    if (t->has_template) {
        return dpe_fail(r->err, DPE_BAD_DATA,
                        "post_processor: a second TemplateProcessing is not supported");
    }
    t->has_template = true;
    return load_template(t, r);
}

dpe_status dpe_load_component(struct dpe_tokenizer *t, const json_t *root, const char *name,
                              struct dpe_error *err)
{
    static const struct part {
        const char *name, *sequence;
        load_one one;
    } parts[] = {{"normalizer", "normalizers", load_normalizer},
                 {"pre_tokenizer", "pretokenizers", load_pre_tokenizer},
                 {"decoder", "decoders", load_decoder},
                 {"post_processor", "processors", load_post_processor}};
    const struct part *part = DPE_NAMED(parts, name);
    return load(t, name, part->sequence, part->one, json_object_get(root, name), 0, err);
}
