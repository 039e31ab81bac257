/* The tokenizer against the reference: small files of every supported shape (golden, made by
 * golden/make_tokenizer_shapes.py), and real vocabularies where they are installed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/base.h"
#include "engine/text/unicode.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/lib/test_folder.h"

static json_t *golden;

static int load_golden(void **state)
{
    (void)state;
    golden =
        json_load_file(DPE_SOURCE_DIR "/tests/golden/tokenizer_shapes.json", JSON_ALLOW_NUL, NULL);
    return golden == NULL;
}

static int free_golden(void **state)
{
    (void)state;
    json_decref(golden);
    return 0;
}

static struct dpe_tokenizer *open_shape(const json_t *shape)
{
    char path[] = "/tmp/dpe-tokenizer-XXXXXX";
    struct dpe_tokenizer *tokenizer = NULL;
    struct dpe_error err = {0};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(json_dumpfd(json_object_get(shape, "file"), fd, JSON_COMPACT), 0);
    close(fd);
    dpe_status status = dpe_tokenizer_open(path, &tokenizer, &err);
    unlink(path);
    if (status != DPE_OK) {
        fail_msg("%s: %s", json_string_value(json_object_get(shape, "name")), err.text);
    }
    return tokenizer;
}

static const json_t *shape_named(const char *name)
{
    size_t i = 0;
    json_t *shape = NULL;
    json_array_foreach(json_object_get(golden, "shapes"), i, shape)
    {
        if (strcmp(json_string_value(json_object_get(shape, "name")), name) == 0) {
            return shape;
        }
    }
    fail_msg("no shape %s", name);
    return NULL;
}

static void print_ids(const char *what, const int32_t *ids, size_t n)
{
    fprintf(stderr, "%s:", what);
    for (size_t i = 0; i < n && i < 40; i++) {
        fprintf(stderr, " %d", (int)ids[i]);
    }
    fprintf(stderr, "%s\n", n > 40 ? " ..." : "");
}

/* Encodes and compares with a JSON list; returns 1 and prints both when they differ. */
static int differs(const struct dpe_tokenizer *tokenizer, const char *what, const char *text,
                   size_t n, const struct dpe_encode_options *options, const json_t *expected)
{
    struct dpe_tokens tokens = {0}, wanted = {0};
    struct dpe_error err = {0};
    size_t i = 0;
    json_t *id = NULL;
    json_array_foreach((json_t *)(uintptr_t)expected, i, id)
    {
        int32_t value = (int32_t)json_integer_value(id);
        assert_int_equal(dpe_tokens_append(&wanted, &value, 1, NULL), DPE_OK);
    }
    dpe_status status = dpe_tokenizer_encode(tokenizer, text, n, options, &tokens, &err);
    bool same = status == DPE_OK && tokens.n == wanted.n &&
                (wanted.n == 0 || memcmp(tokens.ids, wanted.ids, wanted.n * sizeof(int32_t)) == 0);
    if (!same) {
        fprintf(stderr, "%s: \"%.*s\": %s\n", what, (int)(n < 200 ? n : 200), text,
                status == DPE_OK ? "other ids" : err.text);
        print_ids("  got     ", tokens.ids, tokens.n);
        print_ids("  expected", wanted.ids, wanted.n);
    }
    dpe_tokens_free(&tokens);
    dpe_tokens_free(&wanted);
    return !same;
}

static int check_texts(const struct dpe_tokenizer *tokenizer, const json_t *shape, const char *name)
{
    const struct dpe_encode_options parse = {.special = DPE_SPECIAL_PARSE};
    const struct dpe_encode_options literal = {.special = DPE_SPECIAL_LITERAL};
    const json_t *literals = json_object_get(shape, "literal");
    int bad = 0;
    size_t i = 0;
    json_t *text = NULL;
    json_array_foreach(json_object_get(golden, "texts"), i, text)
    {
        char key[24];
        snprintf(key, sizeof key, "%zu", i);
        const json_t *plain = json_array_get(json_object_get(shape, "encode"), i);
        const json_t *other = json_object_get(literals, key);
        const char *bytes = json_string_value(text);
        size_t n = json_string_length(text);
        assert_non_null(plain);
        bad += differs(tokenizer, name, bytes, n, &parse, plain);
        bad += differs(tokenizer, name, bytes, n, &literal, other == NULL ? plain : other);
    }
    return bad;
}

