/* A run whose table, journal or manifest is missing or damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/outputs/outputs_fixture.h"

static void a_missing_or_damaged_table_is_rebuilt(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_error err = {0};
    for (int kind = 0; kind < 4; kind++) {
        scratch_clear(scratch);
        fixture_make_journal(scratch, 1, 12, 8);
        size_t n = 0;
        char *bytes = slurp(scratch->table, &n);
        if (kind == 0) {
            assert_int_equal(unlink(scratch->table), 0);
        } else if (kind == 1) {
            spill(scratch->table, bytes, n / 2);
        } else if (kind == 2) {
            spill(scratch->table, "", 0);
        } else {
            memset(bytes + n / 3, 0, n / 3);
            spill(scratch->table, bytes, n);
        }
        free(bytes);
        scratch->notices[0] = '\0';
        struct dpe_run *run = NULL;
        assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
        assert_int_equal(strstr(scratch->notices, "rebuild") != NULL, kind > 0);
        assert_int_equal(fixture_count(run, 12), 12);
        assert_int_equal(dpe_run_snapshot(run, true, NULL, NULL, &err), DPE_OK);
        assert_int_equal(dpe_run_close(run, &err), DPE_OK);
        fixture_expect_rows(scratch, 12);
    }
}

static void a_damaged_table_alone_is_refused_or_right(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_error err = {0};
    fixture_make_table(scratch, 1, 12);
    size_t n = 0, refused = 0, right = 0;
    char *bytes = slurp(scratch->table, &n);
    for (size_t at = 0; at < n; at += 61) {
        bytes[at] = (char)(bytes[at] ^ (1 << at % 8));
        spill(scratch->table, bytes, n);
        struct dpe_run *run = NULL;
        dpe_status status = fixture_open(scratch, 1, NULL, &run, &err);
        if (status == DPE_OK) {
            /* The bit lay in the magic of the checksum itself. */
            assert_int_equal(fixture_count(run, 12), 12);
            assert_int_equal(dpe_run_close(run, &err), DPE_OK);
            right++;
        } else {
            assert_true(status == DPE_CANNOT_CREATE || status == DPE_MISMATCH);
            refused++;
        }
        bytes[at] = (char)(bytes[at] ^ (1 << at % 8));
        remove_files(scratch->journal, "");
        rmdir(scratch->journal);
    }
    assert_true(refused > 100 && right <= 1);
    free(bytes);
}

static void rows_the_journal_lacks_come_from_the_table(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_error err = {0};
    /* The process is killed while it removes the journal of a complete table. */
    for (int kind = 0; kind < 3; kind++) {
        scratch_clear(scratch);
        fixture_make_journal(scratch, 1, 12, 12);
        assert_int_equal(unlink(kind == 1 ? scratch->manifest : scratch->own), 0);
        if (kind == 2) {
            assert_int_equal(unlink(scratch->manifest), 0);
        }
        fixture_expect_rows(scratch, 12);
        assert_int_equal(unlink(scratch->table), 0);
        fixture_expect_rows(scratch, 12);
    }
    /* Salvage loses a row of the journal, the snapshot still has it. */
    scratch_clear(scratch);
    fixture_make_journal(scratch, 1, 12, 8);
    size_t n = 0;
    char *bytes = slurp(scratch->own, &n);
    bytes[n / 2] ^= 1;
    spill(scratch->own, bytes, n);
    free(bytes);
    struct dpe_run *run = NULL;
    const struct dpe_run_options salvage = {.salvage = true};
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_BAD_DATA);
    assert_int_equal(fixture_open(scratch, 1, &salvage, &run, &err), DPE_OK);
    assert_int_equal(fixture_count(run, 12), 12);
    assert_non_null(strstr(scratch->notices, "copied from the table"));
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    fixture_expect_rows(scratch, 12);
}

static void a_damaged_manifest_is_written_again(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    fixture_make_journal(scratch, 1, 3, 0);
    size_t n = 0;
    char *bytes = slurp(scratch->manifest, &n);
    spill(scratch->manifest, bytes, n / 2);
    fixture_expect_rows(scratch, 3);
    assert_non_null(strstr(scratch->notices, "written again"));
    scratch->notices[0] = '\0';
    fixture_expect_rows(scratch, 3);
    assert_string_equal(scratch->notices, "");
    /* A value that was edited no longer agrees with the checksum beside it. */
    assert_non_null(strstr(bytes, "niah"));
    bytes[strstr(bytes, "niah") - bytes] = 'm';
    spill(scratch->manifest, bytes, n);
    fixture_expect_rows(scratch, 3);
    free(bytes);
    /* One without any field, under the checksum of nothing. */
    static const char bare[] = "{\"format\": \"dpe-journal\", \"version\": 1, \"identity\": [], "
                               "\"identity_sha256\": \"e3b0c44298fc1c149afbf4c8996fb924"
                               "27ae41e4649b934ca495991b7852b855\"}";
    spill(scratch->manifest, bare, sizeof bare - 1);
    scratch->notices[0] = '\0';
    fixture_expect_rows(scratch, 3);
    assert_non_null(strstr(scratch->notices, "written again"));
    /* Without a manifest the hash in the journal still identifies another run. */
    assert_int_equal(unlink(scratch->manifest), 0);
    assert_int_equal(fixture_open(scratch, 2, NULL, &run, &err), DPE_MISMATCH);
    fixture_expect_rows(scratch, 3);
    /* Of a later version: not ours to touch. */
    spill(scratch->manifest, "{\"format\": \"dpe-journal\", \"version\": 2}", 39);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "version"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(a_missing_or_damaged_table_is_rebuilt),
        WITH_SCRATCH(a_damaged_table_alone_is_refused_or_right),
        WITH_SCRATCH(rows_the_journal_lacks_come_from_the_table),
        WITH_SCRATCH(a_damaged_manifest_is_written_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
