/* The report as HDF5: /group … /book, /detect, /validate, /table, /model, /tokenizer, /corpus.
 * outputs/SCHEMA.md is the contract. */
#include "detect/tool/detect_table.h"
#include "data/data.h"
#include "detect/tool/detect_tool.h"
#include "engine/tokenizer/tokenizer.h"
#include "outputs/datasets/kinds.h"
#include "outputs/read/read.h"
#include "outputs/table/fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --------------------------------------------------------------------------------------- scales */

static void put_validated_names(struct dpe_h5 *table, const struct dpe_detect_report *report)
{
    const char *names[DPE_DETECT_MOST_VALIDATED];
    for (int v = 0; v < report->n_validated; v++) {
        names[v] = report->validated[v].name;
    }
    if (report->n_validated > 0) {
        dpe_h5_put_scale(table, "/validated_plan", DPE_COL_STRING, names, report->n_validated,
                         "rope: the model as it is; base: every group at half the trained length; "
                         "joint: every group at its effective length; else as --method takes it",
                         "1");
    }
}

static void put_scales(struct dpe_h5 *table, const struct dpe_detect_report *report)
{
    const struct dpe_detect_grid *grid = &report->of->grid;
    const struct dpe_detect_params *params = &grid->params;
    dpe_h5_put_count(table, "/group", params->n_groups, "frequency group, high to low");
    dpe_h5_put_scale(table, "/length", DPE_COL_I64, params->lengths, params->n_lengths,
                     "detecting length", "tokens");
    dpe_h5_put_count(table, "/pair", grid->n_pairs, "pair of components j, j + head_dim/2");
    dpe_h5_put_count(table, "/edge", params->n_groups + 1, "edge between groups");
    put_validated_names(table, report);
    const struct dpe_detect_result *niah = &report->results[0];
    const struct dpe_detect_result *ppl = &report->results[1];
    if (niah->used && dpe_detect_sweeps(report->of->args->rule)) {
        dpe_h5_put_count(table, "/sample", niah->swept.n, "sample");
    }
    if (ppl->used && dpe_detect_sweeps(report->of->args->rule)) {
        dpe_h5_put_scale(table, "/book", DPE_COL_STRING, ppl->books, ppl->swept.n,
                         "book with at least as many tokens as the evaluated length", "1");
    }
}

/* --------------------------------------------------------------------------------------- detect */

/* What is stored of the scores of a task; of needles or of perplexity. */
static struct dpe_scores_result scores_of(const struct dpe_detect_result *result,
                                          const struct dpe_detect_scores *scores)
{
    struct dpe_scores_result out = {.status = scores->status};
    if (result->criterion == DPE_DETECT_RECALL) {
        out.recall = scores->recall;
        out.half = scores->at_least_half;
        out.prompt_tokens = scores->prompt_tokens;
        out.new_tokens = scores->new_tokens;
        out.seed = scores->seed;
    } else {
        out.nll_sum = scores->nll_sum;
        out.n_tokens = scores->n_tokens;
        out.n_words = scores->n_words;
    }
    return out;
}

/* Where ranges of positions begin. */
static int64_t *positions(void)
{
    static int64_t first[DPE_POSITIONS];
    for (int b = 0; b < DPE_POSITIONS; b++) {
        first[b] = INT64_C(1) << b;
    }
    return first;
}

void dpe_detect_tell_cells(const struct dpe_detect_report *report, struct dpe_detect_result *result)
{
    const struct dpe_detect_params *params = &report->of->grid.params;
    const struct dpe_detect_ranking *from = &result->ranking;
    struct dpe_scores_result *scores = &result->cells;
    *scores = scores_of(result, &result->swept.scores);
    result->ranks = (struct dpe_ranking_result){.n = {params->n_groups, params->n_lengths},
                                                .length = params->lengths,
                                                .rank = from->rank,
                                                .effective = from->effective,
                                                .informative = from->informative,
                                                .p_value = from->p_value};
    scores->n[DPE_CELLS_GROUP] = params->n_groups;
    scores->n[DPE_CELLS_LENGTH] = params->n_lengths;
    scores->n[DPE_CELLS_SAMPLE] = result->swept.n;
    scores->length = params->lengths;
    *(result->criterion == DPE_DETECT_RECALL ? &scores->recall_mean : &scores->perplexity) =
        from->mean;
    scores->low = from->low;
    scores->high = from->high;
    scores->n_valid = from->n_valid;
    if (result->swept.at != NULL) {
        scores->n[DPE_CELLS_POSITION] = dpe_detect_positions(report);
        scores->position = positions();
        scores->perplexity_at = result->swept.at;
    }
}

