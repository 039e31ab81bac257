#!/bin/sh
# savings.sh BIN OUT LENGTH SAMPLES: sweeps of the reference model with each way of saving work in
# dpe-detect and with several, and the tokens and time of each, validation included, as a Markdown table. The
# naive loop is not run (no switch runs a configuration twice): its numbers are those of sample by sample,
# multiplied by its number of rows over theirs. One thread; wall time is meaningful only on a machine without
# other load.
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
    bash -c 'out=$1; shift; TIMEFORMAT="%U %R"; time "$@" >"$out.out" 2>/dev/null' - "$out/$name" \
        "$bin/dpe-detect" -m "$root/data/reference" --corpus "$root/data/sample" -l "$length" \
        --samples "$samples" --seed 7 --select paper --temperature off --threads 1 --quiet -o "$table" "$@" 2>"$out/$name.time"
    python=${PYTHON:-/usr/bin/python3}
    "$python" - "$table" "$out/one.h5" "$(tail -1 "$out/$name.time")" "$*" <<'END'
import sys
import h5py

def counts(path):
    """What was computed, and how many times as many rows the naive loop has."""
    with h5py.File(path) as f:
        rows, run, cells = f["/rows/task"].size, f["/run"].attrs, f["/detect/niah/recall"].size
        naive = (cells + f["/validate/niah/recall"].size) / rows
        return run["tokens_read"], run["tokens_decoded"], run["decode_steps"], rows, naive, \
            f["/validate/niah/recall_mean"][2]

def show(options, read, decoded, steps, cpu, wall, rows, joint):
    print(f"| {options} | {read:.0f} | {naive_read / read:.2f} | {decoded:.0f} | {steps:.0f} | {cpu:.1f} | "
          f"{wall:.1f} | {rows:.0f} | {joint:.3f} |")

table, one, options = sys.argv[1], sys.argv[2], sys.argv[4]
seconds = [float(s) for s in sys.argv[3].split()]
*first, times, joint = counts(one)
naive_read = first[0] * times
if table == one:
    show("the naive loop", *[n * times for n in first[:3] + seconds + first[3:]], joint)
*computed, rows, _, joint = counts(table)
show(options or "(defaults)", *computed, *seconds, rows, joint)
END
}
echo "| options | tokens read | naive loop / this | tokens decoded | steps | CPU s | wall s | rows | recall of the joint plan |"
echo "|---|---|---|---|---|---|---|---|---|"
run one --batch 1
run batch
run shared --haystack shared
run race --race
run both --race --haystack shared
run keys --keys-per-context 4
run all --race --keys-per-context 4
