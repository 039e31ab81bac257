/* The search of dpe-detect, from its options to its table, its words and its report, where the best
 * plan is known (tests/lib/made_rows.h). That it can be killed is in tests/cli/search.sh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/lib/made_rows.h"
#include "tests/lib/tool_run.h"
#include "tests/lib/tool_tables.h"

DPE_TOOL(detect)
DPE_TOOL(eval)
DPE_TOOL(norms)
DPE_TOOL(report)

#define SHORT  TOOL_TEXTS "-l 256 --trained-length 64 "
#define SEARCH SHORT "--seed 5 --samples 24 --groups 2 --lengths 16,32,64,128 --temperature auto "
#define JOINT  SEARCH "--select joint --task user --guard 0 "

static void expect_page(const char *table, const char *text)
{
    char line[256];
    snprintf(line, sizeof line, "%s -o page.html --no-figures", table);
    unlink("page.html");
    report(line, 0, NULL);
    expect_in_file("page.html", text);
}

/* Both groups are wanted at 32 with a factor that none of the base's plans has. */
static void want_a_temperature(void)
{
    made_world = (struct made_world){.best = {32, 32}, .factor = 1.4, .noise = 0.1};
}

static void temperature_and_plan_are_found(void **state)
{
    static const char *const datasets[] = {"step",        "move",   "chosen",  "p_value", "tried",
                                           "temperature", "length", "samples", "plan"};
    (void)state;
    want_a_temperature();
    detect(JOINT "--against leaky-rerope -o joint.h5 --keep-journal", 0,
           "\ntemperature, round 1: changed (p ");
    assert_memory_equal(tool_out, "The table holds the ", strlen("The table holds the "));
    assert_non_null(strstr(tool_out, " plan: recall "));
    assert_non_null(strstr(tool_out, "\n  measured on texts with "));
    struct dpe_h5 *table = tool_table("joint.h5");
    for (size_t i = 0; i < sizeof datasets / sizeof datasets[0]; i++) {
        char path[64];
        snprintf(path, sizeof path, "/search/%s", datasets[i]);
        assert_true(dpe_h5_has(table, path));
    }
    dpe_h5_close(table);
    expect_attribute("joint.h5", "/validate", "kept", "joint");
    expect_attribute("joint.h5", "/", "schema_version", "9.0.0");
    /* The table computes what the joint plan of its validation does; what that is held against is
     * the method as released, with its log-n. */
    eval("niah" SHORT "--samples 1 --table joint.h5 --method leaky-rerope -o of-joint.h5", 0, NULL);
    assert_true(has_validated("of-joint.h5", "joint.h5", 2));
    assert_true(has_validated("of-joint.h5", "joint.h5", 4));
    expect_page("joint.h5", "The table holds the ");
    expect_in_file("page.html", "Each step of the search runs the plan so far");
    expect_in_file("page.html", "Step 1: coarse, round 1");
    detect(JOINT "--against yarn --dry-run", 0, "samples of the search included");
    /* Unless others are named, the plan that searches mostly end with is held against this one. */
    detect(JOINT "-o usual.h5", 0, "dpe:window=16,lengths=64,log-n=64");
    /* The paper's rule under a temperature that is searched: its rows are there already. */
    detect(SEARCH "--task user --guard 0 --select paper -o joint.h5 --keep-journal", 0,
           "\ntemperature, round 1: changed (p ");
    expect_attribute("joint.h5", "/select", "rule", "paper");
    assert_non_null(strstr(tool_err, "resuming: "));
    /* A table of dpe-detect has no settings of a method. */
    detect(JOINT "--against joint.h5 -o no.h5", 65,
           "joint.h5: expected a finished table of dpe-eval tune, found another");
    /* What the user asks for has no room, and the pilot's easiest task does. */
    detect(TOOL_TEXTS "-l 80 --trained-length 64 --samples 8 --groups 2 -o room.h5", 64,
           "length 80 is too short");
    assert_int_not_equal(access("room.h5.journal", F_OK), 0);
}

static void perplexity_decides_as_well(void **state)
{
    (void)state;
    want_a_temperature();
    detect(SHORT
           "--samples 8 --groups 2 --lengths 32,64 --task ppl --temperature auto --select joint "
           "--against none -o ppl.h5",
           0, "\ntemperature, round 1: changed (p ");
    assert_memory_equal(tool_out, "The table holds ", strlen("The table holds "));
    assert_non_null(strstr(tool_out, ": perplexity "));
}

/* In a world where only some pairs are better off nearer, fewer pairs are better than all, and than
 * none. */
