/* Tokenizer files that are wrong: each is refused with a message that names what is wrong, or,
 * where random bytes make another valid file, works. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/base.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/lib/test_folder.h"

static dpe_status open_bytes(const char *bytes, size_t n, struct dpe_tokenizer **tokenizer,
                             struct dpe_error *err)
{
    file_of("tokenizer.json", bytes, n);
    *tokenizer = NULL;
    return dpe_tokenizer_open(folder, tokenizer, err);
}

/* The file must be refused and the message hold the file's name and `words`. */
static void refuse(const char *json, const char *words)
{
    struct dpe_tokenizer *tokenizer = NULL;
    struct dpe_error err = {0};
    dpe_status status = open_bytes(json, strlen(json), &tokenizer, &err);
    dpe_tokenizer_close(tokenizer);
    if (status != DPE_BAD_DATA || strstr(err.text, words) == NULL ||
        strstr(err.text, "tokenizer.json") == NULL) {
        fail_msg("%.300s\n  status %d \"%s\", expected \"%s\"", json, (int)status, err.text, words);
    }
}

/* A small good file, parts of which the tests replace. */
struct parts {
    const char *vocab, *merges, *model, *added, *pre_tokenizer, *normalizer, *post, *decoder;
};

static const char *build(const struct parts *p)
{
    static char json[16384];
    const char *vocab = p->vocab != NULL ? p->vocab : "\"a\":0,\"b\":1,\"ab\":2";
    int n = snprintf(
        json, sizeof json,
        "{\"version\":\"1.0\",\"added_tokens\":[%s],\"normalizer\":%s,\"pre_tokenizer\":%s,"
        "\"post_processor\":%s,\"decoder\":%s,\"model\":{%s\"vocab\":{%s},\"merges\":[%s]}}",
        p->added != NULL ? p->added : "", p->normalizer != NULL ? p->normalizer : "null",
        p->pre_tokenizer != NULL ? p->pre_tokenizer : "null", p->post != NULL ? p->post : "null",
        p->decoder != NULL ? p->decoder : "null", p->model != NULL ? p->model : "", vocab,
        p->merges != NULL ? p->merges : "\"a b\"");
    assert_true(n > 0 && (size_t)n < sizeof json);
    return json;
}

#define REFUSE(words, ...) refuse(build(&(struct parts){__VA_ARGS__}), words)

static void the_base_is_good(void **state)
{
    (void)state;
    struct dpe_tokenizer *tokenizer = NULL;
    struct dpe_error err = {0};
    struct dpe_tokens tokens = {0};
    const char *json = build(&(struct parts){0});
    assert_int_equal(open_bytes(json, strlen(json), &tokenizer, &err), DPE_OK);
    assert_int_equal(dpe_tokenizer_encode(tokenizer, "aabxb", 5, NULL, &tokens, &err), DPE_OK);
    assert_int_equal(tokens.n, 3);
    assert_int_equal(tokens.ids[1], 2);
    dpe_tokens_free(&tokens);
    dpe_tokenizer_close(tokenizer);
}

static void files_that_are_not_json(void **state)
{
    (void)state;
    refuse("", "expected JSON");
    refuse("{", "expected JSON");
    refuse("[]", "expected a JSON object");
    refuse("{} x", "expected JSON");
    refuse("{}", "\"model\"");
    refuse("{\"model\":[]}", "\"model\"");
    refuse("{\"model\":{},\"model\":{}}", "duplicate");
    refuse("{\"model\":\"\xff\"}", "UTF-8");
    refuse("{\"model\":{\"vocab\":{\"\\ud800\":0},\"merges\":[]}}", "expected JSON");
    refuse("{\"model\":{\"vocab\":{\"a\\u0000b\":0},\"merges\":[]}}", "expected JSON");
    char *deep = malloc(1000001);
    assert_non_null(deep);
    memset(deep, '[', 1000000);
    deep[1000000] = '\0';
    refuse(deep, "expected JSON");
    free(deep);
}

