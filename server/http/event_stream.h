// An answer as server-sent events.
#pragma once

#include <string>
#include <string_view>

#include "server/http/http_server.h"

namespace runnel {

// Begins the answer, with 200. Pings are sent where no event goes out for long.
void begin_events(HttpReply& reply);

// An event with `data`, which is in one line; with a `type` where the API has one.
std::string event_of(std::string_view data, std::string_view type = "");

}  // namespace runnel
