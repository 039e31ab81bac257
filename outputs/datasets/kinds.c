/* The datasets of every kind of result: outputs/SCHEMA.md says the same for readers. */
#include "outputs/datasets/kinds.h"

#define F64          DPE_COL_F64
#define I64          DPE_COL_I64
#define TEXT         DPE_COL_STRING
#define COUNT(array) (sizeof(array) / sizeof(array)[0])
/* An axis 0, 1, 2, …; an axis with values; the values of an array, and of a member of its records.
 */
#define COUNTED(name, text)                                                                        \
    {                                                                                              \
        name, I64, NULL, DPE_DATASET_COUNT, 0, 0, text, "1", NULL, false                           \
    }
#define SCALE_OF(result, member, name_, type_, text, units_)                                       \
    .name = name_, .type = type_, DPE_IN_ARRAY(result, member), .long_name = text, .units = units_
#define SCALE(...)                                                                                 \
    {                                                                                              \
        SCALE_OF(__VA_ARGS__)                                                                      \
    }
#define ARRAY(result, member, name_, type_, axes_, text, units_)                                   \
    SCALE_OF(result, member, name_, type_, text, units_), .axes = axes_
#define MEMBER(result, array, record, member, name_, type_, axes_, text, units_)                   \
    .name = name_, .type = type_, .axes = axes_, DPE_IN_RECORDS(result, array, record, member),    \
    .long_name = text, .units = units_
#define OPTIONAL(...)                                                                              \
    {                                                                                              \
        __VA_ARGS__, .optional = true                                                              \
    }
#define RECORD_SCALE(result, array, record, member, text)                                          \
    {                                                                                              \
        .name = #member, .type = TEXT, DPE_IN_RECORDS(result, array, record, member),              \
        .long_name = text, .units = "1"                                                            \
    }
/* A kind of shares; one of shares and one of perplexity. */
#define KIND(array)                                                                                \
    {                                                                                              \
        array, COUNT(array), "1"                                                                   \
    }
#define BY_SCORE(array)                                                                            \
    {                                                                                              \
        KIND(array),                                                                               \
        {                                                                                          \
            array, COUNT(array), "nats/token"                                                      \
        }                                                                                          \
    }
#define SHORT_LOW  "lower end of its 95 % interval"
#define SHORT_HIGH "upper end of its 95 % interval"
/* A comparison: struct dpe_difference in the records of `array_`, `base` bytes from their
 * beginning. */
#define PAIRED(member, type_, name_, units_, text, result, array_, base, prefix, axes_)            \
    {                                                                                              \
        .name = prefix name_, .type = type_, .axes = axes_, DPE_IN_ARRAY(result, array_),          \
        .at = (base) + offsetof(struct dpe_difference, member), .long_name = text,                 \
        .units = units_, .optional = true                                                          \
    }
#define PAIRED_NUMBER(member, name, units, text, ...)                                              \
    , PAIRED(member, F64, name, units, text, __VA_ARGS__)
#define DIFFERENCE(result, array, base, name, prefix, axes, text)                                  \
    PAIRED(minus.mean, F64, name, NULL, text, result, array, base, "", axes),                      \
        PAIRED(minus.low, F64, name "_low", NULL, SHORT_LOW, result, array, base, "", axes),       \
        PAIRED(minus.high, F64, name "_high", NULL, SHORT_HIGH, result, array, base, "", axes),    \
        PAIRED(minus.n, I64, "n_pairs", "1", "samples valid under both", result, array, base,      \
               prefix, axes)                                                                       \
            DPE_DIFFERENCE_NUMBERS(PAIRED_NUMBER, result, array, base, prefix, axes)
#define INTERVAL(result, array, member, name, axes, text, units)                                   \
    MEMBER(result, array, struct dpe_interval, member, name, F64, axes, text, units)
#define COUNTS(result, array, name, axes, text)                                                    \
    MEMBER(result, array, struct dpe_interval, n, name, I64, axes, text, "1")
static const char method_text[] = "method, as it was given";
static const char plan_text[] = "key of the position plan in /plans/plan";
static const char status_text[] = "what became of the sample; -1 = not run";
static const char half_text[] = "at least half of the values were found";

/* --------------------------------------------------------------------------------------- norms */

