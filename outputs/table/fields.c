/* The fields of a DPE table, what follows from their descriptions alone, and in words what was
 * measured under an entry. */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outputs/table/fields.h"

#define AT(member) offsetof(struct dpe_table_values, member)
#define LONGEST    0x1p40 /* tokens */
/* A field of a member of its name, or of another; its range and what else it may be; what it is for
 * programs (units, long_name) and for the documents. */
#define FIELD_OF(field, member, kind, of)                                                          \
    .name = #field, .type = DPE_FIELD_##kind, .part = DPE_PART_##of, .at = AT(member)
#define FIELD(member, kind, of)         FIELD_OF(member, member, kind, of)
#define RANGE(lowest, highest, besides) .low = lowest, .high = highest, .or_else = besides
#define WORDS(of_units, name_in_h5, in_documents)                                                  \
    .units = of_units, .long_name = name_in_h5, .what = in_documents

const struct dpe_table_field dpe_table_fields[] = {
    {FIELD(trained_length, WHOLE, CORE), RANGE(1, LONGEST, 1),
     WORDS("tokens", "trained length", "L0; the same in every entry")},
    {FIELD_OF(evaluated_length, length, WHOLE, CORE), RANGE(1, LONGEST, 1),
     WORDS("tokens", "length that the table is for", "L, for which the scales were chosen")},
    {FIELD_OF(local_window, window, WHOLE, CORE), .yaml = "local_window_size", RANGE(0, LONGEST, 0),
     WORDS("tokens", "keys nearer than this keep their distance",
           "w, at most L; 0 in a table of frequencies")},
    {FIELD(top_k, WHOLE, KEYS), RANGE(0, 0x1p15, 0),
     WORDS("1", "key pairs of each head", "key pairs of each head")},
    {FIELD(group_edge, EDGE, CORE), .yaml = "dimension_groups_range", .axes = {DPE_AXIS_EDGE},
     RANGE(0, 0x1p15, 0),
     WORDS("1", "group g holds pairs edge[g] to edge[g+1] - 1",
           "group g holds pairs edge[g] to edge[g+1] - 1; the same in every entry")},
    {FIELD(effective_length, REAL, CORE), .axes = {DPE_AXIS_GROUP}, RANGE(1, LONGEST, -1),
     .whole_in_h5 = true,
     WORDS("tokens", "effective length of the group, -1 = none found",
           "the length that was chosen for the group; -1 = none was found")},
    {FIELD(scale_factor, REAL, CORE), .yaml = "scale_factors", .axes = {DPE_AXIS_GROUP},
     RANGE(1, LONGEST, 1),
     WORDS("1", "scale of the group's far positions",
           "what the group's far positions are divided by")},
    {FIELD(attention_scaling, REAL, CORE), RANGE(0, 0x1p20, 1), .above = true,
     WORDS("1", "factor on queries and on keys; logits carry its square",
           "factor of the model on queries and on keys; logits carry its square")},
    {FIELD(logit_scale, REAL, TEMPERATURE), RANGE(0, 1024, 1), .above = true, .absent = 1,
     WORDS("1", "factor on all logits besides attention_scaling squared",
           "A: factor on all logits besides attention_scaling squared; 1 = none")},
    {FIELD(logit_scale_first, REAL, TEMPERATURE), RANGE(0, 1024, 1), .above = true, .absent = 1,
     WORDS("1", "further factor on the logits of the first layers; 1 = none",
           "with t = layer / (layers - 1), the logits carry (1 - t)^2 first + 2 t (1 - t) middle + "
           "t^2 last besides; 1 = none")},
    {FIELD(logit_scale_middle, REAL, TEMPERATURE), RANGE(0, 1024, 1), .above = true, .absent = 1,
     WORDS("1", "further factor on the logits of the middle layers; 1 = none",
           "middle of logit_scale_first")},
    {FIELD(logit_scale_last, REAL, TEMPERATURE), RANGE(0, 1024, 1), .above = true, .absent = 1,
     WORDS("1", "further factor on the logits of the last layers; 1 = none",
           "last of logit_scale_first")},
    {FIELD(far_scale, REAL, TEMPERATURE), RANGE(0, 1024, 1), .above = true, .absent = 1,
     WORDS("1", "further factor on what far positions contribute to logits; 1 = none",
           "F: further factor on what pairs contribute that a band after the first (the far one) "
           "gives a position; 1 = none")},
    {FIELD(log_n_length, REAL, TEMPERATURE), RANGE(1, LONGEST, 0), .above = true,
     WORDS(
         "tokens",
         "N: the logits of query m carry max(1, ln(m + 1) / ln N) to log_n_power; 0 = off",
         "N: the logits of query m (0, 1, ...) carry max(1, ln(m + 1) / ln N)^G besides; 0 = off")},
    {FIELD(log_n_power, REAL, TEMPERATURE), RANGE(0, 64, 1), .above = true, .absent = 1,
     .detail = true, WORDS("1", "exponent of the log-n factor", "G: exponent of the log-n factor")},
    {FIELD(log_n_decay, REAL, TEMPERATURE), RANGE(0, 64, 0), .detail = true,
     WORDS("1", "B: above 0, 1 - x^-B takes the place of ln x",
           "B: above 0, 1 - x^-B takes the place of ln x")},
    {FIELD(inv_freq, REAL, CORE), .axes = {DPE_AXIS_PAIR}, RANGE(0, 1e9, 0),
     WORDS("radians/token", "rotation frequency",
           "of the model, its own scaling applied; 0 for the last pairs where they do not rotate")},
    {FIELD(mask, MARKS, KEYS), .json = "key_pairs",
     .axes = {DPE_AXIS_LAYER, DPE_AXIS_HEAD, DPE_AXIS_PAIR}, RANGE(0, 1, 0),
     WORDS("1", "whether a pair is a key pair of its head",
           "yes: a key pair of its head, moved in far positions; no: it keeps its true position")},
    {FIELD(unrounded, FLAG, METHOD), RANGE(0, 1, 0),
     WORDS(
         "1", "whether far positions are real numbers, without floor",
         "yes: far positions are x/s, a query's with w - w/s added, real numbers; no: with floor")},
    {FIELD(applied_inv_freq, REAL, METHOD), .axes = {DPE_AXIS_PAIR}, RANGE(0, 1e18, 0),
     WORDS("radians/token", "rotation frequency that is applied in place of the model's own",
           "what the pairs rotate by at every distance, in place of inv_freq; 1e-9 to 1e9 times "
           "that, or 0")},
    {FIELD(bands, REAL, BANDS), .axes = {DPE_AXIS_BAND_NUMBER}, RANGE(-LONGEST, LONGEST, -LONGEST),
     WORDS("1",
           "for each band a row for queries and one for keys: 11 numbers, a scale and an offset of "
           "each pair",
           "rows of numbers, below")},
    {FIELD(head_scale, REAL, HEADS), .axes = {DPE_AXIS_LAYER, DPE_AXIS_HEAD}, RANGE(0, 1024, 1),
     .above = true,
     WORDS("1", "further factor on the logits of the head; 1 = none",
           "further factor on the logits of the query head; 1 = none")},
    {FIELD(selection, TEXT, SELECTION),
     WORDS("", "",
           "keys of the method select: a query meets chosen keys alone; applied by the tools' own "
           "engine")},
    {FIELD(evidence_task, TEXT, EVIDENCE),
     WORDS("", "",
           "what was measured at the evaluated length under this entry: needles with their keys "
           "and values, or perplexity")},
    {FIELD(evidence_score, REAL, EVIDENCE), RANGE(0, LONGEST, 0),
     WORDS("1", "share of needles found, or perplexity",
           "share of the needles that was found, or perplexity")},
    {FIELD(evidence_low, REAL, EVIDENCE), RANGE(0, LONGEST, -1),
     WORDS("1", "lower end of its 95 % interval, -1 = none",
           "lower end of its 95 % interval; -1 = none, of too few samples")},
    {FIELD(evidence_high, REAL, EVIDENCE), RANGE(0, LONGEST, -1),
     WORDS("1", "upper end of its 95 % interval, -1 = none",
           "upper end of its 95 % interval; -1 = none, of too few samples")},
    {FIELD(evidence_samples, WHOLE, EVIDENCE), RANGE(1, LONGEST, 1),
     WORDS("1", "samples it was measured on", "samples it was measured on")},
    {FIELD(evidence_unchanged, REAL, EVIDENCE), RANGE(0, LONGEST, -1),
     WORDS("1", "the same of the unchanged model, -1 = not known",
           "the same of the model as it is; -1 = not known")},
    {FIELD(evidence_possible, REAL, EVIDENCE), RANGE(0, LONGEST, -1),
     WORDS("1", "the same at the trained length, -1 = not known",
           "the same of the model as it is at the trained length: hardly more is possible; -1 = "
           "not known")},
    {FIELD(evidence_rival, TEXT, EVIDENCE),
     WORDS("", "", "the best other method on the same samples; none")},
    {FIELD(evidence_rival_score, REAL, EVIDENCE), RANGE(0, LONGEST, -1),
     WORDS("1", "the same of the best other method, -1 = none", "the same of it; -1 = none")},
    {FIELD(evidence_short_loss, REAL, EVIDENCE), RANGE(0, 64, -1),
     WORDS("nats/token", "what short texts lose, -1 = not known",
           "what a text of at most the trained length loses; 0 where it runs unchanged; -1 = not "
           "known")},
    {FIELD(evidence_tokens, WHOLE, EVIDENCE), RANGE(0, 0x1p50, 0),
     WORDS(
         "tokens", "prompt tokens that the detection read, 0 = not known",
         "of all prompts that the detection read to make the entry, a context that questions share "
         "once; 0 or missing = not known"),
     .fact = "prompt tokens that the detection read"},
};
const size_t dpe_n_table_fields = sizeof dpe_table_fields / sizeof dpe_table_fields[0];

