/* Small things everything stands on: lists, files, hashes, random numbers. */

#include "engine/base/base.h"
#include "engine/base/lfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <openssl/evp.h>

/* Room for n more elements of `size` bytes, doubling; the old block stays valid on failure. */
static dpe_status grow(void **block, size_t used, size_t *capacity, size_t n, size_t size,
                       struct dpe_error *err)
{
    size_t need = 0;
    if (__builtin_add_overflow(used, n, &need)) {
        return dpe_fail(err, DPE_NO_MEMORY, "a list of %zu + %zu elements overflows", used, n);
    }
    if (need <= *capacity) {
        return DPE_OK;
    }
    size_t wanted = *capacity < SIZE_MAX / 2 ? *capacity * 2 : need;
    wanted = wanted < need ? need : wanted;
    wanted = wanted < 64 ? 64 : wanted;
    size_t bytes = 0;
    void *grown = NULL;
    if (!__builtin_mul_overflow(wanted, size, &bytes)) {
        grown = realloc(*block, bytes);
    }
    DPE_TRY(DPE_MADE(grown, err, "out of memory for a list of %zu elements", wanted));
    *block = grown;
    *capacity = wanted;
    return DPE_OK;
}

const void *dpe_named(const void *rows, size_t n, size_t size, const char *name)
{
    const char *row = rows;
    for (const char *own = NULL; n > 0; n--, row += size) {
        memcpy(&own, row, sizeof own);
        if (strcmp(own, name) == 0) {
            return row;
        }
    }
    return NULL;
}

bool dpe_make_room(void *list, size_t n, size_t size)
{
    enum { LEAST = 16 };
    size_t bytes = 0;
    void *block = NULL;
    if (n != 0 && (n < LEAST || (n & (n - 1)) != 0)) {
        return true;
    }
    memcpy(&block, list, sizeof block);
    block =
        __builtin_mul_overflow(n == 0 ? LEAST : n, 2 * size, &bytes) ? NULL : realloc(block, bytes);
    if (block != NULL) {
        memcpy(list, &block, sizeof block);
    }
    return block != NULL;
}

dpe_status dpe_tokens_append(struct dpe_tokens *tokens, const int32_t *ids, size_t n,
                             struct dpe_error *err)
{
    void *block = tokens->ids;
    DPE_TRY(grow(&block, tokens->n, &tokens->capacity, n, sizeof *tokens->ids, err));
    tokens->ids = block;
    if (n > 0) {
        memcpy(tokens->ids + tokens->n, ids, n * sizeof *ids);
    }
    tokens->n += n;
    return DPE_OK;
}

void dpe_tokens_free(struct dpe_tokens *tokens)
{
    free(tokens->ids);
    *tokens = (struct dpe_tokens){0};
}

dpe_status dpe_text_append(struct dpe_text *text, const char *bytes, size_t n,
                           struct dpe_error *err)
{
    size_t room = 0;
    if (__builtin_add_overflow(n, (size_t)1, &room)) {
        return dpe_fail(err, DPE_NO_MEMORY, "a text of %zu bytes overflows", n);
    }
    void *block = text->bytes;
    DPE_TRY(grow(&block, text->n, &text->capacity, room, 1, err));
    text->bytes = block;
    if (n > 0) {
        memcpy(text->bytes + text->n, bytes, n);
    }
    text->n += n;
    text->bytes[text->n] = '\0';
    return DPE_OK;
}

void dpe_text_put_bytes(struct dpe_text *text, const void *bytes, size_t n)
{
    text->failed = text->failed || dpe_text_append(text, bytes, n, NULL) != DPE_OK;
}

char *dpe_format_list(const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *text = n >= 0 ? malloc((size_t)n + 1) : NULL;
    if (text != NULL) {
        vsnprintf(text, (size_t)n + 1, format, args);
    }
    return text;
}

void dpe_text_put(struct dpe_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    DPE_OWNED char *piece = dpe_format_list(format, args);
    va_end(args);
    text->failed = text->failed || piece == NULL;
    dpe_text_put_bytes(text, piece, piece != NULL ? strlen(piece) : 0);
}

dpe_status dpe_text_done(const struct dpe_text *text, struct dpe_error *err)
{
    return text->failed ? dpe_fail(err, DPE_NO_MEMORY, "out of memory for a text") : DPE_OK;
}

