/* What results say, in the words of a terminal and of a page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "outputs/run/run.h"
#include "outputs/words/words.h"
#include "tests/outputs/outputs_fixture.h"

/* Four methods at two lengths; at the longer one 40 samples, of which the table finds most. */
enum { METHODS = 4, TASKS = 2 };
static struct dpe_interval means[METHODS * TASKS] = {
    {0.9, 0.8, 1.0, 40}, {0.1, 0.0, 0.2, 40}, {0.9, 0.8, 1.0, 40}, {0.5, 0.4, 0.6, 40},
    {0.9, 0.8, 1.0, 40}, {0.7, 0.6, 0.8, 40}, {0.9, 0.8, 1.0, 40}, {0.6, 0.5, 0.7, 40}};
static struct dpe_difference differences[METHODS * TASKS] = {
    {{.n = 40}, .p = 1.0}, {{-0.6, -0.7, -0.5, 40}, .p = 0.0004},
    {{.n = 40}, .p = 1.0}, {{-0.2, -0.3, -0.1, 40}, .p = 0.012},
    {{.n = 40}, .p = 1.0}, {{.n = 40}, .p = 1.0},
    {{.n = 40}, .p = 1.0}, {{-0.1, -0.3, 0.1, 40}, .p = 0.3}};
static const char *const methods[METHODS] = {"rope", "yarn", "table:a/t.h5", "linear"};
static int64_t lengths[TASKS] = {256, 1024};
static const struct dpe_suite_result compared = {.n = {METHODS, TASKS},
                                                 .method = methods,
                                                 .task_length = lengths,
                                                 .mean = means,
                                                 .difference = differences};

/* The lines of a page: its sentences, and its sheet. */
static void put_lines(const struct dpe_page *page, struct dpe_text *text)
{
    for (size_t i = 0; i < page->n; i++) {
        const struct dpe_block *block = &page->blocks[i];
        if (block->kind != BLOCK_SHEET) {
            dpe_text_put(text, "%s\n", block->text);
            continue;
        }
        dpe_text_put(text, "%s\n", block->sheet->title);
        for (size_t c = 0; c < block->sheet->n_cells; c++) {
            dpe_text_put(text, "%s%s", block->sheet->cells[c].text, c % 2 == 0 ? ": " : "\n");
        }
    }
}

static void says(const struct dpe_worth *worth, const char *expected)
{
    struct dpe_page page = {0};
    struct dpe_text text = {0};
    dpe_words_worth(&page, worth);
    put_lines(&page, &text);
    const char *lines = text.bytes;
    if (page.blocks[0].kind == BLOCK_LEAD) { /* the verdict */
        lines = strchr(lines, '\n') + 1;
    }
    assert_string_equal(lines, expected);
    dpe_text_free(&text);
    dpe_page_free(&page);
}

