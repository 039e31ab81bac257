/* The table and its forms: which there are, and the commands of dpe-export that write them. */
#include <string.h>

#include "detect/calibrate/calibrate_tool.h"

/* Every form: written from those before it in `from`. With several entries the first of them is the
 * table of one entry, which the second joins; other forms hold one entry, and stand beside its
 * table, or all of them. */
static const struct form {
    const char *name, *from[2];
    bool each;    /* one for each entry */
    bool several; /* only where there are several entries, from the tables of all */
    bool top_k, model, scores;
    bool drop;             /* it cannot carry an attention temperature */
    bool dpe;              /* it holds plans of DPE alone */
    const char *frequency; /* of frequencies alone: its --format; "": the one of its name */
    bool both;             /* of positions and of frequencies */
} forms[] = {
    {.name = "table.h5", .from = {"detect.h5", "norms.h5"}, .each = true, .top_k = true},
    {.name = "table.h5", .from = {"detect.h5"}, .frequency = ""},
    {.name = "table.h5", .several = true},
    {.name = "table.json", .from = {"table.h5"}, .both = true},
    {.name = "scores.pt", .from = {"detect.h5", "norms.h5"}},
    {.name = "table.yaml",
     .from = {"table.h5"},
     .each = true,
     .model = true,
     .scores = true,
     .drop = true,
     .dpe = true},
    {.name = "table.safetensors", .from = {"table.h5"}},
    {.name = "config.json", .from = {"table.h5"}, .model = true},
    {.name = "config.json", .from = {"table.h5"}, .model = true, .frequency = "longrope"},
    {.name = "table.csv", .from = {"table.h5"}, .each = true, .drop = true, .dpe = true},
};
enum { FORMS = sizeof forms / sizeof forms[0] };

/* A file that is to be written: a form, of an entry or (NULL) of all. */
struct file {
    const struct form *form;
    const struct entry *entry;
};

bool dpe_calibrate_factors(const struct batch *batch)
{
    return batch->n_entries == 1 && batch->entries[0].factors;
}

/* A config.json for runtimes is of tables that longrope can hold, one for the adapter of the tables
 * that need it; a table of frequencies that longrope cannot hold has none. */
static bool is_written(const struct batch *batch, const struct form *form)
{
    bool factors = dpe_calibrate_factors(batch);
    bool ours = batch->frequencies == (form->frequency != NULL);
    if (strcmp(form->name, "config.json") == 0) {
        ours = form->frequency != NULL ? factors : !factors && !batch->frequencies;
    }
    return (ours || form->both) && (!form->several || batch->n_entries > 1);
}

/* File i of the batch, in the order in which they are written; false when there are fewer. */
static bool find_file(const struct batch *batch, int i, struct file *file)
{
    for (int f = 0; f < FORMS; f++) {
        int n = !is_written(batch, &forms[f]) ? 0 : forms[f].each ? batch->n_entries : 1;
        for (int e = 0; e < n; e++) {
            bool held = !forms[f].dpe || !batch->entries[e].other;
            if (held && i-- == 0) {
                *file = (struct file){&forms[f], forms[f].each ? &batch->entries[e] : NULL};
                return true;
            }
        }
    }
    return false;
}

static void file_name(const struct file *file, char name[96])
{
    snprintf(name, 96, "%s%s", file->entry != NULL ? file->entry->folder : "", file->form->name);
}

/* An input: of the profile there is one, a detection is an entry's. */
static void add_input(const struct batch *batch, const struct file *file, const char *name,
                      struct argv *argv)
{
    bool own =
        strcmp(name, "detect.h5") == 0 || (file->entry != NULL && strcmp(name, "norms.h5") != 0);
    const struct entry *entry = file->entry != NULL ? file->entry : &batch->entries[0];
    if (own) {
        dpe_calibrate_argv_add_entry(argv, NULL, batch, entry, name);
    } else {
        dpe_calibrate_argv_add_path(argv, NULL, batch->args->job.output, name);
    }
}

