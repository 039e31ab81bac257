/* dpe-norms: the 2-norm profile of every head, measured on real text. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "norms_tool.h"

static const double snapshot_interval = 60.0; /* seconds */

enum option_key {
    KEY_CORPUS = 0x2000,
    KEY_SPLIT,
    KEY_LENGTHS,
    KEY_SAMPLES,
    KEY_CONTRIBUTION,
    KEY_SEED,
    KEY_TRAINED_LENGTH,
    KEY_SPECIAL,
    KEY_DRY_RUN,
};

static const struct argp_option options_table[] = {
    {NULL, 0, NULL, 0, "What to measure:", 1},
    {"model", 'm', "DIR", 0, "Hugging Face folder: config.json, safetensors, tokenizer.json", 1},
    {"corpus", KEY_CORPUS, "PATH", 0, "PG-19 folder, folder of .txt files, or one text file", 1},
    {"split", KEY_SPLIT, "NAME", 0, "PG-19: train, validation or test (default)", 1},
    {"lengths", KEY_LENGTHS, "A,B,...", 0,
     "Tokens of an excerpt (default auto: powers of two from min(2048, L0/4) to L0)", 1},
    {"samples", KEY_SAMPLES, "N", 0, "Excerpts of each length (default 10)", 1},
    {"contribution", KEY_CONTRIBUTION, "NAME", 0,
     "product-of-means (default, the paper) or mean-of-products (its released code)", 1},
    {"trained-length", KEY_TRAINED_LENGTH, "L0", 0,
     "Trained length (default: max_position_embeddings)", 1},
    {"seed", KEY_SEED, "S", 0, "Seed of the excerpts (default 1)", 1},
    {"special-in-text", KEY_SPECIAL, "WHAT", 0,
     "Spelling of a special token in the text: error (default) or literal", 1},
    {"output", 'o', "OUT.h5", 0, "Table to write; an unfinished one is continued", 1},
    {"dry-run", KEY_DRY_RUN, NULL, 0, "Print tokens, operations, memory and time, and run nothing",
     1},
    {0},
};

