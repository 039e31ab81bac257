/**
 * @file words.h
 * What results say. A builder for each kind of result: from the struct of kinds.h to blocks of a
 * page. A tool fills the struct, calls the builder and prints the page (dpe_page_print); dpe-report
 * reads the struct back from a table and calls the same builder. So a sentence stands here, once.
 */
#ifndef DPE_WORDS_H
#define DPE_WORDS_H

#include "outputs/datasets/kinds.h"
#include "outputs/datasets/worth.h"
#include "outputs/export/rope_forms.h"
#include "outputs/export/runtimes.h"
#include "outputs/page/page.h"

/** value × scale with its interval. */
static inline struct dpe_sheet_cell dpe_scaled_cell(const struct dpe_interval *value, double scale)
{
    return dpe_interval_cell(scale * value->mean, scale * value->low, scale * value->high);
}

/** What a profile does not hold itself. */
struct dpe_norms_words {
    const char *contribution;  /**< the rule of a pair's contribution; NULL: not known */
    int64_t k;                 /**< key pairs of each head that are marked */
    const char *k_source;      /**< whose number that is, "the table's" */
    const int32_t *group_edge; /**< [n_edges] pairs at which groups begin, and their end; or NULL */
    int64_t n_edges;
};
/** Three quarters of the pairs, as in the paper. */
int64_t dpe_words_usual_k(int64_t pairs);
/** A profile: mean, and sem where it is there. */
void dpe_words_norms(struct dpe_page *page, const struct dpe_norms_result *result,
                     const struct dpe_norms_words *of);

/** A suite of a comparison, and what its tool or its table says of it. */
struct dpe_suite_words {
    const struct dpe_suite_result *r;
    const char *name;        /**< "niah" */
    const char *title;       /**< "RULER" of ruler; the name when the table has none */
    const char *unit;        /**< "recall (share of needles found)": what a value is, on axes */
    const char *explanation; /**< what it measures */
    size_t against;          /**< the method that differences are relative to */
    int64_t together;        /**< samples in a row that count as one */
    int64_t trained;         /**< length, tokens; −1: not known */
    bool low_is_better;      /**< a perplexity; else a share, shown in percent */
    const double *made_for; /**< [method] longest length of its table, tokens, 0: not known; NULL */
    /* What follows (dpe_words_derive): */
    const char *measure; /**< the first words of the unit alone: "recall" */
    size_t n_methods, n_tasks, n_positions, n_categories, n_category_lengths; /**< as in r->n */
    bool single;    /**< all tasks have one label (they then differ in length alone) */
    double scale;   /**< what values are multiplied by: 100, or 1 */
    double longest; /**< the longest length that has a value (of those in an unfinished run) */
};
void dpe_words_derive(struct dpe_page *page, struct dpe_suite_words *suite);
/** Methods compared on it; and several suites of the same methods in one table. */
void dpe_words_suite(struct dpe_page *page, const struct dpe_suite_words *suite);
void dpe_words_glance(struct dpe_page *page, const struct dpe_suite_words *const *suites, size_t n);
/** Index of the first task's label at a length, −1 = none. */
int64_t dpe_words_task(const struct dpe_suite_words *suite, double length);
/** The value of a method at a task, as it is shown. */
struct dpe_sheet_cell dpe_words_cell(const struct dpe_suite_words *suite, size_t method,
                                     size_t task);
/** How its values are drawn: their axis, and the trained length as a line. */
struct dpe_plot dpe_words_plot(const struct dpe_suite_words *suite, enum dpe_plot_kind kind);

/** What a detection found, on fresh samples; as its tool or its table has it. */
struct dpe_detect_words {
    const struct dpe_scores_result *decides;       /**< of the task that plans were compared by */
    const struct dpe_scores_result *users, *texts; /**< of the user's own, where that is another;
                                                        of the guard's texts; NULL: not measured */
    const struct dpe_search_result *search;        /**< NULL: a sweep alone */
    int64_t spent;                                 /**< contexts that the search read */
    bool exhausted;                                /**< nothing was left to try */
    bool recall;                                   /**< needles decide; else perplexity */
    int64_t length, trained;                       /**< tokens */
    const char *task, *users_task;                 /**< the needles as a spec; NULL: not known */
    const char *kept,
        *chosen;       /**< plans: what the table holds, what was chosen before; NULL: kept */
    const char *plain; /**< the best of those that need no adapter; NULL: none */
};
/** The answer, at most twelve lines: which plan, up to which length the model is usable with it,
 * what it finds and predicts, what short texts lose, the best plan that needs no adapter, what was
 * tried. Nothing where nothing was validated. */
void dpe_words_detect(struct dpe_page *page, const struct dpe_detect_words *of);
/** The longest length that was read at which a plan finds at least this share of what the unchanged
 * model finds in the shortest; 0: not known. */
#define DPE_WORDS_USABLE 0.85
int64_t dpe_words_usable(const struct dpe_detect_words *of, const char *plan);
/** Groups of a sweep whose lengths may be first by chance; nothing where there are none. */
void dpe_words_noise(struct dpe_page *page, const struct dpe_ranking_result *ranking);
/** The map of a sweep's cells by a task, of recall or of perplexity, or of their ranks by it. */
void dpe_words_cells(struct dpe_page *page, const struct dpe_scores_result *scores,
                     const struct dpe_ranking_result *ranking, bool ranks, const char *caption);
/** "0.938 [0.900, 0.970]", a recall or a perplexity; "-": not known. */
void dpe_words_interval(bool recall, const struct dpe_interval *value, char text[64]);

/** Settings that were tuned, held on so many fresh samples; one needle by depth and length. */
void dpe_words_tune(struct dpe_page *page, const struct dpe_tune_result *result, int64_t fresh);
void dpe_words_grid(struct dpe_page *page, const struct dpe_grid_result *result);
/** Divergences from a base. */
struct dpe_kld_words {
    const char *base;
    int64_t length, trained; /**< of the texts, and that of the base; tokens */
};
void dpe_words_kld(struct dpe_page *page, const struct dpe_kld_result *result,
                   const struct dpe_kld_words *of);

/** What runtimes compute from a configuration, whose name this is; and apply of a table. */
void dpe_words_runtimes(struct dpe_page *page, const char *file,
                        const struct dpe_readings *readings);
void dpe_words_applied(struct dpe_page *page, const char *table, const struct dpe_applied *applied);

/** What a table is worth, line by line; and of a comparison at the trained length and the table's
 * (dpe-eval check), whether it holds on the model. */
void dpe_words_worth(struct dpe_page *page, const struct dpe_worth *worth);
void dpe_words_check(struct dpe_page *page, const struct dpe_suite_result *result, int64_t against);

#endif
