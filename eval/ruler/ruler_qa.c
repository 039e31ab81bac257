/* RULER's questions: SQuAD and HotpotQA files, read member by member, and a gold document among
 * others. */
#include "eval/ruler/ruler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/json.h"

static const uint64_t max_file_bytes = (uint64_t)1 << 30;

/* The state of reading a file. */
struct reading {
    const char *path;
    struct dpe_json_scan scan;
    struct dpe_qa *qa;
    size_t *joined_at; /* HotpotQA: offset of each document in qa->joined */
    const char *lacks; /* what a member lacks, or NULL */
    bool memory;       /* false: out of memory */
};

static bool good(const struct reading *reading)
{
    return reading->scan.problem == NULL && reading->lacks == NULL && reading->memory;
}

/* Room for element n of a list whose pointer is at `list`; false also after a failure. */
static bool make_room(struct reading *reading, void *list, size_t n, size_t size)
{
    reading->memory = reading->memory && dpe_make_room(list, n, size);
    return good(reading);
}

static bool is(const struct dpe_json_scan_text *key, const char *name)
{
    return strlen(name) == key->n && memcmp(key->bytes, name, key->n) == 0;
}

/* Whether the list has another element; false also after a failure. */
static bool element(struct reading *reading, bool *first)
{
    return good(reading) && dpe_json_scan_element(&reading->scan, first);
}

static bool member(struct reading *reading, bool *first, struct dpe_json_scan_text *key)
{
    return good(reading) && dpe_json_scan_key(&reading->scan, first, key);
}

static const char *string(struct reading *reading)
{
    struct dpe_json_scan_text text = {0};
    return dpe_json_scan_string(&reading->scan, &text) ? text.bytes : NULL;
}

static void lacks(struct reading *reading, const char *what)
{
    if (good(reading)) {
        reading->lacks = what;
    }
}

/* Remove white space at both ends, in place. */
static char *stripped(const char *text)
{
    char *start = (char *)(uintptr_t)(text + strspn(text, " \t\n\v\f\r"));
    size_t n = strlen(start);
    while (n > 0 && strchr(" \t\n\v\f\r", start[n - 1]) != NULL) {
        start[--n] = '\0';
    }
    return start;
}

static void add_document(struct reading *reading, const char *text, size_t group)
{
    struct dpe_qa *qa = reading->qa;
    if (make_room(reading, &qa->documents, qa->n_documents, sizeof *qa->documents) &&
        make_room(reading, &qa->group, qa->n_documents, sizeof *qa->group)) {
        qa->documents[qa->n_documents] = text;
        qa->group[qa->n_documents++] = group;
    }
}

static void add_answer(struct reading *reading, const char *text)
{
    struct dpe_qa *qa = reading->qa;
    if (text != NULL && make_room(reading, &qa->answers, qa->n_answers, sizeof *qa->answers)) {
        qa->answers[qa->n_answers++] = text;
    }
}

static void add_gold(struct reading *reading, size_t document)
{
    struct dpe_qa *qa = reading->qa;
    if (make_room(reading, &qa->gold, qa->n_gold, sizeof *qa->gold)) {
        qa->gold[qa->n_gold++] = document;
    }
}

static void add_question(struct reading *reading, struct dpe_qa_question question)
{
    struct dpe_qa *qa = reading->qa;
    if (make_room(reading, &qa->questions, qa->n_questions, sizeof *qa->questions)) {
        qa->questions[qa->n_questions++] = question;
    }
}

/* --------------------------------------------------------------------------------------- SQuAD */

static void read_answers(struct reading *reading)
{
    bool first = true;
    dpe_json_scan_open(&reading->scan, '[');
    while (element(reading, &first)) {
        struct dpe_json_scan_text key;
        bool first_key = true, found = false;
        dpe_json_scan_open(&reading->scan, '{');
        while (member(reading, &first_key, &key)) {
            if (is(&key, "text")) {
                add_answer(reading, string(reading));
                found = true;
            } else {
                dpe_json_scan_skip(&reading->scan);
            }
        }
        if (!found) {
            lacks(reading, "an answer without \"text\"");
        }
    }
}

/* Read a boolean. */
static bool truth(struct reading *reading)
{
    struct dpe_json_scan *scan = &reading->scan;
    size_t start = scan->at;
    return dpe_json_scan_skip(scan) && memchr(scan->text + start, 't', scan->at - start) != NULL;
}

