// A directory that can be served, loaded and checked as a whole: a bundle, whose config.json,
// model.safetensors and, where config.json asks for it, tokenizer say everything; or a model
// as its makers publish it (published.h), with weights in one file or several. Or a GGUF file,
// which says everything by itself (gguf_bundle.h).
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/bundle/tensor.h"
#include "models/bundle/weight_files.h"
#include "models/spec.h"
#include "models/text/tokenizer.h"

namespace runnel {

struct Bundle {
  std::string directory;  // or the GGUF file
  Spec spec;
  std::map<std::string, Tensor, std::less<>> tensors;    // by name
  std::shared_ptr<const TensorMemory> memory;            // that they lie in
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // null: values are not text

  // Checks the elements of all tensors that nobody has checked: memory->check(). make_model() does.
  Status check_numbers() const;

  // The weight digest. It is computed while the weights are used: ask for it after make_model().
  Result<std::string> digest() const { return memory->digest(); }

  // Whether any weight is in blocks, as those of quantized GGUF files are.
  bool has_blocks() const {
    return std::ranges::any_of(tensors, [](const auto& one) { return is_blocks(one.second.type); });
  }
};

// Reads and checks a bundle, a published model or a GGUF file, but for the elements of its tensors,
// which are checked when they are used. NOT_FOUND when a file is missing,
// INVALID_ARGUMENT naming file, tensor or key, expected and found for everything else that is wrong
// with it, RESOURCE_EXHAUSTED when the memory is not there.
Result<Bundle> load_bundle(const std::string& directory, LoadProgress progress = {});

}  // namespace runnel
