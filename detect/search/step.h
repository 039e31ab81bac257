/**
 * @file step.h
 * One step of a search. No library.
 */
#ifndef DPE_DETECT_STEP_H
#define DPE_DETECT_STEP_H

#include "detect/search/search.h"

/** Gains that differ by less are equal. */
#define DPE_DETECT_TIE 1e-9

/** Whether a search begins with the coarse step. */
static inline bool dpe_detect_is_coarse(const struct dpe_detect_search_options *options,
                                        const struct dpe_detect_params *params)
{
    return (options->joint || options->brief) && !params->frequencies;
}
/** Run a step whose plans and keys are there, on the rows of the source, and set what it shows and
 * chooses. Where rows are missing, search->complete is false, and `wanted` of the search and of the
 * plans say which. Errors of the source, DPE_NO_MEMORY. */
dpe_status dpe_detect_step_run(const struct dpe_detect_source *source,
                               struct dpe_detect_search *search, struct dpe_detect_step *step,
                               struct dpe_error *err);

#endif
