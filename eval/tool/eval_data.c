/* dpe-eval data: generated samples as files in the official format. */
#include <omp.h>
#include <string.h>

#include "engine/tool/tool.h"
#include "eval/chat/chat.h"
#include "eval/ruler/ruler.h"
#include "eval/score/jsonl.h"
#include "eval/suite/suite.h"
#include "eval/tool/eval_commands.h"
#include "outputs/job/job.h"
#include "outputs/storage/storage.h"

struct data_arguments {
    const char *model, *output, *corpus, *chat_template, *template_vars, *template_file, *tasks,
        *squad, *hotpotqa, *ruler2;
    int64_t length, samples, seed, threads;
    bool seed_given;
    enum dpe_special_policy special;
    bool force;
};

static const struct dpe_option options_table[] = {
    {"model", 'm', "DIR", DPE_BASIC, "Folder with tokenizer.json, or that file", 1,
     DPE_MODEL(struct data_arguments, model)},
    {"length", 'l', "L", DPE_BASIC, "Length in tokens, prompt and answer together", 1,
     DPE_TOKENS(struct data_arguments, length, 16, DPE_MOST_COUNT)},
    {"output", 'o', "DIR", DPE_BASIC, "Folder to write TASK/validation.jsonl into", 1,
     DPE_PATH(struct data_arguments, output)},
    {"corpus", 0, "PATH", DPE_BASIC, "PG-19 folder, folder of .txt files, or one text file", 1,
     DPE_TEXT(struct data_arguments, corpus)},
    {"chat-template", 0, "auto|none|FILE", 0,
     "Chat template to wrap prompts in (default none; auto: the model's own)", 1,
     DPE_TEXT(struct data_arguments, chat_template)},
    {"template-vars", 0, "NAME=VALUE[,...]", 0,
     "Variables of the chat template, such as enable_thinking=false", 1,
     DPE_TEXT(struct data_arguments, template_vars)},
    {"template", 0, "FILE", 0, "Words of the prompts (default: eval/templates)", 1,
     DPE_TEXT(struct data_arguments, template_file)},
    {"tasks", 0, "NAME[,NAME...]", DPE_BASIC, "Only these tasks, or categories (default: all)", 1,
     DPE_TEXT(struct data_arguments, tasks)},
    {"special-in-text", 0, "WHAT", 0,
     "Spelling of a special token in the text: error (default), literal or parse", 1,
     DPE_CHOICE(struct data_arguments, special, dpe_special_names)},
    {"squad", 0, "FILE", 0, "qa_1: questions in the format of SQuAD", 1,
     DPE_TEXT(struct data_arguments, squad)},
    {"hotpotqa", 0, "FILE", 0, "qa_2: questions in the format of HotpotQA", 1,
     DPE_TEXT(struct data_arguments, hotpotqa)},
    {"samples", 0, "N", DPE_BASIC, "Samples of each task (default 100)", 1,
     DPE_COUNT(struct data_arguments, samples, 1, DPE_MOST_COUNT)},
    {"ruler2", 0, "DIR", 0,
     "RULER v2's tasks in place of RULER's, of the words and sets in DIR (eval/README.md, \"RULER "
     "v2\"): with the words and sentences (--template) of its own generator, its samples. --length "
     "is that of prompts then",
     1, DPE_PATH(struct data_arguments, ruler2)},
    {"seed", 0, "S", 0, "Seed of all random choices (default 0; with --ruler2 42)", 1,
     DPE_COUNT(struct data_arguments, seed, 0, DPE_MOST_COUNT),
     DPE_GIVEN(struct data_arguments, seed_given)},
    {"threads", 0, "N", 0, "Threads to use (default: the cores it may use)", 1,
     DPE_COUNT(struct data_arguments, threads, 1, 4096)},
    {"force", 0, NULL, 0, "Replace existing files", 1, DPE_SWITCH(struct data_arguments, force)},
    {0},
};

static int check_arguments(int key, char *arg, struct dpe_command_line *state)
{
    struct data_arguments *args = state->input;
    (void)arg;
    if (key != DPE_LINE_END) {
        return DPE_LINE_UNKNOWN;
    }
    if (args->model == NULL || args->output == NULL || args->length == 0) {
        dpe_line_error(state, "%s is missing",
                       args->model == NULL    ? "--model DIR"
                       : args->output == NULL ? "-o DIR"
                                              : "--length L");
    }
    if (args->ruler2 != NULL && args->seed > UINT32_MAX) {
        dpe_line_error(state, "--seed: expected at most 4294967295 with --ruler2");
    }
    return 0;
}

