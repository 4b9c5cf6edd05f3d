// Memory on huge pages, where the system gives them: far fewer misses of the address cache.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/view.h"

namespace runnel::cpu {

// Zeroed memory, aligned to 64 bytes, large buffers to huge pages. All of it is there at once: no
// later write waits for the system. Throws std::bad_alloc when there is none.
Buffer zeroed_memory(int64_t bytes);

// Pieces that lie one behind the other in the order of asking, so that reading them in that order
// is reading on. Their memory is the arena's and is freed with it.
class Arena {
 public:
  // Zeroed, aligned to 64 bytes. Throws std::bad_alloc when there is none.
  Buffer place(int64_t bytes);

 private:
  std::vector<Buffer> pieces_;
  int64_t used_ = 0;  // bytes of the last one
};

}  // namespace runnel::cpu
