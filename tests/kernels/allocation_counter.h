// Counts what this program allocates.
#pragma once

#include <cstdint>

namespace runnel {

// Calls of operator new so far, by any thread.
int64_t allocation_count();

}  // namespace runnel
