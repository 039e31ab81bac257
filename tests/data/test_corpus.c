/* Corpora: layouts, conversion, and every way a metadata.csv or a text can be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/data.h"
#include "tests/lib/test_folder.h"

static int make_corpus(void **state)
{
    return make_folder(state) != 0 || mkdir(in_folder("test"), 0700) != 0 ? -1 : 0;
}

/* Open, expect a failure whose words hold all of `words` (NULL-ended). */
static void refused(const char *path, dpe_status want, const char *const *words)
{
    struct dpe_error err = {0};
    struct dpe_corpus *corpus = NULL;
    dpe_status status = dpe_corpus_open(path, &corpus, &err);
    if (status != want) {
        fail_msg("%s: status %d, expected %d: %s", path, (int)status, (int)want, err.text);
    }
    assert_null(corpus);
    for (; *words != NULL; words++) {
        if (strstr(err.text, *words) == NULL) {
            fail_msg("\"%s\" is not in \"%s\"", *words, err.text);
        }
    }
}

#define REFUSED(path, want, ...) refused(path, want, (const char *const[]){__VA_ARGS__, NULL})

static struct dpe_corpus *opened(const char *path)
{
    struct dpe_error err = {0};
    struct dpe_corpus *corpus = NULL;
    if (dpe_corpus_open(path, &corpus, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    return corpus;
}

static void pg19_as_published(void **state)
{
    (void)state;
    file_with("metadata.csv", "\xef\xbb\xbf"
                              "7,\"A \"\"short\"\" title, quoted\",1901,http://x/7\r\n"
                              "8,In another split,1902,http://x/8\n"
                              "\n"
                              "5,\"Two\nlines\",1903,http://x/5,extra,columns\n");
    file_with("test/7.txt", "\xef\xbb\xbfOne two.\r\nthree\rfour\r\n");
    file_with("test/5.txt", "eins zwei");
    file_with("test/9.txt", "not listed");
    struct dpe_corpus *corpus = opened(folder);
    assert_int_equal(corpus->n, 2);
    const struct dpe_book *book = &corpus->books[0];
    assert_string_equal(book->id, "7");
    assert_string_equal(book->text, "One two.\nthree\rfour\n");
    assert_int_equal(book->n, strlen(book->text));
    assert_int_equal(book->n_words, 4);
    assert_string_equal(corpus->books[1].id, "5");
    assert_string_equal(corpus->path, folder);
    dpe_corpus_close(corpus);
}

/* Texts without a word are left out of a folder and counted; alone they are refused. */
static void texts_without_a_word_are_left_out(void **state)
{
    (void)state;
    file_with("a.txt", "");
    file_with("b.txt", "\xef\xbb\xbf");
    file_with("c.txt", "one two");
    file_with("d.txt", " \r\n\t\xe3\x80\x80");
    struct dpe_corpus *corpus = opened(folder);
    assert_int_equal(corpus->n, 1);
    assert_string_equal(corpus->books[0].id, "c");
    assert_int_equal(corpus->n_empty, 3);
    assert_non_null(strstr(corpus->empty, "a.txt"));
    dpe_corpus_close(corpus);
    REFUSED(in_folder("d.txt"), DPE_BAD_DATA, "expected a text, found no words");
    remove(in_folder("c.txt"));
    REFUSED(folder, DPE_BAD_DATA, "expected a text, found no words");
    file_with("d.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n");
    REFUSED(folder, DPE_BAD_DATA, "d.txt", "git lfs pull");
    char text[] = "\xef\xbb\xbf"
                  "a\r\nb\r\r\n\r";
    assert_int_equal(dpe_text_clean(text, strlen(text), true), 6);
    assert_string_equal(text, "a\nb\r\n\r");
    char other[] = "a\r\n";
    assert_int_equal(dpe_text_clean(other, 3, false), 3);
}

static void header_is_read_by_names(void **state)
{
    (void)state;
    file_with("metadata.csv", "url,short_book_title,book_id\nhttp://x,Title,7\n");
    file_with("test/7.txt", "text");
    struct dpe_corpus *corpus = opened(folder);
    assert_string_equal(corpus->books[0].id, "7");
    dpe_corpus_close(corpus);
    file_with("metadata.csv", "book_id,x\n7\n");
    REFUSED(folder, DPE_BAD_DATA, "line 2", "expected 2 columns", "found 1");
}

static void bad_records_are_named(void **state)
{
    (void)state;
    file_with("test/7.txt", "text");
    const struct {
        const char *csv, *words[3];
    } cases[] = {
        {"7,t,1,u\n8,t,1\n", {"metadata.csv: line 2", "expected 4 columns", "found 3"}},
        {"7,t,1,u\n9,t,1,u\n7,t,1,u\n", {"line 3", "book_id 7", "already on line 1"}},
        {"7,t,1,u\n../../x,t,1,u\n", {"line 2", "book_id", "\"../../x\""}},
        {"7,t,1,u\n/etc/passwd,t,1,u\n", {"line 2", "book_id", "\"/etc/passwd\""}},
        {".hidden,t,1,u\n", {"line 1", "book_id", ".hidden"}},
        {",t,1,u\n", {"line 1", "book_id", "\"\""}},
        {"7,\"open,1,u\n8,t,1,u\n", {"expected CSV", "never closed", "line 2"}},
        {"7,t,1,u\n8,\"a\"b,1,u\n", {"line 2", "expected CSV", "quote"}},
        {"7,a\"b,1,u\n", {"line 1", "expected CSV", "quote"}},
        {"7,t,1,\xff\n", {"expected UTF-8", "0xff", "offset 6"}},
        {"", {"expected texts", "0 books", "found none"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        file_with("metadata.csv", cases[i].csv);
        REFUSED(folder, DPE_BAD_DATA, cases[i].words[0], cases[i].words[1], cases[i].words[2]);
    }
    file_of("metadata.csv", "7,t\0x,1,u\n", 10);
    REFUSED(folder, DPE_BAD_DATA, "a NUL byte at offset 3");
    file_of("metadata.csv",
            "\xff\xfe"
            "7\0,\0",
            6);
    REFUSED(folder, DPE_BAD_DATA, "metadata.csv", "UTF-16");
}

/* Whatever a damaged file is taken for, it is either opened or refused in words. */
static void damaged_metadata_never_crashes(void **state)
{
    (void)state;
    static const char good[] = "book_id,short_book_title,date,url\r\n"
                               "7,\"A \"\"short\"\" title, quoted\",1901,http://x/7\r\n"
                               "8,\"Two\nlines\",1902,http://x/8\n9,\xc3\xa4,1,u";
    static const char pool[] = "\",\n\r \0\xff\xc3"
                               "79a/.";
    file_with("test/7.txt", "text");
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 1, 1);
    int outcomes[2] = {0, 0};
    for (int i = 0; i < 400; i++) {
        char bytes[sizeof good];
        memcpy(bytes, good, sizeof good);
        for (uint32_t k = dpe_rng_below(&rng, 4) + 1; k > 0; k--) {
            bytes[dpe_rng_below(&rng, sizeof good - 1)] =
                pool[dpe_rng_below(&rng, sizeof pool - 1)];
        }
        file_of("metadata.csv", bytes, sizeof good - 1 - dpe_rng_below(&rng, 20));
        struct dpe_error err = {0};
        struct dpe_corpus *corpus = NULL;
        dpe_status status = dpe_corpus_open(folder, &corpus, &err);
        assert_true(status == DPE_OK || (status == DPE_BAD_DATA && err.text[0] != '\0'));
        outcomes[status == DPE_OK]++;
        dpe_corpus_close(corpus);
    }
    assert_true(outcomes[0] > 50 && outcomes[1] > 50);
}

/* `n` bytes of x inside the quotes of a title. */
static void huge_field(size_t n)
{
    FILE *file = fopen(in_folder("metadata.csv"), "wb");
    assert_non_null(file);
    fputs("7,t,1,u\n8,\"", file);
    char block[4096];
    memset(block, 'x', sizeof block);
    for (size_t i = 0; i < n; i += sizeof block) {
        assert_int_equal(fwrite(block, 1, sizeof block, file), sizeof block);
    }
    fputs("\",1,u\n", file);
    assert_int_equal(fclose(file), 0);
}

static void huge_fields_are_refused_early(void **state)
{
    (void)state;
    file_with("test/7.txt", "text");
    huge_field((size_t)1 << 20);
    REFUSED(folder, DPE_BAD_DATA, "line 2", "fields of at most 65536 bytes");
    assert_int_equal(truncate(in_folder("metadata.csv"), (off_t)200 << 20), 0);
    REFUSED(folder, DPE_BAD_DATA, "metadata.csv",
            "expected at most 67108864 bytes, found 209715200");
    huge_field(60000);
    struct dpe_corpus *corpus = opened(folder);
    assert_int_equal(corpus->n, 1);
    dpe_corpus_close(corpus);
}

static void splits(void **state)
{
    (void)state;
    file_with("metadata.csv", "7,t,1,u\n");
    file_with("test/8.txt", "not listed");
    REFUSED(folder, DPE_BAD_DATA, "/test", "1 books", "found none");
    REFUSED(in_folder("train"), DPE_NO_INPUT, "/train");
    assert_int_equal(mkdir(in_folder("train"), 0700), 0);
    file_with("train/7.txt", "found here");
    struct dpe_corpus *corpus = opened(in_folder("train"));
    assert_string_equal(corpus->books[0].text, "found here");
    dpe_corpus_close(corpus);
    file_with("metadata.csv", "7,t,1,u\n8,s,2,v\n");
    corpus = opened(folder);
    assert_int_equal(corpus->n, 2);
    assert_string_equal(corpus->books[0].text, "found here");
    assert_string_equal(corpus->books[1].text, "not listed");
    dpe_corpus_close(corpus);
    /* A folder of another name is texts of its own; one with a slash at its end is the same. */
    assert_int_equal(rename(in_folder("train"), in_folder("mine")), 0);
    file_with("mine/9.txt", "and this");
    corpus = opened(in_folder("mine"));
    assert_int_equal(corpus->n, 2);
    dpe_corpus_close(corpus);
    corpus = opened(in_folder("test/"));
    assert_int_equal(corpus->n, 1);
    dpe_corpus_close(corpus);
    REFUSED(in_folder("nowhere"), DPE_NO_INPUT, "nowhere");
}

static void text_is_checked(void **state)
{
    (void)state;
    REFUSED(in_folder("test"), DPE_BAD_DATA, "metadata.csv or .txt");
    file_of("test/a.txt", "", 0);
    REFUSED(in_folder("test"), DPE_BAD_DATA, "a.txt", "no word");
    file_of("test/a.txt", "\xff\xfeh\0i\0", 6);
    REFUSED(in_folder("test"), DPE_BAD_DATA, "a.txt", "UTF-16");
    file_of("test/a.txt", "h\0i\0 \0y\0o\0u\0", 12);
    REFUSED(in_folder("test"), DPE_BAD_DATA, "a.txt", "UTF-16");
    file_of("test/a.txt", "\xff\xfe\0\0h\0\0\0", 8);
    REFUSED(in_folder("test"), DPE_BAD_DATA, "a.txt", "UTF-32");
    file_of("test/a.txt", "good \xed\xa0\x80 bad", 12);
    REFUSED(in_folder("test"), DPE_BAD_DATA, "a.txt", "0xed", "offset 5");
    file_of("test/a.txt", "whole words\0\0\0\0", 15);
    REFUSED(in_folder("test"), DPE_BAD_DATA, "a.txt", "a NUL byte at offset 11");
    unlink(in_folder("test/a.txt"));
    assert_int_equal(mkfifo(in_folder("test/a.txt"), 0600), 0);
    REFUSED(in_folder("test"), DPE_NO_INPUT, "a.txt", "regular file");
    unlink(in_folder("test/a.txt"));
    file_with("test/\xff.txt", "text");
    REFUSED(in_folder("test"), DPE_BAD_DATA, "file name in UTF-8");
}

static void words_as_python_counts_them(void **state)
{
    (void)state;
    const struct {
        const char *text;
        int64_t want;
    } cases[] = {
        {"", 0},
        {" \n\t ", 0},
        {"a b", 2},
        {" a  b ", 2},
        {"a\xc2\xa0"
         "b",
         2},
        {"a\xe3\x80\x80"
         "b\xe2\x80\xa8"
         "c\xe2\x80\x89",
         3},
        {"a\x1c"
         "b",
         2},
        {"a\xe2\x80\x8b"
         "b",
         1}, /* zero width space is no white space */
        {"\xe4\xbd\xa0\xe5\xa5\xbd", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(dpe_count_words(cases[i].text, strlen(cases[i].text)), cases[i].want);
    }
}

static void fingerprint_covers_ids_and_texts(void **state)
{
    (void)state;
    char prints[4][65];
    for (int i = 0; i < 4; i++) {
        const char *line_end = i == 1 ? "\r\n" : "\n";
        char text[64];
        snprintf(text, sizeof text, "some text%s%s", i == 2 ? "!" : "", line_end);
        file_with("test/a.txt", text);
        if (i == 3) {
            assert_int_equal(rename(in_folder("test/a.txt"), in_folder("test/b.txt")), 0);
        }
        struct dpe_corpus *corpus = opened(in_folder("test"));
        memcpy(prints[i], corpus->fingerprint, 65);
        assert_int_equal(strlen(prints[i]), 64);
        dpe_corpus_close(corpus);
    }
    assert_string_equal(prints[0], prints[1]);
    assert_string_not_equal(prints[0], prints[2]);
    assert_string_not_equal(prints[0], prints[3]);
}

static void sample_corpus_opens(void **state)
{
    (void)state;
    struct dpe_corpus *corpus = opened(DPE_SOURCE_DIR "/data/sample");
    assert_in_range(corpus->n, 2, 1000);
    dpe_corpus_close(corpus);
}

static void real_metadata(void **state)
{
    (void)state;
    const char *shared = getenv("DPE_SHARED_DATA");
    char path[512];
    snprintf(path, sizeof path, "%s/pg19",
             shared != NULL ? shared : DPE_SOURCE_DIR "/../shared/data");
    if (access(path, R_OK) != 0) {
        print_message("skipped: no PG-19 excerpt (DPE_SHARED_DATA)\n");
        skip();
    }
    struct dpe_corpus *corpus = opened(path);
    assert_int_equal(corpus->n, 10);
    dpe_corpus_close(corpus);
    strcat(path, "/test");
    corpus = opened(path);
    assert_int_equal(corpus->n, 2);
    /* Words: len(text.split()) in Python. */
    assert_string_equal(corpus->books[0].id, "6941");
    assert_int_equal(corpus->books[0].n_words, 179690);
    assert_string_equal(corpus->books[1].id, "10146");
    assert_int_equal(corpus->books[1].n_words, 43023);
    dpe_corpus_close(corpus);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_corpus, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(pg19_as_published),
        IN_FOLDER(header_is_read_by_names),
        IN_FOLDER(texts_without_a_word_are_left_out),
        IN_FOLDER(bad_records_are_named),
        IN_FOLDER(damaged_metadata_never_crashes),
        IN_FOLDER(huge_fields_are_refused_early),
        IN_FOLDER(splits),
        IN_FOLDER(text_is_checked),
        cmocka_unit_test(words_as_python_counts_them),
        IN_FOLDER(fingerprint_covers_ids_and_texts),
        cmocka_unit_test(sample_corpus_opens),
        cmocka_unit_test(real_metadata),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
