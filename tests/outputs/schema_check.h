/**
 * @file schema_check.h
 * Holds a table against outputs/SCHEMA.md: a path that is written but not listed, or marked
 * "always" and not written, is a problem. Uses h5dump (hdf5-tools). DPE_SOURCE_DIR must be defined.
 */
#ifndef DPE_SCHEMA_CHECK_H
#define DPE_SCHEMA_CHECK_H

#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEMA_MAX_PATHS = 1024, SCHEMA_PATH = 160 };

struct schema_path {
    char path[SCHEMA_PATH];
    bool group, always, seen;
};

struct schema_paths {
    size_t n;
    struct schema_path paths[SCHEMA_MAX_PATHS];
};

static inline struct schema_path *schema_add(struct schema_paths *list, const char *path, size_t n)
{
    if (list->n == SCHEMA_MAX_PATHS || n >= SCHEMA_PATH) {
        fprintf(stderr, "schema_check: too many paths, or one too long: %.*s\n", (int)n, path);
        abort();
    }
    struct schema_path *added = &list->paths[list->n++];
    *added = (struct schema_path){0};
    memcpy(added->path, path, n);
    return added;
}

/** Rows of the document's tables: | `path` | type | axes | units | when | what | */
static inline void schema_read(struct schema_paths *listed)
{
    FILE *file = fopen(DPE_SOURCE_DIR "/outputs/SCHEMA.md", "r");
    char line[4096];
    listed->n = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *end = strncmp(line, "| `/", 4) == 0 ? strchr(line + 3, '`') : NULL;
        if (end != NULL) {
            struct schema_path *path = schema_add(listed, line + 3, (size_t)(end - line - 3));
            path->always = strstr(end, "| always |") != NULL;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

/** Attributes that any dataset may have. */
static inline bool schema_common(const char *attribute)
{
    static const char *const names[] = {"long_name",   "units",          "_FillValue",
                                        "flag_values", "flag_meanings",  "CLASS",
                                        "NAME",        "DIMENSION_LIST", "REFERENCE_LIST"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(attribute, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/** What is in the file; attributes as OBJECT@NAME, the common ones of datasets left out. */
static inline void schema_dump(const char *table, struct schema_paths *written)
{
    char command[1024], line[1024], dataset[SCHEMA_PATH + 2] = "";
    snprintf(command, sizeof command, "h5dump -n 1 '%s'", table);
    FILE *pipe = popen(command, "r");
    written->n = 0;
    while (pipe != NULL && fgets(line, sizeof line, pipe) != NULL) {
        char kind[16], path[SCHEMA_PATH];
        if (sscanf(line, " %15s %159s", kind, path) != 2 || path[0] != '/') {
            continue;
        }
        char *name = strrchr(path, '/') + 1;
        if (strcmp(kind, "dataset") == 0) {
            snprintf(dataset, sizeof dataset, "%s/", path);
        }
        bool of_dataset = strncmp(path, dataset, (size_t)(name - path)) == 0 &&
                          dataset[name - path] == '\0' && dataset[0] != '\0';
        if (strcmp(kind, "attribute") != 0) {
            schema_add(written, path, strlen(path))->group = strcmp(kind, "group") == 0;
        } else if (!of_dataset || !schema_common(name)) {
            char attribute[SCHEMA_PATH + 2];
            int folder = (int)(name - path) - 1;
            int n = snprintf(attribute, sizeof attribute, "%.*s@%s", folder < 1 ? 1 : folder, path,
                             name);
            schema_add(written, attribute, (size_t)n);
        }
    }
    if (pipe != NULL) {
        pclose(pipe);
    }
}

/** Number of problems, each printed on stderr. */
static inline int schema_check(const char *table)
{
    static struct schema_paths listed, written;
    int problems = 0;
    schema_read(&listed);
    schema_dump(table, &written);
    if (listed.n < 10 || written.n < 10) {
        fprintf(stderr, "%s: %zu paths listed in SCHEMA.md, %zu found by h5dump\n", table, listed.n,
                written.n);
        return 1;
    }
    for (size_t i = 0; i < written.n; i++) {
        const struct schema_path *path = &written.paths[i];
        bool known = path->group;
        for (size_t k = 0; k < listed.n; k++) {
            if (fnmatch(listed.paths[k].path, path->path, FNM_PATHNAME) == 0) {
                listed.paths[k].seen = true;
                known = true;
            }
        }
        if (!known) {
            fprintf(stderr, "%s: %s is not in SCHEMA.md\n", table, path->path);
            problems++;
        }
    }
    for (size_t k = 0; k < listed.n; k++) {
        if (listed.paths[k].always && !listed.paths[k].seen) {
            fprintf(stderr, "%s: %s is missing\n", table, listed.paths[k].path);
            problems++;
        }
    }
    return problems;
}

#endif
