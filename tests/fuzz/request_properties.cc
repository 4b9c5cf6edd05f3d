#include "tests/fuzz/request_properties.h"

#include <algorithm>

#include "base/check.h"
#include "base/limits.h"
#include "server/http/request_fields.h"
#include "server/openai/completion_request.h"

namespace runnel {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 40;
constexpr int kMostLogprobs = 20;

// The number of tokens, or of bytes of text.
size_t size_of(const CompletionPrompt& prompt) {
  return std::visit([](const auto& values) { return values.size(); }, prompt);
}

void check_prompts(const CompletionRequest& request, size_t body) {
  check(!request.prompts.empty() && request.prompts.size() <= kMaxPrompts, "prompts");
  size_t sizes = 0;
  for (const CompletionPrompt& prompt : request.prompts) {
    sizes += size_of(prompt);
    const auto* const tokens = std::get_if<std::vector<int32_t>>(&prompt);
    if (tokens == nullptr) continue;
    check(std::ranges::all_of(*tokens, [](int32_t token) { return token >= 0; }), "tokens");
  }
  check(sizes <= body, "prompts are no longer than the body");
  const bool is_session = request.answer.call.session || request.answer.call.keep.value_or(false);
  check(request.prompts.size() == 1 || !is_session, "a session has one prompt");
}

}  // namespace

void check_fault(const Fault& fault) {
  const std::string& message = fault.status.message();
  check(fault.status.code() == Code::kInvalidArgument, "a bad body is INVALID_ARGUMENT");
  check(message.starts_with(fault.param.empty() ? "the body" : fault.param),
        "a refusal starts with what is at fault");
  check(message.size() < 2000, "a refusal is one short line");
  check(std::ranges::all_of(message, [](char c) { return c >= 0x20 && c < 0x7f; }),
        "a refusal is printable");
}

void check_call(const GenerateRequest& call, size_t body) {
  check(call.samples >= 1 && call.samples <= limits::kSamples.max, "n");
  check(call.max_values >= 0 && call.max_values <= kMostTokens, "max_tokens");
  check(call.top_log_probs >= 0 && call.top_log_probs <= kMostLogprobs, "logprobs");
  check(call.sampling.top_k >= 0, "top_k");
  check(!call.expected_position || *call.expected_position >= 0, "position");
  size_t stops = 0;
  for (const std::string& text : call.stop_text) stops += text.size();
  check(call.stop_text.size() <= body && stops <= body, "stop");
}

bool check_completion_request(std::string_view text) {
  const Result<Json> body = parse_body(text);
  if (!body.ok()) {
    check_fault({body.status()});
    return false;
  }
  CompletionRequest request;
  const Fault fault = read_completion(*body, request);
  if (!fault.ok()) {
    check(!fault.param.empty(), "a refusal names a field");
    check_fault(fault);
    return false;
  }
  check_prompts(request, text.size());
  check_call(request.answer.call, text.size());
  check(!request.answer.logprobs || *request.answer.logprobs == request.answer.call.top_log_probs,
        "logprobs twice");
  check(request.answer.stream || !request.answer.include_usage, "stream_options are of a stream");
  return true;
}

std::vector<std::string> completion_seeds() {
  return {
      R"({})",
      R"({"model":"m","prompt":"The ","max_tokens":5,"n":2,"seed":-7,"stop":[".","\n"],"user":"u"})",
      R"({"prompt":["a",[1,2]],"temperature":0,"top_p":0.5,"logprobs":3,"return_token_ids":true})",
      R"({"prompt":[[1],[2,3]],"stream":true,"stream_options":{"include_usage":true},"echo":true})",
      R"({"session":"s","keep":false,"position":3,"prompt":null,"top_k":4,"min_p":0.1,"stop":"."})",
      R"({"state":"x","ignore_eos":true,"best_of":1,"logit_bias":{"5":1.5},"presence_penalty":0.5,"suffix":""})",
  };
}

std::span<const std::string_view> completion_words() {
  static constexpr std::string_view kWords[] = {"\"model\"",
                                                "\"prompt\"",
                                                "\"max_tokens\"",
                                                "\"n\"",
                                                "\"seed\"",
                                                "\"stop\"",
                                                "\"temperature\"",
                                                "\"top_p\"",
                                                "\"logprobs\"",
                                                "\"echo\"",
                                                "\"stream\"",
                                                "\"stream_options\"",
                                                "\"session\"",
                                                "\"include_usage\"",
                                                "\"return_token_ids\"",
                                                "\"keep\"",
                                                "\"position\"",
                                                "\"state\"",
                                                "\"ignore_eos\"",
                                                "\"best_of\"",
                                                "\"suffix\"",
                                                "\"logit_bias\"",
                                                "\"presence_penalty\"",
                                                "\"frequency_penalty\"",
                                                "\"\\ufffd\"",
                                                "\"\\ud83d\\ude00\"",
                                                "null",
                                                "true",
                                                "false",
                                                "-1",
                                                "1e40",
                                                "9223372036854775808",
                                                "2147483648",
                                                "1.5",
                                                "[]",
                                                "{}",
                                                "[[1],[2]]",
                                                "[\"a\",1]",
                                                "\"\"",
                                                "[[[[[[[[["};
  return kWords;
}

}  // namespace runnel
