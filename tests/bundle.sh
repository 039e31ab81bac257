#!/bin/sh
# bundle.sh BUILD SOURCE CPACK PYTHON [gpu]: the archive of cpack runs without this build: it is small enough, and holds
# every library except the C library's; it is unpacked into another folder and run with an empty environment.
# gpu: its scripts for a GPU run on the emulated device too.
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

# The script that calibrates a real model on a GPU, here with the reference model on the CPU.
if [ "${5:-}" = gpu ] && [ -e "$place/gpu/instruct.sh" ]; then
    $alone "$place/gpu/instruct.sh" -m "$source/data/reference" -c "$source/data/sample" -d cpu -n 4 -x 2 \
        -o "$work/instruct" >"$work/out" 2>"$work/err" || fail "instruct.sh: $(cat "$work/out" "$work/err")"
    grep -q "^recall at the trained length 256, four-values: [0-9.]* %" "$work/out" &&
        [ -s "$work/instruct/calibrated/report.html" ] || fail "instruct.sh: $(cat "$work/out" "$work/err")"
fi

# expect FILE WORDS…: lines of a script's output.
expect() {
    file=$1
    shift
    for words in "$@"; do
        grep -q "$words" "$file" || fail "$file: no \"$words\""
    done
}

# The scripts for a GPU, at tiny sizes: parts that find no real device fail without stopping others, and there are results.
if [ "${5:-}" = gpu ] && [ -e "$place/gpu/decide.sh" ] && [ -e "$build/tests/libdpe_cuda_emulated.so" ]; then
    mkdir "$work/bin"
    printf '#!/bin/sh\n[ "$1" = -L ] && echo "GPU 0: none, emulated"\nexit 0\n' >"$work/bin/nvidia-smi"
    # It hangs the first time, and fails at once after that.
    printf '#!/bin/sh\n[ -e "%s" ] && exit 3\n: >"%s"\nexec sleep 1000\n' "$work/hung" "$work/hung" >"$work/bin/compute-sanitizer"
    ln -s "$4" "$work/bin/python3"
    chmod +x "$work/bin/nvidia-smi" "$work/bin/compute-sanitizer"
    mv "$place" "$work/bundle"
    for script in decide check sanitize; do
        PATH="$work/bin:$PATH" DPE_CUDA_MODULE="$build/tests/libdpe_cuda_emulated.so" DPE_FAKE_CUDA= \
            "$work/bundle/gpu/$script.sh" -q -s 3500 -o "$work/$script" >"$work/$script.out" 2>&1
        code=$?
        # PyTorch's part and the sanitizer's fail here; checks alone need neither.
        [ $code -le 1 ] || fail "$script.sh exits with $code"
        [ "$(ls "$work/$script" | wc -l)" -le 8 ] || fail "too many files: $(ls "$work/$script")"
    done
    expect "$work/decide.out" "^instructions: exit 125" "^kernels-mma: exit 125" "^kernels-wgmma: exit 125" \
        "^attention-wgmma: exit 125" "^bench: exit 0" "^bench-128k: exit 0"
    expect "$work/decide/results.md" "^| 8B prefill, 8192 | – | ≤ 0.21 |"
    expect "$work/check.out" "^self-test: exit 0" "^sweep-f32: exit 0" "^agreement-f32: exit 0" "^sweep-bf16: exit 0" \
        "^agreement-bf16: exit 0" "^step-today: exit 0" "^step-launches: exit 0" "^step-small-today: exit 0" \
        "^step-small-launches: exit 0" "^parity-steps: exit 0" \
        "^parity-golden: exit 0" "^parity-select: exit 0" "^attention-mma: exit 125"
    expect "$work/check/results.md" "rows equal, expected 99.5 %" "^| a token, dpe, launches | .* of today |"
    expect "$work/sanitize.out" "^instruct: exit 0" "^branches: exit 0" "^memcheck: exit \(124\|out-of-time\)"
    [ "$failed" = 0 ] || cat "$work"/*.out "$work"/*/results.md
    # A kernel that hangs (timeout then exits with 124): the following parts do not use it.
    printf '#!/bin/sh\n[ "$1" = mma ] || exit 124\n' >"$work/bundle/gpu/test_attention_gpu"
    PATH="$work/bin:$PATH" DPE_CUDA_MODULE="$build/tests/libdpe_cuda_emulated.so" DPE_FAKE_CUDA= \
        "$work/bundle/gpu/decide.sh" -q -s 3500 -o "$work/without" >"$work/without.out" 2>&1
    expect "$work/without.out" "^kernels-wgmma: exit 124"
    expect "$work/without/results.md" "what follows ran with DPE_CUDA_ATTENTION=mma"
    ! grep -q "^attention-wgmma" "$work/without.out" || fail "a kernel that hangs is measured"
fi
[ "$failed" = 0 ] && echo "$size bytes, all as expected"
exit "$failed"
