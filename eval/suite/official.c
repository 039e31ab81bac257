/* Official data files as sources. */
#include "eval/suite/suite_parts.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/text/json.h"
#include "eval/chat/chat.h"
#include "eval/score/jsonl.h"

/* The file of a task. */
struct source {
    const struct dpe_official *of;
    struct dpe_official_task task;
    struct dpe_jsonl *jsonl;
    int64_t *lines; /* [n] good ones */
    int64_t n;
    bool ruler, second; /**< a whole prompt; of RULER v2 */
};

/* ------------------------------------------------------------------------------------ checking */

static bool has(const json_t *record, const char *name)
{
    return json_object_get(record, name) != NULL;
}

static const char *references(const struct source *source, const json_t *record)
{
    bool other = !has(record, "outputs") && has(record, "answer");
    return source->second ? "expected_answer" : source->ruler && !other ? "outputs" : "answer";
}

static const char *input(const struct source *source)
{
    return source->second ? "question" : "input";
}

static const char *context(const json_t *record)
{
    return has(record, "context") || !has(record, "content") ? "context" : "content";
}

static const char *text_of(const json_t *record, const char *name)
{
    const char *text = json_string_value(json_object_get(record, name));
    return text != NULL ? text : "";
}

static dpe_status want_string(const json_t *record, const char *name, struct dpe_error *err)
{
    const json_t *value = json_object_get(record, name);
    return dpe_json_is_text(value)
               ? DPE_OK
               : dpe_fail(err, DPE_BAD_DATA, "\"%s\": expected a string, found %s", name,
                          dpe_jsonl_kind(value));
}

static dpe_status want_texts(const json_t *record, const char *name, size_t least,
                             struct dpe_error *err)
{
    const json_t *value = json_object_get(record, name);
    size_t n = dpe_jsonl_entries(value);
    if (n < least) {
        return dpe_fail(err, DPE_BAD_DATA, "\"%s\": expected %zu entries or more, found %zu", name,
                        least, n);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *entry = dpe_jsonl_entry(value, i);
        if (!dpe_jsonl_has_text(entry)) {
            return dpe_fail(err, DPE_BAD_DATA, "\"%s\": expected strings or numbers, found %s",
                            name, dpe_jsonl_kind(entry));
        }
    }
    return DPE_OK;
}

/* Entry i of a field that may be one value; `number` as dpe_jsonl_text. */
static const char *entry(const json_t *record, const char *name, size_t i,
                         char number[DPE_JSONL_NUMBER])
{
    return dpe_jsonl_text(dpe_jsonl_entry(json_object_get(record, name), i), number);
}

/* Letter of the right option: named beside it, or its place among the options; '\0': neither. */
static char right_letter(const json_t *record)
{
    char numbers[2][DPE_JSONL_NUMBER];
    const char *letter = entry(record, "answer", 1, numbers[1]);
    const char *answer = entry(record, "answer", 0, numbers[0]);
    if (json_array_size(json_object_get(record, "answer")) == 2 && strlen(letter) == 1 &&
        strchr("ABCD", letter[0]) != NULL) {
        return letter[0];
    }
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(entry(record, "options", i, numbers[1]), answer) == 0) {
            return "ABCD"[i];
        }
    }
    return '\0';
}

static dpe_status check_prompt(const struct source *source, const json_t *record,
                               struct dpe_error *err)
{
    DPE_TRY(want_string(record, input(source), err));
    if (!source->ruler) {
        return want_string(record, context(record), err);
    }
    if (text_of(record, input(source))[0] == '\0') {
        return dpe_fail(err, DPE_BAD_DATA, "\"%s\": expected a prompt, found \"\"", input(source));
    }
    return has(record, "answer_prefix") ? want_string(record, "answer_prefix", err) : DPE_OK;
}

static dpe_status check_number(const json_t *record, struct dpe_error *err)
{
    const json_t *answer = dpe_jsonl_entry(json_object_get(record, "answer"), 0);
    char number[DPE_JSONL_NUMBER];
    return !dpe_jsonl_is_number(answer)
               ? dpe_fail(err, DPE_BAD_DATA, "\"answer\": expected a number, found a string")
           : !isfinite(strtod(dpe_jsonl_text(answer, number), NULL))
               ? dpe_fail(err, DPE_BAD_DATA, "\"answer\": expected a finite number")
               : DPE_OK;
}

