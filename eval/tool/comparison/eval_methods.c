/* The methods of a comparison: what they are called, and their plans. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plan/methods/methods.h"
#include "eval/tool/comparison/comparison.h"
#include "outputs/read/read.h"

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* How many characters of the tables' paths are a folder that all of them are in. */
static size_t common_folder(const struct dpe_eval_arguments *args, const char *path)
{
    size_t n = strlen(path);
    for (int i = 0; i < args->n_methods; i++) {
        size_t same = 0;
        while (args->is_table[i] && same < n && args->methods[i][same] == path[same]) {
            same++;
        }
        n = args->is_table[i] ? same : n;
    }
    while (n > 0 && path[n - 1] != '/') {
        n--;
    }
    return n;
}

/* A table is called by its file's name; if another has the same, by its path below the folder that
 * all tables are in. */
static void name_table(struct dpe_comparison *comparison, struct dpe_eval_method *method)
{
    const struct dpe_eval_arguments *args = comparison->args;
    int same = 0;
    for (int i = 0; i < args->n_methods; i++) {
        same +=
            args->is_table[i] && strcmp(last_part(args->methods[i]), last_part(method->table)) == 0;
    }
    snprintf(method->label, sizeof method->label, "table:%s",
             same > 1 ? method->table + common_folder(args, method->table)
                      : last_part(method->table));
}

static dpe_status add(struct dpe_comparison *comparison, const struct dpe_eval_method *method,
                      struct dpe_error *err)
{
    if (comparison->n_methods == EVAL_MAX_METHODS) {
        return dpe_fail(err, DPE_USAGE, "more than %d methods", EVAL_MAX_METHODS);
    }
    for (int i = 0; i < comparison->n_methods; i++) {
        if (strcmp(comparison->methods[i].label, method->label) == 0) {
            return dpe_fail(err, DPE_USAGE, "method %s is given twice", method->label);
        }
    }
    struct dpe_eval_method *added = &comparison->methods[comparison->n_methods];
    *added = *method;
    comparison->labels[comparison->n_methods++] = added->label;
    return DPE_OK;
}

static dpe_status open_ablation(struct dpe_comparison *comparison, struct dpe_error *err)
{
    const struct dpe_eval_arguments *args = comparison->args;
    struct dpe_ablation *ablation = &comparison->ablation;
    DPE_TRY(dpe_ablation_read(args->methods[0], args->norms, &ablation->source, err));
    const char *fingerprint = dpe_job_fingerprint(&comparison->job);
    if (!args->other_model && strcmp(ablation->source.fingerprint, fingerprint) != 0) {
        return dpe_fail(
            err, DPE_BAD_DATA,
            "%s: measured on the model %.16s…, --model is %.16s…; give --other-model to "
            "apply it anyway",
            args->methods[0], ablation->source.fingerprint, fingerprint);
    }
    if (args->temperature != NULL &&
        dpe_temperature_parse(args->temperature, dpe_model_config(comparison->job.model)->head_dim,
                              &ablation->source.temperature, err) != DPE_OK) {
        return dpe_fail_prefix(err, "--temperature");
    }
    DPE_TRY(dpe_ablation_make(ablation, (enum dpe_ablation_what)dpe_ablation_find(args->what),
                              args->values, args->n_values, err));
    /* The first two are rope and base. */
    for (int i = args->alone ? 2 : 0; i < ablation->n_steps; i++) {
        struct dpe_eval_method method = {.step = &ablation->steps[i]};
        snprintf(method.label, sizeof method.label, "%s", method.step->label);
        DPE_TRY(add(comparison, &method, err));
    }
    return DPE_OK;
}

/* Differences are relative to a table of the user's, or else to the first method; an ablation's to
 * the unchanged model, its first step. */
static dpe_status choose_against(struct dpe_comparison *comparison, struct dpe_error *err)
{
    const char *name = comparison->args->against;
    for (int m = 0; m < comparison->n_methods; m++) {
        const struct dpe_eval_method *method = &comparison->methods[m];
        bool named = name != NULL && (strcmp(method->label, name) == 0 ||
                                      (method->table != NULL && strcmp(method->table, name) == 0));
        if (named || (name == NULL && method->table != NULL)) {
            comparison->against = m;
        }
        if (named) {
            return DPE_OK;
        }
    }
    if (name == NULL) {
        return DPE_OK;
    }
    char names[512] = "";
    for (int m = 0; m < comparison->n_methods; m++) {
        dpe_append(names, sizeof names, "%s%s", m > 0 ? ", " : "", comparison->labels[m]);
    }
    return dpe_fail(err, DPE_USAGE, "--against %s: expected one of the methods, %s", name, names);
}

