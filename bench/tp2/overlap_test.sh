#!/bin/sh
# Two CPU engines with one thread each overlap by 0.6 or more. What else runs on the machine takes one
# of their processors, so each attempt waits for a while until the machine is idle. Skipped where it
# never was and no attempt came through: that proves nothing either way.
# usage: overlap_test.sh MOE-TP2-REPRO CMAKE
set -u

program=$1
cmake=$2
attempts=6
min_idle=80 # per cent of all processors
wait_s=20
if [ "$(nproc)" -lt 2 ]; then
  echo "two threads need two processors"
  exit 77
fi
json=$(mktemp)
trap 'rm -f "$json"' EXIT

# Ticks of all processors: idle, and all.
ticks() {
  awk '/^cpu / { for (i = 2; i <= 9; i++) all += $i; printf "%.0f %.0f\n", $5 + $6, all }' /proc/stat
}
# Per cent of half a second in which they were idle.
idle() {
  before=$(ticks)
  sleep 0.5
  echo "$before $(ticks)" |
    awk '{ all = $4 - $2; print (all > 0 ? int(100 * ($3 - $1) / all) : 0) }'
}
is_idle() {
  tries=$((2 * wait_s))
  while [ "$tries" -gt 0 ]; do
    [ "$(idle)" -lt "$min_idle" ] || return 0
    tries=$((tries - 1))
  done
  return 1
}

was_idle=false
for attempt in $(seq $attempts); do
  is_idle && was_idle=true
  "$program" 15 --backend cpu --threads 2 --experts 16 --hidden 1024 --intermediate 256 \
    --tokens 43 --json "$json" || exit 1
  "$cmake" -DFILE="$json" -DMIN_OVERLAP=0.6 -P "$(dirname "$0")/check_json.cmake" && exit 0
  echo "attempt $attempt of $attempts missed"
done
$was_idle && exit 1
echo "the machine was never idle: skipped"
exit 77
