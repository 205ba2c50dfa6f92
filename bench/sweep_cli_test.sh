#!/bin/sh
# The sweep from outside: exit statuses, what it prints, and its JSON, on the CPU and small shapes.
# usage: sweep_cli_test.sh MOE-ROWS-SWEEP CMAKE
set -u

program=$1
cmake=$2
out=$(mktemp)
json=$(mktemp)
trap 'rm -f "$out" "$json"' EXIT
# shellcheck source=bench/expect.sh
. "$(dirname "$0")/expect.sh"

# expect_json ROWS PART...: the file holds that many sound rows, and each of them the parts.
expect_json() {
  rows=$1
  shift
  "$cmake" -DFILE="$json" -DROWS="$rows" -DPARTS="$(echo "$*" | tr ' ' ';')" \
    -P "$(dirname "$0")/check_sweep_json.cmake" >"$out" 2>&1 || {
    fail "the JSON:"
    cat "$out"
  }
}

cpu="--backend cpu --threads 2 --iters 1"
small="$cpu --hidden 256 --intermediate 128"

expect 0 "usage\|Usage" --help
expect 0 "moe-rows-sweep, memra" --version
expect 0 "openai/gpt-oss-120b" --list-models
expect 2 "no model 'nonsense'" --model nonsense
expect 2 "excludes" --models --widths
expect 2 "excludes" --model Kimi-K2 --hidden 256
expect 2 "--hidden 100 is no multiple of 64" --hidden 100
expect 2 "--top-k 8 is more than --experts 7" --models --experts 7
expect 2 "tokens" --tokens 1,0
expect 2 "tokens" --tokens 1,2000
expect 2 "tokens" --tokens one
expect 2 "iters" --iters 0
expect 2 "" --no-such-option
expect 2 "" --backend tpu
expect 2 "" unexpected

# shellcheck disable=SC2086
{
  expect 0 "^256->128 .* cpu_rows" $small --json "$json"
  expect_json 2
  expect 0 "AUTO" $small --tokens 3 --top-k 2 --variants --json "$json"
  expect_json 1 variants
  expect 0 "gate/up" $cpu --widths --experts 2 --top-k 1 --json "$json"
  expect_json 6 stages
  expect 0 "^Qwen3-30B-A3B" $cpu --model qwen3-30b-a3b --tokens 1 --json "$json"
  expect_json 1
  expect 1 "left out: its banks take" $cpu --model Kimi-K2 --experts 1000000
  expect 1 "cannot write" $small --json /no/such/folder/file
}

finish
