/* Limits of control groups, on made-up trees: every row says what a process sees and what it may
 * get. */
#define _GNU_SOURCE /* unshare */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/base.h"
#include "engine/base/limits.h"

enum { FILES = 16, NONE = -1 };

struct tree {
    const char *name;
    struct {
        const char *path, *text;
    } files[FILES];
    int64_t memory, processors; /* NONE: no limit */
};

#define GROUP     "/proc/self/cgroup"
#define MOUNTS    "/proc/self/mountinfo"
#define V2        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1_MEMORY "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
#define V1_CPU                                                                                     \
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
#define C "/sys/fs/cgroup"

static const struct tree trees[] = {
    {"nothing is there", {{0}}, NONE, NONE},
    {"a limit at the root of a container's namespace",
     {{GROUP, "0::/\n"},
      {MOUNTS, V2},
      {C "/memory.max", "5000\n"},
      {C "/memory.current", "2000\n"},
      {C "/memory.stat", "anon 900\ninactive_file 300\n"},
      {C "/cpu.max", "250000 100000\n"}},
     3300,
     2},
    {"limits that say max",
     {{GROUP, "0::/a\n"},
      {MOUNTS, V2},
      {C "/a/memory.max", "max\n"},
      {C "/a/memory.high", "max\n"},
      {C "/a/memory.current", "7\n"},
      {C "/a/cpu.max", "max 100000\n"}},
     NONE,
     NONE},
    {"a job's limit, four groups above the process",
     {{GROUP, "0::/s.slice/d.scope/job_7/step_0/user/task_0\n"},
      {MOUNTS, V2},
      {C "/s.slice/d.scope/job_7/memory.max", "9000\n"},
      {C "/s.slice/d.scope/job_7/memory.current", "4000\n"},
      {C "/s.slice/d.scope/job_7/step_0/user/task_0/memory.max", "max\n"},
      {C "/s.slice/d.scope/job_7/step_0/user/task_0/memory.current", "10\n"},
      {C "/s.slice/d.scope/job_7/cpu.max", "799999 100000\n"}},
     5000,
     7},
    {"what is left counts, not the smallest limit",
     {{GROUP, "0::/a/b\n"},
      {MOUNTS, V2},
      {C "/a/memory.max", "9000\n"},
      {C "/a/memory.current", "8900\n"},
      {C "/a/b/memory.max", "1000\n"},
      {C "/a/b/memory.current", "100\n"},
      {C "/a/cpu.max", "30000 10000\n"},
      {C "/a/b/cpu.max", "400000 100000\n"}},
     100,
     3},
    {"more used than allowed, less than a processor",
     {{GROUP, "0::/a\n"},
      {MOUNTS, V2},
      {C "/a/memory.max", "100\n"},
      {C "/a/memory.current", "101\n"},
      {C "/a/cpu.max", "50000 100000\n"}},
     0,
     1},
    {"memory.high binds before memory.max",
     {{GROUP, "0::/a\n"},
      {MOUNTS, V2},
      {C "/a/memory.max", "4000\n"},
      {C "/a/memory.high", "3000\n"},
      {C "/a/memory.current", "1000\n"}},
     2000,
     NONE},
    {"the group of a neighbour says nothing",
     {{GROUP, "0::/a/b\n"},
      {MOUNTS, V2},
      {C "/a/b/cgroup.procs", ""},
      {C "/a/bc/memory.max", "5\n"},
      {C "/a/b/c/memory.max", "5\n"},
      {C "/b/memory.max", "5\n"}},
     NONE,
     NONE},
    {"no list of mounts", {{GROUP, "0::/a\n"}, {C "/a/memory.max", "60\n"}}, 60, NONE},
    {"version 1: a limit above the process, another tree for processors",
     {{GROUP, "5:cpu,cpuacct:/q/x\n4:memory:/slurm/uid_0/job_3/step_0\n1:name=systemd:/\n"},
      {MOUNTS, V1_MEMORY V1_CPU},
      {C "/memory/slurm/uid_0/job_3/memory.limit_in_bytes", "8000\n"},
      {C "/memory/slurm/uid_0/job_3/memory.usage_in_bytes", "5000\n"},
      {C "/memory/slurm/uid_0/job_3/memory.stat", "inactive_file 1\ntotal_inactive_file 1000\n"},
      {C "/memory/slurm/uid_0/job_3/step_0/memory.limit_in_bytes", "9223372036854771712\n"},
      {C "/cpu,cpuacct/q/cpu.cfs_quota_us", "590000\n"},
      {C "/cpu,cpuacct/q/cpu.cfs_period_us", "100000\n"},
      {C "/cpu,cpuacct/q/x/cpu.cfs_quota_us", "-1\n"},
      {C "/cpu,cpuacct/q/x/cpu.cfs_period_us", "100000\n"}},
     4000,
     5},
    {"version 1: groups above that do not count what is below",
     {{GROUP, "4:memory:/a/b\n"},
      {MOUNTS, V1_MEMORY},
      {C "/memory/a/memory.limit_in_bytes", "10\n"},
      {C "/memory/a/memory.use_hierarchy", "0\n"},
      {C "/memory/a/b/memory.limit_in_bytes", "500\n"}},
     500,
     NONE},
    {"version 1: the same, with processors in the same tree",
     {{GROUP, "4:cpu,memory:/a/b\n"},
      {MOUNTS, "9 8 0:33 / /sys/fs/cgroup/both rw - cgroup cgroup rw,cpu,memory\n"},
      {C "/both/a/memory.limit_in_bytes", "10\n"},
      {C "/both/a/memory.use_hierarchy", "0\n"},
      {C "/both/a/cpu.cfs_quota_us", "200000\n"},
      {C "/both/a/cpu.cfs_period_us", "100000\n"},
      {C "/both/a/b/memory.limit_in_bytes", "500\n"}},
     500,
     2},
    {"version 1: a limit that the container does not see",
     {{GROUP, "4:memory:/\n"},
      {MOUNTS, V1_MEMORY},
      {C "/memory/memory.limit_in_bytes", "9223372036854771712\n"},
      {C "/memory/memory.usage_in_bytes", "50\n"},
      {C "/memory/memory.stat", "hierarchical_memory_limit 450\n"}},
     400,
     NONE},
    {"hybrid: memory in version 1, processors in version 2",
     {{GROUP, "4:memory:/a\n0::/a\n"},
      {MOUNTS, V1_MEMORY "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"},
      {C "/memory/a/memory.limit_in_bytes", "70\n"},
      {C "/unified/a/cpu.max", "900000 300000\n"}},
     70,
     3},
    {"a container without a namespace: the mount shows its own group",
     {{GROUP, "4:memory:/docker/f00/in\n"},
      {MOUNTS,
       "9 8 0:32 /docker/f00 /sys/fs/cgroup/memory ro master:3 - cgroup cgroup rw,memory\n"},
      {C "/memory/memory.limit_in_bytes", "90\n"},
      {C "/memory/in/memory.limit_in_bytes", "95\n"},
      {C "/memory/in/memory.usage_in_bytes", "1\n"}},
     90,
     NONE},
    {"the mount shows a group that the process was in before",
     {{GROUP, "0::/new\n"},
      {MOUNTS, "9 8 0:26 /old /sys/fs/cgroup ro - cgroup2 cgroup rw\n"},
      {C "/memory.max", "80\n"}},
     80,
     NONE},
    {"one of two mounts shows the group",
     {{GROUP, "0::/me\n"},
      {MOUNTS, "9 8 0:26 /pod /pods/x rw - cgroup2 cgroup rw\n" V2},
      {"/pods/x/memory.max", "5\n"},
      {C "/me/memory.max", "85\n"}},
     85,
     NONE},
    {"a process outside of the namespace's groups",
     {{GROUP, "0::/../other\n"}, {MOUNTS, V2}, {C "/memory.max", "5\n"}},
     NONE,
     NONE},
    {"the mount shows a group above the namespace",
     {{GROUP, "0::/\n"},
      {MOUNTS, "9 8 0:26 /../.. /sys/fs/cgroup ro - cgroup2 cgroup rw\n"},
      {C "/memory.max", "75\n"}},
     75,
     NONE},
    {"names that mountinfo escapes, in a place of their own",
     {{GROUP, "0::/a\\x2db/c\n"},
      {MOUNTS, "9 8 0:26 /a\\134x2db /my\\040groups rw - cgroup2 none rw\n"},
      {"/my groups/c/memory.max", "65\n"},
      {"/my groups/cpu.max", "200000 100000\n"}},
     65,
     2},
    {"files with something else in them",
     {{GROUP, "\n0:\n::::\n0::/a\nx"},
      {MOUNTS, "\n - \n1 2 - cgroup2\n" V2 "5 4 - cgroup2 x y\n"},
      {C "/a/memory.max", "many\n"},
      {C "/a/memory.high", ""},
      {C "/a/cpu.max", "100000\n"}},
     NONE,
     NONE},
};

