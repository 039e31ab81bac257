#!/bin/sh
# search.sh BIN: the search for temperature and joint plan (--temperature auto --select joint). A search that is killed
# anywhere ends with the table of an undisturbed one, as does one of two ranks; a dry run names its cost; the table holds
# the plan that validation kept.
set -u
bin=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/world.sh"

# A trained length that is not the model's leaves something to find at a length that costs little.
search="-m $root/data/reference -l 256 --corpus $root/data/sample --trained-length 64 --samples 24 --groups 2
    --lengths 16,32,64,128 --seed 5 --temperature auto --select joint --task user --guard 0 --threads 1
    --device cpu"
# shellcheck disable=SC2086 # several words
search() {
    "$bin/dpe-detect" $search "$@" >"$work/out" 2>"$work/err"
}
search --against yarn -o "$work/calm.h5" --keep-journal || fail "search: $(cat "$work/err")"
cp "$work/out" "$work/calm.txt"
head -1 "$work/calm.txt" | grep -q "^The table holds the [a-z]* plan: recall " || fail "first line: $(head -1 "$work/calm.txt")"
grep -q "^  measured on texts with [a-z0-9]* keys* of " "$work/calm.txt" || fail "the task is not named: $(head -4 "$work/calm.txt")"
grep -q "^temperature, round 1: changed" "$work/calm.txt" || fail "no temperature was found: $(cat "$work/calm.txt")"
read_tokens=$(sed -n 's/.* \([0-9]*\) tokens were read.*/\1/p' "$work/err")
for path in /search/step /search/move /search/chosen /search/p_value /search/tried /search/temperature /search/length \
    /search/samples /search/plan; do
    h5ls "$work/calm.h5$path" >"$work/list" 2>&1 || fail "$path: $(cat "$work/list")"
done
h5dump -a /validate/kept "$work/calm.h5" | grep -q '"joint"' || fail "/validate@kept: $(h5dump -a /validate/kept "$work/calm.h5")"
h5dump -a /schema_version "$work/calm.h5" | grep -q '"8.0.0"' || fail "the version of a table"
# The table computes what the joint plan of its validation does.
"$bin/dpe-eval" niah -m "$root/data/reference" --corpus "$root/data/sample" -l 256 --trained-length 64 --samples 1 --table \
    "$work/calm.h5" --device cpu --quiet -o "$work/eval.h5" >"$work/out" 2>"$work/err" || fail "dpe-eval: $(cat "$work/err")"
h5dump -d /validate/plan "$work/calm.h5" | grep -o '"[0-9a-f]\{32\}"' | sed -n 3p >"$work/joint"
h5dump -d /plans/plan "$work/eval.h5" | grep -qf "$work/joint" || fail "the table is not the joint plan $(cat "$work/joint")"

# The dry run's cost is a bound of what was read.
search --against yarn --dry-run -o "$work/none.h5" || fail "dry run: $(cat "$work/err")"
grep -q "samples of the search included" "$work/out" || fail "dry run: $(cat "$work/out")"
sed -n 's/^tokens  *//p' "$work/out" | awk -v r="$read_tokens" '{ exit !($1 >= r) }' ||
    fail "dry run: fewer tokens than the $read_tokens that were read: $(cat "$work/out")"

# Kills in every stage: at parts of the undisturbed run's journal. One that is asked to stop says how many samples of how
# many are saved, and the next one goes on from the same numbers.
saved=
journal=$(wc -c <"$work/calm.h5.journal/rank-0000.journal")
for part in 2 14 26 31; do
    # shellcheck disable=SC2086 # several words
    "$bin/dpe-detect" $search --against yarn -o "$work/killed.h5" >"$work/out" 2>"$work/err" &
    pid=$!
    # shellcheck disable=SC2317 # called by wait_until
    far() {
        bytes "$work/killed.h5.journal/rank-0000.journal" $((journal * part / 32)) || gone $pid
    }
    wait_until far || fail "part $part of the journal was not written"
    grep -q "resuming: $saved" "$work/err" || [ -z "$saved" ] || fail "$saved were saved: $(cat "$work/err")"
    case $part in
    14 | 31)
        kill -TERM $pid 2>/dev/null
        wait $pid 2>/dev/null
        saved=$(sed -n 's/.*; \([0-9]* of [0-9]* samples\) are saved;.*/\1/p' "$work/err")
        [ -n "$saved" ] || grep -q "tokens were read" "$work/err" || fail "part $part: $(cat "$work/err")"
        ;;
    *)
        kill -9 $pid 2>/dev/null
        wait $pid 2>/dev/null
        saved=
        ;;
    esac
