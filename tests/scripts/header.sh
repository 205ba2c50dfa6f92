#!/bin/sh
# header.sh HEADER CC CXX: memra.h compiles alone, without a warning, as every C and C++ that a caller
# may use, and every initialiser macro in it too.
set -eu
header=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

{
  echo '#include "memra.h"'
  echo '#include "memra.h"'
  echo 'int use_initialisers(void);'
  echo 'int use_initialisers(void) {'
  # MEMRA_QUANTIZE_ARGS_INIT belongs to memra_quantize_args.
  grep -o '^#define MEMRA_[A-Z0-9_]*_INIT' "$header" | while read -r _ macro; do
    type=$(echo "$macro" | sed 's/_INIT$//' | tr '[:upper:]' '[:lower:]')
    echo "  { $type x = $macro; if (x.struct_size != sizeof x) return 1; }"
  done
  echo '  return 0;'
  echo '}'
} >"$work/use.c"
cp "$work/use.c" "$work/use.cpp"
grep -q _INIT "$work/use.c" || { echo "found no initialiser in $header"; exit 1; }

include=$(dirname "$header")
for standard in c99 c11 c17; do
  "$2" -std=$standard -pedantic -Wall -Wextra -Wstrict-prototypes -Werror -I "$include" \
    -c "$work/use.c" -o "$work/use.o" || { echo "fails as $standard"; exit 1; }
done
for standard in c++11 c++17 c++20; do
  "$3" -std=$standard -pedantic -Wall -Wextra -Werror -I "$include" \
    -c "$work/use.cpp" -o "$work/use.o" || { echo "fails as $standard"; exit 1; }
done
if grep -n 'include.*cuda' "$header"; then
  echo "the header must not need CUDA"
  exit 1
fi
echo "$(grep -c 'struct_size' "$work/use.c") initialisers, in C99, C11, C17, C++11, C++17, C++20"