#define NORMS struct dpe_norms_result
#define CELL  "layer head pair"
static const struct dpe_dataset norms[] = {
    SCALE(NORMS, length, "length", I64, "tokens of an excerpt", "tokens"),
    COUNTED("sample", "index of an excerpt"),
    COUNTED("layer", "layer"),
    COUNTED("head", "query head"),
    COUNTED("pair", "pair of head dimensions"),
    COUNTED("k", "place in the ranking"),
    {ARRAY(NORMS, contribution, "contribution", DPE_COL_F32, "length sample " CELL,
           "2-norm contribution of a pair to the logits of its head", "1")},
    {ARRAY(NORMS, mean, "mean", F64, CELL,
           "mean contribution over the lengths and samples that are there", "1")},
    OPTIONAL(ARRAY(NORMS, sem, "sem", F64, CELL, "standard error of the mean contribution", "1")),
    {ARRAY(
        NORMS, ranking, "top_k_index", DPE_COL_U16, "layer head k",
        "pairs by descending mean contribution, ties to the lower pair: the first k are the top-k, "
        "the last k the last-k",
        "1")},
};
const struct dpe_dataset_kind dpe_norms_kind = KIND(norms);

/* ---------------------------------------------------------------------------------------- tune */

#define TUNED(member, name, type, text, units)                                                     \
    {                                                                                              \
        MEMBER(struct dpe_tune_result, tuned, struct dpe_tuned, member, name, type, "method",      \
               text, units)                                                                        \
    }
#define TUNED_ENDS(member, name)                                                                   \
    TUNED(member.low, name "ci_low", F64, "ends of its 95 % interval", "1"),                       \
        TUNED(member.high, name "ci_high", F64, "ends of its 95 % interval", "1")
static const struct dpe_dataset tune[] = {
    RECORD_SCALE(struct dpe_tune_result, tuned, struct dpe_tuned, method, method_text),
    TUNED(chosen, "chosen", TEXT, "the setting that its search chose", "1"),
    TUNED(length, "length", I64, "prompt and answer together", "tokens"),
    TUNED(rows, "rows", I64, "rows of its search", "1"),
    TUNED(samples, "samples", I64, "samples that the chosen setting ran", "1"),
    TUNED(plain.mean, "default_mean", F64, "recall of the method at its defaults, fresh samples",
          "1"),
    TUNED_ENDS(plain, "default_"),
    TUNED(tuned.mean, "mean", F64, "recall of the chosen setting, fresh samples", "1"),
    TUNED_ENDS(tuned, ""),
    DIFFERENCE(struct dpe_tune_result, tuned, offsetof(struct dpe_tuned, gain), "gain", "gain_",
               "method", "chosen setting less the defaults, paired"),
    DIFFERENCE(struct dpe_tune_result, tuned, offsetof(struct dpe_tuned, ahead), "ahead", "ahead_",
               "method", "chosen setting less that of the first method, paired"),
};
const struct dpe_dataset_kind dpe_tune_kind = KIND(tune);

#define RACED(member, name, type, text)                                                            \
    {                                                                                              \
        MEMBER(struct dpe_race_result, raced, struct dpe_raced, member, name, type, "spec", text,  \
               "1")                                                                                \
    }
static const struct dpe_dataset race[] = {
    RECORD_SCALE(struct dpe_race_result, raced, struct dpe_raced, spec, "a setting that was tried"),
    RACED(plan, "plan", TEXT, "key in /plans/plan"),
    RACED(of, "of", I64, "index into /tune/method"),
    RACED(samples, "samples", I64, "samples that it ran"),
    RACED(dropped, "dropped", I64, "samples after which it was dropped, -1 = it read to the end"),
    RACED(mean, "mean", F64, "recall in its search"),
};
const struct dpe_dataset_kind dpe_race_kind = KIND(race);

/* ----------------------------------------------------------------------------------- detection */

#define SCORES struct dpe_scores_result
#define EACH(member, name, type, axes, text, units)                                                \
    OPTIONAL(ARRAY(SCORES, member, name, type, axes, text, units))
