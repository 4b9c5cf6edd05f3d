// The part of /openapi.json about runnel's own paths: openapi.json of this folder.
#pragma once

#include <string_view>

namespace runnel {

std::string_view rest_description();

}  // namespace runnel
