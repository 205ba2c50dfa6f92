#!/bin/sh
# device_code.sh OBJECTS BUILD_DIR KERNEL_RESOURCES: what nvcc made of the kernels (cmake/nvcc_record.sh
# kept it). The promise of equal bits allows no flushing and no approximation in any PTX, but for the
# exponential and the reciprocal of the grouped path, which has a tolerance; no kernel of ours may
# keep variables in local memory, neither by spilling nor by indexing; and the assembler must not
# have had to serialise warpgroup matrix instructions.
set -eu
objects=$1
build=$2
resources=$3
failed=0
ptx=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

while IFS= read -r object; do
  case $object in *.cu.o) ;; *) continue ;; esac
  case $object in /*) ;; *) object=$build/$object ;; esac
  for file in "$object".ptx.d/*.ptx; do
    [ -f "$file" ] || { echo "no PTX beside $object"; exit 1; }
    ptx=$((ptx + 1))
    allowed='^$'
    case $object in */grouped_*) allowed='(ex2|rcp)\.approx\.ftz\.f32' ;; esac
    # .full is the two-ulp division that -prec-div=false would give.
    if grep -nE '\.ftz|\.approx|div\.full' "$file" | grep -vE "$allowed" >"$work/found"; then
      echo "$file:"
      head -n 5 "$work/found"
      failed=1
    fi
  done
done <"$objects"
[ "$ptx" -gt 0 ] || { echo "no CUDA object in $objects"; exit 1; }

"$resources" "$build" >"$work/table"
kernels=$(grep -c . "$work/table") || true
[ "$kernels" -gt 0 ] || { echo "no resource records under $build"; exit 1; }
# Blackwell's kernels have not run anywhere yet, let alone been shaped: theirs are told, not failed.
untuned='^sm_1[0-9][0-9]'
awk -F '\t' '$4 + $5 + $6 > 0' "$work/table" >"$work/local"
if grep -E "$untuned" "$work/local"; then
  echo "known: the kernels above use local memory (columns 4..6) on targets not run yet"
fi
if grep -vE "$untuned" "$work/local"; then
  echo "the kernels above use local memory (columns 4..6: stack, spill stores, spill loads)"
  failed=1
fi
# C7510 and its kin: warpgroup matrix instructions that wait for each other.
find "$build" -name '*.ptxas' -exec grep -HE '\(C75[0-9][0-9]\)' {} + >"$work/serial" || true
if [ -s "$work/serial" ]; then
  cat "$work/serial"
  failed=1
fi
[ "$failed" = 0 ] || exit 1
echo "$ptx PTX files without stray .ftz, .approx or div.full; $kernels kernels, none of a target in use with local memory, none serialised"
