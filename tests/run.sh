#!/bin/sh
# run.sh: runs the tests that every change has to pass; continuous integration runs the same. It installs missing packages
# (apt), builds into build-asan/ with sanitizers and runs the C tests there, the seeds of the fuzzers, and a short run of
# each tool. Then it builds into build-tests/, with kernels for one card, or for all when kernels changed, and runs the
# scripts, and the C tests whose results depend on the compiler. Tests with the label nightly are left to nightly.sh. At the
# end it prints the signature of the results (dpe-bench --signature), the slowest tests and how many passed. Exit status 0
# when every test passed.
# run.sh ARGUMENT...: builds into build/ only, and runs the tests that `ctest ARGUMENT...` selects; for
# example run.sh -R test_plan.
set -eu
dpe_root=$(cd "$(dirname "$0")/.." && pwd)
. "$dpe_root/tests/setup.sh"

# suite DIR [CTEST ARGUMENT...]: the tests of a build; what they print is kept in DIR/tests.log.
suite() {
    dir=$1
    shift
    ctest --test-dir "$dir" --output-on-failure -j "$(nproc)" -O "$dir/tests.log" "$@"
}

# shellcheck disable=SC2086 # lists of words
if [ $# -gt 0 ]; then
    dpe_install $dpe_packages $dpe_test_packages
    echo "Building into build/"
    dpe_build "$dpe_root/build" -DCMAKE_BUILD_TYPE=Release -DDPE_TESTS=ON
    suite "$dpe_root/build" "$@"
    exit
fi
# shellcheck disable=SC2086 # lists of words
dpe_install $dpe_packages $dpe_test_packages $dpe_all_test_packages
# Some tests are only run when a file changed that they are about; nightly.sh runs them always.
without='^$'
# only TESTS FILES: both are regular expressions.
only() {
    dpe_changed "$2" && return
    echo "No file changed that the tests $1 are about: without them"
    without="$without|^($1)\$"
}
only 'test_cuda.*|test_attention_(mma|wgmma|plain)|test_(select|recur)_kernels|test_self_test|test_ladder' \
    '^(engine/(base|cuda|kv|model|ops|plan|session)|tests/(emulate|engine/cuda|engine/session|golden|lib))/'
failed=0
echo "Building with address and undefined-behaviour sanitizers into build-asan/"
dpe_build "$dpe_root/build-asan" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDPE_TESTS=ON -DDPE_SANITIZE=ON
echo "Tests under the sanitizers:"
suite "$dpe_root/build-asan" -L 'unit|smoke' -LE nightly -E "$without" || failed=1
echo "Building into build-tests/"
cards=-DDPE_CUDA_CARDS=90
! dpe_changed '^engine/cuda/|^CMakeLists.txt$' || cards=-UDPE_CUDA_CARDS # as users build them
dpe_build "$dpe_root/build-tests" -DCMAKE_BUILD_TYPE=Release -DDPE_TESTS=TOOLS "$cards"
only fresh '(^|/)(CMakeLists\.txt|[^/]*\.cmake|setup\.sh|demo\.sh|fresh[^/]*\.sh)$'
only arm_kernels '^(engine/(base|cpu|gguf|kv|model|ops|plan)|tests/(arm|engine/cpu|lib))/'
echo "Tests of the optimised build:"
suite "$dpe_root/build-tests" -L 'tool|numbers' -LE nightly -E "$without" || failed=1

echo "Signature: $("$dpe_root/build-tests/bin/dpe-bench" --signature)"
echo "The slowest tests, in seconds:"
sed -n 's/^.*Test *#[0-9]*: \([^ ]*\) .*  *\([0-9.]*\) sec.*$/\2 \1/p' "$dpe_root/build-asan/tests.log" \
    "$dpe_root/build-tests/tests.log" | sort -rn | head -n 10
for dir in build-asan build-tests; do
    echo "$dir:"
    grep 'tests passed' "$dpe_root/$dir/tests.log"
done
exit $failed