static dpe_status check_options(const json_t *record, struct dpe_error *err)
{
    const json_t *options = json_object_get(record, "options");
    if (!json_is_array(options)) {
        return dpe_fail(err, DPE_BAD_DATA, "\"options\": expected a list, found %s",
                        dpe_jsonl_kind(options));
    }
    DPE_TRY(want_texts(record, "options", 4, err));
    if (right_letter(record) == '\0') {
        return dpe_fail(err, DPE_BAD_DATA, "\"answer\": expected one of the \"options\"");
    }
    return DPE_OK;
}

static dpe_status check_record(const struct source *source, const json_t *record,
                               struct dpe_error *err)
{
    enum dpe_references wanted = source->task.task->references;
    DPE_TRY(check_prompt(source, record, err));
    DPE_TRY(want_texts(record, references(source, record), 1, err));
    return wanted == DPE_REFERENCES_NUMBER ? check_number(record, err)
           : wanted == DPE_REFERENCES_PAIR ? check_options(record, err)
                                           : DPE_OK;
}

/* Line `line` of the file, checked, a new reference. Messages name file and line. */
static dpe_status read_record(const struct source *source, int64_t line, json_t **record,
                              struct dpe_error *err)
{
    DPE_TRY(dpe_jsonl_read(source->jsonl, line, record, err));
    dpe_status status = check_record(source, *record, err);
    if (status != DPE_OK) {
        dpe_fail_prefix(err, "%s: line %lld", dpe_jsonl_path(source->jsonl),
                        (long long)dpe_jsonl_number(source->jsonl, line));
    }
    return status;
}

/* ------------------------------------------------------------------------------------- samples */

static void write_prompt(const struct source *source, const json_t *record, struct dpe_text *text)
{
    const struct dpe_official *shared = source->of;
    const struct dpe_score_task *task = source->task.task;
    if (source->ruler) {
        const char *const parts[] = {shared->frame.before, text_of(record, input(source)),
                                     shared->frame.after,
                                     source->second ? "" : text_of(record, "answer_prefix")};
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            dpe_text_put_bytes(text, parts[i], strlen(parts[i]));
        }
        return;
    }
    bool choice = task->references == DPE_REFERENCES_PAIR;
    char beginning[48], options[4][DPE_JSONL_NUMBER];
    const struct dpe_phrase_value values[] = {
        {"context", text_of(record, context(record))},
        {"input", text_of(record, "input")},
        {"option_a", choice ? entry(record, "options", 0, options[0]) : ""},
        {"option_b", choice ? entry(record, "options", 1, options[1]) : ""},
        {"option_c", choice ? entry(record, "options", 2, options[2]) : ""},
        {"option_d", choice ? entry(record, "options", 3, options[3]) : ""},
        {NULL, NULL},
    };
    dpe_text_put(text, "%s", shared->frame.before);
    dpe_phrases_put(&shared->phrases, task->name, values, text);
    dpe_text_put(text, "%s", shared->frame.after);
    snprintf(beginning, sizeof beginning, "%s_answer", task->name);
    dpe_phrases_put(&shared->phrases, beginning, values, text);
}

/* The first and the last half of the tokens that fit. */
static void keep_halves(struct dpe_tokens *tokens, int64_t most)
{
    size_t half = (size_t)most / 2;
    if (tokens->n > (size_t)most) {
        memmove(tokens->ids + half, tokens->ids + tokens->n - half, half * sizeof *tokens->ids);
        tokens->n = 2 * half;
    }
}

