/* Answers, whole or as a stream, and the wait for the engine. */
#include "engine/system/platform.h"
#include "eval/serve/serve_tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

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
                                const char *type, char *bytes, size_t n)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(n, bytes, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(bytes);
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
    if (bytes == NULL) {
        return MHD_NO;
    }
    return dpe_serve_reply(exchange, status, "application/json", bytes, strlen(bytes));
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

/* While the engine works, silence is not the client's. Setting it from 0 starts its clock again. */
void dpe_serve_count_silence(struct dpe_serve_exchange *exchange, bool count)
{
    unsigned seconds = count ? (unsigned)exchange->http->world->args->client_timeout : 0;
    MHD_set_connection_option(exchange->connection, MHD_CONNECTION_OPTION_TIMEOUT, seconds);
}

/* -------------------------------------------------------------------------------------- streams */

/* Put "data: VALUE\n\n" behind what is there. Takes the value. */
static bool event(struct dpe_serve_exchange *exchange, json_t *value)
{
    DPE_OWNED char *bytes = value != NULL ? json_dumps(value, JSON_COMPACT) : strdup("[DONE]");
    json_decref(value);
    size_t n = bytes != NULL ? strlen(bytes) : 0;
    char *out = bytes != NULL ? realloc(exchange->out, exchange->out_n + n + 9) : NULL;
    if (out != NULL) {
        exchange->out = out;
        exchange->out_n += (size_t)sprintf(out + exchange->out_n, "data: %s\n\n", bytes);
    }
    return out != NULL;
}

/* With the lock held: put what is new into `out`; false: out of memory. */
static bool gather(struct dpe_serve_exchange *exchange)
{
    const struct dpe_serve_world *world = exchange->http->world;
    const struct dpe_serve_request *request = &exchange->request;
    bool good = true;
    for (int64_t i = 0; i < request->n_sequences && request->error.status == DPE_OK; i++) {
        json_t *piece = dpe_serve_piece(world, request, i, &exchange->sent[i]);
        good = good && (piece == NULL || event(exchange, piece));
    }
    if (request->unfinished > 0 || exchange->done_sent) {
        return good;
    }
    if (request->error.status != DPE_OK) {
        struct dpe_serve_refusal refusal = {0};
        dpe_serve_refuse_error(&refusal, "", &request->error);
        good = good && event(exchange, dpe_serve_error(&refusal));
    } else if (request->usage) {
        good = good && event(exchange, dpe_serve_usage_piece(world, request));
    }
    exchange->done_sent = true;
    return good && event(exchange, NULL);
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
    if (exchange->out_taken == exchange->out_n && !exchange->done_sent) {
        exchange->out_taken = exchange->out_n = 0;
        dpe_serve_count_silence(exchange, false);
        pthread_mutex_lock(&engine->lock);
        while ((good = gather(exchange)) && exchange->out_n == 0 && !gone) {
            wait_for_news(exchange);
            gone = request->cancelled && request->error.status == DPE_OK;
        }
        pthread_mutex_unlock(&engine->lock);
        dpe_serve_count_silence(exchange, true);
    }
    size_t n = exchange->out_n - exchange->out_taken;
    n = n < most ? n : most;
    if (!good || gone) {
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    if (n == 0) {
        return MHD_CONTENT_READER_END_OF_STREAM;
    }
    memcpy(bytes, exchange->out + exchange->out_taken, n);
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
