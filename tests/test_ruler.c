/* RULER, generated: sizes, what is hidden and asked, seeds, templates, questions, refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ruler.h"
#include "score.h"

static struct dpe_tokenizer *tokenizer;
static struct dpe_corpus *corpus;
static char work[] = "/tmp/dpe_ruler_XXXXXX";
static char squad[256], hotpot[256];

static const char *write_file(const char *name, const char *content)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", work, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(content, file);
    assert_int_equal(fclose(file), 0);
    return path;
}

/* Questions of our own: document d says what number the d-th town has. */
static void write_questions(void)
{
    enum { DOCUMENTS = 800, ARTICLE = 20 };
    snprintf(squad, sizeof squad, "%s/squad.json", work);
    snprintf(hotpot, sizeof hotpot, "%s/hotpot.json", work);
    FILE *file = fopen(squad, "wb");
    fputs("{\"version\": \"v2.0\", \"data\": [", file);
    for (int d = 0; d < DOCUMENTS; d++) {
        if (d % ARTICLE == 0) {
            fprintf(file, "%s{\"title\": \"T%d\", \"paragraphs\": [", d == 0 ? "" : "]}, ", d);
        }
        fprintf(file,
                "%s{\"qas\": [{\"question\": \"How many people live in town %d?\", \"id\": \"%d\", "
                "\"answers\": [{\"text\": \"people%dx\", \"answer_start\": 3}], \"is_impossible\": "
                "false}, {\"question\": \"Why?\", \"answers\": [], \"is_impossible\": true}], "
                "\"context\": \" In town %d there are people%dx, and they like it there.\\n\"}",
                d % ARTICLE == 0 ? "" : ", ", d, d, d, d, d);
    }
    fputs("]}]}", file);
    assert_int_equal(fclose(file), 0);
    file = fopen(hotpot, "wb");
    fputs("[", file);
    for (int q = 0; q < 800; q++) {
        fprintf(
            file,
            "%s{\"question\": \"Who wrote book %d?\", \"answer\": \"writer%dx\", \"context\": [",
            q == 0 ? "" : ", ", q, q);
        for (int d = 0; d < 4; d++) {
            fprintf(file, "%s[\"Book %d\", [\"It was written\", \" by writer%dx.\"]]",
                    d == 0 ? "" : ", ", (q + d) % 800, (q + d) % 800);
        }
        fputs("]}", file);
    }
    fputs("]", file);
    assert_int_equal(fclose(file), 0);
}

static int open_inputs(void **state)
{
    (void)state;
    struct dpe_error err = {0};
    if (mkdtemp(work) == NULL ||
        dpe_tokenizer_open(DPE_SOURCE_DIR "/data/reference", &tokenizer, &err) != DPE_OK ||
        dpe_corpus_open(DPE_SOURCE_DIR "/data/sample", NULL, &corpus, &err) != DPE_OK) {
        print_error("%s\n", err.text);
        return -1;
    }
    write_questions();
    return 0;
}

static int close_inputs(void **state)
{
    (void)state;
    dpe_corpus_close(corpus);
    dpe_tokenizer_close(tokenizer);
    unlink(squad);
    unlink(hotpot);
    unlink(write_file("x", ""));
    return rmdir(work);
}

static struct dpe_ruler_options usual(int64_t length)
{
    return (struct dpe_ruler_options){.tokenizer = tokenizer,
                                      .corpus = corpus,
                                      .squad = squad,
                                      .hotpotqa = hotpot,
                                      .seed = 5,
                                      .max_length = length};
}

