/**
 * @file words.h
 * What results say. A builder for each kind of result: from the struct of kinds.h to blocks of a
 * page. A tool fills the struct, calls the builder and prints the page (dpe_page_print); dpe-report
 * reads the struct back from a table and calls the same builder. So a sentence stands here, once.
 */
#ifndef DPE_WORDS_H
#define DPE_WORDS_H

#include "outputs/datasets/kinds.h"
#include "outputs/page/page.h"

/** value × scale with its interval. */
static inline struct dpe_sheet_cell dpe_scaled_cell(const struct dpe_interval *value, double scale)
{
    return dpe_interval_cell(scale * value->mean, scale * value->low, scale * value->high);
}

/** What a profile does not hold itself. */
struct dpe_norms_words {
    const char *contribution; /**< the rule of a pair's contribution; NULL: not known */
    int64_t k;                /**< key pairs of each head that are marked */
    const char *k_source;     /**< whose number that is, "the table's" */
    const double *group_edge; /**< [n_edges] pairs at which groups begin, and their end; or NULL */
    int64_t n_edges;
};
/** Three quarters of the pairs, as in the paper. */
int64_t dpe_words_usual_k(int64_t pairs);
/** A profile: mean, and sem where it is there. */
void dpe_words_norms(struct dpe_page *page, const struct dpe_norms_result *result,
                     const struct dpe_norms_words *of);

#endif
