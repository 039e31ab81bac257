#!/bin/sh
# musl.sh SYSTEM CC ROOT INCLUDE…: every source for the CPU, but for MPI's, is read by musl's compiler (musl-gcc):
# declarations that musl lacks, or has in another form, are errors. SYSTEM is musl, or apple: then what platform.c has for
# macOS is compiled, and headers and functions of musl's that macOS lacks (C11 threads, Linux's own) are errors. INCLUDE are
# folders with the headers of other libraries, which this machine has for its own C library: nothing is linked and
# nothing runs.
set -eu
system=$1
cc=$2
root=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Only these headers of the other C library's folders.
mkdir -p "$work/include/openssl"
for folder in "$@"; do
    for name in cblas csv hdf5 jansson jansson_config microhttpd openblas_config pcre2 png pngconf pnglibconf utf8proc \
        yaml zconf zip zipconf zlib; do
        [ ! -e "$folder/$name.h" ] || ln -sf "$folder/$name.h" "$work/include/"
    done
    [ ! -e "$folder/curl/curl.h" ] || ln -sfn "$folder/curl" "$work/include/curl"
    for file in "$folder"/openssl/*.h "$folder"/H5*.h "$folder"/hdf5_hl.h; do
        [ ! -e "$file" ] || case $file in
        */openssl/*) ln -sf "$file" "$work/include/openssl/" ;;
        *) ln -sf "$file" "$work/include/" ;;
        esac
    done
done
ln -s "$("$cc" -print-file-name=include)/omp.h" "$work/include/omp.h"
as=
if [ "$system" = apple ]; then
    mkdir "$work/include/mach-o" "$work/lacks"
    printf '#include <stdint.h>\nint _NSGetExecutablePath(char *path, uint32_t *size);\n' >"$work/include/mach-o/dyld.h"
    echo '#error "macOS lacks it"' >"$work/lacks/threads.h"
    mkdir "$work/lacks/sys"
    for name in epoll eventfd inotify prctl sendfile signalfd sysinfo timerfd; do
        echo '#error "macOS lacks it"' >"$work/lacks/sys/$name.h"
    done
    as="-I$work/lacks -D__APPLE__ -Dst_mtimespec=st_mtim -DF_FULLFSYNC=51"
fi
lacking="pipe2|memfd_create|accept4|dup3|fdatasync|getrandom|qsort_r|mempcpy|strchrnul|memrchr|posix_fallocate|fallocate"
lacking="$lacking|posix_fadvise|sched_.*affinity|pthread_.*affinity.*|pthread_condattr_setclock|pthread_barrier_.*|sem_init"
lacking="$lacking|sem_timedwait|pthread_mutex_timedlock|pthread_timedjoin.*|clock_nanosleep|sigtimedwait|sigwaitinfo"
lacking="$lacking|timer_create|prctl|epoll_.*|eventfd|signalfd|timerfd_.*|inotify_.*|renameat2|copy_file_range|sendfile"
lacking="$lacking|splice|mremap|mtx_.*|cnd_.*|thrd_.*|call_once|get_nprocs.*|sysinfo|secure_getenv|execvpe|fopencookie"
lacking="$lacking|malloc_usable_size|malloc_trim|mallopt|getauxval|syscall"
# Not all warnings: unrolling, which some sources ask for, is off here.
errors="-Werror=implicit-function-declaration -Werror=int-conversion -Werror=incompatible-pointer-types"
cd "$root"
read=0
wrong=0
for file in $(find engine data outputs norms eval detect -name '*.c' ! -path '*/cuda/*' ! -path 'outputs/table/positions_example.c' |
    xargs grep -L -e 'mpi[.]h' -e 'cuda/'); do
    case $file in
    *_bf16.c | *_amx.c)
        [ "$(uname -m)" = x86_64 ] || continue
        set="-mavx512f -mavx512bw -mavx512bf16 -mamx-tile -mamx-bf16"
        ;;
    *_neon.c) continue ;;
    *) set= ;;
    esac
    read=$((read + 1))
    # shellcheck disable=SC2086 # lists of words
    "$cc" -std=c17 $set -c -o "$work/object" -fopenmp -Wall $errors -I. $as -idirafter "$work/include" -D_POSIX_C_SOURCE=200809L \
        -D_DEFAULT_SOURCE -DDPE_SIMD_PORTABLE -DDPE_KERNELS_NAME=kernels \
        -DDPE_KERNELS_LABEL='""' -DDPE_VERSION='""' -DDPE_GIT='""' -DDPE_OPENBLAS='""' -DDPE_LIBDIR='""' "$file" || {
        wrong=$((wrong + 1))
        continue
    }
    if [ "$system" = apple ] && nm -u "$work/object" | grep -E " U ($lacking)\$"; then
        echo "$file: macOS lacks these functions" >&2
        wrong=$((wrong + 1))
    fi
done
if [ "$system" = apple ]; then
    # A member of struct stat that has another name there.
    grep -rn "st_[acm]tim\>" engine data outputs norms eval detect --include=*.[ch] | grep -v "^engine/system/platform.c:" &&
        wrong=$((wrong + 1))
fi
echo "$read sources, $wrong of them wrong"
[ "$read" -gt 200 ] && [ "$wrong" = 0 ]