static void paths_that_are_not_files(void **state)
{
    (void)state;
    struct dpe_tokenizer *tokenizer = NULL;
    struct dpe_error err = {0};
    unlink(in_folder("tokenizer.json"));
    assert_int_equal(dpe_tokenizer_open(folder, &tokenizer, &err), DPE_NO_INPUT);
    assert_int_equal(mkfifo(in_folder("tokenizer.json"), 0600), 0);
    assert_int_equal(dpe_tokenizer_open(folder, &tokenizer, &err), DPE_NO_INPUT);
    unlink(in_folder("tokenizer.json"));
    assert_int_equal(mkdir(in_folder("tokenizer.json"), 0700), 0);
    assert_int_equal(dpe_tokenizer_open(folder, &tokenizer, &err), DPE_NO_INPUT);
    rmdir(in_folder("tokenizer.json"));
    assert_null(tokenizer);
}

static void ids(void **state)
{
    (void)state;
    REFUSE("id 0 is given to two tokens, \"a\" and \"b\"", .vocab = "\"a\":0,\"b\":0,\"ab\":2");
    REFUSE("id of \"b\"", .vocab = "\"a\":0,\"b\":-1,\"ab\":2");
    REFUSE("4294967296", .vocab = "\"a\":0,\"b\":4294967296,\"ab\":2");
    REFUSE("found 4194304", .vocab = "\"a\":0,\"b\":4194304,\"ab\":2");
    REFUSE("found 1.0", .vocab = "\"a\":0,\"b\":1.0,\"ab\":2");
    REFUSE("found \"1\"", .vocab = "\"a\":0,\"b\":\"1\",\"ab\":2");
    REFUSE("found null", .vocab = "\"a\":0,\"b\":null,\"ab\":2");
    REFUSE("found 1e20", .vocab = "\"a\":0,\"b\":99999999999999999999,\"ab\":2");
    REFUSE("duplicate", .vocab = "\"a\":0,\"a\":1,\"ab\":2");
    REFUSE("at least one token, found none", .vocab = " ", .merges = " ");
}

static void merges(void **state)
{
    (void)state;
    REFUSE("merge 1: \"c\" is not in model.vocab", .merges = "\"a b\",\"a c\"");
    REFUSE("merge 0: \"ba\" is not in model.vocab", .merges = "\"b a\"");
    REFUSE("expected two parts", .merges = "\"a b c\"");
    REFUSE("expected two parts", .merges = "\"ab\"");
    REFUSE("expected two strings", .merges = "[\"a\",\"b\",\"ab\"]");
    REFUSE("expected two strings", .merges = "[\"a\"]");
    REFUSE("expected two strings", .merges = "[\"a\",1]");
    REFUSE("expected two strings", .merges = "1");
    REFUSE("in the other form", .merges = "\"a b\",[\"a\",\"b\"]");
    REFUSE("in the other form", .merges = "[\"a\",\"b\"],\"a b\"");
    REFUSE("empty token", .vocab = "\"\":0,\"a\":1", .merges = "[\"\",\"a\"]");
    refuse("{\"model\":{\"vocab\":{\"a\":0}}}", "merges");
    refuse("{\"model\":{\"vocab\":{\"a\":0},\"merges\":{}}}", "merges: expected a list");
    refuse("{\"model\":{\"vocab\":[],\"merges\":[]}}", "vocab: expected an object");
}

static void model_options(void **state)
{
    (void)state;
    REFUSE("dropout", .model = "\"dropout\":0.1,");
    REFUSE("dropout", .model = "\"dropout\":\"no\",");
    REFUSE("type \"Unigram\" is not supported", .model = "\"type\":\"Unigram\",");
    REFUSE("continuing_subword_prefix", .model = "\"continuing_subword_prefix\":\"##\",");
    REFUSE("end_of_word_suffix", .model = "\"end_of_word_suffix\":\"</w>\",");
    REFUSE("fuse_unk: expected true or false", .model = "\"fuse_unk\":1,");
    REFUSE("unk_token: expected a string", .model = "\"unk_token\":7,");
}

