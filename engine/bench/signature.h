/**
 * @file signature.h
 * The number of dpe-bench --signature.
 */
#ifndef DPE_BENCH_SIGNATURE_H
#define DPE_BENCH_SIGNATURE_H

#include "engine/base/base.h"

/** SHA-256 over the plans of all methods for one small random model, and over its logits and
 * likeliest tokens under each, of the reference backend and of the CPU's portable kernels. It
 * depends on the source alone, and on how the C library rounds. DPE_NO_MEMORY, and what a session
 * may return. */
dpe_status dpe_bench_signature(char hex[65], struct dpe_error *err);

#endif
