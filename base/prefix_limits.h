// The limit of the prefix cache, separate from base/limits.h because only the server sets it.
#pragma once

#include "base/limits.h"

namespace runnel::limits {

inline constexpr Limit kPrefixCacheBytes{
    "prefix_cache_bytes", int64_t{1} << 30, 0, int64_t{1} << 40,
    "bytes of states that a model keeps for prompts that begin alike, in free slots; 0: none"};

}  // namespace runnel::limits
