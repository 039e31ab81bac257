/**
 * @file test_folder.h
 * A folder of one test, or of all tests of a program, and files in it. Include after cmocka.h.
 */
#ifndef DPE_TEST_FOLDER_H
#define DPE_TEST_FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

/** Setup and teardown of what needs the folder. */
static inline int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/dpe-test-XXXXXX");
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static inline int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/** A path in the folder, valid until the fourth call from this one. */
static inline const char *in_folder(const char *name)
{
    static char path[4][256];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
    return path[next];
}

/** Write a file of the folder; its path, as in_folder's. */
static inline const char *file_of(const char *name, const void *bytes, size_t n)
{
    const char *path = in_folder(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
    return path;
}

static inline const char *file_with(const char *name, const char *text)
{
    return file_of(name, text, strlen(text));
}

#endif
