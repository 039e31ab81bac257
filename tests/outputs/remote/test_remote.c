/* An engine over HTTP, and servers that answer wrongly, late, too much, or not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/plan/methods/methods.h"
#include "outputs/read/read.h"
#include "outputs/remote/remote.h"

/* A server whose answers are given: the text after the status line, for a path. "@D" stands for the
 * digest of the plan that was sent last. */
struct reply {
    const char *path, *text;
    int times; /* so many, then the next one for the path; 0: always */
};
struct server {
    const struct reply *replies;
    int left[16];
    int port, listening, requests;
    char digest[65];
    pthread_t thread;
};

static bool read_request(int client, char *head, size_t size, char *body, size_t body_size)
{
    size_t n = 0;
    char *end = NULL;
    while (end == NULL && n + 1 < size) {
        ssize_t got = recv(client, head + n, size - 1 - n, 0);
        if (got <= 0) {
            return false;
        }
        n += (size_t)got;
        head[n] = '\0';
        end = strstr(head, "\r\n\r\n");
    }
    const char *length = strstr(head, "Content-Length:");
    size_t wanted = length != NULL ? strtoul(length + 15, NULL, 10) : 0;
    size_t have = n - (size_t)(end + 4 - head);
    have = have < body_size - 1 ? have : body_size - 1;
    memcpy(body, end + 4, have);
    while (have < wanted && have + 1 < body_size) {
        ssize_t got = recv(client, body + have, body_size - 1 - have, 0);
        if (got <= 0) {
            return false;
        }
        have += (size_t)got;
    }
    body[have] = '\0';
    *end = '\0';
    return true;
}

static const char *choose(struct server *server, const char *head)
{
    for (int i = 0; server->replies[i].path != NULL; i++) {
        const char *at = strstr(head, server->replies[i].path);
        size_t n = strlen(server->replies[i].path);
        if (at == NULL || at[n] != ' ' || server->left[i] == 0) {
            continue;
        }
        server->left[i] -= server->left[i] > 0;
        return server->replies[i].text;
    }
    return "404 Not Found\r\n\r\n{}";
}

static void answer(struct server *server, int client, const char *text)
{
    char out[4096] = "";
    size_t n = text[0] == '<' ? 0 : (size_t)snprintf(out, sizeof out, "HTTP/1.1 ");
    for (; *text != '\0'; text++) {
        if (strncmp(text, "@D", 2) == 0) {
            n += (size_t)snprintf(out + n, sizeof out - n, "%s", server->digest);
            text++;
        } else if (n + 1 < sizeof out) {
            out[n++] = *text;
        }
    }
    send(client, out, n, MSG_NOSIGNAL);
    if (strstr(out, "X-Endless") != NULL) {
        bool lines = strstr(out, "X-Endless-Lines") != NULL;
        for (size_t i = 0; i < sizeof out; i++) {
            out[i] = lines ? "X-A: b\r\n"[i % 8] : ' ';
        }
        while (send(client, out, sizeof out, MSG_NOSIGNAL) > 0) {
        }
    }
}

static void *serve(void *user)
{
    struct server *server = user;
    static char head[8192], body[1 << 20];
    for (int client; (client = accept(server->listening, NULL, NULL)) >= 0; close(client)) {
        if (!read_request(client, head, sizeof head, body, sizeof body)) {
            continue;
        }
        server->requests++;
        if (strstr(head, "/v1/dpe/plan ") != NULL) { /* a real server takes it */
            struct dpe_table *table = NULL;
            char why[DPE_TABLE_MESSAGE];
            if (dpe_table_parse("the body", body, strlen(body), &table, why) == DPE_TABLE_OK) {
                dpe_sha256_bytes(body, strlen(body), server->digest, NULL);
            }
            dpe_table_close(table);
        }
        const char *text = choose(server, head);
        if (text[0] != '\0') { /* "": the connection ends without an answer */
            answer(server, client, text);
        }
    }
    return NULL;
}

