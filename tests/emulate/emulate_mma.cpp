/* Matrix instructions of a warp, copies that run by themselves. */
#include "engine/cuda/ptx/device.cuh"

#include <vector>

#include "tests/emulate/emulate_control.h"

namespace
{

struct emulate_bank_counts banks;

/* ------------------------------------------------------------------------------------ ldmatrix */

struct row_part {
    uint32_t address;
    const unsigned char *row;
};

/* Eight rows of 16 bytes are read at once when no two of them share banks. */
void count_banks(const void *const *in, int matrix)
{
    int uses[8] = {};
    int most = 1;
    for (int i = 0; i < 8; i++) {
        uint32_t address = static_cast<const row_part *>(in[8 * matrix + i])->address;
        bool again = false; /* a row that another lane reads too costs nothing */
        for (int k = 0; k < i; k++) {
            again = again || static_cast<const row_part *>(in[8 * matrix + k])->address == address;
        }
        int n = again ? 0 : ++uses[address / 16 % 8];
        most = n > most ? n : most;
    }
    banks.reads++;
    banks.conflicts += static_cast<uint64_t>(most - 1);
}

void run_ldmatrix(void *const *in, void *const *out, void *transposed)
{
    bool turn = *static_cast<const bool *>(transposed);
    for (int matrix = 0; matrix < 4; matrix++) {
        uint16_t values[8][8];
        for (int i = 0; i < 8; i++) {
            memcpy(values[i], static_cast<const row_part *>(in[8 * matrix + i])->row, 16);
        }
        for (int lane = 0; lane < 32; lane++) {
            int g = lane / 4;
            int t = lane % 4 * 2;
            uint32_t low = turn ? values[t][g] : values[g][t];
            uint32_t high = turn ? values[t + 1][g] : values[g][t + 1];
            static_cast<uint32_t *>(out[lane])[matrix] = high << 16 | low;
        }
        count_banks(in, matrix);
    }
}

/* ----------------------------------------------------------------------------------------- mma */

float widen(dpe_bf16, uint32_t bits)
{
    return __uint_as_float(bits << 16);
}

float widen(dpe_f16, uint32_t bits)
{
    return dpe_half_float(static_cast<uint16_t>(bits));
}

/* Products are exact in double and summed there; the device rounds somewhere on the way. */
template <class T> void run_mma(void *const *in, void *const *out, void *)
{
    double a[16][16];
    double b[8][16];
    for (int lane = 0; lane < 32; lane++) {
        const emulate_mma_part *part = static_cast<const emulate_mma_part *>(in[lane]);
        int g = lane / 4;
        int t = lane % 4 * 2;
        for (int i = 0; i < 4; i++) {
            double *to = &a[g + i % 2 * 8][t + i / 2 * 8];
            to[0] = static_cast<double>(widen(T{}, part->a[i] & 0xffffU));
            to[1] = static_cast<double>(widen(T{}, part->a[i] >> 16));
        }
        for (int i = 0; i < 2; i++) {
            b[g][t + 8 * i] = static_cast<double>(widen(T{}, part->b[i] & 0xffffU));
            b[g][t + 8 * i + 1] = static_cast<double>(widen(T{}, part->b[i] >> 16));
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        const float *c = static_cast<const emulate_mma_part *>(in[lane])->c;
        float *d = static_cast<emulate_mma_part *>(out[lane])->c;
        for (int i = 0; i < 4; i++) {
            const double *row = a[lane / 4 + i / 2 * 8];
            const double *column = b[lane % 4 * 2 + i % 2];
            double sum = 0.0;
            for (int k = 0; k < 16; k++) {
                sum += row[k] * column[k];
            }
            d[i] = static_cast<float>(static_cast<double>(c[i]) + sum);
        }
    }
}

/* -------------------------------------------------------------------------------------- copies */

struct async_copy {
    unsigned char *to;
    unsigned char bytes[16];
};

/* The copies of a thread that have not landed; groups hold the number of copies up to their end. */
struct async_copies {
    uint64_t serial;
    std::vector<async_copy> list;
    std::vector<size_t> group_ends;
};

async_copies threads[1024];

async_copies *own_copies(void)
{
    async_copies *own = &threads[emulate_thread()];
    if (own->serial != emulate_block_serial()) {
        own->serial = emulate_block_serial();
        own->list.clear();
        own->group_ends.clear();
    }
    return own;
}

} // namespace

struct emulate_bank_counts emulate_bank_counts_read(void)
{
    return banks;
}

void emulate_ldmatrix(uint32_t (&r)[4], uint32_t address, bool transposed, const char *file,
                      int line)
{
    if (address % 16 != 0) {
        emulate_fail(file, line, "ldmatrix from %u, which is not a multiple of 16", address);
    }
    const row_part part = {address, static_cast<const unsigned char *>(
                                        emulate_shared_pointer(address, 16, file, line))};
    emulate_warp_collective(0xffffffffU, transposed ? "ldmatrix.trans" : "ldmatrix", &part, r,
                            run_ldmatrix, &transposed, file, line);
}

void emulate_mma_bf16(emulate_mma_part *part, const char *file, int line)
{
    emulate_warp_collective(0xffffffffU, "mma bf16", part, part, run_mma<dpe_bf16>, NULL, file,
                            line);
}

void emulate_mma_half(emulate_mma_part *part, const char *file, int line)
{
    emulate_warp_collective(0xffffffffU, "mma f16", part, part, run_mma<dpe_f16>, NULL, file, line);
}

void emulate_copy_async(uint32_t to, const void *from, bool real, const char *file, int line)
{
    if (to % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0) {
        emulate_fail(file, line, "cp.async from %p to %u: not aligned to 16 bytes", from, to);
    }
    async_copy copy = {static_cast<unsigned char *>(emulate_shared_pointer(to, 16, file, line)),
                       {}};
    if (real) {
        memcpy(copy.bytes, from, sizeof copy.bytes);
    }
    memset(copy.to, 0xff, sizeof copy.bytes);
    own_copies()->list.push_back(copy);
}

void emulate_copy_async_commit(void)
{
    async_copies *own = own_copies();
    own->group_ends.push_back(own->list.size());
}

void emulate_copy_async_wait(int most, const char *file, int line)
{
    async_copies *own = own_copies();
    size_t keep = static_cast<size_t>(most);
    if (most < 0) {
        emulate_fail(file, line, "a wait for %d groups", most);
    }
    if (own->group_ends.size() <= keep) {
        return;
    }
    size_t groups = own->group_ends.size() - keep;
    size_t landed = own->group_ends[groups - 1];
    for (size_t i = 0; i < landed; i++) {
        memcpy(own->list[i].to, own->list[i].bytes, sizeof own->list[i].bytes);
    }
    own->list.erase(own->list.begin(), own->list.begin() + static_cast<std::ptrdiff_t>(landed));
    own->group_ends.erase(own->group_ends.begin(),
                          own->group_ends.begin() + static_cast<std::ptrdiff_t>(groups));
    for (size_t &end : own->group_ends) {
        end -= landed;
    }
}
