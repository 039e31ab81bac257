/* Files whose objects lie elsewhere: links of every kind, datasets that are stored in or composed
 * of other files. Both readers refuse them at every place that they read, though what is pointed to
 * would be right. Datasets that unpack to far more than they claim, strings that many elements
 * share, and file systems without locks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <hdf5.h>
#include <zlib.h>

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/base/base.h"
#include "engine/base/bytes.h"
#include "outputs/h5/h5.h"
#include "outputs/run/run.h"
#include "outputs/table/dpe_table.h"
#include "outputs/table/inside.h"
#include "outputs/table/trailer.h"
#include "tests/outputs/outputs_fixture.h"

/* HDF5 calls this one in the place of the C library's. */
static bool locks_fail;
static int locked;
int flock(int fd, int operation);
int flock(int fd, int operation)
{
    (void)fd;
    (void)operation;
    locked++;
    errno = ENOLCK;
    return locks_fail ? -1 : 0;
}

/* HDF5 does not free what it had read before a read failed. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5";
}

/* So it does this one, and so does the program itself: the reads of a file that is no table yet or
 * one. */
static int reads_left = -1; /* then they fail; below 0: none does */
static int reads, reads_failed;
ssize_t pread64(int fd, void *bytes, size_t n, off_t at);
ssize_t pread64(int fd, void *bytes, size_t n, off_t at)
{
    reads++;
    if (reads_left == 0) {
        reads_failed++;
        errno = EIO;
        return -1;
    }
    reads_left -= reads_left > 0;
    return syscall(SYS_pread64, fd, bytes, n, at);
}
ssize_t pread(int fd, void *bytes, size_t n, off_t at);
ssize_t pread(int fd, void *bytes, size_t n, off_t at)
{
    return pread64(fd, bytes, n, at);
}

enum { GROUPS = 2, PAIRS = 4, HEADS = 2 };

static dpe_status fill_attributes(struct dpe_h5 *table, struct dpe_error *err)
{
    const struct {
        const char *object, *name, *text;
        int64_t number;
    } attributes[] = {
        {"/table", "near_rule", "distance < local_window", 0},
        {"/table", "rounding", "separable", 0},
        {"/table", "angle_precision", "f32", 0},
        {"/table", "pair_layout", "half-split", 0},
        {"/model", "model_type", "llama", 0},
        {"/model", "fingerprint", "00ff", 0},
        {"/model", "layers", NULL, 1},
        {"/model", "heads", NULL, HEADS},
        {"/model", "kv_heads", NULL, 1},
        {"/model", "head_dim", NULL, 2 * PAIRS},
    };
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        if (attributes[i].text != NULL) {
            dpe_h5_attr_text(table, attributes[i].object, attributes[i].name, attributes[i].text);
        } else {
            dpe_h5_attr_i64(table, attributes[i].object, attributes[i].name, attributes[i].number);
        }
    }
    return dpe_h5_failed(table, err);
}

/* A small DPE table, in a file that has everything else of a run. */
static dpe_status fill_table(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    static const double scale[GROUPS] = {4, 1}, own[PAIRS] = {1, 0.1, 0.01, 0.002}, one = 1;
    static const int64_t number[4] = {0, 1, 2, 3}, length[GROUPS] = {26, 104};
    static const int64_t trained = 64, evaluated = 104, window = 16, top_k = 2;
    static const int32_t edge[GROUPS + 1] = {0, 2, 4};
    static const uint8_t mask[HEADS * PAIRS] = {1, 0, 1, 0, 0, 0, 1, 1};
    const struct dpe_column columns[] = {
        {"/group", DPE_COL_I64, 1, {GROUPS}, {NULL}, number, "group", "1", NULL, true},
        {"/edge", DPE_COL_I64, 1, {GROUPS + 1}, {NULL}, number, "edge", "1", NULL, true},
        {"/layer", DPE_COL_I64, 1, {1}, {NULL}, number, "layer", "1", NULL, true},
        {"/head", DPE_COL_I64, 1, {HEADS}, {NULL}, number, "head", "1", NULL, true},
        {"/pair", DPE_COL_I64, 1, {PAIRS}, {NULL}, number, "pair", "1", NULL, true},
        {"/table/trained_length", DPE_COL_I64, .data = &trained, .long_name = "L0"},
        {"/table/evaluated_length", DPE_COL_I64, .data = &evaluated, .long_name = "L"},
        {"/table/local_window", DPE_COL_I64, .data = &window, .long_name = "window"},
        {"/table/top_k", DPE_COL_I64, .data = &top_k, .long_name = "k"},
        {"/table/attention_scaling", DPE_COL_F64, .data = &one, .long_name = "a"},
        {"/table/scale_factor", DPE_COL_F64, 1, {GROUPS}, {"/group"}, scale, "s", "1", NULL, false},
        {"/table/effective_length",
         DPE_COL_I64,
         1,
         {GROUPS},
         {"/group"},
         length,
         "e",
         "1",
         NULL,
         false},
        {"/table/group_edge",
         DPE_COL_I32,
         1,
         {GROUPS + 1},
         {"/edge"},
         edge,
         "edge",
         "1",
         NULL,
         false},
        {"/table/inv_freq", DPE_COL_F64, 1, {PAIRS}, {"/pair"}, own, "own", "1", NULL, false},
        {"/table/mask",
         DPE_COL_U8,
         3,
         {1, HEADS, PAIRS},
         {"/layer", "/head", "/pair"},
         mask,
         "mask",
         "1",
         NULL,
         false},
    };
    (void)user;
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        dpe_h5_put(table, &columns[i]);
    }
    return fill_attributes(table, err);
}

