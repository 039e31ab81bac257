/* One exchange: what is decided from its head before the body is read; the body, and what is made
 * of it, within the memory that requests may take together; the answer, whole or as a stream, and
 * the wait for the engine. */
#include "engine/system/platform.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "engine/text/json.h"
#include "eval/serve/serve_tool.h"

enum {
    BODY_BYTES = 16 << 20, /* of a request, and for each token of the length: */
    BODY_BYTES_OF_TOKEN = 64,
};

/* -------------------------------------------------------------------------------------- memory */

size_t dpe_serve_body_limit(const struct dpe_serve_world *world, uint64_t memory)
{
    uint64_t limit = BODY_BYTES + BODY_BYTES_OF_TOKEN * (uint64_t)world->length;
    return (size_t)(limit < memory ? limit : memory);
}

/* Hold so many bytes from now on, more or fewer than before; false with a refusal: they are more
 * than there may be. */
static bool hold(struct dpe_serve_exchange *exchange, uint64_t bytes)
{
    struct dpe_serve_http *http = exchange->http;
    char text[2][32];
    if (bytes > http->memory) {
        return dpe_serve_refuse(
            &exchange->refusal, 413, "",
            "the request may come to %s of memory, requests may have %s (--max-memory)",
            dpe_format_bytes(bytes, text[0]), dpe_format_bytes(http->memory, text[1]));
    }
    uint64_t before = exchange->held;
    uint64_t all = atomic_fetch_add(&http->held, bytes - before) + (bytes - before);
    if (bytes > before && all > http->memory) {
        atomic_fetch_sub(&http->held, bytes - before);
        return dpe_serve_refuse(&exchange->refusal, 503, "",
                                "too many large requests; try again later");
    }
    exchange->held = bytes;
    return true;
}

/* Hold memory for a body of this Content-Length; false with a refusal. */
static bool announce(struct dpe_serve_exchange *exchange, const char *length)
{
    int64_t n = 0;
    if (!dpe_parse_int(length, 0, INT64_MAX, &n) || (uint64_t)n > exchange->http->body_limit) {
        return dpe_serve_refuse(&exchange->refusal, 413, "", "a request may have %zu bytes",
                                exchange->http->body_limit);
    }
    return hold(exchange, (uint64_t)n);
}

/* ---------------------------------------------------------------------------------------- head */

/* The head as it is read, line after line. */
struct lines {
    struct dpe_guard_head head;
    const char *next; /* where the next line begins, when this one ended with CR LF */
};

/* Whether this is where the line after `before` begins, which ended in one way for everybody.
 * libmicrohttpd up to 0.9.75 takes lines with a NUL, folded ones and ones that end with LF alone,
 * and does not tell. It puts zeros over the ends of lines in its buffer, where the texts that it
 * hands out stay: two over CR LF. Later versions refuse them (MHD_OPTION_CLIENT_DISCIPLINE_LVL). */
static bool follows(const char *before, const char *text)
{
#if MHD_VERSION < 0x00097600
    return before == text;
#else
    (void)before, (void)text;
    return true;
#endif
}

static const char *line_after(const char *text)
{
    return text + strlen(text) + 2;
}

static enum MHD_Result add_header(void *user, enum MHD_ValueKind kind, const char *name,
                                  const char *value)
{
    struct lines *lines = user;
    (void)kind;
    const char *text = value != NULL ? value : name;
    bool well =
        follows(lines->next, name) && follows(text, text[strlen(text) + 1] == '\0' ? text : NULL);
    dpe_guard_add(&lines->head, name, value, well);
    lines->next = line_after(text);
    return MHD_YES;
}

