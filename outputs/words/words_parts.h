/**
 * @file words_parts.h
 * What the files about a suite share.
 */
#ifndef DPE_WORDS_PARTS_H
#define DPE_WORDS_PARTS_H

#include "outputs/words/words.h"

/** How many methods are better at a task: of equal ones the earlier is, of one without a value all
 *  are. And the method of a rank. */
size_t dpe_words_rank(const struct dpe_suite_words *suite, size_t method, size_t task);
size_t dpe_words_ranked(const struct dpe_suite_words *suite, size_t rank, size_t task);
/** Figures of one suite. */
void dpe_words_suite_figures(struct dpe_page *page, const struct dpe_suite_words *suite);

#endif