static void shapes_encode_like_the_reference(void **state)
{
    (void)state;
    size_t i = 0;
    json_t *shape = NULL;
    int bad = 0;
    const json_t *text = json_array_get(json_object_get(golden, "texts"), 9);
    const struct dpe_encode_options special = {.add_special = true, .special = DPE_SPECIAL_PARSE};
    json_array_foreach(json_object_get(golden, "shapes"), i, shape)
    {
        const char *name = json_string_value(json_object_get(shape, "name"));
        struct dpe_tokenizer *tokenizer = open_shape(shape);
        bad += check_texts(tokenizer, shape, name);
        bad += differs(tokenizer, name, json_string_value(text), json_string_length(text), &special,
                       json_object_get(shape, "special"));
        bad += dpe_tokenizer_prefix_size(tokenizer) !=
               json_integer_value(json_object_get(shape, "prefix"));
        dpe_tokenizer_close(tokenizer);
    }
    assert_true(i >= 30);
    assert_int_equal(bad, 0);
}

static size_t from_hex(const char *hex, char *out)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        char digits[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        out[i] = (char)strtoul(digits, NULL, 16);
    }
    return n;
}

static void invalid_utf8_is_refused_or_replaced(void **state)
{
    (void)state;
    const struct dpe_encode_options replace = {.special = DPE_SPECIAL_PARSE,
                                               .replace_invalid = true};
    size_t i = 0, j = 0;
    json_t *shape = NULL, *row = NULL;
    int bad = 0, rows = 0;
    json_array_foreach(json_object_get(golden, "shapes"), i, shape)
    {
        struct dpe_tokenizer *tokenizer = open_shape(shape);
        json_array_foreach(json_object_get(shape, "broken"), j, row)
        {
            char bytes[64], offset[40];
            size_t n = from_hex(json_string_value(json_array_get(row, 0)), bytes);
            struct dpe_tokens tokens = {0};
            struct dpe_error err = {0};
            assert_int_equal(dpe_tokenizer_encode(tokenizer, bytes, n, NULL, &tokens, &err),
                             DPE_BAD_DATA);
            snprintf(offset, sizeof offset, "at byte %zu ", dpe_utf8_check(bytes, n));
            assert_non_null(strstr(err.text, offset));
            assert_int_equal(tokens.n, 0);
            dpe_tokens_free(&tokens);
            bad += differs(tokenizer, "broken", bytes, n, &replace, json_array_get(row, 1));
            rows++;
        }
        dpe_tokenizer_close(tokenizer);
    }
    assert_true(rows > 200);
    assert_int_equal(bad, 0);
}

