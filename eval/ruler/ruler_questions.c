/* RULER's questions: a gold document among others. */
#include <stdio.h>
#include <string.h>

#include "eval/ruler/ruler.h"

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
