/* Members of a request: which are read, which never change an answer, and which value of the others
 * changes nothing; typed ones, refusals, and the prompt of a chat. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/text/json.h"
#include "eval/serve/serve_tool.h"

bool dpe_serve_refuse_as(struct dpe_serve_refusal *refusal, unsigned status, const char *code,
                         const char *param, const char *format, ...)
{
    if (refusal->status == 0) {
        va_list values;
        refusal->status = status;
        refusal->code = code;
        snprintf(refusal->param, sizeof refusal->param, "%s", param);
        va_start(values, format);
        vsnprintf(refusal->text, sizeof refusal->text, format, values);
        va_end(values);
    }
    return false;
}

/* A client need not know where the server keeps its files: of a path the last part is left. */
static void leave_out_folders(char *text)
{
    static const char ends[] = " \t\n'\"()[]";
    char *to = text;
    const char *from = text;
    while (*from != '\0') {
        size_t n = strcspn(from, ends);
        size_t first = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            bool url = i > 0 && from[i - 1] == ':' && from[i + 1] == '/';
            if (from[i] == '/' && !url) {
                first = i + 1;
            } else if (url) {
                break;
            }
        }
        size_t end = n + strspn(from + n, ends);
        memmove(to, from + first, end - first);
        to += end - first;
        from += end;
    }
    *to = '\0';
}

bool dpe_serve_refuse_error(struct dpe_serve_refusal *refusal, const char *param,
                            const struct dpe_error *err)
{
    bool theirs =
        err->status == DPE_BAD_DATA || err->status == DPE_USAGE || err->status == DPE_MISMATCH;
    bool late = err->status == DPE_INCOMPLETE;
    bool full = err->status == DPE_NO_MEMORY;
    bool first = refusal->status == 0;
    dpe_serve_refuse_as(refusal,
                        theirs ? 400
                        : late ? 504
                        : full ? 503
                               : 500,
                        err->status == DPE_NONFINITE ? "not_finite" : NULL, param, "%s", err->text);
    if (first) {
        if (!theirs && !late) {
            dpe_log_warning("%s", err->text);
        }
        leave_out_folders(refusal->text);
    }
    return false;
}

static json_t *member(const json_t *body, const char *key, const struct dpe_serve_refusal *refusal)
{
    json_t *value = refusal->status == 0 ? json_object_get(body, key) : NULL;
    return json_is_null(value) ? NULL : value;
}

int64_t dpe_serve_whole(const json_t *body, const char *key, int64_t low, int64_t high,
                        int64_t fallback, struct dpe_serve_refusal *refusal)
{
    const json_t *value = member(body, key, refusal);
    if (value == NULL) {
        return fallback;
    }
    if (!json_is_integer(value) || json_integer_value(value) < low ||
        json_integer_value(value) > high) {
        dpe_serve_refuse(refusal, 400, key, "%s: expected a whole number from %lld to %lld", key,
                         (long long)low, (long long)high);
        return fallback;
    }
    return json_integer_value(value);
}

double dpe_serve_real(const json_t *body, const char *key, double low, double high, double fallback,
                      struct dpe_serve_refusal *refusal)
{
    const json_t *value = member(body, key, refusal);
    if (value == NULL) {
        return fallback;
    }
    double number = json_is_number(value) ? json_number_value(value) : (double)NAN;
    if (!(number >= low && number <= high)) {
        dpe_serve_refuse(refusal, 400, key, "%s: expected a number from %g to %g", key, low, high);
        return fallback;
    }
    return number;
}

bool dpe_serve_flag(const json_t *body, const char *key, bool fallback,
                    struct dpe_serve_refusal *refusal)
{
    const json_t *value = member(body, key, refusal);
    if (value != NULL && !json_is_boolean(value)) {
        dpe_serve_refuse(refusal, 400, key, "%s: expected true or false", key);
        return fallback;
    }
    return value != NULL ? json_is_true(value) : fallback;
}

bool dpe_serve_ids(const struct dpe_serve_world *world, const json_t *list, const char *key,
                   struct dpe_tokens *ids, struct dpe_serve_refusal *refusal)
{
    int64_t vocab = dpe_model_config(world->model)->vocab;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) >= vocab) {
            return dpe_serve_refuse(refusal, 400, key, "%s: expected token ids from 0 to %lld", key,
                                    (long long)vocab - 1);
        }
        int32_t id = (int32_t)json_integer_value(value);
        if (dpe_tokens_append(ids, &id, 1, NULL) != DPE_OK) {
            return dpe_serve_refuse(refusal, 500, "", "out of memory");
        }
    }
    return true;
}

