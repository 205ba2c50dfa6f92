#include "tp2/options.h"

#include "cli.h"
#include "console.h"

namespace memra::bench::tp2 {
namespace {

constexpr const char* kDescription =
    "Runs the expert matrices of a MoE layer on two ranks at once, as tensor parallelism does, "
    "and\n"
    "tells from times whether the ranks overlap, and if not, what holds them back.";

constexpr const char* kFooter =
    "An option wins over its variable. Exit status: 0 all well, whatever the verdict; 1 outputs\n"
    "differ from run to run, prove nothing though banks are random, or a fault; 2 usage.";

std::string objection_to(const Options& options) {
  std::string text = objection(options.shape);
  if (!text.empty()) return text;
  if (options.copy_first != 0 && options.peer_copy == 0)
    return "--copy-first (MEMRA_TP2_COPY_FIRST) needs --peercopy 1 (MEMRA_TP2_PEERCOPY)";
  if (options.determinism_concurrent != 0 && options.determinism == 0) {
    return "--determ-concurrent (MEMRA_TP2_DETERM_CONCURRENT) needs --determinism 1 "
           "(MEMRA_TP2_DETERMINISM)";
  }
  if (options.shape.tokens > 0 && options.copy_rows > options.shape.tokens) {
    return format("--copy-rows %lld is more than --tokens %lld",
                  static_cast<long long>(options.copy_rows),
                  static_cast<long long>(options.shape.tokens));
  }
  if (options.threads == 1) return "--threads 1 cannot be halved: the ranks need one each";
  return "";
}

void add_shape(CLI::App* app, Variables* variables, Options* options) {
  Shape& shape = options->shape;
  const CLI::Validator sizes = range(1, MEMRA_MAX_DIMENSION);
  variables->add(app->add_option("--tokens", shape.tokens, "tokens (GPU 4096, CPU 43)")
                     ->check(range(1, MEMRA_GROUPED_MAX_PAIRS / MEMRA_MAX_TOP_K)),
                 "MEMRA_TP2_T");
  app->add_option("--experts", shape.n_experts, "n_experts (288)")->check(sizes);
  app->add_option("--top-k", shape.top_k, "experts per token (8)")
      ->check(range(1, MEMRA_MAX_TOP_K));
  app->add_option("--hidden", shape.hidden_size, "hidden_size (4096)")->check(sizes);
  app->add_option("--intermediate", shape.intermediate_size, "intermediate_size of a rank (640)")
      ->check(sizes);
}

void add_scenario(CLI::App* app, Variables* variables, Options* options) {
  const CLI::Validator counts = range(1, 1 << 20);
  const auto add_switch = [&](const char* name, int* value, const char* text,
                              const char* variable) {
    variables->add(app->add_option(name, *value, text)->check(range(0, 1)), variable);
  };
  const auto is_format = [](const std::string& text) {
    const bool good = text == "7" || text == "107";
    return good ? std::string() : "Value " + text + " is neither 7 nor 107";
  };
  variables->add(app->add_option("--qt", options->format, "format of the banks, 7 or 107 (107)")
                     ->check(CLI::Validator(is_format, "")),
                 "MEMRA_TP2_QT");
  add_switch("--randbank", &options->random_bank, "1: banks of random bytes, 0: of zeros (1)",
             "MEMRA_TP2_RANDBANK");
  add_switch("--peercopy", &options->peer_copy,
             "1: before rank 1's chain, rows of rank 0's x are copied to it, after a wait for an "
             "event of rank 0's stream (0)",
             "MEMRA_TP2_PEERCOPY");
  add_switch("--copy-first", &options->copy_first,
             "1: that copy is issued before rank 0's chain (0)", "MEMRA_TP2_COPY_FIRST");
  variables->add(
      app->add_option("--copy-rows", options->copy_rows, "rows of a copy (32)")->check(counts),
      "MEMRA_TP2_COPY_ROWS");
  variables->add(app->add_option("--root-busy", options->root_busy,
                                 "gathers and gate GEMMs that rank 0 runs first (none)")
                     ->check(counts),
                 "MEMRA_TP2_ROOT_BUSY");
  variables->add(app->add_option("--layers", options->layers,
                                 "layers back to back, after each a copy from rank 1 to rank 0 "
                                 "(one layer, no copy)")
                     ->check(counts),
                 "MEMRA_TP2_LAYERS");
  add_switch("--fresh-alloc", &options->fresh_alloc,
             "1: x and act of every layer are allocated and freed on the stream (0)",
             "MEMRA_TP2_FRESH_ALLOC");
  add_switch("--determinism", &options->determinism,
             "1: compare the bits of repeated runs as well (0)", "MEMRA_TP2_DETERMINISM");
  add_switch("--determ-concurrent", &options->determinism_concurrent,
             "1: with rank 1 at work meanwhile (0)", "MEMRA_TP2_DETERM_CONCURRENT");
}

}  // namespace

ParseResult parse_options(int argc, char** argv, Options* options) {
  CLI::App app{kDescription, kTool};
  app.footer(kFooter);
  app.get_formatter()->column_width(34);
  Variables variables;
  app.add_option("iters", options->iters, "iterations, and samples of the verdict (20)")
      ->check(range(1, 1 << 20));
  add_shape(&app, &variables, options);
  add_scenario(&app, &variables, options);
  add_backend_option(&app, &options->backend);
  app.add_option("--devices", options->devices, "CUDA devices of the two ranks, such as 0,1")
      ->delimiter(',')
      ->expected(2)
      ->check(range(0, 1 << 20));
  app.add_option("--threads", options->threads, "CPU threads, half of them for each rank (all)")
      ->check(range(1, 1 << 20));
  app.add_option("--trace", options->trace_path,
                 "write a trace of one iteration for Chrome or Perfetto to this file");
  add_json_option(&app, &options->json_path);
  add_version(&app, kTool);

  if (const ParseResult result = parse(&app, argc, argv); result != ParseResult::kRun)
    return result;
  if (const ParseResult result = variables.read(kTool); result != ParseResult::kRun) return result;
  const std::string text = objection_to(*options);
  return text.empty() ? ParseResult::kRun : usage_error(kTool, text);
}

}  // namespace memra::bench::tp2
