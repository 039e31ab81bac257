# Sourced by detect_ranks.sh and detect_peers.sh, which set bin (a folder of tools) before, and sweep
# (options of dpe-detect) after it: the files of world.sh, and jobs of several ranks.
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
command -v mpirun >/dev/null || { echo "no mpirun"; exit 125; }
. "$here/world.sh"
. "$here/mpi_settings.sh"
export OMP_WAIT_POLICY=passive
# mpi N COMMAND...: mpirun may hang and ignore SIGTERM when a rank dies early.
mpi() {
    size=$1
    shift
    timeout -k 5 "$limit" mpirun -n "$size" "$@"
}
# measure COMMAND...: an undisturbed run. From its time on this machine follow the time that a rank may be
# silent ($silence) and the limit of a run whose rank is killed ($killed_limit).
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
# detect N OPTION...: the sweep, by the command $by; ranks whose mpirun has just ended may take a moment to end.
by=
detect() {
    ranks=$1
    shift
    wait_until idle
    mpi "$ranks" $by "$bin/dpe-detect" $sweep "$@" >"$work/out" 2>"$work/err"
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
# working: the journals of $out have grown beyond $rows bytes, or the job has ended.
working() {
    [ "$(cat "$out".journal/* 2>/dev/null | wc -c)" -gt "$rows" ] || gone "$job"
}
# stops SIGNAL R N [OPTION...]: rank R of N gets the signal; the job ends with 75, and the same
# command (by $continue_by) continues it to the table of $work/calm.h5. Its messages are in $work/stopped.
continue_by=
stops() {
    signal=$1
    r=$2
    job_ranks=$3
    shift 3
    out="$work/$signal$r.h5"
    detect "$job_ranks" -o "$out" "$@" &
    job=$!
    pid=$(rank "$out" "$r")
    # Not before the first rows: until then rank 0 itself may be late, and be named instead of rank r.
    rows=$(cat "$out".journal/* 2>/dev/null | wc -c)
    wait_until working
    kill "-$signal" "$pid"
    wait $job
    code=$?
    cp "$work/err" "$work/stopped"
    [ $code = 75 ] || fail "SIG$signal to rank $r: expected exit 75, got $code: $(cat "$work/stopped")"
    grep -q "run the same command to continue" "$work/stopped" || fail "SIG$signal to rank $r: $(cat "$work/stopped")"
    by=$continue_by
    detect 2 -o "$out" || fail "resume after SIG$signal to rank $r: $(cat "$work/err")"
    by=
    same "$work/calm.h5" "$out"
}
# hangs R N: rank R of N is stopped; the ranks that wait for it name it.
hangs() {
    stops STOP "$1" "$2" --rank-timeout "$silence"
    grep -q "rank $1 .*(--rank-timeout)" "$work/stopped" || fail "rank $1 hangs: $(cat "$work/stopped")"
}
# settle TABLE: a complete table is compared and removed; the kills before are what is tested.
settle() {
    if [ -e "$1" ] && [ ! -e "$1.journal" ]; then
        same "$work/calm.h5" "$1"
        rm "$1"
    fi
}
