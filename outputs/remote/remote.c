/* An engine over HTTP: who it is, its plan, continuations and likelihoods. */
#include <ctype.h>
#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plan/methods/methods.h"
#include "engine/text/json.h"
#include "outputs/read/read.h"
#include "outputs/remote/remote_internal.h"

enum {
    ANSWER_BYTES =
        1 << 20, /* of any answer, and for each token or log-probability that was asked for: */
    BYTES_OF_TOKEN = 1024,
    KEY_BYTES = 4096,
};

struct dpe_remote_engine {
    struct dpe_http http;
    struct dpe_remote_about about;
    const struct dpe_tokenizer *tokenizer;
    const struct dpe_config *config;
    char plan[65]; /* what the engine calls the plan that the session is under; of a server without
                      plans anything */
    char own[65];  /* its digest here */
    char *given;   /* that plan, as the engine took it */
    bool has_plan;
    struct dpe_session_remote session;
};

/* ------------------------------------------------------------------------------------- answers */

/* The JSON of an answer, or what it was refused with. */
static dpe_status read_answer(const struct dpe_http *http, const struct dpe_http_exchange *exchange,
                              json_t **value, struct dpe_error *err)
{
    char where[600];
    char quoted[96];
    snprintf(where, sizeof where, "the answer of %.300s%.200s", http->url, exchange->path);
    const char *bytes = exchange->answer.n > 0 ? exchange->answer.bytes : "";
    dpe_status status = dpe_json_parse(where, bytes, exchange->answer.n, value, err);
    if (exchange->status == 200) {
        return status;
    }
    const json_t *error = status == DPE_OK ? json_object_get(*value, "error") : NULL;
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));
    message = message != NULL ? message : dpe_json_quote(quoted, bytes, exchange->answer.n);
    bool nonfinite = code != NULL && strcmp(code, "not_finite") == 0;
    bool theirs = exchange->status >= 400 && exchange->status < 500;
    const dpe_status refused = nonfinite ? DPE_NONFINITE : theirs ? DPE_BAD_DATA : DPE_IO;
    char text[400];
    dpe_printable(message, text, sizeof text);
    dpe_fail(err, refused, "%s%s: refused with status %ld: %s", http->url, exchange->path,
             exchange->status, text);
    if (nonfinite && err != NULL) {
        err->layer = -1;
        err->position = -1;
    }
    if (status == DPE_OK) {
        json_decref(*value);
        *value = NULL;
    }
    return refused;
}

static dpe_status wrong(const struct dpe_remote_engine *engine, const char *what,
                        struct dpe_error *err)
{
    return dpe_fail(err, DPE_BAD_DATA, "the answer of %s: expected %s, found something else",
                    engine->http.url, what);
}

static void free_exchange(struct dpe_http_exchange *exchange)
{
    free(exchange->body);
    dpe_text_free(&exchange->answer);
}

/* One request and its JSON. `body`: NULL: GET. */
static dpe_status ask(const struct dpe_remote_engine *engine, const char *path, const char *body,
                      json_t **value, long *http_status, struct dpe_error *err)
{
    DPE_SCOPED(free_exchange)
    struct dpe_http_exchange exchange = {
        .path = path, .body = body != NULL ? strdup(body) : NULL, .most = ANSWER_BYTES};
    if (body != NULL) {
        DPE_TRY(DPE_MADE(exchange.body, err, "%s: out of memory for a request", engine->http.url));
    }
    DPE_TRY(dpe_http_run(&engine->http, &exchange, 1, err));
    *http_status = exchange.status;
    return read_answer(&engine->http, &exchange, value, err);
}

/* --------------------------------------------------------------------------------------- plans */