const struct dpe_model_field dpe_model_fields[] = {
    {"model_type", "model_type", "model_type", true, AT(model_type), "as in config.json"},
    {"fingerprint", "fingerprint", "model_fingerprint", true, AT(model_fingerprint),
     "SHA-256 of the model that the table was measured on"},
    {"n_layers", "layers", "n_layers", false, AT(n_layers), "layers"},
    {"n_heads", "heads", "n_heads", false, AT(n_heads), "query heads of a layer"},
    {"n_kv_heads", "kv_heads", "n_kv_heads", false, AT(n_kv_heads), "KV heads of a layer"},
    {"head_dim", "head_dim", "head_dim", false, AT(head_dim), "twice the pairs of a head"},
};
const size_t dpe_n_model_fields = sizeof dpe_model_fields / sizeof dpe_model_fields[0];

const struct dpe_table_convention dpe_table_conventions[] = {
    {"near_rule", "distance < local_window", "none", NULL, false},
    {"rounding", "separable", "none", ": floor(m/s) - floor(n/s) + w - floor(w/s)", true},
    {"angle_precision", "f32", "f32", NULL, false},
    {"pair_layout", "half-split", "half-split",
     ": components j and j + head_dim/2; interleaved runtimes permute", false},
};
const size_t dpe_n_table_conventions =
    sizeof dpe_table_conventions / sizeof dpe_table_conventions[0];

