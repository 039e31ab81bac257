#!/bin/sh
# detect_ranks.sh BIN [KILLS]: the guarantees of several ranks. The table does not depend on how many there
# are; ranks are killed, stopped, signalled and given other files, and whatever happens the same
# command with any number of ranks ends with the table of an undisturbed run.
set -u
bin=$1
wanted=${2:-20}
. "$(dirname "$0")/ranks.sh"
make_model model
sweep="--model $work/model --corpus $work/corpus --length 192 --groups 2 --samples 150
    --lengths 8,32,64 --seed 5 --threads 1 --select paper --temperature off"
# Milliseconds below $1, drawn.
pause() {
    sleep "$(awk -v seed="$1$2" -v most="$2" 'BEGIN { srand(seed); printf "%.3f", rand() * most / 1000 }')"
}

measure detect 1 -o "$work/calm.h5" || fail "one rank: $(cat "$work/err")"
"$bin/dpe-detect" $sweep -o "$work/alone.h5" >"$work/out" 2>"$work/err" || fail "alone: $(cat "$work/err")"
same "$work/calm.h5" "$work/alone.h5"
# How much of a prompt is read depends on what a rank did before, and in how many steps on the time; what is decoded does not.
work_done=$(sed -n 's/.*tokens were read, \(.* decoded\).*/\1/p' "$work/err")
for n in 2 3; do
    cp "$work/out" "$work/expected"
    detect $n -o "$work/n$n.h5" || fail "$n ranks: $(cat "$work/err")"
    same "$work/calm.h5" "$work/n$n.h5"
    sed "s,n$n.h5,alone.h5," "$work/out" | diff "$work/expected" - || fail "$n ranks print another result"
    sed "s,n$n.h5,alone.h5," "$work/out" >"$work/expected2" && mv "$work/expected2" "$work/out"
    grep -qF "tokens were read, $work_done" "$work/err" ||
        fail "$n ranks: expected '$work_done', found $(grep "were read" "$work/err")"
    [ -e "$work/n$n.h5.journal" ] && fail "$n ranks left a journal: $(ls "$work/n$n.h5.journal")"
done

# Ranks killed at random times, rank 0 among them; another number of ranks continues each time.
kills=0
starts=0
hung=0
out="$work/killed.h5"
while [ $kills -lt "$wanted" ] && [ $starts -lt $((3 * wanted)) ]; do
    starts=$((starts + 1))
    n=$((2 + starts % 3))
    (limit=$killed_limit; detect $n -o "$out") &
    job=$!
    pid=$(rank "$out" $((kills % n)))
    pause "$starts" 120
    [ -n "$pid" ] && kill -9 "$pid" 2>/dev/null && kills=$((kills + 1))
    wait $job
    # timeout's own exit (137 is also mpirun's exit code for a killed rank)
    [ $? = 124 ] && hung=$((hung + 1))
    settle "$out"
done
[ $kills -ge "$wanted" ] || fail "only $kills kills"
detect 2 -o "$out" || fail "resume after kills: $(cat "$work/err")"
same "$work/calm.h5" "$out"
[ -e "$out.journal" ] && fail "a journal is left: $(ls "$out.journal")"

# A signal to one rank is a signal to the job.
for signal in TERM USR1; do
    for r in 0 2; do
        stops $signal $r 3
    done
done

# A rank that hangs is named with its last activity, rank 0 by the ranks that wait for it.
for r in 1 0; do
    hangs $r 3
done

# A rank whose journal cannot grow ends the job with 74, also when that is rank 0 in the middle of a group:
# the others are stopped, and do not wait until --rank-timeout; with room the same command continues.
for r in 0 1; do
    out="$work/full$r.h5"
    FULL=$r mpi 2 sh -c '[ $OMPI_COMM_WORLD_RANK = $FULL ] && ulimit -f 10; exec "$@"' sh \
        "$bin/dpe-detect" $sweep --rank-timeout "$silence" -o "$out" >"$work/out" 2>"$work/err"
    code=$?
    [ $code = 74 ] || fail "full journal of rank $r: expected exit 74, got $code: $(cat "$work/err")"
    grep -q -e "--rank-timeout" "$work/err" && fail "full journal of rank $r: the others were not stopped: $(cat "$work/err")"
    grep -q "File too large" "$work/err" || fail "full journal of rank $r: $(cat "$work/err")"
    grep -q "did not stop\|MPI_ABORT" "$work/err" && fail "full journal of rank $r: $(cat "$work/err")"
    detect 2 -o "$out" || fail "resume after a full journal: $(cat "$work/err")"
    same "$work/calm.h5" "$out"
