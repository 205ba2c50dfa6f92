#pragma once

// A piece of work for a stream: a callable in fixed inline storage, so that enqueueing allocates
// nothing. Copyable, because a graph that is launched into a recording is copied.

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

#include "cpu/progress.h"
#include "cpu/thread_pool.h"

namespace memra::cpu {

// What a task may use while it runs.
struct TaskContext {
  ThreadPool& pool;
  Progress& progress;
  std::uint64_t first_ticket;  // of this task
};

class Task {
 public:
  // Fits the largest arguments struct and a few words.
  static constexpr std::size_t kCapacity = 240;

  Task() = default;

  template <class Work>
  requires(!std::is_same_v<std::remove_cvref_t<Work>, Task>)
      Task(Work&& work) {  // NOLINT: lambdas are meant to convert
    using Stored = std::remove_cvref_t<Work>;
    static_assert(sizeof(Stored) <= kCapacity);
    static_assert(alignof(Stored) <= alignof(std::max_align_t));
    static_assert(std::is_nothrow_move_constructible_v<Stored>);
    new (storage_) Stored(std::forward<Work>(work));
    operations_ = &kOperations<Stored>;
  }

  Task(const Task& other) : operations_(other.operations_) {
    if (operations_ != nullptr) operations_->copy(storage_, other.storage_);
  }
  Task(Task&& other) noexcept : operations_(std::exchange(other.operations_, nullptr)) {
    if (operations_ != nullptr) operations_->relocate(storage_, other.storage_);
  }
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      reset();
      operations_ = std::exchange(other.operations_, nullptr);
      if (operations_ != nullptr) operations_->relocate(storage_, other.storage_);
    }
    return *this;
  }
  Task& operator=(const Task&) = delete;
  ~Task() { reset(); }

  void reset() {
    if (operations_ != nullptr) std::exchange(operations_, nullptr)->destroy(storage_);
  }

  // May be called again and again.
  void run(const TaskContext& context) { operations_->run(storage_, context); }

 private:
  struct Operations {
    void (*run)(void*, const TaskContext&);
    void (*copy)(void* to, const void* from);
    void (*relocate)(void* to, void* from);
    void (*destroy)(void*);
  };

  template <class Stored>
  static constexpr Operations kOperations = {
      [](void* self, const TaskContext& context) { (*static_cast<Stored*>(self))(context); },
      [](void* to, const void* from) { new (to) Stored(*static_cast<const Stored*>(from)); },
      [](void* to, void* from) {
        new (to) Stored(std::move(*static_cast<Stored*>(from)));
        static_cast<Stored*>(from)->~Stored();
      },
      [](void* self) { static_cast<Stored*>(self)->~Stored(); },
  };

  const Operations* operations_ = nullptr;
  alignas(std::max_align_t) std::byte storage_[kCapacity];
};

}  // namespace memra::cpu
