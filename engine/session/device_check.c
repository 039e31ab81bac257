/* Tests a device before its first session, and remembers by which ways it was right: in this
 * process, and in a file for those after it. */
#include "engine/session/device_check.h"
#include "engine/session/device.h"
#include "engine/session/ladder.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/system/folder.h"

enum { LEAST_TOKENS = 24, MOST_TOKENS = 1 << 16, SUBJECTS = 64 };

/* What a test was about, and the ways that were right. */
struct subject {
    char device[64];
    char kind[512];
    struct dpe_ways ways;
};
static struct subject passed[SUBJECTS];
static size_t n_passed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*told)(const char *text);

void dpe_device_set_notice(void (*notice)(const char *text))
{
    told = notice;
}

/* ----------------------------------------------------------------------------------- in words */

static const char *const part_words[DPE_WAY_PARTS] = {
    "attention", "attention of rows whose keys are taken in parts", "attention of few rows",
    "products of few rows", "a step of decoding"};

/* One word each, for a list. */
static const char *const part_names[DPE_WAY_PARTS] = {"attention", "split", "decoding", "products",
                                                      "steps"};

static const char *outcome_words(const struct dpe_device_result *result)
{
    return result->outcome == DPE_DEVICE_WRONG    ? "wrong"
           : result->outcome == DPE_DEVICE_FAILED ? "failing"
                                                  : "hanging";
}

static void tell_step(const struct dpe_ladder *l, const struct dpe_device_step *step)
{
    char text[1024];
    const char *const *names = l->names[step->part];
    snprintf(text, sizeof text, "cuda: %s by %s is %s on this card, %s is used (%.600s)",
             part_words[step->part], names[step->from], outcome_words(&step->why), names[step->to],
             step->why.text);
    if (told != NULL) {
        told(text);
    }
}

static dpe_status refuse(const struct dpe_device_request *request,
                         const struct dpe_device_result *result, struct dpe_error *err)
{
    if (result->outcome == DPE_DEVICE_UNTESTED) {
        return dpe_fail(err, result->status, "self-test of device %s: %s", request->device,
                        result->text);
    }
    return dpe_fail(err, DPE_NO_DEVICE,
                    "device %s failed its self-test and is not used; %suse --device cpu, or let "
                    "dpe-bench --gpu-report FILE write what to report: %s",
                    request->device,
                    result->needs_reset ? "not even a session can be opened any more, so the card "
                                          "needs a reset (nvidia-smi --gpu-reset, or a restart); "
                                        : "",
                    result->text);
}

/* ---------------------------------------------------------------------------------- the ladder */

static void test_ways(void *user, const struct dpe_ways *ways, int plan,
                      struct dpe_device_result *result)
{
    struct dpe_device_request request = *(const struct dpe_device_request *)user;
    request.ways = *ways;
    request.plan = plan;
    dpe_device_test_apart(&request, result);
}

void dpe_ladder_names(struct dpe_ladder *ladder, const struct dpe_ops *ops,
                      const struct dpe_config *config, const char *device)
{
    for (int part = 0; part < DPE_WAY_PARTS; part++) {
        const char **names = ladder->names[part];
        for (int way = 0; way < 3 && ops->way != NULL; way++) {
            names[way] = ops->way(config, device, (enum dpe_part)part, way);
            if (names[way] == NULL) {
                break;
            }
        }
    }
}

void dpe_ladder_descend(struct dpe_ladder *ladder, struct dpe_device_request *request,
                        const struct dpe_ops *ops)
{
    *ladder = (struct dpe_ladder){.test = test_ways, .user = request};
    dpe_ladder_names(ladder, ops, &request->config, request->device);
    dpe_ladder_run(ladder);
}

dpe_status dpe_device_go_down(struct dpe_device_request *request, const struct dpe_ops *ops,
                              struct dpe_error *err)
{
    struct dpe_ladder ladder;
    dpe_ladder_descend(&ladder, request, ops);
    for (int i = 0; i < ladder.n_steps; i++) {
        tell_step(&ladder, &ladder.steps[i]);
    }
    request->ways = ladder.ways;
    return ladder.last.outcome == DPE_DEVICE_RIGHT ? DPE_OK : refuse(request, &ladder.last, err);
}

/* ----------------------------------------------------------------------------------- verdicts */

enum { KEY = 64, LINE = KEY + 1 + DPE_WAY_PARTS + 2, PATH_ROOM = 4096 };

/* "KEY 010000\n"; anything else is no verdict. */
static bool read_line(const char *line, struct dpe_ways *ways)
{
    if (strlen(line) != LINE - 1 || line[KEY] != ' ' || line[LINE - 2] != '\n') {
        return false;
    }
    for (int part = 0; part < DPE_WAY_PARTS; part++) {
        char digit = line[KEY + 1 + part];
        if (digit < '0' || digit > '3') {
            return false;
        }
        ways->way[part] = (uint8_t)(digit - '0');
    }
    return true;
}

