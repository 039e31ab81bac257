#!/bin/sh
# savings.sh BIN OUT LENGTH SAMPLES: sweeps of the reference model with each saving of dpe-detect and
# with several, and what they read and took, as a Markdown table. The naive loop's tokens are those
# of sample by sample, times all cells over the distinct ones (it is not run: no switch runs a
# configuration twice). CPU time is user time of one thread; wall time says nothing on a shared
# machine.
set -eu
bin=$1 out=$2 length=$3 samples=$4
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$out"
export OMP_WAIT_POLICY=passive
run() {
    name=$1
    shift
    table="$out/$name.h5"
    rm -rf "$table" "$table.journal"
    bash -c 'out=$1; shift; TIMEFORMAT=%U; time "$@" >"$out.out" 2>/dev/null' - "$out/$name" \
        "$bin/dpe-detect" -m "$root/data/reference" --corpus "$root/data/sample" -l "$length" \
        --samples "$samples" --seed 7 --threads 1 --quiet -o "$table" "$@" 2>"$out/$name.time"
    python=${PYTHON:-/usr/bin/python3}
    "$python" - "$table" "$name" "$(tail -1 "$out/$name.time")" "$*" <<'END'
import sys
import h5py
with h5py.File(sys.argv[1]) as f:
    run = f["/run"].attrs
    plans = f["/detect/plan"][:]
    cells, distinct = plans.size, len(set(plans.ravel()))
    joint = f["/validate/niah/recall_mean"][2]
    print(f"| {sys.argv[4] or '(defaults)'} | {run['tokens_read']} | {run['tokens_decoded']} | "
          f"{run['decode_steps']} | {sys.argv[3]} | {f['/rows/task'].size} | {joint:.3f} |"
          f" <!-- {distinct} of {cells} -->")
END
}
echo "| options | tokens read | tokens decoded | steps | CPU s | rows | recall of the joint plan |"
echo "|---|---|---|---|---|---|---|"
run one --batch 1
run batch
run shared --haystack shared
run race --race --race-level 0.02
run both --race --race-level 0.02 --haystack shared
run keys --keys-per-context 4 --niah values=1
run all --race --race-level 0.02 --keys-per-context 4 --niah values=1