/* The table at scratch->table and, as what is pointed to, beside it. */
static void make_table(struct scratch *scratch, char whole[160])
{
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    scratch_clear(scratch);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(fixture_add(run, i, &err), DPE_OK);
    }
    if (dpe_run_snapshot(run, true, fill_table, NULL, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    snprintf(whole, 160, "%s/whole.h5", scratch->folder);
    size_t n = 0;
    char *bytes = slurp(scratch->table, &n);
    spill(whole, bytes, n);
    free(bytes);
}

enum way { UNCHANGED, SOFT, EXTERNAL, STORAGE, VIRTUAL, WAYS };

/* Put a dataset of the same type and extent in the place of one, with other properties. */
static void replace(hid_t file, const char *path, enum way way, const char *whole)
{
    char raw[200];
    unsigned char data[256];
    snprintf(raw, sizeof raw, "%s.raw", whole);
    hid_t set = H5Dopen2(file, path, H5P_DEFAULT);
    hid_t type = H5Dget_type(set);
    hid_t space = H5Dget_space(set);
    hid_t created = H5Pcreate(H5P_DATASET_CREATE);
    size_t n = (size_t)H5Sget_simple_extent_npoints(space) * H5Tget_size(type);
    assert_true(n <= sizeof data);
    assert_true(H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    if (way == STORAGE) {
        spill(raw, (const char *)data, n);
        assert_true(H5Pset_external(created, raw, 0, n) >= 0);
    } else {
        assert_true(H5Pset_virtual(created, space, whole, path, space) >= 0);
    }
    H5Dclose(set);
    assert_true(H5Ldelete(file, path, H5P_DEFAULT) >= 0);
    set = H5Dcreate2(file, path, type, space, H5P_DEFAULT, created, H5P_DEFAULT);
    assert_true(set >= 0);
    H5Dclose(set);
    H5Pclose(created);
    H5Sclose(space);
    H5Tclose(type);
}

/* The file was changed: it gets a checksum that is right. */
static void seal(const char *path)
{
    size_t n = 0;
    char *bytes = slurp(path, &n);
    char *longer = realloc(bytes, n + DPE_TRAILER);
    assert_non_null(longer);
    dpe_trailer_make((unsigned char *)longer + n, longer, n);
    spill(path, longer, n + DPE_TRAILER);
    free(longer);
}

/* What was `path` of the table lies elsewhere from now on; the checksum is right again. */
static void point(struct scratch *scratch, const char *path, enum way way, const char *whole)
{
    hid_t file = H5Fopen(scratch->table, H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(file >= 0);
    if (way == SOFT) {
        assert_true(H5Lmove(file, path, file, "/elsewhere", H5P_DEFAULT, H5P_DEFAULT) >= 0);
        assert_true(H5Lcreate_soft("/elsewhere", file, path, H5P_DEFAULT, H5P_DEFAULT) >= 0);
    } else if (way == EXTERNAL) {
        assert_true(H5Ldelete(file, path, H5P_DEFAULT) >= 0);
        assert_true(H5Lcreate_external(whole, path, file, path, H5P_DEFAULT, H5P_DEFAULT) >= 0);
    } else if (way != UNCHANGED) {
        replace(file, path, way, whole);
    }
    assert_true(H5Fclose(file) >= 0);
    seal(scratch->table);
}

static const char points[] = "points to another file";

static dpe_status get_numbers(struct dpe_h5 *table, const char *path, struct dpe_error *err)
{
    void *data = NULL;
    int rank = 0;
    int64_t dims[5] = {0};
    dpe_status status = dpe_h5_get(table, path, DPE_COL_F64, &data, &rank, dims, err);
    free(data);
    return status;
}

static dpe_status get_words(struct dpe_h5 *table, const char *path, struct dpe_error *err)
{
    char **words = NULL;
    size_t n = 0;
    dpe_status status = dpe_h5_get_strings(table, path, &words, &n, err);
    dpe_strings_free(words, n);
    return status;
}

static dpe_status get_members(struct dpe_h5 *table, const char *path, struct dpe_error *err)
{
    char **names = NULL;
    size_t n = 0;
    dpe_status status = dpe_h5_list(table, path, &names, &n, err);
    dpe_strings_free(names, n);
    return status;
}

static dpe_status get_attribute(struct dpe_h5 *table, const char *path, struct dpe_error *err)
{
    int64_t value = 0;
    return dpe_h5_get_attr_i64(table, path, "layers", &value, err);
}

/* What is pointed away, what of it is read, and how. */
static const struct place {
    const char *path, *read;
    dpe_status (*get)(struct dpe_h5 *, const char *, struct dpe_error *);
    bool numbers; /* a dataset that can be stored elsewhere */
    bool needed;  /* by the consumer library */
} places[] = {
    {"/table/scale_factor", "/table/scale_factor", get_numbers, true, true},
    {"/table/mask", "/table/mask", get_numbers, true, true},
    {"/table/attention_scaling", "/table/attention_scaling", get_numbers, true, true},
    {"/rows/status", "/rows/status", get_numbers, true, false},
    {"/table", "/table/inv_freq", get_numbers, false, true},
    {"/table", "/table", get_members, false, true},
    {"/model", "/model", get_attribute, false, true},
    {"/identity/value", "/identity/value", get_words, false, false},
    {"/identity", "/identity/field", get_words, false, false},
};

static void expect_library(const struct scratch *scratch, bool refused)
{
    struct dpe_table *table = NULL;
    char why[DPE_TABLE_MESSAGE] = "";
    int error = dpe_table_open(scratch->table, &table, why);
    if (refused ? error != DPE_TABLE_BAD_FILE || strstr(why, points) == NULL
                : error != DPE_TABLE_OK) {
        fail_msg("error %d: %s", error, why);
    }
    dpe_table_close(table);
}

static void expect_engine(const struct scratch *scratch, const struct place *place, bool refused)
{
    struct dpe_h5 *table = NULL;
    struct dpe_error err = {0};
    assert_int_equal(dpe_h5_open(scratch->table, &table, &err), DPE_OK);
    dpe_status status = place->get(table, place->read, &err);
    if (refused ? status != DPE_BAD_DATA || strstr(err.text, points) == NULL : status != DPE_OK) {
        fail_msg("status %d: %s", (int)status, err.text);
    }
    /* It is no hole in the table either. */
    assert_true(dpe_h5_has(table, place->path));
    dpe_h5_close(table);
}

static void what_lies_elsewhere_is_refused(void **state)
{
    struct scratch *scratch = *state;
    char whole[160];
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        for (enum way way = UNCHANGED; way < (places[i].numbers ? WAYS : STORAGE); way++) {
            print_message("%s, way %d\n", places[i].path, (int)way);
            make_table(scratch, whole);
            point(scratch, places[i].path, way, whole);
            expect_library(scratch, places[i].needed && way != UNCHANGED);
            expect_engine(scratch, &places[i], way != UNCHANGED);
        }
    }
}

/* A run goes on from its table: its rows must not come from another file. */
static void a_run_does_not_go_on_from_another_file(void **state)
{
    static const char *const paths[] = {"/rows", "/run/sessions", "/run", "/plans/name"};
    struct scratch *scratch = *state;
    char whole[160];
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        for (enum way way = SOFT; way <= EXTERNAL; way++) {
            enum dpe_h5_state found = DPE_H5_ABSENT;
            struct dpe_h5_content content = {0};
            struct dpe_error err = {0};
            make_table(scratch, whole);
            point(scratch, paths[i], way, whole);
            assert_int_equal(dpe_h5_look(scratch->table, &found, &content, &err), DPE_OK);
            assert_int_equal(found, DPE_H5_DAMAGED);
            if (strstr(content.problem, points) == NULL) {
                fail_msg("%s", content.problem);
            }
            dpe_h5_content_free(&content);
        }
    }
}

static void set_text(hid_t file, const char *path, const char *name, const char *text)
{
    hid_t object = H5Oopen(file, path, H5P_DEFAULT);
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, strlen(text));
    if (H5Aexists(object, name) > 0) {
        H5Adelete(object, name);
    }
    hid_t id = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(id, type, text) >= 0);
    H5Aclose(id);
    H5Tclose(type);
    H5Sclose(space);
    H5Oclose(object);
}

