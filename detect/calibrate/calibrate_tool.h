/**
 * @file calibrate_tool.h
 * Inside of dpe-calibrate: its command line, and starting one tool after another. No library.
 */
#ifndef DPE_CALIBRATE_TOOL_H
#define DPE_CALIBRATE_TOOL_H

#include "detect/search/select.h"
#include "outputs/job/job.h"

enum { CALIBRATE_MAX_ARGS = 160, CALIBRATE_HANDED = 23, CALIBRATE_METHOD = 256 };

/** The parts that measure, as a set. */
enum calibrate_part {
    CALIBRATE_SWEEP = 1,
    CALIBRATE_PROFILE = 2,
    CALIBRATE_PAIRS = 4, /**< how many key pairs: dpe-eval ablate */
    CALIBRATE_CHECK = 8,
    CALIBRATE_TUNE = 16, /**< settings of the methods that the result is held against: dpe-eval tune */
};

/** What parts add to the sweep's seed. */
enum { CALIBRATE_TUNE_SEED = 500, CALIBRATE_CHECK_SEED = 1000, CALIBRATE_PAIRS_SEED = 2000, CALIBRATE_SEEDS = 2000 };

/** The value of --top-k that measures it. */
#define CALIBRATE_AUTO "auto"

/** The command line. */
struct calibrate_arguments {
    struct dpe_job_options job; /**< several lengths: a table with an entry for each */
    const char *top_k, *launch;
    bool tunes;   /**< --against tuned: methods are tuned before the sweep is held against them */
    bool scratch; /**< the sweep of a longer entry does not begin at the shorter one's result */
    /** Values of the options that the tools read for themselves; NULL: not given, "" also one
     * that takes none. */
    const char *handed[CALIBRATE_HANDED];
};
extern const struct dpe_option_set
    dpe_calibrate_option_set; /**< its input: struct calibrate_arguments */

/** A command line that owns its arguments; items[n] is NULL. Zero-initialise. */
struct argv {
    size_t n;
    char *items[CALIBRATE_MAX_ARGS + 1];
    size_t program; /**< which item names our tool; those before it start it: mpirun -n 8 */
    bool failed;    /**< memory ran out, or too many: dpe_calibrate_tools_run reports it */
};
/** Append a copy; a NULL value appends nothing of the pair. */
void dpe_calibrate_argv_add(struct argv *argv, const char *word);
void dpe_calibrate_argv_add_pair(struct argv *argv, const char *option, const char *value);
/** Appends nothing for a value below `least`, which means "not given". */
void dpe_calibrate_argv_add_number(struct argv *argv, const char *option, int64_t value,
                                   int64_t least);
/** The handed options of these parts (a set of enum calibrate_part), under the tool's names. */
void dpe_calibrate_argv_add_handed(struct argv *argv, const struct calibrate_arguments *args,
                                   int parts);
/** Whether frequencies are moved (--move): no profile, no key pairs, a table that needs no adapter. */
bool dpe_calibrate_frequencies(const struct calibrate_arguments *args);
/** Value of the handed option of this name ("--task"); NULL when it was not given. */
const char *dpe_calibrate_value(const struct calibrate_arguments *args, const char *name);
void dpe_calibrate_argv_free(struct argv *argv);

/** OPTION FOLDER/NAME; no option when it is NULL. */
void dpe_calibrate_argv_add_path(struct argv *argv, const char *option, const char *folder,
                                 const char *name);

/** What belongs to one length. The only one has its files in DIR, one of several in DIR/LENGTH. */
struct entry {
    int64_t length;
    char folder[24]; /**< "", or "1024/": stands before the names of its files */
    struct dpe_detect_top_k pairs;
    char k[32];        /**< --top-k of its table: what was given, or chosen */
    char lengths[512];     /**< --lengths of its sweep, where the shorter entry limits them; "": not */
    char temperature[168]; /**< --temperature of it, around the shorter entry's; "": as given */
    bool other;  /**< its sweep kept the plan of another method, which no YAML and CSV can hold */
    bool factors; /**< it needs no adapter, and longrope can hold it: a factor for each pair and one
                     on the logits. Of --move frequencies: so far as is known before the sweep */
};

/** A batch: the arguments and what is derived from them. */
struct batch {
    const struct calibrate_arguments *args;
    char *tools; /**< folder of the tools */
    double begin;
    int64_t n_pairs;                       /**< of a head, those that rotate */
    int code;                              /**< of the tool that ended last */
    int step;                              /**< that was announced last */
    bool frequencies;                      /**< --move frequencies */
    bool chooses;                          /**< --top-k auto, of positions */
    bool alike;                            /**< every layer moves: one list of factors is for all */
    struct entry entries[DPE_JOB_LENGTHS]; /**< [n_entries] by increasing length */
    int n_entries;
    struct entry *entry;       /**< that is being worked on */
    double tokens, operations; /**< of a dry run, all parts so far */
};

