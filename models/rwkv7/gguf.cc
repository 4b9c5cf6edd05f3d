#include "models/rwkv7/gguf.h"

#include <algorithm>
#include <string>

#include "base/limits.h"

namespace runnel {

void read_gguf_rwkv7(const PublishedModel& model, Spec& spec) {
  auto& sizes = spec.model.emplace<Rwkv7Spec>();
  const PublishedConfig& config = model.config;
  const auto size = [&](const char* key, int64_t max = kMaxWidth) {
    return config.integer(key, 1, max);
  };
  sizes.names = Rwkv7Names::kGguf;
  sizes.layers = size("rwkv7.block_count", kMaxLayers);
  sizes.width = sizes.value_width = size("rwkv7.embedding_length");
  sizes.ffn = size("rwkv7.feed_forward_length");
  const int head_size = size("rwkv7.wkv.head_size");
  sizes.heads = std::max(sizes.width / head_size, 1);
  if (sizes.width % head_size != 0) {
    config.faults().add("rwkv7.wkv.head_size",
                        "a divisor of " + std::to_string(sizes.width) + ", the embedding_length",
                        std::to_string(head_size));
  }
  sizes.ranks = {.decay = size("rwkv7.attention.decay_lora_rank"),
                 .rate = size("rwkv7.attention.iclr_lora_rank"),
                 .value = size("rwkv7.attention.value_residual_mix_lora_rank"),
                 .gate = size("rwkv7.attention.gate_lora_rank")};
  config.integer_or("rwkv7.token_shift_count", 2, 2, 2);
  sizes.norm_eps = config.eps_or("rwkv7.attention.layer_norm_epsilon", sizes.norm_eps);
  sizes.table_rows = model.read_vocabulary("token_embd.weight", {}, spec);
  sizes.tied = !model.has("output.weight");
}

}  // namespace runnel
