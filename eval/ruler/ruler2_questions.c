/* RULER v2's questions of MMLU among questions of MMLU. */
#include "eval/ruler/ruler2_parts.h"

#include <stdlib.h>
#include <string.h>

#include "eval/score/pytext.h"

enum { CHOICES = 4 };

/* ------------------------------------------------------------------------------------- reading */

/* Put with every stretch of white space as one space, as a sub of \s+ does. */
static void put_spaced(struct dpe_text *out, const char *text, size_t n)
{
    const char *end = text + n;
    while (text < end) {
        const char *from = text;
        while (text < end && dpe_py_space(text, end) == 0) {
            text++;
        }
        dpe_text_put_bytes(out, from, (size_t)(text - from));
        if (text < end) {
            dpe_text_put_bytes(out, " ", 1);
        }
        while (text < end && dpe_py_space(text, end) > 0) {
            text += dpe_py_space(text, end);
        }
    }
}

/* {"question": …, "choices": [four texts], "answer": 0 … 3}, as one text. */
static dpe_status read_question(void *user, const json_t *line, const char **expected,
                                struct dpe_error *err)
{
    json_t *const *to = user;
    DPE_SCOPED(dpe_text_free) struct dpe_text raw = {0};
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    const json_t *choices = json_object_get(line, "choices");
    const json_t *answer = json_object_get(line, "answer");
    const char *question = json_string_value(json_object_get(line, "question"));
    const json_int_t right = json_is_integer(answer) ? json_integer_value(answer) : -1;
    *expected =
        "\"question\", four \"choices\" and an \"answer\" of 0 to 3, as the hub's cais/mmlu "
        "has them";
    if (question == NULL || json_array_size(choices) != CHOICES || right < 0 || right >= CHOICES) {
        return DPE_BAD_DATA;
    }
    dpe_text_put(&raw, "%s", question);
    for (int c = 0; c < CHOICES; c++) {
        const char *choice = json_string_value(json_array_get(choices, (size_t)c));
        if (choice == NULL) {
            return DPE_BAD_DATA;
        }
        dpe_text_put(&raw, "\n%c. %s", 'A' + c, choice);
    }
    DPE_TRY(dpe_text_done(&raw, err));
    put_spaced(&text, raw.bytes, raw.n);
    DPE_TRY(dpe_text_done(&text, err));
    return json_array_append_new(to[0], json_string(text.bytes)) == 0 &&
                   json_array_append_new(to[1], json_sprintf("%c", 'A' + (int)right)) == 0
               ? DPE_OK
               : dpe_fail(err, DPE_NO_MEMORY, "out of memory for a question");
}

dpe_status dpe_ruler2_load_questions(struct dpe_ruler2 *ruler2, const char *const *files,
                                     int64_t *n, struct dpe_error *err)
{
    struct dpe_ruler2_questions *questions = &ruler2->questions;
    for (int i = 0; i < 2; i++) {
        json_auto_t *texts = json_array();
        json_auto_t *letters = json_array();
        json_t *to[] = {texts, letters};
        if (questions->texts[i] == NULL) {
            DPE_TRY(dpe_ruler2_lines(ruler2->options.folder, files[i], read_question, to, err));
            questions->texts[i] = json_incref(texts);
            questions->letters[i] = json_incref(letters);
        }
    }
    *n = (int64_t)json_array_size(questions->texts[0]);
    return DPE_OK;
}

/* ------------------------------------------------------------------------------------- drawing */

/* A question in a prompt. */
struct placed {
    const char *text, *letter;
    uint64_t number;
};

/* What one prompt is made of. */
struct scene {
    struct placed *placed;        /* [n + 1], with the one that is asked for */
    struct placed examples[8];    /* [task->examples] */
    size_t n, asked;              /* things around; the place of the one asked for */
    size_t *chosen, *order;       /* [n] scratch */
    uint64_t *numbers, *shuffled; /* [n + 1], and more where several have one */
    size_t n_numbers;
};

