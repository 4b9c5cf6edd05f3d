// The part of /openapi.json about the paths of OpenAI's API: openapi.json of this folder.
#pragma once

#include <string_view>

namespace runnel {

std::string_view openai_description();

}  // namespace runnel