/* Of every sample of a cell, and of the cells. */
#define SCORED(cell, sample, perplexity_text)                                                      \
    EACH(recall, "recall", F64, sample, "share of the values found in the answer", "1"),           \
        EACH(half, "at_least_half", F64, sample,                                                   \
             "1 when at least half of the values were found, else 0", "1"),                        \
        EACH(prompt_tokens, "prompt_tokens", I64, sample, "tokens of the prompt", "tokens"),       \
        EACH(new_tokens, "new_tokens", I64, sample, "generated tokens", "tokens"),                 \
        EACH(seed, "seed", DPE_COL_U64, sample, "seed of the sample, 0 = not run", "1"),           \
        EACH(nll_sum, "nll_sum", F64, sample, "sum of negative log-likelihoods", "nats"),          \
        EACH(n_tokens, "n_tokens", I64, sample, "scored tokens", "tokens"),                        \
        EACH(n_words, "n_words", I64, sample, "words of the scored text", "words"),                \
        {ARRAY(SCORES, status, "status", DPE_COL_I32, sample,                                      \
               "what became of the row; -1 = not run", "1"),                                       \
         .flag_meanings = "ok nonfinite failed", .optional = true},                                \
        EACH(recall_mean, "recall_mean", F64, cell, "mean recall over valid samples", "1"),        \
        EACH(perplexity, "perplexity", F64, cell, perplexity_text, "1"),                           \
        EACH(low, "ci_low", F64, cell, SHORT_LOW, "1"),                                            \
        EACH(high, "ci_high", F64, cell, SHORT_HIGH, "1"),                                         \
        EACH(n_valid, "n_valid", I64, cell, "valid rows", "1")
#define POSITIONS                                                                                  \
    OPTIONAL(SCALE_OF(SCORES, position, "position", I64,                                           \
                      "first position of a range that ends before the next power of two",          \
                      "tokens"))
#define AT_POSITIONS(axes)                                                                         \
    EACH(perplexity_at, "perplexity_at", F64, axes " position",                                    \
         "exp(sum of NLL / tokens) of the tokens in the range", "1")
static const char of_books[] = "exp(sum of NLL / tokens) over valid books, token level";
static const struct dpe_dataset needle_cells[] = {
    COUNTED("/group", "group"),
    SCALE(SCORES, length, "/length", I64, "detecting length", "tokens"),
    COUNTED("/sample", "sample"),
    SCORED("/group /length", "/group /length /sample", of_books),
};
const struct dpe_dataset_kind dpe_needle_cells_kind = KIND(needle_cells);
static const struct dpe_dataset book_cells[] = {
    COUNTED("/group", "group"),
    SCALE(SCORES, length, "/length", I64, "detecting length", "tokens"),
    COUNTED("/book", "book"),
    POSITIONS,
    SCORED("/group /length", "/group /length /book", of_books),
    AT_POSITIONS("/group /length"),
};
const struct dpe_dataset_kind dpe_book_cells_kind = KIND(book_cells);

static const struct dpe_dataset validated[] = {
    SCALE(SCORES, plan, "/validated_plan", TEXT, "validated plan", "1"),
    COUNTED("validated_sample", "sample of the validation"),
    POSITIONS,
    OPTIONAL(SCALE_OF(SCORES, short_length, "short_length", I64,
                      "length of texts that the model as it is read too", "tokens")),
    SCORED("/validated_plan", "/validated_plan validated_sample",
           "exp(sum of NLL / tokens), token level"),
    DIFFERENCE(SCORES, kept, 0, "kept_minus", "kept_", "/validated_plan",
               "mean paired difference, kept plan - plan"),
    EACH(needed, "samples_needed", I64, "/validated_plan",
         "samples that would show kept_minus, 0 = not known", "1"),
    EACH(verdict, "kept_is", TEXT, "/validated_plan",
         "what the samples show of the kept plan against the plan", "1"),
    AT_POSITIONS("/validated_plan"),
    OPTIONAL(INTERVAL(SCORES, shorter, mean, "short_mean", "short_length",
                      "mean recall of the model as it is there", "1")),
    OPTIONAL(INTERVAL(SCORES, shorter, low, "short_ci_low", "short_length", SHORT_LOW, "1")),
    OPTIONAL(INTERVAL(SCORES, shorter, high, "short_ci_high", "short_length", SHORT_HIGH, "1")),
    OPTIONAL(COUNTS(SCORES, shorter, "short_n_valid", "short_length", "valid samples")),
};
const struct dpe_dataset_kind dpe_validated_scores_kinds[2] = BY_SCORE(validated);

