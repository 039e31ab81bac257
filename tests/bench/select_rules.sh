#!/bin/sh
# select_rules.sh BIN OUT LENGTH SAMPLES SEED: one sweep of the reference model under the three rules
# that choose the joint plan's lengths (dpe-detect --select). The rules read the same rows where they
# can: each continues a copy of the table before it. Ends with OUT/sSEED-lLENGTH-RULE.h5; the same
# command continues. select_rules.py puts many of them together.
set -eu
bin=$1 out=$2 length=$3 samples=$4 seed=$5
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$out"
before=
for rule in paper guarded sequential; do
    table="$out/s$seed-l$length-$rule.h5"
    if [ -n "$before" ] && [ ! -e "$table" ] && [ ! -e "$table.journal" ]; then
        cp "$before" "$table"
    fi
    "$bin/dpe-detect" -m "$root/data/reference" --corpus "$root/data/sample" -l "$length" \
        --samples "$samples" --seed "$seed" --select "$rule" --temperature off --threads "${THREADS:-1}" --quiet \
        -o "$table" >"${table%.h5}.out"
    before=$table
done
