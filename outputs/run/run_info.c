/* What this process is, for /run. */
#include "engine/base/base.h"
#include "outputs/h5/rows.h"
#include "outputs/run/run.h"
#include "outputs/storage/storage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <hdf5.h>
#include <jansson.h>

/* Quoted for a shell when it holds anything a shell would touch. */
static void put_word(struct dpe_text *line, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./=:,+@%";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        dpe_text_put(line, "%s", word);
        return;
    }
    dpe_text_put(line, "'");
    for (const char *c = word; *c != '\0'; c++) {
        dpe_text_put_bytes(line, *c == '\'' ? "'\\''" : c, *c == '\'' ? 4 : 1);
    }
    dpe_text_put(line, "'");
}

dpe_status dpe_run_info_add(struct dpe_identity *info, const char *name, const char *text,
                            struct dpe_error *err)
{
    size_t n = strlen(text);
    DPE_OWNED char *shown = strdup(text);
    if (shown == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for the value of %s", name);
    }
    for (size_t i = dpe_utf8_check(text, n); i < n; i++) {
        if ((unsigned char)shown[i] >= 0x80) {
            shown[i] = '?';
        }
    }
    return dpe_identity_add(info, name, shown, err);
}

static dpe_status add_command(struct dpe_identity *info, int argc, char *const *argv,
                              struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text line = {0};
    for (int i = 0; i < argc; i++) {
        dpe_text_put(&line, "%s", i > 0 ? " " : "");
        put_word(&line, argv[i]);
    }
    DPE_TRY(dpe_text_done(&line, err));
    return dpe_run_info_add(info, "command", line.n == 0 ? "" : line.bytes, err);
}

/* The first "model name" of /proc/cpuinfo; "unknown" elsewhere. */
static void cpu_name(char *name, size_t size)
{
    snprintf(name, size, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (file == NULL) {
        return;
    }
    char line[512];
    while (fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(name, size, "%s", colon + (colon[1] == ' ' ? 2 : 1));
            break;
        }
    }
    fclose(file);
}

static dpe_status add_machine(struct dpe_identity *info, int n_threads, struct dpe_error *err)
{
    struct utsname system;
    char cpu[256];
    cpu_name(cpu, sizeof cpu);
    if (uname(&system) < 0) {
        memset(&system, 0, sizeof system);
    }
    long long cores = sysconf(_SC_NPROCESSORS_ONLN);
    long long memory = (long long)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    DPE_TRY(dpe_identity_add(info, "host", system.nodename, err));
    DPE_TRY(dpe_identity_addf(info, err, "pid", "%ld", (long)getpid()));
    DPE_TRY(dpe_identity_addf(info, err, "os", "%s %s %s", system.sysname, system.release,
                              system.machine));
    DPE_TRY(dpe_identity_add(info, "cpu", cpu, err));
    DPE_TRY(dpe_identity_addf(info, err, "cores", "%lld", cores));
    if (n_threads > 0) {
        DPE_TRY(dpe_identity_addf(info, err, "threads", "%d", n_threads));
    }
    return dpe_identity_addf(info, err, "memory_bytes", "%lld", memory);
}

static dpe_status add_software(struct dpe_identity *info, struct dpe_error *err)
{
    unsigned major = 0, minor = 0, release = 0;
    H5get_libversion(&major, &minor, &release);
#ifdef __clang__
    const char *compiler = "clang " __VERSION__;
#else
    const char *compiler = "gcc " __VERSION__;
#endif
    DPE_TRY(dpe_identity_add(info, "software", dpe_version(), err));
    DPE_TRY(dpe_identity_add(info, "compiler", compiler, err));
    DPE_TRY(dpe_identity_addf(info, err, "hdf5", "%u.%u.%u", major, minor, release));
    return dpe_identity_add(info, "jansson", JANSSON_VERSION, err);
}

dpe_status dpe_run_info(struct dpe_identity *info, int argc, char *const *argv, int n_threads,
                        struct dpe_error *err)
{
    char now[32];
    dpe_time_text(now);
    DPE_TRY(dpe_identity_add(info, "started", now, err));
    DPE_TRY(add_command(info, argc, argv, err));
    DPE_TRY(add_machine(info, n_threads, err));
    return add_software(info, err);
}
