/* What stands between a file and HDF5: the trailer with its checksum, and objects that lie in the
 * file itself. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "engine/base/bytes.h"
#include "outputs/table/inside.h"
#include "outputs/table/trailer.h"

/* ---------------------------------------------------------------------------------- the trailer */

/* Eight bytes at a time: table k is the effect of a byte that k more bytes follow. */
static uint32_t crc_tables[8][256];

static void make_crc_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
        }
        crc_tables[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++) {
        for (int k = 1; k < 8; k++) {
            uint32_t before = crc_tables[k - 1][i];
            crc_tables[k][i] = (before >> 8) ^ crc_tables[0][before & 0xff];
        }
    }
}

uint32_t dpe_crc32c(uint32_t crc, const void *bytes, size_t n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_crc_tables);
    const unsigned char *from = bytes;
    crc = ~crc;
    for (; n >= 8; n -= 8, from += 8) {
        uint64_t eight = dpe_load_u64(from, 8) ^ crc;
        crc = 0;
        for (int k = 0; k < 8; k++) {
            crc ^= crc_tables[7 - k][(eight >> (8 * k)) & 0xff];
        }
    }
    for (size_t i = 0; i < n; i++) {
        crc = (crc >> 8) ^ crc_tables[0][(crc ^ from[i]) & 0xff];
    }
    return ~crc;
}

static const char trailer_magic[8] = {'D', 'P', 'E', '-', 'C', 'R', 'C', '\n'};

void dpe_trailer_make(unsigned char trailer[DPE_TRAILER], const void *bytes, size_t n)
{
    memcpy(trailer, trailer_magic, 8);
    dpe_store_u64(trailer + 8, n, 8);
    dpe_store_u64(trailer + 16, dpe_crc32c(0, bytes, n), 8);
}

/* CRC of the first n bytes; false with errno. */
static bool crc_of_file(int fd, uint64_t n, uint64_t *found)
{
    unsigned char bytes[1 << 14];
    uint32_t crc = 0;
    for (uint64_t at = 0; at < n;) {
        size_t want = n - at < sizeof bytes ? (size_t)(n - at) : sizeof bytes;
        ssize_t got = pread(fd, bytes, want, (off_t)at);
        if (got > 0) {
            crc = dpe_crc32c(crc, bytes, (size_t)got);
            at += (uint64_t)got;
        } else if (got == 0 || errno != EINTR) {
            errno = got == 0 ? ESTALE : errno;
            return false;
        }
    }
    *found = crc;
    return true;
}

static enum dpe_trailer_state unreadable(char words[DPE_TRAILER_WORDS])
{
    snprintf(words, DPE_TRAILER_WORDS, "read failed: %s", strerror(errno));
    return DPE_TRAILER_UNREADABLE;
}

enum dpe_trailer_state dpe_trailer_check(int fd, char words[DPE_TRAILER_WORDS])
{
    unsigned char trailer[DPE_TRAILER];
    uint64_t found = 0;
    struct stat info;
    words[0] = '\0';
    if (fstat(fd, &info) != 0) {
        return unreadable(words);
    }
    off_t n = info.st_size - DPE_TRAILER;
    ssize_t got = n < 0 ? 0 : pread(fd, trailer, sizeof trailer, n);
    if (got < 0) {
        return unreadable(words);
    }
    if (got != DPE_TRAILER || memcmp(trailer, trailer_magic, sizeof trailer_magic) != 0) {
        snprintf(words, DPE_TRAILER_WORDS,
                 "has no checksum at its end: it is cut off, or another program wrote or changed "
                 "it; outputs/SCHEMA.md shows how to add a checksum");
        return DPE_TRAILER_NONE;
    }
    if (!crc_of_file(fd, (uint64_t)n, &found)) {
        return unreadable(words);
    }
    const uint64_t expected = dpe_load_u64(trailer + 16, 8);
    if (dpe_load_u64(trailer + 8, 8) == (uint64_t)n && expected == found) {
        return DPE_TRAILER_WHOLE;
    }
    snprintf(words, DPE_TRAILER_WORDS,
             "is damaged: expected CRC-32C %08llx, found %08llx; copy it again",
             (unsigned long long)expected, (unsigned long long)found);
    return DPE_TRAILER_DAMAGED;
}

