#!/bin/sh
# The first minutes with a GPU: all that on_gpu.sh can find out there, the most important parts first.
#
#     gpu_first.sh first    every part
#     gpu_first.sh again    what did not pass the last time, then the benchmark
#
# Each part is a session of processes with a time limit. A part that hangs, crashes or runs late is ended with all its
# processes, and the next one begins; time that a part leaves goes to the last ones. What a part prints goes to
# RESULTS/gpu-first.txt at once (gpu-again.txt), so that a run that is cut off is worth what it has reached. The log
# and the output end with a table. RESULTS/gpu-passed.txt lists what passed; `again` reads the copy in build/gpu-first.
#
# A part may write 256 MiB to a file and 2 MiB to the log, and its temporary files are removed when it ends. Without room
# in RESULTS the log goes to /dev/shm, and from there into the output.
#
# GPU_SECONDS: seconds for everything (480). GPU_PARTS: the parts, each with its limit. ON_GPU: what runs a part.
cd "$(dirname "$0")/../.." || exit 1
: "${RESULTS:=${OUT:-build}}" "${GPU_SECONDS:=480}" "${ON_GPU:=tests/cuda/on_gpu.sh}" "${WORK:=build/gpu-first}"
case $1 in
first) : "${GPU_PARTS:=machine:30 steps:90 rows:150 bench:120 kernels:30 sanitize:60 specs:600}" ;;
again) : "${GPU_PARTS:=machine:30 steps:90 rows:150 sanitize:60 specs:90 bench:240 kernels:60}" ;;
esac
GPU_BEGAN=$(date +%s)
PASSED=$WORK/passed
export RESULTS WORK PASSED

left() { echo $((GPU_BEGAN + GPU_SECONDS - $(date +%s))); }

# ---- sessions ----

