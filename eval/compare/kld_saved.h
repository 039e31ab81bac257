/**
 * @file kld_saved.h
 * A base's distributions kept in a file, so that many methods are compared with one reading of it.
 *
 * A token's row holds ln p of the vocabulary in steps of 16 bits, from the likeliest token down to
 * where p is exp(−32) of its probability (about 1e-14); what is less likely stands at that. Which
 * token is the likeliest, and p of the token that follows, are kept exactly. The rounding is
 * measured when a row is written. Texts stand at places of their own, so that processes may write
 * different ones, and two that write the same write the same bytes. A text counts when it is
 * complete.
 */
#ifndef DPE_KLD_SAVED_H
#define DPE_KLD_SAVED_H

#include "engine/base/base.h"

/** What must be the same for a file to be read: of texts of `length` tokens, by this plan of this
 * model on this device. */
struct dpe_kld_saved_name {
    int64_t vocab, length;
    const char *plan, *model, *device, *kv_type;
};
struct dpe_kld_saved;

/** Open a file, or begin one. DPE_BAD_DATA: another kind of file; DPE_MISMATCH: of another base,
 * with the difference; DPE_CANNOT_CREATE, DPE_IO, DPE_NO_MEMORY. */
dpe_status dpe_kld_saved_open(const char *path, const struct dpe_kld_saved_name *name,
                              struct dpe_kld_saved **saved, struct dpe_error *err);
/** NULL is allowed. */
void dpe_kld_saved_close(struct dpe_kld_saved *saved);
DPE_SCOPED_HANDLE(struct dpe_kld_saved *, dpe_kld_saved_close)
/** Bytes of a text. */
int64_t dpe_kld_saved_bytes(int64_t vocab, int64_t length);

/** Whether the file has text `text`, whose tokens are ids [length]. DPE_MISMATCH: it is another
 * text. */
dpe_status dpe_kld_saved_has(struct dpe_kld_saved *saved, int64_t text, const int32_t *ids,
                             bool *has, struct dpe_error *err);
/** Keep the rows `at` … at + rows − 1: logits [rows][vocab], which become ln p as a reader gets
 * them, and nll [rows] = −ln p of next [rows]. Values that are not finite are kept as such. */
dpe_status dpe_kld_saved_put(struct dpe_kld_saved *saved, int64_t text, int64_t at, int64_t rows,
                             const int32_t *next, float *logits, double *nll,
                             struct dpe_error *err);
/** The text is complete, and on disk. */
dpe_status dpe_kld_saved_end(struct dpe_kld_saved *saved, int64_t text, const int32_t *ids,
                             struct dpe_error *err);
/** Read rows back. */
dpe_status dpe_kld_saved_get(struct dpe_kld_saved *saved, int64_t text, int64_t at, int64_t rows,
                             float *logits, double *nll, struct dpe_error *err);

/** Of the rows of texts 0 … n_texts − 1 that are complete: KL(p‖what is kept), nats, mean and
 * largest; 0 tokens: none is. */
struct dpe_kld_rounding {
    int64_t tokens;
    double mean, most;
};
dpe_status dpe_kld_saved_rounding(struct dpe_kld_saved *saved, int64_t n_texts,
                                  struct dpe_kld_rounding *rounding, struct dpe_error *err);

#endif