/* -------------------------------------------------------------------------------------- objects */

/* HDF5 forgets its error stack at the next call that succeeds, often one that cleans up. So the
 * messages are kept when the failure happens: this is called where HDF5 would print. */
static _Thread_local struct {
    char text[256];
    size_t n;
} words;

/* The innermost entries describe the failure, the outer ones only the callers. */
static herr_t collect(unsigned n, const H5E_error2_t *entry, void *user)
{
    (void)user;
    if (n < 2 && entry->desc != NULL && entry->desc[0] != '\0') {
        int got = snprintf(words.text + words.n, sizeof words.text - words.n, "%s%s",
                           words.n == 0 ? "" : "; ", entry->desc);
        words.n += got > 0 ? (size_t)got : 0;
        words.n = words.n < sizeof words.text ? words.n : sizeof words.text - 1;
    }
    return 0;
}

static void forget(void)
{
    words.n = 0;
    words.text[0] = '\0';
}

static herr_t keep_words(hid_t stack, void *user)
{
    forget();
    return H5Ewalk2(stack, H5E_WALK_UPWARD, collect, user);
}

void dpe_inside_listen(void)
{
    forget();
    H5Eset_auto2(H5E_DEFAULT, keep_words, NULL);
}

const char *dpe_inside_words(void)
{
    return words.text;
}

/* The bytes of a table agree with its checksum before HDF5 sees them, so what does not inflate had
 * no memory for it. */
bool dpe_inside_no_memory(void)
{
    return strstr(words.text, "memory allocation failed") != NULL ||
           strstr(words.text, "inflate() failed") != NULL ||
           strstr(words.text, "inflateInit() failed") != NULL;
}

const char *dpe_inside_text(enum dpe_inside found)
{
    static const char *const texts[] = {
        [DPE_INSIDE_UNKNOWN] = "cannot be read",
        [DPE_INSIDE_ABSENT] = "is not there",
        [DPE_INSIDE_THERE] = "is there",
        [DPE_INSIDE_POINTS] = "points to another file or object, which is not followed; expected "
                              "the object itself",
        [DPE_INSIDE_LARGE] = "needs more memory than there is, or than --max-memory leaves",
        [DPE_INSIDE_HOLLOW] = "claims far more elements than the file stores",
        [DPE_INSIDE_CHUNKS] =
            "expected chunks of at most 64 KiB, not thousands of small ones, with the filters "
            "shuffle, deflate and fletcher32, found others; h5repack -l CONTI -f NONE stores it "
            "without any",
        [DPE_INSIDE_SHORT] = "expected every element stored, or filled, to its last byte; found "
                             "fewer bytes or more, which HDF5 takes from its memory; make the file "
                             "anew",
    };
    return texts[found];
}

/* The link at a path whose parents are known to be groups of this file. */
static enum dpe_inside look_at_link(hid_t file, const char *path)
{
    H5L_info_t info;
    htri_t there = H5Lexists(file, path, H5P_DEFAULT);
    if (there <= 0) {
        return there < 0 ? DPE_INSIDE_UNKNOWN : DPE_INSIDE_ABSENT;
    }
    if (H5Lget_info(file, path, &info, H5P_DEFAULT) < 0) {
        return DPE_INSIDE_UNKNOWN;
    }
    return info.type == H5L_TYPE_HARD ? DPE_INSIDE_THERE : DPE_INSIDE_POINTS;
}

enum dpe_inside dpe_inside_look(hid_t file, const char *path)
{
    char prefix[1024];
    size_t n = strlen(path);
    if (path[0] != '/') {
        return DPE_INSIDE_ABSENT;
    }
    if (n >= sizeof prefix) {
        return DPE_INSIDE_UNKNOWN;
    }
    memcpy(prefix, path, n + 1);
    enum dpe_inside found = DPE_INSIDE_THERE;
    for (char *at = n > 1 ? prefix : NULL; found == DPE_INSIDE_THERE && at != NULL;) {
        at = strchr(at + 1, '/');
        if (at != NULL) {
            *at = '\0';
        }
        found = look_at_link(file, prefix);
        if (at != NULL) {
            *at = '/';
        }
    }
    return found;
}

