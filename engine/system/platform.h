/**
 * @file platform.h
 * What POSIX does not have and systems have in different forms: Linux (glibc and musl) and macOS.
 * The other files keep to POSIX, besides flock, realpath, madvise and MAP_ANONYMOUS, which all of
 * them have.
 */
#ifndef DPE_PLATFORM_H
#define DPE_PLATFORM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

/** The file of the running program, ended by a zero; false with errno where it is not known or has
 * no room. */
bool dpe_program_path(char *path, size_t n);
/** The folder in which it lies, with the slash; false where that is not known. */
bool dpe_program_folder(char *folder, size_t n);

/** A pipe whose ends are closed in programs that are started; 0, or −1 with errno. */
int dpe_pipe(int ends[2]);

/** A file without a name that ends when it is closed, closed in programs that are started: in
 * memory where the system has such, and in a folder. −1 with errno. */
int dpe_memory_file(void);
int dpe_nameless_file(const char *folder);

/** Have the system send `pid` SIGTERM when the last writing end of the pipe is closed, whose
 * reading end this is. macOS cannot: there a child outlives a parent that is killed. */
void dpe_signal_at_close(int reading_end, pid_t pid);

/** What was written to a file is on the disk afterwards, and its length; 0, or −1 with errno. */
int dpe_sync_data(int fd);

/** n ≤ 256 random bytes that cannot be predicted (getentropy); false with errno. */
bool dpe_random_bytes(void *to, size_t n);

/** A condition whose pthread_cond_timedwait takes times of dpe_condition_clock; 0, or an error's
 * number. */
int dpe_condition_init(pthread_cond_t *condition);
clockid_t dpe_condition_clock(void);

/** Whether the page at this address of a mapping is in memory; true where the
 * system does not say. */
bool dpe_page_is_there(const void *page);
/** A hint that these bytes of a file need not stay in memory. */
void dpe_file_forget(int fd, off_t first, off_t bytes);

/** When a file was changed last. */
struct timespec dpe_modified(const struct stat *info);

#endif
