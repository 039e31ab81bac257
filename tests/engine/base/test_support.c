/* The foundations: near.h itself, failures in words, files, hashes, random numbers, UTF-8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/base.h"
#include "tests/lib/near.h"

static void near_fails_on_nan_and_names_the_worst(void **state)
{
    (void)state;
    const double want[3] = {1.0, 2.0, 3.0};
    const float good[3] = {1.0f, 2.0f, 3.0f};
    const float off[3] = {1.0f, 2.5f, 3.0f};
    const float nan_in[3] = {1.0f, 2.0f, NAN};
    assert_int_equal(near_f32("good", good, want, 3, 0.0), 0);
    assert_int_equal(near_f32("off (expected message)", off, want, 3, 0.1), 1);
    assert_int_equal(near_worst_f32(off, want, 3).index, 1);
    assert_int_equal(near_f32("nan (expected message)", nan_in, want, 3, 1e30), 1);
    assert_true(isinf(near_error(INFINITY, -INFINITY)));
    assert_true(near_error(INFINITY, INFINITY) == 0.0);
}

static void guards_notice_one_word(void **state)
{
    (void)state;
    float memory[NEAR_GUARD];
    near_guard_fill(memory, NEAR_GUARD);
    assert_int_equal(near_guard_broken(memory, NEAR_GUARD), 0);
    memory[7] = 0.0f;
    assert_int_equal(near_guard_broken(memory, NEAR_GUARD), 1);
}

static void failures_carry_words(void **state)
{
    (void)state;
    struct dpe_error err = {0};
    assert_int_equal(dpe_fail(&err, DPE_BAD_DATA, "tensor %s", "x"), DPE_BAD_DATA);
    assert_string_equal(err.text, "tensor x");
    assert_int_equal(dpe_fail_prefix(&err, "file %d", 7), DPE_BAD_DATA);
    assert_string_equal(err.text, "file 7: tensor x");
    /* What names the file already does not name it twice; another name that begins alike is one. */
    assert_int_equal(dpe_fail_prefix(&err, "file %d", 7), DPE_BAD_DATA);
    assert_string_equal(err.text, "file 7: tensor x");
    assert_int_equal(dpe_fail_prefix(&err, "file"), DPE_BAD_DATA);
    assert_string_equal(err.text, "file: file 7: tensor x");
    assert_int_equal(dpe_fail(NULL, DPE_IO, "nowhere"), DPE_IO);
    assert_int_equal(dpe_exit_code(DPE_NONFINITE), 70);
    assert_int_equal(dpe_exit_code(DPE_MISMATCH), 78);
}

static void a_long_path_leaves_the_reason(void **state)
{
    (void)state;
    /* Two bytes a character, at an odd offset: the cut must not fall into one. */
    char path[4096];
    for (size_t i = 0; i + 2 < sizeof path; i += 2) {
        memcpy(path + i, "\xc3\xa4", 3);
    }
    struct dpe_error err;
    dpe_fail(&err, DPE_NO_INPUT, "/x%s: cannot be opened: no such file", path);
    assert_true(strncmp(err.text, "/x\xc3\xa4", 4) == 0);
    assert_non_null(strstr(err.text, "[...]"));
    assert_non_null(strstr(err.text, ": cannot be opened: no such file"));
    assert_int_equal(dpe_utf8_check(err.text, strlen(err.text)), strlen(err.text));
    dpe_fail(&err, DPE_BAD_DATA, "expected text");
    dpe_fail_prefix(&err, "%s/a.txt", path);
    assert_non_null(strstr(err.text, "/a.txt: expected text"));
    char small[32];
    dpe_shorten(small, sizeof small, "exactly thirty-one bytes stay !");
    assert_string_equal(small, "exactly thirty-one bytes stay !");
    dpe_shorten(small, sizeof small, "one byte more than thirty-one !!");
    assert_int_equal(strlen(small), 31);
}

