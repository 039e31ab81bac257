# Completion of the dpe tools for bash. The tools print their options and choices themselves.
_dpe() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} tool=("$1") line IFS=$'\n'
    COMPREPLY=()
    # bash splits --option=value at '=': join what belongs together.
    if [[ $cur == "=" ]]; then
        cur=$prev=
    elif [[ $prev == "=" && $COMP_CWORD -ge 2 ]]; then
        cur=${COMP_WORDS[COMP_CWORD-2]}=$cur
    fi
    if [[ ${1##*/} == dpe-eval ]]; then
        if [[ $COMP_CWORD -eq 1 && $cur != -* ]]; then
            COMPREPLY=($(compgen -W $'niah\nppl\nruler\ninfinitebench\ncompare\ncheck\nablate\ntune\nkld\nscore\ndata' -- "$cur"))
            return
        fi
        [[ ${COMP_WORDS[1]} == -* ]] || tool+=("${COMP_WORDS[1]}")
    fi
    if [[ $cur == --* ]]; then
        for line in $("${tool[@]}" --completion 2>/dev/null | cut -f1); do
            if [[ $cur == *=* ]]; then
                [[ $line == "$cur"* ]] && COMPREPLY+=("${line#*=}")
            elif [[ $line == "$cur"* && $line != *=?* ]]; then
                COMPREPLY+=("$line")
            fi
        done
        [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
        [[ ${#COMPREPLY[@]} -gt 0 || $cur != *=* ]] && return
        cur=${cur#*=}
    fi
    compopt -o filenames
    COMPREPLY=($(compgen -f -- "$cur"))
}
complete -F _dpe dpe-ask dpe-run dpe-bench dpe-detect dpe-norms dpe-export dpe-calibrate dpe-eval dpe-report dpe-serve
