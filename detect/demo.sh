#!/bin/sh
# demo.sh [OUTDIR]: installs what is missing (apt), builds into build/, and finds the effective lengths
# of the bundled model at 8 times its trained length. The table goes to OUTDIR (default: the current
# folder); run again it continues, or shows a finished one.
set -eu
dpe_root=$(cd "$(dirname "$0")/.." && pwd)
. "$dpe_root/tests/setup.sh"

outdir=${1:-.}
mkdir -p "$outdir"
# shellcheck disable=SC2086 # a list of words
dpe_install $dpe_packages
echo "Building into build/"
dpe_build "$dpe_root/build" -DCMAKE_BUILD_TYPE=Release

table=$outdir/effective.h5
echo "Sweeping data/reference (trained length 256) at 2048 tokens with 16 samples."
echo "It may be stopped at any time; the same command continues."
"$dpe_root/build/bin/dpe-detect" --model "$dpe_root/data/reference" --corpus "$dpe_root/data/sample" \
    --length 2048 --samples 16 -o "$table"

cat <<END

What was made: $table, an HDF5 file; outputs/SCHEMA.md says what is in it. To look next:
  h5dump -d /detect/niah/recall_mean $table          (package hdf5-tools)
  h5dump -g /table $table                            what a runtime needs
  $dpe_root/build/bin/dpe-detect --help              sweeps of your own model
  $dpe_root/build/bin/dpe-run --help                 one prompt under any position method
END
