#!/bin/sh
# tuned.sh BIN OUT [LENGTH…]: the baselines of the bundled model (trained length 256) at their defaults and tuned, for
# eval/RESULTS.md: `dpe-eval tune` without and with temperatures, at each LENGTH (default 1024 2048 4096 8192), with as many
# rows for each method. METHODS (one a line), BUDGET and SAMPLES (fresh ones) replace the defaults below. An interrupted run
# continues with the same command. OUT/LENGTH-off.txt and OUT/LENGTH-grid.txt are the tables.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=$1 out=$2
shift 2
[ $# -gt 0 ] || set -- 1024 2048 4096 8192
mkdir -p "$out"
export OMP_WAIT_POLICY=passive
: "${METHODS:=yarn ntk self-extend leaky-rerope rerope string lampe}"
: "${BUDGET:=160}" "${SAMPLES:=100}"

for length in "$@"; do
    for temperature in off grid; do
        text=$out/$length-$temperature.txt
        [ ! -s "$text" ] || continue
        options=
        for method in $METHODS; do
            options="$options --method $method"
        done
        # Both share the rows that they have in common.
        # shellcheck disable=SC2086 # a list of words
        "$bin/dpe-eval" tune -m "$root/data/reference" --corpus "$root/data/sample" -l "$length" $options \
            --temperature "$temperature" --budget "$BUDGET" --samples "$SAMPLES" --seed 11 --threads "${THREADS:-1}" \
            --quiet -o "$out/$length.h5" >"$out/next-$length.txt"
        mv "$out/next-$length.txt" "$text"
    done
done
