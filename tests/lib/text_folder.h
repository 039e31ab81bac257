/**
 * @file text_folder.h
 * Corpora of files of given words (test_folder.h). Include after cmocka.h.
 */
#ifndef DPE_TEXT_FOLDER_H
#define DPE_TEXT_FOLDER_H

#include "data/data.h"
#include "tests/lib/test_folder.h"

/** How often `word` stands in `text`, overlaps counted. */
static inline size_t count(const char *text, const char *word)
{
    size_t n = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        n++;
    }
    return n;
}

/** A corpus of one text; the caller closes it. */
static inline struct dpe_corpus *corpus_with(const char *text)
{
    struct dpe_corpus *texts = NULL;
    struct dpe_error err = {0};
    if (dpe_corpus_open(file_with("tiny.txt", text), &texts, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    return texts;
}

#endif