const struct dpe_interval *dpe_validated_possible(const struct dpe_scores_result *scores)
{
    const int64_t n = scores->n[DPE_VALIDATED_SHORT];
    return n > 0 && scores->shorter != NULL ? &scores->shorter[n - 1] : NULL;
}

#define RANKING struct dpe_ranking_result
static const struct dpe_dataset ranking[] = {
    COUNTED("/group", "group"),
    SCALE(RANKING, length, "/length", I64, "detecting length", "tokens"),
    {ARRAY(RANKING, rank, "rank", DPE_COL_I32, "/group /length",
           "rank of the detecting length in its group, 1 = best", "1")},
    {ARRAY(RANKING, effective, "effective_length", I64, "/group",
           "detecting length of rank 1, -1 = none", "tokens")},
    OPTIONAL(ARRAY(RANKING, informative, "informative", DPE_COL_U8, "/group",
                   "whether the lengths of the group differ beyond noise", "1"),
             .flag_meanings = "no yes"),
    OPTIONAL(ARRAY(RANKING, p_value, "p_value", F64, "/group",
                   "p-value of: the lengths of the group do not differ", "1")),
};
const struct dpe_dataset_kind dpe_ranking_kind = KIND(ranking);

static const struct dpe_dataset cells[] = {
    COUNTED("/group", "group"),
    COUNTED("/length", "detecting length"),
    {ARRAY(struct dpe_cells_result, plan, "plan", TEXT, "/group /length",
           "plan of the cell: its key in /rows", "1")},
    {ARRAY(struct dpe_cells_result, scale, "scale", F64, "/length",
           "scale of the moving group, evaluated / detecting length", "1")},
};
const struct dpe_dataset_kind dpe_cells_kind = KIND(cells);

#define VALIDATED struct dpe_validated_result
static const struct dpe_dataset validated_plans[] = {
    SCALE(VALIDATED, name, "/validated_plan", TEXT, "validated plan", "1"),
    {ARRAY(VALIDATED, plan, "plan", TEXT, "/validated_plan", "its key in /rows", "1")},
};
const struct dpe_dataset_kind dpe_validated_kind = KIND(validated_plans);

#define CHOICES struct dpe_choices_result
static const struct dpe_dataset choices[] = {
    COUNTED("/group", "group"),
    {ARRAY(CHOICES, selected, "selected_length", I64, "/group",
           "length of the group in the joint plan, -1 = none", "tokens")},
};
const struct dpe_dataset_kind dpe_choices_kind = KIND(choices);

#define TRIED(member, name, type, text, units)                                                     \
    MEMBER(struct dpe_search_result, tried, struct dpe_searched_plan, member, name, type, "tried", \
           text, units)
static const struct dpe_dataset searched[] = {
    COUNTED("tried", "plan that the search tried, in its order"),
    {TRIED(method, "method", TEXT, "as --method takes it", "1")},
    {TRIED(plan, "plan", TEXT, "its key in /rows", "1")},
    {TRIED(kind, "kind", TEXT, "unchanged, formula, method or searched", "1")},
    {TRIED(heat, "heat", DPE_COL_I32, "that it came in, from 0", "1")},
    {TRIED(contexts, "contexts", I64, "that it read", "1")},
    {TRIED(table, "table", DPE_COL_U8, "whether a table can hold it", "1"),
     .flag_meanings = "no yes"},
    {TRIED(plain, "no_adapter", DPE_COL_U8, "whether runtimes read it without an adapter", "1"),
     .flag_meanings = "no yes"},
    {TRIED(value.mean, "mean", F64, "recall, or perplexity, of these contexts", "1")},
    {TRIED(value.low, "ci_low", F64, SHORT_LOW, "1")},
    {TRIED(value.high, "ci_high", F64, SHORT_HIGH, "1")},
    {TRIED(nll, "text_nll", F64, "nats per token of the guard's texts, NaN = not read", "1")},
};
const struct dpe_dataset_kind dpe_search_kind = KIND(searched);

/* -------------------------------------------------------------------------------------- suites */

