/* Where validation shows another method to be better, the table holds that method's plan
 * (tests/lib/made_rows.h says which is). It is the same plan in every form, forms that cannot hold
 * it are refused, and dpe-calibrate makes those that can. A method by its name is the same table.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/lib/made_rows.h"
#include "tests/lib/tool_run.h"
#include "tests/lib/tool_tables.h"
#include "tests/outputs/schema_check.h"

DPE_TOOL(calibrate)
DPE_TOOL(detect)
DPE_TOOL(eval)
DPE_TOOL(export)
DPE_TOOL(norms)
DPE_TOOL(run)

#define MODEL "--model " TOOL_MODEL " "
#define TEXTS MODEL "--corpus " TOOL_CORPUS " --threads 1 "
#define SHORT "--trained-length 32 "
#define SWEEP                                                                                      \
    TEXTS SHORT                                                                                    \
        "--samples 8 --groups 2 --window 4 --task niah --temperature off --select search --quiet "
#define YARN  "yarn:scale=4"
#define LEAKY "leaky-rerope:window=16,scale=4"

/* 511 tokens are seen at 128 by YaRN and at 140 by Leaky ReRoPE, and by groups at 16 or 512. */
static void want_a_method(void)
{
    made_world = (struct made_world){.best = {134, 134}, .noise = 0.1};
}

/* Tables NAME… and the method are one plan, whose rows are shared. */
static void expect_one_plan(const char *method, const char *tables)
{
    char line[512];
    size_t n = 0;
    unlink("rows.h5");
    snprintf(line, sizeof line, "niah " TEXTS SHORT "-l 512 --samples 1 --method %s %s -o rows.h5",
             method, tables);
    eval(line, 0, NULL);
    char **plans = strings("rows.h5", "/plans/plan", &n);
    for (size_t i = 1; i < n; i++) {
        assert_string_equal(plans[i], plans[0]);
    }
    dpe_strings_free(plans, n);
}

static int make_tables(void **state)
{
    if (tool_folder(state) != 0) {
        return -1;
    }
    want_a_method();
    detect(SWEEP "-l 512 --lengths 16,512 --against " YARN " -o yarn.h5", 0, "plan: " YARN);
    detect(SWEEP "-l 512 --lengths 16,512 --against " LEAKY " -o leaky.h5", 0, "plan: " LEAKY);
    return 0;
}

static void all_forms_are_one_plan(void **state)
{
    static const char *const names[] = {"yarn", "leaky"}, *const specs[] = {YARN, LEAKY};
    (void)state;
    for (int i = 0; i < 2; i++) {
        char line[256];
        static const char *const steps[] = {"%s.h5 -o %s.json", "%s.h5 -o %s.safetensors",
                                            "%s.safetensors -o %s-back.h5"};
        for (size_t k = 0; k < sizeof steps / sizeof steps[0]; k++) {
            snprintf(line, sizeof line, steps[k], names[i], names[i]);
            export(line, 0, NULL);
        }
        snprintf(line, sizeof line, "%s.h5", names[i]);
        assert_int_equal(schema_check(line), 0);
        snprintf(line, sizeof line, "%s-back.h5", names[i]);
        assert_int_equal(schema_check(line), 0);
        snprintf(line, sizeof line, "--table %s.h5 --table %s.json --table %s-back.h5", names[i],
                 names[i], names[i]);
        expect_one_plan(specs[i], line);
        snprintf(line, sizeof line, "%s.h5 -o no.csv", names[i]);
        export(line, 64, "--format csv holds DPE");
        snprintf(line, sizeof line, "%s.h5 -o no.yaml", names[i]);
        export(line, 64, "--format yaml holds DPE");
    }
    export("yarn.h5 --show", 0, "needs no adapter");
    export("leaky.h5 --show", 0, "needs an adapter");
    assert_non_null(strstr(tool_out, "not rounded"));
    export("leaky.h5 " MODEL "--format longrope -o no.json", 64, "would be lost");
    export("yarn.h5 --length 1024 -o no.h5", 64,
           "--length: the table holds the plan of another method for 512 tokens");
    export("leaky.h5 --rank 1 -o no.h5", 64, "--rank: the table holds the plan of another method");
    norms(TEXTS SHORT "--lengths 32 --samples 2 --quiet -o norms.h5", 0, NULL);
    export("--top-k 24 -o no.h5 yarn.h5 norms.h5", 64, "of which all pairs move");
    eval("ablate " TEXTS SHORT "--table yarn.h5 --norms norms.h5 --what top-k -o no.h5", 65,
         "found the plan of another method");
    assert_int_equal(access("no.h5", F_OK), -1);
}

