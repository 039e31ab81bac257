/**
 * @file calibrate_tool.h
 * Inside of dpe-calibrate: a list of studies over one job, what is derived from their tables, and
 * the folder that everything is in. No library.
 */
#ifndef DPE_CALIBRATE_TOOL_H
#define DPE_CALIBRATE_TOOL_H

#include "detect/search/key_pairs.h"
#include "detect/tool/detection.h"
#include "eval/tool/comparison.h"
#include "norms/norms.h"
#include "outputs/datasets/kinds.h"
#include "outputs/export/export.h"
#include "outputs/job/job.h"
#include "outputs/job/price.h"
#include "outputs/report/report_page.h"

enum { CALIBRATE_METHOD = 256, CALIBRATE_NIAH = 512, CALIBRATE_FILES = 160 };

/** The parts of dpe-eval, whose samples differ. */
enum calibrate_part {
    CALIBRATE_PAIRS, /**< how many key pairs: an ablation */
    CALIBRATE_CHECK,
};

/** What parts add to the sweep's seed. */
enum {
    CALIBRATE_CHECK_SEED = 1000,
    CALIBRATE_PAIRS_SEED = 2000,
    CALIBRATE_SEEDS = 2000,
};

/** The value of --top-k that measures it. */
#define CALIBRATE_AUTO "auto"

/** The command line. */
struct calibrate_arguments {
    struct dpe_detect_arguments detect; /**< its job: what all studies have; several lengths: a
                                           table with an entry for each */
    struct dpe_norms_arguments norms;
    int64_t norm_samples;      /**< excerpts of each length of the profile */
    const char *chat_template; /**< NULL: not given */
    bool seed_given, top_k_given;
    const char *top_k;
    int64_t check_samples; /**< of the check; 0: as many as the sweep's */
};

/** What belongs to one length. The only one has its files in DIR, one of several in DIR/LENGTH. */
struct entry {
    int64_t length;
    char folder[24]; /**< "", or "1024/": stands before the names of its files */
    struct dpe_detect_top_k pairs;
    char k[32];    /**< --top-k of its table: what was given, or chosen */
    char task[64]; /**< "keys=K,values=V,asked=M,spare=N" that its search measured by; "": as
                      named, or not yet known */
    char plain[CALIBRATE_METHOD]; /**< best method that needs no adapter, where its table needs one;
                                     "": none */
    bool other;   /**< its sweep kept the plan of another method, which no YAML and CSV can hold */
    bool factors; /**< it needs no adapter, and longrope can hold it: a factor for each pair and one
                     on the logits */
};

/** A batch: the arguments and what is derived from them. */
struct batch {
    const struct calibrate_arguments *line; /**< the command line */
    const struct calibrate_arguments *args; /**< the same, or `fitted` */
    struct dpe_job job;                     /**< that all studies run in */
    struct calibrate_arguments fitted;      /**< what --budget has made of the arguments */
    int64_t n_pairs;                        /**< of a head, those that rotate */
    int step;                               /**< that was announced last */
    bool pairless;            /**< no profile and no key pairs: a plan is a temperature alone */
    bool chooses;             /**< --top-k auto */
    bool needles;             /**< needles decide; else perplexity */
    bool alike;               /**< every layer moves: one list of factors is for all */
    struct dpe_pooled pooled; /**< the check of the longest length with the validation's samples */
    bool checked;             /**< check.h5 is there, and the tables keep what it says */
    bool diverges; /**< the model is one file, a GGUF, and texts are long enough: kld.h5 is made */
    char **paths;  /**< [n_paths] that were asked for */
    size_t n_paths;
    struct calibrate_record { /**< DIR/forms.sha256 */
        int n;
        struct {
            char hex[65], name[64];
        } files[CALIBRATE_FILES];
    } record;
    /** What rank 0 has read from the tables, and tells the others: */
    struct calibrate_state {
        struct entry entries[DPE_JOB_LENGTHS]; /**< [n_entries] by increasing length */
        int n_entries;
        bool done;  /**< everything is there already */
        bool pairs; /**< and what was made chose a number of key pairs */
        bool texts; /**< needles say little of the model: its plan was chosen by perplexity */
        char
            rival[CALIBRATE_METHOD]; /**< best method of the longest sweep's validation; "": none */
    } state;
    struct entry *entry;                 /**< that is being worked on */
    struct dpe_report_arguments *report; /**< that is being made */
    const char *wanted;                  /**< last part of the name of its next inputs */
};

/** Set up the entries. DPE_USAGE: one of several lengths is within the trained length, where the
 *  model is run unchanged. */
dpe_status dpe_calibrate_entries(struct batch *batch, struct dpe_error *err);
/** Look at what the table of the entry's sweep holds, if it is there: entry->other, ->factors,
 * ->task; of the longest one the rival. Errors of the table. */
dpe_status dpe_calibrate_look(struct batch *batch, struct dpe_error *err);
/** What a detection's validation found of one task, from "/validate/TASK"; what is not there is
 * NULL. Free by dpe_validated_scores_kinds[0]. */
void dpe_calibrate_read_validated(struct dpe_h5 *table, const char *folder,
                                  struct dpe_scores_result *validated);
/** Whether the table is written as longrope: there is one entry, and it is one of factors. */
bool dpe_calibrate_factors(const struct batch *batch);

/** FOLDER/NAME of DIR, `entry` NULL or with folder "": DIR/NAME. Kept with the batch; ends the
 * process with 71 when memory is out. NULL in a dry run without DIR. */
const char *dpe_calibrate_path(struct batch *batch, const struct entry *entry, const char *name);
/** Whether the table of that name or its journal is there. */
bool dpe_calibrate_has_begun(struct batch *batch, const struct entry *entry, const char *name);

