/**
 * @file emulate_control.h
 * The settings that a test gives the emulator, and the results that it reads.
 */
#ifndef DPE_EMULATE_CONTROL_H
#define DPE_EMULATE_CONTROL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** 0: fibers take turns in order of their index. Else the order is drawn from this seed, and for
 * every other block, as drawn, a warp that can go on does so before any other. */
void emulate_set_seed(uint64_t seed);
/** The description of the last failed launch, "" when none failed since emulate_clear_error. */
const char *emulate_error(void);
void emulate_clear_error(void);

struct dpe_kernel_launch;
/** What dpe_rt_launch does. NULL: launches run at once (emulate_run). */
void emulate_set_launch(int (*launch)(const struct dpe_kernel_launch *launch));
/** Run all blocks; 0, or the code of cudaErrorInvalidConfiguration or cudaErrorLaunchFailure. */
int emulate_run(const struct dpe_kernel_launch *launch);
/** Launches, blocks and waits since the process started. */
struct emulate_counts {
    uint64_t launches, blocks, waits;
};
struct emulate_counts emulate_counts_read(void);

/** Reads of 8 × 16 bytes by ldmatrix since the process started, and how many times more than once
 *  each of them goes to shared memory because rows share banks. */
struct emulate_bank_counts {
    uint64_t reads, conflicts;
};
struct emulate_bank_counts emulate_bank_counts_read(void);

#ifdef __cplusplus
}
#endif
#endif