static error_t parse_numbers(int key, const char *arg, struct argp_state *state,
                             struct arguments *args)
{
    int64_t value = 0;
    int64_t low = key == KEY_SEED ? 0 : 1;
    if (!dpe_parse_int(arg, low, INT64_C(1) << 40, &value)) {
        argp_error(state, "expected a whole number of %lld or more, found '%s'", (long long)low,
                   arg);
    }
    if (key == KEY_SEED) {
        args->seed = (uint64_t)value;
    } else if (key == KEY_SAMPLES) {
        args->samples = value;
    } else {
        args->trained_length = value;
    }
    return 0;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct arguments *args = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &args->tool;
        return 0;
    case 'm':
        args->model = arg;
        return 0;
    case KEY_CORPUS:
        args->corpus = arg;
        return 0;
    case KEY_SPLIT:
        args->split = arg;
        return 0;
    case KEY_LENGTHS:
        args->lengths = arg;
        return 0;
    case 'o':
        args->output = arg;
        return 0;
    case KEY_SAMPLES:
    case KEY_SEED:
    case KEY_TRAINED_LENGTH:
        return parse_numbers(key, arg, state, args);
    case KEY_CONTRIBUTION:
        if (!dpe_contribution_parse(arg, &args->contribution)) {
            argp_error(state,
                       "--contribution: expected product-of-means or mean-of-products, "
                       "found '%s'",
                       arg);
        }
        return 0;
    case KEY_SPECIAL:
        if (strcmp(arg, "error") != 0 && strcmp(arg, "literal") != 0) {
            argp_error(state, "--special-in-text: expected error or literal, found '%s'", arg);
        }
        args->special = arg[0] == 'l' ? DPE_SPECIAL_LITERAL : DPE_SPECIAL_ERROR;
        return 0;
    case KEY_DRY_RUN:
        args->dry_run = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s'", arg);
        return 0;
    case ARGP_KEY_END:
        if (args->model == NULL || args->corpus == NULL ||
            (args->output == NULL && !args->dry_run)) {
            argp_error(state, "%s is missing",
                       args->model == NULL    ? "--model DIR"
                       : args->corpus == NULL ? "--corpus PATH"
                                              : "-o OUT.h5");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static dpe_status parse_lengths(struct profile *profile, struct dpe_error *err)
{
    const char *text = profile->args->lengths;
    if (text == NULL || strcmp(text, "auto") == 0) {
        int64_t first = profile->trained_length / 4 < 2048 ? profile->trained_length / 4 : 2048;
        int64_t length = 1;
        while (length < first) {
            length *= 2;
        }
        for (; length <= profile->trained_length && profile->n_lengths < MAX_LENGTHS; length *= 2) {
            profile->lengths[profile->n_lengths++] = length;
        }
        return DPE_OK;
    }
    while (*text != '\0' && profile->n_lengths < MAX_LENGTHS) {
        char *end = NULL;
        long long length = strtoll(text, &end, 10);
        if (end == text || (*end != ',' && *end != '\0') || length < 2 || length > 1LL << 40) {
            return dpe_fail(err, DPE_USAGE,
                            "--lengths: expected auto or tokens such as 2048,4096, found '%s'",
                            profile->args->lengths);
        }
        profile->lengths[profile->n_lengths++] = length;
        text = *end == ',' ? end + 1 : end;
    }
    qsort(profile->lengths, (size_t)profile->n_lengths, sizeof profile->lengths[0], by_value);
    for (int i = 1; i < profile->n_lengths; i++) {
        if (profile->lengths[i] == profile->lengths[i - 1]) {
            return dpe_fail(err, DPE_USAGE, "--lengths: %lld is there twice",
                            (long long)profile->lengths[i]);
        }
    }
    return *text == '\0' ? DPE_OK
                         : dpe_fail(err, DPE_USAGE, "--lengths: more than %d", MAX_LENGTHS);
}

static int64_t longest(const struct profile *profile)
{
    return profile->lengths[profile->n_lengths - 1];
}

static dpe_status profile_open(struct profile *profile, const struct arguments *args,
                               struct dpe_error *err)
{
    profile->args = args;
    const struct dpe_corpus_options corpus_options = {.split = args->split};
    dpe_status status = dpe_model_open(args->model, NULL, &profile->model, err);
    if (status == DPE_OK) {
        profile->trained_length = args->trained_length > 0
                                      ? args->trained_length
                                      : dpe_model_config(profile->model)->max_position;
        status = parse_lengths(profile, err);
    }
    if (status == DPE_OK && profile->n_lengths == 0) {
        status = dpe_fail(err, DPE_USAGE, "--lengths: none is left of a trained length of %lld",
                          (long long)profile->trained_length);
    }
    if (status == DPE_OK) {
        status = dpe_tokenizer_open(args->model, &profile->tokenizer, err);
    }
    if (status == DPE_OK) {
        status = dpe_corpus_open(args->corpus, &corpus_options, &profile->corpus, err);
    }
    if (status == DPE_OK) {
        status =
            dpe_excerpts_make(profile->corpus, profile->tokenizer, longest(profile), args->samples,
                              args->seed, args->special, &profile->excerpts, err);
    }
    const struct dpe_plan_context context = {
        .config = status == DPE_OK ? dpe_model_config(profile->model) : NULL,
        .trained_length = profile->trained_length,
        .length = status == DPE_OK ? longest(profile) : 1,
        .angle = DPE_ANGLE_F32,
    };
    if (status == DPE_OK) {
        status = dpe_plan_make("rope", &context, &profile->plan, err);
    }
    if (status == DPE_OK) {
        status = dpe_plan_key(&profile->plan, profile->key, err);
    }
    return status;
}

static void profile_close(struct profile *profile)
{
    dpe_norms_destroy(profile->norms);
    dpe_session_destroy(profile->session);
    dpe_plan_free(&profile->plan);
    dpe_excerpts_free(&profile->excerpts);
    dpe_corpus_close(profile->corpus);
    dpe_tokenizer_close(profile->tokenizer);
    dpe_model_close(profile->model);
}

/* What decides a row. Samples and lengths may grow: an excerpt does not depend on how many there
 * are, only on the longest length, which all excerpts are cut to. */
static dpe_status make_identity(const struct profile *profile, struct dpe_identity *identity,
                                struct dpe_error *err)
{
    const struct arguments *args = profile->args;
    const struct {
        const char *name, *value;
    } texts[] = {
        {"kind", "norms"},
        {"model", dpe_model_fingerprint(profile->model)},
        {"tokenizer", dpe_tokenizer_fingerprint(profile->tokenizer)},
        {"corpus", dpe_corpus_fingerprint(profile->corpus)},
        {"contribution", dpe_contribution_name(args->contribution)},
        {"special_in_text", args->special == DPE_SPECIAL_LITERAL ? "literal" : "error"},
        {"device", args->tool.device != NULL ? args->tool.device : "cpu"},
        {"dtype", "f32"},
        {"angle", "f32"},
    };
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0] && status == DPE_OK; i++) {
        status = dpe_identity_add(identity, texts[i].name, texts[i].value, err);
    }
    if (status == DPE_OK) {
        status =
            dpe_identity_addf(identity, err, "excerpt_length", "%lld", (long long)longest(profile));
    }
    return status == DPE_OK
               ? dpe_identity_addf(identity, err, "seed", "%llu", (unsigned long long)args->seed)
               : status;
}

