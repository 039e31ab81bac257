/* The ladder: on made-up devices whose parts are wrong, and on the emulated device with faults
 * planted into its kernels, each test of which runs in a child process as on a card. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <spawn.h>
#include <unistd.h>

#include "engine/session/device.h"
#include "engine/session/device_check.h"
#include "engine/session/ladder.h"
#include "tests/engine/cuda/host/cuda_case.h"

/* ------------------------------------------------------------------------------ made-up devices */

/* Bit w of bad[part]: way w is wrong, from this question on. */
struct made_up {
    unsigned bad[DPE_WAY_PARTS];
    int tests, hangs;
    bool dies;    /* after a failure */
    bool at_once; /* every part is used by the first question */
    enum dpe_device_outcome outcome;
};

/* The first question that uses a part. */
static const enum dpe_device_question first_use[DPE_WAY_PARTS] = {
    DPE_ASK_PREFILL, DPE_ASK_MANY, DPE_ASK_ONE, DPE_ASK_ONE, DPE_ASK_STEPS};

static const char *const made_up_names[DPE_WAY_PARTS][4] = {{"wgmma", "mma", "plain"},
                                                            {"parts", "whole"},
                                                            {"decode", "attention"},
                                                            {"product_few", "cublas"},
                                                            {"graph", "launches"}};

static void test_made_up(void *user, const struct dpe_ways *ways, int plan,
                         struct dpe_device_result *result)
{
    struct made_up *device = user;
    (void)plan;
    memset(result, 0, sizeof *result);
    result->question = DPE_QUESTIONS;
    device->tests++;
    for (int part = 0; part < DPE_WAY_PARTS; part++) {
        const enum dpe_device_question use = device->at_once ? DPE_ASK_PREFILL : first_use[part];
        if (device->bad[part] >> ways->way[part] & 1U && use < result->question) {
            result->question = use;
            result->outcome = device->outcome;
            result->needs_reset = device->dies;
            /* The card and the file have words of other ways. */
            snprintf(result->text, sizeof result->text,
                     "the device (a few parts) failed in dpe_%s, decode_wgmma_parts_graph.c:9: few",
                     device->outcome == DPE_DEVICE_WRONG ? "of none"
                                                         : made_up_names[part][ways->way[part]]);
        }
    }
}

static struct dpe_ladder run_made_up(struct made_up *device)
{
    struct dpe_ladder ladder = {.test = test_made_up, .user = device};
    memcpy(ladder.names, made_up_names, sizeof ladder.names);
    dpe_ladder_run(&ladder);
    return ladder;
}

/* Every set of parts whose first way is bad: those, and no others, go down. */
static void every_set_of_faults_is_found(void **state)
{
    (void)state;
    int most = 0;
    for (int outcome = DPE_DEVICE_WRONG; outcome <= DPE_DEVICE_HANGS; outcome++) {
        for (unsigned set = 0; set < 1U << DPE_WAY_PARTS; set++) {
            struct made_up device = {.outcome = (enum dpe_device_outcome)outcome};
            for (int part = 0; part < DPE_WAY_PARTS; part++) {
                device.bad[part] = set >> part & 1U;
            }
            struct dpe_ladder ladder = run_made_up(&device);
            assert_int_equal(ladder.last.outcome, DPE_DEVICE_RIGHT);
            for (int part = 0; part < DPE_WAY_PARTS; part++) {
                assert_int_equal(ladder.ways.way[part], set >> part & 1U);
            }
            most = device.tests > most ? device.tests : most;
        }
    }
    printf("at most %d tests\n", most);
    assert_true(most <= 24);
}

/* What hangs is known by its call alone: no other part is tried. Steps are asked last. */
static void a_call_names_its_part(void **state)
{
    (void)state;
    for (int part = 0; part < DPE_PART_STEPS; part++) {
        struct made_up device = {.outcome = DPE_DEVICE_HANGS, .at_once = true};
        device.bad[part] = 1;
        const struct dpe_ladder ladder = run_made_up(&device);
        assert_int_equal(ladder.last.outcome, DPE_DEVICE_RIGHT);
        assert_int_equal(ladder.n_steps, 1);
        assert_int_equal(ladder.steps[0].part, part);
        assert_int_equal(device.tests, 3);
    }
}

