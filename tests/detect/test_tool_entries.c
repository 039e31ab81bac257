/* Dpe-calibrate with several lengths, on made-up rows (tests/lib/made_rows.h). Every part is what
 * its tool makes of the same options by itself, a batch that stops between two entries ends as one
 * that does not, and a length that is added keeps the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/stat.h>

#include "tests/lib/made_rows.h"
#include "tests/lib/tool_run.h"
#include "tests/lib/tool_tables.h"

DPE_TOOL(calibrate)
DPE_TOOL(detect)
DPE_TOOL(export)

#define SWEEP                                                                                      \
    TOOL_TEXTS                                                                                     \
    "--seed 5 --task ppl --groups 2 --samples 9 --window 16 --select paper --temperature off "
#define THREE SWEEP "-l 1024,384,768 "

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static int make_batch(void **state)
{
    if (tool_folder(state) != 0) {
        return -1;
    }
    made_world = (struct made_world){.best = {64, 160}, .noise = 0.1};
    calibrate(THREE "-o whole", 0, NULL);
    return 0;
}

/* How many detecting lengths a sweep tried, and these as --lengths takes them. */
static size_t tried(const char *path, char list[256])
{
    size_t n = 0;
    double *length = numbers(path, "/length", &n);
    for (size_t i = 0, at = 0; i < n; i++) {
        at += (size_t)snprintf(list + at, 256 - at, "%s%.0f", i > 0 ? "," : "", length[i]);
    }
    free(length);
    return n;
}

static void every_part_is_its_tools(void **state)
{
    static const char *const lengths[] = {"384", "768", "1024"};
    static const char *const files[] = {"detect.h5", "ablate.h5", "table.h5", "table.yaml",
                                        "table.csv"};
    static const char *const all[] = {"norms.h5",          "table.h5",    "table.json",
                                      "table.safetensors", "config.json", "scores.pt",
                                      "check.h5",          "report.html", "forms.sha256"};
    char line[1024], path[64], other[64], list[256];
    (void)state;
    /* 384 and its halves down to the window are 6, of 768 are 7, of 1024 are 8. */
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < sizeof files / sizeof files[0]; k++) {
            snprintf(path, sizeof path, "whole/%s/%s", lengths[i], files[k]);
            assert_true(exists(path));
        }
        snprintf(path, sizeof path, "whole/%s/detect.h5", lengths[i]);
        assert_int_not_equal(tried(path, list), 0);
        snprintf(line, sizeof line, SWEEP "-l %s --lengths %s --quiet -o detect%s.h5", lengths[i],
                 i == 0 ? "auto" : list, lengths[i]);
        detect(line, 0, NULL);
        snprintf(other, sizeof other, "detect%s.h5", lengths[i]);
        expect_equal(path, other, "");
        snprintf(line, sizeof line, "whole/table.h5 --entry %s -o entry.h5 --force", lengths[i]);
        export(line, 0, NULL);
        snprintf(path, sizeof path, "whole/%s/table.h5", lengths[i]);
        expect_equal("entry.h5", path, "/table");
    }
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        snprintf(path, sizeof path, "whole/%s", all[k]);
        assert_true(exists(path));
    }
    expect_in_file("whole/report.html", "</svg>");
}

static void the_check_has_the_longest_entry_alone(void **state)
{
    static const double lengths[] = {384, 768, 1024};
    size_t n = 0;
    (void)state;
    expect_text("whole/check.h5", "/method", 0, "rope");
    expect_text("whole/check.h5", "/method", 1, "table:1024/table.h5");
    expect_text("whole/check.h5", "/method", 2, "table:table.h5");
    expect_numbers("whole/check.h5", "/eval/ppl/task_length", lengths, 3);
    /* Of the longest entry the table and its own are one plan; at a shorter length they are not. */
    char **plans = strings("whole/check.h5", "/eval/ppl/plan", &n);
    assert_int_equal(n, 9);
    assert_string_equal(plans[5], plans[8]);
    assert_string_not_equal(plans[3], plans[6]);
    dpe_strings_free(plans, n);
}

static void options_are_handed_on(void **state)
{
    char list[256];
    (void)state;
    calibrate(SWEEP "-l 384,768 --lengths 32,64 --top-k 8 -o given", 0, NULL);
    tried("given/768/detect.h5", list);
    assert_string_equal(list, "32,64");
    /* A form that dpe-calibrate did not write stays. */
    assert_int_equal(mkdir("given/1024", 0700), 0);
    tool_write("given/1024/table.csv", "mine");
    calibrate(SWEEP "-l 384,768,1024 --lengths 32,64 --top-k 8 -o given", 73,
              "given/1024/table.csv: exists, but no calibration was begun in this folder for "
              "these");
    expect_in_file("given/1024/table.csv", "mine");
}

static void expect_whole(const char *folder, const char *const *tables, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char a[64], b[64];
        snprintf(a, sizeof a, "whole/%s.h5", tables[i]);
        snprintf(b, sizeof b, "%s/%s.h5", folder, tables[i]);
        expect_equal(a, b, "");
    }
}

