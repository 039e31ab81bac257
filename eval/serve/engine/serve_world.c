/* What is served: model, tokenizer, plans, chat template, key; and plans that clients gave while
 * the server runs. Sequences and caches name those by number, which none gets twice. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/plan/methods/methods.h"
#include "engine/system/folder.h"
#include "engine/text/json.h"
#include "eval/serve/engine/serve_engine_internal.h"
#include "outputs/read/read.h"
#include "outputs/table/dpe_table.h"
#include "outputs/table/fields.h"

/* The plan of texts of up to `text` tokens, made for `length`; by the same way as dpe-run. */
static dpe_status add_plan(struct dpe_serve_world *world, int64_t trained, int64_t text,
                           int64_t length, struct dpe_error *err)
{
    const struct dpe_serve_arguments *args = world->args;
    const struct dpe_plan_context context = {
        .config = dpe_model_config(world->model),
        .trained_length = trained,
        .length = length,
        .text = text,
        .official = true,
    };
    const char *fingerprint = args->other_model ? NULL : dpe_model_fingerprint(world->model);
    struct dpe_serve_plan *added = &world->plans[world->n_plans];
    added->length = text;
    DPE_TRY(
        dpe_plan_asked(args->table, world->method, &context, fingerprint, &added->plan, NULL, err));
    if (args->table == NULL && dpe_plan_is_formula(world->method) && text > trained) {
        snprintf(added->evidence, sizeof added->evidence, "a formula: nothing was measured");
        dpe_log_info("up to %lld tokens: %s, %s", (long long)text, added->plan.name,
                     added->evidence);
    }
    world->n_plans++;
    return dpe_plan_digest(&added->plan, added->digest, err);
}

/* Of a table: the unchanged model up to its trained length, then each entry. */
static dpe_status add_table(struct dpe_serve_world *world, struct dpe_error *err)
{
    DPE_SCOPED(dpe_table_close_scoped) struct dpe_table *table = NULL;
    DPE_TRY(dpe_table_load(world->args->table, &table, err));
    int64_t n = dpe_table_count(table);
    int64_t trained = dpe_table_values(table)->trained_length;
    DPE_TRY(DPE_NEW(&world->plans, (size_t)n + 1, err, "out of memory"));
    DPE_TRY(add_plan(world, trained, trained, trained, err));
    for (int64_t i = 0; i < n; i++) {
        const struct dpe_table_values *values = dpe_table_values(dpe_table_entry(table, i));
        if (values->length > trained) {
            DPE_TRY(add_plan(world, trained, values->length, values->length, err));
            dpe_table_evidence(values, world->plans[world->n_plans - 1].evidence);
        }
    }
    int64_t longest = dpe_table_values(table)->length;
    world->length = world->args->length > 0 ? world->args->length : longest;
    if (world->length > longest) {
        dpe_log_warning("%s was made for %lld tokens, --length allows %lld: larger distances were "
                        "not measured",
                        world->args->table, (long long)longest, (long long)world->length);
    }
    return DPE_OK;
}

/* The unchanged model up to its trained length, then the method, made for all that is served. */
static dpe_status add_method(struct dpe_serve_world *world, struct dpe_error *err)
{
    const struct dpe_serve_arguments *args = world->args;
    const struct dpe_config *config = dpe_model_config(world->model);
    int64_t given = args->trained_length;
    int64_t trained = given > 0 ? given : dpe_config_trained(config);
    int64_t most = given > 0 ? given : config->max_position;
    world->length = args->length > 0 ? args->length : most;
    world->method = args->method != NULL ? args->method : world->length > most ? "dpe" : "rope";
    DPE_TRY(DPE_NEW(&world->plans, DPE_TABLE_ENTRIES, err, "out of memory"));
    /* The formula depends on the length: a plan for every doubling of the trained one. */
    for (int64_t text = trained; text < world->length;
         text = dpe_plan_is_formula(world->method) ? 2 * text : world->length) {
        DPE_TRY(add_plan(world, trained, text, text > trained ? text : world->length, err));
    }
    DPE_TRY(add_plan(world, trained, world->length, world->length, err));
    /* They are one with always=1, and where the method is the model's own. */
    if (world->n_plans == 2 && strcmp(world->plans[0].digest, world->plans[1].digest) == 0) {
        dpe_plan_free(&world->plans[0].plan);
        world->plans[0] = world->plans[--world->n_plans];
    }
    return DPE_OK;
}

