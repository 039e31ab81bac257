# Sourced by tests of tools: a work folder that is removed at the end, and failures.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "FAILED: $*"
    failed=1
}
# refused CODE WORDS COMMAND...: its exit code, and words on standard error.
refused() {
    code=$1
    words=$2
    shift 2
    "$@" >"$work/out" 2>"$work/err"
    got=$?
    [ $got = "$code" ] || fail "$words: expected exit $code, got $got: $(cat "$work/err")"
    grep -qF -- "$words" "$work/err" || fail "'$words' is not printed: $(cat "$work/err")"
}
