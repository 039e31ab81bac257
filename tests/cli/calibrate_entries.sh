#!/bin/sh
# calibrate_entries.sh BIN PYTHON: dpe-calibrate with several lengths. Every part is what its tool makes of the same
# options by itself, the profile is measured once, a longer sweep begins where the shorter one ended, a batch that
# is killed between two entries and continued is the undisturbed one, and a length that is added keeps the others.
set -u
bin=$(cd "$1" && pwd)
python=$2
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/world.sh"
make_model model
common="--model $work/model --corpus $work/corpus --seed 5 --threads 1 --quiet"
sweep="--task ppl --niah special=literal --groups 2 --samples 9 --window 8"
profile="--norm-lengths 32 --norm-samples 2 --special-in-text literal"

# calibrate NAME OPTIONS: into $work/NAME; its output goes to out and err.
calibrate() {
    name=$1
    shift
    # shellcheck disable=SC2086 # lists of words
    "$bin/dpe-calibrate" $common $sweep $profile -o "$work/$name" "$@" >"$work/out" 2>"$work/err"
}
# Lengths in any order; the number of pairs of every entry is measured.
calibrate whole -l 192,96,128 || fail "three lengths: $(cat "$work/err")"
(cd "$work/whole" && find . -type f | sort) >"$work/files"
for file in norms.h5 table.h5 table.json table.safetensors config.json scores.pt check.h5 report.html forms.sha256; do
    grep -qx "./$file" "$work/files" || fail "$file is missing: $(cat "$work/files")"
done
for length in 96 128 192; do
    for file in detect.h5 ablate.h5 table.h5 table.yaml table.csv; do
        grep -qx "./$length/$file" "$work/files" || fail "$length/$file is missing"
    done
