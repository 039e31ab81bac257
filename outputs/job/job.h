/**
 * @file job.h
 * What every tool that makes rows shares (for tools: messages go through engine/tool/tool.h): the
 * options, the opening of model, tokenizer and corpus, the run of the output, and the one loop
 * that fills it.
 *
 * One story. A tool parses its command line (dpe_job_option_set and its two companions), opens the
 * job, derives its plans and tasks, and starts the run: an identity, the output's journal, a
 * session that fits into memory. Then it hands the loop one or more lists of items, each in the
 * order in which they shall run; after a list is done every row of it is known. The study
 * ends with the table, and dpe_job_close gives everything back.
 */
#ifndef DPE_JOB_H
#define DPE_JOB_H

#include "data/data.h"
#include "engine/base/base.h"
#include "engine/ops/options.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"
#include "engine/session/device.h"
#include "engine/session/session.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tool/result.h"
#include "engine/tool/tool.h"
#include "outputs/h5/rows.h"
#include "outputs/remote/remote.h"
#include "outputs/run/run.h"

/* -------------------------------------------------------------------------------------- options */

/** The most lengths that a tool can take. */
enum { DPE_JOB_LENGTHS = 16 };
/** Requests to an engine at once: it queues what it cannot run. */
enum { DPE_JOB_IN_FLIGHT = 32 };
/** The most sessions of a job that are beside each other. */
enum { DPE_JOB_SIDES = 16 };

/** The common part of a command line; set the defaults, then let the options fill it. */
struct dpe_job_options {
    struct dpe_tool_options tool;
    const char *model, *corpus;
    const char *chat_template; /**< "auto", "none" or a file; NULL: not given */
    const char *template_vars; /**< of the chat template, or NULL */
    const char *output;
    const char *engine;        /**< URL of the program that runs the model; NULL: this one */
    const char *engine_key;    /**< file with its key, or NULL */
    const char *const *inputs; /**< [n_inputs] more paths that it reads, NULL ones too */
    size_t n_inputs;
    /** An open job: its processes, device, deadline, model, tokenizer and corpus are used, and it
     * outlives this one; NULL: none. */
    const struct dpe_job *within;
    bool silent;                      /**< the result is not printed */
    int64_t length;                   /**< tokens, 0 = not given; of several the largest */
    int64_t lengths[DPE_JOB_LENGTHS]; /**< [n_lengths] increasing */
    int n_lengths, most_lengths;      /**< most: how many a tool takes, set by it; 0 means 1 */
    int64_t trained_length;           /**< tokens, 0 = of the model */
    int64_t samples;
    bool samples_given;
    uint64_t seed;
    double rank_timeout; /**< longest silence of a rank, set by dpe_job_option_set */
    int tensor_parallel; /**< processes that hold the model together, ≥ 1, set by dpe_job_option_set
                          */
    bool dry_run;        /**< the tool's own option */
    bool dry_run_result; /**< it has a result for scripts too, set by the tool */
    bool json;           /**< what goes to standard output */
    struct dpe_session_knobs
        knobs; /**< set by dpe_job_option_set; a tool changes what it calls otherwise
                */
    int argc;
    char **argv;
};
/** --engine and --engine-key-file, of tools that can use another program as their
 * engine; input struct dpe_job_options. */
extern const struct dpe_option_set dpe_job_engine_option_set;
/** The option --dry-run of a tool that has no words of its own for it. */
extern const struct dpe_option_set dpe_job_dry_run_option_set;
/** Options for `children` of a tool's, input struct dpe_job_options. Their options lie in the
 *  groups 1 (what) and 2 (on what) of the tool. dpe_job_option_set: --model --corpus
 *  --trained-length and the options of tool.h (all but those about the output).
 *  dpe_job_rows_option_set: --samples --seed -o and tool.h's options about the output; help
 *  shows the defaults that are set. dpe_job_prompt_option_set: --length --chat-template. */
extern const struct dpe_option_set dpe_job_option_set, dpe_job_rows_option_set,
    dpe_job_prompt_option_set;
/** At DPE_LINE_END: ends with a usage error when --model, --length (if `prompts`), --corpus or the
 *  output (`output` is how it is called; not in a dry run) is missing. */
void dpe_job_require(struct dpe_command_line *state, const struct dpe_job_options *options,
                     bool prompts, const char *output);

/* ---------------------------------------------------------------------------- opening, closing */

