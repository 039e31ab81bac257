#!/bin/sh
# report.sh BIN PYTHON [browser]: dpe-report on tables of every kind, some with hostile names: the page,
# figures and CSV files are well-formed and true to the tables; rsvg-convert missing or failing; a kill
# midway; tables of different models; files that are not reports.
set -u
bin=$1
python=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
. "$here/../../limits.sh"
cd "$work" || exit 1
export LC_ALL=C

if ! command -v rsvg-convert >/dev/null; then
    echo "rsvg-convert is missing: install librsvg2-bin (tests/setup.sh)"
    exit 1
fi
"$python" "$here/report_tables.py" . || exit 1
sha256sum ./*.h5 >tables.sum

# expect CODE WORDS ARGUMENTS...: dpe-report ends with the code and prints the words.
expect() {
    code=$1
    words=$2
    shift 2
    "$bin/dpe-report" "$@" >out 2>err
    got=$?
    if [ "$got" != "$code" ] || ! grep -qF -- "$words" err || [ -s out ]; then
        echo "dpe-report $*: expected exit $code and '$words', got $got: $(cat err out)"
        failed=1
    fi
}

all="detect.h5 norms.h5 table.h5 several.h5 compare.h5 grid.h5 rank.h5 topk.h5 lastk.h5 scaled.h5 scaledk.h5"
# shellcheck disable=SC2086 # a list of words
expect 0 "is written" $all -o all.html --figures figures
"$python" "$here/report_check.py" all.html figures . || failed=1
if [ "${3:-}" = browser ]; then
    "$python" "$here/report_browser.py" all.html
    # 125: Chromium is not installed, and this is not CI.
    case $? in 0 | 125) ;; *) failed=1 ;; esac
fi
# In another order, and again over the first one. Nothing but the order changes.
expect 0 "is written" several.h5 scaled.h5 lastk.h5 grid.h5 topk.h5 rank.h5 compare.h5 norms.h5 detect.h5 -o all.html
for one in detect.h5 flat.h5 guarded.h5 table.h5 several.h5 norms.h5 compare.h5 single.h5 many.h5 grid.h5 rank.h5; do
    expect 0 "is written" "$one" -o "$one.html"
    "$python" "$here/report_check.py" "$one.html" || failed=1
done
# What dpe-detect said is what the page says, a paragraph a line; the first one leads.
grep -q '<p class="lead">Take &lt;what&gt;; the table holds it\.</p>' guarded.h5.html &&
    grep -q '<p>2 plans were tried in 4 contexts; a larger <span class="o">--budget</span> tries more\.</p>' guarded.h5.html ||
    { echo "the words of the detection are missing"; failed=1; }
# Two of a kind.
expect 0 "is written" detect.h5 flat.h5 -o two.html
"$python" "$here/report_check.py" two.html || failed=1
grep -q 'id="detect-recall-2"' two.html || { echo "two detections: one is missing"; failed=1; }

grep -q '<h2>Result at 4k tokens (seed 0)</h2>' two.html && grep -q '<h2>Result at 4k tokens (seed 1)</h2>' two.html ||
    { echo "two detections: the titles do not have what differs: $(grep -o '<h2>[^<]*' two.html)"; failed=1; }
# The first figures: what the methods find, then the map of the sweep; the best of a column is bold.
expect 0 "is written" compare.h5 detect.h5 -o first.html
[ "$(grep -o 'figure id="[a-z-]*"' first.html | head -2 | tr '\n' ' ')" = 'figure id="headline" figure id="detect-recall" ' ] ||
    { echo "first figures: $(grep -o 'figure id="[a-z-]*"' first.html | head -2)"; failed=1; }
grep -q 'class="n best"' first.html || { echo "no best value"; failed=1; }

# What runtimes compute from a configuration: one reads another factor of the logits, and one refuses the type.
cat >config.json <<'END'
{"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "max_position_embeddings": 4096, "rope_theta": 10000,
 "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024, "attention_factor": 1.0}}
END
expect 0 "is written" --runtimes config.json --length 2k -o runtimes.html --figures runtimes
"$python" "$here/report_check.py" runtimes.html || failed=1
grep -q 'for a text of 2048 tokens. They do not agree' runtimes.html && grep -q 'SGLang [^<]*: B ≠' runtimes.html ||
    { echo "the page does not mark what differs"; failed=1; }
grep -q '>[^<]*: B ≠</text>' runtimes/runtimes.svg || { echo "the figure marks no difference"; failed=1; }
[ "$(wc -l <runtimes/runtimes.csv)" = 33 ] && grep -q '"transformers"' runtimes/runtimes-list.csv ||
    { echo "the numbers of the runtimes are missing"; failed=1; }
expect 0 "is written" table.h5 --runtimes config.json -o runtimes.html
grep -q 'What each applies of table.h5' runtimes.html && grep -q 'all of it, through' runtimes.html ||
    { echo "the page does not say what is applied of the table"; failed=1; }
expect 73 "is an input" --runtimes config.json -o config.json
echo '{}' >empty.json
expect 65 "expected head_dim" --runtimes empty.json -o r.html --no-figures
[ -e r.html ] && { echo "a bad configuration became a report"; failed=1; }

# The page is no input, whatever of the command line names it.
cp runtimes.html again.html
expect 0 "is written" --o again.html table.h5
expect 0 "is written" --title again.html table.h5 -o again.html

# A folder: its tables, and the page in it.
mkdir folder none
cp norms.h5 compare.h5 folder
expect 0 "folder/report.html is written" folder
"$python" "$here/report_check.py" folder/report.html || failed=1
grep -q '<h2>Contribution of each pair' folder/report.html && grep -q 'methods compared' folder/report.html ||
    { echo "the page of a folder lacks a table"; failed=1; }
expect 66 "none: holds no result table" none

# Different models.
expect 78 "different models" compare.h5 other.h5 -o mixed.html
expect 78 "--mixed-models" compare.h5 other.h5 -o mixed.html
[ -e mixed.html ] && { echo "a refused report was written"; failed=1; }
expect 0 "is written" compare.h5 other.h5 -o mixed.html --mixed-models

# rsvg-convert: failing, silent, slow, missing.
for kind in failing silent slow; do
    mkdir -p "bad/$kind"
done
printf '#!/bin/sh\necho "line 7: no such thing <b>" >&2\nexit 1\n' >bad/failing/rsvg-convert
printf '#!/bin/sh\ncat >/dev/null\n' >bad/silent/rsvg-convert
printf '#!/bin/sh\necho >started\nexec sleep 1000\n' >bad/slow/rsvg-convert
chmod +x bad/*/rsvg-convert
# with KIND CODE WORDS ARGUMENTS...: expect with that converter.
with() {
    path=$PATH
    PATH=$work/bad/$1:$PATH
    shift
    expect "$@"
    PATH=$path
}
with failing 74 "no such thing" detect.h5 -o g.html --figures g
with failing 74 "as PNG: rsvg-convert failed with exit status 1" detect.h5 -o g.html --figures g
with silent 74 "expected a PNG" detect.h5 -o g.html --figures g
[ -e g.html ] && { echo "a report without its figures was written"; failed=1; }
rm -rf g
(PATH=$work/nowhere exec "$bin/dpe-report" detect.h5 -o g.html --figures g) >out 2>err
code=$?
if [ $code != 0 ] || ! grep -qF "librsvg2-bin" err || [ "$(grep -c SVG err)" != 1 ]; then
    echo "no rsvg-convert: expected 0 and one warning, got $code: $(cat err)"
    failed=1
