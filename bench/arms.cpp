#include "arms.h"

#include <algorithm>

#include "session.h"

namespace memra::bench {
namespace {

constexpr uint32_t kLane = MEMRA_ROWS_LANE_MAJOR;
constexpr uint32_t kLanePack = MEMRA_ROWS_LANE_MAJOR | MEMRA_ROWS_PACK;
constexpr uint32_t kIlp = MEMRA_ROWS_ILP;

constexpr Arm kArms[] = {
    {"gate_up.v1.served", Stage::kGateUp, Kind::kServed, MEMRA_NVFP4, kIlp, true},
    {"gate_up.v1.loadonly", Stage::kGateUp, Kind::kLoadOnly, MEMRA_NVFP4, kIlp, false},
    {"gate_up.v1.mathonly", Stage::kGateUp, Kind::kMathOnly, MEMRA_NVFP4, kIlp, false},
    {"gate_up.v2.served", Stage::kGateUp, Kind::kVariant, MEMRA_NVFP4_V2, kIlp, false},
    {"gate_up.v2.loadonly", Stage::kGateUp, Kind::kLoadOnly, MEMRA_NVFP4_V2, kIlp, false},
    {"gate_up.v2.mathonly", Stage::kGateUp, Kind::kMathOnly, MEMRA_NVFP4_V2, kIlp, false},
    {"gate_up.v2.lane_major", Stage::kGateUp, Kind::kVariant, MEMRA_NVFP4_V2, kLane, false},
    {"gate_up.v2.lane_major_loadonly", Stage::kGateUp, Kind::kLoadOnly, MEMRA_NVFP4_V2, kLane,
     false},
    {"gate_up.v2.lane_major_mathonly", Stage::kGateUp, Kind::kMathOnly, MEMRA_NVFP4_V2, kLane,
     false},
    {"gate_up.v2.lane_major_pack", Stage::kGateUp, Kind::kVariant, MEMRA_NVFP4_V2, kLanePack,
     false},
    {"gate_up.stream", Stage::kGateUp, Kind::kStream, MEMRA_NVFP4_V2, kIlp, false},
    {"gate_up.stream_dependent", Stage::kGateUp, Kind::kStreamDependent, MEMRA_NVFP4_V2, kIlp,
     false},
    {"down.v2.served", Stage::kDown, Kind::kServed, MEMRA_NVFP4_V2, kIlp, true},
    {"down.v2.loadonly", Stage::kDown, Kind::kLoadOnly, MEMRA_NVFP4_V2, kIlp, false},
    {"down.v2.mathonly", Stage::kDown, Kind::kMathOnly, MEMRA_NVFP4_V2, kIlp, false},
    {"down.v2.lane_major", Stage::kDown, Kind::kVariant, MEMRA_NVFP4_V2, kLane, false},
    {"down.v2.lane_major_loadonly", Stage::kDown, Kind::kLoadOnly, MEMRA_NVFP4_V2, kLane, false},
    {"down.v2.lane_major_mathonly", Stage::kDown, Kind::kMathOnly, MEMRA_NVFP4_V2, kLane, false},
    {"down.v2.lane_major_pack", Stage::kDown, Kind::kVariant, MEMRA_NVFP4_V2, kLanePack, false},
    {"down.stream", Stage::kDown, Kind::kStream, MEMRA_NVFP4_V2, kIlp, false},
    {"down.stream_dependent", Stage::kDown, Kind::kStreamDependent, MEMRA_NVFP4_V2, kIlp, false},
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

std::span<const Arm> all_arms() {
  return kArms;
}

std::vector<Arm> select_arms(const std::string& filter) {
  const std::vector<std::string> parts = split(filter);
  for (const std::string& part : parts) {
    bool found = false;
    for (const Arm& arm : kArms)
      found = found || arm.name.find(part) != std::string_view::npos;
    if (found) continue;
    std::string text = "--arms: no arm's name contains '" + part + "'; the arms are";
    for (const Arm& arm : kArms)
      text.append(" ").append(arm.name);
    throw Failure(text);
  }
  std::vector<Arm> arms;
  for (const Arm& arm : kArms) {
    bool wanted = arm.is_baseline || parts.empty();
    for (const std::string& part : parts) {
      wanted = wanted || arm.name.find(part) != std::string_view::npos;
    }
    if (wanted) arms.push_back(arm);
  }
  return arms;
}

const char* stage_name(Stage stage) {
  return stage == Stage::kGateUp ? "gate/up" : "down";
}

}  // namespace memra::bench
