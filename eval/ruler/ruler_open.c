/* Opening RULER: what all samples share, and what the tasks' drawing shares. */
#include "eval/ruler/ruler.h"

#include <stdlib.h>
#include <string.h>

#include "eval/chat/chat.h"
#include "eval/score/score.h"
#include "eval/task/prompt.h"

enum { MAX_LENGTH = 1 << 24 };
/* A sample's sentences come from this many bytes of the essay per token of its length. */
enum { ESSAY_BYTES = 32, ESSAY_MARGIN = 4096, MAX_SENTENCE = 600 };

static const struct dpe_phrase_field fields[] = {
    {"number_one", "", ""},
    {"number_many", "", ""},
    {"uuid_one", "", ""},
    {"uuid_many", "", ""},
    {"keys_separator", "", ""},
    {"keys_last", "", ""},
    {"noise", "", ""},
    {"niah_intro", "", "one many", ""},
    {"niah_needle", "key value", "one"},
    {"niah_question_one", "keys", "one many"},
    {"niah_question_many", "keys", "one many"},
    {"niah_answer_one", "", "keys one many", ""},
    {"niah_answer_many", "", "keys one many", ""},
    {"vt_intro", "", "", ""},
    {"vt_first", "name value", ""},
    {"vt_next", "name from", ""},
    {"vt_question", "value", "count"},
    {"vt_answer", "", "value count", ""},
    {"cwe_intro", "", "", ""},
    {"cwe_question", "", "count"},
    {"cwe_answer", "", "count", ""},
    {"fwe_intro", "", "", ""},
    {"fwe_question", "", "count"},
    {"fwe_answer", "", "count", ""},
    {"qa_intro", "", "", ""},
    {"qa_document", "text", "number"},
    {"qa_question", "question", ""},
    {"qa_answer", "", "", ""},
};

/* --------------------------------------------------------------------------------------- essay */

size_t dpe_ruler_words(int64_t length)
{
    return (size_t)length / 6 + 4096;
}

