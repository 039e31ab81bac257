/* Where files lie that can be lost. */
#include "engine/system/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool dpe_cache_path(const char *name, char *path, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    bool known = cache != NULL && cache[0] == '/';
    if (!known && (home == NULL || home[0] != '/')) {
        return false;
    }
    int n = known ? snprintf(path, size, "%s/dpe/%s", cache, name)
                  : snprintf(path, size, "%s/.cache/dpe/%s", home, name);
    return n > 0 && (size_t)n < size;
}

void dpe_cache_make_folders(const char *path)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    char *slash = strrchr(folder, '/');
    *slash = '\0';
    (void)mkdir(folder, 0777);
    *slash = '/';
    (void)mkdir(folder, 0777);
}
