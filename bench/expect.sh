# shellcheck shell=sh disable=SC2154
# Sourced by the tests of command lines. The caller sets `program` and `out`, a file.
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# expect STATUS TEXT ARGUMENT...: runs the program; its output must contain TEXT.
expect() {
  want=$1
  text=$2
  shift 2
  "$program" "$@" >"$out" 2>&1
  got=$?
  if [ "$got" -ne "$want" ]; then
    fail "$(basename "$program") $*: exit status $got instead of $want"
    cat "$out"
  elif ! grep -q -- "$text" "$out"; then
    fail "$(basename "$program") $*: no '$text' in:"
    cat "$out"
  fi
}

finish() {
  [ "$failures" -eq 0 ] && echo "all cases passed"
  exit "$failures"
}