static struct dpe_ruler *open_ruler(const struct dpe_ruler_options *options)
{
    struct dpe_ruler *ruler = NULL;
    struct dpe_error err = {0};
    if (dpe_ruler_open(options, &ruler, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    return ruler;
}

static const struct dpe_ruler_kind *kind(const char *name)
{
    for (size_t i = 0; dpe_ruler_kind(i) != NULL; i++) {
        if (strcmp(dpe_ruler_kind(i)->name, name) == 0) {
            return dpe_ruler_kind(i);
        }
    }
    fail_msg("no task %s", name);
    return NULL;
}

/* A sample and its text. */
struct made {
    struct dpe_sample sample;
    struct dpe_text text;
};

static void make(const struct dpe_ruler *ruler, const struct dpe_ruler_kind *task, int64_t length,
                 int64_t index, struct made *made)
{
    struct dpe_error err = {0};
    *made = (struct made){0};
    if (dpe_ruler_sample(ruler, task, length, index, &made->sample, &made->text, &err) != DPE_OK) {
        fail_msg("%s at %lld: %s", task->name, (long long)length, err.text);
    }
}

static void unmake(struct made *made)
{
    dpe_sample_free(&made->sample);
    dpe_text_free(&made->text);
}

static size_t count(const char *text, const char *word)
{
    size_t n = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        n++;
    }
    return n;
}

/* --------------------------------------------------------------------------------------- sizes */

/* What the file's tokenizer makes of the finished text, and nothing else. */
static void check_tokens(const struct dpe_tokenizer *by, const struct made *made)
{
    const struct dpe_encode_options options = {.add_special = true};
    struct dpe_tokens tokens = {0};
    struct dpe_error err = {0};
    assert_int_equal(
        dpe_tokenizer_encode(by, made->text.bytes, made->text.n, &options, &tokens, &err), DPE_OK);
    assert_int_equal(tokens.n, made->sample.prompt.n);
    assert_memory_equal(tokens.ids, made->sample.prompt.ids, tokens.n * sizeof *tokens.ids);
    dpe_tokens_free(&tokens);
}

/* No prompt is over its length, and none leaves more room than a unit: 100 tokens, a twentieth. */
static void check_sizes(const struct dpe_tokenizer *by, const int64_t *lengths, size_t n)
{
    struct dpe_ruler_options options = usual(lengths[n - 1]);
    options.tokenizer = by;
    struct dpe_ruler *ruler = open_ruler(&options);
    for (size_t l = 0; l < n; l++) {
        for (size_t i = 0; dpe_ruler_kind(i) != NULL; i++) {
            for (int64_t s = 0; s < 3; s++) {
                struct made made;
                make(ruler, dpe_ruler_kind(i), lengths[l], s, &made);
                check_tokens(by, &made);
                int64_t length = (int64_t)made.sample.prompt.n + made.sample.max_new;
                int64_t slack = 100 + lengths[l] / 20;
                if (length > lengths[l] || length < lengths[l] - slack) {
                    fail_msg("%s at %lld: %lld tokens", dpe_ruler_kind(i)->name,
                             (long long)lengths[l], (long long)length);
                }
                assert_true(made.sample.max_new <= dpe_ruler_kind(i)->room);
                assert_true(lengths[l] < 4096 || made.sample.max_new == dpe_ruler_kind(i)->room);
                unmake(&made);
            }
        }
    }
    dpe_ruler_close(ruler);
}

static void prompts_fill_their_length(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1200, 1500, 5000, 9001};
    check_sizes(tokenizer, lengths, 4);
}

static void prompts_of_real_vocabularies(void **state)
{
    (void)state;
    static const char *const names[] = {"llama3", "qwen3"};
    const char *shared = getenv("DPE_SHARED_DATA");
    char path[512];
    for (int i = 0; i < 2; i++) {
        struct dpe_tokenizer *other = NULL;
        snprintf(path, sizeof path, "%s/tokenizers/%s/tokenizer.json",
                 shared != NULL ? shared : DPE_SOURCE_DIR "/../shared/data", names[i]);
        if (access(path, R_OK) != 0) {
            skip();
        }
        static const int64_t lengths[] = {1000, 5000};
        assert_int_equal(dpe_tokenizer_open(path, &other, NULL), DPE_OK);
        check_sizes(other, lengths, 2);
        dpe_tokenizer_close(other);
    }
}

/* ------------------------------------------------------------------------------------- content */

