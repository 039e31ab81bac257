/* Processor seconds of a prefill through recurrent layers beside those of MLPs of as many weights:
 *
 *     bench_recurrent [TOKENS [THREADS]]
 *
 * Two random models of Qwen3.5-0.8B's width, of four recurrent layers and one of attention each:
 * one with MLPs, one with almost none. Their difference is what the MLPs take. Processor seconds,
 * because they do not count other work on the machine; the least of five runs, in turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "engine/model/config/family.h"
#include "engine/model/model.h"
#include "engine/plan/methods/methods.h"
#include "engine/session/session.h"

enum { LAYERS = 5, LEAST = 16, WIDTH = 3434, RUNS = 5 };

static double used(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void need(dpe_status status, const struct dpe_error *err)
{
    if (status != DPE_OK) {
        fprintf(stderr, "bench_recurrent: %s\n", err->text);
        exit((int)status);
    }
}

static struct dpe_session *make(int64_t intermediate, int64_t tokens, int threads,
                                struct dpe_model **model)
{
    static uint8_t kinds[LAYERS] = {1, 1, 1, 1, 0};
    struct dpe_error err = {0};
    struct dpe_config config = {.model_type = "qwen3_5_text",
                                .family = dpe_family_find("qwen3_5_text"),
                                .n_layers = LAYERS,
                                .hidden = 1024,
                                .intermediate = intermediate,
                                .n_heads = 8,
                                .n_kv_heads = 2,
                                .head_dim = 256,
                                .rotary_dim = 64,
                                .vocab = 1000,
                                .max_position = 262144,
                                .rms_eps = 1e-6,
                                .qk_norm = DPE_QK_NORM_HEAD,
                                .tied_embeddings = true,
                                .bos_id = -1,
                                .dtype = DPE_BF16,
                                .rope = dpe_rope_plain,
                                .n_kinds = 2,
                                .kinds = {{0}, {.rope = -1, .recurrent = true}},
                                .layer_kinds = kinds,
                                .output_gate = true,
                                .recurrent = {16, 16, 128, 128, 4, .eps = 1e-6}};
    config.rope.partial_rotary_factor = 0.25;
    need(dpe_random_model(&config, true, 7, model, &err), &err);
    struct dpe_plan plan;
    struct dpe_session *session = NULL;
    const struct dpe_plan_context context = {.config = dpe_model_config(*model),
                                             .trained_length = 262144,
                                             .length = tokens,
                                             .official = true};
    const struct dpe_session_options options = {.capacity = tokens, .n_threads = threads};
    need(dpe_plan_make("rope", &context, &plan, &err), &err);
    need(dpe_session_create(*model, &plan, &options, &session, &err), &err);
    dpe_plan_free(&plan);
    return session;
}

int main(int argc, char **argv)
{
    const int64_t tokens = argc > 1 ? strtol(argv[1], NULL, 10) : 1024;
    const int threads = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 1;
    struct dpe_error err = {0};
    struct dpe_model *models[2];
    struct dpe_session *sessions[2];
    double least[2] = {1e9, 1e9};
    int32_t *ids = malloc((size_t)tokens * sizeof *ids);
    for (int64_t i = 0; i < tokens; i++) {
        ids[i] = (int32_t)(i * 7 % 1000);
    }
    for (int m = 0; m < 2; m++) {
        sessions[m] = make(m == 0 ? LEAST : LEAST + WIDTH, tokens, threads, &models[m]);
    }
    for (int run = 0; run < 2 * RUNS; run++) {
        const int m = run % 2;
        need(dpe_session_cut(sessions[m], 0, &err), &err);
        const double start = used();
        need(dpe_session_feed(sessions[m], ids, tokens, NULL, &err), &err);
        const double seconds = used() - start;
        least[m] = seconds < least[m] ? seconds : least[m];
    }
    /* In the last layer, the one of attention, nothing but keys and values is computed. */
    const double recurrent = least[0] / 4.0 / (double)tokens * 1e6;
    const double mlp = (least[1] - least[0]) / 4.0 / (double)tokens * 1e6;
    printf("%lld tokens: a recurrent layer %.1f, an MLP of its weights %.1f microseconds a token: "
           "%.2f times as fast\n",
           (long long)tokens, recurrent, mlp, mlp / recurrent);
    for (int m = 0; m < 2; m++) {
        dpe_session_destroy(sessions[m]);
        dpe_model_close(models[m]);
    }
    free(ids);
    return 0;
}
