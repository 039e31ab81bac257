# Sourced by tests that wait for other processes.

# After this many seconds a run or a wait counts as hung. The limit only has to end a hang: it is long enough that
# a busy machine does not reach it. ctest's own limit (CMakeLists.txt) is longer.
limit=1800

# wait_until COMMAND...: waits until the command succeeds; fails after $limit seconds.
wait_until() {
    waited_since=$(date +%s)
    until "$@"; do
        [ $(($(date +%s) - waited_since)) -lt $limit ] || return 1
        sleep 0.02
    done
}
# bytes FILE COUNT: whether FILE has more than COUNT bytes; a file that does not exist has 0.
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
