/* The network of CLEX: which frequencies a length has (engine/plan/rope_clex.c). */
#include <stdio.h>

#include "engine/base/base.h"
#include "engine/model/weights/bind_internal.h"

/* A tensor as doubles; rows 0: a vector. A missing one is noted. */
static dpe_status read_tensor(struct dpe_binder *binder, const char *own, int64_t rows, int64_t cols,
                              double *out)
{
    char name[96];
    struct dpe_tensor tensor = {0};
    snprintf(name, sizeof name, "%sclex_layer.%s", binder->prefix, own);
    dpe_status status = dpe_bind_shape(binder, name, (const int64_t[]){0, rows, cols}, &tensor);
    int64_t n = status == DPE_OK && tensor.data != NULL ? cols * (rows > 0 ? rows : 1) : 0;
    for (int64_t i = 0; i < n; i++) {
        out[i] = (double)dpe_bind_element(&tensor, i);
    }
    return status;
}

dpe_status dpe_bind_clex(struct dpe_binder *binder)
{
    const struct dpe_config *config = &binder->model->config;
    struct dpe_rope_clex *clex = config->rope.clex;
    if (clex == NULL) {
        return DPE_OK;
    }
    int64_t pairs = dpe_config_pairs(config);
    clex->inv_freq = dpe_alloc_zero((size_t)(pairs + 2 * pairs * clex->width), sizeof(double));
    if (clex->inv_freq == NULL) {
        return dpe_fail(binder->err, DPE_NO_MEMORY, "%s: out of memory", binder->model->folder);
    }
    clex->up = clex->inv_freq + pairs;
    clex->down = clex->up + pairs * clex->width;
    DPE_TRY(read_tensor(binder, "inv_freq", 0, pairs, clex->inv_freq));
    DPE_TRY(read_tensor(binder, "proj_func.ode_up_proj", pairs, clex->width, clex->up));
    return read_tensor(binder, "proj_func.ode_down_proj", clex->width, pairs, clex->down);
}
