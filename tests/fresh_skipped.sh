#!/bin/sh
# fresh_skipped.sh: fresh.sh in a container that does not permit unshare is skipped with a line, with CI in the environment too; without
# mmdebstrap it fails there. The programs that it asks for are stand-ins.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for program in id mmdebstrap unshare; do
    printf '#!/bin/sh\n%s\n' "$([ $program = unshare ] && echo 'exit 1' || echo 'echo 0')" >"$work/$program"
    chmod +x "$work/$program"
done
for program in sh dirname cat; do
    ln -s "$(command -v $program)" "$work/$program"
done
for ci in "" 1; do
    code=0
    PATH=$work CI=$ci "$(dirname "$0")/fresh.sh" demo 2>"$work/err" || code=$?
    [ $code = 125 ] && grep -q "unshare --mount --pid is not permitted" "$work/err" || {
        echo "FAILED: CI='$ci': exit $code: $(cat "$work/err")"
        exit 1
    }
done
rm "$work/mmdebstrap"
code=0
PATH=$work CI=1 "$(dirname "$0")/fresh.sh" demo 2>"$work/err" || code=$?
[ $code = 1 ] && grep -q "mmdebstrap is missing" "$work/err" || {
    echo "FAILED: without mmdebstrap: exit $code: $(cat "$work/err")"
    exit 1
}