/* A folder of the bundled model with another config.json: sed's commands, or a file. */
static void make_model(const char *folder, const char *change, const char *config)
{
    char command[1024];
    snprintf(command, sizeof command,
             "mkdir %s && cp " TOOL_MODEL "/* %s && sed '%s' %s >%s/config.json", folder, folder,
             change, config != NULL ? config : TOOL_MODEL "/config.json", folder);
    assert_int_equal(system(command), 0);
}

static double nll(const char *options)
{
    char line[512];
    snprintf(line, sizeof line, "--nll text.txt --context 512 --threads 1 --json %s", options);
    run(line, 0, NULL);
    return tool_number("\"nll\": ");
}

/* The frequencies in a config.json, run without a table: here the engine itself reads the text. */
static void a_configuration_runs_as_its_table(void **state)
{
    (void)state;
    tool_read(TOOL_CORPUS "/test/900000.txt", tool_out, 9000);
    tool_write("text.txt", tool_out);
    export("yarn.h5 " MODEL "--format longrope -o yarn-config.json", 0, NULL);
    make_model("exported", "", "yarn-config.json");
    const double table = nll(MODEL "--table yarn.h5");
    assert_true(fabs(table - nll(MODEL SHORT "--method " YARN)) < 1e-6 * table);
    assert_true(fabs(table - nll("--model exported")) < 1e-6 * table);
    assert_true(fabs(table - nll(MODEL SHORT "--method rope")) > 1e-3 * table);
}

/* What the configuration that `options` write says, but for what was measured under a detection. */
static void read_config(const char *options, char *text, size_t size)
{
    char line[512];
    snprintf(line, sizeof line, "%s " MODEL "--format longrope -o -", options);
    export(line, 0, NULL);
    char *evidence = strstr(tool_out, "\"dpe_evidence\"");
    if (evidence != NULL) {
        char *end = strchr(evidence, '\n') + 1;
        memmove(evidence, end + strspn(end, " "), strlen(end) + 1);
    }
    snprintf(text, size, "%.8000s", tool_out);
}

/* Forms of one entry are not made of several. */
static void entries_are_methods_of_their_own(void **state)
{
    static char entry[8192], detected[8192], named[8192];
    (void)state;
    export("--method self-extend " MODEL SHORT "--length 256 -o first.h5", 0, NULL);
    export("--method " YARN " " MODEL SHORT "--length 512 -o second.h5", 0, NULL);
    export("--join -o mixed.h5 first.h5 second.h5", 0, NULL);
    assert_int_equal(schema_check("mixed.h5"), 0);
    export("mixed.h5 " MODEL "--format longrope -o no", 64, "choose one with --entry L");
    export("mixed.h5 " MODEL "--format yaml -o no", 64, "choose one with --entry L");
    export("mixed.h5 " MODEL "--format csv -o no", 64, "choose one with --entry L");
    read_config("mixed.h5 --entry 512", entry, sizeof entry);
    read_config("yarn.h5", detected, sizeof detected);
    read_config("--method " YARN " " SHORT "--length 512", named, sizeof named);
    assert_string_equal(entry, detected);
    assert_string_equal(named, detected);
}

