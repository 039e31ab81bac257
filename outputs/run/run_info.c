/* What this process is, for /run. */
#include "engine/base/base.h"
#include "outputs/rows/rows.h"
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
static dpe_status append_word(struct dpe_text *line, const char *word, struct dpe_error *err)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./=:,+@%";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        return dpe_text_append(line, word, strlen(word), err);
    }
    DPE_TRY(dpe_text_append(line, "'", 1, err));
    for (const char *c = word; *c != '\0'; c++) {
        const char *piece = *c == '\'' ? "'\\''" : c;
        DPE_TRY(dpe_text_append(line, piece, *c == '\'' ? 4 : 1, err));
    }
    return dpe_text_append(line, "'", 1, err);
}

dpe_status dpe_run_info_add(struct dpe_identity *info, const char *name, const char *text,
                            struct dpe_error *err)
{
    size_t n = strlen(text);
    char *shown = strdup(text);
    if (shown == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for the value of %s", name);
    }
    for (size_t i = dpe_utf8_check(text, n); i < n; i++) {
        if ((unsigned char)shown[i] >= 0x80) {
            shown[i] = '?';
        }
    }
    dpe_status status = dpe_identity_add(info, name, shown, err);
    free(shown);
    return status;
}

static dpe_status add_command(struct dpe_identity *info, int argc, char *const *argv,
                              struct dpe_error *err)
{
    struct dpe_text line = {0};
    dpe_status status = DPE_OK;
    for (int i = 0; status == DPE_OK && i < argc; i++) {
        if (i > 0) {
            status = dpe_text_append(&line, " ", 1, err);
        }
        if (status == DPE_OK) {
            status = append_word(&line, argv[i], err);
        }
    }
    if (status == DPE_OK) {
        status = dpe_run_info_add(info, "command", line.n == 0 ? "" : line.bytes, err);
    }
    dpe_text_free(&line);
    return status;
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
    dpe_status status = dpe_identity_add(info, "host", system.nodename, err);
    if (status != DPE_OK ||
        (status = dpe_identity_addf(info, err, "pid", "%ld", (long)getpid())) != DPE_OK ||
        (status = dpe_identity_addf(info, err, "os", "%s %s %s", system.sysname, system.release,
                                    system.machine)) != DPE_OK ||
        (status = dpe_identity_add(info, "cpu", cpu, err)) != DPE_OK ||
        (status = dpe_identity_addf(info, err, "cores", "%lld", cores)) != DPE_OK ||
        (n_threads > 0 &&
         (status = dpe_identity_addf(info, err, "threads", "%d", n_threads)) != DPE_OK)) {
        return status;
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
    dpe_status status = dpe_identity_add(info, "software", dpe_version(), err);
    if (status == DPE_OK) {
        status = dpe_identity_add(info, "compiler", compiler, err);
    }
    if (status == DPE_OK) {
        status = dpe_identity_addf(info, err, "hdf5", "%u.%u.%u", major, minor, release);
    }
    return status != DPE_OK ? status : dpe_identity_add(info, "jansson", JANSSON_VERSION, err);
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