dpe_status dpe_eval_comparison_methods(struct dpe_comparison *comparison, struct dpe_error *err)
{
    const struct dpe_eval_arguments *args = comparison->args;
    const struct dpe_remote_engine *engine = comparison->job.remote;
    if (engine != NULL && !dpe_remote_about(engine)->plans &&
        (args->what != NULL || args->n_methods != 1 || args->is_table[0] ||
         strcmp(args->methods[0], "rope") != 0)) {
        return dpe_fail(err, DPE_USAGE,
                        "%s takes no plans (it is neither dpe-serve nor vLLM with DPE_ENGINE=1) "
                        "and has the one that it runs: "
                        "expected --method rope alone, "
                        "which stands for that",
                        args->job.engine);
    }
    if (args->what != NULL) {
        return open_ablation(comparison, err);
    }
    for (int i = 0; i < args->n_methods; i++) {
        struct dpe_eval_method method = {0};
        if (args->is_table[i]) {
            method.table = args->methods[i];
            name_table(comparison, &method);
        } else if (strlen(args->methods[i]) >= sizeof method.label) {
            return dpe_fail(err, DPE_USAGE, "--method %.40s…: longer than %zu characters",
                            args->methods[i], sizeof method.label - 1);
        } else {
            method.spec = args->methods[i];
            memcpy(method.label, method.spec, strlen(method.spec) + 1);
        }
        DPE_TRY(add(comparison, &method, err));
    }
    return choose_against(comparison, err);
}

static dpe_status make_plan(const struct dpe_comparison *comparison,
                            const struct dpe_eval_method *method, int64_t length,
                            struct dpe_plan *plan, struct dpe_error *err)
{
    const struct dpe_eval_arguments *args = comparison->args;
    struct dpe_plan_context context = dpe_job_context(&comparison->job, length);
    context.official = args->official;
    if (method->step != NULL) {
        return dpe_ablation_plan(&comparison->ablation, method->step, &context, plan, err);
    }
    const char *fingerprint = args->other_model ? NULL : dpe_job_fingerprint(&comparison->job);
    return method->table != NULL
               ? dpe_plan_of_table_file(method->table, &context, fingerprint, plan, NULL, err)
               : dpe_plan_of_spec(method->spec, &context, fingerprint, plan, NULL, err);
}

dpe_status dpe_eval_comparison_plans(struct dpe_comparison *comparison, struct dpe_error *err)
{
    size_t n = (size_t)comparison->n_methods * (size_t)comparison->n_lengths;
    DPE_TRY(DPE_NEW(&comparison->plans, n, err, "out of memory for %zu plans", n));
    DPE_TRY(DPE_NEW(&comparison->keys, n, err, "out of memory for %zu plans", n));
    const struct dpe_ablation_source *source = &comparison->ablation.source;
    int64_t longest = comparison->lengths[comparison->n_lengths - 1];
    if (comparison->args->what != NULL && longest > source->length) {
        dpe_log_warning(
            "%s was made for %lld tokens, --length goes to %lld: larger distances were not "
            "measured",
            comparison->args->methods[0], (long long)source->length, (long long)longest);
    }
    for (int m = 0; m < comparison->n_methods; m++) {
        for (int l = 0; l < comparison->n_lengths; l++) {
            struct dpe_plan *plan = &comparison->plans[comparison->n_plans];
            DPE_TRY(
                make_plan(comparison, &comparison->methods[m], comparison->lengths[l], plan, err));
            DPE_TRY(dpe_plan_key(plan, comparison->keys[comparison->n_plans++], err));
            DPE_TRY(dpe_job_check_plan(&comparison->job, plan, comparison->lengths[l], err));
        }
    }
    return DPE_OK;
}

void dpe_eval_want_plans(const struct dpe_comparison *comparison, struct dpe_wanted *wanted)
{
    for (int p = 0; p < comparison->n_plans; p++) {
        dpe_wanted_plan(wanted, &comparison->plans[p], comparison->keys[p]);
    }
}