const struct dpe_table_field *dpe_table_field_named(const char *name)
{
    size_t i = 0;
    while (strcmp(dpe_table_fields[i].name, name) != 0) {
        i++;
    }
    return &dpe_table_fields[i];
}

const char *dpe_table_convention(const struct dpe_table_convention *convention, bool frequencies)
{
    return frequencies ? convention->frequencies : convention->positions;
}

int dpe_field_rank(const struct dpe_table_field *field)
{
    int rank = 0;
    while (rank < DPE_FIELD_RANK && field->axes[rank] != DPE_AXIS_NONE) {
        rank++;
    }
    return rank;
}

int64_t dpe_field_extent(enum dpe_field_axis axis, const struct dpe_table_values *values)
{
    const int64_t extents[DPE_AXES] = {
        [DPE_AXIS_NONE] = 1,
        [DPE_AXIS_GROUP] = values->n_groups,
        [DPE_AXIS_EDGE] = values->n_groups + 1,
        [DPE_AXIS_PAIR] = values->n_pairs,
        [DPE_AXIS_LAYER] = values->n_layers,
        [DPE_AXIS_HEAD] = values->n_heads,
        [DPE_AXIS_BAND_NUMBER] = 2 * values->n_bands * dpe_table_band_row(values),
    };
    return extents[axis];
}

size_t dpe_field_count(const struct dpe_table_field *field, const struct dpe_table_values *values)
{
    size_t n = 1;
    for (int i = 0; i < DPE_FIELD_RANK; i++) {
        n *= (size_t)dpe_field_extent(field->axes[i], values);
    }
    return n;
}

bool dpe_field_owned(const struct dpe_table_field *field)
{
    return dpe_field_rank(field) > 0 || field->type == DPE_FIELD_TEXT;
}

size_t dpe_field_size(const struct dpe_table_field *field)
{
    static const size_t sizes[] = {
        [DPE_FIELD_WHOLE] = sizeof(int64_t), [DPE_FIELD_REAL] = sizeof(double),
        [DPE_FIELD_EDGE] = sizeof(int32_t),  [DPE_FIELD_FLAG] = sizeof(int),
        [DPE_FIELD_MARKS] = sizeof(uint8_t), [DPE_FIELD_TEXT] = 1,
    };
    return sizes[field->type];
}

void **dpe_field_array(const struct dpe_table_field *field, struct dpe_table_values *values)
{
    return (void **)(void *)((char *)values + field->at);
}

