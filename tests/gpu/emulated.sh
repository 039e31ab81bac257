#!/bin/sh
# emulated.sh BUILD SOURCE PYTHON: decide.sh on the emulated device: a part that hangs is ended, what has no time is left for the next
# call, which goes on, and a kernel that hangs is not used. In a copy of the tree's part that it reads.
set -u
build=$1
source=$2
. "$source/tests/work.sh"
tree=$work/tree
mkdir -p "$tree/tests" "$work/bin" "$work/build"
cp -r "$source/tests/gpu" "$tree/tests/"
ln -s "$source/tests/golden" "$tree/tests/golden"
ln -s "$source/data" "$tree/data"
ln -s "$build/bin" "$build/tests" "$work/build/"
printf '#!/bin/sh\nexit 9\n' >"$work/bin/nvidia-smi"
chmod +x "$work/bin/nvidia-smi"
ln -s "$3" "$work/bin/python3"
# decide CODE SECONDS: what it prints is $work/out.
decide() {
    expected=$1
    PATH="$work/bin:$PATH" XDG_CACHE_HOME=$work "$tree/tests/gpu/decide.sh" -b "$work/build" -o "$work/results.md" -s "$2" >"$work/out" 2>&1
    code=$?
    [ $code = "$expected" ] || fail "expected exit $expected, got $code: $(cat "$work/out")"
}
# expect FILE WORDS…: lines of it.
expect() {
    file=$1
    shift
    for words in "$@"; do
        grep -q "$words" "$file" || fail "$file: no \"$words\": $(cat "$file")"
    done
}
# stub NAME COMMAND: in the place of a program.
stub() {
    printf '#!/bin/sh\n%s\n' "$2" >"$tree/tests/gpu/$1"
    chmod +x "$tree/tests/gpu/$1"
}
stub test_instructions_gpu "exec sleep 1000"
decide 1 20
expect "$work/out" "^instructions: hung: ended after 10 s" "^ladder: not started: no time is left"
expect "$work/results.md" "^Not started, as no time was left:.* ladder .*search-reference" "^| instructions | hung"
rm "$tree/tests/gpu/test_instructions_gpu" "$work/build/decide.parts/instructions.done"
decide 0 3400
for part in instructions kernels-wgmma kernels-mma ladder recurrent states plans parity-steps golden parity self-test questions-20 questions-40 \
    attention-256 attention-256-mma search-reference attention-wgmma bench step-today step-launches step-small-today step-small-launches \
    kernels-variants kernels-plain parity-select sweep-cpu sweep-f32 agreement-f32 sweep-bf16 agreement-bf16 attention-mma \
    attention-variants; do
    expect "$work/out" "^$part: passed"
    expect "$work/results.md" "^| $part | passed | [0-9]* |"
done
expect "$work/results.md" "| not run on a card; emulated |" "^| 8B prefill, 8192 | not run | ≤ 0.21 |" \
    "^| the same of 32 over it | not run | ≤ 1.3 |" "rows equal, expected 99.5 %" '"branches": 4'
# Nothing runs twice; a kernel that hangs is used by nothing that follows.
rm "$work/build/decide.parts/kernels-wgmma.done" "$work/build/decide.parts/bench.done"
stub test_attention_gpu "exit 124"
decide 1 3400
expect "$work/out" "^parity: passed, before" "^kernels-wgmma: hung" "what follows runs with DPE_CUDA_ATTENTION=mma" "^bench: passed, [0-9]* s"
expect "$work/build/decide.parts/bench.done" "DPE_CUDA_ATTENTION=mma"
! grep -q "^attention-wgmma" "$work/out" || fail "a kernel that hangs is measured"
# What another version left is not gone on with.
echo another >"$work/build/decide.parts/of"
decide 78 3400
exit "$failed"
