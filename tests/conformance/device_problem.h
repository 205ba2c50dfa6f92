// A problem in an engine's memory: its layer, and calls of it held against the reference.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "conformance/buffer.h"
#include "conformance/problems.h"

namespace memra::test {

// How the slabs lie in memory, and how the layer learns of them.
enum class Slabs {
  kPacked,    // one base, stride 0
  kStrided,   // one base, a stride with gaps that shift the next slab by the least alignment
  kPointers,  // a host array of pointers
  kTables     // the layer has none: device tables in every call
};

struct Placement {
  Slabs slabs = Slabs::kPacked;
  std::int64_t v1_skew = 0;  // bytes of the first V1 slab after a multiple of 256; a multiple of 4
};

struct Call {
  std::uint32_t variant = MEMRA_ROWS_AUTO;
  bool inputs_stable = false;
  std::int64_t first = 0;    // token
  std::int64_t tokens = -1;  // -1: all from the first on
  // ROWS and GROUPED call the entry of that path, AUTO memra_moe.
  memra_path path = MEMRA_PATH_ROWS;
};

// "AUTO", "ILP|PACK", ...
std::string variant_name(std::uint32_t variant);

class DeviceProblem {
 public:
  // Keeps a reference to the problem. The default capacity is the problem's tokens.
  DeviceProblem(Engine& engine, const reference::MoeProblem& problem, Placement placement = {});
  ~DeviceProblem();
  DeviceProblem(const DeviceProblem&) = delete;
  DeviceProblem& operator=(const DeviceProblem&) = delete;

  Engine& engine() const { return engine_; }
  const reference::MoeProblem& problem() const { return problem_; }
  memra_moe_layer* layer() const { return layer_; }
  // AUTO, then every explicit variant that the layer lists.
  std::vector<std::uint32_t> variants() const;

  // The arguments of a call, as enqueue() passes them.
  memra_moe_args args(const Call& call) const;
  memra_status enqueue(const Call& call, memra_stream stream) const;

  // Poisons workspace and y (accumulating: its initial contents) and sets the counter of bad ids.
  void reset() const;
  // Enqueues on the engine's stream after a reset, and waits.
  void run(const Call& call) const;
  void run_recorded(const Call& call) const;

  // y, its gaps, the counter, the workspace beyond what was asked for, and guard bands, after one
  // call since reset().
  ::testing::AssertionResult check(const Call& call, const reference::MoeResult& expected) const;
  // The same for the grouped path, whose bits are its own: y [tokens, hidden] of the whole problem.
  ::testing::AssertionResult check_close(const Call& call, const std::vector<double>& exact) const;
  // What calls have added to *invalid_ids.
  std::uint64_t counted_since_reset() const;
  // No output of a call has been written since reset().
  ::testing::AssertionResult untouched() const;
  // Every input holds what it held.
  ::testing::AssertionResult inputs_intact() const;

  // Contents that a later run, or a replay, is to see; of the shape, formats, placement and initial
  // y of the first ones.
  void replace_tokens(const reference::MoeProblem& problem);
  void replace_slabs(const reference::MoeProblem& problem);
  void replace_tables(const std::vector<const void*>& ptrs, const std::vector<float>& scales);

  Bytes y() const { return y_.download(); }
  // One row of y as f32.
  std::vector<float> y_row(std::int64_t token) const;

  const std::uint8_t* slab(reference::Plane plane, std::int64_t local) const {
    return banks_[plane].slabs[static_cast<std::size_t>(local)];
  }
  const float* bias(reference::Plane plane, std::int64_t local) const;
  // Addresses and scales as tables of a call: plane-major, NULL where a slab has no bytes.
  std::vector<const void*> slab_table() const;
  std::vector<float> scale_table() const;

 private:
  struct Bank {
    std::vector<Input> inputs;               // one, or one a slab
    std::vector<const std::uint8_t*> slabs;  // by local expert
    std::int64_t stride = 0;                 // bytes
    Input bias;
  };

  std::int64_t tokens_of(const Call& call) const;
  void upload_bank(reference::Plane plane);
  void upload_tables();
  void create_layer();
  ::testing::AssertionResult check_y(const Call& call, const reference::MoeResult& expected) const;
  // All that a call may write but y.
  ::testing::AssertionResult check_surroundings(const Call& call) const;
  std::uint64_t expected_count(const Call& call) const;

  Engine& engine_;
  const reference::MoeProblem& problem_;
  Placement placement_;
  memra_moe_layer* layer_ = nullptr;
  Bank banks_[3];
  std::map<const reference::Slab*, Input> table_slabs_;
  Input table_ptrs_, table_scales_;
  Input x_, ids_, weights_;
  Buffer y_, workspace_, counter_;
};

}  // namespace memra::test
