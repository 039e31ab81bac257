/**
 * @file chat.h
 * The chat template of an instruct model: found in its folder, rendered for a conversation, or cut
 * into what stands before and after a prompt.
 */
#ifndef DPE_CHAT_H
#define DPE_CHAT_H

#include <jansson.h>
#include <time.h>

#include "engine/base/base.h"
#include "engine/tokenizer/tokenizer.h"

struct dpe_chat;

/** Open the template that --chat-template WHAT names:
 *  - NULL, "none": none;
 *  - "auto": that of the model: chat_template.jinja, else "chat_template" in chat_template.json,
 *    tokenizer_config.json or processor_config.json (a text, or several of which "default" is
 * taken; several without it are an error), or in the metadata of a GGUF file; none when the model
 * has none of these;
 *  - else a file: plain text that holds {prompt} once and the turn markers around it, or a Jinja
 *    template (it has "{%" or "{{"), or a tokenizer_config.json.
 *  Without a template *chat is NULL. `model` is the model's folder or a file in it; bos_token and
 *  the like come from its tokenizer_config.json and special_tokens_map.json. DPE_BAD_DATA names the
 *  file and what is wrong, or the construct that is not supported and its line. */
dpe_status dpe_chat_open(const char *what, const char *model, struct dpe_chat **chat,
                         struct dpe_error *err);
/** What --template-vars gives: NAME=VALUE[,NAME=VALUE...], further variables of every template that
 * this process opens from here on; a VALUE that is JSON but no text is that value, as are
 * Python's True, False and None. NULL changes nothing. What a template does not read, or no
 * template, is refused when it is opened. DPE_USAGE names what is
 * wrong. Not for use beside other calls of this file. */
dpe_status dpe_chat_set_variables(const char *list, struct dpe_error *err);
/** Whether a caller of the template sets this variable itself, for each conversation. */
bool dpe_chat_sets(const char *name);
/** NULL is allowed. */
void dpe_chat_close(struct dpe_chat *chat);
DPE_SCOPED_HANDLE(struct dpe_chat *, dpe_chat_close)
/** The file that the template was read from. */
const char *dpe_chat_source(const struct dpe_chat *chat);
/** What a GGUF file says of a tokenizer_config.json: chat_template, bos_token and the like, each
 * where it is there; a new reference. NULL, and DPE_OK, when the path is no GGUF file. */
dpe_status dpe_chat_gguf_config(const char *path, json_t **config, struct dpe_error *err);
/** The text of eos_token, with which a turn of the model may end; NULL when it is not known. */
const char *dpe_chat_end(const struct dpe_chat *chat);
/** The ids with which a model ends its turn. */
struct dpe_chat_ends {
    int32_t ids[2];
    int n;
};
/** Find them: eos_token, and the special token that the template puts after an answer (after the
 *  user's message, where the template has room for that alone). None of either is no error. */
dpe_status dpe_chat_find_ends(const struct dpe_chat *chat, const struct dpe_tokenizer *tokenizer,
                              struct dpe_chat_ends *ends, struct dpe_error *err);
bool dpe_chat_ends_with(const struct dpe_chat_ends *ends, int32_t id);

/** What a conversation in the form of OpenAI's interface means, in the form that templates expect;
 * a new reference. The texts of parts are joined by newlines; other parts are refused, as are
 * members that the template does not name. `arguments` that are the text of a JSON object become
 * that object; a developer is "system" where the template does not know the word; a content of null
 * is "". A message that the template leaves out because of its role is refused. DPE_BAD_DATA names
 * the message and the member. */
dpe_status dpe_chat_messages(const struct dpe_chat *chat, const json_t *given, json_t **messages,
                             struct dpe_error *err);
/** Whether the template has this word somewhere: it does not know a role or variable that it does
 * not spell. */
bool dpe_chat_spells(const struct dpe_chat *chat, const char *word);

/** What a template is rendered for. */
struct dpe_chat_turn {
    const json_t *messages; /**< a list of {"role": …, "content": …} */
    const json_t *tools;    /**< a list of tools as OpenAI's interface describes them; NULL: none */
    const json_t *more;     /**< an object with further variables of the template; NULL: none */
    const struct tm *now;   /**< what the template may print as the date; NULL: 1 January 2025, so
                             * that a   measurement is the same every day */
    bool prompt;            /**< with the beginning of the model's answer */
};
/** Append the text of a conversation. A template that reads contents only as lists of parts gets
 * them as such. DPE_BAD_DATA: the template refuses the messages, or it is plain text and these are
 * not one message of a user. */
dpe_status dpe_chat_render(const struct dpe_chat *chat, const struct dpe_chat_turn *turn,
                           struct dpe_text *out, struct dpe_error *err);

/** For a log: "prompts stand in the chat template of FILE (…)"; false when there is none, or it
 *  cannot be read (then the tasks say why). */
bool dpe_chat_told(const char *what, const char *model, char *line, size_t size);

/** What stands before and after a user's one message, the beginning of the answer included; "" and
 *  "" without a template. */
struct dpe_chat_frame {
    char *before, *after;
};
/** That of the template that WHAT names (as in dpe_chat_open); the caller frees it, also after a
 *  failure. White space that the template would take from the message's ends stays. */
dpe_status dpe_chat_wrap(const char *what, const char *model, struct dpe_chat_frame *frame,
                         struct dpe_error *err);
void dpe_chat_frame_free(struct dpe_chat_frame *frame);
/** Whether anything stands there. */
bool dpe_chat_framed(const struct dpe_chat_frame *frame);
/** SHA-256 of a hash of other words (NULL: there are none) and the frame. */
dpe_status dpe_chat_frame_hash(const struct dpe_chat_frame *frame, const char *words, char hash[65],
                               struct dpe_error *err);

#endif