/* ------------------------------------------------------------------------------------- writing */

/* {"index": …, "input": …, "outputs": […], "length": …} and a newline. */
static dpe_status write_line(const struct dpe_sample *sample, const struct dpe_text *prompt,
                             struct dpe_text *line, struct dpe_error *err)
{
    json_t *outputs = json_array();
    for (size_t i = 0; i < sample->n_references; i++) {
        if (json_array_append_new(outputs, json_string(sample->references[i])) != 0) {
            json_decref(outputs);
            outputs = NULL; /* which fails the line */
        }
    }
    return dpe_jsonl_append(line,
                            json_pack("{s:I, s:s%, s:o, s:I}", "index", (json_int_t)sample->index,
                                      "input", prompt->n > 0 ? prompt->bytes : "", prompt->n,
                                      "outputs", outputs, "length",
                                      (json_int_t)((int64_t)sample->prompt.n + sample->max_new)),
                            err);
}

/* A task, and the function that puts its lines into an open file; *n: how many. */
struct writing {
    const struct data_arguments *args;
    const char *name; /* of the task */
    const char *file;
    dpe_status (*put)(struct writing *writing, struct dpe_new_file *file, int64_t *n,
                      struct dpe_error *err);
    const struct dpe_ruler *ruler; /* RULER: */
    const struct dpe_ruler_kind *kind;
    int64_t n;
    struct dpe_ruler2 *ruler2; /* RULER v2 */
};

static dpe_status check_new(const struct data_arguments *args, const char *path,
                            struct dpe_error *err)
{
    const char *inputs[] = {args->model, args->corpus,   args->chat_template, args->template_file,
                            args->squad, args->hotpotqa, args->ruler2};
    DPE_TRY(dpe_tool_check_new(path, args->force, err));
    return dpe_tool_check_output(path, inputs, sizeof inputs / sizeof inputs[0], err);
}

/* The file appears under its name when it is complete. */
static dpe_status write_file(struct writing *writing, const char *path, struct dpe_error *err)
{
    DPE_SCOPED(dpe_new_file_drop) struct dpe_new_file file = {.fd = -1};
    int64_t n = 0;
    DPE_TRY(check_new(writing->args, path, err)); /* another process may have finished it */
    DPE_TRY(dpe_new_file_open(&file, path, NULL, err));
    DPE_TRY(writing->put(writing, &file, &n, err));
    DPE_TRY(dpe_new_file_finish_over(&file, writing->args->force, err));
    dpe_print("%s  %lld samples\n", path, (long long)n);
    return DPE_OK;
}

/* In a folder of the task, below that of all. One process at a time. */
static dpe_status write_task(struct writing *writing, struct dpe_error *err)
{
    const char *output = writing->args->output;
    struct dpe_lock lock = {.fd = -1};
    char note[256];
    DPE_OWNED char *folder = dpe_join(output, "/", writing->name);
    DPE_TRY(DPE_MADE(folder, err, "out of memory"));
    DPE_OWNED char *path = dpe_join(folder, "/", writing->file);
    DPE_OWNED char *held = dpe_join(folder, "/", "LOCK");
    DPE_TRY(DPE_MADE(path, err, "out of memory"));
    DPE_TRY(DPE_MADE(held, err, "out of memory"));
    DPE_TRY(check_new(writing->args, path, err));
    DPE_TRY(dpe_make_folder(output, err));
    DPE_TRY(dpe_make_folder(folder, err));
    DPE_TRY(dpe_lock_take(&lock, held, note, err));
    dpe_status status = write_file(writing, path, err);
    dpe_lock_release(&lock, true);
    return status;
}

/* --------------------------------------------------------------------------------------- RULER */

/* Lines that are made at once. */
enum { BATCH = 32 };
struct line {
    struct dpe_text text;
    dpe_status status; /* of making it */
    struct dpe_error err;
};

static dpe_status make_line(const struct writing *writing, int64_t index, struct line *line)
{
    DPE_SCOPED(dpe_sample_free) struct dpe_sample sample = {0};
    DPE_SCOPED(dpe_text_free) struct dpe_text prompt = {0};
    line->text.n = 0;
    DPE_TRY(dpe_ruler_sample(writing->ruler, writing->kind, writing->args->length, index, &sample,
                             &prompt, &line->err));
    return write_line(&sample, &prompt, &line->text, &line->err);
}

