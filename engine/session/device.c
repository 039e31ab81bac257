/* Devices by name, and their backends. The CUDA backend is a module: the file that DPE_CUDA_MODULE
 * names, a shared library next to the tool or in its library folder, or where the loader searches.
 */
#include "engine/session/device.h"
#include "engine/base/base.h"
#include "engine/cpu/cpu.h"
#include "engine/model/model.h"
#include "engine/ops/module.h"
#include "engine/ops/ops.h"
#include "engine/ops/ops_host.h"
#include "engine/ops/options.h"
#include "engine/session/device_check.h"
#include "engine/system/platform.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_ROOM = 4096 };

static const struct dpe_cuda_module *loaded; /* NULL: none, for this reason */
static char reason[512];
static char digest[65]; /* of the module's file, "" where the loader searched for it */

/* A module that exists but does not load is an error, not skipped. */
static void *open_file(const char *path, const char *before)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(reason, sizeof reason, "%s%s", before, dlerror());
    } else {
        (void)dpe_sha256_file(path, digest, NULL);
    }
    return library;
}

static void *open_library(void)
{
    static const char *const places[] = {"", "../lib/", "../" DPE_LIBDIR "/", "../lib/dpe/"};
    char folder[PATH_ROOM];
    char path[PATH_ROOM + 64];
    const char *named = getenv("DPE_CUDA_MODULE");
    if (named != NULL && named[0] != '\0') {
        return open_file(named, "DPE_CUDA_MODULE: ");
    }
    const bool known = dpe_program_folder(folder, sizeof folder);
    for (size_t i = 0; known && i < sizeof places / sizeof places[0]; i++) {
        snprintf(path, sizeof path, "%s%slibdpe_cuda.so", folder, places[i]);
        if (access(path, F_OK) == 0) {
            return open_file(path, "");
        }
    }
    void *library = dlopen("libdpe_cuda.so", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(
            reason, sizeof reason,
            "libdpe_cuda.so is neither next to the tool nor in its library folder, so this dpe was "
            "built without CUDA");
    }
    return library;
}

static void load(void)
{
    void *library = open_library();
    if (library == NULL) {
        return;
    }
    const struct dpe_cuda_module *(*get)(void) = NULL;
    *(void **)(&get) = dlsym(library, DPE_CUDA_MODULE_SYMBOL);
    const struct dpe_cuda_module *found = get == NULL ? NULL : get();
    if (found == NULL || found->version != DPE_CUDA_MODULE_VERSION) {
        snprintf(reason, sizeof reason, "libdpe_cuda.so belongs to another version of dpe");
        dlclose(library);
        return;
    }
    loaded = found;
}

dpe_status dpe_cuda_load(const struct dpe_cuda_module **found, struct dpe_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    if (loaded == NULL) {
        return dpe_fail(err, DPE_NO_DEVICE, "device cuda: %s; use --device cpu", reason);
    }
    *found = loaded;
    return DPE_OK;
}

bool dpe_cuda_is_name(const char *device)
{
    return device != NULL && (strcmp(device, "cuda") == 0 || strncmp(device, "cuda:", 5) == 0);
}

dpe_status dpe_device_resolve(const char *device, const char **resolved, struct dpe_error *err)
{
    const struct dpe_cuda_module *found = NULL;
    if (device != NULL && strcmp(device, "auto") == 0) {
        bool there =
            dpe_cuda_load(&found, NULL) == DPE_OK && found->available("cuda", NULL) == DPE_OK;
        *resolved = there ? "cuda" : "cpu";
        return DPE_OK;
    }
    *resolved = device == NULL ? "cpu" : device;
    if (!dpe_cuda_is_name(device)) {
        return DPE_OK;
    }
    const char *number = device + strlen("cuda");
    size_t digits = *number == ':' ? strspn(number + 1, "0123456789") : 0;
    if (*number == ':' && (digits < 1 || digits > 4 || number[1 + digits] != '\0')) {
        return dpe_fail(err, DPE_USAGE, "unknown device '%.64s'; expected cuda or cuda:N", device);
    }
    DPE_TRY(dpe_cuda_load(&found, err));
    return found->available(device, err);
}

dpe_status dpe_device_describe(const char *device, struct dpe_device_info *info,
                               struct dpe_error *err)
{
    const char *name = NULL;
    const struct dpe_cuda_module *found = NULL;
    *info = (struct dpe_device_info){.count = 1};
    DPE_TRY(dpe_device_resolve(device, &name, err));
    if (dpe_cuda_is_name(name)) {
        DPE_TRY(dpe_cuda_load(&found, err));
        DPE_TRY(found->describe(name, info, err));
        snprintf(info->module, sizeof info->module, "%s", digest);
        return DPE_OK;
    }
    snprintf(info->kind, sizeof info->kind, "%s", name);
    snprintf(info->id, sizeof info->id, "%s", name);
    return DPE_OK;
}

dpe_status dpe_ops_find(const char *device, const struct dpe_ops **ops, struct dpe_error *err)
{
    const struct dpe_ops *const all[] = {
        dpe_ops_cpu(),
        dpe_ops_cpu_bf16(),
        dpe_ops_reference(),
    };
    static const char known[] = "auto, cpu, cpu-bf16, reference, cuda, cuda:N";
    char meant[96];
    const char *name = NULL;
    DPE_TRY(dpe_device_resolve(device, &name, err));
    if (dpe_cuda_is_name(name)) {
        const struct dpe_cuda_module *module = NULL;
        DPE_TRY(dpe_cuda_load(&module, err));
        *ops = module->ops;
        return DPE_OK;
    }
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(name, all[i]->name) == 0) {
            *ops = all[i];
            return DPE_OK;
        }
    }
    return dpe_fail(err, DPE_NO_DEVICE, "unknown device '%.64s'; devices: %s%s", device, known,
                    dpe_suggest(device, known, meant));
}

uint64_t dpe_device_memory(const char *device)
{
    const struct dpe_ops *ops = NULL;
    const struct dpe_session_options options = {.device = device};
    return dpe_ops_find(device, &ops, NULL) == DPE_OK ? ops->memory_available(&options)
                                                      : UINT64_MAX;
}

enum dpe_dtype dpe_device_dtype(const char *device, const struct dpe_config *config)
{
    if (dpe_cuda_is_name(device)) {
        return dpe_config_unpacked(config);
    }
    return strcmp(device, dpe_ops_cpu_bf16()->name) == 0 ? DPE_BF16 : DPE_F32;
}

/* Kept beside the verdicts of devices: way 1 of the first part is bf16. */
static bool bf16_pays(void)
{
    char key[65] = "";
    char host[256] = "";
    struct dpe_ways ways = {{0}};
    struct dpe_sha256 *hash = dpe_sha256_new();
    (void)gethostname(host, sizeof host - 1);
    const char *const texts[] = {dpe_version(), host, dpe_ops_cpu_bf16()->name, getenv("DPE_CPU")};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        dpe_sha256_text(hash, texts[i]);
    }
    if (dpe_sha256_finish(hash, key, NULL) != DPE_OK || !dpe_verdict_find(key, &ways)) {
        ways.way[0] = dpe_cpu_bf16_pays_here() ? 1 : 0;
        dpe_verdict_keep(key, &ways);
    }
    return ways.way[0] == 1;
}

const char *dpe_device_fastest(const char *otherwise)
{
    return !dpe_cpu_has_bf16() ? otherwise
           : bf16_pays()       ? dpe_ops_cpu_bf16()->name
                               : dpe_ops_cpu()->name;
}