static void a_stop_between_entries(void **state)
{
    static const char *const tables[] = {"norms",       "table",      "check",
                                         "384/detect",  "768/detect", "1024/detect",
                                         "1024/ablate", "384/ablate", "768/table"};
    int after = 10;
    (void)state;
    /* Until it stops in the sweep of the second entry, with its first rows on disk. */
    for (; after < 400 && !exists("stopped/768/detect.h5.journal"); after += 10) {
        made_world.fails_after = after;
        calibrate(THREE "-o stopped", 75, "same command");
    }
    made_world.fails_after = 0;
    assert_true(exists("stopped/384/detect.h5") && !exists("stopped/1024") &&
                !exists("stopped/table.h5"));
    calibrate(THREE "-o stopped", 0, NULL);
    expect_whole("stopped", tables, sizeof tables / sizeof tables[0]);
    assert_int_equal(system("cmp whole/table.json stopped/table.json"), 0);
    /* A form of an entry that was edited is not replaced. */
    tool_write("stopped/768/table.csv", "mine");
    calibrate(THREE "-o stopped", 78,
              "stopped/768/table.csv: was changed after dpe-calibrate wrote it");
}

static void lengths_are_added(void **state)
{
    static const char *const tables[] = {"384/detect", "768/detect", "1024/detect", "norms"};
    static const char *const others[] = {"384/detect", "1024/detect", "norms"};
    (void)state;
    calibrate(SWEEP "-l 384,768 -o grown", 0, NULL);
    calibrate(THREE "-o grown", 0, NULL);
    expect_whole("grown", tables, 4);
    expect_equal("whole/table.h5", "grown/table.h5", "/table/1024");
    expect_equal("whole/table.h5", "grown/table.h5", "/table/384/scale_factor");
    /* So is a shorter one; and a sweep that was moved away is made again. */
    calibrate(SWEEP "-l 768,1024 --top-k 8 -o shorter", 0, NULL);
    calibrate(THREE "--top-k 8 -o shorter", 0, NULL);
    assert_int_equal(rename("shorter/384/detect.h5", "away.h5"), 0);
    calibrate(THREE "--top-k 8 -o shorter", 0, NULL);
    expect_whole("shorter", others, 3);
    /* The rows of the lengths that 768 tried by itself are kept. */
    expect_equal("whole/768/detect.h5", "shorter/768/detect.h5", "/detect");
    /* A folder of another calibration is not mixed up. */
    calibrate(SWEEP "-l 384 --top-k 8 -o one", 0, NULL);
    assert_false(exists("one/384"));
    calibrate(SWEEP "-l 384,768 --top-k 8 -o one", 73,
              "one/table.h5: exists, but no calibration was begun");
}

/* The price of all parts is the sum of theirs. */
static void the_price_is_a_sum(void **state)
{
    double tokens = 0.0;
    double all = 0.0;
    int parts = 0;
    (void)state;
    calibrate(THREE "-o none --dry-run", 0, "\nall parts ");
    for (char *line = strtok(tool_out, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        const bool part = strncmp(line, "tokens  ", 8) == 0;
        parts += part;
        tokens += part ? strtod(line + 8, NULL) : 0.0;
        if (strncmp(line, "all parts ", 10) == 0) {
            all = strtod(line + strcspn(line, "0123456789"), NULL);
        }
    }
    assert_int_equal(parts, 10);
    assert_true(fabs(all - tokens) < 0.01 * tokens);
    assert_false(exists("none"));
}

/* "keys=4,values=1": of the task that a table was measured on. */
static void task_of(const char *path, const char *object, const char *name, char task[64])
{
    struct dpe_h5 *table = tool_table(path);
    struct dpe_error err = {0};
    char *text = NULL;
    int keys = 0;
    int values = 0;
    assert_int_equal(dpe_h5_get_attr_text(table, object, name, &text, &err), DPE_OK);
    const char *at = strstr(text, "keys=");
    if (at == NULL || sscanf(at, "keys=%d,values=%d", &keys, &values) != 2) {
        fail_msg("%s %s@%s: %s", path, object, name, text);
    }
    snprintf(task, 64, "keys=%d,values=%d", keys, values);
    free(text);
    dpe_h5_close(table);
}

/* What the pilot of an entry's sweep chose is what its pairs are measured on; the check asks what
 * the user asks. */
static void pairs_are_measured_on_the_sweeps_task(void **state)
{
    static const char *const lengths[] = {"768", "1024"};
    int others = 0;
    char path[64], sweep[64], pairs[64], check[64];
    (void)state;
    calibrate(TOOL_TEXTS "--task auto --samples 4 --groups 1 --lengths 64,256 --select paper "
                         "--temperature off -l 768,1024 -o auto",
              0, NULL);
    task_of("auto/check.h5", "/eval/niah", "parameters", check);
    assert_string_equal(check, "keys=1,values=4");
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "auto/%s/detect.h5", lengths[i]);
        task_of(path, "/detect", "niah_parameters", sweep);
        expect_attribute(path, "/detect", "pilot", "keys=");
        snprintf(path, sizeof path, "auto/%s/ablate.h5", lengths[i]);
        task_of(path, "/eval/niah", "parameters", pairs);
        assert_string_equal(pairs, sweep);
        others += strcmp(sweep, check) != 0;
    }
    assert_true(others > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_is_its_tools),
        cmocka_unit_test(the_check_has_the_longest_entry_alone),
        cmocka_unit_test(options_are_handed_on),
        cmocka_unit_test(a_stop_between_entries),
        cmocka_unit_test(lengths_are_added),
        cmocka_unit_test(the_price_is_a_sum),
        cmocka_unit_test(pairs_are_measured_on_the_sweeps_task),
    };
    return cmocka_run_group_tests(tests, make_batch, tool_folder_gone);
}
