#include "models/mamba2/gguf.h"

#include <string>

#include "base/limits.h"

namespace runnel {
namespace {

// Adds a fault if `part` does not divide `whole`, the value of the key `of`.
void check_divides(const PublishedConfig& config, const char* key, int part, const char* of,
                   int whole) {
  if (whole % part == 0) return;
  config.faults().add(key, "a divisor of " + std::to_string(whole) + ", the " + of,
                      std::to_string(part));
}

}  // namespace

void read_gguf_mamba2(const PublishedModel& model, Spec& spec) {
  auto& sizes = spec.model.emplace<Mamba2Spec>();
  const PublishedConfig& config = model.config;
  sizes.names = Mamba2Names::kGguf;
  sizes.layers = config.integer("mamba2.block_count", 1, kMaxLayers);
  sizes.width = config.integer("mamba2.embedding_length", 1, kMaxWidth);
  const int inner = config.integer("mamba2.ssm.inner_size", 1, kMaxWidth);
  sizes.heads = config.integer("mamba2.ssm.time_step_rank", 1, inner);
  check_divides(config, "mamba2.ssm.time_step_rank", sizes.heads, "ssm.inner_size", inner);
  sizes.head_size = inner / sizes.heads;
  sizes.groups = config.integer("mamba2.ssm.group_count", 1, kMaxWidth);
  check_divides(config, "mamba2.ssm.group_count", sizes.groups, "ssm.time_step_rank", sizes.heads);
  sizes.state_size = config.integer("mamba2.ssm.state_size", 1, kMaxWidth / sizes.groups);
  sizes.taps = config.integer("mamba2.ssm.conv_kernel", 2, kMaxTaps);
  sizes.norm_eps = config.eps_or("mamba2.attention.layer_norm_rms_epsilon", sizes.norm_eps);
  sizes.bias = model.has("blk.0.ssm_in.bias");
  sizes.convolution_bias = model.has("blk.0.ssm_conv1d.bias");
  sizes.table_rows = model.read_vocabulary("token_embd.weight", {}, spec);
  sizes.tied = !model.has("output.weight");
}

}  // namespace runnel
