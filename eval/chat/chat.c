/* Chat templates in the folders of models, and in GGUF files. */
#include "eval/chat/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/gguf/gguf.h"
#include "engine/system/folder.h"
#include "engine/text/json.h"
#include "eval/template/template.h"

static const char mark[] = "{prompt}";
static const uint64_t most_bytes = UINT64_C(1) << 27; /* a tokenizer_config.json may list tokens */

struct dpe_chat {
    char *source;               /* the file */
    struct dpe_template *jinja; /* NULL: there is none */
    json_t *variables;          /* bos_token and the like */
    bool parts; /* a text as content is lost: the template reads lists of parts alone */
};

static dpe_status had_memory(const void *p, struct dpe_error *err)
{
    return DPE_MADE(p, err, "out of memory for a chat template");
}

/* ----------------------------------------------------------------------------------- GGUF files */

/* Templates with names, where the file has no other: a list as in tokenizer_config.json. */
static void put_named(const struct dpe_gguf *gguf, struct dpe_json_reader *reader, json_t *config)
{
    enum { MOST = 64 };
    json_auto_t *names = dpe_gguf_strings(gguf, reader, "tokenizer.chat_templates", MOST);
    json_auto_t *list = json_array();
    for (size_t i = 0; i < json_array_size(names); i++) {
        char key[128];
        json_t *name = json_array_get(names, i);
        snprintf(key, sizeof key, "tokenizer.chat_template.%.64s",
                 json_is_string(name) ? json_string_value(name) : "");
        json_t *each = json_object();
        json_object_set(each, "name", name);
        json_object_set(each, "template", dpe_json_member(reader, key));
        json_array_append_new(list, each);
    }
    if (json_array_size(list) > 0) {
        json_object_set(config, "chat_template", list);
    }
}

dpe_status dpe_chat_gguf_config(const char *path, json_t **config, struct dpe_error *err)
{
    static const char *const tokens[][2] = {
        {"tokenizer.ggml.bos_token_id", "bos_token"},
        {"tokenizer.ggml.eos_token_id", "eos_token"},
        {"tokenizer.ggml.unknown_token_id", "unk_token"},
        {"tokenizer.ggml.padding_token_id", "pad_token"},
    };
    DPE_SCOPED(dpe_gguf_close_scoped) struct dpe_gguf *gguf = NULL;
    *config = NULL;
    if (!dpe_folder_is_gguf(path)) {
        return DPE_OK;
    }
    DPE_TRY(dpe_gguf_open(path, &gguf, err));
    struct dpe_json_reader reader = dpe_gguf_reader(gguf, err);
    json_auto_t *made = json_object();
    if (dpe_json_string(&reader, "tokenizer.chat_template", NULL) != NULL) {
        json_object_set(made, "chat_template", dpe_json_member(&reader, "tokenizer.chat_template"));
    } else {
        put_named(gguf, &reader, made);
    }
    json_auto_t *texts = dpe_gguf_strings(gguf, &reader, "tokenizer.ggml.tokens", DPE_MAX_IDS);
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        const int64_t id = dpe_gguf_token_id(gguf, &reader, tokens[i][0]);
        json_t *text = id >= 0 ? json_array_get(texts, (size_t)id) : NULL;
        /* NULL, which sets nothing, when there is none of UTF-8. */
        json_object_set(made, tokens[i][1], json_is_string(text) ? text : NULL);
    }
    DPE_TRY(reader.status);
    *config = json_incref(made);
    return DPE_MADE(made, err, "%s: out of memory", path);
}

/* ------------------------------------------------------------------------------- special tokens */

/* The text of a special token: a string, or an object with its content. */
static json_t *token_text(json_t *token)
{
    json_t *text = json_is_object(token) ? json_object_get(token, "content") : token;
    return json_is_string(text) ? text : NULL;
}

static void add_tokens(json_t *variables, const json_t *config)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token",  "sep_token",
                                        "pad_token", "cls_token", "mask_token", NULL};
    for (int i = 0; names[i] != NULL && config != NULL; i++) {
        json_t *text = token_text(json_object_get(config, names[i]));
        if (text != NULL && json_object_get(variables, names[i]) == NULL) {
            json_object_set(variables, names[i], text);
        }
    }
}

