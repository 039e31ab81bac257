/* A detection as the report reads it. */
#include "outputs/report/detection/report_detect.h"

#include <stdlib.h>
#include <string.h>

/* Ranks and means of all tasks. False after a failure. */
static bool read_cells(struct dpe_report *report, struct dpe_report_detection *d)
{
    const struct dpe_report_input *input = d->input;
    d->ranking = dpe_input_get(report, input, &dpe_ranking_kind, "/detect", NULL);
    d->recall = dpe_input_get(report, input, &dpe_needle_cells_kind, "/detect/niah",
                              "recall_mean ci_low ci_high n_valid");
    d->perplexity = dpe_input_get(report, input, &dpe_book_cells_kind, "/detect/ppl",
                                  "perplexity ci_low ci_high n_valid perplexity_at");
    d->by_perplexity =
        dpe_h5_has(input->table, "/detect/ppl/rank")
            ? dpe_input_get(report, input, &dpe_ranking_kind, "/detect/ppl", "rank informative")
            : dpe_report_alloc(report, 1, sizeof(struct dpe_ranking_result));
    d->table = dpe_input_table(report, input,
                               "effective_length scale_factor group_edge inv_freq trained_length "
                               "evaluated_length");
    return report->status == DPE_OK;
}

static bool fits(const int64_t n[2], const void *values, int64_t first, int64_t second)
{
    return values == NULL || (n[0] == first && n[1] == second);
}

static bool check_extents(struct dpe_report *report, const struct dpe_report_detection *d)
{
    const int64_t groups = d->n_groups, lengths = d->n_lengths;
    const int64_t *n = d->table->n;
    const void *by_group =
        d->table->effective_length != NULL ? d->table->effective_length : d->table->scale_factor;
    bool fit = fits(d->recall->n, d->recall->recall_mean, groups, lengths) &&
               fits(d->perplexity->n, d->perplexity->perplexity, groups, lengths) &&
               fits(d->by_perplexity->n, d->by_perplexity->rank, groups, lengths) &&
               (by_group == NULL || n[TABLE_GROUP] == groups) &&
               (d->table->group_edge == NULL || n[TABLE_EDGE] == groups + 1);
    return fit || dpe_report_ok(report, dpe_fail(report->err, DPE_BAD_DATA,
                                                 "%s: /detect: expected %lld groups in every task",
                                                 d->input->path, (long long)groups));
}

const struct dpe_report_detection *dpe_detection_of(struct dpe_report *report)
{
    struct dpe_report_input *input = &report->inputs[report->about.input - report->inputs];
    struct dpe_report_detection *d = input->detection;
    if (d != NULL || (d = dpe_report_alloc(report, 1, sizeof *d)) == NULL) {
        return d;
    }
    d->input = input;
    if (!read_cells(report, d)) {
        return NULL;
    }
    d->n_groups = d->ranking->n[DPE_CELLS_GROUP];
    d->n_lengths = d->ranking->n[DPE_CELLS_LENGTH];
    if (!check_extents(report, d)) {
        return NULL;
    }
    const char *criterion = dpe_input_words(report, input, "/detect", "criterion");
    const char *move = dpe_identity_get(&input->identity, "move");
    d->by_recall = criterion == NULL || strstr(criterion, "recall") != NULL;
    d->rule = dpe_input_words(report, input, "/select", "rule");
    d->rule_words = dpe_input_words(report, input, "/select", "rule_in_words");
    d->frequencies = move != NULL && strcmp(move, "frequencies") == 0;
    input->detection = d;
    return d;
}

const char *dpe_detection_base(const struct dpe_report_detection *d)
{
    return d->frequencies ? "the frequencies kept that go round within the trained length and the "
                            "others brought back into it"
                          : "every group at half the trained length";
}

bool dpe_detection_is_selected(const struct dpe_report_detection *d)
{
    return d->table->effective_length != NULL && d->rule != NULL && strcmp(d->rule, "paper") != 0;
}

bool dpe_detection_is_ready(const struct dpe_report_detection *d)
{
    return d->rule != NULL && (strcmp(d->rule, "ready") == 0 || strcmp(d->rule, "brief") == 0);
}

double dpe_detection_length(const struct dpe_report_detection *d)
{
    const char *length = dpe_identity_get(&d->input->identity, "length");
    return d->table->evaluated_length != NULL ? *d->table->evaluated_length
           : length != NULL                   ? strtod(length, NULL)
                                              : (double)d->ranking->length[d->n_lengths - 1];
}

double dpe_detection_trained(const struct dpe_report_detection *d)
{
    return d->table->trained_length != NULL
               ? *d->table->trained_length
               : (double)dpe_input_read_whole(d->input, "/model", "max_position_embeddings", 0);
}
