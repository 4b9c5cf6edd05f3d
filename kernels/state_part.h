// A state's contents, part by part: what a file of it can name, and another backend can find.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/view.h"

namespace runnel {

// An array of a state, row-major, but for a stride over its first dimension: parts of the heads of
// a layer lie between one another.
struct StatePart {
  std::string name;
  DType type = DType::kF32;
  std::vector<int64_t> shape;
  int64_t offset = 0;  // bytes from the start of the state
  int64_t stride = 0;  // bytes from one entry of the first dimension to the next
  bool paged = false;  // entries are pages of a cache: those of later positions mean nothing

  // Of one entry of the first dimension.
  int64_t entry_bytes() const {
    int64_t bytes = element_bytes(type);
    for (size_t i = 1; i < shape.size(); ++i) bytes *= shape[i];
    return bytes;
  }
};

}  // namespace runnel
