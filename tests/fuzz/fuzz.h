/**
 * @file fuzz.h
 * What the fuzzers share: bytes as a file, for readers that take a path.
 */
#ifndef DPE_FUZZ_H
#define DPE_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/** libFuzzer's entry: every fuzzer defines it. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/** A folder of this process, removed at its end; "/tmp/…" or under TMPDIR. */
const char *fuzz_folder(void);
/** Put bytes into a file of that folder (folders on the way are made) and return its path, valid
 *  until the next call. Stops the process when that fails: a fuzzer without input proves nothing.
 */
const char *fuzz_file(const char *name, const void *bytes, size_t n);
/** Read a file, with a NUL behind its bytes; owned by the caller. Stops the process when that
 * fails. */
char *fuzz_read(const char *path, size_t *n);
/** Read a file of the source tree, e.g. a good tokenizer; owned by the caller. */
char *fuzz_source(const char *path, size_t *n);
/** Stop with a report when a property does not hold. */
void fuzz_expect(int holds, const char *property);

#endif
