// The limits of chat, separate from base/limits.h because only the server's doors need them.
#pragma once

#include "base/limits.h"

namespace runnel::limits {

inline constexpr Limit kChatValues{
    "chat_values", 4096, 1, int64_t{1} << 40,
    "values generated for an answer to a conversation if the call does not say how many; "
    "never more than max_values"};

}  // namespace runnel::limits