/* Options come first in every command: with POSIXLY_CORRECT what stands after the first input is an
 * input. */
bool dpe_calibrate_export_argv(const struct batch *batch, int i, struct argv *argv)
{
    const struct calibrate_arguments *args = batch->args;
    struct file file;
    char name[96];
    if (!find_file(batch, i, &file)) {
        return false;
    }
    const struct form *form = file.form;
    file_name(&file, name);
    dpe_calibrate_argv_add(argv, "dpe-export");
    dpe_calibrate_argv_add_pair(argv, "--top-k", form->top_k ? file.entry->k : NULL);
    dpe_calibrate_argv_add_pair(argv, "--model", form->model ? args->job.model : NULL);
    if (form->frequency != NULL && form->frequency[0] != '\0') {
        dpe_calibrate_argv_add_pair(argv, "--format", form->frequency);
    }
    if (form->scores) { /* from the file's own folder: all of DIR can be moved */
        bool below = file.entry != NULL && file.entry->folder[0] != '\0';
        dpe_calibrate_argv_add_pair(argv, "--scores", below ? "../scores.pt" : "scores.pt");
    }
    if (form->drop) {
        dpe_calibrate_argv_add(argv, "--drop-temperature");
    }
    if (form->several) {
        dpe_calibrate_argv_add(argv, "--join");
    }
    dpe_calibrate_argv_add(argv, "--force");
    dpe_calibrate_argv_add_path(argv, "--output", args->job.output, name);
    for (int e = 0; e < batch->n_entries && form->several; e++) {
        dpe_calibrate_argv_add_entry(argv, NULL, batch, &batch->entries[e], "table.h5");
    }
    for (int f = 0; f < 2 && form->from[f] != NULL; f++) {
        add_input(batch, &file, form->from[f], argv);
    }
    return true;
}

bool dpe_calibrate_has_form(const struct batch *batch, const char *name)
{
    struct file file;
    char own[96];
    bool found = false;
    for (int i = 0; !found && find_file(batch, i, &file); i++) {
        file_name(&file, own);
        found = strcmp(own, name) == 0;
    }
    return found;
}

dpe_status dpe_calibrate_export_each(const struct batch *batch,
                                     dpe_status (*visit)(const struct batch *batch,
                                                         const char *name, struct dpe_error *err),
                                     struct dpe_error *err)
{
    struct file file;
    char name[96];
    dpe_status status = DPE_OK;
    for (int i = 0; status == DPE_OK && find_file(batch, i, &file); i++) {
        file_name(&file, name);
        status = visit(batch, name, err);
    }
    return status;
}

static dpe_status write_file(struct batch *batch, int i, const char *name, struct dpe_error *err)
{
    const struct dpe_job_options *job = &batch->args->job;
    struct argv argv = {0};
    dpe_status status =
        job->tool.force ? DPE_OK : dpe_calibrate_forms_check(job->output, name, err);
    if (status == DPE_OK) {
        status = dpe_calibrate_forms_drop(job->output, name, err);
    }
    if (status != DPE_OK) {
        return status;
    }
    dpe_calibrate_export_argv(batch, i, &argv);
    status = dpe_calibrate_run(batch, &argv, false, err);
    return status == DPE_OK && batch->code == 0 ? dpe_calibrate_forms_add(job->output, name, err)
                                                : status;
}

dpe_status dpe_calibrate_export(struct batch *batch, struct dpe_error *err)
{
    struct file file;
    char name[96];
    dpe_status status = dpe_calibrate_forms_tidy(batch, err);
    if (batch->frequencies && batch->alike && !dpe_calibrate_factors(batch)) {
        dpe_log_info(
            "config.json is left out: the model rotates a part of each head, and longrope's factor "
            "on "
            "the logits would scale that part alone; table.h5 and table.json hold the table");
    }
    for (int i = 0; status == DPE_OK && batch->code == 0 && find_file(batch, i, &file); i++) {
        file_name(&file, name);
        status = write_file(batch, i, name, err);
    }
    return status;
}
