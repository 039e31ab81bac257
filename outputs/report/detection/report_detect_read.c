/* A detection as the report reads it. */
#include "outputs/report/detection/report_detect.h"

#include <stdlib.h>
#include <string.h>

void dpe_detection_free(struct detection *detection)
{
    struct numbers *const all[] = {&detection->length,
                                   &detection->effective,
                                   &detection->informative,
                                   &detection->p_value,
                                   &detection->rank,
                                   &detection->inv_freq,
                                   &detection->edge,
                                   &detection->scale_factor,
                                   &detection->trained,
                                   &detection->evaluated,
                                   &detection->recall.mean,
                                   &detection->recall.low,
                                   &detection->recall.high,
                                   &detection->perplexity.mean,
                                   &detection->perplexity.low,
                                   &detection->perplexity.high,
                                   &detection->perplexity.rank,
                                   &detection->perplexity.informative,
                                   &detection->chosen,
                                   &detection->dropped,
                                   &detection->recall.n_valid,
                                   &detection->perplexity.n_valid};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        dpe_input_numbers_free(all[i]);
    }
    free(detection->criterion);
    free(detection->rule);
    free(detection->rule_words);
    *detection = (struct detection){0};
}

dpe_status dpe_detection_read(const struct input *input, struct detection *d, struct dpe_error *err)
{
    *d = (struct detection){.input = input};
    const struct wanted axes[] = {
        {"/length", 1, {-1}, true, &d->length},
        {"/detect/effective_length", 1, {-1}, true, &d->effective},
    };
    dpe_status status = dpe_input_read_wanted(input, axes, 2, err);
    if (status != DPE_OK) {
        return status;
    }
    int64_t groups = d->n_groups = d->effective.dims[0];
    int64_t lengths = d->n_lengths = d->length.dims[0];
    const struct wanted rest[] = {
        {"/detect/rank", 2, {groups, lengths}, true, &d->rank},
        {"/detect/informative", 1, {groups}, false, &d->informative},
        {"/detect/p_value", 1, {groups}, false, &d->p_value},
        {"/detect/niah/recall_mean", 2, {groups, lengths}, false, &d->recall.mean},
        {"/detect/niah/ci_low", 2, {groups, lengths}, false, &d->recall.low},
        {"/detect/niah/ci_high", 2, {groups, lengths}, false, &d->recall.high},
        {"/detect/ppl/perplexity", 2, {groups, lengths}, false, &d->perplexity.mean},
        {"/detect/ppl/ci_low", 2, {groups, lengths}, false, &d->perplexity.low},
        {"/detect/ppl/ci_high", 2, {groups, lengths}, false, &d->perplexity.high},
        {"/detect/niah/n_valid", 2, {groups, lengths}, false, &d->recall.n_valid},
        {"/detect/ppl/n_valid", 2, {groups, lengths}, false, &d->perplexity.n_valid},
        {"/race/dropped_after", 2, {groups, lengths}, false, &d->dropped},
        {"/table/effective_length", 1, {groups}, false, &d->chosen},
        {"/detect/ppl/informative", 1, {groups}, false, &d->perplexity.informative},
        {"/detect/ppl/rank", 2, {groups, lengths}, false, &d->perplexity.rank},
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

double dpe_detection_length(const struct detection *d)
{
    const char *length = dpe_identity_get(&d->input->identity, "length");
    return d->evaluated.n == 1 ? d->evaluated.values[0]
           : length != NULL    ? strtod(length, NULL)
                               : d->length.values[d->n_lengths - 1];
}

double dpe_detection_trained(const struct detection *d)
{
    return d->trained.n == 1
               ? d->trained.values[0]
               : (double)dpe_input_read_whole(d->input, "/model", "max_position_embeddings", 0);
}
