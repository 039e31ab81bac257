/* dpe-export: make a DPE table from a detection and a profile, and write it in the formats that
 * other runtimes read. */
#include "engine/tool/tool.h"
#include "outputs/export/export_tool.h"
#include "outputs/h5/h5.h"

enum option_key {
    KEY_TOP_K = DPE_KEY_PROGRAM,
    KEY_LAST_K,
};

static const struct dpe_option options_table[] = {
    {NULL, 0, NULL, 0, "Make a table:", 1},
    {"rank", 0, "N", 0,
     "Use each group's length of rank N (default: the lengths that the detection selected; with "
     "the paper's rule, those of rank 1)",
     1, DPE_COUNT(struct dpe_export_arguments, rank, 1, 1000)},
    {"top-k", KEY_TOP_K, "K", DPE_BASIC,
     "Key pairs of each head, from NORMS.h5: a count, or a share such as 0.75 (default: all)", 1},
    {"last-k", KEY_LAST_K, "K", 0,
     "As --top-k, with the K pairs that contribute least (for ablations)", 1},
    {"length", 'l', "L", 0,
     "Target length in tokens, which sets the scales (default: the detection's)", 1,
     DPE_TOKENS(struct dpe_export_arguments, length, 1, DPE_MOST_TRAINED)},
    {"import-yaml", 0, "FILE", 0,
     "Make a table from a YAML of the paper's code (needs --model and --length)", 1,
     DPE_TEXT(struct dpe_export_arguments, yaml)},
    {"method", 0, "METHOD", 0,
     "Make a table that is the plan of a method (dpe-run --method help), as dpe-eval tune or your "
     "own "
     "measurements chose it: dpe, self-extend, leaky-rerope, or one that changes frequencies "
     "alone, such as "
     "yarn (needs --model and --length)",
     1, DPE_TEXT(struct dpe_export_arguments, method)},
    {"evidence", 0, "CHECK.h5", 0,
     "Keep with the table what dpe-eval niah or ppl measured under it, at the lengths of its "
     "entries",
     1, DPE_TEXT(struct dpe_export_arguments, evidence)},
    {"trained-length", 0, "L0", 0,
     "Trained length that --method is made for (default: max_position_embeddings)", 1,
     DPE_TOKENS(struct dpe_export_arguments, trained, 1, DPE_MOST_TRAINED)},
    {"join", 0, NULL, 0,
     "Put the entries of every TABLE into one table: of one model and the same groups, each for "
     "another length. A runtime chooses the entry by the length of the text",
     1, DPE_SWITCH(struct dpe_export_arguments, join)},
    {"entry", 0, "L", 0, "Use only the entry for L tokens of a table that has several", 1,
     DPE_TOKENS(struct dpe_export_arguments, entry, 1, DPE_MOST_COUNT)},
    {"unchecked", 0, NULL, 0,
     "Read inputs without a checksum, which other programs wrote, in a child process", 1,
     DPE_SWITCH(struct dpe_export_arguments, unchecked)},
    {NULL, 0, NULL, 0, "Write it:", 2},
    {"output", 'o', "FILE", DPE_BASIC, "File to write; - is standard output (needs --format)", 2,
     DPE_PATH(struct dpe_export_arguments, output)},
    {"format", 0, "F", DPE_BASIC,
     "auto (default: by the name of FILE), h5, json, yaml, pt, hf, safetensors or csv; of a table "
     "of frequencies (--method yarn, or a plan without an adapter) longrope: a config.json, "
     "gguf-rope: a copy of --gguf, or the options of a runtime's command line: vllm-flags, "
     "sglang-flags, llama.cpp-flags",
     2, DPE_CHOICE(struct dpe_export_arguments, format, dpe_export_formats),
     DPE_GIVEN(struct dpe_export_arguments, format_given)},
    {"model", 'm', "DIR", DPE_BASIC,
     "Model folder: for hf, longrope, --check, --method and --import-yaml", 2,
     DPE_MODEL(struct dpe_export_arguments, model)},
    {"gguf", 0, "MODEL.gguf", 0, "File that gguf-rope copies with the table's factors", 2,
     DPE_TEXT(struct dpe_export_arguments, gguf)},
    {"name", 0, "NAME", 0,
     "Name of the model in a YAML (default: the last part of --model, else the model type)", 2,
     DPE_TEXT(struct dpe_export_arguments, name)},
    {"scores", 0, "FILE.pt", 0, "Path of the score tensor to name in a YAML", 2,
     DPE_TEXT(struct dpe_export_arguments, scores)},
    {"drop-temperature", 0, NULL, 0,
     "Write yaml or csv without the table's attention temperature, which these formats cannot "
     "express",
     2, DPE_SWITCH(struct dpe_export_arguments, drop_temperature)},
    {"force", 0, NULL, DPE_BASIC, "Replace FILE if it exists", 2,
     DPE_SWITCH(struct dpe_export_arguments, force)},
    {NULL, 0, NULL, 0, "Inspect one:", 3},
    {"show", 0, NULL, DPE_BASIC, "Print a summary of TABLE", 3,
     DPE_SWITCH(struct dpe_export_arguments, show)},
    {"check", 0, NULL, DPE_BASIC, "Check that TABLE was made for --model DIR (exit code 65 if not)",
     3, DPE_SWITCH(struct dpe_export_arguments, check)},
    {0},
};

