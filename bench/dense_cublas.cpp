#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include "console.h"
#include "dense.h"

namespace memra::bench {
namespace {

// Under capture cuBLAS must not allocate; this is what NVIDIA recommends for Hopper.
constexpr size_t kWorkspaceBytes = 32U << 20;

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Failure(std::string(call) + ": " + cublasGetStatusString(status));
}

class Cublas final : public DenseBlas {
 public:
  explicit Cublas(const Session& session) : workspace_(session.device_memory(kWorkspaceBytes)) {
    // The primary context of the engine's device is the one that the library works in.
    const cudaError_t error = cudaSetDevice(session.properties().device);
    if (error != cudaSuccess)
      throw Failure(std::string("cudaSetDevice: ") + cudaGetErrorString(error));
    check(cublasCreate(&handle_), "cublasCreate");
    try {
      check(cublasSetStream(handle_, static_cast<cudaStream_t>(session.stream())),
            "cublasSetStream");
      check(cublasSetWorkspace(handle_, workspace_.as(), workspace_.bytes()), "cublasSetWorkspace");
    } catch (...) {
      (void)cublasDestroy(handle_);
      throw;
    }
  }
  ~Cublas() override { (void)cublasDestroy(handle_); }
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  // Row-major matrices are column-major ones transposed: out^T = w x^T.
  void multiply(const void* x, const void* w, void* out, int64_t rows, int64_t outputs,
                int64_t columns) const override {
    const float one = 1.0F;
    const float zero = 0.0F;
    const auto m = static_cast<int>(outputs);
    const auto n = static_cast<int>(rows);
    const auto k = static_cast<int>(columns);
    check(cublasGemmEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, m, n, k, &one, w, CUDA_R_16F, k, x,
                       CUDA_R_16F, k, &zero, out, CUDA_R_16F, m, CUBLAS_COMPUTE_32F,
                       CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx");
  }

  std::string name() const override {
    int version = 0;
    check(cublasGetVersion(handle_, &version), "cublasGetVersion");
    return format("cuBLAS %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
  }

 private:
  Memory workspace_;
  cublasHandle_t handle_ = nullptr;
};

}  // namespace

std::unique_ptr<DenseBlas> make_dense_blas(const Session& session) {
  if (session.on_cpu()) return nullptr;
  return std::make_unique<Cublas>(session);
}

}  // namespace memra::bench
