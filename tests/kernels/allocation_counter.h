// Counts the allocations of this program.
#pragma once

#include <cstdint>

namespace runnel {

// The number of calls of operator new so far, by any thread.
int64_t allocation_count();

}  // namespace runnel
