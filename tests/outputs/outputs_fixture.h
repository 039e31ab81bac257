/**
 * @file outputs_fixture.h
 * What the tests of outputs/ share: a scratch folder, an identity, rows that are a function of
 * their number, notices that are kept. Include after cmocka.h.
 */
#ifndef DPE_OUTPUTS_FIXTURE_H
#define DPE_OUTPUTS_FIXTURE_H

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/base.h"
#include "outputs/h5/rows.h"
#include "outputs/run/run.h"

struct scratch {
    char folder[64];
    char table[128];    /**< folder/out.h5 */
    char journal[160];  /**< its folder */
    char own[192];      /**< rank-0000.journal in it */
    char manifest[192]; /**< manifest.json in it */
    char lock[192];     /**< LOCK in it */
    char notices[4096]; /**< all notices so far, one a line */
};

static inline void scratch_notice(void *user, const char *text)
{
    struct scratch *scratch = user;
    size_t n = strlen(scratch->notices);
    snprintf(scratch->notices + n, sizeof scratch->notices - n, "%s\n", text);
}

static inline struct scratch *scratch_make(void)
{
    struct scratch *scratch = calloc(1, sizeof *scratch);
    assert_non_null(scratch);
    /* Memory is enough for what these tests show, and thousands of syncs cost nothing there. */
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(scratch->folder, sizeof scratch->folder, "%s/dpe-outputs-XXXXXX", base);
    assert_non_null(mkdtemp(scratch->folder));
    snprintf(scratch->table, sizeof scratch->table, "%s/out.h5", scratch->folder);
    snprintf(scratch->journal, sizeof scratch->journal, "%s.journal", scratch->table);
    snprintf(scratch->own, sizeof scratch->own, "%s/rank-0000.journal", scratch->journal);
    snprintf(scratch->manifest, sizeof scratch->manifest, "%s/manifest.json", scratch->journal);
    snprintf(scratch->lock, sizeof scratch->lock, "%s/LOCK", scratch->journal);
    return scratch;
}

