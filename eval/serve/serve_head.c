/* What is decided from the head of a request, before its body is read. */
#include <string.h>

#include "eval/serve/serve_exchange.h"

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

static void refuse(struct dpe_serve_exchange *exchange, unsigned status, const char *why,
                   bool close)
{
    dpe_serve_refuse(&exchange->refusal, status, "", "%s", why);
    exchange->close = exchange->close || close;
}

/* The answer to a browser that asks whether a page may send a request. */
static enum MHD_Result may_ask(struct dpe_serve_exchange *exchange)
{
    return dpe_serve_reply(exchange, 204, NULL, NULL, 0);
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
    struct dpe_guard_head head = lines.head;
    unsigned status = dpe_guard_form(&head, &why);
    exchange->close = status != 0 || dpe_guard_chunked(&head);
    if (status == 0) {
        status = dpe_guard_who(&http->rules, &head, &why);
        exchange->foreign =
            status == 0 || status == 415 ? dpe_guard_foreign(&http->rules, &head) : NULL;
    }
    if (status != 0) {
        refuse(exchange, status, why, true);
    } else if (exchange->foreign != NULL && strcmp(method, "OPTIONS") == 0) {
        *result = may_ask(exchange);
        return false;
    } else if (head.length != NULL && !dpe_serve_body_announce(exchange, head.length)) {
        exchange->close = true;
    } else if (http->draining) {
        refuse(exchange, 503, "the server is being stopped", false);
    }
    return true;
}
