/* Which ways of a device were right, kept from one process to the next. */
#include "engine/session/device_check.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/system/cache.h"

enum { MOST_KEPT = 256, KEY = 64, LINE = KEY + 1 + DPE_WAY_PARTS + 2, PATH_ROOM = 4096 };

/* "KEY 010000\n"; anything else is skipped. */
static bool read_line(const char *line, struct dpe_ways *ways)
{
    if (strlen(line) != LINE - 1 || strspn(line, "0123456789abcdef") != KEY || line[KEY] != ' ' ||
        line[LINE - 2] != '\n') {
        return false;
    }
    for (int part = 0; part < DPE_WAY_PARTS; part++) {
        char digit = line[KEY + 1 + part];
        if (digit < '0' || digit > '3') {
            return false;
        }
        ways->way[part] = (uint8_t)(digit - '0');
    }
    return true;
}

bool dpe_verdict_find(const char *key, struct dpe_ways *ways)
{
    char path[PATH_ROOM];
    char line[2 * LINE];
    bool found = false;
    FILE *file = dpe_cache_path("devices", path, sizeof path) ? fopen(path, "re") : NULL;
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        struct dpe_ways read = {{0}};
        found = read_line(line, &read) && strncmp(line, key, KEY) == 0;
        *ways = found ? read : *ways;
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

/* The newest first. */
static bool write_lines(FILE *to, const char *path, const char *key, const struct dpe_ways *ways)
{
    char line[2 * LINE];
    struct dpe_ways other;
    FILE *from = fopen(path, "re");
    bool good = true;
    if (ways != NULL) {
        good = fprintf(to, "%.64s ", key) > 0;
        for (int part = 0; part < DPE_WAY_PARTS && good; part++) {
            good = fputc('0' + ways->way[part], to) != EOF;
        }
        good = good && fputc('\n', to) != EOF;
    }
    for (int i = 1; i < MOST_KEPT && from != NULL && good && fgets(line, sizeof line, from) != NULL;
         i++) {
        if (read_line(line, &other) && strncmp(line, key, KEY) != 0) {
            good = fputs(line, to) != EOF;
        }
    }
    if (from != NULL) {
        fclose(from);
    }
    return good;
}

void dpe_verdict_keep(const char *key, const struct dpe_ways *ways)
{
    char path[PATH_ROOM];
    char new_path[PATH_ROOM + 32];
    if (!dpe_cache_path("devices", path, sizeof path)) {
        return;
    }
    dpe_cache_make_folders(path);
    snprintf(new_path, sizeof new_path, "%s.%ld", path, (long)getpid());
    FILE *to = fopen(new_path, "we");
    if (to == NULL) {
        return;
    }
    bool good = write_lines(to, path, key, ways);
    good = fclose(to) == 0 && good;
    if (!good || rename(new_path, path) != 0) {
        (void)unlink(new_path);
    }
}