static int decode_differs(const struct dpe_tokenizer *tokenizer, const json_t *ids, bool skip,
                          const json_t *expected)
{
    struct dpe_text text = {0};
    struct dpe_error err = {0};
    int32_t list[256];
    size_t n = json_array_size(ids);
    assert_true(n <= 256);
    for (size_t i = 0; i < n; i++) {
        list[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    }
    /* Decoding appends. */
    assert_int_equal(dpe_text_append(&text, ">", 1, NULL), DPE_OK);
    dpe_status status = dpe_tokenizer_decode(tokenizer, list, n, skip, &text, &err);
    size_t wanted = json_string_length(expected);
    bool same = status == DPE_OK && text.n == wanted + 1 && text.bytes[text.n] == '\0' &&
                memcmp(text.bytes + 1, json_string_value(expected), wanted) == 0;
    if (!same) {
        print_ids("decode", list, n);
        fprintf(stderr, "  got      \"%s\"\n  expected \"%s\"\n",
                status == DPE_OK ? text.bytes + 1 : err.text, json_string_value(expected));
    }
    dpe_text_free(&text);
    return !same;
}

static void shapes_decode_like_the_reference(void **state)
{
    (void)state;
    size_t i = 0, j = 0;
    json_t *shape = NULL, *row = NULL;
    int bad = 0, rows = 0;
    json_array_foreach(json_object_get(golden, "shapes"), i, shape)
    {
        struct dpe_tokenizer *tokenizer = open_shape(shape);
        json_array_foreach(json_object_get(shape, "decode"), j, row)
        {
            const json_t *ids = json_array_get(row, 0), *shown = json_array_get(row, 1);
            const json_t *hidden = json_array_size(row) > 2 ? json_array_get(row, 2) : shown;
            bad += decode_differs(tokenizer, ids, false, shown);
            bad += decode_differs(tokenizer, ids, true, hidden);
            rows++;
        }
        dpe_tokenizer_close(tokenizer);
    }
    assert_true(rows > 300);
    assert_int_equal(bad, 0);
}

/* The bytes of the tokens of a text, one after another, are the text: characters of several tokens
 * included, and with the space that the beginning of a text loses. */
static void bytes_of_tokens_make_the_text(void **state)
{
    (void)state;
    static const char names[] =
        " llama3 qwen2 smollm2 gpt2_prefix spm_prepend spm_metaspace gemma ";
    size_t i = 0, j = 0, k = 0;
    json_t *shape = NULL, *row = NULL, *id = NULL;
    int rows = 0, spaces = 0;
    json_array_foreach(json_object_get(golden, "shapes"), i, shape)
    {
        char name[64];
        snprintf(name, sizeof name, " %s ", json_string_value(json_object_get(shape, "name")));
        if (strstr(names, name) == NULL) {
            continue;
        }
        struct dpe_tokenizer *tokenizer = open_shape(shape);
        json_array_foreach(json_object_get(shape, "decode"), j, row)
        {
            const json_t *shown = json_array_get(row, 1);
            struct dpe_text text = {0};
            if (strstr(json_string_value(shown), "\xef\xbf\xbd") != NULL) {
                continue;
            }
            json_array_foreach(json_array_get(row, 0), k, id)
            {
                assert_int_equal(dpe_tokenizer_bytes(tokenizer, (int32_t)json_integer_value(id),
                                                     false, &text, NULL),
                                 DPE_OK);
            }
            size_t lost = text.n - json_string_length(shown);
            assert_true(lost == 0 || (lost == 1 && text.bytes[0] == ' '));
            assert_memory_equal(text.bytes + lost, json_string_value(shown), text.n - lost);
            dpe_text_free(&text);
            spaces += lost > 0;
            rows++;
        }
        dpe_tokenizer_close(tokenizer);
    }
    assert_true(rows > 50 && spaces > 0);
}

static uint64_t fold(const struct dpe_tokens *tokens)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < tokens->n; i++) {
        h = (h ^ (uint32_t)tokens->ids[i]) * 0x100000001b3u;
    }
    return h;
}

/* A megabyte of one thing is one word; a quadratic merge would take minutes. */
static void long_words_are_encoded(void **state)
{
    (void)state;
    size_t i = 0, j = 0;
    json_t *shape = NULL, *row = NULL;
    int rows = 0;
    json_array_foreach(json_object_get(golden, "shapes"), i, shape)
    {
        if (json_array_size(json_object_get(shape, "long")) == 0) {
            continue;
        }
        struct dpe_tokenizer *tokenizer = open_shape(shape);
        json_array_foreach(json_object_get(shape, "long"), j, row)
        {
            const char *unit = json_string_value(json_array_get(row, 0));
            size_t times = (size_t)json_integer_value(json_array_get(row, 1)), n = strlen(unit);
            char *text = malloc(times * n), hex[17];
            struct dpe_tokens tokens = {0};
            assert_non_null(text);
            for (size_t k = 0; k < times; k++) {
                memcpy(text + k * n, unit, n);
            }
            assert_int_equal(dpe_tokenizer_encode(tokenizer, text, times * n, NULL, &tokens, NULL),
                             DPE_OK);
            assert_int_equal(tokens.n, json_integer_value(json_array_get(row, 2)));
            snprintf(hex, sizeof hex, "%016llx", (unsigned long long)fold(&tokens));
            assert_string_equal(hex, json_string_value(json_array_get(row, 3)));
            dpe_tokens_free(&tokens);
            free(text);
            rows++;
        }
        dpe_tokenizer_close(tokenizer);
    }
    assert_true(rows >= 20);
}