static void components(void **state)
{
    (void)state;
    REFUSE("normalizer: type \"Lowercase\"", .normalizer = "{\"type\":\"Lowercase\"}");
    REFUSE("normalizer: type \"Precompiled\"",
           .normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
                         "{\"type\":\"Precompiled\"}]}");
    REFUSE("normalizer: type: expected a string, found nothing", .normalizer = "{}");
    REFUSE("normalizer", .normalizer = "[]");
    REFUSE("Regex", .normalizer = "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" +\"},"
                                  "\"content\":\"x\"}");
    REFUSE("empty String", .normalizer = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},"
                                         "\"content\":\"x\"}");
    REFUSE("pre_tokenizer: type \"Whitespace\"", .pre_tokenizer = "{\"type\":\"Whitespace\"}");
    REFUSE("after ByteLevel",
           .pre_tokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\","
                            "\"add_prefix_space\":false},{\"type\":\"Digits\","
                            "\"individual_digits\":true}]}");
    REFUSE("individual_digits", .pre_tokenizer = "{\"type\":\"Digits\"}");
    REFUSE("behavior \"Odd\"", .pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},"
                                                "\"behavior\":\"Odd\",\"invert\":false}");
    REFUSE("prepend_scheme \"last\"", .pre_tokenizer =
                                          "{\"type\":\"Metaspace\",\"replacement\":\"_\","
                                          "\"prepend_scheme\":\"last\"}");
    REFUSE("contradicts", .pre_tokenizer =
                              "{\"type\":\"Metaspace\",\"replacement\":\"_\","
                              "\"prepend_scheme\":\"first\",\"add_prefix_space\":false}");
    REFUSE("one character", .pre_tokenizer = "{\"type\":\"Metaspace\",\"replacement\":\"__\"}");
    REFUSE("decoder: type \"CTC\"", .decoder = "{\"type\":\"CTC\"}");
    REFUSE("start", .decoder = "{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}");
    REFUSE("post_processor: type \"RobertaProcessing\"",
           .post = "{\"type\":\"RobertaProcessing\"}");
    REFUSE("type \"<script>?\"", .decoder = "{\"type\":\"<script>\\n\"}");
}

/* Components without end, in breadth and depth. */
static void too_many_components(void **state)
{
    (void)state;
    char many[8192] = "{\"type\":\"Sequence\",\"normalizers\":[", deep[8192] = "";
    for (int i = 0; i < 40; i++) { /* of rules that make no text longer */
        strcat(many, i == 0 ? "" : ",");
        strcat(many, "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"a\"}");
        strcat(deep, "{\"type\":\"Sequence\",\"normalizers\":[");
    }
    strcat(many, "]}");
    strcat(deep, "{\"type\":\"NFC\"}");
    for (int i = 0; i < 40; i++) {
        strcat(deep, "]}");
    }
    REFUSE("more than 32", .normalizer = many);
    REFUSE("nested deeper", .normalizer = deep);
}

#define TOKEN(id, content, rest)                                                                   \
    "{\"id\":" id ",\"content\":\"" content "\",\"single_word\":false,\"lstrip\":false,"           \
    "\"rstrip\":false,\"normalized\":false" rest "}"
#define SPECIAL ",\"special\":true"

