/* A detection as the report reads it. */
#include "outputs/report/detection/report_detect.h"

#include <stdlib.h>
#include <string.h>

void dpe_detection_free(struct detection *detection)
{
    struct numbers *const all[] = {
        &detection->inv_freq,  &detection->edge,   &detection->scale_factor, &detection->trained,
        &detection->evaluated, &detection->chosen, &detection->dropped};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        dpe_input_numbers_free(all[i]);
    }
    dpe_datasets_free(&dpe_ranking_kind, &detection->ranking);
    dpe_datasets_free(&dpe_ranking_kind, &detection->by_perplexity);
    dpe_datasets_free(&dpe_needle_cells_kind, &detection->recall);
    dpe_datasets_free(&dpe_book_cells_kind, &detection->perplexity);
    free(detection->criterion);
    free(detection->rule);
    free(detection->rule_words);
    *detection = (struct detection){0};
}

/* Ranks and means of all tasks. */
static dpe_status read_cells(const struct input *input, struct detection *d, struct dpe_error *err)
{
    dpe_status status = dpe_input_get(input, &dpe_ranking_kind, &d->ranking, "/detect", NULL, err);
    if (status == DPE_OK) {
        status = dpe_input_get(input, &dpe_needle_cells_kind, &d->recall, "/detect/niah",
                               "recall_mean ci_low ci_high n_valid", err);
    }
    if (status == DPE_OK) {
        status = dpe_input_get(input, &dpe_book_cells_kind, &d->perplexity, "/detect/ppl",
                               "perplexity ci_low ci_high n_valid", err);
    }
    if (status == DPE_OK && dpe_h5_has(input->table, "/detect/ppl/rank")) {
        status =
            dpe_input_get(input, &dpe_ranking_kind, &d->by_perplexity, "/detect/ppl",
                               "rank informative", err);
    }
    d->n_groups = d->ranking.n[DPE_CELLS_GROUP];
    d->n_lengths = d->ranking.n[DPE_CELLS_LENGTH];
    const int64_t *const others[] = {d->recall.n, d->perplexity.n, d->by_perplexity.n};
    const bool there[] = {d->recall.recall_mean != NULL, d->perplexity.perplexity != NULL,
                          d->by_perplexity.rank != NULL};
    for (int i = 0; i < 3 && status == DPE_OK; i++) {
        if (there[i] && (others[i][DPE_CELLS_GROUP] != d->n_groups ||
                         others[i][DPE_CELLS_LENGTH] != d->n_lengths)) {
            status = dpe_fail(err, DPE_BAD_DATA, "%s: /detect: expected %lld groups in every task",
                              input->path, (long long)d->n_groups);
        }
    }
    return status;
}

dpe_status dpe_detection_read(const struct input *input, struct detection *d, struct dpe_error *err)
{
    *d = (struct detection){.input = input};
    dpe_status status = read_cells(input, d, err);
    if (status != DPE_OK) {
        return status;
    }
    const int64_t groups = d->n_groups;
    const struct wanted rest[] = {
        {"/race/dropped_after", 2, {groups, d->n_lengths}, false, &d->dropped},
        {"/table/effective_length", 1, {groups}, false, &d->chosen},
        {"/table/inv_freq", 1, {-1}, false, &d->inv_freq},
        {"/table/group_edge", 1, {groups + 1}, false, &d->edge},
        {"/table/scale_factor", 1, {groups}, false, &d->scale_factor},
        {"/table/trained_length", 0, {0}, false, &d->trained},
        {"/table/evaluated_length", 0, {0}, false, &d->evaluated},
    };
    status = dpe_input_read_wanted(input, rest, sizeof rest / sizeof rest[0], err);
    d->criterion = dpe_input_read_words(input, "/detect", "criterion");
    char *niah = dpe_input_read_words(input, "/detect", "niah_parameters");
    dpe_identity_task_words(niah, d->task);
    free(niah);
    d->rule = dpe_input_read_words(input, "/select", "rule");
    d->rule_words = dpe_input_read_words(input, "/select", "rule_in_words");
    const char *move = dpe_identity_get(&input->identity, "move");
    d->frequencies = move != NULL && strcmp(move, "frequencies") == 0;
    d->by_recall = d->criterion == NULL || strstr(d->criterion, "recall") != NULL;
    return status;
}

const char *dpe_detection_base(const struct detection *d)
{
    return d->frequencies ? "the frequencies kept that go round within the trained length and the "
                            "others brought back into it"
                          : "every group at half the trained length";
}

bool dpe_detection_is_selected(const struct detection *d)
{
    return d->chosen.n > 0 && d->rule != NULL && strcmp(d->rule, "paper") != 0;
}

bool dpe_detection_is_ready(const struct detection *d)
{
    return d->rule != NULL && strcmp(d->rule, "ready") == 0;
}

double dpe_detection_length(const struct detection *d)
{
    const char *length = dpe_identity_get(&d->input->identity, "length");
    return d->evaluated.n == 1 ? d->evaluated.values[0]
           : length != NULL    ? strtod(length, NULL)
                               : (double)d->ranking.length[d->n_lengths - 1];
}

double dpe_detection_trained(const struct detection *d)
{
    return d->trained.n == 1
               ? d->trained.values[0]
               : (double)dpe_input_read_whole(d->input, "/model", "max_position_embeddings", 0);
}