done
[ "$(wc -l <"$work/files")" = 24 ] || fail "files: $(cat "$work/files")"
grep -q "^entries  *3, for 96, 128, 192 tokens\$" "$work/out" && [ "$(grep -c "^Key pairs of each head (" "$work/out")" = 3 ] ||
    fail "the summary: $(cat "$work/out")"
grep -q "</svg>" "$work/whole/report.html" || fail "a report without figures"

# Each part by itself. Which lengths a longer sweep tries follows from the shorter one's table.
"$python" - "$work/whole" >"$work/lengths" <<'END' || fail "where the sweeps begin"
import sys, h5py
shorter, limited = None, 0
for length in (96, 128, 192):
    file = h5py.File(f"{sys.argv[1]}/{length}/detect.h5")
    tried = sorted(file["length"][()].tolist())
    if shorter:
        was, chosen = shorter
        grid = [length >> k for k in range(8) if length >> k >= 8]
        near = [t for t in grid if t == length or 32 <= t <= 64 or any(
            e < was and 1 / (2 if yes else 2 ** 0.5) <= t / e <= (2 if yes else 2 ** 0.5) for e, yes in chosen)]
        assert tried == sorted(near if len(near) > 1 else grid), (length, tried, near, chosen)
        limited += len(tried) < len(grid)
    shorter = length, [(e, yes) for e, yes in zip(
        file["select/selected_length"][()].tolist(), file["detect/informative"][()]) if e > 0]
    print("auto" if len(tried) == len([length >> k for k in range(8) if length >> k >= 8]) else ",".join(map(str, tried)))
assert limited > 0, "no sweep began at a shorter one"
END
for case in 96:1 128:2 192:3; do
    length=${case%%:*}
    # shellcheck disable=SC2086
    "$bin/dpe-detect" $common $sweep -l "$length" --lengths "$(sed -n "${case#*:}p" "$work/lengths")" -o "$work/$length.h5" \
        >"$work/out" 2>"$work/err" || fail "dpe-detect $length: $(cat "$work/err")"
    same "$work/$length.h5" "$work/whole/$length/detect.h5"
    "$bin/dpe-export" "$work/whole/table.h5" --entry "$length" -o "$work/entry.h5" --force >"$work/out" 2>"$work/err" ||
        fail "entry $length: $(cat "$work/err")"
    h5diff "$work/entry.h5" "$work/whole/$length/table.h5" /table >"$work/diff" 2>&1 || fail "entry $length: $(cat "$work/diff")"
done
"$python" - "$work/whole/check.h5" "$work/whole/192/detect.h5" <<'END' || fail "what the check compares"
import sys, h5py
file = h5py.File(sys.argv[1])
methods = [text.decode() for text in file["method"][()]]
# Of the methods that the longest sweep's validation has, the best one is compared too.
longest = h5py.File(sys.argv[2])
names = [text.decode() for text in longest["validated_plan"][()]]
found = {name: value for name, value in zip(names, longest["validate/ppl/perplexity"][()])
         if name not in ("rope", "base", "joint", "single")}
assert sorted(found) == ["leaky-rerope", "self-extend", "yarn"], names
assert methods == ["rope", min(found, key=found.get), "table:192/table.h5", "table:table.h5"], methods
assert file["eval/ppl/task_length"][()].tolist() == [96, 128, 192]
plan = file["eval/ppl/plan"][()]
assert len(set(plan[2])) == 1 and plan[2][2] == plan[3][2] and plan[0][0] not in plan[1:]
END

# The same command again changes nothing; from scratch the longer sweeps try every length.
cp "$work/whole/table.h5" "$work/before.h5"
cp "$work/whole/check.h5" "$work/check.h5"
calibrate whole -l 96,128,192 || fail "again: $(cat "$work/err")"
same "$work/before.h5" "$work/whole/table.h5"
same "$work/check.h5" "$work/whole/check.h5"
calibrate scratch -l 96,128 --start scratch --top-k 8 || fail "--start scratch: $(cat "$work/err")"
h5dump -d /length "$work/scratch/128/detect.h5" | tr -d ' \n' | grep -q "(0):8,16,32,64,128}" || fail "--start scratch did not try all"
calibrate given -l 96,128 --lengths 32,64 --top-k 8 || fail "--lengths: $(cat "$work/err")"
h5dump -d /length "$work/given/128/detect.h5" | tr -d ' \n' | grep -q "(0):32,64}" || fail "--lengths was not handed on"

# Killed in the second entry's sweep, with its first rows on disk; and on.
calibrate killed -l 96,128,192 &
pid=$!
until [ -s "$work/killed/128/detect.h5.journal/rank-0000.journal" ] || ! kill -0 $pid 2>/dev/null; do :; done
kill -9 "$(pgrep -P $pid)"
wait $pid
[ -e "$work/killed/96/detect.h5" ] && [ -d "$work/killed/128" ] && [ ! -e "$work/killed/192" ] && [ ! -e "$work/killed/table.h5" ] ||
    fail "killed: $(ls -R "$work/killed")"
calibrate killed -l 96,128,192 || fail "killed, and on: $(cat "$work/err")"
for table in norms table check 96/detect 128/detect 192/detect 96/ablate 192/ablate 128/table; do
    same "$work/whole/$table.h5" "$work/killed/$table.h5"
done
cmp "$work/whole/table.json" "$work/killed/table.json" || fail "table.json of a killed batch differs"

# A longer length is added: what was measured stays.
calibrate grown -l 96,128 || fail "two lengths: $(cat "$work/err")"
calibrate grown -l 96,128,192 || fail "a third: $(cat "$work/err")"
for table in 96/detect 128/detect 192/detect norms; do
    same "$work/whole/$table.h5" "$work/grown/$table.h5"
done
h5diff "$work/whole/table.h5" "$work/grown/table.h5" /table >"$work/diff" 2>&1 || fail "a table that grew: $(cat "$work/diff")"

# So is a shorter one; and a sweep that was moved away is made again. A form that dpe-calibrate did not write stays.
calibrate shorter -l 128,192 --top-k 8 || fail "two longer lengths: $(cat "$work/err")"
calibrate shorter -l 96,128,192 --top-k 8 || fail "a shorter third: $(cat "$work/err")"
mv "$work/shorter/96/detect.h5" "$work/away.h5"
calibrate shorter -l 96,128,192 --top-k 8 || fail "a sweep that was moved away: $(cat "$work/err")"
for table in 96/detect 192/detect norms; do
    same "$work/whole/$table.h5" "$work/shorter/$table.h5"
done
# The rows of the lengths that 128 tried by itself are kept.
h5diff "$work/whole/128/detect.h5" "$work/shorter/128/detect.h5" /detect >"$work/diff" 2>&1 || fail "a shorter third: $(cat "$work/diff")"
mkdir "$work/given/192"
echo mine >"$work/given/192/table.csv"
calibrate given -l 96,128,192 --lengths 32,64 --top-k 8
code=$?
[ $code = 73 ] && grep -q "given/192/table.csv: exists, but no calibration was begun in this folder for these" "$work/err" ||
    fail "a stranger's form in a new entry: $code, $(cat "$work/err")"
[ "$(cat "$work/given/192/table.csv")" = mine ] || fail "a stranger's form was replaced"

# A form of an entry that was edited is not replaced, and a folder of another calibration is not mixed up.
echo >>"$work/killed/128/table.csv"
calibrate killed -l 96,128,192
code=$?
[ $code = 78 ] && grep -q "killed/128/table.csv: was changed after dpe-calibrate wrote it" "$work/err" || fail "an edited form: $code, $(cat "$work/err")"
calibrate one -l 96 --top-k 8 || fail "one length: $(cat "$work/err")"
[ -e "$work/one/96" ] && fail "one length has a folder of its own"
calibrate one -l 96,128 --top-k 8
code=$?
[ $code = 73 ] && grep -q "one/table.h5: exists, but no calibration was begun" "$work/err" || fail "a folder of one length: $code, $(cat "$work/err")"

# The price of all parts is the sum of theirs.
calibrate none -l 96,128,192 --dry-run || fail "--dry-run: $(cat "$work/err")"
[ "$(grep -c '^tokens  ' "$work/out")" = 10 ] && [ "$(grep -c '^all parts ' "$work/out")" = 1 ] || fail "--dry-run: $(cat "$work/out")"
awk '/^tokens /{ sum += $2 } /^operations /{ work += $2 } /^all parts/{ tokens = $5; operations = $7 }
    END { exit !(tokens > 0.99 * sum && tokens < 1.01 * sum && operations > 0.99 * work && operations < 1.01 * work) }' "$work/out" ||
    fail "the sums of --dry-run: $(cat "$work/out")"
[ -e "$work/none" ] && fail "a dry run left files"

# What the pilot of an entry's sweep chose is what its pairs are measured on; the check asks what the user asks.
"$bin/dpe-calibrate" --model "$root/data/reference" --corpus "$root/data/sample" --trained-length 32 --threads 1 \
    --quiet --task auto --samples 4 --groups 1 --lengths 16,32 --select paper --temperature off --norm-lengths 32 \
    --norm-samples 2 -l 224,256 -o "$work/auto" --force >"$work/out" 2>"$work/err" || fail "--task auto: $(cat "$work/err")"
"$python" - "$work/auto" <<'END' || fail "the task of the check, or of the pairs, is another one"
import re, sys, h5py
def task(name):
    with h5py.File("%s/%s" % (sys.argv[1], name)) as file:
        if "detect.h5" in name:
            assert file["/detect"].attrs["pilot"]
            text = file["/detect"].attrs["niah_parameters"]
        else:
            fields = dict(zip(file["/identity/field"][()], file["/identity/value"][()]))
            text = fields[b"niah_parameters"]
    return re.findall("(keys|values|asked)=([0-9]+)", text.decode() if isinstance(text, bytes) else text)
sweeps = {length: task("%d/detect.h5" % length) for length in (224, 256)}
user = [("keys", "1"), ("values", "4")]
assert any(sweep != user for sweep in sweeps.values()), sweeps
assert task("check.h5") == user, task("check.h5")
for length in sweeps:
    assert task("%d/ablate.h5" % length) == sweeps[length], (length, sweeps)
END
exit $failed