static void added_tokens(void **state)
{
    (void)state;
    REFUSE("special: expected true or false", .added = TOKEN("3", "<s>", ""));
    REFUSE("id of \"<s>\"", .added = TOKEN("-1", "<s>", SPECIAL));
    REFUSE("id of \"<s>\"", .added = TOKEN("3.0", "<s>", SPECIAL));
    REFUSE("has id 7, expected 3 by its place", .added = TOKEN("7", "<s>", SPECIAL));
    REFUSE("has id 0, expected", .added = TOKEN("0", "<s>", SPECIAL));
    REFUSE("has id 3, expected 1 by its place", .added = TOKEN("3", "b", SPECIAL));
    REFUSE("listed twice", .added = TOKEN("3", "<s>", SPECIAL) "," TOKEN("3", "<s>", SPECIAL));
    REFUSE("id 2 is given to two tokens", .vocab = "\"a\":2,\"b\":1", .merges = "",
           .added = TOKEN("2", "<s>", SPECIAL));
    REFUSE("content", .added = "{}");
    REFUSE("content", .added = "7");
    REFUSE("content", .added = TOKEN("3", "a\\u0000", SPECIAL));
    /* Two that normalise to the same text. */
    REFUSE("both match",
           .normalizer = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\"y\"}",
           .added = "{\"id\":3,\"content\":\"x\",\"single_word\":false,\"lstrip\":false,"
                    "\"rstrip\":false,\"normalized\":true,\"special\":true},"
                    "{\"id\":4,\"content\":\"y\",\"single_word\":false,\"lstrip\":false,"
                    "\"rstrip\":false,\"normalized\":true,\"special\":true}");
    /* A mark that goes before that of a composed character: U+00FA U+032D is U+1E77 U+0301. */
    REFUSE("both match", .normalizer = "{\"type\":\"NFC\"}",
           .added =
               "{\"id\":3,\"content\":\"\\u00fa\\u032d\",\"single_word\":false,\"lstrip\":false,"
               "\"rstrip\":false,\"normalized\":true,\"special\":true},"
               "{\"id\":4,\"content\":\"\\u1e77\\u0301\",\"single_word\":false,\"lstrip\":false,"
               "\"rstrip\":false,\"normalized\":true,\"special\":true}");
    REFUSE("becomes empty",
           .normalizer = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\"\"}",
           .added = "{\"id\":3,\"content\":\"x\",\"single_word\":false,\"lstrip\":false,"
                    "\"rstrip\":false,\"normalized\":true,\"special\":true}");
}

#define TEMPLATE(single, specials)                                                                 \
    "{\"type\":\"TemplateProcessing\",\"single\":[" single                                         \
    "],\"pair\":[],\"special_tokens\":{" specials "}}"
#define BOS         "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}}"
#define BOS_IS(ids) "\"<s>\":{\"id\":\"<s>\",\"ids\":[" ids "],\"tokens\":[\"<s>\"]}"
#define TEXT        "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"

static void templates(void **state)
{
    (void)state;
    REFUSE("which is not a token", .post = TEMPLATE(BOS "," TEXT, BOS_IS("9")));
    REFUSE("special_tokens.<s>", .post = TEMPLATE(BOS "," TEXT, ""));
    REFUSE("id of \"<s>\"", .post = TEMPLATE(BOS "," TEXT, BOS_IS("-1")));
    REFUSE("sequence A once", .post = TEMPLATE(BOS, BOS_IS("0")));
    REFUSE("sequence A once", .post = TEMPLATE(TEXT "," TEXT, BOS_IS("0")));
    REFUSE("sequence A once", .post = TEMPLATE("{\"Sequence\":{\"id\":\"B\",\"type_id\":0}}", ""));
    REFUSE("single", .post = TEMPLATE("7", ""));
    REFUSE("second TemplateProcessing",
           .post = "{\"type\":\"Sequence\",\"processors\":[" TEMPLATE(
               BOS "," TEXT, BOS_IS("0")) "," TEMPLATE(BOS "," TEXT, BOS_IS("0")) "]}");
}

