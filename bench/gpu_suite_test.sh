#!/bin/sh
# tools/gpu-suite with a GPU and a compiler that are made up: the measuring steps run on the CPU and
# small shapes, and their record is looked at.
# usage: gpu_suite_test.sh GPU-SUITE BENCH-FOLDER
set -u

program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=$work/output
# shellcheck source=bench/expect.sh
. "$(dirname "$0")/expect.sh"

mkdir -p "$work/bin" "$work/build"
ln -s "$2" "$work/build/bench"
cat >"$work/bin/nvidia-smi" <<'END'
#!/bin/sh
case "$*" in
  *" -l "*) while echo "1500, 2600, 300.00, 40"; do sleep 1; done ;;
  *query-gpu=name*) echo "NVIDIA Example 1" ;;
  *query-gpu=compute_cap*) echo 9.0 ;;
  *) echo "some value" ;;
esac
END
cat >"$work/bin/nvcc" <<'END'
#!/bin/sh
echo "Cuda compilation tools, release 13.0, V13.0.0"
END
chmod +x "$work"/bin/*
PATH=$work/bin:$PATH
CUDACXX=$work/bin/nvcc
export PATH CUDACXX

cpu="--backend cpu --threads 2"
dimensions="--hidden 256 --intermediate 128"
probe="$cpu $dimensions --experts 2 --top-k 1 1"
sweep="$cpu $dimensions --iters 1"
grouped="$cpu $dimensions --experts 6 --top-k 2 --tokens 3 --bars --warm-ms 1"
# suite STATUS TEXT ARGUMENT...
suite() {
  expect "$@" --build "$work/build" --out "$work/out" --commit c0ffee
}
record=$work/out/example-1-c0ffee.md
# in_record TEXT: a line of the record begins so.
in_record() {
  grep -q "^$1" "$record" || {
    fail "no '$1' in the record:"
    cat "$record"
  }
}

expect 0 "--grouped-args" --help
suite 1 "legal are build, test, probe, sweep, grouped, tp2, parallel, counters, memcheck, racecheck" \
  --steps probes
suite 1 "unknown option '--grouped'" --grouped x
suite 0 "wrote .*example-1-c0ffee.md" --steps probe,sweep --probe-args "$probe" \
  --sweep-args "$sweep" --sweep-args "$sweep --tokens 2"
suite 0 "running moe-grouped-ceiling --backend cpu" --steps grouped --grouped-args "$grouped"
in_record "# NVIDIA Example 1, commit c0ffee"
in_record "| CUDA | nvcc 13.0.0, built for sm_90a |"
in_record "| clocks while measuring | SM 1500 to 1500 MHz, memory 2600 MHz, 300.00 W at most |"
in_record "## Tests: not run"
in_record "## Probe: passed"
in_record "## Whole layer: passed"
in_record "## Grouped: passed"
in_record "\\$ moe-grouped-ceiling --backend cpu .* --bars"
in_record "bars: .* not measured"
in_record "## compute-sanitizer memcheck: not run"
for json in probe-1 sweep-1 sweep-2 grouped-1; do
  [ -s "$work/out/example-1-c0ffee-$json.json" ] || fail "no $json.json beside the record"
done
# A run that fails is told in the record, and by the exit status.
suite 1 "failed: grouped" --steps grouped --grouped-args "--case nonsense"
in_record "## Grouped: FAILED, status 2"
in_record "## Probe: passed"

finish
