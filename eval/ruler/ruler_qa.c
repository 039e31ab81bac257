/* RULER's questions: SQuAD and HotpotQA files, and a gold document among others. */
#include "eval/ruler/ruler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t max_file_bytes = (uint64_t)1 << 30;
static const char blank[] = " \t\n\v\f\r";

/* The state of reading a file. */
struct reading {
    struct dpe_qa *qa;
    size_t at;        /* where the row begins, in bytes of the file */
    size_t paragraph; /* of the row, from 1; 0: of none yet */
    json_t *last;     /* row, or NULL */
    size_t article;   /* SQuAD in rows: of the row; one begins with another title */
};

static dpe_status lacks(const struct reading *reading, const char *what, struct dpe_error *err)
{
    char place[40] = "";
    if (reading->paragraph > 0) {
        snprintf(place, sizeof place, " paragraph %zu:", reading->paragraph);
    }
    return dpe_fail(err, DPE_BAD_DATA, "%s: byte %zu:%s found %s", reading->qa->path,
                    reading->at + 1, place, what);
}

static const char *string(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static bool same_title(const json_t *row, const json_t *other)
{
    const char *a = string(row, "title");
    const char *b = string(other, "title");
    return other != NULL && strcmp(a != NULL ? a : "", b != NULL ? b : "") == 0;
}

/* A document without white space at its ends, and its number. */
static dpe_status add_document(struct dpe_qa *qa, const char *text, size_t group, size_t *number,
                               struct dpe_error *err)
{
    const size_t there = qa->documents.n;
    DPE_OWNED char *own = strdup(text + strspn(text, blank));
    DPE_TRY(DPE_MADE(own, err, "no memory for %zu documents", there));
    size_t n = strlen(own);
    while (n > 0 && strchr(blank, own[n - 1]) != NULL) {
        own[--n] = '\0';
    }
    DPE_TRY(dpe_texts_add(&qa->documents, own, number, err));
    if (*number == there) {
        DPE_TRY(DPE_ROOM(&qa->group, there, err, "no memory for %zu documents", there));
        qa->group[there] = group;
    }
    return DPE_OK;
}

static dpe_status add_gold(struct dpe_qa *qa, size_t document, struct dpe_error *err)
{
    DPE_TRY(DPE_ROOM(&qa->gold, qa->n_gold, err, "no memory for %zu questions", qa->n_gold));
    qa->gold[qa->n_gold++] = document;
    return DPE_OK;
}

/* What the question holds is borrowed. */
static dpe_status add_question(struct dpe_qa *qa, const struct dpe_qa_question *question,
                               struct dpe_error *err)
{
    const size_t n = qa->n_questions;
    DPE_TRY(DPE_ROOM(&qa->questions, n, err, "no memory for %zu questions", n));
    qa->questions[qa->n_questions++] = *question;
    json_incref(question->text);
    json_incref(question->answers);
    return DPE_OK;
}

/* --------------------------------------------------------------------------------------- SQuAD */

/* {"text": an answer, …}, or a list of them there, as the hub's rows have it; or a list of such. */
static dpe_status add_answers(const struct reading *reading, const json_t *from, json_t *answers,
                              struct dpe_error *err)
{
    json_t *text = json_object_get(from, "text");
    const bool several = json_is_array(text);
    if (!json_is_object(from)) {
        for (size_t i = 0; i < json_array_size(from); i++) {
            DPE_TRY(add_answers(reading, json_array_get(from, i), answers, err));
        }
        return json_is_array(from) ? DPE_OK : lacks(reading, "answers that are no list", err);
    }
    if (text == NULL) {
        return lacks(reading, "an answer without \"text\"", err);
    }
    for (size_t i = 0; i < (several ? json_array_size(text) : 1); i++) {
        json_t *one = several ? json_array_get(text, i) : text;
        if (!json_is_string(one)) {
            return lacks(reading, "an answer that is not a string", err);
        }
        DPE_TRY(json_array_append(answers, one) == 0
                    ? DPE_OK
                    : dpe_fail(err, DPE_NO_MEMORY, "no memory for an answer"));
    }
    return DPE_OK;
}

/* A question about a document; one that cannot be answered is left out. In a row none need have
 * answers. */
static dpe_status read_question(const struct reading *reading, const json_t *from, size_t group,
                                size_t document, bool row, struct dpe_error *err)
{
    struct dpe_qa *qa = reading->qa;
    json_auto_t *answers = json_array();
    const struct dpe_qa_question question = {.text = json_object_get(from, "question"),
                                             .answers = answers,
                                             .gold = qa->n_gold,
                                             .n_gold = 1,
                                             .group = group};
    const json_t *given = json_object_get(from, "answers");
    DPE_TRY(given != NULL ? add_answers(reading, given, answers, err) : DPE_OK);
    if (!json_is_string(question.text)) {
        return lacks(reading, "a question without \"question\"", err);
    }
    const bool none = json_array_size(answers) == 0;
    if (json_is_true(json_object_get(from, "is_impossible")) || (row && none)) {
        return DPE_OK;
    }
    if (none) {
        return lacks(reading, "an answerable question without \"answers\"", err);
    }
    DPE_TRY(add_gold(qa, document, err));
    return add_question(qa, &question, err);
}

static dpe_status read_paragraph(struct reading *reading, const json_t *paragraph, size_t group,
                                 struct dpe_error *err)
{
    reading->paragraph++;
    const json_t *questions = json_object_get(paragraph, "qas");
    const char *context = string(paragraph, "context");
    size_t document = 0;
    if (context == NULL) {
        return lacks(reading, "a paragraph without \"context\"", err);
    }
    DPE_TRY(add_document(reading->qa, context, group, &document, err));
    for (size_t i = 0; i < json_array_size(questions); i++) {
        DPE_TRY(read_question(reading, json_array_get(questions, i), group, document, false, err));
    }
    return DPE_OK;
}

/* One of the hub's rows, a question with its paragraph and the title of its article; or the whole
 * file of the authors, which has "data". */
static dpe_status read_squad(struct reading *reading, const json_t *row, struct dpe_error *err)
{
    const json_t *data = json_object_get(row, "data");
    const char *context = string(row, "context");
    size_t document = 0;
    for (size_t group = 0; group < json_array_size(data); group++) {
        const json_t *paragraphs = json_object_get(json_array_get(data, group), "paragraphs");
        for (size_t i = 0; i < json_array_size(paragraphs); i++) {
            DPE_TRY(read_paragraph(reading, json_array_get(paragraphs, i), group, err));
        }
    }
    if (data != NULL) {
        return DPE_OK;
    }
    if (context == NULL) {
        return lacks(reading, "a row without \"context\"", err);
    }
    reading->article += !same_title(row, reading->last);
    DPE_TRY(add_document(reading->qa, context, reading->article, &document, err));
    return read_question(reading, row, reading->article, document, true, err);
}

/* ------------------------------------------------------------------------------------ HotpotQA */

/* What is wrong with the paragraphs of a question, or NULL. */
static const char *wrong_context(const json_t *context)
{
    const json_t *titles = json_object_get(context, "title");
    const json_t *sentences = json_object_get(context, "sentences");
    const size_t n = json_array_size(titles);
    if (json_is_array(context)) {
        return NULL;
    }
    if (titles == NULL || sentences == NULL) {
        return "a context without \"title\" and \"sentences\"";
    }
    if (!json_is_array(titles) || !json_is_array(sentences)) {
        return "no list of titles or of sentences";
    }
    return n < json_array_size(sentences)   ? "more lists of sentences than titles"
           : n > json_array_size(sentences) ? "more titles than lists of sentences"
                                            : NULL;
}

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

/* A paragraph as the next document. */
static dpe_status add_paragraph(struct reading *reading, const json_t *context, size_t i,
                                struct dpe_error *err)
{
    reading->paragraph = i + 1;
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    const json_t *pair = json_is_array(context) ? json_array_get(context, i) : NULL;
    const json_t *sentences = NULL;
    const char *title = NULL;
    size_t document = 0;
    if (!dpe_hotpotqa_paragraph(context, i, &title, &sentences)) {
        return lacks(reading,
                     title != NULL                               ? "a paragraph without sentences"
                     : pair != NULL && json_array_size(pair) < 1 ? "a paragraph without a title"
                                                                 : "a title that is not a string",
                     err);
    }
    if (json_array_size(pair) > 2) {
        return lacks(reading, "a paragraph of more than two parts", err);
    }
    if (!dpe_hotpotqa_put(title, sentences, &text)) {
        return lacks(reading, "a sentence that is not a string", err);
    }
    DPE_TRY(dpe_text_done(&text, err));
    DPE_TRY(add_document(reading->qa, text.bytes, SIZE_MAX, &document, err));
    return add_gold(reading->qa, document, err);
}

static dpe_status read_hotpotqa(struct reading *reading, const json_t *row, struct dpe_error *err)
{
    json_t *answer = json_object_get(row, "answer");
    json_auto_t *answers = json_pack("[O?]", answer);
    const json_t *context = json_object_get(row, "context");
    const struct dpe_qa_question question = {.text = json_object_get(row, "question"),
                                             .answers = answers,
                                             .gold = reading->qa->n_gold,
                                             .n_gold = dpe_hotpotqa_paragraphs(context),
                                             .group = SIZE_MAX};
    const char *wrong = !json_is_string(question.text) ? "a question without \"question\""
                        : context == NULL              ? "a question without \"context\""
                        : wrong_context(context)       ? wrong_context(context)
                        : question.n_gold == 0         ? "a question without \"context\""
                        : !json_is_string(answer)      ? "a question without one \"answer\""
                                                       : NULL;
    if (wrong != NULL) {
        return lacks(reading, wrong, err);
    }
    DPE_TRY(DPE_MADE(answers, err, "no memory for an answer"));
    for (size_t i = 0; i < question.n_gold; i++) {
        DPE_TRY(add_paragraph(reading, context, i, err));
    }
    return add_question(reading->qa, &question, err);
}

/* -------------------------------------------------------------------------------------- either */

/* The row at *at, which moves to its end. */
static dpe_status read_row(struct reading *reading, const char *bytes, size_t n, size_t *at,
                           enum dpe_qa_set set, struct dpe_error *err)
{
    const size_t flags = JSON_DISABLE_EOF_CHECK | JSON_DECODE_INT_AS_REAL;
    json_error_t error;
    json_t *row = json_loadb(bytes + *at, n - *at, flags, &error);
    if (row == NULL) {
        return dpe_fail(
            err, json_error_code(&error) == json_error_out_of_memory ? DPE_NO_MEMORY : DPE_BAD_DATA,
            "%s: byte %zu: %s", reading->qa->path, *at + (size_t)error.position + 1, error.text);
    }
    reading->at = *at;
    reading->paragraph = 0;
    *at += (size_t)error.position;
    dpe_status status =
        set == DPE_QA_SQUAD ? read_squad(reading, row, err) : read_hotpotqa(reading, row, err);
    json_decref(reading->last);
    reading->last = row;
    return status;
}

/* The elements of a list, or one after another, as the hub's files have them: a row a line. */
static dpe_status read_rows(struct reading *reading, const char *bytes, size_t n,
                            enum dpe_qa_set set, struct dpe_error *err)
{
    size_t at = strspn(bytes, blank);
    const bool list = bytes[at] == '[';
    const bool rows = list || bytes[at] == '{';
    at += list;
    at += strspn(bytes + at, blank);
    for (bool more = bytes[at] == '{'; more;) {
        DPE_TRY(read_row(reading, bytes, n, &at, set, err));
        at += strspn(bytes + at, blank);
        more = bytes[at] == (list ? ',' : '{');
        at += list && more ? 1 + strspn(bytes + at + 1, blank) : 0;
    }
    const bool closed = !list || bytes[at] == ']';
    at += list && closed ? 1 + strspn(bytes + at + 1, blank) : 0;
    return rows && closed && at == n
               ? DPE_OK
               : dpe_fail(err, DPE_BAD_DATA, "%s: byte %zu: expected %s", reading->qa->path, at + 1,
                          list ? "'{', or the list's end" : "'[' or '{'");
}

dpe_status dpe_qa_read(const char *path, enum dpe_qa_set set, struct dpe_qa *qa,
                       struct dpe_error *err)
{
    DPE_SCOPED(dpe_qa_free) struct dpe_qa made = {0};
    DPE_OWNED char *bytes = NULL;
    struct reading reading = {.qa = &made};
    size_t n = 0;
    *qa = made;
    DPE_TRY(dpe_read_file(path, max_file_bytes, &bytes, &n, err));
    size_t valid = dpe_utf8_check(bytes, n);
    if (valid < n) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: byte %zu: expected UTF-8", path, valid + 1);
    }
    made.path = strdup(path);
    DPE_TRY(DPE_MADE(made.path, err, "%s: no memory for its questions", path));
    DPE_TRY(dpe_sha256_bytes(bytes, n, made.hash, err));
    const dpe_status status = read_rows(&reading, bytes, n, set, err);
    json_decref(reading.last);
    DPE_TRY(status);
    if (made.n_questions == 0) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected questions with answers, found none", path);
    }
    DPE_TRY(DPE_NEW(&made.cost, made.documents.n, err, "%s: no memory for its documents", path));
    *qa = made;
    made = (struct dpe_qa){0};
    return DPE_OK;
}

