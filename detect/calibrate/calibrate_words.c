/* The command lines of the tools that measure. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "detect/calibrate/calibrate_tool.h"
#include "eval/niah/niah.h"

/* Options that every long-running tool takes. False when the time budget is used up. */
static bool add_common(const struct batch *batch, struct words *words)
{
    const struct dpe_tool_options *tool = &batch->args->job.tool;
    const struct {
        const char *option;
        bool given;
    } flags[] = {
        {"--quiet", tool->quiet},
        {"--force", tool->force},
        {"--salvage", tool->salvage},
        {"--keep-journal", tool->keep_journal},
        {"--force-unlock", tool->force_unlock},
    };
    dpe_calibrate_words_add_pair(words, "--device", tool->device);
    if (batch->args->launch != NULL) {
        char text[32];
        snprintf(text, sizeof text, "%.3f", batch->args->job.rank_timeout);
        dpe_calibrate_words_add_pair(words, "--rank-timeout", text);
    }
    dpe_calibrate_words_add_number(words, "--tensor-parallel", batch->args->job.tensor_parallel, 2);
    dpe_calibrate_words_add_number(words, "--threads", tool->threads, 1);
    dpe_calibrate_words_add_number(words, "--max-memory", (int64_t)tool->max_memory, 1);
    dpe_calibrate_words_add_pair(words, "--log-format", tool->json ? "json" : NULL);
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (flags[i].given) {
            dpe_calibrate_words_add(words, flags[i].option);
        }
    }
    if (tool->time_budget > 0.0) {
        char text[32];
        double left = tool->time_budget - (dpe_clock() - batch->begin);
        snprintf(text, sizeof text, "%.3f", fmax(left, 0.001));
        dpe_calibrate_words_add_pair(words, "--time-budget", text);
        return left >= 0.001;
    }
    return true;
}

/* What starts the tool, and its name. A dry run needs no ranks. */
static void add_tool(const struct batch *batch, const char *output, struct words *words,
                     const char *name)
{
    const char *at = output != NULL && batch->args->launch != NULL ? batch->args->launch : "";
    for (at += strspn(at, " "); *at != '\0'; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        char *word = strndup(at, n);
        dpe_calibrate_words_add(words, word != NULL ? word : "");
        words->failed = words->failed || word == NULL;
        free(word);
        at += n;
    }
    words->program = words->n;
    dpe_calibrate_words_add(words, name);
}

bool dpe_calibrate_sweep_words(const struct batch *batch, const char *output, struct words *words)
{
    const struct calibrate_arguments *args = batch->args;
    add_tool(batch, output, words, "dpe-detect");
    dpe_calibrate_words_add_pair(words, "--model", args->job.model);
    dpe_calibrate_words_add_number(words, "--length", args->job.length, 1);
    dpe_calibrate_words_add_pair(words, "--corpus", args->job.corpus);
    dpe_calibrate_words_add_pair(words, "--split", args->job.split);
    dpe_calibrate_words_add_pair(words, "--chat-template", args->job.chat_template);
    dpe_calibrate_words_add_number(words, "--trained-length", args->job.trained_length, 1);
    dpe_calibrate_words_add_pair(words, "--output", output);
    dpe_calibrate_words_add_handed(words, args, CALIBRATE_SWEEP);
    return add_common(batch, words);
}

bool dpe_calibrate_profile_words(const struct batch *batch, const char *output, struct words *words)
{
    const struct calibrate_arguments *args = batch->args;
    add_tool(batch, output, words, "dpe-norms");
    dpe_calibrate_words_add_pair(words, "--model", args->job.model);
    dpe_calibrate_words_add_pair(words, "--corpus", args->job.corpus);
    dpe_calibrate_words_add_pair(words, "--split", args->job.split);
    dpe_calibrate_words_add_number(words, "--trained-length", args->job.trained_length, 1);
    dpe_calibrate_words_add_pair(words, "--output", output);
    dpe_calibrate_words_add_handed(words, args, CALIBRATE_PROFILE);
    return add_common(batch, words);
}

void dpe_calibrate_words_add_path(struct words *words, const char *option, const char *folder,
                                  const char *name)
{
    char *path = dpe_calibrate_tools_path(folder, name);
    if (option != NULL) {
        dpe_calibrate_words_add(words, option);
    }
    dpe_calibrate_words_add(words, path != NULL ? path : "");
    words->failed = words->failed || path == NULL;
    free(path);
}

bool dpe_calibrate_needles(const struct calibrate_arguments *args)
{
    const char *task = dpe_calibrate_value(args, "--task");
    return task == NULL || strcmp(task, "ppl") != 0;
}

int64_t dpe_calibrate_seed(const struct calibrate_arguments *args, enum calibrate_part part)
{
    const char *seed = dpe_calibrate_value(args, "--seed");
    return (part == CALIBRATE_PAIRS ? CALIBRATE_PAIRS_SEED : CALIBRATE_CHECK_SEED) +
           (seed != NULL ? strtoll(seed, NULL, 10) : 0);
}

