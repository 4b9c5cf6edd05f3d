// The words of OpenAI's endpoints for the fields of requests (base/fields.h). A word is empty if
// the endpoint has no such field.
#pragma once

#include <string_view>

namespace runnel {

std::string_view completion_word(std::string_view field);
std::string_view chat_word(std::string_view field);
std::string_view response_word(std::string_view field);
// The word `size` is used for the number of values.
std::string_view image_word(std::string_view field);

}  // namespace runnel
