/* One export: from its inputs to what is printed and written. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/base.h"
#include "engine/model/model.h"
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
static const char *given_name(const struct dpe_export_arguments *args, size_t *n)
{
    const char *from = args->name != NULL ? args->name : args->model;
    *n = from != NULL ? strlen(from) : 0;
    if (from == NULL || from == args->name) {
        return from;
    }
    while (*n > 1 && from[*n - 1] == '/') {
        (*n)--;
    }
    size_t begin = *n;
    while (begin > 0 && from[begin - 1] != '/') {
        begin--;
    }
    *n -= begin;
    return from + begin;
}

static const char no_yaml_name[] = "the name of the model in a YAML: expected at most 255 bytes of "
                                   "UTF-8; give another with --name";

static bool is_yaml_name(const char *name, size_t n)
{
    return n <= 255 && dpe_utf8_check(name, n) == n;
}

static bool is_flags(enum export_format format)
{
    return format >= FORMAT_FLAGS && format <= FORMAT_FLAGS_LAST;
}

/* The message for options that would have no effect, or NULL. */
static const char *check_together(const struct dpe_export_arguments *args)
{
    if (args->output == NULL) {
        return args->format != NULL                       ? "--format needs -o FILE"
               : args->force                              ? "--force needs -o FILE"
               : args->name != NULL && args->yaml == NULL ? "--name needs -o FILE.yaml"
               : args->scores != NULL                     ? "--scores needs -o FILE.yaml"
               : args->gguf != NULL                       ? "--gguf needs -o FILE.gguf"
               : args->drop_temperature ? "--drop-temperature needs -o FILE.yaml or FILE.csv"
                                        : NULL;
    }
    enum export_format format = args->format != NULL ? dpe_export_format_of(args->format)
                                                     : dpe_export_format_of_path(args->output);
    size_t n = 0;
    const char *name = given_name(args, &n);
    return format == FORMAT_YAML && name != NULL && !is_yaml_name(name, n) ? no_yaml_name
           : to_stdout(args) && (args->show || args->check)
               ? "-o - cannot be used with --show or --check, which also print to standard output"
           : args->gguf != NULL && format != FORMAT_GGUF_ROPE ? "--gguf needs --format gguf-rope"
           : args->gguf == NULL && format == FORMAT_GGUF_ROPE
               ? "--format gguf-rope needs --gguf MODEL.gguf, which it copies"
           : args->model == NULL && format == FORMAT_LONGROPE
               ? "--format longrope needs --model DIR for its config.json"
           : args->model == NULL && is_flags(format)
               ? "options of a runtime need --model: the folder or GGUF file that it will run"
           : args->scores != NULL && format != FORMAT_YAML ? "--scores needs --format yaml"
           : args->drop_temperature && format != FORMAT_YAML && format != FORMAT_CSV
               ? "--drop-temperature needs --format yaml or csv; the other formats have the "
                 "temperature"
           : args->name != NULL && format != FORMAT_YAML && args->yaml == NULL
               ? "--name needs --format yaml or --import-yaml"
               : NULL;
}

static bool is_utf8(const char *text)
{
    return text == NULL || dpe_utf8_check(text, strlen(text)) == strlen(text);
}

