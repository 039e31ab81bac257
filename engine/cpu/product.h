/**
 * @file product.h
 * Matrix products of the CPU backend.
 */
#ifndef DPE_CPU_PRODUCT_H
#define DPE_CPU_PRODUCT_H

#include "engine/base/base.h"
#include "engine/cpu/kernels/cpu_kernels.h"
#include "engine/model/config/config.h"
#include "engine/ops/ops.h"

/** out [rows][weight rows] = x · Wᵀ + bias, added to what is in out when `accumulate`. */
struct dpe_cpu_product {
    const struct dpe_tensor *weight;
    const struct dpe_tensor *bias; /**< NULL or data NULL: none */
    const float *x;                /**< [rows][weight cols] */
    int64_t rows;
    float *out;
    bool accumulate;
};

/** Buffers of matrix products, shared by all threads, for weights of at most so many rows and
 *  columns. */
struct dpe_cpu_products {
    const struct dpe_cpu_kernels *kernels;
    int n_threads;
    const struct dpe_cpu_bf16 *bf16; /**< products in bfloat16; NULL: in float */
    bool blas;                       /**< OpenBLAS instead of our tiles (portable kernels) */
    void (*sgemm)(void);             /**< OpenBLAS' function, cblas_sgemm */
    int64_t most_rows, most_columns;
    float *bias, *packed_x, *threads;
};
/** Bytes that dpe_cpu_products_make allocates. */
uint64_t dpe_cpu_products_bytes(const struct dpe_cpu_kernels *kernels,
                                const struct dpe_config *config, int n_threads);
/** bf16: NULL, or kernels for all products but those of up to 8 rows with weights of other types
 *  than bfloat16, which stay in float. The caller frees *products, also after a failure. */
dpe_status dpe_cpu_products_make(const struct dpe_cpu_kernels *kernels,
                                 const struct dpe_cpu_bf16 *bf16, const struct dpe_config *config,
                                 int n_threads, struct dpe_cpu_products *products,
                                 struct dpe_error *err);
void dpe_cpu_products_free(struct dpe_cpu_products *products);
void dpe_cpu_product(const struct dpe_cpu_products *products,
                     const struct dpe_cpu_product *product);
/** n ≤ DPE_CPU_MAX_PRODUCTS products that do not depend on each other. They run together, so that
 * threads wait for each other once, as far as their rows have room at once (those of the same x,
 * one after the other, need it once). */
void dpe_cpu_product_several(const struct dpe_cpu_products *products,
                             const struct dpe_cpu_product *several, int n);

#endif