static void numbers_are_decimal(void **state)
{
    (void)state;
    static const char *const no_counts[] = {"",
                                            "0x10",
                                            "1e2",
                                            " 1",
                                            "+1",
                                            "1 ",
                                            "1.0",
                                            "-",
                                            "1_0",
                                            "ten",
                                            "9223372036854775808",
                                            "-9223372036854775809"};
    static const char *const no_reals[] = {"",   "0x1p7", "0x10", " 1",  "+1", "inf",   "nan",
                                           "1e", "1e+",   ".",    "1,5", "-",  "1e999", "1.5.2"};
    int64_t count = 7;
    double real = 7.0;
    for (size_t i = 0; i < sizeof no_counts / sizeof no_counts[0]; i++) {
        assert_false(dpe_parse_int(no_counts[i], INT64_MIN, INT64_MAX, &count));
        assert_int_equal(count, 7);
    }
    for (size_t i = 0; i < sizeof no_reals / sizeof no_reals[0]; i++) {
        assert_false(dpe_parse_real(no_reals[i], -1e300, 1e300, &real));
        assert_true(real == 7.0);
    }
    assert_true(dpe_parse_int("-9223372036854775808", INT64_MIN, 0, &count) && count == INT64_MIN);
    assert_true(dpe_parse_int("007", 0, 7, &count) && count == 7);
    assert_false(dpe_parse_int("8", 0, 7, &count));
    assert_true(dpe_parse_real("-2.5e-1", -1.0, 1.0, &real) && real == -0.25);
    assert_true(dpe_parse_real(".5", 0.0, 1.0, &real) && real == 0.5);
    assert_false(dpe_parse_real("2", 0.0, 1.0, &real));
    const char *list = "12,0x1";
    assert_true(dpe_scan_int(&list, 0, 100, &count) && count == 12 && *list == ',');
}

static void lengths_have_units(void **state)
{
    (void)state;
    int64_t n = 0;
    assert_true(dpe_parse_length("16384", 1, INT64_MAX, &n) && n == 16384);
    assert_true(dpe_parse_length("16k", 1, INT64_MAX, &n) && n == 16384);
    assert_true(dpe_parse_length("128K", 1, INT64_MAX, &n) && n == 131072);
    assert_true(dpe_parse_length("1M", 1, INT64_MAX, &n) && n == 1048576);
    static const char *const wrong[] = {"k", "1.5k", "16kk", "16KiB", " 1k", "9223372036854775807k",
                                        ""};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_false(dpe_parse_length(wrong[i], 1, INT64_MAX, &n));
    }
    assert_false(dpe_parse_length("2k", 1, 2047, &n));
    const char *list = "1k,2k";
    assert_true(dpe_scan_length(&list, 1, 4096, &n) && n == 1024 && *list == ',');
}

static void suggest(const char *word, const char *list, const char *expected)
{
    char text[96];
    assert_string_equal(dpe_suggest(word, list, text), expected);
}

static void near_names_are_suggested(void **state)
{
    (void)state;
    const char *methods = "rope, yarn, self-extend, dpe";
    suggest("self-extent", methods, "; did you mean 'self-extend'?");
    suggest("self", methods, "; did you mean 'self-extend'?");
    suggest("yran", methods, "; did you mean 'yarn'?");
    suggest("frobnicate", methods, "");
    suggest("seed", "need, speed-up, node", "");
    suggest("ctx-size", "context, samples, size", "");
    suggest("x", methods, "");
    suggest("", methods, "");
    suggest("widow=3", "window=min(1024;L0/8) scales=2L/L0", "; did you mean 'window'?");
}

static void alloc_refuses_overflow(void **state)
{
    (void)state;
    assert_null(dpe_alloc(SIZE_MAX / 2, 3));
    void *empty = dpe_alloc(0, 8);
    assert_non_null(empty);
    free(empty);
    unsigned char *zeros = dpe_alloc_zero(100, 1);
    assert_int_equal((uintptr_t)zeros % 64, 0);
    assert_int_equal(zeros[99], 0);
    free(zeros);
}

