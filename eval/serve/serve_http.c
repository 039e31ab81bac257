/* HTTP: connections, bodies, routes. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "engine/text/json.h"
#include "eval/serve/serve_tool.h"

enum { MAPPED_BYTES = 256 << 10 };

/* --------------------------------------------------------------------------------------- routes */

/* A path, and how it is answered: by `answer` with one of the three below it. */
struct route {
    const char *method, *path;
    enum MHD_Result (*answer)(struct dpe_serve_exchange *exchange, const struct route *route);
    bool open; /* without a key */
    enum dpe_serve_kind kind;
    json_t *(*value)(const struct dpe_serve_world *world);
    bool (*compute)(const struct dpe_serve_world *world, const json_t *body, const char *digest,
                    struct dpe_text *answer, struct dpe_serve_refusal *refusal);
};

static int64_t key_of(const struct dpe_serve_exchange *exchange);

/* Whose caches the request may go on from: those of requests with the same key and the same
 * cache_salt; without either, anybody's. */
static bool set_share(struct dpe_serve_exchange *exchange, const json_t *body,
                      struct dpe_serve_request *request)
{
    enum { SALT_BYTES = 1024 };
    const json_t *salt = json_object_get(body, "cache_salt");
    const struct dpe_serve_world *world = exchange->http->world;
    unsigned char digest[32];
    if (salt != NULL && !json_is_null(salt) &&
        (!dpe_json_is_text(salt) || json_string_length(salt) < 1 ||
         json_string_length(salt) > SALT_BYTES)) {
        return dpe_serve_refuse(&exchange->refusal, 400, "cache_salt",
                                "cache_salt: expected a text of 1 to %d bytes", SALT_BYTES);
    }
    if (world->n_keys == 0 && !dpe_json_is_text(salt)) {
        return true;
    }
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    dpe_text_put(&text, "%s\n", world->n_keys > 0 ? world->keys[key_of(exchange)] : "");
    dpe_text_put_bytes(&text, dpe_json_is_text(salt) ? json_string_value(salt) : "",
                       json_string_length(salt));
    if (text.failed || EVP_Digest(text.bytes, text.n, digest, NULL, EVP_sha256(), NULL) != 1) {
        return dpe_serve_refuse(&exchange->refusal, 500, "", "out of memory");
    }
    memcpy(&request->share, digest, sizeof request->share);
    return true;
}

/* A request that the engine runs. */
static enum MHD_Result generated(struct dpe_serve_exchange *exchange, const struct route *route)
{
    enum dpe_serve_kind kind = route->kind;
    struct dpe_serve_http *http = exchange->http;
    struct dpe_serve_request *request = &exchange->request;
    bool empty =
        kind == SERVE_SLOT && exchange->body.n == 0; /* to erase needs only an empty body */
    json_t *body = empty ? json_object() : dpe_serve_body_json(exchange);
    if (body == NULL) {
        return dpe_serve_reply_refusal(exchange);
    }
    if (kind == SERVE_RULER && json_object_get(body, "prompts") == NULL) {
        kind = SERVE_RULER_ONE;
    }
    exchange->has_request = true;
    const char *action =
        MHD_lookup_connection_value(exchange->connection, MHD_GET_ARGUMENT_KIND, "action");
    bool good = (kind == SERVE_SLOT ? dpe_serve_slot_parse(http->world, exchange->path, action,
                                                           body, request, &exchange->refusal)
                                    : dpe_serve_request_parse(http->world, kind, body, http->memory,
                                                              request, &exchange->refusal)) &&
                set_share(exchange, body, request);
    good = dpe_serve_body_made(exchange, body, dpe_serve_request_bytes(request)) && good;
    int64_t most = dpe_serve_engine_most(http->engine);
    if (good && request->n_sequences > most) {
        good =
            dpe_serve_refuse(&exchange->refusal, 400, "",
                             "expected at most %lld answers (--slots and --queue of the server), "
                             "found %lld",
                             (long long)most, (long long)request->n_sequences);
    }
    if (good && !dpe_serve_engine_submit(http->engine, request)) {
        good = dpe_serve_refuse(&exchange->refusal, 503, "",
                                "the queue has no room for %lld more sequences; try again later",
                                (long long)request->n_sequences);
    }
    if (!good) {
        return dpe_serve_reply_refusal(exchange);
    }
    if (request->stream) {
        return dpe_serve_stream(exchange);
    }
    dpe_serve_count_silence(exchange, false);
    dpe_serve_wait(exchange, false);
    dpe_serve_count_silence(exchange, true);
    if (request->error.status != DPE_OK) {
        dpe_serve_refuse_error(&exchange->refusal, "", &request->error);
        return dpe_serve_reply_refusal(exchange);
    }
    return request->cancelled
               ? MHD_NO
               : dpe_serve_reply_json(exchange, 200,
                                      kind == SERVE_SLOT ? dpe_serve_slot_answer(request)
                                                         : dpe_serve_answer(http->world, request));
}