fi
[ -s g/detect-recall.svg ] || { echo "no SVG without rsvg-convert"; failed=1; }
[ -e g/detect-recall.png ] && { echo "a PNG from nowhere"; failed=1; }
"$python" "$here/report_check.py" g.html || failed=1
grep -q '<svg' g.html || { echo "the page has no figures"; failed=1; }
expect 0 "is written" detect.h5 norms.h5 -o g.html --no-figures
"$python" "$here/report_check.py" g.html || failed=1
grep -q '<svg' g.html && { echo "--no-figures has figures"; failed=1; }

# Killed midway: nothing new, and the old one is whole. After a TERM the message is that nothing was written.
cp two.html before.html
for signal in KILL TERM; do
    cp before.html victim.html
    rm -f started
    (PATH=$work/bad/slow:$PATH exec "$bin/dpe-report" detect.h5 norms.h5 -o victim.html --figures victim) >out 2>err &
    child=$!
    wait_until test -e started
    kill -$signal $child
    wait $child
    code=$?
    cmp -s before.html victim.html || { echo "killed by $signal: the old report changed"; failed=1; }
    [ $signal = TERM ] && [ $code != 75 ] && { echo "TERM: expected 75, got $code: $(cat err)"; failed=1; }
done
for left in victim.html.* .victim*; do
    [ -e "$left" ] && { echo "a temporary file was left: $left"; failed=1; }
done

# Files of other programs stay.
echo precious >note.html
expect 78 "is not a report" detect.h5 -o note.html
grep -q precious note.html || { echo "a foreign file was replaced"; failed=1; }
expect 0 "is written" norms.h5 -o note.html --force
expect 73 "is an input" detect.h5 -o detect.h5
expect 73 "no/such/folder" detect.h5 -o no/such/folder/r.html --no-figures
expect 64 "a head has 32 pairs" norms.h5 -o k.html --top-k 33
expect 0 "is written" norms.h5 -o k.html --top-k 0.5
expect 0 "is written" norms.h5 table.h5 -o k2.html --no-figures
grep -q "top 24 of 32 pairs (the table's)" k2.html && echo 'not escaped' && failed=1
grep -q 'top 24 of 32 pairs (the table&#39;s)' k2.html || { echo "the table's k was not taken"; failed=1; }
grep -q 'top 16 of 32 pairs (from <span class="o">--top-k):</span>' k.html || { echo "--top-k was ignored, or is broken at a hyphen"; failed=1; }

