/* What a conversation in the form of OpenAI's interface means, in the form that templates expect;
 * with which tokens a model ends its turn. */
#include "eval/chat/chat.h"

#include <stdio.h>
#include <string.h>

#include "engine/text/json.h"

/* One message; after the first failure nothing more is read. */
struct reading {
    const struct dpe_chat *chat;
    size_t index;
    dpe_status status;
    struct dpe_error *err;
};

static void wrong(struct reading *reading, const char *member, const char *what)
{
    if (reading->status == DPE_OK) {
        reading->status = dpe_fail(reading->err, DPE_BAD_DATA, "messages[%zu]%s%s: %s",
                                   reading->index, member[0] != '\0' ? "." : "", member, what);
    }
}

/* ------------------------------------------------------------------------------------- contents */

/* The text of a part, which its type names; NULL: it is of another type, or has none. */
static const json_t *text_of_part(const json_t *part)
{
    static const struct kind {
        const char *type, *member;
    } kinds[] = {
        {"text", "text"}, {"input_text", "text"}, {"output_text", "text"}, {"refusal", "refusal"}};
    const char *type = json_string_value(json_object_get(part, "type"));
    const struct kind *kind = type != NULL ? DPE_NAMED(kinds, type) : NULL;
    const json_t *text = kind != NULL ? json_object_get(part, kind->member) : NULL;
    return dpe_json_is_text(text) ? text : NULL;
}

/* The texts of the parts, one a line. */
static json_t *join_parts(struct reading *reading, const json_t *parts)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = text_of_part(json_array_get(parts, i));
        if (part == NULL) {
            wrong(reading, "content",
                  "expected a text, or parts of type text, input_text, output_text or refusal");
            break;
        }
        dpe_text_put(&text, "%s", i > 0 ? "\n" : "");
        dpe_text_put_bytes(&text, json_string_value(part), json_string_length(part));
    }
    if (reading->status == DPE_OK) {
        reading->status = dpe_text_done(&text, reading->err);
    }
    return json_stringn(text.n > 0 ? text.bytes : "", text.n);
}

/* What the message says. An assistant that calls tools or refuses may say nothing else. */
static json_t *content_of(struct reading *reading, const json_t *given)
{
    const json_t *content = json_object_get(given, "content");
    const json_t *refusal = json_object_get(given, "refusal");
    bool silent = dpe_json_is_nothing(content);
    if (silent && dpe_json_is_text(refusal)) {
        return json_incref((json_t *)(uintptr_t)refusal);
    }
    if (content == NULL && dpe_json_is_nothing(json_object_get(given, "tool_calls"))) {
        wrong(reading, "content", "expected a text, found nothing");
    } else if (json_is_array(content)) {
        return join_parts(reading, content);
    } else if (dpe_json_is_text(content)) {
        return json_incref((json_t *)(uintptr_t)content);
    } else if (content != NULL && !json_is_null(content)) {
        wrong(reading, "content", "expected a text or a list of parts");
    }
    return json_string("");
}

/* ---------------------------------------------------------------------------------------- calls */

/* Templates write the arguments of a call as JSON, or go over their members: the text of an object
 * becomes that object. A text that is none (a model may have written it) stays as it is. */
static json_t *plain_arguments(const json_t *given)
{
    const char *text = json_string_value(given);
    size_t n = json_string_length(given);
    json_t *parsed = NULL;
    if (given == NULL || json_is_null(given) || (text != NULL && strspn(text, " \t\r\n") == n)) {
        return json_object();
    }
    return text != NULL && dpe_json_parse_exact("arguments", text, n, &parsed, NULL) == DPE_OK
               ? parsed
               : json_incref((json_t *)(uintptr_t)given);
}

static json_t *plain_call(struct reading *reading, const json_t *given)
{
    const json_t *type = json_object_get(given, "type");
    const json_t *function = json_object_get(given, "function");
    const json_t *arguments = json_object_get(function, "arguments");
    bool known =
        type == NULL || (json_is_string(type) && strcmp(json_string_value(type), "function") == 0);
    if (!known || !dpe_json_is_text(json_object_get(function, "name"))) {
        wrong(reading, "tool_calls", "expected calls of type function with a name");
        return NULL;
    }
    if (arguments != NULL && !json_is_null(arguments) && !dpe_json_is_text(arguments) &&
        !json_is_object(arguments)) {
        wrong(reading, "tool_calls", "expected arguments as the text of a JSON object");
        return NULL;
    }
    json_t *call = json_copy((json_t *)(uintptr_t)given);
    json_t *named = json_copy((json_t *)(uintptr_t)function);
    json_object_set_new(named, "arguments", plain_arguments(arguments));
    json_object_set_new(call, "function", named);
    return call;
}

