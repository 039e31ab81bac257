/* What the report owns, its inputs, and what is read of them. */
#include "engine/system/folder.h"
#include "outputs/report/report_parts.h"

#include <stdlib.h>
#include <string.h>

void dpe_report_free(struct dpe_report *report)
{
    for (size_t i = 0; i < report->n; i++) {
        dpe_h5_close(report->inputs[i].table);
        dpe_table_close(report->inputs[i].dpe);
        dpe_identity_free(&report->inputs[i].identity);
    }
    for (const struct dpe_report_read *read = report->read; read != NULL; read = read->before) {
        dpe_datasets_free(read->kind, read->result);
    }
    dpe_page_free(&report->page);
    *report = (struct dpe_report){0};
}

bool dpe_report_ok(struct dpe_report *report, dpe_status status)
{
    report->status = report->status == DPE_OK ? status : report->status;
    return report->status == DPE_OK;
}

/* -------------------------------------------------------------------------------------- reading */

void dpe_input_open(struct dpe_report *report, const char *path)
{
    struct dpe_report_input *input = &report->inputs[report->n];
    *input = (struct dpe_report_input){.path = path};
    if (!dpe_report_ok(report, dpe_h5_open(path, &input->table, report->err))) {
        return;
    }
    report->n++;
    const dpe_status loaded = dpe_h5_has(input->table, "/table")
                                  ? dpe_table_load(path, &input->dpe, report->err)
                                  : DPE_OK;
    /* A detection whose table no runtime would load is shown as one that is unfinished. */
    if ((loaded == DPE_NO_MEMORY || dpe_input_has_table(input)) && !dpe_report_ok(report, loaded)) {
        return;
    }
    if (!dpe_report_ok(report, dpe_h5_get_identity(input->table, &input->identity, report->err))) {
        return;
    }
    const char *kind = dpe_identity_get(&input->identity, "kind");
    const char *model = dpe_identity_get(&input->identity, "model");
    input->name = dpe_page_clean(&report->page, dpe_last_part(path), 0);
    input->kind = dpe_page_clean(&report->page, kind != NULL ? kind : "table", 0);
    input->fingerprint = model != NULL ? dpe_page_clean(&report->page, model, 0)
                                       : dpe_input_words(report, input, "/model", "fingerprint");
}

bool dpe_input_has_table(const struct dpe_report_input *input)
{
    return dpe_h5_has(input->table, "/table/length") ||
           (dpe_h5_has(input->table, "/table/mask") && !dpe_h5_has(input->table, "/detect"));
}

static void clean(char **text)
{
    char *cleaned = dpe_draw_clean_text(*text, 0);
    free(*text);
    *text = cleaned;
}

void *dpe_input_get(struct dpe_report *report, const struct dpe_report_input *input,
                    const struct dpe_dataset_kind *kind, const char *folder, const char *names)
{
    if (report->status != DPE_OK) {
        return NULL;
    }
    void *result = dpe_page_alloc(&report->page, DPE_INPUT_WORDS, sizeof(void *));
    struct dpe_report_read *read = dpe_page_alloc(&report->page, 1, sizeof *read);
    *read = (struct dpe_report_read){report->read, kind, result};
    report->read = read;
    if (!dpe_report_ok(report,
                       dpe_datasets_get(kind, result, folder, names, input->table, report->err))) {
        dpe_fail_prefix(report->err, "%s", input->path);
        return NULL;
    }
    dpe_datasets_texts(kind, result, clean);
    return result;
}

const char *dpe_input_words(struct dpe_report *report, const struct dpe_report_input *input,
                            const char *object, const char *name)
{
    DPE_OWNED char *value = NULL;
    dpe_h5_get_attr_text(input->table, object, name, &value, NULL);
    return dpe_page_clean(&report->page, value, 0);
}

bool dpe_input_says(const struct dpe_report_input *input, const char *object, const char *name,
                    const char *text)
{
    DPE_OWNED char *value = NULL;
    return dpe_h5_get_attr_text(input->table, object, name, &value, NULL) == DPE_OK &&
           strcmp(value, text) == 0;
}

int64_t dpe_input_read_whole(const struct dpe_report_input *input, const char *object,
                             const char *name, int64_t otherwise)
{
    int64_t value = 0;
    return dpe_h5_get_attr_i64(input->table, object, name, &value, NULL) == DPE_OK ? value
                                                                                   : otherwise;
}