/* What the server is. */
static enum MHD_Result known(struct dpe_serve_exchange *exchange, const struct route *route)
{
    return dpe_serve_reply_json(exchange, 200, route->value(exchange->http->world));
}

static enum MHD_Result one_model(struct dpe_serve_exchange *exchange, const struct route *route)
{
    (void)route;
    const char *name = exchange->path + sizeof "/v1/models/" - 1;
    if (strcmp(name, exchange->http->world->name) != 0) {
        dpe_serve_refuse_as(&exchange->refusal, 404, "model_not_found", "model",
                            "this server has no model of that name; it serves '%s'",
                            exchange->http->world->name);
        return dpe_serve_reply_refusal(exchange);
    }
    json_auto_t *all = dpe_serve_models(exchange->http->world);
    json_t *one = json_incref(json_array_get(json_object_get(all, "data"), 0));
    return dpe_serve_reply_json(exchange, 200, one);
}

/* An answer that is computed here from the request's JSON. */
static enum MHD_Result computed(struct dpe_serve_exchange *exchange, const struct route *route)
{
    struct dpe_text answer = {0};
    char digest[65] = "";
    (void)dpe_sha256_bytes(exchange->body.bytes, exchange->body.n, digest, NULL);
    json_t *body = dpe_serve_body_json(exchange);
    bool good = body != NULL &&
                route->compute(exchange->http->world, body, digest, &answer, &exchange->refusal);
    json_decref(body);
    if (good && answer.failed) {
        good = dpe_serve_refuse(&exchange->refusal, 503, "", "out of memory for this request");
    }
    if (!good) {
        dpe_text_free(&answer);
        return dpe_serve_reply_refusal(exchange);
    }
    return dpe_serve_reply(exchange, 200, "application/json", answer);
}

static enum MHD_Result health(struct dpe_serve_exchange *exchange, const struct route *route)
{
    (void)route;
    struct dpe_serve_counts counts = dpe_serve_engine_counts(exchange->http->engine);
    return dpe_serve_reply_json(exchange, 200, dpe_serve_state(exchange->http->world, &counts));
}

static enum MHD_Result metrics(struct dpe_serve_exchange *exchange, const struct route *route)
{
    (void)route;
    struct dpe_text text = {0};
    struct dpe_serve_counts counts = dpe_serve_engine_counts(exchange->http->engine);
    dpe_serve_metrics(&counts, &text);
    return dpe_serve_reply(exchange, 200, "text/plain; version=0.0.4", text);
}

static enum MHD_Result page(struct dpe_serve_exchange *exchange, const struct route *route)
{
    (void)route;
    struct dpe_text text = {0};
    dpe_text_put_bytes(&text, dpe_serve_page.bytes, dpe_serve_page.n);
    return dpe_serve_reply(exchange, 200, "text/html; charset=utf-8", text);
}

static const struct route routes[] = {
    {"POST", "/v1/completions", generated, .kind = SERVE_COMPLETION},
    {"POST", "/v1/chat/completions", generated, .kind = SERVE_CHAT},
    {"PUT", "/generate", generated, .kind = SERVE_RULER},
    {"GET", "/v1/models", known, .value = dpe_serve_models},
    {"GET", "/v1/models/", one_model}, /* then a name */
    {"GET", "/tokenizer_info", known, .value = dpe_serve_tokenizer_info},
    {"GET", "/v1/dpe", known, .value = dpe_serve_about},
    {"POST", "/v1/dpe/plan", computed, .compute = dpe_serve_take_plan},
    {"POST", "/v1/dpe/completions", generated, .kind = SERVE_COMPLETION},
    {"POST", "/v1/dpe/norms", generated, .kind = SERVE_NORMS},
    {"POST", "/slots/", generated, .kind = SERVE_SLOT}, /* then a number */
    {"POST", "/tokenize", computed, .compute = dpe_serve_tokenize},
    {"POST", "/detokenize", computed, .compute = dpe_serve_detokenize},
    {"GET", "/health", health, .open = true},
    {"GET", "/metrics", metrics, .open = true},
    {"GET", "/", page, .open = true},
};

