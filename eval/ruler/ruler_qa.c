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
    const char *title; /* SQuAD in rows: of the article at hand, and its number */
    size_t article;
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

/* The next character that is no white space, '\0' at the end of the file and after a failure. */
static char peek(struct reading *reading)
{
    return good(reading) ? dpe_json_scan_peek(&reading->scan) : '\0';
}

/* The elements of a list, or one after another, as the hub's files have them: a row a line. */
static void read_rows(struct reading *reading, void (*read)(struct reading *reading))
{
    bool first = true;
    if (peek(reading) == '{') {
        while (peek(reading) != '\0') {
            read(reading);
        }
        return;
    }
    dpe_json_scan_open(&reading->scan, '[');
    while (element(reading, &first)) {
        read(reading);
    }
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

/* {"text": an answer, …}, or a list of them there, as the hub's rows have it. */
static void read_answer(struct reading *reading)
{
    struct dpe_json_scan_text key;
    bool first = true, first_text = true, found = false;
    dpe_json_scan_open(&reading->scan, '{');
    while (member(reading, &first, &key)) {
        if (!dpe_json_scan_is(&key, "text")) {
            dpe_json_scan_skip(&reading->scan);
            continue;
        }
        found = true;
        if (peek(reading) != '[') {
            add_answer(reading, string(reading));
            continue;
        }
        dpe_json_scan_open(&reading->scan, '[');
        while (element(reading, &first_text)) {
            add_answer(reading, string(reading));
        }
    }
    if (!found) {
        lacks(reading, "an answer without \"text\"");
    }
}

static void read_answers(struct reading *reading)
{
    bool first = true;
    if (peek(reading) == '{') {
        read_answer(reading);
        return;
    }
    dpe_json_scan_open(&reading->scan, '[');
    while (element(reading, &first)) {
        read_answer(reading);
    }
}

/* Read a boolean. */
static bool truth(struct reading *reading)
{
    struct dpe_json_scan *scan = &reading->scan;
    size_t start = scan->at;
    return dpe_json_scan_skip(scan) && memchr(scan->text + start, 't', scan->at - start) != NULL;
}

static void read_articles(struct reading *reading);

/* A question; with `row` one of the hub's, which brings its paragraph and the title of its article,
 * or the whole file of the authors, which has "data". */
static void read_squad_question(struct reading *reading, size_t group, bool row)
{
    struct dpe_qa *qa = reading->qa;
    struct dpe_qa_question question = {.answers = qa->n_answers};
    struct dpe_json_scan_text key;
    const char *context = NULL;
    const char *title = "";
    bool first = true, impossible = false, whole = false;
    dpe_json_scan_open(&reading->scan, '{');
    while (member(reading, &first, &key)) {
        if (row && dpe_json_scan_is(&key, "data")) {
            read_articles(reading);
            whole = true;
        } else if (row && dpe_json_scan_is(&key, "context")) {
            context = string(reading);
        } else if (row && dpe_json_scan_is(&key, "title")) {
            title = string(reading);
        } else if (dpe_json_scan_is(&key, "question")) {
            question.text = string(reading);
        } else if (dpe_json_scan_is(&key, "answers")) {
            read_answers(reading);
        } else if (dpe_json_scan_is(&key, "is_impossible")) {
            impossible = truth(reading);
        } else {
            dpe_json_scan_skip(&reading->scan);
        }
    }
    if (whole) {
        return;
    }
    if (row && good(reading)) {
        bool same = reading->title != NULL && title != NULL && strcmp(reading->title, title) == 0;
        reading->title = title;
        reading->article += !same;
        group = reading->article;
        impossible = impossible || qa->n_answers == question.answers;
        if (context == NULL) {
            lacks(reading, "a row without \"context\"");
        }
    }
    question.group = group;
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
    if (row && good(reading)) {
        add_document(reading, stripped(context), group);
    }
}

static void read_paragraph(struct reading *reading, size_t group)
{
    struct dpe_json_scan_text key;
    const char *context = NULL;
    bool first = true;
    dpe_json_scan_open(&reading->scan, '{');
    while (member(reading, &first, &key)) {
        if (dpe_json_scan_is(&key, "context")) {
            context = string(reading);
        } else if (dpe_json_scan_is(&key, "qas")) {
            bool first_question = true;
            dpe_json_scan_open(&reading->scan, '[');
            while (element(reading, &first_question)) {
                read_squad_question(reading, group, false);
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
            if (!dpe_json_scan_is(&key, "paragraphs")) {
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

static void read_squad_row(struct reading *reading)
{
    read_squad_question(reading, 0, true);
}

/* ------------------------------------------------------------------------------------ HotpotQA */

static void join(struct reading *reading, const char *text, size_t n)
{
    if (good(reading) && text != NULL) {
        dpe_text_put_bytes(&reading->qa->joined, text, n);
        reading->memory = !reading->qa->joined.failed;
    }
}

/* A document begins with its title, which is read from `titles`, where that is not NULL. */
static void begin_document(struct reading *reading, struct dpe_json_scan *titles)
{
    struct dpe_qa *qa = reading->qa;
    if (!make_room(reading, &reading->joined_at, qa->n_documents, sizeof *reading->joined_at)) {
        return;
    }
    reading->joined_at[qa->n_documents] = qa->joined.n;
    struct dpe_json_scan_text title = {0};
    if (dpe_json_scan_string(titles != NULL ? titles : &reading->scan, &title)) {
        join(reading, title.bytes, strlen(title.bytes));
    }
    join(reading, "\n", 1);
}

/* The list of sentences, and the document's end. */
static void end_document(struct reading *reading)
{
    bool first = true;
    dpe_json_scan_open(&reading->scan, '[');
    while (element(reading, &first)) {
        const char *sentence = string(reading);
        join(reading, sentence, sentence != NULL ? strlen(sentence) : 0);
    }
    join(reading, "", 1);
    add_gold(reading, reading->qa->n_documents);
    add_document(reading, "", SIZE_MAX);
}

/* [title, [sentence, …]] as one document. */
static void read_titled(struct reading *reading)
{
    bool first = true;
    dpe_json_scan_open(&reading->scan, '[');
    if (!element(reading, &first)) {
        lacks(reading, "a paragraph without a title");
    }
    begin_document(reading, NULL);
    if (!element(reading, &first)) {
        lacks(reading, "a paragraph without sentences");
    }
    end_document(reading);
    if (element(reading, &first)) {
        lacks(reading, "a paragraph of two parts, title and sentences");
    }
}

/* Passes over a list without a change to its texts, which are decoded where they stand. */
static void pass_list(struct reading *reading)
{
    struct dpe_json_scan *scan = &reading->scan;
    int64_t depth = peek(reading) == '[' ? 0 : -1; /* below 0: no list */
    do {
        char c = scan->at < scan->n ? scan->text[scan->at++] : '\0';
        depth += c == '[' ? 1 : c == ']' ? -1 : 0;
        if (c == '"') {
            while (scan->at < scan->n && scan->text[scan->at] != '"') {
                scan->at += scan->text[scan->at] == '\\' ? 2 : 1;
            }
            scan->at++;
        }
    } while (depth > 0 && scan->at < scan->n);
    if (depth != 0) {
        lacks(reading, "no list of titles or of sentences");
    }
}

/* {"title": [title, …], "sentences": [[sentence, …], …]}, as the hub's rows have them: both lists
 * are read at once, from where they begin. */
static void read_columns(struct reading *reading)
{
    struct dpe_json_scan titles = {0}, rest = {0};
    struct dpe_json_scan_text key;
    size_t sentences = 0;
    bool first = true, first_title = true;
    dpe_json_scan_open(&reading->scan, '{');
    while (member(reading, &first, &key)) {
        bool title = dpe_json_scan_is(&key, "title");
        titles = title ? reading->scan : titles;
        sentences = dpe_json_scan_is(&key, "sentences") ? reading->scan.at : sentences;
        if (title || dpe_json_scan_is(&key, "sentences")) {
            pass_list(reading);
        } else {
            dpe_json_scan_skip(&reading->scan);
        }
    }
    if (!good(reading) || titles.text == NULL || sentences == 0) {
        lacks(reading, "a context without \"title\" and \"sentences\"");
        return;
    }
    rest = reading->scan;
    reading->scan.at = sentences;
    first = true;
    dpe_json_scan_open(&titles, '[');
    dpe_json_scan_open(&reading->scan, '[');
    while (element(reading, &first)) {
        if (!dpe_json_scan_element(&titles, &first_title)) {
            lacks(reading, "more lists of sentences than titles");
        }
        begin_document(reading, &titles);
        end_document(reading);
    }
    if (good(reading) && (dpe_json_scan_element(&titles, &first_title) || titles.problem != NULL)) {
        lacks(reading, titles.problem != NULL ? "a title that is no text"
                                              : "more titles than lists of sentences");
    }
    rest.problem = reading->scan.problem;
    reading->scan = rest;
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
        if (dpe_json_scan_is(&key, "question")) {
            question.text = string(reading);
        } else if (dpe_json_scan_is(&key, "answer")) {
            add_answer(reading, string(reading));
        } else if (dpe_json_scan_is(&key, "context") && peek(reading) == '{') {
            read_columns(reading);
        } else if (dpe_json_scan_is(&key, "context")) {
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
    read_rows(&reading, set == DPE_QA_SQUAD ? read_squad_row : read_hotpot_question);
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
