/* The journal: records are whole or not there, and a wrong row never comes back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/base/base.h"
#include "engine/base/bytes.h"
#include "outputs/h5/rows.h"
#include "outputs/run/run.h"
#include "outputs/storage/storage.h"
#include "outputs/table/trailer.h"
#include "tests/outputs/outputs_fixture.h"

enum { HEADER = 24, TRAILER = 4 };

static void crc_of_the_standard_text(void **state)
{
    (void)state;
    assert_int_equal(dpe_crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(dpe_crc32c(dpe_crc32c(0, "1234", 4), "56789", 5), 0xe3069283u);
}

static void rows_keep_their_bits(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        struct dpe_row row = fixture_row(i), back;
        struct dpe_text bytes = {0};
        row.score = i == 3 ? -0.0 : row.score;
        assert_int_equal(dpe_row_encode(&row, true, &bytes, NULL), DPE_OK);
        const unsigned char *from = (const unsigned char *)bytes.bytes;
        assert_int_equal(dpe_row_decode(from, bytes.n, &back, NULL), DPE_OK);
        assert_true(same_row(&row, &back));
        assert_memory_equal(&row.score, &back.score, sizeof row.score);
        assert_null(dpe_row_difference(&row, &back));
        back.seconds += 1.0;
        assert_null(dpe_row_difference(&row, &back));
        back.n_words++;
        assert_string_equal(dpe_row_difference(&row, &back), "n_words");
        dpe_row_free(&back);
        dpe_row_free(&row);
        dpe_text_free(&bytes);
    }
}

static void unknown_fields_are_skipped_and_missing_ones_empty(void **state)
{
    (void)state;
    static const unsigned char bytes[] = {
        0x01, 0, 1, 0, 0,    0, 'p', 0x02, 0, 1, 0, 0, 0, 't', 0xee, 0xee, 3, 0, 0,
        0,    9, 9, 9, 0x03, 0, 8,   0,    0, 0, 7, 0, 0, 0,   0,    0,    0, 0,
    };
    struct dpe_row row;
    assert_int_equal(dpe_row_decode(bytes, sizeof bytes, &row, NULL), DPE_OK);
    assert_string_equal(row.plan, "p");
    assert_string_equal(row.task, "t");
    assert_int_equal(row.sample, 7);
    assert_true(isnan(row.score));
    assert_int_equal(row.n_tokens, -1);
    dpe_row_free(&row);
    /* Without a sample there is no key. */
    assert_int_equal(dpe_row_decode(bytes, 23, &row, NULL), DPE_BAD_DATA);
}

static void rows_cut_anywhere_are_refused(void **state)
{
    (void)state;
    struct dpe_row row = fixture_row(4), back;
    struct dpe_text bytes = {0};
    assert_int_equal(dpe_row_encode(&row, true, &bytes, NULL), DPE_OK);
    size_t whole = 0;
    for (size_t n = 0; n < bytes.n; n++) {
        /* An exact copy, so that a read past the end is seen by the sanitizers. */
        unsigned char *cut = malloc(n + 1);
        memcpy(cut, bytes.bytes, n);
        cut = realloc(cut, n == 0 ? 1 : n);
        dpe_status status = dpe_row_decode(cut, n, &back, NULL);
        /* Between two fields a cut is an older row without the later ones. */
        whole += status == DPE_OK;
        assert_true(status == DPE_OK || status == DPE_BAD_DATA);
        dpe_row_free(&back);
        free(cut);
    }
    assert_true(whole > 0 && whole < 20);
    dpe_row_free(&row);
    dpe_text_free(&bytes);
}

