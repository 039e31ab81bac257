/* Identities: what decides a result, compared.
 *
 * Everything that a run reads, and why it is in the identity or not. In means: with another value
 * the same command ends with DPE_MISMATCH, which names the field.
 *
 * Files
 *   config.json             in, "model": its bytes
 *   generation_config.json  in, "end_tokens": its eos_token_id joined with config.json's, as
 * parsed; nothing else of it is read (decoding is greedy)
 *   *.safetensors           in, "model": names, sizes, headers and blocks of the data of all shards
 *   model.safetensors.index.json  out: it maps tensors to shards, and each shard's
 *                           header, which is in, has to agree
 *   tokenizer.json          in, "tokenizer": its bytes, and the tokens that files beside it add.
 *                           Special tokens, what is put before a
 *                           prompt, normalisation and splitting are read from it
 *   tokenizer_config.json, special_tokens_map.json, chat_template.jinja  in as far as they decide
 *                           what the chat template puts around a prompt: see --chat-template
 *   --corpus                in, "corpus": ids and texts of the books as they were parsed
 *   --chat-template         in: of niah and ruler within "...template", of official data in
 *                           "..._chat_template"; what it puts before and after a prompt, as text,
 *                           so that auto and the same template as a file are one identity
 *   templates and word lists (template=FILE, --template-file, those built in)  in, "...template"
 *   --squad, --hotpotqa, files of --data  in, "..._squad", "..._hotpotqa", "..._data_TASK"
 *   --table, --norms, plans of a command line  in each row's key: the digest of the
 *                           plan, which is computed from all that it holds
 *
 * Options
 *   seed, length, task and its parameters, special-token policy, contribution, suite, scorer  in
 *   device, dtype, angle, tensor_parallel  in: they round differently
 *   samples, lengths, groups, methods  out: which cells there are. A cell's key names its own
 *   the rules by which dpe-detect races, selects and validates  out: they are applied to the rows
 *                           again each time, and decide which cells are measured, not their values
 *   trained length          out: plans hold what follows from it
 *   threads, ranks, batch, prefill chunk, memory, time budget, log format, journal options  out:
 *                           tests show equal bits for them
 *
 * Environment
 *   DPE_CPU, DPE_CUDA_ATTENTION, DPE_CUDA_MODULE, DPE_CUDA_PEERS,
 *   OPENBLAS_CORETYPE       out, as the generation of a processor or card is: they choose among
 *                           ways that round differently by no more than those do. /run/sessions
 *                           records them
 *   DPE_DEVICE_SELF_TEST, DPE_CUDA_GRAPHS, OMP_*, OPENBLAS_NUM_THREADS  out: how long it takes,
 *                           not what comes out
 *   LANG, LC_*              out: numbers are read and written as in C everywhere
 *   TERM, COLORTERM, NO_COLOR, COLUMNS  out: the terminal
 *   OMPI_*, PMI*, SLURM_*   out: which ranks there are
 */
#include "engine/base/base.h"
#include "engine/base/bytes.h"
#include "outputs/h5/rows.h"
#include "outputs/storage/storage.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool dpe_session_name_ok(const char *name)
{
    return name[0] != '\0' && name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

const char *dpe_identity_get(const struct dpe_identity *identity, const char *name)
{
    const struct dpe_identity_field *found =
        dpe_named(identity->fields, identity->n, sizeof *found, name);
    return found != NULL ? found->value : NULL;
}

static bool is_by_steps(const char *niah)
{
    return niah != NULL && strstr(niah, ",score=steps") != NULL;
}

const char *dpe_identity_task_words(const char *niah, char text[DPE_TASK_WORDS])
{
    int keys = 0;
    int values = 0;
    int queries = 0;
    text[0] = '\0';
    if (niah == NULL ||
        sscanf(niah, "keys=%9d,values=%9d,queries=%9d", &keys, &values, &queries) != 3) {
        return text;
    }
    char n_keys[16] = "one";
    char n_values[16] = "one";
    char at_once[40] = "";
    if (keys != 1) {
        snprintf(n_keys, sizeof n_keys, "%d", keys);
    }
    if (values != 1) {
        snprintf(n_values, sizeof n_values, "%d", values);
    }
    if (queries != 1) {
        snprintf(at_once, sizeof at_once, ", %d asked for at once", queries);
    }
    snprintf(text, DPE_TASK_WORDS, "%s key%s of %s value%s%s%s", n_keys, keys != 1 ? "s" : "",
             n_values, values != 1 ? "s" : "", at_once,
             is_by_steps(niah) ? ", scored by steps" : "");
    return text;
}

const char *dpe_identity_measure(const char *niah)
{
    return is_by_steps(niah) ? "step score" : "recall";
}

dpe_status dpe_identity_add(struct dpe_identity *identity, const char *name, const char *value,
                            struct dpe_error *err)
{
    if (name[0] == '\0' || dpe_identity_get(identity, name) != NULL) {
        return dpe_fail(err, DPE_INTERNAL, "the name \"%s\" is empty or occurs twice", name);
    }
    if (!dpe_is_utf8(name) || !dpe_is_utf8(value)) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected UTF-8, found other bytes", name);
    }
    DPE_TRY(
        DPE_ROOM(&identity->fields, identity->n, err, "out of memory for %zu names", identity->n));
    DPE_OWNED char *key = dpe_join(name, "", "");
    DPE_TRY(DPE_MADE(key, err, "out of memory for the name %s", name));
    char *copy = dpe_join(value, "", "");
    DPE_TRY(DPE_MADE(copy, err, "out of memory for the value of %s", name));
    identity->fields[identity->n++] = (struct dpe_identity_field){key, copy};
    key = NULL;
    return DPE_OK;
}

