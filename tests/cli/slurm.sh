#!/bin/sh
# slurm.sh BIN: detect/slurm/dpe.sbatch on a Slurm of one node that lives in a temporary folder, with one
# task and with two. A notice (SIGUSR1) ends the sweep with 75, the job goes back into the queue and starts
# while its last step is still being cleaned up, and when it has run again the table is that of an
# undisturbed sweep. Exits with 125 where no Slurm can be started.
set -u
bin=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
for program in munged slurmctld slurmd sbatch srun; do
    command -v $program >/dev/null || { echo "no $program"; exit 125; }
done
[ "$(id -u)" = 0 ] || { echo "only root can start a Slurm"; exit 125; }
. "$here/world.sh"
chmod 755 "$work"
daemons=""
cleanup() {
    limit scancel --user=root 2>/dev/null
    for daemon in $daemons; do
        kill "$daemon" 2>/dev/null
    done
    sleep 1
    for daemon in $daemons; do
        kill -9 "$daemon" 2>/dev/null
    done
    rm -rf "$work"
}
# Nothing here may wait for ever.
limit() {
    timeout -k 5 "$limit" "$@"
}
trap cleanup EXIT

host=$(hostname -s)
port=$((20000 + $$ % 20000))
mkdir "$work/state" "$work/spool" "$work/munge"
chmod 700 "$work/munge"
dd if=/dev/urandom of="$work/munge/key" bs=128 count=1 2>/dev/null
chmod 400 "$work/munge/key"
cat >"$work/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmctldPort=$port
SlurmdPort=$((port + 1))
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
CredType=cred/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
KillWait=10
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
END
export SLURM_CONF="$work/slurm.conf"
munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge/socket" \
    --pid-file="$work/munge/pid" --log-file="$work/munge/log" --seed-file="$work/munge/seed" \
    >/dev/null 2>&1 &
daemons="$daemons $!"
wait_until test -S "$work/munge/socket"
slurmctld -D >/dev/null 2>&1 &
daemons="$daemons $!"
slurmd -D -N "$host" >/dev/null 2>&1 &
daemons="$daemons $!"
ready() {
    limit sinfo -h -o %t 2>/dev/null | grep -q idle
}
ready_or_ended() {
    for daemon in $daemons; do
        gone "$daemon" && return 0
    done
    ready
}
wait_until ready_or_ended
if ! ready; then
    echo "Slurm does not start here: $(limit sinfo 2>&1 | tail -1) $(tail -2 "$work/slurmd.log")"
    exit 125
fi

make_model model
sweep="--model $work/model --corpus $work/corpus --length 192 --groups 2 --samples 500
    --lengths 8,32,64 --seed 5 --threads 1 --select paper --temperature off"
limit "$bin/dpe-detect" $sweep -o "$work/calm.h5" >"$work/out" 2>"$work/err" || fail "$(cat "$work/err")"

export PATH="$bin:$PATH" DPE_SLURM_LEAST=0
state() { limit squeue -h -j "$1" -o %t 2>/dev/null; }
# ended: the job is through, or no longer known. Slurm lets a job that was put back wait for two minutes:
# not here.
ended() {
    grep -q "detect ended with 0" "$log" 2>/dev/null && return 0
    now=$(state "$job")
    [ "$now" = PD ] && limit scontrol update jobid="$job" StartTime=now 2>/dev/null
    [ -z "$now" ]
}
# requeued TASKS: a job of that many tasks, stopped by a notice.
requeued() {
    out="$work/sweep$1.h5"
    log="$work/sweep$1.log"
    job=$(limit sbatch --parsable --chdir="$work" --output="$log" --ntasks="$1" --ntasks-per-node="$1" \
        --overcommit --time=60 "$root/detect/slurm/dpe.sbatch" dpe-detect $sweep -o "$out" 2>"$work/err") ||
        fail "sbatch: $(cat "$work/err")"
    wait_until test -e "$out.journal/rank-000$(($1 - 1)).journal"
    limit scancel --signal=USR1 "$job"
    wait_until ended
    grep -q "ended with 75" "$log" || fail "$1 tasks: no stop at the notice: $(cat "$log")"
    grep -q "samples were made before" "$log" || fail "$1 tasks: did not go on: $(cat "$log")"
    h5diff --exclude-path=/run "$work/calm.h5" "$out" >"$work/diff" 2>&1 ||
        fail "$1 tasks: another table: $(head -3 "$work/diff") $(tail -5 "$log")"
    find "$work" -name ".dpe-*" | grep . && fail "$1 tasks: a mark is left"
}
requeued 1
tasks="one task"
if srun --mpi=list 2>&1 | grep -qwE "pmix|pmi2"; then
    requeued 2
    tasks="one task and two"
fi
[ $failed = 0 ] && echo "$tasks: stopped by a notice, queued again, and the table is the same"
exit $failed
