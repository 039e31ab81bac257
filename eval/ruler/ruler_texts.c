/* Texts of question files: kept one after another, and once each; paragraphs of HotpotQA. */
#include "eval/ruler/ruler.h"

#include <stdlib.h>
#include <string.h>

dpe_status dpe_ruler_texts_end(struct dpe_ruler_texts *texts, struct dpe_error *err)
{
    const size_t n = texts->n;
    size_t begin = n == 0 ? 0 : texts->at[n - 1] + strlen(dpe_ruler_text(texts, n - 1)) + 1;
    dpe_text_put_bytes(&texts->text, "", 1);
    DPE_TRY(dpe_text_done(&texts->text, err));
    DPE_TRY(DPE_ROOM(&texts->at, n, err, "out of memory for %zu texts", n));
    texts->at[texts->n++] = begin;
    return DPE_OK;
}

dpe_status dpe_ruler_texts_add(struct dpe_ruler_texts *texts, const char *text,
                               struct dpe_error *err)
{
    dpe_text_put_bytes(&texts->text, text, strlen(text));
    return dpe_ruler_texts_end(texts, err);
}

void dpe_ruler_texts_cut(struct dpe_ruler_texts *texts, size_t n)
{
    if (n < texts->n) {
        texts->text.n = texts->at[n];
        texts->n = n;
    }
}

void dpe_ruler_texts_free(struct dpe_ruler_texts *texts)
{
    dpe_text_free(&texts->text);
    free(texts->at);
    *texts = (struct dpe_ruler_texts){0};
}

/* The slot of a text: where it is, or where it goes. Slots hold 1 + its number. */
static size_t *slot_of(const struct dpe_ruler_set *set, const char *text)
{
    size_t at = (size_t)dpe_fnv(DPE_FNV, text, strlen(text)) & (set->slots - 1);
    while (set->table[at] != 0 &&
           strcmp(dpe_ruler_text(&set->texts, set->table[at] - 1), text) != 0) {
        at = (at + 1) & (set->slots - 1);
    }
    return &set->table[at];
}

static dpe_status grow_table(struct dpe_ruler_set *set, struct dpe_error *err)
{
    if (2 * (set->texts.n + 1) <= set->slots) {
        return DPE_OK;
    }
    free(set->table);
    set->slots = set->slots == 0 ? 1024 : 2 * set->slots;
    DPE_TRY(DPE_NEW(&set->table, set->slots, err, "out of memory for %zu texts", set->texts.n));
    for (size_t i = 0; i < set->texts.n; i++) {
        *slot_of(set, dpe_ruler_text(&set->texts, i)) = i + 1;
    }
    return DPE_OK;
}

dpe_status dpe_ruler_set_end(struct dpe_ruler_set *set, size_t *number, struct dpe_error *err)
{
    const size_t last = set->texts.n;
    DPE_TRY(grow_table(set, err));
    DPE_TRY(dpe_ruler_texts_end(&set->texts, err));
    size_t *slot = slot_of(set, dpe_ruler_text(&set->texts, last));
    if (*slot != 0) {
        dpe_ruler_texts_cut(&set->texts, last);
    } else {
        *slot = last + 1;
    }
    *number = *slot - 1;
    return DPE_OK;
}

void dpe_ruler_set_free(struct dpe_ruler_set *set)
{
    dpe_ruler_texts_free(&set->texts);
    free(set->table);
    *set = (struct dpe_ruler_set){0};
}

/* ------------------------------------------------------------------------------------ HotpotQA */

size_t dpe_hotpotqa_paragraphs(const json_t *context)
{
    return json_array_size(json_is_array(context) ? context : json_object_get(context, "title"));
}

bool dpe_hotpotqa_paragraph(const json_t *context, size_t i, const char **title,
                            const json_t **sentences)
{
    const json_t *pair = json_array_get(context, i);
    const bool lists = json_is_array(context);
    *title = json_string_value(lists ? json_array_get(pair, 0)
                                     : json_array_get(json_object_get(context, "title"), i));
    *sentences =
        lists ? json_array_get(pair, 1) : json_array_get(json_object_get(context, "sentences"), i);
    return *title != NULL && json_is_array(*sentences);
}

bool dpe_hotpotqa_put(const char *title, const json_t *sentences, struct dpe_text *text)
{
    bool good = true;
    dpe_text_put(text, "%s\n", title);
    for (size_t s = 0; s < json_array_size(sentences) && good; s++) {
        const char *sentence = json_string_value(json_array_get(sentences, s));
        good = sentence != NULL;
        dpe_text_put_bytes(text, sentence, good ? strlen(sentence) : 0);
    }
    return good;
}
