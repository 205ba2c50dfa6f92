#pragma once

// The rows kernels over vectors, whatever their width. An instruction set is a class `Simd`, made
// of simd_256.h or in its own file; it must be local to a file that is compiled with that
// instruction set on, so that every instantiation is local as well. For the same reason nothing but
// always-inlined functions may be included: the linker could keep an AVX copy for everybody.
//
// The unit of work is a step: kGroups neighbouring groups of one row, 4, 8 or 16. Vector i of the
// four that are loaded holds kParts of them, a group (4 words of codes) to each 128-bit part. What
// happens to it, and why the bits are those of the contract:
//  - The words are transposed, so that a group is a lane: vector j has word j of every group, and
//    the sums over a group need no horizontal step.
//  - A shuffle by code looks up the doubled value plus 12, 0..24, so that unsigned-times-signed
//    multiply-adds take it as it is; 12 times the sum of the activations, kept beside them, is
//    subtracted. Integers: exact.
//  - Decoded once, a step serves all rows of activations that are given; a half of every group at a
//    time, so that decoded weights, and what rows of activations have so far, fit the registers.
//  - Place i of part L is group i * kParts + L of the step. The order of virtual lanes in a vector
//    is free; finish() adds the pairs that rule 3 names.

#include <cstdint>

#include "cpu/rows_common.h"
#include "cpu/rows_kernels.h"
#include "cpu/slab_access.h"

namespace memra::cpu {

inline constexpr int kCodeBias = 12;
// Sums over a half of a group become floats without a conversion: added to the bits of kSumOffset
// they make kSumOffset + kSumUnit * sum. Scales are halfway decoded, to 1 / kSumUnit of what they
// are.
inline constexpr float kSumOffset = 0x1.8p31f;
inline constexpr std::int32_t kSumOffsetBits = 0x4F400000;
inline constexpr float kSumUnit = 256.0f;
static_assert(__builtin_bit_cast(float, kSumOffsetBits + 1) == kSumOffset + kSumUnit);
inline constexpr std::int64_t kTileColumns = nv::kV2TileColumns;
inline constexpr std::int64_t kRows = nv::kV2TileRows;  // taken at a time
inline constexpr std::int64_t kBlockGroups = nv::kV1BlockValues / nv::kGroupValues;
inline constexpr std::int64_t kBlockCodeBytes = kBlockGroups * nv::kGroupCodeBytes;
inline constexpr std::int64_t kBlockScaleBytes = kBlockGroups * nv::kGroupScaleBytes;

// Hardware prefetchers alone leave a third of the speed unused: the rows of a tile, and codes and
// scales, are read side by side. Prefetching beyond a slab's end is harmless.
inline constexpr std::int64_t kNearBytes = 2048;  // ahead, of codes: what comes into L1
inline constexpr std::int64_t kFarBytes = 8192;   // into L2

template <class Layout>
inline constexpr bool kIsV1 = false;
template <>
inline constexpr bool kIsV1<nv::LayoutV1> = true;

template <class Simd>
struct Vectors {
  using Ints = typename Simd::Ints;
  using Floats = typename Simd::Floats;
  static constexpr std::int64_t kParts = Simd::kParts;
  static constexpr std::int64_t kGroups = 4 * kParts;              // of a step
  static constexpr std::int64_t kBlocks = kGroups / kBlockGroups;  // of 64 columns
  static constexpr std::int64_t kTiles = kGroups / nv::kV2TileGroups;
  static constexpr std::int64_t kColumns = kGroups * nv::kGroupValues;
  static constexpr std::int64_t kResidues = numerics::kVirtualLanes / kGroups;

  // Codes as they lie in memory, and scales: those of group g are bytes 2g and 2g + 1.
  struct Raw {
    Ints codes[4];
    typename Simd::ScaleBytes scales;
  };