static void sha256_of_abc(void **state)
{
    (void)state;
    struct dpe_sha256 *hash = dpe_sha256_new();
    char hex[65];
    dpe_sha256_add(hash, "a", 1);
    dpe_sha256_add(hash, "bc", 2);
    assert_int_equal(dpe_sha256_finish(hash, hex, NULL), DPE_OK);
    /* FIPS 180-2, appendix B.1. */
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void rng_is_fixed_and_fair(void **state)
{
    (void)state;
    struct dpe_rng a;
    struct dpe_rng b;
    dpe_rng_seed(&a, 1, 2);
    dpe_rng_seed(&b, 1, 3);
    assert_int_not_equal(dpe_rng_u32(&a), dpe_rng_u32(&b));
    int counts[7] = {0};
    for (int i = 0; i < 70000; i++) {
        counts[dpe_rng_below(&a, 7)]++;
    }
    for (int i = 0; i < 7; i++) {
        /* 10,000 expected, standard deviation 93: five of them. */
        assert_in_range(counts[i], 9535, 10465);
    }
    double unit = dpe_rng_unit(&a);
    assert_true(unit >= 0.0 && unit < 1.0);
}

static void utf8_check_finds_the_first_bad_byte(void **state)
{
    (void)state;
    const struct {
        const char *bytes;
        size_t n, want;
    } cases[] = {
        {"", 0, 0},
        {"a\0b", 3, 3},
        {"\xc3\xa4", 2, 2},
        {"\xf0\x9f\xa6\x99", 4, 4},
        {"a\x80", 2, 1},
        {"\xc0\x80", 2, 0},
        {"\xe0\x9f\xbf", 3, 0},
        {"ab\xed\xa0\x80", 5, 2},
        {"\xf4\x90\x80\x80", 4, 0},
        {"\xc3", 1, 0},
        {"\xe2\x82", 2, 0},
        {"\xff", 1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(dpe_utf8_check(cases[i].bytes, cases[i].n), cases[i].want);
    }
}

/* An existing file that the process cannot open for a reason of its own is not "missing". */
static void too_many_open_files_are_reported(void **state)
{
    (void)state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    struct dpe_error err = {0};
    char *bytes = NULL;
    size_t n = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    dpe_status status = dpe_read_file("/etc/passwd", 1 << 20, &bytes, &n, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, DPE_IO);
    assert_string_equal(err.text, "/etc/passwd: cannot be opened: Too many open files");
}

static void read_file_refuses_what_is_not_a_file(void **state)
{
    (void)state;
    char folder[] = "/tmp/dpe-support-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char path[128];
    struct dpe_error err = {0};
    char *bytes = NULL;
    size_t n = 0;
    snprintf(path, sizeof path, "%s/fifo", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(dpe_read_file(path, 100, &bytes, &n, &err), DPE_NO_INPUT);
    unlink(path);
    assert_int_equal(dpe_read_file(folder, 100, &bytes, &n, &err), DPE_NO_INPUT);
    snprintf(path, sizeof path, "%s/file", folder);
    assert_int_equal(dpe_read_file(path, 100, &bytes, &n, &err), DPE_NO_INPUT);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(write(fd, "hello", 5), 5);
    close(fd);
    assert_int_equal(dpe_read_file(path, 4, &bytes, &n, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "expected at most 4 bytes, found 5"));
    assert_int_equal(dpe_read_file(path, 5, &bytes, &n, &err), DPE_OK);
    assert_int_equal(n, 5);
    assert_string_equal(bytes, "hello");
    free(bytes);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(dpe_read_file(path, 0, &bytes, &n, &err), DPE_OK);
    assert_int_equal(n, 0);
    assert_string_equal(bytes, "");
    free(bytes);
    unlink(path);
    rmdir(folder);
}

/* The system reports no size of a file that it makes as it is read. */
static void a_file_without_a_size_is_read(void **state)
{
    (void)state;
    struct dpe_error err = {0};
    char *bytes = NULL;
    size_t n = 0;
    if (dpe_read_file("/proc/cpuinfo", 1 << 24, &bytes, &n, &err) == DPE_NO_INPUT) {
        skip();
    }
    assert_true(n > 0 && strlen(bytes) == n && bytes[n - 1] == '\n');
    free(bytes);
    assert_int_equal(dpe_read_file("/proc/cpuinfo", 10, &bytes, &n, &err), DPE_BAD_DATA);
    assert_string_equal(err.text, "/proc/cpuinfo: expected at most 10 bytes, found more");
}

static void lists_grow(void **state)
{
    (void)state;
    struct dpe_tokens tokens = {0};
    for (int32_t i = 0; i < 1000; i++) {
        assert_int_equal(dpe_tokens_append(&tokens, &i, 1, NULL), DPE_OK);
    }
    assert_int_equal(tokens.n, 1000);
    assert_int_equal(tokens.ids[999], 999);
    dpe_tokens_free(&tokens);
    struct dpe_text text = {0};
    assert_int_equal(dpe_text_append(&text, "ab", 2, NULL), DPE_OK);
    assert_int_equal(dpe_text_append(&text, "", 0, NULL), DPE_OK);
    assert_string_equal(text.bytes, "ab");
    char long_piece[5000];
    memset(long_piece, 'x', sizeof long_piece - 1);
    long_piece[sizeof long_piece - 1] = '\0';
    dpe_text_put(&text, "%d %s", 7, long_piece);
    dpe_text_put_bytes(&text, "\0y", 2);
    assert_int_equal(dpe_text_done(&text, NULL), DPE_OK);
    assert_int_equal(text.n, 2 + 2 + sizeof long_piece - 1 + 2);
    assert_memory_equal(text.bytes, "ab7 xxx", 7);
    assert_memory_equal(text.bytes + text.n - 2, "\0y", 2);
    /* After a failure nothing more is put. */
    dpe_text_put_bytes(&text, "", SIZE_MAX);
    const size_t n = text.n;
    dpe_text_put(&text, "more");
    assert_int_equal(text.n, n);
    assert_int_equal(dpe_text_done(&text, NULL), DPE_NO_MEMORY);
    dpe_text_free(&text);
    assert_false(text.failed);
}

static void test_named(void **state)
{
    static const struct {
        const char *name;
        int value;
    } rows[] = {{"b", 1}, {"ab", 2}, {"a", 3}, {"ab", 4}};
    static const char *const names[] = {"x", "", "yy"};
    (void)state;
    assert_ptr_equal(DPE_NAMED(rows, "ab"), &rows[1]);
    assert_ptr_equal(DPE_NAMED(rows, "a"), &rows[2]);
    assert_null(DPE_NAMED(rows, ""));
    assert_null(dpe_named(rows, 2, sizeof *rows, "a"));
    assert_ptr_equal(DPE_NAMED(names, "yy"), &names[2]);
    assert_ptr_equal(DPE_NAMED(names, ""), &names[1]);
    assert_null(dpe_named(NULL, 0, sizeof *names, "x"));
}

/* A list that grows by dpe_make_room keeps its elements, also where it was shortened and grows
 * again. */
static void test_make_room(void **state)
{
    int *list = NULL;
    size_t n = 0;
    (void)state;
    for (int round = 0; round < 3; round++) {
        for (; n < 1000 + 700 * (size_t)round; n++) {
            assert_true(dpe_make_room(&list, n, sizeof *list));
            list[n] = (int)n;
        }
        n = round == 1 ? 0 : n / 3;
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(list[i], i);
        }
    }
    int *before = list;
    assert_false(dpe_make_room(&list, (size_t)1 << 62, sizeof *list));
    assert_ptr_equal(list, before);
    free(list);
}

/* Sizes that overflow are the largest there is, whatever is added to them or multiplied with them.
 */
static void sizes_stay_at_the_largest(void **state)
{
    (void)state;
    const uint64_t most = UINT64_MAX;
    const struct {
        uint64_t a, b, product, sum;
    } rows[] = {{3, 5, 15, 8},
                {0, most, 0, most},
                {most, 0, 0, most},
                {most, 1, most, most},
                {UINT64_C(1) << 32, UINT64_C(1) << 32, most, UINT64_C(1) << 33},
                {most / 3, 3, most, most / 3 + 3},
                {most / 3 + 1, 3, most, most / 3 + 4},
                {most - 2, 2, most, most},
                {most - 2, 3, most, most}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_true(dpe_bytes_times(rows[i].a, rows[i].b) == rows[i].product);
        assert_true(dpe_bytes_times(rows[i].b, rows[i].a) == rows[i].product);
        assert_true(dpe_bytes_plus(rows[i].a, rows[i].b) == rows[i].sum);
    }
    assert_true(dpe_bytes_of(2, 3, 5, 7) == 210);
    assert_true(dpe_bytes_of(INT64_MAX, INT64_MAX, 1, 1) == most);
    assert_true(dpe_bytes_of(INT64_MAX, 2, 2, 8) == most);
}

static void test_append(void **state)
{
    char text[8] = "ab";
    (void)state;
    dpe_append(text, sizeof text, "%s%d", "c", 45);
    assert_string_equal(text, "abc45");
    dpe_append(text, sizeof text, "%s", "6789");
    assert_string_equal(text, "abc4567");
    dpe_append(text, sizeof text, "x");
    assert_string_equal(text, "abc4567");
}

static void test_parse_lengths(void **state)
{
    static const struct {
        const char *text, *why;
    } wrong[] = {{"", "expected auto or whole numbers from 2 to 4096, separated by commas"},
                 {"16,", "found '16,'"},
                 {"16,,32", "found '16,,32'"},
                 {"1", "from 2 to 4096"},
                 {"8k", "from 2 to 4096"},
                 {"16,32,16", "16 is given twice"},
                 {"2,3,4,5", "at most 3 lengths"}};
    int64_t lengths[3] = {0};
    struct dpe_error err;
    (void)state;
    assert_int_equal(dpe_parse_lengths("2k,16,512", 2, 4096, "", lengths, 3, &err), 3);
    assert_int_equal(lengths[0], 16);
    assert_int_equal(lengths[1], 512);
    assert_int_equal(lengths[2], 2048);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(dpe_parse_lengths(wrong[i].text, 2, 4096, "auto or ", lengths, 3, &err),
                         0);
        assert_non_null(strstr(err.text, wrong[i].why));
    }
}

static void test_quantiles(void **state)
{
    (void)state;
    double values[5] = {3.0, -1.0, 7.0, 0.5, 3.0};
    dpe_sort(values, 5);
    assert_true(values[0] == -1.0 && values[1] == 0.5 && values[4] == 7.0);
    assert_true(dpe_quantile(values, 5, 0.0) == -1.0 && dpe_quantile(values, 5, 1.0) == 7.0);
    assert_true(dpe_quantile(values, 5, 0.5) == 3.0);
    assert_true(dpe_quantile(values, 5, 0.125) == -0.25);
    assert_true(dpe_quantile(values, 1, 0.9) == -1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(near_fails_on_nan_and_names_the_worst),
        cmocka_unit_test(guards_notice_one_word),
        cmocka_unit_test(failures_carry_words),
        cmocka_unit_test(a_long_path_leaves_the_reason),
        cmocka_unit_test(numbers_are_decimal),
        cmocka_unit_test(lengths_have_units),
        cmocka_unit_test(near_names_are_suggested),
        cmocka_unit_test(alloc_refuses_overflow),
        cmocka_unit_test(sha256_of_abc),
        cmocka_unit_test(rng_is_fixed_and_fair),
        cmocka_unit_test(utf8_check_finds_the_first_bad_byte),
        cmocka_unit_test(too_many_open_files_are_reported),
        cmocka_unit_test(read_file_refuses_what_is_not_a_file),
        cmocka_unit_test(a_file_without_a_size_is_read),
        cmocka_unit_test(lists_grow),
        cmocka_unit_test(test_make_room),
        cmocka_unit_test(test_named),
        cmocka_unit_test(sizes_stay_at_the_largest),
        cmocka_unit_test(test_append),
        cmocka_unit_test(test_parse_lengths),
        cmocka_unit_test(test_quantiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