static void worth_of_a_table(void **state)
{
    static const char alone[] = "unchanged: 10 % (0 to 20)\n";
    static const char better[] = "the table: 70 % (60 to 80): better (p < 0.001)\n";
    struct dpe_worth worth;
    char expected[512];
    (void)state;
    dpe_worth_of(&compared, 1, false, 2, &worth);
    snprintf(expected, sizeof expected,
             "1024 tokens; 40 samples:\n%s%sbest other: linear, 60 %% (50 to 70): not shown to "
             "differ (p = 0.300), and needs no calibration\n",
             alone, better);
    says(&worth, expected);
    /* As good with needles, but texts are predicted worse: that is said, and it is not advised. */
    worth.texts[DPE_WORTH_TABLE] = 2.0;
    worth.texts[DPE_WORTH_RIVAL] = 3.24;
    snprintf(expected, sizeof expected,
             "1024 tokens; 40 samples:\n%s%sbest other: linear, 60 %% (50 to 70): not shown to "
             "differ (p = 0.300), but texts have perplexity 3.24 with it, 2.00 with the table\n",
             alone, better);
    says(&worth, expected);
    worth.texts[DPE_WORTH_RIVAL] = 2.05;
    worth.samples = 1;
    snprintf(expected, sizeof expected,
             "1024 tokens; 1 sample:\n%s%sbest other: linear, 60 %% (50 to 70): not shown to "
             "differ (p = 0.300), and needs no calibration\n",
             alone, better);
    says(&worth, expected);
    /* Worse than the model as it is. */
    worth.p = 0.02;
    worth.value[DPE_WORTH_ALONE] = worth.value[DPE_WORTH_TABLE];
    worth.value[DPE_WORTH_ALONE].mean = 0.8;
    worth.rival = NULL;
    says(&worth, "1024 tokens; 1 sample:\n"
                 "unchanged: 80 % (60 to 80)\n"
                 "the table: 70 % (60 to 80): worse (p = 0.020)\n");
    means[3].mean = 0.8;
    dpe_worth_of(&compared, 1, false, 2, &worth);
    worth.table = "t.h5";
    worth.trained = 256;
    worth.possible = 0.9;
    worth.task = "4 keys of one value";
    worth.validated = 8;
    says(&worth, "1024 tokens, 4 times the trained length; 40 samples of 4 keys of one value, 8 of "
                 "them of the validation:\n"
                 "unchanged: 10 % (0 to 20); 90 % at its trained length\n"
                 "t.h5: 70 % (60 to 80): better (p < 0.001)\n"
                 "best other: yarn, 80 % (40 to 60): the table is better (p = 0.012)\n"
                 "short texts: up to 256 tokens, the trained length, they run unchanged with the "
                 "table\n");
    /* Of a perplexity less is better; nothing is said of differences that are to another method. */
    dpe_worth_of(&compared, 1, true, 0, &worth);
    assert_string_equal(worth.rival, "linear");
    says(&worth, "1024 tokens; 40 books:\n"
                 "unchanged: perplexity 0.10 (0.00 to 0.20)\n"
                 "the table: perplexity 0.70 (0.60 to 0.80)\n"
                 "best other: linear, perplexity 0.60 (0.50 to 0.70)\n");
    means[3].mean = 0.5;
}

#define NO_LESS "the table: 70 % (60 to 80): not shown to differ (p = 1.000)"
#define OTHER   "best other: linear, 60 % (50 to 70): "

/* Where the model as it is has no less, no other method is advised either. It needs no table only
 * where it finds most of what is possible and predicts texts as well. */
static void worth_where_the_model_has_no_less(void **state)
{
    struct dpe_worth worth;
    (void)state;
    dpe_worth_of(&compared, 1, false, 2, &worth);
    worth.p = 1.0;
    worth.value[DPE_WORTH_ALONE] = worth.value[DPE_WORTH_TABLE];
    says(&worth, "1024 tokens; 40 samples:\nunchanged: 70 % (60 to 80)\n" NO_LESS "\n" OTHER
                 "not shown to differ (p = 0.300)\n");
    worth.possible = 0.8;
    says(&worth,
         "1024 tokens; 40 samples:\n"
         "unchanged: 70 % (60 to 80); 80 % at its trained length\n" NO_LESS
         "; the model needs no table at this length\n" OTHER "not shown to differ (p = 0.300)\n");
    worth.possible = 0.95;
    says(&worth, "1024 tokens; 40 samples:\n"
                 "unchanged: 70 % (60 to 80); 95 % at its trained length\n" NO_LESS "\n" OTHER
                 "not shown to differ (p = 0.300)\n");
    /* These needles say nothing of it. */
    worth.possible = worth.value[DPE_WORTH_ALONE].mean = worth.value[DPE_WORTH_TABLE].mean = 0.0;
    says(&worth, "1024 tokens; 40 samples:\n"
                 "unchanged: 0 % (60 to 80); 0 % at its trained length\n"
                 "the table: 0 % (60 to 80): not shown to differ (p = 1.000)\n" OTHER
                 "not shown to differ (p = 0.300)\n");
    worth.value[DPE_WORTH_ALONE].mean = worth.value[DPE_WORTH_TABLE].mean = 0.7;
    worth.possible = 0.8;
    worth.texts[DPE_WORTH_ALONE] = 55.5;
    worth.texts[DPE_WORTH_TABLE] = 4.5;
    worth.texts[DPE_WORTH_RIVAL] = 4.6;
    says(&worth, "1024 tokens; 40 samples:\n"
                 "unchanged: 70 % (60 to 80); 80 % at its trained length\n" NO_LESS
                 ", but texts have perplexity 55.50 without it, 4.50 with it\n" OTHER
                 "not shown to differ (p = 0.300), and needs no calibration\n");
}