static void rows_that_break_the_rules_are_refused(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    struct dpe_row row;
    dpe_row_init(&row);
    assert_int_equal(dpe_run_add(run, &row, &err), DPE_INTERNAL);
    strcpy(row.plan, "p");
    strcpy(row.task, "t");
    assert_int_equal(dpe_run_add(run, &row, &err), DPE_INTERNAL);
    row.sample = 0;
    row.status = 3;
    assert_int_equal(dpe_run_add(run, &row, &err), DPE_INTERNAL);
    row.status = DPE_ROW_FAILED;
    row.n_buckets = 2;
    assert_int_equal(dpe_run_add(run, &row, &err), DPE_INTERNAL);
    row.n_buckets = 0;
    row.text = strdup("a\xff");
    assert_int_equal(dpe_run_add(run, &row, &err), DPE_INTERNAL);
    assert_non_null(strstr(err.text, "UTF-8"));
    row.text[1] = '\0';
    assert_int_equal(dpe_run_add(run, &row, &err), DPE_OK);
    dpe_row_free(&row);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
}

/* ------------------------------------------------------------------------- journals that were hurt
 */

/* A journal with n rows and its length before each record; returns the file's bytes. */
static char *make_journal(struct scratch *scratch, int n_rows, size_t *offsets, size_t *n)
{
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    for (int i = 0; i < n_rows; i++) {
        struct stat info;
        assert_int_equal(stat(scratch->own, &info), 0);
        offsets[i] = (size_t)info.st_size;
        assert_int_equal(fixture_add(run, i, &err), DPE_OK);
    }
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    return slurp(scratch->own, n);
}

/* Put this journal in place of the existing files, without leftovers. */
static void put_journal(struct scratch *scratch, const char *bytes, size_t n)
{
    remove_files(scratch->journal, "rank-");
    spill(scratch->own, bytes, n);
    scratch->notices[0] = '\0';
}

/* With all rows back in place, the journal opens again without a word. */
static void complete_and_reopen(struct scratch *scratch, struct dpe_run *run, int n_rows)
{
    struct dpe_error err = {0};
    for (int i = 0; i < n_rows; i++) {
        assert_int_equal(fixture_add(run, i, &err), DPE_OK);
    }
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    scratch->notices[0] = '\0';
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_string_equal(scratch->notices, "");
    assert_int_equal(fixture_count(run, n_rows), (size_t)n_rows);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
}

static void a_tail_torn_at_every_length_is_set_aside(void **state)
{
    struct scratch *scratch = *state;
    enum { ROWS = 4 };
    size_t offsets[ROWS], n = 0;
    char *bytes = make_journal(scratch, ROWS, offsets, &n);
    for (size_t cut = 0; cut <= n; cut++) {
        put_journal(scratch, bytes, cut);
        struct dpe_run *run = NULL;
        struct dpe_error err = {0};
        assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
        size_t whole = cut == n;
        bool edge = cut == 0 || cut == n;
        for (int i = 0; i < ROWS; i++) {
            whole += i > 0 && cut >= offsets[i];
            edge = edge || cut == offsets[i];
        }
        assert_int_equal(fixture_count(run, ROWS), whole);
        if (cut > offsets[0] && !edge) {
            assert_non_null(strstr(scratch->notices, "were moved to"));
            char aside[256];
            size_t n_aside = 0;
            size_t at = 0;
            for (int i = 0; i < ROWS; i++) {
                at = cut > offsets[i] ? offsets[i] : at;
            }
            snprintf(aside, sizeof aside, "%s.torn-%zu", scratch->own, at);
            char *torn = slurp(aside, &n_aside);
            assert_int_equal(n_aside, cut - at);
            assert_memory_equal(torn, bytes + at, n_aside);
            free(torn);
        }
        complete_and_reopen(scratch, run, ROWS);
    }
    free(bytes);
}

static void tails_of_zeros_or_garbage_are_set_aside(void **state)
{
    struct scratch *scratch = *state;
    size_t offsets[3], n = 0;
    char *bytes = make_journal(scratch, 3, offsets, &n);
    char *longer = malloc(n + 4096);
    for (int garbage = 0; garbage < 2; garbage++) {
        memcpy(longer, bytes, n);
        for (size_t i = n; i < n + 4096; i++) {
            longer[i] = garbage ? (char)(i * 7919 >> 3) : '\0';
        }
        put_journal(scratch, longer, n + 4096);
        struct dpe_run *run = NULL;
        struct dpe_error err = {0};
        assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
        assert_int_equal(fixture_count(run, 3), 3);
        assert_non_null(strstr(scratch->notices, "4096 bytes"));
        complete_and_reopen(scratch, run, 3);
    }
    free(longer);
    free(bytes);
}