static void set_number(hid_t file, const char *path, const char *name)
{
    hid_t object = H5Oopen(file, path, H5P_DEFAULT);
    hid_t space = H5Screate(H5S_SCALAR);
    const int number = 3;
    hid_t id = H5Acreate2(object, name, H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(id, H5T_NATIVE_INT, &number) >= 0);
    H5Aclose(id);
    H5Sclose(space);
    H5Oclose(object);
}

static void set_list(hid_t file, const char *path, hsize_t n, const int64_t *list)
{
    hid_t space = H5Screate_simple(1, &n, NULL);
    if (H5Lexists(file, path, H5P_DEFAULT) > 0) {
        H5Ldelete(file, path, H5P_DEFAULT);
    }
    hid_t set =
        H5Dcreate2(file, path, H5T_NATIVE_INT64, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Dwrite(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, list) >= 0);
    H5Dclose(set);
    H5Sclose(space);
}

/* A change of a good table, and what the library says to it; NULL: nothing. */
static const struct change {
    const char *path, *name; /* of an attribute */
    const char *text;        /* NULL: a number */
    int64_t list[2];         /* without a name: the elements of a dataset */
    const char *words;
} changes[] = {
    {"/", "schema_name", "other", {0}, "supports only 'dpe-table'"},
    {"/", "schema_name", "dpe-table:x", {0}, "supports only 'dpe-table'"},
    {"/table", "near_rule", "distance < local_window: in tokens", {0}, NULL},
    {"/table", "moves", NULL, {0}, "moves: expected frequencies"},
    {"/table", "moves", "other", {0}, "moves is 'other'"},
    {"/run", NULL, NULL, {7, 7}, NULL},
    {"/table/length", NULL, NULL, {0, 104}, "lengths from 1 on that increase"},
    {"/table/length", NULL, NULL, {104, 104}, "lengths from 1 on that increase"},
    {"/table/length", NULL, NULL, {104, 208}, "the entry that /table/length lists"},
};

