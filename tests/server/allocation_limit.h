// Makes large allocations of this program fail.
#pragma once

#include <cstddef>

namespace runnel {

// While the object exists, operator new throws bad_alloc for more than `bytes` on every thread
// except the one that made the object.
class AllocationLimit {
 public:
  explicit AllocationLimit(size_t bytes);
  AllocationLimit(const AllocationLimit&) = delete;
  AllocationLimit& operator=(const AllocationLimit&) = delete;
  ~AllocationLimit();
};

}  // namespace runnel
