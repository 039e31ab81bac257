/* Options of tools that run a model, and of tools with a resumable output. */
#include "engine/device/device.h"
#include "engine/session/session.h"
#include "engine/tool/tool.h"

#include <stdlib.h>
#include <string.h>

enum option_key {
    KEY_DEVICE = DPE_KEY_TOOL,
    KEY_DTYPE,
    KEY_THREADS,
    KEY_MAX_MEMORY,
    KEY_KV_TYPE,
    KEY_KV_DIR,
    KEY_TIME_BUDGET,
    KEY_LOG_FORMAT,
    KEY_QUIET,
    KEY_FORCE,
    KEY_SALVAGE,
    KEY_KEEP_JOURNAL,
    KEY_FORCE_UNLOCK,
    KEY_CHECK_OPTIONS,
};

static const struct dpe_option options_table[] = {
    {NULL, 0, NULL, 0, "Running:", 50},
    {"device", KEY_DEVICE, "auto|cpu|cuda|cuda:N|reference", 0,
     "auto (default): cuda if this machine has one, otherwise cpu. reference is slow; the other "
     "devices are tested against it",
     50},
    {"dtype", KEY_DTYPE, "f32|bf16", 0,
     "What the CPU multiplies in (default: f32). bf16 rounds weights and activations; it is "
     "faster on processors with AVX512-BF16, and its results are recorded as device cpu-bf16",
     50},
    {"threads", KEY_THREADS, "N", DPE_BASIC, "Threads to use (default: all cores)", 50},
    {"max-memory", KEY_MAX_MEMORY, "BYTES", 0,
     "Use at most this much memory, e.g. 8G (default: the free memory)", 50},
    {"kv-cache-dtype", KEY_KV_TYPE, "f32|bf16|int8", 0,
     "Type of keys and values in the cache of device cpu (default: f32). Results of different "
     "types "
     "are different runs",
     50},
    {"kv-cache-dir", KEY_KV_DIR, "DIR|none", 0,
     "Folder of the file for keys and values that do not fit into --max-memory on device cpu "
     "(default: "
     "$TMPDIR or /var/tmp; none: refuse them)",
     50},
    {"time-budget", KEY_TIME_BUDGET, "TIME", DPE_BASIC,
     "Stop after this time, e.g. 90, 30m, 2h, with exit code 75; if the tool writes a table, run "
     "the same command to continue",
     50},
    {"log-format", KEY_LOG_FORMAT, "text|json", 0, "Format of the lines on stderr (default: text)",
     50},
    {"quiet", KEY_QUIET, NULL, 0, "Print only warnings and errors on stderr", 50},
    {"check-options", KEY_CHECK_OPTIONS, NULL, DPE_HIDDEN, NULL, 50},
    {0},
};

static const struct dpe_option output_table[] = {
    {NULL, 0, NULL, 0, "Output:", 60},
    {"force", KEY_FORCE, NULL, DPE_BASIC, "Replace an output of another run", 60},
    {"salvage", KEY_SALVAGE, NULL, 0,
     "Continue after a damaged journal record; the tool reports what is lost", 60},
    {"keep-journal", KEY_KEEP_JOURNAL, NULL, 0, "Keep the journal next to the finished table", 60},
    {"force-unlock", KEY_FORCE_UNLOCK, NULL, 0,
     "Take over the lock of a run on another host that has ended", 60},
    {0},
};

static int parse_messages(int key, const char *arg, struct dpe_command_line *state,
                          struct dpe_tool_options *options)
{
    switch (key) {
    case KEY_LOG_FORMAT:
        options->json = dpe_parse_choice(state, "--log-format", arg,
                                         (const char *[]){"text", "json", NULL}) == 1;
        return 0;
    case KEY_QUIET:
        options->quiet = true;
        return 0;
    case KEY_CHECK_OPTIONS:
        options->check_options = true;
        return 0;
    default:
        return DPE_LINE_UNKNOWN;
    }
}

