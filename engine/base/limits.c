/* How much memory and how many processors a process can get on this machine. */
#include "engine/base/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "engine/base/base.h"

enum { PATH = 4096 }; /* bytes */

static void close_file(FILE **file)
{
    if (*file != NULL) {
        fclose(*file);
    }
}

/* The number after `key` at the start of a line of a small kernel file; false when there is none.
 */
static bool read_key(const char *path, const char *key, uint64_t *value)
{
    DPE_SCOPED(close_file) FILE *file = fopen(path, "re");
    char line[256];
    bool found = false;
    size_t n = strlen(key);
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        char *end = NULL;
        if (strncmp(line, key, n) == 0) {
            *value = strtoull(line + n, &end, 10);
            found = end != line + n; /* "max" is not a number */
        }
    }
    return found;
}

/* ---------------------------------------------------------------------------- one group's files */

/* The number of a file of a group; `otherwise` when there is none. */
static uint64_t read_file(const char *group, const char *name, const char *key, uint64_t otherwise)
{
    char path[PATH];
    uint64_t value = 0;
    int n = snprintf(path, sizeof path, "%s/%s", group, name);
    return n < (int)sizeof path && read_key(path, key, &value) ? value : otherwise;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void leave_memory(struct dpe_limits *limits, uint64_t most, uint64_t used, uint64_t cached)
{
    used = used > cached ? used - cached : 0;
    limits->memory = least(limits->memory, most > used ? most - used : 0);
}

/* A quota in microseconds of each period; none when it is not above zero. */
static void leave_processors(struct dpe_limits *limits, int64_t quota, int64_t period)
{
    if (quota > 0 && period > 0) {
        int64_t whole = quota / period > 1 ? quota / period : 1;
        limits->processors = whole < limits->processors ? whole : limits->processors;
    }
}

/* Processors of either version: a quota and a period, in one file or in two. */
static void read_processors(const char *group, struct dpe_limits *limits)
{
    char path[PATH];
    int64_t quota = (int64_t)read_file(group, "cpu.cfs_quota_us", "", 0);
    int64_t period = (int64_t)read_file(group, "cpu.cfs_period_us", "", 0);
    int n = snprintf(path, sizeof path, "%s/cpu.max", group);
    DPE_SCOPED(close_file) FILE *file = n < (int)sizeof path ? fopen(path, "re") : NULL;
    if (file == NULL || fscanf(file, "%" SCNd64 " %" SCNd64, &quota, &period) == 2) {
        leave_processors(limits, quota, period);
    }
}

/* Memory of either version. Whether the group above binds this one too: before Linux 5.11 only
 * where it says so. */
static bool read_memory(const char *group, bool is_own, struct dpe_limits *limits)
{
    static const char *const most_names[] = {"memory.max", "memory.high", "memory.limit_in_bytes"};
    /* Version 1 knows of limits above the part of the tree that a container sees. */
    uint64_t most = is_own
                        ? read_file(group, "memory.stat", "hierarchical_memory_limit ", UINT64_MAX)
                        : UINT64_MAX;
    for (size_t i = 0; i < sizeof most_names / sizeof *most_names; i++) {
        most = least(most, read_file(group, most_names[i], "", UINT64_MAX));
    }
    if (most != UINT64_MAX) {
        uint64_t used = read_file(group, "memory.usage_in_bytes", "", 0);
        uint64_t cached = read_file(group, "memory.stat", "inactive_file ", 0);
        leave_memory(limits, most, read_file(group, "memory.current", "", used),
                     read_file(group, "memory.stat", "total_inactive_file ", cached));
    }
    char above[PATH];
    int n = snprintf(above, sizeof above, "%s/..", group);
    return n < (int)sizeof above && read_file(above, "memory.use_hierarchy", "", 1) != 0;
}

/* What a line of /proc/self/cgroup may stand for, and the kind of file system that shows it. */
static const struct controller {
    const char *name, *type;
} controllers[] = {{"", "cgroup2"}, {"memory", "cgroup"}, {"cpu", "cgroup"}};

/* ------------------------------------------------------------------------ where the groups are */

/* Whether a list that is separated by commas has the word; the empty list has the empty word. */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    while (strncmp(list, word, n) != 0 || (list[n] != ',' && list[n] != '\0')) {
        list += strcspn(list, ",");
        if (*list == '\0') {
            return false;
        }
        list++;
    }
    return true;
}

/* Reads `group`, a path below the folder `mount`, and every group above it as far as the mount
 * shows them. False when there is no such group. */
static bool climb(const char *root, const char *mount, const char *group, struct dpe_limits *limits)
{
    char path[PATH];
    int top = snprintf(path, sizeof path, "%s%s", root, mount);
    int n = snprintf(path, sizeof path, "%s%s%s", root, mount, group);
    if (n >= (int)sizeof path || access(path, F_OK) != 0) {
        return false;
    }
    /* One folder may have the files of several controllers, of which memory alone may end here. */
    for (bool is_own = true, binds = true;; is_own = false) {
        binds = binds && read_memory(path, is_own, limits);
        read_processors(path, limits);
        if (path[top] == '\0') {
            return true;
        }
        char *slash = strrchr(path + top, '/');
        *(slash != NULL ? slash : path + top) = '\0';
    }
}

