/**
 * @file niah_case.h
 * What tests of needles share. Include after cmocka.h.
 */
#ifndef DPE_NIAH_CASE_H
#define DPE_NIAH_CASE_H

#include "eval/niah/niah.h"

/** The parameters of a spec, which must be right. */
static inline struct dpe_niah_params params_of(const char *spec)
{
    struct dpe_niah_params params;
    struct dpe_error err = {0};
    dpe_niah_defaults(&params);
    if (dpe_niah_parse(spec, &params, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    return params;
}

#endif
