#!/bin/sh
# detect_ranks.sh BIN [KILLS [short]]: what several ranks promise. The table does not depend on how many there
# are; ranks are killed, stopped, signalled and given other files, and whatever happens the same
# command with any number of ranks ends with the table of an undisturbed run.
set -u
bin=$1
wanted=${2:-20}
short=${3:-}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
command -v mpirun >/dev/null || { echo "no mpirun"; exit 125; }
# As root, and with more ranks than cores, in a container.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none
# MPI's own leaks are not ours.
export ASAN_OPTIONS=detect_leaks=0

fail() {
    echo "FAILED: $*"
    failed=1
}
python3 "$here/tiny_model.py" "$root/data/reference/tokenizer.json" "$work/model" || exit 1
mkdir "$work/corpus"
for book in "$root"/data/sample/test/90000*.txt; do
    head -c 6000 "$book" >"$work/corpus/$(basename "$book")"
done
sweep="--model $work/model --corpus $work/corpus --length 192 --groups 2 --samples 150
    --lengths 8,32,64 --seed 5 --threads 1"
# detect N OPTION...; ranks whose mpirun has just ended may take a moment to be gone.
detect() {
    ranks=$1
    shift
    tries=0
    while pgrep -f "^$bin/dpe-detect .*$work" >/dev/null && [ $tries -lt 500 ]; do
        sleep 0.02
        tries=$((tries + 1))
    done
    timeout -k 5 60 mpirun -n "$ranks" "$bin/dpe-detect" $sweep --rank-timeout 20 "$@" \
        >"$work/out" 2>"$work/err"
}
same() {
    h5diff --exclude-path=/run "$1" "$2" >"$work/diff" 2>&1 ||
        fail "$1 and $2 differ: $(head -5 "$work/diff")"
}
# rank TABLE R: the process of rank R that works on TABLE, once the sweep is under way: it has its
# journal open. Earlier the rank may still be inside MPI_Init, and Open MPI 4.1's mpirun can hang for
# good when a rank dies there.
rank() {
    tries=0
    while [ $tries -lt 400 ]; do
        for pid in $(pgrep -f "^$bin/dpe-detect .*$1"); do
            if cat "/proc/$pid/environ" 2>/dev/null | tr "\0" "\n" |
                grep -qx "OMPI_COMM_WORLD_RANK=$2" &&
                readlink "/proc/$pid/fd/"* 2>/dev/null | grep -qx "$1.journal/rank-000$2.journal"; then
                echo "$pid"
                return
            fi
        done
        kill -0 "$job" 2>/dev/null || return
        tries=$((tries + 1))
        sleep 0.02
    done
}
# Milliseconds below $1, drawn.
pause() {
    sleep "$(awk -v seed="$1$2" -v most="$2" 'BEGIN { srand(seed); printf "%.3f", rand() * most / 1000 }')"
}

detect 1 -o "$work/calm.h5" || fail "one rank: $(cat "$work/err")"
"$bin/dpe-detect" $sweep -o "$work/alone.h5" >"$work/out" 2>"$work/err" || fail "alone: $(cat "$work/err")"
same "$work/calm.h5" "$work/alone.h5"
for n in 2 3; do
    cp "$work/out" "$work/expected"
    detect $n -o "$work/n$n.h5" || fail "$n ranks: $(cat "$work/err")"
    same "$work/calm.h5" "$work/n$n.h5"
    sed "s,n$n.h5,alone.h5," "$work/out" | diff "$work/expected" - || fail "$n ranks print another result"
    sed "s,n$n.h5,alone.h5," "$work/out" >"$work/expected2" && mv "$work/expected2" "$work/out"
    [ -e "$work/n$n.h5.journal" ] && fail "$n ranks left a journal: $(ls "$work/n$n.h5.journal")"
done

# Ranks killed at random times, rank 0 among them; another number of ranks goes on each time.
kills=0
starts=0
hung=0
out="$work/killed.h5"
while [ $kills -lt "$wanted" ] && [ $starts -lt $((3 * wanted)) ]; do
    starts=$((starts + 1))
    n=$((2 + starts % 3))
    detect $n -o "$out" &
    job=$!
    pid=$(rank "$out" $((kills % n)))
    pause "$starts" 120
    [ -n "$pid" ] && kill -9 "$pid" 2>/dev/null && kills=$((kills + 1))
    wait $job
    # timeout's own exit (137 is also what mpirun says of a killed rank)
    [ $? = 124 ] && hung=$((hung + 1))
    # A table that is complete goes; what is tested is the way there.
    if [ -e "$out" ] && [ ! -e "$out.journal" ]; then
        same "$work/calm.h5" "$out"
        rm "$out"
    fi
