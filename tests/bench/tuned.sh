#!/bin/sh
# tuned.sh BIN OUT [LENGTH…]: the baselines of the bundled model (trained length 256) at their defaults and tuned, beside DPE
# with one length for all groups, for eval/RESULTS.md: `dpe-eval tune` at each LENGTH (default 1024 2048 4096 8192) with as
# many rows for each method, factors on the logits among the settings. KEYS=4 asks for four keys with four values each in
# every context (default: one key with four values) and adds DPE with lengths of groups. KEYS=others has one key and the
# methods that are left. BUDGET (rows of a race) and
# SAMPLES (fresh ones) replace what is chosen for the length below. An interrupted run continues with the same command.
# OUT/LENGTH.txt (with KEYS=4 OUT/LENGTH-keys.txt, with others OUT/LENGTH-others.txt) is the table. Some two hours on one core; a sample costs 0.1 s at 1024
# and 2 s at 8192.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=$1 out=$2
shift 2
lengths=${*:-1024 2048 4096 8192}
keys=${KEYS:-1}
mkdir -p "$out"
export OMP_WAIT_POLICY=passive

# tune NAME LENGTH ROWS FRESH OPTIONS: rows of each race, fresh samples of what was chosen.
tune() {
    name=$1 length=$2 rows=$3 fresh=$4
    shift 4
    [ ! -s "$out/$name.txt" ] || return 0
    "$bin/dpe-eval" tune -m "$root/data/reference" --corpus "$root/data/sample" -l "$length" --seed 11 "$@" \
        --budget "${BUDGET:-$rows}" --samples "${SAMPLES:-$fresh}" --threads "${THREADS:-1}" --quiet \
        -o "$out/$name.h5" >"$out/next-$name.txt"
    mv "$out/next-$name.txt" "$out/$name.txt"
}

# The plan of the search, where one has run with one key.
searched() {
    case $length in
    1024) dpe=scales=$s,logit-scale=1.2964769927807063 rows=96 fresh=100 ;;
    2048) dpe=scales=$s,log-n=256,log-n-power=0.5 rows=96 fresh=100 ;;
    4096) dpe=scales=$((2 * s)),log-n=256 rows=48 fresh=40 ;;
    *) dpe=scales=$((2 * s)),log-n=256 rows=24 fresh=24 ;;
    esac
}

others() {
    searched
    factors=logit-scale=1/1.25/1.6
    tune "$length-others" "$length" "$rows" "$fresh" --method "dpe:window=32,$dpe" --method "pi:scale=$scales,$factors" \
        --method "ntk-dynamic:scale=$scales,$factors" --method "ntk-by-parts:scale=$scales,beta=8/32,$factors" \
        --method "llama3:scale=$scales,$factors" --method "dca:chunk=128/192,local=32/64,$factors" \
        --method "string:shift=$((length / 3))/$((length / 2)),$factors" --method "streaming-llm:window=128/252,$factors" \
        --method "lm-infinite:window=128/256,$factors" --method "cope:clip=6/10/14,$factors" --method "dope:$factors" \
        --method "hirope:segment=$scales,split=16/24,$factors" --method "adagrope:first=32/64,$factors" \
        --method mrrope --method jet-long --method jetlong_freq --method self # these with the grid of dpe-eval tune
}

one_key() {
    searched
    # What each method may change.
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
    tune "$length" "$length" "$rows" "$fresh" "$@"
}

four_keys() {
    # The best plan with one length for all groups, then the lengths of groups, each under its own temperature.
    case $length in
    1024) one=window=32,scales=$s,logit-scale=1.2964769927807063
        groups=window=32,lengths=1024/256/128/128/128/128/128/1024,logit-scale=2 rows=192 fresh=200 ;;
    2048) one=window=32,scales=$s,log-n=256,log-n-power=0.5
        groups=window=32,lengths=$length/$length/256/256/256/256/256/256,logit-scale=1.6 rows=192 fresh=200 ;;
    4096) one=window=32,scales=$s,log-n=256,log-n-power=0.5,log-n-decay=0.03125
        groups=window=32,lengths=$length/$length/256/256/256/256/256/256,logit-scale=2 rows=192 fresh=200 ;;
    8192) one=window=64,scales=$s,logit-scale=1.8
        groups=window=64,lengths=$length/$length/256/256/256/256/256/256,logit-scale=1.8 rows=96 fresh=200 ;;
    *) one=window=32,scales=$s,log-n=256
        groups=window=32,lengths=$length/256/256/256/256/256/256/256,logit-scale=1.8 rows=96 fresh=100 ;;
    esac
    tune "$length-keys" "$length" "$rows" "$fresh" --niah keys=4,values=4,asked=4 \
        --method "dpe:$groups" --method "dpe:$one" \
        --method "yarn:scale=$scales,beta_fast=4/8,logit-scale=1/1.25" \
        --method "self-extend:group=$scales,logit-scale=1.25/1.6/2" \
        --method "leaky-rerope:window=16/32,scale=$scales" \
        --method "lampe:map=128/192,logit-scale=1/1.4/1.8"
}

for length in $lengths; do
    s=$((length / 256))
    scales=$s/$((2 * s))
    case $keys in
    1) one_key ;;
    4) four_keys ;;
    others) others ;;
    *) echo "KEYS is $keys, expected 1, 4 or others" >&2; exit 64 ;;
    esac
done