static void put_result(struct dpe_h5 *table, const struct dpe_detect_report *report,
                       const struct dpe_detect_result *result)
{
    const bool recall = result->criterion == DPE_DETECT_RECALL;
    const char *folder = recall ? "/detect/niah" : "/detect/ppl";
    dpe_datasets_put(recall ? &dpe_needle_cells_kind : &dpe_book_cells_kind, &result->cells, folder,
                     table);
    dpe_h5_attr_i64(table, folder, "samples_together", result->together);
    dpe_h5_attr_text(
        table, folder, "interval_rule",
        recall ? "Wilson score of so many trials as have the moderated variance of contexts"
               : "delete-one-book jackknife of the log");
    bool decides = dpe_detect_deciding(report) == result;
    dpe_datasets_put(&dpe_ranking_kind, &result->ranks, decides ? "/detect" : folder, table);
}

/* Which plan each cell ran under, and the rules in words. */
static void put_detect(struct dpe_h5 *table, const struct dpe_detect_report *report)
{
    const struct dpe_detect_grid *grid = &report->of->grid;
    const struct dpe_detect_params *params = &grid->params;
    const struct dpe_detect_arguments *args = report->of->args;
    DPE_OWNED const char **keys = dpe_detect_cell_keys(grid);
    double scale[DPE_DETECT_MAX_LENGTHS];
    if (keys == NULL) {
        dpe_h5_stop(table, DPE_NO_MEMORY, "out of memory for %d cells",
                    params->n_groups * params->n_lengths);
        return;
    }
    for (int t = 0; t < params->n_lengths; t++) {
        scale[t] = (double)params->length / (double)params->lengths[t];
    }
    const struct dpe_cells_result cells = {
        .n = {params->n_groups, params->n_lengths}, .plan = keys, .scale = scale};
    dpe_datasets_put(&dpe_cells_kind, &cells, "/detect", table);
    bool recall = dpe_detect_deciding(report)->criterion == DPE_DETECT_RECALL;
    const struct {
        const char *name, *value;
    } texts[] = {
        {"criterion", recall ? "niah recall, higher is better" : "perplexity, lower is better"},
        {"tie_rule", "ties go to the larger length"},
        {"moving_pairs",
         "all pairs of one group; every other group stays at half the trained length"},
        {"informative_rule",
         "p < 0.05 in a permutation test of best mean - worst mean: each sample's values (those "
         "of one context together) are permuted among the lengths, 1999 times"},
        {"niah_parameters", args->use_niah ? report->of->needles.spec : NULL},
        {"niah_templates_sha256", args->use_niah ? report->of->needles.template : NULL},
        {"pilot", args->auto_task ? report->of->needles.pilot : NULL},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].value != NULL) {
            dpe_h5_attr_text(table, "/detect", texts[i].name, texts[i].value);
        }
    }
    dpe_h5_attr_i64(table, "/detect", "configurations", grid->n_configs);
    dpe_h5_attr_i64(table, "/detect", "seed", (int64_t)report->of->args->job.seed);
}

/* ------------------------------------------------------------------------------------- validate */

static const char *kept_is(const struct dpe_detect_report *report,
                           const struct dpe_detect_validation *v, int plan)
{
    static const char *const verdicts[] = {[DPE_DETECT_BETTER] = "better",
                                           [DPE_DETECT_INDISTINCT] = "not distinguishable",
                                           [DPE_DETECT_WORSE] = "worse",
                                           [DPE_DETECT_UNKNOWN] = "unknown"};
    return strcmp(report->validated[plan].config.key, report->validated[v->kept].config.key) == 0
               ? "the same plan"
               : verdicts[dpe_detect_judge(&v->minus[plan], v->criterion)];
}

static void tell_tried(const struct dpe_detect_tried *from, struct dpe_searched_plan *to)
{
    *to = (struct dpe_searched_plan){.method = from->spec,
                                     .plan = from->key,
                                     .kind = dpe_detect_kind_names[from->kind],
                                     .heat = from->heat,
                                     .contexts = from->contexts[DPE_DETECT_NEEDLES],
                                     .table = from->table,
                                     .plain = from->plain,
                                     .nll = from->nll,
                                     .value = from->found};
}

