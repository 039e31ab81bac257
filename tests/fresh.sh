#!/bin/sh
# fresh.sh [CASE...]: tries the tree on bare machines. Each is a minimal Debian 12 root without a compiler,
# a copy of one that mmdebstrap makes, entered with chroot; fresh_inside.sh runs inside.
#   demo        detect/demo.sh as root: SIGTERM ends it with 75, and the same command continues
#   install     cmake --install of what demo built, and the C example against it
#   bundle      the archive of cpack, in a root without the packages that it was built with
#   package     the Debian package of cpack, installed with apt in a minimal root
#   user        a user without sudo gets the one line for an administrator, who runs it
#   tests       tests/run.sh as root with some tests
#   arm64       everything for 64-bit ARM, by the cross compiler and with Debian's libraries for it, run in QEMU's user
#               emulation: golden logits, the Debian package, its tools, a calibration and the C example. Where this machine
#               has nvcc and pip the package has the CUDA module too, which finds no device there
#   whole-demo  detect/demo.sh to its end
# Default: all but whole-demo and arm64. All others but arm64 take what demo built; tests builds the tests onto it.
# The roots share this machine's ccache where it has one: sources that were compiled with the same compiler and flags are
# not compiled again, but each one's headers are looked for.
# Everything is in build/fresh/. The minimal root, the root of demo and the downloaded packages stay
# there for the next run; the other roots are removed when their case has passed. Exit status: 0; 1 when a case
# failed; 125 where such a root cannot be made (this needs the root user, mmdebstrap and unshare), or 1 with CI in the
# environment: there it has to be possible, but in a container, most of which do not permit unshare.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
fresh=$root/build/fresh
[ $# -gt 0 ] || set -- demo install bundle package user tests

unable() {
    echo "A bare machine cannot be made here: $*" >&2
    [ -z "${needed:-}" ] || exit 1
    exit 125
}
needed=${CI:-}
[ "$(id -u)" = 0 ] || unable "only root may enter another root"
command -v mmdebstrap >/dev/null || unable "mmdebstrap is missing (package mmdebstrap)"
needed=
unshare --mount --pid --fork true 2>/dev/null || unable "unshare --mount --pid is not permitted"

# The minimal root: from the archive that this machine's apt uses, or from Debian's. apt inside gets the
# settings that concern downloads (proxies, checks of dates).
make_base() {
    rm -rf "$fresh/base"
    apt-config dump | grep -E '^Acquire::(http|https|ftp|Check-|Retries|ForceIPv)' >"$fresh/apt.conf" || true
    # shellcheck disable=SC2016 # apt replaces these
    apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
        grep -E ' bookworm(-updates|-security)? main$' | sort -u >"$fresh/sources.list" || true
    sources=
    [ -s "$fresh/sources.list" ] && sources=$fresh/sources.list
    # dpkg need not wait for the disk: the root is temporary.
    mmdebstrap --variant=minbase ${cache:+--include=ccache} --quiet --aptopt="$fresh/apt.conf" --dpkgopt=force-unsafe-io \
        bookworm "$fresh/base" $sources
    for program in cc c++ nvcc python3 cmake sudo; do
        if chroot "$fresh/base" sh -c "command -v $program"; then
            echo "The minimal root already has $program, so the test would prove nothing" >&2
            exit 1
        fi
    done
    touch "$fresh/base.made"
}
# new_root CASE [FROM]: a root for CASE, a copy of the one that case FROM left (default: the minimal one).
new_root() {
    rm -rf "${fresh:?}/$1"
    cp -a --reflink=auto "$fresh/${2:-base}" "$fresh/$1"
    cp -L /etc/resolv.conf /etc/hosts "$fresh/$1/etc/"
}
# put_tree CASE: the files of the tree that git does not ignore, as /srv/dpe.
put_tree() {
    mkdir "$fresh/$1/srv/dpe"
    (cd "$root" && git ls-files -z --cached --others --exclude-standard | tar -c --null --owner=0 --group=0 -T -) | tar -x -C "$fresh/$1/srv/dpe"
}
# put_build CASE: what demo built of the same files; make goes by their times, which tar has kept.
put_build() {
    cp -a "$fresh/demo/srv/dpe/build" "$fresh/$1/srv/dpe/"
}
# inside CASE PART [USER]: runs a part of fresh_inside.sh in the root of CASE, as root or as USER. Its processes
# and mounts end with it. All cases share the downloaded packages.
inside() {
    cp "$root/tests/fresh_inside.sh" "$fresh/$1/inside.sh"
    home=/root
    shared=$cache
    if [ -n "${3:-}" ]; then
        home=/home/$3
        shared= # not this user's
    fi
    # shellcheck disable=SC2016 # the inner shell's words
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb HOME="$home" USER="${3:-root}" \
        ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
        ${no_proxy:+no_proxy="$no_proxy"} ${CI:+CI="$CI"} ${shared:+CCACHE_DIR=/var/cache/ccache} \
        unshare --mount --pid --fork --kill-child sh -euc '
            mount -t proc proc "$1/proc"
            mount --rbind /dev "$1/dev"
            mount --bind "$2" "$1/var/cache/apt/archives"
            [ -z "$5" ] || { mkdir -p "$1/var/cache/ccache"; mount --bind "$5" "$1/var/cache/ccache"; }
            exec chroot ${4:+--userspec="$4"} "$1" /bin/sh -eu /inside.sh "$3"' \
        inside "$fresh/$1" "$fresh/packages" "$2" "${3:-}" "$shared" </dev/null
}

case_demo() {
    new_root demo
    put_tree demo
    inside demo demo
}
case_install() {
    new_root install demo
    inside install install
}
case_bundle() {
    inside demo pack
    new_root bundle
    mkdir -p "$fresh/bundle/root/data"
    cp "$fresh/demo/root/pack/"dpe-*.tar.gz "$fresh/bundle/root/"
    cp -r "$root/data/reference" "$root/data/sample" "$fresh/bundle/root/data/"
    inside bundle bundle
}
case_package() {
    inside demo pack
    new_root package
    mkdir -p "$fresh/package/root/data"
    cp "$fresh/demo/root/pack/"dpe_*.deb "$fresh/package/root/"
    cp -r "$root/data/reference" "$root/data/sample" "$fresh/package/root/data/"
    inside package package
}
case_user() {
    new_root user
    put_tree user
    chroot "$fresh/user" useradd --create-home --shell /bin/sh visitor
    chroot "$fresh/user" chown -R visitor: /srv/dpe
    inside user refused visitor
    inside user administer
    put_build user
    chroot "$fresh/user" chown -R visitor: /srv/dpe/build
    inside user demo visitor
}
case_tests() {
    new_root tests
    put_tree tests
    put_build tests
    inside tests tests
}
# put_toolkit CASE: this machine's nvcc as /opt/cuda, with the runtime's library for 64-bit ARM, which PyPI has.
put_toolkit() {
    nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
    if [ ! -x "$nvcc" ] || ! python3 -m pip --version >/dev/null 2>&1; then
        echo "no nvcc or no pip here: the CUDA module is not built for 64-bit ARM"
        return
    fi
    from=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
    to=$fresh/$1/opt/cuda
    version=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
    mkdir -p "$to/targets/aarch64-linux"
    cp -a "$from/bin" "$from/nvvm" "$from/include" "$to/"
    python3 -m pip download -q --no-deps --only-binary=:all: --platform manylinux2014_aarch64 --platform manylinux_2_17_aarch64 \
        -d "$to" "nvidia-cuda-runtime==$version.*"
    python3 -m zipfile -e "$to"/nvidia_cuda_runtime-*.whl "$to/wheel"
    mv "$(dirname "$(find "$to/wheel" -name libcudart_static.a)")" "$to/targets/aarch64-linux/lib"
    ln -s ../../include "$to/targets/aarch64-linux/include"
    # What CMake looks for, though the static one is linked.
    ln -s libcudart_static.a "$to/targets/aarch64-linux/lib/libcudart.so"
}
case_arm64() {
    new_root arm64
    put_tree arm64
    put_toolkit arm64
    inside arm64 arm64
}
case_whole_demo() {
    new_root whole-demo demo
    inside whole-demo whole_demo
}

cache=$(ccache --get-config cache_dir 2>/dev/null) && mkdir -p "$cache" || cache=
mkdir -p "$fresh/packages/partial"
# A month later the packages of the minimal root are old: all would be downloaded again.
[ -n "$(find "$fresh/base.made" -mtime -30 2>/dev/null)" ] || make_base
failed=""
for name in "$@"; do
    begin=$(date +%s)
    # Not in a condition: in one, set -e has no effect and a failed command would not end the case.
    set +e
    (set -e; "case_$(echo "$name" | tr - _)") >"$fresh/$name.log" 2>&1
    code=$?
    set -e
    if [ $code = 0 ]; then
        echo "fresh: $name passed ($(($(date +%s) - begin)) s)"
        [ "$name" = demo ] || rm -rf "${fresh:?}/$name"
    else
        tail -n 60 "$fresh/$name.log"
        echo "fresh: $name FAILED with $code; its root is $fresh/$name, its output $fresh/$name.log"
        failed="$failed $name"
    fi
done
[ -z "$failed" ]