# Tables whose content contradicts their attributes.
"$python" - <<'END' || failed=1
import h5py, shutil
shutil.copy("detect.h5", "shape.h5")
with h5py.File("shape.h5", "a") as f:
    del f["/detect/rank"]
    f["/detect/rank"] = [[1, 2], [2, 1]]
shutil.copy("detect.h5", "beyond.h5")
shutil.copy("detect.h5", "missing.h5")
with h5py.File("missing.h5", "a") as f:
    del f["/detect/effective_length"]
with h5py.File("beyond.h5", "a") as f:
    f["/rows/bucket_count"][0] = 12000
shutil.copy("detect.h5", "noplan.h5")
with h5py.File("noplan.h5", "a") as f:
    f["/detect/ppl/perplexity_at"][3, 3] = float("nan")
for folder in ("detect", "validate"):
    shutil.copy("detect.h5", f"unplaced-{folder}.h5")
    with h5py.File(f"unplaced-{folder}.h5", "a") as f:
        del f[f"/{folder}/ppl/position"]
shutil.copy("table.h5", "refused.h5")
with h5py.File("refused.h5", "a") as f:
    del f["/table/attention_scaling"]
shutil.copy("compare.h5", "odd.h5")
with h5py.File("odd.h5", "a") as f:
    f["/eval/ppl/ci_low"][...] = 0.0
    f["/eval/ppl/mean"][...] = 1e300
    f["/eval/ppl/ci_high"][...] = float("inf")
    f["/eval/niah/mean"][...] = float("nan")
shutil.copy("compare.h5", "parts.h5")
with h5py.File("parts.h5", "a") as f:
    del f["/eval/ruler/category"], f["/eval/ppl/position"]
shutil.copy("topk.h5", "oddsteps.h5")
with h5py.File("oddsteps.h5", "a") as f:
    f["/ablate/value"][...] = float("inf")
shutil.copy("rank.h5", "steps.h5")
with h5py.File("steps.h5", "a") as f:
    del f["/ablate/axis"]
    f.create_dataset("/ablate/axis", data=["rank"], dtype=h5py.string_dtype())
shutil.copy("compare.h5", "methods.h5")
with h5py.File("methods.h5", "a") as f:
    del f["/method"]
    f.create_dataset("/method", data=["rope"], dtype=h5py.string_dtype())
END
expect 65 "shape.h5: has no checksum" shape.h5 -o bad.html --no-figures
expect 65 "/detect/rank: expected the shape" --unchecked shape.h5 -o bad.html --no-figures
cp odd.h5 bare.h5
expect 0 "is written" --unchecked bare.h5 -o bare.html --no-figures
"$python" "$(dirname "$0")/../../lib/checksum.py" unplaced-*.h5 refused.h5 missing.h5 shape.h5 beyond.h5 noplan.h5 odd.h5 parts.h5 oddsteps.h5 steps.h5 methods.h5
expect 0 "is written" odd.h5 oddsteps.h5 -o odd.html
expect 0 "is written" parts.h5 -o parts.html --no-figures
expect 65 "/detect/rank: expected the shape [2, 8], found [2, 2]" shape.h5 -o bad.html --no-figures
expect 65 "error: missing.h5: /detect/effective_length: is not there" missing.h5 -o bad.html --no-figures
expect 65 "beyond.h5: /rows/bucket_count: does not match" beyond.h5 -o bad.html --no-figures
expect 0 "is written" noplan.h5 -o odd.html --figures odd
grep -q '^"3","256","1","NaN"' odd/detect-positions.csv || { echo "a cell without rows has a value"; failed=1; }
for folder in detect validate; do
    expect 0 "is written" "unplaced-$folder.h5" -o odd.html --no-figures
    grep -q "$folder-positions" odd.html && { echo "$folder: values without positions are shown"; failed=1; }
done
expect 65 "re-export the table" refused.h5 -o bad.html --no-figures
expect 65 "/ablate/axis: expected the shape [10], found [1]" steps.h5 -o bad.html --no-figures
expect 65 "/eval/niah/plan: expected the shape [1, 4], found [32]" methods.h5 -o bad.html --no-figures
head -c 3000 norms.h5 >cut.h5
expect 65 "cut.h5" cut.h5 -o bad.html --no-figures
[ -e bad.html ] && { echo "a bad table became a report"; failed=1; }

sha256sum -c --quiet tables.sum || failed=1
exit $failed
