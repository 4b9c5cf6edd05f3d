#include "models/bundle/published.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "models/families.h"

namespace runnel {
namespace {

// A bundle's own file is read here first. It may have two JSON values per value of its vocabulary.
constexpr JsonLimits kLimits{.bytes = kMaxConfigBytes, .values = 1 << 22, .depth = 16};
constexpr size_t kMostRefused = 60;  // bytes of a value in a message
constexpr size_t kMostLayers = 16;   // in a message
constexpr const char* kEos = "eos_token_id";
constexpr std::array<std::string_view, 3> kNotFinite = {"-Infinity", "Infinity", "NaN"};

std::string range_text(int64_t min, int64_t max) {
  return "an integer from " + std::to_string(min) + " to " + std::to_string(max);
}

// How with_words() replaces a word of kNotFinite: by a string with the same text, or by an empty
// string and spaces of the same length. The second way keeps the line and column of all other text.
enum class Words { kQuoted, kBlanked };

// `text` with the words of kNotFinite made valid JSON wherever they are not part of a string.
std::string with_words(std::string_view text, Words words) {
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto word = std::ranges::find_if(kNotFinite, [&](std::string_view one) {
      return !in_string && text.substr(at, one.size()) == one;
    });
    if (word != kNotFinite.end()) {
      if (words == Words::kQuoted) {
        out.append("\"").append(*word).append("\"");
      } else {
        out.append("\"\"").append(word->size() - 2, ' ');
      }
      at += word->size() - 1;
      continue;
    }
    out += text[at];
    if (text[at] == '"') in_string = !in_string;
    if (in_string && text[at] == '\\' && at + 1 < text.size()) out += text[++at];
  }
  return out;
}

// NaN if the node is not a number. Since version 5, transformers writes {"__float__": "Infinity"}.
double number_of(const Json& node) {
  const bool is_tagged = node.is_object() && node.size() == 1 && node.contains("__float__");
  const Json& value = is_tagged ? node["__float__"] : node;
  if (value.is_number()) return value.get<double>();
  if (value == "Infinity") return std::numeric_limits<double>::infinity();
  if (value == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nan("");
}

std::string bound_text(double bound) { return std::isinf(bound) ? "infinity" : Json(bound).dump(); }

// The family that publishes files of this model_type or, for a file without one, files with its
// keys. Returns null, with a fault, if there is no such family.
const Family* family_of_type(const PublishedConfig& config) {
  const bool is_untyped = config.find("model_type") == nullptr;
  const std::string type = config.text_or("model_type", "");
  std::vector<std::string_view> known;
  for (const Family& family : families()) {
    if (is_untyped && family.is_untyped != nullptr && family.is_untyped(config)) return &family;
    if (std::ranges::find(family.model_types, type) != family.model_types.end()) return &family;
    known.insert(known.end(), family.model_types.begin(), family.model_types.end());
  }
  config.faults().add("model_type", quoted_choices(known) + ", the families that are implemented",
                      describe_unread(type));
  return nullptr;
}

// The text of a refused value: lists and objects as JSON.
std::string refused_text(const Json& value) {
  return value.is_structured() ? printable(json_text(value), kMostRefused) : describe(value);
}

// "attention in layers 1 and 3" for a list of layers; otherwise the value itself.
std::string attention_text(const Json& value) {
  const bool has_list = value.is_object() && value.contains("layers");
  const Json& layers = has_list ? value["layers"] : value;
  if (!layers.is_array() || layers.empty() ||
      !std::ranges::all_of(layers, [](const Json& one) { return one.is_number_integer(); })) {
    return refused_text(value);
  }
  const size_t shown = std::min(layers.size(), kMostLayers);
  const size_t left = layers.size() - shown;
  std::string text = layers.size() == 1 ? "attention in layer " : "attention in layers ";
  for (size_t i = 0; i < shown; ++i) {
    if (i > 0) text += i + 1 == shown && left == 0 ? " and " : ", ";
    text += layers[i].dump();
  }
  return left == 0 ? text : text + " and " + std::to_string(left) + " more";
}

// Whether a family recognizes the file without a model_type.
bool is_known_untyped(const Json& config) {
  const std::string file;
  Faults faults(file);
  const PublishedConfig keys(faults, &config);
  return std::ranges::any_of(families(), [&](const Family& family) {
    return family.is_untyped != nullptr && family.is_untyped(keys);
  });
}

}  // namespace

Result<Json> parse_published(std::string_view text, const std::string& file) {
  if (std::ssize(text) > kMaxConfigBytes) return parse_json(text, file, kLimits);  // says so
  Result<Json> json = parse_json(with_words(text, Words::kQuoted), file, kLimits);
  if (json.ok()) return json;
  // Finds the same fault at its place in `text`.
  Result<Json> in_place = parse_json(with_words(text, Words::kBlanked), file, kLimits);
  return in_place.ok() ? json : in_place;
}

PublishedConfig::PublishedConfig(Faults& faults, const Json* node, std::string path)
    : faults_(faults), path_(std::move(path)) {
  if (node != nullptr && !node->is_object()) faults_.add(path_, "an object", describe(*node));
  if (node != nullptr && node->is_object()) node_ = node;
}

const Json* PublishedConfig::find(const char* key) const {
  if (node_ == nullptr) return nullptr;
  const auto member = node_->find(key);
  return member == node_->end() || member->is_null() ? nullptr : &*member;
}

PublishedConfig PublishedConfig::object(const char* key) const {
  return {faults_, find(key), path(key)};
}

int PublishedConfig::integer(const char* key, int64_t min, int64_t max) const {
  if (find(key) != nullptr) return integer_or(key, 0, min, max);
  faults_.add(path(key), range_text(min, max), "no such key");
  return static_cast<int>(min);
}

int PublishedConfig::integer_or(const char* key, int fallback, int64_t min, int64_t max) const {
  const Json* const member = find(key);
  if (member == nullptr) return fallback;
  const double value = member->is_number_integer() ? member->get<double>() : std::nan("");
  if (value >= static_cast<double>(min) && value <= static_cast<double>(max)) {
    return member->get<int>();
  }
  faults_.add(path(key), range_text(min, max), describe(*member));
  return static_cast<int>(min);
}

double PublishedConfig::number_or(const char* key, double fallback, double min, double max) const {
  const Json* const member = find(key);
  if (member == nullptr) return fallback;
  const double value = number_of(*member);
  if (value >= min && value <= max) return value;
  faults_.add(path(key), "a number from " + bound_text(min) + " to " + bound_text(max),
              describe(*member));
  return fallback;
}

float PublishedConfig::eps_or(const char* key, float fallback, float max) const {
  const Json* const member = find(key);
  if (member == nullptr) return fallback;
  const auto value = static_cast<float>(number_of(*member));
  if (value > 0.0F && value <= max) return value;
  faults_.add(path(key), "a number above 0 and at most " + bound_text(shortest(max)),
              describe(*member));
  return fallback;
}

bool PublishedConfig::boolean_or(const char* key, bool fallback) const {
  const Json* const member = find(key);
  if (member == nullptr) return fallback;
  if (!member->is_boolean()) faults_.add(path(key), "true or false", describe(*member));
  return member->is_boolean() ? member->get<bool>() : fallback;
}

std::string PublishedConfig::text_or(const char* key, const std::string& fallback) const {
  const Json* const member = find(key);
  if (member == nullptr) return fallback;
  if (!member->is_string()) faults_.add(path(key), "a string", describe(*member));
  return member->is_string() ? member->get<std::string>() : fallback;
}

void PublishedConfig::allow(const char* key, bool only) const {
  if (boolean_or(key, only) == only) return;
  faults_.add(path(key), std::string(only ? "true" : "false") + ", all that is implemented",
              only ? "false" : "true");
}

void PublishedConfig::allow(const char* key, std::initializer_list<const char*> only) const {
  const std::string found = text_or(key, *only.begin());
  if (std::ranges::find(only, found) != only.end()) return;
  const std::vector<std::string_view> words(only.begin(), only.end());
  faults_.add(path(key), quoted_choices(words) + ", all that is implemented", quote(found));
}

void PublishedConfig::allow_nothing(const char* key, const char* what) const {
  if (!asks_for(key)) return;
  faults_.add(path(key), std::string("null, as ") + what + " is not implemented",
              refused_text(*find(key)));
}

void PublishedConfig::refuse_attention(const char* key) const {
  if (!asks_for(key)) return;
  faults_.add(path(key), "null, as attention in some of the layers is not implemented",
              attention_text(*find(key)));
}

bool PublishedConfig::asks_for(const char* key) const {
  const Json* const member = find(key);
  return member != nullptr && !(member->is_structured() && member->empty());
}

int PublishedModel::size(const std::string& tensor, size_t dimension, int64_t max) const {
  const auto found = tensors.find(tensor);
  const std::vector<int64_t>* const shape = found == tensors.end() ? nullptr : &found->second.shape;
  if (shape != nullptr && dimension < shape->size() && (*shape)[dimension] >= 1 &&
      (*shape)[dimension] <= max) {
    return static_cast<int>((*shape)[dimension]);
  }
  config.faults().add("",
                      "tensor " + quote(tensor) + " in " + weights + ", whose size " +
                          std::to_string(dimension) + " is " + range_text(1, max),
                      shape == nullptr ? "no such tensor" : shape_text(*shape));
  return 1;
}

int PublishedModel::read_vocabulary(const std::string& embedding, std::optional<int> vocabulary,
                                    Spec& spec) const {
  const int rows = size(embedding, 0, kMaxVocabulary);
  spec.vocabulary = vocabulary.value_or(rows);
  spec.head = {HeadKind::kCategorical, spec.vocabulary, 0};
  if (spec.vocabulary > rows) {
    config.faults().add("vocab_size",
                        "at most " + std::to_string(rows) + ", the rows of " + quote(embedding),
                        std::to_string(spec.vocabulary));
  }
  return rows;
}

std::string describe_unread(const std::string& type) {
  if (type.empty()) return "no such key";
  const bool has_experts = type.find("moe") != std::string::npos;
  return quote(type) + (has_experts ? ", whose experts are not implemented" : "");
}

bool is_published(const Json& config) {
  return config.is_object() && !config.contains("runnel_bundle") &&
         (config.contains("model_type") || config.contains("architectures") ||
          is_known_untyped(config));
}

Status check_family(const Json& config, const std::string& file) {
  Faults faults(file);
  family_of_type(PublishedConfig(faults, &config));
  return faults.status();
}

Result<Spec> published_spec(const Json& config, const StoredTensors& tensors,
                            const std::string& weights, const std::string& file) {
  Faults faults(file);
  const PublishedModel model{{faults, &config}, tensors, weights};
  Spec spec;
  if (const Family* const family = family_of_type(model.config))
    family->read_published(model, spec);
  if (!faults.ok()) return faults.status();
  return spec;
}

Result<std::vector<int64_t>> published_eos(const Json& config, const std::string& file) {
  Faults faults(file);
  std::vector<int64_t> values;
  const PublishedConfig root(faults, &config);
  const bool inside = root.find(kEos) == nullptr;
  const PublishedConfig keys = inside ? root.object("text_config") : root;
  if (!faults.ok()) return faults.status();
  const Json* const found = keys.find(kEos);
  if (found == nullptr) return values;
  const Json list = found->is_array() ? *found : Json::array({*found});
  for (const Json& item : list) {
    if (!item.is_number_integer()) {
      faults.add(keys.path(kEos), "a value or a list of values", describe(*found));
      return faults.status();
    }
    values.push_back(item.get<int64_t>());
  }
  return values;
}

}  // namespace runnel
