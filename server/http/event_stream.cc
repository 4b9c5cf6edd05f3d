#include "server/http/event_stream.h"

#include <algorithm>
#include <array>

namespace runnel {
namespace {

constexpr const char* kPing = ": ping\n\n";

// The characters other than CR and LF at which some clients end a line, such as clients that use
// Python's splitlines().
struct LineEnd {
  std::string_view bytes, escaped;
};
constexpr std::array kLineEnds = {LineEnd{"\xC2\x85", "\\u0085"},
                                  LineEnd{"\xE2\x80\xA8", "\\u2028"},
                                  LineEnd{"\xE2\x80\xA9", "\\u2029"}};

// Appends a JSON text. In JSON, these characters can only be part of a string, so they can be
// escaped.
void append_line(std::string_view json, std::string& to) {
  const auto contains = [&](const LineEnd& end) { return json.find(end.bytes) != json.npos; };
  if (std::ranges::none_of(kLineEnds, contains)) {
    to.append(json);
    return;
  }
  while (!json.empty()) {
    const auto begins = [&](const LineEnd& end) { return json.starts_with(end.bytes); };
    const auto found = std::ranges::find_if(kLineEnds, begins);
    const bool is_plain = found == kLineEnds.end();
    to.append(is_plain ? json.substr(0, 1) : found->escaped);
    json.remove_prefix(is_plain ? 1 : found->bytes.size());
  }
}

}  // namespace

void begin_events(HttpReply& reply) {
  reply.set_header("Cache-Control", "no-cache");
  reply.set_header("X-Accel-Buffering", "no");  // so that a proxy does not buffer the stream
  reply.begin(200, "text/event-stream; charset=utf-8", kPing);
}

std::string event_of(std::string_view data, std::string_view type) {
  std::string event;
  if (!type.empty()) event.append("event: ").append(type).append("\n");
  event += "data: ";
  append_line(data, event);
  event += "\n\n";
  return event;
}

}  // namespace runnel