/* The profile's tap, and the signals' one behind it. */
static dpe_status on_rows(void *user, int64_t layer, int64_t start, int64_t rows, const float *q,
                          const float *k, struct dpe_error *err)
{
    dpe_status status = dpe_signals_tap(NULL, layer, start, rows, q, k, err);
    return status == DPE_OK ? dpe_norms_tap(user, layer, start, rows, q, k, err) : status;
}

struct dpe_session_options norms_session_options(const struct profile *profile)
{
    return (struct dpe_session_options){
        .device = profile->args->tool.device,
        .n_threads = profile->args->tool.threads,
        .capacity = longest(profile),
        .max_memory = profile->args->tool.max_memory,
    };
}

static dpe_status open_session(struct profile *profile, struct dpe_error *err)
{
    const struct dpe_session_options options = norms_session_options(profile);
    dpe_status status =
        dpe_session_create(profile->model, &profile->plan, &options, &profile->session, err);
    if (status == DPE_OK) {
        status = dpe_norms_create(dpe_model_config(profile->model), profile->args->contribution,
                                  profile->args->tool.threads, &profile->norms, err);
    }
    if (status == DPE_OK) {
        dpe_session_set_tap(profile->session, on_rows, profile->norms);
    }
    return status;
}

/* One excerpt at one length; non-finite values make the row say so instead of ending the run. */
static dpe_status run_row(struct profile *profile, int64_t length, int64_t sample,
                          struct dpe_row *row, struct dpe_error *err)
{
    const int32_t *ids = profile->excerpts.ids + sample * profile->excerpts.length;
    norms_task_name(length, row->task);
    memcpy(row->plan, profile->key, sizeof row->plan);
    row->sample = sample;
    row->prompt_tokens = length;
    row->seed = profile->args->seed;
    double begin = dpe_clock();
    dpe_norms_reset(profile->norms);
    dpe_status status = dpe_session_cut(profile->session, 0, err);
    if (status == DPE_OK) {
        status = dpe_session_feed(profile->session, ids, length, NULL, err);
    }
    int64_t size = dpe_norms_size(profile->norms);
    if (status == DPE_OK) {
        row->buckets = dpe_alloc((size_t)size, sizeof *row->buckets);
        row->n_buckets = (int32_t)size;
        status = row->buckets != NULL ? dpe_norms_finish(profile->norms, row->buckets, err)
                                      : dpe_fail(err, DPE_NO_MEMORY, "out of memory for a row");
    }
    if (status == DPE_NONFINITE) {
        free(row->buckets);
        row->buckets = NULL;
        row->n_buckets = 0;
        row->status = DPE_ROW_NONFINITE;
        row->layer = err != NULL ? err->layer : -1;
        row->position = err != NULL ? err->position : -1;
        status = DPE_OK;
    }
    row->seconds = dpe_clock() - begin;
    return status;
}

