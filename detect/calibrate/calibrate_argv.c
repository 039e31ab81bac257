/* The command lines of the tools that measure. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "detect/calibrate/calibrate_tool.h"
#include "eval/niah/niah.h"
#include "outputs/h5/h5.h"

/* Options that every long-running tool takes. False when the time budget is used up. */
static bool add_common(const struct batch *batch, struct argv *argv)
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
    dpe_calibrate_argv_add_pair(argv, "--device", tool->device);
    if (batch->args->launch != NULL) {
        char text[32];
        snprintf(text, sizeof text, "%.3f", batch->args->job.rank_timeout);
        dpe_calibrate_argv_add_pair(argv, "--rank-timeout", text);
    }
    dpe_calibrate_argv_add_number(argv, "--tensor-parallel", batch->args->job.tensor_parallel, 2);
    dpe_calibrate_argv_add_number(argv, "--threads", tool->threads, 1);
    dpe_calibrate_argv_add_number(argv, "--max-memory", (int64_t)tool->max_memory, 1);
    dpe_calibrate_argv_add_pair(argv, "--kv-cache-dtype",
                                tool->kv_type != DPE_KV_F32 ? dpe_kv_type_names[tool->kv_type] : NULL);
    dpe_calibrate_argv_add_pair(argv, "--kv-cache-dir", tool->kv_dir);
    dpe_calibrate_argv_add_pair(argv, "--log-format", tool->json ? "json" : NULL);
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (flags[i].given) {
            dpe_calibrate_argv_add(argv, flags[i].option);
        }
    }
    if (tool->time_budget > 0.0) {
        char text[32];
        double left = tool->time_budget - (dpe_clock() - batch->begin);
        snprintf(text, sizeof text, "%.3f", fmax(left, 0.001));
        dpe_calibrate_argv_add_pair(argv, "--time-budget", text);
        return left >= 0.001;
    }
    return true;
}

/* What starts the tool, and its name. A dry run needs no ranks. */
static void add_tool(const struct batch *batch, const char *output, struct argv *argv,
                     const char *name)
{
    const char *at = output != NULL && batch->args->launch != NULL ? batch->args->launch : "";
    for (at += strspn(at, " "); *at != '\0'; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        char *word = strndup(at, n);
        dpe_calibrate_argv_add(argv, word != NULL ? word : "");
        argv->failed = argv->failed || word == NULL;
        free(word);
        at += n;
    }
    argv->program = argv->n;
    dpe_calibrate_argv_add(argv, name);
}

/* Methods of --against tuned: what a table can hold, and what is strong without tuning. */
static const char *const rivals[] = {"yarn", "self-extend", "leaky-rerope", "lampe"};
enum { RIVALS = sizeof rivals / sizeof rivals[0], TUNE_ROUNDS = 100, LEAST_ROUND = 4 };

/* The settings that were found; in a dry run there are none, and the methods cost the same. */
static void add_rivals(const struct batch *batch, const char *output, struct argv *argv)
{
    if (output != NULL) {
        dpe_calibrate_argv_add_entry(argv, "--against", batch, batch->entry, "tune.h5");
        return;
    }
    for (int i = 0; i < RIVALS; i++) {
        dpe_calibrate_argv_add_pair(argv, "--against", rivals[i]);
    }
}

bool dpe_calibrate_sweep_argv(const struct batch *batch, const char *output, struct argv *argv)
{
    const struct calibrate_arguments *args = batch->args;
    add_tool(batch, output, argv, "dpe-detect");
    dpe_calibrate_argv_add_pair(argv, "--model", args->job.model);
    dpe_calibrate_argv_add_number(argv, "--length", batch->entry->length, 1);
    if (batch->entry->lengths[0] != '\0') {
        dpe_calibrate_argv_add_pair(argv, "--lengths", batch->entry->lengths);
    }
    dpe_calibrate_argv_add_pair(argv, "--corpus", args->job.corpus);
    dpe_calibrate_argv_add_pair(argv, "--split", args->job.split);
    dpe_calibrate_argv_add_pair(argv, "--chat-template", args->job.chat_template);
    dpe_calibrate_argv_add_number(argv, "--trained-length", args->job.trained_length, 1);
    dpe_calibrate_argv_add_pair(argv, "--output", output);
    dpe_calibrate_argv_add_handed(argv, args, CALIBRATE_SWEEP);
    if (args->tunes) {
        add_rivals(batch, output, argv);
    }
    if (batch->entry->temperature[0] != '\0') { /* after "--temperature auto", if that was given */
        dpe_calibrate_argv_add_pair(argv, "--temperature", batch->entry->temperature);
    }
    return add_common(batch, argv);
}

bool dpe_calibrate_profile_argv(const struct batch *batch, const char *output, struct argv *argv)
{
    const struct calibrate_arguments *args = batch->args;
    add_tool(batch, output, argv, "dpe-norms");
    dpe_calibrate_argv_add_pair(argv, "--model", args->job.model);
    dpe_calibrate_argv_add_pair(argv, "--corpus", args->job.corpus);
    dpe_calibrate_argv_add_pair(argv, "--split", args->job.split);
    dpe_calibrate_argv_add_number(argv, "--trained-length", args->job.trained_length, 1);
    dpe_calibrate_argv_add_pair(argv, "--output", output);
    dpe_calibrate_argv_add_handed(argv, args, CALIBRATE_PROFILE);
    return add_common(batch, argv);
}