char **dpe_input_names(struct dpe_report *report, const struct dpe_report_input *input,
                       const char *path, size_t *n)
{
    DPE_SCOPED(dpe_strings_drop) struct dpe_strings names = {0};
    *n = 0;
    if (report->status != DPE_OK || !dpe_h5_has(input->table, path) ||
        !dpe_report_ok(report,
                       dpe_h5_get_strings(input->table, path, &names.at, &names.n, report->err))) {
        return NULL;
    }
    char **kept = dpe_page_alloc(&report->page, names.n, sizeof *kept);
    for (size_t i = 0; i < names.n; i++) {
        kept[i] = dpe_page_clean(&report->page, names.at[i], 0);
    }
    *n = names.n;
    return kept;
}

const char *dpe_report_model(struct dpe_report *report, const char *otherwise)
{
    for (size_t i = 0; i < report->n; i++) {
        size_t n = 0;
        int length = 0;
        char **folders =
            dpe_input_names(report, &report->inputs[i], "/run/sessions/model_folder", &n);
        const char *name = n > 0 ? dpe_folder_name(folders[n - 1], &length) : "";
        if (length > 1 || (length == 1 && name[0] != '.')) {
            return folders[n - 1];
        }
    }
    return otherwise;
}

/* --------------------------------------------------------------------------------------- naming */

/* Whether an input is of the kind of the subject: it has the dataset, and is an ablation or not. An
 * ablation has the same datasets as a comparison and does not count as one. */
static bool is_alike(const struct dpe_report *report, const struct dpe_report_input *input)
{
    const struct dpe_report_subject *about = &report->about;
    return dpe_h5_has(input->table, about->has) &&
           dpe_h5_has(input->table, "/ablate") == dpe_h5_has(about->input->table, "/ablate");
}

/* The first thing in which the subject differs from all others of its kind, in words: "seed 1000";
 * its file's name where there is none that a reader would understand. */
static const char *difference(struct dpe_report *report)
{
    static const char *const unread[] = {"kind",   "model",      "tokenizer",
                                         "corpus", "end_tokens", "angle"};
    const struct dpe_report_input *input = report->about.input;
    for (size_t f = 0; f < input->identity.n; f++) {
        const char *name = input->identity.fields[f].name;
        const char *value = input->identity.fields[f].value;
        bool differs = strlen(value) <= 40 && DPE_NAMED(unread, name) == NULL;
        for (size_t i = 0; i < report->n && differs; i++) {
            const struct dpe_report_input *other = &report->inputs[i];
            const char *theirs = dpe_identity_get(&other->identity, name);
            differs = other == input || !is_alike(report, other) || theirs == NULL ||
                      strcmp(theirs, value) != 0;
        }
        if (differs) {
            char *words = dpe_page_text(&report->page, "%s %s", name, value);
            for (char *at = words; *at != '\0'; at++) {
                *at = (char)(*at == '_' ? ' ' : *at);
            }
            return words;
        }
    }
    return input->name;
}

void dpe_report_about(struct dpe_report *report, const struct dpe_report_input *input,
                      const char *has)
{
    struct dpe_page *page = &report->page;
    size_t n = 0;
    report->about = (struct dpe_report_subject){input, has};
    page->prefix[0] = page->suffix[0] = '\0';
    page->place = 0;
    for (size_t i = 0; i < report->n && input != NULL; i++) {
        page->place = &report->inputs[i] == input ? n : page->place;
        n += is_alike(report, &report->inputs[i]);
    }
    page->apart = n > 1 ? difference(report) : NULL;
    page->unfinished =
        input != NULL && dpe_input_read_whole(input, "/", "complete", 1) == 0 ? input->name : NULL;
}

/* ------------------------------------------------------------------------------------- the page */

void dpe_report_write_section(struct dpe_report *report, const struct dpe_section *section)
{
    if (section->has == NULL) {
        section->write(report);
    }
    for (size_t i = 0; i < report->n && section->has != NULL && report->status == DPE_OK; i++) {
        const struct dpe_report_input *input = &report->inputs[i];
        if (!dpe_h5_has(input->table, section->has) ||
            (section->unless != NULL && dpe_h5_has(input->table, section->unless))) {
            continue;
        }
        dpe_report_about(report, input, section->has);
        section->write(report);
    }
    dpe_report_about(report, NULL, NULL);
}
