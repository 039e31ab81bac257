/* RULER v2's samples: Python's draws, how large prompts are, and the order of the samples. */
#include "eval/ruler/ruler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/text/json.h"
#include "eval/ruler/ruler2_parts.h"
#include "eval/score/jsonl.h"

/* MT19937 (Matsumoto and Nishimura 1998), and what Lib/random.py makes of it. */

enum { N = 624, M = 397 };

void dpe_python_seed(struct dpe_python_random *random, uint32_t seed)
{
    uint32_t *state = random->state;
    state[0] = 19650218U;
    for (uint32_t i = 1; i < N; i++) {
        state[i] = 1812433253U * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
    }
    /* The seed as a key of one word. */
    uint32_t i = 1;
    for (int k = 0; k < N; k++) {
        state[i] = (state[i] ^ ((state[i - 1] ^ (state[i - 1] >> 30)) * 1664525U)) + seed;
        if (++i >= N) {
            state[0] = state[N - 1];
            i = 1;
        }
    }
    for (int k = 0; k < N - 1; k++) {
        state[i] = (state[i] ^ ((state[i - 1] ^ (state[i - 1] >> 30)) * 1566083941U)) - i;
        if (++i >= N) {
            state[0] = state[N - 1];
            i = 1;
        }
    }
    state[0] = 0x80000000U;
    random->at = N;
}

static void refill(struct dpe_python_random *random)
{
    uint32_t *state = random->state;
    for (int k = 0; k < N; k++) {
        uint32_t y = (state[k] & 0x80000000U) | (state[(k + 1) % N] & 0x7fffffffU);
        state[k] = state[(k + M) % N] ^ (y >> 1) ^ ((y & 1U) != 0 ? 0x9908b0dfU : 0U);
    }
    random->at = 0;
}

uint32_t dpe_python_bits(struct dpe_python_random *random)
{
    if (random->at >= N) {
        refill(random);
    }
    uint32_t y = random->state[random->at++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680U;
    y ^= (y << 15) & 0xefc60000U;
    return y ^ (y >> 18);
}

/* getrandbits(k), 1 ≤ k ≤ 63: the low word is drawn first. */
static uint64_t get_bits(struct dpe_python_random *random, int k)
{
    if (k <= 32) {
        return dpe_python_bits(random) >> (32 - k);
    }
    uint64_t low = dpe_python_bits(random);
    return low | (uint64_t)(dpe_python_bits(random) >> (64 - k)) << 32;
}

uint64_t dpe_python_below(struct dpe_python_random *random, uint64_t n)
{
    int k = 0;
    for (uint64_t rest = n; rest > 0; rest >>= 1) {
        k++;
    }
    uint64_t drawn = get_bits(random, k);
    while (drawn >= n) {
        drawn = get_bits(random, k);
    }
    return drawn;
}

void dpe_python_shuffle(struct dpe_python_random *random, size_t *places, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        places[i] = i;
    }
    for (size_t i = n; i-- > 1;) {
        size_t j = (size_t)dpe_python_below(random, i + 1);
        size_t kept = places[i];
        places[i] = places[j];
        places[j] = kept;
    }
}

/* Up to so many things a list is drawn from, else a set says what was drawn. */
static size_t pool_size(size_t k)
{
    size_t size = 21;
    size_t power = 1;
    while (k > 5 && power < 3 * k) {
        power *= 4;
    }
    return k > 5 ? size + power : size;
}

static bool sample_pool(struct dpe_python_random *random, size_t n, size_t *chosen, size_t k)
{
    DPE_OWNED size_t *pool = dpe_alloc(n, sizeof *pool);
    for (size_t i = 0; i < n && pool != NULL; i++) {
        pool[i] = i;
    }
    for (size_t i = 0; i < k && pool != NULL; i++) {
        size_t j = (size_t)dpe_python_below(random, n - i);
        chosen[i] = pool[j];
        pool[j] = pool[n - i - 1];
    }
    return pool != NULL;
}

static bool sample_set(struct dpe_python_random *random, size_t n, size_t *chosen, size_t k)
{
    DPE_OWNED bool *taken = dpe_alloc_zero(n, sizeof *taken);
    for (size_t i = 0; i < k && taken != NULL; i++) {
        do {
            chosen[i] = (size_t)dpe_python_below(random, n);
        } while (taken[chosen[i]]);
        taken[chosen[i]] = true;
    }
    return taken != NULL;
}