#define SUITE struct dpe_suite_result
static const struct dpe_dataset suite[] = {
    SCALE(SUITE, method, "/method", TEXT, method_text, "1"),
    OPTIONAL(SCALE_OF(SUITE, task, "task", TEXT, "name of the task in /tasks/task", "1")),
    COUNTED("sample", "index of the sample"),
    OPTIONAL(SCALE_OF(SUITE, position, "position", I64, "first position of a bucket", "tokens")),
    OPTIONAL(
        SCALE_OF(SUITE, category, "category", TEXT, "category of tasks; the last is of all", "1")),
    OPTIONAL(
        SCALE_OF(SUITE, category_length, "category_length", I64, "length of the tasks", "tokens")),
    {ARRAY(SUITE, task_label, "task_label", TEXT, "task", "the benchmark, the same at every length",
           "1")},
    {ARRAY(SUITE, task_length, "task_length", I64, "task", "length of the task", "tokens")},
    OPTIONAL(ARRAY(SUITE, task_category, "task_category", TEXT, "task",
                   "category that the task is averaged in", "1")),
    OPTIONAL(ARRAY(SUITE, plan, "plan", TEXT, "/method task", plan_text, "1")),
    OPTIONAL(ARRAY(SUITE, memory, "memory", I64, "/method task",
                   "what a session for one text of the length needs", "bytes")),
    OPTIONAL(ARRAY(SUITE, score, "score", F64, "/method task sample", "score, as the folder says",
                   NULL)),
    OPTIONAL(ARRAY(SUITE, status, "status", DPE_COL_I32, "/method task sample", status_text, "1"),
             .flag_meanings = "ok nonfinite failed"),
    OPTIONAL(ARRAY(SUITE, half, "at_least_half", F64, "/method task sample", half_text, "1")),
    OPTIONAL(ARRAY(SUITE, nll_sum, "nll_sum", F64, "/method task sample",
                   "sum of -ln p of the scored tokens", "nats")),
    OPTIONAL(
        ARRAY(SUITE, n_tokens, "n_tokens", I64, "/method task sample", "scored tokens", "tokens")),
    OPTIONAL(ARRAY(SUITE, n_words, "n_words", I64, "/method task sample",
                   "words of the scored text", "words")),
    {INTERVAL(SUITE, mean, mean, "mean", "/method task", "mean score, or perplexity by token",
              "1")},
    {INTERVAL(SUITE, mean, low, "ci_low", "/method task", SHORT_LOW, "1")},
    {INTERVAL(SUITE, mean, high, "ci_high", "/method task", SHORT_HIGH, "1")},
    {COUNTS(SUITE, mean, "n_valid", "/method task", "samples it was made from")},
    OPTIONAL(INTERVAL(SUITE, word, mean, "word_mean", "/method task", "perplexity by word", "1")),
    OPTIONAL(INTERVAL(SUITE, word, low, "word_ci_low", "/method task", SHORT_LOW, "1")),
    OPTIONAL(INTERVAL(SUITE, word, high, "word_ci_high", "/method task", SHORT_HIGH, "1")),
    OPTIONAL(ARRAY(SUITE, half_mean, "half_mean", F64, "/method task",
                   "share of samples with at least half of the values", "1")),
    DIFFERENCE(SUITE, difference, 0, "difference", "", "/method task",
               "mean paired difference to the method /eval@against"),
    OPTIONAL(ARRAY(SUITE, position_mean, "position_mean", F64, "/method task position",
                   "perplexity of the tokens in a bucket of positions", "1")),
    OPTIONAL(ARRAY(SUITE, category_mean, "category_mean", F64, "/method category category_length",
                   "mean of the means of the category's tasks", "1")),
};
const struct dpe_dataset_kind dpe_suite_kinds[2] = BY_SCORE(suite);

