/* RULER as a suite, generated. */
#include "eval/suite/suite_parts.h"

#include "eval/ruler/ruler.h"
#include "eval/score/score.h"

static dpe_status add_task(const struct dpe_suite_options *options, struct dpe_ruler *ruler,
                           size_t i, int64_t length, struct dpe_suite *suite, struct dpe_error *err)
{
    const struct dpe_score_task *task = dpe_score_task("ruler", i);
    struct dpe_source source = {0};
    struct dpe_suite_task *added =
        dpe_suite_add(suite, task->name, task->category, length, options->n_samples, err);
    if (added == NULL) {
        return err->status;
    }
    DPE_TRY(dpe_ruler_source(ruler, dpe_ruler_kind(i), length, &source, err));
    return dpe_suite_keep_questions(suite, added, &source, options->tokenizer, err);
}

static dpe_status open_generator(const struct dpe_suite_options *options, struct dpe_suite *suite,
                                 struct dpe_ruler **ruler, struct dpe_error *err)
{
    const struct dpe_ruler_options given = {
        .tokenizer = options->tokenizer,
        .corpus = options->corpus,
        .chat_template = options->chat_template,
        .template_file = options->template_file,
        .squad = options->squad,
        .hotpotqa = options->hotpotqa,
        .special = options->niah.special,
        .seed = options->seed,
        .max_length = options->lengths[options->n_lengths - 1],
    };
    DPE_TRY(dpe_ruler_open(&given, ruler, err));
    DPE_TRY(dpe_identity_add(&suite->parameters, "template", (*ruler)->hash, err));
    return dpe_identity_add(&suite->parameters, "special", dpe_niah_specials[given.special], err);
}

/* Files of questions decide rows as well. */
static dpe_status identify_questions(const struct dpe_ruler *ruler, struct dpe_suite *suite,
                                     struct dpe_error *err)
{
    static const char *const files[] = {"squad", "hotpotqa"};
    for (int d = 0; d < 2; d++) {
        if (ruler->qa[d].hash[0] != '\0') {
            DPE_TRY(dpe_identity_add(&suite->parameters, files[d], ruler->qa[d].hash, err));
        }
    }
    return DPE_OK;
}

/* The option without which the task has nothing to be made of; NULL: it can be run. Of a task that
 * was asked for that is an error. */
static const char *lacking(const struct dpe_suite_options *options, const struct dpe_ruler *ruler,
                           const struct dpe_ruler_kind *kind)
{
    if (options->tasks != NULL) {
        return NULL;
    }
    if (kind->maker == &dpe_ruler_qa) {
        return ruler->qa[kind->dataset].n_questions > 0 ? NULL
               : kind->dataset == DPE_QA_SQUAD          ? "--squad FILE"
                                                        : "--hotpotqa FILE";
    }
    bool texts = kind->maker == &dpe_ruler_niah && kind->haystack == RULER_ESSAY;
    return texts && options->corpus == NULL ? "--corpus PATH" : NULL;
}

/* Those of the tasks that are asked for and have what they are made of, at every length. */
static dpe_status add_tasks(const struct dpe_suite_options *options, struct dpe_ruler *ruler,
                            struct dpe_suite *suite, struct dpe_error *err)
{
    for (size_t l = 0; l < options->n_lengths; l++) {
        for (size_t i = 0; dpe_ruler_kind(i) != NULL; i++) {
            const char *option = lacking(options, ruler, dpe_ruler_kind(i));
            if (option != NULL && l == 0) {
                dpe_append(suite->lacks, sizeof suite->lacks, "%s%s without %s",
                           suite->lacks[0] != '\0' ? ", " : "", dpe_ruler_kind(i)->name, option);
            }
            if (option == NULL &&
                dpe_suite_task_listed(options->tasks, dpe_score_task("ruler", i))) {
                DPE_TRY(add_task(options, ruler, i, options->lengths[l], suite, err));
            }
        }
    }
    return DPE_OK;
}

dpe_status dpe_suite_open_ruler(const struct dpe_suite_options *options, struct dpe_suite *suite,
                                struct dpe_error *err)
{
    DPE_SCOPED(dpe_ruler_close_scoped) struct dpe_ruler *ruler = NULL;
    DPE_TRY(dpe_suite_check_tasks("ruler", options->tasks, err));
    if (options->data != NULL) {
        return dpe_suite_read_ruler(options, suite, err);
    }
    DPE_TRY(open_generator(options, suite, &ruler, err));
    DPE_TRY(add_tasks(options, ruler, suite, err));
    return identify_questions(ruler, suite, err);
}
