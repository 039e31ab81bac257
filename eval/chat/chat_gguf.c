/* The chat template and the special tokens of a GGUF file. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/gguf/gguf.h"
#include "engine/system/folder.h"
#include "eval/chat/chat.h"

/* The text of the token that a key gives the id of, when there is one. */
static void put_token(struct dpe_gguf_reader *reader, const char *key, const char *name,
                      json_t *config)
{
    const struct dpe_gguf_value *tokens =
        dpe_gguf_array(reader, "tokenizer.ggml.tokens", DPE_GGUF_STRING);
    int64_t id = dpe_gguf_token_id(reader, key);
    if (tokens == NULL || id < 0 || (uint64_t)id >= tokens->n) {
        return;
    }
    size_t at = 0;
    const char *text = NULL;
    size_t n = 0;
    for (int64_t i = 0; i <= id; i++) {
        dpe_gguf_next_string(tokens, &at, &text, &n);
    }
    /* NULL, which sets nothing, when it is not UTF-8. */
    json_object_set_new(config, name, json_stringn(text, n));
}

/* Templates with names, where the file has no other: a list as in tokenizer_config.json. */
static void put_named(struct dpe_gguf_reader *reader, json_t *config)
{
    enum { MOST = 64 };
    const struct dpe_gguf_value *names =
        dpe_gguf_array(reader, "tokenizer.chat_templates", DPE_GGUF_STRING);
    json_t *list = json_array();
    size_t at = 0;
    for (uint64_t i = 0; names != NULL && i < names->n && i < MOST; i++) {
        char key[128];
        const char *name = NULL;
        size_t n = 0;
        size_t size = 0;
        dpe_gguf_next_string(names, &at, &name, &n);
        snprintf(key, sizeof key, "tokenizer.chat_template.%.*s", n < 64 ? (int)n : 64, name);
        const char *text = dpe_gguf_text(reader, key, &size);
        json_t *each = json_object();
        json_object_set_new(each, "name", json_stringn(name, n));
        json_object_set_new(each, "template", text != NULL ? json_stringn(text, size) : NULL);
        json_array_append_new(list, each);
    }
    if (json_array_size(list) > 0) {
        json_object_set(config, "chat_template", list);
    }
    json_decref(list);
}

dpe_status dpe_chat_gguf_config(const char *path, json_t **config, struct dpe_error *err)
{
    static const char *const tokens[][2] = {
        {"tokenizer.ggml.bos_token_id", "bos_token"},
        {"tokenizer.ggml.eos_token_id", "eos_token"},
        {"tokenizer.ggml.unknown_token_id", "unk_token"},
        {"tokenizer.ggml.padding_token_id", "pad_token"},
    };
    struct dpe_gguf *gguf = NULL;
    *config = NULL;
    if (!dpe_folder_is_gguf(path)) {
        return DPE_OK;
    }
    DPE_TRY(dpe_gguf_open(path, &gguf, err));
    struct dpe_gguf_reader reader = {.file = gguf, .err = err};
    json_t *made = json_object();
    size_t n = 0;
    const char *text = dpe_gguf_text(&reader, "tokenizer.chat_template", &n);
    if (text != NULL) {
        json_object_set_new(made, "chat_template", json_stringn(text, n));
    } else {
        put_named(&reader, made);
    }
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        put_token(&reader, tokens[i][0], tokens[i][1], made);
    }
    dpe_gguf_close(gguf);
    if (reader.status != DPE_OK || made == NULL) {
        json_decref(made);
        return reader.status != DPE_OK ? reader.status
                                       : dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", path);
    }
    *config = made;
    return DPE_OK;
}
