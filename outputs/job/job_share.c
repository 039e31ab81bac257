/* What rank 0 knows becomes known to all ranks. */
#include "engine/base/base.h"
#include "outputs/job/job_internal.h"
#include "outputs/rows/rows.h"
#include "outputs/run/run.h"

#include <string.h>

/* Rank 0: the rows that the others were not told yet. */
static dpe_status pack(struct dpe_job *job, struct dpe_text *bytes, struct dpe_error *err)
{
    size_t n_rows = 0;
    const struct dpe_row *rows = dpe_run_rows(job->run, &n_rows);
    dpe_status status = DPE_OK;
    for (; job->n_shared < n_rows && status == DPE_OK; job->n_shared++) {
        struct dpe_text one = {0};
        status = dpe_row_encode(&rows[job->n_shared], true, &one, err);
        uint64_t n = one.n;
        if (status == DPE_OK) {
            status = dpe_text_append(bytes, (const char *)&n, sizeof n, err);
        }
        if (status == DPE_OK) {
            status = dpe_text_append(bytes, one.bytes, one.n, err);
        }
        dpe_text_free(&one);
    }
    return status;
}

static dpe_status unpack(struct dpe_job *job, const struct dpe_text *bytes, struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    size_t at = 0;
    uint64_t n = 0;
    while (status == DPE_OK && at + sizeof n <= bytes->n) {
        struct dpe_row row;
        memcpy(&n, bytes->bytes + at, sizeof n);
        at += sizeof n;
        status = dpe_row_decode((const unsigned char *)bytes->bytes + at, (size_t)n, &row, err);
        at += n;
        if (status == DPE_OK) {
            status = dpe_run_learn(job->run, &row, err);
            dpe_row_free(&row);
        }
    }
    return status;
}

dpe_status dpe_job_share_rows(struct dpe_job *job, struct dpe_error *err)
{
    struct dpe_text bytes = {0};
    dpe_status status = job->ranks->rank == 0 ? pack(job, &bytes, err) : DPE_OK;
    status = dpe_ranks_meet(job->ranks, DPE_MEET_SHARE, status, err);
    if (status == DPE_OK) {
        status = dpe_ranks_share(job->ranks, &bytes, err);
    }
    if (status == DPE_OK && job->ranks->rank > 0) {
        status = unpack(job, &bytes, err);
    }
    dpe_text_free(&bytes);
    return status;
}
