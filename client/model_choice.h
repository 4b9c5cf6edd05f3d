// Finds the model that a command talks to, and its properties.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/spec.h"
#include "runnel/v1/models.pb.h"

namespace runnel {

// Images that this program shows: pixels of a side, and of the whole, at most.
inline constexpr int kMaxImageSide = 16384;
inline constexpr int64_t kMaxImagePixels = int64_t{1} << 26;

struct ModelView {
  std::string name, numerics;
  int64_t vocabulary = 0;
  int64_t max_length = 0;  // values a sequence can hold; 0: no end
  std::optional<ImageShape> image;
  std::vector<std::string> symbols;
  bool has_begin = false;
  bool has_text = false;  // the server turns text into values and back
  v1::ChatInfo chat;
};

// The model called `name`, or by that alias, or the only one where `name` is empty. NOT_FOUND lists
// what there is; INVALID_ARGUMENT for a choice that must be made, or for a description that cannot
// be true.
Result<ModelView> choose_model(const v1::ListModelsResponse& models, const std::string& name);

}  // namespace runnel