static void special_text_follows_the_policy(void **state)
{
    (void)state;
    struct dpe_tokenizer *tokenizer = open_shape(shape_named("llama3"));
    struct dpe_tokens tokens = {0};
    struct dpe_error err = {0};
    const int32_t before = 7;
    assert_int_equal(dpe_tokens_append(&tokens, &before, 1, NULL), DPE_OK);
    struct dpe_encode_options options = {.add_special = true};
    assert_int_equal(
        dpe_tokenizer_encode(tokenizer, "caf\xc3\xa9 </s>", 10, &options, &tokens, &err),
        DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "byte 6: "));
    assert_non_null(strstr(err.text, "</s>"));
    assert_int_equal(tokens.n, 1);
    assert_int_equal(tokens.ids[0], before);
    /* The offset is one of the text as given, not of the repaired one. */
    options.replace_invalid = true;
    assert_int_equal(
        dpe_tokenizer_encode(tokenizer, "\xff\xe2\x82 x\xff<s>", 9, &options, &tokens, &err),
        DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "byte 6: "));
    /* Asked for BOS and finding BOS in the text: both, as the reference does. */
    options.special = DPE_SPECIAL_PARSE;
    assert_int_equal(dpe_tokenizer_encode(tokenizer, "<s>", 3, &options, &tokens, &err), DPE_OK);
    assert_int_equal(tokens.n, 3);
    assert_int_equal(tokens.ids[1], 480);
    assert_int_equal(tokens.ids[2], 480);
    dpe_tokens_free(&tokens);
    dpe_tokenizer_close(tokenizer);
}

static void small_questions(void **state)
{
    (void)state;
    const json_t *shape = shape_named("llama3");
    struct dpe_tokenizer *tokenizer = open_shape(shape);
    struct dpe_text text = {0};
    struct dpe_error err = {0};
    assert_int_equal(dpe_tokenizer_size(tokenizer), 483);
    const struct dpe_encode_options parse = {.special = DPE_SPECIAL_PARSE};
    struct dpe_tokens tokens = {0};
    assert_int_equal(dpe_tokenizer_encode(tokenizer, "</s>", 4, &parse, &tokens, &err), DPE_OK);
    assert_int_equal(tokens.n, 1);
    assert_int_equal(tokens.ids[0], 481);
    dpe_tokens_free(&tokens);
    assert_int_equal(strlen(dpe_tokenizer_fingerprint(tokenizer)), 64);
    const int32_t wrong[3] = {1, 483, -1};
    assert_int_equal(dpe_tokenizer_decode(tokenizer, wrong, 2, false, &text, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "token 1 has id 483"));
    assert_int_equal(dpe_tokenizer_decode(tokenizer, wrong + 2, 1, false, &text, &err),
                     DPE_BAD_DATA);
    assert_int_equal(text.n, 0);
    dpe_text_free(&text);
    dpe_tokenizer_close(tokenizer);
    dpe_tokenizer_close(NULL);
}

struct job {
    const struct dpe_tokenizer *tokenizer;
    const char *text;
    struct dpe_tokens tokens;
    dpe_status status;
};

static void *encode_often(void *argument)
{
    struct job *job = argument;
    for (int i = 0; i < 50 && job->status == DPE_OK; i++) {
        job->tokens.n = 0;
        job->status = dpe_tokenizer_encode(job->tokenizer, job->text, strlen(job->text), NULL,
                                           &job->tokens, NULL);
    }
    return NULL;
}

static void threads_share_a_tokenizer(void **state)
{
    (void)state;
    struct dpe_tokenizer *tokenizer = open_shape(shape_named("llama3"));
    const char *text = json_string_value(json_array_get(json_object_get(golden, "texts"), 11));
    struct job jobs[3] = {{tokenizer, text, {0}, DPE_OK},
                          {tokenizer, text, {0}, DPE_OK},
                          {tokenizer, text, {0}, DPE_OK}};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(threads + i, NULL, encode_often, jobs + i), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(jobs[i].status, DPE_OK);
        assert_int_equal(jobs[i].tokens.n, jobs[0].tokens.n);
        assert_memory_equal(jobs[i].tokens.ids, jobs[0].tokens.ids,
                            jobs[0].tokens.n * sizeof(int32_t));
    }
    for (int i = 0; i < 3; i++) {
        dpe_tokens_free(&jobs[i].tokens);
    }
    dpe_tokenizer_close(tokenizer);
}