static void two_rungs_and_none(void **state)
{
    (void)state;
    /* Both of the tensor cores' kernels, and decoding. */
    struct made_up both = {.bad = {[DPE_PART_ATTENTION] = 3, [DPE_PART_DECODING] = 1},
                           .outcome = DPE_DEVICE_WRONG};
    struct dpe_ladder ladder = run_made_up(&both);
    assert_int_equal(ladder.last.outcome, DPE_DEVICE_RIGHT);
    assert_int_equal(ladder.ways.way[DPE_PART_ATTENTION], 2);
    assert_int_equal(ladder.ways.way[DPE_PART_DECODING], 1);
    assert_int_equal(ladder.ways.way[DPE_PART_PRODUCTS], 0);
    /* Two at once, one of which has a way between: what can come back does. */
    struct made_up two = {
        .bad = {[DPE_PART_ATTENTION] = 1, [DPE_PART_SPLIT] = 1, [DPE_PART_PRODUCTS] = 1},
        .outcome = DPE_DEVICE_WRONG,
        .at_once = true};
    ladder = run_made_up(&two);
    assert_int_equal(ladder.last.outcome, DPE_DEVICE_RIGHT);
    assert_int_equal(ladder.ways.way[DPE_PART_ATTENTION], 1);
    assert_int_equal(ladder.ways.way[DPE_PART_SPLIT], 1);
    assert_int_equal(ladder.ways.way[DPE_PART_DECODING], 0);
    assert_int_equal(ladder.ways.way[DPE_PART_PRODUCTS], 1);
    /* Nothing helps where the last way fails too. */
    struct made_up none = {.bad = {[DPE_PART_ATTENTION] = 7}, .outcome = DPE_DEVICE_HANGS};
    ladder = run_made_up(&none);
    assert_int_equal(ladder.last.outcome, DPE_DEVICE_HANGS);
    assert_int_equal(none.tests, 3);
    /* Nor is a card asked again that needs a reset. */
    struct made_up dead = {
        .bad = {[DPE_PART_ATTENTION] = 1}, .outcome = DPE_DEVICE_HANGS, .dies = true};
    ladder = run_made_up(&dead);
    assert_true(ladder.last.needs_reset);
    assert_int_equal(dead.tests, 1);
}

/* ----------------------------------------------------------------------------- the emulated device
 */

static char told_text[4096];

static void take_notice(const char *text)
{
    size_t used = strlen(told_text);
    snprintf(told_text + used, sizeof told_text - used, "%s\n", text);
}

static struct dpe_device_request request_of(int64_t tokens)
{
    struct wide wide = wide_config(1, 1, 64, DPE_BF16);
    const struct dpe_session_options options = {.device = "cuda", .n_threads = 1};
    struct dpe_device_request request;
    dpe_device_request_make(&wide.config, &options, NULL, tokens, false, &request);
    return request;
}

static void expect(const char *text, const char *words)
{
    if (strstr(text, words) == NULL) {
        fail_msg("expected \"%s\" in: %s", words, text);
    }
}

/* As dpe_device_go_down, under the request's plan alone: the emulated device is slow. */
static void test_plan(void *user, const struct dpe_ways *ways, int plan,
                      struct dpe_device_result *result)
{
    struct dpe_device_request request = *(const struct dpe_device_request *)user;
    (void)plan;
    request.ways = *ways;
    dpe_device_test_apart(&request, result);
}

static struct dpe_ladder go_down(struct dpe_device_request *request)
{
    struct dpe_error err = {0};
    const struct dpe_ops *ops = NULL;
    struct dpe_ladder ladder = {.test = test_plan, .user = request};
    TINY_OK(dpe_ops_find("cuda", &ops, &err), err);
    dpe_ladder_names(&ladder, ops, &request->config, request->device);
    dpe_ladder_run(&ladder);
    return ladder;
}