static void take_k(struct dpe_command_line *state, const char *option, const char *text, bool last,
                   struct dpe_export_arguments *args)
{
    if (args->has_k && args->last != last) {
        dpe_line_error(state, "--top-k and --last-k exclude each other");
    }
    /* A share is kept negative until the number of pairs is known. */
    double k = dpe_parse_top_k(state, option, text, NULL);
    args->k = k < 1.0 ? -k : k;
    args->has_k = true;
    args->last = last;
}

static int parse_option(int key, char *arg, struct dpe_command_line *state)
{
    struct dpe_export_arguments *args = state->input;
    switch (key) {
    case KEY_TOP_K:
        take_k(state, "--top-k", arg, false, args);
        return 0;
    case KEY_LAST_K:
        take_k(state, "--last-k", arg, true, args);
        return 0;
    case DPE_LINE_BEGIN:
        state->child_inputs[0] = &args->json;
        return 0;
    case DPE_LINE_WORD:
        if (args->n_inputs == DPE_TABLE_ENTRIES) {
            dpe_line_error(state, "unexpected argument '%s': more than %d inputs", arg,
                           DPE_TABLE_ENTRIES);
        }
        args->inputs[args->n_inputs++] = dpe_tool_table(arg);
        return 0;
    default:
        return DPE_LINE_UNKNOWN;
    }
}

DPE_MAIN(dpe_export)
{
    static const struct dpe_option_set *const children[] = {&dpe_result_option_set, NULL};
    static const struct dpe_option_set options = {
        .options = options_table,
        .children = children,
        .parser = parse_option,
        .args_doc = "DETECT.h5 [NORMS.h5]\nTABLE\n--join TABLE...\n--method METHOD",
        .doc =
            "Make a DPE table from a detection and a profile, and write it in the formats that "
            "other runtimes read.\v"
            "Every format has the field adapter_required: DPE scales far positions differently "
            "for each group of pairs and each head, which a runtime's rope_scaling cannot "
            "express. The exception are tables of frequencies, a factor for each pair, which "
            "runtimes read as longrope (of YaRN and the like).\n\n"
            "Examples:\n"
            "  dpe-export detect.h5 norms.h5 --top-k 0.75 -o table.h5\n"
            "  dpe-export table.h5 -o table.json\n"
            "  dpe-export frequencies.h5 -m DIR --format longrope -o config.json\n"
            "  dpe-export --method yarn:scale=4 -m DIR --length 32k --format longrope -o "
            "config.json\n"
            "  dpe-export --method yarn -m MODEL.gguf --length 32k --format llama.cpp-flags -o -\n"
            "  dpe-export --join 1024.h5 2048.h5 4096.h5 -o table.h5\n"
            "  dpe-export --show table.h5",
    };
    dpe_tool_start(argv);
    struct dpe_export_arguments args = {.argc = argc, .argv = argv};
    dpe_tool_parse(&options, argc, argv, 0, &args);
    const char *wrong = dpe_export_refusal(&args);
    if (wrong != NULL) {
        dpe_tool_refuse(wrong);
    }
    const struct dpe_tool_options talk = {.quiet = false};
    dpe_tool_configure(&talk);
    struct dpe_error err = {0};
    if (args.unchecked && !dpe_h5_is_unchecked()) {
        int code = 0;
        dpe_status run =
            dpe_h5_unchecked_run(argv, args.inputs, (size_t)args.n_inputs, &code, &err);
        int failed = dpe_tool_end(run, &err);
        return run == DPE_OK ? code : failed;
    }
    return dpe_tool_end(dpe_export_do(&args, &err), &err);
}
