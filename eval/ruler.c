/* RULER: what its tasks share, and the size of a sample. */
#include "ruler.h"

#include <stdlib.h>
#include <string.h>

#include "haystack.h"
#include "score.h"

enum { SPARE_TOKENS = 8, OFFICIAL_LENGTH = 4096, MAX_LENGTH = 1 << 24, MAX_TRIES = 64 };
/* A sample's sentences come from this many bytes of the essay per token of its length. */
enum { ESSAY_BYTES = 32, ESSAY_MARGIN = 4096, MAX_SENTENCE = 600 };

static const struct dpe_phrase_field fields[RULER_PHRASES] = {
    [RULER_NUMBER_ONE] = {"number_one", "", "", false},
    [RULER_NUMBER_MANY] = {"number_many", "", "", false},
    [RULER_UUID_ONE] = {"uuid_one", "", "", false},
    [RULER_UUID_MANY] = {"uuid_many", "", "", false},
    [RULER_KEYS_SEPARATOR] = {"keys_separator", "", "", false},
    [RULER_KEYS_LAST] = {"keys_last", "", "", false},
    [RULER_NOISE] = {"noise", "", "", false},
    [RULER_NIAH_INTRO] = {"niah_intro", "", "one many", true},
    [RULER_NIAH_NEEDLE] = {"niah_needle", "key value", "one", false},
    [RULER_NIAH_QUESTION_ONE] = {"niah_question_one", "keys", "one many", false},
    [RULER_NIAH_QUESTION_MANY] = {"niah_question_many", "keys", "one many", false},
    [RULER_NIAH_ANSWER_ONE] = {"niah_answer_one", "", "keys one many", true},
    [RULER_NIAH_ANSWER_MANY] = {"niah_answer_many", "", "keys one many", true},
    [RULER_VT_INTRO] = {"vt_intro", "", "", true},
    [RULER_VT_FIRST] = {"vt_first", "name value", "", false},
    [RULER_VT_NEXT] = {"vt_next", "name from", "", false},
    [RULER_VT_QUESTION] = {"vt_question", "value", "count", false},
    [RULER_VT_ANSWER] = {"vt_answer", "", "value count", true},
    [RULER_CWE_INTRO] = {"cwe_intro", "", "", true},
    [RULER_CWE_QUESTION] = {"cwe_question", "", "count", false},
    [RULER_CWE_ANSWER] = {"cwe_answer", "", "count", true},
    [RULER_FWE_INTRO] = {"fwe_intro", "", "", true},
    [RULER_FWE_QUESTION] = {"fwe_question", "", "count", false},
    [RULER_FWE_ANSWER] = {"fwe_answer", "", "count", true},
    [RULER_QA_INTRO] = {"qa_intro", "", "", true},
    [RULER_QA_DOCUMENT] = {"qa_document", "text", "number", false},
    [RULER_QA_QUESTION] = {"qa_question", "question", "", false},
    [RULER_QA_ANSWER] = {"qa_answer", "", "", true},
};

#define NEEDLES(task, room_keys, room_values, room_queries, where, by_uuid, to_uuid)               \
    {                                                                                              \
        .name = task, .category = "NIAH", .room = 128, .score = dpe_score_all, .growing = true,    \
        .keys = room_keys, .values = room_values, .queries = room_queries, .haystack = where,      \
        .uuid_keys = by_uuid, .uuid_values = to_uuid, .draw = dpe_ruler_niah_draw,                 \
        .cost = dpe_ruler_niah_cost, .compose = dpe_ruler_niah_compose                             \
    }
#define QUESTIONS(task, number)                                                                    \
    {                                                                                              \
        .name = task, .category = "QA", .room = 32, .score = dpe_score_part, .growing = true,      \
        .dataset = number, .draw = dpe_ruler_qa_draw, .cost = dpe_ruler_listed_cost,               \
        .compose = dpe_ruler_qa_compose                                                            \
    }

