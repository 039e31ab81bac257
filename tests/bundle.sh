#!/bin/sh
# bundle.sh BUILD SOURCE CPACK PYTHON [gpu]: the archive of cpack runs without this build: it is small enough, and holds
# every library except the C library's; it is unpacked into another folder and run with an empty environment.
# gpu: its script for a card runs where that answers nothing, and where there is none.
set -u
build=$1
source=$2
cpack=$3
. "$source/tests/work.sh"

"$cpack" --config "$build/CPackConfig.cmake" -B "$work" >"$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
}
size=$(cat "$work"/dpe-*.tar.gz | wc -c)
# With the 64 MiB that a machine with a GPU may take at once.
[ "$size" -le 67108864 ] || fail "the archive has $size bytes, more than 64 MiB"
if command -v dpkg-shlibdeps >/dev/null && command -v file >/dev/null; then
    dpkg-deb -f "$work"/dpe_*.deb Depends | grep -q "libhdf5" || fail "the Debian package does not name its libraries"
    dpkg-deb -c "$work"/dpe_*.deb >"$work/list"
    for file in bin/dpe-run share/dpe/SCHEMA.md share/dpe/transformers/pyproject.toml share/doc/dpe/LICENSE; do
        grep -q " ./usr/$file\$" "$work/list" || fail "the Debian package has no /usr/$file"
    done
    grep -q "libhdf5" "$work/list" && fail "the Debian package holds libraries of other packages"
fi
mkdir "$work/another place"
tar -C "$work/another place" -xzf "$work"/dpe-*.tar.gz || exit 1
rm -rf "$work/_CPack_Packages"
place=$(echo "$work/another place"/dpe-*)
alone="env -i PATH=/usr/bin:/bin HOME=$work"

"$source/tests/lib/run_paths.sh" "$place" || fail "a run path"
for program in "$place"/bin/* "$place"/gpu/test_* "$place"/gpu/bench_*; do
    [ -e "$program" ] || continue
    $alone ldd "$program" | grep -v -e "$place/" -e "linux-vdso" -e "ld-linux" \
        -e "=> /[^ ]*/lib\(c\|m\|dl\|rt\|pthread\|resolv\)\.so" >"$work/outside" &&
        fail "$program needs: $(cat "$work/outside")"
done
$alone "$place/bin/dpe-detect" --help | grep -q "^Usage: dpe-detect" || fail "dpe-detect --help"
$alone "$place/bin/dpe-detect" --model "$source/data/reference" --corpus "$source/data/sample" --length 512 \
    --groups 1 --samples 1 --lengths 64,256 --device cpu -o "$work/table.h5" >"$work/out" 2>"$work/err" &&
    grep -q "^table: " "$work/out" || fail "a sweep: $(cat "$work/out" "$work/err")"
$alone "$place/bin/dpe-export" "$work/table.h5" -o "$work/table.json" >"$work/out" 2>&1 || fail "an export: $(cat "$work/out")"

# The script for a card, with one that answers nothing: parts end, and what has no time is said.
if [ "${5:-}" = gpu ] && [ -e "$place/gpu/decide.sh" ]; then
    mkdir "$work/bin"
    printf '#!/bin/sh\n[ "$1" = -L ] && echo "GPU 0: none"\nexit 0\n' >"$work/bin/nvidia-smi"
    ln -s "$4" "$work/bin/python3"
    chmod +x "$work/bin/nvidia-smi"
    PATH="$work/bin:/usr/bin:/bin" HOME=$work "$place/gpu/decide.sh" -s 20 -o "$work/results.md" >"$work/out" 2>&1
    [ $? = 1 ] && grep -q "^instructions: not possible here" "$work/out" && grep -q "^ladder: failed with " "$work/out" &&
        grep -q "^| instructions | 1: .* | not possible here |" "$work/results.md" && ! grep -q "failed with 127" "$work/out" || fail "decide.sh: $(cat "$work/out")"
    rm "$work/bin/nvidia-smi"
    PATH="$work/bin:/usr/bin:/bin" "$place/gpu/decide.sh" >"$work/out" 2>&1
    [ $? = 125 ] && grep -q "^no card here" "$work/out" || fail "decide.sh without a card: $(cat "$work/out")"
fi
[ "$failed" = 0 ] && echo "$size bytes, all as expected"
exit "$failed"
