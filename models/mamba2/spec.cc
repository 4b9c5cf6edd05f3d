#include "models/mamba2/spec.h"

#include "models/spec.h"

namespace runnel {

std::string embedding_name(Mamba2Names names) {
  return names == Mamba2Names::kStateSpaces ? "backbone.embedding.weight"
                                            : "backbone.embeddings.weight";
}

Recurrence recurrence_of(const Mamba2Spec& sizes) {
  return {.rule = Rule::kMamba2,
          .heads = sizes.heads,
          .key_heads = sizes.groups,
          .dk = sizes.state_size,
          .dv = sizes.head_size,
          .dt_least = sizes.dt_least,
          .dt_most = sizes.dt_most};
}

int64_t state_bytes_of(const Mamba2Spec& sizes) {
  const int64_t before = int64_t{sizes.taps - 1} * sizes.channels() * 4;
  return sizes.layers * (recurrence_of(sizes).state_bytes() + before);
}

std::vector<ExpectedTensor> tensors_of(const Mamba2Spec& sizes, const Spec& /*spec*/) {
  std::vector<ExpectedTensor> tensors = {
      {embedding_name(sizes.names), {sizes.table_rows, sizes.width}}};
  for (int i = 0; i < sizes.layers; ++i) {
    const std::string layer = "backbone.layers." + std::to_string(i) + ".";
    const std::string mixer = layer + "mixer.";
    tensors.push_back({layer + "norm.weight", {sizes.width}});
    tensors.push_back({mixer + "in_proj.weight", {sizes.projected(), sizes.width}});
    tensors.push_back({mixer + "conv1d.weight", {sizes.channels(), 1, sizes.taps}});
    for (const char* const name : {"dt_bias", "A_log", "D"}) {
      tensors.push_back({mixer + name, {sizes.heads}});
    }
    tensors.push_back({mixer + "norm.weight", {sizes.inner()}});
    tensors.push_back({mixer + "out_proj.weight", {sizes.width, sizes.inner()}});
    if (sizes.convolution_bias) tensors.push_back({mixer + "conv1d.bias", {sizes.channels()}});
    if (!sizes.bias) continue;
    tensors.push_back({mixer + "in_proj.bias", {sizes.projected()}});
    tensors.push_back({mixer + "out_proj.bias", {sizes.width}});
  }
  tensors.push_back({"backbone.norm_f.weight", {sizes.width}});
  if (!sizes.tied) tensors.push_back({"lm_head.weight", {sizes.table_rows, sizes.width}});
  return tensors;
}

std::vector<std::pair<std::string, std::string>> description_of(const Mamba2Spec& sizes,
                                                                const Spec& /*spec*/) {
  const auto text = [](int number) { return std::to_string(number); };
  std::string groups = sizes.groups == 1 ? "1 group" : text(sizes.groups) + " groups";
  return {{"size", text(sizes.layers) + " layers, width " + text(sizes.width) + ", " +
                       text(sizes.heads) + " heads of " + text(sizes.head_size) + " in " + groups},
          {"recurrence",
           "Mamba-2, states of " + text(sizes.state_size) + ", convolution of " + text(sizes.taps)},
          {"head", sizes.tied ? "categorical, the embedding" : "categorical"},
          {"positions", "no last one"}};
}

}  // namespace runnel
