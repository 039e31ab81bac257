/* RULER v2's questions of HotpotQA among documents of HotpotQA. */
#include "eval/ruler/ruler2_parts.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- reading */

/* A paragraph of a line: of the hub's columns {"title": […], "sentences": [[…], …]}, or of its
 * authors' lists [[title, [sentence, …]], …]. */
static bool paragraph(const json_t *context, size_t i, const char **title, const json_t **sentences)
{
    const json_t *pair = json_array_get(context, i);
    const bool lists = json_is_array(context);
    *title = json_string_value(lists ? json_array_get(pair, 0)
                                     : json_array_get(json_object_get(context, "title"), i));
    *sentences =
        lists ? json_array_get(pair, 1) : json_array_get(json_object_get(context, "sentences"), i);
    return *title != NULL && json_is_array(*sentences);
}

static size_t n_paragraphs(const json_t *context)
{
    return json_array_size(json_is_array(context) ? context : json_object_get(context, "title"));
}

/* Title and sentences as the last text of `texts`. */
static dpe_status add_document(struct dpe_ruler2_texts *texts, const char *title,
                               const json_t *sentences, struct dpe_error *err)
{
    dpe_text_put(&texts->text, "%s\n", title);
    for (size_t s = 0; s < json_array_size(sentences); s++) {
        const char *sentence = json_string_value(json_array_get(sentences, s));
        if (sentence == NULL) {
            return DPE_BAD_DATA;
        }
        dpe_text_put_bytes(&texts->text, sentence, strlen(sentence));
    }
    dpe_ruler2_texts_end(texts);
    return dpe_text_done(&texts->text, err);
}

static const char wanted[] = "\"question\", \"answer\", \"context\" and \"supporting_facts\" of at "
                             "least one paragraph, as the hub's hotpotqa/hotpot_qa has them";

/* The slot of a text: where it is, or where it goes. Slots hold 1 + its number. */
static size_t *slot_of(struct dpe_ruler2_documents *d, const char *text)
{
    size_t at = (size_t)dpe_fnv(DPE_FNV, text, strlen(text)) & (d->slots - 1);
    while (d->table[at] != 0 && strcmp(dpe_ruler2_text(&d->around, d->table[at] - 1), text) != 0) {
        at = (at + 1) & (d->slots - 1);
    }
    return &d->table[at];
}

static dpe_status grow_table(struct dpe_ruler2_documents *d, struct dpe_error *err)
{
    if (2 * (d->around.n + 1) <= d->slots) {
        return DPE_OK;
    }
    free(d->table);
    d->slots = d->slots == 0 ? 1024 : 2 * d->slots;
    DPE_TRY(DPE_NEW(&d->table, d->slots, err, "out of memory for %zu documents", d->around.n));
    for (size_t i = 0; i < d->around.n; i++) {
        *slot_of(d, dpe_ruler2_text(&d->around, i)) = i + 1;
    }
    return DPE_OK;
}