static const struct dpe_ruler_kind kinds[] = {
    NEEDLES("niah_single_1", 1, 1, 1, RULER_LINES, false, false),
    NEEDLES("niah_single_2", 1, 1, 1, RULER_ESSAY, false, false),
    NEEDLES("niah_single_3", 1, 1, 1, RULER_ESSAY, false, true),
    NEEDLES("niah_multikey_1", 4, 1, 1, RULER_ESSAY, false, false),
    NEEDLES("niah_multikey_2", 1, 1, 1, RULER_NEEDLES, false, false),
    NEEDLES("niah_multikey_3", 1, 1, 1, RULER_NEEDLES, true, true),
    NEEDLES("niah_multivalue", 1, 4, 1, RULER_ESSAY, false, false),
    NEEDLES("niah_multiquery", 4, 1, 4, RULER_ESSAY, false, false),
    {.name = "vt",
     .category = "VT",
     .room = 30,
     .score = dpe_score_all,
     .growing = true,
     .haystack = RULER_LINES,
     .draw = dpe_ruler_vt_draw,
     .cost = dpe_ruler_niah_cost,
     .compose = dpe_ruler_vt_compose},
    {.name = "cwe",
     .category = "Aggregation",
     .room = 120,
     .score = dpe_score_all,
     .growing = true,
     .draw = dpe_ruler_cwe_draw,
     .cost = dpe_ruler_cwe_cost,
     .compose = dpe_ruler_cwe_compose},
    {.name = "fwe",
     .category = "Aggregation",
     .room = 50,
     .score = dpe_score_all,
     .growing = true,
     .draw = dpe_ruler_fwe_draw,
     .cost = dpe_ruler_fwe_cost,
     .compose = dpe_ruler_fwe_compose},
    QUESTIONS("qa_1", 0),
    QUESTIONS("qa_2", 1),
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

const struct dpe_ruler_kind *dpe_ruler_kind(size_t i)
{
    return i < N_KINDS ? kinds + i : NULL;
}

/* -------------------------------------------------------------------------------- small things */

dpe_status dpe_ruler_no_memory(struct dpe_error *err)
{
    return dpe_fail(err, DPE_NO_MEMORY, "ruler: no memory for a sample");
}

dpe_status dpe_ruler_append(struct dpe_text *text, const char *string, struct dpe_error *err)
{
    return dpe_text_append(text, string, strlen(string), err);
}

dpe_status dpe_ruler_refer(struct dpe_ruler_draw *draw, const char *text, struct dpe_error *err)
{
    size_t n = draw->n_references;
    char **references = realloc(draw->references, (n + 1) * sizeof *references);
    if (references == NULL) {
        return dpe_ruler_no_memory(err);
    }
    draw->references = references;
    references[n] = strdup(text);
    if (references[n] == NULL) {
        return dpe_ruler_no_memory(err);
    }
    draw->n_references++;
    return DPE_OK;
}

double dpe_ruler_listed_cost(const struct dpe_ruler_draw *draw, int64_t n)
{
    return draw->cost[n];
}

static uint64_t stream(const struct dpe_ruler_draw *draw)
{
    return (uint64_t)draw->index << 8 | (uint64_t)(draw->kind - kinds);
}

void dpe_ruler_shuffle(const struct dpe_ruler_draw *draw, size_t *list, size_t n)
{
    struct dpe_rng rng;
    dpe_rng_seed(&rng, draw->ruler->seed + n, stream(draw));
    for (size_t i = 1; i < n; i++) {
        size_t j = dpe_rng_below(&rng, (uint32_t)i + 1);
        size_t moved = list[i];
        list[i] = list[j];
        list[j] = moved;
    }
}

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

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

void dpe_ruler_places(struct dpe_ruler_draw *draw)
{
    for (size_t i = 0; i < draw->n_needles; i++) {
        draw->place[i] = dpe_rng_unit(&draw->rng);
    }
    qsort(draw->place, draw->n_needles, sizeof draw->place[0], compare_doubles);
}

/* Specials of a finished prompt; a chat template that begins with the BOS must not get two. */
static dpe_status encode_prompt(const struct dpe_ruler *ruler, const struct dpe_text *text,
                                struct dpe_tokens *tokens, struct dpe_error *err)
{
    bool chat = ruler->before[0] != '\0' || ruler->after[0] != '\0';
    const struct dpe_encode_options options = {
        .add_special = true, .special = chat ? DPE_SPECIAL_PARSE : ruler->special};
    tokens->n = 0;
    dpe_status status =
        dpe_tokenizer_encode(ruler->tokenizer, text->bytes, text->n, &options, tokens, err);
    size_t prefix = (size_t)dpe_tokenizer_prefix_size(ruler->tokenizer);
    int32_t *ids = tokens->ids;
    if (status == DPE_OK && chat && prefix > 0 && tokens->n >= 2 * prefix &&
        memcmp(ids, ids + prefix, prefix * sizeof *ids) == 0) {
        tokens->n -= prefix;
        memmove(ids, ids + prefix, tokens->n * sizeof *ids);
    }
    return status;
}

dpe_status dpe_ruler_count(const struct dpe_ruler *ruler, const char *text, size_t n, double *count,
                           struct dpe_error *err)
{
    /* Behind a full stop a space, behind a line's end anything else: as units stand in prompts. */
    const char *anchor = n > 0 && text[0] == ' ' ? "." : ".\n";
    const struct dpe_encode_options options = {.special = ruler->special};
    struct dpe_text joined = {0};
    struct dpe_tokens tokens = {0};
    dpe_status status = dpe_ruler_append(&joined, anchor, err);
    size_t before = 0;
    if (status == DPE_OK) {
        status =
            dpe_tokenizer_encode(ruler->tokenizer, joined.bytes, joined.n, &options, &tokens, err);
        before = tokens.n;
        tokens.n = 0;
    }
    if (status == DPE_OK) {
        status = dpe_text_append(&joined, text, n, err);
    }
    if (status == DPE_OK) {
        status =
            dpe_tokenizer_encode(ruler->tokenizer, joined.bytes, joined.n, &options, &tokens, err);
    }
    *count = tokens.n > before ? (double)(tokens.n - before) : 0.0;
    dpe_tokens_free(&tokens);
    dpe_text_free(&joined);
    return status;
}

/* --------------------------------------------------------------------------------- one sample */

static void free_draw(struct dpe_ruler_draw *draw)
{
    for (size_t i = 0; i < draw->n_references; i++) {
        free(draw->references[i]);
    }
    for (size_t i = 0; i < sizeof draw->needle / sizeof draw->needle[0]; i++) {
        dpe_text_free(draw->needle + i);
    }
    free(draw->references);
    dpe_text_free(&draw->scratch);
    free(draw->unit);
    free(draw->cost);
    free(draw->pick);
}

/* A composed prompt. */
struct prompt {
    struct dpe_text text;
    struct dpe_tokens tokens;
    int64_t n; /* units */
};

static dpe_status compose(struct dpe_ruler_draw *draw, int64_t n, struct prompt *prompt,
                          struct dpe_error *err)
{
    const struct dpe_ruler *ruler = draw->ruler;
    struct dpe_text answer = {0};
    prompt->text.n = 0;
    prompt->n = n;
    dpe_status status = dpe_ruler_append(&prompt->text, ruler->before, err);
    if (status == DPE_OK) {
        status = draw->kind->compose(draw, n, &prompt->text, &answer, err);
    }
    if (status == DPE_OK) {
        status = dpe_ruler_append(&prompt->text, ruler->after, err);
    }
    if (status == DPE_OK) {
        status = dpe_text_append(&prompt->text, answer.bytes, answer.n, err);
    }
    if (status == DPE_OK) {
        status = encode_prompt(ruler, &prompt->text, &prompt->tokens, err);
    }
    dpe_text_free(&answer);
    return status;
}

/* The most units in [low, high] whose cost is at most `most`; low when none is. */
static int64_t most_units(const struct dpe_ruler_draw *draw, int64_t low, int64_t high, double most)
{
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (draw->kind->cost(draw, middle) <= most) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

static void swap(struct prompt *a, struct prompt *b)
{
    struct prompt moved = *a;
    *a = *b;
    *b = moved;
}

/* How many units come next when `best` fits and `fail` does not: as the costs have it from the
 * tokens of a prompt of n units; half-way when they led nowhere for long. */
static int64_t next_units(const struct dpe_ruler_draw *draw, int64_t best, int64_t fail, int64_t n,
                          double spare, int tries)
{
    if (tries > 8) {
        return best + (fail - best) / 2;
    }
    return most_units(draw, best, fail - 1, draw->kind->cost(draw, n) + spare);
}

/* The largest prompt of at most `max` tokens: *best. */
static dpe_status fit(struct dpe_ruler_draw *draw, int64_t max, struct prompt *best,
                      struct dpe_error *err)
{
    struct prompt tried = {0};
    dpe_status status = compose(draw, draw->min_units, best, err);
    if (status == DPE_OK && (int64_t)best->tokens.n > max) {
        status = dpe_fail(err, DPE_USAGE,
                          "ruler: length %lld is too short for %s: its smallest sample needs %lld",
                          (long long)draw->length, draw->kind->name,
                          (long long)(draw->length - max + (int64_t)best->tokens.n));
    }
    int64_t fail = draw->max_units + 1;
    int64_t n = draw->min_units;
    double spare = (double)(max - (int64_t)best->tokens.n);
    for (int tries = 0; status == DPE_OK && tries < MAX_TRIES; tries++) {
        n = next_units(draw, best->n, fail, n, spare, tries);
        if (n == best->n) {
            break;
        }
        status = compose(draw, n, &tried, err);
        spare = (double)(max - (int64_t)tried.tokens.n);
        if (status == DPE_OK && spare >= 0.0) {
            swap(best, &tried);
        } else {
            fail = n;
        }
    }
    dpe_text_free(&tried.text);
    dpe_tokens_free(&tried.tokens);
    if (status == DPE_OK && best->n == draw->max_units && draw->file != NULL &&
        max - (int64_t)best->tokens.n > draw->length / 16) {
        status = dpe_fail(err, DPE_BAD_DATA,
                          "%s: too few documents for a length of %lld: %lld tokens are missing; "
                          "give a larger file or shorten the length",
                          draw->file, (long long)draw->length,
                          (long long)(max - (int64_t)best->tokens.n));
    }
    return status;
}

/* Tokens of an answer behind other text. */
static dpe_status count_answer(const struct dpe_tokenizer *tokenizer, const char *reference,
                               int64_t *count, struct dpe_error *err)
{
    const struct dpe_encode_options options = {.special = DPE_SPECIAL_LITERAL};
    struct dpe_text text = {0};
    struct dpe_tokens tokens = {0};
    dpe_status status = dpe_ruler_append(&text, ". ", err);
    if (status == DPE_OK) {
        status = dpe_tokenizer_encode(tokenizer, text.bytes, 1, &options, &tokens, err);
    }
    *count = -(int64_t)tokens.n;
    tokens.n = 0;
    if (status == DPE_OK) {
        status = dpe_ruler_append(&text, reference, err);
    }
    if (status == DPE_OK) {
        status = dpe_tokenizer_encode(tokenizer, text.bytes, text.n, &options, &tokens, err);
    }
    *count += (int64_t)tokens.n;
    dpe_tokens_free(&tokens);
    dpe_text_free(&text);
    return status;
}

dpe_status dpe_ruler_room(const struct dpe_tokenizer *tokenizer, const struct dpe_ruler_kind *kind,
                          char *const *references, size_t n, int64_t length, int64_t *room,
                          struct dpe_error *err)
{
    int64_t sum = 0;
    *room = kind->room;
    for (size_t i = 0; i < n && length < OFFICIAL_LENGTH; i++) {
        int64_t count = 0;
        dpe_status status = count_answer(tokenizer, references[i], &count, err);
        if (status != DPE_OK) {
            return status;
        }
        /* With what stands between two answers. Of questions the longest answer is enough. */
        sum = kind->score == dpe_score_all ? sum + count + 2 : count > sum ? count : sum;
    }
    if (length < OFFICIAL_LENGTH && sum + SPARE_TOKENS < *room) {
        *room = sum + SPARE_TOKENS;
    }
    return DPE_OK;
}

dpe_status dpe_ruler_sample(const struct dpe_ruler *ruler, const struct dpe_ruler_kind *kind,
                            int64_t length, int64_t index, struct dpe_sample *sample,
                            struct dpe_text *text, struct dpe_error *err)
{
    struct dpe_ruler_draw draw = {.ruler = ruler, .kind = kind, .length = length, .index = index};
    struct prompt best = {0};
    int64_t room = 0;
    dpe_rng_seed(&draw.rng, ruler->seed, stream(&draw));
    dpe_rng_seed(&draw.units, ~ruler->seed, stream(&draw));
    dpe_status status = kind->draw(&draw, err);
    if (status == DPE_OK) {
        status = dpe_ruler_room(ruler->tokenizer, kind, draw.references, draw.n_references, length,
                                &room, err);
    }
    if (status == DPE_OK) {
        status = fit(&draw, length - room, &best, err);
    }
    if (status == DPE_OK) {
        *sample = (struct dpe_sample){.index = index,
                                      .seed = ruler->seed,
                                      .prompt = best.tokens,
                                      .references = draw.references,
                                      .n_references = draw.n_references,
                                      .max_new = room};
        best.tokens = (struct dpe_tokens){0};
        draw.references = NULL;
        draw.n_references = 0;
    }
    if (status == DPE_OK && text != NULL) {
        text->n = 0;
        status = dpe_text_append(text, best.text.bytes, best.text.n, err);
        if (status != DPE_OK) {
            dpe_sample_free(sample);
        }
    }
    dpe_tokens_free(&best.tokens);
    dpe_text_free(&best.text);
    free_draw(&draw);
    return status;
}

/* ------------------------------------------------------------------------------------- opening */

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Append with every run of white space as one space, none in front. */
static dpe_status append_spaced(const char *text, size_t n, struct dpe_text *out,
                                struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < n && status == DPE_OK;) {
        size_t start = i;
        while (i < n && !is_space(text[i])) {
            i++;
        }
        if (i > start) {
            status = dpe_text_append(out, text + start, i - start, err);
            if (status == DPE_OK) {
                status = dpe_text_append(out, " ", 1, err);
            }
        }
        i += i < n;
    }
    return status;
}

/* Ends of sentences, or of words where a sentence is too long for one unit. */
static dpe_status cut_sentences(struct dpe_ruler_essay *essay, struct dpe_error *err)
{
    const char *text = essay->text.bytes;
    size_t spaces = 0;
    for (size_t i = 0; i < essay->text.n; i++) {
        spaces += text[i] == ' ';
    }
    essay->at = dpe_alloc(spaces + 1, sizeof *essay->at);
    essay->cost = dpe_alloc(spaces + 1, sizeof *essay->cost);
    if (essay->at == NULL || essay->cost == NULL) {
        return dpe_ruler_no_memory(err);
    }
    size_t start = 0;
    essay->at[0] = 0;
    for (size_t i = 0; i < essay->text.n; i++) {
        if (text[i] == ' ' && (dpe_haystack_sentence_end(text, essay->text.n, i) ||
                               i - start > MAX_SENTENCE || i + 1 == essay->text.n)) {
            start = i + 1;
            essay->at[++essay->n] = start;
        }
    }
    return DPE_OK;
}

static dpe_status open_essay(struct dpe_ruler *ruler, const struct dpe_corpus *corpus,
                             int64_t max_length, struct dpe_error *err)
{
    struct dpe_ruler_essay *essay = &ruler->essay;
    /* Where the text is cut off a sentence may end that does not: no sample reaches so far. */
    size_t most = (size_t)max_length * ESSAY_BYTES + ESSAY_MARGIN;
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < dpe_corpus_size(corpus) && essay->text.n < most && status == DPE_OK;
         i++) {
        const struct dpe_book *book = dpe_corpus_book(corpus, i);
        size_t n = book->n < most ? book->n : dpe_haystack_word_end(book->text, book->n, 0, most);
        status = append_spaced(book->text, n, &essay->text, err);
    }
    if (status == DPE_OK && essay->text.n == 0) {
        status = dpe_fail(err, DPE_BAD_DATA, "%s: no words for an essay", dpe_corpus_path(corpus));
    }
    if (status == DPE_OK) {
        status = cut_sentences(essay, err);
    }
    double sum = 0.0;
    for (size_t i = 0; i < essay->n && status == DPE_OK; i++) {
        double count = 0.0;
        size_t size = essay->at[i + 1] - essay->at[i];
        /* Its space stands behind it here and before it in a prompt: the same number of tokens. */
        struct dpe_text sentence = {0};
        status = dpe_text_append(&sentence, " ", 1, err);
        if (status == DPE_OK) {
            status = dpe_text_append(&sentence, essay->text.bytes + essay->at[i], size - 1, err);
        }
        if (status == DPE_OK) {
            status = dpe_ruler_count(ruler, sentence.bytes, sentence.n, &count, err);
        }
        dpe_text_free(&sentence);
        essay->cost[i] = sum;
        sum += count;
    }
    if (status != DPE_OK) {
        dpe_fail_prefix(err, "%s", dpe_corpus_path(corpus));
        return status;
    }
    essay->cost[essay->n] = sum;
    return DPE_OK;
}

