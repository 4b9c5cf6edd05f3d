#include "models/spec.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <charconv>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "base/json_fields.h"
#include "base/limits.h"
#include "base/text.h"

namespace runnel {
namespace {

constexpr int64_t kFormat = 1;
constexpr int64_t kMaxConfigValues = 1 << 22;  // more than two per value of the largest vocabulary
constexpr int kConfigDepth = 8;
constexpr int64_t kMaxComponents = 256;
constexpr int64_t kMaxImageSide = 16384;
constexpr int64_t kMaxSymbolBytes = 64;
constexpr float kMaxFeatureNumber = 1e6F;  // temperature, smoothing
constexpr int kByteValues = 256;
// Tables are matrices, whose rows are counted by an int.
constexpr int64_t kMaxTableLength = std::min(kMaxPositions, int64_t{INT32_MAX});

constexpr std::array kFeatureMaps = {Choice{"elu", FeatureMap::kElu},
                                     Choice{"relu", FeatureMap::kRelu},
                                     Choice{"favor", FeatureMap::kFavor},
                                     Choice{"fourier", FeatureMap::kFourier},
                                     Choice{"smoothed_fourier", FeatureMap::kSmoothedFourier},
                                     Choice{"generalized", FeatureMap::kGeneralized}};
constexpr std::array kActivations = {Choice{"relu", Activation::kRelu},
                                     Choice{"gelu", Activation::kGelu}};
constexpr std::array kCombines = {Choice{"concat", Combine::kConcat}, Choice{"add", Combine::kAdd}};
constexpr std::array kPositions = {Choice{"table", PositionKind::kTable},
                                   Choice{"sinusoidal", PositionKind::kSinusoidal},
                                   Choice{"none", PositionKind::kNone}};
constexpr std::array kHeads = {Choice{"categorical", HeadKind::kCategorical},
                               Choice{"mixture_of_logistics", HeadKind::kMixtureOfLogistics}};
constexpr std::array kTexts = {Choice{"bytes", TextKind::kBytes},
                               Choice{"tokenizer", TextKind::kTokenizer}};
// Words that the format has room for, with one choice so far.
constexpr std::array kNorms = {Choice{"layer", 0}};
constexpr std::array kPlacements = {Choice{"post", 0}};

void read_name(const Fields& root, Faults& faults, Spec& spec) {
  const std::string expected =
      "1 to " + std::to_string(kMaxNameLength) + " characters of a-z, 0-9, '.', '_' and '-'";
  const Json* member = root.require("name", expected);
  if (member == nullptr) return;
  const auto fits = [](const std::string& name) {
    return !name.empty() && std::ssize(name) <= kMaxNameLength &&
           name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789._-") == std::string::npos;
  };
  if (member->is_string() && fits(member->get_ref<const std::string&>())) {
    spec.name = member->get<std::string>();
  } else {
    faults.add("name", expected, describe(*member));
  }
}

void read_position(const Fields& model, Spec& spec) {
  const Fields position = model.object("position", {"kind", "length"});
  spec.position = position.choice("kind", kPositions);
  const bool is_table = spec.position == PositionKind::kTable;
  if (is_table || position.find("length") != nullptr) {
    spec.positions = position.integer("length", 1, is_table ? kMaxTableLength : kMaxPositions);
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

// Keys that only some feature maps have.
void refuse_key(const Fields& attention, const char* key, Faults& faults, const Spec& spec) {
  if (const Json* member = attention.find(key); member != nullptr) {
    faults.add(attention.path(key),
               "no such key with the feature map " + quote(name_of(kFeatureMaps, spec.feature_map)),
               describe(*member));
  }
}

void read_random_features(const Fields& attention, Spec& spec) {
  RandomFeatures& features = spec.features;
  features.map = spec.feature_map;
  const bool generalized = spec.feature_map == FeatureMap::kGeneralized;
  const bool smoothed = spec.feature_map == FeatureMap::kSmoothedFourier;
  features.count = attention.small("features", generalized ? 1 : smoothed ? 3 : 2, kMaxWidth);
  const double usual = 1.0 / std::sqrt(static_cast<double>(spec.query_size));
  features.temperature = attention.number(
      "temperature", generalized ? 1.0F : static_cast<float>(usual), kMaxFeatureNumber);
  if (smoothed) features.smoothing = attention.number("smoothing", 1.0F, kMaxFeatureNumber);
  if (generalized) features.kernel = attention.choice("kernel", kActivations);
  spec.normalize = attention.boolean("normalize", false);
}

void read_attention(const Fields& model, Faults& faults, Spec& spec) {
  const Json* const object = model.find("attention");
  if (object != nullptr && object->is_object() && object->contains("stabilize")) {
    faults.add("model.attention.stabilize",
               "no such key (it subtracts a maximum over the whole sequence, of which a recurrent "
               "network has not seen the end)",
               describe((*object)["stabilize"]));
  }
  const Fields attention =
      model.object("attention", {"feature_map", "eps", "features", "temperature", "smoothing",
                                 "kernel", "normalize", "gate"});
  spec.feature_map = attention.choice("feature_map", kFeatureMaps);
  spec.attention_eps = attention.eps("eps", spec.attention_eps);
  spec.gate = attention.boolean("gate", false);
  if (is_random(spec.feature_map)) {
    read_random_features(attention, spec);
  } else {
    for (const char* key : {"features", "temperature", "normalize"}) {
      refuse_key(attention, key, faults, spec);
    }
  }
  if (spec.feature_map != FeatureMap::kSmoothedFourier) {
    refuse_key(attention, "smoothing", faults, spec);
  }
  if (spec.feature_map != FeatureMap::kGeneralized) refuse_key(attention, "kernel", faults, spec);
}

void read_model(const Fields& root, Faults& faults, Spec& spec) {
  const Fields model =
      root.object("model", {"layers", "width", "heads", "query_size", "value_size", "ffn",
                            "attention", "norm", "activation", "embedding", "position", "head"});
  spec.layers = model.small("layers", 1, kMaxLayers);
  spec.width = model.small("width", 1, kMaxWidth);
  spec.heads = model.small("heads", 1, kMaxWidth);
  spec.query_size = model.small("query_size", 1, kMaxWidth);
  spec.value_size = model.small("value_size", 1, kMaxWidth);
  spec.ffn = model.small("ffn", 1, kMaxWidth);
  read_attention(model, faults, spec);
  const Fields norm = model.object("norm", {"kind", "placement", "eps", "final"});
  norm.choice("kind", kNorms);
  norm.choice("placement", kPlacements);
  spec.norm_eps = norm.eps("eps", spec.norm_eps);
  spec.final_norm = norm.boolean("final", spec.final_norm);
  spec.activation = model.choice("activation", kActivations);
  const Fields embedding = model.object("embedding", {"combine", "value_width"});
  spec.combine = embedding.choice("combine", kCombines);
  spec.value_width = embedding.small("value_width", 1, kMaxWidth);
  read_position(model, spec);
  read_head(model, faults, spec);
}

// Sizes that must fit one another, after each has been checked by itself.
void check_sizes(const Spec& spec, Faults& faults) {
  const auto check_heads = [&](const char* key, int size) {
    const int64_t all = int64_t{spec.heads} * size;
    if (all <= kMaxWidth) return;
    faults.add(
        key, "model.heads times this to be at most " + std::to_string(kMaxWidth),
        std::to_string(spec.heads) + " * " + std::to_string(size) + " = " + std::to_string(all));
  };
  check_heads("model.query_size", spec.query_size);
  check_heads("model.value_size", spec.value_size);
  if (is_random(spec.feature_map)) check_heads("model.attention.features", spec.feature_size());
  const std::string width = std::to_string(spec.width);
  const std::string found = std::to_string(spec.value_width);
  const char* const key = "model.embedding.value_width";
  if (spec.combine == Combine::kAdd || spec.position == PositionKind::kNone) {
    if (spec.value_width != spec.width) {
      faults.add(key,
                 width + " (model.width: values " +
                     (spec.combine == Combine::kAdd ? "are added to positions" : "stand alone") +
                     ")",
                 found);
    }
  } else if (spec.value_width >= spec.width) {
    faults.add(key,
               "less than " + width + " (model.width), to leave room for the position beside it",
               found);
  }
}

// Scales the weights to sum to 1, unless they do up to fp32: reading what was written changes
// nothing.
void normalize(std::vector<float>& weights, double sum) {
  if (std::abs(sum - 1.0) <= 0x1p-23) return;
  for (float& weight : weights) weight = static_cast<float>(weight / sum);
}

void read_histogram(const Json& list, const std::string& path, Faults& faults, Spec& spec) {
  if (!list.is_array() || std::ssize(list) != spec.vocabulary) {
    faults.add(path, "an array of " + std::to_string(spec.vocabulary) + " numbers, one per value",
               describe(list));
    return;
  }
  std::vector<float> weights;
  weights.reserve(list.size());
  double sum = 0.0;
  for (const Json& item : list) {
    const double weight = item.is_number() ? item.get<double>() : -1.0;
    if (!(weight >= 0.0 && weight <= double{FLT_MAX})) {
      faults.add(path + "[" + std::to_string(weights.size()) + "]", "a number from 0 to 3.4e38",
                 describe(item));
      return;
    }
    weights.push_back(static_cast<float>(weight));
    sum += double{weights.back()};
  }
  if (sum <= 0.0) {
    faults.add(path, "at least one number above 0 (as fp32)", "a sum of 0");
    return;
  }
  normalize(weights, sum);
  spec.begin->histogram = std::move(weights);
}

void read_begin(const Fields& root, Faults& faults, Spec& spec) {
  if (root.find("begin") == nullptr) return;
  const Fields begin = root.object("begin", {"value", "histogram"});
  spec.begin.emplace();
  const Json* const histogram = begin.find("histogram");
  if (histogram == nullptr) {
    spec.begin->value = begin.small("value", 0, spec.vocabulary - 1);
  } else if (begin.find("value") != nullptr) {
    faults.add("begin", "either value or histogram", "both");
  } else {
    read_histogram(*histogram, begin.path("histogram"), faults, spec);
  }
}

void read_image(const Fields& root, Faults& faults, Spec& spec) {
  if (root.find("image") == nullptr) return;
  const Fields fields = root.object("image", {"height", "width", "channels"});
  ImageShape image;
  image.height = fields.small("height", 1, kMaxImageSide);
  image.width = fields.small("width", 1, kMaxImageSide);
  image.channels = fields.small("channels", 1, 3);
  if (image.channels == 2) faults.add("image.channels", "1 (grey) or 3 (red, green, blue)", "2");
  if (spec.vocabulary > kByteValues) {
    faults.add("values", "at most 256, as values are bytes of an image",
               std::to_string(spec.vocabulary));
  }
  if (!spec.symbols.empty()) faults.add("symbols", "no such key beside image", "one");
  if (faults.ok() && spec.positions != image.bytes() - 1) {
    faults.add("model.position.length",
               std::to_string(image.bytes() - 1) + " (image.height * width * channels - 1)",
               spec.positions == 0 ? "no such key" : std::to_string(spec.positions));
  }
  spec.image = image;
}

void read_symbols(const Fields& root, Faults& faults, Spec& spec) {
  const Json* const list = root.find("symbols");
  if (list == nullptr) return;
  if (!list->is_array() || std::ssize(*list) != spec.vocabulary) {
    faults.add("symbols",
               "an array of " + std::to_string(spec.vocabulary) + " strings, one per value",
               describe(*list));
    return;
  }
  std::unordered_set<std::string_view> seen;
  for (const Json& item : *list) {
    const std::string path = "symbols[" + std::to_string(spec.symbols.size()) + "]";
    const auto* const text = item.get_ptr<const std::string*>();
    if (text == nullptr || text->empty() || std::ssize(*text) > kMaxSymbolBytes) {
      faults.add(path, "a string of 1 to " + std::to_string(kMaxSymbolBytes) + " bytes",
                 describe(item));
      return;
    }
    if (!seen.insert(*text).second) {
      faults.add(path, "a symbol of its own for each value", quote(*text) + " a second time");
      return;
    }
    spec.symbols.push_back(*text);
  }
}

void read_text(const Fields& root, Faults& faults, Spec& spec) {
  if (root.find("text") == nullptr) return;
  spec.text = root.choice("text", kTexts);
  for (const char* const other : {"image", "symbols"}) {
    if (root.find(other) != nullptr) faults.add(other, "no such key beside text", "one");
  }
  if (spec.head.kind != HeadKind::kCategorical) {
    faults.add("model.head.kind", "'categorical', as values are text",
               quote(name_of(kHeads, spec.head.kind)));
  }
  if (spec.text == TextKind::kBytes && spec.vocabulary != kByteValues) {
    faults.add("values", "256, as values are the bytes of text", std::to_string(spec.vocabulary));
  }
}

// The double that prints as the shortest decimal which reads back as this float.
double shortest(float value) {
  std::array<char, 32> text{};
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value);
  double wide = 0.0;
  std::from_chars(text.data(), written.ptr, wide);
  return wide;
}

OrderedJson attention_to_json(const Spec& spec) {
  OrderedJson attention;
  attention["feature_map"] = name_of(kFeatureMaps, spec.feature_map);
  attention["eps"] = shortest(spec.attention_eps);
  if (is_random(spec.feature_map)) {
    attention["features"] = spec.features.count;
    attention["temperature"] = shortest(spec.features.temperature);
  }
  if (spec.feature_map == FeatureMap::kSmoothedFourier) {
    attention["smoothing"] = shortest(spec.features.smoothing);
  }
  if (spec.feature_map == FeatureMap::kGeneralized) {
    attention["kernel"] = name_of(kActivations, spec.features.kernel);
  }
  if (spec.normalize) attention["normalize"] = true;
  if (spec.gate) attention["gate"] = true;
  return attention;
}

OrderedJson model_to_json(const Spec& spec) {
  OrderedJson model;
  model["layers"] = spec.layers;
  model["width"] = spec.width;
  model["heads"] = spec.heads;
  model["query_size"] = spec.query_size;
  model["value_size"] = spec.value_size;
  model["ffn"] = spec.ffn;
  model["attention"] = attention_to_json(spec);
  model["norm"]["kind"] = kNorms[0].name;
  model["norm"]["placement"] = kPlacements[0].name;
  model["norm"]["eps"] = shortest(spec.norm_eps);
  model["norm"]["final"] = spec.final_norm;
  model["activation"] = name_of(kActivations, spec.activation);
  model["embedding"]["combine"] = name_of(kCombines, spec.combine);
  model["embedding"]["value_width"] = spec.value_width;
  model["position"]["kind"] = name_of(kPositions, spec.position);
  if (spec.positions > 0) model["position"]["length"] = spec.positions;
  model["head"]["kind"] = name_of(kHeads, spec.head.kind);
  if (spec.head.kind == HeadKind::kMixtureOfLogistics) {
    model["head"]["components"] = spec.head.components;
  }
  return model;
}

}  // namespace

int64_t Spec::parameters() const {
  const auto linear = [](int64_t in, int64_t out) { return in * out + out; };
  const int64_t queries = int64_t{heads} * query_size;
  const int64_t values = int64_t{heads} * value_size;
  const int64_t attention = (gate ? linear(width, heads) : 0) + (normalize ? queries : 0);
  const int64_t layer = attention + 2 * linear(width, queries) + linear(width, values) +
                        linear(values, width) + linear(width, ffn) + linear(ffn, width) +
                        int64_t{4} * width;
  return layers * layer + int64_t{vocabulary} * value_width +
         (final_norm ? int64_t{2} * width : 0) + linear(width, head.width());
}

const char* feature_map_name(FeatureMap map) { return name_of(kFeatureMaps, map); }

Result<Spec> parse_spec(std::string_view json, const std::string& file) {
  const Result<Json> tree =
      parse_json(json, file, {kMaxConfigBytes, kMaxConfigValues, kConfigDepth});
  if (!tree.ok()) return tree.status();
  Faults faults(file);
  const Fields root(
      faults, &*tree, "",
      {"runnel_bundle", "name", "model", "values", "begin", "image", "symbols", "text"});
  Spec spec;
  root.integer("runnel_bundle", kFormat, kFormat);
  read_name(root, faults, spec);
  spec.vocabulary = root.small("values", 1, kMaxVocabulary);
  read_model(root, faults, spec);
  if (faults.ok()) check_sizes(spec, faults);
  if (faults.ok()) read_begin(root, faults, spec);
  if (faults.ok()) read_symbols(root, faults, spec);
  if (faults.ok()) read_image(root, faults, spec);
  if (faults.ok()) read_text(root, faults, spec);
  if (!faults.ok()) return faults.status();
  return spec;
}

std::string spec_to_json(const Spec& spec) {
  OrderedJson root;
  root["runnel_bundle"] = kFormat;
  root["name"] = spec.name;
  root["model"] = model_to_json(spec);
  root["values"] = spec.vocabulary;
  if (spec.begin.has_value() && spec.begin->histogram.empty()) {
    root["begin"]["value"] = spec.begin->value;
  } else if (spec.begin.has_value()) {
    auto& histogram = root["begin"]["histogram"] = OrderedJson::array();
    for (const float weight : spec.begin->histogram) histogram.push_back(shortest(weight));
  }
  if (spec.image.has_value()) {
    root["image"]["height"] = spec.image->height;
    root["image"]["width"] = spec.image->width;
    root["image"]["channels"] = spec.image->channels;
  }
  if (!spec.symbols.empty()) root["symbols"] = spec.symbols;
  if (spec.text != TextKind::kNone) root["text"] = name_of(kTexts, spec.text);
  return json_text(root, 2) + "\n";
}

}  // namespace runnel