static void read_squad_question(struct reading *reading, size_t group)
{
    struct dpe_qa *qa = reading->qa;
    struct dpe_qa_question question = {.answers = qa->n_answers, .group = group};
    struct dpe_json_scan_text key;
    bool first = true, impossible = false;
    dpe_json_scan_open(&reading->scan, '{');
    while (member(reading, &first, &key)) {
        if (is(&key, "question")) {
            question.text = string(reading);
        } else if (is(&key, "answers")) {
            read_answers(reading);
        } else if (is(&key, "is_impossible")) {
            impossible = truth(reading);
        } else {
            dpe_json_scan_skip(&reading->scan);
        }
    }
    question.n_answers = qa->n_answers - question.answers;
    question.gold = qa->n_gold;
    question.n_gold = 1;
    if (question.text == NULL) {
        lacks(reading, "a question without \"question\"");
    }
    if (good(reading) && !impossible && question.n_answers == 0) {
        lacks(reading, "an answerable question without \"answers\"");
    }
    if (good(reading) && !impossible) {
        /* The paragraph becomes the next document after its end is read. */
        add_gold(reading, qa->n_documents);
        add_question(reading, question);
    } else {
        qa->n_answers = question.answers;
    }
}

static void read_paragraph(struct reading *reading, size_t group)
{
    struct dpe_json_scan_text key;
    const char *context = NULL;
    bool first = true;
    dpe_json_scan_open(&reading->scan, '{');
    while (member(reading, &first, &key)) {
        if (is(&key, "context")) {
            context = string(reading);
        } else if (is(&key, "qas")) {
            bool first_question = true;
            dpe_json_scan_open(&reading->scan, '[');
            while (element(reading, &first_question)) {
                read_squad_question(reading, group);
            }
        } else {
            dpe_json_scan_skip(&reading->scan);
        }
    }
    if (context == NULL) {
        lacks(reading, "a paragraph without \"context\"");
    } else {
        add_document(reading, stripped(context), group);
    }
}

static void read_articles(struct reading *reading)
{
    struct dpe_json_scan_text key;
    bool first = true;
    dpe_json_scan_open(&reading->scan, '[');
    for (size_t group = 0; element(reading, &first); group++) {
        bool first_key = true;
        dpe_json_scan_open(&reading->scan, '{');
        while (member(reading, &first_key, &key)) {
            if (!is(&key, "paragraphs")) {
                dpe_json_scan_skip(&reading->scan);
                continue;
            }
            bool first_paragraph = true;
            dpe_json_scan_open(&reading->scan, '[');
            while (element(reading, &first_paragraph)) {
                read_paragraph(reading, group);
            }
        }
    }
}

static void read_squad(struct reading *reading)
{
    struct dpe_json_scan_text key;
    bool first = true;
    dpe_json_scan_open(&reading->scan, '{');
    while (member(reading, &first, &key)) {
        if (is(&key, "data")) {
            read_articles(reading);
        } else {
            dpe_json_scan_skip(&reading->scan);
        }
    }
}

/* ------------------------------------------------------------------------------------ HotpotQA */

static void join(struct reading *reading, const char *text, size_t n)
{
    if (good(reading) && text != NULL) {
        dpe_text_put_bytes(&reading->qa->joined, text, n);
        reading->memory = !reading->qa->joined.failed;
    }
}

/* [title, [sentence, …]] as one document. */
static void read_titled(struct reading *reading)
{
    struct dpe_qa *qa = reading->qa;
    bool first = true, first_sentence = true;
    if (!make_room(reading, &reading->joined_at, qa->n_documents, sizeof *reading->joined_at)) {
        return;
    }
    reading->joined_at[qa->n_documents] = qa->joined.n;
    dpe_json_scan_open(&reading->scan, '[');
    if (!element(reading, &first)) {
        lacks(reading, "a paragraph without a title");
    }
    const char *title = string(reading);
    join(reading, title, title != NULL ? strlen(title) : 0);
    join(reading, "\n", 1);
    if (!element(reading, &first)) {
        lacks(reading, "a paragraph without sentences");
    }
    dpe_json_scan_open(&reading->scan, '[');
    while (element(reading, &first_sentence)) {
        const char *sentence = string(reading);
        join(reading, sentence, sentence != NULL ? strlen(sentence) : 0);
    }
    if (element(reading, &first)) {
        lacks(reading, "a paragraph of two parts, title and sentences");
    }
    join(reading, "", 1);
    add_gold(reading, qa->n_documents);
    add_document(reading, "", SIZE_MAX);
}

