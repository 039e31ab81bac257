/* dpe-detect's table as SCHEMA.md defines it, read back by h5py, with the numbers of its own rows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/outputs/schema_check.h"

static char folder[] = "/tmp/dpe-detect-XXXXXX";

static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int shell(const char *format, ...)
{
    char command[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    return system(command);
}

static int make_model(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    return shell("python3 '%s/tests/cli/tiny_model.py' '%s/data/reference/tokenizer.json' "
                 "'%s/model'",
                 DPE_SOURCE_DIR, DPE_SOURCE_DIR, folder);
}

static int remove_model(void **state)
{
    (void)state;
    return shell("rm -rf '%s'", folder);
}

static void sweep(const char *name, const char *arguments)
{
    int code =
        shell("'%s/bin/dpe-detect' -m '%s/model' --corpus '%s/data/sample' -l 128 --quiet "
              "--groups 2 --lengths 8,32,128 --select paper --temperature off %s -o '%s/%s' "
              ">'%s/out' 2>'%s/err'",
              DPE_BINARY_DIR, folder, DPE_SOURCE_DIR, arguments, folder, name, folder, folder);
    if (code != 0) {
        shell("cat '%s/err' >&2", folder);
        fail_msg("dpe-detect %s ends with %d", arguments, code);
    }
}

static void tables_follow_the_schema(void **state)
{
    (void)state;
    static const char *const tasks[] = {"niah", "ppl", "both"};
    for (int i = 0; i < 3; i++) {
        char arguments[64], table[128];
        snprintf(arguments, sizeof arguments, "--task %s --samples 2", tasks[i]);
        snprintf(table, sizeof table, "%s/%s.h5", folder, tasks[i]);
        sweep(strrchr(table, '/') + 1, arguments);
        assert_int_equal(schema_check(table), 0);
    }
}

static void searches_are_in_the_table(void **state)
{
    (void)state;
    static const char *const rules[] = {"search --task ppl --budget 2ktok", "both --budget 8ktok",
                                        "search --task user --budget 4ktok --temperature auto"};
    for (int i = 0; i < 3; i++) {
        char arguments[96], table[128];
        snprintf(arguments, sizeof arguments, "--samples 2 --select %s", rules[i]);
        snprintf(table, sizeof table, "%s/rule%d.h5", folder, i);
        sweep(strrchr(table, '/') + 1, arguments);
        assert_int_equal(schema_check(table), 0);
        assert_int_equal(shell(DPE_TEST_PYTHON
                               " -c 'import h5py, sys\n"
                               "f = h5py.File(sys.argv[1])\n"
                               "tried = list(f[\"/search/method\"].asstr())\n"
                               "kept = f[\"/validate\"].attrs[\"kept\"]\n"
                               "kept = kept.decode() if isinstance(kept, bytes) else kept\n"
                               "assert tried[0] == \"rope\" and len(tried) > 3\n"
                               "assert kept in tried + [\"joint\"], kept\n"
                               "assert (\"/detect/rank\" in f) == (\"%s\"[0] == \"b\")\n' '%s'",
                               rules[i], table),
                         0);
    }
}

/* Means, ranks, effective lengths and scales computed again in Python from the single samples. */
static void h5py_reads_the_table(void **state)
{
    (void)state;
    sweep("read.h5", "--task both --samples 3");
    assert_int_equal(shell(DPE_TEST_PYTHON " '%s/tests/golden/read_detect.py' '%s/read.h5'",
                           DPE_SOURCE_DIR, folder),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_follow_the_schema),
        cmocka_unit_test(searches_are_in_the_table),
        cmocka_unit_test(h5py_reads_the_table),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
