#!/bin/sh
# run.sh: runs all tests. It installs missing packages (apt), builds into build/ and, with sanitizers,
# into build-asan/, runs each fuzzer for 10 seconds (build-fuzz/) and both test suites. Exit status 0 when
# every test passed.
# run.sh ARGUMENT...: builds into build/ only, and runs the tests that `ctest ARGUMENT...` selects; for
# example run.sh -R test_plan.
set -eu
dpe_root=$(cd "$(dirname "$0")/.." && pwd)
. "$dpe_root/tests/setup.sh"
werror=OFF
[ -n "${CI:-}" ] && werror=ON

# optimised [CTEST ARGUMENT...]: tests of the optimised build.
optimised() {
    ctest --test-dir "$dpe_root/build" --output-on-failure -j "$(nproc)" "$@"
}

# shellcheck disable=SC2086 # lists of words
if [ $# -gt 0 ]; then
    dpe_install $dpe_packages $dpe_test_packages
else
    dpe_install $dpe_packages $dpe_test_packages $dpe_all_test_packages
fi
echo "Building into build/"
dpe_build "$dpe_root/build" -DCMAKE_BUILD_TYPE=Release -DDPE_TESTS=ON -DDPE_WERROR=$werror
if [ $# -gt 0 ]; then
    optimised "$@"
    exit
fi
echo "Building with address and undefined-behaviour sanitizers into build-asan/"
dpe_build "$dpe_root/build-asan" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDPE_TESTS=ON -DDPE_SANITIZE=ON \
    -DDPE_WERROR=$werror
echo "Fuzzers, 10 seconds each:"
DPE_FUZZ_SEED=${DPE_FUZZ_SEED:-1} "$dpe_root/tests/fuzz/run.sh" 10
echo "Tests under the sanitizers:"
ctest --test-dir "$dpe_root/build-asan" --output-on-failure -j "$(nproc)" -LE optimised
echo "Tests of the optimised build:"
optimised
