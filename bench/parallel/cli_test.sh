#!/bin/sh
# moe-parallel from outside, on the CPU and small shapes: options and variables, wrong values, several
# processes that meet through files and over TCP, and the JSON.
# usage: cli_test.sh MOE-PARALLEL CMAKE
set -u

program=$1
cmake=$2
ranks=$(dirname "$0")/../../tools/ranks
out=$(mktemp)
folder=$(mktemp -d)
trap 'rm -rf "$out" "$folder"' EXIT
# shellcheck source=bench/expect.sh
. "$(dirname "$0")/../expect.sh"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT

# expect_ranks N STATUS TEXT ARGUMENT...: N processes that meet through files.
expect_ranks() {
  n=$1
  status=$2
  wanted=$3
  shift 3
  of_a_rank=$program
  program=$ranks
  expect "$status" "$wanted" "$n" "$of_a_rank" "$@"
  program=$of_a_rank
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
expect 0 "moe-parallel-host, memra" --version

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
  expect_ranks 2 0 "transport: host" $small --micro-batches 2 --json "$folder/json"
  expect_json -DRANKS=2 -DCASES=6 -DTOKENS=9 -DMICRO_BATCHES=2
  expect_ranks 3 0 "bf16 in and out" $small --dtype bf16 --micro-batches 3 --json "$folder/json"
  expect_json -DRANKS=3 -DCASES=6 -DTOKENS=9 -DMICRO_BATCHES=3
  expect_ranks 2 0 "expert-a2a, grouped, t 43" 2 --backend cpu --threads 1 --experts 8 \
    --hidden 256 --intermediate 256 --scheme expert-a2a --path grouped --json "$folder/json"
  expect_json -DRANKS=2 -DCASES=1 -DTOKENS=43 -DMICRO_BATCHES=1
  # One fails, and the other does not wait for it.
  expect_ranks 2 1 "another rank has failed" $small --json /no/such/folder/file

  # As a shell loop would run them.
  meeting=tcp:127.0.0.1:$((20000 + $$ % 20000))
  RANK=1 WORLD_SIZE=2 "$program" $small --meet "$meeting" >"$folder/other" 2>&1 &
  other=$!
  export RANK=0 WORLD_SIZE=2
  expect 0 "rank 1: CPU, 1 thread" $small --meet "$meeting"
  wait $other || {
    fail "rank 1 ended with status $?:"
    cat "$folder/other"
  }
}

finish