static json_t *plain_calls(struct reading *reading, const json_t *given)
{
    json_t *calls = json_array();
    if (!json_is_array(given)) {
        wrong(reading, "tool_calls", "expected a list of calls");
    }
    for (size_t i = 0; i < json_array_size(given) && reading->status == DPE_OK; i++) {
        json_t *call = plain_call(reading, json_array_get(given, i));
        if (call != NULL) {
            json_array_append_new(calls, call);
        }
    }
    return calls;
}

/* -------------------------------------------------------------------------------------- members */

/* Members beside those that are read. What says nothing is left out, as are notes that are not for
 * the model; the rest is for templates that name it. */
static void take_others(struct reading *reading, const json_t *given, json_t *message)
{
    static const char *const read[] = {"role", "content", "refusal", "tool_calls"};
    static const char *const kept[] = {"name", "tool_call_id", "reasoning", "reasoning_content"};
    static const char *const notes[] = {
        "annotations", "cache_control", "created",  "created_at",
        "id",          "index",         "metadata", "provider_specific_fields",
        "status",      "timestamp",     "type"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)given, key, value)
    {
        if (DPE_NAMED(read, key) != NULL || DPE_NAMED(notes, key) != NULL ||
            dpe_json_is_nothing(value)) {
            continue;
        }
        if (DPE_NAMED(kept, key) == NULL && !dpe_chat_spells(reading->chat, key)) {
            char name[96];
            wrong(reading, dpe_json_quote(name, key, strlen(key)),
                  "the chat template does not read it; leave it out");
        }
        json_object_set(message, key, value);
    }
    /* Two names for one thing, of which a template knows one. */
    json_t *reasoning = json_object_get(message, "reasoning");
    json_t *content = json_object_get(message, "reasoning_content");
    if (reasoning != NULL && content == NULL) {
        json_object_set(message, "reasoning_content", reasoning);
    } else if (content != NULL && reasoning == NULL) {
        json_object_set(message, "reasoning", content);
    }
}

static json_t *plain_message(struct reading *reading, const json_t *given)
{
    const char *role = json_string_value(json_object_get(given, "role"));
    json_t *message = json_object();
    if (role == NULL) {
        wrong(reading, "", "expected an object with a role");
        return message;
    }
    if (strcmp(role, "developer") == 0 && !dpe_chat_spells(reading->chat, role)) {
        role = "system"; /* the name of the same role before */
    }
    json_object_set_new(message, "role", json_string(role));
    json_object_set_new(message, "content", content_of(reading, given));
    const json_t *calls = json_object_get(given, "tool_calls");
    if (!dpe_json_is_nothing(calls)) {
        json_object_set_new(message, "tool_calls", plain_calls(reading, calls));
    }
    take_others(reading, given, message);
    return message;
}

static const char mark[] = "answer0mark";

/* What the template makes of the messages with another text in message i, or (NULL) without it;
 * false where it refuses them. */
static bool render_changed(const struct reading *reading, const json_t *messages, size_t i,
                           const char *content, struct dpe_text *text)
{
    json_auto_t *changed = json_copy((json_t *)(uintptr_t)messages);
    json_t *message = json_copy(json_array_get(messages, i));
    if (content != NULL) {
        json_object_set_new(message, "content", json_string(content));
        json_array_set_new(changed, i, message);
    } else {
        json_decref(message);
        json_array_remove(changed, i);
    }
    const struct dpe_chat_turn turn = {.messages = changed};
    return dpe_chat_render(reading->chat, &turn, text, NULL) == DPE_OK &&
           dpe_text_append(text, "", 0, NULL) == DPE_OK;
}

/* A message that the template leaves out would be lost without a word: of each role that is not one
 * of the two that every template has, one message is looked for. What the template refuses, it
 * says. */
static void check_read(struct reading *reading, const json_t *messages)
{
    json_auto_t *seen = json_pack("{s:n,s:n}", "user", "assistant");
    for (size_t i = 0; i < json_array_size(messages) && reading->status == DPE_OK; i++) {
        const json_t *message = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        DPE_SCOPED(dpe_text_free) struct dpe_text with = {0};
        DPE_SCOPED(dpe_text_free) struct dpe_text without = {0};
        if (json_object_get(seen, role) != NULL ||
            json_string_length(json_object_get(message, "content")) == 0) {
            continue;
        }
        json_object_set_new(seen, role, json_null());
        bool lost = render_changed(reading, messages, i, mark, &with) &&
                    strstr(with.bytes, mark) == NULL &&
                    (!render_changed(reading, messages, i, NULL, &without) ||
                     strcmp(with.bytes, without.bytes) == 0);
        if (lost) {
            char name[96];
            char what[200];
            snprintf(what, sizeof what, "the chat template leaves out messages of the role \"%s\"",
                     dpe_json_quote(name, role, strlen(role)));
            reading->index = i;
            wrong(reading, "role", what);
        }
    }
}

