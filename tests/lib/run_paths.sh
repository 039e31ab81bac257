#!/bin/sh
# run_paths.sh FOLDER...: no element of the run path of a program or library in these folders is empty or relative. The
# loader takes such an element from the current directory, which can be a downloaded model folder.
set -u
programs=$(mktemp)
trap 'rm -f "$programs"' EXIT
for folder in "$@"; do
    [ ! -d "$folder" ] || find "$folder" -type f \( -perm -u+x -o -name '*.so*' \) -print0
done >"$programs"
# /dev/null, so that readelf names the file also where there is only one.
xargs -0 readelf -d /dev/null <"$programs" 2>/dev/null | awk '
    /^File: / { file = substr($0, 7); files++ }
    /\((RPATH|RUNPATH)\)/ {
        paths++
        sub(/^[^[]*\[/, "")
        sub(/\]$/, "")
        n = split($0, element, ":")
        bad = n == 0
        for (i = 1; i <= n; i++)
            bad = bad || element[i] !~ /^(\/|\$ORIGIN(\/|$)|\$\{ORIGIN\}(\/|$))/
        if (bad) {
            print "FAILED: " file ": run path [" $0 "] has an element that is empty or relative"
            wrong++
        }
    }
    END {
        print files + 0 " files, " paths + 0 " with a run path, " wrong + 0 " wrong"
        exit wrong > 0 || files == 0
    }'