static dpe_status open_questions(struct dpe_ruler *ruler, const struct dpe_ruler_options *options,
                                 struct dpe_error *err)
{
    const char *files[2] = {options->squad, options->hotpotqa};
    dpe_status status = DPE_OK;
    for (int d = 0; d < 2 && status == DPE_OK; d++) {
        struct dpe_qa *qa = ruler->qa + d;
        if (files[d] == NULL) {
            continue;
        }
        status = d == 0 ? dpe_qa_squad(files[d], qa, err) : dpe_qa_hotpot(files[d], qa, err);
        for (size_t i = 0; i < qa->n_documents && status == DPE_OK; i++) {
            status = dpe_ruler_count(ruler, qa->documents[i], strlen(qa->documents[i]),
                                     qa->cost + i, err);
            if (status != DPE_OK) {
                dpe_fail_prefix(err, "%s: document %zu", files[d], i + 1);
            }
        }
    }
    return status;
}

/* What a word of a list costs on the average, and its number by the number's digits. */
static dpe_status count_words(struct dpe_ruler *ruler, struct dpe_error *err)
{
    enum { SAMPLE_WORDS = 1000 };
    struct dpe_text text = {0};
    double count = 0.0;
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < SAMPLE_WORDS && status == DPE_OK; i++) {
        status = dpe_ruler_append(&text, " ", err);
        if (status == DPE_OK) {
            status = dpe_ruler_append(&text, dpe_lexicon_word(&ruler->lexicon, i), err);
        }
    }
    if (status == DPE_OK) {
        status = dpe_ruler_count(ruler, text.bytes, text.n, &count, err);
    }
    dpe_text_free(&text);
    ruler->word_cost = count / SAMPLE_WORDS;
    for (size_t digits = 1; digits < DPE_RULER_DIGITS && status == DPE_OK; digits++) {
        static const char number[] = " 7193847.";
        char shorter[sizeof number] = " ";
        memcpy(shorter + 1, number + DPE_RULER_DIGITS - digits, digits + 1);
        status = dpe_ruler_count(ruler, shorter, digits + 2, &ruler->number_cost[digits], err);
    }
    return status;
}