done

# Ranks that see other files do not begin.
cp -r "$work/model" "$work/other"
sed -i 's/"rms_norm_eps": 1e-05/"rms_norm_eps": 1e-06/' "$work/other/config.json"
mpi 1 "$bin/dpe-detect" $sweep -o "$work/x.h5" : \
    -n 1 "$bin/dpe-detect" $sweep -o "$work/x.h5" --model "$work/other" >"$work/out" 2>"$work/err"
code=$?
[ $code = 65 ] || fail "another model: expected exit 65, got $code: $(cat "$work/err")"
grep -q "rank 1 on .*has other inputs than rank 0: model: expected" "$work/err" ||
    fail "another model: $(cat "$work/err")"
mpi 1 "$bin/dpe-detect" $sweep -o "$work/x.h5" : \
    -n 1 "$bin/dpe-detect" $sweep -o "$work/x.h5" --model "$work/none" >"$work/out" 2>"$work/err"
code=$?
[ $code = 66 ] || fail "no model: expected exit 66, got $code: $(cat "$work/err")"
grep -q "rank 1 on .*/none: cannot be opened" "$work/err" || fail "no model: $(cat "$work/err")"
mpi 1 "$bin/dpe-detect" $sweep -o "$work/x.h5" : \
    -n 1 "$bin/dpe-detect" $sweep -o "$work/x.h5" --samples 7 >"$work/out" 2>"$work/err"
code=$?
[ $code = 64 ] || fail "other samples: expected exit 64, got $code: $(cat "$work/err")"
grep -q "other options" "$work/err" || fail "other samples: $(cat "$work/err")"
[ -e "$work/x.h5" ] && fail "ranks that disagree wrote a table"
rm -rf "$work/x.h5.journal"

# The other tools.
"$bin/dpe-norms" --model "$work/model" --corpus "$work/corpus" --lengths 32,64 --samples 6 --threads 1 \
    -o "$work/norms1.h5" >"$work/expected" 2>"$work/err" || fail "dpe-norms: $(cat "$work/err")"
mpi 2 "$bin/dpe-norms" --model "$work/model" --corpus "$work/corpus" --lengths 32,64 \
    --samples 6 --threads 1 -o "$work/norms2.h5" >"$work/out" 2>"$work/err" ||
    fail "dpe-norms with two ranks: $(cat "$work/err")"
same "$work/norms1.h5" "$work/norms2.h5"
diff "$work/expected" "$work/out" || fail "dpe-norms prints another result with two ranks"
for n in 1 2; do
    mpi $n "$bin/dpe-eval" niah --model "$work/model" --corpus "$work/corpus" -l 192 \
        --method rope --method self-extend --samples 8 --threads 1 -o "$work/eval$n.h5" \
        >"$work/out" 2>"$work/err" || fail "dpe-eval with $n ranks: $(cat "$work/err")"
done
same "$work/eval1.h5" "$work/eval2.h5"
# Predictions are written once.
for n in 1 3; do
    mpi $n "$bin/dpe-eval" ruler --model "$work/model" -l 640 --tasks vt,fwe \
        --method rope --method self-extend --samples 12 --threads 1 --predictions "$work/predictions$n" -o "$work/ruler$n.h5" \
        >"$work/out" 2>"$work/err" || fail "dpe-eval ruler with $n ranks: $(cat "$work/err")"
done
same "$work/ruler1.h5" "$work/ruler3.h5"
diff -r "$work/predictions1" "$work/predictions3" || fail "three ranks write other predictions"
[ "$(ls "$work"/predictions3/*/* | wc -l)" = 4 ] || fail "no predictions of two methods and two tasks: $(ls -R "$work/predictions3")"

[ $failed = 0 ] && echo "$kills kills of a rank: all as expected (mpirun hung $hung times)"
exit $failed
