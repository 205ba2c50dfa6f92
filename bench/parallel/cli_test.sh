#!/bin/sh
# moe-parallel from outside, on the CPU and small shapes: options and variables, wrong values, several
# processes that meet through files and over TCP, and the JSON.
# usage: cli_test.sh MOE-PARALLEL CMAKE
set -u

program=$1
cmake=$2
out=$(mktemp)
folder=$(mktemp -d)
trap 'rm -rf "$out" "$folder"' EXIT
# shellcheck source=bench/expect.sh
. "$(dirname "$0")/../expect.sh"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT

# expect_ranks N TEXT ARGUMENT...: N processes, all of which must end well; rank 0's output must
# contain TEXT.
expect_ranks() {
  n=$1
  text=$2
  shift 2
  pids=
  rank=$((n - 1))
  while [ "$rank" -ge 0 ]; do
    RANK=$rank WORLD_SIZE=$n "$program" "$@" >"$folder/out.$rank" 2>&1 &
    pids="$pids $!"
    rank=$((rank - 1))
  done
  for pid in $pids; do
    wait "$pid" || {
      fail "$n ranks, $*: one ended with status $?:"
      cat "$folder"/out.*
    }
  done
  grep -q -- "$text" "$folder/out.0" || {
    fail "$n ranks, $*: no '$text' in:"
    cat "$folder/out.0"
  }
}

# expect_json CHECK=VALUE...: what the JSON holds.
expect_json() {
  "$cmake" -DFILE="$folder/json" "$@" -P "$(dirname "$0")/check_json.cmake" >"$out" 2>&1 || {
    fail "the JSON, $*:"
    cat "$out"
  }
}

expect 0 "usage\|Usage" --help
expect 0 "expert-a2a" --help
expect 0 "moe-parallel, memra" --version

for value in text -1 0 1.5 ""; do
  for option in --tokens --experts --top-k --hidden --intermediate --micro-batches --layers \
    --threads --timeout; do
    expect 2 "$option" $option "$value"
  done
done
for value in text -1 ""; do
  for option in --scheme --path --dtype --transport --device --backend; do
    expect 2 "$option" $option "$value"
  done
done
for value in text -1 0; do
  expect 2 "iters" -- "$value"
done
for meeting in tcp:host tcp:host:0 file: nowhere; do
  expect 2 "--meet: " --meet $meeting
done
expect 2 "--hidden 100 is no multiple of 64" --hidden 100
expect 2 "more than the rows path takes" --tokens 4096
expect 2 "built without NCCL" --transport nccl
(
  export RANK=0 WORLD_SIZE=2
  expect 2 "nowhere to meet"
  expect 2 "no part of 64 columns" --intermediate 64 --meet file:x
  expect 2 "not enough for 2 ranks" --experts 1 --top-k 1 --meet file:x
  export RANK=2
  expect 2 "RANK 2 is not below WORLD_SIZE 2"
  export RANK=text
  expect 2 "RANK: 'text'"
  unset RANK
  expect 2 "belong together"
  [ "$failures" -eq 0 ]
) || fail "wrong variables"

small="3 --backend cpu --threads 1 --experts 8 --hidden 256 --intermediate 256 --top-k 3 --tokens 9
  --layers 2"
# shellcheck disable=SC2086
{
  expect 1 "cannot write" $small --json /no/such/folder/file
  expect 0 "speed-up" $small
  expect_ranks 2 "transport: host" $small --meet "file:$folder/meeting" --json "$folder/json"
  expect_json -DRANKS=2 -DCASES=6 -DTOKENS=9
  expect_ranks 3 "bf16 in and out" $small --meet "file:$folder/meeting" --dtype bf16 \
    --micro-batches 3 --json "$folder/json"
  expect_json -DRANKS=3 -DCASES=6 -DTOKENS=9
  expect_ranks 2 "expert-a2a, grouped, t 43" 2 --backend cpu --threads 1 --experts 8 --hidden 256 \
    --intermediate 256 --meet "tcp:127.0.0.1:$((20000 + $$ % 20000))" --scheme expert-a2a \
    --path grouped --json "$folder/json"
  expect_json -DRANKS=2 -DCASES=1 -DTOKENS=43
}

finish
