/* HDF5 tables with sound bytes and hostile content: the input is a program that writes the objects
 * of a table with types, shapes and values of its choice. The consumer library and the engine's
 * reader must refuse the file or read a table that dpe_table_check passes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <hdf5.h>
#include <zlib.h>

#include "engine/base/base.h"
#include "outputs/h5/h5.h"
#include "outputs/table/dpe_table.h"
#include "outputs/table/trailer.h"
#include "tests/fuzz/fuzz.h"

/* The bytes that are left; 0 for ever when none is. */
struct input {
    const uint8_t *bytes;
    size_t n;
};

static unsigned take(struct input *input)
{
    if (input->n == 0) {
        return 0;
    }
    input->n--;
    return *input->bytes++;
}

/* What an object of a good table is; a byte of the input decides whether it is written so. */
struct object {
    const char *parent; /* of an attribute; NULL: a dataset */
    const char *name;
    const char *text; /* NULL: numbers */
    int rank;
    hsize_t dims[3];
    double first, step; /* of the numbers */
};

static const struct object objects[] = {
    {"/", "schema_name", "dpe-table", 0, {0}, 0, 0},
    {"/", "schema_version", "9.0.0", 0, {0}, 0, 0},
    {"/model", "model_type", "llama", 0, {0}, 0, 0},
    {"/model", "fingerprint", "00ff", 0, {0}, 0, 0},
    {"/model", "layers", NULL, 0, {0}, 1, 0},
    {"/model", "heads", NULL, 0, {0}, 2, 0},
    {"/model", "kv_heads", NULL, 0, {0}, 1, 0},
    {"/model", "head_dim", NULL, 0, {0}, 8, 0},
    {"/table", "near_rule", "distance < local_window", 0, {0}, 0, 0},
    {"/table", "rounding", "separable", 0, {0}, 0, 0},
    {"/table", "angle_precision", "f32", 0, {0}, 0, 0},
    {"/table", "pair_layout", "half-split", 0, {0}, 0, 0},
    {NULL, "/table/trained_length", NULL, 0, {0}, 64, 0},
    {NULL, "/table/evaluated_length", NULL, 0, {0}, 512, 0},
    {NULL, "/table/local_window", NULL, 0, {0}, 8, 0},
    {NULL, "/table/attention_scaling", NULL, 0, {0}, 1, 0},
    {NULL, "/table/top_k", NULL, 0, {0}, 4, 0},
    {NULL, "/table/scale_factor", NULL, 1, {2}, 4, 1},
    {NULL, "/table/effective_length", NULL, 1, {2}, 64, 64},
    {NULL, "/table/group_edge", NULL, 1, {3}, 0, 2},
    {NULL, "/table/inv_freq", NULL, 1, {4}, 0.5, 0.25},
    {NULL, "/table/mask", NULL, 3, {1, 2, 4}, 1, 0},
};

enum { MOST = 512 };

static void write_text(hid_t place, const struct object *object, const char *text, bool fixed)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, fixed ? strlen(text) + 1 : H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t id =
        object->parent != NULL
            ? H5Acreate2(place, object->name, type, space, H5P_DEFAULT, H5P_DEFAULT)
            : H5Dcreate2(place, object->name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    const void *value = fixed ? (const void *)text : (const void *)&text;
    if (object->parent != NULL) {
        H5Awrite(id, type, value);
        H5Aclose(id);
    } else {
        H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value);
        H5Dclose(id);
    }
    H5Sclose(space);
    H5Tclose(type);
}

