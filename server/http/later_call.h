// An HTTP request that the engine answers after some steps.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "base/json.h"
#include "server/calls/answered_call.h"
#include "server/calls/session_header.h"
#include "server/host/call_quota.h"
#include "server/http/fault.h"
#include "server/http/http_server.h"

namespace runnel {

class LaterCall final : public AnsweredCall {
 public:
  // Has the engine answer once, or returns a fault.
  using Begin = std::function<Fault(LaterCall&, const HttpRequest&)>;

  // A handler that identifies the caller, and begins a call of method `rpc`, which must have static
  // storage. Refusals use the field names of `word_of`. `state` must outlive the calls.
  static HttpHandler handler(ServerContext& state, const char* rpc, FieldWord word_of, Begin begin);

  // Names the session of the answer in the answer's head. To be called before answer().
  void name_session(const std::string& id) { reply_.set_header(kSessionHeader, id); }

  // Answers, once.
  void answer(const OrderedJson& json);

  // --- LiveCall ---

  void tend(TimePoint /*now*/) override {}

 private:
  LaterCall(ServerContext& state, CallStart start, FieldWord word_of, HttpReply reply)
      : AnsweredCall(state, std::move(start)),
        word_of_(std::move(word_of)),
        reply_(std::move(reply)) {}
  void refuse(const Status& status) override { finish(fault_of(status, word_of_)); }
  void finish(const Fault& fault, const OrderedJson& json = {});

  const FieldWord word_of_;
  HttpReply reply_;
  CallQuota quota_;
};

}  // namespace runnel
