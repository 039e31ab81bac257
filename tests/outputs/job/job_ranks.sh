#!/bin/sh
# job_ranks.sh BUILD SOURCE: a rank that is out of memory where others are about to wait for it: all ranks end with 71 and
# the reason, before the time that a rank may be silent is over.
set -u
build=$1
source=$2
command -v mpirun >/dev/null || { echo "no mpirun"; exit 125; }
. "$(dirname "$0")/../../cli/mpi_settings.sh"
export OMP_WAIT_POLICY=passive
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
mpirun=mpirun
small() {
    # shellcheck disable=SC2016 # the inner shell's words
    unshare --mount sh -c 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec mpirun "$@"' sh "$@"
}
# ends RANKS STATUS WORDS PLACE RANK [K]
ends() {
    ranks=$1
    status=$2
    words=$3
    place=$4
    shift 4
    rm -rf "$work"/out*
    $mpirun -n "$ranks" "$build/tests/job_ranks" "$place" "$1" "$work/out.h5" "$source/data/reference" 2 ${2+"$2"} >"$work/printed" 2>&1
    code=$?
    cat "$work"/out.h5.rank* >>"$work/printed"
    n=$(grep -c "^rank [0-9]* ends with $status, .*$words" "$work/printed")
    if [ $code != 0 ] || [ "$n" != "$ranks" ]; then
        echo "$place $*: expected $ranks ranks that end with $status, found $n, exit code $code:"
        cat "$work/printed"
        failed=1
    fi
}
ends 4 0 "" none 0
for place in texts batch start rows row; do
    for rank in 0 3; do
        ends 4 71 "out of memory" $place $rank
    done
done
for k in 1 2 3; do
    ends 4 71 "out of memory for 4 ranks" open 0 $k
done
for k in 1 2; do
    ends 4 71 "out of memory for 4 ranks" open 3 $k
done
# In a container /dev/shm may have no room for what MPI puts there.
if [ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null; then
    mpirun=small
    ends 4 0 "" none 0
    ends 4 71 "out of memory" row 3
    mpirun=mpirun
fi
# Four share a model, and one of them has its items already: the job ends at once.
mkdir "$work/model"
cp "$source"/tests/golden/llama_bf16/*.json "$source"/tests/golden/llama_bf16/*.safetensors \
    "$source/data/reference/tokenizer.json" "$work/model"
mpirun -n 4 "$build/tests/job_ranks" send 0 "$work/sent.h5" "$work/model" 4 >"$work/printed" 2>&1
code=$?
[ $code = 71 ] && grep -q "rank 0 is out of memory; the job ends" "$work/printed" ||
    { echo "send: expected 71, found $code: $(cat "$work/printed")"; failed=1; }
exit $failed
