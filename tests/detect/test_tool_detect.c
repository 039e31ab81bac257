/* dpe-detect and dpe-calibrate in a world where the best plan is known (tests/lib/made_rows.h):
 * what they find, continue, refuse, write and say. Only the rows are made up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>

#include <sys/stat.h>

#include "engine/tool/tool.h"
#include "outputs/job/job.h"
#include "tests/lib/made_rows.h"
#include "tests/lib/tool_run.h"
#include "tests/lib/tool_tables.h"

DPE_TOOL(detect)
DPE_TOOL(norms)
DPE_TOOL(calibrate)
DPE_TOOL(report)

#define TEXTS " -m " TOOL_MODEL " --corpus " TOOL_CORPUS " --threads 1 --seed 3 "
#define SWEEP TEXTS "-l 1k --groups 2 --window 16 --lengths 32,64,128,256 "
#define PAPER SWEEP "--task niah --select paper --temperature off "

/* How far a key at the beginning of L tokens is for the last query, in a group of length t with a
 * near window w: the farthest key has position t + w (1 - t/L) (detect/README.md, "Lengths"). */
static double seen(double t, double w, double l)
{
    return t + w * (1.0 - t / l);
}

static void best_lengths_are(double first, double second, double window, double l)
{
    made_world = (struct made_world){.best = {seen(first, window, l), seen(second, window, l)},
                                     .noise = 0.1};
}

static void expect_lengths(const char *path, double first, double second)
{
    const double lengths[2] = {first, second};
    expect_numbers(path, "/detect/effective_length", lengths, 2);
}

static void the_best_length_of_each_group_is_found(void **state)
{
    (void)state;
    best_lengths_are(32, 128, 16, 1024);
    detect(PAPER "--samples 8 -o paper.h5", 0, "effective");
    expect_lengths("paper.h5", 32, 128);
    best_lengths_are(256, 64, 16, 1024);
    detect(PAPER "--samples 8 --quiet -o other.h5", 0, NULL);
    expect_lengths("other.h5", 256, 64);
}

static void a_sweep_that_stops_is_continued(void **state)
{
    (void)state;
    best_lengths_are(32, 128, 16, 1024);
    made_world.fails_after = 9;
    detect(PAPER "--samples 8 -o half.h5", 75, "run the same command to continue");
    made_world.fails_after = 0;
    detect(PAPER "--samples 8 -o half.h5", 0, "effective");
    /* Two groups of four texts beside each other were kept. */
    assert_non_null(strstr(tool_err, "resuming: 8 "));
    expect_same("half.h5", "paper.h5", "/detect/niah/recall");
    expect_same("half.h5", "paper.h5", "/validate/niah/recall");
    made_world.fails_after = 1; /* nothing is left to be made */
    detect(PAPER "--samples 8 -o half.h5", 0, "effective");
    /* More samples, and another rule, go on from the rows that are there. */
    made_world.fails_after = 0;
    detect(PAPER "--samples 12 -o half.h5", 0, NULL);
    assert_non_null(strstr(tool_err, "resuming: "));
    detect(PAPER "--samples 12 -o twelve.h5", 0, NULL);
    expect_same("half.h5", "twelve.h5", "/detect/niah/recall");
    expect_same("half.h5", "twelve.h5", "/detect/rank");
}

/* Searches that are stopped again and again end with the same table. */
static void searches_that_stop_end_in_one_table(void **state)
{
    static const struct {
        const char *options;
        int after; /* lists of rows until it stops */
    } all[] = {{SWEEP "--select both --task niah --samples 16 --budget 60ktok", 30},
               {SWEEP "--select both --samples 4 --budget 40ktok", 10},
               {TEXTS "-l 1k --samples 8 --against yarn --against jet-long", 3},
               {TEXTS "-l 1k --budget 60ktok --samples 16", 6},
               {TEXTS "-l 1k --budget 30ktok --temperature log-n=256", 6}};
    (void)state;
    best_lengths_are(32, 128, 16, 1024);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char line[512];
        int stops = 0;
        snprintf(line, sizeof line, "%s -o calm%zu.h5", all[i].options, i);
        detect(line, 0, NULL);
        snprintf(line, sizeof line, "%s -o stopped%zu.h5", all[i].options, i);
        made_world.fails_after = all[i].after;
        while (tool_end(tool_begin(dpe_detect_main, "dpe-detect", line)) == 75 && stops < 20) {
            stops++;
        }
        made_world.fails_after = 0;
        printf("%s: %d stops\n", all[i].options + sizeof TEXTS, stops);
        assert_true(stops >= 1 && stops < 20);
        char calm[16], stopped[16];
        snprintf(calm, sizeof calm, "calm%zu.h5", i);
        snprintf(stopped, sizeof stopped, "stopped%zu.h5", i);
        expect_same(stopped, calm, "/table/effective_length");
        expect_same(stopped, calm, "/table/scale_factor");
        expect_same(stopped, calm, "/search/mean");
    }
}

