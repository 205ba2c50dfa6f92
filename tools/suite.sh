# What tools/gpu-suite and tools/cpu-suite share; sourced by them. They set $suite, their name, and
# $root, the repository, and after the options $build, $out and $commit.
# shellcheck shell=sh

say() { printf '%s: %s\n' "$suite" "$*"; }
die() {
  printf '%s: %s\n' "$suite" "$*" >&2
  exit 1
}
usage() { sed -n '2,/^set -eu/{/^set -eu/d;s/^# \{0,1\}//;p;}' "$root/tools/$suite"; }

# check_steps STEPS LEGAL, both comma-separated.
check_steps() {
  for step in $(echo "$1" | tr ',' ' '); do
    case ,$2, in
      *,"$step",*) ;;
      *) die "unknown step '$step'; legal are $(echo "$2" | sed 's/,/, /g')" ;;
    esac
  done
}
wants() { case ,$steps, in *,"$1",*) true ;; *) false ;; esac; }

# Sets $commit, where it is not given, and $changes, what the record says of uncommitted work.
find_commit() {
  changes=
  [ -z "$commit" ] || return 0
  commit=$(git -C "$root" rev-parse --short HEAD) ||
    die "git cannot tell the commit: give it with --commit or COMMIT"
  [ -z "$(git -C "$root" status --porcelain -- cuda src include tests bench/*.cpp)" ] ||
    changes=" with uncommitted changes"
}

# start_record MACHINE: one folder of results per commit, so that a record never mixes two.
start_record() {
  slug=$(echo "$1" | tr '[:upper:]' '[:lower:]' | sed 's/^nvidia //; s/[^a-z0-9]\{1,\}/-/g; s/-$//')
  name=$slug-$commit
  work=$build/$suite/$commit
  record=$out/$name.md
  failures=
  mkdir -p "$work" "$out"
}

# logged STEP LOG COMMAND...: runs it with its output on the terminal and in a file; remembers failure.
logged() {
  step=$1
  log=$work/$2
  shift 2
  {
    code=0
    "$@" || code=$?
    echo "$code" >"$log.status"
  } 2>&1 | tee "$log"
  code=$(cat "$log.status")
  if [ "$code" != 0 ]; then
    say "$step failed with status $code"
    failures="$failures $step"
  fi
  return 0
}

status_of() {
  if [ ! -f "$work/$1.status" ]; then
    echo "not run"
  elif [ "$(cat "$work/$1.status")" = 0 ]; then
    echo "passed"
  else
    echo "FAILED, status $(cat "$work/$1.status")"
  fi
}

run_tests() {
  say "running all tests"
  logged test tests.log ctest --test-dir "$build" --output-on-failure --no-tests=error -j "$test_jobs"
}

# ---- parts of the record, on standard output -------------------------------------------------

write_title() {
  echo "# $1, commit $commit$changes"
  echo
  echo "Made by \`tools/$suite\` on $(date -u +%Y-%m-%d)."
  echo
}

write_tests() {
  echo "## Tests: $(status_of tests.log)"
  echo
  [ -f "$work/tests.log" ] || return 0
  echo '```'
  grep -E '^[0-9]+% tests passed|^Total Test time' "$work/tests.log" || true
  skipped=$(grep -cE '\*\*\*Skipped' "$work/tests.log") || true
  echo "$skipped skipped"
  sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+).*\*\*\*([A-Za-z ]*[a-z]).*/\2: \1/p' \
    "$work/tests.log" | sort | head -n 60
  echo '```'
  echo
}

# write_run TITLE BASE: a command in BASE.command and what it printed.
write_run() {
  echo "## $1: $(status_of "$(basename "$2").log")"
  echo
  echo '```'
  echo "\$ $(cat "$2.command")"
  cat "$2.log"
  echo '```'
  echo
}

end_record() {
  say "wrote $record"
  [ -z "$failures" ] || die "failed:$failures"
}
