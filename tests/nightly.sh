#!/bin/sh
# nightly.sh [SECONDS]: what run.sh leaves out, for a machine that has the night: every test of the optimised build, the
# bare machines of fresh.sh among them; every C test under the sanitizers, and the scripts that are not nightly; each fuzzer for
# SECONDS (default 600) from random numbers of its own; then as long hostile runs of whole tools, and a kill for every two
# of the SECONDS (tests/fuzz/README.md); the adapters with PyPI's newest transformers and vLLM (newest.sh), whose versions
# are printed. Each part runs, also when one before it failed; the last lines say how each ended. What they printed is in
# build-nightly/. Exit status 0 when all passed.
set -eu
dpe_root=$(cd "$(dirname "$0")/.." && pwd)
. "$dpe_root/tests/setup.sh"
export CI="${CI:-nightly}" # warnings are errors, and what cannot run is one
export DPE_TEST_LONG=1     # pages in every colour at every width
seconds=${1:-600}
case $seconds in
*[!0-9]*)
    sed -n 's/^# //p' "$0" | head -8
    exit 64
    ;;
esac
log=$dpe_root/build-nightly
seed=$(date +%s)
mkdir -p "$log"
: >"$log/parts"

# part NAME COMMAND...
part() {
    name=$1
    shift
    begin=$(date +%s)
    code=0
    "$@" >"$log/$name.log" 2>&1 || code=$?
    echo "$name: exit $code, $(($(date +%s) - begin)) s" | tee -a "$log/parts"
    [ $code = 0 ] || tail -n 40 "$log/$name.log"
}
tests() {
    dir=$dpe_root/$1
    shift
    ctest --test-dir "$dir" --output-on-failure -j "$(nproc)" "$@"
}

# shellcheck disable=SC2086 # lists of words
part packages dpe_install $dpe_packages $dpe_test_packages $dpe_all_test_packages
part build dpe_build "$dpe_root/build" -DCMAKE_BUILD_TYPE=Release -DDPE_TESTS=ON
part build-asan dpe_build "$dpe_root/build-asan" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDPE_TESTS=ON -DDPE_SANITIZE=ON
part tests tests build
part tests-asan tests build-asan -L 'unit|numbers'
part tools-asan tests build-asan -L tool -LE nightly
part fuzzers "$dpe_root/tests/fuzz/run.sh" "$seconds"
part hostile python3 "$dpe_root/tests/fuzz/hostile.py" "$dpe_root/build-asan/bin" --seconds "$seconds" --seed "$seed" \
    --log "$log/hostile-$seed.log"
part http python3 "$dpe_root/tests/fuzz/hostile_http.py" "$dpe_root/build-asan/bin" --runs $((seconds * 5)) --seed "$seed" \
    --log "$log/http-$seed.log"
part kills python3 "$dpe_root/tests/fuzz/kills.py" "$dpe_root/build/bin" --kills $((seconds / 2)) --seed "$seed" \
    --log "$log/kills-$seed.log"
part newest "$dpe_root/tests/newest.sh" "$dpe_root/build"
grep '^met' "$log/newest.log" || true
echo "All parts:"
cat "$log/parts"
! grep -qv ': exit 0,' "$log/parts"
