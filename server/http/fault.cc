#include "server/http/fault.h"

#include <algorithm>
#include <utility>

#include "base/json.h"

namespace runnel {
namespace {

const char* type_of(const Status& status) {
  switch (status.code()) {
    case Code::kResourceExhausted:
      return "rate_limit_error";
    case Code::kUnauthenticated:
      return "authentication_error";
    default:
      return http_status_of(status.code()) < 500 ? "invalid_request_error" : "server_error";
  }
}

OrderedJson code_of(const Fault& fault) {
  const Status& status = fault.status;
  if (status.code() == Code::kNotFound && fault.param == "model") return "model_not_found";
  if (status.code() == Code::kNotFound && fault.param == "previous_response_id") {
    return "previous_response_not_found";
  }
  if (status.code() == Code::kUnauthenticated) return "invalid_api_key";
  // The values do not fit the model. A rewind fails with the same code, but about the position.
  const bool is_prompt =
      fault.param == "prompt" || fault.param == "messages" || fault.param == "input";
  if (status.code() == Code::kOutOfRange && is_prompt) return "context_length_exceeded";
  if (!status.reason().empty()) return status.reason();
  return nullptr;
}

}  // namespace

Fault fault_of(const Status& status, const FieldWord& word_of) {
  if (status.ok()) return {};
  Status renamed(status.code(), status.message(word_of));
  if (status.retry_after()) renamed.with_retry_after(*status.retry_after());
  renamed.with_reason(status.reason());
  return {std::move(renamed), std::string(word_of(status.field()))};
}

int http_status_of(Code code) {
  switch (code) {
    case Code::kOk:
      return 200;
    case Code::kInvalidArgument:
    case Code::kFailedPrecondition:
    case Code::kOutOfRange:
      return 400;
    case Code::kUnauthenticated:
      return 401;
    case Code::kPermissionDenied:
      return 403;
    case Code::kNotFound:
      return 404;
    case Code::kDeadlineExceeded:
      return 408;
    case Code::kAlreadyExists:
    case Code::kAborted:
      return 409;
    case Code::kResourceExhausted:
      return 429;
    case Code::kCancelled:
      return 499;
    case Code::kUnimplemented:
      return 501;
    case Code::kUnavailable:
      return 503;
    case Code::kInternal:
    case Code::kDataLoss:
      return 500;
  }
  return 500;
}

Code code_of_http(int status) {
  switch (status) {
    case 403:
      return Code::kPermissionDenied;
    case 404:
      return Code::kNotFound;
    case 405:
    case 501:
    case 505:
      return Code::kUnimplemented;
    case 408:
      return Code::kDeadlineExceeded;
    case 503:
      return Code::kUnavailable;
    default:
      return Code::kInvalidArgument;
  }
}

std::string error_json(const Fault& fault) {
  OrderedJson error;
  error["message"] = fault.status.message();
  error["type"] = type_of(fault.status);
  error["param"] = fault.param.empty() ? OrderedJson() : OrderedJson(fault.param);
  error["code"] = code_of(fault);
  return json_text({{"error", std::move(error)}});
}

void send_fault(const Fault& fault, HttpReply& reply) {
  const int status = http_status_of(fault.status.code());
  if (const auto delay = fault.status.retry_after()) {
    const int64_t ms = delay->count();
    reply.set_header("Retry-After", std::to_string(std::max<int64_t>(1, (ms + 999) / 1000)));
    reply.set_header("Retry-After-Ms", std::to_string(ms));
  } else if (status == 409 || status == 429 || status == 503) {
    reply.set_header("X-Should-Retry", "false");  // OpenAI's clients would retry
  }
  if (status == 401) reply.set_header("WWW-Authenticate", "Bearer");
  reply.send({status, "application/json", error_json(fault) + "\n"});
}

}  // namespace runnel