const char *dpe_export_refusal(const struct dpe_export_arguments *args)
{
    const char *wrong = NULL;
    const bool made = args->method != NULL;
    if (args->inputs[0] == NULL && args->yaml == NULL && !made) {
        wrong = "nothing to read: give DETECT.h5, TABLE, --method METHOD or --import-yaml FILE";
    } else if (made && (args->inputs[0] != NULL || args->yaml != NULL || args->join ||
                        args->has_k || args->rank > 0 || args->entry > 0)) {
        wrong =
            "--method makes a table from nothing else: leave out inputs, --import-yaml, --join, "
            "--rank, --top-k, --last-k and --entry";
    } else if (made && (args->model == NULL || args->length == 0)) {
        wrong = "--method needs --model DIR and --length L";
    } else if (args->trained > 0 && !made) {
        wrong = "--trained-length needs --method; other inputs have it";
    } else if (args->inputs[0] != NULL && args->yaml != NULL) {
        wrong = "--import-yaml FILE is the only input: remove the other";
    } else if (args->yaml != NULL && (args->model == NULL || args->length == 0)) {
        wrong = "--import-yaml needs --model DIR and --length L";
    } else if (args->yaml != NULL && args->rank > 0) {
        wrong = "--rank needs a detection; a YAML already has its scales";
    } else if (args->n_inputs > 2 && !args->join) {
        wrong = "more than two inputs: give --join to put several tables into one";
    } else if (args->join && (args->n_inputs < 2 || args->has_k || args->rank > 0 ||
                              args->length > 0 || args->yaml != NULL)) {
        wrong = "--join needs two or more tables, and takes no --rank, --top-k, --last-k, --length "
                "and --import-yaml";
    } else if (args->entry > 0 && args->yaml != NULL) {
        wrong = "--entry needs TABLE; a YAML has one entry";
    } else if (args->check && args->model == NULL) {
        wrong = "--check needs --model DIR";
    } else if (args->result != DPE_RESULT_TEXT && (!args->check || args->show)) {
        wrong = "--json goes with --check, without --show";
    } else if (args->output == NULL && !args->show && !args->check) {
        wrong = "nothing to do: give -o FILE, --show or --check";
    } else if (!is_utf8(args->name) || !is_utf8(args->scores)) {
        wrong = "--name and --scores: expected UTF-8, the encoding of YAML";
    } else if (args->has_k && args->inputs[1] == NULL) {
        wrong = "--top-k and --last-k need NORMS.h5 as the second argument";
    } else if (args->output != NULL && args->format == NULL &&
               dpe_export_format_of_path(args->output) == FORMAT_UNKNOWN) {
        wrong = "--output: the file name does not show the format; give --format";
    } else if (to_stdout(args) && (dpe_export_format_of(args->format) == FORMAT_H5 ||
                                   dpe_export_format_of(args->format) == FORMAT_GGUF_ROPE)) {
        wrong = "--output: HDF5 and GGUF cannot go to standard output; give a file name";
    } else {
        wrong = check_together(args);
    }
    return wrong;
}

/* ---------------------------------------------------------------- writing */

/* A copy of the config.json; of a GGUF file, of what its metadata say. */
static dpe_status read_config(const char *path, char **json, struct dpe_error *err)
{
    const struct dpe_model_options options = {.config_only = true};
    struct dpe_model *model = NULL;
    dpe_status status = dpe_model_open(path, &options, &model, err);
    if (status == DPE_OK) {
        *json = strdup(dpe_model_config_json(model));
        status = *json != NULL ? DPE_OK : dpe_fail(err, DPE_NO_MEMORY, "out of memory");
    }
    dpe_model_close(model);
    return status;
}

