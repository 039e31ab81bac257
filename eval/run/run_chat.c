/* Texts in and out: files, standard input, the stream of an answer; conversations with an instruct
 * model: messages in, answers out, the cache kept between turns. */
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "eval/chat/chat.h"
#include "eval/run/run_tool.h"
#include "outputs/table/dpe_table.h"

static const uint64_t most_bytes = UINT64_C(1) << 34;

static dpe_status read_stdin(uint64_t most, char **bytes, size_t *n, struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    char piece[1 << 14];
    size_t got = 0;
    while ((got = fread(piece, 1, sizeof piece, stdin)) > 0) {
        if (most > 0 && text.n + got > most) {
            return dpe_fail(err, DPE_NO_MEMORY,
                            "standard input has %zu bytes or more, --max-memory allows %llu",
                            text.n + got, (unsigned long long)most);
        }
        DPE_TRY(dpe_text_append(&text, piece, got, err));
        DPE_TRY(dpe_signals_poll(NULL, err));
    }
    if (ferror(stdin)) {
        return dpe_fail(err, DPE_IO, "standard input cannot be read");
    }
    DPE_TRY(dpe_text_append(&text, "", 1, err));
    *bytes = text.bytes;
    *n = text.n - 1;
    text = (struct dpe_text){0};
    return DPE_OK;
}

dpe_status dpe_run_tool_read(const struct dpe_runner *run, const char *file, char **bytes,
                             size_t *n, struct dpe_error *err)
{
    struct stat info;
    uint64_t most = run->args->tool.max_memory;
    if (strcmp(file, "-") == 0) {
        DPE_TRY(read_stdin(most, bytes, n, err));
        if (dpe_signals_asked() == DPE_STOP_NOW) {
            DPE_TRY(dpe_signals_poll(NULL, err));
        }
    } else if (most > 0 && stat(file, &info) == 0 && (uint64_t)info.st_size > most) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s: the file has %lld bytes, --max-memory allows %llu",
                        file, (long long)info.st_size, (unsigned long long)most);
    } else {
        DPE_TRY(dpe_read_file(file, most_bytes, bytes, n, err));
    }
    *n = dpe_text_clean(*bytes, *n, run->args->mode == MODE_NLL);
    return DPE_OK;
}

void dpe_run_tool_print(struct stream *stream, const int32_t *ids, size_t n, bool last)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    if (dpe_tokenizer_decode(stream->tokenizer, ids, n, true, &text, NULL) == DPE_OK) {
        size_t end = text.n;
        bool unfinished = end >= 3 && memcmp(text.bytes + end - 3, "\xef\xbf\xbd", 3) == 0;
        end -= unfinished && !last ? 3 : 0;
        if (end > stream->printed) {
            fwrite(text.bytes + stream->printed, 1, end - stream->printed, stdout);
            fflush(stdout);
            stream->printed = end;
        }
    }
}

bool dpe_run_tool_token(void *user, const int32_t *generated, size_t n)
{
    struct stream *stream = user;
    dpe_run_tool_print(stream, generated, n, false);
    stream->late = dpe_clock() > stream->deadline;
    bool ended = n > 0 && dpe_chat_ends_with(&stream->ends, generated[n - 1]);
    return ended || stream->late || dpe_signals_asked() != DPE_STOP_NONE || ferror(stdout);
}

enum { FIRST_CAPACITY = 4096 };

struct chat {
    const struct dpe_runner *run;
    struct dpe_chat *template;
    struct dpe_table *table; /* NULL: a method without one */
    int64_t trained_length;  /* that of the table, where there is one */
    struct dpe_session *session;
    int64_t capacity, length; /* of the session: its room, and what its plan was made for */
    json_t *messages;
    struct tm now;
    struct dpe_chat_ends ends;
    bool warned; /* that the model's trained length is passed without a method */
};

