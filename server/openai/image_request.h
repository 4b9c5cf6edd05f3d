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
  std::string model;     // empty: the only one
  std::string size;      // "WIDTHxHEIGHT"; empty: the model's
  GenerateRequest call;  // all but what depends on the model; the prompt: the first bytes
  std::optional<Duration> max_queue_time;  // none: the server's default
  bool stream = false;
  bool rows = false;       // of a stream: an event for each row
  int partial_images = 0;  // of a stream: previews of each picture before it is complete
};

// Reads `body`, an object. INVALID_ARGUMENT names the field, also where it asks for something that
// would change the result and is not done here. What the engine checks is left to it.
Fault read_image_request(const Json& body, ImageRequest& request);

// Makes `request` one for pictures of the model that the caller calls `name`. INVALID_ARGUMENT
// where it draws none, none of that size, or where nothing of them is left to draw.
Fault fit_to_model(const std::string& name, const Spec& spec, ImageRequest& request);

// "WIDTHxHEIGHT".
std::string size_text(const ImageShape& shape);

}  // namespace runnel
