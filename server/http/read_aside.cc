#include "server/http/read_aside.h"

#include <memory>
#include <string>
#include <utility>

#include "base/within_memory.h"
#include "server/http/call_start.h"
#include "server/http/live_answer.h"

namespace runnel {
namespace {

constexpr int64_t kHeadBytes = 40 << 10;  // maximum bytes of a head

// A copy of a request that outlives the handler's call, with its reply.
class HeldRequest {
 public:
  HeldRequest(const HttpRequest& request, HttpReply reply, std::shared_ptr<const void> kept)
      : kept_(std::move(kept)),
        method_(request.method),
        target_(request.target),
        part_(request.part),
        body_(request.body),
        peer_(request.peer),
        authorization_(request.header("authorization")),
        trace_(request.header("traceparent")),
        reply_(std::move(reply)) {}

  // Once.
  void give(const HttpHandler& handle) {
    const HttpRequest request = {.method = method_,
                                 .target = target_,
                                 .part = part_,
                                 .allow = "",
                                 .body = body_,
                                 .peer = peer_,
                                 .header = [this](std::string_view name) -> std::string_view {
                                   if (name == "authorization") return authorization_;
                                   return name == "traceparent" ? trace_ : std::string_view();
                                 }};
    handle(request, std::move(reply_));
  }

 private:
  const std::shared_ptr<const void> kept_;
  const std::string method_, target_, part_, body_, peer_, authorization_, trace_;
  HttpReply reply_;
};

}  // namespace

HttpHandler read_aside(ServerContext& state, HttpHandler handle, Aside which) {
  return [&state, handle = std::make_shared<const HttpHandler>(std::move(handle)), which](
             const HttpRequest& request, HttpReply reply) {
    const int64_t bytes = std::ssize(request.body);
    const Result<Caller> caller = caller_of(state, request);
    // Unknown callers are refused before their body is read.
    const bool is_short = which == Aside::kLongBodies && bytes <= kReadAtOnce;
    if (is_short || !caller.ok()) return (*handle)(request, std::move(reply));
    auto room = state.memory.take(bytes + kHeadBytes);
    if (!room.ok()) return (*handle)(request, std::move(reply));  // it refuses for lack of memory
    auto kept = live_answer(state, std::make_shared<MemoryBudget::Hold>(std::move(*room)));
    const auto held = std::make_shared<HeldRequest>(request, std::move(reply), std::move(kept));
    state.reader.post(caller->account, [handle, held] {
      // Without memory the reply ends with 500.
      static_cast<void>(within_memory([&] {
        held->give(*handle);
        return Status();
      }));
    });
  };
}

}  // namespace runnel
