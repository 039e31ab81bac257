/**
 * @file export.h
 * The forms of a DPE table (inside outputs/; dpe-export is the tool). Each writer appends a whole
 * file to `out`; the caller puts it in place atomically. A table of several entries goes into JSON,
 * hf and safetensors; YAML and CSV hold one entry. Every form has the field
 * `adapter_required`: a static rope_scaling cannot express DPE, so no form may look like one.
 */
#ifndef DPE_EXPORT_H
#define DPE_EXPORT_H

#include "engine/base/base.h"
#include "engine/tool/result.h"
#include "outputs/h5/interval.h"
#include "outputs/table/dpe_table.h"

/** JSON, complete (outputs/table/dpe_table.schema.json); dpe_table_open reads it back. */
dpe_status dpe_export_json(const struct dpe_table *table, struct dpe_text *out,
                           struct dpe_error *err);
/** What a check's samples of one length and others of the same plans found together. */
struct dpe_pooled {
    int64_t length, n_methods; /**< tokens; 0 methods: nothing was pooled */
    struct dpe_interval *of;   /**< [n_methods], in the check's order */
    double possible; /**< of the check's task at the trained length; NaN or 0: not known */
};
/** Put what dpe-eval niah or ppl measured under the last table of its methods into the entries of
 * those lengths; *table becomes another one. `pooled` (NULL: none) stands in place of the results
 * of its length. What was possible stays as it is known of the same task. The results' identity is
 * added to `origin` (NULL allowed). DPE_BAD_DATA: the file has no results of a table at the length
 * of an entry. */
struct dpe_identity;
dpe_status dpe_export_evidence(const char *path, const struct dpe_pooled *pooled,
                               struct dpe_table **table, struct dpe_identity *origin,
                               struct dpe_error *err);
/** Whether a runtime needs an adapter: always for several entries. */
static inline bool dpe_export_needs_adapter(const struct dpe_table *table)
{
    return dpe_table_count(table) > 1 || dpe_table_needs_adapter(dpe_table_values(table)) != 0;
}
/** For DPE_SCOPED: close the tables that are there. */
static inline void dpe_tables_close(struct dpe_table *(*tables)[DPE_TABLE_ENTRIES])
{
    for (int i = 0; i < DPE_TABLE_ENTRIES; i++) {
        dpe_table_close((*tables)[i]);
    }
}
/** Pairs that rotate: the others, which come last, have no frequency. */
static inline int64_t dpe_export_rotating(const struct dpe_table_values *values)
{
    int64_t n = 0;
    while (n < values->n_pairs && values->inv_freq[n] > 0.0) {
        n++;
    }
    return n;
}
/** The YAML of the paper's released code: `model`, as the last part of the model's folder, and
 * below it local_window_size, scale_factors, dimension_groups_range, selected_dim_path. Its prefill
 * divides the window by the scale without flooring, so scales that do not divide the window are
 * noted in a comment. It cannot express a temperature: the table's is left out and noted in a
 * comment; dpe-export requires --drop-temperature for that. DPE_USAGE: a name is not UTF-8;
 * DPE_NO_MEMORY. */
dpe_status dpe_export_yaml(const struct dpe_table_values *values, const char *model,
                           const char *selected_dim_path, struct dpe_text *out,
                           struct dpe_error *err);
/** config.json with its rope block replaced by one of rope_type "dpe" that nests the native one. */
dpe_status dpe_export_hf(const struct dpe_table *table, const char *config_json,
                         struct dpe_text *out, struct dpe_error *err);
/** A row for each layer, head and pair: these, the pair's group, and every field of the table that
 *  has an element for them (effective_length, scale_factor, inv_freq, mask). It cannot express a
 *  temperature: dpe-export requires --drop-temperature for such a table. */
dpe_status dpe_export_csv(const struct dpe_table_values *values, struct dpe_text *out,
                          struct dpe_error *err);
/** Masks and numbers as tensors, the rest as metadata. Of several entries, tensors and metadata of
 *  each begin with its length ("1024.mask"), and the metadata `entries` lists the lengths. */
dpe_status dpe_export_safetensors(const struct dpe_table *table, struct dpe_text *out,
                                  struct dpe_error *err);
/** The reverse, for round trips. `name` is for messages. Free with dpe_table_close. */
dpe_status dpe_import_safetensors(const char *name, const char *bytes, size_t n,
                                  struct dpe_table **table, struct dpe_error *err);

/** Read the block of `model` (NULL: the only one) of a YAML of the paper's code: the fields that it
 *  has, all others 0; and its selected_dim_path, owned, NULL: none. Free with
 *  dpe_table_values_free. DPE_BAD_DATA names line or key; DPE_USAGE lists the models when there
 * are several. */
dpe_status dpe_import_yaml(const char *name, const char *bytes, size_t n, const char *model,
                           struct dpe_table_values *values, char **selected, struct dpe_error *err);

/** Score tensor [dims[0]] … [dims[4]] = [lengths, samples, layers, heads, pairs] as a file that
 *  torch.load(weights_only=True) opens: a zip (libzip) of pickled structure and raw float32. */
dpe_status dpe_export_pt(const float *scores, const int64_t dims[5], struct dpe_text *out,
                         struct dpe_error *err);

/* ------------------------------------------------------------------------- what dpe-export does */

/** Forms; dpe_export_formats has their names. */
enum dpe_export_format {
    FORMAT_AUTO, /**< by the name of the file; of one that does not show it: unknown */
    FORMAT_H5,
    FORMAT_JSON,
    FORMAT_YAML,
    FORMAT_PT,
    FORMAT_HF,
    FORMAT_SAFETENSORS,
    FORMAT_CSV,
    FORMAT_LONGROPE,
    FORMAT_GGUF_ROPE,
    FORMAT_FLAGS, /**< the first of those of enum dpe_flags_of, in its order */
    FORMAT_FLAGS_LAST = FORMAT_FLAGS + 2,
};

/** Whether it is the options of a runtime's command line. */
static inline bool dpe_export_is_flags(enum dpe_export_format format)
{
    return format >= FORMAT_FLAGS && format <= FORMAT_FLAGS_LAST;
}
/** Their names, "auto" first; NULL ends them. */
extern const char *const dpe_export_formats[];

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
    enum dpe_export_format format;
    bool format_given; /**< on a command line */
    const char *output, *model, *name, *scores;
    const char *gguf; /**< the file that gguf-rope copies */
    int64_t rank;     /**< 0: the lengths that the detection selected */
    int64_t length;   /**< 0: the detection's */
    int64_t entry;    /**< its length; 0: all */
    bool join;
    double k; /**< count, or minus a share */
    bool has_k, last, show, check, force, unchecked;
    bool json;             /**< of --check */
    bool drop_temperature; /**< write it into a form that cannot carry it, without it */
    bool quiet;            /**< what is lost was said when it was written before */
    int threads;           /**< for what is measured; 0: all */
    int argc; /**< words of the command line, which may name files that are not to be replaced */
    char **argv;
};

/** Why these arguments make no sense together; NULL: they do. */
const char *dpe_export_refusal(const struct dpe_export_arguments *args);
/** Read the inputs; print, check and write what is asked for. Errors of reading, checking and
 * writing. */
dpe_status dpe_export_do(const struct dpe_export_arguments *args, struct dpe_error *err);

#endif