int64_t dpe_serve_world_choose(const struct dpe_serve_world *world, int64_t tokens)
{
    int64_t i = 0;
    while (i + 1 < world->n_plans && world->plans[i].length < tokens) {
        i++;
    }
    return i;
}

int64_t dpe_serve_world_room(const struct dpe_serve_world *world, int64_t prompt)
{
    int64_t tokens = prompt + world->args->answer_room;
    int64_t made_for = world->plans[dpe_serve_world_choose(world, tokens)].length;
    int64_t end = tokens <= made_for && made_for < world->length ? made_for : world->length;
    return end - prompt;
}

/* --------------------------------------------------------------------------- plans of clients */

/* The plan of a client with this number, or with this digest, of its request or its own; NULL:
 * none. With the lock held. */
static struct dpe_serve_given *find(const struct dpe_serve_taken *taken, int64_t number,
                                    const char *digest)
{
    for (int64_t i = 0; i < taken->n; i++) {
        struct dpe_serve_given *given = taken->plans[i];
        if (digest != NULL
                ? strcmp(given->plan.digest, digest) == 0 || strcmp(given->own, digest) == 0
                : given->number == number) {
            return given;
        }
    }
    return NULL;
}

const struct dpe_serve_plan *dpe_serve_world_plan(const struct dpe_serve_world *world,
                                                  int64_t index)
{
    if (index < world->n_plans) {
        return &world->plans[index];
    }
    pthread_mutex_lock(&world->taken->lock);
    const struct dpe_serve_plan *plan = &find(world->taken, index - world->n_plans, NULL)->plan;
    pthread_mutex_unlock(&world->taken->lock);
    return plan;
}

int64_t dpe_serve_world_hold(const struct dpe_serve_world *world, const char *digest)
{
    struct dpe_serve_taken *taken = world->taken;
    int64_t found = -1;
    for (int64_t i = 0; i < world->n_plans; i++) {
        found = strcmp(world->plans[i].digest, digest) == 0 ? i : found;
    }
    pthread_mutex_lock(&taken->lock);
    struct dpe_serve_given *given = found < 0 ? find(taken, 0, digest) : NULL;
    if (given != NULL) {
        given->holders++;
        given->used = ++taken->clock;
        found = world->n_plans + given->number;
    }
    pthread_mutex_unlock(&taken->lock);
    return found;
}

void dpe_serve_world_release(const struct dpe_serve_world *world, int64_t index)
{
    if (index >= world->n_plans) {
        pthread_mutex_lock(&world->taken->lock);
        find(world->taken, index - world->n_plans, NULL)->holders--;
        pthread_mutex_unlock(&world->taken->lock);
    }
}

/* Forget the plan that was not used for longest and that no request holds; false: all are held. */
static bool forget_one(struct dpe_serve_taken *taken)
{
    int64_t oldest = -1;
    for (int64_t i = 0; i < taken->n; i++) {
        const struct dpe_serve_given *given = taken->plans[i];
        if (given->holders == 0 && (oldest < 0 || given->used < taken->plans[oldest]->used)) {
            oldest = i;
        }
    }
    if (oldest >= 0) {
        taken->bytes -= taken->plans[oldest]->bytes;
        dpe_plan_free(&taken->plans[oldest]->plan.plan);
        free(taken->plans[oldest]);
        taken->plans[oldest] = taken->plans[--taken->n];
    }
    return oldest >= 0;
}