void dpe_free_owned(void *pointer)
{
    void *owned;
    memcpy(&owned, pointer, sizeof owned); /* of any type: none may be read as another */
    free(owned);
}

void dpe_text_free(struct dpe_text *text)
{
    free(text->bytes);
    *text = (struct dpe_text){0};
}

void dpe_append(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

const char *dpe_length_text(double tokens, char text[32])
{
    const double thousands = tokens / 1024.0;
    if (tokens >= 1024.0 && tokens < 0x1p60 && thousands == (double)(int64_t)thousands) {
        snprintf(text, 32, "%.0fk", thousands);
    } else {
        snprintf(text, 32, "%.0f", tokens);
    }
    return text;
}

const char *dpe_p_text(double p, char text[DPE_P_TEXT])
{
    if (!(p >= 0.0)) {
        snprintf(text, DPE_P_TEXT, "p unknown");
    } else if (p < 0.001) {
        snprintf(text, DPE_P_TEXT, "p < 0.001");
    } else {
        snprintf(text, DPE_P_TEXT, "p = %.3f", p);
    }
    return text;
}

/* A file may be there where it is the process or the disk that cannot open it. */
static dpe_status status_of_open(int code)
{
    switch (code) {
    case EACCES:
    case EPERM:
        return DPE_PERMISSION;
    case ENOMEM:
        return DPE_NO_MEMORY;
    case EMFILE:
    case ENFILE:
    case EIO:
    case ESTALE:
    case EINTR:
        return DPE_IO;
    default:
        return DPE_NO_INPUT;
    }
}

bool dpe_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

void dpe_close_fd(const int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
}

/* Opened without blocking, so that a FIFO in place of a file is refused instead of waited for. */
dpe_status dpe_open_regular(const char *path, int *fd, uint64_t *size, struct dpe_error *err)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) {
        return dpe_fail(err, status_of_open(errno), "%s: cannot be opened: %s",
                        path[0] != '\0' ? path : "\"\"", strerror(errno));
    }
    struct stat info;
    if (fstat(*fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(*fd);
        *fd = -1;
        return dpe_fail(err, DPE_NO_INPUT, "%s: expected a regular file, found something else",
                        path);
    }
    *size = (uint64_t)info.st_size;
    return DPE_OK;
}

size_t dpe_read_at(int fd, void *bytes, size_t n, uint64_t at)
{
    size_t done = 0;
    errno = 0;
    while (done < n) {
        ssize_t got = pread(fd, (char *)bytes + done, n - done, (off_t)(at + done));
        if (got == 0 || (got < 0 && errno != EINTR)) {
            break;
        }
        done += got > 0 ? (size_t)got : 0;
        errno = 0;
    }
    return done;
}

size_t dpe_write_at(int fd, const void *bytes, size_t n, uint64_t at)
{
    size_t done = 0;
    errno = 0;
    while (done < n) {
        ssize_t put = pwrite(fd, (const char *)bytes + done, n - done, (off_t)(at + done));
        if (put == 0 || (put < 0 && errno != EINTR)) {
            break;
        }
        done += put > 0 ? (size_t)put : 0;
        errno = 0;
    }
    return done;
}

dpe_status dpe_read_range(int fd, const char *path, void *bytes, size_t n, uint64_t at,
                          struct dpe_error *err)
{
    size_t done = dpe_read_at(fd, bytes, n, at);
    return done == n ? DPE_OK
                     : dpe_fail(err, DPE_IO, "%s: read failed at byte %llu: %s", path,
                                (unsigned long long)(at + done),
                                errno != 0 ? strerror(errno) : "the file was truncated");
}

/* As many of the bytes from `at` on as there are. */
static dpe_status read_some(int fd, const char *path, char *bytes, size_t want, uint64_t at,
                            size_t *got, struct dpe_error *err)
{
    *got = dpe_read_at(fd, bytes, want, at);
    return *got == want || errno == 0
               ? DPE_OK
               : dpe_fail(err, DPE_IO, "%s: read failed: %s", path, strerror(errno));
}

dpe_status dpe_refuse_pointer(const char *path, const void *bytes, size_t n, struct dpe_error *err)
{
    static const char begin[] = "version https://git-lfs.github.com/spec/";
    return n < sizeof begin || memcmp(bytes, begin, sizeof begin - 1) != 0
               ? DPE_OK
               : dpe_fail(err, DPE_BAD_DATA,
                          "%s: expected the file itself, found a Git LFS pointer to it; run git "
                          "lfs pull in its folder, or download it again",
                          path);
}

