/**
 * @file score_parts.h
 * What the files of scoring rules share. Used inside eval/ only.
 */
#ifndef DPE_SCORE_INTERNAL_H
#define DPE_SCORE_INTERNAL_H

#include "eval/score/pytext.h"

/** What the retrieval and dialogue rules take as spaces. */
#define DPE_SCORE_PUNCTUATION "\n:\"'.,?!{}"

/** Append `text` with each of the ASCII `characters` replaced by a space. */
dpe_status dpe_score_spaced(struct dpe_span text, const char *characters, struct dpe_text *out);

#endif
