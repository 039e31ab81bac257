/* Rows: their rules, their portable bytes, and finding them by key. */

#include "engine/base/base.h"
#include "engine/base/bytes.h"
#include "outputs/h5/rows.h"
#include "outputs/storage/storage.h"

#include <math.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tags are for ever: a field that goes keeps its number, a new one takes a new number. */
enum {
    TAG_PLAN = 1,
    TAG_TASK = 2,
    TAG_SAMPLE = 3,
    TAG_SECONDS = 14,
    TAG_TEXT = 15,
    TAG_BUCKETS = 16,
    TAG_MARGIN = 18,
    MAX_BUCKETS = 1 << 20,
};

#define FIELD(tag, type, member, path, long_name, units, flags)                                    \
    {                                                                                              \
        tag, type, offsetof(struct dpe_row, member), path, long_name, units, flags, false          \
    }

const struct dpe_row_field dpe_row_fields[] = {
    FIELD(TAG_SAMPLE, DPE_COL_I64, sample, "/rows/sample", "index of the sample in its task", "1",
          NULL),
    FIELD(4, DPE_COL_I32, status, "/rows/status", "how the sample ended", "1",
          "ok nonfinite failed"),
    FIELD(5, DPE_COL_F64, score, "/rows/score", "score of the sample (NIAH: recall)", "1", NULL),
    FIELD(6, DPE_COL_F64, at_least_half, "/rows/at_least_half",
          "1 when at least half of the values were found", "1", NULL),
    FIELD(7, DPE_COL_F64, nll_sum, "/rows/nll_sum", "negative log-likelihood of the scored tokens",
          "nats", NULL),
    FIELD(8, DPE_COL_I64, n_tokens, "/rows/n_tokens", "scored tokens", "tokens", NULL),
    FIELD(9, DPE_COL_I64, n_words, "/rows/n_words", "words of the scored text", "words", NULL),
    FIELD(10, DPE_COL_I64, prompt_tokens, "/rows/prompt_tokens", "tokens of the prompt", "tokens",
          NULL),
    FIELD(11, DPE_COL_I64, new_tokens, "/rows/new_tokens", "generated tokens", "tokens", NULL),
    FIELD(12, DPE_COL_U64, seed, "/rows/seed", "seed of the sample", "1", NULL),
    FIELD(13, DPE_COL_I32, layer, "/rows/layer", "layer of the first value that is not finite", "1",
          NULL),
    FIELD(17, DPE_COL_I64, position, "/rows/position",
          "position of the first value that is not finite", "tokens", NULL),
    {TAG_MARGIN, DPE_COL_F64, offsetof(struct dpe_row, margin), "/rows/margin",
     "of a score by steps: mean of 1 / (1 + exp(-m / 0.3)), m the least log-odds of the right "
     "tokens",
     "1", NULL, true},
    FIELD(TAG_SECONDS, DPE_COL_F64, seconds, "/run/seconds", "time the sample took", "s", NULL),
};
const size_t dpe_n_row_fields = sizeof dpe_row_fields / sizeof dpe_row_fields[0];

void dpe_row_init(struct dpe_row *row)
{
    *row = (struct dpe_row){
        .sample = -1,
        .score = NAN,
        .at_least_half = NAN,
        .nll_sum = NAN,
        .n_tokens = -1,
        .n_words = -1,
        .prompt_tokens = -1,
        .new_tokens = -1,
        .layer = -1,
        .position = -1,
        .margin = NAN,
        .seconds = NAN,
    };
}

bool dpe_row_has(const struct dpe_row *row, const struct dpe_row_field *field)
{
    double value = 0.0;
    if (field->optional) {
        memcpy(&value, (const char *)row + field->offset, sizeof value);
    }
    return !isnan(value);
}

void dpe_row_free(struct dpe_row *row)
{
    if (row == NULL) {
        return;
    }
    free(row->text);
    free(row->buckets);
    dpe_row_init(row);
}

void dpe_rows_free(struct dpe_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dpe_row_free(&rows[i]);
    }
    free(rows);
}

/* A key is a non-empty text that ends inside its array. */
static bool key_ok(const char *key, size_t size)
{
    const char *end = memchr(key, '\0', size);
    return end != NULL && end != key &&
           dpe_utf8_check(key, (size_t)(end - key)) == (size_t)(end - key);
}