static dpe_status hash_words(struct dpe_ruler *ruler, struct dpe_error *err)
{
    struct dpe_sha256 *hash = dpe_sha256_new();
    if (hash == NULL) {
        return dpe_ruler_no_memory(err);
    }
    dpe_sha256_add(hash, ruler->words.hash, sizeof ruler->words.hash);
    dpe_sha256_add(hash, ruler->before, strlen(ruler->before) + 1);
    dpe_sha256_add(hash, ruler->after, strlen(ruler->after) + 1);
    dpe_sha256_finish(hash, ruler->hash);
    return DPE_OK;
}

static dpe_status prepare(struct dpe_ruler *ruler, const struct dpe_ruler_options *options,
                          struct dpe_error *err)
{
    if (options->max_length < 1 || options->max_length > MAX_LENGTH) {
        return dpe_fail(err, DPE_USAGE, "ruler: expected a length in 1 … %d, found %lld",
                        MAX_LENGTH, (long long)options->max_length);
    }
    dpe_status status = dpe_phrases_open(options->template_file, &dpe_builtin_ruler, fields,
                                         RULER_PHRASES, &ruler->words, err);
    if (status == DPE_OK) {
        status = dpe_chat_read(options->chat_template, &ruler->before, &ruler->after, err);
    }
    if (status == DPE_OK) {
        status = hash_words(ruler, err);
    }
    if (status == DPE_OK) {
        status = dpe_phrases_check_digits(ruler->tokenizer, err);
    }
    if (status == DPE_OK) {
        status = dpe_lexicon_make(options->corpus, dpe_ruler_words(options->max_length),
                                  &ruler->lexicon, err);
    }
    if (status == DPE_OK) {
        status = count_words(ruler, err);
    }
    if (status == DPE_OK && options->corpus != NULL) {
        status = open_essay(ruler, options->corpus, options->max_length, err);
    }
    return status == DPE_OK ? open_questions(ruler, options, err) : status;
}

