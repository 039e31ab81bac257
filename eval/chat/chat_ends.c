/* The tokens with which a model ends its turn. */
#include "eval/chat/chat.h"

#include <string.h>

static const char mark[] = "answer0mark";

/* Append what the template puts after the last of these messages, which is the mark. */
static dpe_status after_mark(const struct dpe_chat *chat, json_t *messages, struct dpe_text *after,
                             struct dpe_error *err)
{
    struct dpe_text text = {0};
    const struct dpe_chat_turn turn = {.messages = messages};
    dpe_status status = messages != NULL
                            ? dpe_chat_render(chat, &turn, &text, err)
                            : dpe_fail(err, DPE_NO_MEMORY, "out of memory for a chat template");
    const char *at = status == DPE_OK && text.n > 0 ? strstr(text.bytes, mark) : NULL;
    if (at != NULL) {
        at += sizeof mark - 1;
        at += strspn(at, " \t\r\n");
        status = dpe_text_append(after, at, strlen(at), err);
    }
    dpe_text_free(&text);
    json_decref(messages);
    return status;
}

/* Add the first id of the text when it is a special token; a whole text that is several ids names
 * none. */
static dpe_status add(const struct dpe_tokenizer *tokenizer, const char *bytes, size_t n,
                      bool whole, struct dpe_chat_ends *ends, struct dpe_error *err)
{
    const struct dpe_encode_options options = {.special = DPE_SPECIAL_PARSE};
    struct dpe_tokens tokens = {0};
    struct dpe_text text = {0};
    dpe_status status = dpe_tokenizer_encode(tokenizer, bytes, n, &options, &tokens, err);
    if (status == DPE_OK && tokens.n > 0) {
        status = dpe_tokenizer_decode(tokenizer, tokens.ids, 1, true, &text, err);
        bool special = status == DPE_OK && text.n == 0;
        if (special && (!whole || tokens.n == 1) && !dpe_chat_ends_with(ends, tokens.ids[0])) {
            ends->ids[ends->n++] = tokens.ids[0];
        }
    }
    dpe_tokens_free(&tokens);
    dpe_text_free(&text);
    return status;
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
    struct dpe_text after = {0};
    *ends = (struct dpe_chat_ends){0};
    dpe_status status = eos != NULL ? add(tokenizer, eos, strlen(eos), true, ends, err) : DPE_OK;
    if (status != DPE_OK) {
        return status;
    }
    status = after_mark(chat,
                        json_pack("[{ssss},{ssss}]", "role", "user", "content", "question", "role",
                                  "assistant", "content", mark),
                        &after, err);
    if (status == DPE_BAD_DATA) { /* a template of one message: what ends the turn of the user */
        status =
            after_mark(chat, json_pack("[{ssss}]", "role", "user", "content", mark), &after, err);
    }
    if (status == DPE_OK && after.n > 0) {
        status = add(tokenizer, after.bytes, after.n, false, ends, err);
    }
    dpe_text_free(&after);
    return status == DPE_BAD_DATA ? DPE_OK : status;
}
