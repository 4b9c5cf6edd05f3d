#include "models/mamba1/spec.h"

#include "models/spec.h"

namespace runnel {
namespace {

constexpr int kMostColumns = 64;

}  // namespace

// The largest size that divides the channels. This gives whole vectors for the usual sizes, and
// enough heads for all threads.
int Mamba1Spec::head_size() const {
  int size = kMostColumns;
  while (inner % size != 0) --size;
  return size;
}

Recurrence recurrence_of(const Mamba1Spec& sizes) {
  return {.heads = sizes.inner / sizes.head_size(),
          .key_heads = 1,
          .dk = sizes.state_size,
          .dv = sizes.head_size(),
          .terms = Mamba1Terms{}};
}

std::vector<LayerStates> layers_of(const Mamba1Spec& sizes) {
  const LayerStates layer = {recurrence_of(sizes),
                             ConvolutionState{"conv_inputs", sizes.taps - 1, sizes.inner}};
  return std::vector<LayerStates>(sizes.layers, layer);
}

std::vector<ExpectedTensor> tensors_of(const Mamba1Spec& sizes, const Spec& /*spec*/) {
  const int64_t inner = sizes.inner;
  std::vector<ExpectedTensor> tensors = {{sizes.embedding(), {sizes.table_rows, sizes.width}}};
  for (int i = 0; i < sizes.layers; ++i) {
    const std::string layer = "backbone.layers." + std::to_string(i) + ".";
    const auto add = [&](const char* name, std::vector<int64_t> shape) {
      tensors.push_back({layer + "mixer." + name, std::move(shape)});
    };
    tensors.push_back({layer + "norm.weight", {sizes.width}});
    add("in_proj.weight", {2 * inner, sizes.width});
    add("conv1d.weight", {inner, 1, sizes.taps});
    add("x_proj.weight", {sizes.rank + 2 * int64_t{sizes.state_size}, inner});
    add("dt_proj.weight", {inner, sizes.rank});
    add("dt_proj.bias", {inner});
    add("A_log", {inner, sizes.state_size});
    add("D", {inner});
    add("out_proj.weight", {sizes.width, inner});
    if (sizes.convolution_bias) add("conv1d.bias", {inner});
    if (!sizes.bias) continue;
    add("in_proj.bias", {2 * inner});
    add("out_proj.bias", {sizes.width});
  }
  tensors.push_back({"backbone.norm_f.weight", {sizes.width}});
  if (!sizes.tied) tensors.push_back({"lm_head.weight", {sizes.table_rows, sizes.width}});
  return tensors;
}

std::vector<std::pair<std::string, std::string>> description_of(const Mamba1Spec& sizes,
                                                                const Spec& /*spec*/) {
  const auto text = [](int number) { return std::to_string(number); };
  return {{"size", text(sizes.layers) + " layers, width " + text(sizes.width) + ", " +
                       text(sizes.inner) + " channels"},
          {"recurrence", std::string(sizes.mixer_eps > 0.0F ? "Falcon-Mamba" : "Mamba-1") +
                             ", states of " + text(sizes.state_size) + ", convolution of " +
                             text(sizes.taps)},
          {"head", sizes.tied ? "categorical, the embedding" : "categorical"},
          {"length", "no end"}};
}

}  // namespace runnel