/** Set up the entries. DPE_USAGE: one of several lengths is within the trained length, where the
 *  model is run unchanged. */
dpe_status dpe_calibrate_entries(struct batch *batch, int64_t trained_length,
                                 struct dpe_error *err);
/** Set where the entry begins from the detection of the next shorter one (DIR/LENGTH/detect.h5).
 *  entry->lengths: of the lengths that `auto` tries, the largest (not scaled), those that were chosen
 *  there, and those within a factor of two of a length chosen there for a group whose lengths differ
 *  beyond noise; "" with --lengths, and where fewer than two remain. entry->temperature: a search
 *  around the one of its table; "" where that has none, and with another --temperature than auto.
 *  Both are "" for the first entry and with --start scratch. Errors of the table. */
dpe_status dpe_calibrate_start(struct batch *batch, struct dpe_error *err);
/** Look at what the table of the entry's sweep holds, if it is there: entry->other, entry->factors.
 *  Errors of the table. */
dpe_status dpe_calibrate_look(const struct batch *batch, struct entry *entry, struct dpe_error *err);
/** Whether the table is written as longrope: there is one entry, and it is one of factors. */
bool dpe_calibrate_factors(const struct batch *batch);
/** Path of a file of the entry in DIR; as dpe_calibrate_tools_path. */
char *dpe_calibrate_entry_path(const struct batch *batch, const struct entry *entry,
                               const char *name);
/** OPTION and that path. */
void dpe_calibrate_argv_add_entry(struct argv *argv, const char *option, const struct batch *batch,
                                  const struct entry *entry, const char *name);

/** The command line of a part, its table going to `output` (NULL: none, a dry run). False when the
 *  time budget is used up. */
typedef bool (*calibrate_fill)(const struct batch *batch, const char *output, struct argv *argv);
bool dpe_calibrate_sweep_argv(const struct batch *batch, const char *output, struct argv *argv);
bool dpe_calibrate_profile_argv(const struct batch *batch, const char *output, struct argv *argv);
/** The settings of the usual baselines, temperatures among them, on the needles of the sweep, each context
 *  with a haystack of its own, of another seed; the few fresh samples of dpe-eval tune are not what decides, validation is. */
bool dpe_calibrate_tune_argv(const struct batch *batch, const char *output, struct argv *argv);
/** Rows of that part: settings and fresh samples of all methods, at most. */
int64_t dpe_calibrate_tune_rows(const struct batch *batch);
/** Recall or perplexity of the sweep's lengths with each number of the ladder moved, on the sweep's
 *  task and samples of another seed than those of sweep and check. Perplexity: of the corpus's
 *  books, the sweep's among them. */
bool dpe_calibrate_pairs_argv(const struct batch *batch, const char *output, struct argv *argv);
/** The finished table, beside the model as it is, the best method that the longest sweep's validation
 *  held its result against, and (not of frequencies) the same lengths with all pairs moved or, of
 *  several entries, the table of the largest alone: needles that no earlier part has used, perplexity of the corpus's
 *  books. At every length. */
bool dpe_calibrate_check_argv(const struct batch *batch, const char *output, struct argv *argv);
/** That method; "" when there is none, or the sweep is not finished. */
void dpe_calibrate_rival(const struct batch *batch, char method[CALIBRATE_METHOD]);
/** What the model has at the longest length without and with the table, what is possible, and
 * whether a plain method does as well: on standard output, from the finished check. Errors of its
 * table. */
dpe_status dpe_calibrate_print_answer(const struct batch *batch, struct dpe_error *err);
/** How many methods the check will have. */
int dpe_calibrate_check_methods(const struct calibrate_arguments *args);

/** Whether needles decide; else perplexity. */
bool dpe_calibrate_needles(const struct calibrate_arguments *args);
/** Seed and settings of the needles of a part of dpe-eval; *spec is owned by the
 *  caller, NULL: the defaults. DPE_NO_MEMORY. */
int64_t dpe_calibrate_seed(const struct calibrate_arguments *args, enum calibrate_part part);
dpe_status dpe_calibrate_niah(const struct batch *batch, enum calibrate_part part, char **spec,
                              struct dpe_error *err);

/** Samples in a row of CALIBRATE_PAIRS that share a context, or half of one. */
int64_t dpe_calibrate_together(const struct batch *batch);

/** Choose the number of key pairs from the table of dpe_calibrate_pairs_argv, into entry->pairs
 * and entry->k. DPE_BAD_DATA when the file is not such a table, or not finished; as
 * dpe_detect_choose_top_k. */