void dpe_qa_free(struct dpe_qa *qa)
{
    for (size_t i = 0; i < qa->n_questions; i++) {
        json_decref(qa->questions[i].text);
        json_decref(qa->questions[i].answers);
    }
    free(qa->path);
    dpe_texts_free(&qa->documents);
    free(qa->group);
    free(qa->cost);
    free(qa->gold);
    free(qa->questions);
    *qa = (struct dpe_qa){0};
}

/* ------------------------------------------------------------------------------------- samples */

enum { ORDER_STREAM = 0x7161 };

static const struct dpe_qa *data(const struct dpe_ruler_draw *draw)
{
    return draw->ruler->qa + draw->kind->dataset;
}

/* The question of a sample: the seed draws an order of all questions. */
static const struct dpe_qa_question *question(const struct dpe_ruler_draw *draw, size_t *order)
{
    const struct dpe_qa *qa = data(draw);
    struct dpe_rng rng;
    dpe_rng_seed(&rng, draw->ruler->seed, ORDER_STREAM + (uint64_t)draw->kind->dataset);
    dpe_draw_order(&rng, order, qa->n_questions);
    return qa->questions + order[(size_t)draw->index % qa->n_questions];
}

/* Gold documents, then those of the same article, then all others, each part in random order. The
 * last two parts are shuffled only as far as they are used. */
