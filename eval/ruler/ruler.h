/**
 * @file ruler.h
 * RULER's 13 tasks and RULER v2's twelve, generated. Used inside eval/ only.
 *
 * One dpe_ruler holds what all tasks of all lengths share: template, words, essay, questions. A
 * sample is drawn (keys, values, places: all that does not depend on its size), then composed with
 * as many units (sentences, lines, words, documents) as fit. How many is found by bisection over
 * costs that were counted once per unit, since tokens add up where a unit begins with a space or
 * stands on its own line; the finished text is then tokenized as a whole, so that the prompt is
 * exactly what the tokenizer makes of it.
 */
#ifndef DPE_RULER_H
#define DPE_RULER_H

#include <jansson.h>

#include "engine/base/base.h"
#include "engine/tokenizer/tokenizer.h"
#include "eval/chat/chat.h"
#include "eval/task/prompt.h"
#include "eval/task/task.h"

enum { DPE_RULER_DIGITS = 8 };

/** Sentences of the corpus with single spaces. */
struct dpe_ruler_essay {
    struct dpe_text text;
    size_t *at;   /**< [n + 1] byte offsets; sentence i has no white space around it but the space
                       that ends it */
    double *cost; /**< [n + 1] tokens of the sentences before i */
    size_t n;
};

/** Paragraphs of a question of HotpotQA: of the hub's columns {"title": […], "sentences": [[…],
 * …]}, or of its authors' lists [[title, [sentence, …]], …]. False: title or sentences are not
 * there; the other is set. */
size_t dpe_hotpotqa_paragraphs(const json_t *context);
bool dpe_hotpotqa_paragraph(const json_t *context, size_t i, const char **title,
                            const json_t **sentences);
/** Put title and sentences; false: a sentence is not a string. */
bool dpe_hotpotqa_put(const char *title, const json_t *sentences, struct dpe_text *text);

/** A question about documents. */
struct dpe_qa_question {
    json_t *text, *answers; /**< a string, and a list of strings */
    size_t gold, n_gold;    /**< first and number in dpe_qa.gold: documents that must be there */
    size_t group;           /**< article, or SIZE_MAX: none */
};

/** Questions about documents, of a SQuAD or HotpotQA file. */
struct dpe_qa {
    char *path;
    char hash[65]; /**< SHA-256 of the file */
    struct dpe_texts documents;
    size_t *group; /**< [documents] article of each */
    double *cost;  /**< [documents] tokens, filled in by the user */
    size_t *gold;
    size_t n_gold;
    struct dpe_qa_question *questions;
    size_t n_questions;
};

enum dpe_qa_set { DPE_QA_SQUAD, DPE_QA_HOTPOTQA };
/** Read a SQuAD file (1.1 or 2.0; unanswerable questions are left out) or a HotpotQA one (a list of
 *  questions with 10 paragraphs each). Errors name the file and what is missing where. Free with
 *  dpe_qa_free. */
dpe_status dpe_qa_read(const char *path, enum dpe_qa_set set, struct dpe_qa *qa,
                       struct dpe_error *err);
void dpe_qa_free(struct dpe_qa *qa);

struct dpe_ruler {
    const struct dpe_tokenizer *tokenizer;
    uint64_t seed;
    enum dpe_special_policy special;
    struct dpe_chat_frame frame;
    struct dpe_phrases words; /**< templates/ruler.json */
    char hash[65];            /**< of template and chat template */
    struct dpe_texts lexicon;
    double word_cost; /**< mean tokens of a word of the lexicon with the space before it */
    double number_cost[DPE_RULER_DIGITS]; /**< of " 1.", " 12.", … by digits */
    struct dpe_ruler_essay essay;
    struct dpe_qa qa[2]; /**< of dpe_qa_set; empty without files */
};

/** The content of a sample before its size is known. When a maker's `draw` is called, ruler, kind,
 *  length, index, stream and the generators are set and the rest is zero. */