static int parse_output(int key, char *arg, struct dpe_command_line *state)
{
    struct dpe_tool_options *options = state->input;
    (void)arg;
    switch (key) {
    case KEY_FORCE:
        options->force = true;
        return 0;
    case KEY_SALVAGE:
        options->salvage = true;
        return 0;
    case KEY_KEEP_JOURNAL:
        options->keep_journal = true;
        return 0;
    case KEY_FORCE_UNLOCK:
        options->force_unlock = true;
        return 0;
    default:
        return DPE_LINE_UNKNOWN;
    }
}

static int parse_common(int key, char *arg, struct dpe_command_line *state)
{
    struct dpe_tool_options *options = state->input;
    switch (key) {
    case KEY_DEVICE:
        options->device = arg;
        return 0;
    case KEY_DTYPE:
        options->bf16 =
            dpe_parse_choice(state, "--dtype", arg, (const char *[]){"f32", "bf16", NULL}) == 1;
        return 0;
    case DPE_LINE_END:
        /* What is recorded with results is the device that made them. */
        if (options->device == NULL || strcmp(options->device, "auto") == 0) {
            dpe_device_resolve("auto", &options->device, NULL);
        }
        if (options->kv_dir != NULL && strcmp(options->kv_dir, "none") != 0 &&
            options->device != NULL && strncmp(options->device, "cpu", 3) != 0) {
            dpe_line_error(state,
                           "--kv-cache-dir: only device cpu keeps keys and values in a file, found "
                           "--device %s",
                           options->device);
        }
        if (options->bf16 && strcmp(options->device, "cpu") != 0 &&
            strcmp(options->device, "cpu-bf16") != 0) {
            dpe_line_error(state, "--dtype bf16: expected --device cpu, found '%s'",
                           options->device);
        }
        options->device = options->bf16 ? "cpu-bf16" : options->device;
        return 0;
    case KEY_THREADS:
        options->threads = (int)dpe_parse_count(state, "--threads", arg, 1, 4096);
        return 0;
    case KEY_MAX_MEMORY:
        if (!dpe_parse_bytes(arg, &options->max_memory)) {
            dpe_line_error(state, "--max-memory: expected bytes such as 8G, found '%s'", arg);
        }
        return 0;
    case KEY_KV_TYPE:
        options->kv_type =
            (enum dpe_kv_type)dpe_parse_choice(state, "--kv-cache-dtype", arg, dpe_kv_type_names);
        return 0;
    case KEY_KV_DIR:
        options->kv_dir = dpe_tool_path(state, "--kv-cache-dir", arg);
        return 0;
    case KEY_TIME_BUDGET:
        if (!dpe_parse_seconds(arg, &options->time_budget)) {
            dpe_line_error(state,
                           "--time-budget: expected a time such as 90, 30m or 2h, found '%s'", arg);
        }
        return 0;
    default:
        return parse_messages(key, arg, state, options);
    }
}

const char *dpe_tool_kv_dir(const struct dpe_tool_options *options)
{
    const char *folder = options->kv_dir != NULL ? options->kv_dir : getenv("TMPDIR");
    if (folder == NULL || *folder == '\0') {
        folder = "/var/tmp";
    }
    return strcmp(folder, "none") == 0 ? NULL : folder;
}

void dpe_log_file(const struct dpe_session *session, const struct dpe_tool_options *options)
{
    uint64_t bytes = dpe_session_file(session);
    if (bytes > 0) {
        char text[32];
        dpe_log_info("keys and values: %s in a file in %s, as they do not fit into --max-memory; "
                     "this is slower",
                     dpe_format_bytes(bytes, text), dpe_tool_kv_dir(options));
    }
}

const struct dpe_option_set dpe_tool_option_set = {.options = options_table,
                                                   .parser = parse_common};
const struct dpe_option_set dpe_tool_output_option_set = {.options = output_table,
                                                          .parser = parse_output};

void dpe_log_chunk(const struct dpe_session *session, int64_t *reported)
{
    int64_t chunk = dpe_session_chunk(session);
    if (chunk < dpe_session_full_chunk(session) && chunk != *reported) {
        dpe_log_rank("device memory is short: prefill chunks have %lld tokens instead of %lld",
                     (long long)chunk, (long long)dpe_session_full_chunk(session));
        *reported = chunk;
    }
}