dpe_status dpe_identity_addf(struct dpe_identity *identity, struct dpe_error *err, const char *name,
                             const char *format, ...)
{
    va_list args;
    va_start(args, format);
    DPE_OWNED char *value = dpe_format_list(format, args);
    va_end(args);
    DPE_TRY(DPE_MADE(value, err, "out of memory for the value of %s", name));
    return dpe_identity_add(identity, name, value, err);
}

void dpe_identity_free(struct dpe_identity *identity)
{
    for (size_t i = 0; i < identity->n; i++) {
        free(identity->fields[i].name);
        free(identity->fields[i].value);
    }
    free(identity->fields);
    *identity = (struct dpe_identity){0};
}

dpe_status dpe_identity_copy(struct dpe_identity *to, const struct dpe_identity *from,
                             struct dpe_error *err)
{
    DPE_SCOPED(dpe_identity_free) struct dpe_identity made = {0};
    *to = made;
    for (size_t i = 0; i < from->n; i++) {
        DPE_TRY(dpe_identity_add(&made, from->fields[i].name, from->fields[i].value, err));
    }
    *to = made;
    made = (struct dpe_identity){0};
    return DPE_OK;
}

/* ---------------------------------------------------------------------------------------- bytes */

static dpe_status put_string(struct dpe_text *out, const char *text, struct dpe_error *err)
{
    size_t n = strlen(text);
    if (n > UINT32_MAX) {
        return dpe_fail(err, DPE_INTERNAL, "a text of %zu bytes is too long", n);
    }
    unsigned char size[4];
    dpe_store_u64(size, n, sizeof size);
    DPE_TRY(dpe_text_append(out, (const char *)size, sizeof size, err));
    return dpe_text_append(out, text, n, err);
}

dpe_status dpe_identity_encode(const struct dpe_identity *list, struct dpe_text *out,
                               struct dpe_error *err)
{
    for (size_t i = 0; i < list->n; i++) {
        DPE_TRY(put_string(out, list->fields[i].name, err));
        DPE_TRY(put_string(out, list->fields[i].value, err));
    }
    return DPE_OK;
}

/* The string at *at, owned; NULL when it is not whole, holds a NUL, or memory is out. */
static char *get_string(const unsigned char *bytes, size_t n, size_t *at)
{
    if (n - *at < 4) {
        return NULL;
    }
    size_t size = (size_t)dpe_load_u64(bytes + *at, 4);
    *at += 4;
    if (size > n - *at || memchr(bytes + *at, '\0', size) != NULL) {
        return NULL;
    }
    char *text = strndup((const char *)bytes + *at, size);
    *at += text != NULL ? size : 0;
    return text;
}

dpe_status dpe_identity_decode(const unsigned char *bytes, size_t n, struct dpe_identity *list,
                               struct dpe_error *err)
{
    DPE_SCOPED(dpe_identity_free) struct dpe_identity made = {0};
    *list = made;
    for (size_t at = 0; at < n;) {
        DPE_OWNED char *name = get_string(bytes, n, &at);
        DPE_OWNED char *value = name == NULL ? NULL : get_string(bytes, n, &at);
        if (value == NULL) {
            return dpe_fail(err, DPE_BAD_DATA, "a list of names ends within byte %zu of %zu", at,
                            n);
        }
        DPE_TRY(dpe_identity_add(&made, name, value, err));
    }
    *list = made;
    made = (struct dpe_identity){0};
    return DPE_OK;
}

