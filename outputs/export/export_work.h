/**
 * @file export_work.h
 * Make a table, write it in a form, print or check it: what dpe-export does.
 */
#ifndef DPE_EXPORT_WORK_H
#define DPE_EXPORT_WORK_H

#include "engine/base/base.h"
#include "engine/tool/result.h"
#include "outputs/table/dpe_table.h"

/** What is asked for: the command line of dpe-export. */
struct dpe_export_arguments {
    const char *fingerprint; /**< of weights that `model` does not have; NULL: the model's */
    /** [n_inputs] DETECT.h5 [NORMS.h5], TABLE, or with --join TABLE … */
    const char *inputs[DPE_TABLE_ENTRIES];
    int n_inputs;
    const char *yaml;     /**< --import-yaml */
    const char *evidence; /**< --evidence: results of dpe-eval */
    /** With `evidence`: in place of what it has of a length; NULL. */
    const struct dpe_pooled *pooled;
    const char *method; /**< --method: its spec */
    int64_t trained;    /**< L0 for --method; 0: max_position_embeddings */
    const char *output, *format, *model, *name, *scores;
    const char *gguf; /**< the file that gguf-rope copies */
    int64_t rank;     /**< 0: the lengths that the detection selected */
    int64_t length;   /**< 0: the detection's */
    int64_t entry;    /**< its length; 0: all */
    bool join;
    double k; /**< count, or minus a share */
    bool has_k, last, show, check, force, unchecked;
    enum dpe_result_format result; /**< of --check */
    bool drop_temperature;         /**< write it into a form that cannot carry it, without it */
    bool quiet;                    /**< what is lost was said when it was written before */
    int threads;                   /**< for what is measured; 0: all */
    int argc; /**< words of the command line, which may name files that are not to be replaced */
    char **argv;
};

/** Why these arguments make no sense together; NULL: they do. */
const char *dpe_export_refusal(const struct dpe_export_arguments *args);
/** Read the inputs; print, check and write what is asked for. Errors of reading, checking and
 * writing. */
dpe_status dpe_export_do(const struct dpe_export_arguments *args, struct dpe_error *err);

#endif
