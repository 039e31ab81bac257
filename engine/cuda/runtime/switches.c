/* What the environment says about the ways of the backend. */
#include "engine/cuda/runtime/switches.h"

#include <stdlib.h>
#include <string.h>

dpe_status dpe_cuda_switches_read(struct dpe_cuda_switches *s, struct dpe_error *err)
{
    const char *graphs = getenv("DPE_CUDA_GRAPHS");
    const bool said = graphs != NULL && *graphs != '\0';
    *s = (struct dpe_cuda_switches){.graph = !said || strcmp(graphs, "off") != 0};
    return said && s->graph
               ? dpe_fail(err, DPE_USAGE, "DPE_CUDA_GRAPHS: expected off, found %s", graphs)
               : DPE_OK;
}
