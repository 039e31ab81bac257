/* Writes the table that the h5py round trip reads: outputs_writer OUT.h5 [reverse]. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "outputs/h5/h5.h"
#include "tests/outputs/outputs_fixture.h"

static dpe_status fill(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    (void)user;
    static const int64_t groups[2] = {0, 1}, lengths[3] = {64, 128, 256};
    static const double recall[6] = {0.0, 0.25, 0.5, 1.0, 1.0 / 3.0, 0.125};
    static const uint8_t mask[6] = {1, 0, 1, 1, 0, 0};
    static const uint16_t top[2] = {65535, 7};
    static const float norms[3] = {1.5f, -2.25f, 1e-30f};
    static const char *const names[2] = {"groß", "世界"};
    static const int64_t answer = 42;
    const struct dpe_column columns[] = {
        {"/group", DPE_COL_I64, 1, {2}, {NULL}, groups, "frequency group", "1", NULL, true},
        {"/length", DPE_COL_I64, 1, {3}, {NULL}, lengths, "detecting length", "token", NULL, true},
        {"/detect/niah/recall",
         DPE_COL_F64,
         2,
         {2, 3},
         {"/group", "/length"},
         recall,
         "recall",
         "1",
         NULL,
         false},
        {"/table/mask",
         DPE_COL_U8,
         2,
         {2, 3},
         {"/group", "/length"},
         mask,
         "key pairs",
         "1",
         "no yes",
         false},
        {"/norms/top", DPE_COL_U16, 1, {2}, {"/group"}, top, "pairs", "1", NULL, false},
        {"/norms/mean", DPE_COL_F32, 1, {3}, {"/length"}, norms, "norms", "1", NULL, false},
        {"/names", DPE_COL_STRING, 1, {2}, {"/group"}, names, "names", "1", NULL, false},
        {"/answer", DPE_COL_I64, 0, {0}, {NULL}, &answer, "a scalar", "1", NULL, false},
    };
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        dpe_h5_put(table, &columns[i]);
    }
    dpe_h5_attr_text(table, "/detect/niah", "criterion", "Größe");
    dpe_h5_attr_f64(table, "/detect/niah", "level", 0.1);
    return dpe_h5_failed(table, err);
}

int main(int argc, char **argv)
{
    struct dpe_error err = {0};
    struct dpe_run *run = NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: %s OUT.h5 [reverse]\n", argv[0]);
        return 64;
    }
    bool reverse = argc > 2 && strcmp(argv[2], "reverse") == 0;
    struct dpe_identity identity = fixture_identity(1), info = {0};
    dpe_status status = dpe_run_info(&info, argc, argv, 2, &err);
    const struct dpe_run_options options = {.info = &info};
    if (status == DPE_OK) {
        status = dpe_run_open(argv[1], &identity, &options, &run, &err);
    }
    for (int i = 0; status == DPE_OK && i < 60; i++) {
        status = fixture_add(run, reverse ? 59 - i : i, &err);
    }
    for (unsigned i = 0; status == DPE_OK && i < 3; i++) {
        char key[33];
        snprintf(key, sizeof key, "%032x", (reverse ? 2 - i : i) + 10);
        status = dpe_run_plan(run, key, i == 1 ? "rope" : "dpe:window=32", &err);
    }
    if (status == DPE_OK) {
        status = dpe_run_snapshot(run, true, fill, NULL, &err);
    }
    dpe_status closed = dpe_run_close(run, status == DPE_OK ? &err : NULL);
    if (status == DPE_OK) {
        status = closed;
    }
    if (status != DPE_OK) {
        fprintf(stderr, "%s\n", err.text);
    }
    dpe_identity_free(&info);
    dpe_identity_free(&identity);
    return dpe_exit_code(status);
}
