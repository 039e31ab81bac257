/* Requests over HTTP, many at a time, tried again. */
#include "outputs/remote/remote_internal.h"

#include <curl/curl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POLL_MS = 100 };
static const double first_pause = 0.25, most_pause = 15.0; /* seconds */
static const long connect_seconds = 20;
static const long silent_seconds =
    3600; /* a prompt may be read for as long before the first byte */

/* One exchange on its way. */
struct flight {
    struct dpe_http_exchange *exchange;
    CURL *easy;
    struct curl_slist *headers;
    char reason[CURL_ERROR_SIZE];
    bool running, done, too_long;
    size_t head; /* bytes of lines of heads and trailers */
    int tries;
    double again; /* when it may be tried again, on dpe_clock */
};

static size_t take(char *bytes, size_t size, size_t n, void *user)
{
    struct flight *flight = user;
    struct dpe_text *answer = &flight->exchange->answer;
    size_t all = size * n;
    flight->too_long = flight->too_long || all > flight->exchange->most - answer->n;
    return flight->too_long || dpe_text_append(answer, bytes, all, NULL) != DPE_OK ? 0 : all;
}

/* A head may go on for ever, and so may what follows a body in chunks. */
static size_t take_head(char *bytes, size_t size, size_t n, void *user)
{
    enum { MOST = 1 << 17 };
    struct flight *flight = user;
    (void)bytes;
    flight->head += size * n;
    flight->too_long = flight->too_long || flight->head > MOST;
    return flight->too_long ? 0 : size * n;
}

/* The machines that are reached without a proxy: this one, and those that the user names; a name of
 * curl's option would take the variable's place. */
static void set_direct(CURL *easy)
{
    const char *named = getenv("no_proxy") != NULL ? getenv("no_proxy") : getenv("NO_PROXY");
    bool all = named != NULL && strcmp(named, "*") == 0;
    DPE_SCOPED(dpe_text_free) struct dpe_text direct = {0};
    dpe_text_put(&direct, "localhost,127.0.0.1,::1,%s", named != NULL ? named : "");
    /* Without memory for the list no proxy is asked. */
    curl_easy_setopt(easy, CURLOPT_NOPROXY, all || direct.failed ? "*" : direct.bytes);
}

static bool set_from(CURL *easy, CURLoption option, const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL && value[0] != '\0' && curl_easy_setopt(easy, option, value) == CURLE_OK;
}

/* Whom the user trusts, as curl's own command reads it. */
static void set_trust(CURL *easy)
{
    if (!set_from(easy, CURLOPT_CAINFO, "CURL_CA_BUNDLE")) {
        (void)set_from(easy, CURLOPT_CAPATH, "SSL_CERT_DIR");
        (void)set_from(easy, CURLOPT_CAINFO, "SSL_CERT_FILE");
    }
}

static struct curl_slist *make_headers(const struct dpe_http *http)
{
    struct curl_slist *list = curl_slist_append(NULL, "Content-Type: application/json");
    list = curl_slist_append(list, "Expect:");
    if (http->key != NULL) {
        char line[4200];
        snprintf(line, sizeof line, "Authorization: Bearer %s", http->key);
        list = curl_slist_append(list, line);
    }
    return list;
}

static bool start(const struct dpe_http *http, CURLM *multi, struct flight *flight)
{
    char url[4096];
    struct dpe_http_exchange *exchange = flight->exchange;
    snprintf(url, sizeof url, "%s%s", http->url, exchange->path);
    flight->easy = flight->easy != NULL ? flight->easy : curl_easy_init();
    flight->headers = flight->headers != NULL ? flight->headers : make_headers(http);
    CURL *easy = flight->easy;
    if (easy == NULL || flight->headers == NULL) {
        return false;
    }
    exchange->answer.n = flight->head = 0;
    exchange->status = 0;
    flight->reason[0] = '\0';
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    set_direct(easy);
    set_trust(easy);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, flight->headers);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "dpe");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, connect_seconds);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, silent_seconds);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, flight->reason);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_head);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, flight);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, flight);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, flight);
    if (exchange->body != NULL) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, exchange->body);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(exchange->body));
    }
    flight->running = curl_multi_add_handle(multi, easy) == CURLM_OK;
    flight->tries++;
    return flight->running;
}

/* Whether a transfer that broke off may succeed when it is tried again. */
static bool may_pass(CURLcode code)
{
    return code == CURLE_COULDNT_CONNECT || code == CURLE_GOT_NOTHING || code == CURLE_RECV_ERROR ||
           code == CURLE_SEND_ERROR || code == CURLE_PARTIAL_FILE ||
           code == CURLE_OPERATION_TIMEDOUT;
}

/* Of a transfer that would end in the same way again; chunks that are none, whose error only its
 * text tells from a connection that broke, are another. */
static dpe_status status_of(CURLcode code)
{
    switch (code) {
    case CURLE_URL_MALFORMAT:
    case CURLE_COULDNT_RESOLVE_HOST:
        return DPE_USAGE;
    case CURLE_UNSUPPORTED_PROTOCOL: /* the URL has one that is; HTTP/0.9 answers */
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING:
        return DPE_BAD_DATA;
    default:
        return DPE_IO;
    }
}