/** The studies of the entry, with what they are asked for. `dry`: their inputs need not be there,
 * nothing is printed. bill NULL: run; else price, into it. */
enum calibrate_way {
    CALIBRATE_RUN,
    CALIBRATE_RUN_SILENT,
    CALIBRATE_TRY,   /**< whether its inputs are there and fit */
    CALIBRATE_COST,  /**< print what it would cost, and add it */
    CALIBRATE_PRICE, /**< only add it */
};
dpe_status dpe_calibrate_sweep(struct batch *batch, enum calibrate_way way, struct dpe_bill *bill,
                               struct dpe_error *err);
dpe_status dpe_calibrate_profile(struct batch *batch, enum calibrate_way way, struct dpe_bill *bill,
                                 struct dpe_error *err);
/** Recall or perplexity of the entry's length with each number of the ladder moved, on the sweep's
 * task and samples of another seed than those of sweep and check. Perplexity: of the corpus's
 * books, the sweep's among them. */
dpe_status dpe_calibrate_pairs(struct batch *batch, enum calibrate_way way, struct dpe_bill *bill,
                               struct dpe_error *err);
/** The finished table, beside the model as it is, the best method that the longest sweep's
 * validation held its result against, and the same lengths with all pairs
 * moved or, of several entries, the table of the largest alone: needles that no earlier part has
 * used, perplexity of the corpus's books. At every length. */
dpe_status dpe_calibrate_check(struct batch *batch, enum calibrate_way way, struct dpe_bill *bill,
                               struct dpe_error *err);
/** Of a GGUF: how far the next token's distribution under the table is from that of the unchanged
 * model, in texts of the longest length (kld.h5), and in one of the trained length, where it must
 * be 0 (kld-trained.h5). */
dpe_status dpe_calibrate_kld(struct batch *batch, bool trained, enum calibrate_way way,
                             struct dpe_bill *bill, struct dpe_error *err);
/** Set batch->diverges; says why where a GGUF has none. */
void dpe_calibrate_try_kld(struct batch *batch);
/** Samples in a row of CALIBRATE_PAIRS that share a context, or half of one. */
int64_t dpe_calibrate_together(const struct batch *batch);
/** --budget: leave out what does not fit, and give the search the rest; batch->args is then what
 * was chosen, which is said. Options that were given stay. DPE_USAGE when even the smallest setting
 * does not fit. Nothing without --budget. */
dpe_status dpe_calibrate_fit(struct batch *batch, struct dpe_error *err);
/** What is left of the budget goes into the check: as many samples as fit. All ranks call it. */
dpe_status dpe_calibrate_fit_check(struct batch *batch, struct dpe_error *err);
/** Print what every part would cost. */
dpe_status dpe_calibrate_dry_run(struct batch *batch, struct dpe_error *err);

/** Choose the number of key pairs from the entry's ablate.h5, into entry->pairs and entry->k.
 * DPE_BAD_DATA when the file is not such a table, or not finished; as dpe_detect_choose_top_k. */
dpe_status dpe_calibrate_choose_pairs(struct batch *batch, struct dpe_error *err);
/** The choice in words, on standard output. */
void dpe_calibrate_print_pairs(const struct batch *batch);
/** Fill batch->pooled from the finished check and the longest sweep, where that validated the
 * check's task and plans. Errors of the check's table. */
dpe_status dpe_calibrate_pool(struct batch *batch, struct dpe_error *err);
/** What the model has at the longest length without and with the table, what is possible, and
 * whether a plain method does as well: on standard output, from the finished check. Errors of its
 * table. */
dpe_status dpe_calibrate_print_answer(struct batch *batch, struct dpe_error *err);

/** The forms of the table. write: all of them, without those of an earlier calibration that are
 * none now. each: calls `visit` with the name of every form in DIR until one fails. */
dpe_status dpe_calibrate_export(struct batch *batch, struct dpe_error *err);
/** Before any work: DPE_USAGE where a form could not be written. */
dpe_status dpe_calibrate_check_exports(struct batch *batch, struct dpe_error *err);
typedef dpe_status (*calibrate_visit)(struct batch *batch, const char *name, struct dpe_error *err);
dpe_status dpe_calibrate_export_each(struct batch *batch, calibrate_visit visit,
                                     struct dpe_error *err);
/** The same of the tables that its parts make. */
dpe_status dpe_calibrate_each_table(struct batch *batch, calibrate_visit visit,
                                    struct dpe_error *err);
/** Make DIR, or check one that exists: it is not the model's own folder, whose config.json would be
 *  lost, and without --force nothing in it that would be replaced was written by others. *made:
 *  it is new. DPE_CANNOT_CREATE, DPE_PERMISSION, DPE_MISMATCH, DPE_NO_MEMORY. */
dpe_status dpe_calibrate_make_folder(struct batch *batch, bool *made, struct dpe_error *err);

/** DIR/forms.sha256 holds the hash of every form that was written, so that one that a user edited
 * is not replaced, and once all is finished those of all other files and of the command. This
 * reads it into batch->record, of rank 0. DPE_IO, DPE_PERMISSION, DPE_NO_MEMORY. */
dpe_status dpe_calibrate_forms_read(struct batch *batch, struct dpe_error *err);
/** Record everything, and find out (state.done) whether this command has finished here and nothing
 * that it read or wrote was changed since; never with --force. Errors of reading, DPE_IO,
 * DPE_NO_MEMORY. */
dpe_status dpe_calibrate_is_done(struct batch *batch, struct dpe_error *err);
dpe_status dpe_calibrate_set_done(struct batch *batch, struct dpe_error *err);

#endif
