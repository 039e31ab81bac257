/* How well a task tells good plans apart, read from a few contexts. */
#include "detect/search/search.h"

#include <math.h>

/* Quantiles of the normal distribution: 97.5 % and 80 %. */
static const double shown_with = 1.96 + 0.8416;

/* Mean recall of a plan on n samples; 0 without a valid one. */
static double mean_of(const struct dpe_detect_scores *scores, int plan, int64_t first, int64_t n)
{
    double sum = 0.0;
    int64_t valid = 0;
    for (int64_t s = first; s < first + n && s < scores->n_samples; s++) {
        double value = scores->recall[plan * scores->n_samples + s];
        sum += isfinite(value) ? value : 0.0;
        valid += isfinite(value);
    }
    return valid > 0 ? sum / (double)valid : 0.0;
}

static double plan_mean(const struct dpe_detect_scores *scores, int plan)
{
    return mean_of(scores, plan, 0, scores->n_samples);
}

double dpe_detect_reading_shows(const struct dpe_detect_reading *reading, double contexts)
{
    return shown_with * sqrt(2.0 * reading->noise / contexts);
}

bool dpe_detect_reading_best(const struct dpe_detect_scores *scores, int n, unsigned char *live)
{
    bool finds = false;
    for (int i = 0; i < scores->n_cells; i++) {
        finds = finds || (live[i] != 0 && plan_mean(scores, i) > 0.0);
    }
    int left = 0;
    for (int i = 0; i < scores->n_cells; i++) {
        left += live[i] != 0;
    }
    for (; finds && left > n; left--) {
        int worst = -1;
        for (int i = 0; i < scores->n_cells; i++) {
            if (live[i] != 0 && (worst < 0 || plan_mean(scores, i) <= plan_mean(scores, worst))) {
                worst = i;
            }
        }
        live[worst] = 0;
    }
    return finds;
}

/* The longest prompt, and tokens that a question decodes on average. */
static int64_t tokens_of(const struct dpe_detect_scores *scores, double *decoded)
{
    int64_t prompt = 0;
    double n = 0.0;
    *decoded = 0.0;
    for (int64_t row = 0; row < scores->n_cells * scores->n_samples; row++) {
        if (isfinite(scores->recall[row])) {
            prompt = scores->prompt_tokens[row] > prompt ? scores->prompt_tokens[row] : prompt;
            *decoded += (double)scores->new_tokens[row];
            n += 1.0;
        }
    }
    *decoded /= n > 0.0 ? n : 1.0;
    return prompt;
}

/* Mean over the plans that count, of a context; context −1: of all. */
static double mean_of_plans(const struct dpe_detect_scores *scores, const unsigned char *live,
                            int64_t context)
{
    double sum = 0.0;
    double n = 0.0;
    int64_t together = scores->together;
    for (int i = 0; i < scores->n_cells; i++) {
        if (live[i] != 0) {
            sum += context < 0 ? plan_mean(scores, i)
                               : mean_of(scores, i, context * together, together);
            n += 1.0;
        }
    }
    return n > 0.0 ? sum / n : 0.0;
}

/* What is left of contexts after the means of plans and of contexts, as a variance. */
static double residual_variance(const struct dpe_detect_scores *scores, const unsigned char *live,
                                double mean)
{
    int64_t contexts = scores->n_samples / scores->together;
    int64_t plans = 0;
    double sum = 0.0;
    for (int i = 0; i < scores->n_cells; i++) {
        plans += live[i] != 0;
        for (int64_t c = 0; c < contexts && live[i] != 0; c++) {
            double left = mean_of(scores, i, c * scores->together, scores->together) -
                          plan_mean(scores, i) - mean_of_plans(scores, live, c) + mean;
            sum += left * left;
        }
    }
    int64_t freedom = (plans - 1) * (contexts - 1);
    return freedom > 0 ? sum / (double)freedom : 0.0;
}

/* Mean recall of sample s of the plans that count. */
static double mean_of_sample(const struct dpe_detect_scores *scores, const unsigned char *live,
                             int64_t s)
{
    double sum = 0.0;
    double n = 0.0;
    for (int i = 0; i < scores->n_cells; i++) {
        double value = scores->recall[i * scores->n_samples + s];
        if (live[i] != 0 && isfinite(value)) {
            sum += value;
            n += 1.0;
        }
    }
    return n > 0.0 ? sum / n : 0.0;
}