dpe_status dpe_identity_hash(const struct dpe_identity *identity, char hex[65],
                             struct dpe_error *err)
{
    struct dpe_sha256 *hash = dpe_sha256_new();
    for (size_t i = 0; i < identity->n; i++) {
        const char *texts[2] = {identity->fields[i].name, identity->fields[i].value};
        for (int k = 0; k < 2; k++) {
            unsigned char size[8];
            dpe_store_u64(size, strlen(texts[k]), sizeof size);
            dpe_sha256_add(hash, size, sizeof size);
            dpe_sha256_add(hash, texts[k], strlen(texts[k]));
        }
    }
    return dpe_sha256_finish(hash, hex, err);
}

/* ------------------------------------------------------------------------------------- mismatch */

/* The first byte at which two values differ. */
static size_t first_difference(const char *a, const char *b)
{
    size_t i = 0;
    while (a != NULL && b != NULL && a[i] != '\0' && a[i] == b[i]) {
        i++;
    }
    return i;
}

/* A value for a message: of a long one 2 · `ends` bytes, those around `at` among them. */
static void show_value(char *out, size_t size, const char *value, size_t ends, size_t at)
{
    size_t n = value == NULL ? 0 : strlen(value);
    if (value == NULL) {
        snprintf(out, size, "(absent)");
    } else if (n <= 2 * ends + 3) {
        snprintf(out, size, "\"%s\"", value);
    } else {
        size_t most = n - 2 * ends;
        size_t head = at < ends ? 0 : at - ends < most ? at - ends : most;
        size_t tail = head + 2 * ends;
        while (((unsigned char)value[head] & 0xc0) == 0x80) {
            head++;
        }
        while (((unsigned char)value[tail] & 0xc0) == 0x80) {
            tail--;
        }
        snprintf(out, size, "\"%s%.*s%s\"", head > 0 ? "..." : "", (int)(tail - head), value + head,
                 tail < n ? "..." : "");
    }
}

struct listing {
    char text[880];
    size_t at;
    size_t ends;     /* bytes shown on each side of where values differ, 0 = names only */
    int n, unlisted; /* fields that differ, those without room */
};

static void list_difference(struct listing *list, const char *name, const char *expected,
                            const char *found)
{
    if (expected != NULL && found != NULL && strcmp(expected, found) == 0) {
        return;
    }
    list->n++;
    size_t room = sizeof list->text - list->at;
    int n = 0;
    if (list->ends > 0) {
        char want[128], got[128];
        size_t at = first_difference(expected, found);
        show_value(want, sizeof want, expected, list->ends, at);
        show_value(got, sizeof got, found, list->ends, at);
        n = snprintf(list->text + list->at, room, "; %s: expected %s, found %s", name, want, got);
    } else {
        n = snprintf(list->text + list->at, room, "; %s", name);
    }
    if (n < 0 || (size_t)n >= room) {
        list->text[list->at] = '\0';
        list->unlisted++;
        return;
    }
    list->at += (size_t)n;
}

static void list_differences(struct listing *list, const struct dpe_identity *expected,
                             const struct dpe_identity *found)
{
    for (size_t i = 0; i < expected->n; i++) {
        const char *name = expected->fields[i].name;
        list_difference(list, name, expected->fields[i].value, dpe_identity_get(found, name));
    }
    for (size_t i = 0; i < found->n; i++) {
        const char *name = found->fields[i].name;
        if (dpe_identity_get(expected, name) == NULL) {
            list_difference(list, name, NULL, found->fields[i].value);
        }
    }
    if (list->n == 0) {
        list_difference(list, "order of the fields", "ours", "another");
    }
}

dpe_status dpe_identity_mismatch(const struct dpe_identity *expected,
                                 const struct dpe_identity *found, const char *path,
                                 struct dpe_error *err)
{
    /* Every name is worth more than all of a value. */
    static const size_t details[] = {32, 16, 6, 0};
    struct listing list = {0};
    for (size_t i = 0; i < sizeof details / sizeof details[0]; i++) {
        list = (struct listing){.ends = details[i]};
        list_differences(&list, expected, found);
        if (list.unlisted == 0) {
            break;
        }
    }
    char more[32] = "";
    if (list.unlisted > 0) {
        snprintf(more, sizeof more, "; and %d more", list.unlisted);
    }
    return dpe_fail(
        err, DPE_MISMATCH,
        "%s: belongs to a different run%s%s; choose another output, or replace it with --force",
        path, list.text, more);
}
