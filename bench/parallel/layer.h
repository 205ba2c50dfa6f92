// One rank's share of a layer, in micro-batches: the sums of one travel while the next is computed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "layer_io.h"
#include "parallel/transport.h"

namespace memra::bench::parallel {

// What all ranks know of a call: ids, router weights and x of all tokens.
struct Call {
  Shape shape;  // of the whole layer and all tokens
  memra_path path = MEMRA_PATH_AUTO;
  memra_dtype dtype = MEMRA_F32;
  std::vector<int32_t> ids;
  std::vector<float> weights;

  // x of tokens [begin, begin + count), on the device.
  Memory upload_x(const Session& session, const Range& tokens) const;
  // Calls of the layer with x and these tokens, in this order.
  LayerIo io(const LayerFixture& fixture, const std::vector<int64_t>& tokens, const void* x) const;
};

Call make_call(const Shape& shape, memra_path path, memra_dtype dtype);

// Which work is enqueued.
struct Work {
  bool compute = true;
  bool communicate = true;
};

class ParallelLayer {
 public:
  ParallelLayer(const LayerFixture& fixture, Group& group, Transport* transport, Scheme scheme,
                const Call& call, int micro_batches);
  ~ParallelLayer();
  ParallelLayer(const ParallelLayer&) = delete;
  ParallelLayer& operator=(const ParallelLayer&) = delete;

  // So many layers back to back. The next layer of a micro-batch waits for its sums.
  void run(const Work& work, int layers);
  // Once all such work before it is done, on both streams.
  void record(const Work& work, const Event& event) const;
  void synchronize() const;

  int64_t n_pairs() const { return n_pairs_; }  // whose experts this rank holds
  // Tokens whose sums end up here, and the sums.
  const Range& tokens() const { return tokens_; }
  const Memory& y() const { return y_ ? *y_ : io_->y(); }

 private:
  struct MicroBatch {
    Range rows;  // of y
    std::unique_ptr<RowExchange> exchange;
    Memory received;
    std::unique_ptr<LayerIo> io;
    Event arrived, computed, done;
  };

  void split_tokens(const Call& call, const Group& group);
  void run_both();
  void complete(const MicroBatch& batch) const;
  void arrive(const MicroBatch& batch) const;
  void compute(const MicroBatch& batch) const;
  void finish(const MicroBatch& batch) const;
  void wait(const Event& event, memra_stream stream) const;
  void* y_row(int64_t row) const;

  const LayerFixture& fixture_;
  const Session& session_;
  Transport* transport_;
  memra_path path_;
  memra_dtype dtype_;
  memra_stream stream_ = nullptr;  // of the communication
  int64_t n_pairs_ = 0;
  Range tokens_;
  Memory x_;
  std::unique_ptr<LayerIo> io_;  // of all tokens, where they are not split
  std::unique_ptr<Memory> y_;    // of the rank's own, where they are
  std::vector<MicroBatch> batches_;
  const MicroBatch* pending_ = nullptr;  // computed, and its sums still to be sent
  Event idle_;
};

}  // namespace memra::bench::parallel