/* What is left of questions after the means of plans in their context, and of questions. */
static double variance_within(const struct dpe_detect_scores *scores, const unsigned char *live)
{
    const int64_t together = scores->together;
    const int64_t contexts = scores->n_samples / together;
    double sum = 0.0;
    double plans = 0.0;
    for (int i = 0; i < scores->n_cells; i++) {
        plans += live[i] != 0 ? 1.0 : 0.0;
        for (int64_t s = 0; s < contexts * together && live[i] != 0; s++) {
            int64_t context = s / together;
            double value = scores->recall[i * scores->n_samples + s];
            double left = value - mean_of(scores, i, context * together, together) -
                          mean_of_sample(scores, live, s) + mean_of_plans(scores, live, context);
            sum += isfinite(left) ? left * left : 0.0;
        }
    }
    double freedom = (plans - 1.0) * (double)(contexts * (together - 1));
    return freedom > 0.0 ? sum / freedom : 0.0;
}

int dpe_detect_questions(const struct dpe_detect_reading *reading, int asked, int most)
{
    const double between = reading->noise - reading->within / (double)asked;
    const double each = DPE_DETECT_DECODED * (double)reading->decoded;
    const double context = (double)reading->tokens - (double)asked * each;
    int n = 1;
    if (!(reading->within > 0.0) || !(each > 0.0)) {
        return asked < most ? asked : most;
    }
    double best = between > 0.0 ? sqrt(fmax(0.0, context) * reading->within / (each * between))
                                : (double)INFINITY;
    while (2 * n <= most && 1.5 * (double)n <= best) {
        n *= 2;
    }
    return n;
}

/* Variance of the plans' means times the contexts of each: what noise alone would make, of a
 * context. */
static double variance_of_plans(const struct dpe_detect_scores *scores, const unsigned char *live,
                                double mean)
{
    double plans = 0.0;
    double sum = 0.0;
    for (int i = 0; i < scores->n_cells; i++) {
        double off = plan_mean(scores, i) - mean;
        sum += live[i] != 0 ? off * off : 0.0;
        plans += live[i] != 0 ? 1.0 : 0.0;
    }
    double contexts = (double)(scores->n_samples / scores->together);
    return plans > 1.0 ? contexts * sum / (plans - 1.0) : 0.0;
}

bool dpe_detect_reading_better(const struct dpe_detect_reading *tried,
                               const struct dpe_detect_reading *now, bool easier)
{
    return (easier && now->mean < DPE_DETECT_FAINT) || tried->per_million > now->per_million;
}

void dpe_detect_read(const struct dpe_detect_scores *scores, const unsigned char *live, int values,
                     struct dpe_detect_reading *reading)
{
    const double of_context = (double)(values * scores->together);
    const double all = (double)(values * scores->n_samples);
    double independent = 0.0;
    double plans = 0.0;
    double decoded = 0.0;
    const int64_t prompt = tokens_of(scores, &decoded);
    *reading = (struct dpe_detect_reading){
        .mean = mean_of_plans(scores, live, -1),
        .decoded = llround(decoded),
        .tokens = prompt + llround(DPE_DETECT_DECODED * decoded * (double)scores->together)};
    for (int i = 0; i < scores->n_cells; i++) {
        if (live[i] != 0) {
            double p = (plan_mean(scores, i) * all + 1.0) / (all + 2.0);
            reading->sensitivity += p * (1.0 - p);
            independent += p * (1.0 - p) / of_context;
            plans += 1.0;
        }
    }
    if (plans > 0.0) {
        reading->sensitivity /= plans;
        reading->noise = fmax(independent / plans, residual_variance(scores, live, reading->mean));
    }
    reading->within = variance_within(scores, live);
    const double of_plans = variance_of_plans(scores, live, reading->mean);
    reading->reliability = of_plans > 0.0 ? fmax(0.0, 1.0 - reading->noise / of_plans) : 0.0;
    if (reading->noise > 0.0 && reading->tokens > 0) {
        reading->per_million = 1e6 * reading->sensitivity * reading->sensitivity / reading->noise /
                               (double)reading->tokens;
    }
}
