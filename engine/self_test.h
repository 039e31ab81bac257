/**
 * @file self_test.h
 * Whether a device computes what the processors compute, asked before it is trusted with a job.
 *
 * A small random model with the head dimension, the dtype and the query heads per KV head of the
 * model at hand runs on both, in float on the processors: a prefill in two chunks, tokens one by
 * one, a few and many behind a cache, branches, each under one band, two bands with key pairs, and
 * three bands, with logits that hang on few keys. So all kernels and products that a session uses
 * are held against other code. It costs about a second.
 */
#ifndef DPE_SELF_TEST_H
#define DPE_SELF_TEST_H

#include "engine.h"

/** Test a device for models like `config`, unless this process has already done so with success.
 *  `options` as resolved: device, n_threads. `tokens` of the prefill, 0: no test;
 *  DPE_DEVICE_SELF_TEST in the environment is heeded before it ("off", or a number of tokens).
 *  DPE_NO_DEVICE says what differs or that the device does not answer, and what to do. Others as
 *  dpe_session_create. Safe to call from several threads. */
dpe_status dpe_self_test(const struct dpe_config *config, const struct dpe_session_options *options,
                         int64_t tokens, struct dpe_error *err);

#endif
