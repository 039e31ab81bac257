/**
 * @file sections.h
 * Sections that every table can have.
 */
#ifndef DPE_SECTIONS_H
#define DPE_SECTIONS_H

#include "engine/base/base.h"
#include "outputs/report/input/input.h"

/** Sections of the page: the profile of an input, the others of all. */
dpe_status dpe_sections_norms(struct report *report, const struct input *input,
                              struct dpe_error *err);
dpe_status dpe_sections_tables(struct report *report, struct dpe_error *err);
/** What other runtimes compute from report->runtimes, and apply of the tables among the inputs. */
dpe_status dpe_sections_runtimes(struct report *report, struct dpe_error *err);
dpe_status dpe_sections_time(struct report *report, struct dpe_error *err);
dpe_status dpe_sections_provenance(struct report *report, struct dpe_error *err);

#endif