/* H5Idec_ref and H5Oclose keep an id whose object could not be closed, for lack of memory. */
bool dpe_inside_close(hid_t id)
{
    if (id < 0) {
        return true;
    }
    switch (H5Iget_type(id)) {
    case H5I_ATTR:
        return H5Aclose(id) >= 0;
    case H5I_DATASPACE:
        return H5Sclose(id) >= 0;
    case H5I_DATATYPE:
        return H5Tclose(id) >= 0;
    case H5I_GENPROP_LST:
        return H5Pclose(id) >= 0;
    case H5I_DATASET:
        return H5Dclose(id) >= 0;
    default:
        return H5Oclose(id) >= 0;
    }
}

hid_t dpe_inside_keep(hid_t id, bool right)
{
    if (!right) {
        dpe_inside_close(id);
    }
    return right ? id : -1;
}

H5T_class_t dpe_inside_class(hid_t dataset, size_t *bytes)
{
    enum { REFERENCE = 16 }; /* of a string in a heap: its length, and two numbers for its place */
    DPE_SCOPED(dpe_inside_close_scoped) hid_t type = H5Dget_type(dataset);
    *bytes = type < 0 ? 0 : H5Tis_variable_str(type) > 0 ? REFERENCE : H5Tget_size(type);
    return type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
}

int dpe_inside_dims(hid_t dataset, hsize_t dims[H5S_MAX_RANK])
{
    DPE_SCOPED(dpe_inside_close_scoped) hid_t space = H5Dget_space(dataset);
    return space >= 0 && H5Sget_simple_extent_type(space) != H5S_NULL
               ? H5Sget_simple_extent_dims(space, dims, NULL)
               : -1;
}

/* How the bytes of a chunk become those in the file: so many of checksums are added before deflate
 * and after it. */
struct packing {
    bool filtered, deflated;
    unsigned before, after;
};

static bool filters_are_ours(hid_t created, struct packing *packing)
{
    enum { CHECKSUM = 4 };
    int n = H5Pget_nfilters(created);
    unsigned options = 0;
    *packing = (struct packing){.filtered = n > 0};
    for (int i = 0; i < n; i++) {
        unsigned flags = 0;
        size_t values = 0;
        switch (H5Pget_filter2(created, (unsigned)i, &flags, &values, NULL, 0, NULL, NULL)) {
        case H5Z_FILTER_DEFLATE:
            if (packing->deflated) {
                return false;
            }
            *packing = (struct packing){true, true, packing->after, 0};
            break;
        case H5Z_FILTER_FLETCHER32:
            packing->after += CHECKSUM;
            break;
        case H5Z_FILTER_SHUFFLE:
            break;
        default:
            return false;
        }
    }
    /* With options, chunks at the edge pass the filters by. */
    return n >= 0 && H5Pget_chunk_opts(created, &options) >= 0 && options == 0;
}

/* The extent of a dataset's chunks and their bytes in memory; 0 when that is no number. */
static uint64_t chunk_bytes(hid_t object, hid_t created, int *rank, hsize_t extent[H5S_MAX_RANK])
{
    size_t element = 0;
    dpe_inside_class(object, &element);
    uint64_t bytes = element;
    *rank = H5Pget_chunk(created, H5S_MAX_RANK, extent);
    for (int i = 0; i < *rank; i++) {
        bytes = __builtin_mul_overflow(bytes, extent[i], &bytes) ? 0 : bytes;
    }
    return *rank > 0 ? bytes : 0;
}

