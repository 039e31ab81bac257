#!/bin/sh
# ask.sh BIN: dpe ask on the bundled model. Within the trained length the answer is the unchanged model's, beyond it that of the
# formula, and with --budget that of the plan that a search in the document keeps; the last line says what was measured. A
# conversation goes on, keys and values fit into --max-memory, and a document that is none is refused by name.
set -u
bin=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
model=$root/data/reference
. "$root/tests/work.sh"
cd "$work" || exit 1

# ask WORDS...: dpe ask of the bundled model; the end of what it says on standard error is in $last.
ask() {
    "$bin/dpe" ask -m "$model" --device cpu --dtype f32 --threads 1 "$@" >out 2>err
    code=$?
    last=$(tail -n 1 err)
    return $code
}
# same PROMPT OPTION...: dpe-run continues the prompt with the same words.
same() {
    printf '%s' "$1" >prompt
    shift
    "$bin/dpe-run" -m "$model" --device cpu --threads 1 --prompt-file prompt "$@" >wanted 2>run || fail "dpe-run: $(cat run)"
    diff wanted out >diff || fail "another answer than dpe-run $*: $(cat diff err)"
}
# document BYTES VALUE: that many bytes of a book, with a number in it.
document() {
    head -c "$1" "$root/data/sample/test/900007.txt" | sed "20s/^/ The number of brave kettle: $2. /"
}
question='Question: What is the number of brave kettle?
Answer: The number of brave kettle:'

# A document within the trained length, as the model is.
document 600 4827193 >short.txt
ask --document short.txt "$question" -n 8 || fail "short: $(cat err)"
grep -q "trained length of 256 tokens, and the model is used unchanged" err || fail "short: $last"
grep -q "has no chat template, so it is taken for a base model" err || fail "no word of the base model: $(cat err)"
same "$(cat short.txt; printf '\n\n%s' "$question")" -n 8

# Beyond it: the formula, made for the document's length; nothing was measured.
document 4500 4827193 >app.log
ask --document app.log "$question" -n 8 || fail "formula: $(cat err)"
case $last in
*"nothing was measured: the plan is a formula; --budget"*) ;;
*) fail "formula: $last" ;;
esac
[ "$(grep -c "nothing was measured" err)" = 1 ] || fail "formula: said more than once: $(cat err)"
grep -q -- "--method" err && fail "formula: an option of dpe-run: $(cat err)"
grep -q 4827193 out || fail "the number is not found: $(cat out err)"
same "$(cat app.log; printf '\n\n%s' "$question")" -n 8 --method dpe -l 2k
find . -name "*.dpe.h5" | grep -q . && fail "a table that nobody asked for"

# The bytes of other systems, and a folder of texts, are the same document.
mkdir -p texts
{ printf '\357\273\277'; sed 's/$/\r/' app.log; } >texts/one.txt
mv out before
ask --document texts "$question" -n 8 || fail "folder: $(cat err)"
cmp -s out before || fail "folder: another answer: $(cat out err)"

# A search in the document; the same again reads nothing, and another question goes on with its table.
ask --document app.log --budget 40ktok "$question" -n 8 || fail "search: $(cat err)"
said=$(printf '%s' "$last" | grep -o '[0-9]* of [0-9]* numbers hidden in this document were found, by the model as it is [0-9]* (app.log.2k.dpe.h5)')
[ -n "$said" ] || fail "search: $last"
grep -q 4827193 out || fail "the number is not found after a search: $(cat out err)"
score=$(h5dump -d /table/evidence_score app.log.2k.dpe.h5 | sed -n 's/.*(0): //p')
echo "$said" | awk -v s="$score" '{ d = $1 / $3 - s; exit !(d < 0.02 && d > -0.02) }' || fail "search: $said, and $score in the table"
same "$(cat app.log; printf '\n\n%s' "$question")" -n 8 --table app.log.2k.dpe.h5
cp app.log.2k.dpe.h5 first.h5
ask --document app.log --budget 40ktok "What is the number of brave kettle, and who is Hugh?" -n 8 || fail "again: $(cat err)"
h5diff --exclude-path=/run first.h5 app.log.2k.dpe.h5 >diff || fail "another question made another table: $(cat diff)"
grep -q "samples to run" err && fail "another question measured again: $(cat err)"
ask --document app.log --table first.h5 "$question" -n 8 || fail "table: $(cat err)"
case $last in
*"nothing was measured of this document: the plan is that of first.h5"*) ;;
*) fail "table: $last" ;;
esac
document 4500 1234567 >other.log
mkdir -p other
cp other.log other/app.log
refused 78 "to search other.log too, give another --table FILE: app.log.2k.dpe.h5: belongs to a different run; corpus:" \
    "$bin/dpe" ask -m "$model" --document other.log --budget 40ktok --table app.log.2k.dpe.h5 --device cpu --dtype f32 a
refused 78 "to search other/app.log too, give another --table FILE: app.log.2k.dpe.h5: belongs to a different run; corpus:" \
    "$bin/dpe" ask -m "$model" --document other/app.log --budget 40ktok --device cpu --dtype f32 a
