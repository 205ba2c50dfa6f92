#include "parallel/options.h"

#include <algorithm>
#include <map>
#include <string>

#include "cli.h"
#include "console.h"
#include "parallel/transport.h"

namespace memra::bench::parallel {
namespace {

constexpr const char* kDescription =
    "Runs a MoE layer split over ranks, one process each, and compares it with the layer on one\n"
    "device: its sums, its time, and how much of the communication is hidden.";

std::string footer() {
  return "Ranks are told who they are by RANK, WORLD_SIZE and LOCAL_RANK, or by mpirun or srun, "
         "and\n"
         "meet at --meet, or at MASTER_ADDR and MASTER_PORT. Rank 0 reports. Two on one host:\n"
         "  for r in 0 1; do RANK=$r WORLD_SIZE=2 " +
         std::string(kTool) +
         " --meet tcp:127.0.0.1:29500 & done; wait\n"
         "Exit status: 0 all well; 1 sums differ from those of one device, or a fault; 2 usage.";
}

const std::map<std::string, Scheme> kSchemeNames = {
    {"tensor", Scheme::kTensor},
    {"expert", Scheme::kExpert},
    {"expert-a2a", Scheme::kExpertAllToAll},
};
const std::map<std::string, memra_path> kPathNames = {
    {"rows", MEMRA_PATH_ROWS},
    {"grouped", MEMRA_PATH_GROUPED},
};
const std::map<std::string, memra_dtype> kDtypeNames = {
    {"f32", MEMRA_F32},
    {"bf16", MEMRA_BF16},
};
const std::map<std::string, TransportKind> kTransportNames = {
    {"auto", TransportKind::kAuto},
    {"nccl", TransportKind::kNccl},
    {"host", TransportKind::kHost},
};

template <typename Value>
CLI::Validator one_of(const std::map<std::string, Value>& names) {
  return CLI::CheckedTransformer(names).description("");
}

std::string objection_to(const Options& options) {
  Shape shape = options.shape;
  if (shape.n_experts == 0) shape.n_experts = std::max<int64_t>(shape.top_k, options.place.size);
  std::string text = objection(shape);
  if (!text.empty()) return text;
  const int size = options.place.size;
  for (const Scheme scheme : options.schemes) {
    const Share share = share_of(scheme, shape, size, 0);
    if (share.intermediate.count == 0) {
      return format("--intermediate %lld has no part of %d columns for each of %d ranks",
                    static_cast<long long>(shape.intermediate_size), MEMRA_COLUMN_MULTIPLE, size);
    }
    if (share.experts.count == 0) {
      return format("--experts %lld are not enough for %d ranks",
                    static_cast<long long>(shape.n_experts), size);
    }
  }
  for (const memra_path path : options.paths) {
    if (path == MEMRA_PATH_ROWS && shape.tokens > MEMRA_ROWS_MAX_TOKENS) {
      return format("--tokens %lld is more than the rows path takes, %d: give --path grouped",
                    static_cast<long long>(shape.tokens), MEMRA_ROWS_MAX_TOKENS);
    }
  }
  if (options.transport == TransportKind::kNccl && !has_nccl())
    return "--transport nccl: this program is built without NCCL";
  if (!options.meeting.where.empty()) {
    text = meeting_objection(options.meeting.where);
    return text.empty() ? text : "--meet: " + text;
  }
  return size == 1 ? ""
                   : "the ranks have nowhere to meet: give --meet, or MASTER_ADDR and "
                     "MASTER_PORT";
}

void add_layer(CLI::App* app, Options* options) {
  Shape& shape = options->shape;
  const CLI::Validator sizes = range(1, MEMRA_MAX_DIMENSION);
  app->add_option("--tokens", shape.tokens,
                  "tokens of all ranks together (rows: 1; grouped: GPU 4096, CPU 43)")
      ->check(range(1, MEMRA_GROUPED_MAX_PAIRS / MEMRA_MAX_TOP_K));
  app->add_option("--experts", shape.n_experts, "n_experts (GPU 288, CPU 16)")->check(sizes);
  app->add_option("--top-k", shape.top_k, "experts per token (8)")
      ->check(range(1, MEMRA_MAX_TOP_K));
  app->add_option("--hidden", shape.hidden_size, "hidden_size (4096)")->check(sizes);
  app->add_option("--intermediate", shape.intermediate_size,
                  "intermediate_size of the whole layer (1280)")
      ->check(sizes);
  app->add_option("--dtype", options->dtype, "f32 or bf16: of x, y and what travels (f32)")
      ->transform(one_of(kDtypeNames));
}

void add_split(CLI::App* app, Options* options) {
  app->add_option("--scheme", options->schemes,
                  "tensor: intermediate_size is split; expert: experts are split; expert-a2a: "
                  "experts and tokens are split, rows travel (all three)")
      ->delimiter(',')
      ->transform(one_of(kSchemeNames));
  app->add_option("--path", options->paths, "rows or grouped (both)")
      ->delimiter(',')
      ->transform(one_of(kPathNames));
  app->add_option("--micro-batches", options->micro_batches,
                  "parts of the tokens: one's sums travel while the next one is computed (1)")
      ->check(range(1, 1 << 10));
  app->add_option("--layers", options->layers, "layers back to back in a sample (GPU 8, CPU 2)")
      ->check(range(1, 1 << 10));
}

void add_ranks(CLI::App* app, Options* options, int* timeout_s) {
  app->add_option("--meet", options->meeting.where,
                  has_mpi() ? "tcp:ADDRESS:PORT of rank 0, file:FOLDER that rank 0 makes, or mpi"
                            : "tcp:ADDRESS:PORT of rank 0, or file:FOLDER that rank 0 makes");
  app->add_option("--timeout", *timeout_s, "seconds that a rank waits for another (120)")
      ->check(range(1, 1 << 20));
  app->add_option("--transport", options->transport,
                  "nccl, host (through the hosts' processors) or auto (auto)")
      ->transform(one_of(kTransportNames));
  add_backend_option(app, &options->backend);
  app->add_option("--device", options->device, "CUDA device (LOCAL_RANK)")
      ->check(range(0, 1 << 20));
  app->add_option("--threads", options->threads, "CPU threads of a rank (an equal share)")
      ->check(range(1, 4096));
}

}  // namespace

ParseResult parse_options(int argc, char** argv, Options* options) {
  CLI::App app{kDescription, kTool};
  app.footer(footer());
  app.get_formatter()->column_width(34);
  app.add_option("iters", options->iters, "samples (10)")->check(range(1, 1 << 20));
  add_layer(&app, options);
  add_split(&app, options);
  int timeout_s = 120;
  add_ranks(&app, options, &timeout_s);
  add_json_option(&app, &options->json_path);
  add_version(&app, kTool);

  if (const ParseResult result = parse(&app, argc, argv); result != ParseResult::kRun)
    return result;
  options->meeting.timeout = std::chrono::seconds(timeout_s);
  std::string text = read_place(&options->place);
  if (options->meeting.where.empty()) options->meeting.where = usual_meeting();
  if (text.empty()) text = objection_to(*options);
  return text.empty() ? ParseResult::kRun : usage_error(kTool, text);
}

}  // namespace memra::bench::parallel