/* The index of the key that the request has, 0 where none is needed; −1: it has none of them. Keys
 * are compared in a time that does not depend on where they differ. */
static int64_t key_of(const struct dpe_serve_exchange *exchange)
{
    static const char bearer[] = "Bearer ";
    const struct dpe_serve_world *world = exchange->http->world;
    const char *given = MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND,
                                                    MHD_HTTP_HEADER_AUTHORIZATION);
    if (world->n_keys == 0) {
        return 0;
    }
    if (given == NULL || strncasecmp(given, bearer, sizeof bearer - 1) != 0) {
        return -1;
    }
    given += sizeof bearer - 1;
    int64_t found = -1;
    for (int64_t i = 0; i < world->n_keys; i++) {
        size_t n = strlen(world->keys[i]);
        bool same = strlen(given) == n && CRYPTO_memcmp(given, world->keys[i], n) == 0;
        found = same ? i : found;
    }
    return found;
}

static const struct route *find_route(struct dpe_serve_exchange *exchange, const char *method,
                                      const char *path)
{
    bool known = false;
    bool head = strcmp(method, "HEAD") == 0;
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        size_t n = strlen(routes[i].path);
        bool open_end = n > 1 && routes[i].path[n - 1] == '/';
        if (open_end ? strncmp(path, routes[i].path, n) != 0 || path[n] == '\0'
                     : strcmp(path, routes[i].path) != 0) {
            continue;
        }
        known = true;
        if (strcmp(head ? "GET" : method, routes[i].method) == 0) {
            if (!routes[i].open && key_of(exchange) < 0) {
                dpe_serve_refuse(&exchange->refusal, 401, "",
                                 "the API key is missing or wrong; send 'Authorization: Bearer "
                                 "KEY'");
                return NULL;
            }
            return &routes[i];
        }
    }
    dpe_serve_refuse(&exchange->refusal, known ? 405 : 404, "",
                     known ? "this path does not take this method"
                           : "there is nothing at this path");
    return NULL;
}

/* ---------------------------------------------------------------------------------- connections */

static void set_since(struct dpe_serve_http *http, struct MHD_Connection *connection, double since)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct dpe_serve_client *client = info != NULL ? info->socket_context : NULL;
    if (client != NULL) {
        pthread_mutex_lock(&http->lock);
        client->since = since;
        pthread_mutex_unlock(&http->lock);
    }
}

static void on_connection(void *user, struct MHD_Connection *connection, void **own,
                          enum MHD_ConnectionNotificationCode what)
{
    struct dpe_serve_http *http = user;
    struct dpe_serve_client *client = *own;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    pthread_mutex_lock(&http->lock);
    if (what == MHD_CONNECTION_NOTIFY_STARTED && info != NULL) {
        client = http->clients;
        while (client < http->clients + SERVE_CONNECTIONS && client->open) {
            client++;
        }
        if (client < http->clients + SERVE_CONNECTIONS) {
            *client = (struct dpe_serve_client){true, info->connect_fd, dpe_clock()};
            *own = client;
        }
    } else if (client != NULL) {
        client->open = false;
        *own = NULL;
    }
    pthread_mutex_unlock(&http->lock);
}

