#pragma once

// What an engine, its events and its graphs share: the thread pool and the streams. Lives until the
// last of them is gone; after shutdown it has neither threads nor streams.

#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "cpu/stream.h"
#include "cpu/thread_pool.h"
#include "memra.h"
#include "status.h"

namespace memra::cpu {

class Core {
 public:
  // May throw std::bad_alloc.
  static Status create(int threads, std::shared_ptr<Core>* core);

  // NULL is the default stream. Anything that is no stream of this engine is INVALID_ARGUMENT.
  Status find(memra_stream handle, Stream** stream);
  Status create_stream(memra_stream* handle);
  Status destroy_stream(memra_stream handle);
  // Waits for the work of all streams, the default stream's too, and ends all threads.
  void shutdown();

  int threads() const { return threads_; }
  // True in a child of the process that made the engine: its threads do not exist here, and locks
  // and condition variables are in whatever state they were in.
  bool forked() const;

 private:
  explicit Core(int threads);

  const pid_t pid_;
  const int threads_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Stream> default_stream_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

// Keeps an object for ever: in a forked child nothing that holds a lock may be destroyed.
template <class T>
void leak(std::shared_ptr<T>& pointer) noexcept {
  static_cast<void>(new (std::nothrow) std::shared_ptr<T>(std::move(pointer)));
}

}  // namespace memra::cpu
