#!/bin/sh
# same_as.sh OLD NEW [FOLDER]: whether two folders of tools behave the same. Both run the same commands, in a folder of
# their own under the same relative names: every tool, resume, two ranks, exports in every form, reports, dry runs, errors
# and help. Tables are compared by h5diff but for /run, all other files, what is printed and exit codes by diff. For changes
# that shall change nothing: never part of the tests. What was compared stays in FOLDER (default: a temporary one).
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/.." && pwd)
[ $# -ge 2 ] || { sed -n 's/^# //p' "$0" | head -4; exit 64; }
old=$(cd "$1" && pwd)
new=$(cd "$2" && pwd)
. "$here/cli/world.sh"
. "$here/cli/mpi_settings.sh"
make_model model
kept=${3:-$work/kept}
export COLUMNS=80 LC_ALL=C

# c NAME TOOL OPTION…: one command. Times, rates and the folder of the tools are washed out of what it prints.
n=0
c() {
    n=$((n + 1))
    name=$(printf '%03d-%s' $n "$1")
    shift
    tool=$1
    shift
    $before "$bin/$tool" "$@" >"$name.out" 2>"$name.err" </dev/null
    echo $? >"$name.code"
    for file in "$name.out" "$name.err"; do
        sed -i "s|$bin/||g; s/[0-9.]* tok[a-z]*\\/s/RATE/g; s/[0-9.]* [a-z]* a sample/TIME/g; s/^time  .*/time/; /^progress/d
            /samples.*left/d; s/[0-9.e+-]* \\(ms\\|s\\|min\\|h\\)\\b/TIME/g" "$file"
    done
}
before=

commands() {
    texts="--model ../model --corpus ../corpus --seed 5 --threads 1 --device cpu"
    sweep="$texts --length 192 --groups 2 --samples 12 --lengths 8,32,64"
    for tool in dpe-run dpe-bench dpe-detect dpe-norms dpe-export dpe-calibrate dpe-eval dpe-report dpe-serve; do
        c help $tool --help
        c all $tool --help=all
        c completion $tool --completion
        c version $tool --version
        c unknown $tool --nosuch
        c letter $tool -Q
        c argument $tool --help=x
        c missing $tool --output
    done
    for command in niah ppl ruler infinitebench compare ablate tune score data; do
        c help dpe-eval $command --help=all
        c completion dpe-eval $command --completion
        c nothing dpe-eval $command
    done
    c paper dpe-detect $sweep --task both --select paper --temperature off -o paper.h5
    c again dpe-detect $sweep --task both --select paper --temperature off -o paper.h5
    c other dpe-detect $sweep --task both --select paper --temperature off -o paper.h5 --seed 6
    c search dpe-detect $sweep --keys-per-context 2 --race --batch 2 --against yarn -o search.h5 --json
    c budget dpe-detect $sweep --haystack shared=2 -o resumed.h5 --time-budget 0.001
    c resumed dpe-detect $sweep --haystack shared=2 -o resumed.h5
    c frequencies dpe-detect $sweep --move frequencies -o frequencies.h5 --csv
    c dry dpe-detect $sweep --dry-run
    command -v mpirun >/dev/null && before="mpirun -n 2"
    c ranks dpe-detect $sweep --keys-per-context 2 --race --batch 2 -o ranks.h5
    before=
    c norms dpe-norms $texts --lengths 32,64 --samples 4 -o norms.h5
    c norms dpe-norms $texts --lengths 32 --samples 4 -o norms.json --json --dry-run
    c export dpe-export search.h5 norms.h5 --top-k 0.75 -o table.h5
    for form in json yaml safetensors csv pt; do
        c export dpe-export table.h5 -o table.$form
    done
    c scores dpe-export search.h5 norms.h5 -o scores.pt
    c hf dpe-export table.h5 --format hf -m ../model -o config.json
    c longrope dpe-export frequencies.h5 --format longrope -m ../model -o longrope.json
    c back dpe-export table.json -o back.h5
    c show dpe-export table.h5 --show
    c check dpe-export table.h5 --check --json
    c method dpe-export --method yarn:scale=2 -m ../model --length 128 -o yarn.h5
    c join dpe-export --join yarn.h5 table.h5 -o joined.h5
    c input dpe-export table.json -o table.json --force
    methods="$texts --quiet --samples 4 --method rope --method self-extend --table table.json -l 128,192"
    c niah dpe-eval niah $methods -o niah.h5
    c ppl dpe-eval ppl $methods -o ppl.h5 --csv
    c compare dpe-eval compare $methods --suite niah --suite ppl -o compare.h5 --json
    c dry dpe-eval niah $methods --dry-run
    c ablate dpe-eval ablate $texts --quiet --samples 4 --table search.h5 --norms norms.h5 --what top-k --values 4,8 -o ablate.h5
    c tune dpe-eval tune $texts --quiet -l 192 --method yarn:scale=1/2 --budget 16 -o tune.h5
    c data dpe-eval data -m ../model -l 1024 --samples 1 --tasks vt -o data
    c info dpe-run -m ../model --info --json
    c run dpe-run -m ../model --table table.h5 -p Once -n 8 --device cpu
    c nll dpe-run -m ../model --method yarn:scale=4 --nll ../corpus/900000.txt --context 192 --device cpu
    c plan dpe-run -m ../model --method dpe:scales=2 --show-plan
    c tokens dpe-run -m ../model --tokenize ../corpus/900000.txt
    c report dpe-report search.h5 norms.h5 niah.h5 ppl.h5 ablate.h5 tune.h5 -o all.html --figures figures
    batch="$texts --quiet --task ppl --groups 2 --samples 9 --lengths 16,32 --window 16 --norm-lengths 32 --norm-samples 2"
    c calibrate dpe-calibrate $batch -l 96,128 -o calibrated
    c again dpe-calibrate $batch -l 96,128 -o calibrated
    c dry dpe-calibrate $batch -l 96,128 -o none --dry-run
    c bad dpe-calibrate $batch -l 96,96 -o none
    # The rows of bad command lines that the tests have.
    for file in "$root"/tests/cli/*.errors; do
        tool=$(basename "$file" .errors)
        while IFS='|' read -r code words arguments; do
            case $code in '' | '#'*) continue ;; esac
            arguments=$(printf '%s' "$arguments" | sed "s,@ROOT@,$root,g;s,@WORK@,errors,g")
            case $tool in
            dpe-eval-*) eval "c error dpe-eval ${tool#dpe-eval-} $arguments" ;;
            *) eval "c error $tool $arguments" ;;
            esac
        done <"$file"
    done
}

rm -rf "$kept/model" "$kept/corpus" "$kept/old" "$kept/new"
mkdir -p "$kept/old" "$kept/new"
cp -r "$work/model" "$work/corpus" "$kept"
for side in old new; do
    eval "bin=\$$side"
    cd "$kept/$side" || exit 1
    mkdir -p errors/empty errors/world
    printf 'not json' >errors/world/config.json
    printf 'some words\n' >errors/text.txt
    printf 'no table' >errors/norms.h5
    printf 'a <|bos|> b\n' >errors/special.txt
    n=0
    commands
    cd "$here" || exit 1
done
cd "$kept" || exit 1
(cd old && find . -type f | sort) >files.old
(cd new && find . -type f | sort) >files.new
diff files.old files.new || failed=1
tables=0
while read -r file; do
    case $file in
    *.h5)
        tables=$((tables + 1))
        same "old/$file" "new/$file"
        ;;
    *.sha256 | *.zip | *.pt | *.png | *report.html | *all.html) ;; # hold what /run holds, or times
    *) diff -u "old/$file" "new/$file" || failed=1 ;;
    esac
done <files.old
[ $failed = 0 ] && echo "$n commands, $tables tables: the same"
exit $failed