static void write_numbers(hid_t place, const struct object *object, struct input *input, bool odd)
{
    static const hid_t *const types[] = {&H5T_NATIVE_INT64_g, &H5T_NATIVE_DOUBLE_g,
                                         &H5T_NATIVE_UINT8_g, &H5T_NATIVE_INT32_g,
                                         &H5T_NATIVE_FLOAT_g, &H5T_NATIVE_UINT64_g};
    static const double values[] = {0, -1, 1e300, -1e300, 1.5, 9007199254740993.0, 65536, 3};
    int rank = odd ? (int)(take(input) % 4) : object->rank;
    hsize_t dims[4] = {0};
    hsize_t count = 1;
    for (int i = 0; i < rank; i++) {
        dims[i] = odd ? take(input) % 8 : object->dims[i];
        count *= dims[i];
    }
    double data[MOST];
    for (hsize_t i = 0; i < count; i++) {
        unsigned choice = odd ? take(input) : 255;
        data[i] = object->first + object->step * (double)i;
        if (choice < 8) {
            data[i] = values[choice];
        } else if (choice == 8) {
            data[i] = (double)__builtin_nan("");
        }
    }
    hid_t type = *types[odd ? take(input) % 6 : (object->step < 1 && object->step > 0)];
    hid_t space = rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(rank, dims, NULL);
    if (object->parent != NULL) {
        hid_t id = H5Acreate2(place, object->name, type, space, H5P_DEFAULT, H5P_DEFAULT);
        H5Awrite(id, H5T_NATIVE_DOUBLE, data);
        H5Aclose(id);
    } else {
        hid_t id =
            H5Dcreate2(place, object->name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        H5Dwrite(id, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, data);
        H5Dclose(id);
    }
    H5Sclose(space);
}

/* Let a dataset lie elsewhere: behind a link, in a file of raw bytes, or composed of another's. */
static void point_away(hid_t file, const char *name, unsigned way)
{
    const char *other = fuzz_file("other", "0123456789abcdef0123456789abcdef", 32);
    hid_t set = H5Dopen2(file, name, H5P_DEFAULT);
    hid_t type = H5Dget_type(set);
    hid_t space = H5Dget_space(set);
    hid_t created = H5Pcreate(H5P_DATASET_CREATE);
    H5Dclose(set);
    if (way == 0) {
        H5Lmove(file, name, file, "/elsewhere", H5P_DEFAULT, H5P_DEFAULT);
        H5Lcreate_soft("/elsewhere", file, name, H5P_DEFAULT, H5P_DEFAULT);
    } else {
        H5Ldelete(file, name, H5P_DEFAULT);
    }
    if (way == 1) {
        H5Lcreate_external(other, name, file, name, H5P_DEFAULT, H5P_DEFAULT);
    } else if (way == 2) {
        H5Pset_external(created, other, 0, H5F_UNLIMITED);
    } else if (way == 3) {
        H5Pset_virtual(created, space, other, name, space);
    }
    if (way >= 2) {
        H5Dclose(H5Dcreate2(file, name, type, space, H5P_DEFAULT, created, H5P_DEFAULT));
    }
    H5Pclose(created);
    H5Sclose(space);
    H5Tclose(type);
}

/* What deflate makes of a megabyte of zeros, as HDF5 stores it. */
static const struct packed {
    size_t n;
    unsigned char bytes[4096];
} * packed_zeros(hid_t file)
{
    static struct packed packed;
    const hsize_t n = 1 << 20;
    const hsize_t first = 0;
    hsize_t size = 0;
    unsigned mask = 0;
    hid_t created = packed.n == 0 ? H5Pcreate(H5P_DATASET_CREATE) : (hid_t)-1;
    if (created < 0) {
        return &packed;
    }
    static const unsigned char zeros[1 << 20] = {0};
    hid_t space = H5Screate_simple(1, &n, NULL);
    H5Pset_chunk(created, 1, &n);
    H5Pset_deflate(created, 9);
    hid_t set =
        H5Dcreate2(file, "/packed", H5T_NATIVE_UINT8, space, H5P_DEFAULT, created, H5P_DEFAULT);
    H5Dwrite(set, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros);
    H5Dflush(set);
    fuzz_expect(H5Dget_chunk_storage_size(set, &first, &size) >= 0 && size <= sizeof packed.bytes &&
                    H5Dread_chunk(set, H5P_DEFAULT, &first, &mask, packed.bytes) >= 0,
                "a megabyte of zeros can be packed");
    packed.n = size;
    H5Dclose(set);
    H5Sclose(space);
    H5Pclose(created);
    H5Ldelete(file, "/packed", H5P_DEFAULT);
    return &packed;
}

/* A dataset in its place that is small in the file: of any extent, in chunks of any extent, through
 * filters, of which some chunks are stored that unpack to more than they may. */
static void put_bomb(hid_t file, const char *name, struct input *input)
{
    int rank = 1 + (int)(take(input) % 3);
    hsize_t dims[3], chunk[3], at[3] = {0};
    for (int i = 0; i < rank; i++) {
        dims[i] = (hsize_t)1 << take(input) % 25;
        chunk[i] = (hsize_t)1 << take(input) % 25;
        dims[i] -= dims[i] > 1 && take(input) % 4 == 0;
    }
    static const hid_t *const types[] = {&H5T_NATIVE_UINT8_g, &H5T_NATIVE_DOUBLE_g,
                                         &H5T_NATIVE_INT64_g};
    const struct packed *packed = packed_zeros(file);
    hid_t created = H5Pcreate(H5P_DATASET_CREATE);
    hid_t space =
        H5Screate_simple(rank, dims, (hsize_t[]){H5S_UNLIMITED, H5S_UNLIMITED, H5S_UNLIMITED});
    hid_t contiguous = H5Screate_simple(rank, dims, NULL);
    bool chunked = H5Pset_chunk(created, rank, chunk) >= 0 && take(input) % 8 != 0;
    for (unsigned left = take(input) % 3; left > 0; left--) {
        H5Pset_deflate(created, 4);
    }
    H5Ldelete(file, name, H5P_DEFAULT);
    hid_t set = H5Dcreate2(file, name, *types[take(input) % 3], chunked ? space : contiguous,
                           H5P_DEFAULT, chunked ? created : H5P_DEFAULT, H5P_DEFAULT);
    for (unsigned left = chunked && set >= 0 ? take(input) : 0;
         left > 0 && at[rank - 1] < dims[rank - 1]; left--) {
        H5Dwrite_chunk(set, H5P_DEFAULT, 0, at, packed->n, packed->bytes);
        at[rank - 1] += chunk[rank - 1];
    }
    if (set >= 0) {
        H5Dclose(set);
    }
    H5Sclose(contiguous);
    H5Sclose(space);
    H5Pclose(created);
}

/* A dataset in its place that is stored in chunks as a writer pleases: of a length, after filters
 * and under a filter mask of the input's choice. Whether bytes are missing. */
static bool put_chunks(hid_t file, const char *name, struct input *input)
{
    enum { MOST_CHUNK = 600, MOST_STORED = 2048 };
    static const unsigned char zeros[MOST_STORED] = {0};
    hid_t set = H5Dopen2(file, name, H5P_DEFAULT);
    hid_t type = H5Dget_type(set);
    hid_t space = H5Dget_space(set);
    hsize_t dims[4] = {0}, at[4] = {0};
    int rank = H5Sget_simple_extent_dims(space, dims, NULL);
    size_t whole = H5Tget_size(type);
    for (int i = 0; i < rank; i++) {
        whole *= dims[i];
    }
    H5Dclose(set);
    unsigned filters = take(input);
    unsigned mask = take(input) % 4;
    size_t n = take(input) * (take(input) % 4 + 1U);
    bool deflated = filters % 2 == 1;
    bool is_short = false;
    if (rank > 0 && whole > 0 && whole <= MOST_CHUNK) {
        hid_t created = H5Pcreate(H5P_DATASET_CREATE);
        unsigned char packed[MOST_STORED];
        uLongf stored = sizeof packed;
        H5Pset_chunk(created, rank, dims);
        if (deflated) {
            H5Pset_deflate(created, 6);
        }
        if (filters / 2 % 2 == 1) {
            H5Pset_shuffle(created);
        }
        if (filters / 4 % 2 == 1) {
            H5Pset_fill_time(created, H5D_FILL_TIME_NEVER);
        }
        n = n == 255 ? whole : n;
        fuzz_expect(compress(packed, &stored, zeros, n) == Z_OK, "zeros can be packed");
        H5Ldelete(file, name, H5P_DEFAULT);
        set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, created, H5P_DEFAULT);
        bool packs = deflated && mask % 2 == 0;
        size_t length = packs ? stored : n;
        if (length > 0) {
            H5Dwrite_chunk(set, H5P_DEFAULT, mask, at, length, packs ? packed : zeros);
        }
        is_short = n != whole && !(n == 0 && !packs && filters / 4 % 2 == 0);
        H5Dclose(set);
        H5Pclose(created);
    }
    H5Sclose(space);
    H5Tclose(type);
    return is_short;
}

