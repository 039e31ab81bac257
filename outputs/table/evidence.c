/* What was measured under an entry, in words. */
#include "outputs/table/fields.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* A line that grows. */
struct line {
    char *text;
    size_t used;
};

static void put(struct line *line, const char *text)
{
    size_t n = strlen(text);
    size_t room = DPE_TABLE_EVIDENCE - 1 - line->used;
    memcpy(line->text + line->used, text, n < room ? n : room);
    line->used += n < room ? n : room;
    line->text[line->used] = '\0';
}

/* A share of needles in percent, or a perplexity. */
static const char *score(bool needles, double value, char text[32])
{
    snprintf(text, 32, needles ? "%.0f %%" : "%.4g", needles ? 100.0 * value : value);
    return text;
}

/* ", 98 % possible" of what is known. */
static void put_known(struct line *line, bool needles, double value, const char *words)
{
    char text[32];
    if (value >= 0.0) {
        put(line, ", ");
        put(line, score(needles, value, text));
        put(line, " ");
        put(line, words);
    }
}

static void put_short_texts(struct line *line, double loss)
{
    char text[64];
    if (loss > 0.0) {
        snprintf(text, sizeof text, "; short texts lose %.3g nats per token", loss);
        put(line, text);
    } else if (loss == 0.0) {
        put(line, "; short texts run unchanged");
    }
}

const char *dpe_table_evidence(const struct dpe_table_values *values, char text[DPE_TABLE_EVIDENCE])
{
    struct line line = {text, 0};
    char words[160];
    char number[2][32];
    text[0] = '\0';
    if (values->evidence_task == NULL) {
        return text;
    }
    const bool needles = strcmp(values->evidence_task, "perplexity") != 0;
    put(&line, needles ? "finds " : "perplexity ");
    put(&line, score(needles, values->evidence_score, number[0]));
    if (values->evidence_low >= 0.0) {
        snprintf(words, sizeof words, " (%s to %s)",
                 score(needles, values->evidence_low, number[0]),
                 score(needles, values->evidence_high, number[1]));
        put(&line, words);
    }
    snprintf(words, sizeof words, " at %lld tokens", (long long)values->length);
    put(&line, words);
    put_known(&line, needles, values->evidence_possible, "at the trained length");
    put_known(&line, needles, values->evidence_unchanged, "unchanged");
    if (values->evidence_rival_score >= 0.0) {
        put_known(&line, needles, values->evidence_rival_score, "with ");
        put(&line, values->evidence_rival);
    }
    put_short_texts(&line, values->evidence_short_loss);
    snprintf(words, sizeof words, " (%lld samples%s", (long long)values->evidence_samples,
             needles ? ", " : "");
    put(&line, words);
    put(&line, needles ? values->evidence_task : "");
    put(&line, ")");
    return text;
}

const char *dpe_table_facts(const struct dpe_table_values *values, char text[DPE_TABLE_EVIDENCE])
{
    struct line line = {text, 0};
    char words[160];
    text[0] = '\0';
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        const double value = field->fact != NULL && dpe_field_applies(field, values)
                                 ? dpe_field_get(field, dpe_field_data(field, values), 0)
                                 : field->or_else;
        if (value != field->or_else) {
            snprintf(words, sizeof words, "%s%.15g %s", line.used > 0 ? ", " : "", value,
                     field->fact);
            put(&line, words);
        }
    }
    return text;
}
