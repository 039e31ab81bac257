#!/bin/sh
# signature.sh BIN: dpe-bench --signature is one number, whatever the threads and the instruction set are.
set -u
bin=$1
first=$("$bin/dpe-bench" --signature --threads 1) || exit 1
[ ${#first} = 16 ] || { echo "expected 16 digits, found $first"; exit 1; }
for set in portable avx2; do
    other=$(DPE_CPU=$set "$bin/dpe-bench" --signature --threads 2) || exit 1
    [ "$first" = "$other" ] || { echo "$set, 2 threads: $other, not $first"; exit 1; }
done
echo "signature $first"
