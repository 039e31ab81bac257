/* Dpe-run on the bundled model: what it prints, and how it ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "tests/lib/tool_run.h"

DPE_TOOL(run)
DPE_TOOL(export)

#define MODEL " -m " TOOL_MODEL " "

static bool is_near(double a, double b, double share)
{
    return fabs(a - b) <= share * fabs(b);
}

static void texts_are_continued(void **state)
{
    static char greedy[sizeof tool_out];
    (void)state;
    run(MODEL "-p 'Once upon a time' -n 12", 0, NULL);
    snprintf(greedy, sizeof greedy, "%s", tool_out);
    assert_true(strlen(greedy) > 12);
    /* A prompt from a file, and with a method that leaves texts of this length alone. */
    tool_write("prompt.txt", "Once upon a time");
    run(MODEL "--prompt-file prompt.txt -n 12 --method yarn:scale=4", 0, NULL);
    assert_string_equal(tool_out, greedy);
    run(MODEL "-p 'Once upon a time' -n 12 --temperature 0", 0, NULL);
    assert_string_equal(tool_out, greedy);
    /* What is drawn depends on the seed alone. */
    run(MODEL "-p 'Once upon a time' -n 24 --temperature 3 --top-p 0.99 --seed 4", 0, NULL);
    snprintf(greedy, sizeof greedy, "%s", tool_out);
    run(MODEL "-p 'Once upon a time' -n 24 --temperature 3 --top-p 0.99 --seed 4", 0, NULL);
    assert_string_equal(tool_out, greedy);
    run(MODEL "-p 'Once upon a time' -n 24 --temperature 3 --top-p 0.99 --seed 5", 0, NULL);
    assert_string_not_equal(tool_out, greedy);
    run(MODEL "-p '' --raw", 64, "the prompt is empty");
    tool_write("in", "Once upon a time");
    run(MODEL "--prompt-file - --tokenize", 0, NULL);
    snprintf(greedy, sizeof greedy, "%s", tool_out);
    run(MODEL "-p 'Once upon a time' --tokenize", 0, NULL);
    assert_string_equal(tool_out, greedy);
    assert_int_equal(strtol(tool_out, NULL, 10), 2558); /* BOS of its config.json */
    run(MODEL "-p 'Once upon a time' --tokenize --raw", 0, NULL);
    assert_string_equal(tool_out, strchr(greedy, ' ') + 1);
    /* A byte-order mark is no text, and a BOS that is there already is the one. */
    tool_write("prompt.txt", "\xef\xbb\xbfOnce upon a time");
    run(MODEL "--prompt-file prompt.txt --tokenize", 0, NULL);
    assert_string_equal(tool_out, greedy);
    run(MODEL "-p '<|bos|>Once upon a time' --tokenize --special-in-text parse", 0, NULL);
    assert_string_equal(tool_out, greedy);
    run(MODEL "-p '<|bos|><|bos|>Once' --tokenize --special-in-text parse", 0, "2558 2558 ");
    run(MODEL "-p 'Once upon a time' -n 100 --time-budget 0.000001", 75,
        "the time budget is used up");
    unlink("in");
}

/* A uniform guess among 2560 tokens has ln 2560 nats; the mean over windows is that of all their
 * tokens. */
static void perplexity_is_of_windows(void **state)
{
    (void)state;
    static char book[2500];
    tool_read(TOOL_CORPUS "/test/900000.txt", book, sizeof book);
    tool_write("book.txt", book);
    run(MODEL "--nll book.txt --context 64", 0, "windows");
    const double nats = tool_number("nll ");
    assert_true(nats > 0.1 && nats < log(2560.0));
    assert_true(is_near(tool_number("perplexity "), exp(nats), 1e-3));
    const double windows = tool_number("windows ");
    assert_true(tool_number("scored ") == windows * 31); /* of 64 tokens those from 33 on */
    run(MODEL "--nll book.txt --context 64 --score all --json", 0, "\"nll\"");
    assert_true(tool_number("\"windows\":") == windows &&
                tool_number("\"scored\":") == windows * 63);
    assert_true(tool_number("\"nll\":") > nats); /* the first half of a window has less context */
    /* The same text as another system writes it. */
    static char other[2 * sizeof book];
    size_t n = (size_t)snprintf(other, sizeof other, "\xef\xbb\xbf");
    for (const char *at = book; *at != '\0'; at++) {
        n += (size_t)snprintf(other + n, sizeof other - n, *at == '\n' ? "\r\n" : "%c", *at);
    }
    tool_write("book.txt", other);
    run(MODEL "--nll book.txt --context 64", 0, "windows");
    assert_true(tool_number("nll ") == nats && tool_number("windows ") == windows);
    tool_write("short.txt", "Two words");
    run(MODEL "--nll short.txt", 65, "expected at least one window of 256 tokens");
    run(MODEL "--nll book.txt --context 3", 64, "expected a whole number of at least 4");
}