static dpe_status add(const struct dpe_serve_world *world, struct dpe_plan *plan,
                      const char *digest, struct dpe_error *err)
{
    struct dpe_serve_taken *taken = world->taken;
    const uint64_t pairs = (uint64_t)plan->n_pairs;
    const uint64_t mask = (uint64_t)(plan->n_layers * plan->n_heads) * pairs;
    DPE_OWNED struct dpe_serve_given *made = NULL;
    DPE_TRY(DPE_NEW(&made, 1, err, "out of memory for a plan"));
    DPE_TRY(dpe_plan_digest(plan, made->own, err));
    made->bytes = sizeof *made + sizeof(double) * pairs * (1 + 4 * DPE_MAX_BANDS) +
                  (plan->mask != NULL ? mask : 0);
    while (taken->n == SERVE_MOST_TAKEN || taken->bytes + made->bytes > SERVE_MOST_TAKEN_BYTES) {
        if (!forget_one(taken)) {
            return dpe_fail(err, DPE_NO_MEMORY,
                            "requests run under %lld plans of clients, the most that this server "
                            "keeps; try again later",
                            (long long)taken->n);
        }
    }
    made->plan.plan = *plan;
    *plan = (struct dpe_plan){0};
    made->plan.length = world->length;
    memcpy(made->plan.digest, digest, sizeof made->plan.digest);
    made->used = ++taken->clock;
    made->number = taken->given++;
    taken->bytes += made->bytes;
    taken->plans[taken->n++] = made;
    made = NULL;
    return DPE_OK;
}

/* The plan of a table of this model, with one entry. */
static dpe_status read_plan(const struct dpe_serve_world *world, const json_t *value,
                            struct dpe_plan *plan, struct dpe_error *err)
{
    DPE_SCOPED(dpe_table_close_scoped) struct dpe_table *table = NULL;
    char why[DPE_TABLE_MESSAGE];
    const int error = dpe_table_of_json("the plan", value, &table, why);
    if (error != DPE_TABLE_OK || dpe_table_count(table) != 1) {
        return dpe_fail(err, error != DPE_TABLE_OK ? dpe_table_status(error) : DPE_BAD_DATA, "%s",
                        error != DPE_TABLE_OK ? why : "expected a table of one entry");
    }
    const struct dpe_table_values *values = dpe_table_values(table);
    const char *fingerprint = dpe_model_fingerprint(world->model);
    if (strcmp(values->model_fingerprint, fingerprint) != 0) {
        return dpe_fail(err, DPE_BAD_DATA, "expected a plan for the model %.16s…, found %.16s…",
                        fingerprint, values->model_fingerprint);
    }
    const struct dpe_plan_context context = {.config = dpe_model_config(world->model),
                                             .official = true};
    return dpe_plan_of_table(values, &context, plan, err);
}

dpe_status dpe_serve_taken_add(const struct dpe_serve_world *world, const json_t *value,
                               const char *digest, struct dpe_error *err)
{
    DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
    const int64_t there = dpe_serve_world_hold(world, digest);
    if (there >= 0) {
        dpe_serve_world_release(world, there);
        return DPE_OK;
    }
    DPE_TRY(read_plan(world, value, &plan, err));
    pthread_mutex_lock(&world->taken->lock);
    dpe_status status =
        find(world->taken, 0, digest) != NULL ? DPE_OK : add(world, &plan, digest, err);
    pthread_mutex_unlock(&world->taken->lock);
    return status;
}

static void taken_free(struct dpe_serve_taken *taken)
{
    while (taken != NULL && forget_one(taken)) {
    }
    if (taken != NULL) {
        pthread_mutex_destroy(&taken->lock);
    }
    free(taken);
}

/* ------------------------------------------------------------------------------------ the rest */

/* One line of the key file as a key; an empty one is none. */
static dpe_status add_key(struct dpe_serve_world *world, const char *line, struct dpe_error *err)
{
    static const char blanks[] = " \t\r";
    line += strspn(line, blanks);
    size_t n = 0;
    while (line[n] > ' ' && line[n] <= '~') {
        n++;
    }
    if (line[n + strspn(line + n, blanks)] != '\0') {
        return dpe_fail(
            err, DPE_BAD_DATA,
            "%s: expected a key of printable ASCII characters without white space, which "
            "a client can send in a header",
            world->args->key_file);
    }
    if (n == 0) {
        return DPE_OK;
    }
    DPE_TRY(DPE_ROOM(&world->keys, (size_t)world->n_keys, err, "out of memory"));
    char *key = strndup(line, n);
    DPE_TRY(DPE_MADE(key, err, "out of memory"));
    world->keys[world->n_keys++] = key;
    return DPE_OK;
}