dpe_status dpe_ruler_open(const struct dpe_ruler_options *options, struct dpe_ruler **ruler,
                          struct dpe_error *err)
{
    struct dpe_ruler *opened = dpe_alloc_zero(1, sizeof *opened);
    if (opened == NULL) {
        return dpe_ruler_no_memory(err);
    }
    opened->tokenizer = options->tokenizer;
    opened->seed = options->seed;
    opened->special = options->special;
    opened->users = 1;
    dpe_status status = prepare(opened, options, err);
    if (status != DPE_OK) {
        dpe_ruler_close(opened);
        return status;
    }
    *ruler = opened;
    return DPE_OK;
}

void dpe_ruler_close(struct dpe_ruler *ruler)
{
    if (ruler == NULL || --ruler->users > 0) {
        return;
    }
    dpe_phrases_free(&ruler->words);
    free(ruler->before);
    free(ruler->after);
    dpe_lexicon_free(&ruler->lexicon);
    dpe_text_free(&ruler->essay.text);
    free(ruler->essay.at);
    free(ruler->essay.cost);
    dpe_qa_free(ruler->qa);
    dpe_qa_free(ruler->qa + 1);
    free(ruler);
}

/* -------------------------------------------------------------------------------------- source */

struct state {
    struct dpe_ruler *ruler;
    const struct dpe_ruler_kind *kind;
    int64_t length;
};

