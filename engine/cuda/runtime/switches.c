/* The environment's names of versions. */
#include "engine/cuda/runtime/switches.h"

#include <stdlib.h>
#include <string.h>

struct named {
    const char *name;
    bool *on;
};

static dpe_status read_names(const char *variable, const char *expected, const struct named *names,
                             size_t n, struct dpe_error *err)
{
    const char *at = getenv(variable);
    dpe_status status = DPE_OK;
    while (at != NULL && *at != '\0') {
        size_t length = strcspn(at, ",");
        size_t i = 0;
        while (i < n &&
               (strlen(names[i].name) != length || strncmp(names[i].name, at, length) != 0)) {
            i++;
        }
        if (i < n) {
            *names[i].on = true;
        } else if (length > 0) {
            status = dpe_fail(err, DPE_USAGE, "%s: expected %s, divided by commas, found %.*s",
                              variable, expected, (int)length, at);
        }
        at += length + (at[length] == ',');
    }
    return status;
}

dpe_status dpe_cuda_switches_read(struct dpe_cuda_switches *s, struct dpe_error *err)
{
    *s = (struct dpe_cuda_switches){0};
    const struct named trial[] = {{"graph", &s->graph}, {"early", &s->early}};
    return read_names("DPE_CUDA_TRIAL", "graph or early", trial, sizeof trial / sizeof trial[0],
                      err);
}