static void free_lines(struct line (*lines)[BATCH])
{
    for (int i = 0; i < BATCH; i++) {
        dpe_text_free(&(*lines)[i].text);
    }
}

static dpe_status put_ruler(struct writing *writing, struct dpe_new_file *file, int64_t *n,
                            struct dpe_error *err)
{
    const int64_t asked = writing->args->threads;
    const int threads = asked > 0 ? (int)asked : dpe_limit_processors(omp_get_max_threads());
    DPE_SCOPED(free_lines) struct line lines[BATCH] = {{{0}}};
    for (*n = 0; *n < writing->n;) {
        const int64_t from = *n, size = dpe_least(writing->n - from, BATCH);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
        for (int64_t i = 0; i < size; i++) {
            lines[i].status = make_line(writing, from + i, lines + i);
        }
        for (int64_t i = 0; i < size; i++, ++*n) {
            const struct line *line = lines + i;
            if (line->status != DPE_OK) {
                return dpe_fail(err, line->status, "%s", line->err.text);
            }
            DPE_TRY(dpe_new_file_write(file, line->text.bytes, line->text.n, err));
        }
        if (dpe_signals_asked() != DPE_STOP_NONE) {
            return dpe_fail(err, DPE_INCOMPLETE,
                            "interrupted while writing %s; run the same command to continue",
                            file->target);
        }
    }
    return DPE_OK;
}

/* Every task's first sample is made before anything is written. */
static dpe_status check_task(struct writing *writing, struct dpe_error *err)
{
    DPE_SCOPED(dpe_sample_free) struct dpe_sample sample = {0};
    DPE_TRY(dpe_ruler_sample(writing->ruler, writing->kind, writing->args->length, 0, &sample, NULL,
                             err));
    writing->n = writing->args->samples;
    if (writing->kind->maker == &dpe_ruler_qa) {
        writing->n =
            dpe_least(writing->n, (int64_t)writing->ruler->qa[writing->kind->dataset].n_questions);
    }
    return DPE_OK;
}

static dpe_status write_tasks(const struct data_arguments *args, const struct dpe_ruler *ruler,
                              struct dpe_error *err)
{
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; dpe_ruler_kind(i) != NULL; i++) {
            struct writing writing = {.args = args,
                                      .name = dpe_ruler_kind(i)->name,
                                      .file = "validation.jsonl",
                                      .put = put_ruler,
                                      .ruler = ruler,
                                      .kind = dpe_ruler_kind(i)};
            if (!dpe_suite_task_listed(args->tasks, dpe_score_task("ruler", i))) {
                continue;
            }
            DPE_TRY(check_task(&writing, err));
            DPE_TRY(pass == 1 ? write_task(&writing, err) : DPE_OK);
        }
    }
    return DPE_OK;
}

/* ------------------------------------------------------------------------------------- RULER v2 */

/* {"index": …, "question": …, "expected_answer": […] or …, "length": …} and a newline, into the
 * file `user`. */
static dpe_status take_sample(void *user, const struct dpe_ruler2_sample *sample,
                              struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text line = {0};
    json_t *answers = sample->one ? json_string(sample->answers.bytes) : json_array();
    const char *answer = sample->answers.bytes;
    for (size_t i = 0; i < sample->n_answers && !sample->one; i++) {
        json_array_append_new(answers, json_string(answer));
        answer += strlen(answer) + 1;
    }
    DPE_TRY(dpe_jsonl_append(&line,
                             json_pack("{s:I, s:s%, s:o, s:I}", "index", (json_int_t)sample->index,
                                       "question", sample->prompt.bytes, sample->prompt.n,
                                       "expected_answer", answers, "length",
                                       (json_int_t)sample->tokens),
                             err));
    DPE_TRY(dpe_new_file_write(user, line.bytes, line.n, err));
    return dpe_signals_poll(NULL, err);
}

static dpe_status put_ruler2(struct writing *writing, struct dpe_new_file *file, int64_t *n,
                             struct dpe_error *err)
{
    return dpe_ruler2_draw(writing->ruler2, writing->name, writing->args->samples, take_sample,
                           file, n, err);
}

