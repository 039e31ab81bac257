#!/bin/sh
# bench_stops.sh BIN: steps of many sessions beside each other, which take minutes, end at a signal and with the time budget: exit 75.
set -u
bin=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
expect() { # WHAT, the seconds after which it is asked to end, more options
    what=$1 after=$2
    shift 2
    timeout --preserve-status -s TERM -k 120 "$after" "$bin/dpe-bench" --shape "$root/tests/golden/llama" -l 16 --trained-length 8k \
        --method rope --repeats 1 --new 3000 --beside 64 --threads 1 --device cpu "$@" >/dev/null 2>&1
    code=$?
    [ $code = 75 ] || { echo "$what: exit $code, expected 75"; exit 1; }
}
expect signal 5
expect budget 240 --time-budget 5
