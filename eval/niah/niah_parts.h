/**
 * @file niah_parts.h
 * What the files of the needle task share. Used inside eval/ only.
 */
#ifndef DPE_NIAH_PARTS_H
#define DPE_NIAH_PARTS_H

#include "engine/base/base.h"
#include "eval/niah/niah.h"
#include "eval/task/prompt.h"

/** Fields of templates/niah.json:
 *
 *     intro            first in the prompt                                 may hold {keys}
 *     needle           one needle                                          {key} and {value}
 *     question         after the haystack                                  {keys}
 *     answer_prefix    last in the prompt: how the answer begins           may hold {key}, {keys}
 *     answer           how one value is expected in the answer            {value}, may hold {key}
 *     keys_separator   between the asked keys in {keys}
 *     adjectives, nouns   a key is "adjective-noun"
 *
 * intro, answer_prefix and keys_separator may be left out ("", "", ", "). */
/* Read and check a template file; "" is the built-in one. As dpe_phrases_open. */
dpe_status dpe_niah_template_open(const char *file, struct dpe_phrases *phrases,
                                  struct dpe_error *err);

/** Whether the parameters can be combined; DPE_USAGE. */
dpe_status dpe_niah_check(const struct dpe_niah_params *params, struct dpe_error *err);

#endif
