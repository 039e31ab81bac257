/* Predictions and official data as JSON lines: refused, or scores in range and prompts that fit. */
#include <stdio.h>
#include <string.h>

#include "eval/suite/suite_parts.h"
#include "tests/fuzz/fuzz.h"

static void score(const char *path, const struct dpe_score_task *task, bool loose)
{
    if (loose && task->other_rule == NULL) {
        return;
    }
    const struct dpe_score_options options = {.task = task,
                                              .rule = loose ? task->other_rule : task->rule,
                                              .skip_bad = true,
                                              .threads = 1};
    struct dpe_score_sums sums = {0};
    struct dpe_error err = {0};
    if (dpe_score_file(path, &options, &sums, &err) != DPE_OK) {
        fuzz_expect(err.text[0] != '\0', "an error has a text");
        return;
    }
    fuzz_expect(sums.scored > 0 && sums.sum >= 0.0 && sums.sum <= (double)sums.scored,
                "scores lie in 0 ... 1");
    fuzz_expect(sums.empty <= sums.scored && sums.at_least_half <= sums.scored, "counts agree");
}

static struct dpe_tokenizer *tokenizer;

static void read_samples(const struct dpe_official *official, const struct dpe_official_task *task)
{
    struct dpe_source source = {0};
    struct dpe_error err = {0};
    struct dpe_official_file file = {0};
    if (dpe_official_source(official, task, &source, &file, &err) != DPE_OK) {
        fuzz_expect(err.text[0] != '\0', "an error has a text");
        return;
    }
    for (int64_t i = 0; i < source.n_samples; i++) {
        struct dpe_sample sample = {0};
        if (source.sample(source.state, i, &sample, &err) == DPE_OK) {
            fuzz_expect((int64_t)sample.prompt.n + sample.max_new <= task->length,
                        "a prompt leaves its room");
            fuzz_expect(sample.n_references > 0, "a sample has references");
            dpe_sample_free(&sample);
        }
    }
    dpe_source_close(&source);
}

/* As official data of a task. */
static void read_as(const char *suite, size_t task, const uint8_t *bytes, size_t n)
{
    bool ruler = strcmp(suite, "ruler") == 0;
    const struct dpe_official_task of = {.task = dpe_score_task(suite, task),
                                         .kind = ruler ? dpe_ruler_kind(task) : NULL,
                                         .length = 64,
                                         .room = 16};
    struct dpe_official *official = NULL;
    char name[80], folder[300], beginning[80], words[160];
    const struct dpe_phrase_field fields[] = {{of.task->name, "context", "input option_a"},
                                              {beginning, "", "", ""}};
    snprintf(beginning, sizeof beginning, "%s_answer", of.task->name);
    snprintf(words, sizeof words, "{\"%s\": \"{context} {input} {option_a}\"}", of.task->name);
    snprintf(name, sizeof name, "%s.jsonl", of.task->name);
    fuzz_file(name, bytes, n);
    strcpy(folder, fuzz_folder());
    const struct dpe_suite_options options = {
        .given = {.data = folder, .template_file = fuzz_file("words.json", words, strlen(words))},
        .tokenizer = tokenizer,
        .skip_bad = true};
    fuzz_expect(dpe_official_open(&options, ruler ? NULL : fields, 2, &official, NULL) == DPE_OK,
                "a template opens");
    read_samples(official, &of);
    dpe_official_close(official);
}

/* The first byte chooses a task and what is done with the rest. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const char *const suites[] = {"ruler", "infinitebench", "niah"};
    size_t tasks = 0, wanted = n > 0 ? bytes[0] / 3 : 0;
    if (tokenizer == NULL) {
        fuzz_expect(dpe_tokenizer_open(DPE_SOURCE_DIR "/data/reference", &tokenizer, NULL) ==
                        DPE_OK,
                    "the reference tokenizer opens");
    }
    for (int s = 0; s < 3; s++) {
        for (size_t i = 0; n > 0 && dpe_score_task(suites[s], i) != NULL; i++) {
            if (wanted != tasks++) {
                continue;
            }
            if (bytes[0] % 3 == 2 && s < 2) {
                read_as(suites[s], i, bytes + 1, n - 1);
            } else {
                score(fuzz_file("p.jsonl", bytes + 1, n - 1), dpe_score_task(suites[s], i),
                      bytes[0] % 3 == 1);
            }
        }
    }
    return 0;
}