/* The tasks of the list whose files are there; those that were named must be. */
static dpe_status write_ruler2_tasks(const struct data_arguments *args, struct dpe_ruler2 *ruler2,
                                     struct dpe_error *err)
{
    int written = 0;
    for (size_t t = 0; dpe_score_task("ruler2", t) != NULL; t++) {
        const struct dpe_score_task *task = dpe_score_task("ruler2", t);
        const char *lacks = dpe_ruler2_lacks(ruler2, task->name);
        if (!dpe_suite_task_listed(args->tasks, task)) {
            continue;
        }
        if (lacks != NULL && args->tasks == NULL) {
            dpe_log_info("%s is left out: %s/%s is not there", task->name, args->ruler2, lacks);
            continue;
        }
        if (lacks != NULL) {
            return dpe_fail(err, DPE_NO_INPUT, "%s needs %s/%s, which is not there", task->name,
                            args->ruler2, lacks);
        }
        struct writing writing = {.args = args,
                                  .name = task->name,
                                  .file = "test.jsonl",
                                  .put = put_ruler2,
                                  .ruler2 = ruler2};
        DPE_TRY(write_task(&writing, err));
        written++;
    }
    return written > 0 ? DPE_OK
                       : dpe_fail(err, DPE_NO_INPUT,
                                  "%s: expected the words or sets of RULER v2 (eval/README.md), "
                                  "found none",
                                  args->ruler2);
}

static dpe_status write_ruler2(const struct data_arguments *args, struct dpe_tokenizer *tokenizer,
                               struct dpe_error *err)
{
    const struct dpe_ruler2_options options = {.folder = args->ruler2,
                                               .template_file = args->template_file,
                                               .tokenizer = tokenizer,
                                               .length = args->length,
                                               .seed =
                                                   args->seed_given ? (uint32_t)args->seed : 42U};
    DPE_SCOPED(dpe_ruler2_close_scoped) struct dpe_ruler2 *ruler2 = NULL;
    DPE_TRY(dpe_ruler2_open(&options, &ruler2, err));
    return write_ruler2_tasks(args, ruler2, err);
}

static dpe_status write_ruler(const struct data_arguments *args, struct dpe_tokenizer *tokenizer,
                              struct dpe_error *err)
{
    DPE_SCOPED(dpe_corpus_close_scoped) struct dpe_corpus *corpus = NULL;
    DPE_SCOPED(dpe_ruler_close_scoped) struct dpe_ruler *ruler = NULL;
    if (args->corpus != NULL) {
        DPE_TRY(dpe_job_corpus(args->corpus, &corpus, err));
    }
    const struct dpe_ruler_options options = {.tokenizer = tokenizer,
                                              .corpus = corpus,
                                              .chat_template = args->chat_template,
                                              .template_file = args->template_file,
                                              .squad = args->squad,
                                              .hotpotqa = args->hotpotqa,
                                              .special = args->special,
                                              .seed = (uint64_t)args->seed,
                                              .max_length = args->length};
    DPE_TRY(dpe_ruler_open(&options, &ruler, err));
    return write_tasks(args, ruler, err);
}

static dpe_status write_data(const struct data_arguments *args, struct dpe_error *err)
{
    const bool second = args->ruler2 != NULL;
    const struct dpe_tokenizer_limits limits = {.poll = dpe_signals_poll};
    DPE_SCOPED(dpe_tokenizer_close_scoped) struct dpe_tokenizer *tokenizer = NULL;
    DPE_TRY(dpe_chat_set_variables(args->template_vars, err));
    DPE_TRY(dpe_suite_check_tasks(second ? "ruler2" : "ruler", args->tasks, err));
    DPE_TRY(dpe_tool_check_folder(args->output, err));
    DPE_TRY(dpe_tokenizer_open(args->model, &tokenizer, err));
    dpe_tokenizer_set_limits(tokenizer, &limits);
    return second ? write_ruler2(args, tokenizer, err) : write_ruler(args, tokenizer, err);
}

int dpe_eval_data_main(int argc, char **argv)
{
    static const struct dpe_option_set options = {
        .options = options_table,
        .parser = check_arguments,
        .doc = "Generate RULER's tasks and write them as JSON lines in the official format (index, "
               "input, outputs, length), which dpe-eval ruler --data and other evaluators read.\v"
               "Example:\n"
               "  dpe-eval data -m DIR -l 131072 --corpus pg19 --squad dev-v2.0.json --tasks "
               "NIAH,vt,cwe,fwe,qa_1 -o ruler-131072",
    };
    static char name[] = "dpe-eval data";
    argv[0] = name;
    struct data_arguments args = {.samples = 100};
    struct dpe_error err = {0};
    dpe_tool_parse(&options, argc, argv, 0, &args);
    return dpe_tool_end(write_data(&args, &err), &err);
}