  // Word j of every group, and the scales of each half. Low nibbles of words 2h and 2h + 1 meet
  // words 4h and 4h + 1 of the activations, high ones the two after them.
  struct Words {
    Ints v[4];
    Floats scale[2];
    Floats offset;  // of scale[0] times a sum
  };

  // A step of a row of activations.
  struct Operand {
    Ints x[8];
    Ints bias[2];  // of the sum of each half: that of the codes, and kSumOffsetBits
    Floats d;
  };

  // [of v0, v1, v2, v3] words 0, then 1, 2, 3, part by part.
  static MEMRA_HD void transpose(const Ints (&v)[4], Ints (&words)[4]) {
    const Ints low01 = Simd::low_words(v[0], v[1]), high01 = Simd::high_words(v[0], v[1]);
    const Ints low23 = Simd::low_words(v[2], v[3]), high23 = Simd::high_words(v[2], v[3]);
    words[0] = Simd::low_pairs(low01, low23);
    words[1] = Simd::high_pairs(low01, low23);
    words[2] = Simd::low_pairs(high01, high23);
    words[3] = Simd::high_pairs(high01, high23);
  }

  static MEMRA_HD Words in_words(const Raw& raw) {
    Words words;
    transpose(raw.codes, words.v);
    Simd::decode_scales(raw.scales, words.scale);
    words.offset = Simd::mul(words.scale[0], Simd::all(-kSumOffset));
    return words;
  }

  // Rule 2 for one half of every group of a step, of some rows with some rows of activations. The
  // offset costs no bit, for scales have 4 bits and products 19. A zero may come with another sign,
  // which rule 3 cannot tell, for d is 0 or so large that no product is too small for a float.
  template <int kHalf, int kAtOnce, int kCount>
  static MEMRA_HD void add_half(const Words (&rows)[kAtOnce], const Operand* x,
                                Floats (&p)[kAtOnce][kCount]) {
    Ints weights[kAtOnce][4];
    for (int i = 0; i < kAtOnce; ++i) {
      for (int j = 0; j < 2; ++j) {
        weights[i][j] = Simd::low_nibble_values(rows[i].v[2 * kHalf + j]);
        weights[i][j + 2] = Simd::high_nibble_values(rows[i].v[2 * kHalf + j]);
      }
    }
    for (int t = 0; t < kCount; ++t) {
      for (int i = 0; i < kAtOnce; ++i) {
        const Floats sums = Simd::offset_sums(weights[i], x[t].x + 4 * kHalf, x[t].bias[kHalf]);
        p[i][t] = kHalf == 0 ? Simd::fma(rows[i].scale[0], sums, rows[i].offset)
                             : Simd::fma(rows[i].scale[1], Simd::add(sums, Simd::all(-kSumOffset)),
                                         p[i][t]);
      }
    }
  }

  // ---- Loads ----

  template <std::int64_t kBytes>
  static MEMRA_HD void prefetch(const std::uint8_t* begin, std::int64_t near, std::int64_t far) {
    for (std::int64_t i = 0; i < kBytes; i += 64) {
      __builtin_prefetch(begin + near + i, 0, 3);
      __builtin_prefetch(begin + far + i, 0, 2);
    }
  }

  // The first kBlocks, or `count`, blocks of 64 columns from anywhere. The rest is zero.
  template <bool kAll>
  static MEMRA_HD Raw load_blocks(const std::uint8_t* const* codes,
                                  const std::uint8_t* const* scales, std::int64_t count) {
    Raw raw;
    for (int i = 0; i < 4; ++i)
      raw.codes[i] = Simd::template load_block_codes<kAll>(codes, i, count);
    raw.scales = Simd::template load_block_scales<kAll>(scales, count);
    return raw;
  }