size_t dpe_ruler_sentences(const struct dpe_ruler *ruler, int64_t length)
{
    const struct dpe_ruler_essay *essay = &ruler->essay;
    size_t most = (size_t)length * ESSAY_BYTES, low = 0, high = essay->n;
    while (low < high) {
        size_t middle = low + (high - low + 1) / 2;
        if (essay->at[middle] <= most) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* Append the text with each run of white space as one space, and no space at the start. */
static void put_spaced(const char *text, size_t n, struct dpe_text *out)
{
    for (size_t i = 0; i < n;) {
        size_t start = i;
        while (i < n && text[i] != ' ' && (text[i] < '\t' || text[i] > '\r')) {
            i++;
        }
        if (i > start) {
            dpe_text_put_bytes(out, text + start, i - start);
            dpe_text_put_bytes(out, " ", 1);
        }
        i += i < n;
    }
}

/* Find the ends of sentences; a sentence that is too long for one unit ends at a word. */
static dpe_status cut_sentences(struct dpe_ruler_essay *essay, struct dpe_error *err)
{
    const char *text = essay->text.bytes;
    size_t spaces = 0;
    for (size_t i = 0; i < essay->text.n; i++) {
        spaces += text[i] == ' ';
    }
    DPE_TRY(DPE_NEW(&essay->at, spaces + 1, err, "ruler: no memory for a sample"));
    DPE_TRY(DPE_NEW(&essay->cost, spaces + 1, err, "ruler: no memory for a sample"));
    size_t start = 0;
    for (size_t i = 0; i < essay->text.n; i++) {
        if (text[i] == ' ' && (dpe_haystack_sentence_end(text, essay->text.n, i) ||
                               i - start > MAX_SENTENCE || i + 1 == essay->text.n)) {
            start = i + 1;
            essay->at[++essay->n] = start;
        }
    }
    return DPE_OK;
}

/* The bytes of a book that an essay of at most `most` takes: whole words. */
static size_t beginning(const struct dpe_book *book, size_t most)
{
    return book->n < most ? book->n : dpe_haystack_word_end(book->text, book->n, 0, most);
}

/* After a sentence was refused: sentences are tokenized with single spaces, but an error must name
 * its place in the book. */
static dpe_status check_book(const struct dpe_ruler *ruler, const struct dpe_corpus *corpus,
                             size_t i, size_t most, struct dpe_error *err)
{
    const struct dpe_book *book = &corpus->books[i];
    const struct dpe_encode_options options = dpe_ruler_encoding(ruler);
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens tokens = {0};
    return dpe_tokenizer_encode(ruler->tokenizer, book->text, beginning(book, most), &options,
                                &tokens, err) == DPE_OK
               ? DPE_OK
               : dpe_fail_prefix(err, "%s: book %s", corpus->path, book->id);
}

static dpe_status count_sentences(struct dpe_ruler *ruler, struct dpe_error *err)
{
    struct dpe_ruler_essay *essay = &ruler->essay;
    DPE_SCOPED(dpe_text_free) struct dpe_text sentence = {0};
    for (size_t i = 0; i < essay->n; i++) {
        double count = 0.0;
        size_t size = essay->at[i + 1] - essay->at[i];
        /* A prompt has the space before the sentence, the essay after it: the number of tokens is
         * equal. */
        sentence.n = 0;
        dpe_text_put_bytes(&sentence, " ", 1);
        dpe_text_put_bytes(&sentence, essay->text.bytes + essay->at[i], size - 1);
        DPE_TRY(dpe_text_done(&sentence, err));
        DPE_TRY(dpe_ruler_count(ruler, sentence.bytes, sentence.n, &count, err));
        essay->cost[i + 1] = essay->cost[i] + count;
    }
    return DPE_OK;
}

static dpe_status open_essay(struct dpe_ruler *ruler, const struct dpe_corpus *corpus,
                             int64_t max_length, struct dpe_error *err)
{
    struct dpe_ruler_essay *essay = &ruler->essay;
    /* The cut may end a sentence too early; no sample reaches that far. */
    const size_t most = (size_t)max_length * ESSAY_BYTES + ESSAY_MARGIN;
    size_t used = 0;
    for (; used < corpus->n && essay->text.n < most; used++) {
        const struct dpe_book *book = &corpus->books[used];
        put_spaced(book->text, beginning(book, most), &essay->text);
    }
    DPE_TRY(dpe_text_done(&essay->text, err));
    if (essay->text.n == 0) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected words for an essay, found none",
                        corpus->path);
    }
    DPE_TRY(cut_sentences(essay, err));
    dpe_status status = count_sentences(ruler, err);
    for (size_t i = 0; i < used && status == DPE_BAD_DATA; i++) {
        DPE_TRY(check_book(ruler, corpus, i, most, err));
    }
    return status;
}

static dpe_status open_questions(struct dpe_ruler *ruler, const struct dpe_ruler_options *options,
                                 struct dpe_error *err)
{
    const char *files[2] = {options->squad, options->hotpotqa};
    for (int d = 0; d < 2; d++) {
        struct dpe_qa *qa = ruler->qa + d;
        if (files[d] == NULL) {
            continue;
        }
        DPE_TRY(dpe_qa_read(files[d], (enum dpe_qa_set)d, qa, err));
        for (size_t i = 0; i < qa->documents.n; i++) {
            const char *text = qa->documents.at[i];
            if (dpe_ruler_count(ruler, text, strlen(text), qa->cost + i, err) != DPE_OK) {
                return dpe_fail_prefix(err, "%s: document %zu", files[d], i + 1);
            }
        }
    }
    return DPE_OK;
}

