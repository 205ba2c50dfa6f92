// What one rank holds, and its chain: gather x by CSR, convert act, and the GEMMs gate, up, down.
#pragma once

#include <cstdint>
#include <vector>

#include "layer_fixture.h"
#include "session.h"
#include "tp2/options.h"
#include "tp2/trace.h"

namespace memra::bench::tp2 {

// What a layer reads.
struct Inputs {
  void* x = nullptr;    // f32 [tokens, hidden_size]
  void* act = nullptr;  // f32 [n_pairs, intermediate_size]
};

class Rank {
 public:
  // The shape has its tokens, and copy_rows is not 0.
  Rank(const Session& session, const Options& options, int index);

  const Session& session() const { return session_; }
  const LayerFixture& fixture() const { return fixture_; }
  const std::vector<int32_t>& ids() const { return ids_; }
  int64_t n_active() const { return n_active_; }

  Inputs resident() const { return {x_.as(), act_.as()}; }
  // Copies of the resident inputs in memory of the stream's own; freed on the stream as well.
  Inputs allocate() const;
  void release(const Inputs& inputs) const;

  void gather(const Inputs& inputs) const;
  void convert(const Inputs& inputs) const;
  void multiply(Plane plane) const;
  void chain(const Inputs& inputs, Trace* trace) const;

  const Memory& output(Plane plane) const { return out_[plane]; }
  // Rows that go to the other rank after a layer, and where those of the other arrive. No chain
  // touches them, so that the event a copy waits for is all that orders it.
  const Memory& outbox() const { return outbox_; }
  const Memory& inbox() const { return inbox_; }

 private:
  void route();
  void make_tables();
  void gather_f16(const void* source, int64_t source_rows, int64_t columns, const Memory& z,
                  const Memory& zs, bool by_order) const;

  const Session& session_;
  int index_;
  Shape shape_;
  LayerFixture fixture_;
  std::vector<int32_t> ids_;
  int64_t n_active_ = 0;
  Memory x_, act_, outbox_, inbox_;
  Memory active_count_, active_, offsets_, order_;  // the CSR
  Memory ptrs_, scales_;
  Memory z_x_, zs_x_, z_act_, zs_act_;
  Memory out_[kPlanes];
  Memory workspace_;  // of one product at a time
};

}  // namespace memra::bench::tp2
