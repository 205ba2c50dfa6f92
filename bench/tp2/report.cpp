#include "tp2/report.h"

#include "console.h"
#include "setup.h"

namespace memra::bench::tp2 {
namespace {

constexpr int kPrintedFirst = 3;

std::string with_range(const Summary& summary, const char* pattern) {
  return format(pattern, summary.median, summary.min, summary.max);
}

std::string scenario_text(const Options& options) {
  std::string text = options.random_bank != 0 ? "random banks" : "banks of zeros";
  text += format(", format %d", options.format);
  if (options.peer_copy != 0)
    text += options.copy_first != 0 ? ", peer copies first" : ", peer copies";
  if (options.has_copies())
    text += format(" of %lld rows", static_cast<long long>(options.copy_rows));
  if (options.root_busy > 0) text += format(", root busy %d", options.root_busy);
  if (options.layers > 0) text += format(", %d layers with copies back", options.layers);
  if (options.fresh_alloc != 0) text += ", fresh allocations";
  return text;
}

std::string spans_text(const Iteration& iteration) {
  return format("spans %.1f + %.1f = %.1f us, max %.1f us", iteration.span_us[0],
                iteration.span_us[1], iteration.sum_us(), iteration.max_us());
}

void print_together(std::FILE* out, const char* name, const Together& together) {
  std::fprintf(out, "%s: %s; / the slower alone %s; overlap %s, of the shortest times %.2f\n", name,
               with_range(together.both_us, "%.1f us (%.1f to %.1f)").c_str(),
               with_range(together.over_slower, "%.3f (%.3f to %.3f)").c_str(),
               with_range(together.overlap, "%.2f (%.2f to %.2f)").c_str(),
               together.shortest_overlap);
}

}  // namespace

void print_setup(const Results& results) {
  const Options& options = *results.options;
  const Shape& shape = options.shape;
  std::FILE* out = results.out;
  const Session& first = (*results.ranks)[0];
  std::fprintf(out, "%s\n%s\n", results.devices.c_str(), tool_and_version(kTool).c_str());
  if (first.properties().fallback_reason[0] != '\0')
    std::fprintf(out, "no GPU: %s\n", first.properties().fallback_reason);
  std::fprintf(out, "t %lld, n_pairs %lld, n_active %lld of %lld, hidden %lld, intermediate %lld\n",
               static_cast<long long>(shape.tokens), static_cast<long long>(shape.n_pairs()),
               static_cast<long long>(results.n_active), static_cast<long long>(shape.n_experts),
               static_cast<long long>(shape.hidden_size),
               static_cast<long long>(shape.intermediate_size));
  std::fprintf(out, "%s\n\n", scenario_text(options).c_str());
  std::fflush(out);  // what follows may take a while
}

void print_iterations(const Results& results) {
  const size_t n = results.iterations.size();
  for (size_t i = 0; i < n; ++i) {
    const Iteration& iteration = results.iterations[i];
    if (!iteration.is_valid()) {
      std::fprintf(results.out, "iteration %d: INVALID, an event failed: %s\n", iteration.number,
                   iteration.fault.c_str());
    } else if (i < kPrintedFirst || i + 1 == n) {
      std::fprintf(results.out, "iteration %d: issue %.1f us, join %.1f us, %s\n", iteration.number,
                   iteration.issue_us, iteration.join_us, spans_text(iteration).c_str());
    }
  }
  const Iteration* best = best_warm(results.iterations);
  if (best != nullptr) {
    std::fprintf(results.out, "best warm join: %.1f us (iteration %d), %s\n", best->join_us,
                 best->number, spans_text(*best).c_str());
  } else {
    std::fprintf(results.out, "no valid warm iteration: those before iteration %d are cold\n",
                 kFirstWarm);
  }
}

void print_overlap(const Results& results) {
  const OverlapResult& overlap = results.overlap;
  std::FILE* out = results.out;
  std::fprintf(out, "\n");
  for (size_t r = 0; r < kRanks; ++r) {
    std::fprintf(out, "rank %zu alone: %s\n", r,
                 with_range(overlap.alone_us[r], "%.1f us (%.1f to %.1f)").c_str());
  }
  print_together(out, overlap.with_copies ? "both, no copies" : "both", overlap.without_copies);
  if (overlap.with_copies) print_together(out, "both, with copies", *overlap.with_copies);
  std::fprintf(out, "verdict: %s\n", verdict(overlap, results.ranks->share_device()).c_str());
  const std::string why = reading(overlap, *results.options);
  if (!why.empty()) std::fprintf(out, "reading: %s\n", why.c_str());
  std::fprintf(out, "copy of %.0f MiB from rank 0 to rank 1 (%s): %s, %.1f GB/s\n",
               results.peer_copy.bytes / (1 << 20), results.ranks->copy_path().c_str(),
               with_range(results.peer_copy.us, "%.1f us (%.1f to %.1f)").c_str(),
               results.peer_copy.gigabytes_per_second());
}

void print_determinism(const Results& results) {
  for (const DeterminismCase& check : results.determinism) {
    std::fprintf(results.out, "\ndeterminism of %s, rank 1 %s:\n", check.name.c_str(),
                 results.options->determinism_concurrent != 0 ? "at work" : "idle");
    int number = 1;
    for (const OutputCounts& counts : check.repetitions) {
      std::fprintf(results.out,
                   "  repetition %d: max difference %g, %llu of %llu elements differ, %llu "
                   "non-zero, max %g, %llu NaN: %s\n",
                   number++, static_cast<double>(counts.max_difference),
                   static_cast<unsigned long long>(counts.differing),
                   static_cast<unsigned long long>(counts.outputs),
                   static_cast<unsigned long long>(counts.non_zero),
                   static_cast<double>(counts.max), static_cast<unsigned long long>(counts.nan),
                   counts.is_degenerate() ? "VACUOUS" : "live");
    }
    std::fprintf(results.out, "  %d of %zu comparisons differed: %s\n", check.differing(),
                 check.repetitions.size(), check.verdict().c_str());
  }
}

void print_trace(const Results& results) {
  if (!results.trace_error_us) return;
  std::fprintf(results.out, "\ntrace: %s, ranks and host on one time base to within %.1f us\n",
               results.options->trace_path.c_str(), *results.trace_error_us);
}

}  // namespace memra::bench::tp2