static void needles_are_hidden_once(void **state)
{
    (void)state;
    static const struct {
        const char *task;
        size_t references, needles;
    } cases[] = {{"niah_single_1", 1, 1},   {"niah_single_2", 1, 1},   {"niah_single_3", 1, 1},
                 {"niah_multikey_1", 1, 4}, {"niah_multikey_2", 1, 0}, {"niah_multikey_3", 1, 0},
                 {"niah_multivalue", 4, 4}, {"niah_multiquery", 4, 4}};
    struct dpe_ruler_options options = usual(2048);
    struct dpe_ruler *ruler = open_ruler(&options);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        size_t early = 0, late = 0;
        bool uuid = strstr(cases[c].task, "_3") != NULL;
        for (int64_t s = 0; s < 20; s++) {
            struct made made;
            make(ruler, kind(cases[c].task), 2048, s, &made);
            assert_int_equal(made.sample.n_references, cases[c].references);
            for (size_t r = 0; r < made.sample.n_references; r++) {
                const char *value = made.sample.references[r];
                assert_int_equal(strlen(value), uuid ? 36 : 7);
                assert_int_equal(count(made.text.bytes, value), 1);
                size_t at = (size_t)(strstr(made.text.bytes, value) - made.text.bytes);
                early += at < made.text.n / 2;
                late += at >= made.text.n / 2;
            }
            size_t needles =
                count(made.text.bytes, uuid ? "The secret code of" : "The secret number of");
            size_t asked = cases[c].references > 1 ? 0 : 1; /* the answer begins as a needle does */
            assert_true(cases[c].needles > 0 ? needles == cases[c].needles + asked : needles > 20);
            unmake(&made);
        }
        /* Not always in the same place. */
        assert_true(early > 0 && late > 0);
    }
    dpe_ruler_close(ruler);
}

/* Follow the assignments as a reader would. */
static void variables_make_a_chain(void **state)
{
    (void)state;
    struct dpe_ruler_options options = usual(2048);
    struct dpe_ruler *ruler = open_ruler(&options);
    for (int64_t s = 0; s < 10; s++) {
        struct made made;
        char held[64][8], names[64][8];
        size_t n = 0, with = 0;
        make(ruler, kind("vt"), 2048, s, &made);
        for (char *at = strstr(made.text.bytes, "VAR "); at != NULL;
             at = strstr(at + 4, "\nVAR ")) {
            char name[8], right[8], from[8] = "";
            at += *at == '\n';
            assert_int_equal(sscanf(at, "VAR %7s = %7s %7s", name, right, from) >= 2, true);
            if (strcmp(right, "VAR") == 0) {
                size_t i = 0;
                while (i < n && strcmp(names[i], from) != 0) {
                    i++;
                }
                assert_true(i < n); /* set before it is used */
                memcpy(right, held[i], sizeof right);
            }
            snprintf(names[n], sizeof names[n], "%s", name);
            snprintf(held[n++], sizeof held[0], "%s", right);
        }
        const char *asked = strrchr(made.text.bytes, ':') - 5;
        for (size_t i = 0; i < n; i++) {
            if (strncmp(held[i], asked, 5) == 0) {
                assert_string_equal(names[i], made.sample.references[with]);
                with++;
            }
        }
        assert_int_equal(with, 5);
        assert_int_equal(made.sample.n_references, 5);
        assert_int_equal(n, 10); /* and the example's */
        unmake(&made);
    }
    dpe_ruler_close(ruler);
}

/* How often " word" stands between two spaces or before the end of the list. */
static size_t times(const char *text, const char *word)
{
    char spaced[64];
    size_t n = 0, size = (size_t)snprintf(spaced, sizeof spaced, " %s", word);
    for (const char *at = strstr(text, spaced); at != NULL; at = strstr(at + 1, spaced)) {
        n += at[size] == ' ' || at[size] == '\n';
    }
    return n;
}

