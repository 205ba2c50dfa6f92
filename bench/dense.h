// Dense f16 products of the total size of a call's: what grouped ones are measured against.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "grouped_calls.h"

namespace memra::bench {

// A BLAS that the benchmarks, not the library, are linked with.
class DenseBlas {
 public:
  virtual ~DenseBlas() = default;
  // out [rows, outputs] = x [rows, columns] times w [outputs, columns], transposed: all f16, sums
  // in f32, on the session's stream, under capture too.
  virtual void multiply(const void* x, const void* w, void* out, int64_t rows, int64_t outputs,
                        int64_t columns) const = 0;
  virtual std::string name() const = 0;
};

// NULL where the build or the session has none.
std::unique_ptr<DenseBlas> make_dense_blas(const Session& session);

// One product for gate and up together, or that of down: n_pairs rows, f16 in and out, with the
// values of one expert's weights (without its scale).
class DenseProduct {
 public:
  DenseProduct(const DenseBlas& blas, const GroupedCalls& calls, bool is_down);

  // Sets of operands that launches rotate over.
  int64_t count() const { return count_; }
  double flops() const;
  void launch(int64_t call) const;

 private:
  void make_weights(int64_t copy) const;
  Plane first_plane() const { return is_down_ ? kDown : kGate; }

  const DenseBlas& blas_;
  const GroupedCalls& calls_;
  bool is_down_;
  int64_t rows_, outputs_, columns_;
  int64_t count_;
  Memory x_, w_, out_;
};

}  // namespace memra::bench