/* A method by name is the same table without a detection, where a table can hold it. */
static void a_name_is_a_table(void **state)
{
    static const char *const specs[] = {YARN,
                                        LEAKY,
                                        "self-extend:group=8",
                                        "dpe:window=4,scales=2/16,log-n=32",
                                        "ntk:log-n=32",
                                        "lampe:log-n=9",
                                        "dca",
                                        "jet-long",
                                        "self",
                                        "cope",
                                        "dope",
                                        "select:k=8",
                                        "select:over=lampe"};
    char line[256];
    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        snprintf(line, sizeof line, "--method %s " MODEL SHORT "--length 512 --force -o named.h5",
                 specs[i]);
        export(line, 0, NULL);
        assert_int_equal(schema_check("named.h5"), 0);
        expect_one_plan(specs[i], "--table named.h5");
    }
    export("--method yarn " MODEL "--length 256 -o no.h5", 64,
           "expected more than the trained length");
    export("--method yarn " MODEL "-o no.h5", 64, "--method needs --model DIR and --length L");
    export("--method yarn " MODEL "--length 512 -o no.h5 yarn.h5", 64,
           "--method makes a table from nothing else");
    export(SHORT "-o no.h5 yarn.h5", 64, "--trained-length needs --method");
    assert_int_equal(access("no.h5", F_OK), -1);
}

/* Options of runtimes, where these can say the frequencies. */
static void options_of_runtimes(void **state)
{
    static const struct {
        const char *options, *line;
    } all[] = {
        {"yarn --format llama.cpp-flags",
         "--ctx-size 1024 --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 256\n"},
        {"yarn:scale=6,beta_fast=8,logit-scale=1.21 --format llama.cpp-flags",
         "--ctx-size 1024 --rope-scaling yarn --rope-scale 6 --yarn-orig-ctx 256 --yarn-beta-fast "
         "8 --yarn-attn-factor 1.1\n"},
        {"pi:scale=3 --format llama.cpp-flags",
         "--ctx-size 1024 --rope-scaling linear --rope-scale 3\n"},
        {"yarn --format vllm-flags",
         "--max-model-len 1024 --hf-overrides "
         "'{\"rope_parameters\":{\"rope_theta\":10000.0,\"rope_type\":\"yarn\",\"factor\":4.0,"
         "\"original_max_position_embeddings\":256},\"max_position_embeddings\":1024}'\n"}};
    static const struct {
        const char *options, *text;
    } none[] = {
        {"mrrope --format llama.cpp-flags", "this table has factors of its own"},
        {"pi:logit-scale=2 --format llama.cpp-flags", "this table has a factor on the logits"},
        {"lampe --format vllm-flags", "the 3 bands of this table would be lost"}};
    char line[256];
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        snprintf(line, sizeof line, MODEL "--length 1k -o - --method %s", all[i].options);
        export(line, 0, NULL);
        assert_string_equal(tool_out, all[i].line);
    }
    /* They need no weights. */
    assert_int_equal(system("mkdir bare && cp " TOOL_MODEL "/config.json bare"), 0);
    export("-m bare --length 1k -o - --method yarn --format llama.cpp-flags", 0, NULL);
    assert_string_equal(tool_out, all[0].line);
    export("-m bare --length 1k -o none.h5 --method yarn", 66, "model.safetensors");
    export(MODEL "--length 1k -o - --method mrrope --format sglang-flags", 0, "longrope");
    assert_memory_equal(tool_out, "--context-length 1024 ", strlen("--context-length 1024 "));
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        snprintf(line, sizeof line, MODEL "--length 1k -o - --method %s", none[i].options);
        export(line, 64, none[i].text);
    }
}

