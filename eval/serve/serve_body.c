/* What is read of a request: what is decided from its head before the body is read; the body, and
 * what is made of it, within the memory that requests may take together. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "engine/text/json.h"
#include "eval/serve/serve_tool.h"

enum {
    BODY_BYTES = 16 << 20, /* of a request, and for each token of the length: */
    BODY_BYTES_OF_TOKEN = 64,
};

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
        status = dpe_guard_who(&http->rules, &head, &why);
        exchange->foreign =
            status == 0 || status == 415 ? dpe_guard_foreign(&http->rules, &head) : NULL;
    }
    if (status != 0) {
        exchange->close = true;
        dpe_serve_refuse(&exchange->refusal, status, "", "%s", why);
    } else if (exchange->foreign != NULL && strcmp(method, "OPTIONS") == 0) {
        /* A browser asks whether a page may send a request. */
        *result = dpe_serve_reply(exchange, 204, NULL, NULL, 0);
        return false;
    } else if (head.length != NULL && !dpe_serve_body_announce(exchange, head.length)) {
        exchange->close = true;
    } else if (http->draining) {
        dpe_serve_refuse(&exchange->refusal, 503, "", "the server is being stopped");
    }
    return true;
}

/* ---------------------------------------------------------------------------------------- body */

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

bool dpe_serve_body_announce(struct dpe_serve_exchange *exchange, const char *length)
{
    int64_t n = 0;
    if (!dpe_parse_int(length, 0, INT64_MAX, &n) || (uint64_t)n > exchange->http->body_limit) {
        return dpe_serve_refuse(&exchange->refusal, 413, "", "a request may have %zu bytes",
                                exchange->http->body_limit);
    }
    exchange->announced = (size_t)n;
    return hold(exchange, (uint64_t)n);
}

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
    if (n > limit - exchange->n) {
        dpe_serve_refuse(&exchange->refusal, 413, "", "a request may have %zu bytes", limit);
        return refuse_now(exchange, "413 Payload Too Large");
    }
    size_t needed = exchange->n + n;
    if (needed > exchange->capacity) {
        size_t capacity = needed <= exchange->announced ? exchange->announced : 2 * needed;
        capacity = capacity < limit ? capacity : limit;
        if (!hold(exchange, capacity)) {
            return refuse_now(exchange, exchange->refusal.status == 413
                                            ? "413 Payload Too Large"
                                            : "503 Service Unavailable");
        }
        char *body = realloc(exchange->body, capacity);
        if (body == NULL) {
            return MHD_NO;
        }
        exchange->body = body;
        exchange->capacity = capacity;
    }
    memcpy(exchange->body + exchange->n, bytes, n);
    exchange->n = needed;
    return MHD_YES;
}

static void forget_text(struct dpe_serve_exchange *exchange)
{
    free(exchange->body);
    exchange->body = NULL;
    exchange->capacity = 0;
}

json_t *dpe_serve_body_json(struct dpe_serve_exchange *exchange)
{
    json_t *body = NULL;
    struct dpe_error err = {0};
    const char *text = exchange->body != NULL ? exchange->body : "";
    uint64_t cost = dpe_guard_cost(text, exchange->n);
    if (cost == UINT64_MAX) {
        dpe_serve_refuse(&exchange->refusal, 400, "",
                         "the request: expected lists and objects in at most %d levels",
                         DPE_GUARD_DEPTH);
    } else if (hold(exchange, exchange->n + cost) &&
               dpe_json_parse_exact("the request", text, exchange->n, &body, &err) != DPE_OK) {
        dpe_serve_refuse_error(&exchange->refusal, "", &err);
    }
    forget_text(exchange);
    return body;
}

bool dpe_serve_body_made(struct dpe_serve_exchange *exchange, json_t *body, uint64_t bytes)
{
    json_decref(body);
    return hold(exchange, bytes);
}

void dpe_serve_body_free(struct dpe_serve_exchange *exchange)
{
    forget_text(exchange);
    atomic_fetch_sub(&exchange->http->held, exchange->held);
    exchange->held = 0;
}
