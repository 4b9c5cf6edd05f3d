#include "server/http/event_stream.h"

namespace runnel {
namespace {

constexpr const char* kPing = ": ping\n\n";

}  // namespace

void begin_events(HttpReply& reply) {
  reply.set_header("Cache-Control", "no-cache");
  reply.set_header("X-Accel-Buffering", "no");  // so that a proxy does not buffer the stream
  reply.begin(200, "text/event-stream; charset=utf-8", kPing);
}

std::string event_of(std::string_view data, std::string_view type) {
  std::string event;
  if (!type.empty()) event.append("event: ").append(type).append("\n");
  return event.append("data: ").append(data).append("\n\n");
}

}  // namespace runnel
