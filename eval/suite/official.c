/* Official data files as sources. */
#include "eval/suite/suite_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "eval/chat/chat.h"
#include "eval/score/jsonl.h"

struct official {
    struct dpe_official_options options;
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

static const char *references(const struct official *official, const json_t *record)
{
    bool other = !has(record, "outputs") && has(record, "answer");
    return official->second ? "expected_answer" : official->ruler && !other ? "outputs" : "answer";
}

static const char *input(const struct official *official)
{
    return official->second ? "question" : "input";
}

static const char *context(const json_t *record)
{
    return has(record, "context") || !has(record, "content") ? "context" : "content";
}

static const char *text_of(const json_t *record, const char *name)
{
    return dpe_jsonl_text(json_object_get(record, name));
}

static dpe_status want_string(const json_t *record, const char *name, struct dpe_error *err)
{
    const json_t *value = json_object_get(record, name);
    return json_is_string(value) && !dpe_jsonl_is_number(value)
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
        if (!json_is_string(entry)) {
            return dpe_fail(err, DPE_BAD_DATA, "\"%s\": expected strings or numbers, found %s",
                            name, dpe_jsonl_kind(entry));
        }
    }
    return DPE_OK;
}

/* Entry i of a field that may be one value. */
static const char *entry(const json_t *record, const char *name, size_t i)
{
    return dpe_jsonl_text(dpe_jsonl_entry(json_object_get(record, name), i));
}

/* Letter of the right option: named beside it, or its place among the options; '\0': neither. */
static char right_letter(const json_t *record)
{
    const char *letter = entry(record, "answer", 1);
    if (json_array_size(json_object_get(record, "answer")) == 2 && strlen(letter) == 1 &&
        strchr("ABCD", letter[0]) != NULL) {
        return letter[0];
    }
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(entry(record, "options", i), entry(record, "answer", 0)) == 0) {
            return "ABCD"[i];
        }
    }
    return '\0';
}

static dpe_status check_prompt(const struct official *official, const json_t *record,
                               struct dpe_error *err)
{
    DPE_TRY(want_string(record, input(official), err));
    if (!official->ruler) {
        return want_string(record, context(record), err);
    }
    if (text_of(record, input(official))[0] == '\0') {
        return dpe_fail(err, DPE_BAD_DATA, "\"%s\": expected a prompt, found \"\"",
                        input(official));
    }
    return has(record, "answer_prefix") ? want_string(record, "answer_prefix", err) : DPE_OK;
}

