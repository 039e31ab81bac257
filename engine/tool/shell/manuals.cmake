# cmake -D HELP2MAN=… -D BIN=FOLDER -D OUT=FOLDER -P manuals.cmake: a manual page of every tool and of every command
# of dpe-eval, from what they print for --help=all.
cmake_minimum_required(VERSION 3.25)
set(pages dpe dpe-ask dpe-run dpe-bench dpe-detect dpe-norms dpe-export dpe-calibrate dpe-report dpe-eval
    "dpe-eval niah" "dpe-eval ppl" "dpe-eval ruler" "dpe-eval infinitebench" "dpe-eval compare" "dpe-eval check" "dpe-eval ablate"
    "dpe-eval tune" "dpe-eval kld" "dpe-eval score" "dpe-eval data")
file(MAKE_DIRECTORY ${OUT})
if(EXISTS ${BIN}/dpe-serve)
    list(APPEND pages dpe-serve)
endif()
foreach(page IN LISTS pages)
    string(REPLACE " " "-" name ${page})
    separate_arguments(words UNIX_COMMAND "${BIN}/${page}")
    execute_process(COMMAND ${CMAKE_COMMAND} -E env COLUMNS=1000 ${words} --help OUTPUT_VARIABLE help)
    string(REGEX MATCH "\n([^\n]*)" unused "${help}")
    set(summary "${CMAKE_MATCH_1}")
    string(REGEX REPLACE "[.:].*" "" summary "${summary}")
    execute_process(COMMAND ${CMAKE_COMMAND} -E env COLUMNS=1000 ${HELP2MAN} --no-info --help-option=--help=all --version-string=${VERSION}
            --name=${summary} --output=${OUT}/${name}.1 "${BIN}/${page}"
        RESULT_VARIABLE failed)
    if(failed)
        message(FATAL_ERROR "${HELP2MAN} failed for ${page}")
    endif()
endforeach()
