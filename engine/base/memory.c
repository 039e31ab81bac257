/* How much memory a process can still get on this machine. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/base.h"

/* The number after `key` at the start of a line of a small kernel file; false when there is none.
 */
static bool read_key(const char *path, const char *key, uint64_t *value)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    char line[256];
    bool found = false;
    size_t n = strlen(key);
    while (!found && fgets(line, sizeof line, file) != NULL) {
        char *end = NULL;
        if (strncmp(line, key, n) == 0) {
            *value = strtoull(line + n, &end, 10);
            found = end != line + n; /* "max" is not a number */
        }
    }
    fclose(file);
    return found;
}

uint64_t dpe_memory_available(void)
{
    uint64_t available = UINT64_MAX;
    uint64_t kibibytes = 0;
    if (read_key("/proc/meminfo", "MemAvailable:", &kibibytes)) {
        available = kibibytes * 1024;
    }
    uint64_t most = 0;
    uint64_t used = 0;
    uint64_t cached = 0;
    /* A container's limit counts the page cache, which is freed when memory is requested. */
    if (read_key("/sys/fs/cgroup/memory.max", "", &most) &&
        read_key("/sys/fs/cgroup/memory.current", "", &used) &&
        read_key("/sys/fs/cgroup/memory.stat", "inactive_file ", &cached)) {
        used = used > cached ? used - cached : 0;
        uint64_t left = most > used ? most - used : 0;
        available = left < available ? left : available;
    }
    return available;
}
