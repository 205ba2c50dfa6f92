// The rows kernels in plain C++: what every other set of kernels must equal.

#include <cstdint>
#include <cstring>

#include "cpu/grouped_simd.h"
#include "cpu/rows_common.h"
#include "cpu/rows_kernels.h"
#include "cpu/slab_access.h"
#include "numerics/dot.h"
#include "numerics/ue4m3.h"

namespace memra::cpu {
namespace {

// The code bytes and the two scale bytes of 32 columns of a row.
struct Group {
  const std::uint8_t* codes;
  const std::uint8_t* scales;
};

template <template <class> class Access>
Group group_at(const Access<nv::LayoutV1>& slab, std::int64_t row, std::int64_t group) {
  const std::uint8_t* block = slab.block(row, group / 2);
  return {block + nv::kV1BlockScaleBytes + group % 2 * nv::kGroupCodeBytes,
          block + group % 2 * nv::kGroupScaleBytes};
}

template <template <class> class Access>
Group group_at(const Access<nv::LayoutV2>& slab, std::int64_t row, std::int64_t group) {
  const std::int64_t row_block = row / nv::kV2TileRows, tile = group / nv::kV2TileGroups;
  const std::int64_t slot = nv::LayoutV2::slot(slab.in, tile, row, group);
  return {slab.codes(row_block, tile) + slot * nv::kGroupCodeBytes,
          slab.scales(row_block, tile) + slot * nv::kGroupScaleBytes};
}

// The activations of a group in the order of its columns.
template <bool kLaneMajor>
const std::int8_t* natural(const std::int8_t* q, std::int8_t* buffer) {
  if constexpr (!kLaneMajor) return q;
  for (int i = 0; i < numerics::kGroup; ++i)
    buffer[i] = q[lane_major_position(i)];
  return buffer;
}

template <class Layout, template <class> class Access, bool kLaneMajor>
float dot(const Access<Layout>& slab, std::int64_t row, const DotsRow& x) {
  float lanes[numerics::kVirtualLanes] = {};
  for (std::int64_t g = 0; g < slab.in / nv::kGroupValues; ++g) {
    const Group group = group_at(slab, row, g);
    std::int8_t buffer[numerics::kGroup];
    const std::int8_t* const q = natural<kLaneMajor>(x.q + g * numerics::kGroup, buffer);
    const std::int32_t i0 = numerics::half_dot(group.codes, q);
    const std::int32_t i1 = numerics::half_dot(group.codes + 8, q + 16);
    const float partial = numerics::group_partial(numerics::ue4m3_decode(group.scales[0]), i0,
                                                  numerics::ue4m3_decode(group.scales[1]), i1);
    float& lane = lanes[g % numerics::kVirtualLanes];
    lane = numerics::row_step(lane, x.d[g], partial);
  }
  return numerics::finish_dot(numerics::lane_tree(lanes));
}

template <class Layout, template <class> class Access, bool kLaneMajor>
void dots(const SlabRows& run, const DotsRow* x, std::int64_t count) {
  const Access<Layout> slab{run.slab, run.rows, run.in};
  for (std::int64_t r = 0; r < run.row_count; ++r) {
    for (std::int64_t t = 0; t < count; ++t) {
      x[t].dots[r] = dot<Layout, Access, kLaneMajor>(slab, run.row_begin + r, x[t]);
    }
  }
}

template <class Layout>
void load_only(const SlabRows& run, const DotsRow* x, std::int64_t count) {
  const SlabMemory<Layout> slab{run.slab, run.rows, run.in};
  const std::int64_t groups = run.in / nv::kGroupValues;
  for (std::int64_t r = 0; r < run.row_count; ++r) {
    std::uint64_t sum = 0;
    for (std::int64_t g = 0; g < groups; ++g) {
      const Group group = group_at(slab, run.row_begin + r, g);
      std::uint64_t codes[2];
      std::uint16_t scales;
      std::memcpy(codes, group.codes, sizeof codes);
      std::memcpy(&scales, group.scales, sizeof scales);
      sum ^= codes[0] ^ codes[1] ^ scales;
    }
    for (std::int64_t t = 0; t < count; ++t)
      x[t].dots[r] = static_cast<float>(sum >> 40);
  }
}

void finish_gate_up(const GateUpRun& run) {
  finish_gate_up_loop(run);
}
void add_slot(const SlotRun& run) {
  add_slot_loop(run);
}
void quantize(const QuantizeRun& run) {
  quantize_loop(run);
}

void read(const void* begin, std::uint64_t bytes) {
  const auto* p = static_cast<const std::uint8_t*>(begin);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i + sizeof sum <= bytes; i += sizeof sum) {
    std::uint64_t word;
    std::memcpy(&word, p + i, sizeof word);
    sum ^= word;
  }
  asm volatile("" : : "r"(sum) : "memory");
}

struct GroupedPortable {
  struct Floats {
    float v[8];
  };
  static constexpr std::int64_t kLanes = 8;
  static constexpr std::int64_t kVectors = 1;
  static constexpr std::int64_t kTokens = 4;

  template <class Value>
  static Floats make(const Value& value) {
    Floats result;
    for (int i = 0; i < 8; ++i)
      result.v[i] = value(i);
    return result;
  }
  static Floats load(const float* p) {
    return make([&](int i) { return p[i]; });
  }
  static void store(float* p, const Floats& a) {
    for (int i = 0; i < 8; ++i)
      p[i] = a.v[i];
  }
  static Floats all(float x) {
    return make([&](int) { return x; });
  }
  static Floats fma(const Floats& a, const Floats& b, const Floats& c) {
    return make([&](int i) { return numerics::fma(a.v[i], b.v[i], c.v[i]); });
  }
  template <std::int64_t kPanel>
  static void decode(const std::uint8_t* codes, std::int64_t step, const float* scales,
                     float* panel) {
    decode_half_plainly<kPanel>(codes, step, scales, panel);
  }
  static void scales(const std::uint8_t* codes, std::int64_t step, float (&scales)[2][8]) {
    scales_plainly(codes, step, scales);
  }
};

}  // namespace

constexpr RowsKernels kPortableKernels = {
    "portable",
    "cpu_rows_v1_portable",
    "cpu_rows_v2_portable",
    "cpu_rows_v2_lane_major_portable",
    "cpu_rows_mixed_portable",
    {dots<nv::LayoutV1, SlabMemory, false>, dots<nv::LayoutV2, SlabMemory, false>,
     dots<nv::LayoutV2, SlabMemory, true>},
    {load_only<nv::LayoutV1>, load_only<nv::LayoutV2>, load_only<nv::LayoutV2>},
    {dots<nv::LayoutV1, SlabWindow, false>, dots<nv::LayoutV2, SlabWindow, false>,
     dots<nv::LayoutV2, SlabWindow, true>},
    finish_gate_up,
    add_slot,
    quantize,
    read,
    make_grouped<GroupedPortable>("cpu_grouped_portable"),
};

}  // namespace memra::cpu