bool dpe_serve_check_head(struct dpe_serve_exchange *exchange, const char *method,
                          const char *version, enum MHD_Result *result)
{
    struct dpe_serve_http *http = exchange->http;
    struct lines lines = {{.method = method, .version = version}, line_after(version)};
    const char *why = NULL;
    MHD_get_connection_values(exchange->connection, MHD_HEADER_KIND, add_header, &lines);
    /* The line without text that ends the head follows. */
    dpe_guard_end(
        &lines.head,
        follows(lines.next, lines.next[0] == '\0' && lines.next[1] == '\0' ? lines.next : NULL));
    const struct dpe_guard_head head = lines.head;
    unsigned status = dpe_guard_form(&head, &why);
    /* The library reads the ends of chunks more loosely than others do. */
    exchange->close = status != 0 || head.encodings > 0;
    if (status == 0) {
        status = dpe_guard_who(http->world->args, http->local, &head, &why);
        exchange->foreign =
            status == 0 || status == 415 ? dpe_guard_foreign(http->world->args, &head) : NULL;
    }
    if (status != 0) {
        exchange->close = true;
        dpe_serve_refuse(&exchange->refusal, status, "", "%s", why);
    } else if (exchange->foreign != NULL && strcmp(method, "OPTIONS") == 0) {
        /* A browser asks whether a page may send a request. */
        *result = dpe_serve_reply(exchange, 204, NULL, (struct dpe_text){0});
        return false;
    } else if (head.length != NULL && !announce(exchange, head.length)) {
        exchange->close = true;
    } else if (http->draining) {
        dpe_serve_refuse(&exchange->refusal, 503, "", "the server is being stopped");
    }
    return true;
}

/* ---------------------------------------------------------------------------------------- body */

/* libmicrohttpd takes no response before the body's end, which may never come: the refusal goes to
 * the socket itself, and the connection is closed. */
static enum MHD_Result refuse_now(struct dpe_serve_exchange *exchange, const char *status)
{
    json_auto_t *error = dpe_serve_error(&exchange->refusal);
    DPE_OWNED char *body = error != NULL ? json_dumps(error, JSON_COMPACT) : NULL;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(exchange->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    char text[2048];
    int n = snprintf(text, sizeof text,
                     "HTTP/1.1 %s\r\nConnection: close\r\nRetry-After: 1\r\nContent-Type: "
                     "application/json\r\n\r\n%s",
                     status, body != NULL ? body : "");
    if (info != NULL && n > 0 && (size_t)n < sizeof text) {
        send(info->connect_fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    return MHD_NO;
}

enum MHD_Result dpe_serve_body_add(struct dpe_serve_exchange *exchange, const char *bytes, size_t n)
{
    size_t limit = exchange->http->body_limit;
    if (n > limit - exchange->body.n) {
        dpe_serve_refuse(&exchange->refusal, 413, "", "a request may have %zu bytes", limit);
        return refuse_now(exchange, "413 Payload Too Large");
    }
    struct dpe_text *body = &exchange->body;
    const size_t needed = body->n + n;
    if (needed >= body->capacity) {
        /* What was announced is held already, and taken at once. */
        size_t room = needed <= exchange->held ? (size_t)exchange->held : 2 * needed;
        room = room < limit ? room : limit;
        if (!hold(exchange, room)) {
            bool large = exchange->refusal.status == 413;
            return refuse_now(exchange,
                              large ? "413 Payload Too Large" : "503 Service Unavailable");
        }
        char *grown = realloc(body->bytes, room + 1);
        if (grown == NULL) {
            return MHD_NO;
        }
        body->bytes = grown;
        body->capacity = room + 1;
    }
    return dpe_text_append(body, bytes, n, NULL) == DPE_OK ? MHD_YES : MHD_NO;
}

json_t *dpe_serve_body_json(struct dpe_serve_exchange *exchange)
{
    json_t *body = NULL;
    struct dpe_error err = {0};
    const size_t n = exchange->body.n;
    const char *text = n > 0 ? exchange->body.bytes : "";
    uint64_t cost = dpe_guard_cost(text, n);
    if (cost == UINT64_MAX) {
        dpe_serve_refuse(&exchange->refusal, 400, "",
                         "the request: expected lists and objects in at most %d levels",
                         DPE_GUARD_DEPTH);
    } else if (hold(exchange, n + cost) &&
               dpe_json_parse_exact("the request", text, n, &body, &err) != DPE_OK) {
        dpe_serve_refuse_error(&exchange->refusal, "", &err);
    }
    dpe_text_free(&exchange->body);
    return body;
}

bool dpe_serve_body_made(struct dpe_serve_exchange *exchange, json_t *body, uint64_t bytes)
{
    json_decref(body);
    return hold(exchange, bytes);
}

void dpe_serve_body_free(struct dpe_serve_exchange *exchange)
{
    dpe_text_free(&exchange->body);
    atomic_fetch_sub(&exchange->http->held, exchange->held);
    exchange->held = 0;
}

/* ---------------------------------------------------------------------------------- responses */

/* What a browser needs to give the answer to a page of another site, and the end of a connection.
 */
static void add_headers(const struct dpe_serve_exchange *exchange, struct MHD_Response *response)
{
    if (exchange->foreign != NULL) {
        MHD_add_response_header(response, "Access-Control-Allow-Origin", exchange->foreign);
        MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST, PUT");
        MHD_add_response_header(response, "Access-Control-Allow-Headers",
                                "Authorization, Content-Type");
        MHD_add_response_header(response, "Access-Control-Allow-Private-Network", "true");
        MHD_add_response_header(response, "Access-Control-Expose-Headers", "Retry-After");
        MHD_add_response_header(response, MHD_HTTP_HEADER_VARY, MHD_HTTP_HEADER_ORIGIN);
    }
    if (exchange->close) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    }
}

enum MHD_Result dpe_serve_reply(struct dpe_serve_exchange *exchange, unsigned status,
                                const char *type, struct dpe_text content)
{
    struct MHD_Response *response =
        content.failed
            ? NULL
            : MHD_create_response_from_buffer(content.n, content.bytes, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        dpe_text_free(&content);
        return MHD_NO;
    }
    if (type != NULL) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    }
    add_headers(exchange, response);
    if (status == 503) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    }
    if (status == 401) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    }
    enum MHD_Result result = MHD_queue_response(exchange->connection, status, response);
    MHD_destroy_response(response);
    return result;
}

