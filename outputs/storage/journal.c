/* The journal: records that are whole or not there.
 *
 * A record is a header of 24 bytes (magic "DPEJ", version u16, type u16, length u32, sequence u64,
 * CRC-32C of those 20 bytes), the payload, and a CRC-32C that goes on from the header's over the
 * payload, so that a payload cannot belong to another header. All little-endian. Because a record
 * is synced before the next one is written, a crash can only leave the last one torn. */
#include "engine/base/base.h"
#include "engine/base/bytes.h"
#include "engine/system/platform.h"
#include "outputs/storage/storage.h"
#include "outputs/table/trailer.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RECORD_VERSION = 1,
    HEADER = 24,
    TRAILER = 4,
    MAX_PAYLOAD = 64 << 20,
};
static const unsigned char magic[4] = {'D', 'P', 'E', 'J'};

dpe_status dpe_record_encode(struct dpe_text *out, unsigned type, uint64_t sequence,
                             const void *payload, size_t n, struct dpe_error *err)
{
    if (n > MAX_PAYLOAD) {
        return dpe_fail(err, DPE_INTERNAL, "a record of %zu bytes, expected at most %d", n,
                        MAX_PAYLOAD);
    }
    unsigned char header[HEADER], trailer[TRAILER];
    memcpy(header, magic, sizeof magic);
    dpe_store_u64(header + 4, RECORD_VERSION, 2);
    dpe_store_u64(header + 6, type, 2);
    dpe_store_u64(header + 8, n, 4);
    dpe_store_u64(header + 12, sequence, 8);
    uint32_t crc = dpe_crc32c(0, header, HEADER - 4);
    dpe_store_u64(header + HEADER - 4, crc, 4);
    dpe_store_u64(trailer, dpe_crc32c(crc, payload, n), TRAILER);
    DPE_TRY(dpe_text_append(out, (const char *)header, HEADER, err));
    DPE_TRY(dpe_text_append(out, payload, n, err));
    return dpe_text_append(out, (const char *)trailer, TRAILER, err);
}

/* -------------------------------------------------------------------------------------- reading */

struct record {
    unsigned version, type;
    uint64_t sequence;
    const unsigned char *payload;
    size_t n;
    size_t size; /* of the whole record */
};

/* Whether a header of ours (of any version) stands at `at`. */
static bool header_at(const unsigned char *bytes, size_t n, size_t at, struct record *record)
{
    const unsigned char *header = bytes + at;
    if (n - at < HEADER || memcmp(header, magic, sizeof magic) != 0) {
        return false;
    }
    if (dpe_crc32c(0, header, HEADER - 4) != dpe_load_u64(header + HEADER - 4, 4)) {
        return false;
    }
    record->version = (unsigned)dpe_load_u64(header + 4, 2);
    record->type = (unsigned)dpe_load_u64(header + 6, 2);
    record->n = (size_t)dpe_load_u64(header + 8, 4);
    record->sequence = dpe_load_u64(header + 12, 8);
    record->payload = header + HEADER;
    record->size = HEADER + record->n + TRAILER;
    return true;
}

static bool record_at(const unsigned char *bytes, size_t n, size_t at, struct record *record)
{
    if (!header_at(bytes, n, at, record) || record->n > MAX_PAYLOAD || record->size > n - at) {
        return false;
    }
    uint32_t crc = (uint32_t)dpe_load_u64(bytes + at + HEADER - 4, 4);
    return dpe_crc32c(crc, record->payload, record->n) ==
           dpe_load_u64(record->payload + record->n, TRAILER);
}

/* The next whole record at or after `at`, n when there is none. */
static size_t next_record(const unsigned char *bytes, size_t n, size_t at, struct record *record)
{
    while (at < n) {
        const unsigned char *found = memchr(bytes + at, magic[0], n - at);
        if (found == NULL) {
            return n;
        }
        at = (size_t)(found - bytes);
        if (record_at(bytes, n, at, record)) {
            return at;
        }
        at++;
    }
    return n;
}

