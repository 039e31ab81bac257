/**
 * @file base.h
 * What every room stands on: status and errors, allocation, text, files, hashing, random numbers.
 */
#ifndef DPE_BASE_H
#define DPE_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Makes a function for further sets of x86-64's vectors too, of which the loader takes the widest
 *  that the processor has, for loops that are slow in the baseline's. Contraction is off, so all
 *  give the same bits. Nothing where compiler or C library cannot (musl's loader has no IFUNC). */
#if defined(__x86_64__) && defined(__GLIBC__) && (!defined(__clang__) || __clang_major__ >= 14)
#define DPE_WIDE(...) __attribute__((target_clones(__VA_ARGS__, "default")))
#else
#define DPE_WIDE(...)
#endif

/** Outcome of a call. Values are the exit codes of sysexits.h, so that a tool's exit code is
 *  the status of the library call; DPE_NONFINITE alone is mapped (see dpe_exit_code). */
enum dpe_status {
    DPE_OK = 0,
    DPE_USAGE = 64,         /**< the arguments of the caller are not valid */
    DPE_BAD_DATA = 65,      /**< a file was read and its content is wrong */
    DPE_NO_INPUT = 66,      /**< a file that should be there is not, or is not a regular file */
    DPE_NO_DEVICE = 69,     /**< the device does not exist or cannot be used */
    DPE_INTERNAL = 70,      /**< our own mistake */
    DPE_NO_MEMORY = 71,     /**< not enough memory (the message has needed, free, option) */
    DPE_CANNOT_CREATE = 73, /**< an output cannot be created */
    DPE_IO = 74,            /**< reading or writing failed, disk full */
    DPE_INCOMPLETE = 75,    /**< stopped early: run the same command to continue */
    DPE_PERMISSION = 77,    /**< not allowed to read or write that file */
    DPE_MISMATCH = 78,      /**< a resumable output was made by a different run */
    DPE_NONFINITE = 79, /**< NaN or infinity in the logits; the message names layer and position */
};
typedef enum dpe_status dpe_status;

/** A failure in words: what was expected, what was found, in which file, what to do. */
struct dpe_error {
    dpe_status status;
    char text[1024];  /**< UTF-8, NUL-terminated, no trailing newline */
    int layer;        /**< DPE_NONFINITE: first layer with a non-finite value, else -1 */
    int64_t position; /**< DPE_NONFINITE: its token position, else -1 */
};

/** Write a message into `err` (NULL allowed) and return `status`, so that
 *  `return dpe_fail(err, DPE_BAD_DATA, "…")` is one line. Of a text too long the middle is left out
 *  (dpe_shorten), which is a path. */
dpe_status dpe_fail(struct dpe_error *err, dpe_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** Put "prefix: " before the message already in `err` (NULL allowed) and return its status. */
dpe_status dpe_fail_prefix(struct dpe_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** A local variable that `release` gets the address of where its block is left, by return, break or
 * its end; the last one declared first. It is initialised where it is declared, because release
 * comes even when nothing was opened. What has passed to another owner is NULL or {0} by then:
 *     DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
 *     DPE_OWNED char *bytes = NULL;
 *     DPE_TRY(dpe_read_file(path, most, &bytes, &n, err));
 * (GCC and Clang; files that nvcc compiles do without.) */
#define DPE_SCOPED(release) __attribute__((cleanup(release), unused))
/** A pointer of any type that goes to free(). */
#define DPE_OWNED DPE_SCOPED(dpe_free_owned)
void dpe_free_owned(void *pointer);
/** Beside the declaration of `release`, which takes a handle and not its address: from then on
 * DPE_SCOPED(release_scoped) is for a variable of the type `handle`. */
#define DPE_SCOPED_HANDLE(handle, release)                                                         \
    static inline void release##_scoped(handle *held)                                              \
    {                                                                                              \
        release(*held);                                                                            \
    }

/** Return the status of `call` from the calling function where it is not DPE_OK: what that function
 *  owns by then has nothing to release, or is DPE_SCOPED. */
#define DPE_TRY(call)                                                                              \
    do {                                                                                           \
        const dpe_status dpe_tried = (call);                                                       \
        if (dpe_tried != DPE_OK) {                                                                 \
            return dpe_tried;                                                                      \
        }                                                                                          \
    } while (0)

/** Copy `text` into `out` of `size` ≥ 32 bytes. When it does not fit, its first third and its end
 * stand there with "[...]" between: the reason of a message follows its paths. UTF-8 stays UTF-8.
 */
void dpe_shorten(char *out, size_t size, const char *text);
/** The exit code of a tool that ends with `status` (DPE_NONFINITE → 70, others are themselves). */
int dpe_exit_code(dpe_status status);

/** malloc(count * size) with the product checked for overflow; 64-byte aligned, not cleared.
 *  NULL when count * size overflows or memory is out. Free with free(). count 0 gives a non-NULL
 *  pointer. */
void *dpe_alloc(size_t count, size_t size);
/** dpe_alloc, cleared. */
void *dpe_alloc_zero(size_t count, size_t size);
/** Whether `p` could be made, as a status: DPE_NO_MEMORY with the message that follows where it is
 * NULL. For pointers of strdup, dpe_alloc, dpe_join and of libraries that know no other failure. */
#define DPE_MADE(p, err, ...) ((p) != NULL ? DPE_OK : dpe_fail((err), DPE_NO_MEMORY, __VA_ARGS__))
/** dpe_alloc_zero of n elements into the pointer at `p`; like DPE_MADE. `p` is evaluated more than
 * once. */
#define DPE_NEW(p, n, err, ...)                                                                    \
    DPE_MADE(*(p) = dpe_alloc_zero((n), sizeof **(p)), (err), __VA_ARGS__)

/** The smaller, and the larger, of two. */
static inline int64_t dpe_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t dpe_most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
/** Sizes before they are compared with what there is: a · b, a + b and a · b · c elements of `size`
 * bytes stay at UINT64_MAX where they overflow. */
static inline uint64_t dpe_bytes_times(uint64_t a, uint64_t b)
{
    return a != 0 && b > UINT64_MAX / a ? UINT64_MAX : a * b;
}
static inline uint64_t dpe_bytes_plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}
static inline uint64_t dpe_bytes_of(int64_t a, int64_t b, int64_t c, uint64_t size)
{
    return dpe_bytes_times(dpe_bytes_times((uint64_t)a, (uint64_t)b),
                           dpe_bytes_times((uint64_t)c, size));
}

/** Whether the path is a folder, or a link to one. */
bool dpe_is_folder(const char *path);
/** Close *fd unless it is negative; for DPE_SCOPED. */
void dpe_close_fd(const int *fd);

/** The row whose first member, a const char *, is this name; NULL: none of the n of `size` bytes
 * is. */
const void *dpe_named(const void *rows, size_t n, size_t size, const char *name);
/** The same of an array: of structs, or of names alone. */
#define DPE_NAMED(rows, name)                                                                      \
    dpe_named((rows), sizeof(rows) / sizeof *(rows), sizeof *(rows), (name))

/** Room for one more element of `size` bytes after the n of a list that grows by this alone.
 * `list` is the address of the pointer to it, NULL at first. Room doubles as n passes powers of
 * two, so no capacity is kept. False without memory: the list is as it was. */
bool dpe_make_room(void *list, size_t n, size_t size);
/** The same as a status, for a list whose pointer is at `list`; like DPE_NEW. */
#define DPE_ROOM(list, n, err, ...)                                                                \
    (dpe_make_room((list), (n), sizeof **(list)) ? DPE_OK                                          \
                                                 : dpe_fail((err), DPE_NO_MEMORY, __VA_ARGS__))

/** A growable list of token ids; zero-initialise, free with dpe_tokens_free. */
struct dpe_tokens {
    int32_t *ids;
    size_t n, capacity;
};
dpe_status dpe_tokens_append(struct dpe_tokens *tokens, const int32_t *ids, size_t n,
                             struct dpe_error *err);
void dpe_tokens_free(struct dpe_tokens *tokens);

/** A growable byte string, always NUL-terminated once non-empty; zero-initialise, free() bytes. */
struct dpe_text {
    char *bytes;
    size_t n, capacity;
    bool failed; /**< a put was without memory: those after it did nothing */
};
dpe_status dpe_text_append(struct dpe_text *text, const char *bytes, size_t n,
                           struct dpe_error *err);
/** For texts of many pieces, which are checked once at their end: after the first that fails
 * nothing more is put. */
void dpe_text_put(struct dpe_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void dpe_text_put_bytes(struct dpe_text *text, const void *bytes, size_t n);
/** DPE_NO_MEMORY when a put failed. */
dpe_status dpe_text_done(const struct dpe_text *text, struct dpe_error *err);
void dpe_text_free(struct dpe_text *text);
/** What printf would write, of any length, the caller's (free); NULL: no memory. */
char *dpe_format_list(const char *format, va_list args) __attribute__((format(printf, 1, 0)));
/** Append to the string in the `size` bytes of `text` what there is room for. */
void dpe_append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** A number of tokens in few characters, returned: "512", "1000", "1k" (of 1024), "128k". */
const char *dpe_length_text(double tokens, char text[32]);

enum { DPE_P_TEXT = 16 };
/** A p-value: "p = 0.012", "p < 0.001", "p unknown", the one form in results. Returns the buffer.
 */
const char *dpe_p_text(double p, char text[DPE_P_TEXT]);

/* -------------------------------------------------------------------------------------- numbers */

/** Numbers of options and text files. A whole number is decimal digits, perhaps after a '-'; a real
 *  number may have a point and a decimal exponent ("0.75", "1e-3") and is finite. Hexadecimal, a
 *  leading space or '+', "inf" and "nan" are none of them. The scan functions read from *text on
 * and move it to the first byte that follows the number; the parse functions accept nothing after
 * it. All return false, and change nothing, when there is no such number in [low, high]. */
bool dpe_scan_int(const char **text, int64_t low, int64_t high, int64_t *value);
bool dpe_scan_real(const char **text, double *value);
bool dpe_parse_int(const char *text, int64_t low, int64_t high, int64_t *value);
bool dpe_parse_real(const char *text, double low, double high, double *value);
/** A number of tokens: a whole number as above, perhaps with k or K (1024) or m or M (1024 * 1024)
 *  behind it: "16k" is 16384, "1M" is 1048576. */
bool dpe_scan_length(const char **text, int64_t low, int64_t high, int64_t *value);
bool dpe_parse_length(const char *text, int64_t low, int64_t high, int64_t *value);

/** Numbers of tokens separated by commas, "2k,4096", into `lengths` in ascending order. Returns how
 * many; 0, and the reason in err: something else, more than `most`, one twice. `also` stands before
 * what is expected: "auto or ". */
int dpe_parse_lengths(const char *text, int64_t low, int64_t high, const char *also,
                      int64_t *lengths, int most, struct dpe_error *err);

/** Sort ascending; and the value below which a share of n ≥ 1 sorted ones lies, linear between
 * neighbours. */
void dpe_sort(double *values, size_t n);
double dpe_quantile(const double *sorted, size_t n, double share);

/** The name that the word of n bytes was probably meant to be, out of a list whose names are
 * separated by commas or spaces, each perhaps with '=' and a value. Returns its length, 0 when none
 * is near. */
size_t dpe_nearest(const char *word, size_t n, const char *list, const char **name);
/** "; did you mean 'NAME'?" for the end of an error message, or ""; a word ends at '='. Returns
 * `text`.
 */
const char *dpe_suggest(const char *word, const char *list, char text[96]);

/** Bytes of memory this process can still get: what the machine has available, or what the control
 *  groups of the process leave if that is less (limits.h). UINT64_MAX when neither can be read. */
uint64_t dpe_memory_available(void);
/** From now on dpe_memory_available is also within `bytes` for the whole process (--max-memory),
 *  of which what it has allocated is taken. 0: no such limit. */
void dpe_memory_limit(uint64_t bytes);
/** As many of `processors` as the control groups give time for, at least 1. */
int dpe_limit_processors(int processors);

/** FNV-1a of bytes after those of `hash`, at first DPE_FNV: for tables and names of files. */
#define DPE_FNV UINT64_C(14695981039346656037)
uint64_t dpe_fnv(uint64_t hash, const void *bytes, size_t n);

/** SHA-256 in pieces (by libcrypto); hex has 64 digits and a NUL. */
struct dpe_sha256;
/** NULL without memory, which the others take and dpe_sha256_finish reports. */
struct dpe_sha256 *dpe_sha256_new(void);
void dpe_sha256_add(struct dpe_sha256 *hash, const void *bytes, size_t n);
/** A text with its NUL, so that "ab" and "c" are not "a" and "bc"; NULL is "". */
void dpe_sha256_text(struct dpe_sha256 *hash, const char *text);
/** Finishes and frees. After DPE_NO_MEMORY hex is "". */
dpe_status dpe_sha256_finish(struct dpe_sha256 *hash, char hex[65], struct dpe_error *err);
/** Of bytes in one piece. */
dpe_status dpe_sha256_bytes(const void *bytes, size_t n, char hex[65], struct dpe_error *err);
/** Of a regular file; hex is "" after errors: DPE_NO_INPUT, DPE_PERMISSION, DPE_IO, DPE_NO_MEMORY.
 */
dpe_status dpe_sha256_file(const char *path, char hex[65], struct dpe_error *err);

/** Seeded generator with the same stream on every platform (PCG-XSH-RR 64/32 state, own seeding by
 *  splitmix64). Everything random in the project is drawn from one of these. */
struct dpe_rng {
    uint64_t state, increment;
};
void dpe_rng_seed(struct dpe_rng *rng, uint64_t seed, uint64_t stream);
uint32_t dpe_rng_u32(struct dpe_rng *rng);
/** Uniform in [0, n), unbiased; n ≥ 1. */
uint32_t dpe_rng_below(struct dpe_rng *rng, uint32_t n);
/** Uniform in [0, 1), 53 bits. */
double dpe_rng_unit(struct dpe_rng *rng);

/** Whole file into memory, NUL-terminated after its end (not counted in *n). Regular files only,
 * at most max_bytes. Errors: DPE_NO_INPUT, DPE_PERMISSION, DPE_BAD_DATA (too large), DPE_IO,
 * DPE_NO_MEMORY. */
dpe_status dpe_read_file(const char *path, uint64_t max_bytes, char **bytes, size_t *n,
                         struct dpe_error *err);
/** Read, or write, n bytes of a file from byte `at` on, again after a signal and after less than
 * was asked. Returns how many: fewer than n where the file ends (errno is 0 then) or after an
 * error. */
size_t dpe_read_at(int fd, void *bytes, size_t n, uint64_t at);
size_t dpe_write_at(int fd, const void *bytes, size_t n, uint64_t at);
/** dpe_read_at of all n bytes; DPE_IO, which names the file and the byte, where there are fewer. */
dpe_status dpe_read_range(int fd, const char *path, void *bytes, size_t n, uint64_t at,
                          struct dpe_error *err);
/** Bytes of the character at s (n ≥ 1 of them) or, where it is not whole, of what one U+FFFD stands
 * for: its longest beginning, a byte at least (Unicode 16, section 3.9, "maximal subparts").
 * `whole` may be NULL. */
size_t dpe_utf8_part(const char *s, size_t n, bool *whole);
/** Offset of the first byte that is not valid UTF-8 (overlong, surrogate, > U+10FFFF included), n
 * if all is. */
size_t dpe_utf8_check(const char *bytes, size_t n);
/** Whether all of a text is UTF-8; NULL is. */
bool dpe_is_utf8(const char *text);
/** The name at the end of a path, without its folders: "" after a last slash. */
const char *dpe_last_part(const char *path);

/** `text` for a terminal or a log, cut to `size` bytes with the NUL: what is not printable UTF-8 (a
 *  control character, an escape sequence's first byte, a newline, text direction, a byte of another
 *  encoding) becomes \xNN. Returns `out`. Texts of files, paths and host names go through it. */
const char *dpe_printable(const char *text, char *out, size_t size);

/** Seconds of a clock that never steps back. */
double dpe_clock(void);

/** "dpe 0.1.0 (git abc123)". */
const char *dpe_version(void);

/** Open a regular file for reading and return its size; never waits, as it would on a FIFO. The
 *  caller closes *fd. Symbolic links are followed. Errors: DPE_NO_INPUT (not there, or a folder,
 *  FIFO, device), DPE_PERMISSION, DPE_IO (too many open files, a disk that fails), DPE_NO_MEMORY.
 */
dpe_status dpe_open_regular(const char *path, int *fd, uint64_t *size, struct dpe_error *err);

#ifdef __cplusplus
}
#endif

#endif