# Kills all processes of a session; they are found in /proc, because procps may be missing.
end_session() {
  for stat in /proc/[0-9]*/stat; do
    { read -r line <"$stat"; } 2>/dev/null || continue
    # shellcheck disable=SC2086 # the fields behind the name: state, parent, group, session
    set -- "$1" "${stat#/proc/}" ${line##*) }
    [ "$6" = "$1" ] && kill -9 "${2%/stat}" 2>/dev/null
  done
}

# Runs a command as a session that may take so many seconds; its output goes to the log. The status is 137 if it was
# killed.
in_session() { # seconds, command...
  seconds=$1
  shift
  (ulimit -f 524288 && exec setsid "$@") >>"$LOG" 2>&1 </dev/null & # blocks of 512 bytes
  session=$!
  (
    exec >/dev/null 2>&1 # nobody waits for the output of a sleep
    for _ in $(seq "$seconds"); do sleep 1; done
    end_session "$session"
  ) &
  watcher=$!
  wait $session
  status=$?
  kill $watcher 2>/dev/null
  wait $watcher 2>/dev/null # the shell would tell that it was terminated
  end_session $session
  return $status
}

# ---- the log ----

# Takes a log that can be written to.
take_log() {
  LOG=$RESULTS/gpu-$1.txt
  mkdir -p "$RESULTS" "$WORK"
  if ! { echo "== gpu-$1, $(date -u '+%F %T') UTC" >"$LOG"; } 2>/dev/null; then lose_log; fi
}

# Goes on with a log in memory.
lose_log() {
  LOG=/dev/shm/mgpulua-gpu-first.$$
  { : >"$LOG"; } 2>/dev/null || LOG=/dev/null
  echo "== $RESULTS is full: the log goes on in $LOG"
}

# Prints a line and adds it to the log.
say() {
  echo "$1"
  { echo "$1" >>"$LOG"; } 2>/dev/null || lose_log
}

# What the log has got since it had so many lines.
since() { tail -n +$(($1 + 1)) "$LOG"; }

# ---- parts ----

# Adds up the lines `N passed, N failed` of a part.
count() { awk '/^[0-9]+ passed, [0-9]+ failed/ { p += $1; f += $3 } END { print p + 0, f + 0 }'; }

# The lines that the output shows of a part: failures and figures, not what was not reached.
digest() {
  awk '/ out of time$/ { next } /^FAIL / || /^     FAIL: / { if (shown++ < 30) print substr($0, 1, 200) }
    /^= / { print substr($0, 1, 200) }'
}

# Adds a line to the table, which is kept in memory.
add_to_table() { TABLE="$TABLE$(printf '%-9s %6s s  %5s passed  %5s failed  %s' "$@")
"; }

# What a part adds to the log beyond 2 MiB is cut off.
cut_log() { # bytes that it had before
  [ "$(wc -c <"$LOG")" -gt $(($1 + 2097152)) ] || return
  truncate -s $(($1 + 2097152)) "$LOG" && say "
== cut off here: more than 2 MiB"
}

# Lists what passed of a part: its lines `ok   NAME`, those of tests/run.lua without their counts.
note_passed() { # lines of the log before it
  { since "$1"; cat "$WORK"/journal-* 2>/dev/null; } |
    awk '/^ok   tests\/.* s$/ { print "ok   " $2; next } /^ok   / || /^part / { print }' >>"$PASSED"
  rm -f "$WORK"/journal-*
  cp "$PASSED" "$RESULTS/gpu-passed.txt"
} 2>/dev/null

# Runs a part and judges it by its status and its log.
run_part() { # name, seconds
  limit=$(left)
  [ "$2" -lt "$limit" ] && limit=$2
  if [ "$limit" -lt 1 ]; then
    add_to_table "$1" 0 0 0 'not run: out of time'
    return
  fi
  say "== $1, at most $limit s"
  lines=$(wc -l <"$LOG") bytes=$(wc -c <"$LOG") began=$(date +%s)
  mkdir -p "$WORK/tmp"
  # A part ends by itself before it is ended, so that it can tell what it has not reached.
  GPU_BEGAN=$began GPU_SECONDS=$((limit - limit / 20)) TMPDIR=$PWD/$WORK/tmp \
    in_session "$limit" sh "$ON_GPU" part "$1"
  status=$? took=$(($(date +%s) - began))
  rm -rf "$WORK/tmp"
  since "$lines" | digest
  # shellcheck disable=SC2046 # two numbers
  set -- "$1" $(since "$lines" | count)
  case $status,$3,$2 in
  137,*) how="ended after $took s" ;;
  0,0,0) how='nothing passed' ;;
  0,0,*) how=ok && echo "part $1" >>"$LOG" ;;
  *,0,*) how="ended with status $status" ;;
  *) how=failed ;;
  esac
  note_passed "$lines"
  cut_log "$bytes"
  add_to_table "$1" "$took" "$2" "$3" "$how"
}

# PyTorch compiles its steps while the parts before the benchmark run, but not while the machine is measured.
start_background() {
  [ "$background" ] && return
  GPU_BEGAN=$(date +%s) GPU_SECONDS=$(left) setsid sh "$ON_GPU" background </dev/null >"$WORK/background.txt" 2>&1 &
  background=$!
}

has_passed() { grep -Fqx "part $1" "$PASSED" 2>/dev/null; }

# Prints the table; the status is 0 if all parts in it are ok.
finish() {
  end_session "$background"
  say "
part        took                                  (in all $(($(date +%s) - GPU_BEGAN)) s)
$TABLE"
  case $LOG in /dev/shm/*) cat "$LOG" && rm -f "$LOG" ;; esac
  ! printf '%s' "$TABLE" | grep -qv ' ok$'
}

run() { # first or again
  TABLE='' background=''
  take_log "$1"
  trap 'end_session "$session"; finish; exit 130' INT TERM
  for part in $GPU_PARTS; do
    name=${part%:*}
    case $1,$name in again,bench | again,kernels | first,*) ;; *) has_passed "$name" && continue ;; esac
    [ "$name" = machine ] || start_background
    run_part "$name" "${part#*:}"
  done
  finish
}

case $1 in
first) rm -rf "$WORK" "$RESULTS/gpu-passed.txt" ; run first ;;
again)
  if [ ! -f "$PASSED" ]; then
    echo "there is no $PASSED: run gpu_first.sh first, or put the gpu-passed.txt of an earlier run there"
    exit 1
  fi
  run again
  ;;
*) sed -n '2,/^[^#]/s/^# *//p' "$0"; exit 2 ;;
esac
