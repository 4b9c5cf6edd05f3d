#include "models/bundle/config.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/json_fields.h"
#include "base/limits.h"
#include "base/text.h"
#include "models/bundle/name.h"
#include "models/families.h"

namespace runnel {
namespace {

constexpr int64_t kFormat = 1;
constexpr int64_t kMaxConfigValues = 1 << 22;  // more than two per value of the largest vocabulary
constexpr int kConfigDepth = 8;
constexpr int64_t kMaxImageSide = 16384;
constexpr int64_t kMaxSymbolBytes = 64;
constexpr int64_t kMaxEos = 64;
constexpr int kByteValues = 256;

constexpr std::array kTexts = {Choice{"bytes", TextKind::kBytes},
                               Choice{"tokenizer", TextKind::kTokenizer}};

// "model" names its family. Without a name it is the first family.
void read_model(const Fields& root, Faults& faults, Spec& spec) {
  const Json* const model = root.find("model");
  if (model == nullptr || !model->is_object() || !model->contains("family")) {
    return families().front().read_config(root, faults, spec);
  }
  const Json& name = (*model)["family"];
  std::vector<std::string_view> names;
  for (const Family& family : families()) {
    if (name == family.name) return family.read_config(root, faults, spec);
    names.emplace_back(family.name);
  }
  faults.add("model.family", quoted_choices(names), describe(name));
}

// Includes the family, unless the file would be read the same without it.
OrderedJson model_to_json(const Spec& spec) {
  const Family& family = family_of(spec);
  OrderedJson model = OrderedJson::object();
  if (&family != &families().front()) model["family"] = family.name;
  model.update(family.write_config(spec));
  return model;
}

void read_name(const Fields& root, Faults& faults, Spec& spec) {
  const std::string expected =
      "1 to " + std::to_string(kMaxNameLength) + " characters of A-Z, a-z, 0-9, '.', '_' and '-'";
  const Json* member = root.require("name", expected);
  if (member == nullptr) return;
  if (member->is_string() && is_model_name(member->get_ref<const std::string&>())) {
    spec.name = member->get<std::string>();
  } else {
    faults.add("name", expected, describe(*member));
  }
}

// Scales the weights to sum to 1, unless they do already within fp32's precision, so that reading a
// written file changes nothing.
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

void read_eos(const Fields& root, Faults& faults, Spec& spec) {
  const Json* const list = root.find("eos");
  if (list == nullptr) return;
  if (!list->is_array() || list->empty() || std::ssize(*list) > kMaxEos) {
    faults.add("eos", "an array of 1 to " + std::to_string(kMaxEos) + " values", describe(*list));
    return;
  }
  std::set<int32_t> values;
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& item = (*list)[i];
    if (!item.is_number_unsigned() ||
        item.get<uint64_t>() >= static_cast<uint64_t>(spec.vocabulary)) {
      faults.add("eos[" + std::to_string(i) + "]",
                 "a value from 0 to " + std::to_string(spec.vocabulary - 1), describe(item));
      return;
    }
    values.insert(item.get<int32_t>());
  }
  spec.eos.assign(values.begin(), values.end());
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
  if (!spec.symbols.empty()) faults.add("symbols", "no such key together with image", "one");
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
    if (root.find(other) != nullptr) faults.add(other, "no such key together with text", "one");
  }
  if (spec.head.kind != HeadKind::kCategorical) {
    faults.add("model.head.kind", "'categorical', as values are text",
               quote(head_kind_name(spec.head.kind)));
  }
  if (spec.text == TextKind::kBytes && spec.vocabulary != kByteValues) {
    faults.add("values", "256, as values are the bytes of text", std::to_string(spec.vocabulary));
  }
}

}  // namespace

Result<Spec> parse_spec(std::string_view json, const std::string& file) {
  const Result<Json> tree =
      parse_json(json, file, {kMaxConfigBytes, kMaxConfigValues, kConfigDepth});
  if (!tree.ok()) return tree.status();
  Faults faults(file);
  const Fields root(
      faults, &*tree, "",
      {"runnel_bundle", "name", "model", "values", "begin", "eos", "image", "symbols", "text"});
  Spec spec;
  root.integer("runnel_bundle", kFormat, kFormat);
  read_name(root, faults, spec);
  spec.vocabulary = root.small("values", 1, kMaxVocabulary);
  read_model(root, faults, spec);
  if (faults.ok()) read_begin(root, faults, spec);
  if (faults.ok()) read_eos(root, faults, spec);
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
  if (!spec.eos.empty()) root["eos"] = spec.eos;
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
