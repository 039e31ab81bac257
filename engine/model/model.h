/**
 * @file model.h
 * A model opened: configuration as data, weights mapped and bound by meaning; or one of a shape
 * with random weights.
 */
#ifndef DPE_MODEL_H
#define DPE_MODEL_H

#include "engine/base/base.h"
#include "engine/model/config/config.h"
#include "engine/model/config/layer_weights.h"

/** An opened model folder. */
struct dpe_model;

/** How much of the weights the model fingerprint covers. */
enum dpe_fingerprint_kind { DPE_FINGERPRINT_FAST, DPE_FINGERPRINT_FULL };

struct dpe_model_options {
    enum dpe_fingerprint_kind fingerprint; /**< default DPE_FINGERPRINT_FAST */
    bool config_only;       /**< do not look at the weights at all (dry runs): tensors are absent */
    int64_t trained_length; /**< max_position_embeddings where the file has none; 0: refuse it */
};

/** Open a GGUF file (the first of a split one), or a Hugging Face folder (config.json,
 * model.safetensors or model.safetensors.index.json with shards, generation_config.json if there).
 * Weights are memory-mapped, bound by meaning, strict on name, shape and dtype. `options` may be
 * NULL. The caller closes with dpe_model_close. Errors: DPE_NO_INPUT, DPE_BAD_DATA (file, tensor,
 * expected, found), DPE_NO_MEMORY, DPE_PERMISSION. */
dpe_status dpe_model_open(const char *folder, const struct dpe_model_options *options,
                          struct dpe_model **model, struct dpe_error *err);
/** Close; NULL is allowed. No session of the model may live. */
void dpe_model_close(struct dpe_model *model);
DPE_SCOPED_HANDLE(struct dpe_model *, dpe_model_close)
/** Borrowed for the model's life. */
const struct dpe_config *dpe_model_config(const struct dpe_model *model);
/** Borrowed for the model's life; NULL when opened with config_only. */
const struct dpe_weights *dpe_model_weights(const struct dpe_model *model);
/** The types of the tensors of a GGUF file and how many there are of each, "Q4_1 210, F32 61"; NULL
 *  for a folder. */
const char *dpe_model_types(const struct dpe_model *model);
/** The folder or GGUF file as given to dpe_model_open. */
const char *dpe_model_folder(const struct dpe_model *model);
/** The bytes of config.json as read, NUL-terminated; of a GGUF file its metadata as a config.json.
 */
const char *dpe_model_config_json(const struct dpe_model *model);
/** SHA-256, 64 lower-case hex digits, over config.json and, per shard in name order, name, size and
 *  header bytes, and of its data 256 evenly spaced blocks of 4 KiB (fast) or all bytes (full).
 *  Opened with config_only: over config.json alone, so it
 *  differs from the fingerprint of the same folder with weights. */
const char *dpe_model_fingerprint(const struct dpe_model *model);
/** What a user should know of a model that opened, one line without its folder; NULL: nothing. */
const char *dpe_model_warning(const struct dpe_model *model);
/** Check that no mapped shard shrank since it was opened (a shrunken mapping would be a SIGBUS);
 *  DPE_IO names the file. Sessions call it before every prefill. */
dpe_status dpe_model_verify(const struct dpe_model *model, struct dpe_error *err);

/* Models with random weights, for benchmarks and tests: no folder, no tokenizer. */

/** A model of `config` (copied; longrope factors are not) whose weights are about normal with
 *  deviation 1/√cols, norms 1, drawn from `seed`; matrices in the config's types of blocks in turn,
 * where these fit. With `on_host` false no tensor has data: sessions of device cuda then draw them
 * on the device, other devices must not be used. Close with dpe_model_close. DPE_NO_MEMORY. */
dpe_status dpe_random_model(const struct dpe_config *config, bool on_host, uint64_t seed,
                            struct dpe_model **model, struct dpe_error *err);

/** Configuration of a known shape: "llama3-8b", "llama3-70b-layer" (one of its layers),
 *  "mistral-7b", "qwen2.5-7b". False when there is none of that name. */
bool dpe_known_shape(const char *name, struct dpe_config *config);

#endif