/* Mean tokens of a word of a list, and tokens of its number by the digits of the number. */
static dpe_status count_words(struct dpe_ruler *ruler, struct dpe_error *err)
{
    enum { SAMPLE_WORDS = 1000 };
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    double count = 0.0;
    for (size_t i = 0; i < SAMPLE_WORDS; i++) {
        dpe_text_put(&text, " %s", ruler->lexicon.at[i]);
    }
    DPE_TRY(dpe_text_done(&text, err));
    DPE_TRY(dpe_ruler_count(ruler, text.bytes, text.n, &count, err));
    ruler->word_cost = count / SAMPLE_WORDS;
    for (size_t digits = 1; digits < DPE_RULER_DIGITS; digits++) {
        static const char number[] = " 7193847.";
        char shorter[sizeof number] = " ";
        memcpy(shorter + 1, number + DPE_RULER_DIGITS - digits, digits + 1);
        DPE_TRY(dpe_ruler_count(ruler, shorter, digits + 2, &ruler->number_cost[digits], err));
    }
    return DPE_OK;
}

static dpe_status open_chat(struct dpe_ruler *ruler, const struct dpe_ruler_options *options,
                            struct dpe_error *err)
{
    DPE_TRY(dpe_chat_wrap(options->chat_template, dpe_tokenizer_path(options->tokenizer),
                          &ruler->frame, err));
    if (dpe_chat_framed(&ruler->frame) && options->special == DPE_SPECIAL_LITERAL) {
        return dpe_fail(
            err, DPE_USAGE,
            "ruler: --special-in-text literal would spell out the special tokens of the "
            "chat template; give only one of the two (--chat-template none leaves it out)");
    }
    return DPE_OK;
}

static dpe_status prepare(struct dpe_ruler *ruler, const struct dpe_ruler_options *options,
                          struct dpe_error *err)
{
    if (options->max_length < 1 || options->max_length > MAX_LENGTH) {
        return dpe_fail(err, DPE_USAGE, "ruler: expected a length in 1 … %d, found %lld",
                        MAX_LENGTH, (long long)options->max_length);
    }
    DPE_TRY(dpe_phrases_open(options->template_file, &dpe_builtin_ruler, fields,
                             sizeof fields / sizeof fields[0], &ruler->words, err));
    DPE_TRY(open_chat(ruler, options, err));
    DPE_TRY(dpe_chat_frame_hash(&ruler->frame, ruler->words.hash, ruler->hash, err));
    DPE_TRY(dpe_phrases_check_digits(ruler->tokenizer, err));
    DPE_TRY(dpe_lexicon_make(options->corpus, dpe_ruler_words(options->max_length), &ruler->lexicon,
                             err));
    DPE_TRY(count_words(ruler, err));
    if (options->corpus != NULL) {
        DPE_TRY(open_essay(ruler, options->corpus, options->max_length, err));
    }
    return open_questions(ruler, options, err);
}

dpe_status dpe_ruler_open(const struct dpe_ruler_options *options, struct dpe_ruler **ruler,
                          struct dpe_error *err)
{
    DPE_SCOPED(dpe_ruler_close_scoped) struct dpe_ruler *opened = NULL;
    DPE_TRY(DPE_NEW(&opened, 1, err, "ruler: no memory for the tasks"));
    opened->tokenizer = options->tokenizer;
    opened->seed = options->seed;
    opened->special = options->special;
    DPE_TRY(prepare(opened, options, err));
    *ruler = opened;
    opened = NULL;
    return DPE_OK;
}

void dpe_ruler_close(struct dpe_ruler *ruler)
{
    if (ruler == NULL) {
        return;
    }
    dpe_phrases_free(&ruler->words);
    dpe_chat_frame_free(&ruler->frame);
    dpe_texts_free(&ruler->lexicon);
    dpe_text_free(&ruler->essay.text);
    free(ruler->essay.at);
    free(ruler->essay.cost);
    dpe_qa_free(ruler->qa);
    dpe_qa_free(ruler->qa + 1);
    free(ruler);
}

/* -------------------------------------------------------------- what the tasks' drawing shares */

