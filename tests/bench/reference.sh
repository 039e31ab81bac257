#!/bin/sh
# reference.sh BIN OUT [PART…]: measures again most of what the documents report of the bundled model. Parts:
#   detect-1024 detect-2048 detect-4096   the paper's sweeps, 100 samples a cell
#   compare ablate ablate-4096            what the methods do, and the steps of DPE (they need the sweeps)
#   lookup                                one key and several, in the trained length and beyond it
#   pairs-1024 pairs-2048                 sweeps of other samples, shared contexts, several keys, for contexts.py
#   temperature of-2026 selections        the methods with and without temperature, those of 2026, selections
#   tuned tuned-others tuned-keys kv-types
#                                         what tuned.sh and kv_types.py measure
#   model plans-1024 plans-2048 plans-4096 plans-8192
#                                         what the model finds at L0, and plans that searches found with one key
#   groups-1024 … groups-16384            lengths of groups against one length and random orders, four keys
#   entries                               the formula made for a length, at shorter ones
# Without PART all of them, a day of one core. All files go into OUT; finished parts are kept, and
# interrupted ones continue. Then reference_tables.py OUT puts the tables down to lookup into the documents;
# the others have findings between their rows and are put there by hand. Parts may run side by side, each in one
# thread.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=$1 out=$2
shift 2
[ $# -gt 0 ] || set -- detect-1024 detect-2048 detect-4096 compare ablate ablate-4096 \
    lookup pairs-1024 pairs-2048 temperature of-2026 selections \
    tuned tuned-others tuned-keys kv-types model plans-1024 plans-2048 plans-4096 plans-8192 \
    groups-1024 groups-2048 groups-4096 groups-8192 groups-16384 entries
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

# methods NAME SUITE LENGTH OPTIONS METHOD…: dpe-eval with these methods. OPTIONS are one word each.
methods() {
    name=$1 suite=$2 length=$3 options=$4
    shift 4
    for method in "$@"; do
        options="$options --method $method"
    done
    # shellcheck disable=SC2086
    "$bin/dpe-eval" "$suite" $inputs -l "$length" $options -o "$out/$name.h5" >"$out/$name.out"
}

# What was found with one key, in NOTES.md, "A calibrated table"; with the base, and with two or three
# fast groups at L.
one_key() {
    length=$1 base=128/128/128/128/128/128/128/128
    case $length in
        1024) set -- dpe:window=32,scales=4,logit-scale=1.2964769927807063 \
            dpe:window=32,lengths=1024/1024/1024/256/256/256/256/256,logit-scale=1.2 ;;
        2048) set -- dpe:window=32,scales=8,log-n=256,log-n-power=0.5 \
            dpe:window=32,lengths=2048/2048/256/256/256/256/256/256,log-n=256,log-n-power=0.5 ;;
        4096) set -- dpe:window=32,scales=16,log-n=256 dpe:window=32,scales=32,log-n=256 \
            dpe:window=32,lengths=4096/4096/256/256/256/256/256/256,log-n=256 ;;
        *) set -- dpe:window=32,scales=64,log-n=256 dpe:window=32,scales=32,log-n=256 ;;
    esac
    methods "plans-$length" niah "$length" "--samples 200 --seed 9001" "dpe:window=32,lengths=$base" "$@"
    [ "$length" -gt 4096 ] ||
        methods "plans-ppl-$length" ppl "$length" "--samples 14" rope "dpe:window=32,lengths=$base" "$@"
}

# Four keys with four values in each context: lengths of groups, one length under its own temperature and under theirs,
# and the lengths of the groups in other orders.
four_keys() {
    length=$1 s=$((length / 256)) samples=200 orders=4
    window=32 own=log-n=256
    case $length in
        1024) lengths=1024/256/128/128/128/128/128/1024 factor=2 own=logit-scale=1.2964769927807063 ;;
        2048) lengths=2048/2048/256/256/256/256/256/256 factor=1.6 own=log-n=256,log-n-power=0.5 ;;
        4096) lengths=4096/4096/256/256/256/256/256/256 factor=2 own=log-n=256,log-n-power=0.5,log-n-decay=0.03125 ;;
        8192) lengths=8192/8192/256/256/256/256/256/256 factor=1.8 window=64 samples=100 orders=2 ;;
        *) lengths=$length/256/256/256/256/256/256/256 factor=1.8 samples=100 orders=2 ;;
    esac
    dpe=dpe:window=$window
    set -- "$dpe,lengths=$lengths,logit-scale=$factor" "$dpe,scales=$s,$own" "$dpe,scales=$s,logit-scale=$factor" \
        "$dpe,scales=$((2 * s)),logit-scale=$factor"
    for order in $("$here/random_lengths.py" 1 "$orders" "$(echo "$lengths" | tr / ,)"); do
        set -- "$@" "$dpe,lengths=$order,logit-scale=$factor"
    done
    methods "groups-$length" niah "$length" "--samples $samples --seed 9001 --niah keys=4,values=4,asked=4" "$@"
}

