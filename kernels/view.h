// Views of memory that another object owns, and the buffers that own it.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/device.h"
#include "kernels/stored_type.h"

namespace runnel {

enum class DType : uint8_t { kF32, kI32, kBF16, kI8 };

constexpr int64_t element_bytes(DType type) {
  return type == DType::kI8 ? 1 : type == DType::kBF16 ? 2 : 4;
}

// Converts the bits of a bf16 number to fp32: they are the upper half of its fp32 bits.
RUNNEL_DEVICE constexpr float widened(uint16_t bits) {
  return bit_cast<float>(uint32_t{bits} << 16);
}

// A matrix in the backend's memory: `rows` rows of `cols` elements, `stride` elements apart.
struct View {
  void* data = nullptr;
  DType type = DType::kF32;
  int rows = 0;
  int cols = 0;
  int stride = 0;

  float* f32(int row = 0) const {
    assert(type == DType::kF32);
    return static_cast<float*>(data) + int64_t{row} * stride;
  }
  int32_t* i32(int row = 0) const {
    assert(type == DType::kI32);
    return static_cast<int32_t*>(data) + int64_t{row} * stride;
  }
  // Element (row, column) of a matrix of fp32 or bf16.
  RUNNEL_DEVICE constexpr float number(int64_t row, int column) const {
    const int64_t at = row * stride + column;
    if (type == DType::kBF16) return widened(static_cast<const uint16_t*>(data)[at]);
    return static_cast<const float*>(data)[at];
  }
  // The first `count` rows.
  View top(int count) const { return {data, type, count, cols, stride}; }
  // Rows [first, first + count).
  View slice(int first, int count) const {
    return {static_cast<std::byte*>(data) + int64_t{first} * stride * element_bytes(type), type,
            count, cols, stride};
  }
  // Columns [first, first + count).
  View columns(int first, int count) const {
    return {static_cast<std::byte*>(data) + int64_t{first} * element_bytes(type), type, rows, count,
            stride};
  }
};

// A run of bytes in the backend's memory.
struct Span {
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

// The place of a buffer: the backend's memory, or memory of the host that the backend can reach.
enum class Memory : uint8_t { kDevice, kHost };

// Memory of one backend, which this object owns. It can be moved but not copied. The backend's own
// function frees it.
class Buffer {
 public:
  using Free = void (*)(std::byte* data, int64_t bytes);

  Buffer() = default;
  Buffer(std::byte* data, int64_t bytes, Free free) : data_(data), bytes_(bytes), free_(free) {}
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        free_(other.free_) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(free_, other.free_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) free_(data_, bytes_);
  }

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Span span() const { return {data_, bytes_}; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  Free free_ = nullptr;
};

// A row-major matrix of fp32, of bf16 or in blocks, in ordinary host memory. It is read while
// weights are loaded.
struct HostTensor {
  const void* data = nullptr;
  int rows = 0;
  int cols = 0;
  DType type = DType::kF32;
  // If `stored` is a type of blocks, the elements have this type instead of `type`.
  StoredType stored = StoredType::kF32;

  // The beginning of row `row`.
  const std::byte* row(int64_t row) const {
    return static_cast<const std::byte*>(data) + row * cols * element_bytes(type);
  }
  // Element `index`, counted through all rows.
  float number(int64_t index) const {
    if (type == DType::kBF16) return widened(static_cast<const uint16_t*>(data)[index]);
    return static_cast<const float*>(data)[index];
  }
};

}  // namespace runnel
