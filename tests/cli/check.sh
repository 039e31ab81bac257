#!/bin/sh
# check.sh BIN TOOL: the help text of a tool is exactly tests/cli/TOOL.help, and each line of
# tests/cli/TOOL.errors ("EXIT|WORDS THAT MUST APPEAR|ARGUMENTS") ends with that exit code, prints those
# words on stderr and nothing on stdout, and leaves no file.
# TOOL may be dpe-TOOL-COMMAND for the sub-command of a tool.
# After an intended change: check.sh BIN TOOL --update rewrites the help text; read the diff.
set -u
bin=$1
tool=$2
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
run="$bin/$tool"
[ -x "$run" ] || run="$bin/${tool%-*} ${tool##*-}"

export COLUMNS=80 LC_ALL=C
$run --help >"$work/help" 2>"$work/err" || { echo "$tool --help failed"; failed=1; }
$run --help=all >"$work/all" 2>>"$work/err" || { echo "$tool --help=all failed"; failed=1; }
[ -s "$work/err" ] && { echo "$tool --help wrote to stderr"; failed=1; }
# The golden file has the short page, a line, and the page of all options, where that is another.
cp "$work/help" "$work/both"
cmp -s "$work/help" "$work/all" || { echo ---- --help=all; cat "$work/all"; } >>"$work/both"
if [ "${3:-}" = "--update" ]; then
    cp "$work/both" "$here/$tool.help"
fi
diff -u "$here/$tool.help" "$work/both" || { echo "$tool --help differs from tests/cli/$tool.help"; failed=1; }
# Every option of the long page is one that shells complete.
$run --completion | sed 's/[=\t].*//' | sort -u >"$work/words"
sed -n 's/^ \{2,6\}\(-., \)\{0,1\}\(--[a-z0-9-]*\).*/\2/p' "$work/all" | sort -u |
    diff "$work/words" - || { echo "$tool: help and completion list different options"; failed=1; }
# -h, -v and a shell's completion are made from the same tables.
$run -h | cmp -s "$work/help" - || { echo "$tool -h differs from --help"; failed=1; }
$run -v | grep -q '^dpe [0-9]' || { echo "$tool -v names no version"; failed=1; }
$run --version | grep -q '^dpe [0-9]' || { echo "$tool --version names no version"; failed=1; }

# Files for the rows of TOOL.errors.
mkdir "$work/empty" "$work/world"
printf 'not json' >"$work/world/config.json"
printf 'some words\n' >"$work/text.txt"
printf 'no table' >"$work/norms.h5"
printf 'a <|bos|> b\n' >"$work/special.txt"
printf '# no model\n\n  --prompt = hello you \nn 3\n' >"$work/options"
printf 'chat\n--=3\n' >"$work/options-1"
printf 'options x\n' >"$work/options-2"
printf 'chats' >"$work/options-3"
printf 'm %s/empty\r\nprompt hello' "$work" >"$work/options-4"
if [ -f "$here/$tool.errors" ]; then
    while IFS='|' read -r code words arguments; do
        case $code in '' | '#'*) continue ;; esac
        arguments=$(printf '%s' "$arguments" | sed "s,@ROOT@,$root,g;s,@WORK@,$work,g")
        ls -R "$work/empty" "$work/world" >"$work/before"
        eval "$run $arguments" >"$work/out" 2>"$work/err" </dev/null
        got=$?
        ls -R "$work/empty" "$work/world" >"$work/after"
        if [ "$got" != "$code" ]; then
            echo "$tool $arguments: expected exit $code, got $got: $(cat "$work/err")"
            failed=1
        elif ! grep -qF -- "$words" "$work/err"; then
            echo "$tool $arguments: expected '$words' on stderr, found: $(cat "$work/err")"
            failed=1
        elif [ -s "$work/out" ]; then
            echo "$tool $arguments: wrote to stdout: $(head -3 "$work/out")"
            failed=1
        elif ! cmp -s "$work/before" "$work/after"; then
            echo "$tool $arguments: left files: $(diff "$work/before" "$work/after")"
            failed=1
        fi
    done <"$here/$tool.errors"
fi
exit $failed
