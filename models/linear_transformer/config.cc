#include "models/linear_transformer/config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/limits.h"
#include "base/text.h"

namespace runnel {
namespace {

constexpr int64_t kMaxComponents = 256;
constexpr float kMaxFeatureNumber = 1e6F;  // temperature, smoothing, scale
constexpr int kByteValues = 256;
// A table is a matrix, whose rows are counted by an int.
constexpr int64_t kMaxTableLength = std::min(kMaxPositions, int64_t{INT32_MAX});

constexpr std::array kFeatureMaps = {Choice{"elu", FeatureMap::kElu},
                                     Choice{"relu", FeatureMap::kRelu},
                                     Choice{"favor", FeatureMap::kFavor},
                                     Choice{"fourier", FeatureMap::kFourier},
                                     Choice{"smoothed_fourier", FeatureMap::kSmoothedFourier},
                                     Choice{"generalized", FeatureMap::kGeneralized}};
enum class AttentionKind : uint8_t { kLinear, kSoftmax };
constexpr std::array kAttentions = {Choice{"linear", AttentionKind::kLinear},
                                    Choice{"softmax", AttentionKind::kSoftmax}};
constexpr std::array kActivations = {Choice{"relu", Activation::kRelu},
                                     Choice{"gelu", Activation::kGelu}};
constexpr std::array kCombines = {Choice{"concat", Combine::kConcat}, Choice{"add", Combine::kAdd}};
constexpr std::array kPositions = {Choice{"table", PositionKind::kTable},
                                   Choice{"sinusoidal", PositionKind::kSinusoidal},
                                   Choice{"none", PositionKind::kNone}};
constexpr std::array kHeads = {
    Choice{head_kind_name(HeadKind::kCategorical), HeadKind::kCategorical},
    Choice{head_kind_name(HeadKind::kMixtureOfLogistics), HeadKind::kMixtureOfLogistics}};
// Settings that the format has, with only one choice so far.
constexpr std::array kNorms = {Choice{"layer", 0}};
constexpr std::array kPlacements = {Choice{"post", 0}};

void read_position(const Fields& model, LinearTransformerSpec& sizes, Spec& spec) {
  const Fields position = model.object("position", {"kind", "length"});
  sizes.position = position.choice("kind", kPositions);
  const bool is_table = sizes.position == PositionKind::kTable;
  // With softmax, every session has a cache with room for all positions.
  if (is_table || sizes.softmax || position.find("length") != nullptr) {
    const int64_t most = is_table ? kMaxTableLength : kMaxPositions;
    spec.positions = position.integer("length", 1, sizes.softmax ? kMaxContext : most);
  }
}

void read_head(const Fields& model, Faults& faults, Spec& spec) {
  const Fields head = model.object("head", {"kind", "components"});
  spec.head.kind = head.choice("kind", kHeads);
  spec.head.values = spec.vocabulary;
  if (spec.head.kind == HeadKind::kMixtureOfLogistics) {
    spec.head.components = head.small("components", 1, kMaxComponents);
    if (spec.vocabulary != kByteValues) {
      faults.add("values", "256, as the head is a mixture of logistics over bytes",
                 std::to_string(spec.vocabulary));
    }
  } else if (const Json* components = head.find("components"); components != nullptr) {
    faults.add(head.path("components"), "no such key with the kind 'categorical'",
               describe(*components));
  }
}

// Refuses a key that only some kinds of attention have.
void refuse_key(const Fields& attention, const char* key, Faults& faults, const std::string& with) {
  if (const Json* member = attention.find(key); member != nullptr) {
    faults.add(attention.path(key), "no such key with " + with, describe(*member));
  }
}

float usual_scale(int query_size) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(query_size)));
}

