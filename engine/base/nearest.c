/* The name that was probably meant. */
#include <stdio.h>
#include <string.h>

#include "engine/base/base.h"

enum { MOST = 48 }; /* longer words have no suggestion */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Edits (insert, remove, replace, swap neighbours) from a to b; both of at most MOST bytes. */
static size_t distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t rows[3][MOST + 1];
    size_t *before = rows[0];
    size_t *last = rows[1];
    size_t *row = rows[2];
    for (size_t j = 0; j <= m; j++) {
        last[j] = j;
        before[j] = j;
    }
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t edit = last[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = least(edit, least(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = least(row[j], before[j - 2] + 1);
            }
        }
        size_t *oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[m];
}

size_t dpe_nearest(const char *word, size_t n, const char *list, const char **name)
{
    size_t best = 0;
    /* One slip in a short word, which begins as the name does, two in a longer one: with more,
     * words that have nothing in common are near. */
    size_t best_distance = (n < 8 ? 1 : n < 12 ? 2 : 3) + 1;
    for (const char *at = list; n > 0 && n <= MOST && *at != '\0';) {
        size_t m = strcspn(at, "=, ");
        size_t edits = m <= MOST ? distance(word, n, at, m) : MOST;
        /* The beginning of a name counts as one edit, a name with nothing of the word never. */
        edits = n >= 2 && n < m && strncmp(word, at, n) == 0 ? 1 : edits;
        bool begins = n >= 8 || word[0] == at[0];
        if (m > 0 && begins && edits < best_distance && edits < n) {
            *name = at;
            best = m;
            best_distance = edits;
        }
        at += m;
        at += strcspn(at, ", ");
        at += strspn(at, ", ");
    }
    return best;
}

const char *dpe_suggest(const char *word, const char *list, char text[96])
{
    const char *name = NULL;
    size_t n = dpe_nearest(word, strcspn(word, "="), list, &name);
    text[0] = '\0';
    if (n > 0) {
        snprintf(text, 96, "; did you mean '%.*s'?", (int)n, name);
    }
    return text;
}