static void start(struct server *server, const struct reply *replies)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    *server = (struct server){.replies = replies, .listening = socket(AF_INET, SOCK_STREAM, 0)};
    for (int i = 0; replies[i].path != NULL; i++) {
        server->left[i] = replies[i].times > 0 ? replies[i].times : -1;
    }
    assert_int_equal(bind(server->listening, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(server->listening, 16), 0);
    assert_int_equal(getsockname(server->listening, (struct sockaddr *)&address, &n), 0);
    server->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
}

static void stop(struct server *server)
{
    shutdown(server->listening, SHUT_RDWR);
    pthread_join(server->thread, NULL);
    close(server->listening);
}

#define JSON "200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n"
static const char about[] = JSON "{\"engine\":\"dpe-serve\",\"name\":\"m\",\"model\":\"f00d\","
                                 "\"tokenizer\":\"t\",\"numbers\":\"f32\",\"length\":512}";
static const char taken[] = JSON "{\"plan\":\"@D\",\"model\":\"f00d\"}";

static const struct dpe_config small = {
    .model_type = "llama",
    .n_layers = 2,
    .n_heads = 2,
    .n_kv_heads = 1,
    .head_dim = 8,
    .max_position = 64,
    .rope = {.type = DPE_ROPE_DEFAULT, .theta = 10000.0},
};

static struct dpe_plan some_plan(void)
{
    const struct dpe_plan_context context = {.config = &small, .trained_length = 64, .length = 512};
    struct dpe_plan plan;
    assert_int_equal(dpe_plan_make("rope", &context, &plan, NULL), DPE_OK);
    return plan;
}

static dpe_status open_engine(const struct server *server, struct dpe_remote_engine **engine,
                              struct dpe_error *err)
{
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/v1/", server->port);
    const struct dpe_remote_options options = {
        .url = url, .in_flight = 3, .patience = 1.0, .config = &small};
    return dpe_remote_open(&options, engine, err);
}

/* What becomes of a request for three new tokens after two, and of likelihoods; `first` false: of
 * the opening. */
static void expect(const struct reply *replies, dpe_status wanted, const char *words,
                   bool likelihood)
{
    struct server server;
    struct dpe_remote_engine *engine = NULL;
    struct dpe_error err = {0};
    const int32_t ids[] = {5, 6, 7};
    double nll[2] = {0};
    struct dpe_tokens out[4] = {{0}};
    struct dpe_plan plan = some_plan();
    start(&server, replies);
    dpe_status status = open_engine(&server, &engine, &err);
    if (status == DPE_OK) {
        const struct dpe_session_remote *session = dpe_remote_session(engine);
        struct dpe_remote_text texts[4];
        for (int i = 0; i < 4; i++) {
            texts[i] = (struct dpe_remote_text){ids, 3, 3, false, &out[i]};
        }
        status = session->take_plan(session->user, &plan, &err);
        if (status == DPE_OK) {
            status = likelihood ? session->likelihood(session->user, ids, 3, 1, nll, &err)
                                : session->generate(session->user, texts, 4, &err);
        }
    }
    if (status != wanted || (words != NULL && strstr(err.text, words) == NULL)) {
        fail_msg("expected %d '%s', found %d '%s'", wanted, words != NULL ? words : "", status,
                 err.text);
    }
    if (status == DPE_OK && !likelihood) {
        for (int i = 0; i < 4; i++) {
            assert_int_equal(out[i].n, 2);
            assert_int_equal(out[i].ids[1], 9);
        }
    } else if (status == DPE_OK) {
        assert_true(nll[0] == 0.5 && nll[1] == 2.0);
    }
    for (int i = 0; i < 4; i++) {
        dpe_tokens_free(&out[i]);
    }
    dpe_remote_close(engine);
    dpe_plan_free(&plan);
    stop(&server);
}

#define GOOD                                                                                       \
    JSON "{\"choices\":[{\"token_ids\":[8,9],\"logprobs\":{\"token_logprobs\":[null,-0.5,-2]}}],"  \
         "\"dpe\":{\"digest\":\"@D\"}}"