/* What the two regular-expression libraries read differently, or have no table for. */
static void patterns(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "",        "(",         "[",         "a)",     "\\\\w",          "\\\\b",
        "\\\\h",   "\\\\1",     "\\\\p{Lz}", "\\\\pL", "\\\\p{L",        "[[:alpha:]]",
        "[a&&b]",  "[]a]",      "^a",        "a$",     "(?m)a",          "(?i)a",
        "(?<n>a)", "(?(1)a)",   "(*FAIL)",   "a{2}+",  "a{,2}",          "\\\\x{41}",
        "\\\\xff", "\\\\u0041", "\\\\Aa",    "\\\\Qa", "(?i:\\\\p{Lu})", "*a",
        "a\\\\",   "\\\\c",     "(?#x)",     "(?R)",   "\\\\G"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char split[256];
        snprintf(split, sizeof split,
                 "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},\"behavior\":\"Isolated\","
                 "\"invert\":false}",
                 refused[i]);
        REFUSE("pattern", .pre_tokenizer = split);
    }
}

static double seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static void a_pattern_that_explodes_ends(void **state)
{
    (void)state;
    struct dpe_tokenizer *tokenizer = NULL;
    struct dpe_error err = {0};
    struct dpe_tokens tokens = {0};
    static const char *const exploding[] = {"(a+)+[$]", "(a|aa)+[$]", "(?:a*)*b", "(a|a?)+b"};
    /* The text holds what each pattern needs at its end, but out of reach: without it PCRE2 sees at
     * once that nothing can match. */
    static const char text[] =
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-b$";
    for (size_t i = 0; i < sizeof exploding / sizeof exploding[0]; i++) {
        char split[256];
        snprintf(split, sizeof split,
                 "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},\"behavior\":\"Isolated\","
                 "\"invert\":false}",
                 exploding[i]);
        const char *json = build(&(struct parts){.pre_tokenizer = split});
        assert_int_equal(open_bytes(json, strlen(json), &tokenizer, &err), DPE_OK);
        double start = seconds();
        assert_int_equal(
            dpe_tokenizer_encode(tokenizer, text, sizeof text - 1, NULL, &tokens, &err),
            DPE_BAD_DATA);
        assert_non_null(strstr(err.text, "too many steps"));
        assert_int_equal(tokens.n, 0);
        assert_true(seconds() - start < 20.0);
        dpe_tokenizer_close(tokenizer);
    }
    dpe_tokens_free(&tokens);
}

#define REPLACE(by) "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"" by "\"}"
#define TEN         "aaaaaaaaaa"

/* Each rule is harmless alone; three of them in a row would make a thousand bytes of one. */
static void rules_that_multiply_a_text(void **state)
{
    (void)state;
    static const char three[] = "{\"type\":\"Sequence\",\"normalizers\":[" REPLACE(TEN) "," REPLACE(
        TEN) "," REPLACE(TEN) "]}";
    static const char two[] =
        "{\"type\":\"Sequence\",\"normalizers\":[" REPLACE(TEN) "," REPLACE(TEN) "]}";
    static const char decoders[] =
        "{\"type\":\"Sequence\",\"decoders\":[" REPLACE(TEN) "," REPLACE(TEN) "," REPLACE(TEN) "]}";
    REFUSE("normalizer: rule 3 (Replace): with the rules before it a text can become 1000 times",
           .normalizer = three);
    REFUSE("decoder: rule 3 (Replace)", .decoder = decoders);
    struct dpe_tokenizer *tokenizer = NULL;
    struct dpe_error err = {0};
    struct dpe_tokens tokens = {0};
    const char *json = build(&(struct parts){.normalizer = two});
    assert_int_equal(open_bytes(json, strlen(json), &tokenizer, &err), DPE_OK);
    assert_int_equal(dpe_tokenizer_encode(tokenizer, "ab", 2, NULL, &tokens, &err), DPE_OK);
    assert_int_equal(tokens.n, 100);
    dpe_tokens_free(&tokens);
    dpe_tokenizer_close(tokenizer);
}

static dpe_status stop_at(void *user, struct dpe_error *err)
{
    int *left = user;
    return --*left < 0 ? dpe_fail(err, DPE_INCOMPLETE, "asked to stop") : DPE_OK;
}