static dpe_status add_message(struct chat *chat, const char *role, const char *text, size_t n,
                              struct dpe_error *err)
{
    json_t *content = json_stringn(text, n);
    if (content == NULL) {
        return dpe_fail(err, DPE_BAD_DATA, "the message is not UTF-8 text");
    }
    json_t *message = json_pack("{s:s,s:o}", "role", role, "content", content);
    return json_array_append_new(chat->messages, message) == 0
               ? DPE_OK
               : dpe_fail(err, DPE_NO_MEMORY, "out of memory for a conversation");
}

/* Special tokens belong to the template: their spelling in a message is refused, unless it is to be
 * parsed. */
static dpe_status check_text(const struct dpe_runner *run, const char *text, size_t n,
                             struct dpe_error *err)
{
    const struct dpe_encode_options options = {
        .special = DPE_SPECIAL_ERROR, .advice = "--special-in-text parse makes it the token"};
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens tokens = {0};
    return n == 0 || run->args->special == DPE_SPECIAL_PARSE ||
                   dpe_tokenizer_encode(run->tokenizer, text, n, &options, &tokens, err) == DPE_OK
               ? DPE_OK
               : dpe_fail_prefix(err, "message");
}

/* The ids of the whole conversation, up to where the answer begins; without a template those of its
 * one message. */
static dpe_status encode(const struct chat *chat, struct dpe_tokens *tokens, struct dpe_error *err)
{
    struct dpe_encode_options options = {.special = DPE_SPECIAL_PARSE};
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    const struct dpe_chat_turn turn = {
        .messages = chat->messages, .now = &chat->now, .prompt = true};
    if (chat->template == NULL) {
        const json_t *message = json_array_get(chat->messages, 0);
        const json_t *content = json_object_get(message, "content");
        options =
            (struct dpe_encode_options){.add_special = true, .special = chat->run->args->special};
        return dpe_tokenizer_encode(chat->run->tokenizer, json_string_value(content),
                                    json_string_length(content), &options, tokens, err);
    }
    DPE_TRY(dpe_chat_render(chat->template, &turn, &text, err));
    DPE_TRY(dpe_tokenizer_encode(chat->run->tokenizer, text.bytes, text.n, &options, tokens, err));
    return tokens->n > 0 ? DPE_OK
                         : dpe_fail(err, DPE_BAD_DATA, "%s: the template makes an empty prompt",
                                    dpe_chat_source(chat->template));
}

/* The length that a plan for `need` tokens is made for: of a table its entry's, up to the trained
 * length that itself, with a document what its first answer needs, beyond these doubled, so that a
 * conversation that grows seldom changes plans. */
static int64_t plan_length(const struct chat *chat, int64_t need)
{
    const struct dpe_table *entry =
        chat->table != NULL ? dpe_table_choose(chat->table, need) : NULL;
    const int64_t made_for = need > chat->trained_length ? chat->run->args->made_for : 0;
    int64_t length =
        entry != NULL ? dpe_table_values(entry)->length : dpe_most(chat->trained_length, made_for);
    while (length < need) {
        length *= 2;
    }
    return length;
}

/* A session with room for `need` tokens, under the plan for so many; a larger one, or one with
 * another plan, begins with an empty cache. */
static dpe_status make_room(struct chat *chat, int64_t need, struct dpe_error *err)
{
    const struct dpe_run_args *args = chat->run->args;
    int64_t most = args->length;
    if (most > 0 && need > most) {
        return dpe_fail(err, DPE_USAGE,
                        "the conversation and the longest answer have %lld tokens, --length allows "
                        "%lld; give a larger --length or a smaller --max-new",
                        (long long)need, (long long)most);
    }
    bool unchanged = chat->table == NULL && strcmp(args->method, "rope") == 0;
    if (need > chat->trained_length && unchanged && !chat->warned) {
        dpe_log_warning("the conversation may pass the model's trained length of %lld tokens; "
                        "--table or --method make it longer",
                        (long long)chat->trained_length);
        chat->warned = true;
    }
    int64_t length = most > 0 && need > chat->trained_length ? most : plan_length(chat, need);
    if (chat->session != NULL && need <= chat->capacity && length == chat->length) {
        return DPE_OK;
    }
    int64_t capacity = dpe_least(FIRST_CAPACITY, length);
    while (capacity < need) {
        capacity *= 2;
    }
    dpe_session_destroy(chat->session);
    chat->session = NULL;
    chat->capacity = most > 0 ? most : dpe_least(capacity, length);
    chat->length = length;
    return dpe_run_tool_session(chat->run, chat->capacity, length, &chat->session, err);
}