/* `metadata` is that of a GGUF file, NULL of a folder. */
static dpe_status read_tokens(struct dpe_chat *chat, const char *model, const json_t *metadata,
                              struct dpe_error *err)
{
    static const char *const files[] = {"tokenizer_config.json", "special_tokens_map.json"};
    add_tokens(chat->variables, metadata);
    for (int i = 0; i < 2 && metadata == NULL; i++) {
        DPE_OWNED char *path = dpe_folder_beside(model, files[i]);
        json_auto_t *config = NULL;
        DPE_TRY(had_memory(path, err));
        DPE_TRY(dpe_json_read(path, &config, err));
        add_tokens(chat->variables, config);
    }
    return DPE_OK;
}

/* ------------------------------------------------------------------------------------ templates */

/* Plain text around {prompt}, as variables of a template. */
static dpe_status parse_plain(struct dpe_chat *chat, const char *bytes, struct dpe_error *err)
{
    static const char plain[] =
        "{% if messages|length != 1 or messages[0].role != 'user' or messages[0].content is not "
        "string %}{{ raise_exception('plain text around {prompt} has room for one message of a "
        "user only; use a Jinja template for more') }}{% endif %}"
        "{{ plain0before }}{{ messages[0].content }}{{ plain0after }}";
    const char *middle = strstr(bytes, mark);
    if (middle == NULL || strstr(middle + 1, mark) != NULL) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected {prompt} once in a chat template",
                        chat->source);
    }
    if (json_object_update_new(chat->variables, json_pack("{s:s%, s:s}", "plain0before", bytes,
                                                          (size_t)(middle - bytes), "plain0after",
                                                          middle + sizeof mark - 1)) != 0) {
        return had_memory(NULL, err);
    }
    return dpe_template_parse(chat->source, plain, sizeof plain - 1, &chat->jinja, err);
}

/* The template called "default" of a list of {"name", "template"}, or of an object of them. *names
 * are those that are there. */
static const json_t *named_default(const json_t *found, char *names, size_t room)
{
    const json_t *chosen = json_object_get(found, "default");
    const char *name = NULL;
    json_t *text = NULL;
    names[0] = '\0';
    json_object_foreach((json_t *)(uintptr_t)found, name, text)
    {
        dpe_append(names, room, " \"%s\"", name);
    }
    for (size_t i = 0; i < json_array_size(found); i++) {
        const json_t *each = json_array_get(found, i);
        name = json_string_value(json_object_get(each, "name"));
        dpe_append(names, room, " \"%s\"", name != NULL ? name : "");
        if (name != NULL && strcmp(name, "default") == 0 && chosen == NULL) {
            chosen = json_object_get(each, "template");
        }
    }
    return chosen;
}

/* "chat_template" of a configuration; *text NULL when it has none. Which of several is meant, none
 * of which is the default, is not known. */
static dpe_status in_config(const char *source, const json_t *config, const json_t **text,
                            struct dpe_error *err)
{
    char names[80];
    char quoted[96];
    const json_t *found = json_object_get(config, "chat_template");
    *text = json_is_string(found) ? found : NULL;
    if (found == NULL || json_is_null(found) || *text != NULL) {
        return DPE_OK;
    }
    *text = named_default(found, names, sizeof names);
    bool none = json_is_array(found) && json_array_size(found) == 0;
    if (json_is_string(*text) || none) {
        *text = none ? NULL : *text;
        return DPE_OK;
    }
    *text = NULL;
    return dpe_fail(
        err, DPE_BAD_DATA,
        "%s: chat_template: expected a template, or one named \"default\" of several, "
        "found%s; write the one to use to a file and give it: --chat-template FILE",
        source, names[0] != '\0' ? dpe_json_quote(quoted, names, strlen(names)) : " another value");
}

