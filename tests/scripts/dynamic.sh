#!/bin/sh
# dynamic.sh LIBRARY: SONAME is libmemra.so.0; what it needs is the C++ runtime and libc alone: no
# CUDA library, so that it loads on a machine with no GPU and no driver.
set -eu
entries=$(readelf -dW "$1")
echo "$entries" | grep -q 'SONAME.*\[libmemra\.so\.0\]' || {
  echo "SONAME is not libmemra.so.0:"
  echo "$entries" | grep SONAME
  exit 1
}
if echo "$entries" | grep -E 'RPATH|RUNPATH|TEXTREL'; then
  echo "no run path and no text relocation is wanted"
  exit 1
fi
needed=$(echo "$entries" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for name in $needed; do
  case $name in
    libstdc++.so.* | libgcc_s.so.* | libm.so.* | libc.so.* | libpthread.so.* | libdl.so.* | \
      librt.so.* | ld-linux*.so.*) ;;
    # Builds under a sanitizer, and no others, need its runtime.
    libasan.so.* | libubsan.so.* | libtsan.so.*) ;;
    *)
      echo "needs $name"
      exit 1
      ;;
  esac
done
echo "libmemra.so.0 needs only:" $needed