const void *dpe_field_data(const struct dpe_table_field *field,
                           const struct dpe_table_values *values)
{
    const void *at = (const char *)values + field->at;
    if (!dpe_field_owned(field)) {
        return at;
    }
    const void *data = *(const void *const *)at;
    return data == NULL && field->part == DPE_PART_METHOD ? values->inv_freq : data;
}

double dpe_field_get(const struct dpe_table_field *field, const void *data, size_t i)
{
    switch (field->type) {
    case DPE_FIELD_WHOLE:
        return (double)((const int64_t *)data)[i];
    case DPE_FIELD_REAL:
        return ((const double *)data)[i];
    case DPE_FIELD_EDGE:
        return ((const int32_t *)data)[i];
    case DPE_FIELD_FLAG:
        return ((const int *)data)[i];
    case DPE_FIELD_MARKS:
        return ((const uint8_t *)data)[i];
    case DPE_FIELD_TEXT:
        break;
    }
    return 0.0;
}

void dpe_field_set(const struct dpe_table_field *field, void *data, size_t i, double value)
{
    switch (field->type) {
    case DPE_FIELD_WHOLE:
        ((int64_t *)data)[i] = (int64_t)value;
        break;
    case DPE_FIELD_REAL:
        ((double *)data)[i] = value;
        break;
    case DPE_FIELD_EDGE:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    case DPE_FIELD_FLAG:
        ((int *)data)[i] = (int)value;
        break;
    case DPE_FIELD_MARKS:
        ((uint8_t *)data)[i] = (uint8_t)value;
        break;
    case DPE_FIELD_TEXT:
        break;
    }
}

/* ---------------------------------------------------------------------------------------- parts */

static bool has_part(const struct dpe_table_values *values, enum dpe_field_part part)
{
    switch (part) {
    case DPE_PART_KEYS:
        return values->mask != NULL;
    case DPE_PART_TEMPERATURE:
        return values->frequencies != 0 || dpe_table_has_temperature(values) != 0 ||
               dpe_table_has_method(values) != 0;
    case DPE_PART_METHOD:
        return dpe_table_has_method(values) != 0;
    case DPE_PART_BANDS:
        return values->n_bands > 0;
    case DPE_PART_HEADS:
        return values->head_scale != NULL;
    case DPE_PART_SELECTION:
        return values->selection != NULL;
    case DPE_PART_EVIDENCE:
        return values->evidence_task != NULL;
    case DPE_PART_CORE:
    case DPE_PARTS:
        break;
    }
    return true;
}

bool dpe_table_masks(const struct dpe_table_values *values)
{
    const int64_t n = values->n_layers * values->n_heads * values->n_pairs;
    return values->mask != NULL && memchr(values->mask, 0, (size_t)n) != NULL;
}

/* A table of one entry leaves out what says nothing; one of several has every temperature. */
unsigned dpe_table_parts(const struct dpe_table_values *values, bool several)
{
    unsigned parts = several ? 1u << DPE_PART_TEMPERATURE : 0;
    for (int part = 0; part < DPE_PARTS; part++) {
        parts |= has_part(values, (enum dpe_field_part)part) ? 1u << part : 0;
    }
    return parts;
}

bool dpe_field_applies(const struct dpe_table_field *field, const struct dpe_table_values *values)
{
    return field->part < DPE_PART_BANDS || has_part(values, field->part);
}

bool dpe_field_written(const struct dpe_table_field *field, const struct dpe_table_values *values,
                       unsigned parts)
{
    return (parts >> field->part & 1) != 0 && dpe_field_applies(field, values);
}

unsigned dpe_table_parts_of(const struct dpe_table *table)
{
    unsigned parts = 0;
    int64_t n = dpe_table_count(table);
    for (int64_t i = 0; i < n; i++) {
        parts |= dpe_table_parts(dpe_table_values(dpe_table_entry(table, i)), n > 1);
    }
    return parts;
}

/* --------------------------------------------------------------------------------------- values */

void dpe_table_values_free(struct dpe_table_values *values)
{
    free(values->schema_version);
    free(values->model_type);
    free(values->model_fingerprint);
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        if (dpe_field_owned(&dpe_table_fields[i])) {
            free(*dpe_field_array(&dpe_table_fields[i], values));
        }
    }
    *values = (struct dpe_table_values){0};
}

static bool copy_bytes(void **at, size_t n)
{
    const void *from = *at;
    *at = from != NULL ? malloc(n > 0 ? n : 1) : NULL;
    if (*at != NULL) {
        memcpy(*at, from, n);
    }
    return from == NULL || *at != NULL;
}

