# Sourced by detect_ranks.sh and detect_peers.sh, which set bin (a folder of tools) before, and sweep
# (options of dpe-detect) behind it: the world of world.sh, and jobs of several ranks.
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
command -v mpirun >/dev/null || { echo "no mpirun"; exit 125; }
. "$here/world.sh"
. "$here/mpi_settings.sh"
export OMP_WAIT_POLICY=passive
# mpi N COMMAND...: mpirun may hang for good and ignore a polite signal when a rank dies early.
mpi() {
    size=$1
    shift
    timeout -k 5 "$limit" mpirun -n "$size" "$@"
}
# measure COMMAND...: an undisturbed run. How long it took on this machine is the measure of how long a
# rank may be silent ($silence), and of a run whose rank is killed ($killed_limit).
measure() {
    measured_since=$(date +%s)
    "$@"
    measured=$?
    silence=$((6 + $(date +%s) - measured_since))
    killed_limit=$((120 + 20 * silence))
    return $measured
}
idle() {
    ! pgrep -f "^$bin/dpe-detect .*$work" >/dev/null
}
# detect N OPTION...: the sweep; ranks whose mpirun has just ended may take a moment to be gone.
detect() {
    ranks=$1
    shift
    wait_until idle
    mpi "$ranks" "$bin/dpe-detect" $sweep "$@" >"$work/out" 2>"$work/err"
}
# rank TABLE R: the process of rank R of $job that works on TABLE, once the sweep is under way: it has
# its journal open. Earlier the rank may still be inside MPI_Init, and Open MPI 4.1's mpirun can hang
# for good when a rank dies there. Nothing when the job ended before.
rank() {
    wait_until found "$1" "$2" && echo "$pid"
}
found() {
    for pid in $(pgrep -f "^$bin/dpe-detect .*$1"); do
        if cat "/proc/$pid/environ" 2>/dev/null | tr "\0" "\n" |
            grep -qx "OMPI_COMM_WORLD_RANK=$2" &&
            readlink "/proc/$pid/fd/"* 2>/dev/null | grep -qx "$1.journal/rank-000$2.journal"; then
            return 0
        fi
    done
    pid=
    gone "$job"
}
# working: rows came to those of $rows bytes in the journals of $out, or the job has ended.
working() {
    [ "$(cat "$out".journal/* 2>/dev/null | wc -c)" -gt "$rows" ] || gone "$job"
}
# stops SIGNAL R N [OPTION...]: rank R of N gets the signal; the job ends as one that can go on, and
# does, to $work/calm.h5. What it said is in $work/said.
stops() {
    signal=$1
    r=$2
    job_ranks=$3
    shift 3
    out="$work/$signal$r.h5"
    detect "$job_ranks" -o "$out" "$@" &
    job=$!
    pid=$(rank "$out" "$r")
    # Not before there are rows: until then rank 0 may be late itself, and be named instead of rank r.
    rows=$(cat "$out".journal/* 2>/dev/null | wc -c)
    wait_until working
    kill "-$signal" "$pid"
    wait $job
    code=$?
    cp "$work/err" "$work/said"
    [ $code = 75 ] || fail "SIG$signal to rank $r: expected exit 75, got $code: $(cat "$work/said")"
    grep -q "run the same command to continue" "$work/said" || fail "SIG$signal to rank $r: $(cat "$work/said")"
    detect 2 -o "$out" || fail "resume after SIG$signal to rank $r: $(cat "$work/err")"
    same "$work/calm.h5" "$out"
}
# hangs R N: rank R of N stops; it is named by those that wait for it.
hangs() {
    stops STOP "$1" "$2" --rank-timeout "$silence"
    grep -q "rank $1 .*(--rank-timeout)" "$work/said" || fail "rank $1 hangs: $(cat "$work/said")"
}
# settle TABLE: one that is complete is compared and goes; what is tested is the way there.
settle() {
    if [ -e "$1" ] && [ ! -e "$1.journal" ]; then
        same "$work/calm.h5" "$1"
        rm "$1"
    fi
}
