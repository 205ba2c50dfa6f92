#!/bin/sh
# The probe from outside: exit statuses and what it prints, on the CPU and small shapes.
# usage: cli_test.sh MOE-ROWS-CEILING [FOLDER OF make_gguf.py's FILES]
set -u

program=$1
files=${2:-}
out=$(mktemp)
json=$(mktemp)
trap 'rm -f "$out" "$json"' EXIT
# shellcheck source=bench/expect.sh
. "$(dirname "$0")/expect.sh"

small="1 1 1 --backend cpu --threads 2"

expect 0 "usage\|Usage" --help
expect 0 "moe-rows-ceiling, memra" --version
expect 0 "openai/gpt-oss-120b" --list-models
expect 2 "no model 'nonsense'" --model nonsense
expect 2 "--hidden 100 is no multiple of 64" --hidden 100
expect 2 "--top-k 9 is more than --experts 8" --experts 8 --top-k 9
expect 2 "iters" 0
expect 2 "-1 is not a positive number" --limit -1
expect 2 "" --no-such-option
expect 2 "" --gguf somewhere
expect 2 "" --backend tpu
expect 2 "no arm's name contains 'nonsense'" --arms nonsense
expect 1 "cannot open '/no/such/file'" --gguf /no/such/file --layer 0

# shellcheck disable=SC2086
{
  expect 0 "reading:" $small --hidden 256 --intermediate 128 --json "$json"
  expect 0 "gate_up.v2.lane_major_pack .* equal" $small --hidden 256 --intermediate 192 --tokens 3
  expect 0 "swiglu" $small --hidden 128 --intermediate 64 --activation swiglu --top-k 2
  expect 0 "oai, limit 5" $small --hidden 128 --intermediate 64 --activation oai --limit 5
  expect 0 "postclamp" $small --hidden 128 --intermediate 64 --activation postclamp --tokens 2
  expect 1 "cannot write" $small --hidden 128 --intermediate 64 --json /no/such/folder/file
}
for key in '"identity"' '"graph_us"' '"verdict"' '"status": 0'; do
  if ! grep -q "$key" "$json"; then
    fail "no $key in the JSON"
  fi
done

if [ -n "$files" ] && [ -f "$files/wrong_scales.gguf" ]; then
  # shellcheck disable=SC2086
  {
    expect 0 "256 -> 128, 6 experts, top_k 2" $small --gguf "$files/separate.gguf" --layer 3
    expect 0 "fused.gguf layer 3" $small --gguf "$files/fused.gguf" --layer 3 --tokens 2
    expect 1 "VACUOUS" $small --gguf "$files/zeros.gguf" --layer 3
    expect 1 "needs 40 (NVFP4)" $small --gguf "$files/wrong_type.gguf" --layer 3
    expect 1 "'blk.9.ffn_down_exps.weight' is missing" $small --gguf "$files/plain.gguf" --layer 9
  }
else
  echo "no GGUF files: the cases that read them were left out"
fi

finish
