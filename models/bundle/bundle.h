// Loads and checks everything that is needed to serve a model. There are three kinds:
// - a bundle: a directory with config.json, model.safetensors and, if config.json asks for it, a
//   tokenizer;
// - a model as its makers publish it (published.h), with weights in one file or several;
// - a GGUF file, which has everything in it (gguf_bundle.h).
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
  bool is_published = false;                           // config.json is that of the model's makers
  std::map<std::string, Tensor, std::less<>> tensors;  // by name
  std::shared_ptr<const TensorMemory> memory;          // holds the tensors
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // null: values are not text

  // Checks the elements of all tensors that have not been checked yet: memory->check().
  // make_model() checks them, too.
  Status check_numbers() const;

  // The weight digest. It is computed in the background while the weights are used, so call this
  // after make_model().
  Result<std::string> digest() const { return memory->digest(); }

  // Whether any weight is in blocks, as in quantized GGUF files.
  bool has_blocks() const {
    return std::ranges::any_of(tensors, [](const auto& one) { return is_blocks(one.second.type); });
  }
};

// Reads and checks a bundle, a published model or a GGUF file. The elements of its tensors are
// checked later, when they are used.
// - NOT_FOUND if a file is missing.
// - INVALID_ARGUMENT for any other fault in the files; the message names the file, the tensor or
//   key, what was expected and what was found.
// - RESOURCE_EXHAUSTED if there is not enough memory.
Result<Bundle> load_bundle(const std::string& directory, LoadProgress progress = {});

}  // namespace runnel
