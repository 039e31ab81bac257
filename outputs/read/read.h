/**
 * @file read.h
 * DPE tables read back into the engine's terms.
 */
#ifndef DPE_READ_H
#define DPE_READ_H

#include "engine/base/base.h"
#include "engine/plan/plan.h"
#include "outputs/h5/h5.h"

struct dpe_table;
struct dpe_table_values;
/** dpe_table_open (dpe_table.h) with our kind of error: DPE_NO_INPUT without such a file, else
 *  DPE_BAD_DATA. */
dpe_status dpe_table_load(const char *path, struct dpe_table **table, struct dpe_error *err);
/** Put the temperature of /table into a table that is being written and make its schema version the
 *  one that readers without temperatures refuse; nothing when there is none. */
dpe_status dpe_h5_put_temperature(struct dpe_h5 *table, const struct dpe_temperature *temperature,
                                  struct dpe_error *err);
/** The position plan that a DPE table (dpe_table.h) describes, for the lengths it was made for;
 *  of `context` the configuration, `official` and `angle` are used. DPE_BAD_DATA when layers,
 *  heads, KV heads or head dimension are not the model's, or its own frequencies and attention
 *  scaling are not those that the table was made with (to 1e-5). */
dpe_status dpe_plan_of_table(const struct dpe_table_values *values,
                             const struct dpe_plan_context *context, struct dpe_plan *plan,
                             struct dpe_error *err);
/** The plan that a file of dpe-detect or dpe-export describes, with a warning when
 *  context->length is beyond the length it was made for; errors name the file. DPE_BAD_DATA
 *  when it was measured on a model with another fingerprint than `fingerprint` (NULL: not
 *  compared), and as dpe_plan_of_table. */
dpe_status dpe_plan_of_table_file(const char *path, const struct dpe_plan_context *context,
                                  const char *fingerprint, struct dpe_plan *plan,
                                  struct dpe_error *err);

#endif
