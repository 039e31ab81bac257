/* /race: what was dropped, when and on what grounds. */
#include <stdlib.h>

#include "detect/table/detect_table_internal.h"

void dpe_detect_put_race(struct dpe_h5 *table, const struct dpe_detect_report *report)
{
    const struct dpe_race *race = &report->race;
    const struct dpe_detect_params *params = &report->grid->params;
    const bool recall = dpe_detect_deciding(report)->criterion == DPE_DETECT_RECALL;
    if (!report->racing) {
        return;
    }
    const size_t n = (size_t)race->n_drops;
    struct dpe_dropped *drops = dpe_alloc(n, sizeof *drops);
    if (drops == NULL) {
        dpe_h5_stop(table, DPE_NO_MEMORY, "out of memory for %zu decisions", n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const struct dpe_race_drop *drop = &race->drops[i];
        drops[i] = (struct dpe_dropped){.group = drop->arm / params->n_lengths,
                                        .length = params->lengths[drop->arm % params->n_lengths],
                                        .leader = params->lengths[drop->leader % params->n_lengths],
                                        .samples = drop->samples,
                                        .difference = drop->difference,
                                        .p = drop->p};
    }
    const struct dpe_drops_result result = {.n = {params->n_groups, params->n_lengths, (int64_t)n},
                                            .after = race->dropped,
                                            .drops = drops};
    dpe_datasets_put(&dpe_drops_kinds[!recall], &result, "/race", table, NULL);
    dpe_h5_attr_f64(table, "/race", "level", report->race_options.level, NULL);
    dpe_h5_attr_f64(table, "/race", "indifference", report->race_options.indifference, NULL);
    dpe_h5_attr_i64(table, "/race", "per_round", report->race_options.per_round, NULL);
    dpe_h5_attr_text(table, "/race", "rule",
                     "after each round every length is compared with the best one that is left "
                     "by a paired one-sided sign-flip test (samples of one context are one); "
                     "p < level drops it; half the trained length is never dropped",
                     NULL);
    struct dpe_text words = {0};
    dpe_detect_race_words(report, &words);
    dpe_detect_put_words(table, "/race", "words", &words);
    free(drops);
}
