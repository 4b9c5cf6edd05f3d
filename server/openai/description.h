// The OpenAPI description of the HTTP routes: openapi.json.
#pragma once

#include <string_view>

namespace runnel {

std::string_view openapi_json();

}  // namespace runnel