/* The plan as a table of one entry, which the engine calls by the digest of these bytes. */
static dpe_status write_plan(const struct dpe_remote_engine *engine, const struct dpe_plan *plan,
                             char **text, struct dpe_error *err)
{
    DPE_SCOPED(dpe_table_close_scoped) struct dpe_table *table = NULL;
    const struct dpe_plan_context context = {.config = engine->config,
                                             .trained_length = dpe_config_trained(engine->config),
                                             .length = engine->about.length,
                                             .official = true};
    if (dpe_table_for_plan(plan, &context, engine->about.model, 0, &table, err) != DPE_OK) {
        return dpe_fail_prefix(err, "%s: %.200s", engine->http.url, plan->name);
    }
    *text = dpe_table_json(table);
    return DPE_MADE(*text, err, "out of memory for a plan");
}

/* Have the engine take the plan. */
static dpe_status give_plan(const struct dpe_remote_engine *engine, struct dpe_error *err)
{
    DPE_SCOPED(json_decrefp) json_t *answer = NULL;
    long code = 0;
    DPE_TRY(ask(engine, "/v1/dpe/plan", engine->given, &answer, &code, err));
    const char *got = json_string_value(json_object_get(answer, "plan"));
    const char *model = json_string_value(json_object_get(answer, "model"));
    if (got == NULL || strcmp(got, engine->plan) != 0) {
        return dpe_fail(err, DPE_BAD_DATA, "the answer of %s: expected plan %.16s, found %.16s",
                        engine->http.url, engine->plan, got != NULL ? got : "none");
    }
    return model != NULL && strcmp(model, engine->about.model) == 0
               ? DPE_OK
               : dpe_fail(err, DPE_BAD_DATA, "%s: its model has changed since it was asked first",
                          engine->http.url);
}

static dpe_status take_plan(void *user, const struct dpe_plan *plan, struct dpe_error *err)
{
    struct dpe_remote_engine *engine = user;
    char wanted[65];
    DPE_TRY(dpe_plan_digest(plan, wanted, err));
    if (engine->has_plan && strcmp(engine->own, wanted) == 0) {
        return DPE_OK;
    }
    if (engine->about.plans) {
        engine->has_plan = false;
        free(engine->given);
        engine->given = NULL;
        DPE_TRY(write_plan(engine, plan, &engine->given, err));
        DPE_TRY(dpe_sha256_bytes(engine->given, strlen(engine->given), engine->plan, err));
        DPE_TRY(give_plan(engine, err));
    } /* else each is a name for the one that it runs, which tools see to */
    memcpy(engine->own, wanted, sizeof wanted);
    engine->has_plan = true;
    return DPE_OK;
}

/* --------------------------------------------------------------------------------- completions */

static json_t *write_ids(const int32_t *ids, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++) {
        json_array_append_new(list, json_integer(ids[i]));
    }
    return list;
}

/* Of an engine that takes plans, and of any server of OpenAI's interface. */
static const char *completions_path(const struct dpe_remote_engine *engine)
{
    return engine->about.plans ? "/v1/dpe/completions" : "/v1/completions";
}

static char *write_request(const struct dpe_remote_engine *engine, const int32_t *ids, int64_t n,
                           int64_t max_new, bool ignore_eos, bool likelihood)
{
    DPE_SCOPED(json_decrefp)
    json_t *body = json_pack(
        "{s:s,s:o,s:I,s:i,s:o*,s:o*,s:o*,s:s*,s:o*}", "model", engine->about.name, "prompt",
        write_ids(ids, n), "max_tokens", (json_int_t)max_new, "temperature", 0, "echo",
        likelihood ? json_true() : NULL, "logprobs", likelihood ? json_integer(0) : NULL,
        "ignore_eos", ignore_eos ? json_true() : NULL, "dpe_plan",
        engine->about.plans ? engine->plan : NULL, "return_token_ids",
        engine->about.plans ? json_true() : NULL);
    return body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
}

/* Whether an answer is under the plan that was asked for. */
static dpe_status check_plan(const struct dpe_remote_engine *engine, const json_t *answer,
                             struct dpe_error *err)
{
    const char *plan = json_string_value(json_object_get(json_object_get(answer, "dpe"), "digest"));
    return !engine->about.plans || (plan != NULL && strcmp(plan, engine->plan) == 0)
               ? DPE_OK
               : dpe_fail(err, DPE_BAD_DATA,
                          "the answer of %s: expected one under plan %.16s, found %.16s",
                          engine->http.url, engine->plan, plan != NULL ? plan : "none");
}