static const struct {
    const char *word;
    enum dpe_device_outcome outcome;
} kinds[] = {
    {"wrong", DPE_DEVICE_WRONG}, {"fails", DPE_DEVICE_FAILED}, {"hangs", DPE_DEVICE_HANGS}};

/* A kernel, on which device, under which plan, in how many of those kinds, and the one step that it
 * takes. How a call fails or hangs does not depend on the kernel: attention_mma and product_few
 * tell of both. */
static const struct {
    const char *kernel, *device;
    int plan, n_kinds;
    enum dpe_part part;
    const char *from, *to;
} faults[] = {
    {"dpe_attention_wgmma_kernel", "capability=90", 0, 2, DPE_PART_ATTENTION, "wgmma", "mma"},
    {"attention_mma", "capability=80", 0, 3, DPE_PART_ATTENTION, "mma", "plain"},
    {"decode", "capability=80", 0, 2, DPE_PART_DECODING, "decode", "attention"},
    {"combine", "capability=80", 0, 1, DPE_PART_DECODING, "decode", "attention"},
    {"fill_table", "capability=80", 1, 1, DPE_PART_DECODING, "decode", "attention"},
    {"product_few", "capability=80", 0, 3, DPE_PART_PRODUCTS, "product_few", "cublas"},
    {"graph", "capability=80", 1, 2, DPE_PART_STEPS, "graph", "launches"},
    {"attention_combine", "capability=80,processors=8", 0, 1, DPE_PART_SPLIT, "parts", "whole"},
};

static void plant(const char *kind, const char *kernel)
{
    char fault[96] = "";
    if (kind != NULL) {
        snprintf(fault, sizeof fault, "%s:%s", kind, kernel);
    }
    setenv("DPE_FAKE_FAULT", fault, 1);
}

/* Wrong, failing or hanging: the way of that part, and no other, goes down by one. */
static void planted_faults_go_down(void **state)
{
    (void)state;
    int n = 0;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        device(faults[i].device);
        for (int kind = 0; kind < faults[i].n_kinds; kind++) {
            struct dpe_device_request request =
                request_of(faults[i].part == DPE_PART_SPLIT ? 1030 : 48);
            request.plan = faults[i].plan;
            plant(kinds[kind].word, faults[i].kernel);
            const struct dpe_ladder ladder = go_down(&request);
            printf("%s %s: %s\n", faults[i].kernel, kinds[kind].word, ladder.steps[0].why.text);
            assert_int_equal(ladder.last.outcome, DPE_DEVICE_RIGHT);
            assert_int_equal(ladder.n_steps, 1);
            assert_int_equal(ladder.steps[0].part, faults[i].part);
            assert_int_equal(ladder.steps[0].why.outcome, kinds[kind].outcome);
            assert_string_equal(ladder.names[faults[i].part][ladder.steps[0].from], faults[i].from);
            assert_string_equal(ladder.names[faults[i].part][ladder.steps[0].to], faults[i].to);
            n++;
        }
    }
    printf("%d faults\n", n);
    plant(NULL, NULL);
}

/* Kernels that have no other way: the call is named, and nothing is hidden by another way. */
static void what_has_one_way_is_named(void **state)
{
    (void)state;
    static const char *const all[][2] = {
        {"embed", "dpe_kernel_embed"},        {"rmsnorm", "dpe_kernel_rmsnorm"},
        {"rotate_rows", "dpe_kernel_rotate"}, {"activate", "dpe_kernel_activate"},
        {"likelihood", "dpe_kernel_nll"},     {"product", "dpe_rt_product"}};
    device("capability=80");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        for (int kind = 1; kind < 3; kind++) {
            struct dpe_device_request request = request_of(48);
            request.plan = 0;
            plant(kinds[kind].word, all[i][0]);
            const struct dpe_ladder ladder = go_down(&request);
            printf("%s %s: %s\n", all[i][0], kinds[kind].word, ladder.last.text);
            assert_int_equal(ladder.last.outcome, kinds[kind].outcome);
            assert_false(ladder.last.needs_reset);
            assert_int_equal(ladder.n_steps, 0);
            expect(ladder.last.text, all[i][1]);
        }
    }
    plant(NULL, NULL);
}

