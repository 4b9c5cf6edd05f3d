// Memory on huge pages, if the system provides them: far fewer TLB misses.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/view.h"

namespace runnel::cpu {

// Zeroed memory, aligned to 64 bytes, or to huge pages if it is large. All pages are allocated at
// once, so that no later write waits for the system. Throws std::bad_alloc if memory is short.
Buffer zeroed_memory(int64_t bytes);

// Allocates pieces one after another in memory, so that reading them in that order is a sequential
// read. The memory belongs to the arena, and is freed with it.
class Arena {
 public:
  // Zeroed memory, aligned to 64 bytes. Throws std::bad_alloc if memory is short.
  Buffer place(int64_t bytes);

 private:
  std::vector<Buffer> pieces_;
  int64_t used_ = 0;  // bytes of the last piece
};

}  // namespace runnel::cpu
