#!/bin/sh
# frequencies.sh BIN OUT [LENGTH…]: what a table of frequencies is worth on the bundled model (trained length 256), for
# eval/RESULTS.md: at each LENGTH (default 1024 2048 4096 8192) `dpe-detect --move frequencies`, `dpe-detect` (DPE) and
# `dpe-eval tune` of YaRN, and then all of them on SAMPLES (100) samples of another seed. Four keys with four values in each
# context, one sample a key, so four samples share a reading. SEARCH (48) is the number of samples of a sweep, BUDGET (144) the
# rows of the race of YaRN's settings. An interrupted run continues with the same command. OUT/LENGTH.txt are the results.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=$1 out=$2
shift 2
[ $# -gt 0 ] || set -- 1024 2048 4096 8192
mkdir -p "$out"
export OMP_WAIT_POLICY=passive
: "${SEARCH:=48}" "${SAMPLES:=100}" "${BUDGET:=144}"
model="-m $root/data/reference --corpus $root/data/sample --threads ${THREADS:-2} --device cpu"

for length in "$@"; do
    [ ! -s "$out/$length.txt" ] || continue
    # shellcheck disable=SC2086 # lists of words, here and below
    sweep="$bin/dpe-detect $model -l $length --samples $SEARCH --seed 1 --keys-per-context 4 --against none --quiet"
    # A finished sweep is printed again at no cost.
    $sweep --move frequencies -o "$out/frequencies-$length.h5" >"$out/frequencies-$length.txt"
    $sweep -o "$out/dpe-$length.h5" >"$out/dpe-$length.txt"
    double=$((length / 128)) ratio=$((length / 256))
    "$bin/dpe-eval" tune $model -l "$length" --niah keys=4,values=4,asked=4 --seed 11 --samples 4 --budget "$BUDGET" --quiet \
        --method "yarn:scale=$ratio/$double,beta_fast=2/4/32,logit-scale=1/1.25" -o "$out/yarn-$length.h5" \
        >"$out/yarn-$length.txt"
    # LongRoPE has factors of a search, here ours, and a formula for the temperature, the method's default.
    /usr/bin/python3 - "$out" "$length" >"$out/methods-$length" <<'EOF'
import sys
import h5py
out, length = sys.argv[1:]
yarn = h5py.File(f"{out}/yarn-{length}.h5", "r")
table = h5py.File(f"{out}/frequencies-{length}.h5", "r")["table"]
edges, scales = table["group_edge"][:], table["scale_factor"][:]
factors = [f"{s:.17g}" for s, n in zip(scales, edges[1:] - edges[:-1]) for _ in range(n)]
print("--method", yarn["tune/chosen"][0].decode(), "--method", "longrope:long=" + "/".join(factors))
EOF
    "$bin/dpe-eval" niah $model -l "$length" --niah keys=4,values=4,asked=4 --seed 9001 --samples "$SAMPLES" --quiet \
        --table "$out/dpe-$length.h5" --table "$out/frequencies-$length.h5" --method yarn $(cat "$out/methods-$length") \
        -o "$out/all-$length.h5" >"$out/next-$length.txt"
    mv "$out/next-$length.txt" "$out/$length.txt"
done