  // Row r of a block of 8. `count` is kBlocks unless it is the end of the row.
  template <bool kAll, template <class> class Access>
  static MEMRA_HD Raw load(const Access<nv::LayoutV1>& slab, std::int64_t row_block, std::int64_t r,
                           std::int64_t first_block, std::int64_t count) {
    const std::uint8_t* codes[kBlocks] = {};
    const std::uint8_t* scales[kBlocks] = {};
    for (std::int64_t i = 0; i < kBlocks && (kAll || i < count); ++i) {
      scales[i] = slab.block(row_block * kRows + r, first_block + i);
      codes[i] = scales[i] + nv::kV1BlockScaleBytes;
    }
    if constexpr (kAll) prefetch<kBlocks * nv::kV1BlockBytes>(scales[0], kNearBytes, kFarBytes);
    Raw raw = load_blocks<kAll>(codes, scales, count);
    raw.scales = Simd::without_invalid(raw.scales);
    return raw;
  }

  template <bool kAll, template <class> class Access>
  static MEMRA_HD Raw load(const Access<nv::LayoutV2>& slab, std::int64_t row_block, std::int64_t r,
                           std::int64_t first_block, std::int64_t count) {
    const std::int64_t first_tile = first_block / 2;
    if constexpr (kAll) {
      const std::uint8_t* codes[kTiles];
      const std::uint8_t* scales[kTiles];
      for (std::int64_t t = 0; t < kTiles; ++t) {
        codes[t] = slab.codes(row_block, first_tile + t) + r * 2 * kBlockCodeBytes;
        scales[t] = slab.scales(row_block, first_tile + t) + r * 2 * kBlockScaleBytes;
      }
      // A step of 8 rows is in memory as a whole: each row asks for its share of others further on.
      const std::uint8_t* const share = slab.codes(row_block, first_tile) + r * kTiles * 64;
      prefetch<kTiles * 64>(share, kNearBytes, kFarBytes);
      if (r % (kRows / kTiles) == 0) {
        prefetch<64>(slab.scales(row_block, first_tile) + r * kTiles * 2 * kBlockScaleBytes,
                     kNearBytes / 8, kFarBytes / 8);
      }
      return {{Simd::template load_tile_codes<0>(codes), Simd::template load_tile_codes<1>(codes),
               Simd::template load_tile_codes<2>(codes), Simd::template load_tile_codes<3>(codes)},
              Simd::load_tile_scales(scales)};
    }
    const std::uint8_t* codes[kBlocks] = {};
    const std::uint8_t* scales[kBlocks] = {};
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t tile = first_tile + i / 2;
      const std::int64_t place = nv::LayoutV2::slot(slab.in, tile, r, i * kBlockGroups);
      codes[i] = slab.codes(row_block, tile) + place * nv::kGroupCodeBytes;
      scales[i] = slab.scales(row_block, tile) + place * nv::kGroupScaleBytes;
    }
    return load_blocks<false>(codes, scales, count);
  }

  // ---- Activations, brought into the order of the kernels once for many rows ----

  // To every kCount-th of the operands.
  template <bool kLaneMajor, int kCount>
  static MEMRA_HD void fill(const std::int8_t* q, const float* d, std::int64_t columns,
                            Operand* operands) {
    alignas(16) static constexpr std::int8_t kNone[16] = {};
    const std::int64_t groups = columns / nv::kGroupValues;
    for (std::int64_t begin = 0; begin < groups; begin += kGroups) {
      Operand& to = operands[begin / kGroups * kCount];
      const std::int64_t count = groups - begin < kGroups ? groups - begin : kGroups;
      // The 16 bytes of a group that become words[...]: halves, or in lane-major order nibbles.
      for (std::int64_t piece = 0; piece < 2; ++piece) {
        Ints v[4];
        for (std::int64_t i = 0; i < 4; ++i) {
          const std::int8_t* parts[kParts];
          for (std::int64_t part = 0; part < kParts; ++part) {
            const std::int64_t g = i * kParts + part;
            parts[part] = g < count ? q + (begin + g) * nv::kGroupValues + piece * 16 : kNone;
          }
          v[i] = Simd::load_parts(parts);
        }
        Ints words[4];
        transpose(v, words);
        for (std::int64_t j = 0; j < 4; ++j) {
          to.x[kLaneMajor ? j / 2 * 4 + piece * 2 + j % 2 : piece * 4 + j] = words[j];
        }
      }
      alignas(64) float scales[kGroups];
      for (std::int64_t g = 0; g < kGroups; ++g) {
        scales[g % kParts * 4 + g / kParts] = g < count ? d[begin + g] : 0.0f;
      }
      to.d = Simd::load_floats(scales);
      to.bias[0] = Simd::bias(to.x);
      to.bias[1] = Simd::bias(to.x + 4);
    }
  }