static unsigned long n_away, n_bombs, n_short;

static void tell(void)
{
    printf("%lu tables that point elsewhere, %lu with bombs, %lu with chunks that lack bytes\n",
           n_away, n_bombs, n_short);
}

/* Whether the object must be refused: it lies elsewhere, or lacks bytes. */
static bool write_object(hid_t file, const struct object *object, struct input *input)
{
    unsigned how = take(input);
    bool away = how == 6 && object->parent == NULL;
    if (how == 1) {
        return false;
    }
    hid_t place = H5Oopen(file, object->parent != NULL ? object->parent : "/", H5P_DEFAULT);
    char text[64] = "";
    if (how == 2) {
        for (size_t i = 0; i + 1 < sizeof text && (text[i] = (char)take(input)) != '\0';) {
            i++;
        }
        write_text(place, object, text, false);
    } else if (object->text != NULL && how != 3) {
        write_text(place, object, object->text, how == 4);
    } else {
        write_numbers(place, object, input, how == 3 || how == 5);
    }
    H5Oclose(place);
    if (away) {
        point_away(file, object->name, take(input) % 4);
        n_away++;
    } else if (how == 7 && object->parent == NULL) {
        put_bomb(file, object->name, input);
        n_bombs++;
    } else if (how == 8 && object->parent == NULL && put_chunks(file, object->name, input)) {
        away = true;
        n_short++;
    }
    return away;
}