static void a_model_and_a_plan_are_described(void **state)
{
    (void)state;
    run(MODEL "--info", 0, "llama");
    run(MODEL "--info --json", 0, "\"trained_length\":");
    assert_true(tool_number("\"trained_length\":") == 256.0);
    run(MODEL "--show-plan --method self-extend:window=64,group=8 -L 1k", 64, NULL);
    /* The shortest wavelength of a head is 2 pi tokens, and four times that. */
    run(MODEL "--show-plan --method pi:scale=4 --length 1k", 0, "method          pi");
    assert_true(is_near(tool_number("wavelengths "), 8.0 * acos(-1.0), 1e-3));
    run(MODEL "--show-plan --method rope --length 1k", 0, "method          rope");
    assert_true(is_near(tool_number("\n         512      0 "), 512.0, 1e-9));
    run(MODEL "--show-plan --method self-extend:window=64 --length 1k", 0, "band 1");
    run(MODEL "--show-plan --method yarn --length 1k --json", 0, "\"inv_freq\"");
    run(MODEL "--show-plan --method moba --length 1k", 0, "selection");
    run(MODEL "--show-plan --method minference --length 1k", 0, NULL);
    run(MODEL "--method help", 0, "self-extend");
}

static void tables_are_run(void **state)
{
    (void)state;
    export("--method dpe:lengths=64/128,window=16 --model " TOOL_MODEL " --length 1k -o table.h5",
           0, NULL);
    run(MODEL "--show-plan --table table.h5", 0, "entry");
    /* The entry that a text of 300 tokens is run with, as the table has it. */
    run(MODEL "--show-plan --table table.h5 --length 300 --json", 0, NULL);
    assert_true(tool_number("\"evaluated_length\":") == 1024.0);
    assert_non_null(strstr(tool_out, "\"effective_length\": [64.0,128.0]"));
    run(MODEL "--show-plan --table table.h5 --length 200 --json", 0, NULL);
    assert_true(tool_number("\"evaluated_length\":") == 200.0);
    run(MODEL "--table table.h5 -p 'Once upon a time' -n 4", 0, NULL);
    run(MODEL "--runtimes all --table table.h5 --length 1k", 1, NULL);
    assert_non_null(strstr(tool_out, "Of this table they do not apply the same."));
    run(MODEL "--runtimes all --table table.h5", 1, NULL); /* of the table's own length */
    assert_non_null(strstr(tool_out, "for a text of 1024 tokens"));
    run(MODEL "--runtimes current --length 128 --json", 0, "\"readings\"");
    run(MODEL "--show --table table.h5 --length 300 --corpus " TOOL_CORPUS, 0, "secret");
}

static void a_conversation(void **state)
{
    (void)state;
    tool_write("chat.jinja",
               "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:");
    run(MODEL "--chat --chat-template chat.jinja --system 'Be brief.' -p hello -n 6", 0, NULL);
    tool_write("in", "/help\nhello\n\n/clear\nhello\n/exit\nnever\n");
    run(MODEL "--chat --chat-template chat.jinja -n 6", 0, NULL);
    assert_non_null(strstr(tool_err, "begins a new conversation"));
    /* The same message in a new conversation has the same answer. */
    const size_t half = strlen(tool_out) / 2;
    assert_true(half > 0 && strncmp(tool_out, tool_out + half, half) == 0);
    tool_write("in", "\n");
    run(MODEL "--chat --chat-template chat.jinja -n 6", 65, "expected a message on each line");
    unlink("in");
    run(MODEL "--chat -p hello", 66, "has no chat template");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_continued),
        cmocka_unit_test(perplexity_is_of_windows),
        cmocka_unit_test(a_model_and_a_plan_are_described),
        cmocka_unit_test(tables_are_run),
        cmocka_unit_test(a_conversation),
    };
    return cmocka_run_group_tests(tests, tool_folder, tool_folder_gone);
}