/* The template in a configuration, where it has one. */
static dpe_status take_config(struct dpe_chat *chat, const json_t *config, struct dpe_error *err)
{
    const json_t *text = NULL;
    DPE_TRY(in_config(chat->source, config, &text, err));
    return text != NULL ? dpe_template_parse(chat->source, json_string_value(text),
                                             json_string_length(text), &chat->jinja, err)
                        : DPE_OK;
}

static dpe_status parse_file(struct dpe_chat *chat, struct dpe_error *err)
{
    DPE_OWNED char *bytes = NULL;
    size_t n = 0;
    DPE_TRY(dpe_read_file(chat->source, most_bytes, &bytes, &n, err));
    size_t length = strlen(chat->source);
    bool json = length > 5 && strcmp(chat->source + length - 5, ".json") == 0;
    if (strlen(bytes) != n || dpe_utf8_check(bytes, n) != n) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected UTF-8 text", chat->source);
    }
    if (json) {
        json_auto_t *config = NULL;
        DPE_TRY(dpe_json_parse(chat->source, bytes, n, &config, err));
        DPE_TRY(take_config(chat, config, err));
        return chat->jinja != NULL
                   ? DPE_OK
                   : dpe_fail(err, DPE_BAD_DATA,
                              "%s: chat_template: expected a template, found nothing",
                              chat->source);
    }
    return strstr(bytes, "{%") != NULL || strstr(bytes, "{{") != NULL
               ? dpe_template_parse(chat->source, bytes, n, &chat->jinja, err)
               : parse_plain(chat, bytes, err);
}

/* The model's own template, where it has one. Processors of texts and pictures keep
 * theirs in the second and the last of the files. */
static dpe_status find_own(struct dpe_chat *chat, const char *model, const json_t *metadata,
                           struct dpe_error *err)
{
    static const char *const configs[] = {"chat_template.json", "tokenizer_config.json",
                                          "processor_config.json"};
    struct stat info;
    if (metadata != NULL) {
        chat->source = strdup(model);
        DPE_TRY(had_memory(chat->source, err));
        return take_config(chat, metadata, err);
    }
    chat->source = dpe_folder_beside(model, "chat_template.jinja");
    if (chat->source != NULL && stat(chat->source, &info) == 0) {
        return parse_file(chat, err);
    }
    for (size_t i = 0; i < sizeof configs / sizeof configs[0] && chat->jinja == NULL; i++) {
        json_auto_t *config = NULL;
        free(chat->source);
        chat->source = dpe_folder_beside(model, configs[i]);
        DPE_TRY(had_memory(chat->source, err));
        DPE_TRY(dpe_json_read(chat->source, &config, err));
        DPE_TRY(take_config(chat, config, err));
    }
    return DPE_OK;
}

/* Whether the template writes a content that is this value. */
static bool writes(const struct dpe_chat *chat, json_t *content)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    json_auto_t *messages = json_pack("[{s:s,s:o}]", "role", "user", "content", content);
    const struct dpe_chat_turn turn = {.messages = messages, .prompt = true};
    return messages != NULL && dpe_chat_render(chat, &turn, &text, NULL) == DPE_OK && text.n > 0 &&
           strstr(text.bytes, mark) != NULL;
}

static bool reads_parts_alone(const struct dpe_chat *chat)
{
    return !writes(chat, json_string(mark)) &&
           writes(chat, json_pack("[{s:s,s:s}]", "type", "text", "text", mark));
}

/* Variables of all templates, as --template-vars gives them; set before any is opened. */
static json_t *given;

bool dpe_chat_sets(const char *name)
{
    return strcmp(name, "messages") == 0 || strcmp(name, "add_generation_prompt") == 0 ||
           strcmp(name, "tools") == 0 || strcmp(name, "documents") == 0;
}

