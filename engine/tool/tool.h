/**
 * @file tool.h
 * What every command-line tool shares: common options, exit codes, signals, messages and progress.
 * stdout is the result; messages go to stderr. Only tools use this room; libraries never print.
 */
#ifndef DPE_TOOL_H
#define DPE_TOOL_H

#include <stdio.h>

#include "engine/base/base.h"
#include "engine/ops/kv.h"
#include "engine/session/session.h"
#include "engine/tool/command_line.h"

/** First keys of the options that have no letter, one range for each library that defines options.
 */
enum dpe_option_keys {
    DPE_KEY_TOOL = 0x1000,      /**< engine/tool */
    DPE_KEY_PROGRAM = 0x2000,   /**< a program's own options */
    DPE_KEY_JOB = 0x3000,       /**< outputs/job */
    DPE_KEY_BENCHMARK = 0x4000, /**< what the benchmarks of dpe-eval share */
    DPE_KEY_HELP = 0x5000,      /**< help, version, completion */
    DPE_KEY_RESULT = 0x6000,    /**< engine/tool/result.h */
    DPE_KEY_DETECT = 0x7000,    /**< detect/tool */
};
/** Options of every long-running tool. Zero-initialise, then let dpe_tool_option_set fill it. */
struct dpe_tool_options {
    const char *device; /**< after parsing: a backend's name, "auto" resolved. --dtype bf16 made it
                           cpu-bf16; for --dtype auto see dpe_tool_find_device */
    enum { DPE_TOOL_AUTO, DPE_TOOL_F32, DPE_TOOL_BF16 } dtype;
    int threads;         /**< 0: all that the process may use */
    uint64_t max_memory; /**< bytes, 0: the free memory */
    enum dpe_kv_type kv_type;
    bool kv_given;
    double time_budget; /**< seconds, 0: none */
    bool quiet;         /**< only warnings and errors on stderr */
    bool json;          /**< every stderr line is a JSON object */
    bool force;         /**< replace an output that is not a resumable run of this identity, and
                           continue after a damaged record */
};
/** dpe_session_options.kv_dir of the tools: $TMPDIR, else /var/tmp. */
const char *dpe_tool_kv_dir(void);
/** The device that runs a model: `device`, or under --dtype auto what dpe_device_fastest makes of
 * it. DPE_USAGE where the options ask for bf16 and it multiplies a model, whose weights are there,
 * in another type. */
dpe_status dpe_tool_find_device(const struct dpe_tool_options *options,
                                const struct dpe_model *model, const char **device,
                                struct dpe_error *err);
/** Options for `children`; their input is a struct dpe_tool_options. dpe_tool_option_set has the
 * options of all tools, dpe_tool_output_option_set `force` of tools with a resumable output. */
extern const struct dpe_option_set dpe_tool_option_set, dpe_tool_output_option_set;

/** Begins the definition of a tool's `main`, which its program and C tests call. */
#define DPE_MAIN(tool)                                                                             \
    int tool##_main(int argc, char **argv);                                                        \
    int tool##_main(int argc, char **argv)
/** First call of main. Waiting OpenMP threads spin for 50 µs and then sleep (unless OMP_WAIT_POLICY
 *  or GOMP_SPINCOUNT is set; the process starts itself again for this), usage errors end with 64,
 *  numbers are in the C locale, and there is `--version`. A broken pipe and a file that reaches
 * `ulimit -f` become write errors instead of signals. When --help or --version cannot be printed,
 * the process ends with 74. */
void dpe_tool_start(char **argv);
/** Print a usage error found after parsing, in the form of dpe_line_error, and end the process
 * with 64. */
void dpe_tool_refuse(const char *why) __attribute__((noreturn));
/** After parsing: the form of messages. */
void dpe_tool_configure(const struct dpe_tool_options *options);
/** Above 0: standard output, progress, warnings and the error at the end are left to rank 0; what
 *  this process still logs, as an error or by dpe_log_rank, names its rank. 0 changes nothing. */
