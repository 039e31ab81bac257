/**
 * @file norms_study.h
 * The study of dpe-norms: excerpts in, the profile of every head out.
 */
#ifndef DPE_NORMS_STUDY_H
#define DPE_NORMS_STUDY_H

#include "norms/norms.h"
#include "outputs/job/job.h"

/** What is asked for. */
struct dpe_norms_arguments {
    struct dpe_job_options job;
    const char *lengths; /**< of the excerpts: "A,B,…"; "auto" or NULL: powers of two up to L0 */
    enum dpe_contribution contribution;
    enum dpe_special_policy special;
    bool contribution_given, special_given;
};
/** Excerpts of each length and their seed, where none are given. */
enum { DPE_NORMS_SAMPLES = 10, DPE_NORMS_SEED = 1 };

/** Its args: struct dpe_norms_arguments. */
extern const struct dpe_study dpe_norms_study;

#endif
