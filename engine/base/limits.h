/**
 * @file limits.h
 * What the control groups of this process leave it (Linux: a batch system's job, a container, a
 * unit of systemd). A limit binds a process in the group where it is set and in all groups below,
 * so a process has the smallest of what its own group and each group above it leave.
 */
#ifndef DPE_LIMITS_H
#define DPE_LIMITS_H

#include <stdint.h>

struct dpe_limits {
    uint64_t memory;    /**< bytes that can still be taken; UINT64_MAX without a limit */
    int64_t processors; /**< whole processors of time, at least 1; INT64_MAX without a limit */
};

/** Reads the groups of this process, of either version or of both (hybrid).
 *
 *  Memory: of memory.max and memory.high (v2) or memory.limit_in_bytes (v1), what is not used;
 *  pages of files that are not in use count as free, because the kernel takes them back.
 * memory.high counts because a process above it is slowed down until it stands still. Swap does not
 * count. Processors: cpu.max (v2) or cpu.cfs_quota_us by cpu.cfs_period_us (v1), rounded down. The
 * set of processors (cpuset) is not read here: the affinity of a process has it.
 *
 *  @param root  stands before every path that is read; "" for this machine */
void dpe_limits_read(const char *root, struct dpe_limits *limits);

#endif
