/* Dpe-eval's commands, without a model where rows are made up (tests/lib/made_rows.h): what wins,
 * what is continued, and what they say of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "tests/lib/made_rows.h"
#include "tests/lib/tool_run.h"

DPE_TOOL(eval)
DPE_TOOL(detect)
DPE_TOOL(norms)

/* The cell of a method's row: the n-th number of the line that begins with it. */
static double cell(const char *method, int n)
{
    char begin[64];
    snprintf(begin, sizeof begin, "\n%s ", method);
    const char *at = strstr(tool_out, begin);
    if (at == NULL) {
        fprintf(stderr, "%s", tool_out);
        fail_msg("no line of %s", method);
    }
    at += strlen(begin);
    for (; n > 0; n--) {
        at += strcspn(at, "0123456789\n");
        at += strspn(at, "0123456789.");
    }
    return strtod(at + strcspn(at, "0123456789\n"), NULL);
}

static int make_tables(void **state)
{
    if (tool_folder(state) != 0) {
        return -1;
    }
    norms(TOOL_TEXTS "--lengths 32 --samples 2 -o norms.h5", 0, NULL);
    detect(TOOL_TEXTS "-l 1k --groups 2 --window 16 --lengths 32,64,128 --task niah --select paper "
                      "--temperature off "
                      "--samples 4 -o detect.h5",
           0, NULL);
    return 0;
}

static void methods_are_compared(void **state)
{
    (void)state;
    made_world = (struct made_world){.best = {128, 128}, .noise = 0.1};
    eval("compare" TOOL_TEXTS "--suite niah,ppl -l 512,1k --samples 12 --method rope --method "
         "self-extend:window=64 --method yarn --table detect.h5 -o compare.h5",
         0, "self-extend");
    eval("compare" TOOL_TEXTS "--suite niah,ppl -l 512,1k --samples 12 --method rope --method "
         "self-extend:window=64 --method yarn --table detect.h5 -o compare.h5 --json",
         0, "\"self-extend:window=64\"");
    made_world.fails_after = 5;
    eval("niah" TOOL_TEXTS
         "-l 1k --samples 8 --method rope --method pi:scale=8 --against rope --details -o niah.h5",
         75, "run the same command");
    made_world.fails_after = 0;
    eval("niah" TOOL_TEXTS
         "-l 1k --samples 8 --method rope --method pi:scale=8 --against rope --details -o niah.h5",
         0, "pi:scale=8");
    /* 1023 tokens are seen at 1023 and at 1023/8, which is what this world has most of. */
    assert_true(cell("pi:scale=8", 0) > 90.0 && cell("rope", 0) < 30.0);
    eval("niah" TOOL_TEXTS "--grid -l 512,1k --depths 0,0.5,1 --samples 4 --method rope --method "
         "pi:scale=8 -o grid.h5",
         0, NULL);
    setenv("SLURM_STEP_NUM_TASKS", "3", 1);
    eval("niah" TOOL_TEXTS "-l 1k --samples 8 --method rope --dry-run", 0, "tokens");
    assert_non_null(strstr(tool_err, "srun started 3 tasks"));
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    eval("niah" TOOL_TEXTS "-l 1k --samples 8 --method rope --dry-run", 0, "tokens");
    assert_null(strstr(tool_err, "srun"));
    eval("compare" TOOL_TEXTS
         "--suite ruler --tasks vt -l 512 --samples 2 --method rope --predictions "
         "answers -o answers.h5",
         0, NULL);
    eval("ppl" TOOL_TEXTS "-l 1k --samples 3 --method rope --json -o ppl.h5", 0, "rope");
    eval("ruler" TOOL_TEXTS "-l 1k --samples 2 --tasks vt,niah_single_1 --method rope -o ruler.h5",
         0, "vt");
}

static void a_detection_is_varied(void **state)
{
    (void)state;
    made_world = (struct made_world){.best = {48, 48}, .noise = 0.1};
    eval("ablate" TOOL_TEXTS "--table detect.h5 --what rank --samples 6 -o rank.h5", 0, "rank");
    /* This world finds most at its best length, and the less the farther a plan is from it. */
    eval("ablate" TOOL_TEXTS
         "--table detect.h5 --what window --values 16,32 --suite ppl --samples 3 -o window.h5",
         0, "\nwindow 16 ");
    assert_true(cell("window 16", 0) > 1.0 && cell("window 32", 0) > 1.0 && cell("rope", 0) > 1.0);
    eval("ablate" TOOL_TEXTS
         "--table detect.h5 --norms norms.h5 --what top-k --values 8,16 --samples 6 -o top.h5",
         0, "\ntop-k 8 ");
    assert_true(cell("top-k 8", 0) <= 100.0 && cell("top-k 16", 0) <= 100.0);
    assert_true(cell("top-k 16", 0) > cell("rope", 0));
    eval("ablate" TOOL_TEXTS
         "--table detect.h5 --what scaled-length --values 48,512 --samples 8 -o scaled.h5",
         0, NULL);
    assert_true(cell("scaled-length 48", 0) > cell("scaled-length 512", 0));
    eval("ablate" TOOL_TEXTS "--table detect.h5 --what top-k --samples 3 -o none.h5", 64,
         "--norms");
}

