/**
 * @file sections.h
 * Sections that every table can have.
 */
#ifndef DPE_SECTIONS_H
#define DPE_SECTIONS_H

#include "outputs/report/input.h"

/** Sections of the page: the profile of the subject, the others of all inputs. */
void dpe_sections_norms(struct dpe_report *report);
void dpe_sections_tables(struct dpe_report *report);
/** What other runtimes compute from report->runtimes, and apply of the tables among the inputs. */
void dpe_sections_runtimes(struct dpe_report *report);
void dpe_sections_time(struct dpe_report *report);
void dpe_sections_provenance(struct dpe_report *report);

#endif
