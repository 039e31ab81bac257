#!/bin/bash
# completion.sh BIN: what bash offers after the beginning of a command line, and that zsh reads its function.
set -u
bin=$1
shell=$(cd "$(dirname "$0")/../../engine/tool/shell" && pwd)
failed=0
PATH=$bin:$PATH
# shellcheck source=/dev/null
source "$shell/dpe.bash"
compopt() { :; } # only inside a real completion

# expect WORDS COMMAND-LINE-WORD…: the words that are offered for the last one.
expect() {
    local words=$1
    shift
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    _dpe "$1"
    if [ "${COMPREPLY[*]}" != "$words" ]; then
        echo "$*: expected '$words', found '${COMPREPLY[*]}'"
        failed=1
    fi
}
expect '--length= --lengths= --log-format=' dpe-detect --l
expect 'niah' dpe-eval n
expect '--stride=' dpe-eval ppl --st
expect '' dpe-eval niah --st
expect 'cpu cuda' dpe-detect --device = c
expect 'json' dpe-run --log-format = j
cd "$shell" || exit 1
expect "dpe.bash" dpe-run -m dp
if command -v zsh >/dev/null; then
    zsh -n "$shell/_dpe" || failed=1
fi
exit $failed