/* Why an answer ended early; DPE_OK when it did not. */
static dpe_status ended(const struct stream *stream, size_t n, struct dpe_error *err)
{
    if (dpe_signals_asked() != DPE_STOP_NONE) {
        return dpe_fail(err, DPE_INCOMPLETE, "interrupted by a signal after %zu tokens", n);
    }
    return stream->late
               ? dpe_fail(err, DPE_INCOMPLETE, "the time budget is used up after %zu tokens", n)
               : DPE_OK;
}

/* Read the whole chunks of what is new but the last, with a line that says how far; *at: where to
 * go on. */
static dpe_status read_ahead(struct chat *chat, const struct dpe_tokens *prompt, int64_t *at,
                             struct dpe_error *err)
{
    const int64_t chunk = dpe_session_chunk(chat->session), n = (int64_t)prompt->n;
    const double first = (double)*at, begin = dpe_clock();
    dpe_progress_begin();
    for (int64_t end = (*at / chunk + 1) * chunk; end < n; end += chunk) {
        char line[96];
        DPE_TRY(dpe_session_feed(chat->session, prompt->ids + *at, end - *at, NULL, err));
        *at = end;
        const double rate = ((double)end - first) / (dpe_clock() - begin);
        const struct dpe_event event = {"read", (double)end, (double)n, rate,
                                        (double)(n - end) / rate};
        snprintf(line, sizeof line, "%lld of %lld tokens read, %.0f tokens/s", (long long)end,
                 (long long)n, rate);
        dpe_progress(&event, line);
        if (dpe_clock() > chat->run->deadline) {
            return dpe_fail(err, DPE_INCOMPLETE, "the time budget is used up: %s", line);
        }
    }
    dpe_progress_clear();
    return DPE_OK;
}

/* Generate, print and keep the answer to the last message. */
static dpe_status answer(struct chat *chat, struct dpe_error *err)
{
    const struct dpe_runner *run = chat->run;
    struct stream stream = {
        .tokenizer = run->tokenizer, .deadline = run->deadline, .ends = chat->ends};
    const struct dpe_generate_options options = {.max_new = run->args->max_new,
                                                 .stop = dpe_run_tool_token,
                                                 .user = &stream,
                                                 .sampling = run->sampling};
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens prompt = {0};
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens out = {0};
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    double begin = dpe_clock();
    DPE_TRY(encode(chat, &prompt, err));
    const int64_t n = (int64_t)prompt.n;
    DPE_TRY(make_room(chat, n + run->args->max_new, err));
    const int64_t kept = dpe_least(dpe_session_common(chat->session, prompt.ids, n), n - 1);
    int64_t at = kept;
    DPE_TRY(dpe_session_cut(chat->session, kept, err));
    DPE_TRY(read_ahead(chat, &prompt, &at, err));
    DPE_TRY(dpe_session_generate(chat->session, prompt.ids + at, n - at, &options, &out, err));
    dpe_run_tool_print(&stream, out.ids, out.n, true);
    printf("\n");
    fflush(stdout);
    dpe_log_info("%lld tokens read, %lld kept, %zu written, %.2f s", (long long)(n - kept),
                 (long long)kept, out.n, dpe_clock() - begin);
    DPE_TRY(dpe_tokenizer_decode(run->tokenizer, out.ids, out.n, true, &text, err));
    DPE_TRY(add_message(chat, "assistant", text.n > 0 ? text.bytes : "", text.n, err));
    return ended(&stream, out.n, err);
}

/* Whether there is a message besides that of the system. */
static bool has_begun(const struct chat *chat)
{
    return json_array_size(chat->messages) > (chat->run->args->system != NULL ? 1 : 0);
}