/* A method that finds more is advised where texts do not pay for it. */
static void worth_beside_a_better_method(void **state)
{
    static const struct {
        double minus, texts;
        const char *says;
    } rows[] = {
        {0.2, 4.19, "the table is worse (p = 0.002), and needs no calibration"},
        {0.2, 7.0,
         "the table is worse (p = 0.002), but texts have perplexity 7.00 with it, 4.00 with "
         "the table"},
        {-0.2, 7.0, "the table is better (p = 0.002)"}};
    struct dpe_worth worth;
    (void)state;
    dpe_worth_of(&compared, 1, false, 2, &worth);
    worth.rival_minus.p = 0.002;
    worth.method[DPE_WORTH_ALONE] = -1;
    worth.texts[DPE_WORTH_TABLE] = 4.0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char expected[256];
        worth.rival_minus.minus.mean = rows[i].minus;
        worth.texts[DPE_WORTH_RIVAL] = rows[i].texts;
        snprintf(
            expected, sizeof expected,
            "1024 tokens; 40 samples:\nthe table: 70 %% (60 to 80): better (p < 0.001)\n%s%s\n",
            OTHER, rows[i].says);
        says(&worth, expected);
    }
}

static dpe_status fill_guard(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    static const char *const names[] = {"rope", "joint", "linear"};
    static const char *keys[] = {"k0", "k2", "k3"};
    static double perplexity[] = {9.0, 2.0, 3.24};
    const struct dpe_validated_result plans = {.n = {3}, .plan = keys};
    const struct dpe_scores_result guard = {
        .n = {[DPE_VALIDATED_PLAN] = 3}, .plan = names, .perplexity = perplexity};
    dpe_h5_put_scale(table, "/validated_plan", DPE_COL_STRING, names, 3, "plan", "1");
    dpe_datasets_put(&dpe_validated_kind, &plans, "/validate", table);
    dpe_datasets_put(&dpe_validated_scores_kinds[1], &guard, "/validate/guard", table);
    dpe_h5_attr_i64(table, "/validate/guard", "length", *(const int64_t *)user);
    return dpe_h5_failed(table, err);
}

/* The plans of a comparison are found in a detection by their keys, not their names. */
static void texts_of_a_detection(void **state)
{
    static const char *plans[METHODS * TASKS] = {"", "k0", "", "k1", "", "k2", "", "k3"};
    struct dpe_suite_result with_plans = compared;
    with_plans.plan = plans;
    for (int64_t length = 1024; length <= 2048; length += 1024) {
        struct scratch *scratch = *state;
        struct dpe_run *run = NULL;
        struct dpe_h5 *table = NULL;
        struct dpe_error err = {0};
        struct dpe_worth worth;
        scratch_clear(scratch);
        assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
        assert_int_equal(dpe_run_snapshot(run, true, fill_guard, &length, &err), DPE_OK);
        assert_int_equal(dpe_run_close(run, &err), DPE_OK);
        assert_int_equal(dpe_h5_open(scratch->table, &table, &err), DPE_OK);
        dpe_worth_of(&with_plans, 1, false, 2, &worth);
        worth.method[DPE_WORTH_RIVAL] = 3;
        worth.plan[DPE_WORTH_RIVAL] = plans[7];
        dpe_worth_texts(table, &worth);
        if (length == 1024) {
            assert_true(worth.texts[DPE_WORTH_ALONE] == 9.0);
            assert_true(worth.texts[DPE_WORTH_TABLE] == 2.0);
            assert_true(worth.texts[DPE_WORTH_RIVAL] == 3.24);
        } else {
            assert_true(isnan(worth.texts[DPE_WORTH_TABLE])); /* texts of another length */
        }
        dpe_h5_close(table);
    }
}

/* ------------------------------------------------------------------------------- a detection */

/* Three plans of which the formula was kept; texts of two shorter lengths. */
enum { PLANS = 3 };
static const char *const plans[PLANS] = {"rope", "dpe:window=48,lengths=256", "yarn"};
static double recall[PLANS] = {0.0, 0.8, 0.9}, recall_low[PLANS] = {0.0, 0.6, (double)NAN},
              recall_high[PLANS] = {0.3, 0.95, (double)NAN};
static int64_t valid[PLANS] = {8, 8, 8};
static struct dpe_difference kept_minus[PLANS] = {
    {{0.8, 0.4, 1.0, 8}, .p = 0.004}, {{.n = 8}, .p = 1.0}, {{-0.1, -0.3, 0.1, 8}, .p = 0.5}};
