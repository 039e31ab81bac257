/* From what failed to the next way of that part: a search that knows nothing of a device but the
 * results of its tests.
 *
 * A test says which question failed first, and a call that failed says its name. Parts that the
 * question uses are suspects. The first suspect whose next way makes the question right, or lets a
 * later one fail, was at fault. Where none alone does, several are, or a lower way is wrong too:
 * then all suspects go to their last way, and each comes back that can. */
#include "engine/session/device_check.h"
#include "engine/session/ladder.h"
#include "engine/system/child.h"
#include "engine/system/platform.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* Whether the call that failed is of this part's way in l->ways: it has the last word of the way's
 * name. Nothing else of the text is searched: cards and files have names too. */
static bool is_named(const struct dpe_ladder *l, enum dpe_part part,
                     const struct dpe_device_result *why)
{
    const char *name = l->names[part][l->ways.way[part]];
    const char *word = name != NULL ? strrchr(name, '_') : NULL;
    word = word != NULL ? word + 1 : name;
    const char *call = strstr(why->text, "failed in ");
    const char *at = call != NULL && word != NULL ? strstr(call, word) : NULL;
    return why->outcome != DPE_DEVICE_WRONG && at != NULL && at < call + strcspn(call, ",");
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

/* ------------------------------------------------------------------ a test in a child process */

/* dpe-bench reads the request and writes the result. A fork would not do: neither a device nor the
 * threads of OpenMP outlive one. */

/* Both programs are of one build, or the child does not answer. */
struct message {
    char version[64];
    struct dpe_device_request request;
};

/* A test's calls each have their limit; this one is for a call that never comes back, and has room
 * for a driver that makes machine code of every kernel first. */
enum { LIMITS = 5 };

static void greet(struct message *message)
{
    memset(message, 0, sizeof *message);
    snprintf(message->version, sizeof message->version, "%s, %zu bytes", dpe_version(),
             sizeof(struct dpe_device_result));
}

int dpe_device_child(void)
{
    struct message message;
    struct message own;
    struct dpe_device_result result;
    greet(&own);
    if (fread(&message, sizeof message, 1, stdin) != 1 ||
        memcmp(message.version, own.version, sizeof own.version) != 0) {
        return 65; /* EX_DATAERR */
    }
    dpe_device_test(&message.request, &result);
    bool written = fwrite(&result, sizeof result, 1, stdout) == 1 && fflush(stdout) == 0;
    return written ? 0 : 74; /* EX_IOERR */
}

/* dpe-bench beside this program, or where tools lie beside its folder. */
static bool find_program(char *path, size_t size)
{
    static const char *const places[] = {"dpe-bench", "../bin/dpe-bench"};
    char own[3072];
    const bool known = dpe_program_folder(own, sizeof own);
    for (size_t i = 0; known && i < sizeof places / sizeof places[0]; i++) {
        int n = snprintf(path, size, "%s%s", own, places[i]);
        if (n > 0 && (size_t)n < size && access(path, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* The child came to no result. */
static void note_end(bool late, const struct dpe_error *err, struct dpe_device_result *result)
{
    memset(result, 0, sizeof *result);
    result->outcome = late ? DPE_DEVICE_HANGS : DPE_DEVICE_FAILED;
    snprintf(result->text, sizeof result->text, "%.500s", err->text);
}

/* False: no child can test here. */
static bool try_apart(const struct dpe_device_request *request, struct dpe_device_result *result)
{
    static char argument[] = DPE_DEVICE_CHILD;
    char path[4096];
    struct message message;
    DPE_SCOPED(dpe_text_free) struct dpe_text output = {0};
    struct dpe_error err = {0};
    const struct dpe_child_limits limits = {.seconds = LIMITS * request->timeout_seconds};
    if (!find_program(path, sizeof path)) {
        return false;
    }
    char *const argv[] = {path, argument, NULL};
    greet(&message);
    message.request = *request;
    const double begin = dpe_clock();
    dpe_status status =
        dpe_child_filter(argv, (const char *)&message, sizeof message, &limits, &output, &err);
    const bool answered = status == DPE_OK && output.n == sizeof *result;
    if (answered) {
        memcpy(result, output.bytes, sizeof *result);
    } else if (status == DPE_IO && strstr(err.text, "exit status 65") == NULL) {
        note_end(dpe_clock() - begin >= limits.seconds, &err, result);
    }
    /* A card that serves one process alone serves this one. */
    return (answered || status == DPE_IO) && strstr(err.text, "exit status 65") == NULL &&
           !(result->outcome == DPE_DEVICE_FAILED &&
             strstr(result->text, "cudaErrorDevicesUnavailable") != NULL);
}

void dpe_device_test_apart(const struct dpe_device_request *request,
                           struct dpe_device_result *result)
{
    if (!try_apart(request, result)) {
        dpe_device_test(request, result);
        return;
    }
    if (result->outcome == DPE_DEVICE_HANGS || result->outcome == DPE_DEVICE_FAILED) {
        struct dpe_device_request open = *request;
        struct dpe_device_result opened;
        open.plan = DPE_DEVICE_OPEN;
        result->needs_reset = try_apart(&open, &opened) && opened.outcome != DPE_DEVICE_RIGHT &&
                              opened.outcome != DPE_DEVICE_UNTESTED;
    }
}