static void tell_validated(const struct dpe_detect_report *report,
                           const struct dpe_detect_result *result, struct dpe_detect_validated *out)
{
    const bool recall = result->criterion == DPE_DETECT_RECALL;
    const struct dpe_detect_validation *v = &result->validation;
    struct dpe_scores_result *scores = &out->scores;
    *scores = scores_of(result, &result->checked.scores);
    for (int i = 0; i < v->n_plans; i++) {
        out->plan[i] = report->validated[i].name;
        out->mean[i] = v->value[i].mean;
        out->low[i] = v->value[i].low;
        out->high[i] = v->value[i].high;
        out->n_valid[i] = v->value[i].n;
        out->verdict[i] = kept_is(report, v, i);
    }
    scores->n[DPE_VALIDATED_PLAN] = v->n_plans;
    scores->n[DPE_VALIDATED_SAMPLE] = result->checked.n;
    scores->plan = out->plan;
    *(recall ? &scores->recall_mean : &scores->perplexity) = out->mean;
    scores->low = out->low;
    scores->high = out->high;
    scores->n_valid = out->n_valid;
    scores->kept = v->minus;
    scores->needed = v->needed;
    scores->verdict = out->verdict;
    for (int i = 0; i < 2; i++) {
        if (result->shorter[i].found.n > 0) {
            const int64_t at = scores->n[DPE_VALIDATED_SHORT]++;
            out->short_length[at] = result->shorter[i].length;
            out->shorter[at] = result->shorter[i].found;
            scores->short_length = out->short_length;
            scores->shorter = out->shorter;
        }
    }
    if (result->checked.at != NULL) {
        scores->n[DPE_VALIDATED_POSITION] = dpe_detect_positions(report);
        scores->position = positions();
        scores->perplexity_at = result->checked.at;
    }
}

void dpe_detect_tell(const struct dpe_detect_report *report, struct dpe_detect_told *told)
{
    const struct dpe_scores_result *found[DPE_DETECT_RESULTS] = {NULL};
    const bool searched = report->search.n > 0;
    *told = (struct dpe_detect_told){.search = {.n = {report->search.n}, .tried = told->tried}};
    for (int i = 0; i < report->search.n; i++) {
        tell_tried(&report->search.tried[i], &told->tried[i]);
    }
    for (int i = 0; i < DPE_DETECT_RESULTS; i++) {
        if (report->results[i].validated) {
            tell_validated(report, &report->results[i], &told->validated[i]);
            found[i] = &told->validated[i].scores;
        }
    }
    told->words = (struct dpe_detect_words){
        .decides = found[dpe_detect_deciding(report) - report->results],
        .users = found[DPE_DETECT_OWN],
        .texts = found[DPE_DETECT_GUARD],
        .search = searched ? &told->search : NULL,
        .spent = report->search.spent,
        .exhausted = report->search.exhausted,
        .recall = dpe_detect_deciding(report)->criterion == DPE_DETECT_RECALL,
        .length = report->of->grid.params.length,
        .trained = report->of->grid.params.trained_length,
        .task = report->of->needles.spec,
        .users_task = report->of->needles.users_spec,
        .kept = report->validated[report->kept].name,
        .chosen = report->validated[report->chosen].name,
        .plain = report->plain > 0 ? report->validated[report->plain].name : NULL};
}

static void put_validation(struct dpe_h5 *table, const struct dpe_detect_result *result,
                           const struct dpe_detect_validated *validated, const char *folder)
{
    dpe_datasets_put(&dpe_validated_scores_kinds[result->criterion != DPE_DETECT_RECALL],
                     &validated->scores, folder, table);
    dpe_h5_attr_text(table, folder, "samples",
                     result->fresh ? "fresh" : "those that chose the plan");
    dpe_h5_attr_i64(table, folder, "first_sample", result->checked.first);
    dpe_h5_attr_i64(table, folder, "samples_together", result->together);
}

static void put_validated_plans(struct dpe_h5 *table, const struct dpe_detect_report *report,
                                const struct dpe_detect_words *words)
{
    const char *keys[DPE_DETECT_MOST_VALIDATED];
    for (int v = 0; v < report->n_validated; v++) {
        keys[v] = report->validated[v].config.key;
    }
    const struct dpe_validated_result plans = {.n = {report->n_validated}, .plan = keys};
    dpe_datasets_put(&dpe_validated_kind, &plans, "/validate", table);
    dpe_h5_attr_i64(table, "/validate", "seed", (int64_t)report->of->validation_seed);
    if (words->search != NULL) {
        dpe_h5_attr_text(table, "/validate", "kept", words->kept);
        dpe_h5_attr_text(table, "/validate", "chosen", words->chosen);
    }
    if (words->plain != NULL) {
        dpe_h5_attr_text(table, "/validate", "without_adapter", words->plain);
    }
}