dpe_status dpe_row_check(const struct dpe_row *row, struct dpe_error *err)
{
    if (!key_ok(row->plan, sizeof row->plan) || !key_ok(row->task, sizeof row->task)) {
        return dpe_fail(err, DPE_INTERNAL, "a row without a plan or a task");
    }
    if (row->sample < 0 || row->status < DPE_ROW_OK || row->status > DPE_ROW_FAILED ||
        row->n_buckets < 0 || row->n_buckets > MAX_BUCKETS ||
        (row->n_buckets > 0 && row->buckets == NULL)) {
        return dpe_fail(err, DPE_INTERNAL,
                        "row %s/%s: sample %lld, status %d or %d buckets: a value is outside its "
                        "limits",
                        row->task, row->plan, (long long)row->sample, (int)row->status,
                        (int)row->n_buckets);
    }
    if (!dpe_is_utf8(row->text)) {
        return dpe_fail(err, DPE_INTERNAL, "row %s/%s/%lld: its text is not UTF-8", row->task,
                        row->plan, (long long)row->sample);
    }
    return DPE_OK;
}

dpe_status dpe_row_copy(struct dpe_row *to, const struct dpe_row *from, struct dpe_error *err)
{
    const size_t n = from->n_buckets > 0 ? (size_t)from->n_buckets * sizeof *to->buckets : 0;
    *to = *from;
    to->text = from->text != NULL ? dpe_join(from->text, "", "") : NULL;
    to->buckets = n > 0 ? malloc(n) : NULL;
    if ((from->text != NULL && to->text == NULL) || (n > 0 && to->buckets == NULL)) {
        dpe_row_free(to);
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for a row");
    }
    if (n > 0) {
        memcpy(to->buckets, from->buckets, n);
    }
    return DPE_OK;
}

static uint64_t field_bits(const struct dpe_row *row, const struct dpe_row_field *field)
{
    const char *from = (const char *)row + field->offset;
    uint64_t bits = 0;
    if (field->type == DPE_COL_I32) {
        int32_t value = 0;
        memcpy(&value, from, sizeof value);
        return (uint64_t)(int64_t)value;
    }
    memcpy(&bits, from, sizeof bits);
    return bits;
}

static bool same_double(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static bool same_field(const struct dpe_row *a, const struct dpe_row *b,
                       const struct dpe_row_field *field)
{
    uint64_t x = field_bits(a, field), y = field_bits(b, field);
    if (field->type != DPE_COL_F64) {
        return x == y;
    }
    double p = 0.0, q = 0.0;
    memcpy(&p, &x, sizeof p);
    memcpy(&q, &y, sizeof q);
    return same_double(p, q);
}

const char *dpe_row_difference(const struct dpe_row *a, const struct dpe_row *b)
{
    for (size_t i = 0; i < dpe_n_row_fields; i++) {
        const struct dpe_row_field *field = &dpe_row_fields[i];
        if (field->tag != TAG_SECONDS && !same_field(a, b, field)) {
            return strrchr(field->path, '/') + 1;
        }
    }
    if ((a->text == NULL) != (b->text == NULL) ||
        (a->text != NULL && strcmp(a->text, b->text) != 0)) {
        return "text";
    }
    if (a->n_buckets != b->n_buckets) {
        return "buckets";
    }
    for (int32_t i = 0; i < a->n_buckets; i++) {
        if (!same_double(a->buckets[i], b->buckets[i])) {
            return "buckets";
        }
    }
    return NULL;
}

int dpe_row_compare(const struct dpe_row *a, const struct dpe_row *b)
{
    int order = strcmp(a->task, b->task);
    order = order != 0 ? order : strcmp(a->plan, b->plan);
    return order != 0 ? order : (a->sample > b->sample) - (a->sample < b->sample);
}

/* ---------------------------------------------------------------------------------------- bytes */

static dpe_status put_field(struct dpe_text *out, unsigned tag, const void *value, size_t n,
                            struct dpe_error *err)
{
    if (n > UINT32_MAX) {
        return dpe_fail(err, DPE_INTERNAL, "a row's field of %zu bytes is too long", n);
    }
    unsigned char head[6];
    dpe_store_u64(head, tag, 2);
    dpe_store_u64(head + 2, n, 4);
    DPE_TRY(dpe_text_append(out, (const char *)head, sizeof head, err));
    return dpe_text_append(out, value, n, err);
}

static dpe_status put_buckets(const struct dpe_row *row, struct dpe_text *out,
                              struct dpe_error *err)
{
    size_t n = (size_t)row->n_buckets;
    DPE_OWNED unsigned char *bytes = NULL;
    DPE_TRY(DPE_NEW(&bytes, 8 * n, err, "out of memory for %zu buckets", n));
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = 0;
        memcpy(&bits, &row->buckets[i], sizeof bits);
        dpe_store_u64(bytes + 8 * i, bits, 8);
    }
    return put_field(out, TAG_BUCKETS, bytes, 8 * n, err);
}