#define WITH(text)                                                                                 \
    (const struct reply[])                                                                         \
    {                                                                                              \
        {"/v1/dpe", about, 0}, {"/v1/dpe/plan", taken, 0}, {"/v1/dpe/completions", text, 0},       \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

static void answers_are_read(void **state)
{
    (void)state;
    expect(WITH(GOOD), DPE_OK, NULL, false);
    expect(WITH(GOOD), DPE_OK, NULL, true);
}

static void wrong_answers_are_refused(void **state)
{
    static const char *const choices[] = {
        "{}",
        "[]",
        "null",
        "{\"choices\":5,\"dpe\":{\"digest\":\"@D\"}}",
        "{\"choices\":[],\"dpe\":{\"digest\":\"@D\"}}",
        "{\"choices\":[1],\"dpe\":{\"digest\":\"@D\"}}",
        "{\"choices\":[{},{}],\"dpe\":{\"digest\":\"@D\"}}",
        "{\"choices\":[{\"token_ids\":[8,9]}]}",
        "{\"choices\":[{\"token_ids\":[8,9]}],\"dpe\":{\"digest\":\"00\"}}",
        "{\"choices\":[{\"token_ids\":\"8\"}],\"dpe\":{\"digest\":\"@D\"}}",
        "{\"choices\":[{\"token_ids\":[8,9,1,2]}],\"dpe\":{\"digest\":\"@D\"}}",
        "{\"choices\":[{\"token_ids\":[-1]}],\"dpe\":{\"digest\":\"@D\"}}",
        "{\"choices\":[{\"token_ids\":[1.5]}],\"dpe\":{\"digest\":\"@D\"}}",
        "{\"choices\":[{\"token_ids\":[99999999999]}],\"dpe\":{\"digest\":\"@D\"}}",
        "{\"choices\":[{\"text\":\"a\"}],\"dpe\":{\"digest\":\"@D\"}}",
        "{\"choices\":[{\"token_ids\":[8",
        "\xff\xfe",
        "",
    };
    static const char *const scores[] = {
        "{\"choices\":[{\"logprobs\":null}],\"dpe\":{\"digest\":\"@D\"}}",
        "{\"choices\":[{\"logprobs\":{\"token_logprobs\":[null,-0.5]}}],\"dpe\":{\"digest\":\"@D\"}"
        "}",
        "{\"choices\":[{\"logprobs\":{\"token_logprobs\":[null,null,-1]}}],\"dpe\":{\"digest\":\"@"
        "D\"}}",
        "{\"choices\":[{\"logprobs\":{\"token_logprobs\":[null,\"-1\",-1]}}],\"dpe\":{\"digest\":"
        "\"@D\"}}",
        "{\"choices\":[{\"logprobs\":{\"token_logprobs\":[null,3,-1]}}],\"dpe\":{\"digest\":\"@D\"}"
        "}",
        "{\"choices\":[{\"logprobs\":{\"token_logprobs\":[null,-1e308,-1e308]}}],\"dpe\":{"
        "\"digest\":"
        "\"@D\"}}",
        "{\"choices\":[{\"logprobs\":{\"token_logprobs\":[null,-1,-1.1e6]}}],\"dpe\":{\"digest\":"
        "\"@D\"}}",
    };
    (void)state;
    char text[1024];
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        snprintf(text, sizeof text, "%s%s", JSON, choices[i]);
        expect(WITH(text), DPE_BAD_DATA, "expected", false);
    }
    for (size_t i = 0; i < sizeof scores / sizeof scores[0]; i++) {
        snprintf(text, sizeof text, "%s%s", JSON, scores[i]);
        expect(WITH(text), DPE_BAD_DATA, "expected", true);
    }
    expect(WITH("200 OK\r\nX-Endless: y\r\n\r\n"), DPE_BAD_DATA, "found a longer one", false);
    /* A line of the head, its lines, and those behind a body in chunks, without end; HTTP/0.9. */
    expect(WITH("200 OK\r\nX-Endless: "), DPE_BAD_DATA, "head", false);
    expect(WITH("200 OK\r\nX-Endless-Lines: y\r\n"), DPE_BAD_DATA, "head", false);
    expect(WITH("200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-A\r\nX-Endless-Lines: "
                "y\r\n\r\n2\r\n{}\r\n0\r\n"),
           DPE_BAD_DATA, "head", false);
    expect(WITH("<html>this is no HTTP</html>"), DPE_BAD_DATA, "HTTP/0.9", false);
    /* A line behind the chunks without end, chunks that are none. */
    expect(WITH("200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Endless: "),
           DPE_BAD_DATA, "expected chunks", false);
    expect(WITH("200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n-1\r\n"), DPE_BAD_DATA,
           "expected chunks", false);
    expect(
        WITH("400 No\r\nConnection: close\r\n\r\n{\"error\":{\"message\":\"too long, says it\"}}"),
        DPE_BAD_DATA, "too long, says it", false);
    expect(WITH("500 No\r\nConnection: close\r\n\r\n{\"error\":{\"message\":\"it "
                "fell\",\"code\":null}}"),
           DPE_IO, "it fell", false);
    expect(WITH("500 No\r\nConnection: "
                "close\r\n\r\n{\"error\":{\"message\":\"NaN\",\"code\":\"not_finite\"}}"),
           DPE_NONFINITE, "NaN", false);
    expect(WITH("302 Go\r\nLocation: http://127.0.0.1:1/\r\nConnection: close\r\n\r\n"), DPE_IO,
           "status 302", false);
    expect(
        WITH(
            "401 No\r\nConnection: close\r\n\r\n{\"error\":{\"message\":\"the key \\u001b[31m\"}}"),
        DPE_BAD_DATA, "the key \\x1b", false);
}

