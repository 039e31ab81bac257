/* Files for fuzzers. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[256];
static char path[512];

static void remove_folder(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) { /* NOLINT(cert-env33-c): the name is ours */
        fprintf(stderr, "fuzz: cannot remove %s\n", folder);
    }
}

const char *fuzz_folder(void)
{
    if (folder[0] == '\0') {
        const char *base = getenv("TMPDIR");
        snprintf(folder, sizeof folder, "%s/dpe-fuzz-XXXXXX", base != NULL ? base : "/tmp");
        fuzz_expect(mkdtemp(folder) != NULL, "a folder for files can be made");
        atexit(remove_folder);
    }
    return folder;
}

const char *fuzz_file(const char *name, const void *bytes, size_t n)
{
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    for (char *at = path + strlen(folder) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(path, 0700);
        *at = '/';
    }
    FILE *file = fopen(path, "wb");
    fuzz_expect(file != NULL && fwrite(bytes, 1, n, file) == n && fclose(file) == 0,
                "the input can be written to a file");
    return path;
}

char *fuzz_read(const char *from, size_t *n)
{
    FILE *file = fopen(from, "rb");
    fuzz_expect(file != NULL, from);
    struct stat info;
    fuzz_expect(fstat(fileno(file), &info) == 0, from);
    char *bytes = malloc((size_t)info.st_size + 1);
    fuzz_expect(bytes != NULL, "memory");
    *n = fread(bytes, 1, (size_t)info.st_size, file);
    bytes[*n] = '\0';
    fclose(file);
    return bytes;
}

char *fuzz_source(const char *name, size_t *n)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", DPE_SOURCE_DIR, name);
    return fuzz_read(full, n);
}

void fuzz_expect(int holds, const char *property)
{
    if (!holds) {
        fprintf(stderr, "does not hold: %s\n", property);
        abort();
    }
}