dpe_status dpe_row_encode(const struct dpe_row *row, bool seconds, struct dpe_text *out,
                          struct dpe_error *err)
{
    DPE_TRY(put_field(out, TAG_PLAN, row->plan, strlen(row->plan), err));
    DPE_TRY(put_field(out, TAG_TASK, row->task, strlen(row->task), err));
    for (size_t i = 0; i < dpe_n_row_fields; i++) {
        const struct dpe_row_field *field = &dpe_row_fields[i];
        if ((field->tag == TAG_SECONDS && !seconds) || !dpe_row_has(row, field)) {
            continue;
        }
        unsigned char value[8];
        dpe_store_u64(value, field_bits(row, field), 8);
        DPE_TRY(put_field(out, field->tag, value, sizeof value, err));
    }
    if (row->text != NULL) {
        DPE_TRY(put_field(out, TAG_TEXT, row->text, strlen(row->text), err));
    }
    if (row->n_buckets > 0) {
        DPE_TRY(put_buckets(row, out, err));
    }
    return DPE_OK;
}

/* A field of known size that was not as it should be. */
static dpe_status bad_field(struct dpe_error *err, unsigned tag, size_t n)
{
    return dpe_fail(err, DPE_BAD_DATA, "a row's field %u of %zu bytes is not valid", tag, n);
}

static dpe_status get_key(char *key, size_t size, unsigned tag, const unsigned char *value,
                          size_t n, struct dpe_error *err)
{
    if (n == 0 || n >= size || memchr(value, '\0', n) != NULL || key[0] != '\0') {
        return bad_field(err, tag, n);
    }
    memcpy(key, value, n);
    key[n] = '\0';
    return DPE_OK;
}

static dpe_status get_number(struct dpe_row *row, unsigned tag, const unsigned char *value,
                             size_t n, struct dpe_error *err)
{
    for (size_t i = 0; i < dpe_n_row_fields; i++) {
        const struct dpe_row_field *field = &dpe_row_fields[i];
        if (field->tag != tag) {
            continue;
        }
        if (n != 8) {
            return bad_field(err, tag, n);
        }
        uint64_t bits = dpe_load_u64(value, 8);
        char *to = (char *)row + field->offset;
        if (field->type == DPE_COL_I32) {
            int32_t narrow = (int32_t)(uint32_t)bits;
            if ((uint64_t)(int64_t)narrow != bits) {
                return bad_field(err, tag, n);
            }
            memcpy(to, &narrow, sizeof narrow);
        } else {
            memcpy(to, &bits, sizeof bits);
        }
        return DPE_OK;
    }
    return DPE_OK;
}

static dpe_status get_text(struct dpe_row *row, const unsigned char *value, size_t n,
                           struct dpe_error *err)
{
    if (row->text != NULL || memchr(value, '\0', n) != NULL) {
        return bad_field(err, TAG_TEXT, n);
    }
    row->text = strndup((const char *)value, n);
    return DPE_MADE(row->text, err, "out of memory for a text of %zu bytes", n);
}

static dpe_status get_buckets(struct dpe_row *row, const unsigned char *value, size_t n,
                              struct dpe_error *err)
{
    if (row->buckets != NULL || n == 0 || n % 8 != 0 || n / 8 > MAX_BUCKETS) {
        return bad_field(err, TAG_BUCKETS, n);
    }
    DPE_TRY(DPE_NEW(&row->buckets, n / 8, err, "out of memory for %zu buckets", n / 8));
    for (size_t i = 0; i < n / 8; i++) {
        uint64_t bits = dpe_load_u64(value + 8 * i, 8);
        memcpy(&row->buckets[i], &bits, sizeof bits);
    }
    row->n_buckets = (int32_t)(n / 8);
    return DPE_OK;
}

static dpe_status get_field(struct dpe_row *row, unsigned tag, const unsigned char *value, size_t n,
                            struct dpe_error *err)
{
    switch (tag) {
    case TAG_PLAN:
        return get_key(row->plan, sizeof row->plan, tag, value, n, err);
    case TAG_TASK:
        return get_key(row->task, sizeof row->task, tag, value, n, err);
    case TAG_TEXT:
        return get_text(row, value, n, err);
    case TAG_BUCKETS:
        return get_buckets(row, value, n, err);
    default:
        return get_number(row, tag, value, n, err);
    }
}

