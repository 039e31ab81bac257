/* RULER v2's questions of HotpotQA among documents of HotpotQA. */
#include "eval/ruler/ruler2_parts.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- reading */

static const char wanted[] = "\"question\", \"answer\", \"context\" and \"supporting_facts\" of at "
                             "least one paragraph, as the hub's hotpotqa/hotpot_qa has them";

/* A paragraph as a text, and its title. */
static dpe_status put_paragraph(const json_t *context, size_t i, const char **title,
                                struct dpe_text *text, struct dpe_error *err)
{
    const json_t *sentences = NULL;
    text->n = 0;
    return dpe_hotpotqa_paragraph(context, i, title, &sentences) &&
                   dpe_hotpotqa_put(*title, sentences, text)
               ? dpe_text_done(text, err)
               : DPE_BAD_DATA;
}

/* The paragraphs of a line, each text once. */
static dpe_status read_around(void *user, const json_t *line, const char **expected,
                              struct dpe_error *err)
{
    struct dpe_ruler2_documents *d = user;
    const json_t *context = json_object_get(line, "context");
    const size_t n = dpe_hotpotqa_paragraphs(context);
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    const char *title = NULL;
    size_t number = 0;
    *expected = wanted;
    for (size_t i = 0; i < n; i++) {
        DPE_TRY(put_paragraph(context, i, &title, &text, err));
        DPE_TRY(dpe_texts_add(&d->around, text.bytes, &number, err));
    }
    return n == 0 ? DPE_BAD_DATA : DPE_OK;
}

/* Whether a title is among the supporting facts: the hub's {"title": […]}, or [[title, n], …]. */
static bool supports(const json_t *facts, const char *title)
{
    const bool lists = json_is_array(facts);
    const json_t *titles = lists ? facts : json_object_get(facts, "title");
    bool found = false;
    for (size_t i = 0; i < json_array_size(titles) && !found; i++) {
        const json_t *one = json_array_get(titles, i);
        const char *name = json_string_value(lists ? json_array_get(one, 0) : one);
        found = name != NULL && strcmp(name, title) == 0;
    }
    return found;
}

/* The paragraphs that support the question, or the others. */
static dpe_status add_own(json_t *own, const json_t *line, bool gold, struct dpe_error *err)
{
    const json_t *context = json_object_get(line, "context");
    const json_t *facts = json_object_get(line, "supporting_facts");
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    const char *title = NULL;
    for (size_t i = 0; i < dpe_hotpotqa_paragraphs(context); i++) {
        DPE_TRY(put_paragraph(context, i, &title, &text, err));
        if (supports(facts, title) == gold &&
            json_array_append_new(own, json_string(text.bytes)) != 0) {
            return dpe_fail(err, DPE_NO_MEMORY, "out of memory for a document");
        }
    }
    return DPE_OK;
}

static dpe_status read_question(void *user, const json_t *line, const char **expected,
                                struct dpe_error *err)
{
    struct dpe_ruler2_documents *d = user;
    struct dpe_ruler2_question question = {.asked = json_object_get(line, "question"),
                                           .answer = json_object_get(line, "answer")};
    json_auto_t *own = json_array();
    *expected = wanted;
    if (!json_is_string(question.asked) || !json_is_string(question.answer)) {
        return DPE_BAD_DATA;
    }
    DPE_TRY(DPE_ROOM(&d->questions, d->n, err, "out of memory for %zu questions", d->n));
    DPE_TRY(add_own(own, line, true, err));
    question.gold = json_array_size(own);
    if (question.gold == 0) {
        return DPE_BAD_DATA;
    }
    DPE_TRY(add_own(own, line, false, err));
    question.own = json_incref(own);
    json_incref(question.asked);
    json_incref(question.answer);
    d->questions[d->n++] = question;
    return DPE_OK;
}

dpe_status dpe_ruler2_load_documents(struct dpe_ruler2 *ruler2, const char *const *files,
                                     int64_t *n, struct dpe_error *err)
{
    struct dpe_ruler2_documents *d = &ruler2->documents;
    if (d->around.n == 0) {
        DPE_TRY(dpe_ruler2_lines(ruler2->options.folder, files[1], read_around, d, err));
    }
    if (d->n == 0) {
        DPE_TRY(dpe_ruler2_lines(ruler2->options.folder, files[0], read_question, d, err));
    }
    *n = (int64_t)d->n;
    return DPE_OK;
}

/* ------------------------------------------------------------------------------------- drawing */

/* A document in a prompt. */
struct placed {
    const char *text;
    uint64_t number;
};

/* What one prompt is made of. */
struct scene {
    const struct dpe_ruler2_question *question;
    size_t n, own;          /* documents around, and its own */
    struct placed *placed;  /* [n + own]: around, then its own */
    size_t *chosen, *order; /* [n], [n + own] */
};

