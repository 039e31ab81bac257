#!/bin/sh
# emulated.sh BUILD SOURCE PYTHON: decide.sh on the emulated device: what has no time is left for the next call, which goes on, also after
# a kill, and a kernel that hangs is not used. In a copy of the tree's part that it reads.
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
# start SECONDS: what it prints is $work/out. decide CODE SECONDS: to its end.
start() {
    PATH="$work/bin:$PATH" XDG_CACHE_HOME=$work "$tree/tests/gpu/decide.sh" -b "$work/build" -o "$work/results.md" -s "$1" >"$work/out" 2>&1 &
    running=$!
}
decide() {
    expected=$1
    start "$2"
    wait $running
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
decide 75 20
expect "$work/out" "^instructions: ended after 10 s, as no time was left" "^ladder: not started: no time is left"
expect "$work/results.md" "^Not started, as no time was left: instructions .* ladder .*search-reference"
rm "$tree/tests/gpu/test_instructions_gpu"
# Killed in the middle of a part, it leaves nothing running, that part is run again, and what ran is not.
stub test_states "exec sleep 1$$"
for signal in TERM KILL; do
    start 3400
    while kill -0 $running && ! pgrep -f "^sleep 1$$" >/dev/null; do
        sleep 1
    done
    kill -$signal $running
    wait $running
    code=$?
    sleep 5
    left=$(pgrep -f "^sleep 1$$")
    case $signal,$code,$left in
    TERM,143, | KILL,137,) ;;
    *) fail "after signal $signal: exit $code, running: $left" ;;
    esac
done
rm "$tree/tests/gpu/test_states"
decide 0 3400
expect "$work/out" "^recurrent: passed, before" "^states: passed, [0-9]* s"
for part in instructions kernels-wgmma kernels-mma ladder recurrent states plans parity-steps golden parity self-test questions-20 questions-40 twenty-plans \
    attention-256 attention-256-mma stand-in-smollm2-135m stand-in-gemma-3-270m search-reference search-smollm2-135m \
    search-gemma-3-270m attention-wgmma bench step-today step-launches step-small-today step-small-launches \
    kernels-plain parity-select sweep-cpu widen sweep-f32 agreement-f32 sweep-bf16 agreement-bf16 attention-mma; do
    expect "$work/out" "^$part: passed"
    expect "$work/results.md" "^| $part | [1-5]: .* | passed | [0-9]* |"
done
expect "$work/results.md" "| not run on a card; emulated |" "^| 8B prefill, 8192 | not run | ≤ 0.21 |" \
    "^| the same of 32 over it | not run | ≤ 1.3 |" "^| contexts of 32768 of all plans .* | not run | ≤ 2 |" "^| 16 texts of a search, smollm2-135m | not run | ≤ 10 asked |" \
    "rows equal, expected 99.5 %" '"branches": 4' "product_few graph: right"
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