static dpe_status sample_source(void *state, int64_t index, struct dpe_sample *sample,
                                struct dpe_error *err)
{
    const struct state *own = state;
    return dpe_ruler_sample(own->ruler, own->kind, own->length, index, sample, NULL, err);
}

static void close_source(void *state)
{
    struct state *own = state;
    dpe_ruler_close(own->ruler);
    free(own);
}

dpe_status dpe_ruler_source(struct dpe_ruler *ruler, const struct dpe_ruler_kind *kind,
                            int64_t length, struct dpe_source *source, struct dpe_error *err)
{
    struct dpe_sample trial = {0};
    dpe_status status = dpe_ruler_sample(ruler, kind, length, 0, &trial, NULL, err);
    if (status != DPE_OK) {
        return status;
    }
    dpe_sample_free(&trial);
    struct state *state = dpe_alloc(1, sizeof *state);
    if (state == NULL) {
        return dpe_ruler_no_memory(err);
    }
    *state = (struct state){ruler, kind, length};
    ruler->users++;
    bool questions = kind->draw == dpe_ruler_qa_draw;
    *source = (struct dpe_source){
        .n_samples = questions ? (int64_t)ruler->qa[kind->dataset].n_questions : INT64_MAX,
        .state = state,
        .sample = sample_source,
        .score = kind->score,
        .growing = kind->growing,
        .close = close_source,
    };
    size_t n = strlen(kind->name);
    memcpy(source->name, kind->name, n + 1);
    return DPE_OK;
}