dpe_status dpe_chat_set_variables(const char *list, struct dpe_error *err)
{
    if (list != NULL) {
        json_decref(given);
        given = json_object();
    }
    while (list != NULL && *list != '\0') {
        size_t n = strcspn(list, ",");
        const char *equals = memchr(list, '=', n);
        DPE_OWNED char *name = strndup(list, equals != NULL ? (size_t)(equals - list) : n);
        DPE_TRY(had_memory(name, err));
        if (equals == NULL || name[0] == '\0' || dpe_chat_sets(name)) {
            return dpe_fail(err, DPE_USAGE,
                            "--template-vars: expected NAME=VALUE of a variable of the chat "
                            "template, found \"%.*s\"",
                            n < 60 ? (int)n : 60, list);
        }
        const char *text = equals + 1;
        size_t size = n - (size_t)(text - list);
        json_t *value = json_loadb(text, size, JSON_DECODE_ANY, NULL);
        value = value == NULL && size == 4 && memcmp(text, "True", 4) == 0 ? json_true() : value;
        value = value == NULL && size == 5 && memcmp(text, "False", 5) == 0 ? json_false() : value;
        value = value == NULL && size == 4 && memcmp(text, "None", 4) == 0 ? json_null() : value;
        value = value != NULL ? value : json_stringn(text, size);
        DPE_TRY(DPE_MADE(given, err, "out of memory for --template-vars"));
        json_object_set_new(given, name, value);
        list += n + (list[n] == ',');
    }
    return DPE_OK;
}

/* `chat`: NULL for a prompt without a template. */
static dpe_status take_given(struct dpe_chat *chat, struct dpe_error *err)
{
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(given, name, value)
    {
        if (chat == NULL || !dpe_chat_spells(chat, name)) {
            return dpe_fail(err, DPE_USAGE, "--template-vars: %s: %s does not read it", name,
                            chat != NULL ? chat->source : "a prompt without a chat template");
        }
        json_object_set(chat->variables, name, value);
    }
    return DPE_OK;
}

dpe_status dpe_chat_open(const char *what, const char *model, struct dpe_chat **chat,
                         struct dpe_error *err)
{
    *chat = NULL;
    if (what == NULL || strcmp(what, "none") == 0) {
        return take_given(NULL, err);
    }
    DPE_SCOPED(dpe_chat_close_scoped) struct dpe_chat *made = dpe_alloc_zero(1, sizeof *made);
    DPE_TRY(had_memory(made, err));
    made->variables = json_object();
    DPE_TRY(had_memory(made->variables, err));
    json_auto_t *metadata = NULL;
    DPE_TRY(dpe_chat_gguf_config(model, &metadata, err));
    if (strcmp(what, "auto") == 0) {
        DPE_TRY(find_own(made, model, metadata, err));
    } else {
        made->source = strdup(what);
        DPE_TRY(had_memory(made->source, err));
        DPE_TRY(parse_file(made, err));
    }
    if (made->jinja == NULL) {
        return take_given(NULL, err);
    }
    DPE_TRY(read_tokens(made, model, metadata, err));
    DPE_TRY(take_given(made, err));
    made->parts = reads_parts_alone(made);
    *chat = made;
    made = NULL;
    return DPE_OK;
}

void dpe_chat_close(struct dpe_chat *chat)
{
    if (chat != NULL) {
        dpe_template_free(chat->jinja);
        json_decref(chat->variables);
        free(chat->source);
        free(chat);
    }
}

const char *dpe_chat_source(const struct dpe_chat *chat)
{
    return chat->source;
}

const char *dpe_chat_end(const struct dpe_chat *chat)
{
    return json_string_value(json_object_get(chat->variables, "eos_token"));
}

/* ------------------------------------------------------------------------------------ rendering */

/* The messages with each text as a list of one part; what a tool gave stays a text. */
static json_t *in_parts(const json_t *messages)
{
    json_t *made = json_array();
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_copy(json_array_get(messages, i));
        json_t *content = json_object_get(message, "content");
        const char *role = json_string_value(json_object_get(message, "role"));
        if (json_is_string(content) && role != NULL && strcmp(role, "tool") != 0) {
            json_t *list = json_string_length(content) > 0
                               ? json_pack("[{s:s,s:O}]", "type", "text", "text", content)
                               : json_array();
            json_object_set_new(message, "content", list);
        }
        json_array_append_new(made, message);
    }
    return made;
}

bool dpe_chat_spells(const struct dpe_chat *chat, const char *word)
{
    return dpe_template_spells(chat->jinja, word);
}