/* The caller's check runs often in every slow part, and a stopped encoding returns nothing. */
static void encoding_stops_when_asked(void **state)
{
    (void)state;
    static const struct parts kinds[] = {
        {.normalizer = REPLACE("b")}, /* one long word */
        {.normalizer = "{\"type\":\"NFC\"}"},
        {.added = "{\"id\":3,\"content\":\"z\",\"special\":false,\"single_word\":false,"
                  "\"lstrip\":false,\"rstrip\":false,\"normalized\":false}"},
        {.pre_tokenizer = "{\"type\":\"Digits\",\"individual_digits\":true}"},
        {.pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"ab\"},\"behavior\":"
                          "\"Isolated\",\"invert\":false}"},
    };
    const size_t n = (size_t)8 << 20;
    char *text = malloc(n);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) {
        text[i] = "ab"[i % 2];
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct dpe_tokenizer *tokenizer = NULL;
        struct dpe_error err = {0};
        struct dpe_tokens tokens = {0};
        const char *json = build(&kinds[i]);
        assert_int_equal(open_bytes(json, strlen(json), &tokenizer, &err), DPE_OK);
        for (int after = 0; after < 8; after++) {
            int left = after;
            dpe_tokenizer_set_limits(
                tokenizer, &(struct dpe_tokenizer_limits){.poll = stop_at, .user = &left});
            assert_int_equal(dpe_tokenizer_encode(tokenizer, text, n, NULL, &tokens, &err),
                             DPE_INCOMPLETE);
            assert_int_equal(tokens.n, 0);
        }
        dpe_tokenizer_set_limits(tokenizer,
                                 &(struct dpe_tokenizer_limits){.max_memory = n + (1 << 20)});
        assert_int_equal(dpe_tokenizer_encode(tokenizer, text, n, NULL, &tokens, &err),
                         DPE_NO_MEMORY);
        assert_non_null(strstr(err.text, "--max-memory"));
        dpe_tokens_free(&tokens);
        dpe_tokenizer_close(tokenizer);
    }
    free(text);
}

/* An unk_token that does not exist matters only when it is needed, as in the reference. */
static void missing_unk_is_an_error_when_needed(void **state)
{
    (void)state;
    struct dpe_tokenizer *tokenizer = NULL;
    struct dpe_error err = {0};
    struct dpe_tokens tokens = {0};
    const char *json = build(&(struct parts){.model = "\"unk_token\":\"?\","});
    assert_int_equal(open_bytes(json, strlen(json), &tokenizer, &err), DPE_OK);
    assert_int_equal(dpe_tokenizer_encode(tokenizer, "ab", 2, NULL, &tokens, &err), DPE_OK);
    assert_int_equal(dpe_tokenizer_encode(tokenizer, "abc", 3, NULL, &tokens, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "unk_token"));
    dpe_tokens_free(&tokens);
    dpe_tokenizer_close(tokenizer);
}

/* Without an unk_token a character outside the vocabulary has no id, also as the first word. */
static void words_without_ids_are_dropped(void **state)
{
    (void)state;
    struct dpe_tokenizer *tokenizer = NULL;
    struct dpe_error err = {0};
    struct dpe_tokens tokens = {0};
    const char *json = build(&(struct parts){.model = NULL});
    assert_int_equal(open_bytes(json, strlen(json), &tokenizer, &err), DPE_OK);
    assert_int_equal(dpe_tokenizer_encode(tokenizer, "c", 1, NULL, &tokens, &err), DPE_OK);
    assert_int_equal(tokens.n, 0);
    assert_int_equal(dpe_tokenizer_encode(tokenizer, "cab", 3, NULL, &tokens, &err), DPE_OK);
    assert_int_equal(tokens.n, 1);
    assert_int_equal(tokens.ids[0], 2);
    dpe_tokens_free(&tokens);
    dpe_tokenizer_close(tokenizer);
}