/* A model that has an attention factor of its own: it is divided out and multiplied in again. */
static void a_factor_of_the_models_own(void **state)
{
    char line[128];
    (void)state;
    make_model("scaled",
               "s/\"rope_scaling\": null/\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": "
               "4.0, \"original_max_position_embeddings\": 64}/",
               NULL);
    expect_in_file("scaled/config.json", "yarn");
    for (int scale = 4; scale <= 24; scale += 4) {
        snprintf(line, sizeof line,
                 "--method yarn:scale=%d --model scaled --length 1024 --force -o scaled.h5", scale);
        export(line, 0, NULL);
    }
}

/* The files of a folder of a calibration, sorted; `of` holds the parts that any has. */
static void expect_files(const char *folder, const char *more)
{
    static char found[4096], expected[4096];
    char command[512];
    snprintf(command, sizeof command,
             "cd %s && find . -type f | sort >../found && printf './%%s\\n' check.h5 config.json "
             "detect.h5 forms.sha256 norms.h5 report.html scores.pt table.h5 table.json "
             "table.safetensors %s | sort >../expected",
             folder, more);
    assert_int_equal(system(command), 0);
    tool_read("found", found, sizeof found);
    tool_read("expected", expected, sizeof expected);
    assert_string_equal(found, expected);
}

#define ONE SWEEP "-l 512 --lengths 16,512 -o one "

static void a_calibration_makes_the_forms_that_can(void **state)
{
    (void)state;
    want_a_method();
    calibrate(ONE "--against " YARN, 0, NULL);
    expect_files("one", "");
    expect_in_file("one/config.json", "\"longrope\"");
    expect_in_file("one/report.html", "Every key keeps its true distance");
    assert_int_equal(schema_check("one/table.h5"), 0);
    calibrate(ONE "--against " YARN, 0, NULL);
    /* Another choice makes other forms; those that the first one made and the second does not have
     * are gone, and the other way round. */
    calibrate(ONE "--against none --top-k 32", 0, NULL);
    expect_files("one", "table.csv table.yaml");
    expect_in_file("one/config.json", "\"dpe\"");
    FILE *file = fopen("one/table.yaml", "a");
    fputs("# mine\n", file);
    fclose(file);
    calibrate(ONE "--force --against " YARN, 0, NULL);
    expect_files("one", "table.yaml"); /* a form that was edited stays */
    expect_in_file("one/table.yaml", "# mine\n");
}

/* Layers that do not rotate: no list of factors is for all of them, so that the configuration is
 * the adapter's. Several entries, of which each may hold another method. */
static void other_calibrations(void **state)
{
    (void)state;
    want_a_method();
    make_model(
        "some",
        "s/\"model_type\": \"llama\"/\"model_type\": \"smollm3\", \"no_rope_layers\": [1, 1, "
        "1, 0]/;s/LlamaForCausalLM/SmolLM3ForCausalLM/",
        NULL);
    calibrate(SWEEP "--model some -l 512 --lengths 16,512 --against " YARN " -o layers", 0, NULL);
    export("layers/table.h5 --show", 0, "in place of the model's own");
    expect_in_file("layers/config.json", "\"dpe\"");
    calibrate(SWEEP "-l 256,512 --lengths 16,256 --against " LEAKY " -o two", 0, NULL);
    assert_int_equal(schema_check("two/table.h5"), 0);
    expect_in_file("two/table.json", "\"unrounded\":");
    assert_int_equal(access("two/512/table.yaml", F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_forms_are_one_plan),
        cmocka_unit_test(a_configuration_runs_as_its_table),
        cmocka_unit_test(entries_are_methods_of_their_own),
        cmocka_unit_test(a_name_is_a_table),
        cmocka_unit_test(options_of_runtimes),
        cmocka_unit_test(a_factor_of_the_models_own),
        cmocka_unit_test(a_calibration_makes_the_forms_that_can),
        cmocka_unit_test(other_calibrations),
    };
    return cmocka_run_group_tests(tests, make_tables, tool_folder_gone);
}
