/* What people give as the folder of a model, and where files lie that can be lost. */
#include "engine/system/folder.h"
#include "engine/base/lfs.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *dpe_folder_join(const char *folder, const char *name)
{
    size_t n = strlen(folder) + strlen(name) + 2;
    char *path = dpe_alloc(n, 1);
    if (path != NULL) {
        const char *slash = folder[0] != '\0' && folder[strlen(folder) - 1] == '/' ? "" : "/";
        snprintf(path, n, "%s%s%s", folder, slash, name);
    }
    return path;
}

char *dpe_folder_beside(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    if (dpe_is_folder(path) || slash == NULL) {
        return dpe_folder_join(slash == NULL && !dpe_is_folder(path) ? "." : path, name);
    }
    DPE_OWNED char *folder = strndup(path, (size_t)(slash - path));
    return folder != NULL ? dpe_folder_join(folder, name) : NULL;
}

/* The entries of a folder whose names are accepted: how many, and one of them (the caller's). */
static int count(const char *folder, bool (*accept)(const char *folder, const char *name),
                 char **one)
{
    DIR *list = opendir(folder);
    int n = 0;
    *one = NULL;
    for (struct dirent *each = list != NULL ? readdir(list) : NULL; each != NULL;
         each = readdir(list)) {
        if (each->d_name[0] != '.' && accept(folder, each->d_name)) {
            free(*one);
            *one = strdup(each->d_name);
            n++;
        }
    }
    if (list != NULL) {
        closedir(list);
    }
    return n;
}

static bool has_config(const char *folder)
{
    DPE_OWNED char *config = dpe_folder_join(folder, "config.json");
    return config != NULL && access(config, F_OK) == 0;
}

static bool is_snapshot(const char *folder, const char *name)
{
    DPE_OWNED char *path = dpe_folder_join(folder, name);
    return path != NULL && has_config(path);
}

/* A model in a GGUF file: of the files of a split one (NAME-00002-of-00003.gguf) only the first. */
static bool is_model_file(const char *folder, const char *name)
{
    static const char shape[] = "-NNNNN-of-NNNNN.gguf";
    size_t n = strlen(name);
    (void)folder;
    if (n <= 5 || strcmp(name + n - 5, ".gguf") != 0) {
        return false;
    }
    size_t tail = sizeof shape - 1;
    const char *end = n > tail ? name + n - tail : "";
    bool split = *end != '\0';
    for (size_t i = 0; split && i < tail; i++) {
        split = shape[i] == 'N' ? end[i] >= '0' && end[i] <= '9' : end[i] == shape[i];
    }
    return !split || strncmp(end, "-00001-", 7) == 0;
}

const char *dpe_folder_name(const char *path, int *n)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') {
        end--;
    }
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') {
        begin--;
    }
    begin -= begin > 0 && begin == end; /* the root */
    *n = (int)(end - begin);
    return path + begin;
}

/* The folder of snapshots of a folder of the cache, owned; NULL when it is none. */
static char *snapshots(const char *given)
{
    int n = 0;
    const char *name = dpe_folder_name(given, &n);
    DPE_OWNED char *trimmed = strndup(given, (size_t)(name + n - given));
    DPE_OWNED char *inside = trimmed != NULL ? dpe_folder_join(trimmed, "snapshots") : NULL;
    char *found = NULL;
    if (inside != NULL && dpe_is_folder(inside)) {
        found = inside;
        inside = NULL;
    } else if (trimmed != NULL && dpe_is_folder(trimmed) &&
               strcmp(trimmed + (name - given), "snapshots") == 0) {
        found = trimmed;
        trimmed = NULL;
    }
    return found;
}

char *dpe_folder_find(const char *given)
{
    bool there = has_config(given);
    DPE_OWNED char *list = there ? NULL : snapshots(given);
    DPE_OWNED char *one = NULL;
    const char *folder = list != NULL ? list : given;
    bool found = !there && count(folder, list != NULL ? is_snapshot : is_model_file, &one) == 1;
    return found && one != NULL ? dpe_folder_join(folder, one) : strdup(given);
}

