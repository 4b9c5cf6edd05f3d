// A tensor that the bundle of a spec must hold.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace runnel {

struct ExpectedTensor {
  std::string name;  // as in model.safetensors
  std::vector<int64_t> shape;
  bool trained = true;  // whether its elements count as parameters
  bool read = true;     // false: a file may have it, in any shape, but it is not read
  bool vector = false;  // the shape is [n], and [1, n], [1, 1, n] and so on are accepted

  int64_t used = -1;  // the slices of the first dimension that one input uses; -1: all

  // The shape in which to read the tensor, if a file stores it as `stored`: `stored` if it is
  // accepted, else the expected shape, so that reading fails with a message.
  const std::vector<int64_t>& shape_in(const std::vector<int64_t>& stored) const {
    const auto others = std::count_if(stored.begin(), stored.end(), [](auto n) { return n != 1; });
    const bool fits = vector && !stored.empty() && stored.back() == shape[0] && others <= 1;
    return fits ? stored : shape;
  }

  // The number of elements.
  int64_t elements() const {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return count;
  }
  // The number of elements that one input uses.
  int64_t active() const { return used < 0 ? elements() : elements() / shape[0] * used; }
};

}  // namespace runnel
