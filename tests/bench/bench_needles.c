/* The needles of samples of the needle task, for needle_misses.py.
 *
 *   bench_needles TOKENIZER CORPUS LENGTH SAMPLES SEED [KEY=VALUE,…]
 *
 * The last argument is what `dpe-eval niah --niah` takes. stdout: one JSON array a sample,
 * [[value, tokens in front of it], …], with the number of tokens of the prompt as its last element.
 * The values are those that the question asks for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "engine/tokenizer/tokenizer.h"
#include "eval/niah/niah.h"

struct inputs {
    struct dpe_corpus *corpus;
    struct dpe_tokenizer *tokenizer;
    struct dpe_task task;
};

static dpe_status open_inputs(char **argv, struct inputs *inputs, struct dpe_error *err)
{
    struct dpe_niah_params params;
    struct dpe_niah *niah = NULL;
    dpe_niah_defaults(&params);
    dpe_status status = argv[6] == NULL ? DPE_OK : dpe_niah_parse(argv[6], &params, err);
    if (status != DPE_OK ||
        (status = dpe_tokenizer_open(argv[1], &inputs->tokenizer, err)) != DPE_OK ||
        (status = dpe_corpus_open(argv[2], &inputs->corpus, err)) != DPE_OK ||
        (status = dpe_niah_open(&params, atoll(argv[3]), inputs->corpus, inputs->tokenizer, NULL,
                                strtoull(argv[5], NULL, 10), &niah, err)) != DPE_OK) {
        return status;
    }
    return dpe_task_niah("niah", niah, inputs->tokenizer, &inputs->task, err);
}

/* Tokens in front of `value` in the prompt. */
static dpe_status place(const struct inputs *inputs, const struct dpe_text *prompt,
                        const char *value, int64_t *tokens, struct dpe_error *err)
{
    const struct dpe_encode_options options = {.add_special = true};
    const char *at = strstr(prompt->bytes, value);
    struct dpe_tokens ids = {0};
    dpe_status status =
        at == NULL ? dpe_fail(err, DPE_INTERNAL, "the prompt does not have %s", value)
                   : dpe_tokenizer_encode(inputs->tokenizer, prompt->bytes,
                                          (size_t)(at - prompt->bytes), &options, &ids, err);
    *tokens = (int64_t)ids.n;
    dpe_tokens_free(&ids);
    return status;
}

static dpe_status print_sample(const struct inputs *inputs, int64_t index, struct dpe_error *err)
{
    struct dpe_sample sample = {0};
    struct dpe_text prompt = {0};
    dpe_status status = dpe_task_sample(&inputs->task, index, &sample, &prompt, err);
    printf("[");
    for (size_t i = 0; i < sample.n_references && status == DPE_OK; i++) {
        int64_t tokens = 0;
        status = place(inputs, &prompt, sample.references[i], &tokens, err);
        printf("[\"%s\", %lld], ", sample.references[i], (long long)tokens);
    }
    printf("%lld]\n", (long long)sample.prompt.n);
    dpe_sample_free(&sample);
    dpe_text_free(&prompt);
    return status;
}

int main(int argc, char **argv)
{
    struct dpe_error err = {0};
    struct inputs inputs = {0};
    if (argc < 6 || argc > 7) {
        fprintf(stderr,
                "usage: bench_needles TOKENIZER CORPUS LENGTH SAMPLES SEED [KEY=VALUE,...]\n");
        return 64;
    }
    dpe_status status = open_inputs(argv, &inputs, &err);
    for (int64_t i = 0; i < atoll(argv[4]) && status == DPE_OK; i++) {
        status = print_sample(&inputs, i, &err);
    }
    if (status != DPE_OK) {
        fprintf(stderr, "bench_needles: %s\n", err.text);
    }
    dpe_task_close(&inputs.task);
    dpe_corpus_close(inputs.corpus);
    dpe_tokenizer_close(inputs.tokenizer);
    return dpe_exit_code(status);
}
