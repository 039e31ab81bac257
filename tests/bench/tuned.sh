#!/bin/sh
# tuned.sh BIN OUT [LENGTH…]: the baselines of the bundled model (trained length 256) at their defaults and tuned, beside DPE
# with one length for all groups, for eval/RESULTS.md: `dpe-eval tune` at each LENGTH (default 1024 2048 4096 8192) with as
# many rows for each method, factors on the logits among the settings. BUDGET (rows of a race) and SAMPLES (fresh ones)
# replace what is chosen for the length below. An interrupted run continues with the same command. OUT/LENGTH.txt is the
# table. Some two hours on one core; a sample costs 0.1 s at 1024 and 2 s at 8192.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=$1 out=$2
shift 2
lengths=${*:-1024 2048 4096 8192}
mkdir -p "$out"
export OMP_WAIT_POLICY=passive

for length in $lengths; do
    text=$out/$length.txt
    [ ! -s "$text" ] || continue
    s=$((length / 256))
    scales=$s/$((2 * s))
    # The plan of the search first, where one has run with one key; then what each method may change.
    case $length in
    1024) dpe=scales=$s,logit-scale=1.2964769927807063 rows=96 fresh=100 ;;
    2048) dpe=scales=$s,log-n=256,log-n-power=0.5 rows=96 fresh=100 ;;
    4096) dpe=scales=$((2 * s)),log-n=256 rows=48 fresh=40 ;;
    *) dpe=scales=$((2 * s)),log-n=256 rows=24 fresh=24 ;;
    esac
    set -- --method "dpe:window=32,$dpe"
    if [ "$length" -le 4096 ]; then
        set -- "$@" --method "yarn:scale=$scales,beta_fast=8/32,logit-scale=1/1.25" \
            --method "ntk:scale=$scales,logit-scale=1/1.25" \
            --method "self-extend:group=$scales,logit-scale=1/1.25/1.6" \
            --method "leaky-rerope:window=16/32,scale=$scales" \
            --method "rerope:window=64/128/192" \
            --method "lampe:map=96/128/192,logit-scale=1/1.4"
    else # without those that are far behind at 4096, and with fewer settings
        set -- "$@" --method "yarn:scale=$scales,beta_fast=8/32" \
            --method "self-extend:group=$scales,logit-scale=1.25/1.6" \
            --method "leaky-rerope:scale=$scales"
    fi
    "$bin/dpe-eval" tune -m "$root/data/reference" --corpus "$root/data/sample" -l "$length" --seed 11 "$@" \
        --budget "${BUDGET:-$rows}" --samples "${SAMPLES:-$fresh}" --threads "${THREADS:-1}" --quiet \
        -o "$out/$length.h5" >"$out/next-$length.txt"
    mv "$out/next-$length.txt" "$text"
done