/* `type` of the first one when its header is whole, else 0. */
static void note_lost(struct dpe_journal_scan *scan, size_t from, size_t to, uint64_t missing,
                      unsigned type)
{
    static const char *const names[] = {"", ": the beginning", ": what a process was",
                                        ": a sample's row", ": the name of a plan"};
    const char *what = type < sizeof names / sizeof names[0] ? names[type] : "";
    dpe_append(scan->lost, sizeof scan->lost, "%sbytes %zu to %zu (%llu record%s%s%s)",
               scan->lost[0] == '\0' ? "" : ", ", from, to, (unsigned long long)missing,
               missing == 1 ? "" : "s", what, missing > 1 && what[0] != '\0' ? " and others" : "");
}

/* Damage at `at` with a whole record at `next`: an error, or under salvage a note of what is lost.
 */
static dpe_status damage(const char *path, bool salvage, size_t at, size_t next, unsigned type,
                         const struct record *record, struct dpe_journal_scan *scan,
                         struct dpe_error *err)
{
    if (!salvage) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: expected record %llu at byte %zu, found damage up to record %llu at "
                        "byte %zu; --force continues without the lost records",
                        path, (unsigned long long)scan->sequence, at,
                        (unsigned long long)record->sequence, next);
    }
    uint64_t missing = record->sequence > scan->sequence ? record->sequence - scan->sequence : 0;
    note_lost(scan, at, next, missing, type);
    scan->damaged = true;
    return DPE_OK;
}

static dpe_status check_version(const char *path, const struct record *record,
                                struct dpe_error *err)
{
    if (record->version == RECORD_VERSION) {
        return DPE_OK;
    }
    return dpe_fail(err, DPE_BAD_DATA,
                    "%s: expected a journal of version %d, found version %u; finish that run with "
                    "the program that began it, or remove its folder",
                    path, RECORD_VERSION, record->version);
}

static dpe_status scan_bytes(const char *path, const unsigned char *bytes, size_t n, bool salvage,
                             dpe_record_visit visit, void *user, struct dpe_journal_scan *scan,
                             struct dpe_error *err)
{
    size_t at = 0;
    while (at < n) {
        struct record record = {0};
        unsigned type = 0;
        if (header_at(bytes, n, at, &record)) {
            DPE_TRY(check_version(path, &record, err));
            type = record.type;
        }
        size_t next = next_record(bytes, n, at, &record);
        if (next == n) {
            break;
        }
        DPE_TRY(check_version(path, &record, err));
        if (next != at || record.sequence != scan->sequence) {
            DPE_TRY(damage(path, salvage, at, next, next != at ? type : 0, &record, scan, err));
        }
        DPE_TRY(visit(user, record.type, record.payload, record.n, err));
        at = next + record.size;
        scan->end = at;
        scan->sequence = record.sequence + 1;
        scan->n_records++;
    }
    return DPE_OK;
}

dpe_status dpe_journal_read(const char *path, bool salvage, dpe_record_visit visit, void *user,
                            struct dpe_journal_scan *scan, struct dpe_error *err)
{
    *scan = (struct dpe_journal_scan){0};
    DPE_OWNED char *bytes = NULL;
    size_t n = 0;
    DPE_TRY(dpe_read_file(path, INT64_MAX, &bytes, &n, err));
    scan->size = n;
    return scan_bytes(path, (const unsigned char *)bytes, n, salvage, visit, user, scan, err);
}

/* -------------------------------------------------------------------------------------- writing */

static dpe_status open_for_append(struct dpe_journal *journal, const char *path, uint64_t sequence,
                                  struct dpe_error *err)
{
    *journal = (struct dpe_journal){.fd = -1, .sequence = sequence, .synced = -INFINITY};
    journal->path = dpe_join(path, "", "");
    DPE_TRY(DPE_MADE(journal->path, err, "%s: out of memory", path));
    journal->fd = open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
    if (journal->fd < 0) {
        dpe_status status = dpe_fail_errno(err, errno, path, "cannot be opened");
        dpe_journal_close(journal);
        return status;
    }
    return DPE_OK;
}

