#!/bin/sh
# exports.sh LIBRARY HEADER: the library exports what the header declares, no more and no less, each
# symbol under the version node MEMRA_0.
set -eu
library=$1
header=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sort >"$work/exported"
# A declaration begins with MEMRA_API and ends its name at the first parenthesis.
tr '\n' ' ' <"$header" | grep -o 'MEMRA_API [^;(]*(' | grep -o 'memra_[a-z0-9_]*(' | tr -d '(' |
  sed 's/$/@@MEMRA_0/' | sort >"$work/declared"

test -s "$work/declared" || { echo "found no declaration in $header"; exit 1; }
if ! diff "$work/declared" "$work/exported" >"$work/difference"; then
  echo "declared in memra.h (<) and exported by the library (>) differ:"
  cat "$work/difference"
  exit 1
fi
echo "$(wc -l <"$work/exported") symbols, all memra_*@@MEMRA_0, all declared"
