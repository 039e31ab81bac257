// What CuTe (CUTLASS) publishes of operands and descriptors, printed for cute_check.py; compiled
// for the host, where CuTe's headers are. Lines "WHAT: numbers".
#include <cute/tensor.hpp>

#include <cute/atom/copy_traits_sm75.hpp>
#include <cute/atom/mma_traits_sm80.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>

#include <cstdio>

using namespace cute;

// The element of each (thread, value), threads first.
template <class Layout> void print_elements(const char *what, Layout layout)
{
    std::printf("%s:", what);
    for (int i = 0; i < size(layout); i++) {
        std::printf(" %d", int(layout(i)));
    }
    std::printf("\n");
}

// A tile of ROWS × COLUMNS elements as the kernel stores it, and the descriptor of its first step
// of 16 terms: the fields, then for each of the step's elements, rows first, where it lies, in
// bytes after swizzling.
template <GMMA::Major MAJOR, class Atom, int ROWS, int COLUMNS, class Order = Step<_1, _2>>
void print_tile(const char *what)
{
    auto tile = tile_to_shape(Atom{}, Shape<Int<ROWS>, Int<COLUMNS>>{}, Order{});
    auto tensor = make_tensor(make_smem_ptr(static_cast<half_t *>(nullptr)), tile);
    auto step = local_tile(tensor, Shape<Int<ROWS>, _16>{}, make_coord(_0{}, _0{}));
    const GmmaDescriptor descriptor = GMMA::make_gmma_desc<MAJOR>(step);
    std::printf("%s: %d %d %d %d", what, int(descriptor.bitfield.layout_type_),
                int(descriptor.bitfield.leading_byte_offset_),
                int(descriptor.bitfield.stride_byte_offset_),
                int(descriptor.bitfield.base_offset_));
    auto places = as_position_independent_swizzle_layout(tile);
    for (int k = 0; k < 16; k++) {
        for (int row = 0; row < ROWS; row++) {
            std::printf(" %d", int(places(row, k)) * 2);
        }
    }
    std::printf("\n");
}

int main()
{
    using Mma = MMA_Traits<SM80_16x8x16_F32BF16BF16F32_TN>;
    print_elements("mma A 16", Mma::ALayout{});
    print_elements("mma B 8", Mma::BLayout{});
    print_elements("mma C 16", Mma::CLayout{});
    print_elements("wgmma A 64", GMMA::ALayout_64x16{});
    print_elements("wgmma D64 64", GMMA::CLayout_64x64{});
    print_elements("wgmma D128 64", GMMA::CLayout_64x128{});
    print_elements("wgmma D160 64", GMMA::CLayout_64xN<160>{});
    print_elements("ldmatrix 1", Copy_Traits<SM75_U32x4_LDSM_N>::DstLayout{});
    print_elements("ldmatrix.trans 1", Copy_Traits<SM75_U16x8_LDSM_T>::DstLayout{});
    print_tile<GMMA::Major::K, GMMA::Layout_K_SW128_Atom<half_t>, 128, 64>("K 128 128");
    print_tile<GMMA::Major::K, GMMA::Layout_K_SW64_Atom<half_t>, 64, 32>("K 64 64");
    print_tile<GMMA::Major::K, GMMA::Layout_K_SW32_Atom<half_t>, 64, 16>("K 32 64");
    print_tile<GMMA::Major::K, GMMA::Layout_K_INTER_Atom<half_t>, 64, 16>("K 0 64");
    print_tile<GMMA::Major::MN, GMMA::Layout_MN_SW128_Atom<half_t>, 128, 128>("MN 128 128");
    // V as tensor copies write it: all keys of 64 columns, then those of the next 64.
    print_tile<GMMA::Major::MN, GMMA::Layout_MN_SW128_Atom<half_t>, 128, 128, Step<_2, _1>>(
        "MN 128 128");
    print_tile<GMMA::Major::MN, GMMA::Layout_MN_SW64_Atom<half_t>, 128, 64>("MN 64 128");
    print_tile<GMMA::Major::MN, GMMA::Layout_MN_SW32_Atom<half_t>, 64, 16>("MN 32 64");
    print_tile<GMMA::Major::MN, GMMA::Layout_MN_INTER_Atom<half_t>, 64, 16>("MN 0 64");
    return 0;
}