static const int64_t short_lengths[2] = {64, 256};
static struct dpe_interval shorter[2] = {{0.9, 0.8, 1.0, 8}, {0.85, 0.7, 1.0, 8}};
static const struct dpe_scores_result validated = {
    .n = {[DPE_VALIDATED_PLAN] = PLANS, [DPE_VALIDATED_SHORT] = 2},
    .plan = plans,
    .recall_mean = recall,
    .low = recall_low,
    .high = recall_high,
    .n_valid = valid,
    .kept = kept_minus,
    .short_length = short_lengths,
    .shorter = shorter};
static struct dpe_searched_plan tried[PLANS] = {
    {.method = "rope", .kind = "unchanged", .nll = (double)NAN},
    {.method = "dpe:window=48,lengths=256", .kind = "formula", .nll = 1.02},
    {.method = "yarn", .kind = "method", .plain = 1, .nll = 1.0}};
static const struct dpe_search_result search = {.n = {PLANS}, .tried = tried};

static struct dpe_detect_words found(void)
{
    return (struct dpe_detect_words){.decides = &validated,
                                     .search = &search,
                                     .spent = 16,
                                     .recall = true,
                                     .length = 1024,
                                     .trained = 256,
                                     .task = "keys=4,values=1,queries=1",
                                     .kept = plans[1],
                                     .chosen = plans[1],
                                     .plain = plans[2]};
}

static void answers(const struct dpe_detect_words *of, bool printed, const char *expected)
{
    struct dpe_page page = {.printed = printed};
    struct dpe_text text = {0};
    dpe_words_detect(&page, of);
    assert_true(page.n <= 12);
    put_lines(&page, &text);
    assert_string_equal(text.n > 0 ? text.bytes : "", expected);
    dpe_text_free(&text);
    dpe_page_free(&page);
}

static void answer_of_a_search(void **state)
{
    struct dpe_detect_words of = found();
    (void)state;
    answers(&of, true,
            "Take the formula of dpe; the table holds it\n"
            "plan: dpe:window=48,lengths=256\n"
            "usable length: unchanged 256 tokens, with it 1024 (85 % of what the model finds in a "
            "short text; read at 64, 256 and 1024, not between)\n"
            "recall in 1024 tokens of 4 keys of one value: 0.800 [0.600, 0.950], of 8 fresh "
            "samples; unchanged 0.000 [0.000, 0.300] (+0.800 [+0.400, +1.000], p = 0.004); "
            "possible 0.850 [0.700, 1.000], in 256 tokens\n"
            "of one text it loses 2.0 % of perplexity to the best; dpe-eval ppl compares more\n"
            "texts of up to 256 tokens run unchanged\n"
            "without an adapter: yarn, recall 0.900; the adapter is worth -0.100 [-0.300, "
            "+0.100], p = 0.500\n"
            "2 plans were tried in 16 contexts; a larger --budget tries more, with room of 5 "
            "points\n");
    assert_int_equal(dpe_words_usable(&of, "rope"), 256);
    /* Fresh samples showed another one, which runtimes read as it is and which changes short texts;
     * there is nothing more to find, and a page has sentences. */
    of.kept = plans[2];
    of.exhausted = true;
    shorter[1].mean = 0.5;
    answers(&of, false,
            "Take yarn: fresh samples show it to be better than the plan that was chosen.\n"
            "Usable length: unchanged 64 tokens, with it 1024 (85 % of what the model finds in a "
            "short text; read at 64, 256 and 1024, not between).\n"
            "Recall in 1024 tokens of 4 keys of one value: 0.900, of 8 fresh samples; unchanged "
            "0.000 [0.000, 0.300] (+0.800 [+0.400, +1.000], p = 0.004); possible 0.500 [0.700, "
            "1.000], in 256 tokens.\n"
            "Of one text it loses 0.0 % of perplexity to the best; dpe-eval ppl compares more.\n"
            "Texts of up to 256 tokens run unchanged with the table; without an adapter they "
            "change, and dpe-export says by how much.\n"
            "Without an adapter: yarn, recall 0.900.\n"
            "2 plans were tried in 16 contexts; nothing is left to try.\n");
    shorter[1].mean = 0.85;
    /* Of one context there is neither an interval nor a test. */
    const struct dpe_difference before = kept_minus[0];
    kept_minus[0].minus.low = kept_minus[0].minus.high = (double)NAN;
    kept_minus[0].p = 1.0;
    of = found();
    struct dpe_page page = {.printed = true};
    struct dpe_text text = {0};
    dpe_words_detect(&page, &of);
    put_lines(&page, &text);
    assert_non_null(strstr(text.bytes, "; unchanged 0.000 [0.000, 0.300] (+0.800); possible "));
    dpe_text_free(&text);
    dpe_page_free(&page);
    kept_minus[0] = before;
}