int64_t dpe_calibrate_seed(const struct calibrate_arguments *args, enum calibrate_part part)
{
    const char *seed = dpe_calibrate_value(args, "--seed");
    int64_t own = part == CALIBRATE_PAIRS  ? CALIBRATE_PAIRS_SEED
                  : part == CALIBRATE_TUNE ? CALIBRATE_TUNE_SEED
                                           : CALIBRATE_CHECK_SEED;
    return own + (seed != NULL ? strtoll(seed, NULL, 10) : 0);
}

/* Of a task as text, which leaves out what is 1. */
static int64_t number_of(const char *spec, const char *key)
{
    size_t n = 0;
    const char *found = dpe_niah_find(spec, key, &n);
    return found != NULL ? strtoll(found, NULL, 10) : 1;
}

/* "keys=K,values=V,asked=M" that the pilot of the entry's sweep chose, for the choice of its pairs; "" where
 * there was no pilot, before the sweep, and for other parts: what they ask is the user's. */
static void chosen_task(const struct batch *batch, enum calibrate_part part, char *text,
                        size_t size)
{
    struct dpe_h5 *table = NULL;
    char *spec = NULL;
    char *pilot = NULL;
    text[0] = '\0';
    if (part != CALIBRATE_PAIRS || batch->args->job.output == NULL) {
        return;
    }
    char *path = dpe_calibrate_entry_path(batch, batch->entry, "detect.h5");
    if (path != NULL && access(path, R_OK) == 0 && dpe_h5_open(path, &table, NULL) == DPE_OK &&
        dpe_h5_get_attr_text(table, "/detect", "pilot", &pilot, NULL) == DPE_OK &&
        dpe_h5_get_attr_text(table, "/detect", "niah_parameters", &spec, NULL) == DPE_OK) {
        snprintf(text, size, "keys=%lld,values=%lld,asked=%lld", (long long)number_of(spec, "keys"),
                 (long long)number_of(spec, "values"), (long long)number_of(spec, "asked"));
    }
    dpe_h5_close(table);
    free(spec);
    free(pilot);
    free(path);
}

