/* From what failed to the next way of that part: a search that knows nothing of a device but the
 * results of its tests.
 *
 * A test says which question failed first, and a call that failed says its name. Parts that the
 * question uses are suspects. The first suspect whose next way makes the question right, or lets a
 * later one fail, was at fault. Where none alone does, several are, or a lower way is wrong too:
 * then all suspects go to their last way, and each comes back that can. */
#include "engine/session/device_check.h"

#include <string.h>

/* Where a failure lies, in the order of questions; what is right is after all of them. */
static int rank(const struct dpe_device_result *result)
{
    return result->outcome == DPE_DEVICE_RIGHT
               ? DPE_DEVICE_PLANS * DPE_QUESTIONS
               : result->plan * DPE_QUESTIONS + (int)result->question;
}

static bool is_better(const struct dpe_device_result *a, const struct dpe_device_result *than)
{
    return a->outcome != DPE_DEVICE_UNTESTED && rank(a) > rank(than);
}

static bool goes_down(const struct dpe_ladder *l, enum dpe_part part)
{
    return l->names[part][l->ways.way[part]] != NULL &&
           l->names[part][l->ways.way[part] + 1] != NULL;
}

/* Whether the call that failed is of this part's way in l->ways: it has the last word of the name.
 */
static bool is_named(const struct dpe_ladder *l, enum dpe_part part,
                     const struct dpe_device_result *why)
{
    const char *name = l->names[part][l->ways.way[part]];
    const char *word = name != NULL ? strrchr(name, '_') : NULL;
    word = word != NULL ? word + 1 : name;
    return word != NULL && why->outcome != DPE_DEVICE_WRONG && strstr(why->text, word) != NULL;
}

/* Parts that a question uses and that have a next way, the likeliest first; their number. */
static int find_suspects(const struct dpe_ladder *l, const struct dpe_device_result *why,
                         enum dpe_part suspects[DPE_WAY_PARTS])
{
    enum {
        A = DPE_PART_ATTENTION,
        S = DPE_PART_SPLIT,
        D = DPE_PART_DECODING,
        P = DPE_PART_PRODUCTS
    };
    /* Without parts before another kernel: that one would have none either. */
    static const int chunk[] = {S, A, P, D, -1};
    static const int token[] = {D, P, S, A, -1};
    static const int steps[] = {DPE_PART_STEPS, D, P, S, A, -1};
    static const int *const orders[DPE_QUESTIONS] = {chunk, token, token, chunk, token, steps};
    /* What hangs takes a minute each time: where the call is known (launches of steps as in use say
     * nothing), no other is tried. */
    const bool named_alone = why->outcome == DPE_DEVICE_HANGS && why->question != DPE_ASK_STEPS;
    int n = 0;
    for (int named = 1; named >= (named_alone ? 1 : 0); named--) {
        for (const int *part = orders[why->question]; *part >= 0; part++) {
            if (goes_down(l, (enum dpe_part) * part) &&
                is_named(l, (enum dpe_part) * part, why) == (named == 1)) {
                suspects[n++] = (enum dpe_part) * part;
            }
        }
    }
    return n;
}

static void record(struct dpe_ladder *l, const struct dpe_ways *to,
                   const struct dpe_device_result *why)
{
    for (int part = 0; part < DPE_WAY_PARTS && l->n_steps < DPE_DEVICE_STEPS; part++) {
        if (to->way[part] != l->ways.way[part]) {
            struct dpe_device_step *step = &l->steps[l->n_steps++];
            step->part = (enum dpe_part)part;
            step->from = l->ways.way[part];
            step->to = to->way[part];
            step->why = *why;
        }
    }
    l->ways = *to;
}

/* All suspects at their last way, then back as many as can be. */
static bool step_together(struct dpe_ladder *l, const enum dpe_part *suspects, int n,
                          const struct dpe_device_result *why)
{
    struct dpe_device_result result;
    struct dpe_ways ways = l->ways;
    for (int i = 0; i < n; i++) {
        while (l->names[suspects[i]][ways.way[suspects[i]] + 1] != NULL) {
            ways.way[suspects[i]]++;
        }
    }
    l->test(l->user, &ways, why->plan, &result);
    if (!is_better(&result, why)) {
        return false;
    }
    l->last = result;
    for (int i = n - 1; i >= 0; i--) {
        const enum dpe_part part = suspects[i];
        struct dpe_ways with = ways;
        bool back = false;
        for (uint8_t way = l->ways.way[part]; way < ways.way[part] && !back; way++) {
            with.way[part] = way;
            l->test(l->user, &with, why->plan, &result);
            back = rank(&result) >= rank(&l->last);
        }
        ways = back ? with : ways;
    }
    record(l, &ways, why);
    return true;
}

static bool step_down(struct dpe_ladder *l)
{
    const struct dpe_device_result why = l->last;
    enum dpe_part suspects[DPE_WAY_PARTS];
    const int n = find_suspects(l, &why, suspects);
    for (int i = 0; i < n; i++) {
        struct dpe_ways ways = l->ways;
        ways.way[suspects[i]]++;
        l->test(l->user, &ways, why.plan, &l->last);
        /* Another call that fails in the same question is the next step's. */
        if (is_better(&l->last, &why) ||
            (is_named(l, suspects[i], &why) && l->last.outcome == why.outcome &&
             !is_named(l, suspects[i], &l->last) && !l->last.needs_reset)) {
            record(l, &ways, &why);
            return true;
        }
        if (l->last.needs_reset) {
            return false;
        }
    }
    l->last = why;
    return n > 1 || (n == 1 && l->names[suspects[0]][l->ways.way[suspects[0]] + 2] != NULL)
               ? step_together(l, suspects, n, &why)
               : false;
}

static bool has_failed(const struct dpe_device_result *result)
{
    return result->outcome != DPE_DEVICE_RIGHT && result->outcome != DPE_DEVICE_UNTESTED &&
           !result->needs_reset;
}

void dpe_ladder_run(struct dpe_ladder *l)
{
    l->n_steps = 0;
    l->test(l->user, &l->ways, DPE_DEVICE_ALL, &l->last);
    while (has_failed(&l->last) && step_down(l)) {
        if (!has_failed(&l->last)) { /* right under that plan */
            l->test(l->user, &l->ways, DPE_DEVICE_ALL, &l->last);
        }
    }
}
