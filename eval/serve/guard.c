/* Heads that have one meaning, pages of other sites, and the memory of a body. */
#include "eval/serve/guard.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---------------------------------------------------------------------------------------- form */

/* Whether the name is one of a header: letters, digits and these marks, no space. */
static bool is_token(const char *text)
{
    static const char allowed[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return text[0] != '\0' && text[strspn(text, allowed)] == '\0';
}

static bool has_control(const char *text)
{
    for (; *text != '\0'; text++) {
        if (((unsigned char)*text < ' ' && *text != '\t') || *text == 0x7f) {
            return true;
        }
    }
    return false;
}

void dpe_guard_end(struct dpe_guard_head *head, bool ends)
{
    if (!ends) {
        head->wrong = "expected every line to end with CR LF and no NUL";
    }
}

void dpe_guard_add(struct dpe_guard_head *head, const char *name, const char *value, bool ends)
{
    const struct {
        const char *name;
        const char **value;
        int *count;
    } known[] = {
        {"Host", &head->host, &head->hosts},
        {"Content-Length", &head->length, &head->lengths},
        {"Transfer-Encoding", &head->encoding, &head->encodings},
        {"Origin", &head->origin, NULL},
        {"Content-Type", &head->type, NULL},
        {"Sec-Fetch-Site", &head->site, NULL},
    };
    value = value != NULL ? value : "";
    dpe_guard_end(head, ends);
    if (ends && !is_token(name)) {
        head->wrong = "expected the name of a header, a colon right behind it, and no folded lines";
    } else if (ends && has_control(value)) {
        head->wrong = "expected headers without control characters";
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcasecmp(name, known[i].name) == 0) {
            *known[i].value = value;
            if (known[i].count != NULL) {
                (*known[i].count)++;
            }
        }
    }
}

static bool has_body(const struct dpe_guard_head *head)
{
    return strcmp(head->method, "POST") == 0 || strcmp(head->method, "PUT") == 0;
}

