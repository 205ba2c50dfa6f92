# Objects compiled for more than the baseline instruction set hold no function that the linker could
# pick for everybody: inline functions and templates in them must not be shared.
# usage: simd_objects.sh OBJECTS_LIST
set -eu

command -v nm >/dev/null || exit 77
checked=0
while read -r object; do
  case "$object" in
  */rows_avx*.o | */rows_avx*.cpp.o) ;;
  *) continue ;;
  esac
  checked=$((checked + 1))
  shared=$(nm -C --defined-only "$object" | awk '$2 ~ /^[WVu]$/')
  if [ -n "$shared" ]; then
    echo "$object shares:"
    echo "$shared"
    exit 1
  fi
done <"$1"
[ "$checked" -gt 0 ] || exit 77