/* As a program that writes tables has to: without it the readers refuse the file. */
static bool add_trailer(const char *path)
{
    static char bytes[1 << 22];
    unsigned char trailer[DPE_TRAILER];
    FILE *file = fopen(path, "r+b");
    size_t n = file != NULL ? fread(bytes, 1, sizeof bytes, file) : 0;
    dpe_trailer_make(trailer, bytes, n);
    bool whole = file != NULL && n < sizeof bytes && fseek(file, 0, SEEK_END) == 0 &&
                 fwrite(trailer, 1, sizeof trailer, file) == sizeof trailer;
    return file != NULL && fclose(file) == 0 && whole;
}

/* What this process has taken at most: 256 MiB may be read of a file that stores nothing, and
 * converted numbers take eight times their bytes. */
static void expect_little_memory(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(DPE_FUZZ)
    struct rusage used;
    fuzz_expect(getrusage(RUSAGE_SELF, &used) == 0 && used.ru_maxrss < 3 << 20,
                "a table of some kilobytes is read within 3 GiB");
#endif
}

/* How many inputs passed is not counted, but that the plain program gives a good table is. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    static bool began;
    if (!began) {
        atexit(tell);
        began = true;
    }
    struct input input = {bytes, n};
    const char *path = fuzz_file("table.h5", "", 0);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    fuzz_expect(file >= 0, "an HDF5 file can be made");
    H5Gclose(H5Gcreate2(file, "/model", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Gclose(H5Gcreate2(file, "/table", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    bool away = false;
    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
        away = write_object(file, &objects[i], &input) || away;
    }
    fuzz_expect(H5Fclose(file) >= 0, "the file can be closed");
    fuzz_expect(add_trailer(path), "the trailer can be added");

    struct dpe_table *table = NULL;
    char why[DPE_TABLE_MESSAGE] = "";
    int got = dpe_table_open(path, &table, why);
    fuzz_expect(n > 0 || got == DPE_TABLE_OK, why);
    fuzz_expect(!away || got != DPE_TABLE_OK, "what lies elsewhere, or lacks bytes, is refused");
    if (got == DPE_TABLE_OK) {
        fuzz_expect(dpe_table_check(dpe_table_values(table), why) == DPE_TABLE_OK, why);
        dpe_table_close(table);
    } else {
        fuzz_expect(why[0] != '\0', "an error has a text");
    }
    struct dpe_h5 *reader = NULL;
    struct dpe_error err = {0};
    if (dpe_h5_open(path, &reader, &err) == DPE_OK) {
        for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
            if (objects[i].parent == NULL) {
                void *data = NULL;
                int rank = 0;
                int64_t dims[8] = {0};
                if (dpe_h5_get(reader, objects[i].name, DPE_COL_F64, &data, &rank, dims, &err) ==
                    DPE_OK) {
                    free(data);
                }
            }
        }
        dpe_h5_close(reader);
    }
    expect_little_memory();
    return 0;
}
