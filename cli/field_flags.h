// The command line's words for the fields of requests (base/fields.h).
#pragma once

#include <string_view>

#include "base/status.h"

namespace runnel {

// The flag or argument of a command for a field. Empty if it has none.
std::string_view generate_flag(std::string_view field);
std::string_view draw_flag(std::string_view field);
std::string_view score_flag(std::string_view field);
// For `runnel chat`. The name of a fork is the argument of /fork.
std::string_view chat_flag(std::string_view field);
// For the commands of `runnel session` except `load`, where the id is a flag.
std::string_view session_flag(std::string_view field);
std::string_view session_load_flag(std::string_view field);

// Replaces the fields in the status's message by the command's flags.
Status in_flags(const Status& status, const FieldWord& flag_of);

}  // namespace runnel
