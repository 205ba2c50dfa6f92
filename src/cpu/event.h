#pragma once

#include <memory>

#include "backend.h"
#include "cpu/core.h"
#include "cpu/event_state.h"
#include "cpu/graph_body.h"

namespace memra::cpu {

class CpuEvent final : public Event {
 public:
  explicit CpuEvent(std::shared_ptr<Core> core)
      : core_(std::move(core)), state_(std::make_shared<EventState>()) {}
  ~CpuEvent() override;

  Status record(memra_stream stream) override;
  Status query() override;
  Status synchronize() override;
  Status elapsed_since(Event& start, float* milliseconds) override;

  const std::shared_ptr<EventState>& state() const { return state_; }

 private:
  std::shared_ptr<Core> core_;
  std::shared_ptr<EventState> state_;
};

class CpuGraph final : public Graph {
 public:
  CpuGraph(std::shared_ptr<Core> core, std::shared_ptr<GraphBody> body)
      : core_(std::move(core)), body_(std::move(body)) {}
  ~CpuGraph() override;

  Status launch(memra_stream stream) override;

 private:
  std::shared_ptr<Core> core_;
  std::shared_ptr<GraphBody> body_;
};

}  // namespace memra::cpu
