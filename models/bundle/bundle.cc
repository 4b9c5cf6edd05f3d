#include "models/bundle/bundle.h"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/limits.h"
#include "base/text.h"
#include "models/bundle/safetensors.h"

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

void add_layer(std::vector<ExpectedTensor>& tensors, const std::string& layer, const Spec& spec) {
  const int64_t queries = int64_t{spec.heads} * spec.query_size;
  const int64_t values = int64_t{spec.heads} * spec.value_size;
  add_linear(tensors, layer + ".attention.query_projection", queries, spec.width);
  add_linear(tensors, layer + ".attention.key_projection", queries, spec.width);
  add_linear(tensors, layer + ".attention.value_projection", values, spec.width);
  add_linear(tensors, layer + ".attention.out_projection", spec.width, values);
  const std::string map = layer + ".attention.inner_attention.feature_map";
  if (is_random(spec.feature_map)) {
    tensors.push_back({map + ".omega", {spec.query_size, spec.features.projections()}});
  }
  if (spec.normalize) tensors.push_back({map + ".sigma", {spec.heads, spec.query_size}});
  if (spec.gate) add_linear(tensors, layer + ".attention.gate", spec.heads, spec.width);
  add_linear(tensors, layer + ".linear1", spec.ffn, spec.width);
  add_linear(tensors, layer + ".linear2", spec.width, spec.ffn);
  add_norm(tensors, layer + ".norm1", spec.width);
  add_norm(tensors, layer + ".norm2", spec.width);
}

// "3 tensors are missing: 'a' [2], 'b' [3, 4], ..."; "" when there are none.
std::string list(const char* what, std::span<const ExpectedTensor> tensors) {
  constexpr size_t kShown = 3;
  if (tensors.empty()) return "";
  std::string text = std::to_string(tensors.size()) +
                     (tensors.size() == 1 ? " tensor " : " tensors ") + what + ": ";
  for (size_t i = 0; i < std::min(tensors.size(), kShown); ++i) {
    if (i > 0) text += ", ";
    text += quote(tensors[i].name) + " " + shape_text(tensors[i].shape);
  }
  if (tensors.size() > kShown) text += ", ...";
  return text;
}

// Every expected tensor is there, and no other one.
Status check_names(const std::vector<ExpectedTensor>& expected, const SafetensorsFile& weights) {
  std::vector<ExpectedTensor> missing;
  std::vector<std::string_view> known;
  for (const ExpectedTensor& tensor : expected) {
    if (!weights.tensors().contains(tensor.name)) missing.push_back(tensor);
    known.push_back(tensor.name);
  }
  std::sort(known.begin(), known.end());
  std::vector<ExpectedTensor> unknown;
  for (const auto& [name, tensor] : weights.tensors()) {
    if (!std::binary_search(known.begin(), known.end(), name))
      unknown.push_back({name, tensor.shape});
  }
  if (missing.empty() && unknown.empty()) return {};
  const std::string found = list("found that config.json does not ask for", unknown);
  std::string text = list("expected by config.json but missing", missing);
  if (!text.empty() && !found.empty()) text += "; ";
  return invalid_argument(weights.path() + ": " + text + found);
}

Result<Spec> load_spec(const std::string& path) {
  const Result<std::string> text = read_file(path, kMaxConfigBytes);
  if (text.status().code() == Code::kNotFound) {
    return not_found(text.status().message() +
                     "; a bundle is a directory with config.json and model.safetensors");
  }
  if (!text.ok()) return text.status();
  return parse_spec(*text, path);
}

// What turns text into values of this spec and back; null where its values are not text.
Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const std::string& path, const Spec& spec) {
  if (spec.text == TextKind::kNone) return std::shared_ptr<const Tokenizer>();
  if (spec.text == TextKind::kBytes) return Tokenizer::of_bytes();
  const Result<std::string> json = read_file(path, kMaxTokenizerBytes);
  if (json.status().code() == Code::kNotFound) {
    return not_found(json.status().message() + "; config.json says \"text\": \"tokenizer\"");
  }
  if (!json.ok()) return json.status();
  auto tokenizer = Tokenizer::parse(*json, path);
  if (tokenizer.ok() && (*tokenizer)->size() > spec.vocabulary) {
    return invalid_argument(
        path + ": expected values from 0 to " + std::to_string(spec.vocabulary - 1) +
        ", as config.json has " + std::to_string(spec.vocabulary) + ", found " +
        std::to_string((*tokenizer)->size() - 1) + " for " +
        quote((*tokenizer)->bytes(static_cast<int32_t>((*tokenizer)->size() - 1))));
  }
  return tokenizer;
}

}  // namespace

std::vector<ExpectedTensor> expected_tensors(const Spec& spec) {
  std::vector<ExpectedTensor> tensors;
  tensors.push_back({"value_embedding.weight", {spec.vocabulary, spec.value_width}});
  if (spec.position == PositionKind::kTable) {
    tensors.push_back({"pos_embedding.pe", {1, spec.positions, spec.position_width()}});
  }
  for (int layer = 0; layer < spec.layers; ++layer) {
    add_layer(tensors, "transformer.layers." + std::to_string(layer), spec);
  }
  if (spec.final_norm) add_norm(tensors, "transformer.norm", spec.width);
  add_linear(tensors, "predictor", spec.head.width(), spec.width);
  return tensors;
}

Result<Bundle> load_bundle(const std::string& directory) {
  Result<Spec> spec = load_spec(directory + "/config.json");
  if (!spec.ok()) return spec.status();
  auto tokenizer = load_tokenizer(directory + "/tokenizer.json", *spec);
  if (!tokenizer.ok()) return tokenizer.status();
  Result<SafetensorsFile> weights = SafetensorsFile::open(directory + "/model.safetensors");
  if (!weights.ok()) return weights.status();
  const std::vector<ExpectedTensor> expected = expected_tensors(*spec);
  if (Status status = check_names(expected, *weights); !status.ok()) return status;
  Bundle bundle;
  bundle.directory = directory;
  for (const ExpectedTensor& tensor : expected) {
    Result<std::vector<float>> values = weights->read(tensor.name, tensor.shape);
    if (!values.ok()) return values.status();
    if (tensor.name.ends_with(".omega") && std::ranges::all_of(*values, std::logical_not<>{})) {
      return invalid_argument(weights->path() + ": tensor " + quote(tensor.name) +
                              ": expected random projections, found zeros only: the checkpoint was "
                              "saved before the feature map had drawn any");
    }
    bundle.tensors.emplace(tensor.name, std::move(*values));
  }
  bundle.spec = std::move(*spec);
  bundle.weight_digest = weights->digest();
  bundle.tokenizer = std::move(*tokenizer);
  return bundle;
}

}  // namespace runnel