static void try_bytes(const char *bytes, size_t n, int *opened)
{
    static const char text[] =
        "the miller's 128 caf\xc3\xa9s <s> \xe2\x96\x81 \xf0\x9f\x98\x80\n\xff";
    const struct dpe_encode_options options = {
        .add_special = true, .special = DPE_SPECIAL_PARSE, .replace_invalid = true};
    struct dpe_tokenizer *tokenizer = NULL;
    struct dpe_error err = {0};
    struct dpe_tokens tokens = {0};
    struct dpe_text back = {0};
    if (open_bytes(bytes, n, &tokenizer, &err) != DPE_OK) {
        return;
    }
    (*opened)++;
    if (dpe_tokenizer_encode(tokenizer, text, sizeof text - 1, &options, &tokens, &err) == DPE_OK) {
        assert_int_equal(dpe_tokenizer_decode(tokenizer, tokens.ids, tokens.n, true, &back, &err),
                         DPE_OK);
    }
    dpe_tokens_free(&tokens);
    dpe_text_free(&back);
    dpe_tokenizer_close(tokenizer);
}

/* One of the golden files, with bytes changed, pieces doubled or cut out: whatever it becomes,
 * opening and using it ends. */
static void damaged_files_never_crash(void **state)
{
    (void)state;
    char *all = NULL;
    size_t n_all = 0;
    struct dpe_rng rng;
    int opened = 0, tried = 0;
    dpe_rng_seed(&rng, 5, 0);
    assert_int_equal(dpe_read_file(DPE_SOURCE_DIR "/tests/golden/tokenizer_shapes.json", 1 << 24,
                                   &all, &n_all, NULL),
                     DPE_OK);
    for (char *at = strstr(all, "\"file\":"); at != NULL; at = strstr(at + 1, "\"file\":")) {
        const char *begin = at + 7, *end = strstr(begin, ",\"encode\":");
        assert_non_null(end);
        size_t n = (size_t)(end - begin);
        char *bytes = malloc(2 * n);
        assert_non_null(bytes);
        for (int i = 0; i < 60; i++, tried++) {
            size_t length = n;
            memcpy(bytes, begin, n);
            for (uint32_t k = dpe_rng_below(&rng, 3); k < 3; k++) {
                size_t from = dpe_rng_below(&rng, (uint32_t)n),
                       to = dpe_rng_below(&rng, (uint32_t)n);
                size_t count = dpe_rng_below(&rng, 12);
                switch (dpe_rng_below(&rng, 4)) {
                case 0:
                    bytes[from] = (char)dpe_rng_u32(&rng);
                    break;
                case 1:
                    bytes[from] = "0123456789{}[]\",:\\-+.ea"[dpe_rng_below(&rng, 24)];
                    break;
                case 2:
                    count = from + count > n || to + count > n ? 0 : count;
                    memmove(bytes + from, bytes + to, count);
                    break;
                default:
                    count = from + count > length ? 0 : count;
                    memmove(bytes + from, bytes + from + count, length - from - count);
                    length -= count;
                    break;
                }
            }
            try_bytes(bytes, length, &opened);
        }
        free(bytes);
    }
    free(all);
    assert_true(tried > 1000);
    print_message("%d of %d damaged files opened\n", opened, tried);
    assert_true(opened > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_base_is_good),
        cmocka_unit_test(files_that_are_not_json),
        cmocka_unit_test(paths_that_are_not_files),
        cmocka_unit_test(ids),
        cmocka_unit_test(merges),
        cmocka_unit_test(model_options),
        cmocka_unit_test(components),
        cmocka_unit_test(too_many_components),
        cmocka_unit_test(added_tokens),
        cmocka_unit_test(templates),
        cmocka_unit_test(patterns),
        cmocka_unit_test(a_pattern_that_explodes_ends),
        cmocka_unit_test(rules_that_multiply_a_text),
        cmocka_unit_test(encoding_stops_when_asked),
        cmocka_unit_test(missing_unk_is_an_error_when_needed),
        cmocka_unit_test(words_without_ids_are_dropped),
        cmocka_unit_test(damaged_files_never_crash),
    };
    return cmocka_run_group_tests_name("tokenizer_hostile", tests, make_folder, remove_folder);
}
