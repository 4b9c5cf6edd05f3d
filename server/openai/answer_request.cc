#include "server/openai/answer_request.h"

#include <iterator>
#include <limits>
#include <string>

#include "base/base64.h"
#include "base/limits.h"

namespace runnel {
namespace {

constexpr int64_t kAnyInteger = std::numeric_limits<int64_t>::max();
constexpr const char* kReplacement = "\xEF\xBF\xBD";

constexpr auto kHarmless = {"user",
                            "metadata",
                            "store",
                            "service_tier",
                            "safety_identifier",
                            "prompt_cache_key",
                            "prompt_cache_retention"};

}  // namespace

void read_stop(RequestFields& fields, AnswerRequest& request) {
  const Json* const stop = fields.find("stop");
  if (stop == nullptr) return;
  // The engine checks number and lengths, too, but by then each prompt has a copy of the texts.
  if (stop->is_array() && std::ssize(*stop) > kMaxStopSequences) {
    return fields.refuse("stop", "has " + std::to_string(stop->size()) + " texts; at most " +
                                     std::to_string(kMaxStopSequences) + " are allowed");
  }
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  for (const Json& text : list) {
    if (!text.is_string()) return fields.refuse("stop", "must be a text, or a list of texts");
    const auto& bytes = text.get_ref<const std::string&>();
    if (std::ssize(bytes) > kMaxStopTextBytes) {
      return fields.refuse("stop", "has a text of " + std::to_string(bytes.size()) +
                                       " bytes; each must have 1 to " +
                                       std::to_string(kMaxStopTextBytes));
    }
    // The engine compares bytes, so this text never matches there.
    if (bytes.find(kReplacement) != std::string::npos) {
      return fields.refuse("stop",
                           "contains U+FFFD, the replacement character, which the output never "
                           "matches");
    }
    request.call.stop_text.push_back(bytes);
  }
}

void read_answer_form(RequestFields& fields, AnswerRequest& request) {
  request.stream = fields.boolean("stream", false);
  request.return_token_ids = fields.boolean("return_token_ids", false);
  const Json* const options = fields.find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) return fields.refuse("stream_options", "must be an object");
  if (!request.stream) return fields.refuse("stream_options", "is for a stream: set stream");
  RequestFields members(*options);
  request.include_usage = members.boolean("include_usage", false);
  members.boolean("include_obfuscation", false);  // pads chunks, which is not needed here
  if (const Fault fault = members.end(); !fault.ok()) {
    fields.refuse("stream_options." + fault.param,
                  fault.status.message().substr(fault.param.size() + 1));
  }
}

void read_extensions(RequestFields& fields, AnswerRequest& request) {
  GenerateRequest& call = request.call;
  request.max_queue_time = fields.seconds("max_queue_time", kMostQueueTime);
  call.state = fields.text("state");
  call.ignore_eos = fields.boolean("ignore_eos", false);
}

void read_tokens(RequestFields& fields, AnswerRequest& request) {
  if (const auto text = fields.text("state_token")) {
    request.token.given = from_base64(*text);
    if (!request.token.given) fields.refuse("state_token", "must be base64, as an answer has it");
  }
  request.token.wanted = fields.boolean("include_state", false);
}

void read_keeping(RequestFields& fields, AnswerRequest& request) {
  GenerateRequest& call = request.call;
  if (fields.find("keep") != nullptr) call.keep = fields.boolean("keep", false);
  call.expected_position = fields.integer("position", 0, kAnyInteger);
}

void read_harmless(RequestFields& fields) {
  for (const char* const key : kHarmless) static_cast<void>(fields.find(key));
}

}  // namespace runnel