dpe_status dpe_calibrate_niah(const struct batch *batch, enum calibrate_part part, char **spec,
                              struct dpe_error *err)
{
    const struct calibrate_arguments *args = batch->args;
    const char *given = dpe_calibrate_value(args, "--niah");
    const char *several = dpe_calibrate_value(args, "--keys-per-context");
    bool more = part != CALIBRATE_CHECK && several != NULL;
    char chosen[64];
    *spec = NULL;
    chosen_task(batch, part, chosen, sizeof chosen);
    if (given == NULL && !more && chosen[0] == '\0') {
        return DPE_OK;
    }
    given = given != NULL ? given : "";
    size_t size = strlen(given) + 2 * (several != NULL ? strlen(several) : 0) + 96;
    *spec = malloc(size);
    if (*spec == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for the settings of needles");
    }
    snprintf(*spec, size, "%s%s%s", given, given[0] != '\0' && chosen[0] != '\0' ? "," : "",
             chosen);
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

int64_t dpe_calibrate_together(const struct batch *batch)
{
    struct dpe_niah_params params;
    struct dpe_error err = {0};
    char *spec = NULL;
    dpe_niah_defaults(&params);
    if (dpe_calibrate_needles(batch->args) &&
        dpe_calibrate_niah(batch, CALIBRATE_PAIRS, &spec, &err) == DPE_OK && spec != NULL) {
        dpe_niah_parse(spec, &params, &err);
    }
    free(spec);
    return dpe_niah_together(&params);
}

/* What the sweep does with special tokens in books. */
static void add_special(const struct calibrate_arguments *args, struct argv *argv)
{
    const char *given = dpe_calibrate_value(args, "--niah");
    size_t n = 0;
    const char *special = given != NULL ? dpe_niah_find(given, "special", &n) : NULL;
    char *value = special != NULL ? strndup(special, n) : NULL;
    argv->failed = argv->failed || (special != NULL && value == NULL);
    dpe_calibrate_argv_add_pair(argv, "--special-in-text", value);
    free(value);
}

/* The check is at every length, the choice of pairs at that of its entry. */
static void add_lengths(const struct batch *batch, enum calibrate_part part, struct argv *argv)
{
    char text[DPE_JOB_LENGTHS * 24] = "";
    for (int i = 0; i < batch->n_entries; i++) {
        if (part == CALIBRATE_CHECK || &batch->entries[i] == batch->entry) {
            size_t used = strlen(text);
            snprintf(text + used, sizeof text - used, "%s%lld", used > 0 ? "," : "",
                     (long long)batch->entries[i].length);
        }
    }
    dpe_calibrate_argv_add_pair(argv, "--length", text);
}

/* The samples of dpe-eval, which no other part uses. */
static void add_questions(const struct batch *batch, enum calibrate_part part, struct argv *argv)
{
    const struct calibrate_arguments *args = batch->args;
    bool needles = dpe_calibrate_needles(args);
    char *niah = NULL;
    struct dpe_error err = {0};
    dpe_calibrate_argv_add_pair(argv, "--model", args->job.model);
    add_lengths(batch, part, argv);
    dpe_calibrate_argv_add_pair(argv, "--corpus", args->job.corpus);
    dpe_calibrate_argv_add_pair(argv, "--split", args->job.split);
    dpe_calibrate_argv_add_number(argv, "--trained-length", args->job.trained_length, 1);
    if (needles) {
        argv->failed = argv->failed || dpe_calibrate_niah(batch, part, &niah, &err) != DPE_OK;
        dpe_calibrate_argv_add_pair(argv, "--niah", niah);
        dpe_calibrate_argv_add_pair(argv, "--chat-template", args->job.chat_template);
        free(niah);
    } else {
        add_special(args, argv);
    }
    dpe_calibrate_argv_add_number(argv, "--seed", dpe_calibrate_seed(args, part), 0);
    dpe_calibrate_argv_add_handed(argv, args, (int)part);
}

/* Of a race; samples that share a context stay together. */
static int64_t round_of_tune(const struct batch *batch)
{
    int64_t together = dpe_calibrate_together(batch);
    return (LEAST_ROUND + together - 1) / together * together;
}

int64_t dpe_calibrate_tune_rows(const struct batch *batch)
{
    const char *given = dpe_calibrate_value(batch->args, "--tune-budget");
    int64_t round = round_of_tune(batch);
    int64_t budget = given != NULL ? strtoll(given, NULL, 10) : TUNE_ROUNDS * round;
    return RIVALS * (budget + 2 * round);
}

bool dpe_calibrate_tune_argv(const struct batch *batch, const char *output, struct argv *argv)
{
    add_tool(batch, output, argv, "dpe-eval");
    dpe_calibrate_argv_add(argv, "tune");
    for (int i = 0; i < RIVALS; i++) {
        dpe_calibrate_argv_add_pair(argv, "--method", rivals[i]);
    }
    dpe_calibrate_argv_add_pair(argv, "--temperature", "grid");
    dpe_calibrate_argv_add_number(argv, "--samples", round_of_tune(batch), 1);
    dpe_calibrate_argv_add_pair(argv, "--output", output);
    add_questions(batch, CALIBRATE_TUNE, argv);
    return add_common(batch, argv);
}

bool dpe_calibrate_pairs_argv(const struct batch *batch, const char *output, struct argv *argv)
{
    const struct calibrate_arguments *args = batch->args;
    int64_t k[DPE_DETECT_CANDIDATES];
    int n = dpe_detect_top_k_candidates(batch->n_pairs, k);
    char list[DPE_DETECT_CANDIDATES * 24] = "";
    for (int i = 0; i < n; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%lld", i > 0 ? "," : "", (long long)k[i]);
    }
    add_tool(batch, output, argv, "dpe-eval");
    dpe_calibrate_argv_add(argv, "ablate");
    dpe_calibrate_argv_add_pair(argv, "--what", "top-k");
    dpe_calibrate_argv_add_pair(argv, "--values", list);
    dpe_calibrate_argv_add(argv, "--alone");
    dpe_calibrate_argv_add_pair(argv, "--suite", dpe_calibrate_needles(args) ? "niah" : "ppl");
    dpe_calibrate_argv_add_entry(argv, "--table", batch, batch->entry, "detect.h5");
    dpe_calibrate_argv_add_path(argv, "--norms", args->job.output, "norms.h5");
    dpe_calibrate_argv_add_pair(argv, "--output", output);
    add_questions(batch, CALIBRATE_PAIRS, argv);
    return add_common(batch, argv);
}

bool dpe_calibrate_check_argv(const struct batch *batch, const char *output, struct argv *argv)
{
    const struct calibrate_arguments *args = batch->args;
    add_tool(batch, output, argv, "dpe-eval");
    dpe_calibrate_argv_add(argv, dpe_calibrate_needles(args) ? "niah" : "ppl");
    dpe_calibrate_argv_add_pair(argv, "--method", "rope");
    char rival[CALIBRATE_METHOD];
    dpe_calibrate_rival(batch, rival);
    dpe_calibrate_argv_add_pair(argv, "--method", rival[0] != '\0' ? rival : NULL);
    const struct entry *longest = &batch->entries[batch->n_entries - 1];
    bool several = batch->n_entries > 1;
    if (!batch->frequencies && (several || !longest->other)) {
        dpe_calibrate_argv_add_entry(argv, "--table", batch, longest,
                                     several ? "table.h5" : "detect.h5");
    }
    dpe_calibrate_argv_add_path(argv, "--table", args->job.output, "table.h5");
    dpe_calibrate_argv_add_pair(argv, "--output", output);
    add_questions(batch, CALIBRATE_CHECK, argv);
    return add_common(batch, argv);
}
