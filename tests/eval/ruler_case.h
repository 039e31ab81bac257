/**
 * @file ruler_case.h
 * What tests of RULER's generator share: question files of our own in the test's folder, options
 * for them, and samples. cmocka_run_group_tests(tests, open_ruler_inputs, close_ruler_inputs).
 * Include after cmocka.h.
 */
#ifndef DPE_RULER_CASE_H
#define DPE_RULER_CASE_H

#include "eval/ruler/ruler.h"
#include "tests/lib/sample_inputs.h"
#include "tests/lib/text_folder.h"

static char squad[256], hotpot[256];

/** Questions of our own: document d gives the number of the d-th town. */
static inline void write_questions(void)
{
    enum { DOCUMENTS = 800, ARTICLE = 20 };
    snprintf(squad, sizeof squad, "%s/squad.json", folder);
    snprintf(hotpot, sizeof hotpot, "%s/hotpot.json", folder);
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

static inline int open_ruler_inputs(void **state)
{
    if (open_inputs(state) != 0 || make_folder(state) != 0) {
        return -1;
    }
    write_questions();
    return 0;
}

static inline int close_ruler_inputs(void **state)
{
    close_inputs(state);
    return remove_folder(state);
}

/** All inputs there are, a seed, and this longest length. */
static inline struct dpe_ruler_options usual(int64_t length)
{
    return (struct dpe_ruler_options){.tokenizer = tokenizer,
                                      .corpus = corpus,
                                      .squad = squad,
                                      .hotpotqa = hotpot,
                                      .seed = 5,
                                      .max_length = length};
}

static inline struct dpe_ruler *open_ruler(const struct dpe_ruler_options *options)
{
    struct dpe_ruler *ruler = NULL;
    struct dpe_error err = {0};
    if (dpe_ruler_open(options, &ruler, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    return ruler;
}

/** The task of this name. */
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

/** A sample and its text. */
struct made {
    struct dpe_sample sample;
    struct dpe_text text;
};

static inline void make(const struct dpe_ruler *ruler, const struct dpe_ruler_kind *task,
                        int64_t length, int64_t index, struct made *made)
{
    struct dpe_error err = {0};
    *made = (struct made){0};
    if (dpe_ruler_sample(ruler, task, length, index, &made->sample, &made->text, &err) != DPE_OK) {
        fail_msg("%s at %lld: %s", task->name, (long long)length, err.text);
    }
}

static inline void unmake(struct made *made)
{
    dpe_sample_free(&made->sample);
    dpe_text_free(&made->text);
}

#endif