done
[ $kills -ge "$wanted" ] || fail "only $kills kills"
detect 2 -o "$out" || fail "resume after kills: $(cat "$work/err")"
same "$work/calm.h5" "$out"
[ -e "$out.journal" ] && fail "a journal is left: $(ls "$out.journal")"

# A signal to one rank is a signal to the job.
which="0 2"
[ -n "$short" ] && which=2
for signal in TERM USR1; do
    for r in $which; do
        out="$work/$signal$r.h5"
        detect 3 -o "$out" &
        job=$!
        kill -$signal "$(rank "$out" $r)"
        wait $job
        code=$?
        [ $code = 75 ] || fail "SIG$signal to rank $r: expected exit 75, got $code: $(cat "$work/err")"
        grep -q "the same command continues" "$work/err" || fail "SIG$signal: $(cat "$work/err")"
        detect 2 -o "$out" || fail "resume after SIG$signal: $(cat "$work/err")"
        same "$work/calm.h5" "$out"
    done
done

# A rank that hangs is named with what it was doing, rank 0 by those that wait for it.
which="1 0"
[ -n "$short" ] && which=1
for r in $which; do
    out="$work/hangs$r.h5"
    detect 3 -o "$out" --rank-timeout 6 &
    job=$!
    kill -STOP "$(rank "$out" $r)"
    wait $job
    code=$?
    [ $code = 75 ] || fail "rank $r hangs: expected exit 75, got $code: $(cat "$work/err")"
    grep -q "rank $r.*(--rank-timeout)" "$work/err" || fail "rank $r hangs: $(cat "$work/err")"
    detect 2 -o "$out" || fail "resume after rank $r hung: $(cat "$work/err")"
    same "$work/calm.h5" "$out"
done

# Ranks that see other files do not begin.
cp -r "$work/model" "$work/other"
sed -i 's/"rms_norm_eps": 1e-05/"rms_norm_eps": 1e-06/' "$work/other/config.json"
timeout -k 5 60 mpirun -n 1 "$bin/dpe-detect" $sweep -o "$work/x.h5" : \
    -n 1 "$bin/dpe-detect" $sweep -o "$work/x.h5" --model "$work/other" >"$work/out" 2>"$work/err"
code=$?
[ $code = 65 ] || fail "another model: expected exit 65, got $code: $(cat "$work/err")"
grep -q "rank 1 on .*does not see what rank 0 sees: model: expected" "$work/err" ||
    fail "another model: $(cat "$work/err")"
timeout -k 5 60 mpirun -n 1 "$bin/dpe-detect" $sweep -o "$work/x.h5" : \
    -n 1 "$bin/dpe-detect" $sweep -o "$work/x.h5" --model "$work/none" >"$work/out" 2>"$work/err"
code=$?
[ $code = 66 ] || fail "no model: expected exit 66, got $code: $(cat "$work/err")"
grep -q "rank 1 on .*none/config.json" "$work/err" || fail "no model: $(cat "$work/err")"
timeout -k 5 60 mpirun -n 1 "$bin/dpe-detect" $sweep -o "$work/x.h5" : \
    -n 1 "$bin/dpe-detect" $sweep -o "$work/x.h5" --samples 7 >"$work/out" 2>"$work/err"
code=$?
[ $code = 64 ] || fail "other samples: expected exit 64, got $code: $(cat "$work/err")"
grep -q "other options" "$work/err" || fail "other samples: $(cat "$work/err")"
[ -e "$work/x.h5" ] && fail "ranks that disagree wrote a table"
rm -rf "$work/x.h5.journal"

# The other tools.
"$bin/dpe-norms" --model "$work/model" --corpus "$work/corpus" --lengths 32,64 --samples 6 --threads 1 \
    -o "$work/norms1.h5" >"$work/expected" 2>"$work/err" || fail "dpe-norms: $(cat "$work/err")"
timeout -k 5 60 mpirun -n 2 "$bin/dpe-norms" --model "$work/model" --corpus "$work/corpus" --lengths 32,64 \
    --samples 6 --threads 1 -o "$work/norms2.h5" >"$work/out" 2>"$work/err" ||
    fail "dpe-norms with two ranks: $(cat "$work/err")"
same "$work/norms1.h5" "$work/norms2.h5"
diff "$work/expected" "$work/out" || fail "dpe-norms prints another result with two ranks"
for n in 1 2; do
    timeout -k 5 60 mpirun -n $n "$bin/dpe-eval" niah --model "$work/model" --corpus "$work/corpus" -l 192 \
        --method rope --method self-extend --samples 8 --threads 1 -o "$work/eval$n.h5" \
        >"$work/out" 2>"$work/err" || fail "dpe-eval with $n ranks: $(cat "$work/err")"
done
same "$work/eval1.h5" "$work/eval2.h5"

[ $failed = 0 ] && echo "$kills kills of a rank: all promises kept"
exit $failed
