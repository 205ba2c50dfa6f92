#!/bin/sh
# imports.sh OBJECTS: no object of memra's own (a file with one path a line; the CUDA runtime inside
# the library is not ours) calls what would take a host process down, print, or read the environment
# behind its back. getenv is for the one file that serves memra_engine_create.
set -eu
banned='abort|exit|_exit|_Exit|quick_exit|__assert_fail|__assert|raise|kill'
banned="$banned|signal|sigaction|bsd_signal|setenv|putenv|unsetenv|system|popen"
banned="$banned|v?f?printf|v?d?printf|v?s?n?printf|v?asprintf|__v?[a-z]*printf_chk"
banned="$banned|puts|putchar|putc|fputs|fputc|fwrite|perror|psignal|write|stdout|stderr"
banned="$banned|_ZSt4cout|_ZSt4cerr|_ZSt4clog|_ZSt5wcout|_ZSt5wcerr"

objects=0
readers=
failed=0
while IFS= read -r object; do
  [ -n "$object" ] || continue
  objects=$((objects + 1))
  imported=$(nm -u "$object" | awk '{ print $NF }' | sed 's/@.*//')
  if bad=$(echo "$imported" | grep -xE "$banned"); then
    echo "$object imports:" $bad
    failed=1
  fi
  if echo "$imported" | grep -qxE '(secure_)?getenv|environ|__environ'; then
    readers="$readers $(basename "$object")"
  fi
done <"$1"

[ "$objects" -gt 0 ] || { echo "no objects in $1"; exit 1; }
set -- $readers
if [ $# -gt 1 ]; then
  echo "the environment is read in more than one file: $readers"
  failed=1
fi
[ "$failed" = 0 ] || exit 1
echo "$objects objects; the environment is read in: ${readers:-none}"
