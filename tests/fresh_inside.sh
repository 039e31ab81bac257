# fresh_inside.sh PART: run by fresh.sh inside a minimal Debian 12 root.
part=$1
cd "$HOME" || exit 1
tree=/srv/dpe

fail() {
    echo "FAILED: $*"
    exit 1
}
# expect CODE COMMAND...: runs the command and checks its exit code; prints its output and keeps it in the file log.
expect() {
    expected=$1
    shift
    code=0
    "$@" >log 2>&1 || code=$?
    cat log
    [ $code = "$expected" ] || fail "$*: expected exit $expected, got $code"
}
size() {
    cat "$1" 2>/dev/null | wc -c
}
# stopped: runs the demo and sends it SIGTERM once it has added rows to its journal.
journal=calibrated/detect.h5.journal/rank-0000.journal
stopped() {
    before=$(size $journal)
    $tree/detect/demo.sh >log 2>&1 &
    demo=$!
    until [ "$(size $journal)" -gt $((before + 2000)) ]; do
        kill -0 $demo 2>/dev/null || { cat log; fail "the demo ended before it wrote rows"; }
        sleep 0.2
    done
    kill -TERM $demo
    code=0
    wait $demo || code=$?
    cat log
    [ $code = 75 ] || fail "the demo after SIGTERM: expected exit 75, got $code"
    grep -q "of [0-9]* samples.* same command" log || fail "the demo does not report that it can continue"
}

# try_tools FOLDER: the tools of an installation, one after another.
try_tools() {
    bin=$1
    $bin/dpe-detect --model data/reference --corpus data/sample --length 512 --groups 2 --samples 2 \
        --lengths 64,256 -o detect.h5
    $bin/dpe-norms --model data/reference --corpus data/sample --samples 2 --lengths 64 -o norms.h5
    $bin/dpe-export detect.h5 norms.h5 --top-k 0.75 -o table.json
    $bin/dpe-run -m data/reference --table table.json --show --corpus data/sample
    $bin/dpe-report detect.h5 norms.h5 -o report.html --no-figures
}

case $part in
demo)
    stopped
    cp $journal first
    stopped
    cmp -n "$(size first)" first $journal || fail "the demo began again instead of continuing"
    ;;
whole_demo)
    expect 0 $tree/detect/demo.sh
    [ -s calibrated/report.html ] && [ -s calibrated/table.h5 ] || fail "no result: $(ls calibrated)"
    grep -q "<svg" calibrated/report.html || fail "the report has no figures"
    grep -q "^unchanged  *finds 0 % of" log && grep -q "^with the table  *found after" log ||
        fail "the secret: $(tail -12 log)"
    ;;
install)
    # Without cmocka a configuration has no tests, and one that requests them names the package.
    cmake -S $tree -B configured
    expect 1 cmake -S $tree -B requested -DDPE_TESTS=ON
    grep -q libcmocka-dev log || fail "DPE_TESTS=ON without cmocka: the package is not named"
    cmake --install $tree/build --prefix /opt/dpe
    # Neither the tree nor its build is needed from here on.
    mv $tree /srv/elsewhere
    cmake -S /opt/dpe/share/dpe/example -B example -DCMAKE_PREFIX_PATH=/opt/dpe
    cmake --build example
    /opt/dpe/bin/dpe-detect --model /srv/elsewhere/data/reference --corpus /srv/elsewhere/data/sample --length 512 \
        --groups 2 --samples 2 --lengths 64,256 -o detect.h5
    /opt/dpe/bin/dpe-export detect.h5 -o table.h5
    example/positions_example table.h5
    ;;
pack)
    apt-get install -y -q --no-install-recommends dpkg-dev file
    cmake -S $tree -B $tree/build
    mkdir -p pack
    cpack --config $tree/build/CPackConfig.cmake -B pack
    ;;
bundle)
    ! dpkg-query -W -f '${Package}\n' | grep -e '-dev$' || fail "the root has packages for building"
    tar -xzf dpe-*.tar.gz
    try_tools "$(echo dpe-*/bin)"
    ;;
package)
    apt-get update -q
    apt-get install -y -q --no-install-recommends ./dpe_*.deb
    ! dpkg-query -W -f '${Package}\n' | grep -e '-dev$' || fail "the package brought packages for building"
    for file in doc/dpe/README.md doc/dpe/LICENSE dpe/SCHEMA.md dpe/gguf_to_hf.py dpe/transformers/pyproject.toml \
        dpe/example/positions_example.c dpe/templates/niah.json; do
        [ -s /usr/share/$file ] || fail "/usr/share/$file is missing"
    done
    try_tools /usr/bin
    ;;
refused)
    for script in detect/demo.sh "tests/run.sh -R test_plan"; do
        # shellcheck disable=SC2086 # a command and its arguments
        expect 1 $tree/$script
        [ "$(grep -c "^apt-get " log)" = 1 ] || fail "$script: no line for an administrator"
        [ ! -e $tree/build ] || fail "$script began to build"
    done
    expect 1 $tree/detect/demo.sh
    grep "^apt-get " log >line
    ;;
