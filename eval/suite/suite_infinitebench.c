/* InfiniteBench as a suite: the 8 tasks of the paper's table, from official data. */
#include "eval/suite/suite_parts.h"

#include <stdio.h>
#include <string.h>

/* Tokens to generate, in the order of dpe_score_task("infinitebench"). */
static const int64_t rooms[] = {40, 40, 40, 6, 12, 50, 5, 3};
enum { N_TASKS = sizeof rooms / sizeof rooms[0] };

#define OPTIONS "option_a option_b option_c option_d"
static const struct dpe_phrase_field fields[2 * N_TASKS] = {
    {"longbook_qa_eng", "context input", "", NULL, false},
    {"longbook_qa_eng_answer", "", "", "", false},
    {"longbook_choice_eng", "context input " OPTIONS, "", NULL, false},
    {"longbook_choice_eng_answer", "", "", "", false},
    {"longdialogue_qa_eng", "context", "input", NULL, false},
    {"longdialogue_qa_eng_answer", "", "", "", false},
    {"passkey", "context input", "", NULL, false},
    {"passkey_answer", "", "", "", false},
    {"number_string", "context input", "", NULL, false},
    {"number_string_answer", "", "", "", false},
    {"kv_retrieval", "context input", "", NULL, false},
    {"kv_retrieval_answer", "", "", "", false},
    {"code_debug", "context " OPTIONS, "input", NULL, false},
    {"code_debug_answer", "", "", "", false},
    {"math_find", "context input", "", NULL, false},
    {"math_find_answer", "", "", "", false},
};

static dpe_status check(const struct dpe_suite_options *options, struct dpe_error *err)
{
    if (options->data == NULL) {
        return dpe_fail(
            err, DPE_USAGE,
            "infinitebench reads the official files: give their folder with --data DIR");
    }
    const struct dpe_score_task *first = dpe_score_task("infinitebench", 0);
    const char *name = NULL;
    char sets[80];
    if (dpe_score_rule(first, options->scorer, &name) == NULL) {
        return dpe_fail(err, DPE_USAGE, "--scorer: infinitebench has %s, found '%.40s'",
                        dpe_score_sets(first, sets), options->scorer);
    }
    return dpe_suite_check_tasks("infinitebench", options->tasks, err);
}

dpe_status dpe_suite_open_infinitebench(const struct dpe_suite_options *options,
                                        struct dpe_suite *suite, struct dpe_error *err)
{
    struct dpe_official_shared *shared = NULL;
    snprintf(suite->score, sizeof suite->score, "score by the %s rules",
             options->scorer == NULL ? "official" : options->scorer);
    dpe_status status = check(options, err);
    if (status != DPE_OK ||
        (status = dpe_official_share(options->chat_template, dpe_tokenizer_path(options->tokenizer),
                                     options->template_file, fields, 2 * N_TASKS, &shared, err)) !=
            DPE_OK) {
        goto done;
    }
    const struct dpe_suite_files files = {.name = "infinitebench",
                                          .rooms = rooms,
                                          .n = N_TASKS,
                                          .phrases = 2,
                                          .scorer = options->scorer,
                                          .shared = shared};
    if ((status = dpe_suite_add_files(options, &files, suite, err)) != DPE_OK ||
        (status = dpe_identity_add(&suite->parameters, "template", shared->phrases.hash, err)) !=
            DPE_OK ||
        (status = dpe_official_identify(shared, &suite->parameters, err)) != DPE_OK) {
        goto done;
    }
    status = dpe_identity_add(&suite->parameters, "scorer",
                              options->scorer == NULL ? "official" : options->scorer, err);
done:
    dpe_official_release(shared);
    return status;
}
