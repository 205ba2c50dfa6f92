#!/bin/sh
# no_nvcc.sh SOURCE CMAKE: with nvcc hidden from PATH, MEMRA_CUDA=AUTO configures the CPU-only library
# and says so, and MEMRA_CUDA=ON is an error that names the remedy.
set -eu
source=$1
cmake=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CUDACXX CUDA_PATH CUDA_HOME

PATH=$(echo "$PATH" | tr ':' '\n' | while IFS= read -r folder; do
  [ -x "$folder/nvcc" ] || printf '%s:' "$folder"
done)
PATH=${PATH%:}
command -v c++ >/dev/null || { echo "skipped: nvcc and c++ share a folder"; exit 77; }

configure() {
  "$cmake" -S "$source" -B "$work/$1" -DMEMRA_CUDA="$1" -DMEMRA_TESTS=OFF -DMEMRA_BENCH=OFF \
    >"$work/log" 2>&1
}
configure AUTO || { cat "$work/log"; exit 1; }
grep 'CPU only' "$work/log" || { echo "does not say that it is CPU only:"; cat "$work/log"; exit 1; }
if configure ON; then
  echo "MEMRA_CUDA=ON was accepted without nvcc"
  exit 1
fi
tr '\n' ' ' <"$work/log" | grep -q 'MEMRA_CUDA=ON, but no working nvcc' || {
  echo "MEMRA_CUDA=ON fails without saying why:"
  cat "$work/log"
  exit 1
}