static void common_words_are_common(void **state)
{
    (void)state;
    static const int64_t lengths[] = {2048, 8192};
    static const size_t common[] = {6, 30}, rest[] = {1, 3};
    struct dpe_ruler_options options = usual(8192);
    struct dpe_ruler *ruler = open_ruler(&options);
    for (int l = 0; l < 2; l++) {
        struct made made;
        make(ruler, kind("cwe"), lengths[l], 4, &made);
        /* The list proper: the second one. */
        const char *list = strstr(strstr(made.text.bytes, "1. ") + 3, "\n1. ");
        assert_non_null(list);
        assert_int_equal(made.sample.n_references, 10);
        for (size_t r = 0; r < 10; r++) {
            assert_int_equal(times(list, made.sample.references[r]), common[l]);
        }
        /* All others as often as each other. */
        size_t others = 0;
        for (const char *at = strstr(list, ". "); at != NULL; at = strstr(at + 1, ". ")) {
            char word[32];
            if (sscanf(at, ". %31[a-z]", word) == 1 && times(list, word) != common[l]) {
                assert_int_equal(times(list, word), rest[l]);
                others++;
            }
        }
        assert_true(others > 50);
        unmake(&made);
    }
    dpe_ruler_close(ruler);
}

static void frequent_codes_are_ranked(void **state)
{
    (void)state;
    struct dpe_ruler_options options = usual(4096);
    struct dpe_ruler *ruler = open_ruler(&options);
    static const int64_t lengths[] = {300, 512, 4096};
    for (int l = 0; l < 3; l++) {
        struct made made;
        make(ruler, kind("fwe"), lengths[l], 1, &made);
        size_t dots = count(made.text.bytes, "...");
        assert_int_equal(made.sample.n_references, 3);
        size_t before = dots;
        for (size_t r = 0; r < 3; r++) {
            size_t n = count(made.text.bytes, made.sample.references[r]);
            assert_true(n < before);
            before = n;
        }
        /* No other code word comes up as often as the third. */
        for (const char *at = strchr(made.text.bytes, '\n') + 1; *at != '\n'; at++) {
            char word[8];
            if (sscanf(at, "%7[a-z]", word) == 1 && strlen(word) == 6) {
                bool answer = false;
                for (size_t r = 0; r < 3; r++) {
                    answer = answer || strcmp(word, made.sample.references[r]) == 0;
                }
                assert_true(answer || count(made.text.bytes, word) < before);
                at += 5;
            }
        }
        unmake(&made);
    }
    dpe_ruler_close(ruler);
}

static void questions_have_their_document(void **state)
{
    (void)state;
    struct dpe_ruler_options options = usual(1500);
    struct dpe_ruler *ruler = open_ruler(&options);
    static const char *const tasks[] = {"qa_1", "qa_2"};
    assert_int_equal(ruler->qa[0].n_questions, 800);
    assert_int_equal(ruler->qa[0].n_documents, 800);
    assert_int_equal(ruler->qa[1].n_questions, 800);
    assert_int_equal(ruler->qa[1].n_documents, 800); /* paragraphs that several questions have */
    for (int t = 0; t < 2; t++) {
        size_t slots = 0, seen = 0;
        int64_t length = t == 0 ? 1500 : 800;
        for (int64_t s = 0; s < 20; s++) {
            struct made made;
            make(ruler, kind(tasks[t]), length, s, &made);
            assert_int_equal(made.sample.n_references, 1);
            const char *at = strstr(made.text.bytes, made.sample.references[0]);
            assert_non_null(at);
            assert_int_equal(count(made.text.bytes, made.sample.references[0]), 1);
            /* The question is about that document's number. */
            int asked = -1;
            const char *question = strstr(made.text.bytes, "Question: ");
            assert_int_equal(sscanf(question,
                                    t == 0 ? "Question: How many people live in town %d?"
                                           : "Question: Who wrote book %d?",
                                    &asked),
                             1);
            assert_int_equal(atoi(made.sample.references[0] + 6), asked);
            /* Documents are numbered 1, 2, … without a gap. */
            char number[32];
            size_t documents = count(made.text.bytes, "Document ");
            snprintf(number, sizeof number, "Document %zu:\n", documents);
            assert_non_null(strstr(made.text.bytes, number));
            size_t third = 3 * (size_t)(at - made.text.bytes) / made.text.n;
            slots |= (size_t)1 << third;
            seen += documents;
            unmake(&made);
        }
        assert_int_equal(slots, 7); /* in front, in the middle, at the end */
        assert_true(seen > 20 * 10);
    }
    dpe_ruler_close(ruler);
}

