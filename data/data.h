/**
 * @file data.h
 * Texts: PG-19 folders (metadata.csv through libcsv), folders of .txt files, single files.
 *
 * A corpus is opened once: its list of books is read and checked, every text validated as UTF-8 and
 * hashed. Texts stay in memory for the corpus's life. They are loaded, not mapped, so a file that
 * is shortened during a run does no harm.
 */
#ifndef DPE_DATA_H
#define DPE_DATA_H

#include "engine/base/base.h"

struct dpe_book {
    char *id;        /**< book_id, or the file name without .txt */
    char *text;      /**< UTF-8, LF, with a NUL after n bytes */
    size_t n;        /**< bytes */
    int64_t n_words; /**< dpe_count_words of the text */
};

/** For reading. */
struct dpe_corpus {
    char *path;             /**< as given to dpe_corpus_open */
    struct dpe_book *books; /**< [n] in the order of metadata.csv or of their names */
    size_t n;
    uint64_t bytes;       /**< of all texts */
    char *empty;          /**< a file without a word that was left out; NULL: none was */
    size_t n_empty;       /**< so many of a folder were */
    char fingerprint[65]; /**< SHA-256 over ids and texts as they are after conversion, in their
                               order; 64 hex digits */
};

/** Open a PG-19 folder (has metadata.csv: no header needed, four columns book_id,
 *  short_book_title, publication_date, url; a header and extra columns are accepted), a folder of
 *  .txt files (in byte order of their names) or one text file. CRLF becomes LF, a BOM is dropped,
 *  UTF-16 and UTF-32 are refused by name; texts without a word are left out and counted. Of a
 * PG-19 folder all splits are read that are there, up to 2 GiB; its folder train, validation or
 * test is that split. A book whose text is missing there is left out and counted (PG-19's metadata
 * covers all splits); none left is DPE_BAD_DATA. The caller closes with dpe_corpus_close. Errors
 * name file, line or byte offset, expected, found: DPE_NO_INPUT, DPE_PERMISSION, DPE_BAD_DATA,
 * DPE_USAGE, DPE_IO, DPE_NO_MEMORY. */
dpe_status dpe_corpus_open(const char *path, struct dpe_corpus **corpus, struct dpe_error *err);
void dpe_corpus_close(struct dpe_corpus *corpus);
DPE_SCOPED_HANDLE(struct dpe_corpus *, dpe_corpus_close)

/** In place: a byte-order mark is dropped and, where `lines`, CRLF becomes LF. Returns how many
 * of the n bytes are left; a NUL follows them. */
size_t dpe_text_clean(char *bytes, size_t n, bool lines);
/** Words as Python's str.split counts them: runs of anything but Unicode white space. `text` is
 *  valid UTF-8 of n bytes. */
int64_t dpe_count_words(const char *text, size_t n);

#endif
