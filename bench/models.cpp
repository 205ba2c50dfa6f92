#include "models.h"

#include <algorithm>
#include <cctype>

namespace memra::bench {
namespace {

// Fields read: hidden_size; moe_intermediate_size (MiniMax-M2 and gpt-oss: intermediate_size);
// n_routed_experts, num_experts, num_local_experts or moe_num_experts; num_experts_per_tok or
// moe_top_k; hidden_act, swiglu_limit and swiglu_limits.
constexpr ModelShape kModels[] = {
    {"Step-3.5-Flash", 4096, 1280, 288, 8, MEMRA_SWIGLU_POSTCLAMP, 7.0F, 0.0F,
     "stepfun-ai/Step-3.5-Flash config.json",
     "swiglu_limits: 7 in the last two layers, 43 and 44; plain SwiGLU in the others"},
    {"Qwen3-30B-A3B", 2048, 768, 128, 8, MEMRA_SWIGLU, 0.0F, 0.0F, "Qwen/Qwen3-30B-A3B config.json",
     ""},
    {"Qwen3-235B-A22B", 4096, 1536, 128, 8, MEMRA_SWIGLU, 0.0F, 0.0F,
     "Qwen/Qwen3-235B-A22B config.json", ""},
    {"Qwen3-Next-80B-A3B", 2048, 512, 512, 10, MEMRA_SWIGLU, 0.0F, 0.0F,
     "Qwen/Qwen3-Next-80B-A3B-Instruct config.json", ""},
    {"DeepSeek-V3", 7168, 2048, 256, 8, MEMRA_SWIGLU, 0.0F, 0.0F,
     "deepseek-ai/DeepSeek-V3 config.json", "DeepSeek-R1 has the same"},
    {"GLM-4.5", 5120, 1536, 160, 8, MEMRA_SWIGLU, 0.0F, 0.0F, "zai-org/GLM-4.5 config.json", ""},
    {"GLM-4.5-Air", 4096, 1408, 128, 8, MEMRA_SWIGLU, 0.0F, 0.0F, "zai-org/GLM-4.5-Air config.json",
     ""},
    {"MiniMax-M2", 3072, 1536, 256, 8, MEMRA_SWIGLU, 0.0F, 0.0F, "MiniMaxAI/MiniMax-M2 config.json",
     ""},
    {"gpt-oss-120b", 2880, 2880, 128, 4, MEMRA_SWIGLU_OAI, 7.0F, 1.702F,
     "openai/gpt-oss-120b original/config.json",
     "alpha is fixed in the model's code, not in its config; the expert biases are left out"},
    {"Kimi-K2", 7168, 2048, 384, 8, MEMRA_SWIGLU, 0.0F, 0.0F,
     "moonshotai/Kimi-K2-Instruct config.json", ""},
};

bool same_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

}  // namespace

Activation ModelShape::activation_options() const {
  Activation result;
  result.kind = activation;
  if (limit > 0) result.limit = limit;
  if (alpha > 0) result.alpha = alpha;
  return result;
}

std::span<const ModelShape> model_shapes() {
  return kModels;
}

const ModelShape* find_model(std::string_view name) {
  for (const ModelShape& model : kModels) {
    if (same_ignoring_case(model.name, name)) return &model;
  }
  return nullptr;
}

}  // namespace memra::bench
