/* Dpe-serve as a client sees it: the server's own main in a child process, on the bundled model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>

#include <jansson.h>

#include "tests/lib/tool_run.h"

int dpe_serve_main(int argc, char **argv);

static pid_t server;
static int port;
static char answer[1 << 20]; /* head and body of the last */

static void start(const char *options)
{
    char line[1024];
    snprintf(line, sizeof line, "-m " TOOL_MODEL " --port 0 --threads 1 --slots 2 %s", options);
    unlink("err");
    server = tool_begin(dpe_serve_main, "dpe-serve", line);
    for (port = 0; port == 0;) {
        const struct timespec moment = {.tv_nsec = 10000000};
        nanosleep(&moment, NULL);
        if (access("err", R_OK) == 0) {
            tool_read("err", tool_err, sizeof tool_err);
            const char *at = strstr(tool_err, "at http://127.0.0.1:");
            port = at != NULL && strchr(at, '\n') != NULL ? atoi(at + 20) : 0;
        }
        if (waitpid(server, NULL, WNOHANG) != 0) {
            fail_msg("the server did not start: %s", tool_err);
        }
    }
}

static int stop(void)
{
    kill(server, SIGTERM);
    return tool_end(server);
}

static const char *field = ""; /* one more line of the head, with its end */

/* Ask, and return the status; body NULL: GET. */
static int ask(const char *method, const char *path, const char *body)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    static char request[1 << 16];
    size_t n = 0;
    assert_int_equal(connect(fd, (void *)&to, sizeof to), 0);
    snprintf(request, sizeof request,
             "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\nContent-Type: "
             "application/json\r\n%sContent-Length: %zu\r\n\r\n%s",
             method, path, port, field, body != NULL ? strlen(body) : 0, body != NULL ? body : "");
    assert_int_equal(send(fd, request, strlen(request), 0), (ssize_t)strlen(request));
    for (ssize_t got = 1; got > 0 && n < sizeof answer - 1; n += (size_t)(got > 0 ? got : 0)) {
        got = recv(fd, answer + n, sizeof answer - 1 - n, 0);
    }
    answer[n] = '\0';
    close(fd);
    return strncmp(answer, "HTTP/1.1 ", 9) == 0 ? atoi(answer + 9) : 0;
}

/* The JSON of an answer of this status; freed by the caller. */
static json_t *document(int status, const char *method, const char *path, const char *body)
{
    const int got = ask(method, path, body);
    const char *text = strstr(answer, "\r\n\r\n");
    json_t *json = text != NULL ? json_loads(text + 4, 0, NULL) : NULL;
    if (got != status || json == NULL) {
        fail_msg("%s %s %s: expected %d, got %s", method, path, body != NULL ? body : "", status,
                 answer);
    }
    return json;
}

static const char *text_of(json_t *json, const char *kind)
{
    json_t *choice = json_array_get(json_object_get(json, "choices"), 0);
    json_t *message = json_object_get(choice, kind);
    return json_string_value(json_is_object(message) ? json_object_get(message, "content")
                                                     : message);
}

static void refused(int status, const char *path, const char *body, const char *words)
{
    json_t *json = document(status, "POST", path, body);
    const char *message =
        json_string_value(json_object_get(json_object_get(json, "error"), "message"));
    if (message == NULL || strstr(message, words) == NULL) {
        fail_msg("%s: expected \"%s\", found %s", body, words, message);
    }
    json_decref(json);
}

static void completions(void **state)
{
    (void)state;
    start("--method self-extend:always=1 --length 1k");
    json_t *first =
        document(200, "POST", "/v1/completions",
                 "{\"prompt\": \"Once upon a time\", \"max_tokens\": 9, \"temperature\": 0}");
    assert_string_equal(json_string_value(json_object_get(first, "object")), "text_completion");
    json_t *usage = json_object_get(first, "usage");
    const json_int_t prompt = json_integer_value(json_object_get(usage, "prompt_tokens"));
    const json_int_t made = json_integer_value(json_object_get(usage, "completion_tokens"));
    assert_true(prompt > 1 && made == 9);
    assert_int_equal(json_integer_value(json_object_get(usage, "total_tokens")), prompt + made);
    /* A stream's pieces are the same text. */
    assert_int_equal(ask("POST", "/v1/completions",
                         "{\"prompt\": \"Once upon a time\", \"max_tokens\": 9, \"temperature\": "
                         "0, \"stream\": true, "
                         "\"stream_options\": {\"include_usage\": true}}"),
                     200);
    assert_non_null(strstr(answer, "text/event-stream"));
    assert_non_null(strstr(answer, "data: [DONE]"));
    char all[4096] = "";
    for (const char *at = strstr(answer, "data: {"); at != NULL; at = strstr(at + 1, "data: {")) {
        json_t *event = json_loads(at + 6, JSON_DISABLE_EOF_CHECK, NULL);
        const char *text = text_of(event, "text");
        dpe_append(all, sizeof all, "%s", text != NULL ? text : "");
        json_decref(event);
    }
    assert_string_equal(all, text_of(first, "text"));
    /* Two prompts, two choices of each; and what a stop word leaves. */
    json_t *many = document(
        200, "POST", "/v1/completions",
        "{\"prompt\": [\"Once\", \"Once\"], \"max_tokens\": 3, \"n\": 2, \"temperature\": 0}");
    assert_int_equal(json_array_size(json_object_get(many, "choices")), 4);
    json_decref(many);
    char word[8] = "";
    const char *letters = text_of(first, "text") + 4;
    letters += strcspn(letters, "abcdefghijklmnopqrstuvwxyz");
    snprintf(word, sizeof word, "%.1s", letters);
    char body[512];
    snprintf(body, sizeof body,
             "{\"prompt\": \"Once upon a time\", \"max_tokens\": 9, \"temperature\": 0, \"stop\": "
             "[\"%s\"]}",
             word);
    json_t *stopped = document(200, "POST", "/v1/completions", body);
    assert_null(strstr(text_of(stopped, "text"), word));
    json_decref(stopped);
    json_decref(first);
    /* Likelihoods: one for each token, none above 0, none for the first. */
    json_t *echo = document(
        200, "POST", "/v1/completions",
        "{\"prompt\": \"Once upon a time\", \"max_tokens\": 0, \"echo\": true, \"logprobs\": 2}");
    json_t *scores = json_object_get(
        json_object_get(json_array_get(json_object_get(echo, "choices"), 0), "logprobs"),
        "token_logprobs");
    assert_int_equal(json_array_size(scores), prompt);
    assert_true(json_is_null(json_array_get(scores, 0)));
    for (size_t i = 1; i < json_array_size(scores); i++) {
        assert_true(json_real_value(json_array_get(scores, i)) <= 0.0);
    }
    json_decref(echo);
    assert_int_equal(stop(), 0);
}

