/* Corpora: which files are books, in which order; loaded, checked, hashed. */
#include "data/data.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/metadata.h"
#include "data/textfile.h"

struct dpe_corpus {
    char *path;
    struct dpe_book *books;
    size_t n, capacity;
    char fingerprint[65];
};

static dpe_status out_of_memory(const char *path, struct dpe_error *err)
{
    return dpe_fail(err, DPE_NO_MEMORY, "%s: no memory for the list of books", path);
}

/* Load one text and append it; `id` and `title` are copied. */
static dpe_status add_book(struct dpe_corpus *corpus, const char *id, const char *title,
                           const char *file, bool replace_invalid, struct dpe_error *err)
{
    if (corpus->n == corpus->capacity) {
        size_t capacity = corpus->capacity == 0 ? 16 : 2 * corpus->capacity;
        struct dpe_book *books = realloc(corpus->books, capacity * sizeof *books);
        if (books == NULL) {
            return out_of_memory(corpus->path, err);
        }
        corpus->books = books;
        corpus->capacity = capacity;
    }
    char *text = NULL;
    size_t n = 0;
    dpe_status status = dpe_textfile_load(file, replace_invalid, &text, &n, err);
    if (status != DPE_OK) {
        return status;
    }
    int64_t n_words = dpe_count_words(text, n);
    char *own_id = dpe_textfile_join(id, NULL);
    char *own_title = dpe_textfile_join(title, NULL);
    if (n_words == 0) {
        status = dpe_fail(err, DPE_BAD_DATA, "%s: expected a text, found no words", file);
    } else if (own_id == NULL || own_title == NULL) {
        status = out_of_memory(corpus->path, err);
    }
    if (status != DPE_OK) {
        free(text);
        free(own_id);
        free(own_title);
        return status;
    }
    corpus->books[corpus->n++] = (struct dpe_book){own_id, own_title, text, n, n_words};
    return DPE_OK;
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 || errno != ENOENT;
}

/* Add the book of one row of metadata.csv if its text is in the split's folder. */
static dpe_status add_listed(struct dpe_corpus *corpus, const char *folder,
                             const struct dpe_metadata_row *row, bool replace_invalid,
                             struct dpe_error *err)
{
    char name[128];
    size_t n = strlen(row->id);
    memcpy(name, row->id, n);
    memcpy(name + n, ".txt", 5);
    char *file = dpe_textfile_join(folder, name);
    if (file == NULL) {
        return out_of_memory(corpus->path, err);
    }
    dpe_status status = DPE_OK;
    /* Rows without a text are those of other splits. */
    if (exists(file)) {
        status = add_book(corpus, row->id, row->title, file, replace_invalid, err);
    }
    free(file);
    return status;
}

static dpe_status open_pg19(struct dpe_corpus *corpus, const char *csv, const char *split,
                            bool replace_invalid, struct dpe_error *err)
{
    struct dpe_metadata metadata = {0};
    char *folder = NULL;
    dpe_status status = dpe_metadata_read(csv, &metadata, err);
    if (status != DPE_OK) {
        goto done;
    }
    folder = dpe_textfile_join(corpus->path, split);
    if (folder == NULL) {
        status = out_of_memory(corpus->path, err);
        goto done;
    }
    if (!is_folder(folder)) {
        status = dpe_fail(err, DPE_NO_INPUT,
                          "%s: expected the split's folder of <book_id>.txt, "
                          "found none",
                          folder);
        goto done;
    }
    for (size_t i = 0; i < metadata.n && status == DPE_OK; i++) {
        status = add_listed(corpus, folder, &metadata.rows[i], replace_invalid, err);
    }
    if (status == DPE_OK && corpus->n == 0) {
        status = dpe_fail(err, DPE_BAD_DATA,
                          "%s: expected texts of the %zu books that %s lists, found none", folder,
                          metadata.n, csv);
    }
done:
    free(folder);
    dpe_metadata_free(&metadata);
    return status;
}

static int is_text(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);
    return entry->d_name[0] != '.' && n > 4 && strcmp(entry->d_name + n - 4, ".txt") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* The file's name without folder and .txt as id; it ends up in tables, so it must be UTF-8. */
static dpe_status add_file(struct dpe_corpus *corpus, const char *file, bool replace_invalid,
                           struct dpe_error *err)
{
    const char *slash = strrchr(file, '/');
    char *id = dpe_textfile_join(slash == NULL ? file : slash + 1, NULL);
    if (id == NULL) {
        return out_of_memory(corpus->path, err);
    }
    dpe_status status = DPE_OK;
    size_t n = strlen(id);
    if (dpe_utf8_check(id, n) < n) {
        status = dpe_fail(err, DPE_BAD_DATA, "%s: expected a file name in UTF-8; rename it", file);
    } else {
        if (n > 4 && strcmp(id + n - 4, ".txt") == 0) {
            id[n - 4] = '\0';
        }
        status = add_book(corpus, id, "", file, replace_invalid, err);
    }
    free(id);
    return status;
}

