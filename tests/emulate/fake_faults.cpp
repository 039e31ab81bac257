/* Which fault a kernel has. A launch knows its kernel's address alone; the name is found in the
 * symbol table of the file that it lies in. */
#include "tests/emulate/fake_faults.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace
{

/* The file of this code, mapped once and kept. */
const unsigned char *own_file(const unsigned char **base)
{
    static const unsigned char *bytes;
    static const unsigned char *loaded;
    Dl_info info;
    struct stat found;
    if (bytes == NULL && dladdr(reinterpret_cast<const void *>(&own_file), &info) != 0) {
        int file = open(info.dli_fname, O_RDONLY | O_CLOEXEC);
        if (file >= 0 && fstat(file, &found) == 0) {
            void *at =
                mmap(NULL, static_cast<size_t>(found.st_size), PROT_READ, MAP_PRIVATE, file, 0);
            bytes = at == MAP_FAILED ? NULL : static_cast<const unsigned char *>(at);
            loaded = static_cast<const unsigned char *>(info.dli_fbase);
        }
        if (file >= 0) {
            close(file);
        }
    }
    *base = loaded;
    return bytes;
}

/* The mangled name of a function, NULL: there is none. */
const char *symbol_of(const void *function)
{
    const unsigned char *base = NULL;
    const unsigned char *bytes = own_file(&base);
    if (bytes == NULL) {
        return NULL;
    }
    const Elf64_Ehdr *head = reinterpret_cast<const Elf64_Ehdr *>(bytes);
    const Elf64_Shdr *sections = reinterpret_cast<const Elf64_Shdr *>(bytes + head->e_shoff);
    const uint64_t at = static_cast<uint64_t>(static_cast<const unsigned char *>(function) - base);
    for (int s = 0; s < head->e_shnum; s++) {
        if (sections[s].sh_type != SHT_SYMTAB) {
            continue;
        }
        const Elf64_Sym *symbols =
            reinterpret_cast<const Elf64_Sym *>(bytes + sections[s].sh_offset);
        const char *names =
            reinterpret_cast<const char *>(bytes + sections[sections[s].sh_link].sh_offset);
        for (uint64_t i = 0; i < sections[s].sh_size / sizeof *symbols; i++) {
            if (ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC && symbols[i].st_value == at) {
                return names + symbols[i].st_name;
            }
        }
    }
    return NULL;
}

/* Whether an identifier of a mangled name, which stands after its length, is this one. */
bool has_identifier(const char *mangled, const char *name, size_t n)
{
    char word[96];
    snprintf(word, sizeof word, "%zu%.*s", n, static_cast<int>(n), name);
    return mangled != NULL && strstr(mangled, word) != NULL;
}

enum fake_fault find(const char *name, const char *mangled)
{
    static const char *const kinds[] = {"", "wrong:", "fails:", "hangs:", "stuck:"};
    const char *at = getenv("DPE_FAKE_FAULT");
    while (at != NULL && *at != '\0') {
        for (int kind = FAKE_WRONG; kind <= FAKE_STUCK; kind++) {
            size_t head = strlen(kinds[kind]);
            size_t n = strncmp(at, kinds[kind], head) == 0 ? strcspn(at + head, ",") : 0;
            if (n > 0 && (name != NULL ? strlen(name) == n && strncmp(name, at + head, n) == 0
                                       : has_identifier(mangled, at + head, n))) {
                return static_cast<enum fake_fault>(kind);
            }
        }
        at += strcspn(at, ",");
        at += *at == ',';
    }
    return FAKE_RIGHT;
}

} // namespace

enum fake_fault fake_fault_of(const char *name)
{
    return find(name, NULL);
}

enum fake_fault fake_fault_of_launch(const struct dpe_kernel_launch *launch)
{
    const char *all = getenv("DPE_FAKE_FAULT");
    return all == NULL || *all == '\0' ? FAKE_RIGHT : find(NULL, symbol_of(launch->kernel));
}