static dpe_status encode(const struct source *source, int64_t line, int64_t room,
                         const struct dpe_text *text, struct dpe_tokens *tokens,
                         struct dpe_error *err)
{
    const struct dpe_encode_options how = {
        .add_special = true, .once = true, .special = DPE_SPECIAL_PARSE};
    tokens->n = 0;
    DPE_TRY(dpe_text_done(text, err));
    DPE_TRY(dpe_tokenizer_encode(source->of->tokenizer, text->bytes, text->n, &how, tokens, err));
    int64_t most = source->task.length - room;
    if (!source->ruler) {
        keep_halves(tokens, most);
    } else if ((int64_t)tokens->n > most) {
        return dpe_fail(err, DPE_USAGE,
                        "%s: line %lld: a prompt of %zu tokens and an answer of %lld do not fit "
                        "into length %lld",
                        dpe_jsonl_path(source->jsonl),
                        (long long)dpe_jsonl_number(source->jsonl, line), tokens->n,
                        (long long)room, (long long)source->task.length);
    }
    return DPE_OK;
}

static dpe_status take_references(const struct source *source, const json_t *record,
                                  struct dpe_sample *sample, struct dpe_error *err)
{
    const char *name = references(source, record);
    bool pair = source->task.task->references == DPE_REFERENCES_PAIR;
    size_t n = pair ? 2 : dpe_jsonl_entries(json_object_get(record, name));
    DPE_TRY(DPE_NEW(&sample->references, n, err, "no memory for references"));
    for (size_t i = 0; i < n; i++) {
        const char letter[2] = {pair ? right_letter(record) : '\0', '\0'};
        char number[DPE_JSONL_NUMBER];
        sample->references[i] = strdup(pair && i == 1 ? letter : entry(record, name, i, number));
        sample->n_references = i + 1;
        DPE_TRY(DPE_MADE(sample->references[i], err, "no memory for references"));
    }
    return DPE_OK;
}

static dpe_status sample_official(void *state, int64_t index, struct dpe_sample *sample,
                                  struct dpe_error *err)
{
    const struct source *source = state;
    DPE_SCOPED(dpe_sample_free)
    struct dpe_sample made = {.index = index, .max_new = source->task.room};
    DPE_SCOPED(json_decrefp) json_t *record = NULL;
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    DPE_TRY(read_record(source, source->lines[index], &record, err));
    write_prompt(source, record, &text);
    DPE_TRY(take_references(source, record, &made, err));
    if (source->task.kind != NULL) {
        DPE_TRY(dpe_ruler_room(source->of->tokenizer, source->task.kind, made.references,
                               made.n_references, source->task.length, &made.max_new, err));
    }
    DPE_TRY(encode(source, source->lines[index], made.max_new, &text, &made.prompt, err));
    *sample = made;
    made = (struct dpe_sample){0};
    return DPE_OK;
}

/* ------------------------------------------------------------------------------------- opening */

/* Where the task's lines are; the caller's, after a failure too. */
static dpe_status find_file(const char *folder, const char *task, char **path,
                            struct dpe_error *err)
{
    size_t size = strlen(folder) + strlen(task) + 32;
    DPE_TRY(DPE_NEW(path, size, err, "%s: no memory for a name", folder));
    for (int i = 0; i < 3; i++) {
        struct stat info;
        int n = i == 0   ? snprintf(*path, size, "%s/%s.jsonl", folder, task)
                : i == 1 ? snprintf(*path, size, "%s/%s/validation.jsonl", folder, task)
                         : snprintf(*path, size, "%s/%s/test.jsonl", folder, task);
        if (n > 0 && stat(*path, &info) == 0) {
            return DPE_OK;
        }
    }
    return dpe_fail(err, DPE_NO_INPUT,
                    "%s: no file for the task %s: expected %s.jsonl, %s/validation.jsonl or "
                    "%s/test.jsonl",
                    folder, task, task, task, task);
}