struct dpe_ruler_draw {
    const struct dpe_ruler *ruler;
    const struct dpe_ruler_kind *kind;
    int64_t length, index;
    uint64_t stream;      /**< of random numbers: one for every task and index */
    struct dpe_rng rng;   /**< what is hidden */
    struct dpe_rng units; /**< what it is hidden in */
    char **references;    /**< [n_references] owned */
    size_t n_references;
    int64_t min_units, max_units;
    const char *file;          /**< the documents' file if max_units uses all of them, else NULL */
    struct dpe_text scratch;   /**< of units, or of all text before them */
    size_t *unit;              /**< meaning and size depend on the kind */
    double *cost;              /**< tokens of the first n units, [max_units + 1], or NULL */
    size_t *pick;              /**< meaning depends on the kind */
    double place[8];           /**< where needles lie, ascending shares of the units */
    struct dpe_text needle[8]; /**< sentences to hide */
    size_t n_needles;
    size_t first, sentences; /**< essay: first sentence, and after how many it starts over */
    const char *question;    /**< qa */
    char asked[256];
};

/** How samples of a kind are made. */
struct dpe_ruler_maker {
    dpe_status (*draw)(struct dpe_ruler_draw *draw, struct dpe_error *err);
    /** Tokens of n units, about. */
    double (*cost)(const struct dpe_ruler_draw *draw, int64_t n);
    /** The prompt with n units: context (chat template's beginning included) and question go to
     *  `text`, how the answer begins to `answer`. */
    void (*compose)(struct dpe_ruler_draw *draw, int64_t n, struct dpe_text *text,
                    struct dpe_text *answer);
};
extern const struct dpe_ruler_maker dpe_ruler_niah, dpe_ruler_vt, dpe_ruler_cwe, dpe_ruler_fwe,
    dpe_ruler_qa;

/** A task. */
struct dpe_ruler_kind {
    const char *name;
    int64_t room; /**< tokens to generate */
    dpe_scorer score;
    const struct dpe_ruler_maker *maker;
    int keys, values, queries; /**< niah */
    enum { RULER_ESSAY, RULER_LINES, RULER_NEEDLES } haystack;
    bool uuid_keys, uuid_values;
    enum dpe_qa_set dataset; /**< qa */
};
/** Task i of the 13; NULL after the last one. */
const struct dpe_ruler_kind *dpe_ruler_kind(size_t i);

/* What kinds share. */
/** How to encode a text that goes into a prompt. */
struct dpe_encode_options dpe_ruler_encoding(const struct dpe_ruler *ruler);
/** Tokens of a text after other text, where tokens add up. */
dpe_status dpe_ruler_count(const struct dpe_ruler *ruler, const char *text, size_t n, double *count,
                           struct dpe_error *err);
/** A reference more; DPE_NO_MEMORY. */
dpe_status dpe_ruler_refer(struct dpe_ruler_draw *draw, const char *text, struct dpe_error *err);
/** Sentences of the essay, bytes of them, and words of the lexicon that samples of a length may
 * use: the same whatever other lengths were prepared for. */
size_t dpe_ruler_sentences(const struct dpe_ruler *ruler, int64_t length);
size_t dpe_ruler_words(int64_t length);
/** Shuffle n indices; a function of the draw's seed and n alone. */
void dpe_ruler_shuffle(const struct dpe_ruler_draw *draw, size_t *list, size_t n);

/** Tokens to generate: the official number; below a length of 4096 what the answers need and 8
 *  more, where that is less, since the official room would leave none for a text. */
dpe_status dpe_ruler_room(const struct dpe_tokenizer *tokenizer, const struct dpe_ruler_kind *kind,
                          char *const *references, size_t n, int64_t length, int64_t *room,
                          struct dpe_error *err);

