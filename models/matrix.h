// A matrix that owns its memory in a backend.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/backend.h"

namespace runnel {

struct Matrix {
  Buffer buffer;
  View view;
};

// A matrix of zeros, without gaps between rows. Throws std::bad_alloc if there is no memory.
inline Matrix make_matrix(Backend& backend, DType type, int rows, int cols, Memory memory) {
  Matrix matrix;
  matrix.buffer =
      backend.allocate(std::max<int64_t>(int64_t{rows} * cols * element_bytes(type), 1), memory);
  matrix.view = {matrix.buffer.data(), type, rows, cols, cols};
  return matrix;
}

}  // namespace runnel
