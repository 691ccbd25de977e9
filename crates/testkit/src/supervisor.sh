# Runs one server for its owner. Obeys one word per line on stdin and answers each with one line:
#   start    starts the server, answers its pid
#   reap     waits until the server and the children that a signal reached have ended, answers its exit code
#   <SIGNAL> sends it, answers the exit code of kill
# STOP, CONT and KILL reach the server's children as well: PostgreSQL answers each client from a child of its own.
# The owner alone holds the other end of stdin. When it is gone, for whatever reason, the server ends and its folder goes.
# A server that ended by itself stays a zombie until reaped, so its pid can never mean another process; builtins only before the end.
# $1 folder  $2 log file  $3 last signal  $4.. the server's command
folder=$1 log=$2 last=$3 pid= children=
shift 3

while read -r word; do
    case $word in
    start)
        "$@" >>"$log" 2>&1 </dev/null &
        pid=$! children=
        echo "$pid"
        ;;
    reap)
        wait "$pid"
        code=$?
        # One that was killed may end a moment later, and until then it holds PostgreSQL's shared memory.
        for child in $children; do
            while read -r _ _ state _ <"/proc/$child/stat" && [ "$state" != Z ]; do sleep 0.01; done
        done
        echo "$code"
        pid=
        ;;
    STOP | CONT | KILL)
        [ "$word" = CONT ] || kill -s STOP "$pid" # No new child while the list is read.
        read -r children <"/proc/$pid/task/$pid/children"
        # shellcheck disable=SC2086 # One word per child.
        kill -s "$word" $children "$pid"
        echo "$?"
        ;;
    *)
        kill -s "$word" "$pid"
        echo "$?"
        ;;
    esac
done

if [ -n "$pid" ]; then
    kill -s "$last" "$pid"
    # What is stopped hears no signal but KILL.
    read -r children <"/proc/$pid/task/$pid/children"
    # shellcheck disable=SC2086 # One word per child.
    kill -s CONT $children "$pid"
    patience=100
    while [ "$last" != KILL ] && read -r _ _ state _ <"/proc/$pid/stat" && [ "$state" != Z ] && [ $patience -gt 0 ]; do
        patience=$((patience - 1))
        sleep 0.05
    done
    [ $patience -gt 0 ] || kill -s KILL "$pid"
    wait "$pid"
fi
# Children of the server may outlive it by a moment and write into the folder.
for _ in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf "$folder" && break
    sleep 0.1
done
