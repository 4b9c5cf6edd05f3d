// The command line's words for the fields of requests.
#pragma once

#include <string_view>

#include "base/status.h"

namespace runnel {

// The flag of `runnel generate` and `runnel draw` for a field (engine/fields.h); empty: they have
// no such flag.
std::string_view flag_of(std::string_view field);

// The same status, with flags where its message names fields.
Status in_flags(const Status& status);

}  // namespace runnel