static void free_scene(struct scene *scene)
{
    free(scene->placed);
    free(scene->chosen);
    free(scene->order);
    free(scene->numbers);
    free(scene->shuffled);
}

static dpe_status open_scene(const struct dpe_ruler2_task *task, size_t n, struct scene *scene,
                             struct dpe_error *err)
{
    size_t alike = task->same == 0 ? 1 : task->same;
    size_t different = (n + 1 + alike - 1) / alike;
    scene->n = n;
    scene->n_numbers = different * alike;
    DPE_TRY(DPE_NEW(&scene->placed, n + 1, err, "out of memory for %zu questions", n));
    DPE_TRY(DPE_NEW(&scene->chosen, n, err, "out of memory for %zu questions", n));
    DPE_TRY(DPE_NEW(&scene->order, scene->n_numbers, err, "out of memory for %zu questions", n));
    DPE_TRY(DPE_NEW(&scene->numbers, different, err, "out of memory for %zu questions", n));
    return DPE_NEW(&scene->shuffled, scene->n_numbers, err, "out of memory for %zu questions", n);
}

static struct placed question(const struct dpe_ruler2_questions *questions, int set, size_t i,
                              uint64_t number)
{
    return (struct placed){dpe_ruler2_text(questions->texts[set], i),
                           dpe_ruler2_text(questions->letters[set], i), number};
}

/* Every draw is made in the order of the original. */
static dpe_status set_scene(struct dpe_ruler2_draw *draw, size_t index, struct scene *scene,
                            struct dpe_error *err)
{
    const struct dpe_ruler2_questions *questions = &draw->ruler2->questions;
    const size_t around = json_array_size(questions->texts[1]);
    const size_t n = scene->n;
    const size_t repeats = n > around ? (n + around - 1) / around : 1;
    const size_t alike = draw->task->same == 0 ? 1 : draw->task->same;
    const size_t different = scene->n_numbers / alike;
    size_t solved[8] = {0};
    bool there = dpe_python_sample(&draw->random, around * repeats, scene->chosen, n);
    for (size_t i = 0; i < different; i++) {
        scene->numbers[i] = dpe_ruler2_number(&draw->random);
    }
    dpe_python_shuffle(&draw->random, scene->order, scene->n_numbers);
    for (size_t i = 0; i < scene->n_numbers; i++) {
        scene->shuffled[i] = scene->numbers[scene->order[i] % different];
    }
    dpe_python_shuffle(&draw->random, scene->order, n);
    there = there && dpe_python_sample(&draw->random, n, solved, draw->task->examples);
    scene->asked = (size_t)dpe_python_below(&draw->random, n + 1);
    if (!there) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for %zu questions", n);
    }
    for (size_t i = 0; i < n; i++) {
        size_t from = scene->order[i];
        scene->placed[i + (i >= scene->asked)] =
            question(questions, 1, scene->chosen[from] / repeats, scene->shuffled[from]);
    }
    scene->placed[scene->asked] = question(questions, 0, index, scene->shuffled[n]);
    for (size_t e = 0; e < draw->task->examples; e++) {
        scene->examples[e] = scene->placed[solved[e] + (solved[e] >= scene->asked)];
    }
    return DPE_OK;
}

static void put_item(const struct dpe_ruler2_draw *draw, const struct placed *placed,
                     struct dpe_text *out)
{
    char number[DPE_RULER2_NUMBER];
    const struct dpe_phrase_value values[] = {
        {"number", dpe_ruler2_number_text(placed->number, number)},
        {"question", placed->text},
        {NULL, NULL}};
    dpe_ruler2_say(draw, "item", values, out);
}

/* What is asked of a question, `order` in front of it. */
static void put_problem(const struct dpe_ruler2_draw *draw, const struct placed *placed,
                        const char *order, struct dpe_text *out)
{
    char number[DPE_RULER2_NUMBER];
    const struct dpe_phrase_value values[] = {
        {"number", dpe_ruler2_number_text(placed->number, number)}, {"order", order}, {NULL, NULL}};
    dpe_ruler2_say(draw, draw->task->problem, values, out);
}