static void wrong_engines_are_refused(void **state)
{
    (void)state;
    expect((const struct reply[]){{"/v1/dpe", JSON "{}", 0}, {0}}, DPE_BAD_DATA,
           "expected engine, model", false);
    expect(
        (const struct reply[]){
            {"/v1/dpe", JSON "{\"engine\":\"x\",\"model\":\"f\",\"tokenizer\":\"t\",\"length\":-4}",
             0},
            {0}},
        DPE_BAD_DATA, "expected engine, model", false);
    expect((const struct reply[]){{"/v1/models", JSON "{\"data\":[]}", 0}, {0}}, DPE_BAD_DATA,
           "a list of models", false);
    expect((const struct reply[]){{"/v1/dpe", about, 0},
                                  {"/v1/dpe/plan", JSON "{\"plan\":\"12\",\"model\":\"f00d\"}", 0},
                                  {0}},
           DPE_BAD_DATA, "expected plan", false);
    expect((const struct reply[]){{"/v1/dpe", about, 0},
                                  {"/v1/dpe/plan", JSON "{\"plan\":\"@D\",\"model\":\"beef\"}", 0},
                                  {0}},
           DPE_BAD_DATA, "its model has changed", false);
    struct dpe_remote_engine *engine = NULL;
    struct dpe_error err = {0};
    const struct dpe_remote_options options = {.url = "ftp://x", .in_flight = 1, .patience = 1.0};
    assert_int_equal(dpe_remote_open(&options, &engine, &err), DPE_USAGE);
    /* One that was never there is not waited for. */
    const struct dpe_remote_options nobody = {
        .url = "http://127.0.0.1:1", .in_flight = 1, .patience = 3600.0};
    alarm(60);
    assert_int_equal(dpe_remote_open(&nobody, &engine, &err), DPE_IO);
    alarm(0);
    static const char *const plain[] = {"http://localhost:1/v1/", "https://127.0.0.1:1/a_b/c-d~e",
                                        "http://[::1]:1"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        const struct dpe_remote_options good = {.url = plain[i], .in_flight = 1};
        assert_int_equal(dpe_remote_open(&good, &engine, &err), DPE_IO);
    }
    /* What is secret in a URL is not repeated. */
    static const char *const secrets[] = {"http://me:SECRET@127.0.0.1:1",
                                          "https://127.0.0.1:1/v1?key=SECRET",
                                          "http://SECRET@127.0.0.1:1/v1",
                                          "ftp://me:SECRET@127.0.0.1",
                                          "http://127.0.0.1:1/v1#SECRET",
                                          "http://me:SECRET%40127.0.0.1:1",
                                          "me:SECRET",
                                          "http://127.0.0.1:1/v1;key=SECRET",
                                          "http://127.0.0.1:1/\nSECRET",
                                          "http://127.0.0.1:1/%3FSECRET"};
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++) {
        const struct dpe_remote_options secret = {.url = secrets[i], .in_flight = 1};
        assert_int_equal(dpe_remote_open(&secret, &engine, &err), DPE_USAGE);
        assert_non_null(strstr(err.text, "--engine-key-file"));
        assert_null(strstr(err.text, "SECRET"));
    }
}