/* Spaces, backslashes and the like are written as \040 in mountinfo. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; to++) {
        bool is_octal = from[0] == '\\' && strspn(from + 1, "01234567") >= 3;
        *to = (char)(is_octal ? (from[1] - '0') * 64 + (from[2] - '0') * 8 + from[3] - '0' : *from);
        from += is_octal ? 4 : 1;
    }
    *to = '\0';
}

/* Where a line of mountinfo mounts the controller's groups: the group that stands at the mount
 * point (`base`), and the point. */
static bool read_mount(const char *line, const struct controller *controller, char base[PATH],
                       char point[PATH])
{
    char type[64];
    char options[PATH];
    const char *rest = strstr(line, " - ");
    if (rest == NULL || sscanf(line, "%*s %*s %*s %4095s %4095s", base, point) != 2 ||
        sscanf(rest, " - %63s %*s %4095s", type, options) != 2 ||
        strcmp(type, controller->type) != 0 ||
        (controller->name[0] != '\0' && !has_word(options, controller->name))) {
        return false;
    }
    base[strcmp(base, "/") == 0 ? 0 : strlen(base)] = '\0';
    unescape(base);
    unescape(point);
    return true;
}

/* What is left of the group's path below the mount; NULL when the mount shows other groups. */
static const char *below(const char *group, const char *base)
{
    if (strncmp(base, "/..", 3) == 0) {
        return ""; /* a group above the root of this namespace: which way leads down is not said */
    }
    size_t n = strlen(base);
    return strncmp(group, base, n) == 0 && (group[n] == '/' || group[n] == '\0') ? group + n : NULL;
}

/* Reads the group in each place where it is mounted; `any`: the mount points instead, whatever
 * group they show. Whether a place had it. */
static bool search_mounts(const char *root, const char *group, bool any,
                          const struct controller *controller, struct dpe_limits *limits)
{
    char path[PATH];
    int n = snprintf(path, sizeof path, "%s/proc/self/mountinfo", root);
    DPE_SCOPED(close_file) FILE *file = n < (int)sizeof path ? fopen(path, "re") : NULL;
    bool found = false;
    DPE_OWNED char *line = NULL;
    size_t room = 0;
    char base[PATH];
    char point[PATH];
    while (file != NULL && getline(&line, &room, file) > 0) {
        if (read_mount(line, controller, base, point)) {
            const char *rest = any ? "" : below(group, base);
            found = (rest != NULL && climb(root, point, rest, limits)) || found;
        }
    }
    return found;
}

static void read_group(const char *root, const char *group, const struct controller *controller,
                       struct dpe_limits *limits)
{
    char place[64];
    if (strncmp(group, "/..", 3) == 0) {
        return; /* outside of this namespace, and what is mounted in it binds others */
    }
    snprintf(place, sizeof place, "/sys/fs/cgroup%s%s", controller->name[0] == '\0' ? "" : "/",
             controller->name);
    /* The list of mounts may not be readable, or say less than there is; and a container that was
     * moved to another group still shows its own where it was. */
    (void)(search_mounts(root, group, false, controller, limits) ||
           climb(root, place, group, limits) ||
           search_mounts(root, group, true, controller, limits));
}

void dpe_limits_read(const char *root, struct dpe_limits *limits)
{
    *limits = (struct dpe_limits){.memory = UINT64_MAX, .processors = INT64_MAX};
    char path[PATH];
    int n = snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    DPE_SCOPED(close_file) FILE *file = n < (int)sizeof path ? fopen(path, "re") : NULL;
    DPE_OWNED char *line = NULL;
    size_t room = 0;
    while (file != NULL && getline(&line, &room, file) > 0) {
        char *names = strchr(line, ':');
        char *group = names != NULL ? strchr(names + 1, ':') : NULL;
        if (group == NULL || group[1] != '/') {
            continue;
        }
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        for (size_t i = 0; i < sizeof controllers / sizeof *controllers; i++) {
            if (has_word(names + 1, controllers[i].name)) {
                read_group(root, strcmp(group, "/") == 0 ? "" : group, &controllers[i], limits);
            }
        }
    }
}

/* ------------------------------------------------------------------------------------- the sums */

static _Atomic uint64_t allowed; /* 0: everything */

void dpe_memory_limit(uint64_t bytes)
{
    allowed = bytes;
}

uint64_t dpe_memory_available(void)
{
    struct dpe_limits limits;
    dpe_limits_read("", &limits);
    uint64_t kibibytes = 0;
    if (read_key("/proc/meminfo", "MemAvailable:", &kibibytes)) {
        limits.memory = least(limits.memory, kibibytes * 1024);
    }
    if (allowed != 0) {
        /* Pages of files are not counted: weights are mapped, and the kernel drops them. */
        bool known = read_key("/proc/self/status", "RssAnon:", &kibibytes);
        leave_memory(&limits, allowed, known ? kibibytes * 1024 : 0, 0);
    }
    return limits.memory;
}

int dpe_limit_processors(int processors)
{
    struct dpe_limits limits;
    dpe_limits_read("", &limits);
    return limits.processors < processors ? (int)limits.processors : processors;
}
