/* Names of the variants of the warpgroup kernel, for messages and tables. */
#ifndef DPE_TESTS_WGMMA_VARIANTS_H
#define DPE_TESTS_WGMMA_VARIANTS_H

#include "engine/cuda/prefill/attention_wgmma.h"

#include <stddef.h>

/* NULL after the last variant of a head_dim. */
static inline const char *wgmma_variant(int64_t head_dim, int variant)
{
    static const char *const names[] = {"wgmma 0", "wgmma 1", "wgmma 2", "wgmma 3",
                                        "wgmma 4", "wgmma 5", "wgmma 6", "wgmma 7"};
    bool there = variant < (int)(sizeof names / sizeof names[0]) &&
                 dpe_attention_wgmma_shape(head_dim, false, variant).rows > 0;
    return there ? names[variant] : NULL;
}

#endif
