// Finds the model that a command talks to, and its properties.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/spec.h"
#include "runnel/v1/models.pb.h"

namespace runnel {

// The largest image that this program shows: pixels of a side, and pixels in total.
inline constexpr int kMaxImageSide = 16384;
inline constexpr int64_t kMaxImagePixels = int64_t{1} << 26;

struct ModelView {
  std::string name, numerics;
  int64_t vocabulary = 0;
  int64_t max_length = 0;  // of a sequence, in values; 0: no limit
  std::optional<ImageShape> image;
  std::vector<std::string> symbols;
  bool has_begin = false;
  bool has_text = false;  // the server converts text to values and back
  v1::ChatInfo chat;
};

// The model that has `name` as its name or as an alias. If `name` is empty, the only model.
// NOT_FOUND lists the models that exist. INVALID_ARGUMENT if `name` is empty and there are several
// models, or if the server's description of the model is implausible.
Result<ModelView> choose_model(const v1::ListModelsResponse& models, const std::string& name);

}  // namespace runnel