dpe_status dpe_read_file(const char *path, uint64_t max_bytes, char **bytes, size_t *n,
                         struct dpe_error *err)
{
    DPE_SCOPED(dpe_close_fd) int fd = -1;
    DPE_OWNED char *buffer = NULL;
    uint64_t size = 0;
    size_t room = 0;
    size_t some = 0;
    size_t got = 0;
    DPE_TRY(dpe_open_regular(path, &fd, &size, err));
    if (size > max_bytes) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected at most %llu bytes, found %llu", path,
                        (unsigned long long)max_bytes, (unsigned long long)size);
    }
    /* A file without a size is empty, or the system makes it as it is read (/proc). */
    do {
        room = size > 0 ? (size_t)size : got + 4096;
        char *grown = realloc(buffer, got + room + 1);
        DPE_TRY(DPE_MADE(grown, err, "%s: no memory for %zu of its bytes", path, got + room));
        buffer = grown;
        DPE_TRY(read_some(fd, path, buffer + got, room, got, &some, err));
        got += some;
        if (got > max_bytes) {
            return dpe_fail(err, DPE_BAD_DATA, "%s: expected at most %llu bytes, found more", path,
                            (unsigned long long)max_bytes);
        }
    } while (size == 0 && some == room);
    if (got < size) {
        return dpe_fail(err, DPE_IO, "%s: shrank from %llu to %zu bytes while it was read", path,
                        (unsigned long long)size, got);
    }
    buffer[got] = '\0';
    DPE_TRY(dpe_refuse_pointer(path, buffer, got, err));
    *bytes = buffer;
    *n = got;
    buffer = NULL;
    return DPE_OK;
}

size_t dpe_utf8_part(const char *s, size_t n, bool *whole)
{
    const unsigned char *u = (const unsigned char *)s;
    bool unasked = false;
    whole = whole != NULL ? whole : &unasked;
    *whole = u[0] < 0x80;
    if (*whole || u[0] < 0xc2 || u[0] > 0xf4 || n < 2) {
        return 1;
    }
    /* The second byte carries the bounds against overlong forms, surrogates and > U+10FFFF. */
    unsigned char low = u[0] == 0xe0 ? 0xa0 : u[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = u[0] == 0xed ? 0x9f : u[0] == 0xf4 ? 0x8f : 0xbf;
    if (u[1] < low || u[1] > high) {
        return 1;
    }
    size_t length = u[0] >= 0xf0 ? 4 : u[0] >= 0xe0 ? 3 : 2;
    size_t have = 2;
    while (have < length && have < n && (u[have] & 0xc0) == 0x80) {
        have++;
    }
    *whole = have == length;
    return have;
}

size_t dpe_utf8_check(const char *bytes, size_t n)
{
    size_t at = 0;
    while (at < n) {
        bool whole = false;
        size_t length = dpe_utf8_part(bytes + at, n - at, &whole);
        if (!whole) {
            return at;
        }
        at += length;
    }
    return n;
}

bool dpe_is_utf8(const char *text)
{
    return text == NULL || text[dpe_utf8_check(text, strlen(text))] == '\0';
}

const char *dpe_last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

uint64_t dpe_fnv(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *from = bytes;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ from[i]) * UINT64_C(1099511628211);
    }
    return hash;
}

/* What others hold is libcrypto's. */
static EVP_MD_CTX *context_of(struct dpe_sha256 *hash)
{
    return (EVP_MD_CTX *)(void *)hash;
}

struct dpe_sha256 *dpe_sha256_new(void)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (context != NULL && EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(context);
        context = NULL;
    }
    return (struct dpe_sha256 *)(void *)context;
}

void dpe_sha256_add(struct dpe_sha256 *hash, const void *bytes, size_t n)
{
    if (hash != NULL) {
        EVP_DigestUpdate(context_of(hash), bytes, n);
    }
}

void dpe_sha256_text(struct dpe_sha256 *hash, const char *text)
{
    text = text != NULL ? text : "";
    dpe_sha256_add(hash, text, strlen(text) + 1);
}

dpe_status dpe_sha256_finish(struct dpe_sha256 *hash, char hex[65], struct dpe_error *err)
{
    hex[0] = '\0';
    DPE_TRY(DPE_MADE(hash, err, "out of memory for a checksum"));
    unsigned char digest[EVP_MAX_MD_SIZE] = {0};
    unsigned int n = 0;
    EVP_DigestFinal_ex(context_of(hash), digest, &n);
    for (size_t i = 0; i < 32; i++) {
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    }
    EVP_MD_CTX_free(context_of(hash));
    return DPE_OK;
}