static void fewer_pairs_are_found(void **state)
{
    static const double tried[] = {16, 20, 24, 28};
    (void)state;
    made_world = (struct made_world){.best = {20, 255}, .noise = 0.1};
    norms(TOOL_TEXTS "--lengths 64 --samples 2 -o norms.h5", 0, NULL);
#define PAIRS                                                                                      \
    TOOL_TEXTS "-l 256 --trained-length 32 --samples 16 --groups 1 --lengths 16 --seed 5 "         \
               "--temperature off --niah keys=3,values=2 --against none --guard 0 -o pairs.h5 "
    detect(PAIRS "--scale-pairs norms.h5 --dry-run", 0, NULL);
    detect(PAIRS "--scale-pairs norms.h5", 0, "\nkey pairs, round 1: changed (p ");
    size_t n = 0;
    double *k = numbers("pairs.h5", "/search/top_k", &n);
    for (size_t i = 0; i < sizeof tried / sizeof tried[0]; i++) {
        char text[32];
        bool stored = false;
        snprintf(text, sizeof text, ", %.0f key pairs\n", tried[i]);
        assert_non_null(strstr(tool_out, text));
        for (size_t at = 0; at < n; at++) {
            stored = stored || k[at] == tried[i];
        }
        assert_true(stored);
    }
    free(k);
    /* The table holds the number that the search ends with. */
    double *chosen = numbers("pairs.h5", "/table/top_k", &n);
    char text[32];
    snprintf(text, sizeof text, ", %.0f key pairs\n", chosen[0]);
    assert_true(n == 1 && chosen[0] < 32);
    assert_non_null(strstr(strstr(tool_out, "\n  temperature "), text));
    snprintf(text, sizeof text, "%.0f key pairs", chosen[0]);
    expect_page("pairs.h5", text);
    free(chosen);
    eval("niah" TOOL_TEXTS "-l 256 --trained-length 32 --samples 1 --niah keys=3,values=2 --table "
         "pairs.h5 -o of-pairs.h5",
         0, NULL);
    assert_true(has_validated("of-pairs.h5", "pairs.h5", 2));
    detect(PAIRS, 78, NULL);
}

/* A method of --against that a table can hold is taken where it does better; a table of dpe-eval
 * tune stands for what it chose. */
static void a_tuned_method_is_taken(void **state)
{
    static const double scales[] = {4, 4}, lengths[] = {128, 128};
    (void)state;
    /* 511 tokens under self-extend:group=4,window=32, to which no length of the sweep is near. */
    made_world = (struct made_world){.best = {151, 151}, .factor = 1.1, .noise = 0.1};
#define TUNE                                                                                       \
    "--trained-length 64 --samples 4 --budget 8 --method rope "                                    \
    "--method self-extend:group=4,window=32,logit-scale=1.1 "
    eval("tune" TOOL_TEXTS "-l 128 " TUNE "-o tuned128.h5", 0, NULL);
    eval("tune" TOOL_TEXTS "-l 512 " TUNE "-o tuned512.h5", 0, NULL);
    detect(TOOL_TEXTS
           "-l 512 --trained-length 64 --samples 24 --groups 2 --lengths 16,32,512 --seed 5 "
           "--task user --temperature off --guard 0 --against tuned512.h5 --against yarn "
           "-o tuned.h5",
           0, "\n  better than yarn: ");
    static const char first[] = "The table holds self-extend:group=4,window=32,logit-scale=1.1"
                                ": recall ";
    assert_memory_equal(tool_out, first, strlen(first));
    expect_numbers("tuned.h5", "/table/scale_factor", scales, 2);
    expect_numbers("tuned.h5", "/table/effective_length", lengths, 2);
    eval("niah" TOOL_TEXTS "-l 512 --trained-length 64 --samples 1 --table tuned.h5 -o of-tuned.h5",
         0, NULL);
    assert_true(has_validated("of-tuned.h5", "tuned.h5", 4));
    expect_page("tuned.h5", first);
    detect(JOINT "--against tuned128.h5 -o no.h5", 64,
           "expected settings for --length 256, found those for 128; run dpe-eval tune at that "
           "length");
    assert_int_equal(access("no.h5.journal", F_OK), -1);
}

/* The pilot of --task auto is part of the identity. */
static void a_pilot_belongs_to_its_run(void **state)
{
    (void)state;
    made_world = (struct made_world){.best = {32, 32}, .noise = 0.1};
#define PILOT                                                                                      \
    SHORT "--seed 5 --groups 2 --lengths 16,32,64,128 --task auto --samples 4 --select paper "     \
          "--temperature off --guard 0 --keep-journal -o pilot.h5 "
    detect(PILOT, 0, NULL);
    assert_non_null(strstr(tool_err, "pilot: good plans find keys="));
    expect_attribute("pilot.h5", "/detect", "pilot", "keys=");
    detect(PILOT "--window 4", 78, NULL);
}

/* Methods that are ready: it ends with what to do. */
static void ready_methods_end_in_advice(void **state)
{
    (void)state;
    made_world = (struct made_world){.best = {151, 151}, .noise = 0.1};
    detect(TOOL_TEXTS
           "-l 512 --trained-length 64 --select ready --task auto --samples 8 --against yarn "
           "--against self-extend:group=4,window=32 --against jet-long -o ready.h5",
           0, "\n  unchanged ");
    assert_non_null(strstr(tool_out, "\n  jet-long "));
    assert_non_null(strstr(tool_out, "ake self-extend:group=4,window=32"));
    expect_attribute("ready.h5", "/select", "rule", "ready");
    expect_page("ready.h5", "self-extend:group=4,window=32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(temperature_and_plan_are_found),
        cmocka_unit_test(perplexity_decides_as_well),
        cmocka_unit_test(fewer_pairs_are_found),
        cmocka_unit_test(a_tuned_method_is_taken),
        cmocka_unit_test(a_pilot_belongs_to_its_run),
        cmocka_unit_test(ready_methods_end_in_advice),
    };
    setenv("XDG_CACHE_HOME", "/nonexistent", 1);
    return cmocka_run_group_tests(tests, tool_folder, tool_folder_gone);
}
