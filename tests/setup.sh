# Sourced by tests/run.sh and detect/demo.sh: prints which packages for building and testing are missing, and
# installs them with apt-get. Needs Debian 12 or a relative of it, and root or sudo.

# Packages to build and run the tools.
dpe_packages="gcc libc6-dev make cmake pkg-config git libhdf5-dev libcsv-dev libopenblas-openmp-dev
    libpcre2-dev libutf8proc-dev libjansson-dev zlib1g-dev libssl-dev libzip-dev libyaml-dev libpng-dev libmicrohttpd-dev libcurl4-openssl-dev
    libopenmpi-dev openmpi-bin help2man lowdown"
# Packages to build the tests and to run most of them.
dpe_test_packages="g++ libcmocka-dev ccache hdf5-tools python3 python3-h5py python3-numpy locales procps"
# Further packages for single tests, the sanitizers and the fuzzers.
dpe_all_test_packages="python3-torch librsvg2-bin slurmctld slurmd slurm-client munge clang libclang-rt-dev libomp-dev
    chromium curl openssl mmdebstrap pyflakes3 man-db zsh dpkg-dev file gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user musl-tools"

# dpe_install PACKAGE...: installs the missing ones of these packages.
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
            echo "Packages are missing, and only root can install them. Please run as root:" >&2
            echo "apt-get update && apt-get install -y --no-install-recommends$missing" >&2
            return 1
        }
    fi
    echo "Installing with apt-get:$missing"
    # shellcheck disable=SC2086 # a list of words
    $as_root apt-get update -qq &&
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
            --no-install-recommends $missing >/dev/null
}

# dpe_changed PATTERN: whether a file whose path matches (grep -E) has changed since the commit $DPE_BASE; by default, since
# a day before the commit that is checked out: what is older has met a night (nightly.sh). Without the history that says
# so (no git, a shallow clone), every file counts as changed. Documents (.md) never count: no such test reads them.
dpe_changed() {
    at=$(git -C "$dpe_root" log -1 --format=%ct 2>/dev/null) || return 0
    base=${DPE_BASE:-$(git -C "$dpe_root" rev-list -1 --before=$((at - 86400)) HEAD)}
    [ -n "$base" ] && files=$(git -C "$dpe_root" diff --name-only "$base" -- ':!*.md') || return 0
    printf '%s\n' "$files" | grep -qE "$1"
}

# dpe_build DIR [CMAKE OPTION...]: configures and builds the tree in $dpe_root into DIR; only the target $dpe_target if
# that is set. With CI in the environment warnings are errors. Where ccache is installed, copies of the tree in other
# folders share what it keeps.
dpe_build() {
    dir=$1
    shift
    [ -z "${CI:-}" ] || set -- "$@" -DDPE_WERROR=ON
    if command -v ccache >/dev/null; then
        export CCACHE_BASEDIR="$dpe_root" CCACHE_NOHASHDIR=1
        for language in C CXX CUDA; do
            set -- "$@" -DCMAKE_${language}_COMPILER_LAUNCHER=ccache
        done
    fi
    cmake -S "$dpe_root" -B "$dir" "$@" >"$dir.log" 2>&1 &&
        cmake --build "$dir" -j "$(nproc)" ${dpe_target:+--target "$dpe_target"} >>"$dir.log" 2>&1 && rm -f "$dir.log" || {
        tail -n 40 "$dir.log" >&2
        echo "The build failed; its whole output is in $dir.log" >&2
        return 1
    }
}
