/**
 * @file sections.h
 * Sections that every table can have.
 */
#ifndef DPE_SECTIONS_H
#define DPE_SECTIONS_H

#include "engine/base/base.h"
#include "outputs/report/input/input.h"

/** Sections. Each adds what the inputs have, and nothing when they have nothing. Errors are those of
 *  reading. */
dpe_status report_norms(struct report *report, struct dpe_error *err);
dpe_status report_tables(struct report *report, struct dpe_error *err);
dpe_status report_time(struct report *report, struct dpe_error *err);
dpe_status report_provenance(struct report *report, struct dpe_error *err);

#endif
