#include "models/bundle/gguf_bundle.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "models/bundle/gguf.h"
#include "models/bundle/model_files.h"
#include "models/bundle/name.h"
#include "models/bundle/published.h"
#include "models/text/gguf_vocabulary.h"

namespace runnel {
namespace {

constexpr const char* kKeys = "its header";

// Returns null, with a fault, if no family has this architecture.
const Family* family_of_architecture(const PublishedConfig& config) {
  const std::string found = config.text_or("general.architecture", "");
  std::vector<std::string_view> known;
  for (const Family& family : families()) {
    const auto all = family.architectures;
    if (std::ranges::find(all, found) != all.end()) return &family;
    known.insert(known.end(), all.begin(), all.end());
  }
  config.faults().add("general.architecture",
                      quoted_choices(known) + ", the architectures that are read from GGUF files",
                      describe_unread(found));
  return nullptr;
}

Result<Spec> read_spec(const WeightFiles& file) {
  Faults faults(file.path());
  const PublishedModel model{{faults, &file.metadata()}, file.tensors(), file.path()};
  Spec spec;
  if (const Family* const family = family_of_architecture(model.config))
    family->read_gguf(model, spec);
  if (!faults.ok()) return faults.status();
  const std::string name = name_of_directory(file.path());
  spec.name = name.substr(0, name.size() - kGgufEnding.size());
  if (!is_model_name(spec.name)) spec.name = "model";
  return spec;
}

// Sets the text of a model with a vocabulary, and the values that end it. Rows of the tables beyond
// the used tokens are padding.
Status describe_text(const WeightFiles& file, Bundle& bundle) {
  Result<GgufVocabulary> vocabulary = read_gguf_vocabulary(file.metadata(), file.path());
  if (!vocabulary.ok()) return vocabulary.status();
  if (vocabulary->tokenizer == nullptr) return {};
  Spec& spec = bundle.spec;
  const Tokenizer& tokenizer = *vocabulary->tokenizer;
  if (vocabulary->tokens != spec.vocabulary) {
    return invalid_argument(file.path() + ": tokenizer.ggml.tokens: expected " +
                            std::to_string(spec.vocabulary) +
                            " tokens, one for each row of 'token_embd.weight', found " +
                            std::to_string(vocabulary->tokens));
  }
  spec.text = TextKind::kTokenizer;
  spec.vocabulary = spec.head.values = static_cast<int>(tokenizer.size());
  if (tokenizer.begin().size() == 1) {
    spec.begin = Begin{.value = tokenizer.begin().front(), .histogram = {}};
  }
  std::set<int32_t> eos(vocabulary->eos.begin(), vocabulary->eos.end());
  eos.insert(tokenizer.end().begin(), tokenizer.end().end());
  std::erase_if(eos, [&](int32_t value) { return value >= spec.vocabulary; });
  spec.eos.assign(eos.begin(), eos.end());
  bundle.tokenizer = vocabulary->tokenizer;
  return {};
}

// The name prefixes of the layers for multi-token prediction. These layers come after the model's
// own layers, and no family reads them.
std::vector<std::string> unread_layers(const Json& metadata) {
  const std::string architecture = metadata["general.architecture"];
  const auto number = [&](const char* key) {
    const auto found = metadata.find(architecture + "." + key);
    const bool is_there = found != metadata.end() && found->is_number_integer();
    return std::clamp<int64_t>(is_there ? found->get<int64_t>() : 0, 0, kMaxLayers);
  };
  const int64_t blocks = number("block_count");
  std::vector<std::string> names;
  for (int64_t i = blocks - number("nextn_predict_layers"); i < blocks; ++i) {
    names.push_back("blk." + std::to_string(i) + ".");
  }
  return names;
}

std::vector<int64_t> without_ones(std::vector<int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

// Whether the tensor can be read as `shape`. Dimensions of size 1 may be absent, because the format
// does not keep trailing ones. But a row in blocks cannot become rows of one number.
bool fits(const StoredTensor& stored, const std::vector<int64_t>& shape) {
  return without_ones(stored.shape) == without_ones(shape) &&
         (!is_blocks(stored.type) || stored.shape.back() == shape.back());
}

Status read_gguf_tensors(const WeightFiles& file, Bundle& bundle) {
  const std::vector<ExpectedTensor> expected = expected_tensors(bundle.spec);
  const std::vector<std::string> unread = unread_layers(file.metadata());
  const std::vector<std::string_view> skipped(unread.begin(), unread.end());
  if (Status s = check_names(expected, skipped, file.tensors(), file.path(), kKeys); !s.ok()) {
    return s;
  }
  for (const ExpectedTensor& tensor : expected) {
    if (!tensor.read) continue;
    const StoredTensor& stored = file.tensors().find(tensor.name)->second;
    Result<Tensor> found =
        file.find(tensor.name, fits(stored, tensor.shape) ? stored.shape : tensor.shape);
    if (!found.ok()) return found.status();
    found->shape = tensor.shape;
    bundle.tensors.emplace(tensor.name, std::move(*found));
  }
  return {};
}

}  // namespace

Result<Bundle> load_gguf(const std::string& path, LoadProgress progress) {
  const auto file = WeightFiles::open(path, std::move(progress));
  if (!file.ok()) return file.status();
  Result<Spec> spec = read_spec(**file);
  if (!spec.ok()) return spec.status();
  Bundle bundle;
  bundle.directory = path;
  bundle.spec = std::move(*spec);
  Status status = describe_text(**file, bundle);
  if (status.ok()) status = read_gguf_tensors(**file, bundle);
  if (!status.ok()) return status;
  bundle.memory = *file;
  return bundle;
}

}  // namespace runnel
