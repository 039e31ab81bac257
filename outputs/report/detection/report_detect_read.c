/* A detection as the report reads it. */
#include "outputs/report/detection/report_detect.h"

#include <stdlib.h>
#include <string.h>

void dpe_detection_free(struct detection *detection)
{
    dpe_datasets_free(&dpe_ranking_kind, &detection->ranking);
    dpe_datasets_free(&dpe_ranking_kind, &detection->by_perplexity);
    dpe_datasets_free(&dpe_needle_cells_kind, &detection->recall);
    dpe_datasets_free(&dpe_book_cells_kind, &detection->perplexity);
    dpe_input_table_free(&detection->table);
    free(detection->rule);
    free(detection->rule_words);
    *detection = (struct detection){0};
}

/* Ranks and means of all tasks. */
static dpe_status read_cells(const struct input *input, struct detection *d, struct dpe_error *err)
{
    DPE_TRY(dpe_input_get(input, &dpe_ranking_kind, &d->ranking, "/detect", NULL, err));
    DPE_TRY(dpe_input_get(input, &dpe_needle_cells_kind, &d->recall, "/detect/niah",
                          "recall_mean ci_low ci_high n_valid", err));
    DPE_TRY(dpe_input_get(input, &dpe_book_cells_kind, &d->perplexity, "/detect/ppl",
                          "perplexity ci_low ci_high n_valid perplexity_at", err));
    if (dpe_h5_has(input->table, "/detect/ppl/rank")) {
        DPE_TRY(dpe_input_get(input, &dpe_ranking_kind, &d->by_perplexity, "/detect/ppl",
                              "rank informative", err));
    }
    DPE_TRY(dpe_input_table(input,
                            "effective_length scale_factor group_edge inv_freq trained_length "
                            "evaluated_length",
                            &d->table, err));
    d->n_groups = d->ranking.n[DPE_CELLS_GROUP];
    d->n_lengths = d->ranking.n[DPE_CELLS_LENGTH];
    const struct {
        int64_t found, expected;
        bool there;
    } extents[] = {
        {d->recall.n[DPE_CELLS_GROUP], d->n_groups, d->recall.recall_mean != NULL},
        {d->recall.n[DPE_CELLS_LENGTH], d->n_lengths, d->recall.recall_mean != NULL},
        {d->perplexity.n[DPE_CELLS_GROUP], d->n_groups, d->perplexity.perplexity != NULL},
        {d->perplexity.n[DPE_CELLS_LENGTH], d->n_lengths, d->perplexity.perplexity != NULL},
        {d->by_perplexity.n[DPE_CELLS_GROUP], d->n_groups, d->by_perplexity.rank != NULL},
        {d->by_perplexity.n[DPE_CELLS_LENGTH], d->n_lengths, d->by_perplexity.rank != NULL},
        {d->table.n[TABLE_GROUP], d->n_groups,
         d->table.effective_length != NULL || d->table.scale_factor != NULL},
        {d->table.n[TABLE_EDGE], d->n_groups + 1, d->table.group_edge != NULL},
    };
    for (size_t i = 0; i < sizeof extents / sizeof extents[0]; i++) {
        if (extents[i].there && extents[i].found != extents[i].expected) {
            return dpe_fail(err, DPE_BAD_DATA, "%s: /detect: expected %lld groups in every task",
                            input->path, (long long)d->n_groups);
        }
    }
    return DPE_OK;
}

dpe_status dpe_detection_read(const struct input *input, struct detection *d, struct dpe_error *err)
{
    *d = (struct detection){.input = input};
    DPE_TRY(read_cells(input, d, err));
    char *criterion = dpe_input_read_words(input, "/detect", "criterion");
    d->by_recall = criterion == NULL || strstr(criterion, "recall") != NULL;
    free(criterion);
    d->rule = dpe_input_read_words(input, "/select", "rule");
    d->rule_words = dpe_input_read_words(input, "/select", "rule_in_words");
    const char *move = dpe_identity_get(&input->identity, "move");
    d->frequencies = move != NULL && strcmp(move, "frequencies") == 0;
    return DPE_OK;
}

const char *dpe_detection_base(const struct detection *d)
{
    return d->frequencies ? "the frequencies kept that go round within the trained length and the "
                            "others brought back into it"
                          : "every group at half the trained length";
}

bool dpe_detection_is_selected(const struct detection *d)
{
    return d->table.effective_length != NULL && d->rule != NULL && strcmp(d->rule, "paper") != 0;
}

bool dpe_detection_is_ready(const struct detection *d)
{
    return d->rule != NULL && strcmp(d->rule, "ready") == 0;
}

double dpe_detection_length(const struct detection *d)
{
    const char *length = dpe_identity_get(&d->input->identity, "length");
    return d->table.evaluated_length != NULL ? *d->table.evaluated_length
           : length != NULL                  ? strtod(length, NULL)
                                             : (double)d->ranking.length[d->n_lengths - 1];
}

double dpe_detection_trained(const struct detection *d)
{
    return d->table.trained_length != NULL
               ? *d->table.trained_length
               : (double)dpe_input_read_whole(d->input, "/model", "max_position_embeddings", 0);
}
