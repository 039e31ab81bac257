/* metadata.csv of a PG-19 folder, and the same bytes as a text: refused, or books with words. */
#include <string.h>

#include "data/data.h"
#include "tests/fuzz/fuzz.h"

static void try(const char *path)
{
    struct dpe_corpus *corpus = NULL;
    struct dpe_error err = {0};
    if (dpe_corpus_open(path, &corpus, &err) != DPE_OK) {
        fuzz_expect(err.text[0] != '\0', "an error has a text");
        return;
    }
    fuzz_expect(corpus->n > 0, "a corpus has a book");
    for (size_t i = 0; i < corpus->n; i++) {
        const struct dpe_book *book = &corpus->books[i];
        fuzz_expect(book->n_words > 0 && strlen(book->text) <= book->n, "a book has words");
    }
    dpe_corpus_close(corpus);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    fuzz_file("pg19/test/1.txt", "A book.\n", 8);
    fuzz_file("pg19/test/22.txt", "Another.\n", 9);
    fuzz_file("pg19/metadata.csv", bytes, n);
    char folder[300];
    strcpy(folder, fuzz_folder());
    try(strcat(folder, "/pg19"));
    try(fuzz_file("book.txt", bytes, n));
    return 0;
}
