#include "cpu/core.h"

#include <unistd.h>

#include <algorithm>

namespace memra::cpu {

Core::Core(int threads) : pid_(getpid()), threads_(threads) {}

Status Core::create(int threads, std::shared_ptr<Core>* core) {
  const std::shared_ptr<Core> created(new Core(threads));
  MEMRA_TRY(ThreadPool::create(threads, &created->pool_));
  MEMRA_TRY(Stream::create(*created->pool_, &created->default_stream_));
  *core = created;
  return MEMRA_OK;
}

bool Core::forked() const {
  return getpid() != pid_;
}

Status Core::find(memra_stream handle, Stream** stream) {
  const std::lock_guard lock(mutex_);
  *stream = handle == nullptr ? default_stream_.get() : nullptr;
  for (const std::unique_ptr<Stream>& own : streams_) {
    if (own.get() == handle) *stream = own.get();
  }
  if (*stream != nullptr) return MEMRA_OK;
  return fail(MEMRA_ERROR_INVALID_ARGUMENT)
         << "stream is " << static_cast<const void*>(handle)
         << ": legal is NULL or a living stream that memra_stream_create made for this engine";
}

Status Core::create_stream(memra_stream* handle) {
  std::unique_ptr<Stream> stream;
  MEMRA_TRY(Stream::create(*pool_, &stream));
  *handle = stream.get();
  const std::lock_guard lock(mutex_);
  streams_.push_back(std::move(stream));
  return MEMRA_OK;
}

Status Core::destroy_stream(memra_stream handle) {
  std::unique_ptr<Stream> stream;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(streams_.begin(), streams_.end(),
                                    [&](const auto& own) { return own.get() == handle; });
    if (found == streams_.end()) {
      return fail(MEMRA_ERROR_INVALID_ARGUMENT)
             << "stream is " << static_cast<const void*>(handle)
             << ": legal is a living stream that memra_stream_create made for this engine";
    }
    stream = std::move(*found);
    streams_.erase(found);
  }
  return MEMRA_OK;  // the stream drains here, outside the lock
}

void Core::shutdown() {
  std::vector<std::unique_ptr<Stream>> streams;
  std::unique_ptr<Stream> default_stream;
  {
    const std::lock_guard lock(mutex_);
    streams.swap(streams_);
    default_stream.swap(default_stream_);
  }
  // Streams may wait for each other: each goes on working until its own turn.
  streams.clear();
  default_stream.reset();
  pool_.reset();
}

}  // namespace memra::cpu