bool dpe_serve_encode(const struct dpe_serve_world *world, const json_t *text, const char *key,
                      bool special, struct dpe_tokens *ids, struct dpe_serve_refusal *refusal)
{
    const struct dpe_encode_options options = {
        .add_special = special, .once = true, .special = DPE_SPECIAL_PARSE};
    struct dpe_error err = {0};
    dpe_status status = dpe_tokenizer_encode(world->tokenizer, json_string_value(text),
                                             json_string_length(text), &options, ids, &err);
    return status == DPE_OK || dpe_serve_refuse_error(refusal, key, &err);
}

/* ---------------------------------------------------------------------------------------- chats */

/* Members of a request that are variables of a template that names them. */
static bool is_variable(const struct dpe_serve_world *world, const char *key)
{
    return (strcmp(key, "reasoning_effort") == 0 || strcmp(key, "enable_thinking") == 0 ||
            strcmp(key, "thinking") == 0) &&
           world->chat != NULL && dpe_chat_spells(world->chat, key);
}

/* Variables for the template, a new reference: those members, and what chat_template_kwargs has,
 * which wins. Those that the server sets are not theirs. */
static json_t *template_variables(const struct dpe_serve_world *world, const json_t *body,
                                  struct dpe_serve_refusal *refusal)
{
    static const char more[] = "chat_template_kwargs";
    json_t *given = json_object_get(body, more);
    json_t *all = json_object();
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)(uintptr_t)body, key, value)
    {
        if (is_variable(world, key) && !json_is_null(value)) {
            json_object_set(all, key, value);
        }
    }
    if (given != NULL && !json_is_null(given) && !json_is_object(given)) {
        dpe_serve_refuse(refusal, 400, more, "%s: expected an object", more);
    }
    json_object_foreach(given, key, value)
    {
        if (dpe_chat_sets(key)) {
            dpe_serve_refuse(refusal, 400, more, "%s: %s cannot be given here", more, key);
        }
        json_object_set(all, key, value);
    }
    return all;
}

/* The tools that a model may call, for the template; NULL: none. Nothing reads calls out of an
 * answer: they are its text. "none" asks that no tool be called, so the model is told of none. */
static const json_t *tools_of(const struct dpe_serve_world *world, const json_t *body,
                              struct dpe_serve_refusal *refusal)
{
    const json_t *tools = json_object_get(body, "tools");
    const json_t *choice = json_object_get(body, "tool_choice");
    const char *word = json_string_value(choice);
    bool none = word != NULL && strcmp(word, "none") == 0;
    if (!dpe_json_is_nothing(choice) && !none && (word == NULL || strcmp(word, "auto") != 0)) {
        dpe_serve_refuse_as(refusal, 400, "unsupported_parameter", "tool_choice",
                            "tool_choice: expected \"auto\" or \"none\"; dpe-serve cannot make a "
                            "model call a tool");
    }
    if (dpe_json_is_nothing(tools)) {
        return NULL;
    }
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const char *type = json_string_value(json_object_get(json_array_get(tools, i), "type"));
        if (type == NULL || strcmp(type, "function") != 0 ||
            !dpe_json_is_text(json_object_get(function, "name"))) {
            dpe_serve_refuse(refusal, 400, "tools",
                             "tools[%zu]: expected type function and a function with a name", i);
        }
    }
    if (!json_is_array(tools)) {
        dpe_serve_refuse(refusal, 400, "tools", "tools: expected a list of tools");
    } else if (!none && !dpe_chat_spells(world->chat, "tools")) {
        dpe_serve_refuse_as(refusal, 400, "unsupported_parameter", "tools",
                            "tools: the chat template has no place for them; leave them out");
    }
    return none ? NULL : tools;
}

