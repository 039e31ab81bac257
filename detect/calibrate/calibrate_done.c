/* DIR/complete.sha256: what a finished calibration was made from and what it wrote, so that the same
 * command again can leave everything as it is. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "detect/calibrate/calibrate_tool.h"
#include "outputs/storage/durable.h"
#include "outputs/storage/storage.h"

static const char name[] = "complete.sha256";

static void add_text(struct dpe_sha256 *hash, const char *text)
{
    text = text != NULL ? text : "";
    dpe_sha256_add(hash, text, strlen(text) + 1);
}

/* Everything on the command line that decides a result. */
static void add_options(struct dpe_sha256 *hash, const struct calibrate_arguments *args)
{
    const struct dpe_job_options *job = &args->job;
    const int64_t numbers[] = {job->length, job->trained_length, job->tensor_parallel};
    add_text(hash, dpe_version());
    add_text(hash, job->tool.device);
    add_text(hash, job->split);
    add_text(hash, args->top_k);
    add_text(hash, args->scratch ? "scratch" : "");
    add_text(hash, args->tunes ? "tuned" : "");
    dpe_sha256_add(hash, numbers, sizeof numbers);
    for (int i = 0; i < CALIBRATE_HANDED; i++) {
        add_text(hash, args->handed[i] != NULL ? "given" : "");
        add_text(hash, args->handed[i]);
    }
}

/* The files that the options name, by what is in them. */
static dpe_status add_inputs(struct dpe_sha256 *hash, const struct calibrate_arguments *args,
                             struct dpe_error *err)
{
    struct dpe_job_options options = args->job;
    struct dpe_job job = {0};
    options.output = NULL; /* a folder, which is not touched */
    options.tool.force = false;
    options.tensor_parallel = 1; /* nothing is run */
    dpe_status status = dpe_job_open(&job, &options, false, err);
    if (status == DPE_OK) {
        add_text(hash, dpe_model_fingerprint(job.model));
        add_text(hash, dpe_tokenizer_fingerprint(job.tokenizer));
        add_text(hash, dpe_corpus_fingerprint(job.corpus));
    }
    status = dpe_job_close(&job, status, err);
    const char *template = args->job.chat_template;
    char *bytes = NULL;
    size_t n = 0;
    if (status == DPE_OK && template != NULL && access(template, R_OK) == 0) {
        status = dpe_read_file(template, UINT64_C(1) << 24, &bytes, &n, err);
        if (status == DPE_OK) {
            dpe_sha256_add(hash, bytes, n);
        }
        free(bytes);
    }
    add_text(hash, template);
    return status;
}

static dpe_status is_there(const struct batch *batch, const char *form, struct dpe_error *err)
{
    char *path = dpe_calibrate_tools_path(batch->args->job.output, form);
    bool there = path != NULL && access(path, R_OK) == 0;
    free(path);
    return there ? DPE_OK : dpe_fail(err, DPE_NO_INPUT, "%s is missing", form);
}

static dpe_status add_file(struct dpe_sha256 *hash, const struct batch *batch, const char *folder,
                           const char *file, bool *missing, struct dpe_error *err)
{
    char of_file[65] = "";
    char full[128];
    snprintf(full, sizeof full, "%s%s", folder, file);
    dpe_status status = dpe_calibrate_hash_file(batch->args->job.output, full, of_file, err);
    *missing = *missing || of_file[0] == '\0';
    add_text(hash, of_file);
    return status;
}

/* The state of the folder under these arguments; "" when a result is missing, or the options name a
 * file that is not looked at here. */
static dpe_status find_state(const struct batch *batch, char hex[65], struct dpe_error *err)
{
    const struct calibrate_arguments *args = batch->args;
    const char *niah = dpe_calibrate_value(args, "--niah");
    hex[0] = '\0';
    if (niah != NULL && strstr(niah, "template=") != NULL) {
        return DPE_OK;
    }
    struct dpe_sha256 *hash = dpe_sha256_new();
    if (hash == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for a checksum");
    }
    static const char *const whole[] = {"norms.h5", "check.h5", "forms.sha256", "report.html"};
    dpe_status status = DPE_OK;
    bool missing = dpe_calibrate_export_each(batch, is_there, NULL) != DPE_OK;
    /* --move frequencies makes no profile: norms.h5 is left out. */
    for (size_t i = batch->frequencies ? 1 : 0; i < sizeof whole / sizeof whole[0] && status == DPE_OK; i++) {
        status = add_file(hash, batch, "", whole[i], &missing, err);
    }
    for (int e = 0; e < batch->n_entries && status == DPE_OK; e++) {
        const char *folder = batch->entries[e].folder;
        dpe_sha256_add(hash, &batch->entries[e].length, sizeof batch->entries[e].length);
        status = add_file(hash, batch, folder, "detect.h5", &missing, err);
        if (status == DPE_OK && args->tunes) {
            status = add_file(hash, batch, folder, "tune.h5", &missing, err);
        }
        if (status == DPE_OK && batch->chooses && !batch->entries[e].other) {
            status = add_file(hash, batch, folder, "ablate.h5", &missing, err);
        }
    }
    if (status == DPE_OK && !missing) {
        add_options(hash, args);
        status = add_inputs(hash, args, err);
    }
    dpe_sha256_finish(hash, hex);
    if (status != DPE_OK || missing) {
        hex[0] = '\0';
    }
    return status;
}

dpe_status dpe_calibrate_is_done(const struct batch *batch, bool *done, struct dpe_error *err)
{
    char *path = dpe_calibrate_tools_path(batch->args->job.output, name);
    char *text = NULL;
    size_t n = 0;
    char hex[65] = "";
    dpe_status status = path != NULL ? DPE_OK
                                     : dpe_fail(err, DPE_NO_MEMORY, "out of memory for a path");
    *done = false;
    if (status == DPE_OK && !batch->args->job.tool.force &&
        dpe_read_file(path, 4096, &text, &n, NULL) == DPE_OK && n >= 64) {
        status = find_state(batch, hex, err);
        *done = status == DPE_OK && hex[0] != '\0' && strncmp(text, hex, 64) == 0;
    }
    free(text);
    free(path);
    return status;
}

dpe_status dpe_calibrate_set_done(const struct batch *batch, struct dpe_error *err)
{
    char hex[65];
    char line[80];
    char *path = dpe_calibrate_tools_path(batch->args->job.output, name);
    dpe_status status = path != NULL ? find_state(batch, hex, err)
                                     : dpe_fail(err, DPE_NO_MEMORY, "out of memory for a path");
    if (status == DPE_OK && hex[0] != '\0') {
        int n = snprintf(line, sizeof line, "%s\n", hex);
        status = dpe_replace_file(path, line, (size_t)n, err);
    }
    free(path);
    return status;
}
