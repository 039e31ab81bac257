/**
 * @file text_folder.h
 * A folder of one test, files of given words in it, and corpora of such files. Include after
 * cmocka.h.
 */
#ifndef DPE_TEXT_FOLDER_H
#define DPE_TEXT_FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/data.h"

/** How often `word` stands in `text`, overlaps counted. */
static inline size_t count(const char *text, const char *word)
{
    size_t n = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        n++;
    }
    return n;
}

static char folder[64];

/** Write a file of the folder; its path, valid until the next call. */
static inline const char *file_with(const char *name, const char *text)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    return path;
}

/** Setup and teardown of a test that needs the folder. */
static inline int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/dpe-text-XXXXXX");
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static inline int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/** A corpus of one text; the caller closes it. */
static inline struct dpe_corpus *corpus_with(const char *text)
{
    struct dpe_corpus *texts = NULL;
    struct dpe_error err = {0};
    if (dpe_corpus_open(file_with("tiny.txt", text), NULL, &texts, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    return texts;
}

#endif
