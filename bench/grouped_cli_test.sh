#!/bin/sh
# The grouped ceiling from outside: exit statuses, what it prints, and its JSON, on the CPU and small
# shapes.
# usage: grouped_cli_test.sh MOE-GROUPED-CEILING CMAKE
set -u

program=$1
cmake=$2
out=$(mktemp)
json=$(mktemp)
trap 'rm -f "$out" "$json"' EXIT
# shellcheck source=bench/expect.sh
. "$(dirname "$0")/expect.sh"

# expect_json ROWS VALLEYS [BARS]: the file holds that many of each, and sound ones.
expect_json() {
  "$cmake" -DFILE="$json" -DROWS="$1" -DVALLEYS="$2" -DBARS="${3:-0}" \
    -P "$(dirname "$0")/check_grouped_json.cmake" >"$out" 2>&1 || {
    fail "the JSON:"
    cat "$out"
  }
}

cpu="--backend cpu --threads 2 --warm-ms 1"
small="$cpu --hidden 256 --intermediate 128 --experts 6 --top-k 2"

expect 0 "usage\|Usage" --help
expect 0 "moe-grouped-ceiling, memra" --version
expect 0 "openai/gpt-oss-120b" --list-models
expect 2 "no model 'nonsense'" --model nonsense
expect 2 "no case 'nonsense'; the cases are reference" --case small,nonsense
expect 2 "no arm's name contains 'nonsense'; the arms are gate_up" --arms gate_up,nonsense
expect 2 "excludes" --case small --hidden 256
expect 2 "excludes" --case small --model Kimi-K2
expect 2 "--hidden 100 is no multiple of 64" --hidden 100
expect 2 "--top-k 9 is more than --experts 8" --experts 8 --top-k 9
expect 2 "tokens" --tokens 64,0
expect 2 "tokens" --tokens one
expect 2 "formats: no 'v3'; there are v1 v2" --formats v2,v3
expect 2 "regimes: no 'eternal'; there are burst sustained" --regimes eternal
expect 2 "-1 is not a positive number" --skew -1
expect 2 "banks" --banks 0
expect 2 "rounds" --rounds 0
expect 2 "warm-ms" --warm-ms -1
expect 2 "pause-ms" --pause-ms soon
expect 2 "both-paths needs --valley or --bars" --both-paths
expect 2 "excludes" --bars --valley
expect 2 "" --no-such-option
expect 2 "" --backend tpu
expect 2 "" unexpected

# shellcheck disable=SC2086
{
  expect 0 "^layer / its products" $small --tokens 17,5,5 --json "$json"
  expect_json 4 0
  expect 0 "^V1 / V2 .* layer" $small --tokens 3 --arms layer --skew 1
  expect 0 "worst column mod 32" $small --tokens 3 --arms route --regimes burst --formats v1
  expect 0 "u^1.35), v2, 2 tokens" $cpu --case small --tokens 2 --arms down --formats v2 \
    --skip-accuracy --json "$json"
  expect_json 1 0
  expect 0 "^Qwen3-30B-A3B" $cpu --model qwen3-30b-a3b --experts 8 --tokens 2 --formats v2 \
    --arms layer
  expect 0 "^time \(rises\|falls\)" $small --valley --both-paths --tokens 9,4 --formats v2 \
    --json "$json"
  expect_json 0 1
  expect 0 "^paths .*; memra_moe takes rows throughout$" $small --valley --both-paths --tokens 9 \
    --formats v2
  expect 0 "^relative L2, worst layer of all .* met by" $small --bars --both-paths --tokens 3,5 \
    --json "$json"
  expect_json 3 1 20
  expect 0 "^bars: 1 met, 0 missed, 19 not measured\|^bars: 0 met, 1 missed, 19 not" $small --bars \
    --skip-accuracy --tokens 2 --formats v2 --arms layer --regimes burst
  expect 1 "left out: its banks take" $cpu --model Kimi-K2 --banks 64
  expect 1 "cannot write" $small --json /no/such/folder/file
}

finish