h5diff --exclude-path=/run first.h5 app.log.2k.dpe.h5 >diff || fail "a refused document changed the table: $(cat diff)"

# A longer answer is another length, which has its own file; a file that --table names serves shorter questions, not longer ones.
ask --document app.log --budget 40ktok "$question" -n 900 || fail "longer: $(cat err)"
case $last in
*"(app.log.3k.dpe.h5)") ;;
*) fail "longer: $last" ;;
esac
ask --document app.log --budget 40ktok --table app.log.3k.dpe.h5 "$question" -n 8 || fail "shorter: $(cat err)"
grep -q "samples to run" err && fail "a shorter question measured again: $(cat err)"
same "$(cat app.log; printf '\n\n%s' "$question")" -n 8 --table app.log.3k.dpe.h5
refused 78 'give another --table FILE: app.log.2k.dpe.h5: belongs to a different run; length: expected "3072", found "2048"' \
    "$bin/dpe" ask -m "$model" --document app.log --budget 40ktok --table app.log.2k.dpe.h5 --device cpu --dtype f32 -n 900 a

# What the conversation would refuse is refused before a search.
early() {
    words=$1
    shift
    "$bin/dpe" ask -m "$model" --document early.log --budget 40ktok --device cpu "$@" >out 2>err && fail "$words: answered"
    grep -qF -- "$words" err || fail "'$words' is not printed: $(cat err)"
    find . -name "early*h5" | grep -q . && fail "$words: after a search"
}
document 4500 2345678 >early.log
printf '{%% for m in messages %%}<{{ m.role }}>{{ m.content }}\n{%% endfor %%}<assistant>' >chat.jinja
early "has no chat template" --system b a
early "has no chat template" --chat a
early "contains the special token" "a <|eos|>"
early "contains the special token" --chat-template chat.jinja --system "<|eos|>" a

# A conversation: the document stands before the first question alone, whether that is on the command line or not.
chat="--document short.txt --chat-template chat.jinja --chat -n 4"
# shellcheck disable=SC2086 # several words
printf 'And who?\n' | ask $chat "What is it?" || fail "chat: $(cat err)"
mv out both
grep -c "tokens read" err | grep -qx 2 || fail "two answers: $(cat err)"
sed -n 's/.* tokens read, \([0-9]*\) kept.*/\1/p' err | tail -n 1 | awk '{ exit !($1 > 100) }' || fail "the document was read twice: $(cat err)"
# shellcheck disable=SC2086 # several words
printf 'What is it?\nAnd who?\n' | ask $chat || fail "chat by lines: $(cat err)"
cmp -s out both || fail "the first question on standard input: another answer: $(diff out both)"

# Keys and values get as narrow as memory wants, and no more of it is used.
ask --document app.log "$question" -n 8 --max-memory 32M || fail "memory: $(cat err)"
grep -q "keys and values are kept in \(bf16\|int8\), as wider ones do not fit into 32.0 MiB" err || fail "memory: $(cat err)"
refused 71 "a smaller --document, --max-new needs less" "$bin/dpe" ask -m "$model" --document app.log --max-memory 4M a
grep -q "are kept in" err && fail "narrow keys and values that do not fit either: $(cat err)"
ask --document app.log "$question" -n 8 --max-memory 32M --kv-cache-dtype f32 || fail "f32: $(cat err)"
grep -q "are kept in" err && fail "f32: $(cat err)"
same "$(cat app.log; printf '\n\n%s' "$question")" -n 8 --method dpe -l 2k
# Their type is that of the length which the table has.
ask --document app.log --budget 40ktok --table typed.h5 --max-memory 40M "$question" -n 900 || fail "typed: $(cat err)"
kept=$(grep -o "are kept in [a-z0-9]*" err) || fail "typed: $(cat err)"
ask --document app.log --budget 40ktok --table typed.h5 --max-memory 40M "$question" -n 8 || fail "a shorter question, typed: $(cat err)"
grep -qF "$kept" err || fail "a shorter question, typed: $(cat err)"
grep -q "samples to run" err && fail "a shorter question, typed: measured again: $(cat err)"

# What is no document.
: >empty.txt
printf ' \n\n' >blank.txt
printf 'abc\377def' >latin.txt
refused 65 "empty.txt" "$bin/dpe" ask -m "$model" --document empty.txt a
refused 65 "blank.txt" "$bin/dpe" ask -m "$model" --document blank.txt a
refused 65 "latin.txt: expected UTF-8, found an invalid byte 0xff at offset 3" "$bin/dpe" ask -m "$model" --document latin.txt a

# A search that is stopped is continued by the same command.
document 4500 7654321 >slow.log
"$bin/dpe" ask -m "$model" --document slow.log --budget 2Mtok --time-budget 1 a >out 2>err
code=$?
[ $code = 75 ] || fail "a time budget: exit $code: $(cat err)"
"$bin/dpe" ask -m "$model" --document slow.log --budget 2Mtok --time-budget 1 -n 900 a >out 2>err
code=$?
[ $code = 75 ] || fail "a time budget, and another length: exit $code: $(cat err)"
exit $failed