static dpe_status check_number(const json_t *record, struct dpe_error *err)
{
    return dpe_jsonl_is_number(dpe_jsonl_entry(json_object_get(record, "answer"), 0))
               ? DPE_OK
               : dpe_fail(err, DPE_BAD_DATA, "\"answer\": expected a number, found a string");
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

static dpe_status check_record(const struct official *official, const json_t *record,
                               struct dpe_error *err)
{
    enum dpe_references wanted = official->options.task->references;
    DPE_TRY(check_prompt(official, record, err));
    DPE_TRY(want_texts(record, references(official, record), 1, err));
    return wanted == DPE_REFERENCES_NUMBER ? check_number(record, err)
           : wanted == DPE_REFERENCES_PAIR ? check_options(record, err)
                                           : DPE_OK;
}

/* Line `line` of the file, checked, a new reference. Messages name file and line. */
static dpe_status read_record(const struct official *official, int64_t line, json_t **record,
                              struct dpe_error *err)
{
    DPE_TRY(dpe_jsonl_read(official->jsonl, line, true, record, err));
    dpe_status status = check_record(official, *record, err);
    if (status != DPE_OK) {
        dpe_fail_prefix(err, "%s: line %lld", dpe_jsonl_path(official->jsonl),
                        (long long)dpe_jsonl_number(official->jsonl, line));
    }
    return status;
}

/* ------------------------------------------------------------------------------------- samples */

static void write_prompt(const struct official *official, const json_t *record,
                         struct dpe_text *text)
{
    const struct dpe_official_options *options = &official->options;
    const struct dpe_official_shared *shared = options->shared;
    if (official->ruler) {
        const char *const parts[] = {shared->frame.before, text_of(record, input(official)),
                                     shared->frame.after,
                                     official->second ? "" : text_of(record, "answer_prefix")};
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            dpe_text_put_bytes(text, parts[i], strlen(parts[i]));
        }
        return;
    }
    bool choice = options->task->references == DPE_REFERENCES_PAIR;
    char beginning[48];
    const struct dpe_phrase_value values[] = {
        {"context", text_of(record, context(record))},
        {"input", text_of(record, "input")},
        {"option_a", choice ? entry(record, "options", 0) : ""},
        {"option_b", choice ? entry(record, "options", 1) : ""},
        {"option_c", choice ? entry(record, "options", 2) : ""},
        {"option_d", choice ? entry(record, "options", 3) : ""},
        {NULL, NULL},
    };
    dpe_text_put(text, "%s", shared->frame.before);
    dpe_phrases_put(&shared->phrases, options->task->name, values, text);
    dpe_text_put(text, "%s", shared->frame.after);
    snprintf(beginning, sizeof beginning, "%s_answer", options->task->name);
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

static dpe_status encode(const struct official *official, int64_t line, int64_t room,
                         const struct dpe_text *text, struct dpe_tokens *tokens,
                         struct dpe_error *err)
{
    const struct dpe_official_options *options = &official->options;
    const struct dpe_encode_options how = {
        .add_special = true, .once = true, .special = DPE_SPECIAL_PARSE};
    tokens->n = 0;
    DPE_TRY(dpe_text_done(text, err));
    DPE_TRY(dpe_tokenizer_encode(options->tokenizer, text->bytes, text->n, &how, tokens, err));
    int64_t most = options->length - room;
    if (!official->ruler) {
        keep_halves(tokens, most);
    } else if ((int64_t)tokens->n > most) {
        return dpe_fail(err, DPE_USAGE,
                        "%s: line %lld: a prompt of %zu tokens and an answer of %lld do not fit "
                        "into length %lld",
                        dpe_jsonl_path(official->jsonl),
                        (long long)dpe_jsonl_number(official->jsonl, line), tokens->n,
                        (long long)room, (long long)options->length);
    }
    return DPE_OK;
}

static dpe_status take_references(const struct official *official, const json_t *record,
                                  struct dpe_sample *sample, struct dpe_error *err)
{
    const char *name = references(official, record);
    bool pair = official->options.task->references == DPE_REFERENCES_PAIR;
    size_t n = pair ? 2 : dpe_jsonl_entries(json_object_get(record, name));
    DPE_TRY(DPE_NEW(&sample->references, n, err, "no memory for references"));
    for (size_t i = 0; i < n; i++) {
        const char letter[2] = {pair ? right_letter(record) : '\0', '\0'};
        sample->references[i] = strdup(pair && i == 1 ? letter : entry(record, name, i));
        sample->n_references = i + 1;
        DPE_TRY(DPE_MADE(sample->references[i], err, "no memory for references"));
    }
    return DPE_OK;
}

static dpe_status sample_official(void *state, int64_t index, struct dpe_sample *sample,
                                  struct dpe_error *err)
{
    const struct official *official = state;
    DPE_SCOPED(dpe_sample_free)
    struct dpe_sample made = {.index = index, .max_new = official->options.room};
    DPE_SCOPED(json_decrefp) json_t *record = NULL;
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    DPE_TRY(read_record(official, official->lines[index], &record, err));
    write_prompt(official, record, &text);
    DPE_TRY(take_references(official, record, &made, err));
    if (official->options.kind != NULL) {
        DPE_TRY(dpe_ruler_room(official->options.tokenizer, official->options.kind, made.references,
                               made.n_references, official->options.length, &made.max_new, err));
    }
    DPE_TRY(encode(official, official->lines[index], made.max_new, &text, &made.prompt, err));
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

static dpe_status check_lines(struct official *official, struct dpe_official_file *file,
                              struct dpe_error *err)
{
    int64_t n = dpe_jsonl_size(official->jsonl);
    DPE_TRY(DPE_NEW(&official->lines, (size_t)n, err, "no memory for lines"));
    for (int64_t i = 0; i < n; i++) {
        struct dpe_error own = {0};
        DPE_SCOPED(json_decrefp) json_t *record = NULL;
        dpe_status found = read_record(official, i, &record, &own);
        if (found == DPE_OK) {
            official->lines[official->n++] = i;
        } else if (found == DPE_BAD_DATA && official->options.skip_bad) {
            if (file->left_out++ == 0) {
                snprintf(file->first, sizeof file->first, "%s", own.text);
            }
        } else {
            return dpe_fail(err, found, "%s%s", own.text,
                            found == DPE_BAD_DATA ? "; --skip-bad leaves such lines out" : "");
        }
    }
    return official->n > 0 ? DPE_OK
                           : dpe_fail(err, DPE_BAD_DATA, "%s: expected samples, found none%s%s",
                                      dpe_jsonl_path(official->jsonl),
                                      file->left_out > 0 ? "; first: " : "", file->first);
}

dpe_status dpe_official_identify(const struct dpe_official_shared *shared,
                                 struct dpe_identity *parameters, struct dpe_error *err)
{
    return shared->chat_hash[0] != '\0'
               ? dpe_identity_add(parameters, "chat_template", shared->chat_hash, err)
               : DPE_OK;
}

dpe_status dpe_official_share(const char *chat_template, const char *model,
                              const char *template_file, const struct dpe_phrase_field *fields,
                              size_t n_fields, struct dpe_official_shared **shared,
                              struct dpe_error *err)
{
    DPE_SCOPED(dpe_official_release_scoped) struct dpe_official_shared *made = NULL;
    DPE_TRY(DPE_NEW(&made, 1, err, "no memory for a suite"));
    made->users = 1;
    DPE_TRY(dpe_chat_wrap(chat_template, model, &made->frame, err));
    if (dpe_chat_framed(&made->frame)) {
        DPE_TRY(dpe_chat_frame_hash(&made->frame, NULL, made->chat_hash, err));
    }
    if (fields != NULL) {
        DPE_TRY(dpe_phrases_open(template_file, &dpe_builtin_infinitebench, fields, n_fields,
                                 &made->phrases, err));
    }
    *shared = made;
    made = NULL;
    return DPE_OK;
}

void dpe_official_release(struct dpe_official_shared *shared)
{
    if (shared != NULL && --shared->users == 0) {
        dpe_chat_frame_free(&shared->frame);
        dpe_phrases_free(&shared->phrases);
        free(shared);
    }
}

static bool asks_for_digits(const struct dpe_score_task *task)
{
    static const char *const tasks[] = {"vt", "passkey", "number_string", "math_find"};
    return DPE_NAMED(tasks, task->name) != NULL || strncmp(task->name, "niah", 4) == 0;
}

static void close_official(void *state)
{
    struct official *official = state;
    dpe_official_release(official->options.shared);
    dpe_jsonl_close(official->jsonl);
    free(official->lines);
    free(official);
}

static dpe_status open_file(struct official *official, struct dpe_official_file *file,
                            struct dpe_error *err)
{
    const struct dpe_official_options *options = &official->options;
    DPE_OWNED char *path = NULL;
    DPE_TRY(find_file(options->folder, options->task->name, &path, err));
    if (asks_for_digits(options->task)) {
        DPE_TRY(dpe_phrases_check_digits(options->tokenizer, err));
    }
    DPE_TRY(dpe_jsonl_open(path, &official->jsonl, err));
    DPE_TRY(check_lines(official, file, err));
    return dpe_sha256_file(path, file->hash, err);
}

dpe_status dpe_official_source(const struct dpe_official_options *options,
                               struct dpe_source *source, struct dpe_official_file *file,
                               struct dpe_error *err)
{
    if (options->kind == NULL && options->length <= options->room + 1) {
        return dpe_fail(err, DPE_USAGE,
                        "length %lld is too short for %s: its answer takes %lld tokens",
                        (long long)options->length, options->task->name, (long long)options->room);
    }
    struct official *official = NULL;
    DPE_TRY(DPE_NEW(&official, 1, err, "no memory for a task"));
    official->options = *options;
    official->second = options->task->format == DPE_RECORD_RULER2;
    official->ruler = official->second || options->task->format == DPE_RECORD_RULER;
    options->shared->users++;
    dpe_status status = open_file(official, file, err);
    if (status != DPE_OK) {
        close_official(official);
        return status;
    }
    *source = (struct dpe_source){.n_samples = official->n,
                                  .state = official,
                                  .sample = sample_official,
                                  .score = options->score,
                                  .growing = options->kind != NULL,
                                  .close = close_official};
    return DPE_OK;
}
