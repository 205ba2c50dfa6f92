#include "parallel/layer.h"

#include <numeric>
#include <utility>

#include "inputs.h"
#include "routing.h"

namespace memra::bench::parallel {
namespace {

constexpr double kSkew = 1.35;  // low experts get more
constexpr uint32_t kInputSeed = 51;

std::vector<int64_t> numbers(const Range& range) {
  std::vector<int64_t> all(static_cast<size_t>(range.count));
  std::iota(all.begin(), all.end(), range.begin);
  return all;
}

template <typename Value>
std::vector<Value> of_tokens(const std::vector<Value>& values, const std::vector<int64_t>& tokens,
                             int64_t per_token) {
  std::vector<Value> some;
  for (const int64_t token : tokens) {
    const auto first = values.begin() + token * per_token;
    some.insert(some.end(), first, first + per_token);
  }
  return some;
}

}  // namespace

Call make_call(const Shape& shape, memra_path path, memra_dtype dtype) {
  return {shape, path, dtype, hashed_experts(shape, kSkew), random_router_weights(shape)};
}

Memory Call::upload_x(const Session& session, const Range& tokens) const {
  const int64_t count = shape.tokens * shape.hidden_size;
  const auto upload = [&](const auto& all) {
    const auto first = all.begin() + tokens.begin * shape.hidden_size;
    return session.upload(std::vector(first, first + tokens.count * shape.hidden_size));
  };
  return dtype == MEMRA_F32 ? upload(random_floats(count, kInputSeed)) : upload(random_bf16(count));
}

LayerIo Call::io(const LayerFixture& fixture, const std::vector<int64_t>& tokens,
                 const void* x) const {
  return {fixture,
          {.ids = of_tokens(ids, tokens, shape.top_k),
           .weights = of_tokens(weights, tokens, shape.top_k),
           .x = x,
           .dtype = dtype}};
}

ParallelLayer::ParallelLayer(const LayerFixture& fixture, Group& group, Transport* transport,
                             Scheme scheme, const Call& call, int micro_batches)
    : fixture_(fixture),
      session_(fixture.session()),
      transport_(transport),
      path_(call.path),
      dtype_(call.dtype),
      idle_(session_.event()) {
  batches_.resize(static_cast<size_t>(micro_batches));
  for (MicroBatch& batch : batches_) {
    for (Event* event : {&batch.arrived, &batch.computed, &batch.done})
      *event = session_.event();
  }
  const Share share = share_of(scheme, call.shape, group.size(), group.rank());
  for (const int32_t id : call.ids) {
    const int64_t expert = id - share.experts.begin;
    n_pairs_ += expert >= 0 && expert < share.experts.count ? 1 : 0;
  }
  if (scheme == Scheme::kExpertAllToAll) {
    split_tokens(call, group);
  } else {
    tokens_ = {0, call.shape.tokens};
    x_ = call.upload_x(session_, tokens_);
    io_ = std::make_unique<LayerIo>(call.io(fixture, numbers(tokens_), x_.as()));
    for (int m = 0; m < micro_batches; ++m)
      batches_[static_cast<size_t>(m)].rows = part_of(tokens_.count, micro_batches, m);
  }
  session_.synchronize();
  check(memra_stream_create(session_.engine(), &stream_), "memra_stream_create");
}

ParallelLayer::~ParallelLayer() {
  (void)memra_stream_destroy(session_.engine(), stream_);
}

void ParallelLayer::split_tokens(const Call& call, const Group& group) {
  const int micro_batches = static_cast<int>(batches_.size());
  tokens_ = part_of(call.shape.tokens, group.size(), group.rank());
  x_ = call.upload_x(session_, tokens_);
  y_ = std::make_unique<Memory>(session_.device_memory(x_.bytes()));
  for (int m = 0; m < micro_batches; ++m) {
    MicroBatch& batch = batches_[static_cast<size_t>(m)];
    batch.rows = part_of(tokens_.count, micro_batches, m);
    batch.exchange = std::make_unique<RowExchange>(
        session_,
        make_token_plan(call.shape, call.ids, group.size(), group.rank(), micro_batches, m),
        call.shape.hidden_size, dtype_);
    const std::vector<int64_t>& received = batch.exchange->plan.received;
    batch.received = session_.device_memory(received.size() * batch.exchange->row_bytes);
    batch.io = std::make_unique<LayerIo>(call.io(fixture_, received, batch.received.as()));
  }
}

void ParallelLayer::wait(const Event& event, memra_stream stream) const {
  check(memra_event_wait(session_.engine(), event.get(), stream), "memra_event_wait");
}

void* ParallelLayer::y_row(int64_t row) const {
  if (io_) return io_->y_row(row);
  return y_->as<std::byte>() + static_cast<size_t>(row) * batches_[0].exchange->row_bytes;
}

void ParallelLayer::arrive(const MicroBatch& batch) const {
  if (!batch.exchange) return;
  const std::byte* x =
      x_.as<std::byte>() + static_cast<size_t>(batch.rows.begin) * batch.exchange->row_bytes;
  transport_->dispatch(*batch.exchange, x, batch.received.as(), stream_);
}

void ParallelLayer::compute(const MicroBatch& batch) const {
  if (batch.io) {
    batch.io->launch(path_);
  } else {
    io_->launch(path_, batch.rows.begin, batch.rows.count);
  }
}

void ParallelLayer::finish(const MicroBatch& batch) const {
  if (batch.exchange) {
    transport_->combine(*batch.exchange, batch.io->y().as(), y_row(batch.rows.begin), stream_);
  } else {
    transport_->all_reduce(y_row(batch.rows.begin), batch.rows.count * fixture_.shape().hidden_size,
                           dtype_, stream_);
  }
}

// Each alone needs no events, so that what these cost counts as communication.
void ParallelLayer::run(const Work& work, int layers) {
  for (int layer = 0; layer < layers; ++layer) {
    if (work.compute && work.communicate) {
      run_both();
      continue;
    }
    for (const MicroBatch& batch : batches_) {
      if (work.compute) compute(batch);
      if (work.communicate) {
        arrive(batch);
        finish(batch);
      }
    }
  }
  if (pending_ != nullptr) complete(*std::exchange(pending_, nullptr));
}

void ParallelLayer::run_both() {
  for (const MicroBatch& batch : batches_) {
    // This one's sums of the layer before: with one micro-batch nothing came between.
    if (pending_ == &batch) complete(*std::exchange(pending_, nullptr));
    if (batch.exchange) {
      arrive(batch);
      check(memra_event_record(batch.arrived.get(), stream_), "memra_event_record");
      wait(batch.arrived, session_.stream());
    } else {
      wait(batch.done, session_.stream());
    }
    compute(batch);
    check(memra_event_record(batch.computed.get(), session_.stream()), "memra_event_record");
    // By now the device has something to do meanwhile.
    if (pending_ != nullptr) complete(*pending_);
    pending_ = &batch;
  }
}

void ParallelLayer::complete(const MicroBatch& batch) const {
  wait(batch.computed, stream_);
  finish(batch);
  check(memra_event_record(batch.done.get(), stream_), "memra_event_record");
}

void ParallelLayer::record(const Work& work, const Event& event) const {
  if (!work.communicate) {
    check(memra_event_record(event.get(), session_.stream()), "memra_event_record");
    return;
  }
  check(memra_event_record(idle_.get(), session_.stream()), "memra_event_record");
  wait(idle_, stream_);
  check(memra_event_record(event.get(), stream_), "memra_event_record");
}

void ParallelLayer::synchronize() const {
  session_.synchronize();
  check(memra_stream_synchronize(session_.engine(), stream_), "memra_stream_synchronize");
}

}  // namespace memra::bench::parallel
