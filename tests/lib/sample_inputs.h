/**
 * @file sample_inputs.h
 * The sample corpus and the reference model's tokenizer, opened once for a group of tests:
 * cmocka_run_group_tests(tests, open_inputs, close_inputs). Include after cmocka.h.
 */
#ifndef DPE_SAMPLE_INPUTS_H
#define DPE_SAMPLE_INPUTS_H

#include "data/data.h"
#include "engine/base/base.h"
#include "engine/tokenizer/tokenizer.h"
#include "eval/task/task.h"

static struct dpe_corpus *corpus;
static struct dpe_tokenizer *tokenizer;

static inline int open_inputs(void **state)
{
    (void)state;
    struct dpe_error err = {0};
    if (dpe_corpus_open(DPE_SOURCE_DIR "/data/sample", &corpus, &err) != DPE_OK ||
        dpe_tokenizer_open(DPE_SOURCE_DIR "/data/reference", &tokenizer, &err) != DPE_OK) {
        print_error("%s\n", err.text);
        return -1;
    }
    return 0;
}

static inline int close_inputs(void **state)
{
    (void)state;
    dpe_corpus_close(corpus);
    dpe_tokenizer_close(tokenizer);
    return 0;
}

/** The text of a sample's prompt, without special tokens; freed by the caller. */
static inline char *text_of(const struct dpe_sample *sample)
{
    struct dpe_text text = {0};
    assert_int_equal(
        dpe_tokenizer_decode(tokenizer, sample->prompt.ids, sample->prompt.n, true, &text, NULL),
        DPE_OK);
    return text.bytes;
}

#endif