struct dpe_encode_options dpe_ruler_encoding(const struct dpe_ruler *ruler)
{
    /* Around a chat template literal is refused. */
    return (struct dpe_encode_options){
        .special = ruler->special,
        .advice = dpe_chat_framed(&ruler->frame)
                      ? "--special-in-text parse makes it the token"
                      : "choose whether it is ordinary text (literal) or the token (parse) "
                        "with --special-in-text"};
}

/* Tokens that a text has beyond those of its first `n` bytes alone. */
static dpe_status count_behind(const struct dpe_tokenizer *tokenizer,
                               const struct dpe_encode_options *options,
                               const struct dpe_text *text, size_t n, int64_t *count,
                               struct dpe_error *err)
{
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens tokens = {0};
    DPE_TRY(dpe_text_done(text, err));
    DPE_TRY(dpe_tokenizer_encode(tokenizer, text->bytes, n, options, &tokens, err));
    const int64_t before = (int64_t)tokens.n;
    tokens.n = 0;
    DPE_TRY(dpe_tokenizer_encode(tokenizer, text->bytes, text->n, options, &tokens, err));
    *count = (int64_t)tokens.n - before;
    return DPE_OK;
}

enum { SPARE_TOKENS = 8, OFFICIAL_LENGTH = 4096 };

dpe_status dpe_ruler_room(const struct dpe_tokenizer *tokenizer, const struct dpe_ruler_kind *kind,
                          char *const *references, size_t n, int64_t length, int64_t *room,
                          struct dpe_error *err)
{
    const struct dpe_encode_options options = {.special = DPE_SPECIAL_LITERAL};
    int64_t sum = 0;
    *room = kind->room;
    for (size_t i = 0; i < n && length < OFFICIAL_LENGTH; i++) {
        DPE_SCOPED(dpe_text_free) struct dpe_text answer = {0};
        int64_t count = 0;
        dpe_text_put(&answer, ". %s", references[i]);
        DPE_TRY(count_behind(tokenizer, &options, &answer, 1, &count, err));
        /* 2 tokens for what separates two answers. For questions the longest answer counts. */
        sum = kind->score == dpe_score_all ? sum + count + 2 : count > sum ? count : sum;
    }
    if (length < OFFICIAL_LENGTH && sum + SPARE_TOKENS < *room) {
        *room = sum + SPARE_TOKENS;
    }
    return DPE_OK;
}

dpe_status dpe_ruler_refer(struct dpe_ruler_draw *draw, const char *text, struct dpe_error *err)
{
    size_t n = draw->n_references;
    DPE_TRY(DPE_ROOM(&draw->references, n, err, "ruler: no memory for a sample"));
    draw->references[n] = strdup(text);
    DPE_TRY(DPE_MADE(draw->references[n], err, "ruler: no memory for a sample"));
    draw->n_references++;
    return DPE_OK;
}

void dpe_ruler_shuffle(const struct dpe_ruler_draw *draw, size_t *list, size_t n)
{
    struct dpe_rng rng;
    dpe_rng_seed(&rng, draw->ruler->seed + n, draw->stream);
    for (size_t i = 1; i < n; i++) {
        size_t j = dpe_rng_below(&rng, (uint32_t)i + 1);
        size_t moved = list[i];
        list[i] = list[j];
        list[j] = moved;
    }
}

dpe_status dpe_ruler_count(const struct dpe_ruler *ruler, const char *text, size_t n, double *count,
                           struct dpe_error *err)
{
    /* The text before a unit, as in a prompt: a unit that begins with a space follows a full stop,
     * any other unit follows a line end. */
    const char *anchor = n > 0 && text[0] == ' ' ? "." : ".\n";
    const struct dpe_encode_options options = dpe_ruler_encoding(ruler);
    DPE_SCOPED(dpe_text_free) struct dpe_text joined = {0};
    int64_t more = 0;
    dpe_text_put_bytes(&joined, anchor, strlen(anchor));
    dpe_text_put_bytes(&joined, text, n);
    DPE_TRY(count_behind(ruler->tokenizer, &options, &joined, strlen(anchor), &more, err));
    *count = more > 0 ? (double)more : 0.0;
    return DPE_OK;
}