void dpe_tool_set_rank(int rank);
/** The path `arg` that an option was given; dpe_line_error (64) when it is empty. */
const char *dpe_tool_path(const struct dpe_command_line *state, const char *option,
                          const char *arg);
/** The folder that --model means (dpe_folder_find), kept until the process ends. */
const char *dpe_tool_model(const char *arg);
/** The table that --table means: of a folder its table.h5, which dpe-calibrate writes, or else a
 *  config.json that holds a table. Kept until the process ends. */
const char *dpe_tool_table(const char *arg);
/** Before any work, for a file or folder to be made: DPE_CANNOT_CREATE when the folder that it is
 * to be in is not there. */
dpe_status dpe_tool_check_folder(const char *path, struct dpe_error *err);
/** Before any work, for a file to be written: DPE_CANNOT_CREATE when `path` exists and is not a
 *  regular file (a folder, a FIFO, a device, a circle of links), which is never opened;
 *  DPE_MISMATCH when the file exists, unless `force`. */
dpe_status dpe_tool_check_new(const char *path, bool force, struct dpe_error *err);
/** Before `output` is replaced: DPE_CANNOT_CREATE when it exists and is one of the files in (or
 *  below, or is) one of the `n` inputs, folders or files; NULL ones are skipped. Links are
 *  followed. */
dpe_status dpe_tool_check_output(const char *output, const char *const *inputs, size_t n,
                                 struct dpe_error *err);
/** As dpe_tool_check_output, for the files in any option of the command line: DPE_CANNOT_CREATE
 * when an argument other than the output's, or the text after '=', ',' or ':' in one, names the
 * file `output`. */
dpe_status dpe_tool_check_words(const char *output, int argc, char *const *argv,
                                struct dpe_error *err);
/** Last call of main: flush stdout (a failure is DPE_IO; a reader that has closed it is not an
 *  error), print the error if status is not DPE_OK, and return the exit code. DPE_INCOMPLETE is not
 * an error: it is printed as "interrupted: …". Ranks above 0 print nothing and return 0, since rank
 * 0 has the same status and reports it. */
int dpe_tool_end(dpe_status status, const struct dpe_error *err);

/** "12", "8K", "1.5G" → bytes; "90", "30m", "2h", "1d" → seconds. False for any other text. */
bool dpe_parse_bytes(const char *text, uint64_t *bytes);
bool dpe_parse_seconds(const char *text, double *seconds);
/** The value of an option, or a usage error that names the option as it was typed, what it takes
 * and what it got: a whole number in [low, high]; the index of one of the `choices`, which NULL
 * ends; a count of pairs from 1 to 65536, or a share above 0 and below 1. `also` is another value
 * that the caller accepts ("auto"), for the message, or NULL. */
int64_t dpe_parse_count(const struct dpe_command_line *state, const char *option, const char *text,
                        int64_t low, int64_t high);
/** A number of tokens, as dpe_parse_length reads it ("16k"). */
int64_t dpe_parse_tokens(const struct dpe_command_line *state, const char *option, const char *text,
                         int64_t low, int64_t high);
int dpe_parse_choice(const struct dpe_command_line *state, const char *option, const char *text,
                     const char *const *choices);
double dpe_parse_top_k(const struct dpe_command_line *state, const char *option, const char *text,
                       const char *also);
/** The policies of --special-in-text for dpe_parse_choice, in the order of dpe_special_policy. */
extern const char *const dpe_special_names[];
/** Most tokens, seeds and the like that an option takes. */
#define DPE_MOST_COUNT (INT64_C(1) << 40)
/** Longest trained and evaluated length, the same as in config.json and in a position plan. */
#define DPE_MOST_TRAINED (INT64_C(1) << 31)
/** "1.5 GiB" and "2 h 05 min" into a buffer of 32 bytes; returns the buffer. */
const char *dpe_format_bytes(uint64_t bytes, char buffer[32]);
const char *dpe_format_seconds(double seconds, char buffer[32]);

