/* Safetensors files of strangers: each wrong one is refused by name, each odd but right one is
 * read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <time.h>

#include "engine/model/config/layer_weights.h"
#include "tests/lib/model_files.h"

static struct model_folder base_folder(void)
{
    struct model_folder folder = folder_make();
    write_config(&folder, NULL, 0);
    return folder;
}

static void shorter_than_its_length_field(void **state)
{
    (void)state;
    struct model_folder folder = base_folder();
    for (size_t n = 0; n < 8; n++) {
        write_bytes(folder_file(&folder, "model.safetensors"), "\0\0\0\0\0\0\0", n);
        expect_open(&folder, "short", DPE_BAD_DATA, "model.safetensors", "at least 8 bytes");
    }
    folder_remove(&folder);
}

static void impossible_header_lengths(void **state)
{
    (void)state;
    struct model_folder folder = base_folder();
    const uint64_t lengths[] = {(uint64_t)1 << 63, UINT64_MAX, 100000001, 3};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        unsigned char bytes[10] = {0};
        for (int b = 0; b < 8; b++) {
            bytes[b] = (unsigned char)(lengths[i] >> (8 * b));
        }
        write_bytes(folder_file(&folder, "model.safetensors"), bytes, sizeof bytes);
        expect_open(&folder, "length", DPE_BAD_DATA, "model.safetensors", "header of");
    }
    /* Above the limit, in a file that is long enough (a hole). */
    write_bytes(folder_file(&folder, "model.safetensors"), "\x01\xe1\xf5\x05\0\0\0\0", 8);
    assert_int_equal(truncate(folder_file(&folder, "model.safetensors"), 100000100), 0);
    expect_open(&folder, "limit", DPE_BAD_DATA, "model.safetensors", "at most 100000000");
    folder_remove(&folder);
}

#define ENTRY(dtype, shape, offsets)                                                               \
    "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"
#define TEXT(literal) literal, sizeof(literal) - 1

