/**
 * @file gguf_model.h
 * A model in GGUF files as the configuration and the tensors of a Hugging Face folder (inside the
 * model).
 */
#ifndef DPE_GGUF_MODEL_H
#define DPE_GGUF_MODEL_H

#include "engine/gguf/gguf.h"
#include "engine/model/config/family.h"
#include "engine/model/weights/opened.h"

/** The opened files of one model. */
struct dpe_gguf_set {
    struct dpe_gguf **files; /**< [n]; metadata is that of the first */
    int n;
};

/** The metadata as the text of a config.json, the caller's (free), and the model_type in it as
 *  *family: that of the table, as a GGUF file holds it. DPE_BAD_DATA, DPE_NO_MEMORY, DPE_IO. */
dpe_status dpe_gguf_config(const struct dpe_gguf_set *set, char **json, struct dpe_family *family,
                           struct dpe_error *err);

/** Fill a zeroed model from a GGUF file: configuration, weights unless config_only. */
dpe_status dpe_model_open_gguf(struct dpe_model *model, bool config_only, struct dpe_sha256 *hash,
                               struct dpe_error *err);

#endif
