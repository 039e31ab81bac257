/**
 * @file niah_parts.h
 * What the files of the needle task share. Used inside eval/ only.
 */
#ifndef DPE_NIAH_PARTS_H
#define DPE_NIAH_PARTS_H

#include "engine/base/base.h"
#include "eval/chat/chat.h"
#include "eval/niah/niah.h"
#include "eval/task/prompt.h"

/** Fields of templates/niah.json:
 *
 *     intro            first in the prompt                                 may hold {keys}
 *     needle           one needle                                          {key} and {value}
 *     question         after the haystack                                  {keys}
 *     answer_prefix    last in the prompt: how the answer begins           may hold {key}, {keys}
 *     answer           how one value is expected in the answer            {value}, may hold {key}
 *     keys_separator   between the asked keys in {keys}
 *     adjectives, nouns   a key is "adjective-noun"
 *
 * intro, answer_prefix and keys_separator may be left out ("", "", ", "). */
/* Read and check a template file; "" is the built-in one. As dpe_phrases_open. */
dpe_status dpe_niah_template_open(const char *file, struct dpe_phrases *phrases,
                                  struct dpe_error *err);

struct dpe_niah {
    struct dpe_niah_params params;
    int64_t length;
    const struct dpe_corpus *corpus;
    const struct dpe_tokenizer *tokenizer;
    uint64_t seed;
    struct dpe_phrases phrases;
    struct dpe_chat_frame frame; /* around the question */
    char hash[65];               /* of template and chat template */
    double bytes_per_token;      /* of the corpus */
};

/** Whether the parameters can be combined; DPE_USAGE. */
dpe_status dpe_niah_check(const struct dpe_niah_params *params, struct dpe_error *err);

/** The needles and the question of one sample. Needle i lies in the i-th equal part of the
 * haystack. */
struct dpe_niah_draw {
    char (*keys)[160];  /* [params.keys] */
    char (*values)[24]; /* [params.keys][params.values] */
    size_t *needle;     /* [n]: needle i holds key needle[i] / values, value needle[i] */
    double *depth; /* [n]: where in its part, 0 … 1 (the whole haystack when depth is fixed) */
    int n;         /* keys × values */
    char *asked;   /* the asked keys in one string */
    int first;     /* the first of them */
    int64_t room;  /* tokens to generate */
};
/** Draw keys, order and depths. Free with dpe_niah_draw_free, after failures too. */
dpe_status dpe_niah_draw_words(const struct dpe_niah *niah, struct dpe_rng *rng,
                               struct dpe_niah_draw *draw, struct dpe_error *err);
/** Draw values that occur neither twice nor in the haystack, then compute the room. */
dpe_status dpe_niah_draw_values(const struct dpe_niah *niah, const struct dpe_text *haystack,
                                struct dpe_rng *rng, struct dpe_niah_draw *draw,
                                struct dpe_error *err);
/** Let this draw ask key `key` alone. */
dpe_status dpe_niah_ask(struct dpe_niah_draw *draw, int key, struct dpe_error *err);
/** Draw depths and values again for the needles in the second half of the context. */
dpe_status dpe_niah_draw_half(const struct dpe_niah *niah, const struct dpe_text *haystack,
                              struct dpe_rng *rng, struct dpe_niah_draw *draw,
                              struct dpe_error *err);
/** Put how an answer writes the n-th asked value: after the prompt where that is `first`, else
 * after another value. */
void dpe_niah_answer(const struct dpe_niah *niah, const struct dpe_niah_draw *draw, int n,
                     bool first, struct dpe_text *text);
void dpe_niah_draw_free(struct dpe_niah_draw *draw);

/** The finished text of a prompt with the first `n` bytes of a haystack. */
dpe_status dpe_niah_assemble(const struct dpe_niah *niah, const struct dpe_niah_draw *draw,
                             const char *haystack, size_t n, struct dpe_text *text,
                             struct dpe_error *err);

#endif
