// The limits of state tokens, separate from base/limits.h because only the server's doors need
// them.
#pragma once

#include "base/limits.h"

namespace runnel::limits {

inline constexpr Limit kTokenBytes{
    "token_bytes", 1 << 20, 0, 64 << 20,
    "bytes of the largest state that a token may hold; 0: no tokens"};
inline constexpr Limit kTokenTtlMs{"token_ttl_ms", 3600000, 1000, int64_t{1} << 40,
                                   "milliseconds after which a token is refused"};

}  // namespace runnel::limits