bool dpe_serve_chat_prompt(const struct dpe_serve_world *world, const json_t *body,
                           struct dpe_tokens *ids, struct dpe_serve_refusal *refusal)
{
    if (world->chat == NULL) {
        return dpe_serve_refuse(refusal, 400, "messages",
                                "there is no chat template; start dpe-serve with "
                                "--chat-template FILE, or use /v1/completions");
    }
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    struct dpe_error err = {0};
    time_t seconds = time(NULL);
    struct tm now;
    localtime_r(&seconds, &now);
    json_auto_t *messages = NULL;
    json_auto_t *variables = template_variables(world, body, refusal);
    struct dpe_chat_turn turn = {.now = &now,
                                 .prompt =
                                     dpe_serve_flag(body, "add_generation_prompt", true, refusal),
                                 .more = variables,
                                 .tools = tools_of(world, body, refusal)};
    if (refusal->status != 0) {
        return false;
    }
    dpe_status status =
        dpe_chat_messages(world->chat, json_object_get(body, "messages"), &messages, &err);
    turn.messages = messages;
    if (status != DPE_OK || dpe_chat_render(world->chat, &turn, &text, &err) != DPE_OK) {
        return dpe_serve_refuse_error(refusal, "messages", &err);
    }
    /* The template writes the special tokens, BOS among them. */
    json_auto_t *rendered = json_stringn(text.n > 0 ? text.bytes : "", text.n);
    return rendered != NULL ? dpe_serve_encode(world, rendered, "messages", false, ids, refusal)
                            : dpe_serve_refuse(refusal, 500, "", "out of memory");
}

enum {
    COMPLETION = 1 << SERVE_COMPLETION,
    CHAT = 1 << SERVE_CHAT,
    RULER = 1 << SERVE_RULER,
    RULER_ONE = 1 << SERVE_RULER_ONE,
    NORMS = 1 << SERVE_NORMS,
    TOKENIZE = 1 << SERVE_TOKENIZE,
    DETOKENIZE = 1 << SERVE_DETOKENIZE,
    SLOT = 1 << SERVE_SLOT,
    TEXT = COMPLETION | CHAT | RULER | RULER_ONE,
};

/* The row of a table whose first member, names with blanks between, has this key; NULL: none. */
static const void *row_of(const void *rows, size_t n, size_t size, const char *key)
{
    for (const char *row = rows; n > 0; n--, row += size) {
        const char *at = *(const char *const *)(const void *)row;
        for (size_t length = 0; *at != '\0'; at += length + (at[length] == ' ')) {
            length = strcspn(at, " ");
            if (strncmp(at, key, length) == 0 && key[length] == '\0') {
                return row;
            }
        }
    }
    return NULL;
}
#define ROW_OF(rows, key) row_of((rows), sizeof(rows) / sizeof *(rows), sizeof *(rows), (key))

/* Members that are read, and by what. */
static const struct member_read {
    const char *keys;
    unsigned by;
} members_read[] = {
    {"prompt", COMPLETION | RULER_ONE | NORMS | TOKENIZE},
    {"prompts tokens_to_generate random_seed stop_words_list", RULER},
    {"messages add_generation_prompt chat_template_kwargs tools tool_choice", CHAT | TOKENIZE},
    {"tokens", DETOKENIZE},
    {"add_special_tokens", COMPLETION | RULER | RULER_ONE | NORMS | TOKENIZE},
    {"cache_salt", TEXT | SLOT},
    {"filename", SLOT},
    {"dpe_plan", TEXT | NORMS},
    {"products", NORMS},
    {"return_token_ids echo", COMPLETION},
    {"max_tokens seed stop", COMPLETION | CHAT | RULER_ONE},
    {"max_completion_tokens top_logprobs", CHAT},
    {"temperature top_p top_k ignore_eos", TEXT},
    {"n best_of logprobs stream stream_options", COMPLETION | CHAT},
    /* Those that never change an answer here: who asks, where it is stored, how soon and how it is
     * computed, and the numbers of methods of sampling that other members would switch on. */
    {"model user user_id metadata store service_tier safety_identifier request_id prompt_cache_key "
     "prompt_cache_retention prompt_cache_options parallel_tool_calls prediction priority "
     "keep_alive cache_prompt use_cache id_slot n_keep n_discard n_cache_reuse separate_reasoning "
     "stream_reasoning return_progress mirostat_tau mirostat_eta xtc_threshold dry_base "
     "dry_allowed_length dry_penalty_last_n dry_sequence_breakers dynatemp_exponent "
     "smoothing_curve repeat_last_n repetition_penalty_range min_keep",
     ~0U},
};

