/**
 * @file worth.h
 * What a DPE table is worth at a length: which methods of a comparison say so (outputs/words has
 * the words).
 */
#ifndef DPE_WORTH_H
#define DPE_WORTH_H

#include "engine/base/base.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"
#include "outputs/h5/rows.h"
#include "outputs/table/dpe_table.h"

/** Of a comparison: the model as it is ("rope"), the table, the best of the other methods. */
enum { DPE_WORTH_ALONE, DPE_WORTH_TABLE, DPE_WORTH_RIVAL, DPE_WORTHS };

/** The share of what the model finds at its trained length that counts as most of it. */
#define DPE_WORTH_MOST 0.8

/** Values are shares of needles that are found, or perplexities. What is not known is NaN. */
struct dpe_worth {
    const char *table; /**< what the table is called: "the table", "table.h5" */
    const char *rival; /**< NULL: there is none */
    const char *task;  /**< "4 keys of one value"; "": a perplexity, or not known */
    bool perplexity;
    bool factors; /**< runtimes that read the table without an adapter change short texts */
    int64_t length, trained;               /**< tokens; trained 0: not known */
    int64_t samples, validated;            /**< all that were measured; those of a validation */
    int64_t method[DPE_WORTHS];            /**< indices in the comparison; −1: none */
    struct dpe_interval value[DPE_WORTHS]; /**< under these methods */
    double possible;                       /**< the unchanged model's share at its trained length */
    double p;                              /**< of: the table and the model as it is are alike */
    struct dpe_difference rival_minus;     /**< the rival's score − the table's */
    bool same;                             /**< the rival has the table's score in every sample */
    const char *plan[DPE_WORTHS];          /**< keys of their plans, borrowed; NULL: not known */
    double texts[DPE_WORTHS];              /**< perplexity of texts, of needles; NaN: not known */
    struct dpe_worth_kld {                 /**< how far it is from the unchanged model, */
        double mean, same; /**< nats a token; share of tokens that both expect most */
        int64_t tokens;    /**< in so many at the beginning of texts; 0: not known */
    } kld;
    const char *files; /**< which file is for which runtime; NULL: not said */
};
/** Whether a method is a DPE table, or dpe by its settings. */
bool dpe_worth_is_table(const char *method);
/** From task `t` of a comparison whose differences are to method `against` (−1: there are none).
 * The table is the last one, else the last of dpe by its settings. */
void dpe_worth_of(const struct dpe_suite_result *result, int64_t t, bool perplexity,
                  int64_t against, struct dpe_worth *worth);
/** What the table itself keeps of that length and task: always what is possible, and with `checked`
 * the values, which may be of more samples than the comparison's. Texts are borrowed. */
void dpe_worth_keep(const struct dpe_table *table, bool checked, struct dpe_worth *worth);
/** Of a comparison of needles: the perplexity of texts of that length under the same plans, where
 * the guard of this detection measured it. A method may find as much and be worth less. */
void dpe_worth_texts(struct dpe_h5 *detection, struct dpe_worth *worth);
/** The needles of a comparison in words, "4 keys of one value"; "" for a perplexity, or where they
 * are not known. */
void dpe_worth_task(struct dpe_h5 *comparison, char words[DPE_TASK_WORDS]);
/* What reads a DPE table or a form of it, and by which command: dpe-calibrate and dpe-report print
 * it. */

/** One way to use a table. The command has MODEL, TABLE and WEIGHTS for the model, the
 *  table's file and the GGUF file of the model. */
struct dpe_use {
    const char *runtime, *command;
    bool factors; /**< for a table of frequencies alone: without an adapter */
};
enum { DPE_USES = 6 };
extern const struct dpe_use dpe_uses[DPE_USES];

#endif
