/* RULER, generated: sizes, hidden values and questions, seeds, templates, questions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

#include "eval/chat/chat.h"
#include "tests/eval/ruler_case.h"

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
    assert_int_equal(ruler->qa[0].documents.n, 800);
    assert_int_equal(ruler->qa[1].n_questions, 800);
    assert_int_equal(ruler->qa[1].documents.n, 800); /* paragraphs that several questions have */
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

/* A row of the hub's form of either set, with other members around. */
static void put_row(FILE *file, bool hotpot_row, int i)
{
    if (!hotpot_row) {
        fprintf(file,
                "{\"id\": \"%d\", \"title\": \"T%d\", \"context\": \" In town %d there are "
                "people%dx, and they like it there.\\n\", \"question\": \"How many people live in "
                "town %d?\", \"answers\": {\"text\": [\"people%dx\"], \"answer_start\": [3]}}",
                i, i / 20, i, i, i, i);
        return;
    }
    char titles[200] = "";
    char sentences[400] = "";
    for (int d = 0; d < 4; d++) {
        size_t t = strlen(titles), s = strlen(sentences);
        snprintf(titles + t, sizeof titles - t, "%s\"Book %d\"", d > 0 ? ", " : "", (i + d) % 800);
        snprintf(sentences + s, sizeof sentences - s, "%s[\"It was written\", \" by writer%dx.\"]",
                 d > 0 ? ", " : "", (i + d) % 800);
    }
    fprintf(
        file,
        "{\"id\": \"]\", \"question\": \"Who wrote book %d?\", \"answer\": \"writer%dx\", "
        "\"supporting_facts\": {\"title\": [\"x\"]}, \"context\": {\"%s\": [%s], \"%s\": [%s]}}",
        i, i, i % 2 == 0 ? "title" : "sentences", i % 2 == 0 ? titles : sentences,
        i % 2 == 0 ? "sentences" : "title", i % 2 == 0 ? sentences : titles);
}

/* The hub's rows, one a line or in a list, are the same questions. */
static void rows_of_the_hub_are_the_same_questions(void **state)
{
    (void)state;
    struct dpe_ruler_options options = usual(1000);
    struct dpe_ruler *ruler = open_ruler(&options);
    for (int list = 0; list < 2; list++) {
        char paths[2][256];
        for (int t = 0; t < 2; t++) {
            snprintf(paths[t], sizeof paths[t], "%s", in_folder(t == 0 ? "rows.json" : "rows2"));
            FILE *file = fopen(paths[t], "wb");
            assert_non_null(file);
            for (int i = 0; i < 800; i++) {
                fputs(list == 0 ? "" : i == 0 ? "[" : ",", file);
                put_row(file, t == 1, i);
                fputs("\n", file);
            }
            fputs(list == 0 ? "" : "]", file);
            assert_int_equal(fclose(file), 0);
        }
        options.squad = paths[0];
        options.hotpotqa = paths[1];
        struct dpe_ruler *hub = open_ruler(&options);
        for (int64_t s = 0; s < 6; s++) {
            struct made a, b;
            const char *task = s % 2 == 0 ? "qa_1" : "qa_2";
            make(ruler, kind(task), 1000, s, &a);
            make(hub, kind(task), 1000, s, &b);
            assert_string_equal(a.text.bytes, b.text.bytes);
            assert_string_equal(a.sample.references[0], b.sample.references[0]);
            unmake(&a);
            unmake(&b);
        }
        dpe_ruler_close(hub);
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
    options.chat_template = file_with("x", "<u>{prompt}</u><a>");
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
        char path[256];
        struct dpe_chat_frame frame;
        snprintf(path, sizeof path, DPE_SOURCE_DIR "/eval/templates/chat_%s.txt", shipped[i]);
        assert_int_equal(dpe_chat_wrap(path, "", &frame, NULL), DPE_OK);
        assert_true(strlen(frame.before) > 5 && strlen(frame.after) > 5);
        dpe_chat_frame_free(&frame);
    }
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
        cmocka_unit_test(rows_of_the_hub_are_the_same_questions),
        cmocka_unit_test(samples_depend_on_seed_and_index_alone),
        cmocka_unit_test(chat_templates_wrap_the_question),
    };
    return cmocka_run_group_tests(tests, open_ruler_inputs, close_ruler_inputs);
}
