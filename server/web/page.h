// The page that a browser shows at "/": what the models do, without a client program.
#pragma once

#include <cstdint>
#include <vector>

#include "server/http/gate.h"

namespace runnel {

// Routes of "GET" for the page and the files that it consists of, which are part of the program.
// They need no key: the page asks the person for one, and sends it with its requests for data.
// Every answer has a Content-Security-Policy by which the page runs scripts of this server alone,
// talks to no other, and is shown within no other page.
std::vector<HttpRoute> page_routes(const Gate& gate);

// Bytes of the largest answer to one request.
int64_t largest_page_answer();

}  // namespace runnel