dpe_status dpe_sha256_bytes(const void *bytes, size_t n, char hex[65], struct dpe_error *err)
{
    struct dpe_sha256 *hash = dpe_sha256_new();
    dpe_sha256_add(hash, bytes, n);
    return dpe_sha256_finish(hash, hex, err);
}

dpe_status dpe_sha256_file(const char *path, char hex[65], struct dpe_error *err)
{
    char bytes[1 << 14];
    size_t n = sizeof bytes;
    uint64_t size = 0;
    DPE_SCOPED(dpe_close_fd) int fd = -1;
    hex[0] = '\0';
    DPE_TRY(dpe_open_regular(path, &fd, &size, err));
    struct dpe_sha256 *hash = dpe_sha256_new();
    dpe_status status = DPE_OK;
    for (uint64_t at = 0; status == DPE_OK && n == sizeof bytes; at += n) {
        status = read_some(fd, path, bytes, sizeof bytes, at, &n, err);
        dpe_sha256_add(hash, bytes, n);
    }
    const dpe_status finished = dpe_sha256_finish(hash, hex, status == DPE_OK ? err : NULL);
    if (status != DPE_OK) {
        hex[0] = '\0';
    }
    return status == DPE_OK ? finished : status;
}

static uint64_t splitmix64(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void dpe_rng_seed(struct dpe_rng *rng, uint64_t seed, uint64_t stream)
{
    uint64_t mix = seed;
    rng->state = splitmix64(&mix);
    mix ^= stream * 0xd1342543de82ef95u;
    rng->state ^= splitmix64(&mix);
    rng->increment = splitmix64(&mix) | 1u;
    dpe_rng_u32(rng);
}

uint32_t dpe_rng_u32(struct dpe_rng *rng)
{
    uint64_t old = rng->state;
    rng->state = old * 6364136223846793005u + rng->increment;
    uint32_t shifted = (uint32_t)(((old >> 18) ^ old) >> 27);
    uint32_t rotation = (uint32_t)(old >> 59);
    return (shifted >> rotation) | (shifted << ((32 - rotation) & 31));
}

uint32_t dpe_rng_below(struct dpe_rng *rng, uint32_t n)
{
    /* Values below 2^32 mod n would make small results likelier. */
    uint32_t reject = (uint32_t)(-n) % n;
    uint32_t draw = dpe_rng_u32(rng);
    while (draw < reject) {
        draw = dpe_rng_u32(rng);
    }
    return draw % n;
}

double dpe_rng_unit(struct dpe_rng *rng)
{
    uint64_t high = dpe_rng_u32(rng);
    uint64_t bits = (high << 32 | dpe_rng_u32(rng)) >> 11;
    return (double)bits * 0x1p-53;
}

const char *dpe_version(void)
{
    return "dpe " DPE_VERSION " (git " DPE_GIT ")";
}

double dpe_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Bytes of the printable character at `text`, 0 when it is not one. `n` bytes are left. */
static size_t printable_at(const unsigned char *text, size_t n)
{
    bool whole = false;
    size_t size = dpe_utf8_part((const char *)text, n, &whole);
    bool control = text[0] < 0x20 || text[0] == 0x7f || (text[0] == 0xc2 && text[1] < 0xa0);
    /* U+2028 to U+202E and U+2066 to U+2069: lines, and the direction of text. */
    bool layout = text[0] == 0xe2 && ((text[1] == 0x80 && text[2] >= 0xa8 && text[2] <= 0xae) ||
                                      (text[1] == 0x81 && text[2] >= 0xa6 && text[2] <= 0xa9));
    return !whole || control || layout ? 0 : size;
}

const char *dpe_printable(const char *text, char *out, size_t size)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t left = strlen(text);
    size_t used = 0;
    while (left > 0) {
        size_t n = printable_at(at, left);
        if (used + (n > 0 ? n : 4) >= size) {
            break;
        }
        if (n > 0) {
            memcpy(out + used, at, n);
            used += n;
        } else {
            snprintf(out + used, size - used, "\\x%02x", *at);
            used += 4;
            n = 1;
        }
        at += n;
        left -= n;
    }
    out[used] = '\0';
    return out;
}