void read_random_features(const Fields& attention, LinearTransformerSpec& sizes) {
  RandomFeatures& features = sizes.features;
  features.map = sizes.feature_map;
  const bool generalized = sizes.feature_map == FeatureMap::kGeneralized;
  const bool smoothed = sizes.feature_map == FeatureMap::kSmoothedFourier;
  features.count = attention.small("features", generalized ? 1 : smoothed ? 3 : 2, kMaxWidth);
  features.temperature = attention.number(
      "temperature", generalized ? 1.0F : usual_scale(sizes.query_size), kMaxFeatureNumber);
  if (smoothed) features.smoothing = attention.number("smoothing", 1.0F, kMaxFeatureNumber);
  if (generalized) features.kernel = attention.choice("kernel", kActivations);
  sizes.normalize = attention.boolean("normalize", false);
}

void read_softmax(const Fields& attention, Faults& faults, LinearTransformerSpec& sizes) {
  sizes.softmax = true;
  sizes.softmax_scale = attention.number("scale", usual_scale(sizes.query_size), kMaxFeatureNumber);
  for (const char* key : {"feature_map", "eps", "features", "temperature", "smoothing", "kernel",
                          "normalize", "gate"}) {
    refuse_key(attention, key, faults, "the kind 'softmax'");
  }
}

void read_attention(const Fields& model, Faults& faults, LinearTransformerSpec& sizes) {
  const Json* const object = model.find("attention");
  if (object != nullptr && object->is_object() && object->contains("stabilize")) {
    faults.add("model.attention.stabilize",
               "no such key (it subtracts a maximum over the whole sequence, of which a recurrent "
               "network has not seen the end)",
               describe((*object)["stabilize"]));
  }
  const Fields attention =
      model.object("attention", {"kind", "feature_map", "eps", "features", "temperature",
                                 "smoothing", "kernel", "normalize", "gate", "scale"});
  if (attention.find("kind") != nullptr &&
      attention.choice("kind", kAttentions) == AttentionKind::kSoftmax) {
    return read_softmax(attention, faults, sizes);
  }
  refuse_key(attention, "scale", faults, "the kind 'linear'");
  sizes.feature_map = attention.choice("feature_map", kFeatureMaps);
  sizes.attention_eps = attention.eps("eps", sizes.attention_eps);
  sizes.gate = attention.boolean("gate", false);
  const std::string map = "the feature map " + quote(name_of(kFeatureMaps, sizes.feature_map));
  if (is_random(sizes.feature_map)) {
    read_random_features(attention, sizes);
  } else {
    for (const char* key : {"features", "temperature", "normalize"}) {
      refuse_key(attention, key, faults, map);
    }
  }
  if (sizes.feature_map != FeatureMap::kSmoothedFourier) {
    refuse_key(attention, "smoothing", faults, map);
  }
  if (sizes.feature_map != FeatureMap::kGeneralized) refuse_key(attention, "kernel", faults, map);
}

// Checks that sizes match, after each of them has been checked by itself.
void check_sizes(const LinearTransformerSpec& sizes, Faults& faults) {
  const auto check_heads = [&](const char* key, int size) {
    const int64_t all = int64_t{sizes.heads} * size;
    if (all <= kMaxWidth) return;
    faults.add(
        key, "model.heads times this to be at most " + std::to_string(kMaxWidth),
        std::to_string(sizes.heads) + " * " + std::to_string(size) + " = " + std::to_string(all));
  };
  check_heads("model.query_size", sizes.query_size);
  check_heads("model.value_size", sizes.value_size);
  if (is_random(sizes.feature_map)) check_heads("model.attention.features", sizes.feature_size());
  const std::string width = std::to_string(sizes.width);
  const std::string found = std::to_string(sizes.value_width);
  const char* const key = "model.embedding.value_width";
  if (sizes.combine == Combine::kAdd || sizes.position == PositionKind::kNone) {
    if (sizes.value_width != sizes.width) {
      faults.add(key,
                 width + " (model.width: values " +
                     (sizes.combine == Combine::kAdd ? "are added to positions" : "stand alone") +
                     ")",
                 found);
    }
  } else if (sizes.value_width >= sizes.width) {
    faults.add(key,
               "less than " + width + " (model.width), to leave room for the position encoding",
               found);
  }
}