/* What was tried. */
static void put_search(struct dpe_h5 *table, const struct dpe_detect_report *report,
                       const struct dpe_search_result *result)
{
    if (result->n[0] == 0) {
        return;
    }
    dpe_datasets_put(&dpe_search_kind, result, "/search", table);
    dpe_h5_attr_i64(table, "/search", "contexts", report->search.spent);
    dpe_h5_attr_i64(table, "/search", "heats", report->search.heats);
    dpe_h5_attr_i64(table, "/search", "exhausted", report->search.exhausted);
    dpe_h5_attr_text(
        table, "/search", "rule",
        "candidates of a heat read the same contexts, the better third reads on; chosen is, of the "
        "plans that lose at most the guard's share of perplexity, the one that finds most, and of "
        "those within its standard error the one that needs least to be believed: unchanged, "
        "what an earlier heat chose, formula, method, searched");
}

/* ----------------------------------------------------------------------- table, model and texts */

/* The best validated method that is not kept; -1: none. */
static int find_rival(const struct dpe_detect_report *report, const struct dpe_detect_validation *v)
{
    const bool recall = v->criterion == DPE_DETECT_RECALL;
    int rival = -1;
    for (int i = DPE_DETECT_ROPE + 1; i < v->n_plans; i++) {
        const bool better = rival < 0 || (recall ? v->value[i].mean > v->value[rival].mean
                                                 : v->value[i].mean < v->value[rival].mean);
        rival = i != report->kept && better ? i : rival;
    }
    return rival;
}

static double known(const struct dpe_interval *value)
{
    return value->n > 0 && isfinite(value->mean) ? value->mean : -1.0;
}

/* What validation measured under the kept plan; on the user's own task, where there is one. `task`
 * is for its name. */
static void add_evidence(const struct dpe_detect_report *report, char task[DPE_TASK_WORDS + 16],
                         struct dpe_table_values *values)
{
    const bool users = report->results[DPE_DETECT_OWN].validated;
    const struct dpe_detect_result *result =
        users ? &report->results[DPE_DETECT_OWN] : dpe_detect_deciding(report);
    const struct dpe_detect_validation *v = &result->validation;
    if (!result->validated || v->value[report->kept].n == 0 ||
        !isfinite(v->value[report->kept].mean)) {
        return;
    }
    const struct dpe_interval *kept = &v->value[report->kept];
    const int rival = find_rival(report, v);
    char words[DPE_TASK_WORDS];
    dpe_identity_task_words(users ? report->of->needles.users_spec : report->of->needles.spec,
                            words);
    snprintf(task, DPE_TASK_WORDS + 16, "needles%s%s", words[0] != '\0' ? ": " : "", words);
    values->evidence_task =
        v->criterion == DPE_DETECT_RECALL ? task : (char *)(uintptr_t) "perplexity";
    values->evidence_score = kept->mean;
    values->evidence_low = isfinite(kept->low) ? kept->low : -1.0;
    values->evidence_high = isfinite(kept->low) ? kept->high : -1.0;
    values->evidence_samples = kept->n;
    values->evidence_unchanged = known(&v->value[DPE_DETECT_ROPE]);
    values->evidence_possible = known(&result->shorter[1].found);
    values->evidence_rival =
        (char *)(uintptr_t)(rival >= 0 ? report->validated[rival].name : "none");
    values->evidence_rival_score = rival >= 0 ? known(&v->value[rival]) : -1.0;
    values->evidence_short_loss = 0.0;
    values->evidence_tokens = report->read_tokens;
}

static void put_table(struct dpe_h5 *table, const struct dpe_detect_report *report)
{
    char task[DPE_TASK_WORDS + 16];
    struct dpe_table_values values = report->entry.values;
    add_evidence(report, task, &values);
    const unsigned parts = dpe_table_parts(&values, false);
    dpe_h5_put_entry(table, "/table", &values, parts);
    dpe_h5_put_conventions(table, &values, parts);
    dpe_h5_attr_text(table, "/table", "key_pairs", "all pairs of every head");
    dpe_h5_attr_text(table, "/table", "adapter_required",
                     report->validated[report->kept].plain ? "false" : "true");
}