/* The last line of a key holds. */
bool dpe_verdict_find(const char *key, struct dpe_ways *ways)
{
    char path[PATH_ROOM];
    char line[2 * LINE];
    bool found = false;
    struct dpe_ways read = {{0}};
    FILE *file = dpe_cache_path("devices", path, sizeof path) ? fopen(path, "re") : NULL;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        found = strncmp(line, key, KEY) == 0 ? read_line(line, &read) : found;
    }
    if (file != NULL) {
        fclose(file);
    }
    *ways = found ? read : *ways;
    return found;
}

void dpe_verdict_keep(const char *key, const struct dpe_ways *ways)
{
    char path[PATH_ROOM];
    if (!dpe_cache_path("devices", path, sizeof path)) {
        return;
    }
    dpe_cache_make_folders(path);
    FILE *to = fopen(path, "ae");
    if (to == NULL) {
        return;
    }
    fprintf(to, "%.64s ", key);
    for (int part = 0; part < DPE_WAY_PARTS && ways != NULL; part++) {
        fputc('0' + ways->way[part], to);
    }
    fputc('\n', to);
    fclose(to); /* one write: lines of two processes do not mix */
}

/* What a verdict holds for: "" where a later process could not tell. */
static void find_key(const struct dpe_device_info *info, const char *kind, char key[65])
{
    static const char *const variables[] = {"DPE_CUDA_ATTENTION", "DPE_CUDA_GRAPHS"};
    const char *const texts[] = {dpe_version(), info->name, info->driver, info->module, kind};
    key[0] = '\0';
    if (info->module[0] == '\0') {
        return;
    }
    struct dpe_sha256 *hash = dpe_sha256_new();
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        dpe_sha256_text(hash, texts[i]);
    }
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        dpe_sha256_text(hash, getenv(variables[i]));
    }
    (void)dpe_sha256_finish(hash, key, NULL);
}

static bool uses_first(const struct dpe_ways *ways)
{
    static const struct dpe_ways first;
    return memcmp(ways, &first, sizeof first) == 0;
}

static void tell_kept(const struct dpe_config *config, const char *device)
{
    char text[512];
    char kernels[256];
    dpe_device_kernels(config, device, kernels);
    snprintf(text, sizeof text, "cuda: %s, as faster kernels failed their test on this card before",
             kernels);
    if (told != NULL && kernels[0] != '\0') {
        told(text);
    }
}

/* By the ladder, and kept. */
static dpe_status find_anew(struct dpe_device_request *request, const struct dpe_ops *ops,
                            const char *key, struct dpe_error *err)
{
    DPE_TRY(dpe_device_go_down(request, ops, err));
    if (key[0] != '\0') {
        dpe_verdict_keep(key, &request->ways);
    }
    return DPE_OK;
}

/* A card that was right once is tested here: that takes less than a child. */
static dpe_status test_again(struct dpe_device_request *request, const struct dpe_ops *ops,
                             const char *key, struct dpe_error *err)
{
    struct dpe_device_result result;
    dpe_device_test(request, &result);
    if (result.outcome == DPE_DEVICE_RIGHT || result.outcome == DPE_DEVICE_UNTESTED) {
        return result.outcome == DPE_DEVICE_RIGHT ? DPE_OK : refuse(request, &result, err);
    }
    dpe_verdict_keep(key, NULL);
    if (result.outcome == DPE_DEVICE_WRONG) {
        return find_anew(request, ops, key, err);
    }
    /* This process cannot use the device any more. */
    return dpe_fail(
        err, DPE_NO_DEVICE,
        "device %s, which was right before, failed its self-test; the same command again "
        "tests every kernel anew and goes on without those that fail: %s",
        request->device, result.text);
}

static dpe_status find_ways(const char *kind, struct dpe_device_request *request,
                            const struct dpe_device_info *info, const struct dpe_ops *ops,
                            bool *kept, struct dpe_error *err)
{
    char key[65];
    find_key(info, kind, key);
    const bool known = key[0] != '\0' && dpe_verdict_find(key, &request->ways);
    *kept = known && !uses_first(&request->ways);
    return known ? test_again(request, ops, key, err) : find_anew(request, ops, key, err);
}

/* --------------------------------------------------------------------------------------- once */

/* `any`: under whatever selection, which stands at the end of the kind. */
static const struct subject *find_passed(const char *device, const char *kind, bool any)
{
    const size_t n = strlen(kind) + (any ? 0 : 1);
    for (size_t i = 0; i < n_passed; i++) {
        if (strcmp(passed[i].device, device) == 0 && strncmp(passed[i].kind, kind, n) == 0) {
            return &passed[i];
        }
    }
    return NULL;
}

