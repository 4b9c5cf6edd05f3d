// The limit of the lame-duck period, separate from base/limits.h because only the server sets it.
#pragma once

#include "base/limits.h"

namespace runnel::limits {

inline constexpr Limit kLameDuckMs{
    "lame_duck_ms", 0, 0, 3600000,
    "milliseconds that a server still takes calls after SIGTERM, while readiness is off"};

}  // namespace runnel::limits
