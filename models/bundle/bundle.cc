#include "models/bundle/bundle.h"

#include <algorithm>
#include <functional>
#include <set>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/limits.h"
#include "base/text.h"
#include "models/bundle/config.h"
#include "models/bundle/gguf.h"
#include "models/bundle/gguf_bundle.h"
#include "models/bundle/model_files.h"
#include "models/bundle/name.h"
#include "models/bundle/published.h"
#include "models/families.h"
#include "models/text/load_tokenizer.h"

namespace runnel {
namespace {

Result<std::string> read_config(const std::string& path) {
  Result<std::string> text = read_file(path, kMaxConfigBytes);
  if (text.status().code() != Code::kNotFound) return text;
  return not_found(
      text.status().message() +
      "; a model is a directory with config.json and model.safetensors; runnel-convert "
      "makes one of a checkpoint (.pth, pytorch_model.bin)");
}

// A tokenizer may put only the model's first value before the text of a fresh sequence.
Status check_begin(const Tokenizer& tokenizer, const std::string& directory, const Spec& spec) {
  const std::vector<int32_t>& begin = tokenizer.begin();
  const bool begins_alike =
      begin.empty() || (begin.size() == 1 && spec.begin && spec.begin->histogram.empty() &&
                        spec.begin->value == begin.front());
  if (begins_alike) return {};
  if (begin.size() > 1) {
    return invalid_argument(directory + ": tokenizer.json: expected at most one value before a " +
                            "text, found " + std::to_string(begin.size()));
  }
  return invalid_argument(directory + ": its tokenizer puts " + std::to_string(begin.front()) +
                          " before a text, which begin.value of config.json does not");
}

// Describes the bundle by its own files alone.
Status describe_own(std::string_view json, const std::string& directory, Bundle& bundle) {
  Result<Spec> spec = parse_spec(json, directory + "/config.json");
  if (!spec.ok()) return spec.status();
  bundle.spec = std::move(*spec);
  if (bundle.spec.text == TextKind::kBytes) bundle.tokenizer = Tokenizer::of_bytes();
  if (bundle.spec.text != TextKind::kTokenizer) return {};
  auto tokenizer = load_tokenizer(directory);
  if (tokenizer.status().code() == Code::kNotFound) {
    return not_found(tokenizer.status().message() + "; config.json says \"text\": \"tokenizer\"");
  }
  if (!tokenizer.ok()) return tokenizer.status();
  bundle.tokenizer = std::move(*tokenizer);
  if (Status s = check_values(*bundle.tokenizer, bundle.spec, directory, "config.json"); !s.ok())
    return s;
  return check_begin(*bundle.tokenizer, directory, bundle.spec);
}

// Sets the kind of text, the vocabulary and the first value of a published model that has a
// tokenizer. Rows of the tables beyond the tokenizer's values are padding.
Status describe_text(const std::string& directory, Bundle& bundle) {
  auto tokenizer = load_tokenizer(directory);
  if (tokenizer.status().code() == Code::kNotFound) return {};
  if (!tokenizer.ok()) return tokenizer.status();
  Spec& spec = bundle.spec;
  if (Status s = check_values(**tokenizer, spec, directory, "config.json"); !s.ok()) return s;
  spec.text = TextKind::kTokenizer;
  spec.vocabulary = spec.head.values = static_cast<int>((*tokenizer)->size());
  if ((*tokenizer)->begin().size() == 1) {
    spec.begin = Begin{.value = (*tokenizer)->begin().front(), .histogram = {}};
  }
  bundle.tokenizer = std::move(*tokenizer);
  return check_begin(*bundle.tokenizer, directory, spec);
}

// Sets the values that end the model's texts: those of generation_config.json if it has any, else
// those of config.json. Adds the tokenizer's, because many config.json files of RWKV-7 lack them.
Status describe_eos(const Json& config, const std::string& directory, Bundle& bundle) {
  auto eos = published_eos(config, directory + "/config.json");
  const std::string path = directory + "/generation_config.json";
  const Result<std::string> text = read_file(path, kMaxConfigBytes);
  if (!text.ok() && text.status().code() != Code::kNotFound) return text.status();
  if (eos.ok() && text.ok()) {
    const Result<Json> generation = parse_published(*text, path);
    if (!generation.ok()) return generation.status();
    auto other = published_eos(*generation, path);
    if (!other.ok() || !other->empty()) eos = std::move(other);
  }
  if (!eos.ok()) return eos.status();
  if (bundle.tokenizer != nullptr) std::ranges::copy(bundle.tokenizer->end(), back_inserter(*eos));
  // A value that the model does not have is never sampled.
  std::erase_if(*eos, [&](int64_t v) { return v < 0 || v >= bundle.spec.vocabulary; });
  const std::set<int64_t> values(eos->begin(), eos->end());
  bundle.spec.eos.assign(values.begin(), values.end());
  return {};
}

Status describe_published(const Json& config, const WeightFiles& weights,
                          const std::string& directory, Bundle& bundle) {
  Result<Spec> spec =
      published_spec(config, weights.tensors(), weights.path(), directory + "/config.json");
  if (!spec.ok()) return spec.status();
  bundle.spec = std::move(*spec);
  bundle.spec.name = name_of_directory(directory);
  bundle.is_published = true;
  if (Status s = describe_text(directory, bundle); !s.ok()) return s;
  return describe_eos(config, directory, bundle);
}

Status read_tensors(const WeightFiles& weights, Bundle& bundle) {
  const std::vector<ExpectedTensor> expected = expected_tensors(bundle.spec);
  const std::string& file = weights.path();
  if (Status s = check_names(expected, family_of(bundle.spec).skipped, weights.tensors(), file,
                             "config.json");
      !s.ok()) {
    return s;
  }
  for (const ExpectedTensor& tensor : expected) {
    if (!tensor.read) continue;
    Result<Tensor> found = weights.find(
        tensor.name, tensor.shape_in(weights.tensors().find(tensor.name)->second.shape));
    if (!found.ok()) return found.status();
    if (tensor.name.ends_with(".omega") &&
        std::ranges::all_of(widened(*found), std::logical_not<>{})) {
      return invalid_argument(weights.path() + ": tensor " + quote(tensor.name) +
                              ": expected random projections, found zeros only: the checkpoint was "
                              "saved before the feature map had drawn any");
    }
    bundle.tensors.emplace(tensor.name, std::move(*found));
  }
  return {};
}

}  // namespace

Status Bundle::check_numbers() const {
  for (const auto& [name, tensor] : tensors) {
    if (Status s = memory->check(name); !s.ok()) return s;
    memory->release(tensor.bytes);
  }
  return {};
}

Result<Bundle> load_bundle(const std::string& directory, LoadProgress progress) {
  if (is_gguf(directory)) return load_gguf(directory, std::move(progress));
  const Result<std::string> text = read_config(directory + "/config.json");
  if (!text.ok()) return text.status();
  const Result<Json> config = parse_published(*text, directory + "/config.json");
  if (!config.ok()) return config.status();
  const bool published = is_published(*config);
  Bundle bundle;
  bundle.directory = directory;
  // Small files are read first, so that their faults are reported at once.
  Status status = published ? check_family(*config, directory + "/config.json")
                            : describe_own(*text, directory, bundle);
  if (!status.ok()) return status;
  const auto opened = WeightFiles::open(directory, std::move(progress));
  if (!opened.ok()) return opened.status();
  const WeightFiles& weights = **opened;
  if (published) status = describe_published(*config, weights, directory, bundle);
  if (status.ok()) status = read_tensors(weights, bundle);
  if (!status.ok()) return status;
  bundle.memory = *opened;
  return bundle;
}

}  // namespace runnel
