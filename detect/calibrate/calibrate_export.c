/* The table and its forms: which there are, and what each is made from. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "detect/calibrate/calibrate_tool.h"
#include "outputs/export/export_work.h"

/* Every form: written from those before it in `from`. With several entries the first of them is the
 * table of one entry, which the second joins; other forms hold one entry, and stand beside its
 * table, or all of them. */
static const struct form {
    const char *name, *from[2];
    bool each;    /* one for each entry */
    bool several; /* only where there are several entries, from the tables of all */
    bool top_k, model, scores;
    bool drop;          /* it cannot carry an attention temperature */
    bool dpe;           /* it holds plans of DPE alone */
    bool frequencies;   /* of frequencies alone */
    bool both;          /* of positions and of frequencies */
    const char *format; /* its --format; NULL: the one of its name */
    bool plain;         /* of the method that needs no adapter */
} forms[] = {
    {.name = "table.h5", .from = {"detect.h5", "norms.h5"}, .each = true, .top_k = true},
    {.name = "table.h5", .from = {"detect.h5"}, .frequencies = true},
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
    {.name = "config.json",
     .from = {"table.h5"},
     .model = true,
     .frequencies = true,
     .format = "longrope"},
    {.name = "no-adapter.h5", .each = true, .model = true, .plain = true},
    {.name = "no-adapter.json", .each = true, .model = true, .plain = true, .format = "longrope"},
    {.name = "table.csv", .from = {"table.h5"}, .each = true, .drop = true, .dpe = true},
};
enum { FORMS = sizeof forms / sizeof forms[0] };

/* A file that is to be written: a form, of an entry or (NULL) of all. */
struct file {
    const struct form *form;
    const struct entry *entry;
    char name[96]; /* in DIR */
};

bool dpe_calibrate_factors(const struct batch *batch)
{
    return batch->state.n_entries == 1 && batch->state.entries[0].factors;
}

/* A config.json for runtimes is of tables that longrope can hold, one for the adapter of the tables
 * that need it; a table of frequencies that longrope cannot hold has none. */
static bool is_written(const struct batch *batch, const struct form *form)
{
    bool factors = dpe_calibrate_factors(batch);
    bool ours = batch->frequencies == form->frequencies;
    if (strcmp(form->name, "config.json") == 0) {
        ours = form->frequencies ? factors : !factors && !batch->frequencies;
    }
    return (ours || form->both) && (!form->several || batch->state.n_entries > 1);
}

/* File i of the batch, in the order in which they are written; false when there are fewer. */
static bool find_file(const struct batch *batch, int i, struct file *file)
{
    for (int f = 0; f < FORMS; f++) {
        int n = !is_written(batch, &forms[f]) ? 0 : forms[f].each ? batch->state.n_entries : 1;
        for (int e = 0; e < n; e++) {
            const struct entry *entry = &batch->state.entries[e];
            bool held =
                (!forms[f].dpe || !entry->other) && (!forms[f].plain || entry->plain[0] != '\0');
            if (held && i-- == 0) {
                *file = (struct file){.form = &forms[f], .entry = forms[f].each ? entry : NULL};
                snprintf(file->name, sizeof file->name, "%s%s", forms[f].each ? entry->folder : "",
                         forms[f].name);
                return true;
            }
        }
    }
    return false;
}

/* An input: of the profile there is one, a detection is an entry's. */
static void add_input(struct batch *batch, const struct file *file, const char *name,
                      struct dpe_export_arguments *args)
{
    bool own =
        strcmp(name, "detect.h5") == 0 || (file->entry != NULL && strcmp(name, "norms.h5") != 0);
    const struct entry *entry = file->entry != NULL ? file->entry : &batch->state.entries[0];
    args->inputs[args->n_inputs++] = dpe_calibrate_path(batch, own ? entry : NULL, name);
}

