#include "models/linear_transformer/spec.h"

#include "base/text.h"
#include "models/linear_transformer/config.h"
#include "models/spec.h"

namespace runnel {
namespace {

// A linear layer's weight [out, in] and bias [out].
void add_linear(std::vector<ExpectedTensor>& tensors, const std::string& name, int64_t out,
                int64_t in) {
  tensors.push_back({name + ".weight", {out, in}});
  tensors.push_back({name + ".bias", {out}});
}

void add_norm(std::vector<ExpectedTensor>& tensors, const std::string& name, int64_t width) {
  tensors.push_back({name + ".weight", {width}});
  tensors.push_back({name + ".bias", {width}});
}

void add_layer(std::vector<ExpectedTensor>& tensors, const std::string& layer,
               const LinearTransformerSpec& sizes) {
  const int64_t queries = int64_t{sizes.heads} * sizes.query_size;
  const int64_t values = int64_t{sizes.heads} * sizes.value_size;
  add_linear(tensors, layer + ".attention.query_projection", queries, sizes.width);
  add_linear(tensors, layer + ".attention.key_projection", queries, sizes.width);
  add_linear(tensors, layer + ".attention.value_projection", values, sizes.width);
  add_linear(tensors, layer + ".attention.out_projection", sizes.width, values);
  const std::string map = layer + ".attention.inner_attention.feature_map";
  if (is_random(sizes.feature_map)) {
    tensors.push_back({map + ".omega", {sizes.query_size, sizes.features.projections()}, false});
  }
  if (sizes.normalize) tensors.push_back({map + ".sigma", {sizes.heads, sizes.query_size}});
  if (sizes.gate) add_linear(tensors, layer + ".attention.gate", sizes.heads, sizes.width);
  add_linear(tensors, layer + ".linear1", sizes.ffn, sizes.width);
  add_linear(tensors, layer + ".linear2", sizes.width, sizes.ffn);
  add_norm(tensors, layer + ".norm1", sizes.width);
  add_norm(tensors, layer + ".norm2", sizes.width);
}

const char* position_name(PositionKind kind) {
  switch (kind) {
    case PositionKind::kNone:
      return "no position encoding";
    case PositionKind::kTable:
      return "stored position table";
    case PositionKind::kSinusoidal:
      return "sinusoidal positions";
  }
  return "unknown";
}

}  // namespace

Recurrence recurrence_of(const LinearTransformerSpec& sizes) {
  const FeatureMap map = is_random(sizes.feature_map) ? FeatureMap::kNone : sizes.feature_map;
  return {.heads = sizes.heads,
          .dk = sizes.feature_size(),
          .dv = sizes.value_size,
          .terms = LinearTerms{.map = map, .gated = sizes.gate, .eps = sizes.attention_eps}};
}

Attention attention_of(const LinearTransformerSpec& sizes) {
  return {.heads = sizes.heads,
          .kv_heads = sizes.heads,
          .dk = sizes.query_size,
          .dv = sizes.value_size,
          .scale = sizes.softmax_scale};
}

std::vector<LayerStates> layers_of(const LinearTransformerSpec& sizes) {
  LayerStates layer;
  if (sizes.softmax) {
    layer.push_back(attention_of(sizes));
  } else {
    layer.push_back(recurrence_of(sizes));
  }
  return std::vector<LayerStates>(sizes.layers, layer);
}

std::vector<ExpectedTensor> tensors_of(const LinearTransformerSpec& sizes, const Spec& spec) {
  std::vector<ExpectedTensor> tensors;
  tensors.push_back({"value_embedding.weight", {spec.vocabulary, sizes.value_width}});
  if (sizes.position == PositionKind::kTable) {
    tensors.push_back({"pos_embedding.pe", {1, spec.positions, sizes.position_width()}, false});
  }
  for (int layer = 0; layer < sizes.layers; ++layer) {
    add_layer(tensors, "transformer.layers." + std::to_string(layer), sizes);
  }
  if (sizes.final_norm) add_norm(tensors, "transformer.norm", sizes.width);
  add_linear(tensors, "predictor", spec.head.width(), sizes.width);
  return tensors;
}

std::vector<std::pair<std::string, std::string>> description_of(const LinearTransformerSpec& sizes,
                                                                const Spec& spec) {
  const auto text = [](int number) { return std::to_string(number); };
  std::string attention = std::string("linear, feature map ") + feature_map_name(sizes.feature_map);
  if (sizes.softmax) attention = "softmax, which reads all positions so far";
  if (is_random(sizes.feature_map)) attention += " of " + text(sizes.features.count);
  if (sizes.gate) attention += ", gated";
  std::string head = head_kind_name(spec.head.kind);
  if (spec.head.kind != HeadKind::kCategorical) head += " of " + text(spec.head.components);
  const std::string length =
      spec.positions == 0 ? "no end" : with_commas(spec.max_length()) + " values at most";
  return {
      {"size", text(sizes.layers) + " layers, width " + text(sizes.width) + ", " +
                   text(sizes.heads) + " heads (keys of " + text(sizes.query_size) +
                   ", values of " + text(sizes.value_size) + "), feed-forward " + text(sizes.ffn)},
      {"attention", attention},
      {"head", head},
      {"length", length + ", " + position_name(sizes.position)}};
}

}  // namespace runnel