/* The server asked for a pause, or each is twice the one before. */
static double pause_of(const struct flight *flight)
{
    curl_off_t asked = 0;
    double pause = first_pause * pow(2.0, flight->tries - 1);
    pause = pause < most_pause ? pause : most_pause;
    curl_easy_getinfo(flight->easy, CURLINFO_RETRY_AFTER, &asked);
    return asked > 0 && (double)asked < most_pause ? fmax((double)asked, pause) : pause;
}

/* A transfer has ended: it is done, is tried again, or its failure is one of the whole. */
static dpe_status land(const struct dpe_http *http, struct flight *flight, CURLcode code,
                       double *last, struct dpe_error *err)
{
    struct dpe_http_exchange *exchange = flight->exchange;
    curl_easy_getinfo(flight->easy, CURLINFO_RESPONSE_CODE, &exchange->status);
    const long status = exchange->status; /* busy servers are asked again */
    if (code == CURLE_OK && status != 429 && status != 502 && status != 503) {
        flight->done = true;
        *last = dpe_clock();
        return DPE_OK;
    }
    const char *reason = flight->reason[0] != '\0' ? flight->reason : curl_easy_strerror(code);
    /* So curl names a line of the head that is longer than it takes. */
    bool line = code == CURLE_OUT_OF_MEMORY && exchange->status > 0 && exchange->answer.n == 0;
    if (flight->too_long || line) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s%s: expected an answer of at most %zu bytes behind a head of at most "
                        "128 KiB, found a longer one",
                        http->url, exchange->path, exchange->most);
    }
    bool absent = code == CURLE_COULDNT_CONNECT && !http->met;
    bool chunks = code == CURLE_RECV_ERROR && strstr(reason, "chunked-encoding") != NULL;
    if (code != CURLE_OK && (absent || chunks || !may_pass(code))) {
        return dpe_fail(err, chunks ? DPE_BAD_DATA : status_of(code), "%s%s: %s", http->url,
                        exchange->path, chunks ? "expected chunks of HTTP, found others" : reason);
    }
    double pause = pause_of(flight);
    if (dpe_clock() + pause - *last > http->patience) {
        return code == CURLE_OK
                   ? dpe_fail(err, DPE_IO,
                              "%s%s: the server has no room for %.0f seconds (status %ld)",
                              http->url, exchange->path, http->patience, exchange->status)
                   : dpe_fail(err, DPE_IO, "%s%s: %s", http->url, exchange->path, reason);
    }
    flight->again = dpe_clock() + pause;
    return DPE_OK;
}

/* Start what may start. */
static dpe_status fill(const struct dpe_http *http, CURLM *multi, struct flight *flights, int64_t n,
                       int64_t *running, struct dpe_error *err)
{
    double now = dpe_clock();
    for (int64_t i = 0; i < n && *running < http->in_flight; i++) {
        struct flight *flight = &flights[i];
        if (!flight->done && !flight->running && now >= flight->again) {
            if (!start(http, multi, flight)) {
                return dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory for a request", http->url);
            }
            ++*running;
        }
    }
    return DPE_OK;
}

static dpe_status run_all(const struct dpe_http *http, CURLM *multi, struct flight *flights,
                          int64_t n, struct dpe_error *err)
{
    int64_t running = 0;
    int64_t left = 0;
    double last = dpe_clock();
    for (int64_t i = 0; i < n; i++) {
        flights[i].done = flights[i].exchange->kept;
        left += !flights[i].done;
    }
    while (left > 0) {
        int count = 0;
        DPE_TRY(fill(http, multi, flights, n, &running, err));
        if (curl_multi_perform(multi, &count) != CURLM_OK) {
            return dpe_fail(err, DPE_IO, "%s: requests cannot be sent", http->url);
        }
        for (CURLMsg *message; (message = curl_multi_info_read(multi, &count)) != NULL;) {
            struct flight *flight = NULL;
            CURLcode code = message->data.result;
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&flight);
            curl_multi_remove_handle(multi, flight->easy);
            flight->running = false;
            running--;
            DPE_TRY(land(http, flight, code, &last, err));
            left -= flight->done;
        }
        if (http->poll != NULL) {
            DPE_TRY(http->poll(http->poll_user, err));
        }
        if (left > 0) {
            curl_multi_poll(multi, NULL, 0, POLL_MS, NULL);
        }
    }
    return DPE_OK;
}

dpe_status dpe_http_run(const struct dpe_http *http, struct dpe_http_exchange *exchanges, int64_t n,
                        struct dpe_error *err)
{
    DPE_OWNED struct flight *flights = NULL;
    DPE_TRY(DPE_NEW(&flights, (size_t)n, err, "%s: out of memory for %lld requests", http->url,
                    (long long)n));
    CURLM *multi = curl_multi_init();
    DPE_TRY(DPE_MADE(multi, err, "%s: out of memory for %lld requests", http->url, (long long)n));
    for (int64_t i = 0; i < n; i++) {
        flights[i].exchange = &exchanges[i];
    }
    const dpe_status status = run_all(http, multi, flights, n, err);
    for (int64_t i = 0; i < n; i++) {
        if (flights[i].running) {
            curl_multi_remove_handle(multi, flights[i].easy);
        }
        curl_easy_cleanup(flights[i].easy);
        curl_slist_free_all(flights[i].headers);
    }
    curl_multi_cleanup(multi);
    return status;
}