#define BUSY(status) status "\r\nConnection: close\r\nRetry-After: 0\r\n\r\n{}"
#define LOST                                                                                       \
    "404 No\r\nConnection: close\r\n\r\n{\"error\":{\"message\":\"no plan with that "              \
    "digest\",\"code\":"                                                                           \
    "\"plan_not_found\"}}"

/* A server that was started again has lost its plan: it gets it once more, and the requests that
 * were refused are sent again. */
static void a_lost_plan_is_given_again(void **state)
{
    (void)state;
    for (int lost = 1; lost <= 4; lost++) {
        for (int scored = 0; scored < 2; scored++) {
            expect((const struct reply[]){{"/v1/dpe", about, 0},
                                          {"/v1/dpe/plan", taken, 1},
                                          {"/v1/dpe/completions", LOST, scored ? 1 : lost},
                                          {"/v1/dpe/plan", BUSY("503 Busy"), 1},
                                          {"/v1/dpe/plan", taken, 0},
                                          {"/v1/dpe/completions", GOOD, 0},
                                          {0}},
                   DPE_OK, NULL, scored == 1);
        }
    }
    expect(WITH(LOST), DPE_BAD_DATA, "no plan with that digest", false);
    expect((const struct reply[]){{"/v1/dpe", about, 0},
                                  {"/v1/dpe/plan", taken, 1},
                                  {"/v1/dpe/completions", LOST, 0},
                                  {"/v1/dpe/plan", JSON "{\"plan\":\"@D\",\"model\":\"beef\"}", 0},
                                  {0}},
           DPE_BAD_DATA, "its model has changed", false);
}

#define NORMS(rows, q, k)                                                                          \
    JSON "{\"rows\":" rows ",\"q\":" q ",\"k\":" k ",\"dpe\":{\"digest\":\"@D\"}}"

/* What becomes of a request for norms of three tokens, of 2 layers with 2 heads and 1 KV head of 2
 * pairs. */