static dpe_status check_lines(struct source *source, struct dpe_official_file *file,
                              struct dpe_error *err)
{
    int64_t n = dpe_jsonl_size(source->jsonl);
    DPE_TRY(DPE_NEW(&source->lines, (size_t)n, err, "no memory for lines"));
    for (int64_t i = 0; i < n; i++) {
        struct dpe_error own = {0};
        DPE_SCOPED(json_decrefp) json_t *record = NULL;
        dpe_status found = read_record(source, i, &record, &own);
        if (found == DPE_OK) {
            source->lines[source->n++] = i;
        } else if (found == DPE_BAD_DATA && source->of->skip_bad) {
            if (file->left_out++ == 0) {
                snprintf(file->first, sizeof file->first, "%s", own.text);
            }
        } else {
            return dpe_fail(err, found, "%s%s", own.text,
                            found == DPE_BAD_DATA ? "; --skip-bad leaves such lines out" : "");
        }
    }
    return source->n > 0 ? DPE_OK
                         : dpe_fail(err, DPE_BAD_DATA, "%s: expected samples, found none%s%s",
                                    dpe_jsonl_path(source->jsonl),
                                    file->left_out > 0 ? "; first: " : "", file->first);
}

dpe_status dpe_official_open(const struct dpe_suite_options *options,
                             const struct dpe_phrase_field *fields, size_t n_fields,
                             struct dpe_official **official, struct dpe_error *err)
{
    DPE_SCOPED(dpe_official_close_scoped) struct dpe_official *made = NULL;
    DPE_TRY(DPE_NEW(&made, 1, err, "no memory for a suite"));
    made->folder = options->given.data;
    made->tokenizer = options->tokenizer;
    made->skip_bad = options->skip_bad;
    DPE_TRY(dpe_chat_wrap(options->given.chat_template, dpe_tokenizer_path(options->tokenizer),
                          &made->frame, err));
    if (dpe_chat_framed(&made->frame)) {
        DPE_TRY(dpe_chat_frame_hash(&made->frame, NULL, made->chat_hash, err));
    }
    if (fields != NULL) {
        DPE_TRY(dpe_phrases_open(options->given.template_file, &dpe_builtin_infinitebench, fields,
                                 n_fields, &made->phrases, err));
    }
    *official = made;
    made = NULL;
    return DPE_OK;
}

void dpe_official_close(struct dpe_official *official)
{
    if (official != NULL) {
        dpe_chat_frame_free(&official->frame);
        dpe_phrases_free(&official->phrases);
        free(official);
    }
}

static bool asks_for_digits(const struct dpe_score_task *task)
{
    static const char *const tasks[] = {"vt", "passkey", "number_string", "math_find"};
    return DPE_NAMED(tasks, task->name) != NULL || strncmp(task->name, "niah", 4) == 0;
}

static void close_source(void *state)
{
    struct source *source = state;
    dpe_jsonl_close(source->jsonl);
    free(source->lines);
    free(source);
}

static dpe_status open_file(struct source *source, struct dpe_official_file *file,
                            struct dpe_error *err)
{
    const struct dpe_score_task *task = source->task.task;
    DPE_OWNED char *path = NULL;
    DPE_TRY(find_file(source->of->folder, task->name, &path, err));
    if (asks_for_digits(task)) {
        DPE_TRY(dpe_phrases_check_digits(source->of->tokenizer, err));
    }
    DPE_TRY(dpe_jsonl_open(path, &source->jsonl, err));
    DPE_TRY(check_lines(source, file, err));
    return dpe_sha256_file(path, file->hash, err);
}

dpe_status dpe_official_source(const struct dpe_official *official,
                               const struct dpe_official_task *task, struct dpe_source *source,
                               struct dpe_official_file *file, struct dpe_error *err)
{
    if (task->kind == NULL && task->length <= task->room + 1) {
        return dpe_fail(err, DPE_USAGE,
                        "length %lld is too short for %s: its answer takes %lld tokens",
                        (long long)task->length, task->task->name, (long long)task->room);
    }
    struct source *state = NULL;
    DPE_TRY(DPE_NEW(&state, 1, err, "no memory for a task"));
    *state = (struct source){.of = official,
                             .task = *task,
                             .second = task->task->format == DPE_RECORD_RULER2,
                             .ruler = task->task->format != DPE_RECORD_INFINITEBENCH};
    dpe_status status = open_file(state, file, err);
    if (status != DPE_OK) {
        close_source(state);
        return status;
    }
    *source = (struct dpe_source){.n_samples = state->n,
                                  .state = state,
                                  .sample = sample_official,
                                  .score = task->score,
                                  .growing = task->kind != NULL,
                                  .close = close_source};
    return DPE_OK;
}
