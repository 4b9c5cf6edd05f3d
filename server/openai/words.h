// The names of request fields (base/fields.h) at OpenAI's endpoints. A name is empty if the
// endpoint has no such field.
#pragma once

#include <string_view>

namespace runnel {

std::string_view completion_word(std::string_view field);
std::string_view chat_word(std::string_view field);
std::string_view response_word(std::string_view field);
// The number of values has the name `size`.
std::string_view image_word(std::string_view field);

}  // namespace runnel