static enum dpe_inside look_at_layout(hid_t object, hid_t created)
{
    hsize_t extent[H5S_MAX_RANK];
    struct packing packing;
    int rank = 0;
    uint64_t bytes = 0;
    if (H5Pget_external_count(created) != 0) {
        return DPE_INSIDE_POINTS;
    }
    switch (H5Pget_layout(created)) {
    case H5D_COMPACT:
    case H5D_CONTIGUOUS:
        return DPE_INSIDE_THERE;
    case H5D_CHUNKED:
        bytes = chunk_bytes(object, created, &rank, extent);
        return bytes > 0 && bytes <= DPE_INSIDE_CHUNK && filters_are_ours(created, &packing)
                   ? DPE_INSIDE_THERE
                   : DPE_INSIDE_CHUNKS;
    case H5D_LAYOUT_ERROR:
        return DPE_INSIDE_UNKNOWN;
    default:
        return DPE_INSIDE_POINTS;
    }
}

/* Whether a dataset can be read from its file; groups have no elements. */
static enum dpe_inside look_at_storage(hid_t object)
{
    if (H5Iget_type(object) != H5I_DATASET) {
        return DPE_INSIDE_THERE;
    }
    DPE_SCOPED(dpe_inside_close_scoped) hid_t created = H5Dget_create_plist(object);
    return created < 0 ? DPE_INSIDE_UNKNOWN : look_at_layout(object, created);
}

hid_t dpe_inside_open(hid_t file, const char *path, enum dpe_inside *found)
{
    *found = dpe_inside_look(file, path);
    if (*found != DPE_INSIDE_THERE) {
        return -1;
    }
    hid_t object = H5Oopen(file, path, H5P_DEFAULT);
    *found = object < 0 ? DPE_INSIDE_UNKNOWN : look_at_storage(object);
    return dpe_inside_keep(object, *found == DPE_INSIDE_THERE);
}

/* What a chunk of so many bytes takes in the file when deflate could not pack it. */
static uint64_t most_stored(uint64_t bytes)
{
    return bytes + bytes / 64 + 64;
}

/* Whether the chunks are no more than what fills them needs: HDF5 keeps a kilobyte for each while
 * it reads, stored or not. Every chunk of dpe has at least a quarter of DPE_INSIDE_CHUNK, or is
 * alone, and has filters. */
static bool are_few(int rank, const hsize_t dims[], const hsize_t extent[], uint64_t element,
                    bool filtered)
{
    enum { FEW = 4096, LEAST = DPE_INSIDE_CHUNK / 4 };
    uint64_t chunks = 1;
    uint64_t bytes = element;
    for (int axis = 0; axis < rank; axis++) {
        uint64_t along = dims[axis] / extent[axis] + (dims[axis] % extent[axis] != 0);
        if (__builtin_mul_overflow(chunks, along, &chunks) ||
            __builtin_mul_overflow(bytes, dims[axis], &bytes)) {
            return false;
        }
    }
    return chunks <= FEW || (filtered && chunks / 2 <= bytes / LEAST);
}

/* Whether HDF5 gives elements that are not stored a value, in place of what is in its memory. */
static bool fills(hid_t created)
{
    H5D_fill_time_t time = H5D_FILL_TIME_NEVER;
    H5D_fill_value_t value = H5D_FILL_VALUE_UNDEFINED;
    return H5Pget_fill_time(created, &time) >= 0 && time != H5D_FILL_TIME_NEVER &&
           H5Pfill_value_defined(created, &value) >= 0 && value != H5D_FILL_VALUE_UNDEFINED;
}

/* Whether a chunk of so many bytes in the file, the first half of the room, gives all its bytes:
 * HDF5 takes what is missing from its memory. It is unpacked into the second half. */
static bool is_whole(uint64_t stored, uint64_t unpacked, const struct packing *packing,
                     unsigned char *room)
{
    uint64_t packed = unpacked + packing->before;
    uLong from = (uLong)(stored - packing->after);
    uLongf n = packing->deflated ? (uLongf)packed : from;
    return stored > packing->after && n == packed &&
           (!packing->deflated ||
            (uncompress(room + most_stored(packed), &n, room, from) == Z_OK && n == packed));
}

/* Without dpe_free_owned, which an installed library has not. */
static void free_room(unsigned char **room)
{
    free(*room);
}

/* Whether every chunk takes at most what it can, and has what it must; else, what the first one
 * is. */
