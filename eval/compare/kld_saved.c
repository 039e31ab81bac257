/* A base's distributions in a file. */
#include "eval/compare/kld.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/system/platform.h"
#include "outputs/table/trailer.h"

enum { HEADER = 4096, VERSION = 2, MOST_STEP = UINT16_MAX };
static const char magic[16] = "dpe base logits";
static const double range = 32.0; /* nats below the likeliest token */

/* Little-endian, as every machine that dpe runs on. A check is of what follows it and its place. */
struct header {
    char magic[16];
    int64_t version, vocab, length;
    char plan[40], model[72], device[24], kv_type[16];
};
struct text_header {
    int64_t check, complete;
    uint64_t hash;         /* of the tokens */
    double rounding, most; /* sum and largest KL(p, kept) */
};
struct row_header {
    int64_t check;
    double top, step, nll;
    int64_t best;
};

struct dpe_kld_saved {
    char *path;
    int fd;
    struct header header;
    double sum, most; /* of the text that is being written */
};

static int64_t row_bytes(int64_t vocab)
{
    int64_t steps = vocab * (int64_t)sizeof(uint16_t);
    return (int64_t)sizeof(struct row_header) + (steps + 7) / 8 * 8;
}

int64_t dpe_kld_saved_bytes(int64_t vocab, int64_t length)
{
    return (int64_t)sizeof(struct text_header) + (length - 1) * row_bytes(vocab);
}

static int64_t place(const struct dpe_kld_saved *saved, int64_t text)
{
    return HEADER + text * dpe_kld_saved_bytes(saved->header.vocab, saved->header.length);
}

/* Of n bytes at a place of the file, the first 8 of which are the check. */
static int64_t check_of(const void *bytes, int64_t n, int64_t at)
{
    const size_t own = sizeof(int64_t);
    return dpe_crc32c(dpe_crc32c(0, &at, own), (const char *)bytes + own, (size_t)n - own);
}

static dpe_status put(const struct dpe_kld_saved *saved, const void *bytes, int64_t n, int64_t at,
                      struct dpe_error *err)
{
    return dpe_write_at(saved->fd, bytes, (size_t)n, (uint64_t)at) == (size_t)n
               ? DPE_OK
               : dpe_fail(err, DPE_IO, "%s: cannot write: %s", saved->path, strerror(errno));
}

/* Reads n bytes; what lies past the file's end is 0, as in its holes. */
static dpe_status get(const struct dpe_kld_saved *saved, void *bytes, int64_t n, int64_t at,
                      struct dpe_error *err)
{
    size_t done = dpe_read_at(saved->fd, bytes, (size_t)n, (uint64_t)at);
    if (done < (size_t)n && errno != 0) {
        return dpe_fail(err, DPE_IO, "%s: cannot read: %s", saved->path, strerror(errno));
    }
    memset((char *)bytes + done, 0, (size_t)n - done);
    return DPE_OK;
}

/* ----------------------------------------------------------------------------------------- file */

static dpe_status check_header(const struct header *found, const struct header *want,
                               const char *path, struct dpe_error *err)
{
    const struct {
        const char *name, *want, *found;
    } texts[] = {{"plan", want->plan, found->plan},
                 {"model", want->model, found->model},
                 {"device", want->device, found->device},
                 {"type of keys and values", want->kv_type, found->kv_type}};
    if (memcmp(found->magic, magic, sizeof magic) != 0 || found->version != VERSION) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: expected a file of --save-base of this version of dpe, or none: this "
                        "one begins otherwise",
                        path);
    }
    if (found->vocab != want->vocab || found->length != want->length) {
        return dpe_fail(
            err, DPE_MISMATCH,
            "%s: holds texts of %lld tokens over a vocabulary of %lld, this run has %lld "
            "and %lld: use another file",
            path, (long long)found->length, (long long)found->vocab, (long long)want->length,
            (long long)want->vocab);
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (strncmp(texts[i].want, texts[i].found, strlen(texts[i].want) + 1) != 0) {
            return dpe_fail(
                err, DPE_MISMATCH,
                "%s: its base has another %s (%.70s) than this run (%.70s): use another file", path,
                texts[i].name, texts[i].found, texts[i].want);
        }
    }
    return DPE_OK;
}

