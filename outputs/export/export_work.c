/* One export: from its inputs to what is printed and written. */
#include <string.h>

#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/system/folder.h"
#include "engine/tool/tool.h"
#include "outputs/export/export_tool.h"
#include "outputs/export/rope_forms.h"
#include "outputs/read/read.h"
#include "outputs/storage/storage.h"

static bool to_stdout(const struct dpe_export_arguments *args)
{
    return args->output != NULL && strcmp(args->output, "-") == 0;
}

/* The paper's code finds a model by the last part of its folder. NULL: neither name nor model is
 * given. */
static const char *given_name(const struct dpe_export_arguments *args, int *n)
{
    *n = args->name != NULL ? (int)strlen(args->name) : 0;
    return args->name != NULL    ? args->name
           : args->model != NULL ? dpe_folder_name(args->model, n)
                                 : NULL;
}

static const char no_yaml_name[] = "the name of the model in a YAML: expected at most 255 bytes of "
                                   "UTF-8; give another with --name";

static bool is_yaml_name(const char *name, int n)
{
    return n <= 255 && dpe_utf8_check(name, (size_t)n) == (size_t)n;
}

/* A factor for each pair, in place of a table. */
static bool holds_factors(enum dpe_export_format format)
{
    return format == FORMAT_LONGROPE || format == FORMAT_GGUF_ROPE || dpe_export_is_flags(format);
}

static enum dpe_export_format format_of(const struct dpe_export_arguments *args)
{
    return args->format != FORMAT_AUTO ? args->format : dpe_export_format_of_path(args->output);
}

