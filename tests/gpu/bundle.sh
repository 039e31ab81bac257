#!/bin/sh
# bundle.sh BUILD TARGET: a folder, and TARGET.tar.gz of it, that runs on a machine with a GPU driver and no -dev packages: tools,
# the CUDA module, the libraries they need (but for the C library and cuBLAS), run.sh and what it runs.
set -eu
build=$1
target=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$target/lib" "$target/tests" "$target/share/tests"
target=$(cd "$target" && pwd)
cmake --install "$build" --prefix "$target" >/dev/null
find "$target" -name 'libdpe_cuda.so' ! -path "$target/lib/*" -exec mv {} "$target/lib/" \;
cp "$build/tests/test_cuda" "$build/tests/test_attention_gpu" "$build/tests/bench_attention_cuda" \
    "$target/tests/"
cp -R "$root/tests/golden" "$target/share/tests/"
cp "$root/tests/gpu/run.sh" "$root/tests/gpu/peers.py" "$target/"
# What the C library's own package has stays the machine's.
for file in "$target"/bin/* "$target"/tests/* "$target"/lib/*.so; do
    ldd "$file" 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $3 }'
done | sort -u | while read -r library; do
    case ${library##*/} in
    ld-linux* | libc.so* | libm.so* | libpthread.so* | libdl.so* | librt.so* | libresolv.so* | libcublas* | libcuda.so*) ;;
    *) [ -e "$target/lib/${library##*/}" ] || cp -L "$library" "$target/lib/" ;;
    esac
done
strip --strip-unneeded "$target"/bin/dpe-* "$target"/tests/* \
    "$target"/lib/*.so* 2>/dev/null || true
tar -C "$(dirname "$target")" -czf "$target.tar.gz" "$(basename "$target")"
du -sm "$target" "$target.tar.gz" | awk '{ print $1 " MB: " $2 }'
