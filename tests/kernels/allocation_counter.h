// Counts the allocations of this program.
#pragma once

#include <cstdint>

namespace runnel {

// The number of calls of operator new and of aligned_alloc() so far, by any thread. Pages that a
// backend maps for 4 MiB or more do not count.
int64_t allocation_count();

}  // namespace runnel