/* A checked name, or that of the model type. */
static dpe_status model_name(const struct dpe_export_arguments *args,
                             const struct dpe_table_values *values, char name[256],
                             struct dpe_error *err)
{
    size_t n = 0;
    const char *from = given_name(args, &n);
    if (from == NULL) {
        from = values->model_type;
        n = strlen(from);
    }
    if (!is_yaml_name(from, n)) {
        return dpe_fail(err, DPE_USAGE, "%s", no_yaml_name);
    }
    snprintf(name, 256, "%.*s", (int)n, from);
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
    if (args->drop_temperature && args->quiet) {
        return DPE_OK;
    }
    if (args->drop_temperature) {
        dpe_log_warning(
            "%s: written without the table's attention temperature (%s), so results with it differ",
            args->output != NULL ? args->output : "standard output", text);
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
static dpe_status check_kind(enum export_format format, const struct dpe_table *table,
                             struct dpe_error *err)
{
    const struct dpe_table_values *values = dpe_table_values(table);
    if (format == FORMAT_H5 || format == FORMAT_JSON || format == FORMAT_PT) {
        return DPE_OK;
    }
    if (values->frequencies == 0 && (format == FORMAT_HF || format == FORMAT_SAFETENSORS)) {
        return DPE_OK;
    }
    bool factors = format == FORMAT_LONGROPE || format == FORMAT_GGUF_ROPE || is_flags(format);
    DPE_TRY(check_single(table, err));
    return dpe_rope_check_form(values, dpe_export_format_name(format), factors, err);
}

static dpe_status render(const struct dpe_export_arguments *args, enum export_format format,
                         const struct export_table *table, const struct dpe_short_text *short_text,
                         struct dpe_text *out, struct dpe_error *err)
{
    const struct dpe_table_values *values = dpe_table_values(table->table);
    char name[256];
    char *config = NULL;
    dpe_status status = DPE_OK;
    switch (format) {
    case FORMAT_JSON:
        return dpe_export_json(table->table, out, err);
    case FORMAT_CSV:
        status = check_temperature(args, values, err);
        return status == DPE_OK ? dpe_export_csv(values, out, err) : status;
    case FORMAT_SAFETENSORS:
        return dpe_export_safetensors(table->table, out, err);
    case FORMAT_YAML:
        status = check_temperature(args, values, err);
        if (status == DPE_OK) {
            status = model_name(args, values, name, err);
        }
        return status != DPE_OK
                   ? status
                   : dpe_export_yaml(values, name, args->scores != NULL ? args->scores : "", out,
                                     err);
    case FORMAT_PT:
        if (table->scores == NULL) {
            return dpe_fail(
                err, DPE_USAGE,
                "--format pt writes the scores of NORMS.h5: give it as the second argument");
        }
        return dpe_export_pt(table->scores, table->score_dims, out, err);
    case FORMAT_HF:
        if (args->model == NULL) {
            return dpe_fail(err, DPE_USAGE, "--format hf needs --model DIR for its config.json");
        }
        status = read_config(args->model, &config, err);
        if (status == DPE_OK) {
            status = dpe_export_hf(table->table, config, out, err);
        }
        free(config);
        return status;
    case FORMAT_LONGROPE:
        status = read_config(args->model, &config, err);
        if (status == DPE_OK) {
            status = dpe_export_longrope(values, args->model, config, short_text, out, err);
        }
        free(config);
        return status;
    case FORMAT_H5:
    case FORMAT_GGUF_ROPE:
    case FORMAT_UNKNOWN:
    default:
        if (is_flags(format)) {
            return dpe_export_flags(values, args->model, (enum dpe_flags_of)(format - FORMAT_FLAGS),
                                    out, err);
        }
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

static dpe_status write_output(const struct dpe_export_arguments *args,
                               const struct export_table *table, struct dpe_error *err)
{
    enum export_format format = args->format != NULL ? dpe_export_format_of(args->format)
                                                     : dpe_export_format_of_path(args->output);
    dpe_status status = check_kind(format, table->table, err);
    if (status != DPE_OK) {
        return status;
    }
    if (format == FORMAT_H5) {
        return dpe_export_write_h5(table, args->output, err);
    }
    if (table->selection[0] != '\0' && format != FORMAT_PT && !args->quiet) {
        dpe_log_warning(
            "the table was found under the selection %s, which no form applies and %s does "
            "not record",
            table->selection, dpe_export_format_name(format));
    }
    const struct dpe_table_values *values = dpe_table_values(table->table);
    struct dpe_short_text short_text = {0};
    const bool factors =
        format == FORMAT_GGUF_ROPE || format == FORMAT_LONGROPE || is_flags(format);
    if (factors) {
        const char *model = format == FORMAT_GGUF_ROPE ? args->gguf : args->model;
        status = dpe_short_text_measure(values, model, args->threads, &short_text, err);
    }
    if (status == DPE_OK && format == FORMAT_GGUF_ROPE) {
        status = dpe_export_gguf(values, args->gguf, args->output, &short_text, err);
    }
    struct dpe_text out = {0};
    if (status == DPE_OK && format != FORMAT_GGUF_ROPE) {
        status = render(args, format, table, &short_text, &out, err);
    }
    if (status == DPE_OK && to_stdout(args)) {
        fwrite(out.bytes, 1, out.n, stdout); /* dpe_tool_end reports a failure */
    } else if (status == DPE_OK && format != FORMAT_GGUF_ROPE) {
        status = dpe_write_atomic(args->output, out.bytes, out.n, err);
    }
    dpe_text_free(&out);
    if (status == DPE_OK && factors && !args->quiet) {
        dpe_short_text_log(values, &short_text,
                           is_flags(format)  ? "these options"
                           : to_stdout(args) ? "the file"
                                             : args->output);
    }
    return status;
}

/* The outcome as a document; it is `status` again, with its message. */
static dpe_status print_check(const char *folder, const char *fingerprint,
                              const struct dpe_table_values *values, dpe_status status,
                              enum dpe_result_format format, struct dpe_error *err)
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
    dpe_status printed = dpe_result_print(result, format, &why);
    return printed == DPE_OK ? status : dpe_fail(err, printed, "%s", why.text);
}

/* The table's shape and fingerprint against a folder. */
static dpe_status check_model(const char *folder, const struct dpe_table_values *values,
                              enum dpe_result_format format, struct dpe_error *err)
{
    struct dpe_model *model = NULL;
    dpe_status status = dpe_model_open(folder, NULL, &model, err);
    if (status != DPE_OK) {
        return status;
    }
    const struct dpe_config *config = dpe_model_config(model);
    const char *fingerprint = dpe_model_fingerprint(model);
    if (config->n_layers != values->n_layers || config->n_heads != values->n_heads ||
        config->n_kv_heads != values->n_kv_heads || config->head_dim != values->head_dim) {
        status = dpe_fail(
            err, DPE_BAD_DATA,
            "the table is for a model of %lld layers with %lld query and %lld key/value "
            "heads of %lld; %s has %lld layers with %lld and %lld heads of %lld",
            (long long)values->n_layers, (long long)values->n_heads, (long long)values->n_kv_heads,
            (long long)values->head_dim, folder, (long long)config->n_layers,
            (long long)config->n_heads, (long long)config->n_kv_heads, (long long)config->head_dim);
    } else if (strcmp(fingerprint, values->model_fingerprint) != 0) {
        status = dpe_fail(
            err, DPE_BAD_DATA,
            "the table was measured on the model %s; %s is %s, which has the same shape but "
            "other weights or another configuration",
            values->model_fingerprint, folder, fingerprint);
    }
    if (status == DPE_OK && format == DPE_RESULT_TEXT) {
        dpe_print("fits: %s is the model that the table was measured on\n", folder);
    } else if (format != DPE_RESULT_TEXT) {
        status = print_check(folder, fingerprint, values, status, format, err);
    }
    dpe_model_close(model);
    return status;
}

dpe_status dpe_export_do(const struct dpe_export_arguments *args, struct dpe_error *err)
{
    struct export_table table = {0};
    dpe_status status = args->output != NULL ? check_output(args, err) : DPE_OK;
    if (status == DPE_OK) {
        status = dpe_export_read(args, &table, err);
    }
    if (status == DPE_OK && args->show) {
        dpe_export_show(table.table, table.selection);
    }
    if (status == DPE_OK && args->check) {
        status = check_model(args->model, dpe_table_values(table.table), args->result, err);
    }
    if (status == DPE_OK && args->output != NULL) {
        status = dpe_signals_poll(NULL, err);
    }
    if (status == DPE_OK && args->output != NULL) {
        status = write_output(args, &table, err);
    }
    dpe_export_table_free(&table);
    return status;
}