/* Questions as they are to be answered. */
static void put_examples(const struct dpe_ruler2_draw *draw, const struct scene *scene,
                         struct dpe_text *out)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text examples = {0};
    for (size_t e = 0; e < draw->task->examples; e++) {
        const struct placed *placed = &scene->examples[e];
        const struct dpe_phrase_value values[] = {{"answer", placed->letter}, {NULL, NULL}};
        dpe_text_put(&examples, "%s", e > 0 ? "\n\n" : "");
        put_problem(draw, placed, "", &examples);
        if (strcmp(draw->task->problem, "solve_copied") == 0) {
            dpe_text_put(&examples, "\n");
            put_item(draw, placed, &examples);
        }
        dpe_ruler2_say(draw, "solution", values, &examples);
    }
    out->failed = out->failed || examples.failed;
    if (examples.bytes != NULL) {
        const struct dpe_phrase_value values[] = {{"examples", examples.bytes}, {NULL, NULL}};
        dpe_ruler2_say(draw, "examples", values, out);
    }
}

/* "2nd" in the sentence for it: which one of its number the question is. "" where numbers differ.
 */
static void put_order(const struct dpe_ruler2_draw *draw, const struct scene *scene,
                      struct dpe_text *order)
{
    static const char *const ends[] = {"th", "st", "nd", "rd"};
    char ordinal[32];
    size_t which = 0;
    for (size_t i = 0; i <= scene->asked; i++) {
        which += scene->placed[i].number == scene->placed[scene->asked].number;
    }
    bool teen = which % 100 / 10 == 1;
    snprintf(ordinal, sizeof ordinal, "%zu%s", which,
             ends[teen || which % 10 > 3 ? 0 : which % 10]);
    const struct dpe_phrase_value values[] = {{"ordinal", ordinal}, {NULL, NULL}};
    if (draw->task->same != 0) {
        dpe_ruler2_say(draw, "order", values, order);
    }
}

static void write_prompt(const struct dpe_ruler2_draw *draw, const struct scene *scene,
                         struct dpe_text *out)
{
    const struct dpe_phrase_value none[] = {{NULL, NULL}};
    DPE_SCOPED(dpe_text_free) struct dpe_text order = {0};
    dpe_ruler2_say(draw, draw->task->intro, none, out);
    for (size_t i = 0; i <= scene->n; i++) {
        dpe_text_put_bytes(out, "\n\n", 2);
        put_item(draw, &scene->placed[i], out);
    }
    dpe_text_put_bytes(out, "\n\n", 2);
    put_examples(draw, scene, out);
    put_order(draw, scene, &order);
    put_problem(draw, &scene->placed[scene->asked], order.bytes != NULL ? order.bytes : "", out);
    out->failed = out->failed || order.failed;
}

static void put_answers(const struct dpe_ruler2_draw *draw, const struct scene *scene,
                        struct dpe_ruler2_sample *sample)
{
    const struct placed *asked = &scene->placed[scene->asked];
    if (draw->task->answer != DPE_RULER2_TEXTS) {
        dpe_ruler2_answer(sample,
                          draw->task->answer == DPE_RULER2_LETTER ? asked->letter : asked->text);
        return;
    }
    for (size_t i = 0; i <= scene->n; i++) {
        if (scene->placed[i].number == asked->number) {
            dpe_ruler2_answer(sample, scene->placed[i].text);
        }
    }
}

dpe_status dpe_ruler2_make_questions(struct dpe_ruler2_draw *draw, size_t index, size_t n,
                                     struct dpe_ruler2_sample *sample, struct dpe_error *err)
{
    DPE_SCOPED(free_scene) struct scene scene = {0};
    DPE_TRY(open_scene(draw->task, n, &scene, err));
    DPE_TRY(set_scene(draw, index, &scene, err));
    write_prompt(draw, &scene, &sample->prompt);
    put_answers(draw, &scene, sample);
    return DPE_OK;
}