/* End those that have been sending a request for so many seconds. */
static void end_slow(struct dpe_serve_http *http, double seconds)
{
    double first = dpe_clock() - seconds;
    pthread_mutex_lock(&http->lock);
    for (int i = 0; i < SERVE_CONNECTIONS; i++) {
        if (http->clients[i].open && http->clients[i].since < first) {
            shutdown(http->clients[i].socket, SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&http->lock);
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *bytes,
                                  size_t *n, void **own)
{
    struct dpe_serve_exchange *exchange = *own;
    if (exchange == NULL) {
        exchange = dpe_alloc_zero(1, sizeof *exchange);
        if (exchange == NULL) {
            return MHD_NO;
        }
        *own = exchange;
        exchange->http = user;
        exchange->connection = connection;
        exchange->http->answering++;
        enum MHD_Result result = MHD_YES;
        if (!dpe_serve_check_head(exchange, method, version, &result)) {
            return result;
        }
        if (exchange->refusal.status == 0) {
            find_route(exchange, method, path);
        }
        return exchange->refusal.status != 0 ? dpe_serve_reply_refusal(exchange) : MHD_YES;
    }
    if (*n > 0) {
        size_t taken = *n;
        *n = 0;
        return dpe_serve_body_add(exchange, bytes, taken);
    }
    set_since(exchange->http, connection, HUGE_VAL);
    exchange->path = path;
    const struct route *route = find_route(exchange, method, path);
    return route != NULL ? route->answer(exchange, route) : dpe_serve_reply_refusal(exchange);
}

/* A line for each request that was run, with the plan of its first sequence. */
static void log_request(const struct dpe_serve_exchange *exchange)
{
    const struct dpe_serve_request *request = &exchange->request;
    const struct dpe_serve_sequence *first = &request->sequences[0];
    const struct dpe_serve_plan *plan = dpe_serve_world_plan(exchange->http->world, first->plan);
    dpe_log_info(
        "%s: %lld answers; the first: %zu prompt tokens, %lld of them cached, %lld new; %s "
        "for %lld tokens%s",
        request->id, (long long)request->n_sequences, first->prompt->n, (long long)first->cached,
        (long long)first->n_out, plan->plan.name, (long long)plan->length,
        request->cancelled ? "; the client hung up" : "");
}

static void on_completed(void *user, struct MHD_Connection *connection, void **own,
                         enum MHD_RequestTerminationCode why)
{
    struct dpe_serve_exchange *exchange = *own;
    (void)why;
    set_since(user, connection, dpe_clock());
    if (exchange == NULL) {
        return;
    }
    if (exchange->has_request) {
        dpe_serve_wait(exchange, true);
        const struct dpe_serve_request *request = &exchange->request;
        if (request->error.status != DPE_OK) {
            dpe_log_warning("%s: %s", request->id, request->error.text);
        } else if (exchange->refusal.status == 0 && request->kind != SERVE_SLOT) {
            log_request(exchange);
        }
        for (int64_t i = 0; i < request->n_sequences && exchange->sent != NULL; i++) {
            dpe_serve_places_free(&exchange->sent[i].places);
        }
        dpe_serve_world_release(exchange->http->world, request->plan);
        dpe_serve_request_free(&exchange->request);
    }
    dpe_serve_body_free(exchange);
    exchange->http->answering--;
    free(exchange->sent);
    dpe_text_free(&exchange->out);
    free(exchange);
    *own = NULL;
}

/* --------------------------------------------------------------------------------- life */

static dpe_status resolve(const struct dpe_serve_arguments *args, struct addrinfo **found,
                          struct dpe_error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    char port[16];
    snprintf(port, sizeof port, "%lld", (long long)args->port);
    int wrong = getaddrinfo(args->host, port, &hints, found);
    return wrong == 0 ? DPE_OK
                      : dpe_fail(err, DPE_USAGE, "--host %s: %s", args->host, gai_strerror(wrong));
}

/* A connection needs a file, and there may be few: at their limit libmicrohttpd would try again
 * without end to accept one more. */
static unsigned most_connections(void)
{
    enum {
        OTHERS = 16,
        LEAST = 4 /* files beside the connections; libmicrohttpd needs threads and pipes as well */
    };
    struct rlimit limit;
    int unused = open("/dev/null", O_RDONLY);
    rlim_t there = unused >= 0 ? (rlim_t)unused + OTHERS : OTHERS;
    dpe_close_fd(&unused);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return SERVE_CONNECTIONS;
    }
    if (limit.rlim_cur < there + SERVE_CONNECTIONS) { /* no limit is the largest number */
        limit.rlim_cur =
            limit.rlim_max < there + SERVE_CONNECTIONS ? limit.rlim_max : there + SERVE_CONNECTIONS;
        setrlimit(RLIMIT_NOFILE, &limit);
        getrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur >= there + SERVE_CONNECTIONS) {
        return SERVE_CONNECTIONS;
    }
    return limit.rlim_cur > there + LEAST ? (unsigned)(limit.rlim_cur - there) : LEAST;
}

/* Whether the server listens on an address of this machine alone. */
static bool is_local(const struct dpe_serve_world *world, const struct addrinfo *address)
{
    char text[INET6_ADDRSTRLEN] = "";
    getnameinfo(address->ai_addr, address->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST);
    const bool local = dpe_guard_is_loopback(text);
    if (!local && world->n_keys == 0) {
        dpe_log_warning("%s is no address of this machine alone, and there is no --api-key-file: "
                        "whoever reaches it may ask",
                        world->args->host);
    }
    return local;
}

dpe_status dpe_serve_http_start(const struct dpe_serve_world *world,
                                struct dpe_serve_engine *engine, struct dpe_serve_http **made,
                                struct dpe_error *err)
{
    struct addrinfo *address = NULL;
    DPE_TRY(resolve(world->args, &address, err));
    struct dpe_serve_http *http = dpe_alloc_zero(1, sizeof *http);
    if (http == NULL) {
        freeaddrinfo(address);
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory");
    }
    http->world = world;
    http->engine = engine;
    /* glibc keeps what the heap of a thread once had, and a thread answers each connection: large
     * bodies are mappings of their own, which end with them. */
#ifdef M_MMAP_THRESHOLD
    mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
#endif
    pthread_mutex_init(&http->lock, NULL);
    http->memory = engine->request_memory;
    http->body_limit = dpe_serve_body_limit(world, http->memory);
    http->local = is_local(world, address);
    unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
                     MHD_USE_POLL | MHD_USE_ITC |
                     (address->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0U);
    http->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, http, MHD_OPTION_SOCK_ADDR, address->ai_addr,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)world->args->client_timeout,
        MHD_OPTION_CONNECTION_LIMIT, most_connections(),
#if MHD_VERSION >= 0x00097600
        MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1,
#endif
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, http, MHD_OPTION_THREAD_STACK_SIZE,
        (size_t)SERVE_STACK, MHD_OPTION_NOTIFY_CONNECTION, on_connection, http, MHD_OPTION_END);
    int reason = errno;
    freeaddrinfo(address);
    if (http->daemon == NULL) {
        pthread_mutex_destroy(&http->lock);
        free(http);
        return dpe_fail(err, DPE_CANNOT_CREATE, "cannot listen on %s port %lld: %s",
                        world->args->host, (long long)world->args->port, strerror(reason));
    }
    *made = http;
    return DPE_OK;
}

