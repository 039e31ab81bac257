#!/bin/sh
# paper.sh BIN: the paper's procedure is what it was before there was a search, bit for bit: dpe-detect --select paper
# --temperature off against its golden. Rows, ranks and scales are those of the last version without a search.
set -u
bin=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/world.sh"
"$bin/dpe-detect" -m "$root/data/reference" -l 512 --corpus "$root/data/sample" --samples 6 --groups 4 \
    --lengths 64,128,256,512 --seed 3 --select paper --temperature off --device cpu --dtype f32 --quiet -o "$work/paper.h5" \
    >"$work/paper.txt" 2>"$work/err" || fail "paper: $(cat "$work/err")"
sed '/^table: /d' "$work/paper.txt" | diff "$root/tests/golden/detect/paper.txt" - >"$work/diff" ||
    fail "the paper's procedure prints something else: $(head -5 "$work/diff")"
h5dump -m %.17g -a /rows/sha256 -d /plans/plan -d /detect/rank -d /detect/p_value -d /detect/niah/recall \
    -d /detect/niah/ci_low -d /detect/niah/ci_high -g /select -d /validate/plan -d /validate/niah/recall \
    -d /validate/niah/kept_minus -d /validate/niah/kept_p_value -g /table "$work/paper.h5" | sed "1d; s/(DATASET [0-9]* /(DATASET /" |
    diff "$root/tests/golden/detect/paper.dump" - >"$work/diff" ||
    fail "the paper's procedure is not what it was: $(head -5 "$work/diff")"
exit $failed
