/**
 * @file sections.h
 * Sections that every table can have.
 */
#ifndef DPE_SECTIONS_H
#define DPE_SECTIONS_H

#include "outputs/report/input/input.h"

/** Sections of the page: the profile of the subject, the others of all inputs. */
void dpe_sections_norms(struct report *report);
void dpe_sections_tables(struct report *report);
/** What other runtimes compute from report->runtimes, and apply of the tables among the inputs. */
void dpe_sections_runtimes(struct report *report);
void dpe_sections_time(struct report *report);
void dpe_sections_provenance(struct report *report);

#endif