static void what_a_table_says_of_itself_is_checked(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_table *table = NULL;
    char whole[160];
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        const struct change *change = &changes[i];
        char why[DPE_TABLE_MESSAGE] = "";
        make_table(scratch, whole);
        hid_t file = H5Fopen(scratch->table, H5F_ACC_RDWR, H5P_DEFAULT);
        if (change->name == NULL) {
            set_list(file, change->path, 2, change->list);
        } else if (change->text == NULL) {
            set_number(file, change->path, change->name);
        } else {
            set_text(file, change->path, change->name, change->text);
        }
        assert_true(H5Fclose(file) >= 0);
        seal(scratch->table);
        const int error = dpe_table_open(scratch->table, &table, why);
        if (error != (change->words != NULL ? DPE_TABLE_BAD_FILE : DPE_TABLE_OK) ||
            (change->words != NULL && strstr(why, change->words) == NULL)) {
            fail_msg("change %zu: error %d: %s", i, error, why);
        }
        dpe_table_close(table);
    }
    make_table(scratch, whole);
    point(scratch, "/run", EXTERNAL, whole);
    expect_library(scratch, false);
}

enum bomb { NONE, LARGE_CHUNKS, LONG_CHUNK, TWO_DEFLATES, OTHER_FILTER, BOMBS };

