/* The worth of a table, from a comparison. */
#include "outputs/datasets/worth.h"

#include <math.h>
#include <string.h>

#include "outputs/datasets/kinds.h"

static const struct dpe_interval unknown = {(double)NAN, (double)NAN, (double)NAN, 0};

static bool is_file(const char *method)
{
    return strncmp(method, "table:", 6) == 0;
}

bool dpe_worth_is_table(const char *method)
{
    return is_file(method) || strcmp(method, "dpe") == 0 || strncmp(method, "dpe:", 4) == 0;
}

static void choose(const struct dpe_suite_result *r, int64_t t, bool perplexity,
                   int64_t method[DPE_WORTHS])
{
    double best = (double)NAN;
    method[DPE_WORTH_ALONE] = method[DPE_WORTH_TABLE] = method[DPE_WORTH_RIVAL] = -1;
    for (int64_t m = 0; m < r->n[DPE_SUITE_METHOD]; m++) {
        const char *name = r->method[m];
        const int64_t table = method[DPE_WORTH_TABLE];
        const double value = r->mean[m * r->n[DPE_SUITE_TASK] + t].mean;
        if (strcmp(name, "rope") == 0) {
            method[DPE_WORTH_ALONE] = m;
        } else if (dpe_worth_is_table(name)) {
            method[DPE_WORTH_TABLE] =
                table >= 0 && is_file(r->method[table]) && !is_file(name) ? table : m;
        } else if (isfinite(value) && (isnan(best) || (perplexity ? value < best : value > best))) {
            best = value;
            method[DPE_WORTH_RIVAL] = m;
        }
    }
}

void dpe_worth_of(const struct dpe_suite_result *r, int64_t t, bool perplexity, int64_t against,
                  struct dpe_worth *worth)
{
    *worth = (struct dpe_worth){.table = "the table",
                                .task = "",
                                .perplexity = perplexity,
                                .length = r->task_length[t],
                                .possible = (double)NAN,
                                .p = (double)NAN,
                                .rival_minus = {unknown, .p = (double)NAN}};
    int64_t cell[DPE_WORTHS];
    choose(r, t, perplexity, worth->method);
    for (int i = 0; i < DPE_WORTHS; i++) {
        cell[i] = worth->method[i] * r->n[DPE_SUITE_TASK] + t;
        worth->value[i] = worth->method[i] >= 0 ? r->mean[cell[i]] : unknown;
        worth->plan[i] = worth->method[i] >= 0 && r->plan != NULL ? r->plan[cell[i]] : NULL;
        worth->texts[i] = (double)NAN;
    }
    worth->samples = worth->value[DPE_WORTH_TABLE].n;
    const bool compared =
        against >= 0 && against == worth->method[DPE_WORTH_TABLE] && r->difference != NULL;
    if (compared && worth->method[DPE_WORTH_ALONE] >= 0) {
        worth->p = r->difference[cell[DPE_WORTH_ALONE]].p;
    }
    if (worth->method[DPE_WORTH_RIVAL] >= 0) {
        worth->rival = r->method[worth->method[DPE_WORTH_RIVAL]];
        if (compared) {
            worth->rival_minus = r->difference[cell[DPE_WORTH_RIVAL]];
        }
        const size_t n = (size_t)r->n[DPE_SUITE_SAMPLE];
        worth->same =
            compared && r->score != NULL &&
            memcmp(r->score + (size_t)cell[DPE_WORTH_RIVAL] * n,
                   r->score + (size_t)cell[DPE_WORTH_TABLE] * n, n * sizeof *r->score) == 0;
    }
}