done
search --against yarn -o "$work/killed.h5" || fail "resume after kills: $(cat "$work/err")"
grep -q "resuming: $saved" "$work/err" || [ -z "$saved" ] || fail "$saved were saved: $(cat "$work/err")"
same "$work/calm.h5" "$work/killed.h5"
sed '/^table: /d' "$work/calm.txt" >"$work/a"
sed '/^table: /d' "$work/out" | diff "$work/a" - >"$work/diff" || fail "after kills: $(cat "$work/diff")"

# Two ranks.
if command -v mpirun >/dev/null; then
    . "$here/mpi_settings.sh"
    # shellcheck disable=SC2086 # several words
    timeout -k 5 "$limit" mpirun -n 2 "$bin/dpe-detect" $search --against yarn -o "$work/two.h5" >"$work/out" 2>"$work/err" ||
        fail "two ranks: $(cat "$work/err")"
    same "$work/calm.h5" "$work/two.h5"
fi

# With a profile the search tries smaller numbers of key pairs, and the table holds the one that it ends with.
"$bin/dpe-norms" -m "$root/data/reference" --corpus "$root/data/sample" --lengths 64 --samples 2 --device cpu --quiet \
    -o "$work/norms.h5" >"$work/out" 2>"$work/err" || fail "dpe-norms: $(cat "$work/err")"
# One short length for all pairs is worse than for most of them.
pairs="-m $root/data/reference -l 256 --corpus $root/data/sample --trained-length 32 --samples 16 --groups 1 --lengths 16 --seed 5
    --temperature off --niah keys=3,values=2 --against leaky-rerope --guard 0 --threads 1 --device cpu -o $work/pairs.h5"
# shellcheck disable=SC2086 # several words
"$bin/dpe-detect" $pairs --scale-pairs "$work/norms.h5" --dry-run >"$work/out" 2>"$work/err" ||
    fail "a dry run with key pairs: $(cat "$work/err")"
# shellcheck disable=SC2086 # several words
"$bin/dpe-detect" $pairs --scale-pairs "$work/norms.h5" >"$work/out" 2>"$work/err" || fail "key pairs: $(cat "$work/err")"
grep -q "^key pairs, round 1: changed" "$work/out" || fail "no step of key pairs: $(cat "$work/out")"
chosen=$(sed -n 's/^\* .*, \([0-9]*\) key pairs$/\1/p' "$work/out" | head -1)
for k in 16 20 24 28; do
    grep -q "[0-9] samples  .*, $k key pairs" "$work/out" || fail "$k key pairs were not tried: $(cat "$work/out")"
done
grep -q "^  temperature .*, $chosen key pairs$" "$work/out" || fail "first lines: $(head -3 "$work/out")"
h5dump -y -d /search/top_k "$work/pairs.h5" | grep -q "16, 20, 24, 28" || fail "/search/top_k: $(h5dump -d /search/top_k "$work/pairs.h5")"
h5dump -y -d /table/top_k "$work/pairs.h5" | grep -q "^ *$chosen$" || fail "/table/top_k: $(h5dump -d /table/top_k "$work/pairs.h5")"
"$bin/dpe-eval" niah -m "$root/data/reference" --corpus "$root/data/sample" -l 256 --trained-length 32 --samples 1 --table \
    "$work/pairs.h5" --method leaky-rerope --niah keys=3,values=2 --device cpu --quiet -o "$work/eval2.h5" >"$work/out" 2>"$work/err" || fail "dpe-eval: $(cat "$work/err")"
