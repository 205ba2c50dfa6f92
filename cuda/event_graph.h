#pragma once

// Events and executable graphs. Both may outlive the backend that made them.

#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>

#include "backend.h"
#include "context.h"

namespace memra::cuda {

class CudaEvent final : public Event {
 public:
  static Status create(const std::shared_ptr<Context>& context, std::unique_ptr<Event>* event);
  ~CudaEvent() override;

  Status record(memra_stream stream) override;
  Status query() override;
  Status synchronize() override;
  Status elapsed_since(Event& start, float* milliseconds) override;

  cudaEvent_t handle() const { return handle_; }
  bool recorded() const { return recorded_.load(std::memory_order_acquire); }

 private:
  explicit CudaEvent(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  std::shared_ptr<Context> context_;
  cudaEvent_t handle_ = nullptr;
  std::atomic<bool> recorded_ = false;
};

class CudaGraph final : public Graph {
 public:
  static Status create(const std::shared_ptr<Context>& context, cudaGraph_t source,
                       std::unique_ptr<Graph>* graph);
  ~CudaGraph() override;

  Status launch(memra_stream stream) override;

 private:
  explicit CudaGraph(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  std::shared_ptr<Context> context_;
  cudaGraphExec_t handle_ = nullptr;
};

}  // namespace memra::cuda