dpe_status dpe_calibrate_choose_pairs(struct batch *batch, const char *path, struct dpe_error *err);
/** The choice in words, on standard output. */
void dpe_calibrate_print_pairs(const struct batch *batch);
/** What choice and check would read and generate, on standard output, added to the batch's sums.
 * Errors of model, tokenizer, corpus and task. */
dpe_status dpe_calibrate_print_cost(struct batch *batch, struct dpe_error *err);
/** Make the first samples of choice and check, for every entry: what they lack is found before
 * hours of sweep. Errors as dpe_calibrate_print_cost. */
dpe_status dpe_calibrate_check_samples(struct batch *batch, struct dpe_error *err);

/** Run, and free the argv. A tool that failed has reported why: only its code is kept. */
dpe_status dpe_calibrate_run(struct batch *batch, struct argv *argv, bool silent,
                             struct dpe_error *err);
/** The same for a dry run: its tokens and operations are added to the batch's. */
dpe_status dpe_calibrate_try(struct batch *batch, struct argv *argv, struct dpe_error *err);

/** The forms of the table, each written by dpe-export. write: all of them. each: calls `visit` with
 * the name of every form in DIR until one fails. */
dpe_status dpe_calibrate_export(struct batch *batch, struct dpe_error *err);
dpe_status dpe_calibrate_export_each(const struct batch *batch,
                                     dpe_status (*visit)(const struct batch *batch,
                                                         const char *name, struct dpe_error *err),
                                     struct dpe_error *err);
/** Whether the batch has a form of that name. */
bool dpe_calibrate_has_form(const struct batch *batch, const char *name);
/** The command line of form i (from 0) of the batch; false when there are fewer. */
bool dpe_calibrate_export_argv(const struct batch *batch, int i, struct argv *argv);

/** Whether the table FOLDER/NAME of DIR or its journal is there; `folder` as in an entry. */
bool dpe_calibrate_has_begun(const struct batch *batch, const char *folder, const char *name);
/** Make DIR, or check one that exists: it is not the model's own folder, whose config.json would be
 *  lost, and without --force nothing in it that would be replaced was written by others. *made:
 *  it is new. DPE_CANNOT_CREATE, DPE_PERMISSION, DPE_MISMATCH, DPE_NO_MEMORY. */
dpe_status dpe_calibrate_make_folder(const struct batch *batch, bool *made, struct dpe_error *err);

/** Forms that a user edited are not replaced: FOLDER/forms.sha256 holds the hash of every form that
 *  was written. has: whether the form is one of them. check: DPE_MISMATCH when the form exists and
 *  differs from its entry. drop and add: before and after the form is written. DPE_IO,
 *  DPE_PERMISSION, DPE_NO_MEMORY. */
dpe_status dpe_calibrate_forms_has(const char *folder, const char *name, bool *has,
                                   struct dpe_error *err);
dpe_status dpe_calibrate_forms_check(const char *folder, const char *name, struct dpe_error *err);
dpe_status dpe_calibrate_forms_drop(const char *folder, const char *name, struct dpe_error *err);
/** Remove the forms of an earlier calibration of these entries that are none of the batch's now, but for
 *  those that were edited. DPE_IO, DPE_PERMISSION, DPE_NO_MEMORY. */
dpe_status dpe_calibrate_forms_tidy(const struct batch *batch, struct dpe_error *err);
dpe_status dpe_calibrate_forms_add(const char *folder, const char *name, struct dpe_error *err);

/** SHA-256 of FOLDER/NAME; "" when it does not exist. */
dpe_status dpe_calibrate_hash_file(const char *folder, const char *name, char hex[65],
                                   struct dpe_error *err);

/** Whether this command has finished in the folder, and nothing that it read or wrote was changed
 *  since; never with --force. set_done records that it has finished. Errors of
 *  opening the inputs, DPE_IO, DPE_NO_MEMORY. */
dpe_status dpe_calibrate_is_done(const struct batch *batch, bool *done, struct dpe_error *err);
dpe_status dpe_calibrate_set_done(const struct batch *batch, struct dpe_error *err);

/** FOLDER/NAME, never beginning with "-"; owned by the caller, NULL when memory is out. */
char *dpe_calibrate_tools_path(const char *folder, const char *name);
/** The folder of this program, without a slash at its end; owned by the caller. */
dpe_status dpe_calibrate_tools_folder(char **folder, struct dpe_error *err);
/** Run the tool FOLDER/items[program], through the arguments before it if there are any, with these
 * arguments to its end and give its exit code. `silent` sends its standard output nowhere. Errors
 * are those of dpe_child_run. */
dpe_status dpe_calibrate_tools_run(const char *folder, const struct argv *argv, bool silent,
                                   int *code, struct dpe_error *err);

#endif
