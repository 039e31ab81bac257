#!/bin/sh
# select_table.sh BIN: a table found under a selection, and used with one: dpe-detect --selection, and
# --method select:KEYS,over=table:FILE in dpe-run and dpe-eval.
set -u
bin=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/world.sh"

# run CODE COMMAND…
run() {
    code=$1
    shift
    got=0
    "$@" >"$work/out" 2>"$work/err" || got=$?
    [ "$got" = "$code" ] || fail "expected exit code $code, found $got: $*: $(cat "$work/err")"
}

says() {
    grep -qF -- "$1" "$work/out" "$work/err" || fail "expected \"$1\": $(cat "$work/out" "$work/err")"
}

detect() {
    code=$1
    keys=$2
    shift 2
    run "$code" "$bin/dpe-detect" --model "$root/data/reference" --corpus "$root/data/sample" -l 384 --groups 1 \
        --lengths 64,128 --samples 4 --select paper --temperature off --selection "$keys" --threads 1 \
        -o "$work/table.h5" "$@"
}

detect 0 k=4,block=16 --dry-run
says "time "
detect 0 k=4,block=16
says "selection k=4,block=16,sinks=16,local=64,refresh=1,representative=mean,unit=kv-head,positions=true,scored=bare in"
says "--method select:k=4,block=16,over=table:$work/table.h5 --length 384 --show --corpus "
detect 78 k=3,block=16
says "selection: expected \"k=3,"
detect 64 k=4,foo=1 --dry-run
says "selection: method select: unknown key 'foo'; keys and defaults: k=8 block=min(64;L0/16) sinks=block local=L0/4"
says "scored=bare"
grep -qE " (over|log-n|infoscale|logit-scale)=" "$work/out" "$work/err" && fail "a key that is not accepted: $(cat "$work/err")"
detect 64 k=4,over=rope --dry-run
says "expected keys of the method select without \"over\""

show() {
    code=$1
    shift
    run "$code" "$bin/dpe-run" --model "$root/data/reference" --show-plan "$@"
}
show 0 --method "select:k=2,block=8,over=table:$work/table.h5" --length 384
says "entry           the only one, for 384 tokens"
says "method          select:k=2,block=8,sinks=8,"
says "over=dpe:window=32,scales="
says "selection       2 of the blocks of 8 keys"
show 0 --method "select:over=table:$work/table.h5" --length 200
says "entry           none: the model is run unchanged"
says "method          rope"
show 64 --method "select:log-n=9,over=table:$work/table.h5" --length 384
says "a temperature belongs to the method or table"
show 66 --method "select:over=table:$work/none.h5" --length 384
show 64 --method "select:over=table:$work/table.h5" --length 384 --trained-length 300
says "the table holds the trained length"
show 64 --method "select:blocks=2,over=table:$work/table.h5" --length 384 --other-model

# What the table was found under stays with it where its form can say so, and whoever applies it alone is told.
under="selection k=4,block=16,sinks=16,local=64,refresh=1,representative=mean,unit=kv-head,positions=true,scored=bare"
run 0 "$bin/dpe-export" "$work/table.h5" -o "$work/exported.h5"
run 0 "$bin/dpe-export" "$work/table.h5" --length 512 -o "$work/longer.h5"
run 0 "$bin/dpe-export" --join "$work/exported.h5" "$work/longer.h5" -o "$work/joined.h5"
run 0 "$bin/dpe-export" "$work/joined.h5" -o "$work/again.h5"
cp "$work/table.h5" "$work/kept.h5"
detect 0 k=5,block=16 --force
run 65 "$bin/dpe-export" --join "$work/longer.h5" "$work/table.h5" -o "$work/mixed.h5"
says "--join: $work/table.h5: found under the selection k=5,block=16"
[ -e "$work/mixed.h5" ] && fail "a table of two selections"
mv "$work/kept.h5" "$work/table.h5"
for table in table exported joined again; do
    run 0 "$bin/dpe-export" --show "$work/$table.h5"
    says "found under        the $under, which the table alone does not apply"
    show 0 --table "$work/$table.h5" --length 384
    says "$table.h5 was found under the $under, which the table alone does not apply; for what was measured: --method select:k=4,"
done
show 0 --table "$work/table.h5" --length 200
grep -q "found under" "$work/err" && fail "a text that needs no table"
show 0 --method "select:k=2,over=table:$work/table.h5" --length 384
grep -q "found under" "$work/err" && fail "a table with a selection"
run 0 "$bin/dpe-export" "$work/joined.h5" -o "$work/exported.json"
says "the table was found under the $under, which no form applies and json does not record"
show 0 --table "$work/exported.json" --length 384
grep -q "found under" "$work/err" && fail "a form that cannot say"

run 0 "$bin/dpe-report" "$work/table.h5" -o "$work/report.html"
grep -qF "met only the keys of the $under, but with the unchanged model" "$work/report.html" || fail "a report without the selection"

# One comparison has both, on the same samples.
run 0 "$bin/dpe-eval" niah --model "$root/data/reference" --corpus "$root/data/sample" -l 384 --samples 2 --threads 1 \
    --table "$work/table.h5" --method "select:k=0,block=16,over=table:$work/table.h5" -o "$work/eval.h5" --json
[ "$(grep -c '"task_length"' "$work/out")" = 2 ] || fail "expected a row for each of two methods"
grep -q 'select:k=0,block=16,over=table:' "$work/out" || fail "expected the selection's row"
# A warning's advice, with every key of the selection, is a method that dpe-eval takes.
cp "$work/table.h5" "$work/a table that was found under a selection.h5"
run 0 "$bin/dpe-eval" niah --model "$root/data/reference" --corpus "$root/data/sample" -l 384 --samples 1 --threads 1 \
    --table "$work/a table that was found under a selection.h5" -o "$work/advice.h5"
advice=$(sed -n 's/.*for what was measured: --method //p' "$work/err")
[ "${#advice}" -gt 159 ] || fail "expected advice: $(cat "$work/err")"
run 0 "$bin/dpe-eval" niah --model "$root/data/reference" --corpus "$root/data/sample" -l 384 --samples 1 --threads 1 \
    --method "$advice" -o "$work/advised.h5"
run 0 "$bin/dpe-run" --model "$root/data/reference" --method "select:k=2,over=table:$work/table.h5" -p Once --max-new 3 --threads 1
exit $failed
