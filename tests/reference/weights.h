// memra_quantize_nvfp4, memra_import_nvfp4 and memra_dequantize, by brute force.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/floats.h"
#include "reference/formats.h"

namespace memra::reference {

// The nearest legal UE4M3 code, and the nearest E2M1 magnitude with the sign of x; ties to the even
// code, above the largest value the largest, NaN to 0.
std::uint8_t nearest_ue4m3(float x);
std::uint8_t nearest_e2m1(float x);

// amax / (6 * 448) over the finite values; 1 where all of them are zero.
float choose_expert_scale(std::span<const float> values);

// NaN and Inf among them: they encode as 0.
std::uint64_t count_non_finite(std::span<const float> values);

// Dense f32 [rows, cols] to a slab; all zeros for an expert scale that is not finite and positive.
Slab quantize_nvfp4(std::span<const float> values, std::int64_t rows, std::int64_t cols,
                    float expert_scale, Format format);

// f32 [rows, cols] as f32(e2m1 * ue4m3) * expert_scale; narrow() rounds it to another type.
std::vector<float> dequantize(const Slab& slab, float expert_scale);

enum class GlobalScale { kDirect, kReciprocal };

// False for what memra_import_nvfp4 refuses: 0, negative, NaN, Inf, or a reciprocal that is one.
bool global_scale_legal(float global_scale, GlobalScale kind);
float imported_expert_scale(float global_scale, GlobalScale kind);

// The two planes of a safetensors checkpoint: codes [rows, cols / 2], byte j = value 2j low and
// 2j + 1 high; scales [rows, cols / 16] row-major.
struct Checkpoint {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;
};
Slab import_nvfp4(const Checkpoint& checkpoint, Format format, InvalidScales* invalid = nullptr,
                  std::int64_t expert = 0);
Checkpoint export_nvfp4(const Slab& slab);

}  // namespace memra::reference