/* --------------------------------------------------------------------------------------- seeds */

static void samples_depend_on_seed_and_index_alone(void **state)
{
    (void)state;
    struct dpe_ruler_options options = usual(1200);
    struct dpe_ruler *ruler = open_ruler(&options);
    options.max_length = 4096; /* more was prepared: the same samples */
    struct dpe_ruler *larger = open_ruler(&options);
    options.seed = 6;
    struct dpe_ruler *other = open_ruler(&options);
    for (size_t i = 0; dpe_ruler_kind(i) != NULL; i++) {
        struct made a, b, c, d;
        make(ruler, dpe_ruler_kind(i), 1200, 3, &a);
        make(larger, dpe_ruler_kind(i), 1200, 2, &c);
        make(larger, dpe_ruler_kind(i), 1200, 3, &b);
        make(other, dpe_ruler_kind(i), 1200, 3, &d);
        assert_string_equal(a.text.bytes, b.text.bytes);
        assert_string_not_equal(a.text.bytes, c.text.bytes);
        assert_string_not_equal(a.text.bytes, d.text.bytes);
        unmake(&a);
        unmake(&b);
        unmake(&c);
        unmake(&d);
    }
    dpe_ruler_close(ruler);
    dpe_ruler_close(larger);
    dpe_ruler_close(other);
}

static void chat_templates_wrap_the_question(void **state)
{
    (void)state;
    struct dpe_ruler_options options = usual(900);
    options.chat_template = write_file("x", "<u>{prompt}</u><a>");
    struct dpe_ruler *ruler = open_ruler(&options);
    struct made made;
    make(ruler, kind("vt"), 900, 0, &made);
    assert_memory_equal(made.text.bytes, "<u>", 3);
    const char *after = strstr(made.text.bytes, "</u><a>");
    assert_non_null(after);
    assert_memory_equal(after + 7, " Answer: These 5", 16);
    unmake(&made);
    dpe_ruler_close(ruler);
    static const char *const shipped[] = {"llama3", "mistral", "qwen2"};
    for (int i = 0; i < 3; i++) {
        char path[256], *before = NULL, *behind = NULL;
        snprintf(path, sizeof path, DPE_SOURCE_DIR "/eval/templates/chat_%s.txt", shipped[i]);
        assert_int_equal(dpe_chat_read(path, &before, &behind, NULL), DPE_OK);
        assert_true(strlen(before) > 5 && strlen(behind) > 5);
        free(before);
        free(behind);
    }
}

/* ------------------------------------------------------------------------------------ refusals */

static void refused(const struct dpe_ruler_options *options, dpe_status status, const char *words)
{
    struct dpe_ruler *ruler = NULL;
    struct dpe_error err = {0};
    dpe_status found = dpe_ruler_open(options, &ruler, &err);
    if (found != status || strstr(err.text, words) == NULL) {
        fail_msg("expected %d and '%s', found %d and '%s'", status, words, found, err.text);
    }
}

static void refused_sample(const struct dpe_ruler_options *options, const char *task,
                           int64_t length, dpe_status status, const char *words)
{
    struct dpe_ruler *ruler = open_ruler(options);
    struct dpe_sample sample = {0};
    struct dpe_error err = {0};
    dpe_status found = dpe_ruler_sample(ruler, kind(task), length, 0, &sample, NULL, &err);
    if (found != status || strstr(err.text, words) == NULL) {
        fail_msg("expected %d and '%s', found %d and '%s'", status, words, found, err.text);
    }
    dpe_ruler_close(ruler);
}

