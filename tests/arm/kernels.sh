#!/bin/sh
# kernels.sh CC QEMU ROOT [INCLUDE…]: the tests of the CPU kernels (of tests/engine/cpu), compiled for 64-bit ARM by the
# cross compiler CC and run in QEMU's user emulation, against the reference: right, not fast. INCLUDE are
# folders with headers that this machine's libraries have (none of them is linked).
set -eu
cc=$1
qemu=$2
root=$3
shift 3
tests="test_ops_cpu test_attention_cpu"
[ -n "${DPE_TEST_FEW:-}" ] || tests="$tests test_attention_bf16" # minutes in the emulator
include=
for folder in "$@"; do
    include="$include -idirafter $folder"
done
work=$(mktemp -d)
ccache=$(command -v ccache || true)
trap 'rm -rf "$work"' EXIT
cd "$root"
# What is not called is dropped before the linker asks for its libraries.
flags="-std=c17 -O3 -DNDEBUG -fopenmp -ffp-contract=off -fno-math-errno -ffunction-sections -fdata-sections -Wall -Wextra -Werror
    -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -DDPE_VERSION=\"0\" -DDPE_GIT=\"\" -DDPE_OPENBLAS=\"libopenblas.so.0\"
    -Itests/arm -I."
compile() {
    to=$1
    shift
    # shellcheck disable=SC2086 # lists of words
    $ccache "$cc" $flags $include "$@" -c -o "$work/$to.o"
}
compile bf16 -march=armv8.2-a+bf16 engine/cpu/kernels/cpu_bf16_neon.c
for file in engine/base/error.c engine/base/limits.c engine/base/nearest.c engine/base/numbers.c engine/base/support.c \
    engine/model/config/selection.c engine/plan/*.c engine/plan/methods/*.c engine/ops/*.c \
    engine/system/platform.c engine/gguf/blocks.c engine/cpu/*.c engine/cpu/attention/*.c \
    engine/cpu/kernels/cpu_choose.c engine/model/config/config.c engine/model/config/config_layers.c \
    engine/model/config/family.c engine/model/config/layer_weights.c engine/model/model.c; do
    compile "$(basename "$file" .c)" "$file"
done
for set in portable neon; do
    upper=$(echo "$set" | tr '[:lower:]' '[:upper:]')
    compile "kernels_$set" "-DDPE_SIMD_$upper" "-DDPE_KERNELS_NAME=dpe_cpu_kernels_$set" \
        "-DDPE_KERNELS_LABEL=\"$set\"" engine/cpu/kernels/cpu_kernels.c
done
for test in $tests; do
    compile "$test" "tests/engine/cpu/$test.c"
    mv "$work/$test.o" "$work/test"
    "$cc" -fopenmp -Wl,--gc-sections -o "$work/$test" "$work/test" "$work"/*.o -lm
    # The C library of the cross compiler lies where the compiler has it.
    "$qemu" -L "$(dirname "$(dirname "$("$cc" -print-file-name=libc.so.6)")")" "$work/$test"
done