bool dpe_python_sample(struct dpe_python_random *random, size_t n, size_t *chosen, size_t k)
{
    return n <= pool_size(k) ? sample_pool(random, n, chosen, k) : sample_set(random, n, chosen, k);
}

/* --------------------------------------------------------------------------------------- tasks */

static const struct dpe_phrase_field fields[] = {
    {"needle", "key value", ""},
    {"intro_one", "", ""},
    {"question_one", "key", ""},
    {"intro_many", "", ""},
    {"question_many", "key", ""},
    {"item", "number question", ""},
    {"copy_intro", "", ""},
    {"copy", "order number", ""},
    {"copy_twice", "order number", ""},
    {"copy_all_intro", "", ""},
    {"copy_all", "number", ""},
    {"order", "ordinal", ""},
    {"solve_intro", "", ""},
    {"solve", "number", ""},
    {"solve_copied", "number", ""},
    {"solution", "answer", ""},
    {"examples", "examples", ""},
    {"document", "number text", ""},
    {"find_text_intro", "", ""},
    {"find_text", "text", ""},
    {"find_intro", "", ""},
    {"find", "question", ""},
    {"read_intro", "", ""},
    {"read", "question", ""},
    {"read_copied", "question", ""},
};

#define NEEDLES(task, n)                                                                           \
    {                                                                                              \
        .name = (task), .files = {"nounlist.txt", "adjectivelist.txt"},                            \
        .load = dpe_ruler2_load_words, .make = dpe_ruler2_make_needles, .step = 5, .values = (n)   \
    }
#define QUESTIONS(task, opening, asks, solved, alike, wants)                                       \
    {                                                                                              \
        .name = (task), .files = {"mmlu/test.jsonl", "mmlu/auxiliary_train.jsonl"},                \
        .load = dpe_ruler2_load_questions, .make = dpe_ruler2_make_questions, .step = 10,          \
        .drawn = true, .intro = (opening), .problem = (asks), .examples = (solved),                \
        .same = (alike), .answer = (wants)                                                         \
    }
#define DOCUMENTS(task, opening, asks, wants)                                                      \
    {                                                                                              \
        .name = (task), .files = {"hotpotqa/validation.jsonl", "hotpotqa/train.jsonl"},            \
        .load = dpe_ruler2_load_documents, .make = dpe_ruler2_make_documents, .step = 5,           \
        .intro = (opening), .problem = (asks), .answer = (wants)                                   \
    }

static const struct dpe_ruler2_task tasks[] = {
    NEEDLES("mk_niah_basic", 1),
    QUESTIONS("mk_niah_easy", "copy_intro", "copy", 0, 0, DPE_RULER2_TEXT),
    QUESTIONS("mk_niah_medium", "solve_intro", "solve_copied", 5, 0, DPE_RULER2_LETTER),
    QUESTIONS("mk_niah_hard", "solve_intro", "solve", 5, 0, DPE_RULER2_LETTER),
    NEEDLES("mv_niah_basic", 4),
    QUESTIONS("mv_niah_easy", "copy_all_intro", "copy_all", 0, 4, DPE_RULER2_TEXTS),
    QUESTIONS("mv_niah_medium", "copy_intro", "copy_twice", 0, 4, DPE_RULER2_TEXT),
    QUESTIONS("mv_niah_hard", "copy_intro", "copy", 0, 4, DPE_RULER2_TEXT),
    DOCUMENTS("qa_basic", "find_text_intro", "find_text", DPE_RULER2_TEXT),
    DOCUMENTS("qa_easy", "find_intro", "find", DPE_RULER2_TEXTS),
    DOCUMENTS("qa_medium", "read_intro", "read_copied", DPE_RULER2_LETTER),
    DOCUMENTS("qa_hard", "read_intro", "read", DPE_RULER2_LETTER),
};

static const struct dpe_ruler2_task *find_task(const char *name)
{
    size_t i = 0;
    while (strcmp(tasks[i].name, name) != 0) {
        i++;
    }
    return &tasks[i];
}

/* --------------------------------------------------------------------------------------- parts */