static void templates_are_checked(void **state)
{
    (void)state;
    struct dpe_ruler_options options = usual(1024);
    options.template_file = write_file("x", "{\"niah_needle\": 3}");
    refused(&options, DPE_BAD_DATA, "x: \"number_one\": expected a string, found nothing");
    options.template_file = write_file("x", "{\"needle\": \"\"}");
    refused(&options, DPE_BAD_DATA, "x: \"needle\" is no field of this template");
    options.template_file = write_file("x", "[1]");
    refused(&options, DPE_BAD_DATA, "x:");
    /* The shipped one with a placeholder taken out, and with one that means nothing. */
    char *bytes = NULL;
    size_t n = 0;
    assert_int_equal(
        dpe_read_file(DPE_SOURCE_DIR "/eval/templates/ruler.json", 1 << 20, &bytes, &n, NULL),
        DPE_OK);
    char *value = strstr(bytes, "{value}");
    memcpy(value, "7654321", 7);
    options.template_file = write_file("x", bytes);
    refused(&options, DPE_BAD_DATA, "x: \"niah_needle\": placeholder {value} is missing");
    memcpy(value, "{valeu}", 7);
    options.template_file = write_file("x", bytes);
    refused(&options, DPE_BAD_DATA, "placeholder {valeu} has no meaning there");
    free(bytes);
    options.template_file = NULL;
    options.chat_template = write_file("x", "no place for it");
    refused(&options, DPE_BAD_DATA, "x: expected {prompt} once");
}

static void lengths_and_files_are_checked(void **state)
{
    (void)state;
    struct dpe_ruler_options options = usual(1024);
    options.max_length = (int64_t)1 << 30;
    refused(&options, DPE_USAGE, "expected a length in");
    options = usual(1024);
    refused_sample(&options, "niah_single_1", 40, DPE_USAGE, "too short for niah_single_1");
    refused_sample(&options, "cwe", 200, DPE_USAGE, "its smallest sample needs");
    options.squad = options.hotpotqa = NULL;
    refused_sample(&options, "qa_1", 1024, DPE_USAGE, "--squad FILE");
    options.corpus = NULL;
    refused_sample(&options, "niah_single_2", 1024, DPE_USAGE, "give --corpus");
    options = usual(65536);
    refused_sample(&options, "qa_1", 65536, DPE_BAD_DATA,
                   "too few documents for a length of 65536");
}

/* Where it stands in the book, though sentences are what is tokenized. */
static void special_tokens_in_texts_are_refused(void **state)
{
    (void)state;
    struct dpe_corpus *own = NULL;
    struct dpe_ruler_options options = usual(256);
    const char *path = write_file("x", "He came.  Then\n\nhe said <|eos|> and left.\n");
    assert_int_equal(dpe_corpus_open(path, NULL, &own, NULL), DPE_OK);
    options.corpus = own;
    refused(&options, DPE_BAD_DATA, "book x: byte 24: the special token \"<|eos|>\"");
    options.special = DPE_SPECIAL_LITERAL;
    dpe_ruler_close(open_ruler(&options));
    options.chat_template = DPE_SOURCE_DIR "/eval/templates/chat_llama3.txt";
    refused(&options, DPE_USAGE, "leave one of the two");
    dpe_corpus_close(own);
}