/* What was measured of the plan that the document was read under. */
static void tell(const struct chat *chat)
{
    const struct dpe_run_args *args = chat->run->args;
    if (chat->length <= chat->trained_length) {
        dpe_log_info("nothing was measured: document, question and answer have at most the trained "
                     "length of %lld tokens, and the model is used unchanged",
                     (long long)chat->trained_length);
    } else if (args->told != NULL) {
        dpe_log_info("%s", args->told);
    }
}

static dpe_status say(struct chat *chat, const char *text, size_t n, struct dpe_error *err)
{
    const struct dpe_text *document = chat->run->args->document;
    DPE_SCOPED(dpe_text_free) struct dpe_text whole = {0};
    const bool first = document != NULL && !has_begun(chat);
    DPE_TRY(check_text(chat->run, text, n, err));
    if (first) {
        DPE_TRY(dpe_text_append(&whole, document->bytes, document->n, err));
    }
    DPE_TRY(dpe_text_append(&whole, text, n, err));
    DPE_TRY(add_message(chat, "user", whole.bytes, whole.n, err));
    DPE_TRY(answer(chat, err));
    if (first) {
        tell(chat);
    }
    return DPE_OK;
}

static dpe_status say_prompt(struct chat *chat, struct dpe_error *err)
{
    const struct dpe_run_args *args = chat->run->args;
    DPE_OWNED char *bytes = NULL;
    size_t n = 0;
    if (args->prompt != NULL) {
        return say(chat, args->prompt, strlen(args->prompt), err);
    }
    DPE_TRY(dpe_run_tool_read(chat->run, args->prompt_file, &bytes, &n, err));
    return say(chat, bytes, n, err);
}

/* Wait for a line of a terminal: unlike getline, poll ends at a signal. */
static bool wait_line(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    while (poll(&input, 1, -1) < 0 && errno == EINTR) {
        if (dpe_signals_asked() != DPE_STOP_NONE) {
            return false;
        }
    }
    return true;
}

/* The conversation begins anew, after the system message. */
static void forget(struct chat *chat)
{
    while (has_begun(chat)) {
        json_array_remove(chat->messages, json_array_size(chat->messages) - 1);
    }
}

/* A line that is for dpe-run and no message; *ends: it ends the conversation. */
static bool is_command(struct chat *chat, const char *line, bool *ends)
{
    const char *text = strcmp(line, "/help") == 0    ? "/clear begins a new conversation, /exit or "
                                                       "Ctrl-D ends; every other line is a message"
                       : strcmp(line, "/clear") == 0 ? "a new conversation"
                       : strcmp(line, "/exit") == 0  ? ""
                                                     : NULL;
    *ends = text != NULL && text[0] == '\0';
    if (text != NULL && !*ends) {
        dpe_log_info("%s", text);
    }
    if (strcmp(line, "/clear") == 0) {
        forget(chat);
    }
    return text != NULL;
}

/* Every line that is not empty is a message, until the end of standard input. */
static dpe_status converse(struct chat *chat, struct dpe_error *err)
{
    bool terminal = isatty(STDIN_FILENO) == 1;
    DPE_OWNED char *line = NULL;
    size_t size = 0;
    size_t turns = has_begun(chat);
    if (terminal) {
        dpe_log_info("every line is a message; /help lists commands, Ctrl-D ends");
    }
    while (!ferror(stdout)) {
        if (terminal && isatty(STDOUT_FILENO) == 1) {
            printf("> ");
            fflush(stdout);
        }
        ssize_t n = !terminal || wait_line() ? getline(&line, &size, stdin) : -1;
        if (n < 0 && dpe_signals_asked() != DPE_STOP_NONE) {
            return dpe_fail(err, DPE_INCOMPLETE, "interrupted by a signal");
        }
        if (n < 0 && ferror(stdin)) {
            return dpe_fail(err, DPE_IO, "standard input cannot be read");
        }
        if (n < 0) {
            break;
        }
        n -= n > 0 && line[n - 1] == '\n';
        n -= n > 0 && line[n - 1] == '\r';
        line[n] = '\0';
        bool ends = false;
        if (n == 0 || is_command(chat, line, &ends)) {
            turns += n > 0;
            if (ends) {
                break;
            }
            continue;
        }
        if (terminal && check_text(chat->run, line, (size_t)n, err) != DPE_OK) {
            dpe_log_warning("%s; the line is left out", err->text);
            continue;
        }
        DPE_TRY(say(chat, line, (size_t)n, err));
        turns++;
    }
    return turns > 0 || terminal
               ? DPE_OK
               : dpe_fail(err, DPE_BAD_DATA,
                          "standard input: expected a message on each line, found none");
}