static dpe_status begin(struct dpe_kld_saved *saved, struct dpe_error *err)
{
    struct {
        struct header header;
        char end; /* of the last text */
    } found = {0};
    struct stat size;
    saved->fd = open(saved->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (saved->fd < 0) {
        return dpe_fail(err, DPE_CANNOT_CREATE, "%s: cannot open or create it: %s", saved->path,
                        strerror(errno));
    }
    if (fstat(saved->fd, &size) != 0 || !S_ISREG(size.st_mode)) {
        return dpe_fail(err, DPE_CANNOT_CREATE, "%s: not a regular file", saved->path);
    }
    if (size.st_size == 0) {
        return put(saved, &saved->header, (int64_t)sizeof saved->header, 0, err);
    }
    DPE_TRY(get(saved, &found.header, (int64_t)sizeof found.header, 0, err));
    return check_header(&found.header, &saved->header, saved->path, err);
}

dpe_status dpe_kld_saved_open(const char *path, const struct dpe_kld_saved_name *name,
                              struct dpe_kld_saved **saved, struct dpe_error *err)
{
    DPE_SCOPED(dpe_kld_saved_close_scoped) struct dpe_kld_saved *made = NULL;
    *saved = NULL;
    DPE_TRY(DPE_NEW(&made, 1, err, "out of memory"));
    made->fd = -1;
    made->path = strdup(path);
    DPE_TRY(DPE_MADE(made->path, err, "out of memory"));
    struct header *header = &made->header;
    memcpy(header->magic, magic, sizeof magic);
    header->version = VERSION;
    header->vocab = name->vocab;
    header->length = name->length;
    snprintf(header->plan, sizeof header->plan, "%s", name->plan);
    snprintf(header->model, sizeof header->model, "%s", name->model);
    snprintf(header->device, sizeof header->device, "%s", name->device);
    snprintf(header->kv_type, sizeof header->kv_type, "%s", name->kv_type);
    DPE_TRY(begin(made, err));
    *saved = made;
    made = NULL;
    return DPE_OK;
}

void dpe_kld_saved_close(struct dpe_kld_saved *saved)
{
    if (saved != NULL) {
        if (saved->fd >= 0) {
            close(saved->fd);
        }
        free(saved->path);
        free(saved);
    }
}

/* ---------------------------------------------------------------------------------------- texts */

static uint64_t hash_of(const int32_t *ids, int64_t n)
{
    uint64_t hash = DPE_FNV; /* FNV-1a over whole tokens: saved bases have it */
    for (int64_t i = 0; i < n; i++) {
        hash = (hash ^ (uint64_t)(uint32_t)ids[i]) * UINT64_C(1099511628211);
    }
    return hash;
}

static dpe_status is_damaged(const struct dpe_kld_saved *saved, int64_t text, struct dpe_error *err)
{
    return dpe_fail(err, DPE_BAD_DATA,
                    "%s: expected what was written of text %lld, found other bytes or the file's "
                    "end: remove it and make it anew",
                    saved->path, (long long)text);
}

/* What a damaged header says is an error; one that says nothing is of a text that was not kept. */
static dpe_status get_text(const struct dpe_kld_saved *saved, int64_t text,
                           struct text_header *header, struct dpe_error *err)
{
    const int64_t at = place(saved, text);
    DPE_TRY(get(saved, header, (int64_t)sizeof *header, at, err));
    return header->check == check_of(header, (int64_t)sizeof *header, at) ||
                   (header->check == 0 && header->complete == 0)
               ? DPE_OK
               : is_damaged(saved, text, err);
}

dpe_status dpe_kld_saved_has(struct dpe_kld_saved *saved, int64_t text, const int32_t *ids,
                             bool *has, struct dpe_error *err)
{
    struct text_header header;
    *has = false;
    DPE_TRY(get_text(saved, text, &header, err));
    *has = header.complete == 1;
    saved->sum = saved->most = 0.0;
    return !*has || header.hash == hash_of(ids, saved->header.length)
               ? DPE_OK
               : dpe_fail(
                     err, DPE_MISMATCH,
                     "%s: its text %lld has other tokens than that of this run: use another file",
                     saved->path, (long long)text);
}

dpe_status dpe_kld_saved_end(struct dpe_kld_saved *saved, int64_t text, const int32_t *ids,
                             struct dpe_error *err)
{
    struct text_header header = {.complete = 1,
                                 .hash = hash_of(ids, saved->header.length),
                                 .rounding = saved->sum,
                                 .most = saved->most};
    const int64_t at = place(saved, text);
    header.check = check_of(&header, (int64_t)sizeof header, at);
    if (dpe_sync_data(saved->fd) != 0) {
        return dpe_fail(err, DPE_IO, "%s: cannot write: %s", saved->path, strerror(errno));
    }
    return put(saved, &header, (int64_t)sizeof header, at, err);
}

dpe_status dpe_kld_saved_rounding(struct dpe_kld_saved *saved, int64_t n_texts,
                                  struct dpe_kld_rounding *rounding, struct dpe_error *err)
{
    double sum = 0.0;
    *rounding = (struct dpe_kld_rounding){0};
    for (int64_t text = 0; text < n_texts && saved != NULL; text++) {
        struct text_header header;
        DPE_TRY(get_text(saved, text, &header, err));
        if (header.complete == 1) {
            rounding->tokens += saved->header.length - 1;
            rounding->most = fmax(rounding->most, header.most);
            sum += header.rounding;
        }
    }
    rounding->mean = rounding->tokens > 0 ? sum / (double)rounding->tokens : 0.0;
    return DPE_OK;
}

/* ----------------------------------------------------------------------------------------- rows */

/* ln p of a row as it is kept. */
static void unpack(const struct row_header *row, const uint16_t *steps, int64_t vocab,
                   float *logits)
{
    for (int64_t v = 0; v < vocab; v++) {
        logits[v] = (float)(row->top - row->step * (double)steps[v]);
    }
    logits[row->best] = nextafterf((float)row->top, 1.0F); /* alone at the top */
}

static void pack(const float *logits, int64_t vocab, int32_t next, struct row_header *row,
                 uint16_t *steps)
{
    const bool finite = dpe_first_nonfinite(logits, vocab) < 0;
    row->best = finite ? dpe_likeliest(logits, vocab) : 0;
    const float most = logits[row->best];
    float least = most;
    for (int64_t v = 0; v < vocab; v++) {
        least = logits[v] < least ? logits[v] : least;
    }
    row->top = finite ? -log(dpe_power_sums(logits, NULL, vocab, (double)most, NULL)) : (double)NAN;
    row->step = fmin(range, (double)most - (double)least) / MOST_STEP;
    row->nll = finite ? (double)most - (double)logits[next] - row->top : (double)NAN;
    for (int64_t v = 0; v < vocab; v++) {
        double down = row->step > 0.0 ? ((double)most - (double)logits[v]) / row->step : 0.0;
        steps[v] = finite ? (uint16_t)fmin(nearbyint(down), MOST_STEP) : 0;
    }
}

dpe_status dpe_kld_saved_put(struct dpe_kld_saved *saved, int64_t text, int64_t at, int64_t rows,
                             const int32_t *next, float *logits, double *nll, struct dpe_error *err)
{
    const int64_t vocab = saved->header.vocab;
    const int64_t stride = row_bytes(vocab);
    const int64_t from = place(saved, text) + (int64_t)sizeof(struct text_header) + at * stride;
    DPE_OWNED char *bytes = NULL;
    DPE_OWNED float *kept = NULL;
    DPE_TRY(DPE_NEW(&bytes, (size_t)(rows * stride), err, "out of memory for the rows of a base"));
    DPE_TRY(DPE_NEW(&kept, (size_t)vocab, err, "out of memory for the rows of a base"));
    for (int64_t i = 0; i < rows; i++) {
        struct row_header *row = (struct row_header *)(void *)(bytes + i * stride);
        uint16_t *steps = (uint16_t *)(void *)(row + 1);
        float *own = logits + i * vocab;
        pack(own, vocab, next[i], row, steps);
        unpack(row, steps, vocab, kept);
        double rounding = dpe_kld_compare(own, kept, vocab, next[i]).kl;
        saved->sum += rounding;
        saved->most = fmax(saved->most, rounding);
        memcpy(own, kept, (size_t)vocab * sizeof *kept);
        nll[i] = row->nll;
        row->check = check_of(row, stride, from + i * stride);
    }
    return put(saved, bytes, rows * stride, from, err);
}

dpe_status dpe_kld_saved_get(struct dpe_kld_saved *saved, int64_t text, int64_t at, int64_t rows,
                             float *logits, double *nll, struct dpe_error *err)
{
    const int64_t vocab = saved->header.vocab;
    const int64_t stride = row_bytes(vocab);
    const int64_t from = place(saved, text) + (int64_t)sizeof(struct text_header) + at * stride;
    DPE_OWNED char *bytes = dpe_alloc((size_t)rows, (size_t)stride);
    DPE_TRY(DPE_MADE(bytes, err, "out of memory for the rows of a base"));
    DPE_TRY(get(saved, bytes, rows * stride, from, err));
    for (int64_t i = 0; i < rows; i++) {
        const struct row_header *row =
            (const struct row_header *)(const void *)(bytes + i * stride);
        if (row->check != check_of(row, stride, from + i * stride) || row->top > 0.0 ||
            row->nll < 0.0 || !(row->step >= 0.0 && row->step <= range / MOST_STEP) ||
            row->best < 0 || row->best >= vocab) {
            return is_damaged(saved, text, err);
        }
        unpack(row, (const uint16_t *)(const void *)(row + 1), vocab, logits + i * vocab);
        nll[i] = row->nll;
    }
    return DPE_OK;
}