static dpe_status measure_rows(struct profile *profile, double deadline, struct dpe_error *err)
{
    int64_t total = profile->args->samples * profile->n_lengths;
    int64_t done = 0;
    double last_snapshot = dpe_clock();
    for (int64_t s = 0; s < profile->args->samples; s++) {
        for (int i = 0; i < profile->n_lengths; i++, done++) {
            char line[128];
            snprintf(line, sizeof line, "norms: %lld of %lld excerpts", (long long)done,
                     (long long)total);
            dpe_progress((double)done, (double)total, line);
            norms_task_name(profile->lengths[i], line);
            if (dpe_run_find(profile->run, line, profile->key, s) != NULL) {
                continue;
            }
            if (dpe_signals_asked() != DPE_STOP_NONE || dpe_clock() > deadline) {
                return dpe_fail(err, DPE_INCOMPLETE,
                                "stopped with %lld of %lld excerpts done; the same command "
                                "continues",
                                (long long)done, (long long)total);
            }
            dpe_status status = profile->session == NULL ? open_session(profile, err) : DPE_OK;
            struct dpe_row row;
            dpe_row_init(&row);
            if (status == DPE_OK) {
                status = run_row(profile, profile->lengths[i], s, &row, err);
            }
            if (status == DPE_OK) {
                status = dpe_run_add(profile->run, &row, err);
            }
            dpe_row_free(&row);
            if (status == DPE_OK && dpe_clock() - last_snapshot > snapshot_interval) {
                status = dpe_run_snapshot(profile->run, false, norms_fill, profile, err);
                last_snapshot = dpe_clock();
            }
            if (status != DPE_OK) {
                return status;
            }
        }
    }
    return DPE_OK;
}

static void notice(void *user, const char *text)
{
    (void)user;
    dpe_log_warning("%s", text);
}

/* Entropy and shares, averaged over the heads of a layer. */
static void print_layer(const struct result *result, int64_t layer, int64_t n_heads)
{
    double entropy = 0.0;
    double shares[3] = {0.0, 0.0, 0.0};
    for (int64_t head = 0; head < n_heads; head++) {
        int64_t at = (layer * n_heads + head) * result->n_pairs;
        entropy += dpe_norms_entropy(result->mean + at, result->n_pairs) / (double)n_heads;
        for (int i = 0; i < 3; i++) {
            shares[i] += dpe_norms_share(result->mean + at, result->ranking + at, result->n_pairs,
                                         result->n_pairs * (i + 1) / 4) /
                         (double)n_heads;
        }
    }
    printf("%5lld  %8.3f  %8.1f %%  %8.1f %%  %8.1f %%\n", (long long)layer, entropy,
           100.0 * shares[0], 100.0 * shares[1], 100.0 * shares[2]);
}

/* The heads whose best quarter of pairs holds most. */
static void print_dominated(const struct result *result, int64_t n_heads)
{
    double last = 2.0;
    printf("heads where few pairs dominate (share of their best quarter of pairs):");
    for (int shown = 0; shown < 5; shown++) {
        int64_t best = -1;
        double best_share = -1.0;
        for (int64_t row = 0; row < result->n_rows; row++) {
            double share = dpe_norms_share(result->mean + row * result->n_pairs,
                                           result->ranking + row * result->n_pairs, result->n_pairs,
                                           result->n_pairs / 4);
            if (share < last && share > best_share) {
                best = row;
                best_share = share;
            }
        }
        if (best < 0) {
            break;
        }
        printf("  %lld.%lld (%.0f %%)", (long long)(best / n_heads), (long long)(best % n_heads),
               100.0 * best_share);
        last = best_share;
    }
    printf("\n");
}

