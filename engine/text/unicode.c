/* Looking up character classes, walking UTF-8. */
#include "engine/text/unicode.h"

#include <pthread.h>
#include <string.h>

#include <utf8proc.h>

#include "engine/text/unicode_tables.h"

#define BIT(category) (1U << UTF8PROC_CATEGORY_##category)
#define RANGES(table) table, sizeof(table) / sizeof(table)[0]

enum {
    LETTERS = BIT(LU) | BIT(LL) | BIT(LT) | BIT(LM) | BIT(LO),
    MARKS = BIT(MN) | BIT(MC) | BIT(ME),
    NUMBERS = BIT(ND) | BIT(NL) | BIT(NO),
};

const struct dpe_unicode_class dpe_unicode_L = {.categories = LETTERS};
const struct dpe_unicode_class dpe_unicode_Lu = {.categories = BIT(LU)};
const struct dpe_unicode_class dpe_unicode_Ll = {.categories = BIT(LL)};
const struct dpe_unicode_class dpe_unicode_Lt = {.categories = BIT(LT)};
const struct dpe_unicode_class dpe_unicode_Lm = {.categories = BIT(LM)};
const struct dpe_unicode_class dpe_unicode_Lo = {.categories = BIT(LO)};
const struct dpe_unicode_class dpe_unicode_M = {.categories = MARKS};
const struct dpe_unicode_class dpe_unicode_N = {.categories = NUMBERS};
const struct dpe_unicode_class dpe_unicode_Nd = {.categories = BIT(ND)};
const struct dpe_unicode_class dpe_unicode_P = {
    .categories = BIT(PC) | BIT(PD) | BIT(PS) | BIT(PE) | BIT(PI) | BIT(PF) | BIT(PO)};
const struct dpe_unicode_class dpe_unicode_S = {.categories =
                                                    BIT(SM) | BIT(SC) | BIT(SK) | BIT(SO)};
const struct dpe_unicode_class dpe_unicode_space = {RANGES(space_ranges)};
const struct dpe_unicode_class dpe_unicode_numeric = {RANGES(numeric_ranges), NUMBERS};
const struct dpe_unicode_class dpe_unicode_word = {RANGES(word_ranges),
                                                   LETTERS | MARKS | BIT(ND) | BIT(NL) | BIT(PC)};
const struct dpe_unicode_class dpe_unicode_nfc_second = {RANGES(nfc_second_ranges)};
const struct dpe_unicode_class dpe_unicode_nfc_unknown = {RANGES(nfc_unknown_ranges)};

/* Where characters of one category after each other begin, as the reference has them. */
static struct run {
    uint32_t low, category;
} runs[1 << 13];
static size_t n_runs;
static pthread_once_t runs_made = PTHREAD_ONCE_INIT;

static void make_runs(void)
{
    /* Of planes 4 to 13 and of those for private use no class has any. */
    const uint32_t gap = 0x40000, after_gap = 0xe0000, end = 0xe1000;
    const struct exception *next = exceptions;
    const struct exception *last = exceptions + sizeof exceptions / sizeof exceptions[0];
    for (uint32_t point = 0; point < end; point = point + 1 == gap ? after_gap : point + 1) {
        uint32_t category = (uint32_t)utf8proc_category((utf8proc_int32_t)point);
        if (next < last && point >= next->low) {
            category = next->category;
            next += point == next->high;
        }
        const bool other = n_runs == 0 || runs[n_runs - 1].category != category;
        if (other && n_runs < sizeof runs / sizeof runs[0]) {
            runs[n_runs++] = (struct run){point, category};
        }
    }
}

static bool has_run(const struct dpe_unicode_class *set, size_t run)
{
    return (set->categories >> runs[run].category & 1U) != 0;
}

bool dpe_unicode_has(const struct dpe_unicode_class *set, uint32_t point)
{
    size_t low = 0, high = set->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (point > set->ranges[middle][1]) {
            low = middle + 1;
        } else if (point < set->ranges[middle][0]) {
            high = middle;
        } else {
            return true;
        }
    }
    if (set->categories == 0) {
        return false;
    }
    (void)pthread_once(&runs_made, make_runs);
    size_t run = 0;
    for (size_t step = sizeof runs / sizeof runs[0] / 2; step > 0; step /= 2) {
        run += run + step < n_runs && runs[run + step].low <= point ? step : 0;
    }
    return has_run(set, run);
}

bool dpe_unicode_blank(uint32_t point)
{
    return point < 0x80 ? (point >= 0x09 && point <= 0x0d) || (point >= 0x1c && point <= 0x20)
                        : dpe_unicode_has(&dpe_unicode_space, point);
}

bool dpe_unicode_range(const struct dpe_unicode_class *set, size_t *at, uint32_t range[2])
{
    if (set->categories == 0) {
        memcpy(range, set->ranges[*at < set->n ? *at : 0], sizeof set->ranges[0]);
        return (*at)++ < set->n;
    }
    (void)pthread_once(&runs_made, make_runs);
    while (*at < n_runs && !has_run(set, *at)) {
        ++*at;
    }
    if (*at == n_runs) {
        return false;
    }
    range[0] = runs[*at].low;
    while (has_run(set, *at)) { /* no class has the last one */
        ++*at;
    }
    range[1] = runs[*at].low - 1;
    return true;
}

const struct dpe_unicode_class *dpe_unicode_category(const char *name, size_t n)
{
    static const struct {
        const char *name;
        const struct dpe_unicode_class *set;
    } known[] = {
        {"L", &dpe_unicode_L},   {"Lu", &dpe_unicode_Lu}, {"Ll", &dpe_unicode_Ll},
        {"Lt", &dpe_unicode_Lt}, {"Lm", &dpe_unicode_Lm}, {"Lo", &dpe_unicode_Lo},
        {"M", &dpe_unicode_M},   {"N", &dpe_unicode_N},   {"Nd", &dpe_unicode_Nd},
        {"P", &dpe_unicode_P},   {"S", &dpe_unicode_S},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strlen(known[i].name) == n && memcmp(known[i].name, name, n) == 0) {
            return known[i].set;
        }
    }
    return NULL;
}

int dpe_hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

uint32_t dpe_utf8_next(const char *s, size_t *n)
{
    utf8proc_int32_t point = (unsigned char)*s;
    *n = point < 0x80 ? 1 : (size_t)utf8proc_iterate((const utf8proc_uint8_t *)s, -1, &point);
    return (uint32_t)point;
}

const char *dpe_utf8_before(const char *s)
{
    do {
        s--;
    } while (((unsigned char)*s & 0xc0) == 0x80);
    return s;
}

size_t dpe_utf8_put(uint32_t point, char out[4])
{
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)point, (utf8proc_uint8_t *)out);
}

dpe_status dpe_utf8_repair(const char *bytes, size_t n, struct dpe_text *out, struct dpe_error *err)
{
    for (size_t at = 0; at < n;) {
        size_t valid = dpe_utf8_check(bytes + at, n - at);
        DPE_TRY(dpe_text_append(out, bytes + at, valid, err));
        at += valid;
        if (at < n) {
            at += dpe_utf8_part(bytes + at, n - at, NULL);
            DPE_TRY(dpe_text_append(out, "\xef\xbf\xbd", 3, err));
        }
    }
    return DPE_OK;
}