/* Whether the answer has this line. */
static void has_line(const struct dpe_detect_words *of, const char *expected, bool there)
{
    struct dpe_page page = {.printed = true};
    struct dpe_text text = {0};
    dpe_words_detect(&page, of);
    put_lines(&page, &text);
    assert_int_equal(strstr(text.bytes, expected) != NULL, there);
    dpe_text_free(&text);
    dpe_page_free(&page);
}

#define STATES "\nthe states or the rotation: where attention sees only the last 256 tokens "
static void answer_of_a_model_with_states(void **state)
{
    const struct dpe_searched_plan other = tried[2];
    struct dpe_detect_words of = found();
    (void)state;
    tried[2].method = "streaming-llm";
    tried[2].value = (struct dpe_interval){0.375, 0.25, 0.5, 2};
    tried[2].contexts = 1;
    tried[0].value = (struct dpe_interval){0.0625, (double)NAN, (double)NAN, 4};
    tried[0].contexts = 2;
    /* Of 1024 tokens the last 256 hold a quarter of the needles: an interval that reaches down to
     * it shows nothing of the states. */
    has_line(&of,
             STATES
             "recall is 0.375 [0.250, 0.500], as it is 0.062 (1 and 2 contexts); 25 % of the "
             "needles lie there, and that the states carry others is not shown: what is far "
             "needs attention, which a plan moves\n",
             true);
    tried[2].value.low = 0.26;
    has_line(&of,
             "; 25 % of the needles lie there, and that the states carry others is shown, whatever "
             "the plan\n",
             true);
    of.length = 2560;
    has_line(&of, "; 10 % of the needles lie there, and that the states carry others is shown",
             true);
    tried[2].value.low = (double)NAN;
    has_line(&of, "; 10 % of the needles lie there, and that the states carry others is not shown",
             true);
    tried[2].value.low = 0.09;
    has_line(&of, "; 10 % of the needles lie there, and that the states carry others is not shown",
             true);
    /* Needles at a depth that the user named have no such share, and perplexities none at all. */
    of.task = "keys=1,values=1,queries=1,digits=7,depth=0.25,repeat=0,special=error";
    has_line(&of, STATES "recall is 0.375 [0.090, 0.500], as it is 0.062 (1 and 2 contexts)\n",
             true);
    of.task = "keys=1,values=1,queries=1,digits=7,depth=drawn,repeat=0,special=error";
    has_line(&of, "10 % of the needles lie there", true);
    of.recall = false;
    has_line(&of, STATES "perplexity is 0.38 [0.09, 0.50], as it is 0.06 (1 and 2 contexts)\n",
             true);
    tried[2] = other;
    tried[0].value = (struct dpe_interval){0};
    tried[0].contexts = 0;
    has_line(&of, "the states", false);
}