h5dump -d /validate/plan "$work/pairs.h5" | grep -o '"[0-9a-f]\{32\}"' | sed -n 3p >"$work/joint"
h5dump -d /plans/plan "$work/eval2.h5" | grep -qf "$work/joint" || fail "the table of key pairs is not the joint plan $(cat "$work/joint")"
# What the result is held against is the method as released, with its log-n, as dpe-eval has it.
h5dump -d /validate/plan "$work/pairs.h5" | grep -o '"[0-9a-f]\{32\}"' | sed -n 5p >"$work/rival"
h5dump -d /plans/plan "$work/eval2.h5" | grep -qf "$work/rival" || fail "--against leaky-rerope is another plan than dpe-eval's: $(cat "$work/rival")"
"$bin/dpe-report" "$work/pairs.h5" -o "$work/pairs.html" >"$work/out" 2>"$work/err" || fail "dpe-report: $(cat "$work/err")"
grep -q "$chosen key pairs" "$work/pairs.html" || fail "the report lacks $chosen key pairs"
# shellcheck disable=SC2086 # several words
"$bin/dpe-detect" $pairs >"$work/out" 2>"$work/err"
[ $? = 78 ] || fail "a search without the profile continued one with it: $(cat "$work/err")"

# A method of --against that a table can hold is taken where it does better; a table of dpe-eval tune stands for
# what it chose. The lengths leave out the good one, 128.
for l in 128 512; do
    "$bin/dpe-eval" tune -m "$root/data/reference" --corpus "$root/data/sample" -l $l --trained-length 64 --samples 4 --budget 8 \
        --method rope --method self-extend:group=4,window=32,logit-scale=1.1 --threads 1 --quiet -o "$work/tuned$l.h5" \
        >"$work/out" 2>"$work/err" || fail "dpe-eval tune: $(cat "$work/err")"
done
"$bin/dpe-detect" -m "$root/data/reference" -l 512 --corpus "$root/data/sample" --trained-length 64 --samples 24 --groups 2 \
    --lengths 16,32,512 --seed 5 --task user --temperature off --guard 0 --threads 1 --device cpu --against "$work/tuned512.h5" --against yarn \
    -o "$work/other.h5" >"$work/out" 2>"$work/err" || fail "--against a table: $(cat "$work/err")"
chosen=$(h5dump -y -d /tune/chosen "$work/tuned512.h5" | sed -n 's/.*"\(self-extend[^"]*\)".*/\1/p')
head -1 "$work/out" | grep -qF "The table holds $chosen: recall " || fail "$chosen is not kept: $(head -9 "$work/out")"
grep -q "^  better than yarn: " "$work/out" || fail "yarn was not compared: $(cat "$work/out")"
h5dump -y -d /table/scale_factor "$work/other.h5" | grep -q "^ *4, 4$" && h5dump -y -d /table/effective_length "$work/other.h5" |
    grep -q "^ *128, 128$" || fail "the table: $(h5dump -g /table "$work/other.h5")"
"$bin/dpe-eval" niah -m "$root/data/reference" --corpus "$root/data/sample" -l 512 --trained-length 64 --samples 1 --table \
    "$work/other.h5" --device cpu --quiet -o "$work/eval3.h5" >"$work/out" 2>"$work/err" || fail "dpe-eval: $(cat "$work/err")"
h5dump -d /validate/plan "$work/other.h5" | grep -o '"[0-9a-f]\{32\}"' | sed -n 5p >"$work/rival"
h5dump -d /plans/plan "$work/eval3.h5" | grep -qf "$work/rival" || fail "the table is not the plan of $chosen"
"$bin/dpe-report" "$work/other.h5" -o "$work/other.html" >"$work/out" 2>"$work/err" || fail "dpe-report: $(cat "$work/err")"
grep -qF "The table holds $chosen: recall " "$work/other.html" ||
    fail "the report does not name $chosen"