/** An open job. The fields are for reading; zero-initialise. */
struct dpe_job {
    const struct dpe_job_options *options;
    struct dpe_model *model;
    struct dpe_tokenizer *tokenizer;
    struct dpe_corpus *corpus;
    int64_t trained_length; /**< the option's, or max_position_embeddings */
    double begin, deadline; /**< dpe_clock(); deadline INFINITY: none */
    char device[32];        /**< of this process: several ranks share out a machine's */
    struct dpe_device_info device_info;
    uint64_t memory;                  /**< bytes that its sessions may use, 0: what is free */
    struct dpe_run *run;              /**< NULL before dpe_job_start */
    struct dpe_remote_engine *remote; /**< --engine; NULL: the model runs here */
    struct dpe_session *session;      /**< NULL until it is needed */
    struct dpe_session *beside[DPE_JOB_SIDES - 1]; /**< it, the same */
    bool told_rows;     /**< how many rows were there has been reported */
    int64_t told_chunk; /**< that was made smaller, as reported */
    /** Sequences that are decoded together, rows that are made together, and cache rows that each
     * sequence after the first needs (dpe_job_fit_batch); 0, 1: one. */
    int64_t batch, group, own;
    int sides;  /**< groups that are made at once at most, each in a session; 0, 1: one */
    int saving; /**< steps that it took until the session fitted into memory */
    int64_t planned, missing;  /**< rows of the last list, and those of them that are not there */
    struct dpe_job_pace *pace; /**< per task: what its rows took */
    int n_paces;
    double last_snapshot, snapshot_cost;
    size_t n_shared;                /**< rows that rank 0 has sent to the other ranks */
    struct dpe_ranks *ranks;        /**< the processes of this job */
    struct dpe_session_work *works; /**< [ranks] of other ranks' sessions, as last reported */
    struct dpe_job_inside *inside; /**< the rows that are being made, while this process is alone */
    struct dpe_peers peers; /**< processes that share the model with this one; size 1: none */
};

/** Before --force replaces the file: DPE_CANNOT_CREATE when it is one of the model's, the corpus's
 * or the other inputs', or one that the command line names. */
dpe_status dpe_job_check_replaced(const struct dpe_job_options *options, const char *path,
                                  struct dpe_error *err);
/** Open model, tokenizer and corpus (if one is given), or with options->within take those of that
 * job; all are borrowed by others until dpe_job_close, and check what can be checked of the output,
 * with --force as dpe_job_check_replaced. `config_only` leaves the weights alone (dry runs). Errors
 * of the openings. Close with dpe_job_close, after an error too. */
dpe_status dpe_job_open(struct dpe_job *job, const struct dpe_job_options *options,
                        bool config_only, struct dpe_error *err);
/** dpe_corpus_open, with a warning where texts were left out. */
dpe_status dpe_job_corpus(const char *path, struct dpe_corpus **corpus, struct dpe_error *err);
/** On processors: the type that --dtype means for this model, bf16 under auto only where all ranks
 * would take it, or the one that `output` (a table or its journal; NULL: none) was begun in. All
 * ranks call it together, `status` being how it went before. */
dpe_status dpe_job_find_dtype(struct dpe_job *job, const char *output, dpe_status status,
                              struct dpe_error *err);
/** Whether this process is rank 0, which writes what a job has once: it holds all rows. */
bool dpe_job_leads(const struct dpe_job *job);
/** Wait for all processes of the job, `status` being how it went here; all go
 * on with one status. */
dpe_status dpe_job_meet(const struct dpe_job *job, dpe_status status, struct dpe_error *err);
/** The n bytes of rank 0 go to all. */
dpe_status dpe_job_tell(const struct dpe_job *job, void *bytes, size_t n, struct dpe_error *err);
/** What plans of this job are made from. */
struct dpe_plan_context dpe_job_context(const struct dpe_job *job, int64_t length);
/** Options of a session for sequences of `capacity` tokens: as many as the job's batch, or one and
 * what else of them fits into memory. */
struct dpe_session_options dpe_job_session_options(const struct dpe_job *job, int64_t capacity);

/** The fingerprint of the weights that rows are made with: those of --engine, where it tells. */
const char *dpe_job_fingerprint(const struct dpe_job *job);
/** Log the header of a run: the model, its parameters, the device and its threads. */
void dpe_job_header(const struct dpe_job *job);

