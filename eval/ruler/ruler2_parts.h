/**
 * @file ruler2_parts.h
 * Inside of RULER v2's tasks: what they are made of, how one prompt is made, and the
 * random numbers of Python's `random` after random.seed(n).
 */
#ifndef DPE_RULER2_PARTS_H
#define DPE_RULER2_PARTS_H

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "engine/base/base.h"
#include "eval/ruler/ruler.h"
#include "eval/task/prompt.h"

/** A Mersenne Twister (MT19937). */
struct dpe_python_random {
    uint32_t state[624];
    int at;
};
/** random.seed(seed) */
void dpe_python_seed(struct dpe_python_random *random, uint32_t seed);
/** The next 32 bits. */
uint32_t dpe_python_bits(struct dpe_python_random *random);
/** An index below n, 1 ≤ n < 2^63: random.choice of n things takes it; random.randint(a, b) is a
 * plus that below b − a + 1. */
uint64_t dpe_python_below(struct dpe_python_random *random, uint64_t n);
/** random.shuffle(list(range(n))): places[i] is what stands at i. */
void dpe_python_shuffle(struct dpe_python_random *random, size_t *places, size_t n);
/** random.sample(range(n), k), k ≤ n. False: out of memory. */
bool dpe_python_sample(struct dpe_python_random *random, size_t n, size_t *chosen, size_t k);

/** Words with which keys are made: every adjective with every noun, once each, in their order. */
struct dpe_ruler2_words {
    char *text;   /**< all of them, NUL-terminated */
    char **words; /**< [n], sorted */
    size_t n;
};

/** Questions with four choices, 0 those that are asked for, 1 those around them: lists of texts,
 * and of the letters of their answers. */
struct dpe_ruler2_questions {
    json_t *texts[2], *letters[2];
};

/** Questions about documents. */
struct dpe_ruler2_documents {
    struct dpe_texts around;
    struct dpe_ruler2_question {
        json_t *asked, *answer, *own; /**< two strings; a list of its documents */
        size_t gold;                  /**< so many of them support it, which come first */
    } * questions;                    /**< [n] */
    size_t n;
};

/** Text i of a list. */
static inline const char *dpe_ruler2_text(const json_t *texts, size_t i)
{
    return json_string_value(json_array_get(texts, i));
}

struct dpe_ruler2 {
    struct dpe_ruler2_options options;
    struct dpe_phrases phrases;
    struct dpe_ruler2_words words;         /**< n 0: not read */
    struct dpe_ruler2_questions questions; /**< likewise */
    struct dpe_ruler2_documents documents;
};

struct dpe_ruler2_draw;
/** A task: what it needs, how one of its prompts is made, and what `make` wants to know. */
struct dpe_ruler2_task {
    const char *name;
    const char *files[2];
    /** Read them, unless they are; *n: questions of its set, or as many as wanted. */
    dpe_status (*load)(struct dpe_ruler2 *ruler2, const char *const *files, int64_t *n,
                       struct dpe_error *err);
    /** Put a prompt of question `index` with n things around what is asked for, and its answers. */
    dpe_status (*make)(struct dpe_ruler2_draw *draw, size_t index, size_t n,
                       struct dpe_ruler2_sample *sample, struct dpe_error *err);
    size_t step;                 /**< the least n, and what it shrinks by */
    bool drawn;                  /**< which questions is drawn too; else they are the first */
    int values;                  /**< of the needles' key */
    const char *intro, *problem; /**< fields of templates/ruler2.json */
    size_t examples,
        same; /**< solved before; questions of one number, 0: every number is another's */
    enum dpe_ruler2_answer {
        DPE_RULER2_TEXT,   /**< the question, or the document's number */
        DPE_RULER2_TEXTS,  /**< all of that number, or those that support the question */
        DPE_RULER2_LETTER, /**< the choice, or the answer */
    } answer;
};

/** A task being drawn. */
struct dpe_ruler2_draw {
    const struct dpe_ruler2 *ruler2;
    const struct dpe_ruler2_task *task;
    struct dpe_python_random random;
};

/** Numbers of seven digits, as they are drawn. */
enum { DPE_RULER2_NUMBER = 16 };
static inline uint64_t dpe_ruler2_number(struct dpe_python_random *random)
{
    return UINT64_C(1000000) + dpe_python_below(random, UINT64_C(9000000));
}
static inline const char *dpe_ruler2_number_text(uint64_t number, char text[DPE_RULER2_NUMBER])
{
    snprintf(text, DPE_RULER2_NUMBER, "%" PRIu64, number);
    return text;
}
/** Put a phrase; `values` ends with a NULL name. */
static inline void dpe_ruler2_say(const struct dpe_ruler2_draw *draw, const char *phrase,
                                  const struct dpe_phrase_value *values, struct dpe_text *out)
{
    dpe_phrases_put(&draw->ruler2->phrases, phrase, values, out);
}
void dpe_ruler2_answer(struct dpe_ruler2_sample *sample, const char *text);
/** Give every line of a file of the folder to `read`, which sets *expected where it returns
 * DPE_BAD_DATA. */
dpe_status dpe_ruler2_lines(const char *folder, const char *name,
                            dpe_status (*read)(void *user, const json_t *line,
                                               const char **expected, struct dpe_error *err),
                            void *user, struct dpe_error *err);

/* The kinds: needles (ruler2_niah.c), questions of MMLU (ruler2_questions.c), documents of HotpotQA
 * (ruler2_documents.c). */
dpe_status dpe_ruler2_load_words(struct dpe_ruler2 *ruler2, const char *const *files, int64_t *n,
                                 struct dpe_error *err);
dpe_status dpe_ruler2_make_needles(struct dpe_ruler2_draw *draw, size_t index, size_t n,
                                   struct dpe_ruler2_sample *sample, struct dpe_error *err);
dpe_status dpe_ruler2_load_questions(struct dpe_ruler2 *ruler2, const char *const *files,
                                     int64_t *n, struct dpe_error *err);
dpe_status dpe_ruler2_make_questions(struct dpe_ruler2_draw *draw, size_t index, size_t n,
                                     struct dpe_ruler2_sample *sample, struct dpe_error *err);
dpe_status dpe_ruler2_load_documents(struct dpe_ruler2 *ruler2, const char *const *files,
                                     int64_t *n, struct dpe_error *err);
dpe_status dpe_ruler2_make_documents(struct dpe_ruler2_draw *draw, size_t index, size_t n,
                                     struct dpe_ruler2_sample *sample, struct dpe_error *err);

#endif
