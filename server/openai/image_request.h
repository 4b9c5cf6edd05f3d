// The body of POST /v1/images/generations, as plain data.
#pragma once

#include <string>

#include "base/json.h"
#include "engine/request.h"
#include "models/spec.h"
#include "server/http/fault.h"

namespace runnel {

inline constexpr int kMaxPartialImages = 3;  // of a picture

struct ImageRequest {
  std::string model;     // empty: the only model
  std::string size;      // "WIDTHxHEIGHT"; empty: the model's size
  GenerateRequest call;  // without the fields that need the model; the prompt: the first bytes
  std::optional<Duration> max_queue_time;  // none: the server's default
  bool stream = false;
  bool rows = false;       // of a stream: an event for each row
  int partial_images = 0;  // of a stream: previews of each picture before it is complete
};

// Reads `body`, an object. INVALID_ARGUMENT names the field: it is wrong, or it asks for something
// that would change the result and that this server does not support. The engine makes its own
// checks later.
Fault read_image_request(const Json& body, ImageRequest& request);

// Completes `request` for a model, which the caller knows by `name`. INVALID_ARGUMENT: the model
// draws no pictures, or none of this size, or the prompt is already a whole picture.
Fault fit_to_model(const std::string& name, const Spec& spec, ImageRequest& request);

// "WIDTHxHEIGHT".
std::string size_text(const ImageShape& shape);

}  // namespace runnel