/** What decides the rows of a tool, besides model, tokenizer, corpus, device, numerics and seed. */
struct dpe_job_identity {
    const char *kind;            /**< "detect" */
    const char *suite;           /**< NULL: has none */
    const char *const (*own)[2]; /**< [n_own] name, value */
    size_t n_own;
    const char *length_name; /**< NULL: has none */
    int64_t length;
};

/** Open or continue the run of the output. Where nothing was begun, a session of `capacity` tokens
 *  under `plan` is made first, so that what does not fit into memory leaves no files. */
dpe_status dpe_job_start(struct dpe_job *job, const struct dpe_job_identity *own,
                         const struct dpe_plan *plan, int64_t capacity, struct dpe_error *err);
/** Cache rows of a question and its answer, about. */
enum { DPE_QUESTION_ROWS = 512 };
/** Samples that are wanted at once. */
struct dpe_job_batch {
    int64_t together; /**< in a row share a context: they are decoded together, by whole ones */
    int64_t own;      /**< cache rows that each needs beside the context, about */
    bool answers;     /**< they are decoded: several contexts at once save steps */
};
/** So many sequences of up to `capacity` tokens, or what of them fits into memory: first there is
 * less beside one cache, which then serves all questions of a context one after another; where it
 * does not fit either, its keys and values become int8, unless a type or a folder for them was
 * named. Says so. All ranks take what the one with the least memory needs. A further call of a job
 * begins with what the last one saved. */
dpe_status dpe_job_fit_batch(struct dpe_job *job, const struct dpe_plan *plan, int64_t capacity,
                             const struct dpe_job_batch *wanted, struct dpe_error *err);
/** Of keys and values of its sessions. */
enum dpe_kv_type dpe_job_kv_type(const struct dpe_job *job);
/** Whether the job's device runs texts of `length` tokens under `plan`: DPE_NO_DEVICE or DPE_USAGE
 * with what it lacks. */
dpe_status dpe_job_check_plan(const struct dpe_job *job, const struct dpe_plan *plan,
                              int64_t length, struct dpe_error *err);
/** DPE_USAGE where --engine takes no plans, with what that means for the tool: "it gives no norms".
 */
dpe_status dpe_job_needs_plans(const struct dpe_job *job, const char *so, struct dpe_error *err);
/** Whether a session of the plan, and of the job's batch, fits into --max-memory; true without that
 * option. */
bool dpe_job_allows(const struct dpe_job *job, const struct dpe_plan *plan, int64_t length);
/** Whether a session of `length` tokens under `plan` needs more memory than one under the other
 * plan. */
bool dpe_job_needs_more(const struct dpe_job *job, const struct dpe_plan *plan,
                        const struct dpe_plan *than, int64_t length);
enum { DPE_JOB_MEMORY = 320 };
/** The memory line of a dry run: what a session needs (dpe_session_estimate).
 * Returns the buffer. */
const char *dpe_job_memory_text(const struct dpe_job *job, const struct dpe_session_needs *needs,
                                char text[DPE_JOB_MEMORY]);
/** Make the session, or set its plan; taps request signals. Its cache is empty afterwards. `side`
 * above 0: of those beside it, for which at most half of the memory that is left is taken. */
dpe_status dpe_job_session(struct dpe_job *job, int side, const struct dpe_plan *plan,
                           int64_t capacity, struct dpe_error *err);
/** What this process's sessions have computed; zeros before they are made. */
struct dpe_session_work dpe_job_own_work(const struct dpe_job *job);
/** What the sessions of all ranks have computed; complete after a list of rows, on rank 0. Those
 * that hold a model together count once. */
struct dpe_session_work dpe_job_work(const struct dpe_job *job);
/** A table of the rows so far. */
dpe_status dpe_job_snapshot(struct dpe_job *job, bool complete, dpe_run_fill fill, void *user,
                            struct dpe_error *err);
/** Close everything; returns `status`, or how closing the run failed if `status` is DPE_OK. */
dpe_status dpe_job_close(struct dpe_job *job, dpe_status status, struct dpe_error *err);

/* ----------------------------------------------------------------------------------------- rows */

/** Rows that one session makes: of items of one plan and task. */
struct dpe_job_rows {
    struct dpe_session *session; /**< under that plan; its cache may hold anything */
    const char *key;             /**< of rows of the plan */
    const struct dpe_item *items;
    int64_t n;            /**< at most the job's group */
    struct dpe_row *rows; /**< [n] initialised */
};