# The paper's rule under a temperature that is searched: its rows are there already.
search --select paper -o "$work/calm.h5" --keep-journal || fail "paper's rule: $(cat "$work/err")"
h5dump -a /select/rule "$work/calm.h5" | grep -q '"paper"' || fail "the rule is not the paper's"
grep -q "^temperature, round 1: changed" "$work/out" || fail "the temperature of the paper's rule: $(cat "$work/out")"

# Perplexity decides as well.
"$bin/dpe-detect" -m "$root/data/reference" -l 256 --corpus "$root/data/sample" --trained-length 64 --samples 8 --groups 2 \
    --lengths 32,64 --task ppl --temperature auto --select joint --against none --device cpu --quiet -o "$work/ppl.h5" \
    >"$work/out" 2>"$work/err" || fail "perplexity: $(cat "$work/err")"
grep -q "^The table holds .*: perplexity [0-9]" "$work/out" || fail "perplexity: $(cat "$work/out")"

# The pilot of --task auto is part of the identity.
pilot="--task auto --samples 4 --select paper --temperature off"
# shellcheck disable=SC2086 # several words
search $pilot -o "$work/auto.h5" --keep-journal || fail "--task auto: $(cat "$work/err")"
grep -q "pilot: good plans find keys=[0-9]*,values=[0-9]*: 0" "$work/err" || fail "--task auto: $(cat "$work/err")"
h5dump -a /detect/pilot "$work/auto.h5" | grep -q "keys=[0-9]*,values=[0-9]*: 0" || fail "/detect@pilot: $(h5dump -a /detect/pilot "$work/auto.h5")"
# shellcheck disable=SC2086 # several words
search $pilot --window 4 -o "$work/auto.h5"
[ $? = 78 ] || fail "a pilot with another window continued: $(cat "$work/err")"

# Methods that are ready: it ends with what to do.
ready="--select ready --task auto --samples 8 --against yarn --against self-extend:group=4,window=32 --against jet-long"
# shellcheck disable=SC2086 # several words
search $ready -o "$work/ready.h5" || fail "--select ready: $(cat "$work/err")"
grep -q "^  jet-long  *[01]\." "$work/out" && grep -q "^  unchanged  *[01]\." "$work/out" || fail "--select ready: $(cat "$work/out")"
grep -qE "^(Of these take|Take|You need nothing|Needles say little)" "$work/out" || fail "no advice: $(cat "$work/out")"
h5dump -a /select/rule "$work/ready.h5" | grep -q '"ready"' || fail "the rule is not ready"
"$bin/dpe-report" "$work/ready.h5" -o "$work/ready.html" >"$work/out" 2>"$work/err" || fail "dpe-report: $(cat "$work/err")"

# The report shows the search.
"$bin/dpe-report" "$work/killed.h5" -o "$work/report.html" >"$work/out" 2>"$work/err" || fail "dpe-report: $(cat "$work/err")"
for words in "The table holds the " "Each step of the search runs the plan so far" "Step 1: temperature, round 1"; do
    grep -q "$words" "$work/report.html" || fail "the report lacks '$words'"
done

# refused WORDS OPTION...
refused() {
    words=$1
    shift
    search "$@" -o "$work/no.h5"
    code=$?
    [ $code = 64 ] && grep -qF -- "$words" "$work/err" || fail "$*: exit $code: $(cat "$work/err")"
    [ -e "$work/no.h5.journal" ] && fail "$*: began a run"
}
refused "expected settings for --length 256, found those for 128; run dpe-eval tune at that length" --against "$work/tuned128.h5"
search --against "$work/calm.h5" -o "$work/no.h5"
code=$?
[ $code = 65 ] && grep -q "calm.h5: expected a finished table of dpe-eval tune, found another" "$work/err" ||
    fail "--against a table of dpe-detect: exit $code: $(cat "$work/err")"
exit $failed