static dpe_status print_summary(const struct profile *profile, struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(profile->model);
    struct result result = {0};
    dpe_status status = norms_summarize(profile, &result, err);
    if (status == DPE_OK) {
        printf("2-norm contribution of %lld pairs a head (%s), %lld excerpts of %d lengths\n",
               (long long)result.n_pairs, dpe_contribution_name(profile->args->contribution),
               (long long)profile->args->samples, profile->n_lengths);
        printf("layer   entropy  top 25 %%    top 50 %%    top 75 %% of the pairs hold\n");
        for (int64_t layer = 0; layer < config->n_layers; layer++) {
            print_layer(&result, layer, config->n_heads);
        }
        printf("entropy in bits; %.3f when all pairs contribute alike\n",
               log2((double)result.n_pairs));
        print_dominated(&result, config->n_heads);
    }
    norms_result_free(&result);
    return status;
}

static dpe_status run_profile(struct profile *profile, double begin, struct dpe_error *err)
{
    const struct arguments *args = profile->args;
    struct dpe_identity identity = {0};
    struct dpe_identity info = {0};
    dpe_status status = make_identity(profile, &identity, err);
    if (status == DPE_OK) {
        status = dpe_run_info(&info, args->argc, args->argv, args->tool.threads, err);
    }
    const struct dpe_run_options options = {
        .force = args->tool.force,
        .salvage = args->tool.salvage,
        .keep_journal = args->tool.keep_journal,
        .force_unlock = args->tool.force_unlock,
        .info = &info,
        .notice = notice,
    };
    /* Where nothing was begun, what does not fit into memory leaves nothing behind. */
    if (status == DPE_OK && access(args->output, F_OK) != 0) {
        status = open_session(profile, err);
    }
    if (status == DPE_OK) {
        status = dpe_run_open(args->output, &identity, &options, &profile->run, err);
    }
    dpe_identity_free(&identity);
    dpe_identity_free(&info);
    if (status != DPE_OK) {
        return status;
    }
    double deadline = args->tool.time_budget > 0.0 ? begin + args->tool.time_budget : HUGE_VAL;
    status = dpe_run_plan(profile->run, profile->key, profile->plan.name, err);
    if (status == DPE_OK) {
        status = measure_rows(profile, deadline, err);
    }
    if (status == DPE_OK || status == DPE_INCOMPLETE) {
        struct dpe_error *where = status == DPE_OK ? err : NULL;
        dpe_status saved =
            dpe_run_snapshot(profile->run, status == DPE_OK, norms_fill, profile, where);
        status = status == DPE_OK ? saved : status;
    }
    if (status == DPE_OK) {
        status = print_summary(profile, err);
    }
    dpe_status closed = dpe_run_close(profile->run, status == DPE_OK ? err : NULL);
    profile->run = NULL;
    return status == DPE_OK ? closed : status;
}

int main(int argc, char **argv)
{
    static const struct argp_child children[] = {{&dpe_tool_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        .options = options_table,
        .parser = parse_option,
        .doc = "Measure which pairs of each head carry its logits (2-norms of queries and keys).\v"
               "The table holds every score per length and sample, so that any top-k can be cut "
               "from it later. A run that was stopped goes on with the same command.\n\n"
               "Example:\n"
               "  dpe-norms -m DIR --corpus pg19 -o norms.h5",
        .children = children,
    };
    double begin = dpe_clock();
    dpe_tool_start(argv[0]);
    struct arguments args = {.samples = 10, .seed = 1, .argc = argc, .argv = argv};
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    dpe_tool_configure(&args.tool);
    dpe_signals_install();
    struct dpe_error err = {0};
    struct profile profile = {0};
    dpe_status status = profile_open(&profile, &args, &err);
    if (status == DPE_OK) {
        status = args.dry_run ? norms_dry_run(&profile, &err) : run_profile(&profile, begin, &err);
    }
    profile_close(&profile);
    return dpe_tool_end(status, &err);
}
