# Sourced by tests/run.sh and detect/demo.sh: installs through apt what building and testing needs and
# is not there yet, after saying what. Debian 12 or a relative of it; as root, or with sudo.

# What the tools are built from and run with.
dpe_packages="gcc libc6-dev make cmake pkg-config git libhdf5-dev libcsv-dev libopenblas-openmp-dev
    libpcre2-dev libutf8proc-dev libjansson-dev libssl-dev libzip-dev libyaml-dev libpng-dev
    libopenmpi-dev openmpi-bin"
# What the tests need besides.
dpe_test_packages="g++ libcmocka-dev hdf5-tools python3 python3-h5py python3-numpy
    python3-torch librsvg2-bin slurmctld slurmd slurm-client munge clang libclang-rt-dev libomp-dev locales procps"

# dpe_install PACKAGE...: install those that are missing.
dpe_install() {
    missing=""
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
            missing="$missing $package"
    done
    [ -z "$missing" ] && return 0
    if ! command -v apt-get >/dev/null; then
        echo "These packages are missing and this system has no apt-get to install them:$missing" >&2
        return 1
    fi
    as_root=""
    if [ "$(id -u)" -ne 0 ]; then
        as_root="sudo"
        command -v sudo >/dev/null || {
            echo "As root, please run: apt-get install$missing" >&2
            return 1
        }
    fi
    echo "Installing with apt-get:$missing"
    $as_root apt-get update -qq &&
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
            --no-install-recommends $missing >/dev/null
}

# dpe_build DIR [CMAKE OPTION...]: configure and build the tree that this file lies in; of it only
# $dpe_target where that is set.
dpe_build() {
    dir=$1
    shift
    cmake -S "$dpe_root" -B "$dir" "$@" >"$dir.log" 2>&1 &&
        cmake --build "$dir" -j "$(nproc)" ${dpe_target:+--target "$dpe_target"} >>"$dir.log" 2>&1 && rm -f "$dir.log" || {
        tail -n 40 "$dir.log" >&2
        echo "The build failed; all of its output is in $dir.log" >&2
        return 1
    }
}