void dpe_ruler2_answer(struct dpe_ruler2_sample *sample, const char *text)
{
    sample->n_answers++;
    dpe_text_put_bytes(&sample->answers, text, strlen(text) + 1);
}

/* One line as a tree; what is wrong with it is said with its file and number. */
static dpe_status read_line(const struct dpe_jsonl *lines, int64_t i,
                            dpe_status (*read)(void *user, const json_t *line,
                                               const char **expected, struct dpe_error *err),
                            void *user, struct dpe_error *err)
{
    const char *expected = "";
    DPE_SCOPED(json_decrefp) json_t *root = NULL;
    DPE_TRY(dpe_jsonl_read(lines, i, &root, err));
    const dpe_status status = read(user, root, &expected, err);
    return status == DPE_BAD_DATA
               ? dpe_fail(err, status, "%s: line %lld: expected %s", dpe_jsonl_path(lines),
                          (long long)dpe_jsonl_number(lines, i), expected)
               : status;
}

dpe_status dpe_ruler2_lines(const char *folder, const char *name,
                            dpe_status (*read)(void *user, const json_t *line,
                                               const char **expected, struct dpe_error *err),
                            void *user, struct dpe_error *err)
{
    char path[4096];
    DPE_SCOPED(dpe_jsonl_close_scoped) struct dpe_jsonl *lines = NULL;
    snprintf(path, sizeof path, "%.3900s/%s", folder, name);
    DPE_TRY(dpe_jsonl_open(path, &lines, err));
    const int64_t n = dpe_jsonl_size(lines);
    for (int64_t i = 0; i < n; i++) {
        DPE_TRY(read_line(lines, i, read, user, err));
    }
    return n > 0 ? DPE_OK
                 : dpe_fail(err, DPE_BAD_DATA,
                            "%s: expected a JSON object on each line, found none", path);
}

/* ------------------------------------------------------------------------------------- drawing */

/* A prompt and its tokens. */
static dpe_status make(struct dpe_ruler2_draw *draw, size_t index, size_t n,
                       struct dpe_ruler2_sample *sample, struct dpe_error *err)
{
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens tokens = {0};
    sample->prompt.n = 0;
    sample->answers.n = 0;
    sample->n_answers = 0;
    DPE_TRY(draw->task->make(draw, index, n, sample, err));
    DPE_TRY(dpe_text_done(&sample->prompt, err));
    DPE_TRY(dpe_text_done(&sample->answers, err));
    DPE_TRY(dpe_tokenizer_encode(draw->ruler2->options.tokenizer, sample->prompt.bytes,
                                 sample->prompt.n, NULL, &tokens, err));
    sample->tokens = (int64_t)tokens.n;
    return DPE_OK;
}

/* The largest number of things around whose prompt fits, found with a prompt of each size. */
static dpe_status find_size(struct dpe_ruler2_draw *draw, struct dpe_ruler2_sample *sample,
                            size_t *size, struct dpe_error *err)
{
    const size_t step = draw->task->step;
    const int64_t length = draw->ruler2->options.length;
    DPE_TRY(make(draw, 0, step, sample, err));
    double each = (double)sample->tokens / (double)step;
    int64_t low = (int64_t)step;
    int64_t high = dpe_most((int64_t)((double)length / each * 3.0), 2 * low);
    *size = step;
    while (low <= high) {
        int64_t middle = (low + high) / 2;
        DPE_TRY(make(draw, 0, (size_t)middle, sample, err));
        if (sample->tokens <= length) {
            *size = (size_t)middle;
            low = middle + 1;
        } else {
            high = middle - 1;
        }
    }
    return DPE_OK;
}

/* A sample that fits: of the size, or of fewer where it is long by chance. */
static dpe_status fit(struct dpe_ruler2_draw *draw, size_t index, size_t size,
                      struct dpe_ruler2_sample *sample, struct dpe_error *err)
{
    const int64_t length = draw->ruler2->options.length;
    DPE_TRY(make(draw, index, size, sample, err));
    while (sample->tokens > length) {
        if (size <= draw->task->step) {
            return dpe_fail(err, DPE_USAGE,
                            "%s: length %lld is too short: its smallest prompt takes %lld tokens",
                            draw->task->name, (long long)length, (long long)sample->tokens);
        }
        size -= draw->task->step;
        DPE_TRY(make(draw, index, size, sample, err));
    }
    return DPE_OK;
}