static void put_model(struct dpe_h5 *table, const struct dpe_detect_report *report)
{
    const struct dpe_config *config = dpe_model_config(report->of->job.model);
    const char *json = dpe_model_config_json(report->of->job.model);
    const struct dpe_column column = {.path = "/model/config_json",
                                      .type = DPE_COL_STRING,
                                      .data = &json,
                                      .long_name = "config.json as read"};
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"hidden", config->hidden},
        {"vocabulary", config->vocab},
        {"max_position_embeddings", config->max_position},
        {"parameters", dpe_config_parameters(config)},
    };
    dpe_h5_put(table, &column);
    dpe_model_put(table, config, dpe_job_fingerprint(&report->of->job));
    dpe_h5_attr_text(table, "/model", "fingerprint_rule",
                     "SHA-256 over config.json and, of every shard, name, size, header and 256 "
                     "evenly spaced blocks of 4 KiB");
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        dpe_h5_attr_i64(table, "/model", numbers[i].name, numbers[i].value);
    }
}

static void put_texts_of_run(struct dpe_h5 *table, const struct dpe_detect_report *report)
{
    dpe_h5_attr_text(table, "/tokenizer", "sha256",
                     dpe_tokenizer_fingerprint(report->of->job.tokenizer));
    dpe_h5_attr_i64(table, "/tokenizer", "size", dpe_tokenizer_size(report->of->job.tokenizer));
    dpe_h5_attr_text(table, "/corpus", "sha256", report->of->job.corpus->fingerprint);
    dpe_h5_attr_i64(table, "/corpus", "books", (int64_t)report->of->job.corpus->n);
}

/* What this process computed; another one that made the same table may have needed more. */
static void put_work(struct dpe_h5 *table, const struct dpe_session_work *work)
{
    dpe_h5_attr_i64(table, "/run", "tokens_read", work->fed);
    dpe_h5_attr_i64(table, "/run", "tokens_decoded", work->decoded);
    dpe_h5_attr_i64(table, "/run", "decode_steps", work->steps);
}

/* The sweep's ranks and the lengths that they come to. */
static void put_sweep(struct dpe_h5 *table, const struct dpe_detect_report *report)
{
    const struct dpe_choices_result choices = {.n = {report->of->grid.params.n_groups},
                                               .selected = report->selected};
    for (int i = 0; i < 2; i++) {
        if (report->results[i].used) {
            put_result(table, report, &report->results[i]);
        }
    }
    dpe_datasets_put(&dpe_choices_kind, &choices, "/select", table);
    dpe_h5_attr_text(table, "/select", "rule", dpe_detect_rule_names[DPE_DETECT_PAPER]);
    dpe_h5_attr_text(table, "/select", "rule_in_words",
                     "rank 1 of each group; ties go to the larger length");
}

dpe_status dpe_detect_write(const struct dpe_detect_report *report, bool complete,
                            struct dpe_h5 *table, struct dpe_error *err)
{
    static const char *const folders[DPE_DETECT_RESULTS] = {"/validate/niah", "/validate/ppl",
                                                            "/validate/user", "/validate/guard"};
    struct dpe_detect_told told;
    dpe_detect_tell(report, &told);
    dpe_h5_attr_text(table, "/", "title", "Effective lengths of frequency groups");
    put_scales(table, report);
    put_detect(table, report);
    if (dpe_detect_sweeps(report->of->args->rule)) {
        put_sweep(table, report);
    }
    put_search(table, report, &told.search);
    for (int i = 0; i < DPE_DETECT_RESULTS; i++) {
        if (report->results[i].validated) {
            put_validation(table, &report->results[i], &told.validated[i], folders[i]);
        }
    }
    if (told.words.users != NULL) {
        dpe_h5_attr_text(table, "/validate/user", "task", report->of->needles.users_spec);
    }
    if (told.words.texts != NULL) {
        dpe_h5_attr_i64(table, "/validate/guard", "length", report->of->grid.params.length);
        dpe_h5_attr_f64(table, "/validate/guard", "share", report->of->args->guard);
    }
    if (told.words.decides != NULL) {
        put_validated_plans(table, report, &told.words);
    }
    if (complete) {
        put_table(table, report);
    }
    put_work(table, &report->work);
    put_model(table, report);
    put_texts_of_run(table, report);
    return dpe_h5_failed(table, err);
}