/** Run a shell command; its exit status. */
static inline int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline int shell(const char *format, ...)
{
    char command[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/** Unlink every file of a folder whose name begins with `prefix`; none when the folder does not
 * exist. */
static inline void remove_files(const char *path, const char *prefix)
{
    DIR *folder = opendir(path);
    struct dirent *entry = folder == NULL ? NULL : readdir(folder);
    for (; entry != NULL; entry = readdir(folder)) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 && entry->d_name[0] != '.') {
            assert_int_equal(unlinkat(dirfd(folder), entry->d_name, 0), 0);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

/** Remove the table and its journal, and the notices. */
static inline void scratch_clear(struct scratch *scratch)
{
    remove_files(scratch->journal, "");
    rmdir(scratch->journal);
    unlink(scratch->table);
    scratch->notices[0] = '\0';
}

static inline void scratch_free(struct scratch *scratch)
{
    assert_int_equal(shell("rm -rf '%s'", scratch->folder), 0);
    free(scratch);
}

static inline int scratch_setup(void **state)
{
    *state = scratch_make();
    return 0;
}

static inline int scratch_teardown(void **state)
{
    scratch_free(*state);
    return 0;
}

/** A test in a scratch folder of its own. */
#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

/** task, seed and model; `variant` changes the seed. */
static inline struct dpe_identity fixture_identity(int variant)
{
    struct dpe_identity identity = {0};
    assert_int_equal(dpe_identity_add(&identity, "model", "0123456789abcdef", NULL), DPE_OK);
    assert_int_equal(dpe_identity_add(&identity, "task", "niah", NULL), DPE_OK);
    assert_int_equal(dpe_identity_addf(&identity, NULL, "seed", "%d", variant), DPE_OK);
    return identity;
}

static const char *const fixture_texts[] = {"4711, 42", "", "Grüße, 世界\nzweite Zeile", NULL};

/** Row number i: two tasks, three plans, every kind of field. Owned by the caller. */
static inline struct dpe_row fixture_row(int i)
{
    struct dpe_row row;
    dpe_row_init(&row);
    snprintf(row.plan, sizeof row.plan, "%032x", (unsigned)(i % 3) + 10);
    snprintf(row.task, sizeof row.task, "%s", i % 2 == 0 ? "niah" : "ppl");
    row.sample = i / 6;
    row.seed = UINT64_MAX - (uint64_t)i;
    row.prompt_tokens = 1000 + i;
    row.seconds = 0.5 * i;
    if (i % 2 == 0) {
        row.score = i / 7.0;
        row.at_least_half = i % 4 == 0;
        row.new_tokens = 12;
        const char *text = fixture_texts[i / 2 % 4];
        row.text = text == NULL ? NULL : strdup(text);
    } else {
        row.nll_sum = i == 5 ? (double)INFINITY : 1e3 / (1 + i);
        row.n_tokens = INT64_C(5000000000) + i;
        row.n_words = 777;
        row.n_buckets = i % 5;
        row.buckets = row.n_buckets == 0 ? NULL : calloc((size_t)row.n_buckets, sizeof(double));
        for (int32_t k = 0; k < row.n_buckets; k++) {
            row.buckets[k] = k == 2 ? (double)NAN : i + 0.1 * k;
        }
    }
    if (i % 11 == 10) {
        row.status = DPE_ROW_NONFINITE;
        row.score = NAN;
        row.layer = 3;
        row.position = 99;
    }
    return row;
}

static inline dpe_status fixture_add(struct dpe_run *run, int i, struct dpe_error *err)
{
    struct dpe_row row = fixture_row(i);
    dpe_status status = dpe_run_add(run, &row, err);
    dpe_row_free(&row);
    return status;
}

static inline bool same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/** Whether every field is the same, seconds included. */
static inline bool same_row(const struct dpe_row *a, const struct dpe_row *b)
{
    bool same = strcmp(a->plan, b->plan) == 0 && strcmp(a->task, b->task) == 0 &&
                a->sample == b->sample && a->status == b->status && a->n_tokens == b->n_tokens &&
                a->n_words == b->n_words && a->prompt_tokens == b->prompt_tokens &&
                a->new_tokens == b->new_tokens && a->seed == b->seed && a->layer == b->layer &&
                a->position == b->position && a->n_buckets == b->n_buckets &&
                same_number(a->score, b->score) && same_number(a->nll_sum, b->nll_sum) &&
                same_number(a->at_least_half, b->at_least_half) &&
                same_number(a->seconds, b->seconds) && (a->text == NULL) == (b->text == NULL) &&
                (a->text == NULL || strcmp(a->text, b->text) == 0);
    for (int32_t k = 0; same && k < a->n_buckets; k++) {
        same = same_number(a->buckets[k], b->buckets[k]);
    }
    return same;
}

/** Whether the run holds row i, exactly. */
static inline bool fixture_holds(const struct dpe_run *run, int i)
{
    struct dpe_row row = fixture_row(i);
    const struct dpe_row *found = dpe_run_find(run, row.task, row.plan, row.sample);
    bool holds = found != NULL && same_row(found, &row);
    dpe_row_free(&row);
    return holds;
}

/** How many rows the run holds; every one must be one of the first `n` of the fixture. */
static inline size_t fixture_count(const struct dpe_run *run, int n)
{
    size_t known = 0, held = 0;
    dpe_run_rows(run, &known);
    for (int i = 0; i < n; i++) {
        held += fixture_holds(run, i);
    }
    assert_int_equal(known, held);
    return held;
}

/** Open with the identity of a variant and these options (NULL: only notices). */
static inline dpe_status fixture_open(struct scratch *scratch, int variant,
                                      const struct dpe_run_options *options, struct dpe_run **run,
                                      struct dpe_error *err)
{
    struct dpe_identity identity = fixture_identity(variant);
    struct dpe_run_options with = options == NULL ? (struct dpe_run_options){0} : *options;
    with.notice = scratch_notice;
    with.user = scratch;
    dpe_status status = dpe_run_open(scratch->table, &identity, &with, run, err);
    dpe_identity_free(&identity);
    return status;
}

static inline bool exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

/** The bytes of a file, owned. (Inlined, gcc 12 takes what strstr finds in them for a dangling
 *  pointer.) */
__attribute__((noinline, unused)) static char *slurp(const char *path, size_t *n)
{
    char *bytes = NULL;
    struct dpe_error err = {0};
    assert_int_equal(dpe_read_file(path, 1 << 30, &bytes, n, &err), DPE_OK);
    return bytes;
}

static inline void spill(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

/** One complete table with n rows and no journal. */
static inline void fixture_make_table(struct scratch *scratch, int variant, int n)
{
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    assert_int_equal(fixture_open(scratch, variant, NULL, &run, &err), DPE_OK);
    for (int i = 0; i < n; i++) {
        assert_int_equal(fixture_add(run, i, &err), DPE_OK);
    }
    assert_int_equal(dpe_run_snapshot(run, true, NULL, NULL, &err), DPE_OK);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_false(exists(scratch->journal));
}

/** An open journal with n rows, closed again; a table of the first `snapshot` of them. */
static inline void fixture_make_journal(struct scratch *scratch, int variant, int n, int snapshot)
{
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    assert_int_equal(fixture_open(scratch, variant, NULL, &run, &err), DPE_OK);
    for (int i = 0; i < n; i++) {
        assert_int_equal(fixture_add(run, i, &err), DPE_OK);
        if (i + 1 == snapshot) {
            assert_int_equal(dpe_run_snapshot(run, false, NULL, NULL, &err), DPE_OK);
        }
    }
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_true(exists(scratch->own));
}

/** Opening works and gives rows 0 … n − 1. */
static inline void fixture_expect_rows(struct scratch *scratch, int n)
{
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    dpe_status status = fixture_open(scratch, 1, NULL, &run, &err);
    if (status != DPE_OK) {
        print_message("%s\n", err.text);
    }
    assert_int_equal(status, DPE_OK);
    assert_int_equal(fixture_count(run, n), (size_t)n);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
}

#endif
