/**
 * @file read.h
 * DPE tables read back into the engine's terms.
 */
#ifndef DPE_READ_H
#define DPE_READ_H

#include "engine/base/base.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"
#include "outputs/h5/h5.h"
#include "outputs/table/dpe_table.h"

DPE_SCOPED_HANDLE(struct dpe_table *, dpe_table_close)
/** What the library of tables returns, as a status. */
static inline dpe_status dpe_table_status(int error)
{
    return error == DPE_TABLE_OK       ? DPE_OK
           : error == DPE_TABLE_MEMORY ? DPE_NO_MEMORY
                                       : DPE_BAD_DATA;
}
/** dpe_table_open (dpe_table.h) with our kind of error: DPE_NO_INPUT without such a file,
 *  DPE_PERMISSION, DPE_NO_MEMORY, else DPE_BAD_DATA. */
dpe_status dpe_table_load(const char *path, struct dpe_table **table, struct dpe_error *err);
/** The trained length in tokens for a model whose configuration has none: `given`, or (0) that of
 * the table at `path`, or 0 without one. */
int64_t dpe_table_trained(const char *path, int64_t given);
/** Put the attributes of /model that detections and profiles have: what a DPE table says of its
 * model. */
void dpe_model_put(struct dpe_h5 *file, const struct dpe_config *config, const char *fingerprint);
/** The attention temperature of a table, which may change nothing. */
struct dpe_temperature dpe_table_temperature(const struct dpe_table_values *values);
/** The reverse. Factors of heads, where there are any, are put into `room` [n_layers][n_heads]. */
void dpe_table_put_temperature(const struct dpe_temperature *temperature, double *room,
                               struct dpe_table_values *values);
enum { DPE_TABLE_SELECTION = 512 };
/** The keys of `select` that a table was found under (dpe-detect --selection), of several entries
 * those of the first that has any; "" without. Printable. Returns the buffer. */
const char *dpe_table_selection(struct dpe_h5 *file, char text[DPE_TABLE_SELECTION]);
/** DPE_BAD_DATA when layers, heads, KV heads or head dimension are not the model's. */
dpe_status dpe_table_check_model(const struct dpe_table_values *values,
                                 const struct dpe_config *config, struct dpe_error *err);
/** The position plan that a DPE table (dpe_table.h) describes, for the lengths it was made for;
 *  of `context` the configuration and `official` are used. DPE_BAD_DATA when layers,
 *  heads, KV heads or head dimension are not the model's, or its own frequencies and attention
 *  scaling are not those that the table was made with (to 1e-5). */
dpe_status dpe_plan_of_table(const struct dpe_table_values *values,
                             const struct dpe_plan_context *context, struct dpe_plan *plan,
                             struct dpe_error *err);
/** The reverse: what a table entry of the caller's groups (n_groups, group_edge) holds of a plan,
 * made for the lengths of `context`. Filled are the numbers of the model, the lengths, the window
 * (kept where the plan has none), scale_factor [n_groups] and inv_freq [n_pairs], which are the
 * caller's, applied_inv_freq (the plan's, or NULL), unrounded and the temperature; other texts are
 * not. Of the caller's are, each NULL for none, what not every plan has: mask; selection, with room
 * for a plan's name; `room` for head_scale, and, where scales are not enough, bands, beside which
 * scales are 1. *holds: whether dpe_plan_of_table of the values is the same plan. It is for DPE and
 * Self-Extend with these groups, for Leaky ReRoPE, and for methods that change frequencies alone;
 * with all of those for every plan but one with a factor of the pairs that rotate alone, where
 * heads rotate in part. DPE_NO_MEMORY, and as dpe_rope_native. */
dpe_status dpe_table_of_plan(const struct dpe_plan *plan, const struct dpe_plan_context *context,
                             double *room, struct dpe_table_values *values, bool *holds,
                             struct dpe_error *err);
/** Numbers of that room: rows of bands, then a factor for each head of each layer. */
size_t dpe_table_room(const struct dpe_config *config);
/** The table of one entry that holds the plan, made for the lengths of `context`; with so many
 * groups, or where n_groups is 0 one for each far scale. DPE_USAGE where none does. */
dpe_status dpe_table_for_plan(const struct dpe_plan *plan, const struct dpe_plan_context *context,
                              const char *fingerprint, int n_groups, struct dpe_table **table,
                              struct dpe_error *err);
enum { DPE_TABLE_NOTE = 1024 };
/** The lengths of a table's entries, "512, 1024, 2048", cut off with "…" where there are too many.
 *  Returns the buffer. */
const char *dpe_table_lengths(const struct dpe_table *table, char text[DPE_TABLE_NOTE]);
/** Where a method's spec names a table, "select:KEYS,over=table:FILE": FILE; else NULL. */
const char *dpe_plan_table_of_spec(const char *spec);
/** The plan for a text of context->length tokens that is asked for: of a table, a file of
 * dpe-detect or dpe-export, or where `table` is NULL of a method's spec. `note` (NULL allowed) says
 * in words which entry it is of, or that the method changes nothing; else it is as it was.
 *
 *  Of a table: that of the entry which dpe_table_choose takes, with a warning when the text may be
 *  longer than every entry, and one when it was found under a selection and `context` has none; for
 *  a text of at most the trained length that of `rope`. The file is refused for the same reasons
 *  whatever the length. Errors name the file. DPE_BAD_DATA when it was measured on a model with
 *  another fingerprint than `fingerprint` (NULL: not compared), and as dpe_plan_of_table.
 *
 *  Of a spec: dpe_plan_for_text, and where it names a table the plan of that with the selection; up
 *  to the trained length the model unchanged, as with the table alone. */
dpe_status dpe_plan_asked(const char *table, const char *spec,
                          const struct dpe_plan_context *context, const char *fingerprint,
                          struct dpe_plan *plan, char note[DPE_TABLE_NOTE], struct dpe_error *err);

/* The key-pair profile that dpe-norms writes: which pairs of each head contribute most. */

/** The model that a profile has to be of. */
struct dpe_profile_model {
    const char *fingerprint; /**< as dpe_model_fingerprint; NULL: not compared */
    int64_t n_layers, n_heads, n_pairs;
};

/** A profile in memory; the arrays are owned. */
struct dpe_profile {
    uint16_t *ranking; /**< [n_layers][n_heads][n_pairs] pairs by falling contribution; each row is
                            an order of all pairs */
    char *identity;    /**< of the table, SHA-256 in hex */
    float *scores;     /**< [score_dims] /norms/contribution; NULL when not asked for */
    int64_t score_dims[5]; /**< lengths, samples, layers, heads, pairs */
};

/** Read the profile in the table `path`, which must be complete and of `model`; with `scores` the
 *  contributions as well. Free with dpe_profile_free, also after a failure. Errors name the file.
 *  As dpe_h5_open and dpe_h5_get; DPE_BAD_DATA when it is not a profile, is not complete, or is of
 *  another model. */
dpe_status dpe_profile_read(const char *path, const struct dpe_profile_model *model, bool scores,
                            struct dpe_profile *profile, struct dpe_error *err);
void dpe_profile_free(struct dpe_profile *profile);

#endif
