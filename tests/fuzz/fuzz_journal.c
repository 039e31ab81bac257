/* A journal and a manifest: refused, cut at a torn tail, or records that decode to rows or do not.
 */
#include <string.h>

#include "engine/base/base.h"
#include "outputs/h5/rows.h"
#include "outputs/run/run_internal.h"
#include "outputs/storage/storage.h"
#include "tests/fuzz/fuzz.h"

static dpe_status visit(void *user, unsigned type, const unsigned char *payload, size_t n,
                        struct dpe_error *err)
{
    (void)type;
    struct dpe_row row = {0};
    if (dpe_row_decode(payload, n, &row, err) == DPE_OK) {
        ++*(int *)user;
        fuzz_expect(dpe_row_check(&row, err) == DPE_OK, "a decoded row is a valid row");
        dpe_row_free(&row);
    }
    return DPE_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct dpe_error err = {0};
    struct dpe_row row = {0};
    if (dpe_row_decode(bytes, n, &row, &err) == DPE_OK) {
        dpe_row_free(&row);
    }
    const char *path = fuzz_file("rank-0000.journal", bytes, n);
    for (int salvage = 0; salvage < 2; salvage++) {
        struct dpe_journal_scan scan = {0};
        int rows = 0;
        if (dpe_journal_read(path, salvage, visit, &rows, &scan, &err) == DPE_OK) {
            fuzz_expect(scan.end <= scan.size && scan.size == n, "the end lies inside");
        } else {
            fuzz_expect(err.text[0] != '\0', "an error has a text");
        }
    }
    struct dpe_manifest manifest = {0};
    if (dpe_manifest_read(fuzz_file("manifest.json", bytes, n), &manifest, &err) == DPE_OK) {
        fuzz_expect(manifest.identity.n > 0, "a manifest has an identity");
        dpe_identity_free(&manifest.identity);
    }
    return 0;
}
