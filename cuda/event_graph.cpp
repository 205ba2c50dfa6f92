#include "event_graph.h"

#include "device.h"

namespace memra::cuda {

Status CudaEvent::create(const std::shared_ptr<Context>& context, std::unique_ptr<Event>* event) {
  const ContextGuard guard(*context);
  MEMRA_TRY(guard.status());
  const RelaxedCapture relaxed(context->driver());
  std::unique_ptr<CudaEvent> made(new CudaEvent(context));
  MEMRA_CUDA_TRY(cudaEventCreateWithFlags(&made->handle_, cudaEventDefault));
  *event = std::move(made);
  return MEMRA_OK;
}

CudaEvent::~CudaEvent() {
  if (handle_ == nullptr || !context_->intact()) return;
  const ContextGuard guard(*context_);
  const RelaxedCapture relaxed(context_->driver());
  if (guard.ok()) cudaEventDestroy(handle_);
}

Status CudaEvent::record(memra_stream stream) {
  const ContextGuard guard(*context_);
  MEMRA_TRY(guard.status());
  MEMRA_CUDA_TRY(cudaEventRecord(handle_, static_cast<cudaStream_t>(stream)));
  recorded_.store(true, std::memory_order_release);
  return MEMRA_OK;
}

Status CudaEvent::query() {
  if (!recorded()) return MEMRA_OK;
  const ContextGuard guard(*context_);
  MEMRA_TRY(guard.status());
  const RelaxedCapture relaxed(context_->driver());
  const cudaError_t error = cudaEventQuery(handle_);
  if (error == cudaErrorNotReady) return MEMRA_NOT_READY;
  return error == cudaSuccess ? MEMRA_OK : cuda_failure(error, "cudaEventQuery");
}

Status CudaEvent::synchronize() {
  if (!recorded()) return MEMRA_OK;
  const ContextGuard guard(*context_);
  MEMRA_TRY(guard.status());
  const RelaxedCapture relaxed(context_->driver());
  MEMRA_CUDA_TRY(cudaEventSynchronize(handle_));
  return MEMRA_OK;
}

Status CudaEvent::elapsed_since(Event& start, float* milliseconds) {
  auto& begin = static_cast<CudaEvent&>(start);
  if (!begin.recorded()) {
    return fail(MEMRA_ERROR_INVALID_ARGUMENT) << "start was never recorded";
  }
  if (!recorded()) return fail(MEMRA_ERROR_INVALID_ARGUMENT) << "end was never recorded";
  const ContextGuard guard(*context_);
  MEMRA_TRY(guard.status());
  const RelaxedCapture relaxed(context_->driver());
  const cudaError_t error = cudaEventElapsedTime(milliseconds, begin.handle_, handle_);
  if (error == cudaErrorNotReady) return MEMRA_NOT_READY;
  return error == cudaSuccess ? MEMRA_OK : cuda_failure(error, "cudaEventElapsedTime");
}

Status CudaGraph::create(const std::shared_ptr<Context>& context, cudaGraph_t source,
                         std::unique_ptr<Graph>* graph) {
  std::unique_ptr<CudaGraph> made(new CudaGraph(context));
  MEMRA_CUDA_TRY(cudaGraphInstantiate(&made->handle_, source, 0));
  *graph = std::move(made);
  return MEMRA_OK;
}

CudaGraph::~CudaGraph() {
  if (handle_ == nullptr || !context_->intact()) return;
  const ContextGuard guard(*context_);
  const RelaxedCapture relaxed(context_->driver());
  if (guard.ok()) cudaGraphExecDestroy(handle_);
}

Status CudaGraph::launch(memra_stream stream) {
  const ContextGuard guard(*context_);
  MEMRA_TRY(guard.status());
  MEMRA_CUDA_TRY(cudaGraphLaunch(handle_, static_cast<cudaStream_t>(stream)));
  return MEMRA_OK;
}

}  // namespace memra::cuda
