#!/bin/sh
# installed_tree.sh BUILD_DIR BINDINGS_C CMAKE: installs into a DESTDIR, moves the tree elsewhere (it
# must be relocatable), and builds and runs the C examples from it alone: by their Makefile through
# pkg-config, and by their CMake project through find_package. No CUDA is in sight.
set -eu
build=$1
bindings=$2
cmake=$3
command -v pkg-config >/dev/null || { echo "pkg-config is missing"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A compiler that finds nothing by the caller's environment, CUDA's headers least of all.
unset CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH LIBRARY_PATH LD_LIBRARY_PATH PKG_CONFIG_PATH
unset CUDA_PATH CUDA_HOME CUDACXX CMAKE_PREFIX_PATH MAKEFLAGS MFLAGS
run() { "$@" >"$work/log" 2>&1 || { echo "failed: $*"; cat "$work/log"; exit 1; }; }

DESTDIR="$work/staged" run "$cmake" --install "$build" --prefix /opt/memra
mkdir "$work/moved"
mv "$work/staged/opt/memra" "$work/moved/memra"
tree=$work/moved/memra
rm -rf "$work/staged"
if grep -rlI -e "$build" -e "$work/staged" "$tree"; then
  echo "the installed files above name the build or staging folder"
  exit 1
fi
pc=$(find "$tree" -name memra.pc)
libdir=$(dirname "$(dirname "$pc")")
[ -f "$tree/include/memra.h" ] && [ -L "$libdir/libmemra.so" ] && [ -e "$libdir/libmemra.so.0" ] || {
  echo "header or library missing from the installed tree:"
  find "$tree"
  exit 1
}
if PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --cflags --libs memra | grep -i cuda; then
  echo "memra.pc must not mention CUDA"
  exit 1
fi

cp -r "$bindings" "$work/by_make"
rm -rf "$work/by_make/build"
(
  cd "$work/by_make"
  export PKG_CONFIG_PATH="$(dirname "$pc")"
  run make clean
  run make run
)
grep -e ' on ' -e 'relative error' "$work/log"

cp -r "$bindings" "$work/by_cmake"
rm -rf "$work/by_cmake/build"
run "$cmake" -S "$work/by_cmake" -B "$work/by_cmake/build" -DCMAKE_PREFIX_PATH="$tree"
grep -q "memra_DIR:PATH=$libdir/cmake/memra" "$work/by_cmake/build/CMakeCache.txt" || {
  echo "find_package found another memra:"
  grep memra_DIR "$work/by_cmake/build/CMakeCache.txt"
  exit 1
}
run "$cmake" --build "$work/by_cmake/build"
run "$work/by_cmake/build/example"
run "$work/by_cmake/build/dlopen_example" "$libdir/libmemra.so.0"
echo "make with pkg-config, CMake with find_package, and dlopen work from a moved tree"
