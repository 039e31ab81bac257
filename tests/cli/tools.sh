#!/bin/sh
# tools.sh BIN: a short run of each tool on a model of random weights, in the order of README.md, and what all of them
# guarantee: a run that is killed continues to the table of an undisturbed one, two ranks give the table of one
# process, the same command again changes nothing, another run's table is refused. Longer tests of each tool
# stand beside this one.
set -u
bin=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/world.sh"
. "$here/mpi_settings.sh"
make_model model
texts="--model $work/model --corpus $work/corpus --seed 5 --threads 1"

# tool NAME OPTION…: runs dpe-NAME; what it prints goes to out and err.
tool() {
    name=$1
    shift
    "$bin/dpe-$name" "$@" >"$work/out" 2>"$work/err" || fail "dpe-$name $*: exit $?, $(cat "$work/err")"
}
# killed TABLE NAME OPTION…: dpe-NAME is killed with its first rows on disk, and the same command run again, which
# finds them. One that has its table before it could be killed is run anew.
killed() {
    table=$1
    name=$2
    shift 2
    for try in 1 2 3 4 5; do
        rm -rf "$table" "$table.journal"
        "$bin/dpe-$name" "$@" >"$work/out" 2>"$work/err" &
        pid=$!
        wait_until grown "$table.journal/rank-0000.journal"
        kill -9 $pid 2>/dev/null
        wait $pid 2>/dev/null
        [ $? = 137 ] && [ ! -e "$table" ] && break
    done
    [ -e "$table" ] && fail "dpe-$name $*: ended each time before it was killed (try $try)"
    [ -s "$table.journal/rank-0000.journal" ] || fail "dpe-$name $*: the kill left no rows"
    tool "$name" "$@"
}
grown() {
    bytes "$1" 2000 || gone $pid
}

sweep="$texts --length 192 --groups 2 --samples 30 --lengths 8,32,64"
paper="$sweep --task both --select paper --temperature off"
# shellcheck disable=SC2086 # lists of words, here and below
{
    tool detect $paper -o "$work/paper.h5"
    killed "$work/killed.h5" detect $paper -o "$work/killed.h5"
    same "$work/paper.h5" "$work/killed.h5"
    tool detect $paper --dry-run
    refused 78 seed "$bin/dpe-detect" $paper --seed 6 -o "$work/paper.h5"
    # The search, by one process and by two; with the cheaper forms of reading.
    cheap="$sweep --samples 4 --select both --niah values=1,keys=2,asked=2 --budget 4ktok"
    tool detect $cheap -o "$work/sweep.h5"
    if command -v mpirun >/dev/null; then
        timeout -k 5 $limit mpirun -n 2 "$bin/dpe-detect" $cheap -o "$work/ranks.h5" >"$work/out" 2>"$work/err" ||
            fail "two ranks: $(cat "$work/err")"
        same "$work/sweep.h5" "$work/ranks.h5"
    fi
    tool norms $texts --lengths 32 --samples 8 -o "$work/norms.h5"
    # Of the model of random weights all rows are there within a tenth of a second: too soon for a kill between them.
    profile="--model $root/data/reference --corpus $root/data/sample --seed 5 --threads 1 --lengths 128 --samples 200"
    tool norms $profile -o "$work/calm.h5"
    killed "$work/again.h5" norms $profile -o "$work/again.h5"
    same "$work/calm.h5" "$work/again.h5"
}

tool export "$work/sweep.h5" "$work/norms.h5" --top-k 0.75 -o "$work/table.h5"
for form in json yaml safetensors csv; do
    tool export "$work/table.h5" -o "$work/table.$form"