OrderedJson attention_to_json(const LinearTransformerSpec& sizes) {
  OrderedJson attention;
  if (sizes.softmax) {
    attention["kind"] = name_of(kAttentions, AttentionKind::kSoftmax);
    attention["scale"] = shortest(sizes.softmax_scale);
    return attention;
  }
  attention["feature_map"] = name_of(kFeatureMaps, sizes.feature_map);
  attention["eps"] = shortest(sizes.attention_eps);
  if (is_random(sizes.feature_map)) {
    attention["features"] = sizes.features.count;
    attention["temperature"] = shortest(sizes.features.temperature);
  }
  if (sizes.feature_map == FeatureMap::kSmoothedFourier) {
    attention["smoothing"] = shortest(sizes.features.smoothing);
  }
  if (sizes.feature_map == FeatureMap::kGeneralized) {
    attention["kernel"] = name_of(kActivations, sizes.features.kernel);
  }
  if (sizes.normalize) attention["normalize"] = true;
  if (sizes.gate) attention["gate"] = true;
  return attention;
}

}  // namespace

const char* feature_map_name(FeatureMap map) { return name_of(kFeatureMaps, map); }

void read_linear_transformer(const Fields& root, Faults& faults, Spec& spec) {
  auto& sizes = spec.model.emplace<LinearTransformerSpec>();
  const Fields model =
      root.object("model", {"family", "layers", "width", "heads", "query_size", "value_size", "ffn",
                            "attention", "norm", "activation", "embedding", "position", "head"});
  sizes.layers = model.small("layers", 1, kMaxLayers);
  sizes.width = model.small("width", 1, kMaxWidth);
  sizes.heads = model.small("heads", 1, kMaxWidth);
  sizes.query_size = model.small("query_size", 1, kMaxWidth);
  sizes.value_size = model.small("value_size", 1, kMaxWidth);
  sizes.ffn = model.small("ffn", 1, kMaxWidth);
  read_attention(model, faults, sizes);
  const Fields norm = model.object("norm", {"kind", "placement", "eps", "final"});
  norm.choice("kind", kNorms);
  norm.choice("placement", kPlacements);
  sizes.norm_eps = norm.eps("eps", sizes.norm_eps);
  sizes.final_norm = norm.boolean("final", sizes.final_norm);
  sizes.activation = model.choice("activation", kActivations);
  const Fields embedding = model.object("embedding", {"combine", "value_width"});
  sizes.combine = embedding.choice("combine", kCombines);
  sizes.value_width = embedding.small("value_width", 1, kMaxWidth);
  read_position(model, sizes, spec);
  read_head(model, faults, spec);
  if (faults.ok()) check_sizes(sizes, faults);
}

OrderedJson model_to_json(const LinearTransformerSpec& sizes, const Spec& spec) {
  OrderedJson model;
  model["layers"] = sizes.layers;
  model["width"] = sizes.width;
  model["heads"] = sizes.heads;
  model["query_size"] = sizes.query_size;
  model["value_size"] = sizes.value_size;
  model["ffn"] = sizes.ffn;
  model["attention"] = attention_to_json(sizes);
  model["norm"]["kind"] = kNorms[0].name;
  model["norm"]["placement"] = kPlacements[0].name;
  model["norm"]["eps"] = shortest(sizes.norm_eps);
  model["norm"]["final"] = sizes.final_norm;
  model["activation"] = name_of(kActivations, sizes.activation);
  model["embedding"]["combine"] = name_of(kCombines, sizes.combine);
  model["embedding"]["value_width"] = sizes.value_width;
  model["position"]["kind"] = name_of(kPositions, sizes.position);
  if (spec.positions > 0) model["position"]["length"] = spec.positions;
  model["head"]["kind"] = head_kind_name(spec.head.kind);
  if (spec.head.kind == HeadKind::kMixtureOfLogistics) {
    model["head"]["components"] = spec.head.components;
  }
  return model;
}

}  // namespace runnel