static enum dpe_inside look_at_chunks(hid_t dataset, hid_t created)
{
    hsize_t extent[H5S_MAX_RANK], dims[H5S_MAX_RANK] = {0}, at[H5S_MAX_RANK] = {0};
    struct packing packing;
    int rank = 0;
    uint64_t unpacked = chunk_bytes(dataset, created, &rank, extent);
    if (unpacked == 0 || dpe_inside_dims(dataset, dims) != rank) {
        return DPE_INSIDE_UNKNOWN;
    }
    uint64_t element = unpacked;
    uint64_t elements = 1;
    for (int axis = 0; axis < rank; axis++) {
        element /= extent[axis];
        elements *= dims[axis] != 0;
    }
    if (!filters_are_ours(created, &packing) ||
        !are_few(rank, dims, extent, element, packing.filtered)) {
        return DPE_INSIDE_CHUNKS;
    }
    uint64_t most = most_stored(unpacked + packing.before);
    DPE_SCOPED(free_room) unsigned char *room = malloc((size_t)(2 * most));
    if (room == NULL) {
        return DPE_INSIDE_LARGE;
    }
    bool filled = fills(created);
    for (int axis = elements > 0 ? rank - 1 : -1; axis >= 0;) {
        hsize_t stored = 0;
        uint32_t skipped = 0;
        haddr_t place = 0;
        /* HDF5 1.10 finds one chunk by its place in the tree. Of one without filters it says then
         * what it should have, and what it has where it looks for it among all. Reading fails for
         * one that is not stored; where that is not the reason, so does reading all. */
        bool there = packing.filtered
                         ? H5Dget_chunk_storage_size(dataset, at, &stored) >= 0
                         : H5Dget_chunk_info_by_coord(dataset, at, &skipped, &place, &stored) >= 0;
        if (there && stored > most) {
            return DPE_INSIDE_CHUNKS;
        }
        there = there && H5Dread_chunk(dataset, H5P_DEFAULT, at, &skipped, room) >= 0;
        if (there ? skipped != 0 || !is_whole(stored, unpacked, &packing, room) : !filled) {
            return DPE_INSIDE_SHORT;
        }
        /* The next one, the last axis fastest. */
        for (axis = rank - 1; axis >= 0 && (at[axis] += extent[axis]) >= dims[axis]; axis--) {
            at[axis] = 0;
        }
    }
    forget();
    return DPE_INSIDE_THERE;
}

/* The same of elements that lie one after the other; they are stored or not. */
static enum dpe_inside look_at_block(hid_t dataset, hid_t created)
{
    DPE_SCOPED(dpe_inside_close_scoped) hid_t space = H5Dget_space(dataset);
    hssize_t n = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
    size_t element = 0;
    uint64_t bytes = 0;
    dpe_inside_class(dataset, &element);
    if (n < 0 || __builtin_mul_overflow((uint64_t)n, element, &bytes)) {
        return DPE_INSIDE_UNKNOWN;
    }
    uint64_t stored = H5Dget_storage_size(dataset);
    return stored == bytes || (stored == 0 && fills(created)) ? DPE_INSIDE_THERE : DPE_INSIDE_SHORT;
}

/* What this thread's reads have taken, and may take. */
static _Thread_local struct {
    uint64_t taken, most;
} memory = {0, UINT64_MAX};

void dpe_inside_limit(uint64_t bytes)
{
    memory.taken = 0;
    memory.most = bytes;
}

/* Whether there is memory for the elements. A chunk that is not stored, or packs well, takes next
 * to nothing of the file: above HOLLOW bytes every sixty-fourth must be stored. */
static enum dpe_inside take_memory(hid_t dataset, hid_t type)
{
    DPE_SCOPED(dpe_inside_close_scoped) hid_t space = H5Dget_space(dataset);
    hssize_t n = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
    uint64_t bytes = 0;
    if (n < 0 || __builtin_mul_overflow((uint64_t)n, H5Tget_size(type), &bytes) ||
        __builtin_add_overflow(memory.taken, bytes, &bytes)) {
        return DPE_INSIDE_UNKNOWN;
    }
    enum { HOLLOW = 256 << 20, MOST_SHRINK = 64 };
    if (bytes - memory.taken > HOLLOW &&
        (bytes - memory.taken) / MOST_SHRINK > H5Dget_storage_size(dataset)) {
        return DPE_INSIDE_HOLLOW;
    }
    if (bytes > DPE_INSIDE_MUCH && bytes > memory.most) {
        return DPE_INSIDE_LARGE;
    }
    memory.taken = bytes;
    return DPE_INSIDE_THERE;
}

