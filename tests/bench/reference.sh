#!/bin/sh
# reference.sh BIN OUT [PART…]: measures again what the documents report of the bundled model. Parts:
#   detect-1024 detect-2048 detect-4096   the sweeps, 100 samples a cell
#   compare ablate ablate-4096            what the methods do, and the steps of DPE (they need the sweeps)
#   lookup                                one key and several, in the trained length and beyond it
#   pairs-1024 pairs-2048                 sweeps of other samples, shared contexts, several keys
#   joint-1024 joint-2048 joint-4096      what the plans chosen by all these find, on fresh samples
#   savings                               small sweeps with each saving
#   select                                the rules of --select, over SEEDS (default 101 … 105)
# Without PART all of them, some hours of one core. All files go into OUT; finished parts are kept, and
# interrupted ones continue. Then reference_tables.py OUT puts the tables into the documents. Parts may
# run side by side, each in one thread.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=$1 out=$2
shift 2
[ $# -gt 0 ] || set -- detect-1024 detect-2048 detect-4096 compare ablate ablate-4096 \
    lookup pairs-1024 pairs-2048 joint-1024 joint-2048 joint-4096 savings select
mkdir -p "$out"
export OMP_WAIT_POLICY=passive
inputs="-m $root/data/reference --corpus $root/data/sample --threads 1 --quiet"

# sweep NAME LENGTH OPTIONS: 100 samples a cell. One that is finished is not opened again: its table would
# then count the tokens of that session, none.
sweep() {
    name=$1 length=$2
    shift 2
    [ ! -s "$out/$name.out" ] || return 0
    # shellcheck disable=SC2086 # a list of words
    "$bin/dpe-detect" $inputs -l "$length" --samples 100 --select paper --temperature off -o "$out/$name.h5" "$@" >"$out/$name.out"
}

# ablate NAME LENGTH SEED OPTIONS
ablate() {
    name=$1 length=$2 seed=$3
    shift 3
    # shellcheck disable=SC2086
    "$bin/dpe-norms" $inputs -o "$out/norms.h5" >/dev/null
    # shellcheck disable=SC2086
    "$bin/dpe-eval" ablate $inputs --table "$out/dpe-$length.h5" -l "$length" --seed "$seed" \
        -o "$out/$name.h5" "$@" >"$out/$name.out"
}

for part in "$@"; do
    case $part in
        detect-*) sweep "dpe-${part#detect-}" "${part#detect-}" --seed 1 ;;
        compare)
            methods=
            for method in rope pi ntk ntk-dynamic ntk-by-parts yarn llama3 rerope leaky-rerope self-extend \
                dca string streaming-llm lm-infinite; do
                methods="$methods --method $method"
            done
            # shellcheck disable=SC2086
            "$bin/dpe-eval" compare $inputs --suite niah,ppl -l 256,512,1024,2048,4096 --samples 100 $methods \
                --table "$out/dpe-1024.h5" --table "$out/dpe-2048.h5" --table "$out/dpe-4096.h5" \
                -o "$out/compare.h5" >"$out/compare.out"
            ;;
        ablate)
            ablate rank 1024 0 --what rank --samples 100
            ablate top-k 1024 0 --what top-k --norms "$out/norms.h5" --samples 100
            ablate last-k 1024 0 --what last-k --norms "$out/norms.h5" --samples 100
            ablate scaled-length 1024 0 --what scaled-length --norms "$out/norms.h5" --samples 50
            ablate window 1024 0 --what window --samples 100
            ;;
        ablate-4096)
            for what in top-k last-k; do
                ablate "$what-4096" 4096 3 --what "$what" --norms "$out/norms.h5" --values 0,8,16,24,32 \
                    --samples 100
            done
            ;;
        lookup)
            for task in keys=1,values=1 keys=1,values=4 keys=4,values=1 keys=4,values=2 keys=3,values=4; do
                # shellcheck disable=SC2086
                "$bin/dpe-eval" niah $inputs -l 256,1024 --samples 100 --niah "$task" --method rope \
                    --table "$out/dpe-1024.h5" -o "$out/lookup-$task.h5" >"$out/lookup-$task.out"
            done
            ;;
        pairs-*)
            length=${part#pairs-}
            sweep "other-$length" "$length" --seed 2
            sweep "shared-$length" "$length" --seed 3 --haystack shared
            sweep "keys-$length" "$length" --seed 4 --keys-per-context 4
            ;;
        joint-*)
            length=${part#joint-}
            tables=
            sweep "fast-$length" "$length" --seed 5 --keys-per-context 4 --race
            sweep "fast-again-$length" "$length" --seed 6 --keys-per-context 4 --race
            for name in dpe other shared keys fast fast-again; do
                [ ! -e "$out/$name-$length.h5" ] || tables="$tables --table $out/$name-$length.h5"
            done
            # shellcheck disable=SC2086
            "$bin/dpe-eval" niah $inputs -l "$length" --samples 100 --seed 11 $tables \
                -o "$out/joint-$length.h5" >"$out/joint-$length.out"
            ;;
        savings) "$here/savings.sh" "$bin" "$out/savings" 1024 32 >"$out/savings.md" ;;
        select)
            for seed in ${SEEDS:-101 102 103 104 105}; do
                for cell in "1024 24" "2048 12" "4096 8"; do
                    # shellcheck disable=SC2086
                    "$here/select_rules.sh" "$bin" "$out/select" $cell "$seed"
                done
            done
            ;;
        *)
            echo "reference.sh: no part named $part" >&2
            exit 64
            ;;
    esac
done
