// A bundle: a directory with config.json, model.safetensors and, where config.json asks for it, a
// tokenizer; loaded and checked as a whole.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/bundle/tensor.h"
#include "models/spec.h"
#include "models/text/tokenizer.h"

namespace runnel {

struct Bundle {
  std::string directory;
  Spec spec;
  std::map<std::string, Tensor, std::less<>> tensors;    // by name; all elements are finite
  std::shared_ptr<const TensorMemory> memory;            // that they lie in
  std::string weight_digest;                             // SHA-256 of model.safetensors, hex
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // null: values are not text
};

// Reads and checks a bundle. NOT_FOUND when a file is missing, INVALID_ARGUMENT naming file, tensor
// or key, expected and found for everything else that is wrong with it, RESOURCE_EXHAUSTED when the
// memory is not there.
Result<Bundle> load_bundle(const std::string& directory);

}  // namespace runnel