/** How the rows of a list are made. */
struct dpe_work {
    const char *name; /**< begins the progress line: "sweep" */
    int64_t capacity; /**< tokens of the session */
    void *user;
    /** Fill the rows of n parts, which are of one task and whose sessions are beside each other,
     * together. */
    dpe_status (*rows)(void *user, const struct dpe_job_rows *parts, int64_t n,
                       struct dpe_error *err);
    dpe_run_fill fill;      /**< of the tables that are written on the way */
    double nonfinite_limit; /**< share of the job's rows that may be non-finite; 0: all of them */
};

/** The list of the rows that a study wants, gathered one after another. Zero-initialise. A lack of
 * memory is told by dpe_wanted_run. What is added is borrowed until then. */
struct dpe_wanted {
    struct dpe_listed_task {
        const char *name; /**< of the stream of samples */
        int64_t tokens;   /**< that a row reads, on average; 0: not known */
        double cost;      /**< of a row, any unit */
    } * tasks;
    struct dpe_listed_plan {
        const struct dpe_plan *plan;
        const char *key; /**< of rows (dpe_plan_key) */
    } * plans;
    struct dpe_item *items; /**< in the order in which they shall run */
    size_t n_tasks, n_plans, n_items;
    bool failed;
};
/** Append a task; a plan; n samples of a task under a plan. */
void dpe_wanted_task(struct dpe_wanted *wanted, const char *name, int64_t tokens, double cost);
void dpe_wanted_plan(struct dpe_wanted *wanted, const struct dpe_plan *plan, const char *key);
void dpe_wanted_rows(struct dpe_wanted *wanted, int task, int plan, int64_t first, int64_t n);
/** Run every item that the run does not hold yet: change the plan where it changes, make the row
 * (or the rows that are made together), append it durably before the next one begins; show
 * progress; write a table now and then. Nothing is run when nothing is missing. Ends early with
 * DPE_INCOMPLETE (a signal; the time budget would not hold the next row), DPE_NONFINITE (beyond the
 * limit), or the failure of a row. Empties the list, also after a failure. */
dpe_status dpe_wanted_run(struct dpe_wanted *wanted, struct dpe_job *job,
                          const struct dpe_work *how, struct dpe_error *err);

/* ------------------------------------------------------------------------------------- studies */

struct dpe_bill;

/** A kind of study: something with rows, from its inputs to its table. A tool does one;
 * dpe-calibrate does several in one job (`within`), one after another. `state` has `size` bytes,
 * zero at first; `args` is what a command line, or dpe-calibrate, asked for, and outlives the
 * state. */
struct dpe_study {
    size_t size;
    size_t job; /**< where the state has its struct dpe_job */
    /** Open the inputs and make every check that can be made before any work. */
    dpe_status (*open)(void *state, const void *args, struct dpe_error *err);
    /** Print what it would cost, unless it is silent, and add that to `bill` (NULL: not wanted).
     * Silent and without a bill it only finds out whether everything is there, fits together and
     * into memory. */
    dpe_status (*cost)(void *state, struct dpe_bill *bill, struct dpe_error *err);
    /** Say what begins, and open or continue the run (dpe_job_start). */
    dpe_status (*start)(void *state, struct dpe_error *err);
    /** Make the rows that are missing. */
    dpe_status (*rows)(void *state, struct dpe_error *err);
    /** The table of the rows so far; its user is the state. */
    dpe_run_fill fill;
    /** On rank 0, and not of a silent one: print the result. */
    dpe_status (*print)(void *state, struct dpe_error *err);
    /** Suggest what to type next, where it is not silent and no part of another job; NULL: nothing.
     */
    void (*suggest)(const void *state);
    /** Also after a failed open; returns what dpe_job_close does. */
    dpe_status (*close)(void *state, dpe_status status, struct dpe_error *err);
};

/** Run a study, or where its job's options have dry_run only price it, into `bill` (NULL: not
 * wanted). */
dpe_status dpe_study_run(const struct dpe_study *study, const void *args, struct dpe_bill *bill,
                         struct dpe_error *err);
/** What `main` of a tool does with it once the command line is read. Returns the exit code. */
int dpe_study_main(const struct dpe_study *study, const void *args,
                   const struct dpe_job_options *options);

#endif
