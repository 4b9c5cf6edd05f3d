// The page that a browser shows at "/". It shows what the models do, without a client program.
#pragma once

#include <cstdint>
#include <vector>

#include "server/http/gate.h"

namespace runnel {

// The "GET" routes of the page and its files, which are part of the program. They need no key: the
// page asks its user for one, and sends it with its requests for data. Every answer has a
// Content-Security-Policy, by which the page runs only scripts of this server, connects to no other
// server, and is not shown within another page.
std::vector<HttpRoute> page_routes(const Gate& gate);

// The bytes of the largest answer to one request.
int64_t largest_page_answer();

}  // namespace runnel
