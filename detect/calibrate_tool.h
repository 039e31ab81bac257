/**
 * @file calibrate_tool.h
 * Inside of dpe-calibrate: its command line, and starting one tool after another. No library.
 */
#ifndef DPE_CALIBRATE_TOOL_H
#define DPE_CALIBRATE_TOOL_H

#include "job.h"

enum { CALIBRATE_MAX_WORDS = 128, CALIBRATE_HANDED = 19 };

/** The tools that measure, as a set. */
enum calibrate_part { CALIBRATE_SWEEP = 1, CALIBRATE_PROFILE = 2, CALIBRATE_CHECK = 4 };

/** The command line. */
struct calibrate_arguments {
    struct dpe_job_options job;
    const char *top_k, *launch;
    /** Values of the options that the tools read for themselves; NULL: not given, "" also one
     * that takes none. */
    const char *handed[CALIBRATE_HANDED];
};
extern const struct argp calibrate_argp; /**< its input: struct calibrate_arguments */

/** A command line that owns its words; words[n] is NULL. Zero-initialise. */
struct words {
    size_t n;
    char *words[CALIBRATE_MAX_WORDS + 1];
    size_t program; /**< which word names our tool; those before it start it: mpirun -n 8 */
    bool failed;    /**< memory ran out, or too many: words_run says so */
};
/** Append a copy; a NULL value appends nothing of the pair. */
void words_add(struct words *words, const char *word);
void words_add_pair(struct words *words, const char *option, const char *value);
/** Appends nothing for a value below `least`, which means "not given". */
void words_add_number(struct words *words, const char *option, int64_t value, int64_t least);
/** The handed options of these parts (a set of enum calibrate_part), under the tool's names. */
void words_add_handed(struct words *words, const struct calibrate_arguments *args, int parts);
/** Value of the handed option of this name ("--task"); NULL when it was not given. */
const char *calibrate_value(const struct calibrate_arguments *args, const char *name);
void words_free(struct words *words);

/** FOLDER/NAME, owned by the caller; NULL when memory is out. */
char *tools_path(const char *folder, const char *name);
/** The folder of this program, without a slash at its end; owned by the caller. */
dpe_status tools_folder(char **folder, struct dpe_error *err);
/** Signals (TERM, INT, HUP, USR1) are remembered, and passed on to the tool that runs. */
void tools_signals_install(void);
/** Run the tool FOLDER/words[program], through the words before it if there are any, with these
 * arguments to its end and give its exit code. `silent` sends its standard output nowhere. It is
 * asked to stop when this process dies. DPE_INCOMPLETE when a signal ended it or came before it
 * began, DPE_INTERNAL when it crashed, DPE_NO_INPUT when there is no such tool. */
dpe_status tools_run(const char *folder, const struct words *words, bool silent, int *code,
                     struct dpe_error *err);

#endif