enum dpe_inside dpe_inside_read(hid_t dataset, hid_t type, hid_t transfer, void *data)
{
    DPE_SCOPED(dpe_inside_close_scoped) hid_t created = H5Dget_create_plist(dataset);
    enum dpe_inside found = created < 0 ? DPE_INSIDE_UNKNOWN : take_memory(dataset, type);
    if (found == DPE_INSIDE_THERE) {
        found = H5Pget_layout(created) == H5D_CHUNKED ? look_at_chunks(dataset, created)
                                                      : look_at_block(dataset, created);
    }
    if (found == DPE_INSIDE_THERE && H5Dread(dataset, type, H5S_ALL, H5S_ALL, transfer, data) < 0) {
        found = DPE_INSIDE_UNKNOWN;
    }
    return found;
}

/* A scalar attribute and its type; DPE_INSIDE_THERE when it is of the class. */
static enum dpe_inside open_attribute(hid_t object, const char *name, H5T_class_t kind,
                                      hid_t *attribute, hid_t *type)
{
    *attribute = H5Aexists(object, name) > 0 ? H5Aopen(object, name, H5P_DEFAULT) : (hid_t)-1;
    DPE_SCOPED(dpe_inside_close_scoped)
    hid_t space = *attribute >= 0 ? H5Aget_space(*attribute) : -1;
    if (space < 0 || H5Sget_simple_extent_npoints(space) != 1) {
        return DPE_INSIDE_ABSENT;
    }
    *type = H5Aget_type(*attribute);
    return *type >= 0 && H5Tget_class(*type) == kind ? DPE_INSIDE_THERE : DPE_INSIDE_UNKNOWN;
}

enum dpe_inside dpe_inside_whole(hid_t object, const char *name, int64_t *value)
{
    DPE_SCOPED(dpe_inside_close_scoped) hid_t attribute = -1;
    DPE_SCOPED(dpe_inside_close_scoped) hid_t type = -1;
    enum dpe_inside found = open_attribute(object, name, H5T_INTEGER, &attribute, &type);
    return found == DPE_INSIDE_THERE && H5Aread(attribute, H5T_NATIVE_INT64, value) < 0
               ? DPE_INSIDE_UNKNOWN
               : found;
}

enum dpe_inside dpe_inside_string(hid_t object, const char *name, char **value)
{
    enum { LONGEST = 4096 };
    char text[LONGEST] = "", *borrowed = NULL;
    DPE_SCOPED(dpe_inside_close_scoped) hid_t attribute = -1;
    DPE_SCOPED(dpe_inside_close_scoped) hid_t type = -1;
    enum dpe_inside found = open_attribute(object, name, H5T_STRING, &attribute, &type);
    if (found != DPE_INSIDE_THERE) {
        return found;
    }
    bool variable = H5Tis_variable_str(type) > 0;
    if ((!variable && H5Tget_size(type) >= sizeof text) ||
        H5Aread(attribute, type, variable ? (void *)&borrowed : text) < 0) {
        return DPE_INSIDE_UNKNOWN;
    }
    /* Of an empty one HDF5 may give none. */
    *value = strdup(borrowed != NULL ? borrowed : text);
    H5free_memory(borrowed);
    return *value != NULL ? DPE_INSIDE_THERE : DPE_INSIDE_LARGE;
}

hid_t dpe_inside_file(const char *path)
{
    DPE_SCOPED(dpe_inside_close_scoped) hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    /* Tables are only ever replaced, never changed: no lock is needed, and some clusters' file
     * systems refuse HDF5's. */
    return access >= 0 && H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) >= 0 &&
                   H5Pset_file_locking(access, false, true) >= 0
               ? H5Fopen(path, H5F_ACC_RDONLY, access)
               : -1;
}
