#!/bin/sh
# smollm2.sh BIN MODEL OUT [LENGTH [SAMPLES]]: recall of one needle by SmolLM2-135M-Instruct (trained length 8192) at LENGTH
# (default 16384) under each of the methods below, on the same samples (default 20). MODEL is the folder that
# ../gpu/smollm2.py made. METHODS replaces the list, one method a line; DTYPE=bf16 computes in bfloat16, in about 0.6 of the time.
#
# Samples are added by fours, so that every method has about as many when it is stopped; the journal lies in OUT.
# An interrupted run continues with the same command. OUT/LENGTH.txt is the table of the samples that are finished.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=$1 model=$2 out=$3
length=${4:-16384} samples=${5:-20}
mkdir -p "$out"
export OMP_WAIT_POLICY=passive
: "${METHODS:=rope
yarn
yarn:scale=4
self-extend:group=4
self-extend:group=4,logit-scale=1.2
self-extend:group=4,logit-scale=1.4
lampe}"

set --
while IFS= read -r method; do
    [ -z "$method" ] || set -- "$@" --method "$method"
done <<LIST
$METHODS
LIST
n=0
while [ "$n" -lt "$samples" ]; do
    n=$((n + 4))
    [ "$n" -le "$samples" ] || n=$samples
    "$bin/dpe-eval" niah -m "$model" --corpus "$root/data/sample" -l "$length" --niah keys=1,values=1 --samples "$n" \
        --seed 5 --chat-template "$root/eval/templates/chat_smollm2.txt" --threads "${THREADS:-2}" --dtype "${DTYPE:-f32}" --quiet \
        "$@" -o "$out/$length.h5" >"$out/next.txt"
    mv "$out/next.txt" "$out/$length.txt"
done
cat "$out/$length.txt"