static void question_files_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *content, *words;
    } cases[] = {
        {"{\"data\": [{\"paragraphs\": [{\"context\": \"x\", \"qas\": [{\"question\": \"q\", "
         "\"answers\": []}]}]}]}",
         "an answerable question without \"answers\""},
        {"{\"data\": [{\"paragraphs\": [{\"qas\": []}]}]}", "a paragraph without \"context\""},
        {"{\"data\": [{\"paragraphs\": [{\"context\": \"x\", \"qas\": [{\"answers\": [{\"text\": "
         "\"a\"}]}]}]}]}",
         "a question without \"question\""},
        {"{\"data\": [{\"paragraphs\": [{\"context\": \"x\", \"qas\": [{\"question\": \"q\", "
         "\"answers\": [{\"txt\": \"a\"}]}]}]}]}",
         "an answer without \"text\""},
        {"{\"data\": [{\"paragraphs\": [{\"context\": 3", "expected a string"},
        {"{\"data\": []}", "expected questions with answers, found none"},
        {"{\"data\": [", "byte 11"},
        {"", "expected '{'"},
        {"{\"data\": [\"\xff\"]}", "expected UTF-8"},
    };
    struct dpe_ruler_options options = usual(1024);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        options.squad = write_file("x", cases[i].content);
        refused(&options, DPE_BAD_DATA, cases[i].words);
    }
    options = usual(1024);
    static const struct {
        const char *content, *words;
    } others[] = {
        {"[{\"question\": \"q\", \"context\": [[\"t\", [\"s\"]]]}]", "without one \"answer\""},
        {"[{\"question\": \"q\", \"answer\": \"a\", \"context\": []}]", "without \"context\""},
        {"[{\"answer\": \"a\", \"context\": [[\"t\", [\"s\"]]]}]", "without \"question\""},
        {"[{\"question\": \"q\", \"answer\": \"a\", \"context\": [[\"t\"]]}]",
         "a paragraph without sentences"},
        {"[{\"question\": \"q\", \"answer\": \"a\", \"context\": [[]]}]",
         "a paragraph without a title"},
        {"[{\"question\": \"q\", \"answer\": \"a\", \"context\": [[\"t\", [\"s\"], 3]]}]",
         "of two parts"},
        {"[]", "found none"},
        {"{\"data\": []}", "expected '['"},
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        options.hotpotqa = write_file("x", others[i].content);
        refused(&options, DPE_BAD_DATA, others[i].words);
    }
    options.hotpotqa = "/nonexistent/hotpot.json";
    refused(&options, DPE_NO_INPUT, "hotpot.json");
}

static void a_vocabulary_must_have_digits(void **state)
{
    (void)state;
    /* Letters and the space, an unknown token for the rest. */
    char json[4096];
    size_t at =
        (size_t)snprintf(json, sizeof json,
                         "{\"model\": {\"type\": \"BPE\", \"unk_token\": \"?\", \"merges\": "
                         "[], \"vocab\": {\"?\": 0, \" \": 1");
    for (int i = 0; i < 10; i++) {
        if (i != 7) {
            at += (size_t)snprintf(json + at, sizeof json - at, ", \"%d\": %d", i, 2 + i);
        }
    }
    snprintf(json + at, sizeof json - at, "}}}");
    struct dpe_tokenizer *small = NULL;
    struct dpe_error err = {0};
    if (dpe_tokenizer_open(write_file("x", json), &small, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    struct dpe_ruler_options options = usual(1024);
    options.tokenizer = small;
    refused(&options, DPE_BAD_DATA, "expected a vocabulary that can write digits");
    dpe_tokenizer_close(small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_fill_their_length),
        cmocka_unit_test(prompts_of_real_vocabularies),
        cmocka_unit_test(needles_are_hidden_once),
        cmocka_unit_test(variables_make_a_chain),
        cmocka_unit_test(common_words_are_common),
        cmocka_unit_test(frequent_codes_are_ranked),
        cmocka_unit_test(questions_have_their_document),
        cmocka_unit_test(samples_depend_on_seed_and_index_alone),
        cmocka_unit_test(chat_templates_wrap_the_question),
        cmocka_unit_test(templates_are_checked),
        cmocka_unit_test(lengths_and_files_are_checked),
        cmocka_unit_test(special_tokens_in_texts_are_refused),
        cmocka_unit_test(question_files_are_checked),
        cmocka_unit_test(a_vocabulary_must_have_digits),
    };
    return cmocka_run_group_tests(tests, open_inputs, close_inputs);
}