done
tool export "$work/table.json" -o "$work/back.h5"
h5diff "$work/table.h5" "$work/back.h5" /table >"$work/diff" 2>&1 || fail "a table through JSON: $(head -5 "$work/diff")"
tool export "$work/table.h5" --show
tool export --method yarn:scale=2 --model "$work/model" --length 128 -o "$work/yarn.h5"
# What the table says of the model as it is is not read again; at another length it is.
# shellcheck disable=SC2086
{
    tool run $texts --table "$work/sweep.h5" --show
    grep -q "^unchanged  *finds [0-9.]* % of 4 samples (needles: 2 keys of one value), as the table says\$" "$work/out" &&
        [ "$(grep -c " after [0-9.]* s: " "$work/out")" = 1 ] || fail "--show: $(cat "$work/out")"
    tool run $texts --table "$work/sweep.h5" --length 191 --show
    [ "$(grep -c " after [0-9.]* s: " "$work/out")" = 2 ] || fail "--show of 191 tokens: $(cat "$work/out")"
    # A table of other weights is refused before anything is read, and nothing that it says is told of them.
    cp -r "$work/model" "$work/weights"
    printf ' ' >>"$work/weights/config.json"
    for length in 191 192; do
        refused 65 "measured on the model" "$bin/dpe-run" -m "$work/weights" --corpus "$work/corpus" --table "$work/sweep.h5" --length $length --show
        grep -q "unchanged\|table" "$work/out" && fail "of a table of other weights: $(cat "$work/out")"
    done
}
refused 73 "is an input" "$bin/dpe-export" "$work/table.json" -o "$work/table.json" --force

methods="$texts --quiet --samples 6 --method rope --method self-extend --table $work/table.json"
# shellcheck disable=SC2086
{
    for suite in niah ppl; do
        tool eval $suite $methods -l 128,192 -o "$work/$suite.h5"
    done
    killed "$work/again-niah.h5" eval niah $methods -l 128,192 -o "$work/again-niah.h5"
    same "$work/niah.h5" "$work/again-niah.h5"
    tool eval ablate $texts --quiet --samples 6 --table "$work/sweep.h5" --norms "$work/norms.h5" --what top-k --values 4,8 \
        -o "$work/ablate.h5"
}
tool run -m "$work/model" --info --json
# The table on other weights of the shape: what it is held against, and that the verdict is about its longest length.
cp -r "$work/model" "$work/other"
printf ' ' >>"$work/other/config.json"
tool eval check "$work/table.h5" --model "$work/other" --corpus "$work/corpus" --niah values=1 --samples 2 -o "$work/held.h5"
grep -q "^192 tokens, 3 times the trained length; 2 samples:\$" "$work/out" && grep -q "^the table  *[0-9]* % .*(p " "$work/out" && grep -q "a model of other weights" "$work/err" || fail "check: $(cat "$work/out" "$work/err")"
tool run -m "$work/model" --table "$work/table.h5" -p "Once" -n 8
tool run -m "$work/model" --method yarn:scale=4 --nll "$work/corpus/900000.txt" --context 192
tool bench -l 64 --shape "$work/model"
tool report "$work/sweep.h5" "$work/norms.h5" "$work/niah.h5" "$work/ppl.h5" "$work/ablate.h5" -o "$work/all.html"
grep -q "</svg>" "$work/all.html" && grep -q "</html>" "$work/all.html" || fail "the report has no figures or no end"

batch="$texts --quiet --task ppl --groups 2 --samples 9 --lengths 16,32 --window 16"
# shellcheck disable=SC2086
{
    tool calibrate $batch -l 96,128 -o "$work/calibrated"
    cp "$work/calibrated/table.h5" "$work/before.h5"
    tool calibrate $batch -l 96,128 -o "$work/calibrated"
    cmp "$work/before.h5" "$work/calibrated/table.h5" || fail "the same command again changes the table"
    tool calibrate $batch -l 96,128 -o "$work/none" --dry-run
}
tool run -m "$work/model" --table "$work/calibrated/table.h5" -p "Once" -n 8
[ $failed = 0 ] && echo "all as expected"
exit $failed
