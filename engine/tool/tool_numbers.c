/* Numbers with units, read and written. */
#include "engine/tool/tool.h"

#include <math.h>
#include <string.h>

/* A non-negative number without an exponent, times the factor of its unit, if it has one of them;
 * and what follows. */
static bool parse_number(const char *text, const char *units, const double *factors, double *value,
                         const char **rest)
{
    *rest = text;
    if (text[0] == '-' || strpbrk(text, "eE") != NULL || !dpe_scan_real(rest, value)) {
        return false;
    }
    const char *unit = **rest != '\0' ? strchr(units, **rest) : NULL;
    if (unit != NULL) {
        *value *= factors[unit - units];
        *rest += 1;
    }
    return true;
}

bool dpe_parse_bytes(const char *text, uint64_t *bytes)
{
    static const char units[] = "KMGT";
    static const double factors[] = {0x1p10, 0x1p20, 0x1p30, 0x1p40};
    double value = 0.0;
    const char *rest = NULL;
    if (!parse_number(text, units, factors, &value, &rest)) {
        return false;
    }
    if (strchr(units, rest[-1]) != NULL) {
        rest += strncmp(rest, "iB", 2) == 0 ? 2 : *rest == 'B';
    }
    if (*rest != '\0' || !(value >= 1.0) || value > 0x1p62) {
        return false;
    }
    *bytes = (uint64_t)value;
    return true;
}

bool dpe_parse_seconds(const char *text, double *seconds)
{
    static const double factors[] = {1.0, 60.0, 3600.0, 86400.0};
    const char *rest = NULL;
    return parse_number(text, "smhd", factors, seconds, &rest) && *rest == '\0' && *seconds > 0.0;
}

/* Refuse what is no number from `low` to `high`. `also`: what else can be written. */
static int64_t refuse_number(const struct dpe_command_line *state, const char *option,
                             const char *text, int64_t low, int64_t high, const char *also,
                             bool too_large)
{
    char typed[64];
    dpe_tool_typed(state, option, typed);
    if (too_large) {
        dpe_line_error(state, "%s: expected at most %lld, found '%s'", typed, (long long)high,
                       text);
    } else {
        dpe_line_error(state, "%s: expected a whole number of at least %lld%s, found '%s'", typed,
                       (long long)low, also, text);
    }
    return low;
}

int64_t dpe_parse_count(const struct dpe_command_line *state, const char *option, const char *text,
                        int64_t low, int64_t high)
{
    int64_t value = low;
    if (dpe_parse_int(text, low, high, &value)) {
        return value;
    }
    /* A number of digits alone that is no count up to `high` is too large, unless it is below
     * `low`. */
    bool digits = text[0] != '\0' && strspn(text, "0123456789") == strlen(text);
    return refuse_number(state, option, text, low, high, "",
                         digits && !dpe_parse_int(text, 0, low - 1, &value));
}

int64_t dpe_parse_tokens(const struct dpe_command_line *state, const char *option, const char *text,
                         int64_t low, int64_t high)
{
    int64_t value = low;
    if (dpe_parse_length(text, low, high, &value)) {
        return value;
    }
    size_t digits = strspn(text, "0123456789");
    bool number = digits > 0 && strspn(text + digits, "kKmM") == strlen(text + digits) &&
                  strlen(text + digits) <= 1;
    return refuse_number(state, option, text, low, high, " (or 16k, 1M)",
                         number && !dpe_parse_length(text, 0, low - 1, &value));
}

const char *const dpe_special_names[] = {"error", "literal", "parse", NULL};

int dpe_parse_choice(const struct dpe_command_line *state, const char *option, const char *text,
                     const char *const *choices)
{
    char names[256] = "";
    char list[256] = "";
    for (int i = 0; choices[i] != NULL; i++) {
        if (strcmp(text, choices[i]) == 0) {
            return i;
        }
        const char *before = i == 0 ? "" : choices[i + 1] != NULL ? ", " : " or ";
        dpe_append(names, sizeof names, "%s%s", before, choices[i]);
        dpe_append(list, sizeof list, "%s ", choices[i]);
    }
    char typed[64];
    char meant[96];
    dpe_line_error(state, "%s: expected %s, found '%s'%s", dpe_tool_typed(state, option, typed),
                   names, text, dpe_suggest(text, list, meant));
    return 0;
}

double dpe_parse_top_k(const struct dpe_command_line *state, const char *option, const char *text,
                       const char *also)
{
    double value = 1.0;
    if (strcmp(text, "all") == 0) {
        return nextafter(1.0, 0.0); /* the largest share */
    }
    if (!dpe_parse_real(text, 0.0, 65536.0, &value) || !(value > 0.0) ||
        (value >= 1.0 && strspn(text, "0123456789") != strlen(text))) {
        dpe_line_error(
            state,
            "%s: expected %s%sall, a count of pairs of at least 1, or a share above 0 and below 1, "
            "found '%s'",
            option, also != NULL ? also : "", also != NULL ? ", " : "", text);
    }
    return value;
}

const char *dpe_format_bytes(uint64_t bytes, char buffer[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024.0 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024.0;
        unit++;
    }
    snprintf(buffer, 32, unit == 0 || value >= 100.0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return buffer;
}

const char *dpe_format_seconds(double seconds, char buffer[32])
{
    if (!(seconds >= 0.0) || seconds > 1e9) {
        snprintf(buffer, 32, "unknown");
    } else if (seconds < 10.0) {
        snprintf(buffer, 32, "%.1f s", seconds);
    } else if (seconds < 60.0) {
        snprintf(buffer, 32, "%.0f s", seconds);
    } else {
        long long whole = (long long)(seconds + 0.5);
        if (whole < 3600) {
            snprintf(buffer, 32, "%lld min %02lld s", whole / 60, whole % 60);
        } else {
            snprintf(buffer, 32, "%lld h %02lld min", whole / 3600, whole % 3600 / 60);
        }
    }
    return buffer;
}