administer)
    # The line exactly as it was printed.
    sh -e /home/visitor/line
    ;;
tests)
    # Some tests, with their packages; for all the other packages, only that they can be installed.
    expect 0 $tree/tests/run.sh -R '^(test_support|test_plan|test_table|test_kill|test_emulate|cli_dpe-run|cli_dpe-detect|test_tool_detect|detect_peers_logits|export|install)$'
    # The tools were configured without a C++ compiler, which came with the tests.
    grep -q " test_emulate .*Passed" log || fail "test_emulate did not run"
    . $tree/tests/setup.sh
    # shellcheck disable=SC2086 # lists of words
    expect 0 apt-get install --simulate --no-install-recommends $dpe_packages $dpe_test_packages $dpe_all_test_packages
    ;;
arm64)
    . $tree/tests/setup.sh
    libraries=
    for package in $dpe_packages libcmocka-dev; do
        case $package in
        libopenmpi-dev) ;; # MPI is found by running its compiler
        *-dev) libraries="$libraries $package:arm64" ;;
        esac
    done
    dpkg --add-architecture arm64
    apt-get update -q
    # shellcheck disable=SC2086 # a list of words
    apt-get install -y -q --no-install-recommends gcc-aarch64-linux-gnu make cmake pkg-config git dpkg-dev file help2man lowdown \
        python3-minimal qemu-user $libraries
    export PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig OMP_WAIT_POLICY=passive
    cross="-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc
        -DCMAKE_CROSSCOMPILING_EMULATOR=/usr/bin/qemu-aarch64"
    dpe_root=$tree
    unset CI # gcc 12 for ARM warns of a store of 8 bytes into 8
    # shellcheck disable=SC2086 # lists of words
    for dpe_target in test_golden test_norms_golden; do
        dpe_build $tree/tested $cross -DCMAKE_BUILD_TYPE=Release -DDPE_TESTS=TOOLS -DDPE_MPI=OFF
    done
    dpe_target=
    expect 0 ctest --test-dir $tree/tested --output-on-failure -R '^(test_golden|test_norms_golden|family_.*)$' -E family_faults
    grep -q "100% tests passed.* of [2-9][0-9]$" log || fail "too few tests"
    # A C++ compiler is for the CUDA module alone; with one there would be tests of it on the emulated device.
    [ ! -e /opt/cuda ] || apt-get install -y -q --no-install-recommends g++-aarch64-linux-gnu
    # shellcheck disable=SC2086 # lists of words
    CUDA_PATH=/opt/cuda dpe_build $tree/build $cross -DCMAKE_BUILD_TYPE=Release -DDPE_TESTS=OFF -DDPE_MPI=OFF \
        -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_CUDA_HOST_COMPILER=aarch64-linux-gnu-g++ -DDPE_CUDA_CARDS="90;121"
    file -L $tree/build/bin/dpe-run | grep -q "ARM aarch64" || fail "dpe-run is for another processor"
    mkdir pack
    cpack -G DEB --config $tree/build/CPackConfig.cmake -B pack
    apt-get install -y -q --no-install-recommends ./pack/dpe_*_arm64.deb
    # From here on each tool is the package's.
    mv $tree/build/bin /srv/elsewhere
    mkdir bin
    for tool in /usr/bin/dpe-*; do
        printf '#!/bin/sh\nexec qemu-aarch64 %s "$@"\n' $tool >bin/${tool##*/}
    done
    chmod +x bin/*
    ln -s $tree/data data
    # A calibration with few samples for 128 tokens, as if the model was trained for 64: minutes here.
    expect 0 bin/dpe-calibrate --model data/reference --corpus data/sample --trained-length 64 --length 128 --samples 2 --groups 2 \
        --lengths 16,64 --budget 6ktok --quiet -o calibrated
    [ -s calibrated/report.html ] || fail "no report: $(ls calibrated)"
    expect 0 bin/dpe-run -m data/reference --table calibrated/table.h5 --show --corpus data/sample
    grep -q "^with the table " log || fail "dpe-run --show"
    # shellcheck disable=SC2086 # lists of words
    cmake -S /usr/share/dpe/example -B example $cross
    cmake --build example
    expect 0 qemu-aarch64 example/positions_example calibrated/table.h5
    grep -q "^llama model, trained for 64 tokens, table for 128; " log || fail "the C example"
    # Bfloat16 where the processor has it.
    for cpu in max:0 cortex-a72:69; do
        expect ${cpu#*:} qemu-aarch64 -cpu ${cpu%:*} /usr/bin/dpe-run -m data/reference -p "Once upon a time there was a king" -n 2 \
            --device cpu-bf16
    done
    grep -q "ARM: BF16" log || fail "a processor without bfloat16"
    if [ -e /opt/cuda ]; then
        file -L "$(find /usr/lib -name libdpe_cuda.so)" | grep -q "ARM aarch64" || fail "the package has no CUDA module"
        expect 69 bin/dpe-run -m data/reference -p "a b c" --device cuda
        grep -q "no NVIDIA driver" log || fail "the CUDA module is not loaded"
    fi
    ;;
*) fail "unknown part '$part'" ;;
esac
