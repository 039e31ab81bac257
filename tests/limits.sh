# Sourced by tests that wait for other processes.

# After this many seconds a run or a wait counts as hung. It only has to end a hang: work that goes on is
# never cut off, however busy the machine is. ctest's own limit (CMakeLists.txt) is longer.
limit=1800

# wait_until COMMAND...: until the command succeeds; false after $limit seconds.
wait_until() {
    waited_since=$(date +%s)
    until "$@"; do
        [ $(($(date +%s) - waited_since)) -lt $limit ] || return 1
        sleep 0.02
    done
}
# bytes FILE MORE: whether FILE has more bytes than MORE; one that does not exist has none.
bytes() {
    [ "$(cat "$1" 2>/dev/null | wc -c)" -gt "$2" ]
}
# gone PID: whether the process has ended. One that its parent has not waited for yet has ended as well.
gone() {
    case $(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null) in
    "" | Z) return 0 ;;
    esac
    return 1
}