/* What another run made is not touched: named, exit 78, the same bytes, no journal. */
static void tables_of_other_runs_are_refused(void **state)
{
    static const struct {
        const char *options, *named;
    } rows[] = {{"--seed 4", "seed"},
                {"--task ppl", "task"},
                {"--niah digits=5", "niah"},
                {"--corpus " TOOL_CORPUS "/test/900000.txt", "corpus"}};
    static char before[1 << 18], after[1 << 18];
    (void)state;
    best_lengths_are(32, 128, 16, 1024);
    detect(PAPER "--samples 8 -o kept.h5", 0, NULL);
    FILE *file = fopen("kept.h5", "r");
    const size_t n = fread(before, 1, sizeof before, file);
    fclose(file);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[1024];
        snprintf(line, sizeof line, PAPER "--samples 8 %s -o kept.h5", rows[i].options);
        detect(line, 78, rows[i].named);
        file = fopen("kept.h5", "r");
        assert_int_equal(fread(after, 1, sizeof after, file), n);
        fclose(file);
        assert_memory_equal(before, after, n);
        assert_int_equal(access("kept.h5.journal", F_OK), -1);
    }
    detect(PAPER "--samples 8 --seed 4 --force -o kept.h5", 0, NULL);
    detect(PAPER "--samples 8 --quiet -o quiet.h5", 0, NULL);
    assert_string_equal(tool_err, "");
}

/* One context of four keys has no interval, and none is said. */
static void one_context_has_no_interval(void **state)
{
    (void)state;
    best_lengths_are(32, 32, 16, 1024);
#define ONE                                                                                        \
    TEXTS "-l 1k --groups 1 --window 16 --lengths 32,256 --task niah --select paper "              \
          "--temperature off "
    detect(ONE "--samples 12 --niah keys=4,asked=4 -o contexts.h5", 0,
           "(4 in a row share a context and count as one)");
    detect(ONE "--samples 4 --niah keys=4,asked=4 -o one.h5", 0, "of 4 fresh samples");
    assert_null(strstr(tool_out, "nan"));
    report("one.h5 -o one.html --no-figures", 0, NULL);
    tool_read("one.html", tool_out, sizeof tool_out);
    assert_null(strstr(tool_out, ">nan"));
    assert_non_null(strstr(tool_out, "</html>"));
}

