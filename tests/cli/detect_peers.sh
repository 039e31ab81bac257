#!/bin/sh
# detect_peers.sh BUILD logits|tools|faults: ranks that share a model (--tensor-parallel).
# logits: the sums themselves and the golden models. tools: tables against those of one process, and
# what is refused. faults: peers that are killed, stopped and signalled.
set -u
build=$1
part=$2
bin=$build/bin
. "$(dirname "$0")/ranks.sh"

if [ "$part" = logits ]; then
    for ranks in "2 2" "4 2" "4 4" "3 3"; do
        mpi ${ranks% *} "$build/tests/peers_mpi" ${ranks#* } >"$work/out" 2>&1 ||
            fail "-n ${ranks% *}, T = ${ranks#* }: $(tail -40 "$work/out")"
        sed -n "s/.*spread/-n ${ranks% *} T=${ranks#* }: max |difference| \/ spread/p" "$work/out" |
            sort -g -k 8 | tail -1
    done
    # The CUDA backend on an emulated device; sums go through the host.
    if [ -e "$build/tests/libdpe_cuda_emulated.so" ]; then
        DPE_DEVICE_SELF_TEST=24 DPE_CUDA_MODULE="$build/tests/libdpe_cuda_emulated.so" \
            mpi 2 "$build/tests/peers_mpi" 2 cuda >"$work/out" 2>&1 ||
            fail "emulated device: $(tail -40 "$work/out")"
        grep "spread" "$work/out" | sed "s/^/emulated: /"
        # NCCL that cannot connect, or sums wrong numbers: in one line, and the same answers.
        for fault in fails wrong; do
            DPE_DEVICE_SELF_TEST=off DPE_CUDA_MODULE="$build/tests/libdpe_cuda_emulated.so" \
                DPE_FAKE_FAULT=$fault:nccl mpi 2 "$build/tests/peers_mpi" 2 cuda >"$work/out" 2>&1 &&
                grep -q "cuda: NCCL .*, sums over devices go through the host" "$work/out" ||
                fail "emulated device, NCCL $fault: $(tail -40 "$work/out")"
        done
    fi
    mpi 3 "$build/tests/peers_mpi" 2 >"$work/out" 2>&1
    code=$?
    [ $code = 64 ] && grep -q "expected a multiple of 2 processes, found 3" "$work/out" ||
        fail "three ranks in groups of two: $code, $(cat "$work/out")"
    exit $failed
fi

make_model model shared
sweep="--model $work/model --corpus $work/corpus --length 192 --groups 2 --samples 100
    --lengths 8,32,64 --seed 5 --threads 1 --tensor-parallel 2 --select paper --temperature off"

if [ "$part" = tools ]; then
    # The number of replicas changes nothing: every group sums in the order of its ranks.
    detect 2 -o "$work/two.h5" || fail "two ranks: $(cat "$work/err")"
    detect 4 -o "$work/four.h5" || fail "two replicas: $(cat "$work/err")"
    same "$work/two.h5" "$work/four.h5"
    [ -e "$work/four.h5.journal" ] && fail "a journal is left: $(ls "$work/four.h5.journal")"
    # Sums over two processes round otherwise than those of one: recall counts answers of a trained
    # model, which are the same; contributions are near.
    trained="--model $root/data/reference --corpus $root/data/sample --length 512 --groups 2 --samples 4
        --lengths 64,256 --seed 5 --threads 1 --select paper --temperature off"
    "$bin/dpe-detect" $trained -o "$work/whole.h5" >"$work/expected" 2>"$work/err" ||
        fail "one process: $(cat "$work/err")"
    mpi 2 "$bin/dpe-detect" $trained --tensor-parallel 2 -o "$work/shared.h5" >"$work/out" \
        2>"$work/err" || fail "trained model: $(cat "$work/err")"
    for name in recall recall_mean status prompt_tokens; do
        h5diff "$work/whole.h5" "$work/shared.h5" "/detect/niah/$name" "/detect/niah/$name" \
            >"$work/diff" 2>&1 || fail "$name: $(head -5 "$work/diff")"
    done
    sed -i "s,$work/[a-z]*.h5,TABLE," "$work/expected" "$work/out"
    diff "$work/expected" "$work/out" || fail "two processes find other lengths than one"
    # It continues only with the same number of processes to a model.
    "$bin/dpe-detect" $trained -o "$work/shared.h5" >"$work/out" 2>"$work/err"
    code=$?
    [ $code = 78 ] && grep -q "tensor_parallel" "$work/err" ||
        fail "one process goes on where two began: $code, $(cat "$work/err")"

    norms="--model $root/data/reference --corpus $root/data/sample --lengths 32,64 --samples 3 --threads 1 --dtype f32"
    "$bin/dpe-norms" $norms -o "$work/norms1.h5" >"$work/expected" 2>"$work/err" ||
        fail "dpe-norms: $(cat "$work/err")"
    mpi 4 "$bin/dpe-norms" $norms --tensor-parallel 2 -o "$work/norms2.h5" >"$work/out" 2>"$work/err" ||
        fail "dpe-norms, two replicas of two: $(cat "$work/err")"
    h5diff -p 1e-4 "$work/norms1.h5" "$work/norms2.h5" /norms/contribution /norms/contribution \
        >"$work/diff" 2>&1 || fail "contributions: $(head -5 "$work/diff")"
    questions="niah --model $root/data/reference --corpus $root/data/sample -l 384 --method rope
        --method self-extend --samples 3 --threads 1"
    "$bin/dpe-eval" $questions -o "$work/eval1.h5" >"$work/expected" 2>"$work/err" ||
        fail "dpe-eval: $(cat "$work/err")"
    mpi 2 "$bin/dpe-eval" $questions --tensor-parallel 2 -o "$work/eval2.h5" >"$work/out" \
        2>"$work/err" || fail "dpe-eval, two ranks: $(cat "$work/err")"
    sed -i "s,$work/[a-z0-9]*.h5,TABLE," "$work/expected" "$work/out"
    diff "$work/expected" "$work/out" || fail "dpe-eval: two processes score otherwise than one"

    # A race takes the same decisions whoever made its rows.
    races="tune --model $root/data/reference --corpus $root/data/sample -l 256 --method self-extend:group=2/3
        --method pi:scale=1/16 --niah values=1 --budget 20 --samples 3 --threads 1"
    "$bin/dpe-eval" $races -o "$work/tune1.h5" >"$work/expected" 2>"$work/err" || fail "tune: $(cat "$work/err")"
    mpi 3 "$bin/dpe-eval" $races -o "$work/tune3.h5" >"$work/out" 2>"$work/err" ||
        fail "tune, three ranks: $(cat "$work/err")"
    diff "$work/expected" "$work/out" || fail "tune: three ranks print otherwise than one"
    h5diff --exclude-path=/run "$work/tune1.h5" "$work/tune3.h5" >"$work/diff" 2>&1 ||
        fail "tune, three ranks: $(head -5 "$work/diff")"

    mpi 2 "$bin/dpe-calibrate" --model "$work/model" --corpus "$work/corpus" --length 192 --groups 2 \
        --samples 3 --lengths 8,64 --threads 1 --tensor-parallel 2 \
        -o "$work/calibrated" >"$work/out" 2>"$work/err" ||
        fail "dpe-calibrate: $(cat "$work/err")"

    # What is refused, and before anything is written.
    "$bin/dpe-detect" $sweep -o "$work/x.h5" >"$work/out" 2>"$work/err"
    code=$?
    [ $code = 64 ] && grep -q "mpirun -n 2" "$work/err" || fail "without mpirun: $code, $(cat "$work/err")"
    detect 3 -o "$work/x.h5"
    code=$?
    [ $code = 64 ] && grep -q "expected a multiple of 2 processes, found 3; .*mpirun -n 4" "$work/err" ||
        fail "three ranks: $code, $(cat "$work/err")"
    mpi 4 "$bin/dpe-detect" $sweep --tensor-parallel 4 -o "$work/x.h5" >"$work/out" 2>"$work/err"
    code=$?
    [ $code = 64 ] && grep -q "its 2 key-value heads and the 16 columns" "$work/err" ||
        fail "four share two heads: $code, $(cat "$work/err")"
    [ -e "$work/x.h5" ] || [ -e "$work/x.h5.journal" ] && fail "a refusal left files"
    # A dry run needs no ranks, and prints what each would hold.
    make_model huge huge
    "$bin/dpe-detect" --model "$work/huge" --corpus "$work/corpus" --length 16384 --dry-run \
        --tensor-parallel 8 >"$work/out" 2>"$work/err" || fail "dry run: $(cat "$work/err")"
    grep -q "^memory .* in each of 8 processes" "$work/out" || fail "dry run: $(cat "$work/out")"
    exit $failed
fi

measure detect 2 -o "$work/calm.h5" || fail "calm: $(cat "$work/err")"

# Killed: a follower and a leader of a group, and rank 0; the same command continues.
kills=0
for r in 1 2 3 0 3 2; do
    out="$work/killed.h5"
    (limit=$killed_limit; detect 4 -o "$out") &
    job=$!
    pid=$(rank "$out" $r)
    sleep "0.$kills"
    [ -n "$pid" ] && kill -9 "$pid" 2>/dev/null && kills=$((kills + 1))
    wait $job
    settle "$out"
done
[ $kills -ge 3 ] || fail "only $kills kills"
detect 2 -o "$out" || fail "resume after kills: $(cat "$work/err")"
same "$work/calm.h5" "$out"

# A signal to any of them stops all, in the middle of a sum as well. Then one peer is late: rank 0 waits for
# it while it makes its session.
continue_by="env LD_PRELOAD=$build/tests/peer_late.so"
for signal in TERM USR1; do
    for r in 1 2 3; do
        stops $signal $r 4
    done
done

# One that hangs is named by the ranks that wait for it.
for r in 1 2 3; do
    hangs $r 4
done

[ $failed = 0 ] && echo "$kills kills of a peer: all as expected"
exit $failed
