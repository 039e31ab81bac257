/* Numbers as options and text files write them: one rule for all of them; and numbers in order. */
#include "engine/base/base.h"

#include <math.h>
#include <stdlib.h>

static const char *skip_digits(const char *at)
{
    while (*at >= '0' && *at <= '9') {
        at++;
    }
    return at;
}

bool dpe_scan_int(const char **text, int64_t low, int64_t high, int64_t *value)
{
    const char *at = *text;
    bool negative = *at == '-';
    at += negative;
    const char *end = skip_digits(at);
    int64_t read = 0;
    for (const char *digit = at; digit < end; digit++) {
        int64_t next = negative ? '0' - *digit : *digit - '0';
        if (__builtin_mul_overflow(read, (int64_t)10, &read) ||
            __builtin_add_overflow(read, next, &read)) {
            return false;
        }
    }
    if (end == at || read < low || read > high) {
        return false;
    }
    *value = read;
    *text = end;
    return true;
}

bool dpe_scan_length(const char **text, int64_t low, int64_t high, int64_t *value)
{
    const char *at = *text;
    int64_t read = 0;
    if (!dpe_scan_int(&at, INT64_MIN, INT64_MAX, &read)) {
        return false;
    }
    int64_t unit = *at == 'k' || *at == 'K' ? 1024 : *at == 'm' || *at == 'M' ? 1024 * 1024 : 1;
    if (__builtin_mul_overflow(read, unit, &read) || read < low || read > high) {
        return false;
    }
    *value = read;
    *text = at + (unit > 1);
    return true;
}

bool dpe_scan_real(const char **text, double *value)
{
    const char *at = *text + (**text == '-');
    const char *end = skip_digits(at);
    bool digits = end > at;
    if (*end == '.') {
        const char *fraction = end + 1;
        end = skip_digits(fraction);
        digits = digits || end > fraction;
    }
    if (!digits) {
        return false;
    }
    if (*end == 'e' || *end == 'E') {
        const char *power = end + 1;
        power += *power == '-' || *power == '+';
        const char *last = skip_digits(power);
        if (last == power) {
            return false;
        }
        end = last;
    }
    /* strtod reads what was just found to be a decimal number, and nothing that follows it. */
    char *stop = NULL;
    double read = strtod(*text, &stop);
    if (stop != end || !isfinite(read)) {
        return false;
    }
    *value = read;
    *text = end;
    return true;
}

bool dpe_parse_int(const char *text, int64_t low, int64_t high, int64_t *value)
{
    int64_t read = 0;
    if (!dpe_scan_int(&text, low, high, &read) || *text != '\0') {
        return false;
    }
    *value = read;
    return true;
}

bool dpe_parse_length(const char *text, int64_t low, int64_t high, int64_t *value)
{
    int64_t read = 0;
    if (!dpe_scan_length(&text, low, high, &read) || *text != '\0') {
        return false;
    }
    *value = read;
    return true;
}

bool dpe_parse_real(const char *text, double low, double high, double *value)
{
    double read = 0.0;
    if (!dpe_scan_real(&text, &read) || *text != '\0' || !(read >= low && read <= high)) {
        return false;
    }
    *value = read;
    return true;
}

static int by_value(const void *a, const void *b)
{
    const int64_t left = *(const int64_t *)a;
    const int64_t right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

int dpe_parse_lengths(const char *text, int64_t low, int64_t high, const char *also,
                      int64_t *lengths, int most, struct dpe_error *err)
{
    const char *at = text;
    int n = 0;
    for (bool more = true; more; at++) {
        if (n == most) {
            dpe_fail(err, DPE_USAGE, "expected at most %d lengths, found '%s'", most, text);
            return 0;
        }
        if (!dpe_scan_length(&at, low, high, &lengths[n++]) || (*at != ',' && *at != '\0')) {
            dpe_fail(err, DPE_USAGE,
                     "expected %swhole numbers from %lld to %lld, separated by commas, found '%s'",
                     also, (long long)low, (long long)high, text);
            return 0;
        }
        more = *at == ',';
    }
    qsort(lengths, (size_t)n, sizeof *lengths, by_value);
    for (int i = 1; i < n; i++) {
        if (lengths[i] == lengths[i - 1]) {
            dpe_fail(err, DPE_USAGE, "%lld is given twice", (long long)lengths[i]);
            return 0;
        }
    }
    return n;
}

static int by_number(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

void dpe_sort(double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_number);
}

double dpe_quantile(const double *sorted, size_t n, double share)
{
    const double at = share * (double)(n - 1);
    const size_t low = (size_t)at;
    const size_t high = low + 1 < n ? low + 1 : low;
    return sorted[low] + (at - (double)low) * (sorted[high] - sorted[low]);
}
