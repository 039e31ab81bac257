/* Numbers with units, read and written. */
#include "engine/tool/tool.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A non-negative decimal number and the position behind it. */
static bool parse_number(const char *text, double *value, const char **rest)
{
    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    char *end = NULL;
    *value = strtod(text, &end);
    *rest = end;
    return end != text && isfinite(*value) && strpbrk(text, "xXpPeE") == NULL;
}

bool dpe_parse_bytes(const char *text, uint64_t *bytes)
{
    double value = 0.0;
    const char *rest = NULL;
    if (!parse_number(text, &value, &rest)) {
        return false;
    }
    static const char units[] = "KMGT";
    double factor = 1.0;
    if (*rest != '\0') {
        const char *unit = strchr(units, *rest);
        if (unit == NULL) {
            return false;
        }
        factor = ldexp(1.0, 10 * (int)(unit - units + 1));
        rest += 1;
        rest += strncmp(rest, "iB", 2) == 0 ? 2 : *rest == 'B';
    }
    if (*rest != '\0' || !(value * factor >= 1.0) || value * factor > 0x1p62) {
        return false;
    }
    *bytes = (uint64_t)(value * factor);
    return true;
}

bool dpe_parse_seconds(const char *text, double *seconds)
{
    double value = 0.0;
    const char *rest = NULL;
    if (!parse_number(text, &value, &rest)) {
        return false;
    }
    double factor = 1.0;
    switch (*rest) {
    case '\0':
        break;
    case 's':
        rest++;
        break;
    case 'm':
        factor = 60.0;
        rest++;
        break;
    case 'h':
        factor = 3600.0;
        rest++;
        break;
    case 'd':
        factor = 86400.0;
        rest++;
        break;
    default:
        return false;
    }
    *seconds = value * factor;
    return *rest == '\0' && *seconds > 0.0;
}

bool dpe_parse_int(const char *text, int64_t low, int64_t high, int64_t *value)
{
    char *end = NULL;
    errno = 0;
    long long parsed = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || parsed < low || parsed > high) {
        return false;
    }
    *value = parsed;
    return true;
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
