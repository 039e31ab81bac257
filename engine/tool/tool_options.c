/* Options of tools that run a model, and of tools with a resumable output. */
#include "engine/session/device.h"
#include "engine/session/ladder.h"
#include "engine/session/session.h"
#include "engine/tool/tool.h"

#include <stdlib.h>
#include <string.h>

static const struct dpe_option options_table[] = {
    {NULL, 0, NULL, 0, "Running:", 50},
    {"device", 0, "auto|cpu|cuda|cuda:N|reference", 0,
     "auto (default): cuda if this machine has one, otherwise cpu. reference is slow; the other "
     "devices are tested against it",
     50, DPE_TEXT(struct dpe_tool_options, device)},
    {"dtype", 0, "auto|f32|bf16", 0,
     "What the CPU multiplies in. bf16 rounds weights and activations and is taken where this "
     "machine is faster in it, as it is with AMX and mostly with AVX512-BF16. auto (default): so "
     "for models of bf16 or blocks, for others f32; a run goes on in the type that it began in. "
     "Results are recorded as of device cpu-bf16, or cpu. A GPU multiplies in the weights' own "
     "type (of blocks: bf16): only models of bf16 take bf16 there",
     50, DPE_CHOICE(struct dpe_tool_options, dtype, NULL)},
    {"threads", 0, "N", DPE_BASIC, "Threads to use (default: the cores it may use)", 50,
     DPE_COUNT(struct dpe_tool_options, threads, 1, 4096)},
    {"max-memory", 0, "BYTES", 0,
     "Use at most this much memory, e.g. 8G (default: the free memory). Keys and values that do "
     "not fit into it live in a file in $TMPDIR, or /var/tmp, on device cpu",
     50, DPE_BYTES(struct dpe_tool_options, max_memory)},
    {"kv-cache-dtype", 0, "f32|bf16|int8", 0,
     "Type of keys and values in the cache of device cpu (default: f32). Results of different "
     "types "
     "are different runs",
     50, DPE_CHOICE(struct dpe_tool_options, kv_type, dpe_kv_type_names),
     DPE_GIVEN(struct dpe_tool_options, kv_given)},
    {"time-budget", 0, "TIME", DPE_BASIC,
     "Stop after this time, e.g. 90, 30m, 2h, with exit code 75; if the tool writes a table, run "
     "the same command to continue",
     50, DPE_SECONDS(struct dpe_tool_options, time_budget, 0.0)},
    {"log-format", 0, "text|json", 0, "Format of the lines on stderr (default: text)", 50,
     DPE_CHOICE(struct dpe_tool_options, json, NULL)},
    {"quiet", 0, NULL, 0, "Print only warnings and errors on stderr", 50,
     DPE_SWITCH(struct dpe_tool_options, quiet)},
    {0},
};

static const struct dpe_option output_table[] = {
    {NULL, 0, NULL, 0, "Output:", 60},
    {"force", 0, NULL, DPE_BASIC,
     "Replace an output of another run; continue after a damaged journal record, and report what "
     "is "
     "lost",
     60, DPE_SWITCH(struct dpe_tool_options, force)},
    {0},
};

static void warn(const char *text)
{
    dpe_log_warning("%s", text);
}

static int check_device(int key, char *arg, struct dpe_command_line *state)
{
    struct dpe_tool_options *options = state->input;
    (void)arg;
    if (key != DPE_LINE_END) {
        return DPE_LINE_UNKNOWN;
    }
    dpe_memory_limit(options->max_memory);
    dpe_device_set_notice(warn);
    /* What is recorded with results is the device that made them. */
    if (options->device == NULL || strcmp(options->device, "auto") == 0) {
        dpe_device_resolve("auto", &options->device, NULL);
    }
    if (options->dtype == DPE_TOOL_BF16 && !dpe_cuda_is_name(options->device)) {
        if (strcmp(options->device, "cpu") != 0 && strcmp(options->device, "cpu-bf16") != 0) {
            dpe_line_error(state, "--dtype bf16: expected --device cpu or cuda, found '%s'",
                           options->device);
        }
        if (strcmp(options->device, "cpu") == 0) {
            options->device = dpe_device_fastest("cpu-bf16");
        }
        if (strcmp(options->device, "cpu") == 0 && !options->quiet) {
            dpe_log_info("--dtype bf16: this processor multiplies faster in f32: device cpu");
        }
    }
    return 0;
}

dpe_status dpe_tool_find_device(const struct dpe_tool_options *options,
                                const struct dpe_model *model, const char **device,
                                struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(model);
    const bool plain = options->device == NULL || strcmp(options->device, "cpu") == 0;
    const bool asked = options->dtype == DPE_TOOL_BF16 && !plain; /* plain: f32 is faster */
    *device = plain ? "cpu" : options->device;
    if (options->dtype == DPE_TOOL_AUTO && plain && dpe_config_unpacked(config) == DPE_BF16) {
        *device = dpe_device_fastest("cpu");
    }
    return !asked || dpe_model_weights(model) == NULL ||
                   dpe_device_dtype(*device, config) == DPE_BF16
               ? DPE_OK
               : dpe_fail(err, DPE_USAGE,
                          "--dtype bf16: device %s multiplies in the type of the model's weights, "
                          "which is not bf16; leave it out, or use --device cpu",
                          options->device);
}

const char *dpe_tool_kv_dir(void)
{
    const char *folder = getenv("TMPDIR");
    return folder == NULL || *folder == '\0' ? "/var/tmp" : folder;
}

void dpe_log_file(const struct dpe_session *session)
{
    uint64_t bytes = dpe_session_memory(session).file;
    if (bytes > 0) {
        char text[32];
        dpe_log_info("keys and values: %s in a file in %s, as they do not fit into --max-memory; "
                     "this is slower",
                     dpe_format_bytes(bytes, text), dpe_tool_kv_dir());
    }
}

const struct dpe_option_set dpe_tool_option_set = {.options = options_table,
                                                   .parser = check_device};
const struct dpe_option_set dpe_tool_output_option_set = {.options = output_table};

void dpe_log_chunk(const struct dpe_session *session, int64_t *reported)
{
    const struct dpe_session_limits limits = dpe_session_limits(session);
    if (limits.chunk < limits.full_chunk && limits.chunk != *reported) {
        dpe_log_rank("device memory is short: prefill chunks have %lld tokens instead of %lld",
                     (long long)limits.chunk, (long long)limits.full_chunk);
        *reported = limits.chunk;
    }
}