  // ---- Sums ----

  // Of one row of activations with kRows rows of weights: step s adds to residue s % kResidues.
  struct Accumulators {
    Floats lanes[kResidues][kRows];

    MEMRA_HD void clear() {
      for (auto& residue : lanes) {
        for (Floats& vector : residue)
          vector = Simd::zero();
      }
    }

    // Rule 3's tree: between vectors first, then inside them, four rows at once.
    MEMRA_HD void finish(float* dots) {
      for (std::int64_t distance = kResidues / 2; distance > 0; distance /= 2) {
        for (std::int64_t i = 0; i < distance; ++i) {
          for (std::int64_t r = 0; r < kRows; ++r)
            lanes[i][r] = Simd::add(lanes[i][r], lanes[i + distance][r]);
        }
      }
      for (std::int64_t r = 0; r < kRows; r += 4)
        Simd::store_tree(&lanes[0][r], dots + r);
    }
  };
};

// Room for the operands of all rows of activations at their widest.
inline constexpr std::int64_t kPanelColumns = 8192 * kMaxTogether;

// A whole number of turns through the residues.
template <class Simd, int kCount>
inline constexpr std::int64_t kPanelSteps = kPanelColumns / Vectors<Simd>::kColumns / kCount /
                                            Vectors<Simd>::kResidues* Vectors<Simd>::kResidues;

// kCount rows of activations: their operands, step by step, and their sums.
template <class Simd, int kCount>
struct Panel {
  using V = Vectors<Simd>;
  static constexpr std::int64_t kSteps = kPanelSteps<Simd, kCount>;

  typename V::Operand operands[kSteps * kCount];
  typename V::Accumulators acc[kCount];
};

// Adds a step of rows [r, r + kAtOnce) to the sums of all rows of activations, of which x holds the
// operands of this step.
template <bool kAll, int kAtOnce, int kCount, class Simd, class Slab>
MEMRA_HD void add_step(const Slab& slab, std::int64_t row_block, std::int64_t r,
                       std::int64_t first_block, std::int64_t blocks, std::int64_t step,
                       const typename Vectors<Simd>::Operand* x, Panel<Simd, kCount>& panel) {
  using V = Vectors<Simd>;
  typename V::Words rows[kAtOnce];
  for (int i = 0; i < kAtOnce; ++i) {
    rows[i] = V::in_words(
        V::template load<kAll>(slab, row_block, r + i, first_block + step * V::kBlocks, blocks));
  }
  typename V::Floats p[kAtOnce][kCount];
  V::template add_half<0>(rows, x, p);
  V::template add_half<1>(rows, x, p);
  for (int t = 0; t < kCount; ++t) {
    typename V::Floats* const acc = &panel.acc[t].lanes[step & (V::kResidues - 1)][r];
    for (int i = 0; i < kAtOnce; ++i) {
      const typename V::Floats next = Simd::fma(x[t].d, p[i][t], acc[i]);
      // Lanes without a group keep what they hold.
      acc[i] = kAll ? next : Simd::choose_first(blocks * kBlockGroups, next, acc[i]);
    }
  }
}

