#!/bin/sh
# Compiler launcher for nvcc: runs the command it is given, and leaves beside the object what the
# tests read: OBJECT.ptxas (registers, stack and spills of each kernel) and OBJECT.ptx.d/ (the PTX of
# each target). Everything else that nvcc says goes to stderr as usual.
set -u

object=
previous=
compiles=no
for argument in "$@"; do
  [ "$previous" = -o ] && object=$argument
  [ "$argument" = -c ] && compiles=yes
  previous=$argument
done
if [ "$compiles" = no ] || [ -z "$object" ]; then
  exec "$@"
fi

kept=$object.ptx.d
rm -rf "$kept"
mkdir -p "$kept" || exit 1
"$@" -Xptxas=-v -keep -keep-dir "$kept" 2>"$object.ptxas"
status=$?
grep -v -e '^ptxas info' -e '^ *[0-9]* bytes stack frame' -e '^$' "$object.ptxas" >&2
find "$kept" -type f ! -name '*.ptx' -exec rm -f {} +
exit $status