static void chats_and_what_is_told(void **state)
{
    (void)state;
    tool_write("chat.jinja",
               "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:");
    tool_write("keys", "secret\nother\n");
    start("--chat-template chat.jinja --api-key-file keys --name toy --queue 4 --allow-origin "
          "https://app.example");
    refused(401, "/v1/chat/completions", "{}", "key");
    field = "Authorization: Bearer secret\r\nOrigin: https://app.example\r\n";
    json_t *json = document(200, "POST", "/v1/chat/completions",
                            "{\"model\": \"toy\", \"messages\": [{\"role\": \"user\", \"content\": "
                            "\"hello\"}], \"max_tokens\": 5, "
                            "\"temperature\": 1.5, \"top_p\": 0.9, \"seed\": 3, \"logprobs\": "
                            "true, \"top_logprobs\": 2}");
    assert_non_null(strstr(answer, "https://app.example"));
    assert_string_equal(json_string_value(json_object_get(json, "model")), "toy");
    assert_non_null(text_of(json, "message"));
    json_decref(json);
    json = document(200, "GET", "/v1/models", NULL);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(json_object_get(json, "data"), 0), "id")),
        "toy");
    json_decref(json);
    assert_int_equal(ask("GET", "/health", NULL), 200);
    assert_int_equal(ask("GET", "/", NULL), 200);
    assert_non_null(strstr(answer, "<html"));
    assert_int_equal(ask("GET", "/metrics", NULL), 200);
    json = document(200, "POST", "/tokenize",
                    "{\"prompt\": \"hello\", \"add_special_tokens\": false}");
    json_decref(json);
    assert_int_equal(ask("OPTIONS", "/v1/completions", NULL), 204);
    field = "Authorization: Bearer secret\r\nOrigin: https://evil.example\r\n";
    assert_int_equal(ask("POST", "/v1/completions", "{\"prompt\": \"a\"}"), 403);
    field = "";
    assert_int_equal(stop(), 0);
}

static void bad_requests_are_refused_by_name(void **state)
{
    static const struct {
        int status;
        const char *body, *words;
    } rows[] = {
        {400, "{", "JSON"},
        {400, "[]", "object"},
        {400, "{}", "prompt"},
        {400, "{\"prompt\": 3}", "prompt"},
        {400, "{\"prompt\": []}", "prompt"},
        {400, "{\"prompt\": [1, -1]}", "prompt"},
        {400, "{\"prompt\": [99999]}", "2559"},
        {400, "{\"prompt\": \"a\", \"max_tokens\": -1}", "max_tokens"},
        {400, "{\"prompt\": \"a\", \"max_tokens\": \"3\"}", "max_tokens"},
        {400, "{\"prompt\": \"a\", \"max_tokens\": 100000}", "256"},
        {400, "{\"prompt\": \"a\", \"temperature\": -0.5}", "temperature"},
        {400, "{\"prompt\": \"a\", \"temperature\": true}", "temperature"},
        {400, "{\"prompt\": \"a\", \"top_p\": 1.5}", "top_p"},
        {400, "{\"prompt\": \"a\", \"n\": 0}", "n"},
        {400, "{\"prompt\": \"a\", \"logprobs\": 50}", "logprobs"},
        {400, "{\"prompt\": \"a\", \"stop\": 5}", "stop"},
        {400, "{\"prompt\": \"a\", \"stop\": [\"\"]}", "stop"},
        {400, "{\"prompt\": \"a\", \"seed\": 1.5}", "seed"},
        {400, "{\"prompt\": \"a\", \"stream\": 1}", "stream"},
        {400, "{\"prompt\": \"a\", \"frequency_penalty\": 1}", "frequency_penalty"},
    };
    (void)state;
    start("--client-timeout 5 --request-timeout 20");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        refused(rows[i].status, "/v1/completions", rows[i].body, rows[i].words);
    }
    refused(400, "/v1/chat/completions",
            "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", "chat template");
    assert_int_equal(ask("GET", "/nowhere", NULL), 404);
    assert_int_equal(ask("DELETE", "/v1/completions", NULL), 405);
    field = "Transfer-Encoding: nonsense\r\n";
    assert_true(ask("POST", "/v1/completions", "{}") >= 400);
    field = "";
    assert_int_equal(stop(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(completions),
        cmocka_unit_test(chats_and_what_is_told),
        cmocka_unit_test(bad_requests_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, tool_folder, tool_folder_gone);
}
