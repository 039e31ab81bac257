/* A fuzzer without libFuzzer, for builds that only try its seeds: replay FOLDER [SECONDS [BEGIN]]
 * runs every file of FOLDER as it is, and then damaged copies of them until SECONDS of processor
 * time have passed (default 1). Copy number I is the same each time, on every machine. When the
 * fuzzer stops, the input that stopped it is kept in the current folder; BEGIN is the number of the
 * copy to begin with. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

enum { LONGEST = 16384, MOST = 64, HANGS_AFTER = 300 /* seconds: of a busy machine */ };

struct seed {
    size_t n;
    uint8_t *bytes;
};

static struct seed seeds[MOST];
static size_t n_seeds;
static char found[64];         /* where an input is kept that stops the fuzzer */
static const uint8_t *running; /* the input that runs */
static size_t running_n;

/* Called in a process that is in an unknown state: only write(2) and its like. */
static void keep_input(void)
{
    int file = open(found, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    bool kept = file >= 0 && running != NULL && write(file, running, running_n) >= 0;
    const char *words =
        kept ? "\nreplay: the input is in " : "\nreplay: the input cannot be kept in ";
    if (write(STDERR_FILENO, words, strlen(words)) < 0 ||
        write(STDERR_FILENO, found, strlen(found)) < 0 || write(STDERR_FILENO, "\n", 1) < 0) {
        _exit(70);
    }
}

static void stopped(int number)
{
    keep_input();
    signal(number, SIG_DFL);
    raise(number);
}

#if defined(__SANITIZE_ADDRESS__)
void __sanitizer_set_death_callback(void (*callback)(void));
#endif

static void listen_for_the_end(void)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_set_death_callback(keep_input);
#else
    signal(SIGSEGV, stopped);
    signal(SIGBUS, stopped);
    signal(SIGFPE, stopped);
#endif
    signal(SIGABRT, stopped); /* a property that does not hold */
    signal(SIGALRM, stopped); /* it hangs */
}

static void read_seeds(const char *folder)
{
    struct dirent **entries = NULL;
    int n = scandir(folder, &entries, NULL, alphasort);
    fuzz_expect(n > 0, folder);
    for (int i = 0; i < n; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') {
            fuzz_expect(n_seeds < MOST, "there is room for the seeds");
            struct seed *seed = &seeds[n_seeds++];
            seed->bytes = (uint8_t *)fuzz_read(path, &seed->n);
        }
        free(entries[i]);
    }
    free(entries);
    fuzz_expect(n_seeds > 0, folder);
}

/* SplitMix64, by Vigna: one stream for each copy. */
static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

static size_t below(uint64_t *state, size_t n)
{
    return n == 0 ? 0 : (size_t)(next(state) % n);
}

/* A number that readers may take for a count, a size or an offset, over some bytes. */
static void put_number(uint64_t *state, uint8_t *bytes, size_t n)
{
    static const uint64_t numbers[] = {0,          1,          0x7f,      0xff,      0xffff,
                                       0x7fffffff, 0xffffffff, INT64_MAX, UINT64_MAX};
    uint64_t number = numbers[below(state, sizeof numbers / sizeof numbers[0])];
    size_t size = (size_t)1 << below(state, 4);
    size = size < n ? size : n;
    memcpy(bytes + below(state, n - size + 1), &number, size);
}

/* Bytes of another seed, or of this one, in the place of a range. */
static size_t mix(uint64_t *state, uint8_t *bytes, size_t n)
{
    const struct seed *other = &seeds[below(state, n_seeds)];
    size_t from = below(state, other->n + 1);
    size_t length = below(state, other->n - from + 1);
    size_t at = below(state, n + 1);
    size_t gone = below(state, n - at + 1);
    if (n - gone + length > LONGEST) {
        return n;
    }
    memmove(bytes + at + length, bytes + at + gone, n - at - gone);
    memcpy(bytes + at, other->bytes + from, length);
    return n - gone + length;
}

/* One change of n > 0 bytes; the new length. */
static size_t change(uint64_t *state, uint8_t *bytes, size_t n)
{
    size_t at = below(state, n);
    switch (below(state, 6)) {
    case 0:
        bytes[at] ^= (uint8_t)(1U << below(state, 8));
        return n;
    case 1:
        bytes[at] = (uint8_t)next(state);
        return n;
    case 2:
        bytes[at] = (uint8_t) "09-.\"{}[]:,\\%\n "[below(state, 15)];
        return n;
    case 3:
        put_number(state, bytes, n);
        return n;
    case 4:
        return at; /* it ends here */
    default:
        return mix(state, bytes, n);
    }
}

/* Copy number i, into the room of LONGEST bytes; its length. */
static size_t damage(uint64_t i, uint8_t *bytes)
{
    uint64_t state = i;
    const struct seed *seed = &seeds[i % n_seeds];
    size_t n = seed->n < LONGEST ? seed->n : LONGEST;
    memcpy(bytes, seed->bytes, n);
    for (size_t left = 1 + below(&state, 4); left > 0 && n > 0; left--) {
        n = change(&state, bytes, n);
    }
    return n;
}

/* In memory of exactly n bytes, so that a sanitizer sees a reader that looks behind them. */
static void run(const uint8_t *bytes, size_t n)
{
    uint8_t *copy = malloc(n > 0 ? n : 1);
    fuzz_expect(copy != NULL, "memory");
    memcpy(copy, bytes, n);
    running = copy;
    running_n = n;
    alarm(HANGS_AFTER);
    LLVMFuzzerTestOneInput(copy, n);
    alarm(0);
    running = NULL;
    free(copy);
}

int main(int argc, char **argv)
{
    static uint8_t bytes[LONGEST];
    if (argc < 2 || argc > 4) {
        fprintf(stderr, "usage: %s FOLDER [SECONDS [BEGIN]]\n", argv[0]);
        return 64;
    }
    const char *slash = strrchr(argv[0], '/');
    snprintf(found, sizeof found, "%s.found", slash != NULL ? slash + 1 : argv[0]);
    read_seeds(argv[1]);
    listen_for_the_end();
    run(bytes, 0);
    for (size_t i = 0; i < n_seeds; i++) {
        run(seeds[i].bytes, seeds[i].n);
    }
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 1;
    uint64_t begin = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    uint64_t i = begin;
    for (; (double)clock() / CLOCKS_PER_SEC < seconds; i++) {
        size_t n = damage(i, bytes);
        run(bytes, n);
    }
    printf("%zu seeds, %llu damaged copies\n", n_seeds, (unsigned long long)(i - begin));
    for (size_t k = 0; k < n_seeds; k++) {
        free(seeds[k].bytes);
    }
    return 0;
}
