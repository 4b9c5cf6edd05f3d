#include "server/openai/image_request.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "server/http/request_fields.h"
#include "server/openai/sampling_fields.h"

namespace runnel {
namespace {

// OpenAI's clients always send a text as the prompt, so an empty text means no prompt.
void read_prompt(RequestFields& fields, ImageRequest& request) {
  const Json* const prompt = fields.find("prompt");
  if (prompt == nullptr) return;
  if (prompt->is_array()) {
    if (auto bytes = tokens_of(*prompt)) {
      request.call.prompt = std::move(*bytes);
      return;
    }
  } else if (prompt->is_string()) {
    if (prompt->get_ref<const std::string&>().empty()) return;
    return fields.refuse("prompt",
                         "is a text, which no model here can draw by: send \"\", or a list of the "
                         "bytes that the picture begins with");
  }
  fields.refuse("prompt", "must be \"\", or a list of the bytes that the picture begins with");
}

// A member may only have one of the values `held`, which apply anyway.
void expect(RequestFields& fields, const char* key, std::initializer_list<std::string_view> held) {
  const auto text = fields.text(key);
  if (!text || std::ranges::find(held, *text) != held.end()) return;
  std::string allowed;
  for (const std::string_view one : held) {
    allowed.append(", or send '").append(one).append("'");
  }
  fields.refuse(key, "is " + quote(*text) + ", which is not done here; leave it out" + allowed);
}

void read_answer_form(RequestFields& fields, ImageRequest& request) {
  request.stream = fields.boolean("stream", false);
  request.rows = fields.boolean("rows", false);
  request.partial_images =
      static_cast<int>(fields.integer("partial_images", 0, kMaxPartialImages).value_or(0));
  if (request.stream) return;
  if (request.rows) fields.refuse("rows", "is for a stream: set stream");
  if (request.partial_images > 0) fields.refuse("partial_images", "is for a stream: set stream");
}

// Refuses fields that would change the result, unless they have the value that applies anyway.
void refuse_undone(RequestFields& fields) {
  expect(fields, "response_format", {"b64_json"});
  expect(fields, "output_format", {"png"});
  expect(fields, "quality", {"auto", "standard"});
  expect(fields, "background", {"auto", "opaque"});
  expect(fields, "style", {});
  if (fields.integer("output_compression", 0, 100).value_or(100) != 100) {
    fields.refuse("output_compression", "is not done here; leave it out, or send 100");
  }
  for (const char* const key : {"user", "moderation"}) static_cast<void>(fields.find(key));
}

}  // namespace

Fault read_image_request(const Json& body, ImageRequest& request) {
  RequestFields fields(body);
  request.model = fields.text("model").value_or("");
  request.size = fields.text("size").value_or("");
  if (request.size == "auto") request.size.clear();
  read_prompt(fields, request);
  read_samples(fields, request.call);
  read_sampling(fields, request.call);
  request.max_queue_time = fields.seconds("max_queue_time", kMostQueueTime);
  read_answer_form(fields, request);
  refuse_undone(fields);
  return fields.end();
}

Fault fit_to_model(const std::string& name, const Spec& spec, ImageRequest& request) {
  if (!spec.image) {
    return {invalid_argument("model " + quote(name) + " draws no pictures: ask /v1/completions"),
            "model"};
  }
  const std::string size = size_text(*spec.image);
  if (!request.size.empty() && request.size != size) {
    return {invalid_argument("size is " + quote(request.size) + "; model " + quote(name) +
                             " draws '" + size + "': leave it out, or send 'auto'"),
            "size"};
  }
  const int64_t bytes = spec.image->bytes();
  const int64_t given = std::ssize(request.call.prompt);
  if (given >= bytes) {
    return {invalid_argument("prompt has " + std::to_string(given) + " bytes; a picture of model " +
                             quote(name) + " has " + std::to_string(bytes) +
                             ": leave some to be drawn"),
            "prompt"};
  }
  fit_top_k(spec, request.call.sampling);
  request.call.max_values = bytes - given;
  request.call.ignore_eos = true;  // a picture must be whole
  return {};
}

std::string size_text(const ImageShape& shape) {
  return std::to_string(shape.width) + "x" + std::to_string(shape.height);
}

}  // namespace runnel
