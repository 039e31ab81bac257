#!/bin/sh
# stories260k.sh BIN SOURCE: the small model stories260K, turned into a Hugging Face folder by
# data/stories260k_to_hf.py, has the perplexities of its data README within 0.1 %. The model is not part of
# this tree: it is read from DPE_SHARED_DATA or from ../shared/data beside the tree; without it the test is skipped (125).
set -eu
bin=$1
source=$2
data=${DPE_SHARED_DATA:-$source/../shared/data}/stories260K
[ -f "$data/stories260K.bin" ] || { echo "no $data: skipped"; exit 125; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
/usr/bin/python3 "$source/data/stories260k_to_hf.py" "$data" "$work/model"
check() { # CONTEXT PERPLEXITY
    line=$("$bin/dpe-run" -m "$work/model" --nll "$data/pg10146_first20000bytes.txt" --context "$1" --quiet)
    echo "context $1: $line"
    printf '%s\n' "$line" | grep -q '^tokens 11745 ' || { echo "expected 11745 tokens"; exit 1; }
    printf '%s\n' "$line" | awk -v want="$2" '{ sub(/.*perplexity /, ""); p = $1; exit !(p > want * 0.999 && p < want * 1.001) }' ||
        { echo "expected a perplexity of $2 within 0.1 %"; exit 1; }
}
check 512 74.00
check 1024 62.43
