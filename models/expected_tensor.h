// A tensor that a bundle of some spec holds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace runnel {

struct ExpectedTensor {
  std::string name;  // as in model.safetensors
  std::vector<int64_t> shape;
  bool trained = true;  // counts as parameters
  bool read = true;     // false: it may be there, of any shape, and nobody reads it
  bool vector = false;  // the shape is [n]; [1, 1, n] and the like will do

  // The shape to read it in from a file that has it in this one: that, if it will do.
  const std::vector<int64_t>& shape_in(const std::vector<int64_t>& stored) const {
    const auto others = std::count_if(stored.begin(), stored.end(), [](auto n) { return n != 1; });
    const bool fits = vector && !stored.empty() && stored.back() == shape[0] && others <= 1;
    return fits ? stored : shape;
  }

  // The product of the shape.
  int64_t elements() const {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return count;
  }
};

}  // namespace runnel