// Whole steps of 8 rows.
template <class Layout, int kCount, class Simd, class Slab>
[[gnu::noinline]] void add_steps(Slab slab, std::int64_t row_block, std::int64_t first_block,
                                 std::int64_t steps, Panel<Simd, kCount>& panel) {
  using V = Vectors<Simd>;
  // As they lie in memory: V1 row by row, V2 in steps of all rows.
  if constexpr (kIsV1<Layout>) {
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t step = 0; step < steps; ++step) {
        add_step<true, 1>(slab, row_block, r, first_block, V::kBlocks, step,
                          panel.operands + step * kCount, panel);
      }
    }
  } else {
    for (std::int64_t step = 0; step < steps; ++step) {
      const typename V::Operand* const x = panel.operands + step * kCount;
      // One row of activations may stay in registers.
      const typename V::Operand first = *x;
      for (std::int64_t r = 0; r < kRows; r += Simd::kRowsAtOnce) {
        add_step<true, Simd::kRowsAtOnce>(slab, row_block, r, first_block, V::kBlocks, step,
                                          kCount == 1 ? &first : x, panel);
      }
    }
  }
}

// The end of rows that is no whole step.
template <int kCount, class Simd, class Slab>
[[gnu::noinline]] void add_rest(Slab slab, std::int64_t row_block, std::int64_t first_block,
                                std::int64_t blocks, std::int64_t step,
                                Panel<Simd, kCount>& panel) {
  for (std::int64_t r = 0; r < kRows; r += Simd::kRowsAtOnce) {
    add_step<false, Simd::kRowsAtOnce>(slab, row_block, r, first_block, blocks, step,
                                       panel.operands + step * kCount, panel);
  }
}

template <class Simd, class Layout, template <class> class Access, bool kLaneMajor, int kCount>
void dots_of(const SlabRows& run, const DotsRow* x) {
  using V = Vectors<Simd>;
  const Access<Layout> slab{run.slab, run.rows, run.in};
  Panel<Simd, kCount> panel;
  // A part begins with virtual lane 0.
  constexpr std::int64_t kPart = kPanelSteps<Simd, kCount> * V::kColumns;
  for (std::int64_t r = 0; r < run.row_count; r += kRows) {
    for (typename V::Accumulators& acc : panel.acc)
      acc.clear();
    for (std::int64_t begin = 0; begin < run.in; begin += kPart) {
      const std::int64_t columns = run.in - begin < kPart ? run.in - begin : kPart;
      // The panel holds most rows whole, and is then filled once.
      if (r == 0 || run.in > kPart) {
        for (int t = 0; t < kCount; ++t) {
          V::template fill<kLaneMajor, kCount>(x[t].q + begin, x[t].d + begin / nv::kGroupValues,
                                               columns, panel.operands + t);
        }
      }
      const std::int64_t row_block = (run.row_begin + r) / kRows;
      const std::int64_t first_block = begin / nv::kV1BlockValues;
      const std::int64_t steps = columns / V::kColumns;
      const std::int64_t rest = columns % V::kColumns / nv::kV1BlockValues;
      add_steps<Layout>(slab, row_block, first_block, steps, panel);
      if (rest != 0) add_rest(slab, row_block, first_block, rest, steps, panel);
    }
    for (int t = 0; t < kCount; ++t)
      panel.acc[t].finish(x[t].dots + r);
  }
}

// A count that is known lets the compiler keep more in registers.
template <class Simd, class Layout, template <class> class Access, bool kLaneMajor>
void dots(const SlabRows& run, const DotsRow* x, std::int64_t count) {
  static_assert(kMaxTogether == 4);
  switch (count) {
    case 1:
      return dots_of<Simd, Layout, Access, kLaneMajor, 1>(run, x);
    case 2:
      return dots_of<Simd, Layout, Access, kLaneMajor, 2>(run, x);
    case 3:
      return dots_of<Simd, Layout, Access, kLaneMajor, 3>(run, x);
    default:
      return dots_of<Simd, Layout, Access, kLaneMajor, 4>(run, x);
  }
}

// ---- The rest ----

