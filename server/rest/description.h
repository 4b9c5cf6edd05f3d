// The part of /openapi.json that describes runnel's own paths. The build takes it from openapi.json
// in this folder.
#pragma once

#include <string_view>

namespace runnel {

std::string_view rest_description();

}  // namespace runnel
