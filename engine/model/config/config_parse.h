/**
 * @file config_parse.h
 * config.json and generation_config.json → struct dpe_config (inside the engine).
 */
#ifndef DPE_CONFIG_PARSE_H
#define DPE_CONFIG_PARSE_H

#include "engine/base/base.h"
#include "engine/model/config/config.h"
#include "engine/text/json.h"

/** Fill *config from the text of config.json and, when not NULL, of generation_config.json.
 * config->max_position is, before, what it is where neither the file nor the family says it; 0:
 * then the file is refused; config->exported stays. The names of the files are for messages. On
 * success the lists of config->rope are owned by the caller (dpe_config_release). config->dtype is
 * the file's dtype (F32 when it has none). Errors: DPE_BAD_DATA (file, key, expected, found),
 * DPE_NO_MEMORY. */
dpe_status dpe_config_parse(const char *file, const char *json, size_t n,
                            const char *generation_file, const char *generation,
                            size_t n_generation, struct dpe_config *config, struct dpe_error *err);
/** Free what dpe_config_parse allocated. */
void dpe_config_release(struct dpe_config *config);

/** What a configuration may ask for at most. */
enum { DPE_CONFIG_MAX_LAYERS = 1 << 14, DPE_CONFIG_MAX_HEAD_DIM = 2 * DPE_MOST_PAIRS };

/** The kinds of layers. Needs config->n_layers, max_position and family. */
void dpe_config_parse_layers(struct dpe_json_reader *top, struct dpe_config *config);

/** The rotation part: legacy rope_scaling with top-level rope_theta, or rope_parameters. Needs
 *  config->head_dim and config->max_position. */
void dpe_config_parse_rope(struct dpe_json_reader *top, struct dpe_config *config);

#endif