static void a_flipped_bit_anywhere_never_makes_a_wrong_row(void **state)
{
    struct scratch *scratch = *state;
    enum { ROWS = 3 };
    size_t offsets[ROWS], n = 0, refused = 0, survived = 0;
    char *bytes = make_journal(scratch, ROWS, offsets, &n);
    for (size_t at = 0; at < n; at++) {
        for (int bit = 0; bit < 8; bit++) {
            bytes[at] = (char)(bytes[at] ^ (1 << bit));
            put_journal(scratch, bytes, n);
            struct dpe_run *run = NULL;
            struct dpe_error err = {0};
            dpe_status status = fixture_open(scratch, 1, NULL, &run, &err);
            if (at < offsets[ROWS - 1]) {
                assert_int_equal(status, DPE_BAD_DATA);
                assert_non_null(strstr(err.text, "--force"));
                refused++;
            } else {
                /* The last record looks like one that was being written. */
                assert_int_equal(status, DPE_OK);
                assert_int_equal(fixture_count(run, ROWS), ROWS - 1);
                assert_non_null(strstr(scratch->notices, "were moved to"));
                assert_int_equal(dpe_run_close(run, &err), DPE_OK);
                survived++;
            }
            bytes[at] = (char)(bytes[at] ^ (1 << bit));
        }
    }
    assert_true(refused > 1000 && survived > 1000);
    free(bytes);
}

static void salvage_reports_what_is_lost(void **state)
{
    struct scratch *scratch = *state;
    enum { ROWS = 5 };
    size_t offsets[ROWS], n = 0;
    const struct dpe_run_options salvage = {.salvage = true};
    char *bytes = make_journal(scratch, ROWS, offsets, &n);
    for (int hurt = 0; hurt < ROWS - 1; hurt++) {
        char *copy = malloc(n);
        memcpy(copy, bytes, n);
        copy[offsets[hurt] + HEADER + 3] ^= 0x10;
        put_journal(scratch, copy, n);
        struct dpe_run *run = NULL;
        struct dpe_error err = {0};
        assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_BAD_DATA);
        assert_int_equal(fixture_open(scratch, 1, &salvage, &run, &err), DPE_OK);
        assert_int_equal(fixture_count(run, ROWS), ROWS - 1);
        assert_false(fixture_holds(run, hurt));
        char lost[64];
        snprintf(lost, sizeof lost, "bytes %zu to %zu (1 record: a sample's row)", offsets[hurt],
                 offsets[hurt + 1]);
        assert_non_null(strstr(scratch->notices, lost));
        /* The damaged file is kept, the new one needs no salvage. */
        char aside[256];
        size_t n_aside = 0;
        snprintf(aside, sizeof aside, "%s.damaged-0", scratch->own);
        char *kept = slurp(aside, &n_aside);
        assert_int_equal(n_aside, n);
        assert_memory_equal(kept, copy, n);
        free(kept);
        free(copy);
        complete_and_reopen(scratch, run, ROWS);
    }
    free(bytes);
}

static void missing_and_repeated_records_are_damage(void **state)
{
    struct scratch *scratch = *state;
    enum { ROWS = 4 };
    size_t offsets[ROWS], n = 0;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    char *bytes = make_journal(scratch, ROWS, offsets, &n);
    char *copy = malloc(2 * n);
    size_t gap = offsets[2] - offsets[1];
    memcpy(copy, bytes, offsets[1]);
    memcpy(copy + offsets[1], bytes + offsets[2], n - offsets[2]);
    put_journal(scratch, copy, n - gap);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_BAD_DATA);
    const struct dpe_run_options salvage = {.salvage = true};
    assert_int_equal(fixture_open(scratch, 1, &salvage, &run, &err), DPE_OK);
    assert_int_equal(fixture_count(run, ROWS), ROWS - 1);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    /* The second record again at the end. */
    memcpy(copy, bytes, n);
    memcpy(copy + n, bytes + offsets[1], gap);
    put_journal(scratch, copy, n + gap);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_BAD_DATA);
    assert_int_equal(fixture_open(scratch, 1, &salvage, &run, &err), DPE_OK);
    assert_int_equal(fixture_count(run, ROWS), ROWS);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    free(copy);
    free(bytes);
}

