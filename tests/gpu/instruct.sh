#!/bin/sh
# instruct.sh -m MODEL -c CORPUS [-t CHAT] [-o RESULTS] [-s SECONDS] [-n SAMPLES] [-x TIMES] [-d DEVICE]: a
# real instruct model calibrated on a GPU at 8 (TIMES) × its trained length, with 25 samples, by the tools beside
# this. Its recall at the trained length comes first: where it finds less than half of four values of a key,
# the rest is about one key with one value. RESULTS (default: instruct/) gets that table, the calibration's folder and
# calibrate.txt, the tool's output. Out of time (-s, default 540): exit 75, and the same command continues.
set -u
here=$(cd "$(dirname "$0")" && pwd)
bin=$(dirname "$here")/bin
model= corpus= chat= out=instruct seconds=540 samples=25 times=8 device=cuda
while getopts m:c:t:o:s:n:x:d: option; do
    case $option in
    m) model=$OPTARG ;;
    c) corpus=$OPTARG ;;
    t) chat=$OPTARG ;;
    o) out=$OPTARG ;;
    s) seconds=$OPTARG ;;
    n) samples=$OPTARG ;;
    x) times=$OPTARG ;;
    d) device=$OPTARG ;;
    *) exit 64 ;;
    esac
done
[ -n "$model" ] && [ -n "$corpus" ] || { echo "instruct.sh: -m MODEL and -c CORPUS are needed" >&2; exit 64; }
mkdir -p "$out" || exit 73
begin=$(date +%s)
trained=$("$bin/dpe-run" -m "$model" --info | awk '/^trained length/ { print $3 }')
[ -n "$trained" ] || exit 66
common="-m $model --corpus $corpus --device $device --samples $samples --quiet"
[ -n "$chat" ] && common="$common --chat-template $chat"

# recall NAME OPTION…: of rope at the trained length, in percent, into NAME.h5; ends the script when that fails.
recall() {
    name=$1
    shift
    "$bin/dpe-eval" niah $common -l "$trained" --method rope "$@" --time-budget "$seconds" -o "$out/$name.h5" \
        >"$out/$name.txt" || { code=$?; cat "$out/$name.txt"; exit $code; }
    found=$(awk '$1 == "rope" { print $2; exit }' "$out/$name.txt")
    [ -n "$found" ] || { echo "instruct.sh: dpe-eval printed no recall ($out/$name.txt)" >&2; exit 70; }
    echo "recall at the trained length $trained, $name: $found %"
}
recall four-values
sample="--niah keys=4,asked=4"
if awk -v found="$found" 'BEGIN { exit !(found < 50) }'; then
    sample="--niah keys=1,values=1"
    recall one-value $sample
fi
left=$((seconds - ($(date +%s) - begin)))
[ "$left" -gt 0 ] || exit 75
"$bin/dpe-calibrate" $common -l "$((times * trained))" $sample \
    --time-budget "$left" -o "$out/calibrated" >"$out/calibrate.txt"
code=$?
cat "$out/calibrate.txt"
exit $code