/* A wrong kernel of which no call fails: the part of the model is named. */
static void a_wrong_kernel_has_a_place(void **state)
{
    (void)state;
    static const char *const all[][2] = {
        {"embed", "wrong from the first queries on: embedding, norm or products"},
        {"product", "wrong from the first queries on: embedding, norm or products"},
        {"activate",
         "the first queries are right, those of the next layer are not: attention or MLP"},
        {"likelihood",
         "the queries of all layers are right: the last layer, the head or likelihoods"}};
    device("capability=80");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct dpe_device_request request = request_of(48);
        struct dpe_device_result result;
        request.plan = 0;
        plant("wrong", all[i][0]);
        dpe_device_test(&request, &result);
        printf("%s: %s\n", all[i][0], result.text);
        assert_int_equal(result.outcome, DPE_DEVICE_WRONG);
        expect(result.text, all[i][1]);
    }
    plant(NULL, NULL);
}

/* The tool's way through: told in one line, and refused in words where there is no way. */
static void steps_are_told(void **state)
{
    (void)state;
    const struct dpe_ops *ops = NULL;
    struct dpe_error err = {0};
    struct dpe_device_request request = request_of(24);
    TINY_OK(dpe_ops_find("cuda", &ops, &err), err);
    device("capability=80");
    plant("fails", "attention_mma");
    TINY_OK(dpe_device_go_down(&request, ops, &err), err);
    printf("%s", told_text);
    assert_int_equal(request.ways.way[DPE_PART_ATTENTION], 1);
    expect(told_text,
           "cuda: attention by mma is failing on this card, plain is used (the device (emulated "
           "device 0) failed in dpe_attention_mma");
    /* A card on which nothing runs any more. */
    request = request_of(24);
    device("broken=0");
    assert_int_equal(dpe_device_go_down(&request, ops, &err), DPE_NO_DEVICE);
    printf("%s\n", err.text);
    expect(err.text,
           "device cuda failed its self-test and is not used; not even a session can be opened");
    expect(err.text, "needs a reset");
    expect(err.text, "--device cpu");
    plant(NULL, NULL);
    device("");
}

/* A call that never comes back ends with its process. */
static void a_stuck_call_ends(void **state)
{
    (void)state;
    struct dpe_device_request request = request_of(24);
    struct dpe_device_result result;
    request.timeout_seconds = 0.4;
    request.plan = 0;
    device("capability=80");
    plant("stuck", "rmsnorm");
    dpe_device_test_apart(&request, &result);
    printf("%s\n", result.text);
    assert_int_equal(result.outcome, DPE_DEVICE_HANGS);
    expect(result.text, "did not finish within 2 s");
    assert_false(result.needs_reset);
    plant(NULL, NULL);
}

