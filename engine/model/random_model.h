/**
 * @file random_model.h
 * Models of a shape with random weights, for benchmarks and tests: no folder, no tokenizer.
 */
#ifndef DPE_RANDOM_MODEL_H
#define DPE_RANDOM_MODEL_H

#include "engine/base/base.h"
#include "engine/model/model.h"

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