static void order_documents(const struct dpe_ruler_draw *draw, const struct dpe_qa_question *asked,
                            size_t *order)
{
    const struct dpe_qa *qa = data(draw);
    size_t at = 0;
    for (int part = 0; part < 3; part++) {
        for (size_t d = 0; d < qa->documents.n; d++) {
            bool gold = false;
            for (size_t g = 0; g < asked->n_gold; g++) {
                gold = gold || qa->gold[asked->gold + g] == d;
            }
            bool near = asked->group != SIZE_MAX && qa->group[d] == asked->group;
            if (part == (gold ? 0 : near ? 1 : 2)) {
                order[at++] = d;
            }
        }
    }
}

/* Exchange the document at `at` with a random one of its part. */
static void draw_document(struct dpe_ruler_draw *draw, const struct dpe_qa_question *asked,
                          size_t at)
{
    const struct dpe_qa *qa = data(draw);
    size_t end = qa->documents.n;
    bool near = asked->group != SIZE_MAX && qa->group[draw->unit[at]] == asked->group;
    if (near) {
        end = at;
        while (end < qa->documents.n && qa->group[draw->unit[end]] == asked->group) {
            end++;
        }
    }
    size_t other = at + dpe_rng_below(&draw->units, (uint32_t)(end - at));
    size_t moved = draw->unit[at];
    draw->unit[at] = draw->unit[other];
    draw->unit[other] = moved;
}

