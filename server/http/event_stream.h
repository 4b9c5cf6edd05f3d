// Writes an answer as server-sent events.
#pragma once

#include <string>
#include <string_view>

#include "server/http/http_server.h"

namespace runnel {

// Begins the answer with 200. If no event is sent for a long time, pings are sent.
void begin_events(HttpReply& reply);

// An event with `data`, which must be one line. `type`: the event's type, if the API has one.
std::string event_of(std::string_view data, std::string_view type = "");

}  // namespace runnel