static const struct {
    const char *header;
    size_t n, data;
    const char *says;
} refused_headers[] = {
    {TEXT(""), 0, "expected JSON"},
    {TEXT("[]"), 0, "expected a JSON object"},
    {TEXT("not json"), 0, "expected JSON"},
    {TEXT("{\"a\":\xff}"), 0, "UTF-8"},
    {TEXT("{\"a\":1}"), 0, "tensor a: expected dtype"},
    {TEXT("{} x"), 0, "end of file expected"},
    {TEXT("{}{}"), 0, "end of file expected"},
    {TEXT("{},"), 0, "end of file expected"},
    {TEXT("{}\0"), 0, "end of file expected"},
    {TEXT("{\"a\":" ENTRY("F32", "1", "0,4") ",}"), 4, "expected JSON"},
    {TEXT("{\"a\":" ENTRY("F32", "1", "0,4")), 4, "expected JSON"},
    {TEXT("{\"a\":" ENTRY("F32", "1,", "0,4") "}"), 4, "expected JSON"},
    {TEXT("{\"a\":" ENTRY("F32", "01", "0,4") "}"), 4, "expected JSON"},
    {TEXT("{\"a\":" ENTRY("F32", "1.0", "0,4") "}"), 4, "integer"},
    {TEXT("{\"a\":" ENTRY("F32", "1e0", "0,4") "}"), 4, "integer"},
    {TEXT("{\"a\":" ENTRY("F32", "-1", "0,4") "}"), 4, "integer"},
    {TEXT("{\"a\":" ENTRY("F32", "\"1\"", "0,4") "}"), 4, "integer"},
    {TEXT("{\"a\":" ENTRY("F32", "18446744073709551616", "0,4") "}"), 4, "integers from 0"},
    {TEXT("{\"a\\x\":" ENTRY("F32", "1", "0,4") "}"), 4, "invalid escape"},
    {TEXT("{\"a\\ud800\":" ENTRY("F32", "1", "0,4") "}"), 4, "invalid Unicode"},
    {TEXT("{\"a\nb\":" ENTRY("F32", "1", "0,4") "}"), 4, "unexpected newline"},
    {TEXT("{\"a\\u0000b\":" ENTRY("F32", "1", "0,4") "}"), 4, "NUL"},
    {TEXT("{\"a\":" ENTRY("F32\\u0000", "1", "0,4") "}"), 4, "NUL"},
    {TEXT("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}"), 4, "tensor a: expected dtype"},
    {TEXT("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}"), 4, "tensor a: expected dtype"},
    {TEXT("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}"), 4, "tensor a: expected dtype"},
    {TEXT("{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}"), 4,
     "tensor a: expected dtype"},
    {TEXT("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"), 4,
     "duplicate object key"},
    {TEXT("{\"a\":" ENTRY("F32", "1", "0") "}"), 4, "tensor a: expected data_offsets"},
    {TEXT("{\"a\":" ENTRY("F32", "1", "0,4,8") "}"), 4, "tensor a: expected data_offsets"},
    {TEXT("{\"a\":" ENTRY("F32", "1", "4,0") "}"), 4, "tensor a: expected data_offsets"},
    {TEXT("{\"a\":" ENTRY("F32", "1", "4,8") "}"), 8, "tensor a: begins at byte 4"},
    {TEXT("{\"a\":" ENTRY("F32", "1", "0,4") ",\"b\":" ENTRY("F32", "1", "2,6") "}"), 6,
     "tensor b: begins at byte 2 of the data, expected 4: it overlaps"},
    {TEXT("{\"a\":" ENTRY("F32", "1", "0,4") ",\"b\":" ENTRY("F32", "1", "0,4") "}"), 4,
     "it overlaps"},
    {TEXT("{\"a\":" ENTRY("F32", "1", "0,4") ",\"b\":" ENTRY("F32", "1", "8,12") "}"), 12,
     "tensor b: begins at byte 8 of the data, expected 4: bytes before it belong"},
    {TEXT("{\"a\":" ENTRY("F32", "2", "0,4") "}"), 4, "tensor a: expected 8 bytes"},
    {TEXT("{\"a\":" ENTRY("F16", "1", "0,4") "}"), 4, "tensor a: expected 2 bytes"},
    {TEXT("{\"a\":" ENTRY("I64", "1", "0,4") "}"), 4, "tensor a: expected 8 bytes"},
    {TEXT("{\"a\":" ENTRY("F4", "3", "0,2") "}"), 2, "tensor a: expected"},
    {TEXT("{\"a\":" ENTRY("F32", "4294967296,4294967296", "0,4") "}"), 4, "overflows"},
    {TEXT("{\"a\":" ENTRY("F32", "4611686018427387904", "0,0") "}"), 0, "overflows"},
    {TEXT("{\"a\":" ENTRY("QQ", "9223372036854775807,3", "0,0") "}"), 0, "overflows"},
    {TEXT("{\"a\":" ENTRY("F32", "1,1,1,1,1,1,1,1,1", "0,4") "}"), 4, "at most 8"},
    {TEXT("{\"a\":" ENTRY("F32", "1", "0,4") "}"), 3, "tensor a: ends at byte 4"},
    {TEXT("{\"a\":" ENTRY("F32", "1", "0,4") "}"), 5, "to end with its tensors"},
    {TEXT("{}"), 1, "to end with its tensors"},
    {TEXT("{\"a\":" ENTRY("F32", "1", "0,4") ",\"a\":" ENTRY("F32", "1", "4,8") "}"), 8,
     "duplicate object key"},
    {TEXT("{\"__metadata__\":[]}"), 0, "__metadata__: expected an object of strings"},
    {TEXT("{\"__metadata__\":{\"a\":1}}"), 0, "__metadata__: expected an object of strings"},
};