static void put_document(const struct dpe_ruler_draw *draw, size_t number, const char *document,
                         struct dpe_text *text)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%zu", number);
    const struct dpe_phrase_value values[] = {{"number", digits}, {"text", document}, {NULL, NULL}};
    dpe_phrases_put(&draw->ruler->words, "qa_document", values, text);
}

static dpe_status count_frame(const struct dpe_ruler_draw *draw, double *count,
                              struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text frame = {0};
    put_document(draw, 88, "", &frame);
    DPE_TRY(dpe_text_done(&frame, err));
    return dpe_ruler_count(draw->ruler, frame.bytes, frame.n, count, err);
}

static dpe_status qa_draw(struct dpe_ruler_draw *draw, struct dpe_error *err)
{
    const struct dpe_qa *qa = data(draw);
    const size_t there = qa->documents.n;
    if (qa->n_questions == 0) {
        return dpe_fail(err, DPE_USAGE, "ruler: %s needs documents with questions: give %s",
                        draw->kind->name,
                        draw->kind->dataset == 0 ? "--squad FILE" : "--hotpotqa FILE");
    }
    DPE_TRY(DPE_NEW(&draw->unit, there, err, "ruler: no memory for a sample"));
    DPE_TRY(DPE_NEW(&draw->pick, there > qa->n_questions ? there : qa->n_questions, err,
                    "ruler: no memory for a sample"));
    DPE_TRY(DPE_NEW(&draw->cost, there + 1, err, "ruler: no memory for a sample"));
    const struct dpe_qa_question *asked = question(draw, draw->pick);
    double frame = 0.0;
    DPE_TRY(count_frame(draw, &frame, err));
    order_documents(draw, asked, draw->unit);
    size_t n = 0;
    while (n < there && (n < asked->n_gold || draw->cost[n] < (double)draw->length)) {
        if (n >= asked->n_gold) {
            draw_document(draw, asked, n);
        }
        draw->cost[n + 1] = draw->cost[n] + qa->cost[draw->unit[n]] + frame;
        n++;
    }
    draw->min_units = (int64_t)(asked->n_gold < n ? asked->n_gold : n);
    draw->max_units = (int64_t)n;
    draw->file = n == there ? qa->path : NULL;
    draw->question = json_string_value(asked->text);
    for (size_t i = 0; i < json_array_size(asked->answers); i++) {
        DPE_TRY(dpe_ruler_refer(draw, json_string_value(json_array_get(asked->answers, i)), err));
    }
    return DPE_OK;
}

static double qa_cost(const struct dpe_ruler_draw *draw, int64_t n)
{
    return draw->cost[n];
}

static void qa_compose(struct dpe_ruler_draw *draw, int64_t n, struct dpe_text *text,
                       struct dpe_text *answer)
{
    const struct dpe_phrases *words = &draw->ruler->words;
    const struct dpe_phrase_value values[] = {{"question", draw->question}, {NULL, NULL}};
    memcpy(draw->pick, draw->unit, (size_t)n * sizeof *draw->pick);
    dpe_ruler_shuffle(draw, draw->pick, (size_t)n);
    dpe_text_put(text, "%s", dpe_phrases_text(words, "qa_intro"));
    for (size_t i = 0; i < (size_t)n; i++) {
        put_document(draw, i + 1, data(draw)->documents.at[draw->pick[i]], text);
    }
    dpe_phrases_put(words, "qa_question", values, text);
    dpe_text_put(answer, "%s", dpe_phrases_text(words, "qa_answer"));
}

const struct dpe_ruler_maker dpe_ruler_qa = {qa_draw, qa_cost, qa_compose};
