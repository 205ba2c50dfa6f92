#!/bin/sh
# The repro from outside, on the CPU and small shapes: options and variables, wrong values, what it
# prints, its JSON and its trace.
# usage: cli_test.sh MOE-TP2-REPRO CMAKE
set -u

program=$1
cmake=$2
out=$(mktemp)
json=$(mktemp)
trace=$(mktemp)
trap 'rm -f "$out" "$json" "$trace"' EXIT
# shellcheck source=bench/expect.sh
. "$(dirname "$0")/../expect.sh"

# expect_with NAME=VALUE STATUS TEXT ARGUMENT...
expect_with() {
  name=${1%%=*}
  export "${1?}"
  shift
  expect "$@"
  unset "$name"
}

# expect_json CHECK=VALUE...: what the JSON holds.
expect_json() {
  "$cmake" -DFILE="$json" -DTRACE="$trace" "$@" -P "$(dirname "$0")/check_json.cmake" \
    >"$out" 2>&1 || {
    fail "the JSON, $*:"
    cat "$out"
  }
}

expect 0 "usage\|Usage" --help
expect 0 "MEMRA_TP2_DETERM_CONCURRENT" --help
expect 0 "moe-tp2-repro, memra" --version

for value in text -1 0 1.5 ""; do
  for option in --tokens --experts --top-k --hidden --intermediate --copy-rows --root-busy --layers \
    --threads --qt; do
    expect 2 "$option" $option "$value"
  done
  for name in T COPY_ROWS ROOT_BUSY LAYERS QT; do
    expect_with "MEMRA_TP2_$name=$value" 2 "MEMRA_TP2_$name: "
  done
done
for value in text -1 2 1.5 ""; do
  for option in --randbank --peercopy --copy-first --fresh-alloc --determinism --determ-concurrent; do
    expect 2 "$option" $option "$value"
  done
  for name in RANDBANK PEERCOPY COPY_FIRST FRESH_ALLOC DETERMINISM DETERM_CONCURRENT; do
    expect_with "MEMRA_TP2_$name=$value" 2 "MEMRA_TP2_$name: "
  done
done
for value in text -1 0; do
  expect 2 "iters" -- "$value"
done
expect 2 "8 is neither 7 nor 107" --qt 8
expect_with MEMRA_TP2_QT=8 2 "MEMRA_TP2_QT: .*8 is neither 7 nor 107"
expect 2 "needs --peercopy 1" --copy-first 1
expect 2 "needs --determinism 1" --determ-concurrent 1
expect 2 "--hidden 100 is no multiple of 64" --hidden 100
expect 2 "--top-k 8 is more than --experts 7" --experts 7
expect 2 "--copy-rows 44 is more than --tokens 43" --tokens 43 --copy-rows 44
expect 2 "cannot be halved" --threads 1
expect 2 "devices" --devices 0
expect 2 "devices" --devices 0,-1
expect 2 "" --backend tpu
expect 2 "" --no-such-option
expect 2 "" 5 unexpected

small="3 --backend cpu --threads 2 --experts 8 --hidden 256 --intermediate 128 --tokens 9"
# shellcheck disable=SC2086
{
  expect 1 "cannot write" $small --json /no/such/folder/file
  expect 1 "--trace: cannot write" $small --trace /no/such/folder/file
  expect 1 "--devices" $small --devices 0,1

  expect 0 "^t 9, n_pairs 72, n_active 8 of 8, hidden 256, intermediate 128" $small
  expect 0 "1 thread each" $small --json "$json" --trace "$trace"
  expect_json -DTOKENS=9
  expect_with MEMRA_TP2_T=7 0 "^t 9," $small
  expect_with MEMRA_TP2_T=7 0 "^t 7," 3 --backend cpu --threads 2 --experts 8 --hidden 256 \
    --intermediate 128

  expect 0 "format 7" $small --qt 7 --peercopy 1 --copy-rows 4 --json "$json" --trace "$trace"
  expect_json -DTOKENS=9 -DCOPIES=1
  expect 0 "peer copies first of 9 rows" $small --peercopy 1 --copy-first 1
  expect 0 "root busy 2, 3 layers with copies back, fresh allocations" $small --root-busy 2 \
    --layers 3 --fresh-alloc 1 --peercopy 1 --json "$json" --trace "$trace"
  expect_json -DTOKENS=9 -DCOPIES=1

  expect 0 "0 of 7 comparisons differed: DETERMINISTIC, live" $small --determinism 1 \
    --json "$json" --trace "$trace"
  expect_json -DTOKENS=9 "-DDETERMINISM=DETERMINISTIC, live"
  expect 0 "rank 1 at work" $small --qt 7 --determinism 1 --determ-concurrent 1 --json "$json" \
    --trace "$trace"
  expect_json -DTOKENS=9 "-DDETERMINISM=DETERMINISTIC, live"
  expect 0 "VACUOUS" $small --determinism 1 --randbank 0 --json "$json" --trace "$trace"
  expect_json -DTOKENS=9 -DDETERMINISM=VACUOUS
  if grep -q "live" "$out"; then fail "a check on banks of zeros says live"; fi
}

finish
