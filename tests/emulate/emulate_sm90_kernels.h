/**
 * @file emulate_sm90_kernels.h
 * The launches of emulate_sm90_kernels.cu and emulate_sm90_wrong.cu; each returns what dpe_launch
 * does. Pointers are memory of the device.
 */
#ifndef DPE_EMULATE_SM90_KERNELS_H
#define DPE_EMULATE_SM90_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A tensor [n3][n2][n1][n0] of 2-byte elements without gaps, and one box of it. `rows`: it lies as
 *  [n3][n1][n2][n0], rows of n2 pieces, as the attention kernel's queries, keys and values do: the
 *  stride of dimension 2 is then smaller than that of dimension 1. */
struct emulate_box {
    int n[4], box[4], at[4];
    bool rows;
};
/** The box as it lies in shared memory, byte after byte. */
int emulate_tensor_box(const uint16_t *tensor, const struct emulate_box *box, uint16_t *shared);

/** One product m64 n128 (or n64; of A in shared memory n80, n160; else n256) k16 over shared memory
 * as the caller laid it out. */
struct emulate_product {
    int n;
    bool bf16, b_n_major, accumulate;
    uint64_t a, b;               /**< descriptors with addresses relative to `shared` */
    const uint32_t *a_registers; /**< [128][4]: A from registers when not NULL */
};
/** shared: 32 KiB; d [128][n / 2], in and out. */
int emulate_product_run(const struct emulate_product *product, const uint16_t *shared, float *d);

/** Phases of a barrier of two arrivals and the 128 bytes of `row`: what waiting for a parity
 * returns at five points, seen [5]. */
int emulate_sm90_phases(const uint16_t *row, int *seen);
/** Two warpgroups that have taken registers write their numbers in turns: order [2][TURNS]. */
enum { EMULATE_SM90_TURNS = 20 };
int emulate_sm90_turns(int *order);

enum emulate_sm90_wrong_kind {
    EMULATE_SM90_NO_INIT,       /**< an arrival at a barrier that was not initialised */
    EMULATE_SM90_ARRIVALS,      /**< one arrival too many in a phase */
    EMULATE_SM90_BYTES,         /**< bytes expected that no copy brings */
    EMULATE_SM90_MANY_BYTES,    /**< more bytes expected than a barrier counts */
    EMULATE_SM90_NO_FENCE,      /**< a second product after a wait */
    EMULATE_SM90_EARLY_PRODUCT, /**< a product over a copy that is due */
    EMULATE_SM90_EARLY_COPY,    /**< a copy over what a product reads */
    EMULATE_SM90_MISALIGNED,    /**< a swizzled copy to an address that is not a multiple of 1024 */
    EMULATE_SM90_REGISTERS,     /**< fewer registers taken than the group has */
    EMULATE_SM90_MANY_REGISTERS, /**< more registers than the block has */
    EMULATE_SM90_UNALIGNED,      /**< warps of a group at different waits */
    EMULATE_SM90_NO_WAIT,        /**< a block that ends while a product is under way */
};
int emulate_sm90_wrong(enum emulate_sm90_wrong_kind kind);
/** An accumulator of every thread between issue and wait, and after it: early [2][128]. */
int emulate_sm90_early(float *early);

#ifdef __cplusplus
}
#endif
#endif