dpe_status dpe_run_tool_template(const struct dpe_runner *run, struct dpe_chat **template,
                                 struct dpe_error *err)
{
    const struct dpe_run_args *args = run->args;
    const char *what = args->chat_template != NULL ? args->chat_template : "auto";
    DPE_TRY(dpe_chat_open(what, args->model, template, err));
    if (*template == NULL && (args->chat || args->system != NULL)) {
        return dpe_fail(err, DPE_NO_INPUT,
                        "%s: has no chat template (chat_template.jinja, chat_template.json, or "
                        "chat_template in tokenizer_config.json or processor_config.json); leave "
                        "out --chat and --system, or give --chat-template FILE",
                        args->model);
    }
    DPE_TRY(check_text(run, args->system, args->system != NULL ? strlen(args->system) : 0, err));
    return check_text(run, args->prompt, args->prompt != NULL ? strlen(args->prompt) : 0, err);
}

/* A template, and the table whose entries the conversation may run with. */
static dpe_status open_chat(struct chat *chat, struct dpe_error *err)
{
    const struct dpe_run_args *args = chat->run->args;
    const char *table = dpe_run_tool_table(args);
    time_t now = time(NULL);
    localtime_r(&now, &chat->now);
    DPE_TRY(dpe_run_tool_template(chat->run, &chat->template, err));
    if (chat->template == NULL) {
        dpe_log_warning("%s: has no chat template, so it is taken for a base model, which goes on "
                        "with the text",
                        args->model);
    } else {
        DPE_TRY(dpe_chat_find_ends(chat->template, chat->run->tokenizer, &chat->ends, err));
        dpe_log_info("chat template of %s", dpe_chat_source(chat->template));
    }
    if (table != NULL) {
        DPE_TRY(dpe_table_load(table, &chat->table, err));
    }
    chat->trained_length = chat->table != NULL ? dpe_table_values(chat->table)->trained_length
                                               : chat->run->trained_length;
    chat->messages = json_array();
    DPE_TRY(DPE_MADE(chat->messages, err, "out of memory for a conversation"));
    return args->system == NULL
               ? DPE_OK
               : add_message(chat, "system", args->system, strlen(args->system), err);
}

dpe_status dpe_run_tool_chat(const struct dpe_runner *run, struct dpe_error *err)
{
    struct chat chat = {.run = run};
    dpe_status status = open_chat(&chat, err);
    if (status == DPE_OK) {
        bool one = run->args->prompt != NULL || run->args->prompt_file != NULL;
        bool lines = !one || (run->args->document != NULL && run->args->chat);
        status = one ? say_prompt(&chat, err) : DPE_OK;
        status = status == DPE_OK && lines ? converse(&chat, err) : status;
    }
    dpe_session_destroy(chat.session);
    dpe_table_close(chat.table);
    json_decref(chat.messages);
    dpe_chat_close(chat.template);
    return status;
}

void dpe_run_tool_hint(const struct dpe_runner *run, const int32_t *ids, size_t n)
{
    char told[1200];
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    bool empty = dpe_tokenizer_decode(run->tokenizer, ids, n, true, &text, NULL) == DPE_OK &&
                 (text.n == 0 || strspn(text.bytes, " \t\r\n") == text.n);
    if (empty && dpe_chat_told("auto", run->args->model, told, sizeof told)) {
        dpe_log_warning("the answer is empty: this is an instruct model, which expects a message "
                        "in its chat template; give --chat");
    }
}