/* The one choice of an answer. Borrowed; NULL with an error. */
static const json_t *choice_of(const struct dpe_remote_engine *engine, const json_t *answer,
                               struct dpe_error *err)
{
    const json_t *choices = json_object_get(answer, "choices");
    const json_t *choice = json_array_get(choices, 0);
    if (json_array_size(choices) != 1 || !json_is_object(choice)) {
        wrong(engine, "one choice", err);
        return NULL;
    }
    return check_plan(engine, answer, err) == DPE_OK ? choice : NULL;
}

/* The ids of a text that a server without ids gave: they decode to it, if not always as the server
 * had them. */
static dpe_status ids_of_text(const struct dpe_remote_engine *engine, const json_t *text,
                              struct dpe_tokens *out, struct dpe_error *err)
{
    const struct dpe_encode_options options = {.special = DPE_SPECIAL_PARSE};
    return !json_is_string(text)
               ? wrong(engine, "the text of a choice", err)
               : dpe_tokenizer_encode(engine->tokenizer, json_string_value(text),
                                      json_string_length(text), &options, out, err);
}

static dpe_status take_continuation(const struct dpe_remote_engine *engine, const json_t *answer,
                                    const void *texts, int64_t at, struct dpe_error *err)
{
    const struct dpe_remote_text *text = (const struct dpe_remote_text *)texts + at;
    const json_t *choice = choice_of(engine, answer, err);
    if (choice == NULL) {
        return DPE_BAD_DATA;
    }
    if (!engine->about.plans) {
        return ids_of_text(engine, json_object_get(choice, "text"), text->out, err);
    }
    const json_t *ids = json_object_get(choice, "token_ids");
    size_t n = json_array_size(ids);
    DPE_TRY(json_is_array(ids) && n <= (size_t)text->max_new
                ? DPE_OK
                : wrong(engine, "token_ids, as many as were asked for", err));
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(ids, i);
        int32_t value = (int32_t)json_integer_value(id);
        DPE_TRY(json_is_integer(id) && json_integer_value(id) >= 0 &&
                        json_integer_value(id) == value
                    ? dpe_tokens_append(text->out, &value, 1, err)
                    : wrong(engine, "token_ids from 0 on", err));
    }
    return DPE_OK;
}

/* Whether the server has lost the plan, because it was started again or has taken many others; the
 * answers that do not say so are kept. */
static bool forgot_plan(struct dpe_http_exchange *exchanges, int64_t n)
{
    bool forgot = false;
    for (int64_t i = 0; i < n; i++) {
        const struct dpe_text *answer = &exchanges[i].answer;
        exchanges[i].kept = exchanges[i].status != 404 || answer->n == 0 ||
                            strstr(answer->bytes, "\"plan_not_found\"") == NULL;
        forgot = forgot || !exchanges[i].kept;
    }
    return forgot;
}

