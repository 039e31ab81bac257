#!/bin/sh
# one_cache.sh BIN: step 0 where memory holds one cache. It serves all questions of a context, which is read once: with as many
# tokens read, and the same table, as where eight are decoded together. Where one does not fit in f32, int8 is taken
# and said. The estimate of a real model's config.json says the same.
set -u
bin=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/world.sh"

detect() { # NAME OPTION...
    name=$1
    shift
    "$bin/dpe-detect" --model "$root/data/reference" --corpus "$root/data/sample" --length 512 --threads 2 --dtype f32 --device cpu --budget 8ktok -o "$work/$name.h5" \
        "$@" >"$work/out" 2>"$work/$name.err" || fail "$name: $(cat "$work/$name.err")"
    sed -n 's/.*\([^0-9]\|^\)\([0-9]* tokens were read, [0-9]* decoded\) in .*/\2/p' "$work/$name.err" >"$work/$name.read"
}
steps() {
    sed -n 's/.* decoded in \([0-9]*\) steps.*/\1/p' "$work/$1.err"
}
detect eight
# A search says how far it is, also where standard error is no terminal.
grep -q "^search ([0-9]* plans): \([0-9]*\) of \1 samples" "$work/eight.err" || fail "no progress: $(cat "$work/eight.err")"
detect tight --max-memory 13M --kv-cache-dtype f32
cmp -s "$work/eight.read" "$work/tight.read" || fail "tight: $(cat "$work/tight.read"), together: $(cat "$work/eight.read")"
[ "$(steps tight)" -gt "$((3 * $(steps eight)))" ] || fail "tight: $(steps tight) steps, together $(steps eight)"
same "$work/eight.h5" "$work/tight.h5"
grep -q "^memory holds one text of 512 tokens: its questions follow each other" "$work/tight.err" || fail "one cache is not said: $(cat "$work/tight.err")"
# Contexts of halves that are shared, and steps.
for niah in keys=2,values=1,asked=2,shared=2 keys=4,values=2,asked=4,score=steps keys=1,values=2; do
    for memory in 1G 13M; do
        detect $niah.$memory --niah $niah --max-memory $memory --kv-cache-dtype f32
    done
    grep -q "^memory holds" "$work/$niah.13M.err" && ! grep -q "^memory holds" "$work/$niah.1G.err" || fail "$niah: 13M are enough, or 1G not: $(cat "$work/$niah.13M.err")"
    cmp -s "$work/$niah.1G.read" "$work/$niah.13M.read" || fail "$niah: $(cat "$work/$niah.13M.read"), together: $(cat "$work/$niah.1G.read")"
    same "$work/$niah.1G.h5" "$work/$niah.13M.h5"
done

detect packed --max-memory 12M
grep -q "^512 tokens do not fit into memory in f32: --kv-cache-dtype int8 is taken" "$work/packed.err" || fail "int8 is not said: $(cat "$work/packed.err")"
h5dump -d /identity/value "$work/packed.h5" | grep -q "\"int8\"" || fail "int8 is not recorded: $(h5dump -d /identity/value "$work/packed.h5")"
detect named --max-memory 12M --kv-cache-dtype f32
same "$work/eight.h5" "$work/named.h5"
# A run goes on with the type that it began with, whatever memory there is by then: one of f32 that was stopped, and
# finished ones of either type.
"$bin/dpe-detect" --model "$root/data/reference" --corpus "$root/data/sample" --length 512 --threads 2 --dtype f32 --device cpu --budget 8ktok \
    -o "$work/stopped.h5" --time-budget 0.2 >"$work/out" 2>"$work/err"
[ $? = 75 ] || fail "it was not stopped: $(cat "$work/err")"
detect stopped --max-memory 12M
same "$work/eight.h5" "$work/stopped.h5"
cp "$work/packed.h5" "$work/packed-before.h5"
detect packed
detect eight --max-memory 12M
for name in packed eight; do
    grep -q "^0 tokens were read" "$work/$name.err" || fail "$name: read again: $(cat "$work/$name.err")"
done
same "$work/packed-before.h5" "$work/packed.h5"

# Ranks with other memory: one type for all, the narrowest that one needs, and the type of the run where there is one.
if command -v mpirun >/dev/null; then
    . "$here/mpi_settings.sh"
    export OMP_WAIT_POLICY=passive
    ranks() { # NAME FIRST SECOND: the run NAME by two ranks, each with its memory.
        name=$1 first=$2 second=$3
        set -- --model "$root/data/reference" --corpus "$root/data/sample" --length 512 --threads 2 --dtype f32 --device cpu --budget 8ktok -o "$work/$name.h5"
        timeout -k 5 "$limit" mpirun -n 1 "$bin/dpe-detect" "$@" --max-memory "$first" : -n 1 "$bin/dpe-detect" "$@" --max-memory "$second" \
            >"$work/out" 2>"$work/err" || fail "ranks of $first and $second, $name: $(cat "$work/err")"
    }
    ranks wide-narrow 14M 12M
    ranks narrow-wide 12M 14M
    same "$work/packed.h5" "$work/wide-narrow.h5"
    same "$work/packed.h5" "$work/narrow-wide.h5"
    "$bin/dpe-detect" --model "$root/data/reference" --corpus "$root/data/sample" --length 512 --threads 2 --dtype f32 --device cpu --budget 8ktok \
        -o "$work/begun.h5" --time-budget 0.2 >"$work/out" 2>"$work/err"
    [ $? = 75 ] || fail "it was not stopped: $(cat "$work/err")"
    ranks begun 14M 12M
    same "$work/eight.h5" "$work/begun.h5"
fi

# Shapes of Qwen3-4B, without weights.
mkdir "$work/qwen"
cp "$root/data/reference/tokenizer.json" "$work/qwen"
cat >"$work/qwen/config.json" <<'END'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": false, "head_dim": 128, "hidden_act": "silu",
 "hidden_size": 2560, "intermediate_size": 9728, "max_position_embeddings": 40960, "num_attention_heads": 32,
 "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_theta": 1000000,
 "tie_word_embeddings": true, "torch_dtype": "bfloat16", "vocab_size": 151936, "eos_token_id": 151645}
END
cost() { # OPTION...: tokens
    "$bin/dpe-detect" --model "$work/qwen" --corpus "$root/data/sample" --length 100k --device cpu --dry-run "$@" >"$work/cost" 2>"$work/err" ||
        fail "dry run $*: $(cat "$work/err")"
    sed -n 's/^tokens  *//p' "$work/cost"
}
all=$(cost --max-memory 200G)
for memory in 200G 29G 16G 7G; do
    [ "$(cost --max-memory $memory)" = "$all" ] || fail "$memory: $(cat "$work/cost"), of 200G $all"
    grep -q "int8 is taken" "$work/err"
    case $?$memory in
    016G | 1200G | 129G | 17G) ;; # with 7G not even int8 fits: keys and values are in a file
    *) fail "$memory: $(cat "$work/err")" ;;
    esac
done
exit $failed