static void answer_where_nothing_is_taken(void **state)
{
    struct dpe_detect_words of = found();
    (void)state;
    of.kept = plans[0];
    of.plain = NULL;
    answers(&of, true,
            "None of 2 plans is shown to help; the table leaves the model as it is\n"
            "usable length: unchanged 256 tokens (85 % of what the model finds in a short text; "
            "read at 64, 256 and 1024, not between)\n"
            "recall in 1024 tokens of 4 keys of one value: 0.000 [0.000, 0.300], of 8 fresh "
            "samples; possible 0.850 [0.700, 1.000], in 256 tokens\n"
            "no text was read: dpe-eval ppl compares perplexities, and a larger --budget reads "
            "some\n"
            "2 plans were tried in 16 contexts; a larger --budget tries more, with room of 85 "
            "points\n");
    recall[0] = 0.81;
    answers(&of, true,
            "You need nothing: the model as it is finds what is possible in 1024 tokens; the table "
            "leaves it as it is\n"
            "usable length: unchanged 1024 tokens (85 % of what the model finds in a short text; "
            "read at 64, 256 and 1024, not between)\n"
            "recall in 1024 tokens of 4 keys of one value: 0.810 [0.000, 0.300], of 8 fresh "
            "samples; possible 0.850 [0.700, 1.000], in 256 tokens\n"
            "no text was read: dpe-eval ppl compares perplexities, and a larger --budget reads "
            "some\n"
            "2 plans were tried in 16 contexts; a larger --budget tries more, with room of 4 "
            "points\n");
    /* At most the trained length: what a shorter text shows, or where none was read, all of it. */
    struct dpe_scores_result within = validated;
    of.decides = &within;
    within.n[DPE_VALIDATED_SHORT] = 1;
    recall[0] = 0.5;
    of.length = 256;
    answers(&of, true,
            "None of 2 plans is shown to help; the table leaves the model as it is\n"
            "usable length: unchanged 64 tokens (85 % of what the model finds in a short text; "
            "read at 64 and 256, not between)\n"
            "recall in 256 tokens of 4 keys of one value: 0.500 [0.000, 0.300], of 8 fresh "
            "samples; possible 0.900 [0.800, 1.000], in 64 tokens\n"
            "no text was read: dpe-eval ppl compares perplexities, and a larger --budget reads "
            "some\n"
            "2 plans were tried in 16 contexts; a larger --budget tries more, with room of 40 "
            "points\n");
    recall[0] = 0.96;
    of.length = 64;
    within.n[DPE_VALIDATED_SHORT] = 0;
    answers(&of, true,
            "You need nothing: the model as it is finds what is possible in 64 tokens; the table "
            "leaves it as it is\n"
            "recall in 64 tokens of 4 keys of one value: 0.960 [0.000, 0.300], of 8 fresh "
            "samples\n"
            "no text was read: dpe-eval ppl compares perplexities, and a larger --budget reads "
            "some\n"
            "2 plans were tried in 16 contexts; a larger --budget tries more\n");
    assert_int_equal(dpe_words_usable(&of, "rope"), 0);
    recall[0] = 0.0;
    of.decides = NULL;
    answers(&of, true, "");
}

/* By perplexity, of a sweep alone, with a task of the user's own beside it. */
static void answer_of_a_sweep(void **state)
{
    struct dpe_detect_words of = found();
    struct dpe_scores_result texts = validated;
    texts.recall_mean = NULL;
    texts.perplexity = recall;
    texts.n[DPE_VALIDATED_SHORT] = 0;
    (void)state;
    of.decides = &texts;
    of.users = &validated;
    of.users_task = "keys=1,values=1,queries=1";
    of.texts = &texts;
    of.search = NULL;
    of.recall = false;
    of.plain = NULL;
    answers(&of, true,
            "The table holds the sweep's plan: every group at its effective length\n"
            "perplexity in 1024 tokens: 0.80 [0.60, 0.95], of 8 fresh samples; unchanged 0.00 "
            "[0.00, 0.30] (+0.800 [+0.400, +1.000], p = 0.004)\n"
            "your own task: recall in 1024 tokens of one key of one value: 0.800 [0.600, 0.950], "
            "of 8 fresh samples; unchanged 0.000 [0.000, 0.300] (+0.800 [+0.400, +1.000], p = "
            "0.004); possible 0.850 [0.700, 1.000], in 256 tokens\n"
            "perplexity 0.80 [0.60, 0.95]; unchanged 0.00 [0.00, 0.30]\n"
            "texts of up to 256 tokens run unchanged\n");
}

static void groups_that_may_be_chance(void **state)
{
    static int64_t effective[4] = {64, 128, -1, 256};
    static uint8_t informative[4] = {0, 1, 0, 0};
    struct dpe_page page = {.printed = true};
    const struct dpe_ranking_result ranking = {
        .n = {4, 3}, .effective = effective, .informative = informative};
    (void)state;
    dpe_words_noise(&page, &ranking);
    assert_int_equal(page.n, 1);
    assert_string_equal(page.blocks[0].text,
                        "groups 0, 3: the lengths do not differ beyond noise, so rank 1 is a "
                        "matter of chance there; more --samples may help");
    dpe_page_free(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worth_of_a_table),
        cmocka_unit_test(worth_where_the_model_has_no_less),
        cmocka_unit_test(worth_beside_a_better_method),
        WITH_SCRATCH(texts_of_a_detection),
        cmocka_unit_test(answer_of_a_search),
        cmocka_unit_test(answer_of_a_model_with_states),
        cmocka_unit_test(answer_where_nothing_is_taken),
        cmocka_unit_test(answer_of_a_sweep),
        cmocka_unit_test(groups_that_may_be_chance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
