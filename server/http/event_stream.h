// Writes an answer as server-sent events.
#pragma once

#include <string>
#include <string_view>

#include "server/http/http_server.h"

namespace runnel {

// Begins the answer with 200. If no event is sent for a long time, pings are sent.
void begin_events(HttpReply& reply);

// An event with `data`, which must be JSON in one line, or ASCII. The event is also one line for
// clients that end lines at U+0085, U+2028 and U+2029, because these are escaped. `type`: the
// event's type, if the API has one.
std::string event_of(std::string_view data, std::string_view type = "");

}  // namespace runnel