dpe_status dpe_row_decode(const unsigned char *bytes, size_t n, struct dpe_row *row,
                          struct dpe_error *err)
{
    DPE_SCOPED(dpe_row_free) struct dpe_row made = {0};
    struct dpe_error why = {0};
    dpe_row_init(&made);
    *row = made;
    for (size_t at = 0; at < n;) {
        if (n - at < 6) {
            return dpe_fail(err, DPE_BAD_DATA, "a row ends within a field");
        }
        unsigned tag = (unsigned)dpe_load_u64(bytes + at, 2);
        size_t size = (size_t)dpe_load_u64(bytes + at + 2, 4);
        at += 6;
        if (size > n - at) {
            return dpe_fail(err, DPE_BAD_DATA, "a row ends within field %u", tag);
        }
        DPE_TRY(get_field(&made, tag, bytes + at, size, err));
        at += size;
    }
    if (dpe_row_check(&made, &why) != DPE_OK) {
        return dpe_fail(err, DPE_BAD_DATA, "%s", why.text);
    }
    *row = made;
    dpe_row_init(&made);
    return DPE_OK;
}

dpe_status dpe_rows_hash(const struct dpe_row *const *rows, size_t n, char hex[65],
                         struct dpe_error *err)
{
    struct dpe_sha256 *hash = dpe_sha256_new();
    DPE_SCOPED(dpe_text_free) struct dpe_text bytes = {0};
    dpe_status status = DPE_OK;
    for (size_t i = 0; status == DPE_OK && i < n; i++) {
        bytes.n = 0;
        status = dpe_row_encode(rows[i], false, &bytes, err);
        unsigned char size[8];
        dpe_store_u64(size, bytes.n, 8);
        dpe_sha256_add(hash, size, sizeof size);
        dpe_sha256_add(hash, bytes.bytes, bytes.n);
    }
    const dpe_status finished = dpe_sha256_finish(hash, hex, status == DPE_OK ? err : NULL);
    return status == DPE_OK ? finished : status;
}

void dpe_positions_add(struct dpe_positions *positions, const struct dpe_row *row)
{
    const int n = row == NULL || row->status != DPE_ROW_OK ? 0
                  : row->n_buckets < DPE_POSITIONS         ? row->n_buckets
                                                           : DPE_POSITIONS;
    for (int b = 0; b < n; b++) {
        const double first = ldexp(1.0, b);
        positions->nll[b] += row->buckets[b];
        positions->tokens[b] +=
            fmax(0.0, fmin((double)row->n_tokens, 2.0 * first - 1.0) - first + 1.0);
    }
    positions->n = n > positions->n ? n : positions->n;
}

double dpe_positions_at(const struct dpe_positions *positions, int bucket)
{
    return positions->tokens[bucket] > 0.0 ? exp(positions->nll[bucket] / positions->tokens[bucket])
                                           : (double)NAN;
}

/* --------------------------------------------------------------------------------- rows by key */

static int by_key(const void *a, const void *b)
{
    return dpe_row_compare(a, b);
}

dpe_status dpe_rowset_put(struct dpe_rowset *set, struct dpe_row *row, struct dpe_error *err)
{
    DPE_OWNED struct dpe_row *kept = NULL;
    DPE_TRY(DPE_ROOM(&set->rows, set->n, err, "out of memory for %zu rows", set->n));
    DPE_TRY(DPE_NEW(&kept, 1, err, "out of memory for %zu rows", set->n));
    *kept = *row;
    DPE_TRY(DPE_MADE(tsearch(kept, &set->tree, by_key), err, "out of memory for %zu rows", set->n));
    set->rows[set->n++] = kept;
    kept = NULL;
    dpe_row_init(row);
    return DPE_OK;
}

void dpe_rowset_drop(struct dpe_rowset *set)
{
    struct dpe_row *row = set->rows[--set->n];
    tdelete(row, &set->tree, by_key);
    dpe_row_free(row);
    free(row);
}

const struct dpe_row *dpe_rowset_find(const struct dpe_rowset *set, const char *task,
                                      const char *plan, int64_t sample)
{
    struct dpe_row key = {.sample = sample};
    snprintf(key.task, sizeof key.task, "%s", task);
    snprintf(key.plan, sizeof key.plan, "%s", plan);
    struct dpe_row *const *found = tfind(&key, &set->tree, by_key);
    return found != NULL ? *found : NULL;
}

void dpe_rowset_free(struct dpe_rowset *set)
{
    while (set->n > 0) {
        dpe_rowset_drop(set);
    }
    free(set->rows);
    *set = (struct dpe_rowset){0};
}
