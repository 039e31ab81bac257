/**
 * @file options.h
 * The options of a session, which backends and sessions read.
 */
#ifndef DPE_OPTIONS_H
#define DPE_OPTIONS_H

#include "engine/base/base.h"
#include "engine/ops/kv.h"

/** The processes that hold one model together (tensor parallel), as one of them sees them. Process
 *  `index` of `size` has the index-th share of the heads and of the columns of the MLP of every
 *  layer, and all of the embedding, the norms and the LM head. They make the same calls in the same
 *  order on sessions of the same options: dpe_session_create and every call that runs tokens
 *  synchronise all of them and end with the same status everywhere. The implementation transports
 *  the bytes between processes; the engine does not. */
struct dpe_peers {
    int index, size;
    void *user;
    /** Wait for all processes. x [n] becomes the sum of the x of all in the order of their indices,
     * with the same bits everywhere; n = 0: nothing to sum. When any process passes a `status`
     * other than DPE_OK, nothing is summed, and all return the status of the lowest such index with
     * its message; the n of a process that passes a failure is not used. The implementation handles
     * a process that has ended or does not arrive: it may end the job. */
    dpe_status (*meet)(void *user, float *x, int64_t n, dpe_status status, struct dpe_error *err);
    /** Copy the n bytes of index 0 to all processes. */
    dpe_status (*share)(void *user, void *bytes, size_t n, struct dpe_error *err);
};

/** The caller's names ("--length") for what it can change when a session does not fit into memory,
 *  for messages. NULL: it cannot change this; a name may be a list, "prompt, --max-new". */
struct dpe_session_knobs {
    const char *length, *chunk, *branches; /**< less of them needs less */
    const char *peers;                     /**< more of them need less each */
    const char *max_memory;                /**< what max_memory came from */
};

/** What a device may have several ways for: the fastest first, and what is left when that fails. */
enum dpe_part {
    DPE_PART_ATTENTION, /**< of many rows */
    DPE_PART_SPLIT,     /**< of some rows over so many keys that these are taken in parts */
    DPE_PART_DECODING,  /**< attention of few rows */
    DPE_PART_PRODUCTS,  /**< of few rows */
    DPE_PART_STEPS,     /**< launches of a step of decoding */
    DPE_WAY_PARTS
};
/** A way for each part: 0 is the fastest that there is for a model on a device (dpe_ops.way). One
 * that there is not stands for the last. */
struct dpe_ways {
    uint8_t way[DPE_WAY_PARTS];
};

struct dpe_session;
struct dpe_session_options {
    /** "cpu" (default when NULL), "cpu-bf16", "reference", "cuda", "cuda:N", "auto". */
    const char *device;
    int n_threads;         /**< 0 = all cores that the process may use */
    int64_t capacity;      /**< most tokens the KV cache holds; required, ≥ 1 */
    int64_t positions;     /**< most tokens of one sequence, ≤ capacity; 0 = capacity. Less only
                                makes sense with branches: tables and workspace are as long */
    int64_t branches;      /**< most branches, ≤ DPE_MAX_BRANCHES; 0 = 1 */
    int64_t prefill_chunk; /**< rows of a chunk, on a fixed grid from position 0; 0 = default, on
                                a device with too little memory for that halved until it fits */
    uint64_t max_memory;   /**< bytes the session may use; 0 = what is free on this machine */
    enum dpe_kv_type kv_type; /**< of the cache; DPE_KV_F32: as the device has keys and values */
    const char *kv_dir; /**< folder of the file in which keys and values live that do not fit into
                             max_memory, borrowed for the session's life; NULL: such a session is
                             refused */
    double timeout_seconds; /**< a device that does not answer for so many seconds has failed; 0 =
                               no limit */
    bool each_call; /**< with a time limit: wait after each call, so that a failure names it */
    struct dpe_ways ways; /**< zeros: the fastest. dpe_session_create finds those that are right */
    const struct dpe_peers *peers; /**< the processes with the rest of the model, borrowed for the
                                        session's life; NULL: all of it is here. An estimate uses
                                      only index and size */
    /** The session that this one is to be beside: it has a cache, a plan and branches of its own,
     * and the other's weights, buffers, device, threads, type of cache, peers and (at most) chunk,
     * whatever these options say. The other one outlives it; one thread uses both. Steps of both
     * can be one (dpe_session_step_parts). NULL: none. An estimate is what it needs in addition. */
    struct dpe_session *beside;
    struct dpe_session_knobs knobs; /**< names borrowed for the session's life; all NULL: those of
                                         these fields */
};

/** What a device is, as far as this is known without using it. */
struct dpe_device_info {
    char kind[16];   /**< "cpu", "cpu-bf16", "reference", "cuda"; which one of a kind decides no
                        result */
    char name[256];  /**< "NVIDIA H200"; "" for the processors of this machine */
    char driver[16]; /**< newest CUDA version that the driver supports, "13.0"; "" without one */
    char id[64];     /**< the same for two processes that use the same device of a machine */
    int count;       /**< devices of the kind on this machine */
    char module[65]; /**< SHA-256 of the file with its kernels; "" where it is not known */
};

#endif
