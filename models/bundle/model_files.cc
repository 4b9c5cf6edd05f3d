#include "models/bundle/model_files.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "base/text.h"

namespace runnel {
namespace {

// "3 tensors are missing: 'a' [2], 'b' [3, 4], ..."; "" if there are none.
std::string list(const std::string& what, std::span<const ExpectedTensor> tensors) {
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

}  // namespace

Status check_names(const std::vector<ExpectedTensor>& expected,
                   std::span<const std::string_view> skipped, const StoredTensors& tensors,
                   const std::string& file, const std::string& asker) {
  std::vector<ExpectedTensor> missing;
  std::vector<std::string_view> known;
  for (const ExpectedTensor& tensor : expected) {
    if (tensor.read && !tensors.contains(tensor.name)) missing.push_back(tensor);
    known.push_back(tensor.name);
  }
  std::sort(known.begin(), known.end());
  std::vector<ExpectedTensor> unknown;
  for (const auto& [name, tensor] : tensors) {
    const bool is_skipped =
        std::ranges::any_of(skipped, [&](auto prefix) { return name.starts_with(prefix); });
    if (!is_skipped && !std::binary_search(known.begin(), known.end(), name)) {
      unknown.push_back({name, tensor.shape});
    }
  }
  if (missing.empty() && unknown.empty()) return {};
  const std::string found = list("found that " + asker + " does not ask for", unknown);
  std::string text = list("expected by " + asker + " but missing", missing);
  if (!text.empty() && !found.empty()) text += "; ";
  return invalid_argument(file + ": " + text + found);
}

Status check_values(const Tokenizer& tokenizer, const Spec& spec, const std::string& file,
                    const std::string& asker) {
  if (tokenizer.size() <= spec.vocabulary) return {};
  const auto last = static_cast<int32_t>(tokenizer.size() - 1);
  return invalid_argument(file + ": " + asker + " has " + std::to_string(spec.vocabulary) +
                          " values, its tokenizer has " + std::to_string(last) + " for " +
                          quote(tokenizer.bytes(last)));
}

}  // namespace runnel