dpe_status dpe_chat_render(const struct dpe_chat *chat, const struct dpe_chat_turn *turn,
                           struct dpe_text *out, struct dpe_error *err)
{
    static const struct tm fixed = {.tm_year = 125, .tm_mday = 1, .tm_wday = 3};
    const struct dpe_template_options options = {.now = turn->now != NULL ? turn->now : &fixed};
    json_auto_t *variables = json_copy(chat->variables);
    json_t *more = (json_t *)(uintptr_t)turn->more;
    json_t *messages =
        chat->parts ? in_parts(turn->messages) : json_incref((json_t *)(uintptr_t)turn->messages);
    json_t *tools =
        turn->tools != NULL ? json_incref((json_t *)(uintptr_t)turn->tools) : json_null();
    if (variables == NULL || (more != NULL && json_object_update(variables, more) != 0) ||
        json_object_set_new(variables, "messages", messages) != 0 ||
        json_object_set_new(variables, "add_generation_prompt", json_boolean(turn->prompt)) != 0 ||
        json_object_set_new(variables, "tools", tools) != 0 ||
        json_object_set_new(variables, "documents", json_null()) != 0) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for a chat template");
    }
    return dpe_template_render(chat->jinja, variables, &options, out, err);
}

bool dpe_chat_told(const char *what, const char *model, char *line, size_t size)
{
    DPE_SCOPED(dpe_chat_close_scoped) struct dpe_chat *chat = NULL;
    if (dpe_chat_open(what, model, &chat, NULL) != DPE_OK || chat == NULL) {
        return false;
    }
    snprintf(line, size, "prompts stand in the chat template of %s%s", chat->source,
             strcmp(what, "auto") == 0 ? " (--chat-template none leaves it out)" : "");
    return true;
}

/* What stands around the mark in the text of one message that is the mark. */
static dpe_status cut(const struct dpe_chat *chat, struct dpe_chat_frame *frame,
                      struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    json_auto_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", mark);
    DPE_TRY(had_memory(messages, err));
    const struct dpe_chat_turn turn = {.messages = messages, .prompt = true};
    DPE_TRY(dpe_chat_render(chat, &turn, &text, err));
    const char *middle = text.n > 0 ? strstr(text.bytes, mark) : NULL;
    if (middle == NULL || strstr(middle + 1, mark) != NULL || strlen(text.bytes) != text.n) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: expected a chat template that writes a user's message once and as "
                        "it is; use another one, or --chat-template none",
                        chat->source);
    }
    frame->before = strndup(text.bytes, (size_t)(middle - text.bytes));
    frame->after = strdup(middle + sizeof mark - 1);
    return DPE_OK;
}

dpe_status dpe_chat_wrap(const char *what, const char *model, struct dpe_chat_frame *frame,
                         struct dpe_error *err)
{
    DPE_SCOPED(dpe_chat_close_scoped) struct dpe_chat *chat = NULL;
    *frame = (struct dpe_chat_frame){NULL, NULL};
    DPE_TRY(dpe_chat_open(what, model, &chat, err));
    if (chat != NULL) {
        DPE_TRY(cut(chat, frame, err));
    } else {
        frame->before = strdup("");
        frame->after = strdup("");
    }
    DPE_TRY(had_memory(frame->before, err));
    return had_memory(frame->after, err);
}

void dpe_chat_frame_free(struct dpe_chat_frame *frame)
{
    free(frame->before);
    free(frame->after);
}

bool dpe_chat_framed(const struct dpe_chat_frame *frame)
{
    return frame->before[0] != '\0' || frame->after[0] != '\0';
}

dpe_status dpe_chat_frame_hash(const struct dpe_chat_frame *frame, const char *words, char hash[65],
                               struct dpe_error *err)
{
    struct dpe_sha256 *made = dpe_sha256_new();
    if (words != NULL) {
        dpe_sha256_text(made, words);
    }
    dpe_sha256_text(made, frame->before);
    dpe_sha256_text(made, frame->after);
    return dpe_sha256_finish(made, hash, err);
}