bool dpe_table_values_copy(const struct dpe_table_values *from, struct dpe_table_values *copy)
{
    bool whole = true;
    *copy = *from;
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        void **array = dpe_field_array(field, copy);
        if (dpe_field_owned(field) && *array != NULL) {
            size_t n =
                field->type == DPE_FIELD_TEXT ? strlen(*array) + 1 : dpe_field_count(field, copy);
            whole = copy_bytes(array, n * dpe_field_size(field)) && whole;
        }
    }
    char **const texts[] = {&copy->schema_version, &copy->model_type, &copy->model_fingerprint};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        whole =
            copy_bytes((void **)texts[i], *texts[i] != NULL ? strlen(*texts[i]) + 1 : 0) && whole;
    }
    if (!whole) {
        dpe_table_values_free(copy);
    }
    return whole;
}

int dpe_table_check_version(const char *version, const char *history, char *message)
{
    static const char own[] = DPE_TABLE_SCHEMA;
    char *end = NULL;
    long major = strtol(version, &end, 10);
    if (end != version && *end == '.' && major == strtol(own, NULL, 10)) {
        return DPE_TABLE_OK;
    }
    if (end == version || *end != '.' || major < 1 || major > strtol(own, NULL, 10)) {
        return dpe_table_fail(
            message, DPE_TABLE_VERSION,
            "expected schema version %s, found '%.32s'; use the dpe that wrote it", own, version);
    }
    /* The command, after the time in the first line. */
    const char *at = history != NULL ? strstr(history, ": ") : NULL;
    const size_t n = at != NULL ? strcspn(at + 2, "\n") : 0;
    return dpe_table_fail(
        message, DPE_TABLE_VERSION,
        "expected schema version %s, found %.32s of an earlier dpe, which is no longer "
        "read; make it again%s%.*s",
        own, version, n > 0 ? ": " : " with the command that wrote it", n < 200 ? (int)n : 200,
        n > 0 ? at + 2 : "");
}

/* ------------------------------------------------------------------------------------- in words */

/* Append what there is room for. */
__attribute__((format(printf, 2, 3))) static void put(char text[DPE_TABLE_EVIDENCE],
                                                      const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, DPE_TABLE_EVIDENCE - used, format, args);
    va_end(args);
}

/* A share of needles in percent, or a perplexity. */
static const char *score(bool needles, double value, char text[32])
{
    snprintf(text, 32, needles ? "%.0f %%" : "%.4g", needles ? 100.0 * value : value);
    return text;
}

/* ", 98 % possible" of what is known. */
static void put_known(char *line, bool needles, double value, const char *words)
{
    char text[32];
    if (value >= 0.0) {
        put(line, ", %s %s", score(needles, value, text), words);
    }
}

const char *dpe_table_evidence(const struct dpe_table_values *values, char text[DPE_TABLE_EVIDENCE])
{
    char number[2][32];
    text[0] = '\0';
    if (values->evidence_task == NULL) {
        return text;
    }
    const bool needles = strcmp(values->evidence_task, "perplexity") != 0;
    put(text, "%s %s", needles ? "finds" : "perplexity",
        score(needles, values->evidence_score, number[0]));
    if (values->evidence_low >= 0.0) {
        put(text, " (%s to %s)", score(needles, values->evidence_low, number[0]),
            score(needles, values->evidence_high, number[1]));
    }
    put(text, " at %lld tokens", (long long)values->length);
    put_known(text, needles, values->evidence_possible, "at the trained length");
    put_known(text, needles, values->evidence_unchanged, "unchanged");
    put_known(text, needles, values->evidence_rival_score, "with ");
    if (values->evidence_rival_score >= 0.0) {
        put(text, "%s", values->evidence_rival);
    }
    if (values->evidence_short_loss > 0.0) {
        put(text, "; short texts lose %.3g nats per token", values->evidence_short_loss);
    } else if (values->evidence_short_loss == 0.0) {
        put(text, "; short texts run unchanged");
    }
    put(text, " (%lld samples%s%s)", (long long)values->evidence_samples, needles ? ", " : "",
        needles ? values->evidence_task : "");
    return text;
}

const char *dpe_table_facts(const struct dpe_table_values *values, char text[DPE_TABLE_EVIDENCE])
{
    text[0] = '\0';
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        const double value = field->fact != NULL && dpe_field_applies(field, values)
                                 ? dpe_field_get(field, dpe_field_data(field, values), 0)
                                 : field->or_else;
        if (value != field->or_else) {
            put(text, "%s%.15g %s", text[0] != '\0' ? ", " : "", value, field->fact);
        }
    }
    return text;
}
