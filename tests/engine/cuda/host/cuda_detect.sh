#!/bin/sh
# cuda_detect.sh BUILD SOURCE: a sweep on the emulated CUDA device (words of DPE_FAKE_CUDA:
# emulate/fake_runtime.cpp). When a device fails, the sweep ends with its finished rows saved; the same command
# continues on any device of the kind, and ends with the table of an undisturbed run.
set -u
build=$1
root=$2
. "$root/tests/cli/world.sh"
. "$root/tests/cli/mpi_settings.sh"
make_model model
model=$work/model
export DPE_CUDA_MODULE="$build/tests/libdpe_cuda_emulated.so" DPE_DEVICE_SELF_TEST=off

# detect FAKE OPTION…: the exit code becomes $got.
detect() {
    DPE_FAKE_CUDA=$1
    export DPE_FAKE_CUDA
    shift
    $launch "$build/bin/dpe-detect" --model "$model" --corpus "$work/corpus" --length 96 \
        --task ppl --groups 2 --samples 2 --lengths 8,32 --seed 5 --threads 1 --select paper --temperature off "$@" \
        >"$work/out" 2>"$work/err"
    got=$?
}
# sweep EXIT WORDS FAKE OPTION…: words that standard error or output has.
sweep() {
    code=$1
    words=$2
    shift 2
    detect "$@"
    if [ "$got" != "$code" ] || ! cat "$work/out" "$work/err" | grep -q -e "$words"; then
        fail "$*: expected $code and \"$words\", got $got:"
        cat "$work/out" "$work/err"
    fi
}
launch=

# A dry run of a large model allocates nothing and prints what a run would need.
sweep 0 "^memory .*on the device.*: fits" "" --device cuda --dry-run
sweep 0 "^memory .* MiB on the device, .* of them weights; 100 MiB are free: does not fit" \
    memory=104857600 --device cuda --dry-run
make_model huge huge
model=$work/huge
for free in "139 GiB are free: fits" "100 GiB are free: does not fit"; do
    sweep 0 "^memory .*13[1-4] GiB on the device, 131 GiB of them weights; $free" \
        memory=$((${free%% *} << 30)),allocate=1 --device cuda --dry-run --length 512 --lengths 256 --window 128 --trained-length 512
done
model=$work/model

sweep 0 "^table" "" --device cuda -o "$work/calm.h5"
h5dump -d /identity/value "$work/calm.h5" | grep -q '"cuda", "f32"' || fail "the identity is not of cuda"

# Interrupted several times, in turn on one device and the other.
times=0
device=0
detect sticky=130 --device cuda:$device -o "$work/again.h5"
while [ "$got" = 75 ] && [ $times -lt 20 ]; do
    grep -q "the device (emulated device $device) failed in.*samples are saved; .*run the same command to continue" \
        "$work/err" || fail "cuda:$device: $(cat "$work/err")"
    if [ $times = 1 ]; then
        sweep 78 'device: expected "cpu", found "cuda"' "" --device cpu -o "$work/again.h5"
        h5dump -a /complete "$work/again.h5" | grep -q "(0): 0" || fail "a few samples are a complete table"
    fi
    times=$((times + 1))
    device=$((1 - device))
    detect sticky=130 --device cuda:$device -o "$work/again.h5"
done
[ "$got" = 0 ] || fail "goes on with $got: $(cat "$work/err")"
[ $times -ge 3 ] || fail "broken off $times times"
same "$work/calm.h5" "$work/again.h5"

# Ranks take devices in turn; a device given by number is used by all ranks.
if command -v mpirun >/dev/null && [ -n "${3:-}" ]; then
    launch="timeout -k 5 $limit mpirun -n 2"
    sweep 0 "^table" "" --device cuda -o "$work/ranks.h5"
    same "$work/calm.h5" "$work/ranks.h5"
    sweep 75 "(emulated device 1) failed in" broken=1 --device cuda -o "$work/one.h5"
    launch="timeout -k 5 $limit mpirun -n 3"
    sweep 0 "^table" broken=0 --device cuda:1 -o "$work/one.h5"
    same "$work/calm.h5" "$work/one.h5"
fi
[ "$failed" = 0 ] && echo "all as expected"
exit "$failed"