/* Send n requests, whose bodies are given to this function, and have each answer taken. */
static dpe_status
ask_all(const struct dpe_remote_engine *engine, struct dpe_http_exchange *exchanges, int64_t n,
        dpe_status (*take)(const struct dpe_remote_engine *engine, const json_t *answer,
                           const void *user, int64_t i, struct dpe_error *err),
        const void *user, struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (int64_t i = 0; i < n && status == DPE_OK; i++) {
        status = DPE_MADE(exchanges[i].body, err, "out of memory for a request");
    }
    if (status == DPE_OK) {
        status = dpe_http_run(&engine->http, exchanges, n, err);
    }
    if (status == DPE_OK && engine->given != NULL && forgot_plan(exchanges, n)) {
        status = give_plan(engine, err);
        status = status == DPE_OK ? dpe_http_run(&engine->http, exchanges, n, err) : status;
    }
    for (int64_t i = 0; i < n && status == DPE_OK; i++) {
        DPE_SCOPED(json_decrefp) json_t *answer = NULL;
        status = read_answer(&engine->http, &exchanges[i], &answer, err);
        if (status == DPE_OK) {
            status = take(engine, answer, user, i, err);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        free_exchange(&exchanges[i]);
    }
    free(exchanges);
    return status;
}

static dpe_status generate(void *user, const struct dpe_remote_text *texts, int64_t n,
                           struct dpe_error *err)
{
    const struct dpe_remote_engine *engine = user;
    struct dpe_http_exchange *exchanges = NULL;
    DPE_TRY(DPE_NEW(&exchanges, (size_t)n, err, "out of memory for %lld requests", (long long)n));
    for (int64_t i = 0; i < n; i++) {
        const struct dpe_remote_text *text = &texts[i];
        exchanges[i].path = completions_path(engine);
        exchanges[i].most = ANSWER_BYTES + BYTES_OF_TOKEN * (size_t)text->max_new;
        exchanges[i].body =
            write_request(engine, text->ids, text->n, text->max_new, text->ignore_eos, false);
    }
    return ask_all(engine, exchanges, n, take_continuation, texts, err);
}

/* Where the likelihoods of a prompt's tokens go, from `first` on. */
struct scored {
    int64_t n, first;
    double *nll;
};

static const double least = -1e6; /* nats: no softmax gives less, and sums of it are finite */

static dpe_status take_likelihood(const struct dpe_remote_engine *engine, const json_t *answer,
                                  const void *user, int64_t at, struct dpe_error *err)
{
    const struct scored *scored = (const struct scored *)user + at;
    const json_t *choice = choice_of(engine, answer, err);
    if (choice == NULL) {
        return DPE_BAD_DATA;
    }
    const json_t *scores = json_object_get(json_object_get(choice, "logprobs"), "token_logprobs");
    if (!json_is_array(scores) || (int64_t)json_array_size(scores) < scored->n) {
        return wrong(engine, "a log-probability for each token of the prompt (echo with logprobs)",
                     err);
    }
    for (int64_t i = scored->first; i < scored->n; i++) {
        const json_t *score = json_array_get(scores, (size_t)i);
        scored->nll[i - scored->first] = -json_number_value(score);
        if (!json_is_number(score) ||
            !(json_number_value(score) <= 1e-6 && json_number_value(score) >= least)) {
            return wrong(engine, "log-probabilities, numbers from -1e6 to 0", err);
        }
    }
    return DPE_OK;
}

/* nll[i] = −ln p(ids[first + i]) for the ids from `first` on. */
static dpe_status likelihood(void *user, const int32_t *ids, int64_t n, int64_t first, double *nll,
                             struct dpe_error *err)
{
    const struct dpe_remote_engine *engine = user;
    const struct scored scored = {n, first, nll};
    struct dpe_http_exchange *exchange = NULL;
    DPE_TRY(DPE_NEW(&exchange, 1, err, "out of memory for a request"));
    exchange->path = completions_path(engine);
    exchange->most = ANSWER_BYTES + BYTES_OF_TOKEN * (size_t)n;
    exchange->body = write_request(engine, ids, n, 0, false, true);
    return ask_all(engine, exchange, 1, take_likelihood, &scored, err);
}

/* --------------------------------------------------------------------------------------- norms */

/* What norms are asked for. */
struct norms {
    const struct dpe_norm_text *texts;
    size_t n_layers, n_q, n_k;
};

/* Add a list of `n` sums. */
static dpe_status add_sums(const struct dpe_remote_engine *engine, const json_t *answer,
                           const char *key, size_t n, double *sums, struct dpe_error *err)
{
    static const double most = 1e30; /* of which many can be added */
    const json_t *list = json_object_get(answer, key);
    DPE_TRY(json_is_array(list) && json_array_size(list) == n
                ? DPE_OK
                : wrong(engine, "a sum of 2-norms for each pair of each head of each layer", err));
    for (size_t i = 0; i < n; i++) {
        const json_t *sum = json_array_get(list, i);
        DPE_TRY(json_is_number(sum) && json_number_value(sum) >= 0.0 &&
                        json_number_value(sum) <= most
                    ? DPE_OK
                    : wrong(engine, "sums of 2-norms, numbers from 0 on", err));
        sums[i] += json_number_value(sum);
    }
    return DPE_OK;
}

static dpe_status take_norms(const struct dpe_remote_engine *engine, const json_t *answer,
                             const void *user, int64_t at, struct dpe_error *err)
{
    const struct norms *norms = user;
    const struct dpe_norm_text *text = &norms->texts[at];
    const struct dpe_norm_sums *sums = &text->sums;
    const json_t *rows = json_object_get(answer, "rows");
    DPE_TRY(check_plan(engine, answer, err));
    DPE_TRY(add_sums(engine, answer, "q", norms->n_q, sums->q, err));
    if (!sums->products) {
        DPE_TRY(add_sums(engine, answer, "k", norms->n_k, sums->k, err));
    }
    for (size_t layer = 0; layer < norms->n_layers; layer++) {
        const json_t *row = json_array_get(rows, layer);
        DPE_TRY(json_is_integer(row) && json_integer_value(row) == text->n
                    ? DPE_OK
                    : wrong(engine, "rows, for each layer the tokens of the prompt", err));
        sums->rows[layer] += text->n;
    }
    return DPE_OK;
}

static char *write_norms_request(const struct dpe_remote_engine *engine,
                                 const struct dpe_norm_text *text)
{
    DPE_SCOPED(json_decrefp)
    json_t *body = json_pack("{s:s,s:o,s:s,s:b}", "model", engine->about.name, "prompt",
                             write_ids(text->ids, text->n), "dpe_plan", engine->plan, "products",
                             text->sums.products);
    return body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
}

static dpe_status sum_norms(void *user, const struct dpe_config *config,
                            const struct dpe_norm_text *texts, int64_t n, struct dpe_error *err)
{
    enum { BYTES_OF_SUM = 32 };
    const struct dpe_remote_engine *engine = user;
    size_t layers = (size_t)config->n_layers;
    size_t pairs = layers * (size_t)config->head_dim / 2;
    const struct norms norms = {texts, layers, (size_t)config->n_heads * pairs,
                                (size_t)config->n_kv_heads * pairs};
    if (!engine->about.plans) {
        return dpe_fail(err, DPE_USAGE, "%s takes no plans, so it gives no norms",
                        engine->http.url);
    }
    struct dpe_http_exchange *exchanges = NULL;
    DPE_TRY(DPE_NEW(&exchanges, (size_t)n, err, "out of memory for %lld requests", (long long)n));
    for (int64_t i = 0; i < n; i++) {
        exchanges[i].path = "/v1/dpe/norms";
        exchanges[i].most = ANSWER_BYTES + BYTES_OF_SUM * (norms.n_q + norms.n_k + layers);
        exchanges[i].body = write_norms_request(engine, &texts[i]);
    }
    return ask_all(engine, exchanges, n, take_norms, &norms, err);
}

/* ------------------------------------------------------------------------------------- opening */

static void copy_text(const json_t *from, const char *key, char *to, size_t size)
{
    const char *text = json_string_value(json_object_get(from, key));
    char clean[512];
    if (text != NULL) {
        snprintf(to, size, "%s", dpe_printable(text, clean, sizeof clean));
    }
}

/* dpe-serve says who it is; of another server its list of models says a little. */
static dpe_status find_out(struct dpe_remote_engine *engine, struct dpe_error *err)
{
    struct dpe_remote_about *about = &engine->about;
    DPE_SCOPED(json_decrefp) json_t *answer = NULL;
    long code = 0;
    const dpe_status status = ask(engine, "/v1/dpe", NULL, &answer, &code, err);
    if (status == DPE_OK) {
        about->plans = true;
        copy_text(answer, "engine", about->engine, sizeof about->engine);
        copy_text(answer, "name", about->name, sizeof about->name);
        copy_text(answer, "model", about->model, sizeof about->model);
        copy_text(answer, "tokenizer", about->tokenizer, sizeof about->tokenizer);
        copy_text(answer, "numbers", about->numbers, sizeof about->numbers);
        about->length = json_integer_value(json_object_get(answer, "length"));
        return about->engine[0] == '\0' || about->model[0] == '\0' || about->tokenizer[0] == '\0' ||
                       about->length < 1
                   ? wrong(engine, "engine, model, tokenizer and length", err)
                   : DPE_OK;
    }
    if (code != 404 && code != 405) {
        return status;
    }
    snprintf(about->engine, sizeof about->engine, "openai");
    DPE_TRY(ask(engine, "/v1/models", NULL, &answer, &code, err));
    const json_t *first = json_array_get(json_object_get(answer, "data"), 0);
    copy_text(first, "id", about->name, sizeof about->name);
    about->length = json_integer_value(json_object_get(first, "max_model_len"));
    return about->name[0] != '\0' ? DPE_OK : wrong(engine, "a list of models (/v1/models)", err);
}

/* The first line of the file. */
static dpe_status read_key(const char *path, char **key, struct dpe_error *err)
{
    size_t n = 0;
    DPE_TRY(dpe_read_file(path, KEY_BYTES, key, &n, err));
    (*key)[strcspn(*key, "\r\n")] = '\0';
    const char *end = *key;
    while (isgraph((unsigned char)*end)) {
        end++;
    }
    return end > *key && *end == '\0'
               ? DPE_OK
               : dpe_fail(err, DPE_BAD_DATA,
                          "%s: expected a key of printable ASCII characters without white space in "
                          "its first line",
                          path);
}

static void start_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

dpe_status dpe_remote_open(const struct dpe_remote_options *options,
                           struct dpe_remote_engine **engine, struct dpe_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_curl);
    const bool http = strncmp(options->url, "http://", 7) == 0;
    if ((!http && strncmp(options->url, "https://", 8) != 0) ||
        strpbrk(options->url, "@?#;&=%\\ \t\r\n") != NULL) { /* and not repeated here */
        return dpe_fail(err, DPE_USAGE,
                        "--engine: expected a URL such as http://127.0.0.1:8080, without a user, a "
                        "key or a query, which results and messages would repeat; use "
                        "--engine-key-file");
    }
    DPE_SCOPED(dpe_remote_close_scoped) struct dpe_remote_engine *made = NULL;
    DPE_TRY(DPE_NEW(&made, 1, err, "out of memory"));
    char *url = strdup(options->url);
    DPE_TRY(DPE_MADE(url, err, "out of memory"));
    size_t n = strlen(url);
    while (n > 0 && url[n - 1] == '/') {
        url[--n] = '\0';
    }
    if (n > 3 && strcmp(url + n - 3, "/v1") == 0) {
        url[n - 3] = '\0'; /* as clients of OpenAI's interface are given it */
    }
    made->http = (struct dpe_http){.url = url,
                                   .in_flight = options->in_flight > 1 ? options->in_flight : 1,
                                   .patience = options->patience,
                                   .poll = options->poll,
                                   .poll_user = options->poll_user};
    made->tokenizer = options->tokenizer;
    made->config = options->config;
    made->session = (struct dpe_session_remote){made, take_plan, generate, likelihood, sum_norms};
    if (options->key_file != NULL) {
        DPE_TRY(read_key(options->key_file, &made->http.key, err));
    }
    DPE_TRY(find_out(made, err));
    made->http.met = true;
    *engine = made;
    made = NULL;
    return DPE_OK;
}

void dpe_remote_close(struct dpe_remote_engine *engine)
{
    if (engine != NULL) {
        free(engine->given);
        free(engine->http.url);
        free(engine->http.key);
        free(engine);
    }
}

const struct dpe_remote_about *dpe_remote_about(const struct dpe_remote_engine *engine)
{
    return &engine->about;
}

const struct dpe_session_remote *dpe_remote_session(const struct dpe_remote_engine *engine)
{
    return &engine->session;
}
