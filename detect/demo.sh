#!/bin/sh
# demo.sh [OUTDIR]: installs what is missing (apt), builds into build/, and calibrates the
# bundled model for 16 times its trained length, and asks it for a secret in a text of that length. Everything
# goes to OUTDIR/calibrated (default: in the current folder); run again it continues, or shows a finished one.
# Ended by a signal it has the exit status 75: run the same command to continue.
set -eu
dpe_root=$(cd "$(dirname "$0")/.." && pwd)
. "$dpe_root/tests/setup.sh"

outdir=${1:-.}
mkdir -p "$outdir"
# shellcheck disable=SC2086 # a list of words
dpe_install $dpe_packages
echo "Building into build/"
dpe_build "$dpe_root/build" -DCMAKE_BUILD_TYPE=Release -DDPE_TESTS=OFF

out=$outdir/calibrated
cat <<END
Calibrating data/reference (trained length 256) for 4096 tokens: a search for the best plan with few samples, the
profile of its heads, how many key pairs to move, the table, a check of it and a report. You can stop it at any time
and run the same command to continue. The results go to $out; outputs/SCHEMA.md describes the .h5 files.

END
# A signal is passed on, as SIGTERM, to the tool that is running (in the background it does not get Ctrl-C); the
# shell then waits for it, and ends with its status.
tool=
asked=
stop() {
    asked=1
    [ -z "$tool" ] || kill "$tool" 2>/dev/null || true
}
trap stop TERM INT HUP
run() {
    "$@" &
    tool=$!
    asked=
    code=0
    wait "$tool" || code=$?
    while [ -n "$asked" ] && [ $code -gt 128 ]; do # the signal has ended the wait, not the tool
        asked=
        code=0
        wait "$tool" || code=$?
    done
    [ $code = 0 ] || exit $code
}
run "$dpe_root/build/bin/dpe-calibrate" --model "$dpe_root/data/reference" \
    --corpus "$dpe_root/data/sample" --length 4096 --samples 8 --groups 2 --lengths 64,128,256,512 --against yarn \
    --task user -o "$out"
cat <<END

A text of 4096 tokens with a secret, and what is found of it:
END
run "$dpe_root/build/bin/dpe-run" -m "$dpe_root/data/reference" --table "$out/table.h5" --show --corpus "$dpe_root/data/sample"
cat <<END

Look at:
  $out/report.html                                    in any browser: what was found, with figures
  h5dump -d /detect/niah/recall_mean $out/detect.h5   (package hdf5-tools)
  $dpe_root/README.md                                 twenty minutes with your own model
  $dpe_root/build/bin/dpe-export --help              other forms and other key pairs
END