dpe_status dpe_journal_create(struct dpe_journal *journal, const char *path,
                              const struct dpe_text *records, uint64_t sequence,
                              struct dpe_error *err)
{
    *journal = (struct dpe_journal){.fd = -1};
    DPE_TRY(dpe_replace_file(path, records->bytes, records->n, err));
    return open_for_append(journal, path, sequence, err);
}

dpe_status dpe_journal_set_aside(const char *path, uint64_t from, const char *kind, char **aside,
                                 struct dpe_error *err)
{
    char suffix[64];
    snprintf(suffix, sizeof suffix, ".%s-%llu", kind, (unsigned long long)from);
    DPE_OWNED char *name = dpe_join(path, suffix, "");
    DPE_OWNED char *bytes = NULL;
    size_t n = 0;
    DPE_TRY(DPE_MADE(name, err, "%s: out of memory", path));
    DPE_TRY(dpe_read_file(path, INT64_MAX, &bytes, &n, err));
    if (n > from) {
        DPE_TRY(dpe_replace_file(name, bytes + from, n - (size_t)from, err));
    }
    *aside = name;
    name = NULL;
    return DPE_OK;
}

dpe_status dpe_journal_open(struct dpe_journal *journal, const char *path,
                            const struct dpe_journal_scan *scan, char **aside,
                            struct dpe_error *err)
{
    *aside = NULL;
    *journal = (struct dpe_journal){.fd = -1};
    DPE_SCOPED(dpe_journal_close) struct dpe_journal opened = {.fd = -1};
    DPE_OWNED char *tail = NULL;
    bool torn = scan->size > scan->end;
    DPE_TRY(torn ? dpe_journal_set_aside(path, scan->end, "torn", &tail, err) : DPE_OK);
    DPE_TRY(open_for_append(&opened, path, scan->sequence, err));
    if (torn && (ftruncate(opened.fd, (off_t)scan->end) != 0 || fsync(opened.fd) != 0)) {
        return dpe_fail_errno(err, errno, path,
                              "the unfinished record at its end cannot be removed");
    }
    *journal = opened;
    opened = (struct dpe_journal){.fd = -1};
    *aside = tail;
    tail = NULL;
    return DPE_OK;
}

static dpe_status journal_fails(struct dpe_journal *journal, struct dpe_error *err)
{
    journal->failed = true;
    if (err != NULL) {
        err->status = DPE_IO;
    }
    return DPE_IO;
}

dpe_status dpe_journal_sync(struct dpe_journal *journal, struct dpe_error *err)
{
    if (!journal->unsynced || journal->failed) {
        return DPE_OK;
    }
    if (dpe_sync_data(journal->fd) != 0) {
        /* The kernel may have dropped the dirty pages: a second sync would lie. */
        dpe_fail_errno(err, errno, journal->path, "sync failed");
        return journal_fails(journal, err);
    }
    journal->unsynced = false;
    journal->synced = dpe_clock();
    return DPE_OK;
}

dpe_status dpe_journal_append(struct dpe_journal *journal, unsigned type, const void *payload,
                              size_t n, struct dpe_error *err)
{
    if (journal->failed) {
        return dpe_fail(err, DPE_IO,
                        "%s: an earlier write failed and nothing more is written; finished samples "
                        "are saved: run the same command to continue",
                        journal->path);
    }
    DPE_SCOPED(dpe_text_free) struct dpe_text record = {0};
    DPE_TRY(dpe_record_encode(&record, type, journal->sequence, payload, n, err));
    if (dpe_write_all(journal->fd, journal->path, record.bytes, record.n, err) != DPE_OK) {
        return journal_fails(journal, err);
    }
    journal->unsynced = true;
    /* A sync takes several milliseconds, as much as a short sample. */
    if (1000.0 * (dpe_clock() - journal->synced) >= DPE_JOURNAL_SYNC_MS) {
        DPE_TRY(dpe_journal_sync(journal, err));
    }
    journal->sequence++;
    return DPE_OK;
}

void dpe_journal_close(struct dpe_journal *journal)
{
    if (journal->path != NULL && journal->fd >= 0) {
        close(journal->fd);
    }
    free(journal->path);
    *journal = (struct dpe_journal){.fd = -1};
}