int64_t dpe_serve_http_port(const struct dpe_serve_http *http)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_BIND_PORT);
    return info != NULL ? info->port : 0;
}

void dpe_serve_http_watch(struct dpe_serve_http *http)
{
    end_slow(http, (double)http->world->args->client_timeout);
}

/* Wait until everything is answered. Slow clients are watched meanwhile, and when the time is up
 * all are ended. */
static void wait_for_answers(struct dpe_serve_http *http)
{
    const struct timespec moment = {.tv_nsec = WAIT_NANOSECONDS};
    double end = dpe_clock() + (double)http->world->args->stop_timeout;
    bool told = false;
    while (http->answering > 0) {
        nanosleep(&moment, NULL);
        dpe_serve_http_watch(http);
        if (dpe_clock() < end) {
            continue;
        }
        if (!told) {
            dpe_log_warning(
                "what is still being answered after %lld seconds is ended (--stop-timeout)",
                (long long)http->world->args->stop_timeout);
            told = true;
        }
        /* A client's socket says nothing to an answer that has no text yet. */
        http->stopped = true;
        end_slow(http, -HUGE_VAL);
    }
}

void dpe_serve_http_stop(struct dpe_serve_http *http)
{
    http->draining = true;
    int listening = MHD_quiesce_daemon(http->daemon);
    /* Its threads may still use the socket, so it is closed after them; until then the system would
     * let clients connect and wait. */
    if (listening >= 0) {
        shutdown(listening, SHUT_RDWR);
    }
    wait_for_answers(http);
    MHD_stop_daemon(http->daemon);
    if (listening >= 0) {
        close(listening);
    }
    pthread_mutex_destroy(&http->lock);
    free(http);
}