/* Store the mask anew, with the same values: within the rules, or against one of them. */
static void pack(const char *table, enum bomb bomb)
{
    static const hsize_t dims[3] = {1, HEADS, PAIRS}, large[3] = {1 << 10, 1 << 10, 1 << 10};
    static const hsize_t first[3] = {0};
    static const hsize_t no_end[3] = {H5S_UNLIMITED, H5S_UNLIMITED, H5S_UNLIMITED};
    static unsigned char stored[60000];
    static const uint8_t mask[HEADS * PAIRS] = {1, 0, 1, 0, 0, 0, 1, 1};
    hid_t file = H5Fopen(table, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t space = H5Screate_simple(3, dims, no_end);
    hid_t created = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(created, 3, bomb == LARGE_CHUNKS ? large : dims);
    if (bomb == OTHER_FILTER) {
        H5Pset_nbit(created);
    }
    H5Pset_deflate(created, 4);
    if (bomb == TWO_DEFLATES) {
        H5Pset_deflate(created, 4);
    }
    H5Ldelete(file, "/table/mask", H5P_DEFAULT);
    hid_t set =
        H5Dcreate2(file, "/table/mask", H5T_NATIVE_UINT8, space, H5P_DEFAULT, created, H5P_DEFAULT);
    assert_true(set >= 0);
    if (bomb == LONG_CHUNK) {
        assert_true(H5Dwrite_chunk(set, H5P_DEFAULT, 0, first, sizeof stored, stored) >= 0);
    } else if (bomb != LARGE_CHUNKS) { /* which would take the memory here */
        assert_true(H5Dwrite(set, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, mask) >= 0);
    }
    H5Dclose(set);
    H5Pclose(created);
    H5Sclose(space);
    H5Fclose(file);
    seal(table);
}

static void chunks_that_dpe_does_not_write_are_refused(void **state)
{
    struct scratch *scratch = *state;
    char whole[160];
    for (enum bomb bomb = NONE; bomb < BOMBS; bomb++) {
        struct dpe_table *table = NULL;
        struct dpe_h5 *engine = NULL;
        struct dpe_error err = {0};
        char why[DPE_TABLE_MESSAGE] = "";
        make_table(scratch, whole);
        pack(scratch->table, bomb);
        int error = dpe_table_open(scratch->table, &table, why);
        assert_int_equal(dpe_h5_open(scratch->table, &engine, &err), DPE_OK);
        dpe_status status = get_numbers(engine, "/table/mask", &err);
        dpe_h5_close(engine);
        dpe_table_close(table);
        if (bomb == NONE) {
            assert_int_equal(error, DPE_TABLE_OK);
            assert_int_equal(status, DPE_OK);
        } else if (error != DPE_TABLE_BAD_FILE || status != DPE_BAD_DATA ||
                   strstr(why, "chunks of at most") == NULL ||
                   strstr(err.text, "chunks of at most") == NULL) {
            fail_msg("bomb %d: %d %s; %d %s", (int)bomb, error, why, (int)status, err.text);
        }
    }
}

/* How a dataset of LIST bytes of value 7 is stored: in chunks of CHUNK, or in one block. */
enum { LIST = 5000, CHUNK = 2000 };
static const struct stored {
    const char *name;
    const char *filters; /* in their order: d deflate, s shuffle, f fletcher32 */
    unsigned skipped;    /* the filter mask of the last chunk */
    int unpacked;        /* bytes of the last chunk before the filters; -1: not written */
    int junk;            /* bytes behind it */
    bool unfilled;       /* no value for what is not stored */
    bool right;
} storages[] = {
    {"plain", "", 0, CHUNK, 0, false, true},
    {"deflated", "d", 0, CHUNK, 0, false, true},
    {"as dpe writes", "sdf", 0, CHUNK, 0, false, true},
    {"checksums on both sides", "fdf", 0, CHUNK, 0, false, true},
    {"not stored, but filled", "d", 0, -1, 0, false, true},
    {"not filled, but stored", "d", 0, CHUNK, 0, true, true},
    {"one byte, plain", "", 0, 1, 0, false, false},
    {"one byte less, plain", "", 0, CHUNK - 1, 0, false, false},
    {"one byte more, plain", "", 0, CHUNK, 1, false, false},
    {"the last element is missing, shuffled", "s", 0, CHUNK - 1, 0, false, false},
    {"unpacks to less", "d", 0, 10, 0, false, false},
    {"unpacks to one less", "d", 0, CHUNK - 1, 0, false, false},
    {"unpacks to more", "d", 0, CHUNK + 1, 0, false, false},
    {"unpacks to less, with a checksum that is right", "sdf", 0, 30, 0, false, false},
    {"is shorter than its checksum", "f", 0, -2, 0, false, false},
    {"a mask leaves deflate out", "d", 1, 100, 0, false, false},
    {"a mask leaves deflate out, whole", "d", 1, CHUNK, 0, false, false},
    {"a mask leaves the checksum out", "sdf", 4, CHUNK, 0, false, false},
    {"a mask for filters that there are not", "", 8, CHUNK, 0, false, false},
    {"neither stored nor filled", "d", 0, -1, 0, true, false},
    {"neither stored nor filled, plain", "", 0, -1, 0, true, false},
};

/* HDF5's checksum of Fletcher. */
static uint32_t fletcher32(const unsigned char *bytes, size_t n)
{
    uint32_t low = 0;
    uint32_t high = 0;
    for (size_t i = 0; i < n; i += 2) {
        low = (low + ((uint32_t)bytes[i] << 8) + (i + 1 < n ? bytes[i + 1] : 0U)) % 65535;
        high = (high + low) % 65535;
    }
    return high << 16 | low;
}

/* What the filters make of n bytes of value 7, in place; its length. */
static size_t filter(const struct stored *how, unsigned char *bytes, size_t n)
{
    memset(bytes, 7, n);
    for (size_t i = 0; how->filters[i] != '\0'; i++) {
        unsigned char packed[2 * CHUNK];
        uLongf room = sizeof packed;
        if ((how->skipped & (1U << i)) != 0) {
            continue;
        }
        if (how->filters[i] == 'd') {
            assert_int_equal(compress(packed, &room, bytes, n), Z_OK);
            memcpy(bytes, packed, room);
            n = room;
        } else if (how->filters[i] == 'f') {
            dpe_store_u64(bytes + n, fletcher32(bytes, n), 4);
            n += 4;
        }
    }
    return n;
}

static void store(const char *table, const struct stored *how)
{
    static unsigned char bytes[4 * CHUNK];
    const hsize_t list = LIST, chunk = CHUNK;
    hid_t file = H5Fopen(table, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t space = H5Screate_simple(1, &list, NULL);
    hid_t created = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(created, 1, &chunk);
    for (const char *at = how->filters; *at != '\0'; at++) {
        assert_true((*at == 'd'   ? H5Pset_deflate(created, 6)
                     : *at == 's' ? H5Pset_shuffle(created)
                                  : H5Pset_fletcher32(created)) >= 0);
    }
    if (how->unfilled) {
        H5Pset_fill_time(created, H5D_FILL_TIME_NEVER);
    }
    hid_t set =
        H5Dcreate2(file, "/list", H5T_NATIVE_UINT8, space, H5P_DEFAULT, created, H5P_DEFAULT);
    assert_true(set >= 0);
    for (hsize_t at = 0; at < LIST; at += CHUNK) {
        struct stored whole = *how;
        bool last = at + CHUNK >= LIST;
        whole.skipped = last ? how->skipped : 0;
        size_t n = last && how->unpacked == -2 ? 3
                   : last && how->unpacked == -1
                       ? 0
                       : filter(&whole, bytes, last ? (size_t)how->unpacked : CHUNK);
        n += last ? (size_t)how->junk : 0;
        assert_true(n == 0 || H5Dwrite_chunk(set, H5P_DEFAULT, whole.skipped, &at, n, bytes) >= 0);
    }
    H5Dclose(set);
    H5Pclose(created);
    H5Sclose(space);
    H5Fclose(file);
    seal(table);
}

static dpe_status get_list(struct scratch *scratch, const char *name, struct dpe_error *err)
{
    struct dpe_h5 *engine = NULL;
    void *data = NULL;
    int rank = 0;
    int64_t dims[5] = {0};
    assert_int_equal(dpe_h5_open(scratch->table, &engine, err), DPE_OK);
    dpe_status status = dpe_h5_get(engine, name, DPE_COL_U8, &data, &rank, dims, err);
    for (size_t i = 0; status == DPE_OK && i < (size_t)dims[0]; i++) {
        assert_true(((unsigned char *)data)[i] == 7 || ((unsigned char *)data)[i] == 0);
    }
    free(data);
    dpe_h5_close(engine);
    return status;
}

/* HDF5 fills the rest of the result with what lies in its memory. */
static void what_is_stored_short_is_refused(void **state)
{
    struct scratch *scratch = *state;
    char whole[160];
    for (size_t i = 0; i < sizeof storages / sizeof *storages; i++) {
        struct dpe_error err = {0};
        make_table(scratch, whole);
        store(scratch->table, &storages[i]);
        dpe_status status = get_list(scratch, "/list", &err);
        if (status != (storages[i].right ? DPE_OK : DPE_BAD_DATA) ||
            (!storages[i].right && strstr(err.text, "stored, or filled") == NULL)) {
            fail_msg("%s: %d %s", storages[i].name, (int)status, err.text);
        }
    }
}

/* The same of elements that lie in the head of the dataset, or in one block: an old file, whose
 * heads have no checksum, says another length. */
static void a_block_that_is_short_is_refused(void **state)
{
    enum { N = 300 };
    static const struct {
        const char *name;
        H5D_layout_t layout;
        int less;
        bool unfilled, written;
    } blocks[] = {
        {"compact", H5D_COMPACT, 0, false, true},
        {"contiguous", H5D_CONTIGUOUS, 0, false, true},
        {"compact, short", H5D_COMPACT, 1, false, true},
        {"compact, empty", H5D_COMPACT, N - 1, false, true},
        {"contiguous, short", H5D_CONTIGUOUS, 200, false, true},
        {"contiguous, not stored, but filled", H5D_CONTIGUOUS, 0, false, false},
        {"contiguous, neither stored nor filled", H5D_CONTIGUOUS, 0, true, false},
    };
    struct scratch *scratch = *state;
    static unsigned char sevens[N], found_sevens[N];
    const hsize_t n = N;
    memset(sevens, 7, sizeof sevens);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        hid_t file = H5Fcreate(scratch->table, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
        hid_t space = H5Screate_simple(1, &n, NULL);
        hid_t created = H5Pcreate(H5P_DATASET_CREATE);
        H5Pset_layout(created, blocks[i].layout);
        if (blocks[i].unfilled) {
            H5Pset_fill_time(created, H5D_FILL_TIME_NEVER);
        }
        hid_t set =
            H5Dcreate2(file, "/list", H5T_NATIVE_UINT8, space, H5P_DEFAULT, created, H5P_DEFAULT);
        if (blocks[i].written) {
            H5Dwrite(set, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, sevens);
        }
        uint64_t offset = H5Dget_offset(set);
        H5Dclose(set);
        H5Pclose(created);
        H5Sclose(space);
        H5Fclose(file);
        size_t size = 0;
        char *bytes = slurp(scratch->table, &size);
        unsigned char message[18] = {3, blocks[i].layout == H5D_COMPACT ? 0 : 1};
        size_t at = 2; /* of the length in the message of the layout */
        if (blocks[i].layout == H5D_CONTIGUOUS) {
            dpe_store_u64(message + 2, offset, 8);
            at = 10;
        }
        dpe_store_u64(message + at, N, blocks[i].layout == H5D_COMPACT ? 2 : 8);
        if (blocks[i].layout == H5D_COMPACT) {
            memset(message + 4, 7, sizeof message - 4); /* the elements follow */
        }
        char *found = bytes;
        while (memcmp(found, message, sizeof message) != 0) {
            assert_true(++found < bytes + size - sizeof message);
        }
        dpe_store_u64(found + at, (uint64_t)(N - blocks[i].less), 2);
        spill(scratch->table, bytes, size);
        free(bytes);
        enum dpe_inside right =
            blocks[i].less == 0 && !blocks[i].unfilled ? DPE_INSIDE_THERE : DPE_INSIDE_SHORT;
        enum dpe_inside status = DPE_INSIDE_UNKNOWN;
        file = dpe_inside_file(scratch->table);
        set = dpe_inside_open(file, "/list", &status);
        assert_int_equal(status, DPE_INSIDE_THERE);
        status = dpe_inside_read(set, H5T_NATIVE_UINT8, H5P_DEFAULT, found_sevens);
        if (status != right) {
            fail_msg("%s: %d, expected %d", blocks[i].name, (int)status, (int)right);
        }
        H5Dclose(set);
        H5Fclose(file);
    }
}

/* A list of n bytes of zeros in the file, in chunks of so many, of which the first are stored. */
static void add_list(const char *table, const char *name, hsize_t n, hsize_t chunk, hsize_t stored)
{
    static const uint8_t zeros[DPE_INSIDE_CHUNK] = {0};
    hid_t file = H5Fopen(table, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t space = H5Screate_simple(1, &n, NULL);
    hid_t memory = H5Screate_simple(1, &chunk, NULL);
    hid_t created = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(created, 1, &chunk);
    H5Pset_deflate(created, 1);
    hid_t set = H5Dcreate2(file, name, H5T_NATIVE_UINT8, space, H5P_DEFAULT, created, H5P_DEFAULT);
    assert_true(set >= 0);
    for (hsize_t at = 0; at + chunk <= n && at < stored * chunk; at += chunk) {
        H5Sselect_hyperslab(space, H5S_SELECT_SET, &at, NULL, &chunk, NULL);
        assert_true(H5Dwrite(set, H5T_NATIVE_UINT8, memory, space, H5P_DEFAULT, zeros) >= 0);
    }
    H5Dclose(set);
    H5Pclose(created);
    H5Sclose(memory);
    H5Sclose(space);
    H5Fclose(file);
}

/* HDF5 keeps a record of every chunk while it reads, and looks for one in all of them. */
static void thousands_of_small_chunks_are_refused(void **state)
{
    static const struct {
        hsize_t n, chunk, stored;
        dpe_status status;
    } lists[] = {
        {16 << 20, 1, 1, DPE_BAD_DATA},
        {2 << 20, 1, 0, DPE_BAD_DATA},
        {0, 16, 0, DPE_OK},
        {4096, 1, 0, DPE_OK},
        {1 << 20, 16, 40000, DPE_BAD_DATA},
        {4097, 1, 1, DPE_BAD_DATA},
        {4096, 1, 4096, DPE_OK},
        {300000, 100, 5, DPE_OK},
        {1000, 1000, 1, DPE_OK},
        {8 << 20, 16384, 3, DPE_OK},
    };
    struct scratch *scratch = *state;
    char whole[160];
    alarm(60);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct dpe_h5 *engine = NULL;
        struct dpe_error err = {0};
        make_table(scratch, whole);
        add_list(scratch->table, "/list", lists[i].n, lists[i].chunk, lists[i].stored);
        seal(scratch->table);
        assert_int_equal(dpe_h5_open(scratch->table, &engine, &err), DPE_OK);
        void *data = NULL;
        int rank = 0;
        int64_t dims[5] = {0};
        dpe_status status = dpe_h5_get(engine, "/list", DPE_COL_U8, &data, &rank, dims, &err);
        free(data);
        dpe_h5_close(engine);
        if (status != lists[i].status ||
            (status != DPE_OK && strstr(err.text, "thousands of small ones") == NULL)) {
            fail_msg("list %zu: %d %s", i, (int)status, err.text);
        }
    }
    alarm(0);
}

/* A megabyte in which deflate has packed more than a quarter of a gigabyte. */
static void what_is_hollow_is_refused(void **state)
{
    enum { BYTES = 257 << 20, STORED = 300 };
    static const uint8_t stored[STORED] = {0};
    struct scratch *scratch = *state;
    struct dpe_h5 *engine = NULL;
    struct dpe_error err = {0};
    char whole[160];
    make_table(scratch, whole);
    add_list(scratch->table, "/list", BYTES, DPE_INSIDE_CHUNK, 0);
    hid_t file = H5Fopen(scratch->table, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t set = H5Dopen2(file, "/list", H5P_DEFAULT);
    for (hsize_t at = 0; at < BYTES; at += DPE_INSIDE_CHUNK) {
        assert_true(H5Dwrite_chunk(set, H5P_DEFAULT, 0, &at, sizeof stored, stored) >= 0);
    }
    H5Dclose(set);
    H5Fclose(file);
    seal(scratch->table);
    assert_int_equal(dpe_h5_open(scratch->table, &engine, &err), DPE_OK);
    void *data = NULL;
    int rank = 0;
    int64_t dims[5] = {0};
    assert_int_equal(dpe_h5_get(engine, "/list", DPE_COL_U8, &data, &rank, dims, &err),
                     DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "claims far more"));
    dpe_h5_close(engine);
}

/* Elements that are within the machine's memory and not within what the user allows. */
static void the_limit_of_the_user_counts(void **state)
{
    enum { BYTES = DPE_INSIDE_MUCH + DPE_INSIDE_CHUNK, LEAST = 1 << 10 };
    struct scratch *scratch = *state;
    struct dpe_h5 *engine = NULL;
    struct dpe_error err = {0};
    char whole[160];
    make_table(scratch, whole);
    add_list(scratch->table, "/list", BYTES, DPE_INSIDE_CHUNK, BYTES / DPE_INSIDE_CHUNK);
    seal(scratch->table);
    assert_int_equal(dpe_h5_open(scratch->table, &engine, &err), DPE_OK);
    for (int i = 0; i < 3; i++) {
        void *data = NULL;
        int rank = 0;
        int64_t dims[5] = {0};
        uint64_t limit = i == 1 ? DPE_INSIDE_MUCH : i == 2 ? 16ULL * BYTES : 0;
        dpe_memory_limit(limit);
        assert_true(limit == 0 || dpe_memory_available() < limit);
        dpe_status status = dpe_h5_get(engine, "/list", DPE_COL_U8, &data, &rank, dims, &err);
        dpe_memory_limit(0);
        free(data);
        assert_int_equal(status, i == 1 ? DPE_NO_MEMORY : DPE_OK);
    }
    assert_non_null(strstr(err.text, "--max-memory"));
    dpe_h5_close(engine);
    /* The library of tables keeps what it reads: its datasets together are limited. */
    hid_t file = dpe_inside_file(scratch->table);
    enum dpe_inside found = DPE_INSIDE_UNKNOWN;
    hid_t set = dpe_inside_open(file, "/list", &found);
    uint8_t *room = malloc(BYTES);
    assert_non_null(room);
    dpe_inside_limit(BYTES + LEAST);
    assert_int_equal(dpe_inside_read(set, H5T_NATIVE_UINT8, H5P_DEFAULT, room), DPE_INSIDE_THERE);
    assert_int_equal(dpe_inside_read(set, H5T_NATIVE_UINT8, H5P_DEFAULT, room), DPE_INSIDE_LARGE);
    dpe_inside_limit(UINT64_MAX);
    free(room);
    H5Oclose(set);
    H5Fclose(file);
}

enum { ELEMENTS = 100000, LENGTH = 1 << 20, REFERENCE = 16 };

/* A dataset of one long and many short strings; where its references are in the file. */
static haddr_t add_strings(const char *table)
{
    static char text[LENGTH];
    static const char *texts[ELEMENTS];
    const hsize_t n = ELEMENTS;
    memset(text, 'x', sizeof text - 1);
    for (size_t i = 0; i < ELEMENTS; i++) {
        texts[i] = i == 0 ? text : "y";
    }
    hid_t file = H5Fopen(table, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    hid_t space = H5Screate_simple(1, &n, NULL);
    hid_t set = H5Dcreate2(file, "/bomb", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, texts) >= 0);
    haddr_t at = H5Dget_offset(set);
    H5Dclose(set);
    H5Sclose(space);
    H5Tclose(type);
    H5Fclose(file);
    return at;
}

/* 100,000 elements that refer to one string of a megabyte. */
static void strings_that_share_their_bytes_are_refused(void **state)
{
    struct scratch *scratch = *state;
    char whole[160];
    make_table(scratch, whole);
    haddr_t at = add_strings(scratch->table);
    size_t size = 0;
    char *bytes = slurp(scratch->table, &size);
    for (size_t i = 1; i < ELEMENTS; i++) {
        memcpy(bytes + at + i * REFERENCE, bytes + at, REFERENCE);
    }
    spill(scratch->table, bytes, size);
    free(bytes);
    seal(scratch->table);
    struct dpe_h5 *engine = NULL;
    struct dpe_error err = {0};
    assert_int_equal(dpe_h5_open(scratch->table, &engine, &err), DPE_OK);
    assert_int_equal(get_words(engine, "/bomb", &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "longer than the file"));
    assert_int_equal(get_words(engine, "/identity/value", &err), DPE_OK);
    dpe_h5_close(engine);
}

/* As on a cluster's file system without locks, or while the writer of the table holds one. */
static void no_lock_is_needed(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_table *table = NULL;
    struct dpe_h5 *engine = NULL;
    struct dpe_error err = {0};
    char why[DPE_TABLE_MESSAGE] = "";
    char whole[160];
    make_table(scratch, whole);
    int before = locked;
    hid_t file = H5Fopen(whole, H5F_ACC_RDONLY, H5P_DEFAULT);
    H5Fclose(file);
    assert_true(locked > before); /* HDF5 does call the flock of this program */
    locks_fail = true;
    assert_int_equal(dpe_table_open(scratch->table, &table, why), DPE_TABLE_OK);
    assert_int_equal(dpe_h5_open(scratch->table, &engine, &err), DPE_OK);
    dpe_h5_close(engine);
    dpe_table_close(table);
    locks_fail = false;
}

/* A disk that fails while a new table is read back: it is the disk's error, in its words. */
static void errors_of_reading_back_are_the_disks(void **state)
{
    struct scratch *scratch = *state;
    int n = 0;
    for (bool failed = true; failed; n++) {
        struct dpe_run *run = NULL;
        struct dpe_error err = {0};
        scratch_clear(scratch);
        assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
        for (int i = 0; i < 5; i++) {
            assert_int_equal(fixture_add(run, i, &err), DPE_OK);
        }
        reads_left = n;
        reads_failed = 0;
        dpe_status status = dpe_run_snapshot(run, true, fill_table, NULL, &err);
        failed = reads_failed > 0;
        reads_left = -1;
        if (status != (failed ? DPE_IO : DPE_OK) ||
            (failed && (strstr(err.text, "HDF5") != NULL || strstr(err.text, "time =") != NULL))) {
            fail_msg("read %d: %d %s", n, (int)status, err.text);
        }
        assert_int_equal(access(scratch->table, F_OK), failed ? -1 : 0);
        (void)dpe_run_close(run, &err);
    }
    assert_true(reads > 0 && n > 10);
}

static void what_is_no_file_is_refused_at_once(void **state)
{
    struct scratch *scratch = *state;
    char fifo[160];
    snprintf(fifo, sizeof fifo, "%s/fifo", scratch->folder);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    const char *const paths[] = {fifo, "/dev/zero", "/dev/null", scratch->folder};
    alarm(60); /* a reader that waits is killed */
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct dpe_h5 *engine = NULL;
        struct dpe_table *library = NULL;
        struct dpe_error err = {0};
        char why[DPE_TABLE_MESSAGE] = "";
        assert_int_equal(dpe_h5_open(paths[i], &engine, &err), DPE_NO_INPUT);
        assert_int_not_equal(dpe_table_open(paths[i], &library, why), DPE_TABLE_OK);
        assert_int_not_equal(dpe_table_open_unchecked(paths[i], &library, why), DPE_TABLE_OK);
        assert_non_null(strstr(why, paths[i]));
    }
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(what_lies_elsewhere_is_refused),
        WITH_SCRATCH(a_run_does_not_go_on_from_another_file),
        WITH_SCRATCH(what_a_table_says_of_itself_is_checked),
        WITH_SCRATCH(chunks_that_dpe_does_not_write_are_refused),
        WITH_SCRATCH(what_is_stored_short_is_refused),
        WITH_SCRATCH(a_block_that_is_short_is_refused),
        WITH_SCRATCH(thousands_of_small_chunks_are_refused),
        WITH_SCRATCH(what_is_hollow_is_refused),
        WITH_SCRATCH(the_limit_of_the_user_counts),
        WITH_SCRATCH(strings_that_share_their_bytes_are_refused),
        WITH_SCRATCH(no_lock_is_needed),
        WITH_SCRATCH(errors_of_reading_back_are_the_disks),
        WITH_SCRATCH(what_is_no_file_is_refused_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