/* The paragraphs of a line, each text once. */
static dpe_status read_around(void *user, const json_t *line, const char **expected,
                              struct dpe_error *err)
{
    struct dpe_ruler2_documents *d = user;
    const json_t *context = json_object_get(line, "context");
    *expected = wanted;
    for (size_t i = 0; i < n_paragraphs(context); i++) {
        const char *title = NULL;
        const json_t *sentences = NULL;
        DPE_TRY(grow_table(d, err));
        if (!paragraph(context, i, &title, &sentences)) {
            return DPE_BAD_DATA;
        }
        DPE_TRY(add_document(&d->around, title, sentences, err));
        const size_t last = d->around.n - 1;
        size_t *slot = slot_of(d, dpe_ruler2_text(&d->around, last));
        if (*slot != 0) {
            d->around.text.n = d->around.at[last];
            d->around.n = last;
        } else {
            *slot = last + 1;
        }
    }
    return n_paragraphs(context) == 0 ? DPE_BAD_DATA : DPE_OK;
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
static dpe_status add_own(struct dpe_ruler2_documents *d, const json_t *line, bool gold,
                          struct dpe_error *err)
{
    const json_t *context = json_object_get(line, "context");
    const json_t *facts = json_object_get(line, "supporting_facts");
    for (size_t i = 0; i < n_paragraphs(context); i++) {
        const char *title = NULL;
        const json_t *sentences = NULL;
        if (!paragraph(context, i, &title, &sentences)) {
            return DPE_BAD_DATA;
        }
        if (supports(facts, title) == gold) {
            DPE_TRY(add_document(&d->own, title, sentences, err));
        }
    }
    return DPE_OK;
}

static dpe_status read_question(void *user, const json_t *line, const char **expected,
                                struct dpe_error *err)
{
    struct dpe_ruler2_documents *d = user;
    const char *question = json_string_value(json_object_get(line, "question"));
    const char *answer = json_string_value(json_object_get(line, "answer"));
    const size_t first = d->own.n;
    *expected = wanted;
    if (question == NULL || answer == NULL) {
        return DPE_BAD_DATA;
    }
    DPE_TRY(DPE_ROOM(&d->of, d->asked.n, err, "out of memory for %zu questions", d->asked.n));
    DPE_TRY(add_own(d, line, true, err));
    const size_t gold = d->own.n - first;
    if (gold == 0) {
        return DPE_BAD_DATA;
    }
    DPE_TRY(add_own(d, line, false, err));
    d->of[d->asked.n] = (struct dpe_ruler2_own){first, d->own.n - first, gold};
    dpe_text_put(&d->asked.text, "%s", question);
    dpe_ruler2_texts_end(&d->asked);
    DPE_TRY(dpe_text_done(&d->asked.text, err));
    dpe_text_put(&d->answers.text, "%s", answer);
    dpe_ruler2_texts_end(&d->answers);
    return dpe_text_done(&d->answers.text, err);
}

dpe_status dpe_ruler2_load_documents(struct dpe_ruler2 *ruler2, struct dpe_error *err)
{
    struct dpe_ruler2_documents *d = &ruler2->documents;
    if (d->around.n == 0) {
        DPE_TRY(
            dpe_ruler2_lines(ruler2->options.folder, "hotpotqa/train.jsonl", read_around, d, err));
    }
    if (d->asked.n == 0) {
        DPE_TRY(dpe_ruler2_lines(ruler2->options.folder, "hotpotqa/validation.jsonl", read_question,
                                 d, err));
    }
    return DPE_OK;
}

int64_t dpe_ruler2_count_documents(const struct dpe_ruler2 *ruler2)
{
    return (int64_t)ruler2->documents.asked.n;
}

/* ------------------------------------------------------------------------------------- drawing */

/* A document in a prompt. */
struct placed {
    const char *text;
    uint64_t number;
};

/* What one prompt is made of. */
struct scene {
    size_t index, n;           /* the question; documents around */
    struct dpe_ruler2_own own; /* its own */
    struct placed *placed;     /* [n + own.n]: around, then its own */
    size_t *chosen, *order;    /* [n], [n + own.n] */
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
    scene->index = index;
    scene->n = n;
    scene->own = d->of[index];
    DPE_TRY(DPE_NEW(&scene->placed, n + scene->own.n, err, "out of memory for %zu documents", n));
    DPE_TRY(DPE_NEW(&scene->chosen, n, err, "out of memory for %zu documents", n));
    return DPE_NEW(&scene->order, n + scene->own.n, err, "out of memory for %zu documents", n);
}

/* How many texts the question's own documents have. */
static size_t distinct(const struct dpe_ruler2_documents *d, const struct scene *scene)
{
    size_t n = 0;
    for (size_t i = 0; i < scene->own.n; i++) {
        const char *text = dpe_ruler2_text(&d->own, scene->own.first + i);
        size_t before = 0;
        while (before < i &&
               strcmp(text, dpe_ruler2_text(&d->own, scene->own.first + before)) != 0) {
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
    const size_t own = distinct(d, scene);
    const size_t n = scene->n;
    if (d->around.n <= own) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s/hotpotqa/train.jsonl: expected more documents than the %zu of a "
                        "question, found %zu",
                        draw->ruler2->options.folder, own, d->around.n);
    }
    const size_t rest = d->around.n - own;
    const size_t repeats = n > rest ? (n + rest - 1) / rest : 1;
    for (size_t i = 0; i < scene->own.n; i++) {
        scene->placed[n + i] = (struct placed){dpe_ruler2_text(&d->own, scene->own.first + i),
                                               dpe_ruler2_number(&draw->random)};
    }
    if (!dpe_python_sample(&draw->random, d->around.n * repeats, scene->chosen, n)) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for %zu documents", n);
    }
    for (size_t i = 0; i < n; i++) {
        scene->placed[i] = (struct placed){dpe_ruler2_text(&d->around, scene->chosen[i] / repeats),
                                           dpe_ruler2_number(&draw->random)};
    }
    dpe_python_shuffle(&draw->random, scene->order, n + scene->own.n);
    return DPE_OK;
}

static void write_prompt(const struct dpe_ruler2_draw *draw, const struct scene *scene,
                         struct dpe_text *out)
{
    const struct dpe_ruler2_documents *d = &draw->ruler2->documents;
    const struct dpe_phrase_value none[] = {{NULL, NULL}};
    const struct dpe_phrase_value asked[] = {{"question", dpe_ruler2_text(&d->asked, scene->index)},
                                             {"text", scene->placed[scene->n].text},
                                             {NULL, NULL}};
    dpe_ruler2_say(draw, draw->task->intro, none, out);
    for (size_t i = 0; i < scene->n + scene->own.n; i++) {
        const struct placed *placed = &scene->placed[scene->order[i]];
        char number[DPE_RULER2_NUMBER];
        const struct dpe_phrase_value values[] = {
            {"number", dpe_ruler2_number_text(placed->number, number)},
            {"text", placed->text},
            {NULL, NULL}};
        dpe_text_put_bytes(out, "\n\n", 2);
        dpe_ruler2_say(draw, DPE_RULER2_DOCUMENT, values, out);
    }
    dpe_text_put_bytes(out, "\n\n", 2);
    dpe_ruler2_say(draw, draw->task->problem, asked, out);
}

static void put_answers(const struct dpe_ruler2_draw *draw, const struct scene *scene,
                        struct dpe_ruler2_sample *sample)
{
    const size_t numbers = draw->task->answer == DPE_RULER2_TEXTS ? scene->own.gold : 1;
    if (draw->task->answer == DPE_RULER2_LETTER) {
        dpe_ruler2_answer(sample, dpe_ruler2_text(&draw->ruler2->documents.answers, scene->index));
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