// The loads of the kernels, xored together.
template <class Simd, class Layout>
void load_only(const SlabRows& run, const DotsRow* x, std::int64_t count) {
  using V = Vectors<Simd>;
  const SlabMemory<Layout> slab{run.slab, run.rows, run.in};
  const std::int64_t blocks = run.in / nv::kV1BlockValues;
  const std::int64_t steps = blocks / V::kBlocks, rest = blocks % V::kBlocks;
  for (std::int64_t r = 0; r < run.row_count; r += kRows) {
    const std::int64_t row_block = (run.row_begin + r) / kRows;
    typename V::Ints sum = Simd::zero_ints();
    const auto take = [&](const typename V::Raw& raw) {
      for (const typename V::Ints& codes : raw.codes)
        sum = Simd::exclusive_or(sum, codes);
      sum = Simd::exclusive_or(sum, Simd::widened(raw.scales));
    };
    const std::int64_t outer = kIsV1<Layout> ? kRows : steps;
    const std::int64_t inner = kIsV1<Layout> ? steps : kRows;
    for (std::int64_t i = 0; i < outer; ++i) {
      for (std::int64_t j = 0; j < inner; ++j) {
        const std::int64_t row = kIsV1<Layout> ? i : j, step = kIsV1<Layout> ? j : i;
        take(V::template load<true>(slab, row_block, row, step * V::kBlocks, V::kBlocks));
      }
    }
    for (std::int64_t row = 0; row < kRows && rest != 0; ++row)
      take(V::template load<false>(slab, row_block, row, steps * V::kBlocks, rest));
    for (std::int64_t t = 0; t < count; ++t)
      Simd::store_eight(sum, x[t].dots + r);
  }
}

template <class Simd>
void finish_gate_up(const GateUpRun& run) {
  finish_gate_up_loop(run);
}
template <class Simd>
void add_slot(const SlotRun& run) {
  add_slot_loop(run);
}
template <class Simd>
void quantize(const QuantizeRun& run) {
  quantize_loop(run);
}

template <class Simd>
void read(const void* begin, std::uint64_t bytes) {
  constexpr std::uint64_t kVectors = 4, kVector = sizeof(typename Simd::Ints);
  const auto* const p = static_cast<const std::uint8_t*>(begin);
  typename Simd::Ints sums[kVectors];
  for (typename Simd::Ints& sum : sums)
    sum = Simd::zero_ints();
  std::uint64_t i = 0;
  for (; i + kVectors * kVector <= bytes; i += kVectors * kVector) {
    for (std::uint64_t k = 0; k < kVectors; ++k)
      sums[k] = Simd::exclusive_or(sums[k], Simd::load_ints(p + i + k * kVector));
  }
  for (const typename Simd::Ints& sum : sums)
    Simd::keep(sum);
  std::uint64_t words = 0;
  for (; i + sizeof words <= bytes; i += sizeof words) {
    std::uint64_t word;
    __builtin_memcpy(&word, p + i, sizeof word);
    words ^= word;
  }
  asm volatile("" : : "r"(words) : "memory");
}

// Names: of the instruction set, then of the kernels.
template <class Simd>
constexpr RowsKernels make_kernels(const char* simd, const char* v1, const char* v2,
                                   const char* v2_lane_major, const char* mixed,
                                   const GroupedKernels& grouped) {
  return {
      simd,
      v1,
      v2,
      v2_lane_major,
      mixed,
      {dots<Simd, nv::LayoutV1, SlabMemory, false>, dots<Simd, nv::LayoutV2, SlabMemory, false>,
       dots<Simd, nv::LayoutV2, SlabMemory, true>},
      {load_only<Simd, nv::LayoutV1>, load_only<Simd, nv::LayoutV2>, load_only<Simd, nv::LayoutV2>},
      {dots<Simd, nv::LayoutV1, SlabWindow, false>, dots<Simd, nv::LayoutV2, SlabWindow, false>,
       dots<Simd, nv::LayoutV2, SlabWindow, true>},
      finish_gate_up<Simd>,
      add_slot<Simd>,
      quantize<Simd>,
      read<Simd>,
      grouped};
}

}  // namespace memra::cpu