static void put(const char *root, const char *path, const char *text)
{
    char full[512];
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    assert_true(n > 0 && n < (int)sizeof full);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        (void)mkdir(full, 0700);
        *at = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void clear(const char *folder)
{
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void the_smallest_rest_of_all_groups(void **state)
{
    (void)state;
    char folder[] = "/tmp/test_limits-XXXXXX";
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
        const struct tree *tree = &trees[i];
        char root[64];
        snprintf(root, sizeof root, "%s/%zu", folder, i);
        assert_int_equal(mkdir(root, 0700), 0);
        for (int f = 0; f < FILES && tree->files[f].path != NULL; f++) {
            put(root, tree->files[f].path, tree->files[f].text);
        }
        struct dpe_limits limits;
        dpe_limits_read(root, &limits);
        uint64_t memory = tree->memory == NONE ? UINT64_MAX : (uint64_t)tree->memory;
        int64_t processors = tree->processors == NONE ? INT64_MAX : tree->processors;
        if (limits.memory != memory || limits.processors != processors) {
            fail_msg("%s: %llu bytes, %lld processors", tree->name,
                     (unsigned long long)limits.memory, (long long)limits.processors);
        }
    }
    clear(folder);
}

/* In a mount namespace of its own: a job's group, in place of this machine's. Exit status 0 when
 * its limits are seen, 2 when such a namespace cannot be made. */
static int see_job(const char *root)
{
    char groups[512];
    char own[512];
    char self[64];
    snprintf(groups, sizeof groups, "%s%s", root, C);
    snprintf(own, sizeof own, "%s%s", root, GROUP);
    snprintf(self, sizeof self, "/proc/%ld/cgroup", (long)getpid());
    if ((unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(groups, C, NULL, MS_BIND, NULL) != 0 || mount(own, self, NULL, MS_BIND, NULL) != 0) {
        return 2;
    }
    return dpe_memory_available() == 3000000 && dpe_limit_processors(64) == 3 ? 0 : 1;
}

static void a_job_of_this_machine(void **state)
{
    (void)state;
    char folder[] = "/tmp/test_limits-XXXXXX";
    assert_non_null(mkdtemp(folder));
    put(folder, GROUP, "0::/system.slice/job_9/step_1\n");
    put(folder, C "/system.slice/job_9/memory.max", "5000000\n");
    put(folder, C "/system.slice/job_9/memory.current", "2000000\n");
    put(folder, C "/system.slice/job_9/cpu.max", "350000 100000\n");
    put(folder, C "/system.slice/job_9/step_1/memory.max", "max\n");
    pid_t child = fork();
    if (child == 0) {
        _exit(see_job(folder));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    clear(folder);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 2) {
        skip(); /* no namespaces for this user */
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void this_machine_has_some(void **state)
{
    (void)state;
    assert_true(dpe_memory_available() > (1 << 20));
    assert_int_equal(dpe_limit_processors(1), 1);
    int n = dpe_limit_processors(64);
    assert_true(n >= 1 && n <= 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_smallest_rest_of_all_groups),
                                       cmocka_unit_test(a_job_of_this_machine),
                                       cmocka_unit_test(this_machine_has_some)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