static void another_version_is_refused(void **state)
{
    struct scratch *scratch = *state;
    size_t offsets[2], n = 0;
    char *bytes = make_journal(scratch, 2, offsets, &n);
    /* A later program's record, whole and with a right checksum. */
    unsigned char *header = (unsigned char *)bytes + offsets[1];
    header[4] = 2;
    dpe_store_u64(header + 20, dpe_crc32c(0, header, 20), 4);
    put_journal(scratch, bytes, n);
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    const struct dpe_run_options both = {.salvage = true, .force = true};
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "version 2"));
    assert_int_equal(fixture_open(scratch, 1, &both, &run, &err), DPE_BAD_DATA);
    free(bytes);
}

static void unknown_record_types_are_kept(void **state)
{
    struct scratch *scratch = *state;
    size_t offsets[2], n = 0;
    char *bytes = make_journal(scratch, 2, offsets, &n);
    struct dpe_text more = {0};
    /* begin, session and two rows have the numbers 0 to 3. */
    assert_int_equal(dpe_record_encode(&more, 77, 4, "abc", 3, NULL), DPE_OK);
    char *copy = malloc(n + more.n);
    memcpy(copy, bytes, n);
    memcpy(copy + n, more.bytes, more.n);
    put_journal(scratch, copy, n + more.n);
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_string_equal(scratch->notices, "");
    assert_int_equal(fixture_count(run, 2), 2);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    dpe_text_free(&more);
    free(copy);
    free(bytes);
}

static void hostile_payloads_are_refused(void **state)
{
    struct scratch *scratch = *state;
    static const unsigned char huge[] = {0xff, 0xff, 0xff, 0xff, 'x'};
    struct dpe_identity list;
    struct dpe_error err = {0};
    assert_int_equal(dpe_identity_decode(huge, sizeof huge, &list, &err), DPE_BAD_DATA);
    assert_int_equal(dpe_identity_decode(huge, 3, &list, &err), DPE_BAD_DATA);
    static const unsigned char nul[] = {2, 0, 0, 0, 'a', 0, 1, 0, 0, 0, 'b'};
    assert_int_equal(dpe_identity_decode(nul, sizeof nul, &list, &err), DPE_BAD_DATA);
    /* A record with a right checksum around a payload that is not a row. */
    size_t offsets[1], n = 0;
    char *bytes = make_journal(scratch, 1, offsets, &n);
    struct dpe_text more = {0};
    assert_int_equal(dpe_record_encode(&more, DPE_RECORD_ROW, 3, huge, sizeof huge, NULL), DPE_OK);
    char *copy = malloc(n + more.n);
    memcpy(copy, bytes, n);
    memcpy(copy + n, more.bytes, more.n);
    put_journal(scratch, copy, n + more.n);
    struct dpe_run *run = NULL;
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "rank-0000.journal"));
    dpe_text_free(&more);
    free(copy);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc_of_the_standard_text),
        cmocka_unit_test(rows_keep_their_bits),
        cmocka_unit_test(unknown_fields_are_skipped_and_missing_ones_empty),
        cmocka_unit_test(rows_cut_anywhere_are_refused),
        WITH_SCRATCH(rows_that_break_the_rules_are_refused),
        WITH_SCRATCH(a_tail_torn_at_every_length_is_set_aside),
        WITH_SCRATCH(tails_of_zeros_or_garbage_are_set_aside),
        WITH_SCRATCH(a_flipped_bit_anywhere_never_makes_a_wrong_row),
        WITH_SCRATCH(salvage_reports_what_is_lost),
        WITH_SCRATCH(missing_and_repeated_records_are_damage),
        WITH_SCRATCH(another_version_is_refused),
        WITH_SCRATCH(unknown_record_types_are_kept),
        WITH_SCRATCH(hostile_payloads_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