static void wrong_headers(void **state)
{
    (void)state;
    struct model_folder folder = base_folder();
    for (size_t i = 0; i < sizeof refused_headers / sizeof refused_headers[0]; i++) {
        write_raw(folder_file(&folder, "model.safetensors"), refused_headers[i].header,
                  refused_headers[i].n, refused_headers[i].data);
        expect_open(&folder, refused_headers[i].header, DPE_BAD_DATA,
                    "model.safetensors: ", refused_headers[i].says);
    }
    folder_remove(&folder);
}

/* The base model and, before its tensors, the given ones. */
static void write_with(const struct model_folder *folder, const char *name, const char *dtype,
                       const char *shape, size_t bytes)
{
    struct container container = {0};
    container_add(&container, name, dtype, shape, bytes);
    container_add_base(&container, 0, N_BASE_TENSORS, NULL);
    container_write(&container, folder_file(folder, "model.safetensors"), 0);
}

static void odd_tensors_that_are_not_needed(void **state)
{
    (void)state;
    struct model_folder folder = base_folder();
    const struct {
        const char *name, *dtype, *shape;
        size_t bytes;
    } rows[] = {
        {"nothing", "F32", "0", 0},
        {"nothing at all", "F32", "3,0,7", 0},
        {"scalar", "F32", "", 4},
        {"future", "F3_E1M1_X", "77", 16},
        {"counts", "I64", "2", 16},
        {"half bytes", "F4", "8", 4},
        {"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", "1", 4},
        {"caf\xc3\xa9 \\u00e9 \\ud83d\\ude00 \\\"\\\\\\/\\n", "U8", "4", 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_with(&folder, rows[i].name, rows[i].dtype, rows[i].shape, rows[i].bytes);
        expect_open(&folder, rows[i].name, DPE_OK, NULL, NULL);
    }
    folder_remove(&folder);
}

static void members_and_metadata_are_passed_over(void **state)
{
    (void)state;
    struct model_folder folder = base_folder();
    struct container container = {0};
    const char *start = "{\"__metadata__\":{\"format\":\"pt\",\"\":\"\\u20ac\"},"
                        "\"x\":{\"note\":[{\"a\":[1,-2.5e+3,true,false,null,\"]\"]},{},[]],"
                        "\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},"
                        "\"pad\":{\"dtype\":\"U8\",\"shape\":[7],\"data_offsets\":[1,8]}";
    dpe_text_append(&container.header, start, strlen(start), NULL);
    container.data = 8;
    container_add_base(&container, 0, N_BASE_TENSORS, NULL);
    container_write(&container, folder_file(&folder, "model.safetensors"), 0);
    expect_open(&folder, "metadata", DPE_OK, NULL, NULL);
    folder_remove(&folder);
}

static void nesting_is_limited(void **state)
{
    (void)state;
    struct model_folder folder = base_folder();
    enum { DEPTH = 1000000 };
    static const char start[] = "{\"x\":{\"note\":";
    char *header = malloc(DEPTH + 64);
    assert_non_null(header);
    memcpy(header, start, sizeof start);
    memset(header + sizeof start - 1, '[', DEPTH);
    write_raw(folder_file(&folder, "model.safetensors"), header, sizeof start - 1 + DEPTH, 0);
    free(header);
    expect_open(&folder, "depth", DPE_BAD_DATA, "model.safetensors", "depth");
    folder_remove(&folder);
}

static void a_needed_tensor_of_another_kind(void **state)
{
    (void)state;
    struct model_folder folder = base_folder();
    const struct {
        const char *dtype, *shape;
        size_t bytes;
        const char *says;
    } rows[] = {
        {"F64", "4", 32, "expected dtype F32, F16 or BF16, found F64"},
        {"F3_E1M1_X", "4", 7, "expected dtype F32, F16 or BF16, found F3_E1M1_X"},
        {"F32", "5", 20, "expected shape [4] by config.json, found [5]"},
        {"F32", "1,4", 16, "expected shape [4] by config.json, found [1, 4]"},
        {"F32", "", 4, "expected shape [4] by config.json, found []"},
        {"F32", "0", 0, "expected shape [4] by config.json, found [0]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct container container = {0};
        container_add(&container, "model.norm.weight", rows[i].dtype, rows[i].shape, rows[i].bytes);
        container_add_base(&container, 0, N_BASE_TENSORS, "model.norm.weight");
        container_write(&container, folder_file(&folder, "model.safetensors"), 0);
        expect_open(&folder, rows[i].says, DPE_BAD_DATA,
                    "model.safetensors: tensor model.norm.weight: ", rows[i].says);
    }
    folder_remove(&folder);
}

/* Data that begins at an odd byte of the file is copied to where it is aligned. */
static void misaligned_data_is_copied(void **state)
{
    (void)state;
    struct model_folder folder = base_folder();
    for (size_t pad = 0; pad < 8; pad++) {
        struct container container = {0};
        struct dpe_error err = {0};
        struct dpe_model *model = NULL;
        container_add_base(&container, 0, N_BASE_TENSORS, NULL);
        container_write(&container, folder_file(&folder, "model.safetensors"), pad);
        if (dpe_model_open(folder.path, NULL, &model, &err) != DPE_OK) {
            fail_msg("%s", err.text);
        }
        const struct dpe_tensor *norm =
            &dpe_model_weights(model)->layers[0].weight[DPE_WEIGHT_ATTENTION_NORM];
        assert_int_equal((uintptr_t)norm->data % 4, 0);
        /* The embedding's 80 bytes come before: byte i of the data is i mod 60. */
        const unsigned char want[4] = {20, 21, 22, 23};
        assert_memory_equal(norm->data, want, sizeof want);
        dpe_model_close(model);
    }
    folder_remove(&folder);
}

/* Weights that are not numbers are found when they are used, with layer and position. */
static void nan_weights_do_not_fail_the_open(void **state)
{
    (void)state;
    struct model_folder folder = base_folder();
    write_base_model(&folder);
    const char *path = folder_file(&folder, "model.safetensors");
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    int fd = open(path, O_WRONLY);
    const float nan_value = NAN;
    assert_int_equal(pwrite(fd, &nan_value, 4, info.st_size - 4), 4);
    close(fd);
    expect_open(&folder, "nan", DPE_OK, NULL, NULL);
    folder_remove(&folder);
}

/* Nothing takes time that grows with the square of the number of tensors: that would be hours. */
static void a_million_tensors(void **state)
{
    (void)state;
    struct model_folder folder = base_folder();
    struct container container = {0};
    container_add_base(&container, 0, N_BASE_TENSORS, NULL);
    for (int i = 0; i < 1000000; i++) {
        char name[32];
        snprintf(name, sizeof name, "t%d", i);
        container_add(&container, name, "F32", "1", 4);
    }
    container_write(&container, folder_file(&folder, "model.safetensors"), 0);
    clock_t start = clock();
    expect_open(&folder, "million", DPE_OK, NULL, NULL);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    print_message("1,000,012 tensors opened in %.2f s of CPU time\n", seconds);
    assert_true(seconds < 30.0);
    folder_remove(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shorter_than_its_length_field),
        cmocka_unit_test(impossible_header_lengths),
        cmocka_unit_test(wrong_headers),
        cmocka_unit_test(odd_tensors_that_are_not_needed),
        cmocka_unit_test(members_and_metadata_are_passed_over),
        cmocka_unit_test(nesting_is_limited),
        cmocka_unit_test(a_needed_tensor_of_another_kind),
        cmocka_unit_test(misaligned_data_is_copied),
        cmocka_unit_test(nan_weights_do_not_fail_the_open),
        cmocka_unit_test(a_million_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
