/* Opening and closing a tokenizer; what it can return without encoding. */
#include "engine/tokenizer/tokenizer.h"
#include "engine/system/folder.h"
#include "engine/tokenizer/tokenizer_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Ten times the largest file in use. */
enum { MAX_FILE = 1 << 28 };

/* How much longer the rules of a file can make a text, in the worst case. Three chained rules of a
 * thousand characters would make a gigabyte of every byte; files in use reach 36. */
static dpe_status grow(double *growth, double by, const char *where, size_t i, const char *kind,
                       struct dpe_error *err)
{
    const double most = 128.0;
    *growth *= by;
    return *growth <= most
               ? DPE_OK
               : dpe_fail(err, DPE_BAD_DATA,
                          "%s: rule %zu (%s): with the rules before it a text can become %g times "
                          "as long, expected at most %g times",
                          where, i + 1, kind, *growth, most);
}

static double growth_of_replace(const struct dpe_text *pattern, const struct dpe_text *content)
{
    return content->n > pattern->n ? (double)content->n / (double)pattern->n : 1.0;
}

static dpe_status check_growth(const struct dpe_tokenizer *t, struct dpe_error *err)
{
    double growth = 1.0;
    for (size_t i = 0; i < t->n_normalizers; i++) {
        const struct dpe_normalizer *rule = t->normalizers + i;
        switch (rule->kind) {
        case DPE_NORMALIZE_FORM: /* U+0390: 2 bytes to 6; U+FDFA: 3 bytes to 33 */
            DPE_TRY(rule->form == DPE_NFC ? grow(&growth, 3.0, "normalizer", i, "NFC", err)
                                          : grow(&growth, 11.0, "normalizer", i, "NFKC", err));
            break;
        case DPE_NORMALIZE_PREPEND: /* before each piece between added tokens, of a byte perhaps */
            DPE_TRY(grow(&growth, 1.0 + (double)rule->content.n, "normalizer", i, "Prepend", err));
            break;
        case DPE_NORMALIZE_REPLACE:
            DPE_TRY(grow(&growth, growth_of_replace(&rule->pattern, &rule->content), "normalizer",
                         i, "Replace", err));
            break;
        }
    }
    for (size_t i = 0; i < t->n_steps; i++) {
        const struct dpe_step *step = t->steps + i;
        if (step->kind == DPE_STEP_PREFIX_SPACE) {
            DPE_TRY(grow(&growth, 2.0, "pre_tokenizer", i, "ByteLevel", err));
        } else if (step->kind == DPE_STEP_METASPACE) {
            DPE_TRY(grow(&growth, 2.0 * (double)step->spaces.content.n, "pre_tokenizer", i,
                         "Metaspace", err));
        }
    }
    return DPE_OK;
}

static dpe_status check_decoder_growth(const struct dpe_tokenizer *t, struct dpe_error *err)
{
    double growth = 1.0;
    for (size_t i = 0; i < t->n_decoders; i++) {
        const struct dpe_decoder *rule = t->decoders + i;
        if (rule->kind == DPE_DECODE_REPLACE) {
            DPE_TRY(grow(&growth, growth_of_replace(&rule->pattern, &rule->content), "decoder", i,
                         "Replace", err));
        }
    }
    return DPE_OK;
}

static dpe_status load_parts(struct dpe_tokenizer *t, const json_t *root, struct dpe_error *err)
{
    json_t *model = json_object_get(root, "model");
    if (!json_is_object(model)) {
        return dpe_fail(err, DPE_BAD_DATA, "expected an object \"model\", found none");
    }
    /* ByteLevel among the pre-tokenizers decides how the vocabulary is read, normalisers how its
     * added tokens are. */
    DPE_TRY(dpe_load_pre_tokenizer(t, json_object_get(root, "pre_tokenizer"), 0, err));
    DPE_TRY(dpe_load_normalizer(t, json_object_get(root, "normalizer"), 0, err));
    DPE_TRY(check_growth(t, err));
    DPE_TRY(dpe_load_model(t, model, json_object_get(root, "added_tokens"), err));
    DPE_TRY(dpe_load_decoder(t, json_object_get(root, "decoder"), 0, err));
    DPE_TRY(check_decoder_growth(t, err));
    return dpe_load_post_processor(t, json_object_get(root, "post_processor"), 0, err);
}

