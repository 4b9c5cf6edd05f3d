// A tensor that a bundle of some spec holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace runnel {

struct ExpectedTensor {
  std::string name;  // as in model.safetensors
  std::vector<int64_t> shape;
  bool trained = true;  // counts as parameters
  bool read = true;     // false: it may be there, of any shape, and nobody reads it

  // The product of the shape.
  int64_t elements() const {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return count;
  }
};

}  // namespace runnel