static void settings_race(void **state)
{
    (void)state;
    made_world = (struct made_world){.best = {128, 128}, .noise = 0.2};
    eval("tune" TOOL_TEXTS
         "-l 1k --method pi:scale=2/4/8/16 --method yarn --samples 8 --budget 64 -o tune.h5",
         0, "scale=8");
    eval("tune" TOOL_TEXTS
         "-l 1k --method pi:scale=2/4/8/16 --method yarn --samples 8 --budget 64 -o tune.h5 --json",
         0, "scale=8");
    eval("tune" TOOL_TEXTS
         "-l 1k --method self-extend --temperature grid --samples 8 --budget 200 --dry-run",
         0, NULL);
}

static void a_table_is_held_against_a_model(void **state)
{
    (void)state;
    made_world = (struct made_world){.best = {48, 48}, .noise = 0.1};
    eval("check detect.h5" TOOL_TEXTS "--samples 6 -o held.h5", 0, "\n1024 tokens");
    eval("check" TOOL_TEXTS, 64, "TABLE is missing");
    assert_int_equal(system("cp -r " TOOL_MODEL " wide && sed -i 's/n_heads\": 4/n_heads\": 2/; "
                            "s/e_heads\": 2/e_heads\": 1/; s/dim\": 64/dim\": 128/' "
                            "wide/config.json"),
                     0);
    eval("check detect.h5 -m wide --corpus " TOOL_CORPUS " --samples 6 -o none.h5", 65,
         "detect.h5: made for a model with 4 layers, 4 heads");
}

/* The divergence of a method that changes nothing is 0; that of another method is not. */
static void divergence_is_measured(void **state)
{
    (void)state;
    eval("kld" TOOL_TEXTS
         "-l 96 --samples 2 --method rope --base rope --trained-length 64 --method "
         "pi:scale=2 -o kld.h5",
         0, "pi");
    assert_true(tool_number("\nrope") == 2.0 * 95.0 && tool_number("\npi:scale=2") == 2.0 * 95.0);
    assert_non_null(strstr(tool_out, "0.00000 [0.00000, 0.00000]"));
    assert_true(tool_number("\nBeyond position ") == 64.0);
    assert_non_null(strstr(tool_out, "the base is no yardstick"));
    eval("kld" TOOL_TEXTS "-l 96 --samples 1 --method pi:scale=2 --base self-extend:window=8 "
         "--trained-length 64 -o other.h5",
         0, "Over all tokens");
    assert_null(strstr(tool_out, "yardstick"));
    /* It is the base's own trained length, where that is another model. */
    eval("kld" TOOL_TEXTS
         "-l 96 --samples 1 --trained-length 64 --method pi:scale=2 --base-model " TOOL_MODEL
         " -o another.h5",
         0, "Over all tokens");
    assert_null(strstr(tool_out, "yardstick"));
    /* Nor is it said of one text that there is an interval. */
    assert_null(strstr(tool_out, "n/a"));
    eval("kld" TOOL_TEXTS "-l 96 --samples 2 --trained-length 64 --method pi:scale=2 --dry-run", 0,
         "tokens");
    eval("kld" TOOL_TEXTS
         "-l 96 --samples 2 --trained-length 64 --method rope --method pi:scale=2 -o kld.h5 --json",
         0, "\"rope\"");
}

static void predictions_of_others_are_scored(void **state)
{
    (void)state;
    tool_write("preds_passkey.jsonl", "{\"prediction\": \"71432\", \"ground_truth\": [\"71432\"]}\n"
                                      "{\"prediction\": \"no\", \"ground_truth\": [\"5\"]}\n");
    eval("score --suite infinitebench --predictions preds_passkey.jsonl", 0, "50.00");
    eval("score --suite infinitebench --predictions preds_passkey.jsonl --json", 0, "0.5");
    tool_write("vt.jsonl",
               "{\"pred\": \"AB CD\", \"outputs\": [\"AB\", \"CD\", \"EF\", \"GH\"]}\n");
    eval("score --suite ruler --task vt --predictions vt.jsonl", 0, "50.00");
    tool_write("bad.jsonl", "{\n");
    eval("score --suite ruler --task vt --predictions bad.jsonl", 65, "bad.jsonl");
    eval("score --suite nosuch --predictions vt.jsonl", 64, "--suite: expected one of");
    eval("data" TOOL_TEXTS "-l 512 --tasks vt,niah_single_1 --samples 3 -o data", 0, NULL);
    assert_int_equal(access("data", F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(methods_are_compared),
        cmocka_unit_test(a_detection_is_varied),
        cmocka_unit_test(settings_race),
        cmocka_unit_test(a_table_is_held_against_a_model),
        cmocka_unit_test(divergence_is_measured),
        cmocka_unit_test(predictions_of_others_are_scored),
    };
    return cmocka_run_group_tests(tests, make_tables, tool_folder_gone);
}
