// The contents of a state, part by part, so that a file can name them and another backend can find
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/view.h"

namespace runnel {

// An array in a state. It is row-major, except for the stride of its first dimension: the parts of
// a layer's heads are interleaved.
struct StatePart {
  std::string name;
  DType type = DType::kF32;
  std::vector<int64_t> shape;
  int64_t offset = 0;  // bytes from the start of the state
  int64_t stride = 0;  // bytes from one entry of the first dimension to the next
  bool paged = false;  // entries are pages of a cache; pages of later positions have no meaning

  // The bytes of one entry of the first dimension.
  int64_t entry_bytes() const {
    int64_t bytes = element_bytes(type);
    for (size_t i = 1; i < shape.size(); ++i) bytes *= shape[i];
    return bytes;
  }
};

}  // namespace runnel
