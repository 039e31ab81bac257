#!/bin/sh
# Passes the tests: installs what is missing (apt), builds into build/ and, with sanitizers, into
# build-asan/, runs each fuzzer for some seconds (build-fuzz/) and both test suites. Exit status 0 when
# every test passed.
set -eu
dpe_root=$(cd "$(dirname "$0")/.." && pwd)
. "$dpe_root/tests/setup.sh"

# shellcheck disable=SC2086 # lists of words
dpe_install $dpe_packages $dpe_test_packages
werror=OFF
[ -n "${CI:-}" ] && werror=ON
echo "Building into build/"
dpe_build "$dpe_root/build" -DCMAKE_BUILD_TYPE=Release -DDPE_WERROR=$werror
echo "Building with address and undefined-behaviour sanitizers into build-asan/"
dpe_build "$dpe_root/build-asan" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDPE_SANITIZE=ON \
    -DDPE_WERROR=$werror
echo "Fuzzers, 30 seconds each:"
"$dpe_root/tests/fuzz/run.sh" 30
echo "Tests under the sanitizers:"
ctest --test-dir "$dpe_root/build-asan" --output-on-failure -j "$(nproc)" -LE "slow|optimised"
echo "Tests of the optimised build:"
ctest --test-dir "$dpe_root/build" --output-on-failure -j "$(nproc)"
