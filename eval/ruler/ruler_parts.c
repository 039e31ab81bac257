/* RULER: what its tasks share when they draw and compose a sample. */
#include "eval/ruler/ruler.h"

#include <stdlib.h>
#include <string.h>

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