/* Kept for this key alone, replaced, forgotten; other lines of the file do not matter. */
static void verdicts_are_kept(void **state)
{
    (void)state;
    char folder[] = "/tmp/dpe-verdicts-XXXXXX";
    char keys[2][65];
    char path[96];
    struct dpe_ways ways = {{0, 1, 0, 1, 1}};
    struct dpe_ways found = {{0}};
    assert_non_null(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
    for (int i = 0; i < 2; i++) {
        memset(keys[i], "a0"[i], 64);
        keys[i][64] = '\0';
    }
    assert_false(dpe_verdict_find(keys[0], &found));
    dpe_verdict_keep(keys[0], &ways);
    assert_true(dpe_verdict_find(keys[0], &found));
    assert_memory_equal(&found, &ways, sizeof ways);
    assert_false(dpe_verdict_find(keys[1], &found));
    snprintf(path, sizeof path, "%s/dpe/devices", folder);
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    fprintf(file, "%s 0000\n%s 00009\n%s 0\nnothing\n%300d\n", keys[1], keys[1], keys[1], 7);
    fclose(file);
    assert_false(dpe_verdict_find(keys[1], &found));
    assert_true(dpe_verdict_find(keys[0], &found));
    ways.way[0] = 2;
    dpe_verdict_keep(keys[1], &ways);
    dpe_verdict_keep(keys[0], NULL);
    assert_false(dpe_verdict_find(keys[0], &found));
    assert_true(dpe_verdict_find(keys[1], &found));
    assert_int_equal(found.way[0], 2);
    unlink(path);
    snprintf(path, sizeof path, "%s/dpe", folder);
    rmdir(path);
    rmdir(folder);
}

/* While `spares`, a planted fault is this process's alone: its children are right. */
static bool spares;
extern char **environ;

int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const argv[], char *const envp[])
{
    __typeof__(posix_spawnp) *real = NULL;
    const char *planted = getenv("DPE_FAKE_FAULT");
    char fault[96];
    snprintf(fault, sizeof fault, "%s", planted != NULL ? planted : "");
    *(void **)&real = dlsym(RTLD_NEXT, "posix_spawnp");
    if (spares) {
        unsetenv("DPE_FAKE_FAULT");
        envp = environ;
    }
    const int failed = real(pid, file, actions, attributes, argv, envp);
    setenv("DPE_FAKE_FAULT", fault, 1);
    return failed;
}

/* A card that was right before, is wrong once, and is right by the same ways in a child: the next
 * process finds them. */
static void a_verdict_outlives_a_wrong_result(void **state)
{
    (void)state;
    char folder[] = "/tmp/dpe-verdict-XXXXXX";
    char kind[512], key[65];
    struct wide wide = wide_config(1, 1, 64, DPE_BF16);
    const struct dpe_session_options options = {.device = "cuda", .n_threads = 1};
    const struct dpe_ways first = {{0}};
    struct dpe_ways ways, found;
    struct dpe_device_request request;
    struct dpe_device_info info;
    struct dpe_error err = {0};
    device("capability=80");
    assert_non_null(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
    setenv("DPE_DEVICE_SELF_TEST", "24", 1);
    TINY_OK(dpe_device_describe("cuda", &info, &err), err);
    dpe_device_request_make(&wide.config, &options, NULL, 24, false, &request);
    dpe_device_kind(&request, kind);
    struct dpe_sha256 *hash = dpe_sha256_new();
    const char *const texts[] = {dpe_version(), info.name, info.driver, info.module,
                                 kind,          NULL,      NULL}; /* device_check.c, find_key */
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        dpe_sha256_text(hash, texts[i]);
    }
    TINY_OK(dpe_sha256_finish(hash, key, &err), err);
    dpe_verdict_keep(key, &first);
    plant("wrong", "product_few");
    spares = true;
    TINY_OK(dpe_session_check_device(&wide.config, NULL, &options, 24, &ways, &err), err);
    spares = false;
    plant(NULL, NULL);
    assert_memory_equal(&ways, &first, sizeof ways);
    assert_true(dpe_verdict_find(key, &found));
    assert_memory_equal(&found, &first, sizeof found);
    setenv("DPE_DEVICE_SELF_TEST", "off", 1);
    snprintf(kind, sizeof kind, "%s/dpe/devices", folder);
    unlink(kind);
    snprintf(kind, sizeof kind, "%s/dpe", folder);
    rmdir(kind);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_set_of_faults_is_found),
        cmocka_unit_test(a_call_names_its_part),
        cmocka_unit_test(two_rungs_and_none),
        cmocka_unit_test(planted_faults_go_down),
        cmocka_unit_test(what_has_one_way_is_named),
        cmocka_unit_test(a_wrong_kernel_has_a_place),
        cmocka_unit_test(steps_are_told),
        cmocka_unit_test(a_stuck_call_ends),
        cmocka_unit_test(verdicts_are_kept),
        cmocka_unit_test(a_verdict_outlives_a_wrong_result),
    };
    int code = cuda_begin();
    dpe_device_set_notice(take_notice);
    return code != 0 ? code : cmocka_run_group_tests_name("ladder", tests, NULL, NULL);
}