/* -------------------------------------------------------------------------------------- signals */

/** What a signal requested. */
enum dpe_stop_request {
    DPE_STOP_NONE,
    DPE_STOP_SOON, /**< SIGUSR1: finish the sample in flight, then end with 75 */
    DPE_STOP_NOW,  /**< SIGTERM, SIGINT, SIGHUP: drop the sample in flight, flush, end with 75 */
};
enum dpe_stop_request dpe_signals_asked(void);
/** Request the same as a signal would. */
void dpe_signals_ask(enum dpe_stop_request request);
/** A dpe_poll that ends a pass with DPE_INCOMPLETE once DPE_STOP_NOW is requested. */
dpe_status dpe_signals_poll(void *user, struct dpe_error *err);

/* ------------------------------------------------------------------------------------- messages */

enum dpe_log_level {
    DPE_LOG_INFO, /**< left out when quiet */
    DPE_LOG_WARNING,
    DPE_LOG_RANK,   /**< a warning that only this rank of a job has */
    DPE_LOG_NOTICE, /**< a run that stopped early and can be continued: it is not an error */
    DPE_LOG_ERROR,
};
/** A line on stderr: text, or one JSON object {"time","level","event","message"}. Clears a live
 * line first. */
void dpe_log(enum dpe_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
#define dpe_log_info(...)    dpe_log(DPE_LOG_INFO, __VA_ARGS__)
#define dpe_log_warning(...) dpe_log(DPE_LOG_WARNING, __VA_ARGS__)
#define dpe_log_rank(...)    dpe_log(DPE_LOG_RANK, __VA_ARGS__)
#define dpe_log_error(...)   dpe_log(DPE_LOG_ERROR, __VA_ARGS__)
/** Warn that a session's chunks were made smaller for lack of device memory, unless *reported, at
 *  first 0, has their size already. */
void dpe_log_chunk(const struct dpe_session *session, int64_t *reported);
/** Say once a session where its keys and values live, if that is a file. */
void dpe_log_file(const struct dpe_session *session);
/** How far something is. What is not known is NaN. */
struct dpe_event {
    const char *name;   /**< of what happens: "sweep" */
    double done, total; /**< in one unit */
    double rate;        /**< tokens (or samples) per second */
    double eta;         /**< seconds that are left */
};
/** An info line that programs read as fields: JSON has "event", "done", "total", "rate" and "eta"
 * of what is known, besides the message. */
void dpe_log_event(const struct dpe_event *event, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** Suggest what to type next, at the end of a tool: an info line "Next: …"; further ones begin
 * below it. */
void dpe_tool_next(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** A path as it is typed to a shell: in quotes where it needs them. Returns `text`. */
const char *dpe_tool_quote(const char *path, char *text, size_t size);
/** Progress: on a terminal one live line (at most 4 updates a second, cut to the width), else a
 * plain line every 30 s or 1 % of the total, whichever is later; as JSON the event without a
 * message. `text` is the line without newline; the last call has done == total. */
void dpe_progress(const struct dpe_event *event, const char *text);
/** Something new begins: its first progress is printed. */
void dpe_progress_begin(void);
/** Whether dpe_progress would print now: lets a caller skip formatting. */
bool dpe_progress_due(double done, double total);
/** Remove the live line (before something else is printed). */
void dpe_progress_clear(void);

/** Whether escape sequences may be written: a terminal, NO_COLOR empty or absent, TERM not dumb. */
bool dpe_terminal_color(FILE *file);
/** Columns of the terminal that `file` is, 80 when it is not a terminal. Read again at each call
 *  (SIGWINCH). */
int dpe_terminal_width(FILE *file);
/** printf to standard output, for what people read. Where that is a terminal, a line that is wider
 * is broken between words, and its further lines are indented as far as the text after its label; a
 * line is printed once it has its end. Elsewhere lines stay whole, for grep. */
void dpe_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** Print what waits for the end of its line; dpe_tool_end calls it. */
void dpe_print_end(void);

#endif