#define GRID      struct dpe_grid_result
#define GRID_CELL "/method depth length"
static const struct dpe_dataset grid[] = {
    SCALE(GRID, method, "/method", TEXT, method_text, "1"),
    SCALE(GRID, depth, "depth", F64, "place of the needle, 0 = start of the haystack", "1"),
    SCALE(GRID, length, "length", I64, "prompt and answer together", "tokens"),
    COUNTED("sample", "index of the sample"),
    {ARRAY(GRID, plan, "plan", TEXT, "/method length", plan_text, "1")},
    {ARRAY(GRID, score, "score", F64, GRID_CELL " sample", "recall of the needles", "1")},
    {ARRAY(GRID, status, "status", DPE_COL_I32, GRID_CELL " sample", status_text, "1"),
     .flag_meanings = "ok nonfinite failed"},
    OPTIONAL(ARRAY(GRID, half, "at_least_half", F64, GRID_CELL " sample", half_text, "1")),
    {INTERVAL(GRID, mean, mean, "mean", GRID_CELL, "mean score", "1")},
    {INTERVAL(GRID, mean, low, "ci_low", GRID_CELL, SHORT_LOW, "1")},
    {INTERVAL(GRID, mean, high, "ci_high", GRID_CELL, SHORT_HIGH, "1")},
    {COUNTS(GRID, mean, "n_valid", GRID_CELL, "samples it was made from")},
};
const struct dpe_dataset_kind dpe_grid_kind = KIND(grid);

#define ABLATE struct dpe_ablate_result
static const struct dpe_dataset ablate[] = {
    SCALE(ABLATE, method, "/method", TEXT, method_text, "1"),
    {ARRAY(ABLATE, axis, "axis", TEXT, "/method", "what the step varies", "1")},
    {ARRAY(ABLATE, value, "value", F64, "/method",
           "rank, pairs, or tokens of a window or scaled length", "1")},
    OPTIONAL(ARRAY(ABLATE, k, "k", I64, "/method",
                   "pairs of each head that move, -1 = those of the detection", "1")),
};
const struct dpe_dataset_kind dpe_ablate_kind = KIND(ablate);

/* ----------------------------------------------------------------------------------------- kld */

#define KLD struct dpe_kld_result
#define KLD_NUMBER(array, prefix, axes, member, name, text, units)                                 \
    {                                                                                              \
        MEMBER(KLD, array, struct dpe_kld_cell, member, prefix name, F64, axes, text, units)       \
    }
/* Of all tokens, and the same of each bucket of positions. */
#define KLD_CELL(array, prefix, axes)                                                              \
    {MEMBER(KLD, array, struct dpe_kld_cell, n, prefix "n_tokens", I64, axes, "tokens", "1")},     \
        KLD_NUMBER(array, prefix, axes, mean.mean, "mean", "mean of KL(base, other)", "nats"),     \
        KLD_NUMBER(array, prefix, axes, mean.low, "ci_low", SHORT_LOW, "nats"),                    \
        KLD_NUMBER(array, prefix, axes, mean.high, "ci_high", SHORT_HIGH, "nats"),                 \
        KLD_NUMBER(array, prefix, axes, median, "median", "median over tokens", "nats"),           \
        KLD_NUMBER(array, prefix, axes, p90, "p90", "90 % of the tokens have less", "nats"),       \
        KLD_NUMBER(array, prefix, axes, p99, "p99", "99 % of the tokens have less", "nats"),       \
        KLD_NUMBER(array, prefix, axes, p999, "p99_9", "99.9 % of the tokens have less", "nats"),  \
        KLD_NUMBER(array, prefix, axes, most, "max", "largest of a token", "nats"),                \
        KLD_NUMBER(array, prefix, axes, same_top, "same_top",                                      \
                   "share of tokens before which both expect the same one most", "1"),             \
        KLD_NUMBER(array, prefix, axes, change_mean, "change_mean",                                \
                   "mean change of the probability of the token that follows", "1"),               \
        KLD_NUMBER(array, prefix, axes, change_rms, "change_rms",                                  \
                   "root mean square of that change", "1"),                                        \
        KLD_NUMBER(array, prefix, axes, ratio.mean, "ratio", "perplexity, other / base", "1"),     \
        KLD_NUMBER(array, prefix, axes, ratio.low, "ratio_ci_low", SHORT_LOW, "1"),                \
        KLD_NUMBER(array, prefix, axes, ratio.high, "ratio_ci_high", SHORT_HIGH, "1")
static const struct dpe_dataset kld[] = {
    SCALE(KLD, method, "method", TEXT, method_text, "1"),
    SCALE(KLD, position, "position", I64, "first position of a bucket", "tokens"),
    {ARRAY(KLD, plan, "plan", TEXT, "method", plan_text, "1")},
    KLD_CELL(whole, "", "method"),
    KLD_CELL(at, "position_", "method position"),
};
const struct dpe_dataset_kind dpe_kld_kind = KIND(kld);
