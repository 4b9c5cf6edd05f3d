// Tensors in their stored form. They are read in place and one at a time, so that a model never
// needs memory for its weights twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kernels/stored_type.h"

namespace runnel {

// Bytes of one element of a plain type, or of a block.
constexpr int64_t bytes_of(StoredType type) { return format_of(type).bytes; }

// A view of a tensor in memory that another object owns. The tensor is little-endian and row-major,
// and need not be aligned.
struct Tensor {
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;

  int64_t elements() const {
    return std::ssize(bytes) / format_of(type).bytes * format_of(type).elements;
  }
};

// Converts elements [first, first + out.size()) to fp32. The conversion of F16 and BF16 is exact. A
// weight of a block is the result of a multiplication and a subtraction, each rounded
// (kernels/blocks.h).
void widen(const Tensor& tensor, int64_t first, std::span<float> out);

// All elements as fp32.
std::vector<float> widened(const Tensor& tensor);

// The index of the first element that is a NaN or an infinity. For blocks: the index of the first
// element of the first block with such a scale. elements() if there is none.
int64_t first_not_finite(const Tensor& tensor);

// The memory that holds tensors.
class TensorMemory {
 public:
  TensorMemory() = default;
  TensorMemory(const TensorMemory&) = delete;
  TensorMemory& operator=(const TensorMemory&) = delete;
  virtual ~TensorMemory() = default;

  // INVALID_ARGUMENT with the names of the file and the tensor, if the tensor comes from a file and
  // an element is a NaN or an infinity. The elements are searched only once, so a tensor can be
  // checked wherever it is used.
  virtual Status check(const std::string& /*name*/) const { return {}; }

  // Says that `bytes`, which belong to a tensor, will not be read for a while. Bytes that can be
  // read again, for example from a file, need not stay in memory during that time.
  virtual void release(std::span<const std::byte> /*bytes*/) const {}

  // Returns the digest of the weights. This may wait until the digest has been computed, so call it
  // last.
  virtual Result<std::string> digest() const = 0;
};

// Tensors that do not come from a file.
class OwnedTensors final : public TensorMemory {
 public:
  explicit OwnedTensors(std::string digest = "") : digest_(std::move(digest)) {}

  // `values` must have as many elements as the shape. The tensor is a view of this object's memory.
  Tensor add(std::vector<int64_t> shape, std::vector<float> values);

  Result<std::string> digest() const override { return digest_; }

 private:
  const std::string digest_;
  std::list<std::vector<float>> values_;
};

}  // namespace runnel
