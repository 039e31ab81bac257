#!/bin/sh
# demo.sh [OUTDIR]: installs what is missing (apt), builds into build/, and calibrates the
# bundled model for 8 times its trained length. Everything goes to OUTDIR/calibrated (default: in the
# current folder); run again it continues, or shows a finished one. A signal reaches dpe-calibrate,
# which replaces this shell, so the exit status is that of dpe-calibrate (75: stopped; run the same
# command to continue).
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
Calibrating data/reference (trained length 256) for 2048 tokens: the search for the best plan with 16 samples, the profile
of its heads, how many key pairs to move, the table, a check of it and a report. You can stop it at any
time and run the same command to continue. The results go to $out; outputs/SCHEMA.md describes the .h5 files.
When it has finished, look at:
  $out/report.html                                    in any browser: what was found, with figures
  h5dump -d /detect/niah/recall_mean $out/detect.h5   (package hdf5-tools)
  $dpe_root/build/bin/dpe-run -m $dpe_root/data/reference --table $out/table.h5 -p "Once"
  $dpe_root/build/bin/dpe-calibrate --help           your own model
  $dpe_root/build/bin/dpe-export --help              other forms and other key pairs

END
exec "$dpe_root/build/bin/dpe-calibrate" --model "$dpe_root/data/reference" \
    --corpus "$dpe_root/data/sample" --length 2048 --samples 16 -o "$out"