static void free_scene(struct scene *scene)
{
    free(scene->placed);
    free(scene->chosen);
    free(scene->order);
}

static dpe_status open_scene(const struct dpe_ruler2_documents *d, size_t index, size_t n,
                             struct scene *scene, struct dpe_error *err)
{
    scene->question = &d->questions[index];
    scene->n = n;
    scene->own = json_array_size(scene->question->own);
    DPE_TRY(DPE_NEW(&scene->placed, n + scene->own, err, "out of memory for %zu documents", n));
    DPE_TRY(DPE_NEW(&scene->chosen, n, err, "out of memory for %zu documents", n));
    return DPE_NEW(&scene->order, n + scene->own, err, "out of memory for %zu documents", n);
}

/* How many texts the question's own documents have. */
static size_t distinct(const struct scene *scene)
{
    const json_t *own = scene->question->own;
    size_t n = 0;
    for (size_t i = 0; i < scene->own; i++) {
        size_t before = 0;
        while (before < i && strcmp(dpe_ruler2_text(own, i), dpe_ruler2_text(own, before)) != 0) {
            before++;
        }
        n += before == i;
    }
    return n;
}

/* Every draw is made in the order of the original. */
static dpe_status set_scene(struct dpe_ruler2_draw *draw, struct scene *scene,
                            struct dpe_error *err)
{
    const struct dpe_ruler2_documents *d = &draw->ruler2->documents;
    const size_t own = distinct(scene);
    const size_t n = scene->n;
    if (d->around.n <= own) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s/hotpotqa/train.jsonl: expected more documents than the %zu of a "
                        "question, found %zu",
                        draw->ruler2->options.folder, own, d->around.n);
    }
    const size_t rest = d->around.n - own;
    const size_t repeats = n > rest ? (n + rest - 1) / rest : 1;
    for (size_t i = 0; i < scene->own; i++) {
        scene->placed[n + i] = (struct placed){dpe_ruler2_text(scene->question->own, i),
                                               dpe_ruler2_number(&draw->random)};
    }
    if (!dpe_python_sample(&draw->random, d->around.n * repeats, scene->chosen, n)) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for %zu documents", n);
    }
    for (size_t i = 0; i < n; i++) {
        scene->placed[i] = (struct placed){d->around.at[scene->chosen[i] / repeats],
                                           dpe_ruler2_number(&draw->random)};
    }
    dpe_python_shuffle(&draw->random, scene->order, n + scene->own);
    return DPE_OK;
}

static void write_prompt(const struct dpe_ruler2_draw *draw, const struct scene *scene,
                         struct dpe_text *out)
{
    const struct dpe_phrase_value none[] = {{NULL, NULL}};
    const struct dpe_phrase_value asked[] = {
        {"question", json_string_value(scene->question->asked)},
        {"text", scene->placed[scene->n].text},
        {NULL, NULL}};
    dpe_ruler2_say(draw, draw->task->intro, none, out);
    for (size_t i = 0; i < scene->n + scene->own; i++) {
        const struct placed *placed = &scene->placed[scene->order[i]];
        char number[DPE_RULER2_NUMBER];
        const struct dpe_phrase_value values[] = {
            {"number", dpe_ruler2_number_text(placed->number, number)},
            {"text", placed->text},
            {NULL, NULL}};
        dpe_text_put_bytes(out, "\n\n", 2);
        dpe_ruler2_say(draw, "document", values, out);
    }
    dpe_text_put_bytes(out, "\n\n", 2);
    dpe_ruler2_say(draw, draw->task->problem, asked, out);
}

static void put_answers(const struct dpe_ruler2_draw *draw, const struct scene *scene,
                        struct dpe_ruler2_sample *sample)
{
    const size_t numbers = draw->task->answer == DPE_RULER2_TEXTS ? scene->question->gold : 1;
    if (draw->task->answer == DPE_RULER2_LETTER) {
        dpe_ruler2_answer(sample, json_string_value(scene->question->answer));
        return;
    }
    for (size_t i = 0; i < numbers; i++) {
        char number[DPE_RULER2_NUMBER];
        dpe_ruler2_answer(sample,
                          dpe_ruler2_number_text(scene->placed[scene->n + i].number, number));
    }
}

dpe_status dpe_ruler2_make_documents(struct dpe_ruler2_draw *draw, size_t index, size_t n,
                                     struct dpe_ruler2_sample *sample, struct dpe_error *err)
{
    DPE_SCOPED(free_scene) struct scene scene = {0};
    DPE_TRY(open_scene(&draw->ruler2->documents, index, n, &scene, err));
    DPE_TRY(set_scene(draw, &scene, err));
    write_prompt(draw, &scene, &sample->prompt);
    put_answers(draw, &scene, sample);
    return DPE_OK;
}