dpe_status dpe_device_tokens(int64_t *tokens, struct dpe_error *err)
{
    const char *words = getenv("DPE_DEVICE_SELF_TEST");
    if (*tokens == 0 || words == NULL || words[0] == '\0') {
        return DPE_OK;
    }
    if (strcmp(words, "off") == 0) {
        *tokens = 0;
        return DPE_OK;
    }
    char *end = NULL;
    long n = strtol(words, &end, 10);
    if (*end != '\0' || n < LEAST_TOKENS || n > MOST_TOKENS) {
        return dpe_fail(
            err, DPE_USAGE,
            "DPE_DEVICE_SELF_TEST: expected off or a number of tokens from %d to %d, found "
            "%.64s",
            LEAST_TOKENS, MOST_TOKENS, words);
    }
    *tokens = n;
    return DPE_OK;
}

/* Test it unless it has passed in this process. */
static dpe_status check_once(struct dpe_device_request *request, const struct dpe_device_info *info,
                             const struct dpe_ops *ops, bool *kept, struct dpe_error *err)
{
    struct subject subject;
    memset(&subject, 0, sizeof subject);
    dpe_device_kind(request, subject.kind);
    snprintf(subject.device, sizeof subject.device, "%s", info->id);
    const struct subject *known = find_passed(subject.device, subject.kind, false);
    *kept = false;
    if (known != NULL) {
        request->ways = known->ways;
        return DPE_OK;
    }
    DPE_TRY(find_ways(subject.kind, request, info, ops, kept, err));
    subject.ways = request->ways;
    if (n_passed < SUBJECTS) {
        passed[n_passed++] = subject;
    }
    return DPE_OK;
}

dpe_status dpe_session_check_device(const struct dpe_config *config,
                                    const struct dpe_selection *selection,
                                    const struct dpe_session_options *options, int64_t tokens,
                                    struct dpe_ways *ways, struct dpe_error *err)
{
    struct dpe_device_info info;
    struct dpe_device_request request;
    const struct dpe_ops *ops = NULL;
    bool kept = false;
    bool other = false;
    dpe_status status = DPE_OK;
    DPE_TRY(dpe_device_tokens(&tokens, err));
    if (tokens == 0) {
        return DPE_OK;
    }
    DPE_TRY(dpe_device_describe(options->device, &info, err));
    DPE_TRY(dpe_ops_find(options->device, &ops, err));
    /* Who comes while the device is tested waits for the answer. */
    (void)pthread_mutex_lock(&lock);
    if (dpe_device_chooses(config, selection) && dpe_config_unpacked(config) != DPE_F32) {
        dpe_device_request_make(config, options, selection, tokens, true, &request);
        status = check_once(&request, &info, ops, &other, err);
    }
    dpe_device_request_make(config, options, selection, tokens, false, &request);
    status = status == DPE_OK ? check_once(&request, &info, ops, &kept, err) : status;
    *ways = request.ways;
    (void)pthread_mutex_unlock(&lock);
    if (status == DPE_OK && kept) {
        tell_kept(config, options->device);
    }
    return status;
}

void dpe_device_kernels(const struct dpe_config *config, const char *device, char text[256])
{
    const struct dpe_session_options options = {.device = device};
    struct dpe_ladder ladder = {.user = NULL};
    struct dpe_device_info info;
    struct dpe_device_request request;
    struct dpe_ways ways = {{0}};
    const struct dpe_ops *ops = NULL;
    char kind[512];
    char key[65];
    text[0] = '\0';
    if (dpe_ops_find(device, &ops, NULL) != DPE_OK || ops->self_test_tokens == 0 ||
        dpe_device_describe(device, &info, NULL) != DPE_OK) {
        return;
    }
    int64_t tokens = ops->self_test_tokens;
    (void)dpe_device_tokens(&tokens, NULL);
    dpe_device_request_make(config, &options, NULL, tokens, false, &request);
    dpe_device_kind(&request, kind);
    (void)pthread_mutex_lock(&lock);
    const struct subject *known = find_passed(info.id, kind, true);
    find_key(&info, kind, key);
    if (known != NULL) {
        ways = known->ways;
    } else if (key[0] != '\0' && tokens > 0) {
        (void)dpe_verdict_find(key, &ways);
    }
    (void)pthread_mutex_unlock(&lock);
    dpe_ladder_names(&ladder, ops, config, device);
    for (int part = 0; part < DPE_WAY_PARTS; part++) {
        const char *name = ladder.names[part][ways.way[part]];
        if (name != NULL) {
            dpe_append(text, 256, "%s%s %s", text[0] != '\0' ? ", " : "", part_names[part], name);
        }
    }
}
