// moe-parallel: a MoE layer over ranks, one process each, in tensor and in expert parallelism.
#include <algorithm>

#include "console.h"
#include "json_parts.h"
#include "parallel/report.h"

namespace memra::bench::parallel {
namespace {

constexpr int64_t kExperts = 288;
constexpr int kGpuLayers = 8;
constexpr int kCpuLayers = 2;
constexpr int64_t kGpuTokens = 4096;
constexpr int64_t kCpuTokens = 43;

using SessionPtr = std::unique_ptr<Session>;

SessionPtr open_session(const Options& options) {
  const auto open = [&](int device, int threads) {
    return std::make_unique<Session>(EngineChoice{options.backend, device, threads});
  };
  const bool may_be_cuda = options.backend != MEMRA_BACKEND_CPU;
  const int own = may_be_cuda ? options.place.local_rank : 0;
  SessionPtr session;
  try {
    session = open(options.device >= 0 ? options.device : own, options.threads);
  } catch (const Failure& failure) {
    // MEMRA_BACKEND=cpu: the only device there is 0.
    if (options.device >= 0 || failure.status() != MEMRA_ERROR_INVALID_ARGUMENT) throw;
    session = open(0, options.threads);
  }
  if (!session->on_cpu() || options.threads > 0) return session;
  return open(0, std::max(1, session->properties().cpu_threads / options.place.local_size));
}

RankDevice describe(const Session& session) {
  const memra_engine_properties& properties = session.properties();
  RankDevice rank;
  rank.backend = properties.backend;
  rank.device = properties.device;
  rank.threads = properties.cpu_threads;
  std::copy(std::begin(properties.device_name), std::end(properties.device_name), rank.name);
  return rank;
}

void require_one_backend(const std::vector<RankDevice>& ranks) {
  for (size_t r = 1; r < ranks.size(); ++r) {
    if (ranks[r].backend == ranks[0].backend) continue;
    const bool cpu = ranks[r].backend == MEMRA_BACKEND_CPU;
    throw Failure(
        format("rank %zu runs on the %s and rank 0 does not: fewer GPUs than ranks? "
               "--backend and --device say where ranks run",
               r, cpu ? "CPU" : "GPU"));
  }
}

std::unique_ptr<Transport> make_transport(const Options& options, Group& group,
                                          const Session& session) {
  const bool nccl = options.transport == TransportKind::kNccl ||
                    (options.transport == TransportKind::kAuto && has_nccl() && !session.on_cpu());
  if (!nccl) return make_host_transport(group, session);
  if (session.on_cpu()) throw Failure("--transport nccl: the ranks run on the CPU");
  return make_nccl_transport(group, session);
}

bool has_grouped_path(const Session& session) {
  const LayerFixture smallest(session, {64, 64, 1, 1, 1}, {});
  return smallest.properties().grouped_max_tokens > 0;
}

// One for each path that the device has.
std::vector<Call> make_calls(const Options& options, const Session& session,
                             std::vector<std::string>* notes) {
  std::vector<Call> calls;
  calls.reserve(options.paths.size());
  for (const memra_path path : options.paths) {
    if (path == MEMRA_PATH_GROUPED && !has_grouped_path(session)) {
      notes->push_back("the device has no grouped path");
      continue;
    }
    Shape shape = options.shape;
    if (shape.tokens == 0) {
      const bool rows = path == MEMRA_PATH_ROWS;
      shape.tokens = rows ? 1 : (session.on_cpu() ? kCpuTokens : kGpuTokens);
    }
    calls.push_back(make_call(shape, path, options.dtype));
  }
  return calls;
}

// Banks for the longest of the calls.
LayerFixture make_fixture(const Session& session, const Options& options,
                          const std::vector<Call>& calls, const LayerPart& part) {
  Shape shape = options.shape;
  for (const Call& call : calls)
    shape.tokens = std::max(shape.tokens, call.shape.tokens);
  return {session, shape, {}, part};
}

std::vector<OneDevice> measure_one_device(Group& group, const Session& session,
                                          const Options& options, const std::vector<Call>& calls) {
  std::unique_ptr<LayerFixture> whole;
  if (group.rank() == 0)
    whole = std::make_unique<LayerFixture>(make_fixture(session, options, calls, {}));
  std::vector<OneDevice> all;
  all.reserve(calls.size());
  for (const Call& call : calls) {
    all.push_back(
        measure_one_device(group, whole.get(), session, call, {options.iters, options.layers}));
  }
  return all;
}

LayerPart part_of_layer(Scheme scheme, const Options& options, const Group& group) {
  const Share share = share_of(scheme, options.shape, group.size(), group.rank());
  LayerPart part;
  part.intermediate_begin = share.intermediate.begin;
  part.intermediate_count = share.intermediate.count;
  part.expert_begin = share.experts.begin;
  part.expert_count = share.experts.count;
  return part;
}

Case measure_case(Group& group, Transport* transport, const LayerFixture& fixture, Scheme scheme,
                  const Call& call, const OneDevice& one, const Options& options) {
  const Session& session = fixture.session();
  Case result;
  result.scheme = scheme;
  result.path = call.path;
  result.tokens = call.shape.tokens;
  result.micro_batches =
      static_cast<int>(std::min<int64_t>(options.micro_batches, call.shape.tokens));
  result.one_device_us = one.time_us;
  ParallelLayer layer(fixture, group, transport, scheme, call, result.micro_batches);
  result.n_pairs = group.gather(layer.n_pairs());
  result.agreement = compare(group, session, &layer, call, one);
  result.times = measure_split(group, session, &layer, one, {options.iters, options.layers});
  return result;
}

int64_t usual_experts(const Options& options, bool on_cpu) {
  const Shape model = {.n_experts = kExperts, .top_k = options.shape.top_k};
  return std::max<int64_t>(bench::usual_experts(model, on_cpu), options.place.size);
}

int run_rank(Options options, Group& group) {
  const bool reports = group.rank() == 0;
  if (reports) require_writable(options.json_path);
  const SessionPtr session = open_session(options);
  if (options.shape.n_experts == 0)
    options.shape.n_experts = usual_experts(options, session->on_cpu());
  if (options.layers == 0) options.layers = session->on_cpu() ? kCpuLayers : kGpuLayers;
  Results results;
  if (options.json_path == "-") results.out = stderr;
  results.options = &options;
  results.ranks = group.gather(describe(*session));
  require_one_backend(results.ranks);
  const std::unique_ptr<Transport> transport = make_transport(options, group, *session);
  results.transport = transport->name();
  const std::vector<Call> calls = make_calls(options, *session, &results.notes);
  if (reports) print_setup(results);

  const std::vector<OneDevice> one = measure_one_device(group, *session, options, calls);
  for (const Scheme scheme : options.schemes) {
    const LayerFixture fixture =
        make_fixture(*session, options, calls, part_of_layer(scheme, options, group));
    for (size_t c = 0; c < calls.size(); ++c) {
      results.cases.push_back(
          measure_case(group, transport.get(), fixture, scheme, calls[c], one[c], options));
      if (reports) print_case(results, results.cases.back());
    }
  }
  if (reports && !options.json_path.empty()) write_json(results);
  return results.all_agree() ? kOk : kFailed;
}

int run(Options options) {
  const std::unique_ptr<Group> group = join(options.meeting, options.place);
  options.place = group->place();
  try {
    return run_rank(options, *group);
  } catch (const std::exception& error) {
    throw Failure("rank " + std::to_string(group->rank()) + ": " + error.what());
  }
}

}  // namespace
}  // namespace memra::bench::parallel

int main(int argc, char** argv) {
  using namespace memra::bench;
  parallel::Options options;
  return run_tool(
      parallel::kTool, [&] { return parallel::parse_options(argc, argv, &options); },
      [&] { return parallel::run(options); });
}