static dpe_status open_folder(struct dpe_corpus *corpus, bool replace_invalid,
                              struct dpe_error *err)
{
    struct dirent **entries = NULL;
    int n = scandir(corpus->path, &entries, is_text, by_name);
    if (n < 0) {
        dpe_status status = errno == EACCES   ? DPE_PERMISSION
                            : errno == ENOMEM ? DPE_NO_MEMORY
                                              : DPE_NO_INPUT;
        return dpe_fail(err, status, "%s: the folder cannot be read: %s", corpus->path,
                        strerror(errno));
    }
    dpe_status status = DPE_OK;
    for (int i = 0; i < n; i++) {
        if (status == DPE_OK) {
            char *file = dpe_textfile_join(corpus->path, entries[i]->d_name);
            status = file == NULL ? out_of_memory(corpus->path, err)
                                  : add_file(corpus, file, replace_invalid, err);
            free(file);
        }
        free(entries[i]);
    }
    free(entries);
    if (status == DPE_OK && n == 0) {
        status = dpe_fail(err, DPE_BAD_DATA, "%s: expected metadata.csv or .txt files, found none",
                          corpus->path);
    }
    return status;
}

static dpe_status hash_books(struct dpe_corpus *corpus, struct dpe_error *err)
{
    struct dpe_sha256 *hash = dpe_sha256_new();
    if (hash == NULL) {
        return out_of_memory(corpus->path, err);
    }
    for (size_t i = 0; i < corpus->n; i++) {
        const struct dpe_book *book = &corpus->books[i];
        unsigned char size[8];
        for (int b = 0; b < 8; b++) {
            size[b] = (unsigned char)((uint64_t)book->n >> (8 * b));
        }
        /* The NUL and the size keep "ab" + "c" apart from "a" + "bc". */
        dpe_sha256_add(hash, book->id, strlen(book->id) + 1);
        dpe_sha256_add(hash, size, sizeof size);
        dpe_sha256_add(hash, book->text, book->n);
    }
    dpe_sha256_finish(hash, corpus->fingerprint);
    return DPE_OK;
}

static dpe_status open_any(struct dpe_corpus *corpus, const struct dpe_corpus_options *options,
                           struct dpe_error *err)
{
    bool replace_invalid = options != NULL && options->replace_invalid;
    const char *split = options == NULL ? NULL : options->split;
    if (split != NULL && strcmp(split, "train") != 0 && strcmp(split, "validation") != 0 &&
        strcmp(split, "test") != 0) {
        return dpe_fail(err, DPE_USAGE, "split \"%s\": expected train, validation or test", split);
    }
    char *csv = dpe_textfile_join(corpus->path, "metadata.csv");
    if (csv == NULL) {
        return out_of_memory(corpus->path, err);
    }
    dpe_status status = DPE_OK;
    bool folder = is_folder(corpus->path);
    if (folder && exists(csv)) {
        status = open_pg19(corpus, csv, split == NULL ? "test" : split, replace_invalid, err);
    } else if (split != NULL) {
        status =
            dpe_fail(err, DPE_USAGE, "%s: --split %s needs a PG-19 folder, found no metadata.csv",
                     corpus->path, split);
    } else if (folder) {
        status = open_folder(corpus, replace_invalid, err);
    } else {
        status = add_file(corpus, corpus->path, replace_invalid, err);
    }
    free(csv);
    return status;
}

dpe_status dpe_corpus_open(const char *path, const struct dpe_corpus_options *options,
                           struct dpe_corpus **corpus, struct dpe_error *err)
{
    struct dpe_corpus *opened = dpe_alloc_zero(1, sizeof *opened);
    if (opened == NULL) {
        return out_of_memory(path, err);
    }
    opened->path = dpe_textfile_join(path, NULL);
    dpe_status status =
        opened->path == NULL ? out_of_memory(path, err) : open_any(opened, options, err);
    if (status == DPE_OK) {
        status = hash_books(opened, err);
    }
    if (status != DPE_OK) {
        dpe_corpus_close(opened);
        return status;
    }
    *corpus = opened;
    return DPE_OK;
}

/* The corpus owns the books' strings; to callers the struct shows them as const. */
static void free_shown(const char *string)
{
    char *own = NULL;
    memcpy(&own, &string, sizeof own);
    free(own);
}

void dpe_corpus_close(struct dpe_corpus *corpus)
{
    if (corpus == NULL) {
        return;
    }
    for (size_t i = 0; i < corpus->n; i++) {
        free_shown(corpus->books[i].id);
        free_shown(corpus->books[i].title);
        free_shown(corpus->books[i].text);
    }
    free(corpus->books);
    free(corpus->path);
    free(corpus);
}

size_t dpe_corpus_size(const struct dpe_corpus *corpus)
{
    return corpus->n;
}

const struct dpe_book *dpe_corpus_book(const struct dpe_corpus *corpus, size_t index)
{
    return index < corpus->n ? &corpus->books[index] : NULL;
}

const char *dpe_corpus_path(const struct dpe_corpus *corpus)
{
    return corpus->path;
}

const char *dpe_corpus_fingerprint(const struct dpe_corpus *corpus)
{
    return corpus->fingerprint;
}
