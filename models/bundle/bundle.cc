#include "models/bundle/bundle.h"

#include <algorithm>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/limits.h"
#include "base/text.h"
#include "models/bundle/config.h"
#include "models/bundle/safetensors.h"
#include "models/text/load_tokenizer.h"

namespace runnel {
namespace {

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

// Every expected tensor that is read is there, and no other one.
Status check_names(const std::vector<ExpectedTensor>& expected, const SafetensorsFile& weights) {
  std::vector<ExpectedTensor> missing;
  std::vector<std::string_view> known;
  for (const ExpectedTensor& tensor : expected) {
    if (tensor.read && !weights.tensors().contains(tensor.name)) missing.push_back(tensor);
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

// A config.json as the libraries of Hugging Face write it: sound, but of another format.
bool is_hugging_face(std::string_view json) {
  const auto has = [&](std::string_view key) { return json.find(key) != std::string_view::npos; };
  return !has("\"runnel_bundle\"") && (has("\"model_type\"") || has("\"architectures\""));
}

Result<Spec> load_spec(const std::string& path) {
  const Result<std::string> text = read_file(path, kMaxConfigBytes);
  if (text.status().code() == Code::kNotFound) {
    return not_found(text.status().message() +
                     "; a bundle is a directory with config.json and model.safetensors");
  }
  if (!text.ok()) return text.status();
  Result<Spec> spec = parse_spec(*text, path);
  if (!spec.ok() && is_hugging_face(*text)) {
    return invalid_argument(path +
                            ": a model of Hugging Face's libraries, not a bundle of runnel; "
                            "scripts/runnel-convert makes bundles of linear transformers that "
                            "fast-transformers has trained");
  }
  return spec;
}

// What turns text into values of this spec and back; null where its values are not text.
Result<std::shared_ptr<const Tokenizer>> tokenizer_of(const Spec& spec,
                                                      const std::string& directory) {
  if (spec.text == TextKind::kNone) return std::shared_ptr<const Tokenizer>();
  if (spec.text == TextKind::kBytes) return Tokenizer::of_bytes();
  auto tokenizer = load_tokenizer(directory);
  if (tokenizer.status().code() == Code::kNotFound) {
    return not_found(tokenizer.status().message() + "; config.json says \"text\": \"tokenizer\"");
  }
  if (!tokenizer.ok()) return tokenizer.status();
  const int64_t last = (*tokenizer)->size() - 1;
  if (last >= spec.vocabulary) {
    return invalid_argument(directory + ": config.json has " + std::to_string(spec.vocabulary) +
                            " values, its tokenizer has " + std::to_string(last) + " for " +
                            quote((*tokenizer)->bytes(static_cast<int32_t>(last))));
  }
  const std::vector<int32_t>& begin = (*tokenizer)->begin();
  const bool begins_alike =
      begin.empty() || (begin.size() == 1 && spec.begin && spec.begin->histogram.empty() &&
                        spec.begin->value == begin.front());
  if (!begins_alike) {
    return invalid_argument(directory + ": its tokenizer puts " + std::to_string(begin.front()) +
                            " before a text, which begin.value of config.json does not");
  }
  return tokenizer;
}

}  // namespace

Result<Bundle> load_bundle(const std::string& directory) {
  Result<Spec> spec = load_spec(directory + "/config.json");
  if (!spec.ok()) return spec.status();
  auto tokenizer = tokenizer_of(*spec, directory);
  if (!tokenizer.ok()) return tokenizer.status();
  Result<SafetensorsFile> opened = SafetensorsFile::open(directory + "/model.safetensors");
  if (!opened.ok()) return opened.status();
  const auto weights = std::make_shared<const SafetensorsFile>(std::move(*opened));
  const std::vector<ExpectedTensor> expected = expected_tensors(*spec);
  if (Status status = check_names(expected, *weights); !status.ok()) return status;
  Bundle bundle;
  bundle.directory = directory;
  for (const ExpectedTensor& tensor : expected) {
    if (!tensor.read) continue;
    Result<Tensor> found = weights->read(
        tensor.name, tensor.shape_in(weights->tensors().find(tensor.name)->second.shape));
    if (!found.ok()) return found.status();
    if (tensor.name.ends_with(".omega") &&
        std::ranges::all_of(widened(*found), std::logical_not<>{})) {
      return invalid_argument(weights->path() + ": tensor " + quote(tensor.name) +
                              ": expected random projections, found zeros only: the checkpoint was "
                              "saved before the feature map had drawn any");
    }
    bundle.tensors.emplace(tensor.name, std::move(*found));
  }
  bundle.spec = std::move(*spec);
  bundle.weight_digest = weights->digest();
  bundle.memory = weights;
  bundle.tokenizer = std::move(*tokenizer);
  return bundle;
}

}  // namespace runnel