for part in "$@"; do
    case $part in
        detect-*) sweep "dpe-${part#detect-}" "${part#detect-}" --seed 1 ;;
        compare)
            methods=
            for method in rope pi ntk ntk-dynamic ntk-by-parts yarn llama3 rerope leaky-rerope self-extend \
                dca string streaming-llm lm-infinite; do
                # As papers have them: at the trained length too.
                methods="$methods --method $method:always=1"
            done
            # shellcheck disable=SC2086
            "$bin/dpe-eval" compare $inputs --suite niah,ppl -l 256,512,1024,2048,4096 --samples 100 $methods \
                --against rope:always=1 --table "$out/dpe-1024.h5" --table "$out/dpe-2048.h5" --table "$out/dpe-4096.h5" \
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
            sweep "shared-$length" "$length" --seed 3 --niah shared=4
            sweep "keys-$length" "$length" --seed 4 --niah keys=4,asked=4
            ;;
        temperature)
            methods temperature niah 4096 "--samples 30 --niah keys=1" dpe:lengths=128 dpe:lengths=128,log-n=256 dpe:lengths=256 dpe:lengths=256,log-n=256 \
                leaky-rerope leaky-rerope:official=0 yarn yarn:a=1 rerope rerope:official=0 lampe lampe:official=0 \
                dca dca:official=0 string string:official=0
            ;;
        of-2026)
            methods of-2026 niah 1024,4096 "--samples 24 --seed 9001 --details" rope yarn mrrope mrrope:form=uni jet-long \
                jet-long:log-n=256 jetlong_freq self self:log-n=256 lampe
            ;;
        selections)
            d=dpe:window=32,log-n=256
            for length in 1024 2048 4096 8192 16384; do
                samples=$((length < 16384 ? 16 : 8))
                for task in keys=1,values=4 keys=4,values=2; do
                    methods "selections-$length-$task" niah "$length" "--samples $samples --niah $task --details" "$d" \
                        "select:representative=extremes,over=$d" "select:representative=extremes,refresh=64,over=$d" \
                        "select:representative=keys,over=$d" "select:over=$d" reattention longheads longheads:mean=1 infllm \
                        minference moba vertical-slash
                done
            done
            ;;
        tuned) "$here/tuned.sh" "$bin" "$out/tuned" ;;
        tuned-others) KEYS=others "$here/tuned.sh" "$bin" "$out/tuned" 1024 2048 4096 ;;
        tuned-keys)
            KEYS=4 "$here/tuned.sh" "$bin" "$out/tuned"
            # What it chose, on an easier task and on books.
            for length in 1024 2048 4096; do
                chosen=$(sed -n 's/.*  \([a-z-]*:[^ ]*\)$/\1/p' "$out/tuned/$length-keys.txt")
                # shellcheck disable=SC2086 # one word each
                methods "one-value-$length" niah "$length" "--samples 200 --seed 9001 --niah keys=4,values=1,asked=4" $chosen
                # shellcheck disable=SC2086
                methods "tuned-ppl-$length" ppl "$length" "--samples 14" $chosen
            done
            ;;
        kv-types) python3 "$here/kv_types.py" "$bin" "$out/kv-types" >"$out/kv-types.md" ;;
        model)
            methods model niah 256 "--samples 200 --seed 9001" rope
            methods model-factor niah 256 "--samples 2000 --seed 4242" rope rope:logit-scale=1.1,always=1 \
                rope:logit-scale=1.2,always=1 rope:logit-scale=1.3,always=1 rope:logit-scale=1.4,always=1
            ;;
        plans-*) one_key "${part#plans-}" ;;
        groups-*) four_keys "${part#groups-}" ;;
        entries)
            # The formula, and those of the other lengths: their scales hold here, too.
            for length in 512 1024 2048 4096; do
                set -- dpe dpe:window=128,scales=4,log-n=256,log-n-power=0.7
                for s in 4 8 16; do
                    set -- "$@" "dpe:window=48,scales=1/$s/$s/$s/$s/$s/$s/$s,log-n=256,log-n-power=0.7"
                done
                methods "entries-$length" niah "$length" "--samples 200 --seed 9001 --niah keys=4,values=4,asked=4 --details" "$@"
            done
            ;;
        *)
            echo "reference.sh: no part named $part" >&2
            exit 64
            ;;
    esac
done
