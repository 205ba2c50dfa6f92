#pragma once

// Where kernels read a slab: in memory, or, for the arithmetic-only probe, in a small window that
// stays in cache. Which part of the window stands for a block changes from block to block, so that
// no work can be hoisted out of the loops.
//
// Everything here is always inlined, and nothing of the standard library is used: files compiled
// for other instruction sets include it.

#include <cstdint>

#include "numerics/nvfp4_layout.h"

namespace memra::cpu {

namespace nv = memra::numerics;

template <class Layout>
struct SlabMemory;

template <>
struct SlabMemory<nv::LayoutV1> {
  const std::uint8_t* slab;
  std::int64_t rows, in;

  // The 36 bytes of 64 columns of a row.
  MEMRA_HD const std::uint8_t* block(std::int64_t row, std::int64_t index) const {
    return slab + nv::LayoutV1::row_bytes(in) * row + index * nv::kV1BlockBytes;
  }
};

template <>
struct SlabMemory<nv::LayoutV2> {
  const std::uint8_t* slab;
  std::int64_t rows, in;

  MEMRA_HD const std::uint8_t* codes(std::int64_t row_block, std::int64_t tile) const {
    return slab + nv::LayoutV2::row_block_codes(in, row_block) + tile * nv::kV2TileCodeBytes;
  }
  MEMRA_HD const std::uint8_t* scales(std::int64_t row_block, std::int64_t tile) const {
    return slab + nv::LayoutV2::row_block_scales(rows, in, row_block) +
           tile * nv::kV2TileScaleBytes;
  }
};

inline constexpr std::int64_t kWindowTiles = 8;
inline constexpr std::int64_t kWindowBlocks = 64;

struct WindowBytes {
  alignas(64) std::uint8_t codes[kWindowTiles * nv::kV2TileCodeBytes];
  alignas(64) std::uint8_t scales[kWindowTiles * nv::kV2TileScaleBytes];
  alignas(64) std::uint8_t blocks[kWindowBlocks * nv::kV1BlockBytes];
};

// Random codes; scales of about 1.
extern const WindowBytes kWindow;

template <class Layout>
struct SlabWindow;

template <>
struct SlabWindow<nv::LayoutV1> {
  const std::uint8_t* slab;
  std::int64_t rows, in;

  MEMRA_HD const std::uint8_t* block(std::int64_t row, std::int64_t index) const {
    return kWindow.blocks + (row + index) % kWindowBlocks * nv::kV1BlockBytes;
  }
};

template <>
struct SlabWindow<nv::LayoutV2> {
  const std::uint8_t* slab;
  std::int64_t rows, in;

  MEMRA_HD const std::uint8_t* codes(std::int64_t row_block, std::int64_t tile) const {
    return kWindow.codes + (row_block + tile) % kWindowTiles * nv::kV2TileCodeBytes;
  }
  MEMRA_HD const std::uint8_t* scales(std::int64_t row_block, std::int64_t tile) const {
    return kWindow.scales + (row_block + tile) % kWindowTiles * nv::kV2TileScaleBytes;
  }
};

}  // namespace memra::cpu