bool dpe_folder_has_both(const char *given)
{
    DPE_OWNED char *one = NULL;
    return has_config(given) && count(given, is_model_file, &one) > 0;
}

/* The first bytes of a regular file, as many as there are; 0 where there are none. */
static size_t first_bytes(const char *path, char *bytes, size_t room)
{
    DPE_SCOPED(dpe_close_fd) int fd = -1;
    uint64_t size = 0;
    return dpe_open_regular(path, &fd, &size, NULL) == DPE_OK ? dpe_read_at(fd, bytes, room, 0) : 0;
}

bool dpe_folder_is_gguf(const char *path)
{
    char magic[4];
    return first_bytes(path, magic, sizeof magic) == sizeof magic &&
           memcmp(magic, "GGUF", sizeof magic) == 0;
}

/* "ORG/NAME" as the hub has them, which is no path here. */
static bool is_hub_id(const char *given)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "-_.";
    size_t n = strspn(given, letters);
    struct stat info;
    return n > 0 && n < 97 && given[0] != '.' && given[n] == '/' && given[n + 1] != '\0' &&
           given[n + 1] != '.' && given[n + 1 + strspn(given + n + 1, letters)] == '\0' &&
           strlen(given) < 200 && stat(given, &info) != 0;
}

static dpe_status explain_cache(const char *given, const char *list, struct dpe_error *err)
{
    DPE_OWNED char *one = NULL;
    int n = count(list, is_snapshot, &one);
    if (n == 0) {
        return dpe_fail(err, DPE_NO_INPUT,
                        "%s: a folder of the Hugging Face cache without a finished snapshot "
                        "(%s/*/config.json); download the model again: hf download ORG/NAME",
                        given, list);
    }
    if (n > 1) {
        return dpe_fail(err, DPE_NO_INPUT,
                        "%s: a folder of the Hugging Face cache with %d snapshots; give the one "
                        "you mean, for example %s/%s",
                        given, n, list, one != NULL ? one : "");
    }
    return DPE_OK;
}

dpe_status dpe_folder_explain_file(const char *given, struct dpe_error *err)
{
    struct stat info;
    if (stat(given, &info) != 0 || !S_ISREG(info.st_mode) || access(given, R_OK) != 0 ||
        dpe_folder_is_gguf(given)) {
        return DPE_OK;
    }
    char first[64];
    DPE_TRY(dpe_refuse_pointer(given, first, first_bytes(given, first, sizeof first), err));
    return dpe_fail(
        err, DPE_BAD_DATA, "%s: expected a model folder or a GGUF file, found %s", given,
        info.st_size == 0 ? "an empty file; download it again" : "another kind of file");
}

dpe_status dpe_folder_explain(const char *given, struct dpe_error *err)
{
    DPE_OWNED char *config = dpe_folder_join(given, "config.json");
    DPE_TRY(DPE_MADE(config, err, "%s: out of memory", given));
    if (access(config, F_OK) == 0) {
        return DPE_OK;
    }
    if (is_hub_id(given)) {
        const char *name = strchr(given, '/') + 1;
        return dpe_fail(err, DPE_NO_INPUT,
                        "%s: no such folder; if it is a model of the Hugging Face hub, download it "
                        "and give its folder: hf download %s --local-dir %s, then -m %s",
                        given, given, name, name);
    }
    struct stat info;
    if (stat(given, &info) != 0) {
        return dpe_fail(err, errno == EACCES ? DPE_PERMISSION : DPE_NO_INPUT,
                        "%s: cannot be opened: %s", given, strerror(errno));
    }
    DPE_OWNED char *list = snapshots(given);
    if (list != NULL) {
        return explain_cache(given, list, err);
    }
    DPE_OWNED char *one = NULL;
    int n = count(given, is_model_file, &one);
    if (n > 0 && one != NULL) {
        return dpe_fail(err, DPE_NO_INPUT,
                        "%s: no config.json here, but %d GGUF model%s; give the file, for example "
                        "%s/%s",
                        given, n, n == 1 ? "" : "s", given, one);
    }
    return DPE_OK;
}

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