/* Making and using it. */
struct dpe_ruler_options {
    const struct dpe_tokenizer *tokenizer;
    const struct dpe_corpus *corpus;
    const char *chat_template;                    /**< as dpe_chat_open names one, or NULL */
    const char *template_file, *squad, *hotpotqa; /**< files or NULL */
    enum dpe_special_policy special;
    uint64_t seed;
    int64_t max_length;
};
/** The caller closes it, after its sources. */
dpe_status dpe_ruler_open(const struct dpe_ruler_options *options, struct dpe_ruler **ruler,
                          struct dpe_error *err);
void dpe_ruler_close(struct dpe_ruler *ruler);
DPE_SCOPED_HANDLE(struct dpe_ruler *, dpe_ruler_close)
/** Sample `index` of a task; `text` (may be NULL) gets the prompt's text. Thread-safe. DPE_USAGE:
 *  the length is too short for the task; DPE_BAD_DATA: a file has too few documents. */
dpe_status dpe_ruler_sample(const struct dpe_ruler *ruler, const struct dpe_ruler_kind *kind,
                            int64_t length, int64_t index, struct dpe_sample *sample,
                            struct dpe_text *text, struct dpe_error *err);
/** A task of a length as a source. Sample 0 is made, so that what cannot work fails here. */
dpe_status dpe_ruler_source(const struct dpe_ruler *ruler, const struct dpe_ruler_kind *kind,
                            int64_t length, struct dpe_source *source, struct dpe_error *err);

/* The samples of RULER v2's twelve tasks, drawn as its own generator (NVIDIA-NeMo/Skills) draws
 * them: with its sentences, words and sets the same samples for the same tokenizer, length and
 * seed. */

/** What samples are made of. Strings and tokenizer are borrowed and must outlive it. */
struct dpe_ruler2_options {
    const char *folder; /**< nounlist.txt and adjectivelist.txt, a word a line; mmlu/test.jsonl and
                           mmlu/auxiliary_train.jsonl, hotpotqa/validation.jsonl and
                           hotpotqa/train.jsonl, a JSON object a line. What is not there is needed
                           only for the tasks that it is for */
    const char *template_file; /**< the sentences around them; NULL: the built-in ones */
    const struct dpe_tokenizer *tokenizer;
    int64_t length; /**< the most tokens of a prompt */
    uint32_t seed;
};
struct dpe_ruler2;
/** DPE_BAD_DATA, DPE_NO_INPUT: of the template. DPE_NO_MEMORY. */
dpe_status dpe_ruler2_open(const struct dpe_ruler2_options *options, struct dpe_ruler2 **ruler2,
                           struct dpe_error *err);
void dpe_ruler2_close(struct dpe_ruler2 *ruler2);
DPE_SCOPED_HANDLE(struct dpe_ruler2 *, dpe_ruler2_close)

/** The first file that a task of the suite "ruler2" needs and the folder has not; NULL: none. */
const char *dpe_ruler2_lacks(const struct dpe_ruler2 *ruler2, const char *task);

/** A sample. */
struct dpe_ruler2_sample {
    int64_t index; /**< of the question in its set, else of the sample */
    struct dpe_text prompt;
    struct dpe_text answers; /**< each followed by a NUL */
    size_t n_answers;
    bool one;       /**< the answer is a text, not a list of texts */
    int64_t tokens; /**< of the prompt */
};
/** Draw the first n samples of a task in turn, or all where its set has fewer, and hand each to
 *  `take`, which may fail. *drawn is their number. DPE_USAGE: the smallest prompt is longer than
 *  the length; DPE_NO_INPUT, DPE_BAD_DATA: of a file, with its line; DPE_NO_MEMORY. */
dpe_status dpe_ruler2_draw(struct dpe_ruler2 *ruler2, const char *task, int64_t n,
                           dpe_status (*take)(void *user, const struct dpe_ruler2_sample *sample,
                                              struct dpe_error *err),
                           void *user, int64_t *drawn, struct dpe_error *err);

#endif