static void expect_norms(const char *answer_text, bool products, dpe_status wanted,
                         const char *words)
{
    static const struct dpe_config config = {
        .n_layers = 2, .n_heads = 2, .n_kv_heads = 1, .head_dim = 4};
    const struct reply replies[] = {
        {"/v1/dpe", about, 0}, {"/v1/dpe/plan", taken, 0}, {"/v1/dpe/norms", answer_text, 0}, {0}};
    struct server server;
    struct dpe_remote_engine *engine = NULL;
    struct dpe_error err = {0};
    const int32_t ids[] = {5, 6, 7};
    double sums[2][8] = {{1.0}, {2.0}};
    int64_t rows[2] = {0};
    struct dpe_plan plan = some_plan();
    const struct dpe_norm_text text = {
        ids, 3, {products, sums[0], products ? NULL : sums[1], rows}};
    start(&server, replies);
    assert_int_equal(open_engine(&server, &engine, &err), DPE_OK);
    const struct dpe_session_remote *session = dpe_remote_session(engine);
    assert_int_equal(session->take_plan(session->user, &plan, &err), DPE_OK);
    dpe_status status = session->norms(session->user, &config, &text, 1, &err);
    if (status != wanted || (words != NULL && strstr(err.text, words) == NULL)) {
        fail_msg("expected %d '%s', found %d '%s'", wanted, words != NULL ? words : "", status,
                 err.text);
    }
    if (status == DPE_OK) {
        assert_true(sums[0][0] == 2.0 && sums[0][7] == 0.25 && rows[0] == 3 && rows[1] == 3);
        assert_true(sums[1][0] == (products ? 2.0 : 2.5) && sums[1][3] == (products ? 0.0 : 4.0));
    }
    dpe_remote_close(engine);
    dpe_plan_free(&plan);
    stop(&server);
}

static void norms_are_added(void **state)
{
    static const char *const wrong_answers[] = {
        JSON "{}",
        NORMS("[3,3]", "[1,2,3,4,5,6,7]", "[0.5,2,3,4]"),
        NORMS("[3,3]", "[1,2,3,4,5,6,7,-1]", "[0.5,2,3,4]"),
        NORMS("[3,3]", "[1,2,3,4,5,6,7,\"8\"]", "[0.5,2,3,4]"),
        NORMS("[3,3]", "[1,2,3,4,5,6,7,0.25]", "[0.5,2,3]"),
        NORMS("[3,3]", "[1,2,3,4,5,6,7,0.25]", "null"),
        NORMS("[3,2]", "[1,2,3,4,5,6,7,0.25]", "[0.5,2,3,4]"),
        NORMS("3", "[1,2,3,4,5,6,7,0.25]", "[0.5,2,3,4]"),
        JSON "{\"rows\":[3,3],\"q\":[1,2,3,4,5,6,7,8],\"k\":[1,2,3,4],\"dpe\":{\"digest\":\"00\"}}",
    };
    (void)state;
    expect_norms(NORMS("[3,3]", "[1,2,3,4,5,6,7,0.25]", "[0.5,2,3,4]"), false, DPE_OK, NULL);
    expect_norms(NORMS("[3,3]", "[1,2,3,4,5,6,7,0.25]", "[]"), true, DPE_OK, NULL);
    for (size_t i = 0; i < sizeof wrong_answers / sizeof wrong_answers[0]; i++) {
        expect_norms(wrong_answers[i], false, DPE_BAD_DATA, "expected");
    }
    expect_norms("200 OK\r\nX-Endless: y\r\n\r\n", false, DPE_BAD_DATA, "found a longer one");
}

/* Busy servers, and connections that break off, are tried again; what was answered is not asked for
 * again. */
static void requests_are_tried_again(void **state)
{
    (void)state;
    expect(
        (const struct reply[]){{"/v1/dpe", about, 0},
                               {"/v1/dpe/plan", BUSY("503 Busy"), 1},
                               {"/v1/dpe/plan", taken, 0},
                               {"/v1/dpe/completions", BUSY("503 Busy"), 2},
                               {"/v1/dpe/completions", BUSY("429 Busy"), 1},
                               {"/v1/dpe/completions", "", 1},
                               {"/v1/dpe/completions", "200 OK\r\nContent-Length: 900\r\n\r\n{", 1},
                               {"/v1/dpe/completions", GOOD, 0},
                               {0}},
        DPE_OK, NULL, false);
    expect(WITH(BUSY("503 Busy")), DPE_IO, "no room", false);
    expect(WITH(""), DPE_IO, "/v1/dpe/completions", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_read),          cmocka_unit_test(wrong_answers_are_refused),
        cmocka_unit_test(wrong_engines_are_refused), cmocka_unit_test(norms_are_added),
        cmocka_unit_test(requests_are_tried_again),  cmocka_unit_test(a_lost_plan_is_given_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
