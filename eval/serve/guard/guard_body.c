/* The memory of a JSON text, before it is parsed. */
#include "eval/serve/guard/guard.h"

/* Bytes of jansson's values on a machine of 64 bits, rounded up (2.14): an object with its first
 * table, a list with its first places, a member's pair, and a place in a list that doubles when it
 * is full. */
enum { OBJECT = 256, LIST = 160, TEXT = 96, NUMBER = 48, PAIR = 112, PLACE = 32 };

/* The end of the string that begins at bytes[i]. */
static size_t string_end(const char *bytes, size_t n, size_t i)
{
    for (i++; i < n && bytes[i] != '"'; i++) {
        i += bytes[i] == '\\';
    }
    return i < n ? i + 1 : n;
}

uint64_t dpe_guard_cost(const char *bytes, size_t n)
{
    uint64_t cost = 2 * (uint64_t)n;
    int64_t depth = 0;
    size_t i = 0;
    while (i < n) {
        char c = bytes[i];
        if (c == '"') {
            size_t end = string_end(bytes, n, i);
            cost += TEXT + 2 * (uint64_t)(end - i);
            i = end;
            continue;
        }
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        if (depth > DPE_GUARD_DEPTH) {
            return UINT64_MAX;
        }
        cost += c == '{'   ? OBJECT
                : c == '[' ? LIST
                : c == ':' ? PAIR
                : c == ',' ? PLACE + NUMBER
                           : 0;
        i++;
    }
    return cost + NUMBER;
}