static void read_hotpot_question(struct reading *reading)
{
    struct dpe_qa *qa = reading->qa;
    struct dpe_qa_question question = {
        .answers = qa->n_answers, .n_answers = 1, .gold = qa->n_gold, .group = SIZE_MAX};
    struct dpe_json_scan_text key;
    bool first = true, first_paragraph = true;
    dpe_json_scan_open(&reading->scan, '{');
    while (member(reading, &first, &key)) {
        if (is(&key, "question")) {
            question.text = string(reading);
        } else if (is(&key, "answer")) {
            add_answer(reading, string(reading));
        } else if (is(&key, "context")) {
            dpe_json_scan_open(&reading->scan, '[');
            while (element(reading, &first_paragraph)) {
                read_titled(reading);
            }
        } else {
            dpe_json_scan_skip(&reading->scan);
        }
    }
    question.n_gold = qa->n_gold - question.gold;
    if (question.text == NULL || qa->n_answers != question.answers + 1 || question.n_gold == 0) {
        lacks(reading, question.text == NULL  ? "a question without \"question\""
                       : question.n_gold == 0 ? "a question without \"context\""
                                              : "a question without one \"answer\"");
    }
    add_question(reading, question);
}

static void read_hotpot(struct reading *reading)
{
    bool first = true;
    dpe_json_scan_open(&reading->scan, '[');
    while (element(reading, &first)) {
        read_hotpot_question(reading);
    }
}

/* -------------------------------------------------------------------------------------- either */

/* Of documents with the same text only the first is kept. */
struct entry {
    const char *text;
    size_t index;
};

static int compare_entries(const void *a, const void *b)
{
    const struct entry *left = a, *right = b;
    int order = strcmp(left->text, right->text);
    return order != 0 ? order : (left->index > right->index) - (left->index < right->index);
}

static dpe_status merge_documents(struct dpe_qa *qa, struct dpe_error *err)
{
    DPE_OWNED struct entry *entries = NULL;
    DPE_OWNED size_t *same = NULL;
    DPE_TRY(
        DPE_NEW(&entries, qa->n_documents, err, "no memory for %zu documents", qa->n_documents));
    DPE_TRY(DPE_NEW(&same, qa->n_documents, err, "no memory for %zu documents", qa->n_documents));
    DPE_TRY(
        DPE_NEW(&qa->cost, qa->n_documents, err, "no memory for %zu documents", qa->n_documents));
    for (size_t i = 0; i < qa->n_documents; i++) {
        entries[i] = (struct entry){qa->documents[i], i};
    }
    qsort(entries, qa->n_documents, sizeof *entries, compare_entries);
    for (size_t i = 0; i < qa->n_documents; i++) {
        bool again = i > 0 && strcmp(entries[i].text, entries[i - 1].text) == 0;
        same[entries[i].index] = again ? same[entries[i - 1].index] : entries[i].index;
    }
    size_t kept = 0;
    for (size_t i = 0; i < qa->n_documents; i++) {
        if (same[i] == i) {
            qa->documents[kept] = qa->documents[i];
            qa->group[kept] = qa->group[i];
            same[i] = kept++;
        } else {
            same[i] = same[same[i]];
        }
    }
    for (size_t i = 0; i < qa->n_gold; i++) {
        qa->gold[i] = same[qa->gold[i]];
    }
    qa->n_documents = kept;
    return DPE_OK;
}

static dpe_status finish(struct reading *reading, struct dpe_error *err)
{
    const struct dpe_json_scan *scan = &reading->scan;
    struct dpe_qa *qa = reading->qa;
    if (!reading->memory) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s: no memory for its questions", reading->path);
    }
    if (reading->lacks != NULL) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: byte %zu: found %s", reading->path, scan->at + 1,
                        reading->lacks);
    }
    if (scan->problem != NULL) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: byte %zu: %s", reading->path, scan->at + 1,
                        scan->problem);
    }
    if (qa->n_questions == 0) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected questions with answers, found none",
                        reading->path);
    }
    for (size_t i = 0; reading->joined_at != NULL && i < qa->n_documents; i++) {
        qa->documents[i] = stripped(qa->joined.bytes + reading->joined_at[i]);
    }
    return merge_documents(qa, err);
}

