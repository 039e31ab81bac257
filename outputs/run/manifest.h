/**
 * @file manifest.h
 * manifest.json: which run a journal folder belongs to.
 */
#ifndef DPE_MANIFEST_H
#define DPE_MANIFEST_H

#include "engine/base/base.h"
#include "outputs/rows/rows.h"

/** manifest.json: the identity of a journal folder. */
struct dpe_manifest {
    struct dpe_identity identity;
    bool replace; /**< opened with `force`: whatever lies at the table's path may be replaced */
    bool other_version; /**< reading failed because another program wrote it */
};
dpe_status dpe_manifest_write(const char *path, const struct dpe_manifest *manifest,
                              struct dpe_error *err);
/** DPE_NO_INPUT when there is none, DPE_BAD_DATA when it is damaged or of another version. */
dpe_status dpe_manifest_read(const char *path, struct dpe_manifest *manifest,
                             struct dpe_error *err);

#endif