/* Takes the JSON value. */
enum MHD_Result dpe_serve_reply_json(struct dpe_serve_exchange *exchange, unsigned status,
                                     json_t *value)
{
    char *bytes = value != NULL ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    const struct dpe_text text = {
        .bytes = bytes, .n = bytes != NULL ? strlen(bytes) : 0, .failed = bytes == NULL};
    return dpe_serve_reply(exchange, status, "application/json", text);
}

enum MHD_Result dpe_serve_reply_refusal(struct dpe_serve_exchange *exchange)
{
    return dpe_serve_reply_json(exchange, exchange->refusal.status,
                                dpe_serve_error(&exchange->refusal));
}

/* -------------------------------------------------------------------------------------- waiting */

/* Whether the client closed its side. */
static bool hung_up(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    char byte;
    ssize_t n = info != NULL ? recv(info->connect_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) : 1;
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/* With the engine's lock held: wait for news of the request for a moment, and cancel it when the
 * client is gone. */
static void wait_for_news(struct dpe_serve_exchange *exchange)
{
    struct dpe_serve_engine *engine = exchange->http->engine;
    struct dpe_serve_request *request = &exchange->request;
    struct timespec until;
    clock_gettime(dpe_condition_clock(), &until);
    until.tv_nsec += WAIT_NANOSECONDS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    int result = pthread_cond_timedwait(&request->changed, &engine->lock, &until);
    if (request->deadline > 0.0 && dpe_clock() > request->deadline) {
        struct dpe_error late = {0};
        dpe_fail(&late, DPE_INCOMPLETE,
                 "the request was not finished after %lld seconds (--request-timeout)",
                 (long long)exchange->http->world->args->request_timeout);
        dpe_serve_engine_cancel(engine, request, &late);
    } else if (exchange->http->stopped || (result == ETIMEDOUT && hung_up(exchange->connection))) {
        dpe_serve_engine_cancel(engine, request, NULL);
    }
}

void dpe_serve_wait(struct dpe_serve_exchange *exchange, bool cancel)
{
    struct dpe_serve_engine *engine = exchange->http->engine;
    pthread_mutex_lock(&engine->lock);
    if (cancel) {
        dpe_serve_engine_cancel(engine, &exchange->request, NULL);
    }
    while (exchange->request.unfinished > 0) {
        wait_for_news(exchange);
    }
    pthread_mutex_unlock(&engine->lock);
}

void dpe_serve_count_silence(struct dpe_serve_exchange *exchange, bool count)
{
    unsigned seconds = count ? (unsigned)exchange->http->world->args->client_timeout : 0;
    MHD_set_connection_option(exchange->connection, MHD_CONNECTION_OPTION_TIMEOUT, seconds);
}

/* -------------------------------------------------------------------------------------- streams */

/* Put "data: VALUE\n\n" after what is there; NULL: the end. Takes the value. */
static void event(struct dpe_text *out, json_t *value)
{
    DPE_OWNED char *bytes = value != NULL ? json_dumps(value, JSON_COMPACT) : strdup("[DONE]");
    json_decref(value);
    out->failed = out->failed || bytes == NULL;
    dpe_text_put(out, "data: %s\n\n", bytes != NULL ? bytes : "");
}

/* With the lock held: put what is new into `out`; false: out of memory. */
static bool gather(struct dpe_serve_exchange *exchange)
{
    const struct dpe_serve_world *world = exchange->http->world;
    const struct dpe_serve_request *request = &exchange->request;
    struct dpe_text *out = &exchange->out;
    const bool failed = request->error.status != DPE_OK;
    for (int64_t i = 0; i < request->n_sequences && !failed; i++) {
        json_t *piece = dpe_serve_piece(world, request, i, &exchange->sent[i]);
        if (piece != NULL) {
            event(out, piece);
        }
    }
    if (request->unfinished == 0 && !exchange->done_sent) {
        if (failed) {
            struct dpe_serve_refusal refusal = {0};
            dpe_serve_refuse_error(&refusal, "", &request->error);
            event(out, dpe_serve_error(&refusal));
        } else if (request->usage) {
            event(out, dpe_serve_usage_piece(world, request));
        }
        exchange->done_sent = true;
        event(out, NULL);
    }
    return !out->failed;
}

/* libmicrohttpd asks for more bytes of a stream: wait until there are some. */
static ssize_t read_stream(void *user, uint64_t position, char *bytes, size_t most)
{
    struct dpe_serve_exchange *exchange = user;
    struct dpe_serve_engine *engine = exchange->http->engine;
    (void)position;
    const struct dpe_serve_request *request = &exchange->request;
    bool good = true;
    bool gone = false;
    if (exchange->out_taken == exchange->out.n && !exchange->done_sent) {
        exchange->out_taken = exchange->out.n = 0;
        dpe_serve_count_silence(exchange, false);
        pthread_mutex_lock(&engine->lock);
        while ((good = gather(exchange)) && exchange->out.n == 0 && !gone) {
            wait_for_news(exchange);
            gone = request->cancelled && request->error.status == DPE_OK;
        }
        pthread_mutex_unlock(&engine->lock);
        dpe_serve_count_silence(exchange, true);
    }
    size_t n = exchange->out.n - exchange->out_taken;
    n = n < most ? n : most;
    if (!good || gone) {
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    if (n == 0) {
        return MHD_CONTENT_READER_END_OF_STREAM;
    }
    memcpy(bytes, exchange->out.bytes + exchange->out_taken, n);
    exchange->out_taken += n;
    return (ssize_t)n;
}

enum MHD_Result dpe_serve_stream(struct dpe_serve_exchange *exchange)
{
    enum { BLOCK = 64 << 10 };
    exchange->sent = dpe_alloc_zero((size_t)exchange->request.n_sequences, sizeof *exchange->sent);
    struct MHD_Response *response =
        exchange->sent != NULL ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK,
                                                                   read_stream, exchange, NULL)
                               : NULL;
    if (response == NULL) {
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream");
    add_headers(exchange, response);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    enum MHD_Result result = MHD_queue_response(exchange->connection, MHD_HTTP_OK, response);
    MHD_destroy_response(response);
    return result;
}
