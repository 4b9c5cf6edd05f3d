// What /openapi.json says of the paths of OpenAI's API: openapi.json of this folder.
#pragma once

#include <string_view>

namespace runnel {

std::string_view openai_description();

}  // namespace runnel
