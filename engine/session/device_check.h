/**
 * @file device_check.h
 * The test of a device before its first session, and the ladder that it goes down where it fails
 * (inside the room).
 *
 * A device has several ways of computing the same (dpe_ways). A test runs a small random model of
 * the kind of the model at hand on the device and on the processors and compares (device_test.c).
 * Where a way is wrong, does not start or hangs, the ladder takes the next one of that part
 * (device_ladder.c). A call that fails or hangs takes its process with it, so tests run in a child
 * process (device_ladder.c) until there is a verdict, which is kept in a file (device_check.c).
 */
#ifndef DPE_DEVICE_CHECK_H
#define DPE_DEVICE_CHECK_H

#include "engine/session/session_internal.h"

/* ------------------------------------------------------------------------------------- one test */

enum {
    DPE_DEVICE_PLANS = 3,
    DPE_DEVICE_ALL = -1,  /**< in the place of a plan */
    DPE_DEVICE_OPEN = -2, /**< no question: whether a session can be opened */
};
/** What is asked under each plan, in this order. */
enum dpe_device_question {
    DPE_ASK_PREFILL,  /**< likelihoods of a text in two chunks */
    DPE_ASK_ONE,      /**< one more token */
    DPE_ASK_FEW,      /**< a few */
    DPE_ASK_MANY,     /**< so many that they go the way of a prefill */
    DPE_ASK_BRANCHES, /**< steps of several branches, a wait after each launch */
    DPE_ASK_STEPS, /**< the same as they are in use: launches follow each other, graphs are made */
    DPE_QUESTIONS
};
/** "a prefill", "one token" … */
extern const char *const dpe_device_questions[DPE_QUESTIONS];

/** A test: plain data without pointers that mean anything, so that it can be sent to a child. */
struct dpe_device_request {
    char device[32];
    struct dpe_config config; /**< of the small model; pointers NULL */
    int64_t tokens;           /**< of the prefill */
    int32_t n_threads;
    int32_t plan;           /**< this plan alone, or one of the next */
    double timeout_seconds; /**< of each call that waits for the device */
    struct dpe_ways ways;
    struct dpe_selection selection; /**< block 0: none */
};
enum dpe_device_outcome {
    DPE_DEVICE_RIGHT,
    DPE_DEVICE_WRONG,    /**< other numbers than the processors', or none */
    DPE_DEVICE_FAILED,   /**< a call returned an error */
    DPE_DEVICE_HANGS,    /**< a call, or the test's process, did not end in time */
    DPE_DEVICE_UNTESTED, /**< the test itself could not be made (`status`) */
};
/** What came of it: plain data too. */
struct dpe_device_result {
    enum dpe_device_outcome outcome;
    dpe_status status; /**< of DPE_DEVICE_UNTESTED */
    /** Where it is not right: the first plan and question that show it, or during which it failed.
     */
    int plan;
    enum dpe_device_question question;
    bool needs_reset; /**< after it not even a session can be opened */
    double most;      /**< the rms of differences that rounding explains */
    double rms[DPE_DEVICE_PLANS][DPE_QUESTIONS]; /**< NaN: not asked */
    char plans[DPE_DEVICE_PLANS][64];            /**< their names */
    char text[512];                              /**< what failed, in words */
    char code[64];                               /**< what ran (dpe_ops.code) */
};

/** Whether a model, or a plan's selection (NULL: none), chooses keys or experts by their scores. In
 *  halves rounding may choose others than the processors do: a request in halves takes all of them,
 * and one in float tests the choice. */
bool dpe_device_chooses(const struct dpe_config *config, const struct dpe_selection *selection);
/** The request for a model, a selection (NULL: none), its device, and this many tokens of its
 * prefill; the fastest ways. */
void dpe_device_request_make(const struct dpe_config *config,
                             const struct dpe_session_options *options,
                             const struct dpe_selection *selection, int64_t tokens, bool in_float,
                             struct dpe_device_request *request);
/** The tokens of DPE_DEVICE_SELF_TEST, 0 where that is "off", in place of those given. DPE_USAGE.
 */
dpe_status dpe_device_tokens(int64_t *tokens, struct dpe_error *err);
/** The kind of the small model in a line of ASCII: what differs between two requests' models. */
void dpe_device_kind(const struct dpe_device_request *request, char text[512]);
/** Test in this process. */
void dpe_device_test(const struct dpe_device_request *request, struct dpe_device_result *result);
/** The same in a child process, which a call that never returns takes with it; where no child can
 * be started, here. */
void dpe_device_test_apart(const struct dpe_device_request *request,
                           struct dpe_device_result *result);

/* ----------------------------------------------------------------------------------- the ladder */

/** A step down. */
struct dpe_device_step {
    enum dpe_part part;
    uint8_t from, to;
    struct dpe_device_result why; /**< of the test before it */
};
enum { DPE_DEVICE_STEPS = 2 * DPE_WAY_PARTS };

/** What a ladder needs to know of the device, and what it found. */
struct dpe_ladder {
    const char *names[DPE_WAY_PARTS][4]; /**< of the ways of each part; NULL after the last */
    void (*test)(void *user, const struct dpe_ways *ways, int plan,
                 struct dpe_device_result *result);
    void *user;
    struct dpe_ways ways; /**< to begin with; then those that are right */
    struct dpe_device_step steps[DPE_DEVICE_STEPS];
    int n_steps;
    struct dpe_device_result last; /**< of the last test of `ways`; not right: there is no way */
};
/** The names of all ways. */
void dpe_ladder_names(struct dpe_ladder *ladder, const struct dpe_ops *ops,
                      const struct dpe_config *config, const char *device);
/** Test `ways`, and go down until the device is right or nothing is left. */
void dpe_ladder_run(struct dpe_ladder *ladder);
/** Both for the device of a request, each test in a child. */
void dpe_ladder_descend(struct dpe_ladder *ladder, struct dpe_device_request *request,
                        const struct dpe_ops *ops);

/** The ladder of a request's device, each test in a child; request->ways are then those that are
 * right. Each step is told (dpe_device_set_notice). DPE_NO_DEVICE: a part has none; the message
 * says why. */
dpe_status dpe_device_go_down(struct dpe_device_request *request, const struct dpe_ops *ops,
                              struct dpe_error *err);

/* ---------------------------------------------------------------------------------- the verdict */

/* Of each kind of model, card, driver and module: a line in $XDG_CACHE_HOME/dpe/devices or
 * ~/.cache/dpe/devices, of which the last holds. */

/** The ways that were right for a key (64 hex digits) before; false: none is known. */
bool dpe_verdict_find(const char *key, struct dpe_ways *ways);
/** Keep them; NULL: forget the key. What cannot be written is not kept. */
void dpe_verdict_keep(const char *key, const struct dpe_ways *ways);

#endif