static void the_reference_model_s_tokenizer_opens(void **state)
{
    (void)state;
    struct dpe_tokenizer *tokenizer = NULL;
    struct dpe_error err = {0};
    struct dpe_tokens tokens = {0};
    struct dpe_text back = {0};
    const char text[] = "It was 1234 o'clock; caf\xc3\xa9s closed.\n\n";
    if (dpe_tokenizer_open(DPE_SOURCE_DIR "/data/reference", &tokenizer, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(dpe_tokenizer_encode(tokenizer, text, strlen(text), NULL, &tokens, &err),
                     DPE_OK);
    assert_int_equal(dpe_tokenizer_decode(tokenizer, tokens.ids, tokens.n, false, &back, &err),
                     DPE_OK);
    assert_string_equal(back.bytes, text);
    dpe_tokens_free(&tokens);
    dpe_text_free(&back);
    dpe_tokenizer_close(tokenizer);
}

/* ------------------------------------------------------------------------ real vocabularies */

static const char *shared_data(void)
{
    const char *from_environment = getenv("DPE_SHARED_DATA");
    return from_environment != NULL ? from_environment : DPE_SOURCE_DIR "/../shared/data";
}

/* One of the vector files: texts between separator lines, a line of ids for each. */
static void check_vectors(const char *tokenizer_path, const char *vectors,
                          const struct dpe_encode_options *options)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char input[512], output[512];
    char *texts = NULL, *lines = NULL;
    size_t n_texts = 0, n_lines = 0;
    struct dpe_tokenizer *tokenizer = NULL;
    struct dpe_error err = {0};
    snprintf(input, sizeof input, "%s/tokenizers/vectors/%s.inp", shared_data(), vectors);
    snprintf(output, sizeof output, "%s/tokenizers/vectors/%s.out", shared_data(), vectors);
    if (access(tokenizer_path, R_OK) != 0 || access(input, R_OK) != 0) {
        print_message("no %s or no %s\n", tokenizer_path, input);
        skip();
    }
    if (dpe_tokenizer_open(tokenizer_path, &tokenizer, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(dpe_read_file(input, 1 << 20, &texts, &n_texts, &err), DPE_OK);
    assert_int_equal(dpe_read_file(output, 1 << 20, &lines, &n_lines, &err), DPE_OK);
    int rows = 0, bad = 0;
    char *text = texts, *line = lines;
    while (text != NULL && *line != '\0') {
        char *next = strstr(text, separator), *end = NULL;
        size_t n = next == NULL ? strlen(text) : (size_t)(next - text);
        json_t *expected = json_array();
        for (; *line != '\n' && *line != '\0'; line = *end == ' ' ? end + 1 : end) {
            json_array_append_new(expected, json_integer(strtol(line, &end, 10)));
        }
        line += *line == '\n';
        bad += differs(tokenizer, vectors, text, n, options, expected);
        json_decref(expected);
        rows++;
        text = next == NULL ? NULL : next + strlen(separator);
    }
    free(texts);
    free(lines);
    dpe_tokenizer_close(tokenizer);
    assert_true(rows >= 46);
    assert_int_equal(bad, 0);
}

static void llama3_gives_its_vectors(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/tokenizers/llama3/tokenizer.json", shared_data());
    check_vectors(path, "llama-bpe", NULL);
}

static void qwen_gives_its_vectors(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/tokenizers/qwen3/tokenizer.json", shared_data());
    check_vectors(path, "qwen2", NULL);
}

/* tokenizer_spm.py makes this of the SentencePiece model. The other shape, Metaspace, puts no mark
 * before a text that begins with a space, so it has other ids than SentencePiece there. */
static void llama2_gives_its_vectors(void **state)
{
    (void)state;
    const char *given = getenv("DPE_SPM_TOKENIZERS");
    if (given == NULL) {
        print_message("DPE_SPM_TOKENIZERS names no folder with what tokenizer_spm.py writes\n");
        skip();
    }
    char path[512];
    snprintf(path, sizeof path, "%s/llama2-prepend.json", given);
    check_vectors(path, "llama-spm", NULL);
}

/* As asked of the reference: so many characters, whose sum modulo 2^32 this is. Another utf8proc
 * may not change them. */
static void classes_are_those_of_the_reference(void **state)
{
    (void)state;
    const struct {
        const struct dpe_unicode_class *set;
        uint32_t n, sum;
    } classes[] = {
        {&dpe_unicode_L, 141028, 2356027370U},    {&dpe_unicode_Lu, 1858, 86924357U},
        {&dpe_unicode_Ll, 2258, 104713123U},      {&dpe_unicode_Lt, 31, 220514U},
        {&dpe_unicode_Lm, 404, 19538368U},        {&dpe_unicode_Lo, 136477, 2144631008U},
        {&dpe_unicode_M, 2501, 316771473U},       {&dpe_unicode_N, 1911, 110651895U},
        {&dpe_unicode_Nd, 760, 39891450U},        {&dpe_unicode_P, 855, 28835015U},
        {&dpe_unicode_S, 8514, 620170451U},       {&dpe_unicode_space, 25, 141586U},
        {&dpe_unicode_numeric, 1924, 111666371U}, {&dpe_unicode_word, 144667, 2736743500U},
    };
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        uint32_t n = 0, sum = 0;
        for (uint32_t point = 0; point < 0x110000; point++) {
            bool in = dpe_unicode_has(classes[i].set, point);
            n += in;
            sum += in ? point : 0;
        }
        assert_int_equal(n, classes[i].n);
        assert_int_equal(sum, classes[i].sum);
    }
}

/* Tokens and settings beside tokenizer.json, at random (golden/make_tokens_beside.py). */
static void what_stands_beside_decides_as_in_the_reference(void **state)
{
    (void)state;
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json",
                                        "special_tokens_map.json", "added_tokens.json"};
    const struct dpe_encode_options options = {.add_special = true, .special = DPE_SPECIAL_PARSE};
    json_t *all = json_load_file(DPE_SOURCE_DIR "/tests/golden/tokens_beside.json", 0, NULL);
    json_t *texts = json_object_get(all, "texts"), *shared = json_object_get(all, "shared");
    json_t *one = NULL;
    size_t i = 0;
    int bad = 0, changed = 0;
    char first[65] = "";
    json_array_foreach(json_object_get(all, "cases"), i, one)
    {
        struct dpe_tokenizer *tokenizer = NULL;
        struct dpe_error err = {0};
        for (size_t k = 0; k < 4; k++) {
            json_t *file = json_object_get(json_object_get(one, "files"), names[k]);
            file = json_is_null(file) ? shared : file;
            remove(in_folder(names[k]));
            if (file != NULL) {
                assert_int_equal(json_dump_file(file, in_folder(names[k]), 0), 0);
            }
        }
        if (dpe_tokenizer_open(folder, &tokenizer, &err) != DPE_OK) {
            fail_msg("case %zu: %s", i, err.text);
        }
        for (size_t k = 0; k < json_array_size(texts); k++) {
            char what[32];
            json_t *text = json_array_get(texts, k);
            snprintf(what, sizeof what, "case %zu", i);
            bad += differs(tokenizer, what, json_string_value(text), json_string_length(text),
                           &options, json_array_get(json_object_get(one, "ids"), k));
        }
        /* Other tokens are another tokenizer. */
        changed += strcmp(first, dpe_tokenizer_fingerprint(tokenizer)) != 0;
        snprintf(first, sizeof first, "%s", dpe_tokenizer_fingerprint(tokenizer));
        dpe_tokenizer_close(tokenizer);
    }
    json_decref(all);
    assert_true(i >= 60 && changed >= 50);
    assert_int_equal(bad, 0);
    struct dpe_tokenizer *tokenizer = NULL;
    struct dpe_error err = {0};
    file_with(names[1], "{\"pad_token\": ");
    assert_int_equal(dpe_tokenizer_open(folder, &tokenizer, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, names[1]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_stands_beside_decides_as_in_the_reference, make_folder,
                                        remove_folder),
        cmocka_unit_test(shapes_encode_like_the_reference),
        cmocka_unit_test(invalid_utf8_is_refused_or_replaced),
        cmocka_unit_test(shapes_decode_like_the_reference),
        cmocka_unit_test(bytes_of_tokens_make_the_text),
        cmocka_unit_test(long_words_are_encoded),
        cmocka_unit_test(special_text_follows_the_policy),
        cmocka_unit_test(small_questions),
        cmocka_unit_test(classes_are_those_of_the_reference),
        cmocka_unit_test(threads_share_a_tokenizer),
        cmocka_unit_test(the_reference_model_s_tokenizer_opens),
        cmocka_unit_test(llama3_gives_its_vectors),
        cmocka_unit_test(qwen_gives_its_vectors),
        cmocka_unit_test(llama2_gives_its_vectors),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, load_golden, free_golden);
}
