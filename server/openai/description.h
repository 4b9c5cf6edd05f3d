// The part of /openapi.json that describes the paths of OpenAI's API. The build takes it from
// openapi.json in this folder.
#pragma once

#include <string_view>

namespace runnel {

std::string_view openai_description();

}  // namespace runnel