void dpe_worth_keep(const struct dpe_table *table, bool checked, struct dpe_worth *worth)
{
    const struct dpe_table_values *v = NULL;
    for (int64_t i = 0; i < dpe_table_count(table) && (v == NULL || v->length != worth->length);
         i++) {
        v = dpe_table_values(dpe_table_entry(table, i));
    }
    if (v == NULL || v->length != worth->length || v->evidence_task == NULL ||
        (strcmp(v->evidence_task, "perplexity") == 0) != worth->perplexity) {
        return;
    }
    if (v->evidence_possible >= 0.0) {
        worth->possible = v->evidence_possible;
    }
    if (!checked) {
        return;
    }
    const char *task = strstr(v->evidence_task, ": ");
    worth->task = task != NULL ? task + 2 : "";
    worth->value[DPE_WORTH_TABLE] = (struct dpe_interval){
        v->evidence_score, v->evidence_low >= 0.0 ? v->evidence_low : (double)NAN,
        v->evidence_low >= 0.0 ? v->evidence_high : (double)NAN, v->evidence_samples};
    if (v->evidence_samples <= worth->samples) {
        return;
    }
    /* Together with a validation: of these samples the table has no more than the mean. */
    worth->validated = v->evidence_samples - worth->samples;
    worth->samples = v->evidence_samples;
    if (v->evidence_unchanged >= 0.0) {
        worth->value[DPE_WORTH_ALONE] = unknown;
        worth->value[DPE_WORTH_ALONE].mean = v->evidence_unchanged;
    }
    if (worth->rival != NULL && strcmp(worth->rival, v->evidence_rival) == 0) {
        worth->value[DPE_WORTH_RIVAL] = unknown;
        worth->value[DPE_WORTH_RIVAL].mean = v->evidence_rival_score;
    }
}

void dpe_worth_texts(struct dpe_h5 *detection, struct dpe_worth *worth)
{
    const struct dpe_dataset_kind *kind = &dpe_validated_scores_kinds[1];
    struct dpe_scores_result guard = {.recall = NULL};
    char **keys = NULL;
    size_t n = 0;
    int64_t length = 0;
    const bool there =
        !worth->perplexity && dpe_h5_has(detection, "/validate/guard") &&
        dpe_h5_get_attr_i64(detection, "/validate/guard", "length", &length, NULL) == DPE_OK &&
        length == worth->length &&
        dpe_h5_get_strings(detection, "/validate/plan", &keys, &n, NULL) == DPE_OK &&
        dpe_datasets_get(kind, &guard, "/validate/guard", "perplexity", detection, NULL) ==
            DPE_OK &&
        guard.perplexity != NULL && (int64_t)n == guard.n[DPE_VALIDATED_PLAN];
    for (size_t i = 0; there && i < n * DPE_WORTHS; i++) {
        const char *plan = worth->plan[i % DPE_WORTHS];
        if (plan != NULL && strcmp(keys[i / DPE_WORTHS], plan) == 0) {
            worth->texts[i % DPE_WORTHS] = guard.perplexity[i / DPE_WORTHS];
        }
    }
    dpe_datasets_free(kind, &guard);
    dpe_strings_free(keys, n);
}

void dpe_worth_task(struct dpe_h5 *comparison, char words[DPE_TASK_WORDS])
{
    DPE_OWNED char *parameters = NULL;
    dpe_h5_get_attr_text(comparison, "/eval/niah", "parameters", &parameters, NULL);
    dpe_identity_task_words(parameters != NULL ? strstr(parameters, "keys=") : NULL, words);
}

const struct dpe_use dpe_uses[DPE_USES] = {
    {"dpe", "dpe-run -m MODEL --table TABLE --chat, or dpe-serve -m MODEL --table TABLE", false},
    {"vLLM (outputs/vllm)",
     "DPE_TABLE=TABLE python -m vllm.entrypoints.openai.api_server --model MODEL", false},
    {"transformers (outputs/transformers)", "dpe_transformers.apply(model, \"TABLE\")", false},
    {"C (outputs/table/dpe_table.h)", "dpe_table_open(\"TABLE\", &table, why)", false},
    {"vLLM, SGLang, transformers without an adapter",
     "dpe-export TABLE -m MODEL --format longrope -o config.json", true},
    {"llama.cpp", "dpe-export TABLE --gguf WEIGHTS -o NEW.gguf", true},
};