static void messages_are_json_where_that_is_wanted(void **state)
{
    (void)state;
    best_lengths_are(32, 128, 16, 1024);
    detect(PAPER "--samples 8 --log-format json -o json.h5", 0, NULL);
    int lines = 0;
    for (char *line = strtok(tool_err, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        json_t *json = json_loads(line, 0, NULL);
        assert_true(json_is_string(json_object_get(json, "time")) &&
                    json_is_string(json_object_get(json, "level")));
        json_decref(json);
        lines++;
    }
    assert_true(lines > 3);
}

/* Where told_all, every line of progress is printed, due or not, with the seconds that are left. */
static bool told_all;
bool __real_dpe_progress_due(double done, double total);
bool __wrap_dpe_progress_due(double done, double total);
bool __wrap_dpe_progress_due(double done, double total)
{
    return told_all || __real_dpe_progress_due(done, total);
}

void __real_dpe_progress(const struct dpe_event *event, const char *text);
void __wrap_dpe_progress(const struct dpe_event *event, const char *text);
void __wrap_dpe_progress(const struct dpe_event *event, const char *text)
{
    if (told_all) {
        fprintf(stderr, "\n%.6s %g of %g: %g\n", event->name, event->done, event->total,
                event->eta);
    }
    __real_dpe_progress(event, text);
}

void __real_dpe_wanted_task(struct dpe_wanted *wanted, const char *name, int64_t tokens,
                            double cost);
void __wrap_dpe_wanted_task(struct dpe_wanted *wanted, const char *name, int64_t tokens,
                            double cost);
void __wrap_dpe_wanted_task(struct dpe_wanted *wanted, const char *name, int64_t tokens,
                            double cost)
{
    if (told_all) {
        fprintf(stderr, "\n%s reads %lld\n", name, (long long)tokens);
    }
    __real_dpe_wanted_task(wanted, name, tokens, cost);
}

/* How long a search takes does not follow from the texts of its pilot, which are shorter. */
static void time_is_told_by_rows_of_the_same_length(void **state)
{
    (void)state;
    best_lengths_are(32, 128, 16, 1024);
    told_all = true;
    detect(TEXTS "-l 1k --samples 8 -o paced.h5", 0, NULL);
    assert_non_null(strstr(tool_err, "\npilot 0 of "));
    const char *search = strstr(tool_err, "\nsearch 0 of ");
    assert_non_null(search);
    assert_memory_equal(strchr(search, ':'), ": nan\n", strlen(": nan\n"));
    /* What a row reads is of its own text, or its share of one with several questions. */
    assert_non_null(strstr(tool_err, "\nunchanged-256-8-1 reads 32\n"));
    assert_non_null(strstr(tool_err, "\nguard-ppl reads 1024\n"));
    detect(TEXTS "-l 768 --task ppl -o read.h5", 0, NULL);
    assert_non_null(strstr(tool_err, "\nguard-ppl reads 768\n"));
    told_all = false;
}

static void the_search_and_its_validation(void **state)
{
    size_t n = 0;
    (void)state;
    best_lengths_are(256, 256, 16, 1024);
#define SEARCH TEXTS "-l 1k --groups 2 --task niah --samples 24 --budget 100ktok -o search.h5 "
    detect(SEARCH, 0, "Take ");
    assert_non_null(strstr(tool_out, "\n  usable length: "));
    assert_non_null(strstr(tool_out, " fresh samples; unchanged "));
    assert_non_null(strstr(tool_out, " plans were tried in "));
    assert_non_null(strstr(tool_out, "\n  without an adapter: "));
    double *recall = numbers("search.h5", "/validate/niah/recall_mean", &n);
    assert_true(n >= 3);
    assert_true(recall[1] > recall[0] + 0.1); /* the chosen plan above rope */
    free(recall);
    detect(SEARCH "--json", 0, "\"tried\"");
    assert_non_null(strstr(tool_out, "\"usable_length\""));
    report("search.h5 -o search.html --no-figures", 0, NULL);
    expect_in_file("search.html", "Plans that the search tried");
}

/* The guard keeps a plan whose needles do not show it to help: without it texts are worse. */
static void texts_keep_a_plan(void **state)
{
    (void)state;
    best_lengths_are(256, 256, 16, 1024);
    made_world.blind = true;
    detect(TEXTS "-l 1k --groups 2 --task niah --samples 24 --budget 1Mtok -o blind.h5", 0,
           "Take ");
    made_world.blind = false;
}

/* Where the model as it is finds as much as the best, nothing is taken. */
static void nothing_is_needed(void **state)
{
    (void)state;
    made_world = (struct made_world){.best = {4096, 4096}, .noise = 0.0};
    detect(TEXTS "-l 1k --task niah -o nothing.h5", 0, "the table leaves");
    expect_attribute("nothing.h5", "/validate", "kept", "rope");
}

static void other_tasks_and_rules(void **state)
{
    (void)state;
    best_lengths_are(64, 128, 16, 1024);
    detect(SWEEP "--task ppl --select paper --temperature off --samples 4 -o ppl.h5", 0,
           "perplexity");
    expect_lengths("ppl.h5", 64, 128);
    detect(SWEEP "--task both --select paper --temperature off --samples 8 -o both.h5", 0, NULL);
    expect_lengths("both.h5", 64, 128);
    detect(SWEEP "--select both --samples 8 --budget 20ktok -o auto.h5", 0, NULL);
    detect(TEXTS "-l 1k --samples 32 -o default.h5", 0, NULL);
    detect(TEXTS "-l 1k --task ppl -o texts.h5", 0, "perplexity");
}

static void what_a_dry_run_says(void **state)
{
    (void)state;
    /* Two groups of four lengths, of which each has the base at 128. */
    detect(PAPER "--samples 8 --dry-run", 0, "7");
    /* It needs no weights. */
    assert_int_equal(system(DPE_TEST_PYTHON " " DPE_SOURCE_DIR
                                            "/tests/cli/tiny_model.py " TOOL_MODEL
                                            "/tokenizer.json huge huge"),
                     0);
    detect("--model huge --corpus " TOOL_CORPUS " --length 8192 --dry-run", 0,
           "131 GiB of weights");
    assert_non_null(strstr(tool_out, "not measured"));
    tool_write("short.txt", "Too short for a text of 8192 tokens.");
    detect(
        "--model huge --corpus short.txt --length 8192 --groups 8 --task ppl --samples 1 --dry-run",
        65, NULL);
    detect(PAPER "--samples 8 --max-memory 128K --dry-run", 0, "128 KiB are allowed: does not fit");
    detect(PAPER "--samples 8 --dry-run --json", 64, "leave one of the two");
    detect(SWEEP "--select both --samples 24 --dry-run", 0, NULL);
    detect(TEXTS "-l 1k --budget 40ktok --dry-run", 0, "\nsearch ");
    norms(TEXTS "--lengths 32 --samples 2 --dry-run", 0, NULL);
}

#define BATCH SWEEP "--select paper --temperature off --task niah "

static void a_calibration(void **state)
{
    (void)state;
    best_lengths_are(32, 128, 16, 1024);
    calibrate(BATCH "--samples 8 --top-k 0.75 -o given", 0, NULL);
    expect_lengths("given/detect.h5", 32, 128);
    assert_int_equal(access("given/table.json", F_OK), 0);
    assert_int_equal(access("given/report.html", F_OK), 0);
    assert_int_equal(access("given/ablate.h5", F_OK), -1);
    struct stat before[2], after[2];
    assert_int_equal(stat("given/table.h5", &before[0]) + stat("given/report.html", &before[1]), 0);
    calibrate(BATCH "--samples 8 --top-k 0.75 -o given", 0, NULL);
    assert_int_equal(stat("given/table.h5", &after[0]) + stat("given/report.html", &after[1]), 0);
    for (int i = 0; i < 2; i++) {
        assert_true(before[i].st_ino == after[i].st_ino &&
                    before[i].st_mtim.tv_nsec == after[i].st_mtim.tv_nsec);
    }
    assert_non_null(strstr(tool_err, "nothing was changed"));
    const char *next = strstr(tool_err, "Next: dpe-run -m ");
    assert_non_null(next);
    assert_null(strstr(next, "--dtype"));
    tool_write("given/table.json", "{}");
    calibrate(BATCH "--samples 8 --top-k 0.75 -o given", 78,
              "was changed after dpe-calibrate wrote it");
    tool_read("given/table.json", tool_out, sizeof tool_out);
    assert_string_equal(tool_out, "{}");
    unlink("given/table.json");
    calibrate(BATCH "--samples 8 --top-k 0.75 -o given", 0, NULL);
    tool_read("given/table.json", tool_out, sizeof tool_out);
    assert_true(strlen(tool_out) > 100);
    /* What another run made is found before anything is replaced; where nothing was begun, before
     * the sweep. */
    assert_int_equal(rename("given/norms.h5", "given/check.h5"), 0);
    calibrate(BATCH "--samples 8 --top-k 0.75 -o given", 78,
              "check.h5 away and run the same command");
    calibrate(BATCH "--samples 8 --top-k 0.75 -o given --force", 0, NULL);
    assert_int_equal(mkdir("strange", 0700), 0);
    tool_write("strange/ablate.h5", "x");
    calibrate(BATCH "--samples 8 -o strange", 73, "exists, but no calibration was begun");
    assert_int_equal(access("strange/detect.h5", F_OK), -1);
    made_world.fails_after = 40;
    calibrate(BATCH "--samples 8 -o auto", 75, "same command");
    made_world.fails_after = 0;
    calibrate(BATCH "--samples 8 -o auto", 0, NULL);
    assert_int_equal(access("auto/ablate.h5", F_OK), 0);
    expect_same("auto/detect.h5", "given/detect.h5", "/detect/niah/recall");
}

/* One sample has no interval: none is said, rather than one from nan to nan. */
static void one_sample_has_no_interval(void **state)
{
    static const char *const labels[] = {"\nunchanged    ", "\nthe table    ", "\nshort texts  ",
                                         "\nfiles        ", NULL};
    (void)state;
    best_lengths_are(32, 128, 16, 1024);
    /* What was measured with a type is shown with it. */
    calibrate(BATCH "--samples 1 --top-k 0.75 --dtype bf16 -o one", 0, NULL);
    assert_non_null(strstr(strstr(tool_err, "Next: dpe-run -m "), " --dtype bf16\n"));
    const char *answer =
        strstr(tool_out, "\n1024 tokens, 4 times the trained length; 1 sample of ");
    assert_non_null(answer);
    for (const char *const *label = labels; *label != NULL; label++) {
        assert_non_null(answer = strstr(answer, *label));
    }
    assert_null(strstr(answer, "nan"));
}

static void calibrations_of_other_kinds(void **state)
{
    (void)state;
    best_lengths_are(64, 128, 16, 1024);
    calibrate(TEXTS "--groups 2 -l 512,1k --task ppl --samples 4 "
                    "--top-k 0.5 -o lengths",
              0, NULL);
    assert_int_equal(access("lengths/512/detect.h5", F_OK), 0);
    assert_int_equal(access("lengths/1024/detect.h5", F_OK), 0);
    calibrate(TEXTS "-l 512 --budget 200ktok -o budget", 0, NULL);
}

/* Lines of the result that begin with `begin`. */
static int lines_of(const char *begin)
{
    int n = 0;
    for (const char *at = tool_out; at != NULL; at = strchr(at, '\n')) {
        at += *at == '\n';
        n += strncmp(at, begin, strlen(begin)) == 0;
    }
    return n;
}

/* Of the choice of the number of key pairs. */
static double tokens_of_pairs(const char *task)
{
    char line[512];
    snprintf(line, sizeof line, TEXTS "-l 1k --groups 2 --lengths 64 --samples 12 --dry-run %s",
             task);
    calibrate(line, 0, "\n--top-k auto ");
    const char *at = strstr(strstr(tool_out, "\n--top-k auto "), "\ntokens  ");
    assert_non_null(at);
    return strtod(at + strlen("\ntokens  "), NULL);
}

static void dry_runs_of_calibrations(void **state)
{
    (void)state;
    calibrate(BATCH "--samples 12 -o none --dry-run", 0, "\n--top-k auto ");
    assert_int_equal(lines_of("tokens  "), 4);
    calibrate(BATCH "--samples 12 --top-k 2 -o none --dry-run", 0, "\ncheck ");
    assert_int_equal(lines_of("tokens  "), 3);
    assert_int_equal(access("none", F_OK), -1);
    calibrate(BATCH "--samples 12 --groups 33 --dry-run", 64, "--groups: expected 1 to");
    assert_string_equal(tool_out, "");
    /* Shared contexts are read once: half as many tokens where two questions have one. */
    const double once = tokens_of_pairs("--niah keys=2,asked=2");
    assert_true(once < 0.75 * tokens_of_pairs("--niah keys=2"));
    calibrate(TEXTS "-l 512,1k --dry-run", 0, "tokens");
    calibrate(TEXTS "-l 192 --dry-run", 64, "needs no table; give a larger one");
    /* An excerpt is as long as the trained length. */
    calibrate(TEXTS "-l 192,1k --dry-run", 64, "needs no entry; leave this length out");
    calibrate(TEXTS "-l 1k --budget 400ktok --dry-run", 0, NULL);
    calibrate(TEXTS "-l 1k --budget 1ktok --dry-run", 64, "--budget");
    calibrate(TEXTS "-l 1k --budget 5m --dry-run", 0, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_length_of_each_group_is_found),
        cmocka_unit_test(a_sweep_that_stops_is_continued),
        cmocka_unit_test(searches_that_stop_end_in_one_table),
        cmocka_unit_test(tables_of_other_runs_are_refused),
        cmocka_unit_test(one_context_has_no_interval),
        cmocka_unit_test(messages_are_json_where_that_is_wanted),
        cmocka_unit_test(time_is_told_by_rows_of_the_same_length),
        cmocka_unit_test(the_search_and_its_validation),
        cmocka_unit_test(texts_keep_a_plan),
        cmocka_unit_test(nothing_is_needed),
        cmocka_unit_test(other_tasks_and_rules),
        cmocka_unit_test(what_a_dry_run_says),
        cmocka_unit_test(a_calibration),
        cmocka_unit_test(one_sample_has_no_interval),
        cmocka_unit_test(calibrations_of_other_kinds),
        cmocka_unit_test(dry_runs_of_calibrations),
    };
    return cmocka_run_group_tests(tests, tool_folder, tool_folder_gone);
}
