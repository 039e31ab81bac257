/**
 * @file kv_internal.h
 * Pages of a key/value cache, their frames and their file (kv_pages.c).
 */
#ifndef DPE_KV_INTERNAL_H
#define DPE_KV_INTERNAL_H

#include "engine/ops/kv.h"

enum {
    DPE_KV_PAGE = 1 << 14, /**< bytes of a page, a multiple of every disk's block */
    DPE_KV_LEAST_FRAMES = 16,
};

struct dpe_kv_pages;

/** Memory that so many pages take with so many frames. */
uint64_t dpe_kv_pages_bytes(int64_t pages, int64_t frames);
dpe_status dpe_kv_pages_make(const char *folder, int64_t pages, int64_t frames,
                             struct dpe_kv_pages **made, struct dpe_error *err);
void dpe_kv_pages_free(struct dpe_kv_pages *pages);
DPE_SCOPED_HANDLE(struct dpe_kv_pages *, dpe_kv_pages_free)
/** The bytes of a page, which stay until it is unpinned; `writes`: they will be changed. NULL once
 *  the file has failed. A thread unpins a page before it pins another: where all frames are pinned,
 *  this waits for one. */
unsigned char *dpe_kv_pages_pin(struct dpe_kv_pages *pages, int64_t page, bool writes);
void dpe_kv_pages_unpin(struct dpe_kv_pages *pages, int64_t page);
/** The errno of the first failure, 0: none; *reads: it was reading that failed. */
int dpe_kv_pages_failed(const struct dpe_kv_pages *pages, bool *reads);
struct dpe_kv_work dpe_kv_pages_work(const struct dpe_kv_pages *pages);

#endif
