/**
 * @file haystack.h
 * Texts to hide needles in, and where words and sentences end. Used inside eval/ only.
 */
#ifndef DPE_HAYSTACK_H
#define DPE_HAYSTACK_H

#include "data/data.h"
#include "engine/base/base.h"

/** Append to `out` the books of the corpus in drawn order, from a sentence's start near a drawn
 *  byte on, with an empty line between books, until `reserve` bytes (cut between characters) or
 *  once around (the start's own book ends it). The text begins with white space. With `repeat` it
 *  goes around until `reserve`. *whole is set if the corpus ended it. Draws from `rng` do not
 *  depend on `reserve`. */
dpe_status dpe_haystack_make(const struct dpe_corpus *corpus, struct dpe_rng *rng, bool repeat,
                             size_t reserve, struct dpe_text *out, bool *whole,
                             struct dpe_error *err);

/** Whether a sentence ends right before byte i: . ! ? … and closing quotes or brackets, then white
 *  space or the end; or an ideographic full stop. */
bool dpe_haystack_sentence_end(const char *text, size_t n, size_t i);

/** The largest word end in (low, at] (a non-space before, white space or the end of the text
 *  after it); `low` if there is no such end. */
size_t dpe_haystack_word_end(const char *text, size_t n, size_t low, size_t at);

/** The largest character boundary ≤ at. */
size_t dpe_haystack_character(const char *text, size_t n, size_t at);

/** Where to insert a needle that should be at byte `want` of [low, high]: the nearest sentence
 *  boundary (0 is one) in that range, else the nearest within 512 bytes of want, else the nearest
 *  word end in the range, else the character at want. */
size_t dpe_haystack_place(const char *text, size_t n, size_t low, size_t high, size_t want);

#endif
