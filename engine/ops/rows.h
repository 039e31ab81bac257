/**
 * @file rows.h
 * The bytes of a cache's rows, for whoever moves them as they are.
 */
#ifndef DPE_KV_ROWS_H
#define DPE_KV_ROWS_H

#include "engine/ops/kv.h"

/** Bytes of one row, whatever its numbers are. */
uint64_t dpe_kv_row_bytes(enum dpe_kv_type type, int64_t width);
/** The first of these rows in a cache in memory; the others follow it. */
unsigned char *dpe_kv_at(struct dpe_kv *kv, const struct dpe_kv_rows *rows);

#endif