/* The keys in the key file, one a line. */
static dpe_status read_keys(struct dpe_serve_world *world, struct dpe_error *err)
{
    enum { MOST_BYTES = 1 << 16 };
    const char *path = world->args->key_file;
    DPE_OWNED char *text = NULL;
    size_t size = 0;
    if (path == NULL) {
        return DPE_OK;
    }
    DPE_TRY(dpe_read_file(path, MOST_BYTES, &text, &size, err));
    if (strlen(text) < size) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: expected a key of printable ASCII characters, found NUL", path);
    }
    for (char *at = text, *line; (line = strsep(&at, "\n")) != NULL;) {
        DPE_TRY(add_key(world, line, err));
    }
    return world->n_keys > 0 ? DPE_OK
                             : dpe_fail(err, DPE_BAD_DATA, "%s: expected a key, found none", path);
}

/* The last part of the model's path as it was given (a snapshot of a cache is named by a hash).
 * Answers are JSON, so what is not UTF-8 becomes \xNN. */
static void name_model(struct dpe_serve_world *world)
{
    int n = 0;
    const char *name = dpe_folder_name(world->args->given, &n);
    char last[NAME_MAX + 1];
    snprintf(last, sizeof last, "%.*s", n, name);
    dpe_printable(last, world->last_part, sizeof world->last_part);
    world->name = world->args->name != NULL ? world->args->name : world->last_part;
}

/* tokenizer_config.json, where the folder has one; of a GGUF file what its metadata says. */
static dpe_status read_tokenizer_config(struct dpe_serve_world *world, struct dpe_error *err)
{
    DPE_TRY(dpe_chat_gguf_config(world->args->model, &world->tokenizer_config, err));
    if (world->tokenizer_config != NULL) {
        return DPE_OK;
    }
    DPE_OWNED char *path = dpe_folder_join(world->args->model, "tokenizer_config.json");
    DPE_TRY(DPE_MADE(path, err, "out of memory"));
    DPE_TRY(dpe_json_read(path, &world->tokenizer_config, err));
    if (world->tokenizer_config == NULL) {
        world->tokenizer_config = json_object();
    }
    return DPE_MADE(world->tokenizer_config, err, "out of memory");
}

/* Completions work without a template that can be used. */
static dpe_status read_template(struct dpe_serve_world *world, struct dpe_error *err)
{
    const char *what = world->args->chat_template;
    DPE_TRY(dpe_chat_set_variables(world->args->template_vars, err));
    dpe_status status =
        dpe_chat_open(what != NULL ? what : "auto", world->args->model, &world->chat, err);
    if (status == DPE_BAD_DATA && what == NULL) {
        dpe_log_warning("%s; chat is refused", err->text);
        status = DPE_OK;
    }
    return status == DPE_OK && world->chat != NULL
               ? dpe_chat_find_ends(world->chat, world->tokenizer, &world->ends, err)
               : status;
}

dpe_status dpe_serve_world_open(const struct dpe_serve_arguments *args,
                                struct dpe_serve_world *world, struct dpe_error *err)
{
    const int64_t trained = dpe_table_trained(args->table, args->trained_length);
    *world = (struct dpe_serve_world){.args = args, .started = (int64_t)time(NULL)};
    name_model(world);
    DPE_TRY(DPE_NEW(&world->taken, 1, err, "out of memory"));
    pthread_mutex_init(&world->taken->lock, NULL);
    DPE_TRY(read_keys(world, err));
    DPE_TRY(dpe_model_open(args->model, &(struct dpe_model_options){.trained_length = trained},
                           &world->model, err));
    DPE_TRY(dpe_tool_find_device(&args->tool, world->model, &world->device, err));
    DPE_TRY(dpe_tokenizer_open(args->model, &world->tokenizer, err));
    DPE_TRY(read_tokenizer_config(world, err));
    DPE_TRY(read_template(world, err));
    if (dpe_model_warning(world->model) != NULL) {
        dpe_log_warning("%s: %s", args->model, dpe_model_warning(world->model));
    }
    return args->table != NULL ? add_table(world, err) : add_method(world, err);
}

void dpe_serve_world_close(struct dpe_serve_world *world)
{
    for (int64_t i = 0; i < world->n_plans; i++) {
        dpe_plan_free(&world->plans[i].plan);
    }
    free(world->plans);
    taken_free(world->taken);
    for (int64_t i = 0; i < world->n_keys; i++) {
        free(world->keys[i]);
    }
    free(world->keys);
    json_decref(world->tokenizer_config);
    dpe_chat_close(world->chat);
    dpe_tokenizer_close(world->tokenizer);
    dpe_model_close(world->model);
}
