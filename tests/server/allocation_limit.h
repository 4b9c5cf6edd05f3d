// Makes this program's large allocations fail.
#pragma once

#include <cstddef>

namespace runnel {

// While it lives, operator new throws bad_alloc for more than `bytes` on every thread but the one
// that has made it.
class AllocationLimit {
 public:
  explicit AllocationLimit(size_t bytes);
  AllocationLimit(const AllocationLimit&) = delete;
  AllocationLimit& operator=(const AllocationLimit&) = delete;
  ~AllocationLimit();
};

}  // namespace runnel