/* From tokenizer.json, or the metadata of a GGUF file. */
static dpe_status load(struct dpe_tokenizer *t, const char *path, bool gguf, struct dpe_error *err)
{
    DPE_SCOPED(json_decrefp) json_t *root = NULL;
    DPE_OWNED char *bytes = NULL;
    size_t n = 0;
    DPE_TRY(gguf ? dpe_tokenizer_of_gguf(path, &root, t->fingerprint, err)
                 : dpe_read_file(path, MAX_FILE, &bytes, &n, err));
    dpe_status status = gguf ? DPE_OK : dpe_sha256_bytes(bytes, n, t->fingerprint, err);
    if (status == DPE_OK && !gguf) {
        status = dpe_json_parse("content", bytes, n, &root, err);
    }
    if (status == DPE_OK) {
        status = load_parts(t, root, err);
    }
    if (status != DPE_OK) {
        dpe_fail_prefix(err, gguf ? "%s: its tokenizer" : "%s", path);
    }
    return status;
}

dpe_status dpe_tokenizer_open(const char *path, struct dpe_tokenizer **tokenizer,
                              struct dpe_error *err)
{
    struct stat info;
    DPE_SCOPED(dpe_tokenizer_close_scoped) struct dpe_tokenizer *made = NULL;
    bool folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    DPE_TRY(folder ? DPE_OK : dpe_folder_explain(path, err));
    DPE_TRY(DPE_NEW(&made, 1, err, "%s: no memory", path));
    dpe_text_put(&made->path, folder ? "%s/tokenizer.json" : "%s", path);
    DPE_TRY(dpe_text_done(&made->path, err));
    const dpe_status status = load(made, made->path.bytes, dpe_folder_is_gguf(path), err);
    if (status == DPE_NO_INPUT) {
        dpe_folder_explain(path, err);
    }
    DPE_TRY(status);
    *tokenizer = made;
    made = NULL;
    return DPE_OK;
}

void dpe_tokenizer_close(struct dpe_tokenizer *t)
{
    if (t == NULL) {
        return;
    }
    dpe_text_free(&t->path);
    for (size_t i = 0; i < t->n_added; i++) {
        dpe_text_free(&t->added[i].content);
    }
    free(t->added);
    free(t->added_by_id);
    free(t->raw.tokens);
    free(t->normalized.tokens);
    for (size_t i = 0; i < DPE_MAX_STEPS; i++) {
        dpe_text_free(&t->normalizers[i].pattern);
        dpe_text_free(&t->normalizers[i].content);
        dpe_text_free(&t->decoders[i].pattern);
        dpe_text_free(&t->decoders[i].content);
        dpe_text_free(&t->steps[i].spaces.pattern);
        dpe_text_free(&t->steps[i].spaces.content);
        dpe_pattern_free(&t->steps[i].pattern);
    }
    dpe_tokens_free(&t->prefix);
    dpe_tokens_free(&t->suffix);
    dpe_vocab_free(&t->vocab);
    free(t);
}

int64_t dpe_tokenizer_size(const struct dpe_tokenizer *t)
{
    return t->vocab.n_ids;
}

int dpe_tokenizer_prefix_size(const struct dpe_tokenizer *t)
{
    return (int)t->prefix.n;
}

const char *dpe_tokenizer_path(const struct dpe_tokenizer *t)
{
    return t->path.bytes;
}

const char *dpe_tokenizer_fingerprint(const struct dpe_tokenizer *t)
{
    return t->fingerprint;
}
