// The command line's words for the fields of requests (base/fields.h).
#pragma once

#include <string_view>

#include "base/status.h"

namespace runnel {

// The flags or arguments of a command; empty where it has none for a field.
std::string_view generate_flag(std::string_view field);
std::string_view draw_flag(std::string_view field);
std::string_view score_flag(std::string_view field);
// For `runnel chat`: a fork has the name that /fork gives it.
std::string_view chat_flag(std::string_view field);
// For the commands of `runnel session` except `load`, whose id is a flag.
std::string_view session_flag(std::string_view field);
std::string_view session_load_flag(std::string_view field);

// The same status, with a command's flags where its message names fields.
Status in_flags(const Status& status, const FieldWord& flag_of);

}  // namespace runnel