/* A count of pairs, or a share, which an export takes as a negative number. */
static void set_top_k(const char *text, struct dpe_export_arguments *args)
{
    const bool all = strcmp(text, "all") == 0;
    const double k =
        all ? nextafter(1.0, 0.0) : strtod(text, NULL); /* the options have checked it */
    args->has_k = true;
    args->k = k < 1.0 ? -k : k;
}

static void fill_export(struct batch *batch, const struct file *file,
                        struct dpe_export_arguments *args)
{
    const struct form *form = file->form;
    *args = (struct dpe_export_arguments){
        .force = true,
        .threads = batch->args->detect.job.tool.threads,
        .output = dpe_calibrate_path(batch, NULL, file->name),
        .model = form->model ? batch->args->detect.job.model : NULL,
        .fingerprint = batch->job.remote != NULL ? dpe_job_fingerprint(&batch->job) : NULL,
        .drop_temperature = form->drop,
        .format = form->format,
        .quiet = batch->checked,
        .join = form->several};
    if (batch->checked && strcmp(form->name, "table.h5") == 0 && !form->several) {
        args->evidence = dpe_calibrate_path(batch, NULL, "check.h5");
        args->pooled = &batch->pooled;
    }
    if (form->top_k) {
        set_top_k(file->entry->k, args);
    }
    if (form->plain) {
        args->method = file->entry->plain;
        args->length = file->entry->length;
        args->trained = batch->args->detect.job.trained_length;
    }
    if (form->scores) { /* from the file's own folder: all of DIR can be moved */
        bool below = file->entry != NULL && file->entry->folder[0] != '\0';
        args->scores = below ? "../scores.pt" : "scores.pt";
    }
    for (int e = 0; e < batch->state.n_entries && form->several; e++) {
        args->inputs[args->n_inputs++] =
            dpe_calibrate_path(batch, &batch->state.entries[e], "table.h5");
    }
    for (int f = 0; f < 2 && form->from[f] != NULL; f++) {
        add_input(batch, file, form->from[f], args);
    }
}

bool dpe_calibrate_has_form(const struct batch *batch, const char *name)
{
    struct file file;
    for (int i = 0; find_file(batch, i, &file); i++) {
        if (strcmp(file.name, name) == 0) {
            return true;
        }
    }
    return false;
}

dpe_status dpe_calibrate_export_each(struct batch *batch, calibrate_visit visit,
                                     struct dpe_error *err)
{
    struct file file;
    for (int i = 0; find_file(batch, i, &file); i++) {
        DPE_TRY(visit(batch, file.name, err));
    }
    return DPE_OK;
}

static dpe_status write_file(struct batch *batch, const struct file *file, struct dpe_error *err)
{
    struct dpe_export_arguments args;
    DPE_TRY(dpe_calibrate_forms_drop(batch, file->name, err));
    fill_export(batch, file, &args);
    DPE_TRY(dpe_export_do(&args, err));
    return dpe_calibrate_forms_add(batch, file->name, err);
}

dpe_status dpe_calibrate_check_exports(struct batch *batch, struct dpe_error *err)
{
    struct dpe_export_arguments args;
    struct file file;
    for (int i = 0; find_file(batch, i, &file); i++) {
        fill_export(batch, &file, &args);
        const char *wrong = dpe_export_refusal(&args);
        if (wrong != NULL) {
            return dpe_fail(err, DPE_USAGE, "%s: %s", file.name, wrong);
        }
    }
    return DPE_OK;
}

dpe_status dpe_calibrate_export(struct batch *batch, struct dpe_error *err)
{
    struct file file;
    DPE_TRY(dpe_calibrate_forms_tidy(batch, err));
    if (batch->frequencies && batch->alike && !dpe_calibrate_factors(batch) && !batch->checked) {
        dpe_log_info(
            "config.json is left out: the model rotates a part of each head, and longrope's factor "
            "on the logits would scale that part alone; table.h5 and table.json hold the table");
    }
    for (int i = 0; find_file(batch, i, &file); i++) {
        DPE_TRY(write_file(batch, &file, err));
    }
    return DPE_OK;
}