/* The questions that are asked for, in turn; the caller frees them. */
static dpe_status choose(struct dpe_ruler2_draw *draw, int64_t n, int64_t all, size_t **chosen,
                         struct dpe_error *err)
{
    DPE_TRY(DPE_NEW(chosen, (size_t)n, err, "out of memory for %lld samples", (long long)n));
    for (size_t i = 0; i < (size_t)n; i++) {
        (*chosen)[i] = i;
    }
    return !draw->task->drawn || dpe_python_sample(&draw->random, (size_t)all, *chosen, (size_t)n)
               ? DPE_OK
               : dpe_fail(err, DPE_NO_MEMORY, "out of memory for %lld samples", (long long)n);
}

static void free_sample(struct dpe_ruler2_sample *sample)
{
    dpe_text_free(&sample->prompt);
    dpe_text_free(&sample->answers);
}

dpe_status dpe_ruler2_draw(struct dpe_ruler2 *ruler2, const char *task, int64_t n,
                           dpe_status (*take)(void *user, const struct dpe_ruler2_sample *sample,
                                              struct dpe_error *err),
                           void *user, int64_t *drawn, struct dpe_error *err)
{
    struct dpe_ruler2_draw draw = {.ruler2 = ruler2, .task = find_task(task)};
    DPE_SCOPED(free_sample) struct dpe_ruler2_sample sample = {0};
    DPE_OWNED size_t *chosen = NULL;
    size_t size = 0;
    *drawn = 0;
    dpe_python_seed(&draw.random, ruler2->options.seed);
    int64_t all = INT64_MAX;
    DPE_TRY(draw.task->load(ruler2, draw.task->files, &all, err));
    n = dpe_least(n, all);
    DPE_TRY(find_size(&draw, &sample, &size, err));
    DPE_TRY(choose(&draw, n, all, &chosen, err));
    for (int64_t i = 0; i < n; i++) {
        sample.index = (int64_t)chosen[i];
        sample.one = draw.task->drawn && draw.task->answer == DPE_RULER2_LETTER;
        DPE_TRY(fit(&draw, chosen[i], size, &sample, err));
        DPE_TRY(take(user, &sample, err));
        ++*drawn;
    }
    return DPE_OK;
}

/* ------------------------------------------------------------------------------------- opening */

dpe_status dpe_ruler2_open(const struct dpe_ruler2_options *options, struct dpe_ruler2 **ruler2,
                           struct dpe_error *err)
{
    DPE_SCOPED(dpe_ruler2_close_scoped) struct dpe_ruler2 *made = NULL;
    *ruler2 = NULL;
    DPE_TRY(DPE_NEW(&made, 1, err, "out of memory for RULER v2"));
    made->options = *options;
    DPE_TRY(dpe_phrases_open(options->template_file, &dpe_builtin_ruler2, fields,
                             sizeof fields / sizeof fields[0], &made->phrases, err));
    *ruler2 = made;
    made = NULL;
    return DPE_OK;
}

void dpe_ruler2_close(struct dpe_ruler2 *ruler2)
{
    if (ruler2 == NULL) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        json_decref(ruler2->questions.texts[i]);
        json_decref(ruler2->questions.letters[i]);
    }
    for (size_t i = 0; i < ruler2->documents.n; i++) {
        json_decref(ruler2->documents.questions[i].asked);
        json_decref(ruler2->documents.questions[i].answer);
        json_decref(ruler2->documents.questions[i].own);
    }
    dpe_texts_free(&ruler2->documents.around);
    free(ruler2->documents.questions);
    free(ruler2->words.text);
    free(ruler2->words.words);
    dpe_phrases_free(&ruler2->phrases);
    free(ruler2);
}

const char *dpe_ruler2_lacks(const struct dpe_ruler2 *ruler2, const char *task)
{
    const struct dpe_ruler2_task *found = find_task(task);
    for (int i = 0; i < 2; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%.3900s/%s", ruler2->options.folder, found->files[i]);
        if (access(path, F_OK) != 0) {
            return found->files[i];
        }
    }
    return NULL;
}
