#!/bin/sh
# run.sh [SECONDS [NAME...]]: builds the fuzzers with clang into build-fuzz/ and runs each for SECONDS (default
# 60), two at a time. New inputs that reach new code stay in build-fuzz/corpus/. DPE_FUZZ_SEED=N begins with
# the same random numbers each time. Exit status 0 when no fuzzer found anything; an input that causes a
# failure is kept and named.
set -eu
dpe_root=$(cd "$(dirname "$0")/../.." && pwd)
. "$dpe_root/tests/setup.sh"
seconds=${1:-60}
case $seconds in
*[!0-9]*)
    sed -n 's/^# //p' "$0" | head -5
    exit 64
    ;;
esac
[ $# -gt 0 ] && shift
build=$dpe_root/build-fuzz
dpe_target=fuzzers dpe_build "$build" -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DDPE_SANITIZE=ON -DDPE_FUZZ=ON -DDPE_WERROR=ON
cd "$build/fuzz"
[ $# -gt 0 ] || set -- fuzz_*
failed=""
mkdir -p "$build/log" "$build/found"
[ -d /dev/shm ] && export TMPDIR=/dev/shm
one() {
    mkdir -p "$build/corpus/$1"
    OMP_NUM_THREADS=1 "./$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 \
        -max_len=16384 ${DPE_FUZZ_SEED:+-seed="$DPE_FUZZ_SEED"} -artifact_prefix="$build/found/$1-" \
        "$build/corpus/$1" "$dpe_root/tests/fuzz/corpus/$1" >"$build/log/$1" 2>&1
}
while [ $# -gt 0 ]; do
    first=$1
    second=${2:-}
    one "$first" &
    if [ -n "$second" ]; then
        one "$second" || failed="$failed $second"
        shift
    fi
    wait $! || failed="$failed $first"
    shift
    for name in $first $second; do
        printf '%-18s %s\n' "$name" "$(grep -a -E '^Done|ERROR|SUMMARY|does not hold' "$build/log/$name" | tail -n 1)"
    done
done
[ -z "$failed" ] && exit 0
for name in $failed; do
    tail -n 40 "$build/log/$name" >&2
done
echo "These fuzzers failed:$failed; the inputs are in $build/found" >&2
exit 1
