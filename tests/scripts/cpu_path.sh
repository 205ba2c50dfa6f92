# The conformance suite on the CPU with one path forced. Where this processor does not run the path the
# suite is skipped as a whole, and says so.
# usage: cpu_path.sh MEMRA-TESTS PATH
set -u

# What does not depend on the path is left out, and the longest suite: CpuKernels has its widths for
# every path.
filter='*CPU*-*RowsShapes*:*FaultsSizes*:*LargestCalls*:*BackToBack*:*Weights*:*Stream*:*Graph*'
out=$(MEMRA_CPU_SIMD=$2 "$1" --gtest_brief=1 "--gtest_filter=$filter" 2>&1)
code=$?
printf '%s\n' "$out" | tail -n 40
case $out in
*"CPU path $2: this processor runs"*)
  echo "not run here: $2"
  exit 77
  ;;
esac
exit "$code"
