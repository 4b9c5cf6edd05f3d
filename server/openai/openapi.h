// The description of what is served by HTTP, as OpenAPI has it: openapi.json.
#pragma once

#include <string_view>

namespace runnel {

std::string_view openapi_json();

}  // namespace runnel
