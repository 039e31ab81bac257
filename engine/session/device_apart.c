/* A test of a device in a child process: dpe-bench, which reads the request and writes the result.
 * A fork would not do: neither a device nor the threads of OpenMP outlive one. */
#include "engine/session/device_check.h"
#include "engine/session/ladder.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/system/child.h"
#include "engine/system/platform.h"

/* Both programs are of one build, or the child does not answer. */
struct message {
    char version[64];
    struct dpe_device_request request;
};

/* A test's calls each have their limit; this one is for a call that never comes back, and has room
 * for a driver that makes machine code of every kernel first. */
enum { LIMITS = 5 };

static void greet(struct message *message)
{
    memset(message, 0, sizeof *message);
    snprintf(message->version, sizeof message->version, "%s, %zu bytes", dpe_version(),
             sizeof(struct dpe_device_result));
}

int dpe_device_child(void)
{
    struct message message;
    struct message own;
    struct dpe_device_result result;
    greet(&own);
    if (fread(&message, sizeof message, 1, stdin) != 1 ||
        memcmp(message.version, own.version, sizeof own.version) != 0) {
        return 65; /* EX_DATAERR */
    }
    dpe_device_test(&message.request, &result);
    bool written = fwrite(&result, sizeof result, 1, stdout) == 1 && fflush(stdout) == 0;
    return written ? 0 : 74; /* EX_IOERR */
}

/* dpe-bench beside this program, or where tools lie beside its folder. */
static bool find_program(char *path, size_t size)
{
    static const char *const places[] = {"dpe-bench", "../bin/dpe-bench"};
    char own[3072];
    if (!dpe_program_path(own, sizeof own)) {
        return false;
    }
    char *slash = strrchr(own, '/');
    for (size_t i = 0; slash != NULL && i < sizeof places / sizeof places[0]; i++) {
        slash[1] = '\0';
        int n = snprintf(path, size, "%s%s", own, places[i]);
        if (n > 0 && (size_t)n < size && access(path, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* The child came to no result. */
static void note_end(bool late, const struct dpe_error *err, struct dpe_device_result *result)
{
    memset(result, 0, sizeof *result);
    result->outcome = late ? DPE_DEVICE_HANGS : DPE_DEVICE_FAILED;
    snprintf(result->text, sizeof result->text, "%.500s", err->text);
}

/* False: no child can test here. */
static bool try_apart(const struct dpe_device_request *request, struct dpe_device_result *result)
{
    static char argument[] = DPE_DEVICE_CHILD;
    char path[4096];
    struct message message;
    DPE_SCOPED(dpe_text_free) struct dpe_text output = {0};
    struct dpe_error err = {0};
    const struct dpe_child_limits limits = {.seconds = LIMITS * request->timeout_seconds};
    if (!find_program(path, sizeof path)) {
        return false;
    }
    char *const argv[] = {path, argument, NULL};
    greet(&message);
    message.request = *request;
    const double begin = dpe_clock();
    dpe_status status =
        dpe_child_filter(argv, (const char *)&message, sizeof message, &limits, &output, &err);
    const bool answered = status == DPE_OK && output.n == sizeof *result;
    if (answered) {
        memcpy(result, output.bytes, sizeof *result);
    } else if (status == DPE_IO && strstr(err.text, "exit status 65") == NULL) {
        note_end(dpe_clock() - begin >= limits.seconds, &err, result);
    }
    /* A card that serves one process alone serves this one. */
    return (answered || status == DPE_IO) && strstr(err.text, "exit status 65") == NULL &&
           !(result->outcome == DPE_DEVICE_FAILED &&
             strstr(result->text, "cudaErrorDevicesUnavailable") != NULL);
}

void dpe_device_test_apart(const struct dpe_device_request *request,
                           struct dpe_device_result *result)
{
    if (!try_apart(request, result)) {
        dpe_device_test(request, result);
        return;
    }
    if (result->outcome == DPE_DEVICE_HANGS || result->outcome == DPE_DEVICE_FAILED) {
        struct dpe_device_request open = *request;
        struct dpe_device_result opened;
        open.plan = DPE_DEVICE_OPEN;
        result->needs_reset = try_apart(&open, &opened) && opened.outcome != DPE_DEVICE_RIGHT &&
                              opened.outcome != DPE_DEVICE_UNTESTED;
    }
}