dpe_status dpe_qa_read(const char *path, enum dpe_qa_set set, struct dpe_qa *qa,
                       struct dpe_error *err)
{
    DPE_SCOPED(dpe_qa_free) struct dpe_qa made = {0};
    struct reading reading = {.path = path, .qa = &made};
    size_t n = 0;
    *qa = made;
    DPE_TRY(dpe_read_file(path, max_file_bytes, &made.bytes, &n, err));
    size_t valid = dpe_utf8_check(made.bytes, n);
    if (valid < n) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: byte %zu: expected UTF-8", path, valid + 1);
    }
    made.path = strdup(path);
    reading.memory =
        made.path != NULL && dpe_sha256_bytes(made.bytes, n, made.hash, NULL) == DPE_OK;
    reading.scan = (struct dpe_json_scan){.text = made.bytes, .n = n};
    set == DPE_QA_SQUAD ? read_squad(&reading) : read_hotpot(&reading);
    if (good(&reading)) {
        dpe_json_scan_end(&reading.scan);
    }
    const dpe_status status = finish(&reading, err);
    free(reading.joined_at);
    DPE_TRY(status);
    *qa = made;
    made = (struct dpe_qa){0};
    return DPE_OK;
}

void dpe_qa_free(struct dpe_qa *qa)
{
    free(qa->path);
    free(qa->bytes);
    dpe_text_free(&qa->joined);
    free(qa->documents);
    free(qa->group);
    free(qa->cost);
    free(qa->answers);
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
        for (size_t d = 0; d < qa->n_documents; d++) {
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
    size_t end = qa->n_documents;
    bool near = asked->group != SIZE_MAX && qa->group[draw->unit[at]] == asked->group;
    if (near) {
        end = at;
        while (end < qa->n_documents && qa->group[draw->unit[end]] == asked->group) {
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
    dpe_phrases_put(&draw->ruler->words, RULER_QA_DOCUMENT, values, text);
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
    if (qa->n_questions == 0) {
        return dpe_fail(err, DPE_USAGE, "ruler: %s needs documents with questions: give %s",
                        draw->kind->name,
                        draw->kind->dataset == 0 ? "--squad FILE" : "--hotpotqa FILE");
    }
    DPE_TRY(DPE_NEW(&draw->unit, qa->n_documents, err, "ruler: no memory for a sample"));
    DPE_TRY(DPE_NEW(&draw->pick,
                    qa->n_documents > qa->n_questions ? qa->n_documents : qa->n_questions, err,
                    "ruler: no memory for a sample"));
    DPE_TRY(DPE_NEW(&draw->cost, qa->n_documents + 1, err, "ruler: no memory for a sample"));
    const struct dpe_qa_question *asked = question(draw, draw->pick);
    double frame = 0.0;
    DPE_TRY(count_frame(draw, &frame, err));
    order_documents(draw, asked, draw->unit);
    size_t n = 0;
    while (n < qa->n_documents && (n < asked->n_gold || draw->cost[n] < (double)draw->length)) {
        if (n >= asked->n_gold) {
            draw_document(draw, asked, n);
        }
        draw->cost[n + 1] = draw->cost[n] + qa->cost[draw->unit[n]] + frame;
        n++;
    }
    draw->min_units = (int64_t)(asked->n_gold < n ? asked->n_gold : n);
    draw->max_units = (int64_t)n;
    draw->file = n == qa->n_documents ? qa->path : NULL;
    draw->question = asked->text;
    for (size_t i = 0; i < asked->n_answers; i++) {
        DPE_TRY(dpe_ruler_refer(draw, qa->answers[asked->answers + i], err));
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
    dpe_text_put(text, "%s", words->text[RULER_QA_INTRO]);
    for (size_t i = 0; i < (size_t)n; i++) {
        put_document(draw, i + 1, data(draw)->documents[draw->pick[i]], text);
    }
    dpe_phrases_put(words, RULER_QA_QUESTION, values, text);
    dpe_text_put(answer, "%s", words->text[RULER_QA_ANSWER]);
}

const struct dpe_ruler_maker dpe_ruler_qa = {qa_draw, qa_cost, qa_compose};