dpe_status dpe_chat_messages(const struct dpe_chat *chat, const json_t *given, json_t **messages,
                             struct dpe_error *err)
{
    struct reading reading = {.chat = chat, .err = err};
    *messages = json_array();
    if (!json_is_array(given) || json_array_size(given) == 0) {
        reading.status = dpe_fail(err, DPE_BAD_DATA, "messages: expected a list of messages");
    }
    for (; reading.index < json_array_size(given) && reading.status == DPE_OK; reading.index++) {
        json_t *message = plain_message(&reading, json_array_get(given, reading.index));
        if (json_array_append_new(*messages, message) != 0 && reading.status == DPE_OK) {
            reading.status = dpe_fail(err, DPE_NO_MEMORY, "out of memory for a chat");
        }
    }
    check_read(&reading, *messages);
    if (reading.status != DPE_OK) {
        json_decref(*messages);
        *messages = NULL;
    }
    return reading.status;
}

/* ----------------------------------------------------------------------------------------- ends */

/* Append what the template puts after the last of these messages, which is the mark. Takes them. */
static dpe_status after_mark(const struct dpe_chat *chat, json_t *given, struct dpe_text *after,
                             struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    json_auto_t *messages = given;
    const struct dpe_chat_turn turn = {.messages = messages};
    DPE_TRY(DPE_MADE(messages, err, "out of memory for a chat template"));
    DPE_TRY(dpe_chat_render(chat, &turn, &text, err));
    const char *at = text.n > 0 ? strstr(text.bytes, mark) : NULL;
    if (at == NULL) {
        return DPE_OK;
    }
    at += sizeof mark - 1;
    at += strspn(at, " \t\r\n");
    return dpe_text_append(after, at, strlen(at), err);
}

/* Add the first id of the text when it is a special token; a whole text that is several ids names
 * none. */
static dpe_status add(const struct dpe_tokenizer *tokenizer, const char *bytes, size_t n,
                      bool whole, struct dpe_chat_ends *ends, struct dpe_error *err)
{
    const struct dpe_encode_options options = {.special = DPE_SPECIAL_PARSE};
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens tokens = {0};
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    DPE_TRY(dpe_tokenizer_encode(tokenizer, bytes, n, &options, &tokens, err));
    if (tokens.n == 0) {
        return DPE_OK;
    }
    DPE_TRY(dpe_tokenizer_decode(tokenizer, tokens.ids, 1, true, &text, err));
    bool special = text.n == 0;
    if (special && (!whole || tokens.n == 1) && !dpe_chat_ends_with(ends, tokens.ids[0])) {
        ends->ids[ends->n++] = tokens.ids[0];
    }
    return DPE_OK;
}

bool dpe_chat_ends_with(const struct dpe_chat_ends *ends, int32_t id)
{
    for (int i = 0; i < ends->n; i++) {
        if (ends->ids[i] == id) {
            return true;
        }
    }
    return false;
}

dpe_status dpe_chat_find_ends(const struct dpe_chat *chat, const struct dpe_tokenizer *tokenizer,
                              struct dpe_chat_ends *ends, struct dpe_error *err)
{
    const char *eos = dpe_chat_end(chat);
    DPE_SCOPED(dpe_text_free) struct dpe_text after = {0};
    *ends = (struct dpe_chat_ends){0};
    DPE_TRY(eos != NULL ? add(tokenizer, eos, strlen(eos), true, ends, err) : DPE_OK);
    dpe_status status = after_mark(chat,
                                   json_pack("[{ssss},{ssss}]", "role", "user", "content",
                                             "question", "role", "assistant", "content", mark),
                                   &after, err);
    if (status == DPE_BAD_DATA) { /* a template of one message: what ends the turn of the user */
        status =
            after_mark(chat, json_pack("[{ssss}]", "role", "user", "content", mark), &after, err);
    }
    if (status == DPE_OK && after.n > 0) {
        status = add(tokenizer, after.bytes, after.n, false, ends, err);
    }
    return status == DPE_BAD_DATA ? DPE_OK : status;
}