/* What changes nothing, where that is something else than nothing (null, false, 0, "", [], {}).
 * Nothing does not either beside a number or a word. A member that is listed with none of the
 * values has none but null. */
static const struct rule {
    const char *keys;
    double number; /* 0: none */
    const char *word;
    bool yes; /* true */
} rules[] = {
    /* Factors, and counts of what is kept. */
    {"repetition_penalty repeat_penalty length_penalty encoder_repetition_penalty guidance_scale "
     "typical_p tfs tfs_z num_beams num_beam_groups beam_width num_return_sequences",
     .number = 1.0},
    {"top_n_sigma t_max_predict_ms", .number = -1.0},
    {"tool_choice function_call", .word = "none"},
    {"response_format modalities", .word = "text"},
    {"verbosity", .word = "medium"},
    {"truncation", .word = "disabled"},
    /* What is on unless it is switched off. */
    {"skip_special_tokens spaces_between_special_tokens detokenize do_sample include_reasoning "
     "add_bos add_bos_token add_special parse_special",
     .yes = true},
    {"enable_thinking thinking think thinking_budget temp random_seed"},
    /* The length by other names, where 0 is a length. */
    {"n_predict num_predict max_length max_new_tokens max_gen_toks max_output_tokens "
     "max_tokens_to_sample max_tokens max_completion_tokens tokens_to_generate"},
};

/* What to give in place of a member. */
static const struct other {
    const char *keys, *instead;
} others[] = {
    {"num_return_sequences", "n"},
    {"do_sample", "temperature 0"},
    {"enable_thinking thinking think thinking_budget", "chat_template_kwargs"},
    {"add_bos add_bos_token add_special", "add_special_tokens"},
    {"n_predict num_predict max_length max_new_tokens max_gen_toks max_output_tokens "
     "max_tokens_to_sample max_completion_tokens tokens_to_generate",
     "max_tokens"},
    {"temp", "temperature"},
    {"random_seed", "seed"},
};

/* A word, {"type": word}, or a list of that one word. */
static const char *word_of(const json_t *value)
{
    const json_t *type = json_is_object(value)  ? json_object_get(value, "type")
                         : json_is_array(value) ? json_array_get(value, 0)
                                                : value;
    return dpe_json_is_text(value) || json_array_size(value) == 1 || json_object_size(value) == 1
               ? json_string_value(type)
               : NULL;
}

static bool changes_nothing(const char *key, const json_t *value, bool tools)
{
    const struct rule *rule = ROW_OF(rules, key);
    const char *word = word_of(value);
    if (json_is_null(value) || rule == NULL) {
        return dpe_json_is_nothing(value);
    }
    if (word != NULL && (strcmp(key, "tool_choice") == 0 || strcmp(key, "function_call") == 0) &&
        !tools && strcmp(word, "auto") == 0) {
        return true;
    }
    bool empty = rule->number != 0.0 || rule->word != NULL;
    return (empty && dpe_json_is_nothing(value)) || (rule->yes && json_is_true(value)) ||
           (rule->number != 0.0 && json_is_number(value) &&
            json_number_value(value) == rule->number) ||
           (rule->word != NULL && word != NULL && strcmp(word, rule->word) == 0);
}

static void refuse_member(const char *key, struct dpe_serve_refusal *refusal)
{
    const struct other *other = ROW_OF(others, key);
    char name[96];
    dpe_json_quote(name, key, strlen(key));
    dpe_serve_refuse_as(
        refusal, 400, "unsupported_parameter", name, "%s: not supported by dpe-serve; %s%s", name,
        other != NULL ? "give " : "leave it out", other != NULL ? other->instead : "");
}

bool dpe_serve_check_members(const struct dpe_serve_world *world, const json_t *body,
                             unsigned kinds, struct dpe_serve_refusal *refusal)
{
    bool tools = !dpe_json_is_nothing(json_object_get(body, "tools")) ||
                 !dpe_json_is_nothing(json_object_get(body, "functions"));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)body, key, value)
    {
        const struct member_read *member = ROW_OF(members_read, key);
        bool read = (member != NULL && (member->by & kinds) != 0) ||
                    ((kinds & (CHAT | TOKENIZE)) != 0 && is_variable(world, key));
        if (!read && !changes_nothing(key, value, tools)) {
            refuse_member(key, refusal);
        }
    }
    return refusal->status == 0;
}