const char *dpe_export_refusal(const struct dpe_export_arguments *args)
{
    const bool made = args->method != NULL;
    const bool yaml = args->yaml != NULL;
    const bool input = args->inputs[0] != NULL;
    const bool written = args->output != NULL;
    const bool prints = args->show || args->check;
    const enum dpe_export_format format = written ? format_of(args) : FORMAT_AUTO;
    int n = 0;
    const char *name = given_name(args, &n);
    const struct {
        bool wrong;
        const char *text;
    } refusals[] = {
        {!input && !yaml && !made,
         "nothing to read: give DETECT.h5, TABLE, --method METHOD or --import-yaml FILE"},
        {made && (input || yaml || args->join || args->has_k || args->rank > 0 || args->entry > 0),
         "--method makes a table from nothing else: leave out inputs, --import-yaml, --join, "
         "--rank, --top-k, --last-k and --entry"},
        {made && (args->model == NULL || args->length == 0),
         "--method needs --model DIR and --length L"},
        {args->trained > 0 && !made, "--trained-length needs --method; other inputs have it"},
        {input && yaml, "--import-yaml FILE is the only input: remove the other"},
        {yaml && (args->model == NULL || args->length == 0),
         "--import-yaml needs --model DIR and --length L"},
        {yaml && args->rank > 0, "--rank needs a detection; a YAML already has its scales"},
        {args->n_inputs > 2 && !args->join,
         "more than two inputs: give --join to put several tables into one"},
        {args->join &&
             (args->n_inputs < 2 || args->has_k || args->rank > 0 || args->length > 0 || yaml),
         "--join needs two or more tables, and takes no --rank, --top-k, --last-k, --length "
         "and --import-yaml"},
        {args->entry > 0 && yaml, "--entry needs TABLE; a YAML has one entry"},
        {args->check && args->model == NULL, "--check needs --model DIR"},
        {args->json && (!args->check || args->show), "--json goes with --check, without --show"},
        {!written && !prints, "nothing to do: give -o FILE, --show or --check"},
        {!dpe_is_utf8(args->name) || !dpe_is_utf8(args->scores),
         "--name and --scores: expected UTF-8, the encoding of YAML"},
        {args->has_k && args->inputs[1] == NULL,
         "--top-k and --last-k need NORMS.h5 as the second argument"},
        {written && format == FORMAT_AUTO,
         "--output: the file name does not show the format; give --format"},
        {to_stdout(args) && (format == FORMAT_H5 || format == FORMAT_GGUF_ROPE),
         "--output: HDF5 and GGUF cannot go to standard output; give a file name"},
        /* Options that would have no effect. */
        {!written && args->format_given, "--format needs -o FILE"},
        {!written && args->force, "--force needs -o FILE"},
        {!written && args->name != NULL && !yaml, "--name needs -o FILE.yaml"},
        {!written && args->scores != NULL, "--scores needs -o FILE.yaml"},
        {!written && args->gguf != NULL, "--gguf needs -o FILE.gguf"},
        {!written && args->drop_temperature, "--drop-temperature needs -o FILE.yaml or FILE.csv"},
        {format == FORMAT_YAML && name != NULL && !is_yaml_name(name, n), no_yaml_name},
        {to_stdout(args) && prints,
         "-o - cannot be used with --show or --check, which also print to standard output"},
        {args->gguf != NULL && format != FORMAT_GGUF_ROPE, "--gguf needs --format gguf-rope"},
        {args->gguf == NULL && format == FORMAT_GGUF_ROPE,
         "--format gguf-rope needs --gguf MODEL.gguf, which it copies"},
        {args->model == NULL && format == FORMAT_LONGROPE,
         "--format longrope needs --model DIR for its config.json"},
        {args->model == NULL && dpe_export_is_flags(format),
         "options of a runtime need --model: the folder or GGUF file that it will run"},
        {args->scores != NULL && format != FORMAT_YAML, "--scores needs --format yaml"},
        {args->drop_temperature && format != FORMAT_YAML && format != FORMAT_CSV,
         "--drop-temperature needs --format yaml or csv; the other formats have the temperature"},
        {written && args->name != NULL && format != FORMAT_YAML && !yaml,
         "--name needs --format yaml or --import-yaml"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        if (refusals[i].wrong) {
            return refusals[i].text;
        }
    }
    return NULL;
}

/* ---------------------------------------------------------------- writing */

/* A config.json of the model's: of a GGUF file, of what its metadata say. */
static dpe_status render_config(const struct dpe_export_arguments *args,
                                enum dpe_export_format format, const struct dpe_table *table,
                                const struct dpe_short_text *short_text, struct dpe_text *out,
                                struct dpe_error *err)
{
    const struct dpe_model_options options = {
        .config_only = true, .trained_length = dpe_table_values(table)->trained_length};
    DPE_SCOPED(dpe_model_close_scoped) struct dpe_model *model = NULL;
    if (args->model == NULL) {
        return dpe_fail(err, DPE_USAGE, "--format hf needs --model DIR for its config.json");
    }
    DPE_TRY(dpe_model_open(args->model, &options, &model, err));
    return format == FORMAT_HF ? dpe_export_hf(table, dpe_model_config_json(model), out, err)
                               : dpe_export_longrope(dpe_table_values(table), args->model, model,
                                                     short_text, out, err);
}

/* A checked name, or that of the model type. */
static dpe_status model_name(const struct dpe_export_arguments *args,
                             const struct dpe_table_values *values, char name[256],
                             struct dpe_error *err)
{
    int n = 0;
    const char *from = given_name(args, &n);
    if (from == NULL) {
        from = values->model_type;
        n = (int)strlen(from);
    }
    if (!is_yaml_name(from, n)) {
        return dpe_fail(err, DPE_USAGE, "%s", no_yaml_name);
    }
    snprintf(name, 256, "%.*s", n, from);
    return DPE_OK;
}

/* Without its temperature a table gives other results. */
static dpe_status check_temperature(const struct dpe_export_arguments *args,
                                    const struct dpe_table_values *values, struct dpe_error *err)
{
    if (!dpe_table_has_temperature(values)) {
        return DPE_OK;
    }
    const struct dpe_temperature temperature = dpe_table_temperature(values);
    char text[DPE_TEMPERATURE_TEXT];
    dpe_temperature_text(&temperature, text);
    if (args->drop_temperature && !args->quiet) {
        dpe_log_warning(
            "%s: written without the table's attention temperature (%s), so results with it differ",
            args->output, text);
    }
    if (args->drop_temperature) {
        return DPE_OK;
    }
    return dpe_fail(err, DPE_USAGE,
                    "this format cannot express the table's attention temperature (%s), without "
                    "which results differ; write another format, or give --drop-temperature",
                    text);
}

/* A form of one entry must not be taken for the whole table. */
static dpe_status check_single(const struct dpe_table *table, struct dpe_error *err)
{
    char lengths[DPE_TABLE_NOTE];
    return dpe_table_count(table) == 1
               ? DPE_OK
               : dpe_fail(err, DPE_USAGE,
                          "this format holds one entry, the table has several, for %s tokens: "
                          "choose one with --entry L, or write json, safetensors, hf or h5",
                          dpe_table_lengths(table, lengths));
}

/* Which of the two kinds of tables a form holds: h5, json and the scores are of both. */
static dpe_status check_kind(enum dpe_export_format format, const struct dpe_table *table,
                             struct dpe_error *err)
{
    const struct dpe_table_values *values = dpe_table_values(table);
    if (format == FORMAT_H5 || format == FORMAT_JSON || format == FORMAT_PT) {
        return DPE_OK;
    }
    if (values->frequencies == 0 && (format == FORMAT_HF || format == FORMAT_SAFETENSORS)) {
        return DPE_OK;
    }
    DPE_TRY(check_single(table, err));
    return dpe_rope_check_form(values, dpe_export_formats[format], holds_factors(format), err);
}

static dpe_status render(const struct dpe_export_arguments *args, enum dpe_export_format format,
                         const struct export_table *table, const struct dpe_short_text *short_text,
                         struct dpe_text *out, struct dpe_error *err)
{
    const struct dpe_table_values *values = dpe_table_values(table->table);
    char name[256];
    if (dpe_export_is_flags(format)) {
        return dpe_export_flags(values, args->model, (enum dpe_flags_of)(format - FORMAT_FLAGS),
                                out, err);
    }
    switch (format) {
    case FORMAT_JSON:
        return dpe_export_json(table->table, out, err);
    case FORMAT_CSV:
        DPE_TRY(check_temperature(args, values, err));
        return dpe_export_csv(values, out, err);
    case FORMAT_SAFETENSORS:
        return dpe_export_safetensors(table->table, out, err);
    case FORMAT_YAML:
        DPE_TRY(check_temperature(args, values, err));
        DPE_TRY(model_name(args, values, name, err));
        return dpe_export_yaml(values, name, args->scores != NULL ? args->scores : "", out, err);
    case FORMAT_PT:
        if (table->scores == NULL) {
            return dpe_fail(
                err, DPE_USAGE,
                "--format pt writes the scores of NORMS.h5: give it as the second argument");
        }
        return dpe_export_pt(table->scores, table->score_dims, out, err);
    case FORMAT_HF:
    case FORMAT_LONGROPE:
        return render_config(args, format, table->table, short_text, out, err);
    case FORMAT_H5:
    case FORMAT_GGUF_ROPE:
    case FORMAT_AUTO:
    default:
        return dpe_fail(err, DPE_INTERNAL, "format %d is not a text format", (int)format);
    }
}

/* Before anything is read. --force replaces regular files only: the rename that puts a table in
 * place would otherwise replace /dev/null or a named pipe. */
static dpe_status check_output(const struct dpe_export_arguments *args, struct dpe_error *err)
{
    if (to_stdout(args)) {
        return DPE_OK;
    }
    DPE_TRY(dpe_tool_check_folder(args->output, err));
    DPE_TRY(dpe_tool_check_new(args->output, args->force, err));
    const char *const inputs[] = {args->model, args->gguf};
    DPE_TRY(dpe_tool_check_output(args->output, inputs, 2, err));
    return dpe_tool_check_words(args->output, args->argc, args->argv, err);
}

/* The file of a form, or the text on standard output. */
static dpe_status write_form(const struct dpe_export_arguments *args, enum dpe_export_format format,
                             const struct export_table *table,
                             const struct dpe_short_text *short_text, struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text out = {0};
    if (format == FORMAT_GGUF_ROPE) {
        return dpe_export_gguf(dpe_table_values(table->table), args->gguf, args->output, short_text,
                               err);
    }
    DPE_TRY(render(args, format, table, short_text, &out, err));
    if (!to_stdout(args)) {
        return dpe_write_atomic(args->output, out.bytes, out.n, err);
    }
    fwrite(out.bytes, 1, out.n, stdout); /* dpe_tool_end reports a failure */
    return DPE_OK;
}

static dpe_status write_output(const struct dpe_export_arguments *args,
                               const struct export_table *table, struct dpe_error *err)
{
    const enum dpe_export_format format = format_of(args);
    const struct dpe_table_values *values = dpe_table_values(table->table);
    const bool factors = holds_factors(format);
    struct dpe_short_text short_text = {0};
    DPE_TRY(check_kind(format, table->table, err));
    if (format == FORMAT_H5) {
        return dpe_export_write_h5(table, args->output, err);
    }
    if (table->selection[0] != '\0' && format != FORMAT_PT && !args->quiet) {
        dpe_log_warning(
            "the table was found under the selection %s, which no form applies and %s does "
            "not record",
            table->selection, dpe_export_formats[format]);
    }
    if (factors) {
        const char *model = format == FORMAT_GGUF_ROPE ? args->gguf : args->model;
        DPE_TRY(dpe_short_text_measure(values, model, args->threads, &short_text, err));
    }
    DPE_TRY(write_form(args, format, table, &short_text, err));
    if (factors && !args->quiet) {
        dpe_short_text_log(values, &short_text,
                           dpe_export_is_flags(format) ? "these options"
                           : to_stdout(args)           ? "the file"
                                                       : args->output);
    }
    return DPE_OK;
}

/* ---------------------------------------------------------------- printing: --show and --check */

static void show_model(const struct dpe_table_values *values)
{
    /* These texts come from the file and may hold control characters. */
    char version[64];
    char type[64];
    char fingerprint[160];
    dpe_printable(values->schema_version, version, sizeof version);
    dpe_printable(values->model_type, type, sizeof type);
    dpe_printable(values->model_fingerprint, fingerprint, sizeof fingerprint);
    dpe_print(
        "DPE table %s for a %s model, %lld layers, %lld query and %lld key/value heads of %lld\n",
        version, type, (long long)values->n_layers, (long long)values->n_heads,
        (long long)values->n_kv_heads, (long long)values->head_dim);
    dpe_print("model fingerprint  %s\n", fingerprint);
    dpe_print("trained length     %lld\n", (long long)values->trained_length);
}

static void show_entry(const struct dpe_table_values *values)
{
    dpe_print("evaluated length   %lld\n", (long long)values->length);
    if (values->frequencies != 0) {
        dpe_print("moves              frequencies: each is divided by its group's scale\n");
    } else if (dpe_table_needs_adapter(values) != 0 && values->n_bands == 0) {
        dpe_print("window             %lld (nearer keys keep their distance)\n",
                  (long long)values->window);
        dpe_print("key pairs          %lld of %lld of each head\n", (long long)values->top_k,
                  (long long)values->n_pairs);
    }
    if (values->unrounded != 0) {
        dpe_print("far positions      not rounded, as Leaky ReRoPE has them\n");
    }
    if (values->n_bands > 0) {
        dpe_print("bands              %lld, in place of a window and scales\n",
                  (long long)values->n_bands);
    }
    if (values->applied_inv_freq != NULL) {
        dpe_print("frequencies        of the table in place of the model's own\n");
    }
    dpe_print("attention scaling  %g\n", values->attention_scaling);
    if (dpe_table_has_temperature(values)) {
        const struct dpe_temperature temperature = dpe_table_temperature(values);
        char text[DPE_TEMPERATURE_TEXT];
        dpe_temperature_text(&temperature, text);
        dpe_print("temperature        %s\n", text);
    }
    char evidence[DPE_TABLE_EVIDENCE];
    dpe_table_evidence(values, evidence);
    dpe_print("measured           %s\n", evidence[0] != '\0' ? evidence : "nothing");
    if (dpe_table_facts(values, evidence)[0] != '\0') {
        dpe_print("made from          %s\n", evidence);
    }
    dpe_print("%5s  %11s  %16s  %6s\n", "group", "pairs", "effective length", "scale");
    for (int64_t g = 0; g < values->n_groups; g++) {
        char pairs[32];
        char effective[32];
        snprintf(pairs, sizeof pairs, "%d..%d", values->group_edge[g],
                 values->group_edge[g + 1] - 1);
        snprintf(effective, sizeof effective, "%.0f", values->effective_length[g]);
        dpe_print("%5lld  %11s  %16s  %6g\n", (long long)g, pairs,
                  values->effective_length[g] < 0.0 ? "none found" : effective,
                  values->scale_factor[g]);
    }
}

static void show(const struct dpe_table *table, const char *selection)
{
    int64_t n = dpe_table_count(table);
    int64_t before = dpe_table_values(table)->trained_length;
    show_model(dpe_table_values(table));
    if (selection[0] != '\0') {
        dpe_print("found under        the selection %s, which the table alone does not apply\n",
                  selection);
    }
    if (n > 1) {
        char lengths[DPE_TABLE_NOTE];
        dpe_print("entries            %lld, for %s tokens\n", (long long)n,
                  dpe_table_lengths(table, lengths));
    }
    for (int64_t i = 0; i < n; i++) {
        const struct dpe_table_values *values = dpe_table_values(dpe_table_entry(table, i));
        if (n > 1) {
            dpe_print("\nFor texts of %lld to %lld tokens, prompt and new ones together\n",
                      (long long)before + 1, (long long)values->length);
        }
        show_entry(values);
        before = values->length;
    }
    if (!dpe_export_needs_adapter(table)) {
        dpe_print("A runtime needs no adapter to apply this table: dpe-export --format longrope\n"
                  "(a config.json) or gguf-rope (a GGUF file).\n");
        return;
    }
    dpe_print("Up to the trained length a runtime runs the model unchanged. Beyond it, it\n"
              "needs an adapter to apply this table: see outputs/table/dpe_table.h.\n");
}

/* The outcome as a document; it is `status` again, with its message. */
static dpe_status print_check(const char *folder, const char *fingerprint,
                              const struct dpe_table_values *values, dpe_status status,
                              struct dpe_error *err)
{
    struct dpe_error why = {0};
    struct dpe_result *result = dpe_result_begin("dpe-export");
    dpe_result_flag(result, "fits", status == DPE_OK);
    dpe_result_text(result, "reason", status == DPE_OK ? NULL : err->text);
    dpe_result_text(result, "model", folder);
    dpe_result_text(result, "model_fingerprint", fingerprint);
    dpe_result_text(result, "table_fingerprint", values->model_fingerprint);
    dpe_result_whole(result, "trained_length", values->trained_length);
    dpe_result_whole(result, "length", values->length);
    dpe_status printed = dpe_result_print(result, &why);
    return printed == DPE_OK ? status : dpe_fail(err, printed, "%s", why.text);
}

/* The table's shape and fingerprint against a folder. */
static dpe_status check_model(const char *folder, const struct dpe_table_values *values, bool json,
                              struct dpe_error *err)
{
    DPE_SCOPED(dpe_model_close_scoped) struct dpe_model *model = NULL;
    dpe_status status = DPE_OK;
    const struct dpe_model_options options = {.trained_length = values->trained_length};
    DPE_TRY(dpe_model_open(folder, &options, &model, err));
    const char *fingerprint = dpe_model_fingerprint(model);
    if (dpe_table_check_model(values, dpe_model_config(model), err) != DPE_OK) {
        status = dpe_fail_prefix(err, "%s: the table", folder);
    } else if (strcmp(fingerprint, values->model_fingerprint) != 0) {
        status = dpe_fail(
            err, DPE_BAD_DATA,
            "the table was measured on the model %s; %s is %s, which has the same shape but "
            "other weights or another configuration",
            values->model_fingerprint, folder, fingerprint);
    }
    if (json) {
        return print_check(folder, fingerprint, values, status, err);
    }
    DPE_TRY(status);
    dpe_print("fits: %s is the model that the table was measured on\n", folder);
    return DPE_OK;
}

dpe_status dpe_export_do(const struct dpe_export_arguments *args, struct dpe_error *err)
{
    DPE_SCOPED(dpe_export_table_free) struct export_table table = {0};
    DPE_TRY(args->output != NULL ? check_output(args, err) : DPE_OK);
    DPE_TRY(dpe_export_read(args, &table, err));
    if (args->show) {
        show(table.table, table.selection);
    }
    if (args->check) {
        DPE_TRY(check_model(args->model, dpe_table_values(table.table), args->json, err));
    }
    if (args->output == NULL) {
        return DPE_OK;
    }
    DPE_TRY(dpe_signals_poll(NULL, err));
    return write_output(args, &table, err);
}