unsigned dpe_guard_form(const struct dpe_guard_head *head, const char **why)
{
    bool old = strcmp(head->version, "HTTP/1.0") == 0;
    bool chunks = head->encodings > 0;
    const struct {
        bool wrong;
        const char *why;
    } rules[] = {
        {head->wrong != NULL, head->wrong},
        {head->hosts > 1, "expected one Host"},
        {head->hosts == 0 && !old, "expected a Host"},
        {head->lengths > 1, "expected one Content-Length"},
        {head->lengths > 0 && chunks, "expected Content-Length or Transfer-Encoding, found both"},
        {chunks && (old || head->encodings > 1 || strcasecmp(head->encoding, "chunked") != 0),
         "expected Transfer-Encoding: chunked, in HTTP/1.1, or none"},
        {head->lengths > 0 &&
             (head->length[0] == '\0' || head->length[strspn(head->length, "0123456789")] != '\0'),
         "expected Content-Length in digits"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (rules[i].wrong) {
            *why = rules[i].why;
            return 400;
        }
    }
    if (has_body(head) && head->lengths == 0 && !chunks) {
        *why = "expected a Content-Length, or a body in chunks";
        return 411;
    }
    *why = NULL;
    return 0;
}

/* ----------------------------------------------------------------------------------------- who */

static bool equals(const char *text, size_t n, const char *other)
{
    return other != NULL && strlen(other) == n && strncasecmp(text, other, n) == 0;
}

static bool is_local(const char *name, size_t n)
{
    unsigned char parts[4];
    char text[INET_ADDRSTRLEN];
    snprintf(text, sizeof text, "%.*s", n < sizeof text ? (int)n : 0, name);
    return equals(name, n, "localhost") || equals(name, n, "::1") ||
           (inet_pton(AF_INET, text, parts) == 1 && parts[0] == 127);
}

bool dpe_guard_is_loopback(const char *address)
{
    return is_local(address, strlen(address)) && strcasecmp(address, "localhost") != 0;
}

/* The name in a Host, without brackets and port; false: it has none. */
static bool name_of(const char *host, const char **name, size_t *n)
{
    const char *end = host;
    if (host[0] == '[') {
        *name = host + 1;
        end = strchr(host, ']');
        if (end == NULL) {
            return false;
        }
        *n = (size_t)(end++ - *name);
    } else {
        *name = host;
        *n = strcspn(host, ":");
        end = host + *n;
    }
    return *n > 0 &&
           (*end == '\0' || (*end == ':' && end[1 + strspn(end + 1, "0123456789")] == '\0'));
}

static bool host_may(const struct dpe_serve_arguments *args, bool local, const char *host)
{
    const char *name = NULL;
    size_t n = 0;
    if ((!local && args->n_hosts == 0) || host == NULL) {
        return true;
    }
    if (!name_of(host, &name, &n)) {
        return false;
    }
    bool may = (local && is_local(name, n)) || equals(name, n, args->host);
    for (int64_t i = 0; i < args->n_hosts; i++) {
        may = may || equals(name, n, args->hosts[i]);
    }
    return may;
}

/* Whether the page has the address that the request goes to. */
static bool is_own(const char *origin, const char *host)
{
    const char *name = strstr(origin, "://");
    return name != NULL && host != NULL && strcasecmp(name + 3, host) == 0;
}

const char *dpe_guard_foreign(const struct dpe_serve_arguments *args,
                              const struct dpe_guard_head *head)
{
    for (int64_t i = 0; i < args->n_origins && head->origin != NULL; i++) {
        if (strcmp(args->origins[i], "*") == 0 || strcasecmp(args->origins[i], head->origin) == 0) {
            return is_own(head->origin, head->host) ? NULL : head->origin;
        }
    }
    return NULL;
}

static bool is_json(const char *type)
{
    static const char json[] = "application/json";
    size_t n = sizeof json - 1;
    return type != NULL && strncasecmp(type, json, n) == 0 && strchr("; \t", type[n]) != NULL;
}

unsigned dpe_guard_who(const struct dpe_serve_arguments *args, bool local,
                       const struct dpe_guard_head *head, const char **why)
{
    bool body = has_body(head);
    bool allowed = dpe_guard_foreign(args, head) != NULL;
    bool foreign = head->origin != NULL ? !is_own(head->origin, head->host)
                                        : body && head->site != NULL &&
                                              (strcasecmp(head->site, "cross-site") == 0 ||
                                               strcasecmp(head->site, "same-site") == 0);
    if (!host_may(args, local, head->host)) {
        *why = "the Host is no name of this machine; the server's --allow-host names more";
        return 403;
    }
    if (foreign && !allowed) {
        *why = "pages of other sites may not ask; the server's --allow-origin names some that may";
        return 403;
    }
    if (body && (head->origin != NULL || head->site != NULL) && !is_json(head->type)) {
        *why = "expected Content-Type: application/json from a browser";
        return 415;
    }
    return 0;
}

/* ---------------------------------------------------------------------------------------- body */

/* Bytes of jansson's values on a machine of 64 bits, rounded up (2.14): an object with its first
 * table, a list with its first places, a member's pair, and a place in a list that doubles when it
 * is full. */
enum { OBJECT = 256, LIST = 160, TEXT = 96, NUMBER = 48, PAIR = 112, PLACE = 32 };

/* The end of the string that begins at bytes[i]. */
static size_t string_end(const char *bytes, size_t n, size_t i)
{
    for (i++; i < n && bytes[i] != '"'; i++) {
        i += bytes[i] == '\\';
    }
    return i < n ? i + 1 : n;
}

uint64_t dpe_guard_cost(const char *bytes, size_t n)
{
    uint64_t cost = 2 * (uint64_t)n;
    int64_t depth = 0;
    size_t i = 0;
    while (i < n) {
        char c = bytes[i];
        if (c == '"') {
            size_t end = string_end(bytes, n, i);
            cost += TEXT + 2 * (uint64_t)(end - i);
            i = end;
            continue;
        }
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        if (depth > DPE_GUARD_DEPTH) {
            return UINT64_MAX;
        }
        cost += c == '{'   ? OBJECT
                : c == '[' ? LIST
                : c == ':' ? PAIR
                : c == ',' ? PLACE + NUMBER
                           : 0;
        i++;
    }
    return cost + NUMBER;
}