dpe_status dpe_calibrate_niah(const struct calibrate_arguments *args, enum calibrate_part part,
                              char **spec, struct dpe_error *err)
{
    const char *given = dpe_calibrate_value(args, "--niah");
    const char *several = dpe_calibrate_value(args, "--keys-per-context");
    bool more = part == CALIBRATE_PAIRS && several != NULL;
    *spec = NULL;
    if (given == NULL && !more) {
        return DPE_OK;
    }
    given = given != NULL ? given : "";
    size_t size = strlen(given) + 2 * (several != NULL ? strlen(several) : 0) + 32;
    *spec = malloc(size);
    if (*spec == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for the settings of needles");
    }
    snprintf(*spec, size, "%s", given);
    if (more) {
        /* What the sweep does with it; a number of keys that is given it has checked. */
        size_t n = 0;
        size_t used = strlen(*spec);
        snprintf(*spec + used, size - used, "%sasked=%s", used > 0 ? "," : "", several);
        used = strlen(*spec);
        if (dpe_niah_find(given, "keys", &n) == NULL) {
            snprintf(*spec + used, size - used, ",keys=%s", several);
        }
    }
    return DPE_OK;
}

int64_t dpe_calibrate_together(const struct calibrate_arguments *args)
{
    struct dpe_niah_params params;
    struct dpe_error err = {0};
    char *spec = NULL;
    dpe_niah_defaults(&params);
    if (dpe_calibrate_needles(args) &&
        dpe_calibrate_niah(args, CALIBRATE_PAIRS, &spec, &err) == DPE_OK && spec != NULL) {
        dpe_niah_parse(spec, &params, &err);
    }
    free(spec);
    return dpe_niah_together(&params);
}

/* What the sweep does with special tokens in books. */
static void add_special(const struct calibrate_arguments *args, struct words *words)
{
    const char *given = dpe_calibrate_value(args, "--niah");
    size_t n = 0;
    const char *special = given != NULL ? dpe_niah_find(given, "special", &n) : NULL;
    char *value = special != NULL ? strndup(special, n) : NULL;
    words->failed = words->failed || (special != NULL && value == NULL);
    dpe_calibrate_words_add_pair(words, "--special-in-text", value);
    free(value);
}

/* What dpe-eval asks, of samples that no other part has. */
static void add_questions(const struct batch *batch, enum calibrate_part part, struct words *words)
{
    const struct calibrate_arguments *args = batch->args;
    bool needles = dpe_calibrate_needles(args);
    char *niah = NULL;
    struct dpe_error err = {0};
    dpe_calibrate_words_add_pair(words, "--model", args->job.model);
    dpe_calibrate_words_add_number(words, "--length", args->job.length, 1);
    dpe_calibrate_words_add_pair(words, "--corpus", args->job.corpus);
    dpe_calibrate_words_add_pair(words, "--split", args->job.split);
    dpe_calibrate_words_add_number(words, "--trained-length", args->job.trained_length, 1);
    if (needles) {
        words->failed = words->failed || dpe_calibrate_niah(args, part, &niah, &err) != DPE_OK;
        dpe_calibrate_words_add_pair(words, "--niah", niah);
        dpe_calibrate_words_add_pair(words, "--chat-template", args->job.chat_template);
        free(niah);
    } else {
        add_special(args, words);
    }
    dpe_calibrate_words_add_number(words, "--seed", dpe_calibrate_seed(args, part), 0);
    dpe_calibrate_words_add_handed(words, args, part);
}

bool dpe_calibrate_pairs_words(const struct batch *batch, const char *output, struct words *words)
{
    const struct calibrate_arguments *args = batch->args;
    int64_t k[DPE_DETECT_RUNGS];
    int n = dpe_detect_top_k_ladder(batch->n_pairs, k);
    char list[DPE_DETECT_RUNGS * 24] = "";
    for (int i = 0; i < n; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%lld", i > 0 ? "," : "", (long long)k[i]);
    }
    add_tool(batch, output, words, "dpe-eval");
    dpe_calibrate_words_add(words, "ablate");
    dpe_calibrate_words_add_pair(words, "--what", "top-k");
    dpe_calibrate_words_add_pair(words, "--values", list);
    dpe_calibrate_words_add(words, "--alone");
    dpe_calibrate_words_add_pair(words, "--suite", dpe_calibrate_needles(args) ? "niah" : "ppl");
    dpe_calibrate_words_add_path(words, "--table", args->job.output, "detect.h5");
    dpe_calibrate_words_add_path(words, "--norms", args->job.output, "norms.h5");
    dpe_calibrate_words_add_pair(words, "--output", output);
    add_questions(batch, CALIBRATE_PAIRS, words);
    return add_common(batch, words);
}

bool dpe_calibrate_check_words(const struct batch *batch, const char *output, struct words *words)
{
    const struct calibrate_arguments *args = batch->args;
    add_tool(batch, output, words, "dpe-eval");
    dpe_calibrate_words_add(words, dpe_calibrate_needles(args) ? "niah" : "ppl");
    dpe_calibrate_words_add_pair(words, "--method", "rope");
    dpe_calibrate_words_add_path(words, "--table", args->job.output, "detect.h5");
    dpe_calibrate_words_add_path(words, "--table", args->job.output, "table.h5");
    dpe_calibrate_words_add_pair(words, "--output", output);
    add_questions(batch, CALIBRATE_CHECK, words);
    return add_common(batch, words);
}
